/* adapter_config.json: defaults, what is refused, names of tensors, and patterns whose order matters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "model/adapter_config.h"
#include "model/module.h"
#include "nn/linear.h"
#include "support/allocations.h"
#include "support/model_facts.h"
#include "support/model_runner.h"

static tt_status parse(const char *text, struct tt_arena *arena, struct tt_lora_config *lora)
{
    struct tt_json json = {0};
    assert_int_equal(tt_json_parse(text, strlen(text), "adapter_config.json", &json), TT_OK);
    tt_status status = tt_adapter_config_parse(&json, arena, lora);
    tt_json_deinit(&json);
    return status;
}

struct sought {
    const char *name;
    const struct tt_linear *found;
};

static tt_status find_linear(void *context, const struct tt_linear *linear)
{
    struct sought *sought = context;
    if (strstr(linear->weight->name, sought->name) != NULL) sought->found = linear;
    return TT_OK;
}

/* The linear of a block whose weight's name has `name` in it. */
static const struct tt_linear *linear_of(const struct tt_block *block, const char *name)
{
    struct sought sought = {.name = name};
    assert_int_equal(block->ops->visit_linears(block, find_linear, &sought), TT_OK);
    assert_non_null(sought.found);
    return sought.found;
}

static void defaults_are_pefts(void **state)
{
    struct tt_arena arena = {0};
    struct tt_lora_config lora;
    (void)state;
    assert_int_equal(
        parse("{\"peft_type\": \"LORA\", \"target_modules\": null, \"rank_pattern\": {}}", &arena, &lora),
        TT_OK);
    assert_true(lora.enabled && lora.from_adapter && !lora.use_rslora && lora.init_weights == NULL);
    assert_true(lora.r == 8 && lora.alpha == 8 && lora.dropout == 0);
    assert_null(lora.target_modules);
    assert_null(lora.rank_pattern);
    assert_int_equal(parse("{\"peft_type\": \"LORA\", \"target_modules\": [\"a\", \"b\"], "
                           "\"layers_to_transform\": 3, \"lora_alpha\": 2.5, "
                           "\"something_new\": [1]}",
                           &arena, &lora),
                     TT_OK);
    assert_string_equal(lora.target_modules, "[\"a\", \"b\"]");
    assert_string_equal(lora.layers_to_transform, "3");
    assert_true(lora.alpha == 2.5);
    tt_arena_deinit(&arena);
}

static void unsupported_values_are_refused(void **state)
{
    static const struct {
        const char *text;
        tt_status status;
    } cases[] = {
        {"[]", TT_ERR_DATA},
        {"{}", TT_ERR_DATA},
        {"{\"peft_type\": \"IA3\"}", TT_ERR_UNSUPPORTED},
        {"{\"peft_type\": \"LORA\", \"r\": \"eight\"}", TT_ERR_DATA},
        {"{\"peft_type\": \"LORA\", \"use_dora\": \"yes\"}", TT_ERR_DATA},
        {"{\"peft_type\": \"LORA\", \"bias\": \"some\"}", TT_ERR_DATA},
        {"{\"peft_type\": \"LORA\", \"lora_bias\": true}", TT_ERR_UNSUPPORTED},
        {"{\"peft_type\": \"LORA\", \"layer_replication\": [[0, 2]]}", TT_ERR_UNSUPPORTED},
        {"{\"peft_type\": \"LORA\", \"alora_invocation_tokens\": [1]}", TT_ERR_UNSUPPORTED},
        {"{\"peft_type\": \"LORA\", \"task_type\": \"TOKEN_CLS\"}", TT_ERR_UNSUPPORTED},
        {"{\"peft_type\": \"LORA\", \"init_lora_weights\": \"pissa\"}", TT_ERR_UNSUPPORTED},
        {"{\"peft_type\": \"LORA\", \"init_lora_weights\": 3}", TT_ERR_UNSUPPORTED},
        {"{\"peft_type\": \"LORA\", \"alora_invocation_tokens\": [1, 2]}", TT_ERR_UNSUPPORTED},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_arena arena = {0};
        struct tt_lora_config lora;
        tt_status status = parse(cases[i].text, &arena, &lora);
        if (status != cases[i].status) fail_msg("%s: %s", cases[i].text, tt_status_name(status));
        tt_arena_deinit(&arena);
    }
}

