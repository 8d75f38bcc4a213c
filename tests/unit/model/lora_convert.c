/* What PEFT 0.21 makes of target_modules in model types whose experts were modules before transformers 5
 * (convert_peft_config_for_transformers). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "model/adapter_config.h"
#include "model/family.h"
#include "support/model_runner.h"
#include "support/must.h"

static void read_facts(const char *name, struct tt_model_facts *facts)
{
    char folder[512];
    (void)snprintf(folder, sizeof folder, TT_TEST_ROOT "/golden/dense/%s/model", name);
    tt_runner_read_config(folder, NULL, facts);
}

static tt_status create(const char *name, const struct tt_lora_config *given, struct tt_model **model)
{
    struct tt_model_facts facts;
    struct tt_model_options options = {.compute_dtype = TT_F32, .lora = *given};
    options.lora.enabled = true;
    options.lora.r = 2;
    options.lora.alpha = 4;
    read_facts(name, &facts);
    return tt_model_create(&facts, &options, model);
}

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

#define TWICE(number) "{\".*\\\\.gate_up_proj\": " number "}"
#define OTHERS "\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\""

/* The number of adapted modules and parameters is PEFT's too. */
static const struct {
    const char *model;
    struct tt_lora_config lora;
    const char *modules, *parameters, *ranks, *alphas;
    int adapted;
} cases[] = {
    {"qwen3_moe",
     {.target_modules = "all-linear"},
     "[" OTHERS "]",
     "[\"gate_up_proj\", \"down_proj\", \"gate.weight\"]",
     TWICE("4"),
     TWICE("8"),
     14},
    {"deepseek_v3",
     {.target_modules = "[\"All-Linear\"]"},
     "[\"q_a_proj\", \"kv_a_proj_with_mqa\", \"q_b_proj\", \"kv_b_proj\", \"o_proj\"]",
     "[\"gate_up_proj\", \"down_proj\", \"gate.weight\"]",
     TWICE("4"),
     TWICE("8"),
     13},
    {"qwen3_moe",
     {.target_modules = "[\"q_proj\", \"gate_proj\", \"up_proj\", \"down_proj\"]"},
     "[\"q_proj\"]",
     "[\"gate_up_proj\", \"down_proj\"]",
     TWICE("4"),
     TWICE("8"),
     6},
    {"qwen3_moe",
     {.target_modules = "[\"q_proj\", \"down_proj\"]", .rank_pattern = "{\"down_proj\": 5}"},
     "[\"q_proj\"]",
     "[\"down_proj\"]",
     "{\"down_proj\": 5}",
     NULL,
     4},
    {"glm4_moe", {.target_modules = "[\"mlp.gate\"]"}, "[]", "[\"gate.weight\"]", NULL, NULL, 1},
    {"qwen3_next",
     {.target_modules = "[\"shared_expert.up_proj\", \"shared_expert.gate_proj\", \"shared_expert_gate\"]"},
     "[\"shared_expert_gate\"]",
     "[\"gate_up_proj\"]",
     TWICE("4"),
     TWICE("8"),
     2},
    {"mixtral",
     {.target_modules = "[\"w3\", \"w1\", \"w2\"]", .rank_pattern = "{\"experts.down_proj\": 3}"},
     "[]",
     "[\"gate_up_proj\", \"down_proj\"]",
     "{\"experts.down_proj\": 3, \".*\\\\.gate_up_proj\": 4}",
     TWICE("8"),
     4},
    {"minimax_m2",
     {.target_modules = "[\"w2\", \"q_proj\"]", .target_parameters = "[\"gate.weight\"]"},
     "[\"q_proj\"]",
     "[\"down_proj\", \"gate.weight\"]",
     NULL,
     NULL,
     6},
    /* other types keep the names, and expressions are what they say */
    {"mixtral",
     {.target_modules = "[\"q_proj\", \"k_proj\"]"},
     "[\"q_proj\", \"k_proj\"]",
     NULL,
     NULL,
     NULL,
     4},
    {"qwen2_moe", {.target_modules = "[\"gate_proj\"]"}, "[\"gate_proj\"]", NULL, NULL, NULL, 2},
    {"qwen3_moe", {.target_modules = ".*layers.0.*q_proj"}, ".*layers.0.*q_proj", NULL, NULL, NULL, 1},
};

