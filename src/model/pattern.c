#include "model/pattern.h"

#include <string.h>
#include "base/alloc.h"
#include "base/ascii.h"

static bool is_word(const char *text)
{
    if (*text == '\0') return false;
    for (; *text != '\0'; text++) {
        if (!tt_ascii_is_letter(*text) && !tt_ascii_is_digit(*text) && *text != '_') return false;
    }
    return true;
}

tt_status tt_pattern_parse(const char *setting, const char *text, struct tt_json *json)
{
    tt_status status = tt_json_parse(text, strlen(text), setting, json);
    if (status != TT_ERR_DATA) return status;
    tt_fail(TT_ERR_USAGE, "%s: '%s' is neither a name, a regular expression nor a list", setting, text);
    if (text[0] == '[' && strchr(text, '"') == NULL)
        tt_hint("in YAML write the list without quotes around it: %s: %s", setting, text);
    return TT_ERR_USAGE;
}

static tt_status init_list(struct tt_name_pattern *pattern)
{
    if (!tt_json_is_list(pattern->list.root)) {
        return tt_fail(TT_ERR_USAGE, "%s must be a list of names or a regular expression", pattern->setting);
    }
    pattern->count = tt_json_count(pattern->list.root);
    pattern->used = tt_calloc(pattern->count, sizeof *pattern->used);
    if (pattern->used == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < pattern->count; i++) {
        const char *entry = tt_name_pattern_entry(pattern, i);
        if (entry == NULL || *entry == '\0')
            return tt_fail(TT_ERR_USAGE, "entry %zu of %s is not a name", i + 1, pattern->setting);
    }
    return TT_OK;
}

/* Letters of names and points: as an expression it would match little else than the path itself. */
static bool is_path(const char *text)
{
    for (; *text != '\0'; text++)
        if (!tt_ascii_is_letter(*text) && !tt_ascii_is_digit(*text) && strchr("_.-", *text) == NULL)
            return false;
    return true;
}

static tt_status init_expression(struct tt_name_pattern *pattern, const char *expression)
{
    pattern->expression = expression;
    pattern->count = 0;
    tt_status status = tt_regex_compile(expression, &pattern->regex);
    if (status != TT_OK) tt_while("reading %s", pattern->setting);
    return status;
}

tt_status tt_name_pattern_init(struct tt_name_pattern *pattern, const char *setting, const char *text,
                               enum tt_name_spelling spelling)
{
    *pattern = (struct tt_name_pattern){.setting = setting};
    if (text == NULL) return TT_OK;
    pattern->given = true;
    const char *first = text + strspn(text, " \t\r\n");
    if (*first == '[') {
        TT_TRY(tt_pattern_parse(setting, text, &pattern->list));
        TT_TRY(init_list(pattern));
        const char *only =
            spelling == TT_NAMES_OF_SETTING && pattern->count == 1 ? tt_name_pattern_entry(pattern, 0) : NULL;
        return only != NULL && !is_path(only) ? init_expression(pattern, only) : TT_OK;
    }
    bool name =
        spelling == TT_NAMES_AS_LIST ? is_path(text) : spelling == TT_NAMES_OF_SETTING && is_word(text);
    if (name && *text != '\0') {
        pattern->list.root = tt_json_pack("[s]", text);
        if (pattern->list.root == NULL) return tt_fail(TT_ERR_MEMORY, "no memory for %s", setting);
        return init_list(pattern);
    }
    if (spelling == TT_NAMES_AS_LIST) return tt_fail(TT_ERR_USAGE, "%s must be a list of names", setting);
    return init_expression(pattern, text);
}

void tt_name_pattern_deinit(struct tt_name_pattern *pattern)
{
    tt_regex_destroy(pattern->regex);
    tt_json_deinit(&pattern->list);
    tt_free(pattern->used);
    *pattern = (struct tt_name_pattern){0};
}

const char *tt_name_pattern_entry(const struct tt_name_pattern *pattern, size_t index)
{
    return tt_json_text(tt_json_at(pattern->list.root, index));
}

