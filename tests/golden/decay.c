/* The parameters with weight decay, for every family, in full training and with LoRA and modules_to_save, are those of
 * transformers' Trainer (golden/optim/make_decay.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "model/model.h"
#include "support/must.h"

static bool lists(const struct tt_json_value *names, const char *name)
{
    for (size_t i = 0; i < tt_json_count(names); i++)
        if (strcmp(tt_json_text(tt_json_at(names, i)), name) == 0) return true;
    return false;
}

static void compare(const char *family, const struct tt_model_facts *facts,
                    const struct tt_model_options *options, const struct tt_json_value *expected)
{
    const struct tt_json_value *decay = tt_json_get(expected, "decay"),
                               *no_decay = tt_json_get(expected, "no_decay");
    struct tt_model *model = NULL;
    size_t trained = 0;
    test_must(tt_model_create(facts, options, &model));
    for (size_t i = 0; i < model->param_count; i++) {
        const tt_param *param = model->params[i];
        if (!param->trainable) continue;
        trained++;
        bool with = lists(decay, param->name), without = lists(no_decay, param->name);
        if (with == without) fail_msg("%s: transformers does not train %s", family, param->name);
        if (with != (param->weight_decay == TT_DECAY_FULL) ||
            without != (param->weight_decay == TT_DECAY_NONE))
            fail_msg("%s: the weight decay of %s is %d", family, param->name, (int)param->weight_decay);
    }
    assert_int_equal(trained, tt_json_count(decay) + tt_json_count(no_decay));
    assert_true(tt_json_count(decay) > 0 && tt_json_count(no_decay) > 0);
    tt_model_destroy(model);
}

static void families_decay_as_trainer(void **state)
{
    (void)state;
    static const char *const families[] = {"llama2",  "llama3", "mistral", "qwen2", "qwen3",
                                           "smollm3", "phi3",   "gemma2",  "gemma3"};
    struct tt_json golden;
    struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
    assert_non_null(facts);
    test_must(tt_json_read(TT_TEST_ROOT "/golden/optim/decay.json", 1 << 20, &golden));
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        struct tt_json config;
        char path[512];
        (void)snprintf(path, sizeof path, "%s/golden/%s/model/config.json", TT_TEST_ROOT, families[f]);
        test_must(tt_json_read(path, 1 << 20, &config));
        test_must(tt_model_facts_parse(&config, facts));
        const struct tt_json_value *expected = tt_json_get(golden.root, families[f]);
        const struct tt_model_options full = {.compute_dtype = TT_F32, .train_base = true},
                                      lora = {
                                          .compute_dtype = TT_F32,
                                          .lora = {.enabled = true,
                                                   .r = 2,
                                                   .alpha = 8,
                                                   .target_modules = "all-linear",
                                                   .modules_to_save =
                                                       "[\"embed_tokens\", \"norm\", \"input_layernorm\"]"}};
        compare(families[f], facts, &full, tt_json_get(expected, "full"));
        compare(families[f], facts, &lora, tt_json_get(expected, "lora"));
        tt_json_deinit(&config);
    }
    tt_json_deinit(&golden);
    tt_free(facts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(families_decay_as_trainer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
