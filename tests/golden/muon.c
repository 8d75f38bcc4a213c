/* Muon against torch.optim.Muon (golden/optim/make_muon.py): 20 steps of matrices of several shapes and settings with
 * the iteration in float32, to 1e-5, and in bfloat16, within torch's own distance from float32; the memory that is
 * kept; 20 steps of a model on one, two and four ranks; strategies with the same gradients have the same bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "backend/workspace.h"
#include "io/safetensors.h"
#include "job/resolve.h"
#include "optim/moments.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/train_run.h"

enum { STEPS = 20, COUNT_MAX = 130 * 70 };

#define WEIGHTS TT_TEST_ROOT "/golden/optim/muon.safetensors"

static struct tt_json golden;

/* `noise` of make_muon.py. */
static void fill(float *values, int64_t count, uint32_t seed, float factor)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t x = (uint32_t)i + seed * 0x9E3779B9u;
        x = (x ^ (x >> 16)) * 0x7FEB352Du;
        x = (x ^ (x >> 15)) * 0x846CA68Bu;
        x ^= x >> 16;
        values[i] = factor * (float)((double)(x >> 8) / 8388608.0 - 1.0);
    }
}

struct matrix {
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_workspace *workspace;
    const struct tt_optimizer *optimizer;
    struct tt_moments moments;
    struct tt_optim_config config;
    tt_param param;
    float *master, *grad, *direction;
};

static void open_matrix(struct matrix *matrix, int64_t rows, int64_t columns)
{
    const struct tt_device_config config = {.kind = "cpu", .threads = 2};
    const int64_t count = rows * columns;
    matrix->param = (tt_param){.name = "w",
                               .rank = 2,
                               .dims = {rows, columns},
                               .trainable = true,
                               .weight_decay = TT_DECAY_FULL,
                               .lr_scale = 1.0};
    const struct tt_moments_run run = {.param = &matrix->param, .count = count};
    matrix->optimizer = tt_optimizer_of(&matrix->config);
    assert_string_equal(matrix->optimizer->rule->name, "Muon");
    test_must(tt_device_open(&config, &matrix->device));
    test_must(tt_stream_create(matrix->device, &matrix->stream));
    test_must(tt_workspace_create(matrix->device, 1 << 20, &matrix->workspace));
    test_must(tt_moments_init(matrix->device, matrix->optimizer, &run, 1, count, false, &matrix->moments));
    matrix->master = test_calloc((size_t)count, sizeof(float));
    matrix->grad = test_calloc((size_t)count, sizeof(float));
    matrix->direction = test_calloc((size_t)count, sizeof(float));
}

static void close_matrix(struct matrix *matrix)
{
    test_free(matrix->master);
    test_free(matrix->grad);
    test_free(matrix->direction);
    tt_moments_deinit(&matrix->moments);
    tt_workspace_destroy(matrix->workspace);
    tt_stream_destroy(matrix->stream);
    tt_device_close(matrix->device);
}

static void step_matrix(struct matrix *matrix, int64_t step)
{
    const struct tt_whole_rule *whole = matrix->optimizer->rule->whole;
    tt_dtype dtype = whole->dtype(&matrix->config);
    const int64_t rows = matrix->param.dims[0], columns = matrix->param.dims[1];
    tt_tensor flat = tt_tensor_1d(matrix->direction, dtype, rows * columns);
    const struct tt_moments_step update = {.master = matrix->master,
                                           .grad = matrix->grad,
                                           .lr = matrix->config.learning_rate,
                                           .grad_scale = 1.0f,
                                           .step = step + 1};
    test_must(tt_moments_direct(matrix->stream, matrix->optimizer, &matrix->config, &matrix->moments, &update,
                                flat));
    test_must(whole->turn(matrix->stream, &matrix->config, matrix->workspace,
                          tt_tensor_2d(flat.data, dtype, rows, columns)));
    test_must(tt_moments_apply(matrix->stream, matrix->optimizer, &matrix->config, &matrix->moments, &update,
                               flat));
}

static double number(const struct tt_json_value *object, const char *key, double absent)
{
    const struct tt_json_value *value = tt_json_get(object, key);
    return value != NULL ? tt_json_number(value) : absent;
}

static int word_of(const struct tt_json_value *object, const char *key)
{
    static const char *const words[] = {"original", "match_rms_adamw", "spectral_unclamped"};
    const char *text = tt_json_text(tt_json_get(object, key));
    for (int i = 0; i < 3 && text != NULL; i++)
        if (strcmp(text, words[i]) == 0) return i;
    return 0;
}

static void read_tensor(const struct tt_safetensors *file, const char *name, const char *type, float *values,
                        int64_t count)
{
    char key[100];
    (void)snprintf(key, sizeof key, "%s.%s", name, type);
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, key);
    assert_non_null(entry);
    test_must(tt_safetensors_read(file, entry, 0, count, values, TT_F32));
}

static double distance(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum);
}