tt_status tt_name_pattern_match(struct tt_name_pattern *pattern, const char *path, bool *matched, bool *exact)
{
    *matched = false;
    if (exact != NULL) *exact = false;
    if (pattern->regex != NULL) return tt_regex_fullmatch(pattern->regex, path, matched);
    size_t path_bytes = strlen(path);
    for (size_t i = 0; i < pattern->count; i++) {
        const char *entry = tt_name_pattern_entry(pattern, i);
        size_t bytes = strlen(entry);
        if (bytes > path_bytes || memcmp(path + path_bytes - bytes, entry, bytes) != 0) continue;
        bool whole = bytes == path_bytes;
        if (!whole && path[path_bytes - bytes - 1] != '.') continue;
        *matched = true;
        pattern->used[i] = true;
        if (whole && exact != NULL) *exact = true;
    }
    return TT_OK;
}

static tt_status init_key(struct tt_value_pattern *pattern, size_t index, const char *key,
                          const struct tt_json_value *value, bool integers, double minimum, double maximum)
{
    struct tt_str expression = {0};
    double number = tt_json_number(value);
    if (!tt_json_is_number(value) || (integers && !tt_json_is_integer(value)) ||
        !(number >= minimum && number <= maximum)) {
        return tt_fail(TT_ERR_USAGE, "the value of '%s' in %s must be %s between %g and %g", key,
                       pattern->setting, integers ? "an integer" : "a number", minimum, maximum);
    }
    pattern->keys[index] = key;
    pattern->values[index] = number;
    tt_status status = tt_str_printf(&expression, "(?:.*\\.)?(?:%s)", key);
    if (status == TT_OK) status = tt_regex_compile(tt_str_text(&expression), &pattern->regexes[index]);
    if (status != TT_OK) tt_while("reading %s", pattern->setting);
    tt_str_deinit(&expression);
    return status;
}

tt_status tt_value_pattern_init(struct tt_value_pattern *pattern, const char *setting, const char *text,
                                bool integers, double minimum, double maximum)
{
    *pattern = (struct tt_value_pattern){.setting = setting};
    if (text == NULL) return TT_OK;
    TT_TRY(tt_pattern_parse(setting, text, &pattern->object));
    if (!tt_json_is_object(pattern->object.root))
        return tt_fail(TT_ERR_USAGE, "%s must be a mapping of names to numbers", setting);
    size_t count = tt_json_count(pattern->object.root), index = 0;
    pattern->regexes = tt_calloc(count, sizeof *pattern->regexes);
    pattern->keys = tt_calloc(count, sizeof *pattern->keys);
    pattern->values = tt_calloc(count, sizeof *pattern->values);
    pattern->used = tt_calloc(count, sizeof *pattern->used);
    if (!pattern->regexes || !pattern->keys || !pattern->values || !pattern->used) return TT_ERR_MEMORY;
    pattern->count = count;
    const char *key;
    const struct tt_json_value *value;
    for (size_t member = 0; tt_json_next_member(pattern->object.root, &member, &key, &value);) {
        TT_TRY(init_key(pattern, index, key, value, integers, minimum, maximum));
        index++;
    }
    return TT_OK;
}

void tt_value_pattern_deinit(struct tt_value_pattern *pattern)
{
    for (size_t i = 0; i < pattern->count; i++) tt_regex_destroy(pattern->regexes[i]);
    tt_free(pattern->regexes);
    tt_free(pattern->keys);
    tt_free(pattern->values);
    tt_free(pattern->used);
    tt_json_deinit(&pattern->object);
    *pattern = (struct tt_value_pattern){0};
}

tt_status tt_value_pattern_find(struct tt_value_pattern *pattern, const char *path, double *value,
                                bool *ambiguous)
{
    bool found = false;
    for (size_t i = 0; i < pattern->count; i++) {
        bool matched = false;
        TT_TRY(tt_regex_fullmatch(pattern->regexes[i], path, &matched));
        if (!matched) continue;
        pattern->used[i] = true;
        if (!found) *value = pattern->values[i];
        if (found && *value != pattern->values[i] && ambiguous != NULL) *ambiguous = true;
        found = true;
    }
    return TT_OK;
}
