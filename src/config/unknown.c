/* Keys that are no settings: suggestions of settings that the user may have meant. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "config/foreign.h"
#include "config/store.h"

static const struct tt_foreign_key foreign_keys[] = {
#define NAMED(key_, program_, setting_) {TT_FOREIGN_NAMED, key_, program_, setting_, NULL, NULL},
#define WORDS(key_, program_, setting_, words_, what_)                                                       \
    {TT_FOREIGN_WORDS, key_, program_, setting_, words_, what_},
#define NOTHING(key_, program_, why_) {TT_FOREIGN_NOTHING, key_, program_, NULL, NULL, why_},
#define OFF(key_, program_, values_, what_) {TT_FOREIGN_OFF, key_, program_, NULL, values_, what_},
#define ELSEWHERE(key_, program_, setting_, what_)                                                           \
    {TT_FOREIGN_ELSEWHERE, key_, program_, setting_, NULL, what_},
#define VALUE(setting_, value_, program_, what_)
#include "config/elsewhere.def"
#undef NAMED
#undef WORDS
#undef NOTHING
#undef OFF
#undef ELSEWHERE
#undef VALUE
};

/* A value of another program's configuration, which the setting here has not. */
struct foreign_value {
    const char *setting, *value, *program, *what;
};

static const struct foreign_value foreign_values[] = {
#define NAMED(key_, program_, setting_)
#define WORDS(key_, program_, setting_, words_, what_)
#define NOTHING(key_, program_, why_)
#define OFF(key_, program_, values_, what_)
#define ELSEWHERE(key_, program_, setting_, what_)
#define VALUE(setting_, value_, program_, what_) {setting_, value_, program_, what_},
#include "config/elsewhere.def"
#undef NAMED
#undef WORDS
#undef NOTHING
#undef OFF
#undef ELSEWHERE
#undef VALUE
};

const struct tt_foreign_key *tt_foreign_find(const char *program, const char *key)
{
    for (size_t i = 0; i < sizeof foreign_keys / sizeof foreign_keys[0]; i++) {
        const struct tt_foreign_key *row = &foreign_keys[i];
        if (strcmp(row->key, key) == 0 && (program == NULL || strcmp(row->program, program) == 0)) return row;
    }
    return NULL;
}

bool tt_foreign_is_idle(const struct tt_foreign_key *row, const char *value)
{
    if (row->kind == TT_FOREIGN_NOTHING) return true;
    return row->kind == TT_FOREIGN_OFF && tt_words_find(row->words, value != NULL ? value : "null", NULL);
}

static const struct foreign_value *find_foreign(const struct tt_setting *row, const char *value)
{
    for (size_t i = 0; i < sizeof foreign_values / sizeof foreign_values[0]; i++)
        if (strcmp(foreign_values[i].setting, row->name) == 0 && strcmp(foreign_values[i].value, value) == 0)
            return &foreign_values[i];
    return NULL;
}

void tt_settings_hint_value(const struct tt_setting *row, const char *value)
{
    const struct foreign_value *known = find_foreign(row, value);
    if (known != NULL) tt_hint("%s is a value of %s; here: %s", value, known->program, known->what);
}

tt_status tt_settings_check_foreign(const struct tt_setting *row, const char *value, const char *origin)
{
    if (row->type != TT_SETTING_STRING || find_foreign(row, value) == NULL || tt_path_exists(value))
        return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE, "%s: '%s' has no '%s'", origin, row->name, value);
    tt_settings_hint_value(row, value);
    return status;
}

static const struct tt_foreign_key *find_elsewhere(const struct tt_settings *settings, const char *key)
{
    const struct tt_foreign_key *row = tt_foreign_find(NULL, key);
    if (row == NULL || row->setting == NULL) return row;
    return tt_settings_find(settings, row->setting) != NULL ? row : NULL;
}

struct nearest {
    char name[64];
    int distance;
};

static void consider(const char *known, size_t known_bytes, const char *name, struct nearest *nearest)
{
    char word[64];
    if (known_bytes >= sizeof word) return;
    memcpy(word, known, known_bytes);
    word[known_bytes] = 0;
    int distance;
    bool near = tt_name_is_near(word, name, &distance);
    /* A part of a longer name ("batch_size") is nearer than a chance similarity of letters. */
    if (strlen(name) >= 5 && strstr(word, name) != NULL) near = true, distance = 2;
    if (!near || distance >= nearest->distance) return;
    nearest->distance = distance;
    memcpy(nearest->name, word, known_bytes + 1);
}

