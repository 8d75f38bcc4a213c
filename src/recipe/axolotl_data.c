/* axolotl's data sets: one kind of row for all of them, because settings of rows are those of the run.
 *
 * Sources: axolotl src/axolotl/utils/schemas/datasets.py (keys), src/axolotl/prompt_strategies/chat_template.py (what
 * trains), src/axolotl/prompters.py (Alpaca's prompts), src/axolotl/prompt_strategies/dpo/chat_template.py. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "recipe/axolotl.h"

enum kind { KIND_NONE, KIND_CHAT, KIND_ALPACA, KIND_TEXT, KIND_PROMPT };

static const char *text_of(const struct tt_yaml_node *map, const char *key)
{
    const struct tt_yaml_node *node = tt_yaml_find(map, key);
    return node != NULL && node->kind == TT_YAML_SCALAR && !tt_yaml_is_null(node) ? node->text : NULL;
}

/* The kinds of an entry's `type`. */
static enum kind kind_of(const struct tt_recipe *recipe, const struct tt_yaml_node *type)
{
    if (type == NULL) return KIND_NONE;
    if (type->kind == TT_YAML_MAP) return KIND_PROMPT;
    if (type->text == NULL) return KIND_NONE;
    bool dpo = tt_recipe_text(recipe, "rl") != NULL;
    if (dpo)
        return tt_recipe_is_one(type->text, "chat_template.default chat_template.argilla "
                                            "chat_template.argilla_chat orpo.chat_template")
                   ? KIND_CHAT
                   : KIND_NONE;
    if (strcmp(type->text, "chat_template") == 0 || tt_starts_with(type->text, "sharegpt")) return KIND_CHAT;
    if (strcmp(type->text, "alpaca") == 0) return KIND_ALPACA;
    return strcmp(type->text, "completion") == 0 ? KIND_TEXT : KIND_NONE;
}

/* Columns, members of messages and roles that rows may have here under these names; "*": any value. */
static const struct {
    const char *key, *values, *what;
} columns[] = {
    {"field_messages", "messages conversations conversation", "name the column of the rows messages"},
    {"field_chosen", "chosen", "name the column of the rows chosen"},
    {"field_rejected", "rejected", "name the column of the rows rejected"},
    {"field_tools", "tools", "name the column of the rows tools"},
    {"field_system", "system", "name the column of the rows system"},
    {"field_thinking", "reasoning_content thinking reasoning",
     "name the member of the messages reasoning_content"},
    {"template_thinking_key", "reasoning_content thinking reasoning",
     "remove it: the template finds the reasoning"},
    {"message_field_role", "role from", "name the member of the messages role"},
    {"message_field_content", "content value", "name the member of the messages content"},
    {"message_field_training", "train training loss weight", "name the member of the messages train"},
    {"conversation", "*", NULL},
    {"trust_remote_code", "*", NULL},
    {"ds_type", "*", NULL},
    {"split_thinking", "false", "remove it: the template writes the reasoning"},
    {"input_format", "*", NULL},
    {"field_instruction", "instruction", "name the column of the rows instruction"},
    {"field_input", "input", "name the column of the rows input"},
    {"field_output", "output", "name the column of the rows output"},
};

static tt_status read_column(struct tt_recipe *recipe, const struct tt_yaml_node *node, bool *known)
{
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        if (strcmp(columns[i].key, node->key) != 0) continue;
        *known = true;
        bool fits = strcmp(columns[i].values, "*") == 0 ||
                    (node->text != NULL && tt_recipe_is_one(node->text, columns[i].values));
        return fits ? TT_OK : tt_recipe_lack(recipe, node, "%s", columns[i].what);
    }
    return TT_OK;
}

static tt_status read_properties(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    for (const struct tt_yaml_node *item = node->first; item != NULL; item = item->next) {
        const char *value = item->text != NULL ? item->text : "";
        bool fits = strcmp(item->key, "role") == 0      ? tt_recipe_is_one(value, "role from")
                    : strcmp(item->key, "content") == 0 ? tt_recipe_is_one(value, "content value")
                                                        : strcmp(item->key, value) == 0;
        if (!fits) TT_TRY(tt_recipe_lack(recipe, item, "name the member of the messages %s", item->key));
    }
    return TT_OK;
}

