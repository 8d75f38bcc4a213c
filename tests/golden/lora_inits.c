/* Values of init_lora_weights that change the base against PEFT (golden/adapters/make_inits.py): the first B A and what
 * is left of the weights, 20 steps in fp32 on one rank, on two and resumed, and the plain adapter that is saved; over
 * weights of 4 bits and in bf16 against themselves. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/lapack.h"
#include "base/str.h"
#include "model/adapter_config.h"
#include "support/golden.h"
#include "support/model_runner.h"
#include "support/must.h"
#include "support/train_run.h"

#define INITS TT_TEST_ROOT "/golden/adapters/inits/"
#define LINEARS "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj "
enum { STEPS = 20, TOKENS = 8, VOCAB = 300, MATRIX = 1 << 14 };

struct init {
    const char *name, *base, *settings;
    bool lapack;
};

static const struct init inits[] = {
    {"pissa", "llama2", "init_lora_weights pissa lora_r 4 lora_alpha 8 lora_target_modules " LINEARS, true},
    {"pissa_some", "qwen2",
     "init_lora_weights pissa lora_r 3 lora_alpha 5 lora_target_modules q_proj,v_proj,up_proj,down_proj "
     "rank_pattern {\"down_proj\":2} alpha_pattern {\"q_proj\":4}",
     true},
    {"olora", "llama2", "init_lora_weights olora lora_r 4 lora_alpha 2 lora_target_modules " LINEARS, false},
    {"olora_rslora", "qwen2",
     "init_lora_weights olora use_rslora true lora_r 4 lora_alpha 1 lora_target_modules "
     "q_proj,up_proj,down_proj",
     false},
};
enum { INIT_COUNT = sizeof inits / sizeof *inits };

/* Says so where an init needs a LAPACK that this machine lacks. */
static bool runs_here(const struct init *init)
{
    const struct tt_lapack *lapack;
    if (!init->lapack || tt_lapack_open(&lapack) == TT_OK) return true;
    tt_error_clear();
    print_message("this machine has no LAPACK: %s is not compared\n", init->name);
    return false;
}

static void add_inputs(struct test_words *settings, const struct init *init)
{
    char path[512];
    (void)snprintf(path, sizeof path, TT_TEST_ROOT "/golden/%s/model", init->base);
    test_words_pair(settings, "model_name_or_path", path);
    (void)snprintf(path, sizeof path, TT_TEST_ROOT "/golden/%s/train.jsonl", init->base);
    test_words_pair(settings, "dataset_name", path);
    test_words_add(settings, TEST_GOLDEN_STEPS " lora_dropout 0 learning_rate 0.001");
    test_words_add(settings, init->settings);
}

static void train(const struct init *init, const char *how, const char *output)
{
    struct test_words settings = {0};
    struct tt_train_summary summary;
    add_inputs(&settings, init);
    test_words_add(&settings, how);
    test_train_ok(settings.list, output, &summary);
}

/* ---- Matrices ---- */

static int64_t read(const struct tt_safetensors *file, const char *name, float *to, int64_t *rows)
{
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, name);
    if (entry == NULL) fail_msg("%s has no %s", tt_safetensors_path(file), name);
    int64_t count = tt_safetensors_elements(entry);
    assert_true(count <= MATRIX);
    test_must(tt_safetensors_read(file, entry, 0, count, to, TT_F32));
    *rows = entry->dims[0];
    return count;
}

/* B A of a linear; returns its elements. */
static int64_t product(const struct tt_safetensors *file, const char *linear, double *ba)
{
    static float a[MATRIX], b[MATRIX];
    char name[256];
    int64_t r, out;
    (void)snprintf(name, sizeof name, "%s.lora_A.weight", linear);
    int64_t in = read(file, name, a, &r);
    (void)snprintf(name, sizeof name, "%s.lora_B.weight", linear);
    (void)read(file, name, b, &out);
    in /= r;
    assert_true(in * out <= MATRIX);
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < in; i++) {
            ba[o * in + i] = 0;
            for (int64_t k = 0; k < r; k++) ba[o * in + i] += (double)b[o * r + k] * (double)a[k * in + i];
        }
    return in * out;
}

