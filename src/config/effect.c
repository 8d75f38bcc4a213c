/* Values that cannot act as they are given: paths in stores, settings of another task, settings whose needs are off. */
#include <stdio.h>
#include <string.h>

#include "base/ascii.h"
#include "base/json.h"
#include "base/log.h"
#include "base/number.h"
#include "base/store.h"
#include "config/store.h"
#include "config/value.h"

/* ---- Paths ---- */

bool tt_setting_is_path(const struct tt_setting *row, const char *value)
{
    if (row->path == TT_PATH_NONE || value == NULL || value[0] == '\0') return false;
    if (row->type == TT_SETTING_JSON && (value[0] == '{' || value[0] == '[')) return false;
    return !tt_words_find(row->path_words, value, NULL);
}

/* The bytes of a URI's scheme at `text` (RFC 3986); 0: there is none. */
static size_t scheme_bytes(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char inside[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.";
    size_t bytes = strspn(text, inside);
    return strspn(text, letters) > 0 && strncmp(text + bytes, "://", 3) == 0 ? bytes : 0;
}

static void hint_scheme(const char *text, size_t bytes)
{
    const char *rest = text + bytes + 3;
    if (bytes == 4 && tt_ascii_same_start(text, "file", 4))
        tt_hint("give the path alone: %.200s", rest);
    else if (bytes == 2 && tt_ascii_same_start(text, "hf", 2))
        tt_hint(
            "trimtab download puts it into the hub's cache of this machine: then give the name that it was "
            "downloaded by");
    else
        tt_hint("copy it to a disk of this machine or mount the store as a folder; a result is copied after "
                "the run");
}

static tt_status check_scheme(const char *what, const char *text, bool local)
{
    for (const char *at = text; at != NULL;) {
        at += strspn(at, " ,");
        size_t bytes = scheme_bytes(at);
        if (bytes > 0 && (local || !tt_store_covers(at))) {
            tt_status status = tt_fail(TT_ERR_USAGE, "%s '%.200s' is no path: %.*s:// is not supported", what,
                                       at, (int)(bytes < 40 ? bytes : 40), at);
            hint_scheme(at, bytes);
            return status;
        }
        at = strchr(at, ',');
    }
    return TT_OK;
}

tt_status tt_setting_check_scheme(const char *what, const char *text)
{
    return check_scheme(what, text, false);
}

static tt_status check_mixture(const char *what, const char *text)
{
    static const char *const members[] = {"path", "data_files"};
    struct tt_json json = {0};
    tt_status status = tt_json_parse(text, strlen(text), what, &json);
    if (status == TT_ERR_DATA) {
        tt_error_clear(); /* whoever reads it says more */
        return TT_OK;
    }
    for (size_t i = 0; status == TT_OK && i < tt_json_count(json.root); i++)
        for (size_t k = 0; status == TT_OK && k < sizeof members / sizeof *members; k++)
            status = tt_setting_check_scheme(what,
                                             tt_json_text(tt_json_get(tt_json_at(json.root, i), members[k])));
    tt_json_deinit(&json);
    return status;
}

tt_status tt_settings_check_path(const struct tt_setting *row, const char *text, const char *origin)
{
    char what[300];
    if (row->path == TT_PATH_NONE || text == NULL) return TT_OK;
    (void)tt_snprintf(what, sizeof what, "%.200s: %s", origin, row->name);
    if (row->path == TT_PATH_MIXTURE && text[0] == '[') return check_mixture(what, text);
    return tt_setting_is_path(row, text) ? check_scheme(what, text, row->local) : TT_OK;
}

/* ---- Settings of another task ---- */

/* The axis of the words `of`, which are all of one; NULL: the command has none. */
static const struct tt_setting_entry *find_axis(const struct tt_settings *settings, const char *of)
{
    char word[64];
    (void)tt_snprintf(word, sizeof word, "%.*s", (int)strcspn(of, " "), of);
    for (size_t i = 0; i < settings->count; i++)
        if (settings->entries[i].row->is_axis && tt_words_find(settings->entries[i].row->choices, word, NULL))
            return &settings->entries[i];
    return NULL;
}

/* Whether the value of an axis is one of the words `of`, or like one of them. */
static bool is_of(const struct tt_setting_entry *axis, const char *of)
{
    size_t bytes = strlen(axis->text);
    if (tt_words_find(of, axis->text, NULL)) return true;
    for (const char *at = axis->row->like; at != NULL && *at != '\0'; at += strcspn(at, " ")) {
        char word[64];
        at += strspn(at, " ");
        if (strncmp(at, axis->text, bytes) != 0 || at[bytes] != '=') continue;
        at += bytes + 1;
        (void)tt_snprintf(word, sizeof word, "%.*s", (int)strcspn(at, " "), at);
        if (tt_words_find(of, word, NULL)) return true;
    }
    return false;
}

/* The axis whose value is against `of`, perhaps one that the axis of `of` is of itself; NULL: none is. */
static const struct tt_setting_entry *find_against(const struct tt_settings *settings, const char *of)
{
    const struct tt_setting_entry *against = NULL;
    while (of != NULL) {
        const struct tt_setting_entry *axis = find_axis(settings, of);
        if (axis == NULL) break;
        if (!is_of(axis, of)) against = axis;
        of = axis->row->of;
    }
    return against;
}

/* "dpo or orpo" of "dpo orpo". Returns `text`. */
static const char *any_of(const char *words, char text[200])
{
    size_t used = 0;
    text[0] = '\0';
    for (const char *at = words; *at != '\0'; at += strspn(at, " ")) {
        size_t bytes = strcspn(at, " ");
        (void)tt_snprintf(text + used, 200 - used, "%s%.*s", used > 0 ? " or " : "", (int)bytes, at);
        used = strlen(text);
        at += bytes;
    }
    return text;
}

static tt_status check_of(const struct tt_settings *settings, const struct tt_setting_entry *entry)
{
    const struct tt_setting *row = entry->row;
    const struct tt_setting_entry *against = find_against(settings, entry->of);
    if (against == NULL) return TT_OK;
    const struct tt_setting_entry *axis = find_axis(settings, entry->of);
    char text[200];
    const char *words = any_of(entry->of, text);
    tt_status status =
        tt_fail(TT_ERR_USAGE, "%s is given, and the %s is %s", row->name, against->row->name, against->text);
    if (axis == against)
        tt_hint("set %s: %s, or leave %s out (%.200s)", axis->row->name, words, row->name, entry->origin);
    else
        tt_hint("it is for %s: %s; leave it out (%.200s)", axis->row->name, words, entry->origin);
    return status;
}

/* ---- What a setting needs ---- */

static bool is_on(const struct tt_setting_entry *entry)
{
    bool truth;
    double number;
    size_t bytes;
    if (entry->text == NULL) return false;
    if (entry->row->type == TT_SETTING_BYTES)
        return tt_parse_bytes(entry->text, &bytes) != TT_OK || bytes > 0;
    if (tt_value_parse_double(entry->text, &number)) return number > 0;
    return !tt_value_parse_bool(entry->text, &truth) || truth;
}

/* A list of several words names each in quotes. */
static bool has_value(const struct tt_setting_entry *entry, const char *value)
{
    char quoted[100];
    if (entry->text == NULL) return false;
    (void)tt_snprintf(quoted, sizeof quoted, "\"%s\"", value);
    bool listed = entry->row->type == TT_SETTING_WORDS && strstr(entry->text, quoted) != NULL;
    return listed || tt_ascii_same(entry->text, value);
}

static bool condition_holds(const struct tt_settings *settings, const char *text, size_t bytes)
{
    char condition[100];
    (void)tt_snprintf(condition, sizeof condition, "%.*s", (int)bytes, text);
    char *name = condition + (condition[0] == '!'), *value = strchr(name, '=');
    if (value != NULL) *value++ = '\0';
    const struct tt_setting_entry *entry = tt_settings_find(settings, name);
    if (entry == NULL) return true;
    bool on = value == NULL ? is_on(entry) : has_value(entry, value);
    return on != (condition[0] == '!');
}

bool tt_settings_hold(const struct tt_settings *settings, const char *conditions)
{
    for (const char *at = conditions; *at != '\0'; at += strspn(at, " ")) {
        bool all = true;
        while (*at != '\0' && *at != ' ') {
            size_t bytes = strcspn(at, "+ ");
            all &= condition_holds(settings, at, bytes);
            at += bytes;
            at += *at == '+';
        }
        if (all) return true;
    }
    return false;
}

/* "packing or eval_packing", "eval_strategy steps", "no warmup_steps and no warmup_ratio" */
static tt_status write_needs(const char *needs, struct tt_str *text)
{
    for (const char *at = needs; *at != '\0';) {
        size_t bytes = strcspn(at, "+ "), name = strcspn(at, "=+ ");
        bool negated = *at == '!', equals = name < bytes;
        TT_TRY(tt_str_printf(text, "%s%.*s", negated && !equals ? "no " : "", (int)(name - negated),
                             at + negated));
        if (equals)
            TT_TRY(tt_str_printf(text, "%s %.*s", negated ? " other than" : "", (int)(bytes - name - 1),
                                 at + name + 1));
        at += bytes;
        if (*at != '\0') TT_TRY(tt_str_append_text(text, *at == '+' ? " and " : " or "));
        at += *at != '\0';
    }
    return TT_OK;
}

static tt_status warn_of_needs(const struct tt_setting_entry *entry)
{
    struct tt_str text = {0};
    tt_status status = write_needs(entry->row->needs, &text);
    if (status == TT_OK)
        tt_warn("%s has no effect: it needs %s (%.200s)", entry->row->name, tt_str_text(&text),
                entry->origin);
    tt_str_deinit(&text);
    return status;
}

static bool has_default(const struct tt_setting_entry *entry)
{
    if (entry->text == NULL || entry->by_default == NULL) return entry->text == entry->by_default;
    return strcmp(entry->text, entry->by_default) == 0;
}

bool tt_settings_has_default(const struct tt_settings *settings, const char *name)
{
    const struct tt_setting_entry *entry = tt_settings_find(settings, name);
    return entry == NULL || has_default(entry);
}

/* A resolved file lists every setting: a default in a file is not given. */
static bool is_given(const struct tt_setting_entry *entry)
{
    if (entry->origin == NULL || entry->level == TT_SETTING_LEVEL_SUGGESTED) return false;
    return entry->level == TT_SETTING_LEVEL_DIRECT || !has_default(entry);
}

tt_status tt_settings_check_effect(const struct tt_settings *settings, const struct tt_setting_entry *entry)
{
    const struct tt_setting *row = entry->row;
    if (!is_given(entry)) return TT_OK;
    if (entry->of != NULL) TT_TRY(check_of(settings, entry));
    return row->needs == NULL || tt_settings_hold(settings, row->needs) ? TT_OK : warn_of_needs(entry);
}

/* ---- All settings, after the last source ---- */

/* A source has set one of the settings that replace it. */
static bool is_replaced(const struct tt_settings *settings, const struct tt_setting *row)
{
    for (size_t i = 0; row->or_else != NULL && i < settings->count; i++) {
        const struct tt_setting_entry *entry = &settings->entries[i];
        if (entry->origin != NULL && tt_words_find(row->or_else, entry->row->name, NULL)) return true;
    }
    return false;
}

/* Another text that may be given in place of the setting's; NULL: there is none. */
static const char *find_alternative(const struct tt_settings *settings, const struct tt_setting *row)
{
    for (size_t i = 0; row->or_else != NULL && i < settings->count; i++) {
        const struct tt_setting *other = settings->entries[i].row;
        if (other->type == TT_SETTING_STRING && tt_words_find(row->or_else, other->name, NULL))
            return other->name;
    }
    return NULL;
}

static tt_status fail_missing(const struct tt_settings *settings, const struct tt_setting *row)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "setting '%s' is missing", row->name);
    const char *other = find_alternative(settings, row);
    tt_hint("give --%s%s%s, or a line '%s: ...' in the file of --config", row->name,
            other != NULL ? " or --" : "", other != NULL ? other : "", row->name);
    return status;
}

tt_status tt_settings_check(struct tt_settings *settings)
{
    for (size_t i = 0; i < settings->count; i++) {
        const struct tt_setting_entry *entry = &settings->entries[i];
        const struct tt_setting *row = entry->row;
        if (entry->repeats) continue;
        if (row->unneeded != NULL && entry->origin != NULL)
            tt_info("%s is accepted without effect: %s (%s)", row->name, row->unneeded, entry->origin);
        TT_TRY(tt_settings_refuse(settings, tt_settings_check_effect(settings, &settings->entries[i])));
        if (!row->required || (entry->text != NULL && entry->text[0] != 0)) continue;
        if (!is_replaced(settings, row)) TT_TRY(tt_settings_refuse(settings, fail_missing(settings, row)));
    }
    return tt_settings_refusals(settings);
}
