#include "job/compared.h"

#include "base/number.h"

/* Choices of which several are set: "name: word word". */
static tt_status write_words(const struct tt_setting *row, unsigned words, struct tt_str *text)
{
    char word[64];
    TT_TRY(tt_str_printf(text, "%s:", row->name));
    for (int i = 0; words >> i != 0; i++)
        if ((words >> i & 1) != 0)
            TT_TRY(tt_str_printf(text, " %s", tt_setting_word(row, i, word, sizeof word)));
    return tt_str_append_char(text, '\n');
}

tt_status tt_job_write_setting(const struct tt_setting *row, const void *value, struct tt_str *text)
{
    const char *string = NULL;
    char number[TT_DOUBLE_TEXT_BYTES], word[64];
    switch (row->type) {
    case TT_SETTING_STRING:
    case TT_SETTING_JSON:
        string = *(const char *const *)value;
        return tt_str_printf(text, "%s: %s\n", row->name, string != NULL ? string : "null");
    case TT_SETTING_INT:
        return tt_str_printf(text, "%s: %lld\n", row->name, (long long)*(const int64_t *)value);
    case TT_SETTING_DOUBLE:
        return tt_str_printf(text, "%s: %s\n", row->name,
                             tt_format_double(*(const double *)value, number, sizeof number));
    case TT_SETTING_BOOL:
        return tt_str_printf(text, "%s: %s\n", row->name, *(const bool *)value ? "true" : "false");
    case TT_SETTING_TRISTATE:
        return tt_str_printf(text, "%s: %d\n", row->name, *(const int *)value);
    case TT_SETTING_CHOICE:
        return tt_str_printf(text, "%s: %s\n", row->name,
                             tt_setting_word(row, *(const int *)value, word, sizeof word));
    case TT_SETTING_WORDS:
        return write_words(row, *(const unsigned *)value, text);
    case TT_SETTING_BYTES:
        return tt_str_printf(text, "%s: %zu\n", row->name, *(const size_t *)value);
    }
    return TT_OK;
}

tt_status tt_job_compared(enum tt_job_kind kind, const void *spec, unsigned without, struct tt_str *text)
{
    const struct tt_job_rows *rows = &tt_job_rows[kind];
    for (size_t s = 0; s < rows->count; s++) {
        const struct tt_setting_section *section = &rows->sections[s];
        for (const struct tt_setting *row = section->rows; row->name != NULL; row++) {
            if (row->unneeded != NULL || row->offset == TT_SETTING_NO_FIELD || row->local) continue;
            if ((row->changes & without) != 0 || tt_setting_repeats(rows->sections, s, row)) continue;
            TT_TRY(tt_job_write_setting(row, (const char *)spec + section->base_offset + row->offset, text));
        }
    }
    return TT_OK;
}