/* The matrix after 20 steps. */
static void run_case(const struct tt_json_value *row, uint32_t index, int ns_dtype, float *result)
{
    static const char coefficients[] = "[2.0, -1.5, 0.5]"; /* of the case that has some */
    struct matrix matrix = {.config = {.optim = "muon",
                                       .learning_rate = number(row, "lr", 0),
                                       .weight_decay = number(row, "weight_decay", 0),
                                       .norm_weight_decay = -1,
                                       .momentum = number(row, "momentum", 0),
                                       .nesterov = tt_json_is_true(tt_json_get(row, "nesterov")),
                                       .ns_steps = (int64_t)number(row, "ns_steps", 5),
                                       .ns_epsilon = 1e-7,
                                       .ns_dtype = ns_dtype,
                                       .adjust_lr_fn = word_of(row, "adjust_lr_fn")}};
    if (tt_json_get(row, "ns_coefficients") != NULL) matrix.config.ns_coefficients = coefficients;
    int64_t rows = (int64_t)number(row, "rows", 0), columns = (int64_t)number(row, "columns", 0);
    test_must(tt_optimizer_check(&matrix.config));
    open_matrix(&matrix, rows, columns);
    fill(matrix.master, rows * columns, index * 1000, 0.1f);
    for (uint32_t step = 0; step < STEPS; step++) {
        fill(matrix.grad, rows * columns, index * 1000 + 1 + step, 1.0f);
        step_matrix(&matrix, step);
    }
    memcpy(result, matrix.master, (size_t)(rows * columns) * sizeof(float));
    close_matrix(&matrix);
}

static void steps_are_those_of_torch(void **state)
{
    static float ours32[COUNT_MAX], ours16[COUNT_MAX], torch32[COUNT_MAX], torch16[COUNT_MAX];
    struct tt_safetensors *file = NULL;
    const char *name;
    const struct tt_json_value *row;
    uint32_t index = 0;
    (void)state;
    test_must(tt_safetensors_open(WEIGHTS, &file));
    for (size_t at = 0; tt_json_next_member(tt_json_get(golden.root, "cases"), &at, &name, &row); index++) {
        int64_t count = (int64_t)(number(row, "rows", 0) * number(row, "columns", 0));
        run_case(row, index, TT_NS_FLOAT32, ours32);
        run_case(row, index, TT_NS_BFLOAT16, ours16);
        read_tensor(file, name, "float32", torch32, count);
        read_tensor(file, name, "bfloat16", torch16, count);
        for (int64_t i = 0; i < count; i++)
            if (fabs((double)ours32[i] - (double)torch32[i]) > 1e-5)
                fail_msg("%s, element %lld: %.8g, torch has %.8g", name, (long long)i, (double)ours32[i],
                         (double)torch32[i]);
        double rounding = distance(torch16, torch32, count), apart = distance(ours16, torch16, count);
        print_message("%s: %.3g from torch in bfloat16, which is %.3g from float32\n", name, apart, rounding);
        assert_true(rounding > 0 && apart <= 0.5 * rounding);
    }
    assert_true(index >= 5);
    tt_safetensors_close(file);
}

/* One value for each element of a matrix, two for all others. */
static void matrices_keep_one_value(void **state)
{
    const struct tt_optim_config config = {.optim = "muon"};
    const struct tt_device_config cpu = {.kind = "cpu", .threads = 1};
    static const tt_param params[] = {
        {.name = "q", .rank = 2, .dims = {32, 64}},
        {.name = "norm", .rank = 1, .dims = {64}},
        {.name = "up", .rank = 2, .dims = {64, 16}},
        {.name = "embed", .rank = 2, .dims = {16, 64}, .place = TT_PLACE_EMBEDDING},
        {.name = "head", .rank = 2, .dims = {16, 64}, .place = TT_PLACE_HEAD},
    };
    static const int64_t counts[] = {2048, 64, 1024, 1024, 1024};
    struct tt_moments_run runs[5];
    struct tt_moments moments;
    struct tt_device *device = NULL;
    struct tt_state_value value;
    const struct tt_optimizer *muon = tt_optimizer_of(&config);
    (void)state;
    for (int64_t i = 0, offset = 0; i < 5; offset += counts[i++])
        runs[i] = (struct tt_moments_run){.param = &params[i], .offset = offset, .count = counts[i]};
    test_must(tt_device_open(&cpu, &device));
    test_must(tt_moments_init(device, muon, runs, 5, 5184, false, &moments));
    assert_int_equal(moments.bytes, 4 * (5184 + 64 + 2 * 1024));
    tt_moments_deinit(&moments);
    tt_device_close(device);
    assert_true(tt_optimizer_value(muon, &params[0], 0, &value));
    assert_string_equal(value.prefix, "optimizer.momentum_buffer.");
    assert_false(tt_optimizer_value(muon, &params[0], 1, &value));
    assert_true(tt_optimizer_value(muon, &params[3], 1, &value));
    assert_string_equal(value.prefix, "optimizer.exp_avg_sq.");
}

static void train(const char *more, const char *output)
{
    struct test_words settings = {0};
    struct tt_train_summary summary;
    test_golden_inputs(&settings, "llama2", false);
    test_words_add(&settings, TEST_GOLDEN_STEPS " save_strategy no optim muon learning_rate 0.005 threads 1");
    test_words_add(&settings, more);
    test_train_ok(settings.list, output, &summary);
}

