/* Shared by the readers of a program's keys. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/number.h"
#include "config/value.h"
#include "recipe/recipe_impl.h"

const char *tt_recipe_text(const struct tt_recipe *recipe, const char *key)
{
    const struct tt_yaml_node *node = tt_yaml_find(recipe->root, key);
    return node != NULL && node->kind == TT_YAML_SCALAR && !tt_yaml_is_null(node) ? node->text : NULL;
}

bool tt_recipe_is_true(const struct tt_recipe *recipe, const char *key)
{
    bool value = false;
    const char *text = tt_recipe_text(recipe, key);
    return text != NULL && tt_value_parse_bool(text, &value) && value;
}

bool tt_recipe_is_one(const char *text, const char *words)
{
    size_t length = strlen(text);
    for (const char *at = words; *at != '\0'; at += strspn(at, " ")) {
        size_t bytes = strcspn(at, " ");
        if (bytes == length && strncmp(at, text, bytes) == 0) return true;
        at += bytes;
    }
    return false;
}

/* "line 12, micro_batch_size: text" as a line of `out`. */
static tt_status append_line(struct tt_str *out, const struct tt_yaml_node *node, const char *format,
                             va_list arguments)
{
    char text[900];
    (void)tt_vsnprintf(text, sizeof text, format, arguments);
    for (char *at = text; *at != '\0'; at++)
        if (*at == '\n') *at = ' ';
    return tt_str_printf(out, "line %zu, %s: %s\n", node->line, node->key != NULL ? node->key : "", text);
}

tt_status tt_recipe_lack(struct tt_recipe *recipe, const struct tt_yaml_node *node, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tt_status status = append_line(recipe->lacking, node, format, arguments);
    va_end(arguments);
    recipe->lacking_count++;
    return status;
}

tt_status tt_recipe_note(struct tt_recipe *recipe, const struct tt_yaml_node *node, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    tt_status status = append_line(recipe->notes, node, format, arguments);
    va_end(arguments);
    return status;
}

tt_status tt_recipe_put(struct tt_recipe *recipe, const struct tt_yaml_node *node, const char *setting,
                        const char *value)
{
    char origin[200];
    (void)snprintf(origin, sizeof origin, "line %zu, %.100s", node->line,
                   node->key != NULL ? node->key : setting);
    tt_status status = tt_settings_set(recipe->settings, setting, value, origin);
    if (status != TT_ERR_USAGE && status != TT_ERR_UNSUPPORTED) return status;
    const struct tt_error *error = tt_error_last();
    const char *message = error->message;
    if (tt_starts_with(message, origin) && message[strlen(origin)] == ':') message += strlen(origin) + 2;
    status = tt_recipe_lack(recipe, node, "%s%s%s", message, error->hint[0] != 0 ? ": " : "", error->hint);
    tt_error_clear();
    return status;
}

