/* Texts for people: --help, docs/settings.md, the resolved file. All of them follow from the rows. */
#include "config/describe.h"

#include <math.h>
#include <string.h>

#include "base/number.h"
#include "config/settings.h"
#include "config/store.h"
#include "config/value.h"

enum { NAME_COLUMN = 4, HELP_COLUMN = 8, COLUMNS_MIN = 40 };

const char *tt_setting_word(const struct tt_setting *row, int value, char *word, size_t word_bytes)
{
    const char *at = row->choices;
    for (; value > 0 && *at != '\0'; value--) {
        at += strcspn(at, " ");
        if (*at == ' ') at++;
    }
    tt_snprintf(word, word_bytes, "%.*s", (int)strcspn(at, " "), at);
    return word;
}

bool tt_setting_repeats(const struct tt_setting_section *sections, size_t index, const struct tt_setting *row)
{
    for (size_t s = 0; row->of != NULL && s < index; s++)
        for (const struct tt_setting *other = sections[s].rows; other->name != NULL; other++)
            if (other->of != NULL && strcmp(other->name, row->name) == 0) return true;
    return false;
}

enum tt_setting_group tt_describe_group(const struct tt_setting *row)
{
    if (row->spread != NULL) return TT_SETTINGS_SERVED;
    if (row->unneeded != NULL) return TT_SETTINGS_UNNEEDED;
    return row->offset == TT_SETTING_NO_FIELD ? TT_SETTINGS_ONLY : TT_SETTINGS_SERVED;
}

bool tt_describe_continues(const struct tt_setting_section *sections, size_t index)
{
    return index > 0 && strcmp(sections[index - 1].title, sections[index].title) == 0;
}

static const char *type_word(const struct tt_setting *row)
{
    switch (row->type) {
    case TT_SETTING_INT:
    case TT_SETTING_DOUBLE:
        return "N";
    case TT_SETTING_BYTES:
        return "SIZE";
    case TT_SETTING_JSON:
        return "WORD...";
    case TT_SETTING_TRISTATE:
        return "[true|false|null]";
    case TT_SETTING_BOOL:
        return "[true|false]";
    case TT_SETTING_STRING:
    case TT_SETTING_CHOICE:
    case TT_SETTING_WORDS:
        break;
    }
    return "TEXT";
}

/* "a|b|c" from "a b c". */
static tt_status append_choices(struct tt_str *text, const char *words, const char *between)
{
    for (const char *at = words; *at != 0;) {
        size_t bytes = strcspn(at, " ");
        TT_TRY(tt_str_append(text, at, bytes));
        at += bytes;
        at += strspn(at, " ");
        if (*at != 0) TT_TRY(tt_str_append_text(text, between));
    }
    return TT_OK;
}

tt_status tt_describe_value(struct tt_str *text, const struct tt_setting *row)
{
    const char *words = row->choices != NULL ? row->choices : row->only;
    if (words != NULL && row->type != TT_SETTING_JSON && strlen(words) < 70)
        return append_choices(text, words, "|");
    return tt_str_append_text(text, type_word(row));
}

/* Appends `words`, wrapped at `indent`; the text is at column `at`. */
static tt_status append_wrapped(struct tt_str *text, const char *words, int indent, int columns, int at)
{
    bool first = at <= indent;
    while (*words != 0) {
        size_t bytes = strcspn(words, " ");
        if (!first && at + 1 + (int)bytes > columns) {
            TT_TRY(tt_str_printf(text, "\n%*s", indent, ""));
            at = indent;
            first = true;
        }
        if (!first) TT_TRY(tt_str_append_char(text, ' '));
        TT_TRY(tt_str_append(text, words, bytes));
        at += (int)bytes + !first;
        first = false;
        words += bytes;
        words += strspn(words, " ");
    }
    return TT_OK;
}

