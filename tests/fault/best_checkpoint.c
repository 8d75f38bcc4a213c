/* load_best_model_at_end when something happens to files while the run trains: a best checkpoint that was removed or
 * damaged leaves the weights of the last step, and an adapter run does not need the files of its base any more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/log.h"
#include "support/train_run.h"
#include "support/workplace.h"

struct scene {
    struct test_workplace place;
    char output[TEST_PATH_BYTES];
    const char *weights; /* name of the file */
    void (*damage)(const struct scene *scene);
    bool damaged;
    char warnings[2000];
};

/* Greater losses count as better: the first of the evaluations is the best. */
enum { BEST_STEP = 2, LAST_STEP = 6 };

static const char *checkpoint_file(const struct scene *scene, int step, char path[TEST_PATH_BYTES])
{
    char name[128];
    snprintf(name, sizeof name, "checkpoint-%d/%s", step, scene->weights);
    return test_join(scene->output, name, path);
}

static void flip_byte(const struct scene *scene)
{
    char path[TEST_PATH_BYTES], byte;
    FILE *file = fopen(checkpoint_file(scene, BEST_STEP, path), "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -100, SEEK_END), 0);
    assert_int_equal(fread(&byte, 1, 1, file), 1);
    byte ^= 1;
    assert_int_equal(fseek(file, -100, SEEK_END), 0);
    assert_int_equal(fwrite(&byte, 1, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

static void remove_checkpoint(const struct scene *scene)
{
    char path[TEST_PATH_BYTES];
    assert_int_equal(tt_dir_remove(test_join(scene->output, "checkpoint-2", path)), TT_OK);
}

static void cut_off_base(const struct scene *scene)
{
    char path[TEST_PATH_BYTES];
    assert_int_equal(truncate(test_join(scene->place.model, "model.safetensors", path), 4096), 0);
}

/* From the thread of the loop, when the second checkpoint is complete. */
static void on_save(void *context, const char *folder, double seconds)
{
    struct scene *scene = context;
    (void)seconds;
    if (scene->damaged || strstr(folder, "checkpoint-4") == NULL) return;
    scene->damage(scene);
    scene->damaged = true;
}

static void keep_warning(void *context, enum tt_log_level level, const char *message)
{
    struct scene *scene = context;
    size_t used = strlen(scene->warnings);
    if (level == TT_LOG_WARNING)
        snprintf(scene->warnings + used, sizeof scene->warnings - used, "%s\n", message);
}

/* The result has the weights of checkpoint-<step>. `says`: in a warning, or NULL for none of the best checkpoint. */
static void run(const char *more, const char *weights, void (*damage)(const struct scene *), int step,
                const char *says)
{
    struct scene scene = {.weights = weights, .damage = damage};
    struct test_words words = {0};
    struct tt_train_summary summary;
    char data[TEST_PATH_BYTES], result[TEST_PATH_BYTES], wanted[TEST_PATH_BYTES];
    test_workplace_create("qwen2", &scene.place);
    snprintf(data, sizeof data, "%s/golden/qwen2/train.jsonl", TT_TEST_ROOT);
    test_words_pair(&words, "model_name_or_path", scene.place.model);
    test_words_pair(&words, "dataset_name", data);
    test_words_pair(&words, "eval_dataset", data);
    test_words_add(
        &words, "threads 1 ranks 2 max_steps 6 save_steps 2 eval_strategy steps eval_steps 2 report_to none "
                "learning_rate 1e-2 load_best_model_at_end true metric_for_best_model loss "
                "greater_is_better true");
    test_words_add(&words, more);
    test_workplace_path(&scene.place, "out", scene.output);
    struct tt_train_observer observer = {.context = &scene, .on_save = on_save};
    tt_log_set_sink(keep_warning, &scene);
    tt_status status = test_train_watched(words.list, scene.output, &observer, NULL, &summary);
    tt_log_set_sink(NULL, NULL);
    if (status != TT_OK) print_error("%s\n", tt_error_last()->message);
    assert_int_equal(status, TT_OK);
    assert_true(scene.damaged);
    const char *warning = strstr(scene.warnings, "the best checkpoint cannot be loaded");
    if (says == NULL) assert_null(warning);
    if (says != NULL) assert_non_null(warning);
    if (says != NULL) assert_non_null(strstr(warning, says));
    test_same_file(test_join(scene.output, weights, result), checkpoint_file(&scene, step, wanted));
    test_workplace_remove(&scene.place);
}

static void a_damaged_one_leaves_the_last_weights(void **state)
{
    (void)state;
    run("lora_r 2", "adapter_model.safetensors", flip_byte, LAST_STEP,
        "is not as it was saved: its bytes have changed; the result has the weights of the last step");
    run("use_peft false", "model.safetensors", flip_byte, LAST_STEP, "its bytes have changed");
}

static void a_removed_one_leaves_the_last_weights(void **state)
{
    (void)state;
    run("lora_r 2", "adapter_model.safetensors", remove_checkpoint, LAST_STEP, "does not exist");
    run("use_peft false", "model.safetensors", remove_checkpoint, LAST_STEP, "does not exist");
}

static void the_base_is_not_read_again(void **state)
{
    (void)state;
    run("lora_r 2", "adapter_model.safetensors", cut_off_base, BEST_STEP, NULL);
    run("lora_r 2 load_in_4bit true", "adapter_model.safetensors", cut_off_base, BEST_STEP, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_damaged_one_leaves_the_last_weights),
        cmocka_unit_test(a_removed_one_leaves_the_last_weights),
        cmocka_unit_test(the_base_is_not_read_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
