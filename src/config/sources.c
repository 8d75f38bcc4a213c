/* Sources of values: YAML files and flags. */
#include <stdio.h>
#include <string.h>

#include "config/describe.h"
#include "config/settings.h"
#include "config/store.h"
#include "config/value.h"

/* The text of a YAML value: a scalar unchanged, a list or mapping as JSON. */
static tt_status node_text(const struct tt_yaml_node *node, struct tt_str *text)
{
    if (node->kind == TT_YAML_SCALAR) return tt_str_append_text(text, node->text);
    struct tt_json_value *value = tt_yaml_to_json(node);
    if (value == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_json_write(value, 0, false, text);
    tt_json_release(value);
    return status;
}

/* Words of a text that have meanings may be a list too. */
static bool takes_list(const struct tt_setting *row)
{
    if (row->type == TT_SETTING_STRING && row->means != NULL) return true;
    return row->type == TT_SETTING_JSON || row->type == TT_SETTING_WORDS;
}

/* A list of one item is accepted where one value is expected (`optim: [adamw_torch]`). */
static tt_status pick_value(const struct tt_yaml_node *node, const struct tt_setting *row, const char *origin,
                            const struct tt_yaml_node **out)
{
    *out = node;
    if (node->kind == TT_YAML_SCALAR || takes_list(row)) return TT_OK;
    *out = node->first;
    if (node->kind == TT_YAML_LIST && node->first != NULL && node->first->next == NULL &&
        node->first->kind == TT_YAML_SCALAR)
        return TT_OK;
    return tt_fail(TT_ERR_USAGE, "%s: '%s' takes one value, not a %s", origin, row->name,
                   node->kind == TT_YAML_LIST ? "list" : "mapping");
}

/* The value of a key that is no setting; a list or mapping has none that could be without effect. */
static tt_status take_unknown(struct tt_settings *settings, const struct tt_yaml_node *node,
                              const char *origin)
{
    const char *value = node->kind == TT_YAML_SCALAR ? node->text : "";
    if (tt_settings_leave_out(settings, node->key, tt_yaml_is_null(node) ? NULL : value, origin))
        return TT_OK;
    return tt_settings_fail_unknown(settings, node->key, origin);
}

static tt_status take_entry(struct tt_settings *settings, const struct tt_yaml *yaml,
                            const struct tt_yaml_node *node)
{
    struct tt_str origin = {0}, text = {0};
    tt_status status;
    TT_GO(tt_str_printf(&origin, "%s line %zu", yaml->origin, node->line));
    struct tt_setting_entry *entry = tt_settings_find(settings, node->key);
    if (entry == NULL) {
        status = take_unknown(settings, node, tt_str_text(&origin));
        goto out;
    }
    if (entry->file_index == settings->file_count) {
        status = tt_fail(TT_ERR_USAGE, "%s: '%s' sets '%s' again, after line %zu", tt_str_text(&origin),
                         node->key, entry->row->name, entry->file_line);
        goto out;
    }
    const struct tt_yaml_node *value;
    TT_GO(pick_value(node, entry->row, tt_str_text(&origin), &value));
    TT_GO(node_text(value, &text));
    TT_GO(tt_settings_assign(settings, entry, tt_str_text(&text),
                             value->kind != TT_YAML_SCALAR || value->quoted, tt_str_text(&origin)));
    entry->file_index = settings->file_count;
    entry->file_line = node->line;
out:
    tt_str_deinit(&origin);
    tt_str_deinit(&text);
    return status;
}

static tt_status take_entries(struct tt_settings *settings, const struct tt_yaml *yaml)
{
    if (yaml->root == NULL || tt_yaml_is_null(yaml->root)) return TT_OK;
    if (yaml->root->kind != TT_YAML_MAP)
        return tt_fail(TT_ERR_USAGE, "%s line %zu: a configuration is lines of 'key: value'", yaml->origin,
                       yaml->root->line);
    for (const struct tt_yaml_node *node = yaml->root->first; node != NULL; node = node->next)
        TT_TRY(tt_settings_refuse(settings, take_entry(settings, yaml, node)));
    return TT_OK;
}

static tt_status take_document(struct tt_settings *settings, const struct tt_yaml *yaml)
{
    settings->level = ++settings->file_count;
    tt_status status = take_entries(settings, yaml);
    settings->level = TT_SETTING_LEVEL_DIRECT;
    return status;
}

static tt_status read_yaml(struct tt_settings *settings, const char *path)
{
    struct tt_yaml yaml;
    TT_TRY(tt_setting_check_scheme("the configuration", path));
    tt_status status = tt_yaml_read(path, &yaml);
    if (status != TT_OK) {
        tt_while("reading the configuration '%s'", path);
        return status;
    }
    status = take_document(settings, &yaml);
    tt_yaml_deinit(&yaml);
    return status;
}

tt_status tt_settings_read_yaml(struct tt_settings *settings, const char *path)
{
    TT_TRY(read_yaml(settings, path));
    return tt_settings_refusals(settings);
}

tt_status tt_settings_parse_yaml(struct tt_settings *settings, const char *text, size_t bytes,
                                 const char *origin)
{
    struct tt_yaml yaml;
    TT_TRY(tt_yaml_parse(text, bytes, origin, &yaml));
    tt_status status = take_document(settings, &yaml);
    tt_yaml_deinit(&yaml);
    return status == TT_OK ? tt_settings_refusals(settings) : status;
}

/* One flag of the command line: its name, the value after '=' if any, and the words that follow it. */
struct flag {
    char name[128]; /* without dashes in front, '-' made '_' */
    char shown[132];
    const char *inline_value; /* NULL: none */
    char *const *words;
    int word_count;
    bool dashes_follow; /* the next word begins with two dashes */
};

static bool is_flag(const char *word)
{
    return word[0] == '-' && word[1] == '-' && word[2] != 0;
}

/* Splits argv at `*index` and moves past the flag and its words. */
static tt_status next_flag(int argc, char *const *argv, int *index, struct flag *flag)
{
    const char *word = argv[*index];
    if (!is_flag(word)) {
        tt_status status = tt_fail(TT_ERR_USAGE, "unexpected argument '%.100s': a flag is expected", word);
        tt_hint("flags begin with two dashes: --model_name_or_path FOLDER");
        return status;
    }
    size_t bytes = strcspn(word + 2, "=");
    if (bytes >= sizeof flag->name) return tt_fail(TT_ERR_USAGE, "there is no flag '%.60s...'", word);
    memcpy(flag->name, word + 2, bytes);
    flag->name[bytes] = 0;
    for (char *at = flag->name; *at != 0; at++)
        if (*at == '-') *at = '_';
    snprintf(flag->shown, sizeof flag->shown, "--%s", flag->name);
    flag->inline_value = word[2 + bytes] == '=' ? word + 3 + bytes : NULL;
    flag->words = argv + *index + 1;
    flag->word_count = 0;
    if (flag->inline_value == NULL)
        while (*index + 1 + flag->word_count < argc && !is_flag(flag->words[flag->word_count]))
            flag->word_count++;
    *index += 1 + flag->word_count;
    flag->dashes_follow = *index < argc;
    return TT_OK;
}

/* The hint shows the form of the value, and what the row says about it. */
static tt_status fail_without_value(const struct flag *flag, const struct tt_setting *row)
{
    struct tt_str hint = {0};
    tt_status status = TT_OK;
    TT_GO(tt_str_printf(&hint, "write %s ", flag->shown));
    TT_GO(row != NULL ? tt_describe_value(&hint, row) : tt_str_append_text(&hint, "VALUE"));
    if (flag->dashes_follow)
        TT_GO(tt_str_printf(&hint, ", or %s=--VALUE for one that begins with two dashes", flag->shown));
    if (row != NULL && row->help != NULL) TT_GO(tt_str_printf(&hint, ". %s", row->help));
    status = tt_fail(TT_ERR_USAGE, "%s needs a value", flag->shown);
    tt_hint("%s", tt_str_text(&hint));
out:
    tt_str_deinit(&hint);
    return status;
}

/* The one value of the flag; words beyond it are an error. `row`: NULL, or what describes the value. */
static tt_status single_value(const struct flag *flag, const struct tt_setting *row, const char **value)
{
    if (flag->inline_value != NULL) {
        *value = flag->inline_value;
        return TT_OK;
    }
    if (flag->word_count == 0) return fail_without_value(flag, row);
    if (flag->word_count > 1)
        return tt_fail(TT_ERR_USAGE, "%s takes one value; '%.100s' is one too many", flag->shown,
                       flag->words[1]);
    *value = flag->words[0];
    return TT_OK;
}

/* Several words become a JSON list, numbers among them as numbers. */
static tt_status join_words(const struct flag *flag, struct tt_str *text)
{
    struct tt_json_value *list = tt_json_new_list();
    tt_status status = list != NULL ? TT_OK : TT_ERR_MEMORY;
    for (int i = 0; i < flag->word_count && status == TT_OK; i++) {
        int64_t number;
        if (!tt_value_is_utf8(flag->words[i]))
            status = tt_fail(TT_ERR_USAGE, "%s: value %d is not UTF-8", flag->shown, i + 1);
        else if (tt_json_append(list, tt_value_parse_int(flag->words[i], &number)
                                          ? tt_json_new_integer(number)
                                          : tt_json_new_string(flag->words[i])) != 0)
            status = tt_fail(TT_ERR_MEMORY, "out of memory while reading %s", flag->shown);
    }
    if (status == TT_OK) status = tt_json_write(list, 0, false, text);
    tt_json_release(list);
    return status;
}

static tt_status take_words(struct tt_settings *settings, struct tt_setting_entry *entry,
                            const struct flag *flag)
{
    const struct tt_setting *row = entry->row;
    bool truth = (row->type == TT_SETTING_BOOL && row->choices == NULL) || row->type == TT_SETTING_TRISTATE;
    bool nothing = flag->inline_value == NULL && flag->word_count == 0;
    if (nothing && (truth || row->unneeded != NULL))
        return tt_settings_assign(settings, entry, "true", false, flag->shown);
    if (flag->inline_value == NULL && flag->word_count > 1 && takes_list(row)) {
        struct tt_str text = {0};
        tt_status status = join_words(flag, &text);
        if (status == TT_OK)
            status = tt_settings_assign(settings, entry, tt_str_text(&text), true, flag->shown);
        tt_str_deinit(&text);
        return status;
    }
    const char *value = NULL;
    TT_TRY(single_value(flag, row, &value));
    /* An empty word on the command line is a value: --prompt "". */
    bool empty_text = value[0] == 0 && row->type == TT_SETTING_STRING;
    return tt_settings_assign(settings, entry, value, empty_text, flag->shown);
}

static tt_status take_flag(struct tt_settings *settings, const struct flag *flag)
{
    struct tt_setting_entry *entry = tt_settings_find(settings, flag->name);
    if (entry != NULL) return take_words(settings, entry, flag);
    /* --no_x turns x off, where x is a truth value. */
    if (strncmp(flag->name, "no_", 3) == 0 && flag->inline_value == NULL && flag->word_count == 0) {
        entry = tt_settings_find(settings, flag->name + 3);
        if (entry != NULL && (entry->row->type == TT_SETTING_BOOL ||
                              entry->row->type == TT_SETTING_TRISTATE || entry->row->unneeded != NULL))
            return tt_settings_assign(settings, entry, "false", false, flag->shown);
    }
    const char *value = flag->inline_value != NULL ? flag->inline_value
                        : flag->word_count == 1    ? flag->words[0]
                                                   : "";
    if (tt_settings_leave_out(settings, flag->name, value, flag->shown)) return TT_OK;
    return tt_settings_fail_unknown(settings, flag->name, flag->shown);
}

/* Lists of processes show the words of a command line as they are in memory. */
static void hide(const struct tt_settings *settings, const struct flag *flag)
{
    const struct tt_setting_entry *entry = tt_settings_find(settings, flag->name);
    if (entry == NULL || !entry->row->secret) return;
    char *own = flag->words[-1];
    if (flag->inline_value != NULL) memset(own + (flag->inline_value - own), 'x', strlen(flag->inline_value));
    for (int i = 0; i < flag->word_count; i++) memset(flag->words[i], 'x', strlen(flag->words[i]));
}

static bool is_listed(const char *const *names, const char *name)
{
    for (; names != NULL && *names != NULL; names++)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

tt_status tt_settings_parse_flags(struct tt_settings *settings, int argc, char *const *argv,
                                  const char *const *handled_elsewhere)
{
    struct flag flag;
    const char *value = NULL;
    tt_status status = TT_OK;
    for (int i = 0; i < argc;) {
        TT_TRY(next_flag(argc, argv, &i, &flag));
        if (strcmp(flag.name, "config") != 0) continue;
        TT_TRY(single_value(&flag, NULL, &value));
        TT_TRY(read_yaml(settings, value));
    }
    for (int i = 0; i < argc;) {
        TT_TRY(next_flag(argc, argv, &i, &flag));
        if (strcmp(flag.name, "config") == 0) continue;
        if (is_listed(handled_elsewhere, flag.name))
            TT_TRY(single_value(&flag, NULL, &value));
        else
            status = tt_settings_refuse(settings, take_flag(settings, &flag));
        hide(settings, &flag);
        if (status != TT_OK) return status;
    }
    return tt_settings_refusals(settings);
}
