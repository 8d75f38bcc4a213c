/* Keys that are no settings: suggestions of settings that the user may have meant. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "config/store.h"

/* A key of another program's configuration. */
struct elsewhere {
    const char *key, *program;
    const char *setting; /* NULL: none takes its place */
    const char *what;    /* NULL: the setting has the same meaning */
};

static const struct elsewhere elsewhere[] = {
#define NAMED(key_, program_, setting_) {key_, program_, setting_, NULL},
#define ELSEWHERE(key_, program_, setting_, what_) {key_, program_, setting_, what_},
#define VALUE(setting_, value_, program_, what_)
#include "config/elsewhere.def"
#undef NAMED
#undef ELSEWHERE
#undef VALUE
};

/* A value of another program's configuration, which the setting here has not. */
struct foreign_value {
    const char *setting, *value, *program, *what;
};

static const struct foreign_value foreign_values[] = {
#define NAMED(key_, program_, setting_)
#define ELSEWHERE(key_, program_, setting_, what_)
#define VALUE(setting_, value_, program_, what_) {setting_, value_, program_, what_},
#include "config/elsewhere.def"
#undef NAMED
#undef ELSEWHERE
#undef VALUE
};

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

static const struct elsewhere *find_elsewhere(const struct tt_settings *settings, const char *key)
{
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++) {
        const struct elsewhere *known = &elsewhere[i];
        if (strcmp(known->key, key) != 0) continue;
        return known->setting == NULL || tt_settings_find(settings, known->setting) != NULL ? known : NULL;
    }
    return NULL;
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

tt_status tt_settings_fail_unknown(const struct tt_settings *settings, const char *name, const char *origin)
{
    struct nearest nearest = find_nearest(settings, name);
    const struct elsewhere *known = find_elsewhere(settings, name);
    tt_status status = origin[0] == '-'
                           ? tt_fail(TT_ERR_USAGE, "there is no setting '%.100s' (flag %.100s)", name, origin)
                           : tt_fail(TT_ERR_USAGE, "%s: there is no setting '%.100s'", origin, name);
    if (known != NULL)
        tt_hint("%s is a key of %s; here: %s", name, known->program,
                known->what != NULL ? known->what : known->setting);
    else if (nearest.name[0] != 0)
        tt_hint("did you mean '%s'?", nearest.name);
    return status;
}

/* "'cutoff_len' (line 12: max_length)", in `text` while it is shorter than an error's message, then as a warning. */
static tt_status describe_unknown(const struct tt_settings *settings, const struct tt_yaml *yaml,
                                  const struct tt_yaml_node *node, struct tt_str *text, size_t *warned)
{
    enum { TEXT_BYTES = 480 };
    const struct elsewhere *known = find_elsewhere(settings, node->key);
    struct nearest nearest = find_nearest(settings, node->key);
    const char *instead = nearest.name;
    if (known != NULL) instead = known->setting != NULL ? known->setting : "remove it";
    const char *colon = *instead != 0 ? ": " : "";
    if (text->bytes < TEXT_BYTES)
        return tt_str_printf(text, "%s'%.60s' (line %zu%s%s)", text->bytes > 0 ? ", " : "", node->key,
                             node->line, colon, instead);
    tt_warn("%s line %zu: there is no setting '%.60s'%s%s", yaml->origin, node->line, node->key, colon,
            instead);
    ++*warned;
    return TT_OK;
}

tt_status tt_settings_check_keys(const struct tt_settings *settings, const struct tt_yaml *yaml)
{
    struct tt_str text = {0};
    size_t unknown = 0, warned = 0;
    const char *program = NULL;
    tt_status status = TT_OK;
    for (const struct tt_yaml_node *node = yaml->root->first; node != NULL; node = node->next) {
        if (tt_settings_find(settings, node->key) != NULL) continue;
        const struct elsewhere *known = find_elsewhere(settings, node->key);
        if (program == NULL && known != NULL) program = known->program;
        unknown++;
        TT_GO(describe_unknown(settings, yaml, node, &text, &warned));
    }
    if (unknown < 2) goto out; /* the error of the key itself says more */
    if (warned > 0) TT_GO(tt_str_printf(&text, " and %zu more, named above", warned));
    status = tt_fail(TT_ERR_USAGE, "%s: there are no settings %s", yaml->origin, tt_str_text(&text));
    if (program != NULL)
        tt_hint("some are keys of %s: behind the line stands what takes the key's place here (--help "
                "describes it)",
                program);
    else
        tt_hint("--help lists the settings; behind the line stands one of a similar name");
out:
    tt_str_deinit(&text);
    return status;
}
