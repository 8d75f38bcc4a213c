/* Settings of the objective: the defaults of TRL's DPOConfig are ours and accepted (golden/dpo/defaults.json), what
 * follows from dpo, and what is refused with which message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "config/store.h"
#include "job/resolve.h"
#include "objective/dpo_losses.h"

struct setup {
    struct tt_job_spec job;
    struct tt_settings *settings;
};

static void begin(struct setup *setup)
{
    *setup = (struct setup){.settings = NULL};
    assert_int_equal(tt_job_settings_create(TT_JOB_TRAIN, &setup->job, sizeof setup->job, &setup->settings),
                     TT_OK);
    assert_int_equal(tt_settings_set(setup->settings, "model_name_or_path", "model", "test"), TT_OK);
    assert_int_equal(tt_settings_set(setup->settings, "dataset_name", "rows.jsonl", "test"), TT_OK);
    assert_int_equal(tt_settings_set(setup->settings, "output_dir", "out", "test"), TT_OK);
}

/* Pairs of a name and a value, as flags. */
static tt_status resolve(struct setup *setup, const char *const *pairs)
{
    for (; *pairs != NULL; pairs += 2) TT_TRY(tt_settings_set(setup->settings, pairs[0], pairs[1], "test"));
    return tt_train_resolve(setup->settings, &setup->job);
}

static void resolve_ok(struct setup *setup, const char *const *pairs)
{
    if (resolve(setup, pairs) != TT_OK) fail_msg("%s", tt_error_last()->message);
}

static const char *value_text(const struct tt_json_value *value, char text[80])
{
    if (tt_json_is_null(value)) return "null";
    if (tt_json_is_string(value)) return tt_json_text(value);
    if (tt_json_is_bool(value)) return tt_json_is_true(value) ? "true" : "false";
    if (tt_json_is_list(value))
        snprintf(text, 80, "[\"%s\"]", tt_json_text(tt_json_at(value, 0)));
    else
        snprintf(text, 80, "%.17g", tt_json_number(value));
    return text;
}

/* Of the objective's trainer: `least` keys at least; `rate`: its learning rate. */
static void check_defaults(const char *name, size_t least, double rate)
{
    struct tt_json json = {0};
    char path[300];
    const char *key;
    const struct tt_json_value *value;
    const char *const objective[] = {"objective", name, NULL};
    snprintf(path, sizeof path, TT_TEST_ROOT "/golden/%s/defaults.json", name);
    assert_int_equal(tt_json_read(path, 1 << 20, &json), TT_OK);
    assert_true(tt_json_count(json.root) >= least);
    struct setup all, none;
    begin(&all);
    begin(&none);
    for (size_t member = 0; tt_json_next_member(json.root, &member, &key, &value);) {
        char text[80];
        if (strcmp(key, "max_completion_length") == 0)
            continue;                                         /* of encoders and decoders; refused by name */
        if (strcmp(key, "alpha") == 0) key = "alphapo_alpha"; /* LoRA's here */
        if (tt_settings_set(all.settings, key, value_text(value, text), "TRL's default") != TT_OK)
            fail_msg("%s: %s", key, tt_error_last()->message);
    }
    resolve_ok(&all, objective);
    resolve_ok(&none, objective);
    assert_true(all.job.optim.learning_rate == none.job.optim.learning_rate);
    assert_true(none.job.optim.learning_rate == rate && none.job.lora.dropout == 0);
    for (int i = 0; none.job.objective.ops->settings[i].name != NULL; i++)
        assert_true(all.job.objective.values[i] == none.job.objective.values[i]);
    assert_int_equal(all.job.objective.losses[0], none.job.objective.losses[0]);
    tt_settings_destroy(all.settings);
    tt_settings_destroy(none.settings);
    tt_json_deinit(&json);
}

static void defaults_are_trls(void **state)
{
    (void)state;
    check_defaults("dpo", 16, 1e-6);
    check_defaults("orpo", 7, 1e-6);
    check_defaults("cpo", 11, 1e-6);
    check_defaults("kto", 12, 1e-6);
    check_defaults("reward", 3, 1e-4);
}

