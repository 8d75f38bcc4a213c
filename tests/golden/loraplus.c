/* LoRA+ against PEFT (golden/optim/make_loraplus.py): the learning rate and weight decay of each parameter for every
 * family, with LoRA and modules_to_save, and 20 steps from an adapter, on one rank and on two. Groups by module and the
 * rate of the embeddings: the run is that of the same rates by LoRA+, and what cannot be meant is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "model/model.h"
#include "optim/groups.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/train_run.h"

enum { STEPS = 20 };

static struct tt_json golden;

static double number(const char *key)
{
    return tt_json_number(tt_json_get(golden.root, key));
}

static void compare_groups(const char *family, const struct tt_model_facts *facts)
{
    const struct tt_json_value *groups = tt_json_get(tt_json_get(golden.root, "groups"), family);
    const struct tt_model_options options = {
        .compute_dtype = TT_F32,
        .lora = {.enabled = true,
                 .r = 2,
                 .alpha = 8,
                 .target_modules = "all-linear",
                 .modules_to_save = "[\"embed_tokens\", \"norm\", \"input_layernorm\"]"}};
    const struct tt_optim_config optim = {.learning_rate = number("learning_rate"),
                                          .loraplus_lr_ratio = number("ratio")};
    struct tt_model *model = NULL;
    size_t trained = 0;
    test_must(tt_model_create(facts, &options, &model));
    test_must(tt_param_groups_apply(&optim, model->params, model->param_count));
    for (size_t i = 0; i < model->param_count; i++) {
        const tt_param *param = model->params[i];
        if (!param->trainable) continue;
        trained++;
        const struct tt_json_value *group = tt_json_get(groups, param->name);
        if (group == NULL) fail_msg("%s: PEFT does not train %s", family, param->name);
        double scale = tt_json_number(tt_json_at(group, 0)), decay = tt_json_number(tt_json_at(group, 1));
        if (param->lr_scale != scale || (param->weight_decay == TT_DECAY_NONE) != (decay == 0))
            fail_msg("%s: %s has %g times the rate and decay %d, PEFT %g and %g", family, param->name,
                     param->lr_scale, (int)param->weight_decay, scale, decay);
    }
    assert_int_equal(trained, tt_json_count(groups));
    tt_model_destroy(model);
}

static void groups_are_those_of_peft(void **state)
{
    static const char *const families[] = {"llama2",  "llama3", "mistral", "qwen2", "qwen3",
                                           "smollm3", "phi3",   "gemma2",  "gemma3"};
    struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
    (void)state;
    assert_non_null(facts);
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        struct tt_json config;
        char path[512];
        (void)snprintf(path, sizeof path, "%s/golden/%s/model/config.json", TT_TEST_ROOT, families[f]);
        test_must(tt_json_read(path, 1 << 20, &config));
        test_must(tt_model_facts_parse(&config, facts));
        compare_groups(families[f], facts);
        tt_json_deinit(&config);
    }
    tt_free(facts);
}

static void compare_column(const char *output, const char *name, double relative)
{
    double got[STEPS + 1];
    assert_int_equal(test_read_log(output, name, got, STEPS + 1), STEPS);
    for (size_t i = 0; i < STEPS; i++) {
        const struct tt_json_value *step = tt_json_at(tt_json_get(golden.root, "steps"), i);
        double want = tt_json_number(tt_json_get(step, name));
        if (fabs(got[i] - want) > relative * want)
            fail_msg("step %zu: %s %.9g, PEFT has %.9g", i + 1, name, got[i], want);
    }
}

static void train(const char *more, const char *output)
{
    char rate[32];
    struct test_words settings = {0};
    struct tt_train_summary summary;
    test_golden_inputs(&settings, "llama3", true);
    test_words_add(&settings, TEST_GOLDEN_STEPS " save_strategy no");
    (void)snprintf(rate, sizeof rate, "%g", number("learning_rate"));
    test_words_pair(&settings, "learning_rate", rate);
    test_words_add(&settings, more);
    test_train_ok(settings.list, output, &summary);
}

static double distance(const char *output)
{
    char weights[512], worst[200];
    (void)snprintf(weights, sizeof weights, "%s/adapter_model.safetensors", output);
    return test_compare_weights(weights, TT_TEST_ROOT "/golden/optim/loraplus.safetensors", worst,
                                sizeof worst);
}

static void compare_run(const char *more)
{
    char *output = test_folder_create();
    train(more, output);
    compare_column(output, "loss", 1e-4);
    compare_column(output, "grad_norm", 1e-3);
    compare_column(output, "learning_rate", 1e-9);
    if (distance(output) > 1e-3) fail_msg("with %s the weights are off by %.2e", more, distance(output));
    test_folder_remove(output);
}

static void steps_are_those_of_peft(void **state)
{
    (void)state;
    compare_run("loraplus_lr_ratio 16");
    compare_run("loraplus_lr_ratio 16 ranks 2 per_device_train_batch_size 1 threads 1");
}

/* Without a ratio the run is another one, so the comparison can fail. */
static void one_rate_is_another_run(void **state)
{
    char *output = test_folder_create();
    (void)state;
    train("loraplus_lr_ratio null", output);
    assert_true(distance(output) > 1e-2);
    test_folder_remove(output);
}

