/* Settings that determine others: mappings whose keys are settings, words that mean another setting's value,
 * and values that wait in the environment. Nearer sources win; within one source two values are a
 * contradiction. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "config/store.h"
#include "config/value.h"

static bool same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* "on" for a switch that is true. */
static const char *text_of(const struct tt_setting *row, const char *text)
{
    bool on, truth = row->type == TT_SETTING_TRISTATE || (row->type == TT_SETTING_BOOL && !row->choices);
    if (text == NULL) return "null";
    return truth && tt_value_parse_bool(text, &on) ? on ? "on" : "off" : text;
}

static tt_status contradiction(const struct tt_setting *a, const char *a_text, const char *a_origin,
                               const struct tt_setting *b, const char *b_text, const char *b_origin)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "%s is %.100s, and %s is %.100s", a->name, text_of(a, a_text),
                               b->name, text_of(b, b_text));
    tt_hint("set one of them: %.200s; %.200s", a_origin, b_origin);
    return status;
}

tt_status tt_settings_check_route(const struct tt_settings *settings, const struct tt_setting_entry *entry,
                                  const char *text, const char *origin)
{
    if (origin == NULL || entry->origin == NULL || entry->level != settings->level) return TT_OK;
    if (entry->route == settings->route || same_text(entry->text, text)) return TT_OK;
    return contradiction(entry->row, entry->text, entry->origin, entry->row, text, origin);
}

/* ---- Mappings ---- */

static tt_status assign_member(struct tt_settings *settings, const struct tt_setting_entry *entry,
                               const char *key, const struct tt_json_value *value)
{
    char origin[300];
    struct tt_str text = {0};
    tt_status status = TT_OK;
    struct tt_setting_entry *member = tt_settings_find(settings, key);
    snprintf(origin, sizeof origin, "%.200s, %s", entry->origin, entry->row->name);
    if (member == NULL || !tt_starts_with_one_of(key, entry->row->spread))
        return tt_settings_fail_unknown(settings, key, origin);
    const char *word = tt_json_text(value);
    if (word != NULL)
        status = tt_str_append_text(&text, word);
    else
        status = tt_json_write(value, 0, false, &text);
    settings->route = entry->row;
    if (status == TT_OK)
        status = tt_settings_assign(settings, member, tt_str_text(&text), word != NULL, origin);
    settings->route = NULL;
    tt_str_deinit(&text);
    return status;
}

tt_status tt_settings_spread(struct tt_settings *settings, struct tt_setting_entry *entry)
{
    struct tt_json json = {0};
    tt_status status = TT_OK;
    const char *key;
    const struct tt_json_value *value;
    if (tt_json_parse(entry->text, strlen(entry->text), entry->row->name, &json) != TT_OK)
        return tt_fail(TT_ERR_USAGE, "%s: '%s' is not a mapping: '%s'", entry->origin, entry->row->name,
                       entry->text);
    /* A value alone is that of the only key. */
    if (tt_json_is_bool(json.root) && tt_settings_find(settings, entry->row->spread) != NULL)
        status = assign_member(settings, entry, entry->row->spread, json.root);
    else if (!tt_json_is_object(json.root))
        status =
            tt_fail(TT_ERR_USAGE, "%s: '%s' takes lines of 'key: value'", entry->origin, entry->row->name);
    for (size_t at = 0; status == TT_OK && tt_json_next_member(json.root, &at, &key, &value);)
        status = assign_member(settings, entry, key, value);
    tt_json_deinit(&json);
    return status;
}

/* ---- Words that mean another setting's value ---- */

/* The source is at another level than that of the call. */
static tt_status assign_at(struct tt_settings *settings, int level, struct tt_setting_entry *entry,
                           const char *text, const char *origin)
{
    int before = settings->level;
    settings->level = level;
    tt_status status = tt_settings_assign(settings, entry, text, false, origin);
    settings->level = before;
    return status;
}

/* The row becomes as if no source had set it. */
static tt_status forget(struct tt_settings *settings, struct tt_setting_entry *entry)
{
    entry->origin = NULL;
    entry->route = NULL;
    entry->level = 0;
    return tt_settings_assign(settings, entry, entry->row->default_text, false, NULL);
}

/* `from` is a copy of what `alias` was before other words of it were settled. */
static tt_status imply(struct tt_settings *settings, struct tt_setting_entry *alias,
                       const struct tt_setting_entry *from, struct tt_setting_entry *target,
                       const char *value, const char *origin)
{
    struct tt_setting_entry probe = {.row = target->row, .is_probe = true};
    TT_TRY(assign_at(settings, from->level, &probe, value, origin));
    if (target->origin == NULL) return assign_at(settings, from->level, target, value, origin);
    if (same_text(probe.text, target->text)) return TT_OK;
    if (target->level < from->level) return assign_at(settings, from->level, target, value, origin);
    if (target->level > from->level) return forget(settings, alias);
    return contradiction(from->row, from->text, from->origin, target->row, target->text, target->origin);
}