static double distance(const double *got, const double *want, int64_t count)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    return sqrt(difference / size);
}

/* Each linear's change of the base, which the sign of a pair of vectors does not change. */
static void compare_adapter(const struct init *init, const char *how, const char *output)
{
    static double got[MATRIX], want[MATRIX];
    static const char end[] = ".lora_A.weight";
    struct tt_safetensors *ours = NULL, *theirs = NULL;
    char path[512], linear[256];
    (void)snprintf(path, sizeof path, "%s/adapter_model.safetensors", output);
    test_must(tt_safetensors_open(path, &ours));
    (void)snprintf(path, sizeof path, INITS "%s/adapter_final/adapter_model.safetensors", init->name);
    test_must(tt_safetensors_open(path, &theirs));
    assert_int_equal(tt_safetensors_count(ours), tt_safetensors_count(theirs));
    for (size_t t = 0; t < tt_safetensors_count(theirs); t++) {
        const struct tt_safetensors_entry *entry = tt_safetensors_entry(theirs, t);
        const struct tt_safetensors_entry *own = tt_safetensors_find(ours, entry->name);
        assert_non_null(own);
        assert_true(own->dims[0] == entry->dims[0] && own->dims[1] == entry->dims[1]);
        if (!tt_ends_with(entry->name, end)) continue;
        (void)snprintf(linear, sizeof linear, "%.*s", (int)(strlen(entry->name) - strlen(end)), entry->name);
        int64_t count = product(ours, linear, got);
        assert_int_equal(product(theirs, linear, want), count);
        double error = distance(got, want, count);
        if (!(error < 1e-3)) fail_msg("%s, %s: %s is off by %.2e", init->name, how, linear, error);
    }
    tt_safetensors_close(ours);
    tt_safetensors_close(theirs);
}

static double json_number(const char *folder, const char *key)
{
    char path[512];
    struct tt_json json = {0};
    (void)snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    test_must(tt_json_read(path, 1 << 20, &json));
    double value = tt_json_number(tt_json_get(json.root, key));
    tt_json_deinit(&json);
    return value;
}

/* The saved adapter gives the logits of PEFT's trained model, over the base as it was. */
static void compare_logits(const struct init *init, const char *output)
{
    static float want[TOKENS * VOCAB], got[TOKENS * VOCAB];
    char path[512];
    struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
    struct tt_model_options options = {.compute_dtype = TT_F32};
    struct tt_safetensors *file = NULL;
    struct tt_arena arena = {0};
    int64_t ids[TOKENS], length = TOKENS;
    int32_t narrow[TOKENS];
    double difference = 0, size = 0;
    (void)snprintf(path, sizeof path, INITS "%s/logits.safetensors", init->name);
    test_must(tt_safetensors_open(path, &file));
    int64_t count = tt_safetensors_elements(tt_safetensors_find(file, "logits"));
    assert_true(count <= TOKENS * VOCAB);
    test_must(tt_safetensors_read(file, tt_safetensors_find(file, "logits"), 0, count, want, TT_F32));
    test_must(tt_safetensors_read(file, tt_safetensors_find(file, "ids"), 0, TOKENS, ids, TT_I64));
    tt_safetensors_close(file);
    for (int t = 0; t < TOKENS; t++) narrow[t] = (int32_t)ids[t];
    (void)snprintf(path, sizeof path, TT_TEST_ROOT "/golden/%s/model", init->base);
    tt_runner_read_config(path, NULL, facts);
    test_must(tt_adapter_config_read(output, &arena, &options.lora));
    struct tt_model_runner *runner = tt_runner_create(facts, &options);
    tt_runner_load(runner, path, output);
    tt_runner_set_batch(runner, narrow, &length, 1, NULL);
    tt_runner_logits(runner, got);
    for (int64_t i = 0; i < count; i++) {
        difference += pow((double)got[i] - (double)want[i], 2);
        size += pow((double)want[i], 2);
    }
    if (!(sqrt(difference / size) < 1e-5))
        fail_msg("%s: logits differ from PEFT's by %.2e", init->name, sqrt(difference / size));
    tt_runner_destroy(runner);
    tt_arena_deinit(&arena);
    tt_free(facts);
}

