#include "support/train_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "io/safetensors.h"
#include "job/resolve.h"

tt_status test_train(const char *const *pairs, const char *output_dir, struct tt_train_summary *summary)
{
    return test_train_watched(pairs, output_dir, NULL, NULL, summary);
}

tt_status test_train_watched(const char *const *pairs, const char *output_dir,
                             const struct tt_train_observer *observer, struct tt_cancel *cancel,
                             struct tt_train_summary *summary)
{
    struct tt_job_spec config = {0};
    struct tt_settings *settings = NULL;
    tt_status status = TT_OK;
    TT_GO(tt_job_settings_create(TT_JOB_TRAIN, &config, sizeof config, &settings));
    TT_GO(tt_settings_set(settings, "output_dir", output_dir, "test"));
    TT_GO(tt_settings_set(settings, "report_to", "none", "test"));
    TT_GO(tt_settings_set(settings, "overwrite_output_dir", "true", "test"));
    for (; *pairs != NULL; pairs += 2) TT_GO(tt_settings_set(settings, pairs[0], pairs[1], "test"));
    TT_GO(tt_train_resolve(settings, &config));
    TT_GO(tt_trainer_run(&config, settings, observer, cancel, summary));
out:
    tt_settings_destroy(settings);
    return status;
}

void test_train_ok(const char *const *pairs, const char *output_dir, struct tt_train_summary *summary)
{
    if (test_train(pairs, output_dir, summary) == TT_OK) return;
    char text[2048];
    tt_error_format(tt_error_last(), text, sizeof text);
    fail_msg("%s", text);
}

static tt_status evaluate(const char *const *pairs, bool exact_match, struct tt_eval_result *result)
{
    struct tt_eval_spec spec = {0};
    struct tt_settings *settings = NULL;
    tt_status status = TT_OK;
    TT_GO(tt_job_settings_create(TT_JOB_EVALUATE, &spec, sizeof spec, &settings));
    TT_GO(tt_settings_set(settings, "exact_match", exact_match ? "true" : "false", "test"));
    TT_GO(tt_settings_set(settings, "max_new_tokens", "16", "test"));
    for (; *pairs != NULL; pairs += 2) TT_GO(tt_settings_set(settings, pairs[0], pairs[1], "test"));
    TT_GO(tt_evaluate_resolve(settings, &spec.job));
    TT_GO(tt_evaluate_run(&spec, NULL, NULL, result, NULL));
out:
    tt_settings_destroy(settings);
    return status;
}

void test_evaluate_ok(const char *const *pairs, bool exact_match, struct tt_eval_result *result)
{
    if (evaluate(pairs, exact_match, result) == TT_OK) return;
    char text[2048];
    tt_error_format(tt_error_last(), text, sizeof text);
    fail_msg("%s", text);
}

int test_read_log(const char *output_dir, const char *name, double *values, int capacity)
{
    struct tt_json json = {0};
    char *path = tt_path_join(output_dir, "trainer_state.json");
    assert_int_equal(tt_json_read(path, 1 << 26, &json), TT_OK);
    const struct tt_json_value *history = tt_json_get(json.root, "log_history");
    int count = 0;
    for (size_t i = 0; i < tt_json_count(history) && count < capacity; i++) {
        const struct tt_json_value *value = tt_json_get(tt_json_at(history, i), name);
        if (value != NULL) values[count++] = tt_json_number(value);
    }
    tt_json_deinit(&json);
    tt_free(path);
    return count;
}

void test_same_curve(const char *reference_path, int steps, const char *what, const char *output_dir)
{
    static const struct {
        const char *name;
        double limit;
    } columns[] = {{"loss", 1e-5}, {"grad_norm", 1e-3}, {"learning_rate", 1e-9}};
    enum { MOST = 256 };
    double got[MOST];
    struct tt_json reference = {0};
    assert_true(steps < MOST);
    assert_int_equal(tt_json_read(reference_path, 1 << 24, &reference), TT_OK);
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
        assert_int_equal(test_read_log(output_dir, columns[c].name, got, steps + 1), steps);
        for (int i = 0; i < steps; i++) {
            const struct tt_json_value *step = tt_json_at(tt_json_get(reference.root, "steps"), (size_t)i);
            double want = tt_json_number(tt_json_get(step, columns[c].name));
            if (!(fabs(got[i] - want) <= columns[c].limit * want))
                fail_msg("%s, %s, step %d: %s %.9g, the reference has %.9g", reference_path, what, i + 1,
                         columns[c].name, got[i], want);
        }
    }
    tt_json_deinit(&reference);
}

static double relative_error(const struct tt_safetensors *a, const struct tt_safetensors *b,
                             const struct tt_safetensors_entry *wanted)
{
    const struct tt_safetensors_entry *got = tt_safetensors_find(a, wanted->name);
    if (got == NULL) fail_msg("'%s' is missing", wanted->name);
    assert_int_equal(got->rank, wanted->rank);
    int64_t count = 1;
    for (int d = 0; d < got->rank; d++) {
        assert_int_equal(got->dims[d], wanted->dims[d]);
        count *= got->dims[d];
    }
    float *x = tt_calloc((size_t)count, sizeof *x), *y = tt_calloc((size_t)count, sizeof *y);
    assert_int_equal(tt_safetensors_read(a, got, 0, count, x, TT_F32), TT_OK);
    assert_int_equal(tt_safetensors_read(b, wanted, 0, count, y, TT_F32), TT_OK);
    double error = 0.0, norm = 0.0;
    for (int64_t i = 0; i < count; i++) {
        error += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        norm += (double)y[i] * y[i];
    }
    tt_free(x);
    tt_free(y);
    return norm > 0.0 ? sqrt(error / norm) : sqrt(error);
}

double test_compare_weights(const char *path, const char *reference_path, char *worst_name,
                            size_t worst_bytes)
{
    struct tt_safetensors *a = NULL, *b = NULL;
    assert_int_equal(tt_safetensors_open(path, &a), TT_OK);
    assert_int_equal(tt_safetensors_open(reference_path, &b), TT_OK);
    assert_int_equal(tt_safetensors_count(a), tt_safetensors_count(b));
    double worst = 0.0;
    for (size_t i = 0; i < tt_safetensors_count(b); i++) {
        double error = relative_error(a, b, tt_safetensors_entry(b, i));
        if (error < worst) continue;
        worst = error;
        snprintf(worst_name, worst_bytes, "%s", tt_safetensors_entry(b, i)->name);
    }
    tt_safetensors_close(a);
    tt_safetensors_close(b);
    return worst;
}

void test_same_file(const char *a, const char *b)
{
    struct tt_str x = {0}, y = {0};
    assert_int_equal(tt_file_read(a, (size_t)1 << 30, &x), TT_OK);
    assert_int_equal(tt_file_read(b, (size_t)1 << 30, &y), TT_OK);
    if (x.bytes != y.bytes || memcmp(x.data, y.data, x.bytes) != 0) fail_msg("'%s' and '%s' differ", a, b);
    tt_str_deinit(&x);
    tt_str_deinit(&y);
}
