#include "config/value.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/number.h"
#include "base/utf8.h"

enum { NUMBER_BYTES_MAX = 64 };

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words != NULL; words++)
        if (tt_ascii_same(text, *words)) return true;
    return false;
}

bool tt_value_is_null(const char *text)
{
    static const char *const words[] = {"", "~", "null", "none", NULL};
    return is_one_of(text, words);
}

bool tt_value_parse_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"true", "yes", "on", "1", "y", "t", NULL};
    static const char *const no[] = {"false", "no", "off", "0", "n", "f", NULL};
    if (is_one_of(text, yes)) return *out = true, true;
    if (is_one_of(text, no)) return *out = false, true;
    return false;
}

/* Copies a decimal number without the underscores that may stand between two digits. */
static bool strip_number(const char *text, char number[NUMBER_BYTES_MAX])
{
    size_t length = 0;
    for (size_t i = 0; text[i] != 0; i++) {
        if (text[i] == '_' && i > 0 && isdigit((unsigned char)text[i - 1]) &&
            isdigit((unsigned char)text[i + 1]))
            continue;
        if (strchr("0123456789+-.eE", text[i]) == NULL || length + 1 >= NUMBER_BYTES_MAX) return false;
        number[length++] = text[i];
    }
    number[length] = 0;
    return length > 0;
}

bool tt_value_parse_double(const char *text, double *out)
{
    char number[NUMBER_BYTES_MAX];
    return strip_number(text, number) && tt_parse_double(number, out);
}

bool tt_value_parse_int(const char *text, int64_t *out)
{
    char number[NUMBER_BYTES_MAX], *end;
    if (!strip_number(text, number)) return false;
    errno = 0;
    long long whole = strtoll(number, &end, 10);
    if (end != number && *end == 0) {
        if (errno != 0) return false;
        *out = whole;
        return true;
    }
    double value;
    /* A double does not distinguish successive whole numbers beyond 2^53. */
    if (!tt_value_parse_double(text, &value) || value != floor(value) || fabs(value) > 9007199254740992.0)
        return false;
    *out = (int64_t)value;
    return true;
}

const char *tt_value_format_double(double value, char *text, size_t text_bytes)
{
    char number[TT_DOUBLE_TEXT_BYTES];
    tt_format_double(value, number, sizeof number);
    /* YAML 1.1 reads 3e-05 as text. */
    const char *exponent = strchr(number, 'e');
    if (exponent != NULL && strchr(number, '.') == NULL)
        snprintf(text, text_bytes, "%.*s.0%s", (int)(exponent - number), number, exponent);
    else
        snprintf(text, text_bytes, "%s", number);
    return text;
}

bool tt_value_is_utf8(const char *text)
{
    size_t bytes = strlen(text);
    return tt_utf8_invalid_at(text, bytes) == bytes;
}

/* Code points that a YAML 1.1 reader keeps unchanged inside a line (production c-printable, without line breaks). */
static bool is_printable(uint32_t point)
{
    if (point < 0xa1) return point >= 0x20 && point < 0x7f;
    return point != 0x2028 && point != 0x2029 && point != 0xfeff && point != 0xfffe && point != 0xffff;
}

bool tt_value_is_plain(const char *text)
{
    bool truth;
    double number;
    if (!tt_ascii_is_letter(text[0]) && text[0] != '/' && text[0] != '_') return false;
    for (const char *at = text; *at != 0; at++)
        if (!tt_ascii_is_letter(*at) && !tt_ascii_is_digit(*at) && strchr("_-./+", *at) == NULL) return false;
    return !tt_value_is_null(text) && !tt_value_parse_bool(text, &truth) &&
           !tt_value_parse_double(text, &number);
}

tt_status tt_value_write_yaml(const char *text, struct tt_str *yaml)
{
    if (tt_value_is_plain(text)) return tt_str_append_text(yaml, text);
    TT_TRY(tt_str_append_char(yaml, '"'));
    for (const char *at = text, *end = text + strlen(text); at < end;) {
        uint32_t point = (unsigned char)*at;
        size_t bytes = tt_utf8_next(at, (size_t)(end - at), &point);
        if (bytes == 0) bytes = 1;
        if (point == '"' || point == '\\') TT_TRY(tt_str_append_char(yaml, '\\'));
        if (point == '\n')
            TT_TRY(tt_str_append_text(yaml, "\\n"));
        else if (point == '\t')
            TT_TRY(tt_str_append_text(yaml, "\\t"));
        else if (is_printable(point))
            TT_TRY(tt_str_append(yaml, at, bytes));
        else
            TT_TRY(tt_str_printf(yaml, "\\u%04x", (unsigned)point));
        at += bytes;
    }
    return tt_str_append_char(yaml, '"');
}

tt_status tt_value_write_comment(const char *text, struct tt_str *out)
{
    for (const char *at = text, *end = text + strlen(text); at < end;) {
        uint32_t point = 0;
        size_t bytes = tt_utf8_next(at, (size_t)(end - at), &point);
        if (bytes != 0 && is_printable(point))
            TT_TRY(tt_str_append(out, at, bytes));
        else
            TT_TRY(tt_str_append_char(out, '?'));
        at += bytes != 0 ? bytes : 1;
    }
    return TT_OK;
}