tt_status tt_settings_imply(struct tt_settings *settings, const char *alias, const char *name,
                            const char *value)
{
    char origin[300];
    struct tt_setting_entry *entry = tt_settings_find(settings, alias);
    struct tt_setting_entry *target = tt_settings_find(settings, name);
    if (entry == NULL || entry->origin == NULL || target == NULL) return TT_OK;
    struct tt_setting_entry from = *entry;
    snprintf(origin, sizeof origin, "%s (%.200s)", entry->row->name, entry->origin);
    return imply(settings, entry, &from, target, value, origin);
}

/* The part after '=' of the meaning of `word`; NULL: it has none. */
static const char *find_meaning(const char *means, const char *word, size_t word_bytes)
{
    for (const char *at = means; *at != 0; at += strspn(at, " ")) {
        size_t left = strcspn(at, "=");
        if (left == 1 && at[0] == '*') return at + 2;
        if (left == word_bytes && tt_ascii_same_start(at, word, word_bytes)) return at + left + 1;
        at += strcspn(at, " ");
    }
    return NULL;
}

static tt_status settle_word(struct tt_settings *settings, struct tt_setting_entry *alias,
                             const struct tt_setting_entry *from, const char *word, size_t bytes)
{
    const struct tt_setting *row = from->row;
    char name[64], value[64], origin[300];
    const char *meaning = find_meaning(row->means, word, bytes);
    if (meaning == NULL && row->type == TT_SETTING_STRING) {
        tt_status status = tt_fail(TT_ERR_USAGE, "%s: '%s' has an unknown word '%.*s'", from->origin,
                                   row->name, (int)(bytes < 60 ? bytes : 60), word);
        if (row->only_reason != NULL) tt_hint("%s", row->only_reason);
        return status;
    }
    if (meaning == NULL || *meaning == 0 || *meaning == ' ') return TT_OK;
    size_t all = strcspn(meaning, " "), name_bytes = strcspn(meaning, ": ");
    snprintf(name, sizeof name, "%.*s", (int)name_bytes, meaning);
    if (name_bytes < all)
        snprintf(value, sizeof value, "%.*s", (int)(all - name_bytes - 1), meaning + name_bytes + 1);
    else
        snprintf(value, sizeof value, "%.*s", (int)bytes, word);
    struct tt_setting_entry *target = tt_settings_find(settings, name);
    if (target == NULL) return TT_OK; /* the command has no such setting */
    snprintf(origin, sizeof origin, "%s (%.200s)", row->name, from->origin);
    return imply(settings, alias, from, target, value, origin);
}

static tt_status settle_entry(struct tt_settings *settings, struct tt_setting_entry *entry)
{
    const struct tt_setting_entry from = *entry;
    if (from.row->means == NULL || from.origin == NULL || from.text == NULL) return TT_OK;
    static const char *const between = " ,[]\""; /* of words, and of a list as JSON */
    for (const char *at = from.text + strspn(from.text, between); *at != 0; at += strspn(at, between)) {
        size_t bytes = strcspn(at, between);
        TT_TRY(settle_word(settings, entry, &from, at, bytes));
        at += bytes;
    }
    return TT_OK;
}

static tt_status read_environment(struct tt_settings *settings, struct tt_setting_entry *entry)
{
    const char *variable = entry->row->environment;
    if (variable == NULL || entry->origin != NULL) return TT_OK;
    const char *text = getenv(variable);
    if (text == NULL || text[0] == 0) return TT_OK;
    return assign_at(settings, TT_SETTING_LEVEL_SUGGESTED, entry, text, variable);
}

tt_status tt_settings_settle(struct tt_settings *settings)
{
    for (size_t i = 0; i < settings->count; i++) TT_TRY(read_environment(settings, &settings->entries[i]));
    /* Twice: a nearer alias may have replaced the value that a farther one set before it. */
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < settings->count; i++) TT_TRY(settle_entry(settings, &settings->entries[i]));
    return TT_OK;
}

bool tt_settings_has(const struct tt_settings *settings, const char *name)
{
    return tt_settings_find(settings, name) != NULL;
}

tt_status tt_settings_suggest(struct tt_settings *settings, const char *name, const char *value,
                              const char *origin)
{
    struct tt_setting_entry *entry = tt_settings_find(settings, name);
    if (entry == NULL || entry->origin != NULL) return TT_OK;
    return assign_at(settings, TT_SETTING_LEVEL_SUGGESTED, entry, value, origin);
}

/* ---- Settings of several owners ---- */

tt_status tt_settings_join(struct tt_settings *settings, struct tt_setting_entry *first,
                           struct tt_setting_entry *entry)
{
    struct tt_str words = {0};
    if (entry->of == NULL || first->of == NULL || entry->row->type != first->row->type ||
        tt_words_find(first->of, entry->of, NULL))
        return tt_fail(TT_ERR_INTERNAL, "two settings are called '%s'", entry->row->name);
    tt_status status = tt_str_printf(&words, "%s %s", first->of, entry->of);
    if (status == TT_OK) first->of = tt_arena_strdup(&settings->arena, tt_str_text(&words));
    tt_str_deinit(&words);
    if (status != TT_OK || first->of == NULL) return TT_ERR_MEMORY;
    entry->repeats = true;
    while (first->twin != NULL) first = first->twin;
    first->twin = entry;
    return TT_OK;
}
