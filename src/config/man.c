#include "config/man.h"

#include "config/describe.h"

/* roff prints these as typographic signs unless they are escaped: an option copied from the page must be one. */
static const char *escape_of(char c)
{
    switch (c) {
    case '\\':
        return "\\e";
    case '-':
        return "\\-";
    case '\'':
        return "\\(aq";
    case '`':
        return "\\(ga";
    case '^':
        return "\\(ha";
    case '~':
        return "\\(ti";
    default:
        return NULL;
    }
}

tt_status tt_man_append(struct tt_str *roff, const char *words)
{
    for (; *words != 0; words++) {
        const char *bytes = tt_str_text(roff), *escape = escape_of(*words);
        bool line_begins = roff->bytes == 0 || bytes[roff->bytes - 1] == '\n';
        if (escape != NULL) {
            TT_TRY(tt_str_append_text(roff, escape));
            continue;
        }
        if (line_begins && *words == '.') TT_TRY(tt_str_append_text(roff, "\\&")); /* else it is a request */
        TT_TRY(tt_str_append_char(roff, *words));
    }
    return TT_OK;
}

static tt_status append_row(struct tt_str *roff, const struct tt_setting *row, const char *alternative)
{
    struct tt_str words = {0};
    tt_status status;
    TT_GO(tt_str_append_text(roff, ".TP\n\\fB\\-\\-"));
    TT_GO(tt_man_append(roff, row->name));
    TT_GO(tt_str_append_text(roff, "\\fR \\fI"));
    TT_GO(tt_describe_value(&words, row));
    TT_GO(tt_man_append(roff, tt_str_text(&words)));
    TT_GO(tt_str_append_text(roff, "\\fR\n"));
    tt_str_clear(&words);
    TT_GO(tt_describe_row(&words, row, true, alternative));
    if (row->environment != NULL) TT_GO(tt_str_printf(&words, " Environment: %s.", row->environment));
    TT_GO(tt_man_append(roff, tt_str_text(&words)));
    TT_GO(tt_str_append_char(roff, '\n'));
out:
    tt_str_deinit(&words);
    return status;
}

static tt_status append_names(struct tt_str *roff, const struct tt_setting_section *sections,
                              size_t section_count, enum tt_setting_group group, const char *heading)
{
    bool titled = false;
    for (size_t i = 0; i < section_count; i++)
        for (const struct tt_setting *row = sections[i].rows; row->name != NULL; row++) {
            if (tt_describe_group(row) != group) continue;
            if (!titled) TT_TRY(tt_str_printf(roff, ".SS %s\n", heading));
            if (titled) TT_TRY(tt_str_append_text(roff, ",\n"));
            titled = true;
            TT_TRY(tt_man_append(roff, row->name));
        }
    return titled ? tt_str_append_text(roff, ".\n") : TT_OK;
}

tt_status tt_man_settings(const struct tt_setting_section *sections, size_t section_count,
                          struct tt_str *roff)
{
    for (size_t i = 0; i < section_count; i++) {
        bool titled = tt_describe_continues(sections, i);
        for (const struct tt_setting *row = sections[i].rows; row->name != NULL; row++) {
            if (tt_describe_group(row) != TT_SETTINGS_SERVED) continue;
            if (!titled) {
                TT_TRY(tt_str_append_text(roff, ".SS "));
                TT_TRY(tt_man_append(roff, sections[i].title));
                TT_TRY(tt_str_append_char(roff, '\n'));
            }
            titled = true;
            TT_TRY(append_row(roff, row, tt_describe_alternative(row, sections, section_count)));
        }
    }
    TT_TRY(append_names(roff, sections, section_count, TT_SETTINGS_ONLY,
                        "Accepted only at the values that turn them off"));
    return append_names(roff, sections, section_count, TT_SETTINGS_UNNEEDED, "Accepted without effect");
}