/* A setting of two objectives is for the one that is chosen; full fine-tuning and packing. */
static void orpo(void **state)
{
    (void)state;
    static const char *const given[] = {"objective", "orpo", "beta", "0.25", "use_peft", "false", NULL},
                             *const plain[] = {"objective", "orpo", "loss_type", "orpo", NULL};
    struct setup setup;
    begin(&setup);
    resolve_ok(&setup, given);
    assert_string_equal(setup.job.objective.ops->name, "orpo");
    assert_true(setup.job.objective.values[0] == 0.25 && !setup.job.model.use_peft);
    assert_ptr_equal(setup.job.data.rows_kind, &tt_row_pair);
    tt_settings_destroy(setup.settings);
    begin(&setup);
    resolve_ok(&setup, plain);
    assert_true(setup.job.objective.values[0] == 0.1 && setup.job.optim.learning_rate == 1e-6);
    assert_true(setup.job.lora.dropout == 0);
    tt_settings_destroy(setup.settings);
}

static void what_follows(void **state)
{
    (void)state;
    static const char *const given[] = {
        "objective", "dpo",           "beta", "0.5",          "loss_type", "robust", "label_smoothing",
        "0.25",      "learning_rate", "3e-5", "lora_dropout", "0.2",       NULL};
    static const char *const plain[] = {"loss_type", "chunked_nll", NULL};
    static const char *const other[] = {"objective",    "dpo", "loss_type", "[\"discopop\"]",
                                        "discopop_tau", "0.5", NULL};
    struct setup setup;
    begin(&setup);
    resolve_ok(&setup, given);
    assert_string_equal(setup.job.objective.ops->name, "dpo");
    assert_true(setup.job.objective.values[0] == 0.5 && setup.job.objective.values[1] == 0.25);
    assert_true(setup.job.optim.learning_rate == 3e-5 && setup.job.lora.dropout == 0.2);
    assert_ptr_equal(setup.job.data.rows_kind, &tt_row_pair);
    tt_settings_destroy(setup.settings);
    begin(&setup);
    resolve_ok(&setup, other);
    assert_true(setup.job.objective.losses[0] == TT_DPO_DISCOPOP && setup.job.objective.values[2] == 0.5);
    tt_settings_destroy(setup.settings);
    begin(&setup);
    resolve_ok(&setup, plain);
    assert_string_equal(setup.job.objective.ops->name, "sft");
    assert_true(setup.job.optim.learning_rate == 2e-5 && setup.job.data.rows_kind == NULL);
    tt_settings_destroy(setup.settings);
}

