#include "config/settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/ascii.h"
#include "config/store.h"
#include "config/value.h"

bool tt_words_find(const char *words, const char *word, int *index)
{
    size_t length = strlen(word);
    int place = 0;
    for (const char *at = words; at != NULL && *at != 0; place++) {
        size_t bytes = strcspn(at, " ");
        if (bytes == length && tt_ascii_same_start(at, word, bytes)) {
            if (index != NULL) *index = place;
            return true;
        }
        at += bytes;
        at += strspn(at, " ");
    }
    return false;
}

static size_t field_bytes(enum tt_setting_type type)
{
    switch (type) {
    case TT_SETTING_INT:
        return sizeof(int64_t);
    case TT_SETTING_DOUBLE:
        return sizeof(double);
    case TT_SETTING_BOOL:
        return sizeof(bool);
    case TT_SETTING_TRISTATE:
    case TT_SETTING_CHOICE:
        return sizeof(int);
    case TT_SETTING_BYTES:
        return sizeof(size_t);
    case TT_SETTING_WORDS:
        return sizeof(unsigned);
    case TT_SETTING_STRING:
    case TT_SETTING_JSON:
        break;
    }
    return sizeof(const char *);
}

static bool has_field(const struct tt_setting *row)
{
    return row->unneeded == NULL && row->offset != TT_SETTING_NO_FIELD;
}

/* The field for the value of `entry`, or NULL. */
static void *field_of(const struct tt_settings *settings, const struct tt_setting_entry *entry)
{
    return has_field(entry->row) && !entry->is_probe
               ? settings->target + entry->base_offset + entry->row->offset
               : NULL;
}

static tt_status add_section(struct tt_settings *settings, const struct tt_setting_section *section)
{
    for (const struct tt_setting *row = section->rows; row->name != NULL; row++) {
        struct tt_setting_entry *entry = &settings->entries[settings->count];
        *entry = (struct tt_setting_entry){.row = row, .base_offset = section->base_offset, .of = row->of};
        struct tt_setting_entry *first = tt_settings_find(settings, row->name);
        if (has_field(row) &&
            section->base_offset + row->offset + field_bytes(row->type) > settings->target_bytes)
            return tt_fail(TT_ERR_INTERNAL, "setting '%s' is outside its struct", row->name);
        settings->count++;
        TT_TRY(tt_settings_assign(settings, entry, row->default_text, false, NULL));
        entry->by_default = entry->text;
        if (first != NULL) TT_TRY(tt_settings_join(settings, first, entry));
    }
    return TT_OK;
}

