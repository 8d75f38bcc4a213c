/* Which modules PEFT adapts, with which rank and scale, what it saves and counts (make_peft_rules.py): the
 * same from the adapter_config.json that PEFT wrote, and again from the one that we write for the same model.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "model/adapter_config.h"
#include "nn/decoder_layer.h"
#include "nn/head.h"

static struct tt_json golden;

static int open_golden(void **state)
{
    (void)state;
    return tt_json_read(TT_TEST_ROOT "/golden/peft_rules.json", 1 << 20, &golden) == TT_OK ? 0 : -1;
}

static int close_golden(void **state)
{
    (void)state;
    tt_json_deinit(&golden);
    return 0;
}

static void must(tt_status status, const char *what)
{
    char text[4096];
    if (status == TT_OK) return;
    (void)tt_error_format(tt_error_last(), text, sizeof text);
    fail_msg("%s: %s", what, text);
}

static struct tt_model_config config_of(const json_t *item)
{
    struct tt_model_config config;
    struct tt_json json = {.root = json_deep_copy(json_object_get(golden.root, "config")),
                           .origin = "config"};
    assert_int_equal(json_object_set_new(json.root, "model_type", json_string("qwen2")), 0);
    assert_int_equal(json_object_set(json.root, "tie_word_embeddings", json_object_get(item, "tied")), 0);
    must(tt_model_config_parse(&json, &config), "config");
    json_decref(json.root);
    return config;
}

static size_t compare_group(const struct tt_linear_group *group, const json_t *adapted, const char *arguments)
{
    size_t found = 0;
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        if (linear->r == 0) continue;
        char path[256];
        (void)snprintf(path, sizeof path, "%s", linear->lora_A->name);
        path[strlen(path) - strlen(".lora_A.weight")] = '\0';
        const json_t *expected = json_object_get(adapted, path);
        if (expected == NULL) fail_msg("%s: '%s' should not be adapted", arguments, path);
        assert_int_equal(linear->r, json_integer_value(json_array_get(expected, 0)));
        double scaling = json_number_value(json_array_get(expected, 1));
        if (!(fabs(linear->scaling - scaling) <= 1e-6 * scaling)) {
            fail_msg("%s: the scale of '%s' is %g, not %g", arguments, path, linear->scaling, scaling);
        }
        assert_true(linear->lora_A->dims[0] == linear->r && linear->lora_A->dims[1] == linear->in);
        assert_true(linear->lora_B->dims[0] == linear->out && linear->lora_B->dims[1] == linear->r);
        found++;
    }
    return found;
}

static void compare_model(const struct tt_model *model, const json_t *item, const char *arguments)
{
    const json_t *adapted = json_object_get(item, "adapted"), *saved = json_object_get(item, "saved");
    size_t found = 0, found_saved = 0;
    for (int i = 1; i + 1 < model->block_count; i++) {
        const struct tt_decoder_layer *layer = model->blocks[i].impl;
        found += compare_group(&layer->attention.qkv, adapted, arguments) +
                 compare_group(&layer->attention.o, adapted, arguments);
        found += compare_group(&layer->mlp.gate_up, adapted, arguments) +
                 compare_group(&layer->mlp.down, adapted, arguments);
    }
    const struct tt_head *head = model->blocks[model->block_count - 1].impl;
    found += compare_group(&head->lm_head, adapted, arguments);
    if (found != json_object_size(adapted))
        fail_msg("%s: %zu of %zu modules", arguments, found, json_object_size(adapted));
    for (size_t i = 0; i < model->param_count; i++) {
        const tt_param *param = model->params[i];
        if (param->adapter && strstr(param->name, ".lora_") == NULL) found_saved++;
        assert_int_equal(param->trainable, param->adapter);
    }
    assert_int_equal(found_saved, json_array_size(saved));
    for (size_t i = 0; i < found_saved; i++) {
        const tt_param *param = tt_model_find_param(model, json_string_value(json_array_get(saved, i)));
        assert_true(param != NULL && param->adapter);
    }
    assert_int_equal(model->trainable_param_count, json_integer_value(json_object_get(item, "trainable")));
    assert_int_equal(model->base_param_count + model->adapter_param_count,
                     json_integer_value(json_object_get(item, "all")));
}

static bool contains(const json_t *list, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_equal(json_array_get(list, i), value)) return true;
    }
    return false;
}

/* Lists are sets in PEFT. */
static bool same(const json_t *ours, const json_t *theirs)
{
    if (json_is_number(ours) && json_is_number(theirs))
        return json_number_value(ours) == json_number_value(theirs);
    if (!json_is_array(ours) || !json_is_array(theirs)) return json_equal(ours, theirs);
    if (json_array_size(ours) != json_array_size(theirs)) return false;
    for (size_t i = 0; i < json_array_size(ours); i++) {
        if (!contains(theirs, json_array_get(ours, i))) return false;
    }
    return true;
}