/* The settings that are saved with a run resolve to the same job. */
static void saved_settings(void **state)
{
    (void)state;
    static const char *const given[] = {"objective", "dpo", "beta", "0.5", NULL};
    struct setup setup, again = {.settings = NULL};
    struct tt_str text = {0};
    begin(&setup);
    resolve_ok(&setup, given);
    assert_int_equal(tt_settings_write_yaml(setup.settings, &text), TT_OK);
    assert_int_equal(tt_job_settings_create(TT_JOB_TRAIN, &again.job, sizeof again.job, &again.settings),
                     TT_OK);
    assert_int_equal(tt_settings_parse_yaml(again.settings, text.data, text.bytes, "saved"), TT_OK);
    if (tt_train_resolve(again.settings, &again.job) != TT_OK) fail_msg("%s", tt_error_last()->message);
    assert_string_equal(again.job.objective.ops->name, "dpo");
    assert_true(again.job.objective.values[0] == 0.5 && again.job.optim.learning_rate == 1e-6);
    tt_str_deinit(&text);
    tt_settings_destroy(setup.settings);
    tt_settings_destroy(again.settings);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *pairs[7], *message;
    } cases[] = {
        {{"beta", "0.2", NULL}, "beta is given, and the objective is sft"},
        {{"beta", "0.1", NULL}, "beta is given, and the objective is sft"},
        {{"label_smoothing", "0.2", NULL}, "label_smoothing is given, and the objective is sft"},
        {{"discopop_tau", "0.5", NULL}, "discopop_tau is given, and the objective is sft"},
        {{"objective", "dpo", "discopop_tau", "0.5", NULL},
         "discopop_tau is given, and loss_type is sigmoid"},
        {{"loss_type", "sigmoid", NULL}, "loss_type 'sigmoid' is no loss of the objective sft"},
        {{"objective", "dpo", "loss_type", "nll", NULL}, "loss_type 'nll' is no loss of the objective dpo"},
        {{"objective", "dpo", "loss_type", "[\"sigmoid\", \"simpo\"]", NULL},
         "is no loss of the objective dpo"},
        {{"objective", "cpo", "loss_type", "[\"simpo\", \"ipo\"]", NULL}, "is no loss of the objective cpo"},
        {{"objective", "dpo", "loss_type", "[\"sft\", \"sft\"]", NULL}, "names 'sft' twice"},
        {{"objective", "dpo", "loss_weights", "[1, 2]", NULL}, "has 2 numbers, and loss_type 1 losses"},
        {{"objective", "dpo", "loss_weights", "[-1]", NULL}, "numbers of at least 0"},
        {{"objective", "orpo", "loss_weights", "[1]", NULL}, "and the objective is orpo"},
        {{"objective", "dpo", "loss_type", "nca_pair", "f_divergence_type", "forward_kl", NULL},
         "nca_pair has the reverse KL divergence alone"},
        {{"objective", "dpo", "f_alpha_divergence_coef", "2", NULL}, "is not alpha_divergence"},
        {{"objective", "dpo", "f_divergence_type", "kl", NULL}, "reverse_kl"},
        {{"objective", "dpo", "ld_alpha", "1.5", NULL}, "ld_alpha"},
        {{"objective", "dpo", "label_smoothing", "0.1", NULL}, "loss_type is sigmoid"},
        {{"objective", "dpo", "loss_type", "ipo", "label_smoothing", "0.1", NULL}, "loss_type is ipo"},
        {{"objective", "dpo", "loss_type", "robust", "label_smoothing", "0.5", NULL}, "and below 0.5"},
        {{"objective", "dpo", "loss_type", "exo_pair", NULL}, "exo_pair needs a label_smoothing above 0"},
        {{"objective", "dpo", "loss_type", "simpo", NULL}, "'simpo' is no loss of the objective dpo"},
        {{"objective", "dpo", "packing", "true", NULL}, "are not packed"},
        {{"objective", "dpo", "eval_packing", "true", NULL}, "are not packed"},
        {{"objective", "dpo", "assistant_only_loss", "true", NULL}, "the whole of both answers"},
        {{"objective", "dpo", "completion_only_loss", "false", NULL}, "the whole of both answers"},
        {{"objective", "dpo", "label_smoothing_factor", "0.1", NULL}, "label_smoothing_factor is given"},
        {{"objective", "orpo", "discopop_tau", "0.1", NULL}, "and the objective is orpo"},
        {{"objective", "orpo", "loss_type", "sigmoid", NULL}, "is no loss of the objective orpo"},
        {{"objective", "orpo", "packing", "true", NULL}, "are not packed"},
        {{"objective", "cpo", "simpo_gamma", "1", NULL}, "simpo_gamma is given, and loss_type is sigmoid"},
        {{"objective", "cpo", "loss_type", "hinge", "label_smoothing", "0.1", NULL},
         "and loss_type is hinge"},
        {{"objective", "cpo", "loss_type", "alphapo", "cpo_alpha", "0.5", NULL}, "and loss_type is alphapo"},
        {{"objective", "dpo", "cpo_alpha", "0.5", NULL}, "and the objective is dpo"},
        {{"objective", "orpo", "completion_only_loss", "false", NULL}, "the whole of both answers"},
        {{"objective", "dpo", "metric_for_best_model", "rewards/chosen", NULL}, "is not a metric"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup setup;
        char text[2048];
        begin(&setup);
        if (resolve(&setup, cases[i].pairs) == TT_OK) fail_msg("case %zu is accepted", i);
        tt_error_format(tt_error_last(), text, sizeof text);
        if (strstr(text, cases[i].message) == NULL) fail_msg("case %zu: %s", i, text);
        tt_settings_destroy(setup.settings);
    }
}

/* A name that is another setting's alias would be looked up as that one. */
static void names_are_of_one_setting(void **state)
{
    (void)state;
    struct setup setup;
    begin(&setup);
    for (size_t i = 0; i < setup.settings->count; i++) {
        const struct tt_setting *row = setup.settings->entries[i].row;
        assert_string_equal(tt_settings_find(setup.settings, row->name)->row->name, row->name);
        for (const char *at = row->aliases; at != NULL && *at != '\0'; at += strspn(at, " ")) {
            char alias[64];
            snprintf(alias, sizeof alias, "%.*s", (int)strcspn(at, " "), at);
            assert_string_equal(tt_settings_find(setup.settings, alias)->row->name, row->name);
            at += strcspn(at, " ");
        }
    }
    tt_settings_destroy(setup.settings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(defaults_are_trls),
                                       cmocka_unit_test(names_are_of_one_setting),
                                       cmocka_unit_test(orpo),
                                       cmocka_unit_test(what_follows),
                                       cmocka_unit_test(saved_settings),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