static void compare_column(const char *more, const char *output, const char *name, double relative)
{
    double got[STEPS + 1];
    assert_int_equal(test_read_log(output, name, got, STEPS + 1), STEPS);
    for (size_t i = 0; i < STEPS; i++) {
        double want = tt_json_number(tt_json_get(tt_json_at(tt_json_get(golden.root, "steps"), i), name));
        if (fabs(got[i] - want) > relative * want)
            fail_msg("with %s, step %zu: %s %.9g, torch has %.9g", more, i + 1, name, got[i], want);
    }
}

static void a_model_trains_as_with_torch(void **state)
{
    static const char *const ways[] = {
        "ns_dtype float32",
        "ns_dtype float32 ranks 2 per_device_train_batch_size 1",
        "ns_dtype float32 ranks 4 per_device_train_batch_size 1 gradient_accumulation_steps 1",
        "ns_dtype float32 ranks 4 per_device_train_batch_size 1 gradient_accumulation_steps 1 "
        "sharding_strategy NO_SHARD",
    };
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char weights[512], worst[200], *output = test_folder_create();
        train(ways[i], output);
        compare_column(ways[i], output, "loss", 1e-4);
        compare_column(ways[i], output, "grad_norm", 2e-3);
        compare_column(ways[i], output, "learning_rate", 1e-9);
        (void)snprintf(weights, sizeof weights, "%s/model.safetensors", output);
        double error = test_compare_weights(weights, TT_TEST_ROOT "/golden/optim/muon_model.safetensors",
                                            worst, sizeof worst);
        print_message("%s: weights %.2e from torch's (%s)\n", ways[i], error, worst);
        if (error > 1e-5) fail_msg("with %s, '%s' is off by %.2e", ways[i], worst, error);
        test_folder_remove(output);
    }
}

/* Strategies with the same gradients have the same bits, whoever turns a matrix; and so has the same run once more. */
static void ranks_turn_to_the_same_bits(void **state)
{
    static const char *const strategies[] = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "FULL_SHARD"};
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        char *first = test_folder_create(), a[512], b[512], more[200];
        (void)snprintf(a, sizeof a, "%s/model.safetensors", first);
        for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
            char *output = s == 0 ? first : test_folder_create();
            (void)snprintf(
                more, sizeof more,
                "ranks %d per_device_train_batch_size %d gradient_accumulation_steps 1 max_steps 4 "
                "sharding_strategy %s",
                ranks, 4 / ranks, strategies[s]);
            train(more, output);
            (void)snprintf(b, sizeof b, "%s/model.safetensors", output);
            test_same_file(a, b);
            if (s > 0) test_folder_remove(output);
        }
        test_folder_remove(first);
    }
}

static void settings_of_muon(void **state)
{
    struct tt_job_spec job = {0};
    struct tt_settings *settings = NULL;
    static const char yaml[] = "model: m\ndataset: d\noptim: muon\n";
    (void)state;
    test_must(tt_job_settings_create(TT_JOB_TRAIN, &job, sizeof job, &settings));
    test_must(tt_settings_parse_yaml(settings, yaml, strlen(yaml), "t.yaml"));
    test_must(tt_train_resolve(settings, &job));
    assert_true(job.optim.momentum == 0.95 && job.optim.nesterov && job.optim.ns_steps == 5);
    assert_true(job.optim.ns_epsilon == 1e-7 && job.optim.ns_dtype == TT_NS_BFLOAT16);
    job.optim.ns_coefficients = "[1, 2]";
    assert_int_equal(tt_optimizer_check(&job.optim), TT_ERR_USAGE);
    assert_non_null(
        strstr(tt_error_last()->message, "ns_coefficients is not a list of three numbers: '[1, 2]'"));
    tt_settings_destroy(settings);
}

/* A detector's matrices have four dimensions: AdamW's defaults are its, not those of SGD. */
static void a_detector_has_the_defaults_of_adamw(void **state)
{
    struct tt_job_spec job = {0};
    struct tt_settings *settings = NULL;
    static const char yaml[] = "task: detection\nlocal_image_dir: i\nannotations: a.csv\noptim: muon\n";
    (void)state;
    test_must(tt_job_settings_create(TT_JOB_TRAIN, &job, sizeof job, &settings));
    test_must(tt_settings_parse_yaml(settings, yaml, strlen(yaml), "t.yaml"));
    test_must(tt_train_resolve(settings, &job));
    assert_true(job.optim.learning_rate == 1e-4 && job.optim.momentum == 0.95);
    tt_settings_destroy(settings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_torch),
        cmocka_unit_test(matrices_keep_one_value),
        cmocka_unit_test(a_model_trains_as_with_torch),
        cmocka_unit_test(ranks_turn_to_the_same_bits),
        cmocka_unit_test(settings_of_muon),
        cmocka_unit_test(a_detector_has_the_defaults_of_adamw),
    };
    test_must(tt_json_read(TT_TEST_ROOT "/golden/optim/muon.json", 1 << 20, &golden));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tt_json_deinit(&golden);
    return failed;
}