static void tensor_names(void **state)
{
    (void)state;
    char *key = tt_adapter_key("model.layers.0.self_attn.q_proj.lora_A.weight");
    assert_string_equal(key, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
    const char *path;
    assert_true(tt_adapter_key_path(key, &path));
    assert_string_equal(path, "model.layers.0.self_attn.q_proj.lora_A.weight");
    assert_false(tt_adapter_key_path("_orig_mod.base_model.model.x", &path));
    assert_string_equal(path, "_orig_mod.base_model.model.x");
    tt_free(key);
}

static const char small_text[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 11, \"hidden_size\": 8, \"intermediate_size\": 8, "
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
    "\"max_position_embeddings\": 64}";
static struct tt_model_facts small;

static int parse_small(void **state)
{
    (void)state;
    return test_facts(small_text, &small) == TT_OK ? 0 : -1;
}

/* "q_proj" comes first and wins, but is written after ".*_proj": the file must say the same in its own order.
 */
static void order_of_patterns_survives_sorting(void **state)
{
    (void)state;
    struct tt_model_options options = {.compute_dtype = TT_F32,
                                       .lora = {.enabled = true,
                                                .r = 4,
                                                .alpha = 8,
                                                .target_modules = "all-linear",
                                                .alpha_pattern = "{\"q_proj\": 3, \".*_proj\": 5}"}};
    struct tt_model *model = NULL, *again = NULL;
    struct tt_str text = {0};
    struct tt_arena arena = {0};
    assert_int_equal(tt_model_create(&small, &options, &model), TT_OK);
    assert_int_equal(tt_adapter_config_write(model, NULL, &text), TT_OK);
    assert_int_equal(parse(tt_str_text(&text), &arena, &options.lora), TT_OK);
    assert_int_equal(tt_model_create(&small, &options, &again), TT_OK);
    for (int i = 1; i <= 3; i++) {
        assert_true(linear_of(&again->blocks[i], "q_proj")->scaling == 0.75f);
        assert_true(linear_of(&again->blocks[i], "k_proj")->scaling == 1.25f);
        assert_true(linear_of(&again->blocks[i], "down_proj")->scaling == 1.25f);
    }
    tt_model_destroy(model);
    tt_model_destroy(again);
    tt_str_deinit(&text);
    tt_arena_deinit(&arena);
}

/* Stricter than PEFT: each of these would train something else than was meant. */
static void mistakes_of_the_user(void **state)
{
    static const struct {
        struct tt_lora_config lora;
        const char *word, *hint;
    } cases[] = {
        {{.target_modules = "[\"q_prj\"]"}, "q_prj", "q_proj"},
        {{.target_modules = "[\"q_proj\", \"gate_prok\"]"}, "gate_prok", "gate_proj"},
        {{.target_modules = "[\"q_proj\"]", .exclude_modules = "[\"layers.9.self_attn.q_proj\"]"},
         "layers.9",
         "q_proj"},
        {{.target_modules = "[\"q_proj\"]", .rank_pattern = "{\"v_projj\": 3}"}, "v_projj", "v_proj"},
        {{.target_modules = "[\"q_proj\"]", .rank_pattern = "{\"q_proj\": 0}"}, "rank_pattern", ""},
        {{.target_modules = "[\"q_proj\"]", .rank_pattern = "{\"k_proj\": 3}"},
         "'k_proj' matches none of the modules that are adapted",
         "name them in target_modules too"},
        {{.target_modules = "[\"q_proj\"]", .alpha_pattern = "{\".*down_proj\": 3}"}, "that are adapted", ""},
        {{.target_modules = "[\"no[_]proj\"]"}, "matches no module", ""},
        {{.target_modules = "[\"q_proj\"]", .alpha_pattern = "[1]"}, "alpha_pattern", ""},
        {{.target_modules = "[\"q_proj\"]", .layers_to_transform = "[3]"}, "layer 3", ""},
        {{.target_modules = "[\"q_proj\"]", .layers_to_transform = "first"}, "layers_to_transform", ""},
        {{.target_modules = "[\"q_proj\"]", .modules_to_save = "[\"embed_token\"]"},
         "embed_token",
         "embed_tokens"},
        {{.target_modules = "[\"q_proj\", 3]"}, "target_modules", ""},
        {{.target_modules = "[\"q_proj\""}, "target_modules", ""},
        {{.target_modules = "(q_proj"}, "(q_proj", ""},
        {{.target_modules = "[\"q_proj\"]", .dropout = 1.0}, "lora_dropout", ""},
        {{.target_modules = "[\"q_proj\"]", .modules_to_save = "[\"proj\"]"}, "modules_to_save", ""},
        {{.target_modules = "[\"q_proj\"]", .modules_to_save = ".*norm"},
         "modules_to_save must be a list of names",
         ""},
        {{.target_modules = "[\"q_proj\"]", .layers_pattern = "lay.*"},
         "layers_pattern must be a list of names",
         ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_model_options options = {.compute_dtype = TT_F32, .lora = cases[i].lora};
        struct tt_model *model = NULL;
        options.lora.enabled = true;
        options.lora.r = 4;
        options.lora.alpha = 8;
        tt_status status = tt_model_create(&small, &options, &model);
        const struct tt_error *error = tt_error_last();
        char text[2048];
        (void)tt_error_format(error, text, sizeof text);
        if (status != TT_ERR_USAGE) fail_msg("case %zu: status %s", i, tt_status_name(status));
        if (strstr(error->message, cases[i].word) == NULL) fail_msg("case %zu: %s", i, text);
        if (strstr(error->hint, cases[i].hint) == NULL) fail_msg("case %zu: %s", i, text);
    }
}

/* Linears that PEFT does not adapt in a model type are left out of all-linear, and of what is written, and refused by
 * name. */
static void linears_that_peft_leaves_out(void **state)
{
    static const struct {
        const char *folder, *left_out, *named, *adapted;
        int count; /* of linears with an adapter */
    } cases[] = {{"nemotron_h", "mixer.out_proj", "[\"out_proj\"]", "mixer.in_proj", 9},
                 {"qwen3_next", "mlp.down_proj", ".*mlp\\.down_proj", "in_proj_ba", 11}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_model_options options = {
            .compute_dtype = TT_F32,
            .lora = {.enabled = true, .r = 4, .alpha = 8, .target_modules = "all-linear"}};
        struct tt_model_facts facts;
        struct tt_model *model = NULL;
        struct tt_str text = {0};
        char folder[512];
        (void)snprintf(folder, sizeof folder, TT_TEST_ROOT "/golden/dense/%s/model", cases[i].folder);
        tt_runner_read_config(folder, NULL, &facts);
        assert_int_equal(tt_model_create(&facts, &options, &model), TT_OK);
        int adapted = 0;
        for (size_t m = 0; m < model->modules.count; m++) adapted += model->modules.items[m].adapted;
        assert_int_equal(adapted, cases[i].count);
        assert_int_equal(tt_adapter_config_write(model, NULL, &text), TT_OK);
        assert_non_null(strstr(tt_str_text(&text), cases[i].adapted));
        assert_null(strstr(tt_str_text(&text), cases[i].left_out));
        tt_str_deinit(&text);
        tt_model_destroy(model);
        options.lora.target_modules = cases[i].named;
        assert_int_equal(tt_model_create(&facts, &options, &model), TT_ERR_UNSUPPORTED);
        assert_non_null(strstr(tt_error_last()->message, "which PEFT does not adapt in models of this type"));
    }
}

static tt_status create_from(const char *folder, const struct tt_lora_config *lora, struct tt_model **model)
{
    char path[512];
    struct tt_model_facts facts;
    struct tt_model_options options = {.compute_dtype = TT_F32, .lora = *lora};
    options.lora.enabled = true;
    if (options.lora.r == 0) options.lora.r = 4;
    options.lora.alpha = 8;
    (void)snprintf(path, sizeof path, TT_TEST_ROOT "/golden/%s/model", folder);
    tt_runner_read_config(path, NULL, &facts);
    return tt_model_create(&facts, &options, model);
}

static void parameters_that_cannot_be_adapted(void **state)
{
    static const struct {
        const char *folder;
        struct tt_lora_config lora;
        tt_status status;
        const char *word, *hint;
    } cases[] = {
        {"dense/qwen3_moe",
         {.target_parameters = "[\"experts.gate_up_proj\"]", .dropout = 0.1},
         TT_ERR_USAGE,
         "lora_dropout is 0.1, and adapters of parameters ('model.layers.0.mlp.experts.gate_up_proj') have "
         "none",
         "set lora_dropout: 0"},
        {"dense/qwen3_moe",
         {.target_parameters = "[\"experts.down_proj\"]", .use_dora = true},
         TT_ERR_USAGE,
         "use_dora is set, and adapters of parameters ('model.layers.0.mlp.experts.down_proj') have no "
         "magnitudes",
         "leave use_dora out"},
        {"dense/qwen3_moe",
         {.target_parameters = "[\"experts.down_proj\", \"experts.up_proj\"]"},
         TT_ERR_USAGE,
         "'experts.up_proj' matches no parameter of experts",
         "mlp.gate.weight, mlp.experts.gate_up_proj, mlp.experts.down_proj"},
        {"dense/nemotron_h",
         {.target_parameters = "[\"q_proj.weight\"]"},
         TT_ERR_USAGE,
         "'q_proj.weight' matches no parameter of experts",
         "mixer.gate.weight, mixer.experts.up_proj, mixer.experts.down_proj"},
        {"qwen3",
         {.target_parameters = "[\"down_proj\"]"},
         TT_ERR_USAGE,
         "matches no parameter of experts",
         "the model has no experts"},
        {"dense/mixtral",
         {.target_parameters = ".*down_proj"},
         TT_ERR_USAGE,
         "target_parameters must be a list of names",
         ""},
        {"dense/mixtral",
         {.target_parameters = "[\"down_proj\"]", .modules_to_save = "[\"experts\"]"},
         TT_ERR_USAGE,
         "'model.layers.0.mlp.experts.down_proj' matches both target_parameters and modules_to_save",
         ""},
        {"dense/mixtral",
         {.target_parameters = "[\"down_proj\"]", .swapped = true},
         TT_ERR_UNSUPPORTED,
         "adapted as PEFT did before version 0.19",
         "merge_and_unload"},
        {"dense/gpt_oss",
         {.target_parameters = "[\"gate_up_proj\", \"layers.1.mlp.experts.down_proj\"]"},
         TT_ERR_UNSUPPORTED,
         "adapts one of 'model.layers.0.mlp.experts.down_proj' and 'model.layers.1.mlp.experts.down_proj'",
         "without the number of a layer"},
        {"dense/gpt_oss",
         {.target_parameters = "[\"down_proj\"]", .bias = TT_LORA_BIAS_ALL},
         TT_ERR_UNSUPPORTED,
         "bias all: ",
         "leave bias out"},
        {"dense/glm4_moe", {.r = 0}, TT_ERR_USAGE, "no default for target_modules", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_model *model = NULL;
        tt_status status = create_from(cases[i].folder, &cases[i].lora, &model);
        const struct tt_error *error = tt_error_last();
        bool told = strstr(error->message, cases[i].word) && strstr(error->hint, cases[i].hint);
        if (status != cases[i].status || !told) fail_msg("case %zu: %s", i, error->message);
    }
}

/* An adapter's empty list of modules is not the family's default; none at all is, where there is one. */
static void modules_beside_parameters(void **state)
{
    static const struct {
        const char *folder, *text;
        int adapted;
        bool swapped;
    } cases[] = {
        {"dense/mixtral", "\"target_modules\": [], \"target_parameters\": [\"down_proj\"]", 2, false},
        {"dense/nemotron_h", "\"target_modules\": null, \"target_parameters\": [\"down_proj\"]", 5, false},
        {"dense/nemotron_h", "\"target_modules\": [], \"target_parameters\": [\"up_proj\"]", 1, false},
        {"dense/glm4_moe", "\"target_parameters\": [\"down_proj\", \"gate_up_proj\"]", 2, false},
        {"dense/glm4_moe",
         "\"target_modules\": [\"o_proj\"], \"peft_version\": \"0.19.1\", \"target_parameters\": "
         "[\"down_proj\"]",
         3, false},
        {"dense/gpt_oss", "\"peft_version\": \"0.18.0\", \"target_parameters\": [\"down_proj\"]", 2, true},
        {"dense/qwen3_moe", "\"target_modules\": [\"o_proj\"], \"target_parameters\": []", 2, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        struct tt_arena arena = {0};
        struct tt_lora_config lora;
        struct tt_model *model = NULL;
        int adapted = 0;
        (void)snprintf(text, sizeof text, "{\"peft_type\": \"LORA\", %s}", cases[i].text);
        assert_int_equal(parse(text, &arena, &lora), TT_OK);
        assert_int_equal(lora.swapped, cases[i].swapped);
        if (create_from(cases[i].folder, &lora, &model) != TT_OK)
            fail_msg("case %zu: %s", i, tt_error_last()->message);
        for (size_t m = 0; m < model->modules.count; m++) adapted += model->modules.items[m].adapted;
        if (adapted != cases[i].adapted) fail_msg("case %zu: %d are adapted", i, adapted);
        tt_model_destroy(model);
        tt_arena_deinit(&arena);
    }
}

/* What TRL and PEFT take for the same selection: the number of linears of a layer with an adapter. */
static void spellings_of_targets(void **state)
{
    static const struct {
        const char *targets;
        int q, down;
    } cases[] = {{"all-linear", 1, 1},
                 {"[\"all-linear\"]", 1, 1},
                 {" [ \"All-Linear\" ]", 1, 1},
                 {"[\".*\\\\.(q|down)_proj\"]", 1, 1},
                 {"[\"q_proj\"]", 1, 0},
                 {"[\"self_attn.q_proj\"]", 1, 0},
                 {"q_proj", 1, 0},
                 {"[\"mlp.down_proj\", \"q_proj\"]", 1, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_model_options options = {
            .compute_dtype = TT_F32,
            .lora = {.enabled = true, .r = 4, .alpha = 8, .target_modules = cases[i].targets}};
        struct tt_model *model = NULL;
        struct tt_str text = {0};
        assert_int_equal(tt_model_create(&small, &options, &model), TT_OK);
        assert_int_equal(linear_of(&model->blocks[1], "q_proj")->r > 0, cases[i].q);
        assert_int_equal(linear_of(&model->blocks[1], "down_proj")->r > 0, cases[i].down);
        assert_int_equal(tt_adapter_config_write(model, NULL, &text), TT_OK); /* and read again */
        struct tt_arena arena = {0};
        struct tt_model *again = NULL;
        assert_int_equal(parse(tt_str_text(&text), &arena, &options.lora), TT_OK);
        assert_int_equal(tt_model_create(&small, &options, &again), TT_OK);
        assert_int_equal(again->trainable_param_count, model->trainable_param_count);
        tt_model_destroy(model);
        tt_model_destroy(again);
        tt_str_deinit(&text);
        tt_arena_deinit(&arena);
    }
}

/* PEFT's keys that have no effect where nothing is there for them. */
static void keys_without_effect(void **state)
{
    static const char with_bias[] =
        "{\"model_type\": \"qwen2\", \"vocab_size\": 11, \"hidden_size\": 8, \"intermediate_size\": 8, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
        "\"max_position_embeddings\": 64}";
    static const struct {
        const char *text;
        bool biased;
        tt_status status;
    } cases[] = {
        {"\"bias\": \"all\", \"target_modules\": [\"q_proj\"]", false, TT_OK},
        {"\"bias\": \"lora_only\", \"target_modules\": [\"q_proj\"]", false, TT_OK},
        {"\"bias\": \"lora_only\", \"target_modules\": [\"up_proj\"]", true, TT_OK},
        {"\"fan_in_fan_out\": true, \"target_modules\": [\"q_proj\"]", false, TT_OK},
        {"\"init_lora_weights\": \"eva\", \"eva_config\": {\"rho\": 2.0}, \"target_modules\": [\"q_proj\"]",
         false, TT_OK},
    };
    struct tt_model_facts *biased = tt_calloc(1, sizeof *biased);
    (void)state;
    assert_int_equal(test_facts(with_bias, biased), TT_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tt_arena arena = {0};
        struct tt_model_options options = {.compute_dtype = TT_F32};
        struct tt_model *model = NULL;
        char text[300];
        (void)snprintf(text, sizeof text, "{\"peft_type\": \"LORA\", %s}", cases[i].text);
        assert_int_equal(parse(text, &arena, &options.lora), TT_OK);
        tt_status status = tt_model_create(cases[i].biased ? biased : &small, &options, &model);
        if (status != cases[i].status) fail_msg("case %zu: %s", i, tt_status_name(status));
        tt_model_destroy(model);
        tt_arena_deinit(&arena);
    }
    tt_free(biased);
}

/* Of several adapters at a time none may have modules_to_save, whichever place it has. */
static void saved_modules_of_several_adapters(void **state)
{
    (void)state;
    for (int saves = 0; saves < 2; saves++) {
        struct tt_lora_config lora[2];
        for (int i = 0; i < 2; i++)
            lora[i] = (struct tt_lora_config){.enabled = true,
                                              .r = 4,
                                              .alpha = 8,
                                              .target_modules = "[\"q_proj\"]",
                                              .modules_to_save = i == saves ? "[\"lm_head\"]" : NULL};
        struct tt_model_options options = {
            .compute_dtype = TT_F32, .lora = lora[0], .more_lora = &lora[1], .more_lora_count = 1};
        struct tt_model *model = NULL;
        assert_int_equal(tt_model_create(&small, &options, &model), TT_ERR_UNSUPPORTED);
        assert_non_null(strstr(tt_error_last()->message, "modules_to_save ('lm_head')"));
        assert_non_null(strstr(tt_error_last()->hint, "trimtab merge"));
    }
}

/* Whichever allocation fails: an error, nothing leaked. */
static tt_status make_and_write(void *context)
{
    struct tt_model *model = NULL;
    struct tt_str text = {0};
    tt_status status = tt_model_create(&small, context, &model);
    if (status == TT_OK) status = tt_adapter_config_write(model, "base", &text);
    tt_model_destroy(model);
    tt_str_deinit(&text);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct tt_model_options options = {.compute_dtype = TT_F32,
                                       .lora = {.enabled = true,
                                                .r = 4,
                                                .alpha = 8,
                                                .target_modules = ".*_proj",
                                                .exclude_modules = "[\"o_proj\"]",
                                                .layers_to_transform = NULL,
                                                .rank_pattern = "{\"q_proj\": 2}",
                                                .modules_to_save = "[\"lm_head\"]"}};
    test_allocations_fail(make_and_write, &options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_pefts),
        cmocka_unit_test(unsupported_values_are_refused),
        cmocka_unit_test(tensor_names),
        cmocka_unit_test(order_of_patterns_survives_sorting),
        cmocka_unit_test(mistakes_of_the_user),
        cmocka_unit_test(parameters_that_cannot_be_adapted),
        cmocka_unit_test(modules_beside_parameters),
        cmocka_unit_test(linears_that_peft_leaves_out),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(saved_modules_of_several_adapters),
        cmocka_unit_test(spellings_of_targets),
        cmocka_unit_test(keys_without_effect),
    };
    return cmocka_run_group_tests(tests, parse_small, NULL);
}