tt_status tt_describe_row(struct tt_str *text, const struct tt_setting *row, bool with_default,
                          const char *alternative)
{
    char low[40], high[40];
    if (row->help != NULL) TT_TRY(tt_str_append_text(text, row->help));
    if (row->minimum != 0 || row->maximum != 0) {
        tt_value_format_double(row->minimum, low, sizeof low);
        tt_value_format_double(row->maximum, high, sizeof high);
        TT_TRY(isinf(row->maximum) ? tt_str_printf(text, " At least %s.", low)
                                   : tt_str_printf(text, " From %s to %s.", low, high));
    }
    if (row->aliases != NULL) {
        TT_TRY(tt_str_append_text(text, " Also: "));
        TT_TRY(append_choices(text, row->aliases, ", "));
        TT_TRY(tt_str_append_char(text, '.'));
    }
    if (row->required && alternative != NULL)
        return tt_str_printf(text, " Required where %s is not given.", alternative);
    if (row->required) return tt_str_append_text(text, " Required.");
    /* off unless given: no default shown */
    bool plain_switch = row->transient && row->type == TT_SETTING_BOOL;
    if (!with_default || row->default_text == NULL || plain_switch) return TT_OK;
    return tt_str_printf(text, " [%s]", row->default_text[0] != 0 ? row->default_text : "\"\"");
}

static tt_status help_row(struct tt_str *text, const struct tt_setting *row, const char *alternative,
                          int columns)
{
    struct tt_str words = {0};
    tt_status status;
    TT_GO(tt_str_printf(text, "%*s--%s ", NAME_COLUMN, "", row->name));
    TT_GO(tt_describe_value(text, row));
    TT_GO(tt_describe_row(&words, row, true, alternative));
    TT_GO(tt_str_printf(text, "\n%*s", HELP_COLUMN, ""));
    TT_GO(append_wrapped(text, tt_str_text(&words), HELP_COLUMN, columns, HELP_COLUMN));
    TT_GO(tt_str_append_char(text, '\n'));
out:
    tt_str_deinit(&words);
    return status;
}

/* The names of a group on wrapped lines. */
static tt_status help_names(struct tt_str *text, const struct tt_setting_section *sections,
                            size_t section_count, enum tt_setting_group group, const char *heading,
                            int columns)
{
    struct tt_str words = {0};
    tt_status status = TT_OK;
    for (size_t i = 0; i < section_count; i++)
        for (const struct tt_setting *row = sections[i].rows; row->name != NULL; row++)
            if (tt_describe_group(row) == group)
                TT_GO(tt_str_printf(&words, "%s%s", words.bytes > 0 ? " " : "", row->name));
    if (words.bytes == 0) goto out;
    TT_GO(tt_str_printf(text, "\n%s\n%*s", heading, NAME_COLUMN, ""));
    TT_GO(append_wrapped(text, tt_str_text(&words), NAME_COLUMN, columns, NAME_COLUMN));
    TT_GO(tt_str_append_char(text, '\n'));
out:
    tt_str_deinit(&words);
    return status;
}

const char *tt_describe_alternative(const struct tt_setting *row, const struct tt_setting_section *sections,
                                    size_t section_count)
{
    for (size_t i = 0; row->or_else != NULL && i < section_count; i++)
        for (const struct tt_setting *other = sections[i].rows; other->name != NULL; other++)
            if (tt_words_find(row->or_else, other->name, NULL)) return other->name;
    return NULL;
}

tt_status tt_settings_help(const struct tt_setting_section *sections, size_t section_count, int columns,
                           struct tt_str *text)
{
    if (columns < COLUMNS_MIN) columns = COLUMNS_MIN;
    for (size_t i = 0; i < section_count; i++) {
        bool titled = tt_describe_continues(sections, i);
        for (const struct tt_setting *row = sections[i].rows; row->name != NULL; row++) {
            if (tt_describe_group(row) != TT_SETTINGS_SERVED) continue;
            if (!titled) TT_TRY(tt_str_printf(text, "\n%s\n", sections[i].title));
            titled = true;
            TT_TRY(help_row(text, row, tt_describe_alternative(row, sections, section_count), columns));
        }
    }
    TT_TRY(help_names(text, sections, section_count, TT_SETTINGS_ONLY,
                      "Not supported: accepted only at the values that turn them off (docs/settings.md)",
                      columns));
    return help_names(text, sections, section_count, TT_SETTINGS_UNNEEDED,
                      "Accepted without effect (docs/settings.md gives the reasons)", columns);
}