tt_status tt_recipe_put_node(struct tt_recipe *recipe, const struct tt_yaml_node *node, const char *setting)
{
    if (node->kind == TT_YAML_SCALAR) return tt_recipe_put(recipe, node, setting, node->text);
    struct tt_str text = {0};
    struct tt_json_value *value = tt_yaml_to_json(node);
    if (value == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_json_write(value, 0, false, &text);
    if (status == TT_OK) status = tt_recipe_put(recipe, node, setting, tt_str_text(&text));
    tt_json_release(value);
    tt_str_deinit(&text);
    return status;
}

tt_status tt_recipe_suppose(struct tt_recipe *recipe, const char *setting, const char *value)
{
    char origin[80];
    if (tt_settings_is_set(recipe->settings, setting)) return TT_OK;
    (void)snprintf(origin, sizeof origin, "%s's default", recipe->format->program);
    return tt_settings_set(recipe->settings, setting, value, origin);
}

/* The stage of a configuration as its file says it; -1: there is no such file. */
static int stage_of_file(const char *path)
{
    struct tt_str text = {0};
    struct tt_json json = {0};
    int stage = -1;
    if (!tt_path_exists(path) || tt_file_read(path, 1 << 20, &text) != TT_OK ||
        tt_json_parse(tt_str_text(&text), text.bytes, path, &json) != TT_OK)
        tt_error_clear();
    const struct tt_json_value *value = tt_json_get(tt_json_get(json.root, "zero_optimization"), "stage");
    if (value != NULL && tt_json_integer(value) >= 0 && tt_json_integer(value) <= 3)
        stage = (int)tt_json_integer(value);
    tt_json_deinit(&json);
    tt_str_deinit(&text);
    return stage;
}

/* "zero3_bf16.json" of axolotl, "ds_z3_offload_config.json" of LLaMA-Factory; -1: it names no stage. */
static int stage_of_name(const char *path)
{
    static const char *const marks[] = {"zero", "z"};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        for (const char *at = strstr(path, marks[i]); at != NULL; at = strstr(at + 1, marks[i])) {
            char digit = at[strlen(marks[i])];
            if (digit >= '0' && digit <= '3') return digit - '0';
        }
    return -1;
}

tt_status tt_recipe_read_deepspeed(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    static const char *const strategies[] = {"NO_SHARD", "SHARD_GRAD_OP", "SHARD_GRAD_OP", "FULL_SHARD"};
    int stage = -1;
    if (node->kind == TT_YAML_SCALAR) {
        stage = stage_of_file(node->text);
        if (stage < 0) stage = stage_of_name(node->text);
    }
    if (stage < 0)
        return tt_recipe_lack(recipe, node,
                              "sharding_strategy: FULL_SHARD for stage 3 of ZeRO, SHARD_GRAD_OP for 1 and 2");
    TT_TRY(tt_recipe_put(recipe, node, "sharding_strategy", strategies[stage]));
    bool offloads = strstr(node->text, "offload") != NULL;
    return offloads ? tt_recipe_put(recipe, node, "offload_params", "true") : TT_OK;
}

/* ---- Sources of rows ---- */

static tt_status append_member(struct tt_str *list, const char *name, const char *value)
{
    struct tt_str text = {0};
    struct tt_json_value *string = tt_json_new_string(value);
    tt_status status = string == NULL ? TT_ERR_MEMORY : tt_json_write(string, 0, false, &text);
    if (status == TT_OK) status = tt_str_printf(list, "\"%s\": %s", name, tt_str_text(&text));
    tt_json_release(string);
    tt_str_deinit(&text);
    return status;
}

tt_status tt_recipe_add_source(struct tt_recipe_sources *sources, const char *path, const char *split,
                               const char *data_files)
{
    struct tt_str *list = &sources->list;
    if (sources->count++ == 0) (void)snprintf(sources->only, sizeof sources->only, "%s", path);
    sources->plain =
        sources->count == 1 && split == NULL && data_files == NULL && strlen(path) < sizeof sources->only;
    TT_TRY(tt_str_append_text(list, list->bytes > 0 ? ", {" : "{"));
    TT_TRY(append_member(list, "path", path));
    if (split != NULL) {
        TT_TRY(tt_str_append_text(list, ", "));
        TT_TRY(append_member(list, "split", split));
    }
    if (data_files != NULL) {
        TT_TRY(tt_str_append_text(list, ", "));
        TT_TRY(append_member(list, "data_files", data_files));
    }
    return tt_str_append_char(list, '}');
}

tt_status tt_recipe_put_sources(struct tt_recipe *recipe, const struct tt_yaml_node *node,
                                const struct tt_recipe_sources *sources)
{
    struct tt_str text = {0};
    if (sources->count == 0) return TT_OK;
    if (sources->plain) return tt_recipe_put(recipe, node, "dataset_name", sources->only);
    tt_status status = tt_str_printf(&text, "[%s]", tt_str_text(&sources->list));
    if (status == TT_OK) status = tt_recipe_put(recipe, node, "datasets", tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}