static void groups_by_module(void **state)
{
    (void)state;
    compare_run("lr_groups [{\"name\":\"B\",\"modules\":[\"lora_B\"],\"lr\":0.032}]");
    compare_run(
        "lr_groups [{\"name\":\"mlp\",\"modules\":[\"down_proj.lora_B\",\"up_proj.lora_B\"],\"lr\":0.032},"
        "{\"name\":\"rest\",\"modules\":[\"lora_B\"],\"lr\":0.032}]");
}

static void rates_by_name(void **state)
{
    tt_param params[] = {{.name = "model.embed_tokens.weight", .rank = 2, .trainable = true},
                         {.name = "lm_head.weight", .rank = 2, .trainable = true},
                         {.name = "model.layers.0.self_attn.q_proj.weight", .rank = 2, .trainable = true},
                         {.name = "model.layers.0.self_attn.q_proj.bias", .rank = 1, .trainable = true},
                         {.name = "model.layers.1.self_attn.q_proj.weight", .rank = 2}};
    tt_param *list[] = {&params[0], &params[1], &params[2], &params[3], &params[4]};
    struct tt_optim_config config = {.learning_rate = 1e-4,
                                     .embedding_lr = 1e-5,
                                     .lr_groups =
                                         "[{\"name\": \"q\", \"modules\": [\"q_proj.weight\"], \"lr\": 2e-4},"
                                         " {\"name\": \"head\", \"modules\": [\"lm_head\"], \"lr\": 0}]"};
    static const double scales[] = {0.1, 0, 2, 1, 1};
    (void)state;
    for (int i = 0; i < 5; i++) params[i].lr_scale = 1;
    test_must(tt_param_groups_check(&config));
    test_must(tt_param_groups_apply(&config, list, 5));
    for (int i = 0; i < 5; i++) assert_true(fabs(params[i].lr_scale - scales[i]) < 1e-12);
    config = (struct tt_optim_config){.learning_rate = 1e-4, .embedding_lr_scale = 0.5};
    for (int i = 0; i < 5; i++) params[i].lr_scale = 1;
    test_must(tt_param_groups_apply(&config, list, 5));
    assert_true(params[0].lr_scale == 0.5 && params[1].lr_scale == 0.5 && params[2].lr_scale == 1);
    config.lr_groups = "[{\"modules\": [\"layers.1.\"], \"lr\": 1}]"; /* it does not train */
    assert_int_equal(tt_param_groups_apply(&config, list, 5), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "no parameter that trains has a name with 'layers.1.'"));
}

static void nonsense_is_refused(void **state)
{
    static const struct {
        const char *groups, *message;
    } cases[] = {
        {"{\"lr\": 1}", "lr_groups is not a list"},
        {"[", "lr_groups is not a list"},
        {"[3]", "group 1 of lr_groups is not a mapping"},
        {"[{\"modules\": [\"q\"], \"lr\": 1}, {\"modules\": [\"q\"]}]",
         "group 2 of lr_groups has no learning rate"},
        {"[{\"modules\": [\"q\"], \"lr\": -1}]", "has no learning rate 'lr' from 0"},
        {"[{\"lr\": 1}]", "has no list 'modules'"},
        {"[{\"lr\": 1, \"modules\": []}]", "has no list 'modules'"},
        {"[{\"lr\": 1, \"modules\": [\"\"]}]", "has a module that is no text"},
        {"[{\"lr\": 1, \"modules\": [\"q\"], \"weight_decay\": 0}]",
         "group 1 of lr_groups has the key 'weight_decay'"},
    };
    struct tt_optim_config config = {.learning_rate = 1, .embedding_lr = 1, .embedding_lr_scale = 1};
    (void)state;
    assert_int_equal(tt_param_groups_check(&config), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "embedding_learning_rate and embedding_lr_scale"));
    config.embedding_lr = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        config.lr_groups = cases[i].groups;
        assert_int_equal(tt_param_groups_check(&config), TT_ERR_USAGE);
        if (strstr(tt_error_last()->message, cases[i].message) == NULL)
            fail_msg("no '%s' in: %s", cases[i].message, tt_error_last()->message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_those_of_peft),
        cmocka_unit_test(steps_are_those_of_peft),
        cmocka_unit_test(one_rate_is_another_run),
        cmocka_unit_test(groups_by_module),
        cmocka_unit_test(rates_by_name),
        cmocka_unit_test(nonsense_is_refused),
    };
    test_must(tt_json_read(TT_TEST_ROOT "/golden/optim/loraplus.json", 1 << 20, &golden));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tt_json_deinit(&golden);
    return failed;
}