/* A cell of a Markdown table. */
static tt_status append_cell(struct tt_str *text, const char *words)
{
    for (; *words != 0; words++) {
        if (*words == '|' || *words == '<' || *words == '*') TT_TRY(tt_str_append_char(text, '\\'));
        TT_TRY(tt_str_append_char(text, *words));
    }
    return TT_OK;
}

static tt_status docs_row(struct tt_str *text, const struct tt_setting *row)
{
    struct tt_str words = {0};
    tt_status status;
    TT_GO(tt_str_printf(text, "| `%s` | ", row->name));
    if (row->default_text != NULL) TT_GO(tt_str_printf(text, "`%s`", row->default_text));
    TT_GO(tt_str_append_text(text, " | "));
    TT_GO(tt_describe_value(&words, row));
    TT_GO(append_cell(text, tt_str_text(&words)));
    tt_str_clear(&words);
    TT_GO(tt_str_append_text(text, " | "));
    TT_GO(tt_describe_row(&words, row, false, NULL));
    TT_GO(append_cell(text, tt_str_text(&words)));
    TT_GO(tt_str_append_text(text, " |\n"));
out:
    tt_str_deinit(&words);
    return status;
}

static tt_status docs_served(struct tt_str *text, const struct tt_setting_section *section, bool titled)
{
    for (const struct tt_setting *row = section->rows; row->name != NULL; row++) {
        if (tt_describe_group(row) != TT_SETTINGS_SERVED) continue;
        if (!titled)
            TT_TRY(tt_str_printf(text, "\n## %s\n\n| key | default | values | meaning |\n|---|---|---|---|\n",
                                 section->title));
        titled = true;
        TT_TRY(docs_row(text, row));
    }
    return TT_OK;
}

static tt_status docs_reason(struct tt_str *text, const struct tt_setting *row)
{
    TT_TRY(tt_str_printf(text, "| `%s` | ", row->name));
    if (tt_describe_group(row) == TT_SETTINGS_ONLY) {
        TT_TRY(tt_str_append_char(text, '`'));
        TT_TRY(append_choices(text, row->only, "`, `"));
        TT_TRY(tt_str_append_text(text, "` | "));
    }
    const char *why = row->unneeded != NULL ? row->unneeded : row->only_reason;
    TT_TRY(append_cell(text, why != NULL ? why : ""));
    if (row->unneeded != NULL && row->only != NULL) TT_TRY(tt_str_printf(text, " (only: %s)", row->only));
    return tt_str_append_text(text, " |\n");
}

static tt_status docs_group(struct tt_str *text, const struct tt_setting_section *sections,
                            size_t section_count, enum tt_setting_group group, const char *heading)
{
    bool titled = false;
    for (size_t i = 0; i < section_count; i++)
        for (const struct tt_setting *row = sections[i].rows; row->name != NULL; row++) {
            if (tt_describe_group(row) != group) continue;
            if (!titled) TT_TRY(tt_str_append_text(text, heading));
            titled = true;
            TT_TRY(docs_reason(text, row));
        }
    return TT_OK;
}

