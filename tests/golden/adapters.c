/* Kinds of adapters against PEFT (golden/adapters/make_curves.py): 20 steps of each in fp32, on one rank, on two and
 * four, with recomputation and at every level; the weights after them; merging; the values with which a new one
 * begins. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "convert/merge.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/train_run.h"

#define CURVES TT_TEST_ROOT "/golden/adapters/curves/"
enum { STEPS = 20 };

struct curve {
    const char *name, *base, *rate;
    const char *fresh; /* the settings that make such an adapter with magnitudes; NULL: it has none */
};

static const struct curve curves[] = {
    {"dora", "llama2", "0.01", "use_dora true lora_r 4 lora_alpha 8 lora_target_modules all-linear"},
    {"dora_some", "qwen2", "0.01",
     "use_dora true use_rslora true lora_r 3 lora_alpha 5 lora_target_modules "
     "q_proj,v_proj,gate_proj,down_proj "
     "rank_pattern {\"down_proj\":2}"},
    {"bias_lora_only", "qwen2", "0.01", NULL},
    {"bias_all", "qwen2", "0.002", NULL},
    {"tokens", "llama2", "0.01", NULL},
    {"tokens_head", "llama2", "0.01", NULL},
    {"tokens_tied", "gemma3", "0.01", NULL},
    {"tokens_apart", "gemma2", "0.01", NULL},
};
enum { CURVE_COUNT = sizeof curves / sizeof *curves };

static void add_inputs(struct test_words *settings, const struct curve *curve)
{
    char path[512];
    (void)snprintf(path, sizeof path, TT_TEST_ROOT "/golden/%s/model", curve->base);
    test_words_pair(settings, "model_name_or_path", path);
    (void)snprintf(path, sizeof path, TT_TEST_ROOT "/golden/%s/train.jsonl", curve->base);
    test_words_pair(settings, "dataset_name", path);
    test_words_add(settings, TEST_GOLDEN_STEPS " save_strategy no");
}

static void check_run(const struct curve *curve, const char *how)
{
    char path[512], weights[512], worst[200];
    struct test_words settings = {0};
    struct tt_train_summary summary;
    char *output = test_folder_create();
    add_inputs(&settings, curve);
    (void)snprintf(path, sizeof path, CURVES "%s/adapter_init", curve->name);
    test_words_pair(&settings, "adapter_name_or_path", path);
    test_words_pair(&settings, "learning_rate", curve->rate);
    test_words_add(&settings, how);
    test_train_ok(settings.list, output, &summary);
    (void)snprintf(path, sizeof path, CURVES "%s/train_reference.json", curve->name);
    test_same_curve(path, STEPS, how, output);
    (void)snprintf(weights, sizeof weights, "%s/adapter_model.safetensors", output);
    (void)snprintf(path, sizeof path, CURVES "%s/adapter_final/adapter_model.safetensors", curve->name);
    double error = test_compare_weights(weights, path, worst, sizeof worst);
    if (error > 1e-3) fail_msg("%s, %s: '%s' is off by %.2e", curve->name, how, worst, error);
    test_folder_remove(output);
}

static void steps_are_those_of_peft(void **state)
{
    static const char *const ways[] = {
        "recompute none",
        "recompute cheap",
        "recompute block per_device_train_batch_size 4 gradient_accumulation_steps 1",
        "recompute offload",
        "ranks 2 threads 1 per_device_train_batch_size 1",
        "ranks 2 threads 1 sharding_strategy NO_SHARD per_device_train_batch_size 1 recompute block",
        "ranks 4 threads 1 per_device_train_batch_size 1 gradient_accumulation_steps 1 recompute block",
    };
    (void)state;
    for (int i = 0; i < CURVE_COUNT; i++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) check_run(&curves[i], ways[w]);
}