static struct nearest find_nearest(const struct tt_settings *settings, const char *name)
{
    struct nearest nearest = {.distance = INT_MAX};
    for (size_t i = 0; i < settings->count; i++) {
        const struct tt_setting *row = settings->entries[i].row;
        consider(row->name, strlen(row->name), name, &nearest);
        for (const char *at = row->aliases; at != NULL && *at != 0;) {
            size_t bytes = strcspn(at, " ");
            consider(at, bytes, name, &nearest);
            at += bytes;
            at += strspn(at, " ");
        }
    }
    return nearest;
}

/* src/recipe converts the files of these. */
static bool is_convertible(const char *program)
{
    return strcmp(program, "axolotl") == 0 || strcmp(program, "LLaMA-Factory") == 0;
}

tt_status tt_settings_fail_unknown(struct tt_settings *settings, const char *name, const char *origin)
{
    struct nearest nearest = find_nearest(settings, name);
    const struct tt_foreign_key *known = find_elsewhere(settings, name);
    tt_status status = origin[0] == '-'
                           ? tt_fail(TT_ERR_USAGE, "there is no setting '%.100s' (flag %.100s)", name, origin)
                           : tt_fail(TT_ERR_USAGE, "%s: there is no setting '%.100s'", origin, name);
    if (known != NULL && is_convertible(known->program)) settings->convertible = known->program;
    if (known != NULL)
        tt_hint("%s is a key of %s; here: %s", name, known->program,
                known->what != NULL ? known->what : known->setting);
    else if (nearest.name[0] != 0)
        tt_hint("did you mean '%s'?", nearest.name);
    return status;
}

/* The reason why a key has no effect at this value. */
static const char *reason_of(const struct tt_foreign_key *known, const char *value)
{
    if (known->kind == TT_FOREIGN_NOTHING) return known->what;
    return value == NULL ? "it has no value" : "it is off";
}

bool tt_settings_leave_out(const struct tt_settings *settings, const char *name, const char *value,
                           const char *origin)
{
    const struct tt_foreign_key *known = find_elsewhere(settings, name);
    if (known == NULL || (value != NULL && !tt_foreign_is_idle(known, value))) return false;
    tt_info("%s is accepted without effect: %s (%s)", name, reason_of(known, value), origin);
    return true;
}

/* ---- Several settings that are refused ---- */

tt_status tt_settings_refuse(struct tt_settings *settings, tt_status status)
{
    if (status != TT_ERR_USAGE && status != TT_ERR_UNSUPPORTED) return status;
    const struct tt_error *error = tt_error_last();
    if (settings->refused++ == 0) tt_error_copy(&settings->first);
    return tt_str_printf(&settings->refusals, "%s%s%s\n", error->message, error->hint[0] != 0 ? ": " : "",
                         error->hint);
}

/* Adds the line to the error, or to the log where the error is full. */
static void list_refusal(const char *line, size_t *logged)
{
    if (tt_item("%s", line)) return;
    tt_warn("%s", line);
    ++*logged;
}

static tt_status list_refusals(struct tt_settings *settings)
{
    size_t logged = 0;
    const char *program = settings->convertible;
    tt_status status = tt_fail(settings->first.status, "%zu errors in the settings:", settings->refused);
    for (const char *at = tt_str_text(&settings->refusals); *at != '\0'; at += *at == '\n') {
        char line[sizeof settings->first.message + sizeof settings->first.hint];
        size_t bytes = strcspn(at, "\n");
        (void)snprintf(line, sizeof line, "%.*s", (int)bytes, at);
        list_refusal(line, &logged);
        at += bytes;
    }
    if (logged > 0) (void)tt_item("and %zu more, named above", logged);
    if (program != NULL)
        tt_hint("some are keys of %s: trimtab convert-config FILE writes ours for them", program);
    return status;
}

tt_status tt_settings_refusals(struct tt_settings *settings)
{
    tt_status status = TT_OK;
    if (settings->refused == 1) status = tt_error_restore(&settings->first);
    if (settings->refused > 1) status = list_refusals(settings);
    settings->refused = 0;
    settings->convertible = NULL;
    tt_str_clear(&settings->refusals);
    return status;
}