/* Names of roles that rows may have (data/chat_roles.h). */
static tt_status read_roles(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    static const struct {
        const char *role, *names;
    } known[] = {{"user", "user human"},
                 {"assistant", "assistant gpt gpt4 chatgpt bing bard model ai bot chatbot"},
                 {"system", "system"},
                 {"tool", "tool tool_response function observation"}};
    for (const struct tt_yaml_node *role = node->first; role != NULL; role = role->next)
        for (const struct tt_yaml_node *name = role->first; name != NULL; name = name->next) {
            bool fits = name->text != NULL && strcmp(name->text, role->key) == 0;
            for (size_t i = 0; i < sizeof known / sizeof *known && !fits; i++)
                fits = name->text != NULL && strcmp(known[i].role, role->key) == 0 &&
                       tt_recipe_is_one(name->text, known[i].names);
            if (!fits)
                TT_TRY(tt_recipe_lack(recipe, role, "write the role %s as %s in the rows",
                                      name->text != NULL ? name->text : "", role->key));
        }
    return TT_OK;
}

/* A template's name, of the entry or of the file; null is the model's own. */
static tt_status put_template(struct tt_recipe *recipe, const struct tt_yaml_node *entry)
{
    const struct tt_yaml_node *jinja = tt_yaml_find(entry, "chat_template_jinja");
    const struct tt_yaml_node *name = tt_yaml_find(entry, "chat_template");
    if (jinja == NULL && name == NULL) {
        jinja = tt_yaml_find(recipe->root, "chat_template_jinja");
        name = tt_yaml_find(recipe->root, "chat_template");
    }
    if (jinja != NULL && !tt_yaml_is_null(jinja)) {
        bool file = jinja->text != NULL && tt_path_exists(jinja->text);
        return tt_recipe_put_node(recipe, jinja, file ? "chat_template_path" : "chat_template");
    }
    if (name == NULL || tt_yaml_is_null(name) || name->text == NULL) return TT_OK;
    if (tt_recipe_is_one(name->text, "llama3 chatml gemma"))
        return tt_recipe_put(recipe, name, "chat_template", name->text);
    if (strcmp(name->text, "tokenizer_default") == 0) return TT_OK;
    if (tt_starts_with(name->text, "tokenizer_default_fallback_"))
        return tt_recipe_note(recipe, name, "the model's own template is used, and must be there");
    return tt_recipe_lack(
        recipe, name, "remove it where the model's own template is that one; else give chat_template_path");
}

/* Data files are below a folder; path "json" and its like say only what they are. */
static tt_status add_source(struct tt_recipe *recipe, const struct tt_yaml_node *entry,
                            struct tt_recipe_sources *sources)
{
    const char *path = text_of(entry, "path"), *split = text_of(entry, "split");
    const struct tt_yaml_node *files = tt_yaml_find(entry, "data_files");
    if (path == NULL) return tt_recipe_lack(recipe, entry, "path: the file or folder of the rows");
    if (split != NULL && strchr(split, '[') != NULL)
        return tt_recipe_lack(recipe, entry, "split '%s': write a file with these rows", split);
    if (split != NULL && strcmp(split, "train") == 0) split = NULL;
    bool alone = tt_recipe_is_one(path, "json jsonl csv parquet arrow text");
    if (files == NULL || tt_yaml_is_null(files)) return tt_recipe_add_source(sources, path, split, NULL);
    const struct tt_yaml_node *file = files->kind == TT_YAML_LIST ? files->first : files;
    for (; file != NULL; file = files->kind == TT_YAML_LIST ? file->next : NULL)
        if (file->text != NULL)
            TT_TRY(alone ? tt_recipe_add_source(sources, file->text, NULL, NULL)
                         : tt_recipe_add_source(sources, path, split, file->text));
    return TT_OK;
}