static void merged_weights_are_those_of_peft(void **state)
{
    (void)state;
    for (int i = 0; i < CURVE_COUNT; i++) {
        char base[512], adapter[512], path[512];
        char *folder = test_folder_create();
        struct tt_merge merge;
        struct tt_merge_report report;
        struct tt_safetensors *want = NULL, *got = NULL;
        (void)snprintf(base, sizeof base, TT_TEST_ROOT "/golden/%s/model", curves[i].base);
        (void)snprintf(adapter, sizeof adapter, CURVES "%s/adapter_final", curves[i].name);
        test_must(tt_merge_open(base, adapter, &merge));
        test_must(tt_merge_write(&merge, &(struct tt_merge_options){.output_dir = folder, .overwrite = true},
                                 &report));
        tt_merge_report_deinit(&report);
        tt_merge_close(&merge);
        (void)snprintf(path, sizeof path, CURVES "%s/merged.safetensors", curves[i].name);
        test_must(tt_safetensors_open(path, &want));
        (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
        test_must(tt_safetensors_open(path, &got));
        for (size_t t = 0; t < tt_safetensors_count(want); t++) {
            static float a[1 << 14], b[1 << 14];
            const struct tt_safetensors_entry *entry = tt_safetensors_entry(want, t);
            int64_t count = entry->dims[0] * (entry->rank > 1 ? entry->dims[1] : 1);
            assert_true(count <= 1 << 14);
            test_must(tt_safetensors_read(want, entry, 0, count, a, TT_F32));
            test_must(tt_safetensors_read(got, tt_safetensors_find(got, entry->name), 0, count, b, TT_F32));
            for (int64_t k = 0; k < count; k++)
                if (fabsf(a[k] - b[k]) > 2e-6f * (1 + fabsf(a[k])))
                    fail_msg("%s: element %lld of %s is %.9g, PEFT merges to %.9g", curves[i].name,
                             (long long)k, entry->name, (double)b[k], (double)a[k]);
        }
        tt_safetensors_close(want);
        tt_safetensors_close(got);
        test_folder_remove(folder);
    }
}

/* The loss of the first step of an adapter that begins with B of zeros. */
static double first_loss(const struct curve *curve, const char *more, const char *output)
{
    double loss;
    struct test_words settings = {0};
    struct tt_train_summary summary;
    add_inputs(&settings, curve);
    test_words_add(&settings, curve->fresh);
    test_words_add(&settings, "max_steps 1 learning_rate 1e-30");
    test_words_add(&settings, more);
    test_train_ok(settings.list, output, &summary);
    assert_int_equal(test_read_log(output, "loss", &loss, 1), 1);
    return loss;
}

/* |W| of each row of the linear that has the magnitudes `entry`. */
static void check_magnitudes(const struct curve *curve, const struct tt_safetensors *adapter,
                             const struct tt_safetensors_entry *entry)
{
    static const char prefix[] = "base_model.model.", end[] = "lora_magnitude_vector";
    static float values[1 << 14], lengths[1 << 9];
    struct tt_safetensors *model = NULL;
    char path[512], name[256];
    (void)snprintf(path, sizeof path, TT_TEST_ROOT "/golden/%s/model/model.safetensors", curve->base);
    test_must(tt_safetensors_open(path, &model));
    (void)snprintf(name, sizeof name, "%.*sweight", (int)(strlen(entry->name) - strlen(prefix) - strlen(end)),
                   entry->name + strlen(prefix));
    const struct tt_safetensors_entry *weight = tt_safetensors_find(model, name);
    assert_non_null(weight);
    int64_t rows = weight->dims[0], columns = weight->dims[1];
    assert_true(entry->rank == 1 && entry->dims[0] == rows && rows * columns <= 1 << 14);
    test_must(tt_safetensors_read(model, weight, 0, rows * columns, values, TT_F32));
    test_must(tt_safetensors_read(adapter, entry, 0, rows, lengths, TT_F32));
    for (int64_t row = 0; row < rows; row++) {
        double squares = 0;
        for (int64_t c = 0; c < columns; c++)
            squares += (double)values[row * columns + c] * (double)values[row * columns + c];
        if (fabs((double)lengths[row] - sqrt(squares)) > 1e-6 * sqrt(squares))
            fail_msg("%s of row %lld begins as %.9g, the row's length is %.9g", entry->name, (long long)row,
                     (double)lengths[row], sqrt(squares));
    }
    tt_safetensors_close(model);
}

/* Magnitudes begin as the lengths of the rows, so that the first loss is that of the base. */
static void new_adapters_change_nothing(void **state)
{
    static const char *const ways[] = {"", "ranks 2 threads 1 per_device_train_batch_size 1", "bf16 true",
                                       "bf16 true ranks 2 threads 1 per_device_train_batch_size 1",
                                       "bf16 true ranks 2 threads 1 per_device_train_batch_size 1 "
                                       "sharding_strategy SHARD_GRAD_OP"};
    (void)state;
    for (int i = 0; i < CURVE_COUNT; i++)
        for (size_t w = 0; curves[i].fresh != NULL && w < sizeof ways / sizeof *ways; w++) {
            char path[512], plain[256];
            char *output = test_folder_create();
            struct tt_safetensors *adapter = NULL;
            (void)snprintf(plain, sizeof plain, "use_dora false %s", ways[w]);
            double want = first_loss(&curves[i], plain, output);
            test_folder_remove(output);
            output = test_folder_create();
            double got = first_loss(&curves[i], ways[w], output);
            /* bf16: the product is rounded before the residual is added */
            if (fabs(got - want) > (strstr(ways[w], "bf16") != NULL ? 5e-4 : 1e-6) * want)
                fail_msg("%s %s: a new adapter has loss %.9g, the base %.9g", curves[i].name, ways[w], got,
                         want);
            (void)snprintf(path, sizeof path, "%s/adapter_model.safetensors", output);
            test_must(tt_safetensors_open(path, &adapter));
            size_t found = 0;
            for (size_t t = 0; t < tt_safetensors_count(adapter); t++) {
                const struct tt_safetensors_entry *entry = tt_safetensors_entry(adapter, t);
                if (strstr(entry->name, "lora_magnitude_vector") == NULL) continue;
                if (strstr(ways[w], "bf16") == NULL) check_magnitudes(&curves[i], adapter, entry);
                found++;
            }
            assert_true(found > 0);
            tt_safetensors_close(adapter);
            test_folder_remove(output);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_peft),
        cmocka_unit_test(merged_weights_are_those_of_peft),
        cmocka_unit_test(new_adapters_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