static void names_become_parameters(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_model *model = NULL;
        int adapted = 0;
        test_must(create(cases[i].model, &cases[i].lora, &model));
        const struct tt_lora_config *lora = &model->options.lora;
        if (!same_text(lora->target_modules, cases[i].modules))
            fail_msg("case %zu: modules %s", i, lora->target_modules);
        if (!same_text(lora->target_parameters, cases[i].parameters))
            fail_msg("case %zu: parameters %s", i, lora->target_parameters);
        if (!same_text(lora->rank_pattern, cases[i].ranks))
            fail_msg("case %zu: ranks %s", i, lora->rank_pattern);
        if (!same_text(lora->alpha_pattern, cases[i].alphas))
            fail_msg("case %zu: alphas %s", i, lora->alpha_pattern);
        for (size_t m = 0; m < model->modules.count; m++) adapted += model->modules.items[m].adapted;
        if (adapted != cases[i].adapted) fail_msg("case %zu: %d are adapted", i, adapted);
        tt_model_destroy(model);
    }
}

/* What is written is read as the same, and translated no further. */
static void written_once(void **state)
{
    struct tt_lora_config lora = {.target_modules = "all-linear"};
    struct tt_model *model = NULL, *again = NULL;
    struct tt_arena arena = {0};
    struct tt_json json = {0};
    struct tt_str text = {0};
    (void)state;
    test_must(create("qwen3_moe", &lora, &model));
    test_must(tt_adapter_config_write(model, NULL, &text));
    test_must(tt_json_parse(tt_str_text(&text), text.bytes, "adapter_config.json", &json));
    test_must(tt_adapter_config_parse(&json, &arena, &lora));
    test_must(create("qwen3_moe", &lora, &again));
    for (size_t m = 0; m < model->modules.count; m++) {
        const struct tt_module *a = &model->modules.items[m], *b = &again->modules.items[m];
        assert_int_equal(a->adapted, b->adapted);
        assert_int_equal(a->r, b->r);
        assert_true(a->scaling == b->scaling);
    }
    tt_model_destroy(model);
    tt_model_destroy(again);
    tt_json_deinit(&json);
    tt_str_deinit(&text);
    tt_arena_deinit(&arena);
}

static void mistakes(void **state)
{
    static const struct {
        const char *model;
        struct tt_lora_config lora;
        const char *word;
    } wrong[] = {
        {"qwen3_moe",
         {.target_modules = "[\"gate_proj\", \"q_proj\"]"},
         "names 'gate_proj' without 'up_proj'"},
        {"mixtral", {.target_modules = "[\"w3\"]"}, "names 'w3' without 'w1'"},
        {"qwen3_moe",
         {.target_modules = "all-linear", .dropout = 0.05},
         "lora_dropout is 0.05, and adapters of parameters"},
        {"qwen3_moe",
         {.target_modules = "all-linear", .layers_to_transform = "[0]"},
         "layers_to_transform needs"},
        {"qwen3_moe", {.target_modules = "[\"down_proj\"]", .rank_pattern = "[1]"}, "rank_pattern"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct tt_model *model = NULL;
        if (create(wrong[i].model, &wrong[i].lora, &model) != TT_ERR_USAGE)
            fail_msg("case %zu is not refused", i);
        if (strstr(tt_error_last()->message, wrong[i].word) == NULL)
            fail_msg("case %zu: %s", i, tt_error_last()->message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_become_parameters),
        cmocka_unit_test(written_once),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