/* Keys of an entry but for its source and type. */
static tt_status read_entry(struct tt_recipe *recipe, const struct tt_yaml_node *entry)
{
    for (const struct tt_yaml_node *node = entry->first; node != NULL; node = node->next) {
        bool known = false;
        if (tt_yaml_is_null(node) ||
            tt_recipe_is_one(node->key, "path split data_files type field chat_template chat_template_jinja"))
            continue;
        TT_TRY(read_column(recipe, node, &known));
        if (known) continue;
        if (strcmp(node->key, "message_property_mappings") == 0)
            TT_TRY(read_properties(recipe, node));
        else if (strcmp(node->key, "roles") == 0)
            TT_TRY(read_roles(recipe, node));
        else if (tt_recipe_is_one(node->key, "roles_to_train train_on_eos drop_system_message"))
            TT_TRY(tt_recipe_put_node(recipe, node, node->key));
        else
            TT_TRY(tt_recipe_lack(recipe, node, "no setting stands for this key of a data set"));
    }
    return TT_OK;
}

/* "{instruction}" of a format as the column's name, "{field}" of ours. */
static tt_status append_format(struct tt_str *out, const char *format, const struct tt_yaml_node *type)
{
    static const char *const names[][2] = {
        {"instruction", "field_instruction"}, {"input", "field_input"}, {"system", "field_system"}};
    for (const char *at = format; *at != '\0';) {
        size_t plain = strcspn(at, "{");
        TT_TRY(tt_str_append(out, at, plain));
        at += plain;
        bool found = false;
        for (size_t i = 0; i < 3 && *at == '{' && !found; i++) {
            size_t bytes = strlen(names[i][0]);
            found = strncmp(at + 1, names[i][0], bytes) == 0 && at[1 + bytes] == '}';
            if (!found) continue;
            const char *column = text_of(type, names[i][1]);
            TT_TRY(tt_str_printf(out, "{%s}", column != NULL ? column : names[i][0]));
            at += bytes + 2;
        }
        if (*at != '{' || found) continue;
        TT_TRY(tt_str_append_text(out, "{{"));
        at++;
    }
    return TT_OK;
}

static bool is_prompt_key(const struct tt_yaml_node *key)
{
    if (strcmp(key->key, "system_format") == 0)
        return key->text != NULL && strcmp(key->text, "{system}") == 0;
    return tt_yaml_is_null(key) ||
           tt_recipe_is_one(key->key, "format no_input_format system_prompt field_instruction "
                                      "field_input field_system field_output");
}

/* A type of the user's own: a prompt of columns, and the column of the answer. */
static tt_status read_prompt(struct tt_recipe *recipe, const struct tt_yaml_node *type)
{
    struct tt_str prompt = {0};
    tt_status status = TT_OK;
    const char *format = text_of(type, "format"), *without = text_of(type, "no_input_format");
    const char *system = text_of(type, "system_prompt"), *output = text_of(type, "field_output");
    if (format == NULL)
        return tt_recipe_lack(recipe, type, "prompt_template: the prompt with {column} names");
    for (const struct tt_yaml_node *key = type->first; key != NULL; key = key->next)
        if (!is_prompt_key(key))
            TT_TRY(tt_recipe_lack(recipe, key, "no setting stands for this key of a type"));
    bool conditional = without != NULL && strstr(format, "{input}") != NULL && strcmp(format, without) != 0;
    if (conditional)
        return tt_recipe_lack(recipe, type,
                              "prompt_template is one format, with or without an input: split the rows");
    if (system != NULL) TT_GO(append_format(&prompt, system, type));
    TT_GO(append_format(&prompt, format, type));
    TT_GO(tt_recipe_put(recipe, type, "prompt_template", tt_str_text(&prompt)));
    TT_GO(tt_recipe_put(recipe, type, "dataset_completion_field", output != NULL ? output : "output"));
    TT_GO(tt_recipe_suppose(recipe, "assistant_only_loss", "false"));
    if (tt_recipe_is_true(recipe, "train_on_inputs"))
        TT_GO(tt_recipe_put(recipe, type, "completion_only_loss", "false"));
out:
    tt_str_deinit(&prompt);
    return status;
}