tt_status tt_settings_create(const struct tt_setting_section *sections, size_t section_count, void *target,
                             size_t target_bytes, struct tt_settings **out)
{
    size_t total = 0;
    for (size_t i = 0; i < section_count; i++)
        for (const struct tt_setting *row = sections[i].rows; row->name != NULL; row++) total++;
    struct tt_settings *settings = tt_calloc(1, sizeof *settings);
    if (settings == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    settings->sections = sections;
    settings->section_count = section_count;
    settings->target = target;
    settings->target_bytes = target_bytes;
    settings->level = TT_SETTING_LEVEL_DIRECT;
    settings->entries = tt_calloc(total, sizeof *settings->entries);
    if (settings->entries == NULL) status = TT_ERR_MEMORY;
    for (size_t i = 0; i < section_count && status == TT_OK; i++)
        status = add_section(settings, &sections[i]);
    if (status == TT_OK)
        *out = settings;
    else
        tt_settings_destroy(settings);
    return status;
}

void tt_settings_destroy(struct tt_settings *settings)
{
    if (settings == NULL) return;
    tt_free(settings->entries);
    tt_str_deinit(&settings->refusals);
    tt_arena_deinit(&settings->arena);
    tt_free(settings);
}

/* `known` ends at a blank or at its terminator; '-' in `name` reads as '_'. */
static bool same_name(const char *known, const char *name)
{
    for (; *known != 0 && *known != ' '; known++, name++)
        if (*known != (*name == '-' ? '_' : *name)) return false;
    return *name == 0;
}

static bool is_called(const struct tt_setting *row, const char *name)
{
    if (same_name(row->name, name)) return true;
    for (const char *at = row->aliases; at != NULL && *at != 0;) {
        if (same_name(at, name)) return true;
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    return false;
}

struct tt_setting_entry *tt_settings_find(const struct tt_settings *settings, const char *name)
{
    for (size_t i = 0; i < settings->count; i++)
        if (is_called(settings->entries[i].row, name)) return &settings->entries[i];
    return NULL;
}

bool tt_settings_is_set(const struct tt_settings *settings, const char *name)
{
    const struct tt_setting_entry *entry = tt_settings_find(settings, name);
    return entry != NULL && entry->origin != NULL;
}

const char *tt_settings_origin(const struct tt_settings *settings, const char *name)
{
    const struct tt_setting_entry *entry = tt_settings_find(settings, name);
    return entry != NULL ? entry->origin : NULL;
}

tt_status tt_settings_set(struct tt_settings *settings, const char *name, const char *value,
                          const char *origin)
{
    struct tt_setting_entry *entry = tt_settings_find(settings, name);
    if (entry == NULL) return tt_settings_fail_unknown(settings, name, origin);
    return tt_settings_assign(settings, entry, value, false, origin);
}

/* Input and output of the parsers: the given value, its canonical text, and the field to write. */
struct assignment {
    struct tt_settings *settings;
    const struct tt_setting *row;
    const char *origin; /* NULL: a default from the table */
    const char *given;  /* as written */
    void *field;        /* NULL: nothing to write */
    const char *text;   /* result: canonical, in the arena */
};

static tt_status wanted(const struct assignment *to, const char *what)
{
    if (to->origin == NULL)
        return tt_fail(TT_ERR_INTERNAL, "default '%s' of setting '%s' is not %s", to->given, to->row->name,
                       what);
    tt_status status = tt_fail(TT_ERR_USAGE, "%s: '%s' takes %s, not '%.100s'", to->origin, to->row->name,
                               what, to->given != NULL ? to->given : "null");
    if (to->given != NULL) tt_settings_hint_value(to->row, to->given);
    return status;
}

static tt_status wanted_one_of(const struct assignment *to)
{
    char what[300];
    const char *how = to->row->type == TT_SETTING_WORDS ? "one or more" : "one";
    snprintf(what, sizeof what, "%s of: %s", how, to->row->choices);
    tt_status status = wanted(to, what);
    if (to->row->only_reason != NULL) tt_hint("%s", to->row->only_reason);
    return status;
}

static tt_status check_range(const struct assignment *to, double value)
{
    const struct tt_setting *row = to->row;
    char what[120], low[40], high[40];
    if (row->minimum == 0 && row->maximum == 0) return TT_OK;
    if (value >= row->minimum && value <= row->maximum) return TT_OK;
    tt_value_format_double(row->minimum, low, sizeof low);
    tt_value_format_double(row->maximum, high, sizeof high);
    if (isinf(row->maximum))
        snprintf(what, sizeof what, "a number of at least %s", low);
    else if (isinf(row->minimum))
        snprintf(what, sizeof what, "a number of at most %s", high);
    else
        snprintf(what, sizeof what, "a number from %s to %s", low, high);
    return wanted(to, what);
}

static tt_status keep(struct assignment *to, const char *text)
{
    to->text = tt_arena_strdup(&to->settings->arena, text);
    return to->text != NULL ? TT_OK : TT_ERR_MEMORY;
}

static tt_status assign_int(struct assignment *to, const char *text)
{
    int64_t value;
    char canonical[32];
    if (!tt_value_parse_int(text, &value)) return wanted(to, "a whole number");
    TT_TRY(check_range(to, (double)value));
    if (to->field != NULL) *(int64_t *)to->field = value;
    snprintf(canonical, sizeof canonical, "%lld", (long long)value);
    return keep(to, canonical);
}

static tt_status word_at(struct assignment *to, const char *words, int place)
{
    for (; place > 0; place--) words += strcspn(words, " ") + 1;
    to->text = tt_arena_strndup(&to->settings->arena, words, strcspn(words, " "));
    return to->text != NULL ? TT_OK : TT_ERR_MEMORY;
}

static tt_status assign_double(struct assignment *to, const char *text)
{
    double value;
    char canonical[48];
    int place;
    if (to->row->choices != NULL) {
        if (!tt_words_find(to->row->choices, text, &place)) return wanted_one_of(to);
        if (to->field != NULL) *(double *)to->field = place;
        return word_at(to, to->row->choices, place);
    }
    if (!tt_value_parse_double(text, &value)) return wanted(to, "a number");
    TT_TRY(check_range(to, value));
    if (to->field != NULL) *(double *)to->field = value;
    return keep(to, tt_value_format_double(value, canonical, sizeof canonical));
}

static tt_status assign_bytes(struct assignment *to, const char *text)
{
    size_t value;
    char canonical[32];
    if (tt_parse_bytes(text, &value) != TT_OK) return wanted(to, "a size such as 24GiB");
    if (to->field != NULL) *(size_t *)to->field = value;
    snprintf(canonical, sizeof canonical, "%zu", value);
    return keep(to, canonical);
}

static tt_status assign_bool(struct assignment *to, const char *text)
{
    bool value;
    int place;
    if (to->row->choices != NULL) {
        if (!tt_words_find(to->row->choices, text, &place)) return wanted_one_of(to);
        if (to->field != NULL) *(bool *)to->field = place == 1;
        return word_at(to, to->row->choices, place);
    }
    if (!tt_value_parse_bool(text, &value)) return wanted(to, "true or false");
    if (to->field != NULL) *(bool *)to->field = value;
    return keep(to, value ? "true" : "false");
}

static tt_status assign_tristate(struct assignment *to, const char *text)
{
    bool value = false;
    if (text != NULL && !tt_value_parse_bool(text, &value)) return wanted(to, "true, false or null");
    if (to->field != NULL) *(int *)to->field = text == NULL ? -1 : value;
    return text == NULL ? TT_OK : keep(to, value ? "true" : "false");
}

static tt_status assign_choice(struct assignment *to, const char *text)
{
    int place;
    if (!tt_words_find(to->row->choices, text, &place)) return wanted_one_of(to);
    if (to->field != NULL) *(int *)to->field = place;
    return word_at(to, to->row->choices, place);
}

static tt_status assign_string(struct assignment *to, const char *text)
{
    int place;
    if (text != NULL && to->row->choices != NULL) {
        if (!tt_words_find(to->row->choices, text, &place)) return wanted_one_of(to);
        TT_TRY(word_at(to, to->row->choices, place));
    } else if (text != NULL) {
        TT_TRY(keep(to, text));
    }
    if (to->field != NULL) *(const char **)to->field = to->text;
    return TT_OK;
}

enum { LIST_WORD_MAX = 256 };

/* "q_proj, v_proj": names and numbers separated by commas are always a list; blanks around them do not count. */
static bool is_comma_list(const char *text)
{
    static const char *const part = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    for (size_t count = 1;; count++) {
        text += strspn(text, " ");
        size_t bytes = strspn(text, part);
        if (bytes == 0 || bytes >= LIST_WORD_MAX) return false;
        text += bytes;
        text += strspn(text, " ");
        if (*text != ',') return *text == 0 && count > 1;
        text++;
    }
}

static struct tt_json_value *split_commas(const char *text)
{
    struct tt_json_value *list = tt_json_new_list();
    while (list != NULL) {
        text += strspn(text, " ");
        size_t bytes = strcspn(text, " ,");
        char word[LIST_WORD_MAX];
        int64_t number;
        snprintf(word, sizeof word, "%.*s", (int)bytes, text);
        struct tt_json_value *item =
            tt_value_parse_int(word, &number) ? tt_json_new_integer(number) : tt_json_new_string(word);
        if (tt_json_append(list, item) != 0) {
            tt_json_release(list);
            return NULL;
        }
        text += bytes;
        text += strspn(text, " ");
        if (*text == 0) break;
        text++;
    }
    return list;
}

static tt_status assign_json(struct assignment *to, const char *text)
{
    struct tt_json json = {0};
    struct tt_str canonical = {0};
    tt_status status = TT_OK;
    if (text != NULL && is_comma_list(text)) {
        json.root = split_commas(text);
        if (json.root == NULL) return tt_fail(TT_ERR_MEMORY, "out of memory for setting '%s'", to->row->name);
    } else if (text != NULL && (text[0] == '[' || text[0] == '{')) {
        /* Text that does not parse is a word that begins with a bracket, such as the expression [qv]_proj. */
        status = tt_json_parse(text, strlen(text), to->row->name, &json);
        if (status == TT_ERR_DATA) {
            tt_error_clear();
            status = TT_OK;
        }
    }
    if (status == TT_OK && json.root != NULL) {
        status = tt_json_write(json.root, 0, false, &canonical);
        if (status == TT_OK) status = keep(to, tt_str_text(&canonical));
    } else if (status == TT_OK && text != NULL) {
        status = keep(to, text);
    }
    if (status == TT_OK && to->field != NULL) *(const char **)to->field = to->text;
    tt_json_deinit(&json);
    tt_str_deinit(&canonical);
    return status;
}

/* "none" in a list of YAML is read as null. */
static const char *word_of(const struct tt_json_value *item)
{
    return tt_json_is_null(item) ? "none" : tt_json_text(item);
}

static tt_status add_word(struct assignment *to, const char *word, unsigned *words)
{
    int place;
    if (word == NULL || !tt_words_find(to->row->choices, word, &place)) return wanted_one_of(to);
    *words |= 1u << place;
    return TT_OK;
}

/* Canonical: a word alone, of several a list in the order of the row. */
static tt_status keep_words(struct assignment *to, unsigned words)
{
    struct tt_str text = {0};
    char word[64];
    tt_status status = TT_OK;
    bool several = (words & (words - 1)) != 0;
    for (int place = 0; status == TT_OK && words >> place != 0; place++) {
        if ((words >> place & 1) == 0) continue;
        tt_setting_word(to->row, place, word, sizeof word);
        status = several ? tt_str_printf(&text, "%s\"%s\"", text.bytes > 0 ? ", " : "[", word)
                         : tt_str_append_text(&text, word);
    }
    if (status == TT_OK && words == 0) status = tt_str_append_text(&text, "[");
    if (status == TT_OK && (several || words == 0)) status = tt_str_append_char(&text, ']');
    if (status == TT_OK) status = keep(to, tt_str_text(&text));
    tt_str_deinit(&text);
    return status;
}

static tt_status assign_words(struct assignment *to, const char *text)
{
    struct tt_json json = {0};
    unsigned words = 0;
    tt_status status = TT_OK;
    if (is_comma_list(text)) {
        json.root = split_commas(text);
        if (json.root == NULL) return tt_fail(TT_ERR_MEMORY, "out of memory for setting '%s'", to->row->name);
    } else if (text[0] == '[' && tt_json_parse(text, strlen(text), to->row->name, &json) != TT_OK) {
        tt_error_clear();
    }
    for (size_t i = 0; status == TT_OK && i < tt_json_count(json.root); i++)
        status = add_word(to, word_of(tt_json_at(json.root, i)), &words);
    if (json.root == NULL) status = add_word(to, text, &words);
    if (status == TT_OK) status = keep_words(to, words);
    if (status == TT_OK && to->field != NULL) *(unsigned *)to->field = words;
    tt_json_deinit(&json);
    return status;
}

/* True if `text` is one of the values that turn the feature off, compared by the row's type. */
static bool is_served(const struct tt_setting *row, const char *text)
{
    bool a, b;
    double x, y;
    if (text == NULL) text = row->null_text != NULL ? row->null_text : "null";
    for (const char *at = row->only; *at != 0;) {
        char word[64];
        size_t bytes = strcspn(at, " ");
        snprintf(word, sizeof word, "%.*s", (int)bytes, at);
        if (tt_ascii_same(word, text)) return true;
        if (row->type == TT_SETTING_BOOL && tt_value_parse_bool(text, &a) && tt_value_parse_bool(word, &b) &&
            a == b)
            return true;
        if (tt_value_parse_double(text, &x) && tt_value_parse_double(word, &y) && x == y) return true;
        at += bytes;
        at += strspn(at, " ");
    }
    return false;
}

static tt_status check_served(const struct assignment *to, const char *text)
{
    const struct tt_setting *row = to->row;
    if (row->only == NULL || to->origin == NULL || is_served(row, text)) return TT_OK;
    bool nothing = text == NULL && (to->given == NULL || to->given[0] == 0);
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "%s: '%s' supports only: %s; not '%.100s'", to->origin,
                               row->name, row->only, nothing ? "null" : to->given);
    const char *why = row->instead != NULL && text != NULL ? row->instead(text) : NULL;
    if (why == NULL) why = row->only_reason;
    if (why != NULL) tt_hint("%s", why);
    return status;
}

static tt_status assign_typed(struct assignment *to, const char *text)
{
    if (to->row->unneeded != NULL) return text != NULL ? keep(to, text) : TT_OK;
    switch (to->row->type) {
    case TT_SETTING_TRISTATE:
        return assign_tristate(to, text);
    case TT_SETTING_STRING:
        return assign_string(to, text);
    case TT_SETTING_JSON:
        return assign_json(to, text);
    case TT_SETTING_INT:
        return assign_int(to, text);
    case TT_SETTING_DOUBLE:
        return assign_double(to, text);
    case TT_SETTING_BYTES:
        return assign_bytes(to, text);
    case TT_SETTING_BOOL:
        return assign_bool(to, text);
    case TT_SETTING_CHOICE:
        return assign_choice(to, text);
    case TT_SETTING_WORDS:
        return assign_words(to, text);
    }
    return tt_fail(TT_ERR_INTERNAL, "setting '%s' has no type", to->row->name);
}

/* True if null stays null. A text with a default always has a value, so its readers need no check. */
static bool keeps_null(const struct tt_setting *row)
{
    if (row->offset == TT_SETTING_NO_FIELD || row->unneeded != NULL) return true;
    if (row->type == TT_SETTING_STRING || row->type == TT_SETTING_JSON) return row->default_text == NULL;
    return row->type == TT_SETTING_TRISTATE;
}

/* The value of null where it does not stay null, from the row. */
static const char *meaning_of_null(const struct tt_setting *row)
{
    if (row->null_text != NULL) return row->null_text;
    bool takes_default =
        row->type == TT_SETTING_BOOL || row->type == TT_SETTING_STRING || row->type == TT_SETTING_JSON;
    return takes_default ? row->default_text : NULL;
}

/* "none" is a word of some settings (bias, report_to) and means null only for the others. "null" among the supported
 * values is null itself. */
static bool is_word_of(const struct tt_setting *row, const char *text)
{
    if (tt_words_find(row->choices, text, NULL)) return true;
    return !tt_ascii_same(text, "null") && tt_words_find(row->only, text, NULL);
}

/* The word for the synonym `text`, from a list such as "1=FULL_SHARD 2=SHARD_GRAD_OP". */
static bool find_synonym(const char *synonyms, const char *text, char *word, size_t word_bytes)
{
    size_t bytes = strlen(text);
    for (const char *at = synonyms; at != NULL && *at != 0; at += strspn(at, " ")) {
        size_t left = strcspn(at, "="), all = strcspn(at, " ");
        if (left == bytes && tt_ascii_same_start(at, text, bytes)) {
            snprintf(word, word_bytes, "%.*s", (int)(all - left - 1), at + left + 1);
            return true;
        }
        at += all;
    }
    return false;
}

static tt_status assign(struct tt_settings *settings, struct tt_setting_entry *entry, const char *text,
                        bool quoted, const char *origin)
{
    const struct tt_setting *row = entry->row;
    struct assignment to = {settings, row, origin, text, field_of(settings, entry), NULL};
    if (text != NULL && !tt_value_is_utf8(text))
        return tt_fail(TT_ERR_USAGE, "%s: the value of '%s' is not UTF-8", origin, row->name);
    if (text != NULL && !quoted && tt_value_is_null(text) && !is_word_of(row, text)) text = NULL;
    if (text != NULL && strncmp(text, "torch.", 6) == 0 && is_word_of(row, text + 6)) text += 6;
    char word[64];
    if (text != NULL && find_synonym(row->synonyms, text, word, sizeof word)) text = word;
    if (text != NULL && text[0] == 0 && row->type == TT_SETTING_JSON) text = NULL;
    TT_TRY(check_served(&to, text));
    if (origin != NULL) TT_TRY(tt_settings_check_path(row, text, origin));
    if (text != NULL && origin != NULL) TT_TRY(tt_settings_check_foreign(row, text, origin));
    if (text == NULL && !keeps_null(row)) {
        text = meaning_of_null(row);
        if (text == NULL) {
            tt_status status = wanted(&to, "a value");
            if (row->only_reason != NULL) tt_hint("%s", row->only_reason);
            return status;
        }
    }
    if (text != NULL || to.field != NULL) TT_TRY(assign_typed(&to, text));
    TT_TRY(tt_settings_check_route(settings, entry, to.text, origin));
    entry->text = to.text;
    if (origin == NULL) return TT_OK;
    entry->level = settings->level;
    entry->route = settings->route;
    entry->origin = tt_arena_strdup(&settings->arena, origin);
    if (entry->origin == NULL) return TT_ERR_MEMORY;
    return row->spread != NULL && to.text != NULL ? tt_settings_spread(settings, entry) : TT_OK;
}

tt_status tt_settings_assign(struct tt_settings *settings, struct tt_setting_entry *entry, const char *text,
                             bool quoted, const char *origin)
{
    TT_TRY(assign(settings, entry, text, quoted, origin));
    for (entry = entry->twin; entry != NULL; entry = entry->twin)
        TT_TRY(assign(settings, entry, origin != NULL ? text : entry->row->default_text, quoted, origin));
    return TT_OK;
}