/* Everything that we write is what PEFT wrote, but the version, the path, and a pattern whose keys' order
 * matters or a name that was given in another form. */
static void compare_written(const struct tt_json *ours, const json_t *theirs, const char *arguments)
{
    const char *key;
    json_t *value;
    json_object_foreach(ours->root, key, value)
    {
        const json_t *other = json_object_get(theirs, key);
        bool may_differ = strcmp(key, "peft_version") == 0 || strcmp(key, "base_model_name_or_path") == 0 ||
                          strcmp(key, "alpha_pattern") == 0 || strcmp(key, "rank_pattern") == 0 ||
                          strcmp(key, "layers_pattern") == 0 || strcmp(key, "layers_to_transform") == 0;
        if (other == NULL) fail_msg("%s: PEFT does not write '%s'", arguments, key);
        if (!may_differ && !same(value, other))
            fail_msg("%s: '%s' differs from what PEFT writes", arguments, key);
    }
}

static void check_case(const json_t *item)
{
    struct tt_arena arena = {0};
    struct tt_model_config config = config_of(item);
    struct tt_model_options options = {.compute_dtype = TT_F32};
    struct tt_model *model = NULL, *again = NULL;
    struct tt_str text = {0};
    char arguments[512];
    char *dump = json_dumps(json_object_get(item, "arguments"), 0);
    (void)snprintf(arguments, sizeof arguments, "%s", dump);
    free(dump);
    struct tt_json theirs = {.root = json_object_get(item, "adapter_config"),
                             .origin = "adapter_config.json"},
                   ours = {0};
    must(tt_adapter_config_parse(&theirs, &arena, &options.lora), arguments);
    must(tt_model_create(&config, &options, &model), arguments);
    compare_model(model, item, arguments);
    must(tt_adapter_config_write(model, "somewhere", &text), arguments);
    must(tt_json_parse(tt_str_text(&text), text.bytes, "written", &ours), arguments);
    compare_written(&ours, theirs.root, arguments);
    must(tt_adapter_config_parse(&ours, &arena, &options.lora), arguments);
    must(tt_model_create(&config, &options, &again), arguments);
    compare_model(again, item, arguments);
    tt_model_destroy(model);
    tt_model_destroy(again);
    tt_json_deinit(&ours);
    tt_str_deinit(&text);
    tt_arena_deinit(&arena);
}

static void what_peft_adapts(void **state)
{
    size_t index;
    json_t *item;
    (void)state;
    json_array_foreach(json_object_get(golden.root, "cases"), index, item)
    {
        if (json_object_get(item, "error") == NULL) check_case(item);
    }
}

static char *text_of(const json_t *arguments, const char *key)
{
    const json_t *value = json_object_get(arguments, key);
    if (value == NULL) return NULL;
    return json_is_string(value) ? strdup(json_string_value(value)) : json_dumps(value, JSON_ENCODE_ANY);
}

/* What PEFT refuses is refused as a mistake of the user; the one exception is a bare word, which here is a
 * list of one. */
static void what_peft_refuses(void **state)
{
    size_t index, refused = 0;
    json_t *item;
    (void)state;
    json_array_foreach(json_object_get(golden.root, "cases"), index, item)
    {
        const json_t *arguments = json_object_get(item, "arguments");
        if (json_object_get(item, "error") == NULL) continue;
        struct tt_model_config config = config_of(item);
        struct tt_model *model = NULL;
        char *target = text_of(arguments, "target_modules"), *exclude = text_of(arguments, "exclude_modules");
        char *layers = text_of(arguments, "layers_to_transform"),
             *pattern = text_of(arguments, "layers_pattern");
        struct tt_model_options options = {.compute_dtype = TT_F32};
        options.lora = (struct tt_lora_config){.enabled = true,
                                               .r = 8,
                                               .alpha = 8,
                                               .target_modules = target,
                                               .exclude_modules = exclude,
                                               .layers_to_transform = layers,
                                               .layers_pattern = pattern,
                                               .from_adapter = strcmp(target, "q_proj") == 0};
        tt_status status = tt_model_create(&config, &options, &model);
        if (status != TT_ERR_USAGE)
            fail_msg("%s %s: status %s", target, json_string_value(json_object_get(item, "error")),
                     tt_status_name(status));
        assert_null(model);
        refused++;
        free(target);
        free(exclude);
        free(layers);
        free(pattern);
    }
    assert_true(refused >= 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_peft_adapts),
        cmocka_unit_test(what_peft_refuses),
    };
    return cmocka_run_group_tests(tests, open_golden, close_golden);
}
