/* A file's keys into the settings of a training. */
#include "recipe/recipe.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "config/value.h"
#include "recipe/recipe_impl.h"

const char tt_recipe_programs[] = "axolotl llama-factory";

static const struct tt_recipe_format *const formats[] = {
#define FORMAT(name) &tt_recipe_##name,
#include "recipe/formats.def"
#undef FORMAT
};

enum { FORMATS = sizeof formats / sizeof *formats };

/* The number of keys that only this program has. */
static size_t count_own(const struct tt_recipe_format *format, const struct tt_yaml_node *root,
                        const struct tt_settings *settings)
{
    size_t count = 0;
    for (const struct tt_yaml_node *node = root->first; node != NULL; node = node->next)
        count += tt_foreign_find(format->program, node->key) != NULL && !tt_settings_has(settings, node->key);
    return count;
}

static tt_status choose_format(const struct tt_recipe_request *request, const struct tt_yaml_node *root,
                               const struct tt_settings *settings, const struct tt_recipe_format **out)
{
    size_t most = 0;
    for (size_t i = 0; i < FORMATS; i++) {
        size_t count = count_own(formats[i], root, settings);
        bool named = request->from != NULL && strcmp(request->from, formats[i]->name) == 0;
        if (!named && (request->from != NULL || count <= most)) continue;
        most = count;
        *out = formats[i];
    }
    if (*out != NULL) return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE, "%s has no key of axolotl or LLaMA-Factory", request->path);
    tt_hint("keys of TRL, transformers and PEFT need no conversion: trimtab train --config %s",
            request->path);
    return status;
}

/* "theirs=ours" of a list: the part behind '=', in `ours`. False where the word is not there; "*=*" stands for the
 * value of all others. */
static bool map_word(const char *words, const char *theirs, char *ours, size_t ours_bytes)
{
    for (const char *at = words; *at != '\0'; at += strspn(at, " ")) {
        size_t bytes = strcspn(at, "="), all = strcspn(at, " ");
        if (bytes == strlen(theirs) && strncmp(at, theirs, bytes) == 0) {
            (void)snprintf(ours, ours_bytes, "%.*s", (int)(all - bytes - 1), at + bytes + 1);
            return true;
        }
        at += all;
    }
    return false;
}

/* A word of the row: also a boolean in any of YAML's spellings. */
static bool map_value(const char *words, const char *text, char *ours, size_t ours_bytes)
{
    bool is;
    if (map_word(words, text, ours, ours_bytes)) return true;
    return tt_value_parse_bool(text, &is) && map_word(words, is ? "true" : "false", ours, ours_bytes);
}

/* The text of a scalar; of an empty list or mapping its JSON, of others "". */
static const char *text_of(const struct tt_yaml_node *node)
{
    if (node->kind == TT_YAML_SCALAR) return node->text;
    if (node->first != NULL) return "";
    return node->kind == TT_YAML_LIST ? "[]" : "{}";
}

static tt_status take_row(struct tt_recipe *recipe, const struct tt_yaml_node *node,
                          const struct tt_foreign_key *row)
{
    char ours[40];
    const char *text = text_of(node);
    switch (row->kind) {
    case TT_FOREIGN_NAMED:
        return tt_recipe_put_node(recipe, node, row->setting);
    case TT_FOREIGN_WORDS:
        if (node->kind == TT_YAML_SCALAR && map_value(row->words, text, ours, sizeof ours))
            return ours[0] != '\0' ? tt_recipe_put(recipe, node, row->setting, ours) : TT_OK;
        if (strstr(row->words, "*=*") != NULL) return tt_recipe_put_node(recipe, node, row->setting);
        break;
    case TT_FOREIGN_NOTHING:
        return tt_recipe_note(recipe, node, "without effect: %s", row->what);
    case TT_FOREIGN_OFF:
        if (tt_foreign_is_idle(row, text)) return TT_OK;
        break;
    case TT_FOREIGN_ELSEWHERE:
        break;
    }
    return tt_recipe_lack(recipe, node, "%s", row->what);
}

static tt_status take_key(struct tt_recipe *recipe, const struct tt_yaml_node *node)
{
    if (tt_yaml_is_null(node)) return TT_OK;
    for (const struct tt_recipe_key *key = recipe->format->keys; key->key != NULL; key++)
        if (strcmp(key->key, node->key) == 0) return key->read(recipe, node);
    const struct tt_foreign_key *row = tt_foreign_find(recipe->format->program, node->key);
    if (row != NULL) return take_row(recipe, node, row);
    if (tt_settings_has(recipe->settings, node->key)) return tt_recipe_put_node(recipe, node, node->key);
    row = tt_foreign_find(NULL, node->key);
    if (row != NULL) return take_row(recipe, node, row);
    return tt_recipe_lack(recipe, node, "no setting stands for this key: remove it");
}

static tt_status take_file(struct tt_recipe *recipe)
{
    for (const struct tt_yaml_node *node = recipe->root->first; node != NULL; node = node->next)
        TT_TRY(take_key(recipe, node));
    TT_TRY(recipe->format->finish(recipe));
    for (const struct tt_recipe_default *own = recipe->format->defaults; own->setting != NULL; own++)
        TT_TRY(tt_recipe_suppose(recipe, own->setting, own->value));
    return TT_OK;
}

/* All that is not carried over, in one error. */
static tt_status fail_lacking(const struct tt_recipe *recipe)
{
    tt_status status =
        tt_fail(TT_ERR_UNSUPPORTED, "%s: %zu %s of %s cannot be carried over:", recipe->path,
                recipe->lacking_count, recipe->lacking_count == 1 ? "key" : "keys", recipe->format->program);
    for (const char *at = tt_str_text(recipe->lacking); *at != '\0'; at += *at == '\n') {
        size_t bytes = strcspn(at, "\n");
        if (!tt_item("%.*s", (int)bytes, at)) tt_warn("%.*s", (int)bytes, at);
        at += bytes;
    }
    tt_hint("--partial true writes the rest, with these as comments: the result of the training differs");
    return status;
}

tt_status tt_recipe_convert(const struct tt_recipe_request *request, struct tt_settings *settings,
                            struct tt_str *notes, struct tt_str *lacking)
{
    struct tt_yaml yaml;
    TT_TRY(tt_yaml_read(request->path, &yaml));
    tt_status status = TT_OK;
    struct tt_recipe recipe = {
        .path = request->path, .root = yaml.root, .settings = settings, .notes = notes, .lacking = lacking};
    if (yaml.root == NULL || yaml.root->kind != TT_YAML_MAP)
        TT_GO(tt_fail(TT_ERR_USAGE, "%s: a configuration is lines of 'key: value'", request->path));
    TT_GO(choose_format(request, yaml.root, settings, &recipe.format));
    TT_GO(take_file(&recipe));
    if (recipe.lacking_count > 0 && !request->partial) status = fail_lacking(&recipe);
out:
    tt_yaml_deinit(&yaml);
    return status;
}