tt_status tt_settings_docs(const struct tt_setting_section *sections, size_t section_count,
                           struct tt_str *markdown)
{
    for (size_t i = 0; i < section_count; i++)
        TT_TRY(docs_served(markdown, &sections[i], tt_describe_continues(sections, i)));
    TT_TRY(docs_group(
        markdown, sections, section_count, TT_SETTINGS_ONLY,
        "\n## Accepted only at the values that turn them off\n\n| key | accepted | why |\n|---|---|---|\n"));
    return docs_group(markdown, sections, section_count, TT_SETTINGS_UNNEEDED,
                      "\n## Accepted without effect\n\n| key | why |\n|---|---|\n");
}

/* A word of several that others read as a truth value (PEFT's init_lora_weights: true) stays one. */
static bool is_truth(const struct tt_setting_entry *entry)
{
    const char *usual = entry->row->default_text;
    bool truth;
    return entry->row->type == TT_SETTING_STRING && usual != NULL && tt_value_parse_bool(usual, &truth) &&
           strcmp(entry->text, usual) == 0;
}

/* JSON is written unchanged where it is valid YAML; \u escapes may hold halves of surrogate pairs, which YAML
 * refuses. */
static tt_status append_value(struct tt_str *text, const struct tt_setting_entry *entry)
{
    if (entry->text == NULL) return tt_str_append_text(text, "null");
    bool lists = entry->row->type == TT_SETTING_JSON || entry->row->type == TT_SETTING_WORDS;
    bool json = lists && (entry->text[0] == '[' || entry->text[0] == '{');
    struct tt_json parsed = {0};
    if (json && strstr(entry->text, "\\u") == NULL &&
        tt_json_parse(entry->text, strlen(entry->text), entry->row->name, &parsed) == TT_OK) {
        tt_json_deinit(&parsed);
        return tt_str_append_text(text, entry->text);
    }
    tt_error_clear();
    if (is_truth(entry)) return tt_str_append_text(text, entry->text);
    bool text_type = entry->row->type == TT_SETTING_STRING || entry->row->type == TT_SETTING_JSON ||
                     entry->row->type == TT_SETTING_CHOICE ||
                     (entry->row->type == TT_SETTING_DOUBLE && entry->row->choices != NULL) ||
                     entry->row->type == TT_SETTING_WORDS;
    return text_type ? tt_value_write_yaml(entry->text, text) : tt_str_append_text(text, entry->text);
}

static tt_status write_entry(struct tt_str *text, const struct tt_setting_entry *entry)
{
    TT_TRY(tt_str_printf(text, "%s: ", entry->row->name));
    TT_TRY(append_value(text, entry));
    if (entry->origin != NULL) {
        TT_TRY(tt_str_append_text(text, "  # "));
        TT_TRY(tt_value_write_comment(entry->origin, text));
    }
    return tt_str_append_char(text, '\n');
}

static tt_status write_yaml(const struct tt_settings *settings, bool only_given, struct tt_str *text)
{
    size_t index = 0;
    const char *title = ""; /* the last one that was written */
    for (size_t i = 0; i < settings->section_count; i++) {
        for (const struct tt_setting *row = settings->sections[i].rows; row->name != NULL; row++, index++) {
            const struct tt_setting_entry *entry = &settings->entries[index];
            if (row->transient || entry->repeats || tt_describe_group(row) == TT_SETTINGS_UNNEEDED) continue;
            bool is_only = tt_describe_group(row) == TT_SETTINGS_ONLY;
            if (entry->origin == NULL ? is_only || only_given : is_only && only_given) continue;
            if (strcmp(title, settings->sections[i].title) != 0)
                TT_TRY(tt_str_printf(text, "\n# %s\n", title = settings->sections[i].title));
            TT_TRY(write_entry(text, entry));
        }
    }
    return TT_OK;
}

tt_status tt_settings_write_yaml(const struct tt_settings *settings, struct tt_str *text)
{
    TT_TRY(
        tt_str_append_text(text, "# The resolved configuration; values without a comment are defaults.\n"));
    return write_yaml(settings, false, text);
}

tt_status tt_settings_write_given(const struct tt_settings *settings, struct tt_str *text)
{
    return write_yaml(settings, true, text);
}