static tt_status put_kind(struct tt_recipe *recipe, const struct tt_yaml_node *entry, enum kind kind)
{
    const struct tt_yaml_node *type = tt_yaml_find(entry, "type"), *field = tt_yaml_find(entry, "field");
    const struct tt_yaml_node *inputs = tt_yaml_find(recipe->root, "train_on_inputs");
    bool sft = tt_recipe_text(recipe, "rl") == NULL;
    switch (kind) {
    case KIND_NONE:
        return tt_recipe_lack(
            recipe, type != NULL ? type : entry,
            "type: chat_template, alpaca, completion, or with rl: dpo chat_template.default");
    case KIND_TEXT:
        if (field != NULL && !tt_yaml_is_null(field))
            TT_TRY(tt_recipe_put(recipe, field, "dataset_text_field", field->text));
        TT_TRY(tt_recipe_put(recipe, type, "over_length", "truncate"));
        TT_TRY(
            tt_recipe_note(recipe, type, "a text longer than sequence_len is cut at its end, not divided"));
        return tt_recipe_suppose(recipe, "assistant_only_loss", "false");
    case KIND_PROMPT:
        return read_prompt(recipe, type);
    case KIND_ALPACA:
        TT_TRY(tt_recipe_put(recipe, type, "chat_template", "alpaca"));
        break;
    case KIND_CHAT:
        TT_TRY(put_template(recipe, entry));
        break;
    }
    if (!sft || inputs == NULL || tt_yaml_is_null(inputs)) return TT_OK;
    bool all = tt_recipe_is_true(recipe, "train_on_inputs");
    return tt_recipe_put(recipe, inputs, "assistant_only_loss", all ? "false" : "true");
}

/* Whether two values are the same; NULL stands for null. */
static bool is_same(const struct tt_yaml_node *a, const struct tt_yaml_node *b)
{
    if (a == NULL || tt_yaml_is_null(a) || b == NULL || tt_yaml_is_null(b))
        return (a == NULL || tt_yaml_is_null(a)) && (b == NULL || tt_yaml_is_null(b));
    if (a->kind != b->kind) return false;
    if (a->kind == TT_YAML_SCALAR) return strcmp(a->text, b->text) == 0;
    const struct tt_yaml_node *one = a->first, *other = b->first;
    for (; one != NULL && other != NULL; one = one->next, other = other->next)
        if ((a->kind == TT_YAML_MAP && strcmp(one->key, other->key) != 0) || !is_same(one, other))
            return false;
    return one == other;
}

/* Whether a data set has the settings of the first one, which are those of the run. */
static bool has_settings_of(const struct tt_yaml_node *entry, const struct tt_yaml_node *first)
{
    static const char *const keys[] = {
        "type",           "field",        "chat_template",      "chat_template_jinja",
        "roles_to_train", "train_on_eos", "drop_system_message"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!is_same(tt_yaml_find(entry, keys[i]), tt_yaml_find(first, keys[i]))) return false;
    return true;
}

tt_status tt_axolotl_read_datasets(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    struct tt_recipe_sources sources = {0};
    enum kind kind = KIND_NONE;
    tt_status status = TT_OK;
    if (node->kind != TT_YAML_LIST) return tt_recipe_lack(recipe, node, "a list of data sets");
    for (const struct tt_yaml_node *entry = node->first; entry != NULL; entry = entry->next) {
        const struct tt_yaml_node *type = tt_yaml_find(entry, "type");
        enum kind own = kind_of(recipe, type);
        if (entry == node->first)
            TT_GO(put_kind(recipe, entry, kind = own));
        else if (own != kind || (kind != KIND_NONE && !has_settings_of(entry, node->first)))
            TT_GO(
                tt_recipe_lack(recipe, type != NULL ? type : entry,
                               "data sets of several types or settings: write the rows of all in one form"));
        TT_GO(read_entry(recipe, entry));
        TT_GO(add_source(recipe, entry, &sources));
    }
    status = tt_recipe_put_sources(recipe, node, &sources);
out:
    tt_str_deinit(&sources.list);
    return status;
}

tt_status tt_axolotl_read_test_datasets(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    const struct tt_yaml_node *entry = node->kind == TT_YAML_LIST ? node->first : NULL;
    const char *path = entry != NULL ? text_of(entry, "path") : NULL;
    if (path == NULL || entry->next != NULL)
        return tt_recipe_lack(recipe, node, "eval_dataset: the file or folder of one data set");
    const char *files = text_of(entry, "data_files"), *split = text_of(entry, "split");
    if (split != NULL) TT_TRY(tt_recipe_put(recipe, node, "dataset_test_split", split));
    bool alone = tt_recipe_is_one(path, "json jsonl csv parquet arrow text");
    return tt_recipe_put(recipe, node, "eval_dataset", alone && files != NULL ? files : path);
}
