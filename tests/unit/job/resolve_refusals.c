/* job/resolve.h: settings that exclude or need each other are refused by name, with what to do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "job/resolve.h"

static const struct {
    const char *pairs[7]; /* names and values */
    const char *message, *hint;
} rows[] = {
    {{"learning_rate", "0"}, "learning_rate must be above 0", "2e-4 is a usual start for LoRA"},
    {{"warmup_steps", "1.5"},
     "warmup_steps must be a whole number, or a share below 1",
     "warmup_ratio also sets a share"},
    {{"eval_strategy", "best"}, "'best' is a save_strategy only", "use no, steps or epoch"},
    {{"logging_strategy", "best"}, "'best' is a save_strategy only", "use no, steps or epoch"},
    {{"save_steps", "0", "save_strategy", "steps"},
     "save_steps must be above 0 when save_strategy is steps",
     "save_strategy 'no' turns it off"},
    {{"save_steps", "2.5", "save_strategy", "steps"},
     "save_steps is 2.5: a whole number of steps, or a share below 1",
     ""},
    {{"save_strategy", "best", "eval_strategy", "no"},
     "save_strategy best needs evaluations",
     "set eval_strategy to steps or epoch"},
    {{"early_stopping_patience", "2", "eval_strategy", "no"},
     "early_stopping_patience needs evaluations",
     "set eval_strategy to steps or epoch"},
    {{"early_stopping_threshold", "0.5"},
     "early_stopping_threshold needs early_stopping_patience",
     "set early_stopping_patience to a number of evaluations"},
    {{"load_best_model_at_end", "true", "eval_strategy", "no"},
     "load_best_model_at_end needs evaluations",
     "set eval_strategy to the same as save_strategy"},
    {{"load_best_model_at_end", "true", "eval_strategy", "epoch", "save_strategy", "steps"},
     "load_best_model_at_end needs eval_strategy and save_strategy to be the same",
     "set both to steps, or both to epoch"},
    {{"datasets", "[{\"path\": \"a.jsonl\"}]"},
     "dataset_name and datasets are both given",
     "datasets replaces dataset_name"},
};

static void refusals(void **state)
{
    (void)state;
    int failed = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tt_job_spec job;
        struct tt_settings *settings = NULL;
        assert_int_equal(tt_job_settings_create(TT_JOB_TRAIN, &job, sizeof job, &settings), TT_OK);
        static const char *const needed[][2] = {
            {"model_name_or_path", "model"}, {"dataset_name", "rows.jsonl"}, {"output_dir", "out"}};
        for (size_t n = 0; n < 3; n++)
            assert_int_equal(tt_settings_set(settings, needed[n][0], needed[n][1], "test"), TT_OK);
        tt_status status = TT_OK;
        for (const char *const *pair = rows[i].pairs; *pair != NULL && status == TT_OK; pair += 2)
            status = tt_settings_set(settings, pair[0], pair[1], "test");
        if (status == TT_OK) status = tt_train_resolve(settings, &job);
        const struct tt_error *error = tt_error_last();
        if (status != TT_ERR_USAGE || strstr(error->message, rows[i].message) == NULL ||
            strcmp(error->hint, rows[i].hint) != 0) {
            print_error("%s: %s (%s)\n", rows[i].message, status == TT_OK ? "accepted" : error->message,
                        error->hint);
            failed++;
        }
        tt_settings_destroy(settings);
    }
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
