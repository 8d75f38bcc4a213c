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
#include "nn/linear.h"

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

static struct tt_model_facts config_of(const struct tt_json_value *item)
{
    struct tt_model_facts config;
    struct tt_json json = {.root = tt_json_copy(tt_json_get(golden.root, "config")), .origin = "config"};
    assert_int_equal(tt_json_set(json.root, "model_type", tt_json_new_string("qwen2")), 0);
    assert_int_equal(tt_json_set_copy(json.root, "tie_word_embeddings", tt_json_get(item, "tied")), 0);
    must(tt_model_facts_parse(&json, &config), "config");
    tt_json_release(json.root);
    return config;
}

struct compared {
    const struct tt_json_value *adapted;
    const char *arguments;
    size_t found;
};

static tt_status compare_linear(void *context, const struct tt_linear *linear)
{
    struct compared *compared = context;
    const char *arguments = compared->arguments;
    if (linear->r == 0) return TT_OK;
    char path[256];
    (void)snprintf(path, sizeof path, "%s", linear->lora_A->name);
    path[strlen(path) - strlen(".lora_A.weight")] = '\0';
    const struct tt_json_value *expected = tt_json_get(compared->adapted, path);
    if (expected == NULL) fail_msg("%s: '%s' should not be adapted", arguments, path);
    assert_int_equal(linear->r, tt_json_integer(tt_json_at(expected, 0)));
    double scaling = tt_json_number(tt_json_at(expected, 1));
    if (!(fabs(linear->scaling - scaling) <= 1e-6 * scaling)) {
        fail_msg("%s: the scale of '%s' is %g, not %g", arguments, path, linear->scaling, scaling);
    }
    assert_true(linear->lora_A->dims[0] == linear->r && linear->lora_A->dims[1] == linear->in);
    assert_true(linear->lora_B->dims[0] == linear->out && linear->lora_B->dims[1] == linear->r);
    compared->found++;
    return TT_OK;
}

static void compare_model(const struct tt_model *model, const struct tt_json_value *item,
                          const char *arguments)
{
    const struct tt_json_value *adapted = tt_json_get(item, "adapted"), *saved = tt_json_get(item, "saved");
    size_t found_saved = 0;
    struct compared compared = {.adapted = adapted, .arguments = arguments};
    for (int i = 0; i < model->block_count; i++) {
        const struct tt_block *block = &model->blocks[i];
        assert_int_equal(block->ops->visit_linears(block, compare_linear, &compared), TT_OK);
    }
    if (compared.found != tt_json_count(adapted))
        fail_msg("%s: %zu of %zu modules", arguments, compared.found, tt_json_count(adapted));
    for (size_t i = 0; i < model->param_count; i++) {
        const tt_param *param = model->params[i];
        if (param->adapter && strstr(param->name, ".lora_") == NULL) found_saved++;
        assert_int_equal(param->trainable, param->adapter);
    }
    assert_int_equal(found_saved, tt_json_count(saved));
    for (size_t i = 0; i < found_saved; i++) {
        const tt_param *param = tt_model_find_param(model, tt_json_text(tt_json_at(saved, i)));
        assert_true(param != NULL && param->adapter);
    }
    assert_int_equal(model->trainable_param_count, tt_json_integer(tt_json_get(item, "trainable")));
    assert_int_equal(model->base_param_count + model->adapter_param_count,
                     tt_json_integer(tt_json_get(item, "all")));
}

static bool contains(const struct tt_json_value *list, const struct tt_json_value *value)
{
    for (size_t i = 0; i < tt_json_count(list); i++) {
        if (tt_json_equal(tt_json_at(list, i), value)) return true;
    }
    return false;
}

/* Lists are sets in PEFT. */
static bool same(const struct tt_json_value *ours, const struct tt_json_value *theirs)
{
    if (tt_json_is_number(ours) && tt_json_is_number(theirs))
        return tt_json_number(ours) == tt_json_number(theirs);
    if (!tt_json_is_list(ours) || !tt_json_is_list(theirs)) return tt_json_equal(ours, theirs);
    if (tt_json_count(ours) != tt_json_count(theirs)) return false;
    for (size_t i = 0; i < tt_json_count(ours); i++) {
        if (!contains(theirs, tt_json_at(ours, i))) return false;
    }
    return true;
}

/* Everything that we write is what PEFT wrote, but the version, the path, and a pattern whose keys' order
 * matters or a name that was given in another form. */
static void compare_written(const struct tt_json *ours, const struct tt_json_value *theirs,
                            const char *arguments)
{
    const char *key;
    const struct tt_json_value *value;
    for (size_t member = 0; tt_json_next_member(ours->root, &member, &key, &value);) {
        const struct tt_json_value *other = tt_json_get(theirs, key);
        bool may_differ = strcmp(key, "peft_version") == 0 || strcmp(key, "base_model_name_or_path") == 0 ||
                          strcmp(key, "alpha_pattern") == 0 || strcmp(key, "rank_pattern") == 0 ||
                          strcmp(key, "layers_pattern") == 0 || strcmp(key, "layers_to_transform") == 0;
        if (other == NULL) fail_msg("%s: PEFT does not write '%s'", arguments, key);
        if (!may_differ && !same(value, other))
            fail_msg("%s: '%s' differs from what PEFT writes", arguments, key);
    }
}

/* Released with free(). */
static char *dumped(const struct tt_json_value *value)
{
    struct tt_str text = {0};
    assert_int_equal(tt_json_write(value, 0, false, &text), TT_OK);
    char *copy = strdup(text.data);
    tt_str_deinit(&text);
    return copy;
}

static void check_case(const struct tt_json_value *item)
{
    struct tt_arena arena = {0};
    struct tt_model_facts config = config_of(item);
    struct tt_model_options options = {.compute_dtype = TT_F32};
    struct tt_model *model = NULL, *again = NULL;
    struct tt_str text = {0};
    char arguments[512];
    char *dump = dumped(tt_json_get(item, "arguments"));
    (void)snprintf(arguments, sizeof arguments, "%s", dump);
    free(dump);
    struct tt_json theirs = {.root = tt_json_copy(tt_json_get(item, "adapter_config")),
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
    tt_json_deinit(&theirs);
    tt_str_deinit(&text);
    tt_arena_deinit(&arena);
}

static void what_peft_adapts(void **state)
{
    size_t index;
    const struct tt_json_value *item;
    (void)state;
    for (index = 0; (item = tt_json_at(tt_json_get(golden.root, "cases"), index)) != NULL; index++) {
        if (tt_json_get(item, "error") == NULL) check_case(item);
    }
}

static char *text_of(const struct tt_json_value *arguments, const char *key)
{
    const struct tt_json_value *value = tt_json_get(arguments, key);
    if (value == NULL) return NULL;
    return tt_json_is_string(value) ? strdup(tt_json_text(value)) : dumped(value);
}

/* What PEFT refuses is refused as a mistake of the user; the one exception is a bare word, which here is a
 * list of one. */
static void what_peft_refuses(void **state)
{
    size_t index, refused = 0;
    const struct tt_json_value *item;
    (void)state;
    for (index = 0; (item = tt_json_at(tt_json_get(golden.root, "cases"), index)) != NULL; index++) {
        const struct tt_json_value *arguments = tt_json_get(item, "arguments");
        if (tt_json_get(item, "error") == NULL) continue;
        struct tt_model_facts config = config_of(item);
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
            fail_msg("%s %s: status %s", target, tt_json_text(tt_json_get(item, "error")),
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