static void steps_and_adapters_are_those_of_peft(void **state)
{
    static const char *const ways[] = {
        "save_strategy no recompute none",
        "save_strategy no ranks 2 threads 1 per_device_train_batch_size 1",
        "save_strategy no ranks 2 threads 1 per_device_train_batch_size 1 sharding_strategy NO_SHARD "
        "recompute block",
    };
    (void)state;
    for (int i = 0; i < INIT_COUNT; i++)
        for (size_t w = 0; runs_here(&inits[i]) && w < sizeof ways / sizeof *ways; w++) {
            char theirs[400];
            char *output = test_folder_create();
            train(&inits[i], ways[w], output);
            (void)snprintf(theirs, sizeof theirs, INITS "%s/train_reference.json", inits[i].name);
            test_same_curve(theirs, STEPS, ways[w], output);
            compare_adapter(&inits[i], ways[w], output);
            compare_logits(&inits[i], output);
            (void)snprintf(theirs, sizeof theirs, INITS "%s/adapter_final", inits[i].name);
            assert_true(json_number(output, "r") == json_number(theirs, "r"));
            assert_true(fabs(json_number(output, "lora_alpha") - json_number(theirs, "lora_alpha")) < 1e-9);
            test_folder_remove(output);
        }
}

/* B A, and the weight without it, as PEFT leaves it. */
static void first_values_are_those_of_peft(void **state)
{
    static double got[MATRIX], want[MATRIX];
    static float theirs[MATRIX], weight[MATRIX];
    (void)state;
    for (int i = 0; i < INIT_COUNT; i++) {
        if (!runs_here(&inits[i])) continue;
        char path[512], linear[256];
        struct tt_safetensors *ours = NULL, *peft = NULL, *base = NULL;
        char *output = test_folder_create();
        train(&inits[i], "max_steps 1 save_strategy no", output);
        double scaling = json_number(output, "lora_alpha") / json_number(output, "r");
        (void)snprintf(path, sizeof path, "%s/initial_adapter/adapter_model.safetensors", output);
        test_must(tt_safetensors_open(path, &ours));
        (void)snprintf(path, sizeof path, INITS "%s/first.safetensors", inits[i].name);
        test_must(tt_safetensors_open(path, &peft));
        (void)snprintf(path, sizeof path, TT_TEST_ROOT "/golden/%s/model/model.safetensors", inits[i].base);
        test_must(tt_safetensors_open(path, &base));
        for (size_t t = 0; t < tt_safetensors_count(peft); t++) {
            const char *name = tt_safetensors_entry(peft, t)->name, *at = strchr(name, '.') + 1;
            int64_t rows;
            (void)snprintf(linear, sizeof linear, "base_model.model.model.%s", at);
            int64_t count = product(ours, linear, got);
            assert_int_equal(read(peft, name, theirs, &rows), count);
            for (int64_t k = 0; k < count; k++) want[k] = (double)theirs[k];
            if (tt_starts_with(name, "residual.")) {
                (void)snprintf(path, sizeof path, "model.%s.weight", at);
                if (strcmp(inits[i].base, "llama2") != 0) continue;
                (void)read(base, path, weight, &rows);
                for (int64_t k = 0; k < count; k++) got[k] = (double)weight[k] - scaling * got[k];
            }
            double error = distance(got, want, count);
            if (!(error < 1e-5)) /* PEFT decomposes in fp32 */
                fail_msg("%s: %s is off by %.2e", inits[i].name, name, error);
        }
        tt_safetensors_close(ours);
        tt_safetensors_close(peft);
        tt_safetensors_close(base);
        test_folder_remove(output);
    }
}

/* Values of another kind leave another base. */
static void refuse_changed(const struct init *init, const char *how, const char *output)
{
    struct test_words settings = {0};
    struct tt_train_summary summary;
    add_inputs(&settings, init);
    test_words_add(&settings, how);
    test_words_add(&settings, "init_lora_weights true overwrite_output_dir true");
    assert_int_equal(test_train(settings.list, output, &summary), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "init_lora_weights was"));
}

/* A run that goes on elsewhere has the bits of one that never stopped: of masters, and of what is left of the base. */
static void resumed_runs_are_the_same(void **state)
{
    static const char *const ways[] = {
        "save_steps 8",
        "save_steps 8 bf16 true",
        "save_steps 8 bf16 true load_in_4bit true",
        "save_steps 8 ranks 2 threads 1 per_device_train_batch_size 1 load_in_8bit true bf16 true",
        "save_steps 8 use_dora true lora_dropout 0.1",
    };
    (void)state;
    for (int i = 0; i < INIT_COUNT; i += 2) /* all linears */
        for (size_t w = 0; runs_here(&inits[i]) && w < sizeof ways / sizeof *ways; w++) {
            char how[700], a[512], b[512];
            char *whole = test_folder_create(), *resumed = test_folder_create();
            train(&inits[i], ways[w], whole);
            (void)snprintf(how, sizeof how, "%s resume_from_checkpoint %s/checkpoint-8", ways[w], whole);
            train(&inits[i], how, resumed);
            (void)snprintf(a, sizeof a, "%s/adapter_model.safetensors", whole);
            (void)snprintf(b, sizeof b, "%s/adapter_model.safetensors", resumed);
            test_same_file(a, b);
            refuse_changed(&inits[i], how, resumed);
            test_folder_remove(whole);
            test_folder_remove(resumed);
        }
}

/* The same curve on two ranks over weights of 4 bits and in bf16, whose first loss is nearly that of the base. */
static void other_bases_have_one_curve(void **state)
{
    static const char *const ways[] = {"bf16 true", "bf16 true load_in_4bit true",
                                       "load_in_4bit true bnb_4bit_use_double_quant true",
                                       "load_in_8bit true bf16 true"};
    (void)state;
    for (int i = 0; i < INIT_COUNT; i += 2)
        for (size_t w = 0; runs_here(&inits[i]) && w < sizeof ways / sizeof *ways; w++) {
            char how[512];
            double one[STEPS], two[STEPS], base;
            char *output = test_folder_create();
            (void)snprintf(how, sizeof how, "save_strategy no %s", ways[w]);
            train(&inits[i], how, output);
            assert_int_equal(test_read_log(output, "loss", one, STEPS), STEPS);
            test_folder_remove(output);
            output = test_folder_create();
            (void)snprintf(how, sizeof how,
                           "save_strategy no %s ranks 2 threads 1 per_device_train_batch_size 1", ways[w]);
            train(&inits[i], how, output);
            assert_int_equal(test_read_log(output, "loss", two, STEPS), STEPS);
            test_folder_remove(output);
            output = test_folder_create();
            train(&inits[i], "save_strategy no max_steps 1 init_lora_weights true", output);
            assert_int_equal(test_read_log(output, "loss", &base, 1), 1);
            test_folder_remove(output);
            for (int s = 0; s < STEPS; s++)
                if (!(fabs(one[s] - two[s]) < 1e-3 * one[s]))
                    fail_msg("%s, %s, step %d: %.9g on one rank, %.9g on two", inits[i].name, ways[w], s + 1,
                             one[s], two[s]);
            if (!(fabs(one[0] - base) < 0.01 * base))
                fail_msg("%s, %s: the first loss is %.6g, that of the base %.6g", inits[i].name, ways[w],
                         one[0], base);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_values_are_those_of_peft),
        cmocka_unit_test(steps_and_adapters_are_those_of_peft),
        cmocka_unit_test(resumed_runs_are_the_same),
        cmocka_unit_test(other_bases_have_one_curve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
