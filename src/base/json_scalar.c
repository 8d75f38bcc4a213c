/* Strings, numbers and words of the parser of base/json.h.
 *
 * A decoded string is shorter than its source with the quotes, so one block as long as the text holds all strings
 * with their terminators. */
#include <string.h>

#include "base/json_parser.h"
#include "base/number.h"
#include "base/utf8.h"

tt_status json_fail_at(const struct json_parser *parser, const char *at, const char *what)
{
    unsigned long long line = parser->source->first_line > 0 ? parser->source->first_line : 1;
    const char *line_start = parser->start;
    for (const char *c = parser->start; c < at; c++) {
        if (*c != '\n') continue;
        line++;
        line_start = c + 1;
    }
    return tt_fail(TT_ERR_DATA, "%s: line %llu, column %zu (byte %zu): not valid JSON: %s",
                   parser->source->origin, line, (size_t)(at - line_start) + 1, (size_t)(at - parser->start),
                   what);
}

void json_skip_space(struct json_parser *parser)
{
    while (parser->at < parser->end &&
           (*parser->at == ' ' || *parser->at == '\n' || *parser->at == '\r' || *parser->at == '\t'))
        parser->at++;
}

/* ---- Strings ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The value of the four digits of \uXXXX at `at`; -1 if they are not hexadecimal. */
static int32_t read_hex(const struct json_parser *parser, const char *at)
{
    int32_t code = 0;
    if (parser->end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(at[i]);
        if (digit < 0) return -1;
        code = code * 16 + digit;
    }
    return code;
}

static char *write_utf8(char *out, uint32_t code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xc0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *out++ = (char)(0xe0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    } else {
        *out++ = (char)(0xf0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3f));
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    }
    return out;
}

/* Reads \uXXXX, or two of them that form one code point; parser->at is at the 'u'. */
static tt_status read_unicode_escape(struct json_parser *parser, char **out)
{
    int32_t code = read_hex(parser, parser->at + 1);
    if (code < 0) return json_fail_at(parser, parser->at - 1, "\\u needs four hexadecimal digits");
    const char *escape = parser->at - 1;
    parser->at += 5;
    if (code >= 0xd800 && code < 0xe000) {
        bool pair =
            code < 0xdc00 && parser->end - parser->at >= 6 && parser->at[0] == '\\' && parser->at[1] == 'u';
        int32_t low = pair ? read_hex(parser, parser->at + 2) : -1;
        if (low < 0xdc00 || low > 0xdfff) return json_fail_at(parser, escape, "half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        parser->at += 6;
    }
    *out = write_utf8(*out, (uint32_t)code);
    return TT_OK;
}

/* parser->at is after the backslash. */
static tt_status read_escape(struct json_parser *parser, char **out)
{
    static const char letters[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    if (parser->at == parser->end) return json_fail_at(parser, parser->at, "the text ends inside a string");
    if (*parser->at == 'u') return read_unicode_escape(parser, out);
    const char *letter = *parser->at != '\0' ? strchr(letters, *parser->at) : NULL;
    if (letter == NULL)
        return json_fail_at(parser, parser->at - 1,
                            "a backslash before a character that it does not go with");
    *(*out)++ = bytes[letter - letters];
    parser->at++;
    return TT_OK;
}

/* Whether one of eight bytes is '"', '\\', below a space, or not ASCII. The method is that of "Bit Twiddling
 * Hacks" (Anderson): x - 0x01..01 & ~x has a high bit where a byte of x is 0 (or directly above such a byte). */
static bool has_special(uint64_t word)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t quote = word ^ (ones * '"'), backslash = word ^ (ones * '\\');
    return ((word | ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | (word - ones * ' ')) &
            high) != 0;
}

/* Copies the bytes that need no decoding. */
static char *copy_plain(struct json_parser *parser, char *out)
{
    uint64_t word;
    while (parser->end - parser->at >= (ptrdiff_t)sizeof word) {
        memcpy(&word, parser->at, sizeof word);
        if (has_special(word)) break;
        memcpy(out, &word, sizeof word);
        out += sizeof word;
        parser->at += sizeof word;
    }
    return out;
}

/* parser->at is at the opening quote. */
tt_status json_read_string(struct json_parser *parser, char **text, uint32_t *bytes)
{
    const char *quote = parser->at++;
    char *out = parser->texts;
    for (;;) {
        out = copy_plain(parser, out);
        if (parser->at == parser->end) return json_fail_at(parser, quote, "a string that does not end");
        unsigned char c = (unsigned char)*parser->at;
        if (c == '"') break;
        if (c < ' ') return json_fail_at(parser, parser->at, "a control character inside a string");
        if (c == '\\') {
            parser->at++;
            TT_TRY(read_escape(parser, &out));
            continue;
        }
        uint32_t point;
        size_t length = tt_utf8_next(parser->at, (size_t)(parser->end - parser->at), &point);
        if (length == 0) return json_fail_at(parser, parser->at, "invalid UTF-8");
        for (; length > 0; length--) *out++ = *parser->at++;
    }
    parser->at++;
    *text = parser->texts;
    *bytes = (uint32_t)(out - parser->texts);
    *out = '\0';
    if (!parser->source->nul && memchr(*text, 0, *bytes) != NULL)
        return json_fail_at(parser, quote, "a string with the character U+0000");
    parser->texts = out + 1;
    return TT_OK;
}

/* ---- Numbers and words ---- */

static bool is_digit(const struct json_parser *parser, const char *at)
{
    return at < parser->end && *at >= '0' && *at <= '9';
}

/* Returns the number as a terminated text in the block of strings. It is temporary unless the caller advances
 * `texts`. */
static char *number_text(struct json_parser *parser, const char *number, size_t bytes)
{
    memcpy(parser->texts, number, bytes);
    parser->texts[bytes] = '\0';
    return parser->texts;
}

bool json_parse_integer(const char *number, const char *end, int64_t *out)
{
    bool negative = *number == '-';
    uint64_t magnitude = 0, limit = (uint64_t)INT64_MAX + negative;
    for (const char *at = number + negative; at < end; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (magnitude > (limit - digit) / 10) return false;
        magnitude = magnitude * 10 + digit;
    }
    *out = (int64_t)(negative ? 0 - magnitude : magnitude);
    return true;
}

static void set_integer(struct json_parser *parser, const char *number, struct tt_json_value *value)
{
    if (json_parse_integer(number, parser->at, &value->integer)) {
        value->type = TT_JSON_INTEGER;
        return;
    }
    value->type = TT_JSON_HUGE;
    value->count = (uint32_t)(parser->at - number);
    value->text = number_text(parser, number, value->count);
    parser->texts += value->count + 1;
}

/* Clinger's fast path: up to 15 digits and a power of ten up to 22 are exact doubles, so that one operation
 * rounds once. */
static bool read_exact(const char *number, const char *end, double *out)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    bool negative = *number == '-', point = false;
    uint64_t digits = 0;
    int count = 0, exponent = 0;
    const char *at = number + negative;
    for (; at < end && (*at == '.' || (*at >= '0' && *at <= '9')); at++) {
        if (*at == '.') {
            point = true;
            continue;
        }
        digits = digits * 10 + (uint64_t)(*at - '0');
        if (++count > 15) return false;
        exponent -= point;
    }
    if (at < end) {
        bool below = at[1] == '-';
        int written = 0;
        for (at += at[1] == '-' || at[1] == '+' ? 2 : 1; at < end && written < 1000; at++)
            written = written * 10 + (*at - '0');
        exponent += below ? -written : written;
    }
    if (exponent < -22 || exponent > 22) return false;
    double value = exponent < 0 ? (double)digits / powers[-exponent] : (double)digits * powers[exponent];
    *out = negative ? -value : value;
    return true;
}

static tt_status read_number(struct json_parser *parser, struct tt_json_value *value)
{
    const char *number = parser->at, *at = number + (*number == '-');
    bool real = false;
    if (!is_digit(parser, at)) return json_fail_at(parser, number, "a minus sign without a number");
    if (*at == '0' && is_digit(parser, at + 1))
        return json_fail_at(parser, number, "a number with a leading zero");
    while (is_digit(parser, at)) at++;
    if (at < parser->end && *at == '.') {
        real = true;
        if (!is_digit(parser, ++at)) return json_fail_at(parser, number, "a number that ends in its point");
        while (is_digit(parser, at)) at++;
    }
    if (at < parser->end && (*at == 'e' || *at == 'E')) {
        real = true;
        at++;
        if (at < parser->end && (*at == '+' || *at == '-')) at++;
        if (!is_digit(parser, at)) return json_fail_at(parser, number, "a number that ends in its exponent");
        while (is_digit(parser, at)) at++;
    }
    parser->at = at;
    if (parser->checking) {
        value->type = real ? TT_JSON_REAL : TT_JSON_INTEGER;
        return TT_OK;
    }
    if (!real) {
        set_integer(parser, number, value);
        return TT_OK;
    }
    value->type = TT_JSON_REAL;
    if (!read_exact(number, at, &value->real))
        (void)tt_parse_double_prefix(number_text(parser, number, (size_t)(at - number)), &value->real);
    return TT_OK;
}

static tt_status read_word(struct json_parser *parser, struct tt_json_value *value)
{
    static const struct {
        const char *text;
        enum tt_json_type type;
        double real;
    } words[] = {
        {"null", TT_JSON_NULL, 0},
        {"true", TT_JSON_TRUE, 0},
        {"false", TT_JSON_FALSE, 0},
        {"NaN", TT_JSON_REAL, __builtin_nan("")},
        {"Infinity", TT_JSON_REAL, __builtin_inf()},
        {"-Infinity", TT_JSON_REAL, -__builtin_inf()},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t bytes = strlen(words[i].text);
        if ((size_t)(parser->end - parser->at) < bytes || memcmp(parser->at, words[i].text, bytes) != 0)
            continue;
        parser->at += bytes;
        value->type = (uint8_t)words[i].type;
        if (words[i].type == TT_JSON_REAL) value->real = words[i].real;
        return TT_OK;
    }
    return json_fail_at(parser, parser->at,
                        parser->at == parser->end ? "the text ends where a value is expected"
                                                  : "a value is expected");
}

tt_status json_read_scalar(struct json_parser *parser, struct tt_json_value *value)
{
    char c = parser->at < parser->end ? *parser->at : '\0';
    if (c == '"') {
        value->type = TT_JSON_STRING;
        TT_TRY(json_read_string(parser, &value->text, &value->count));
        value->has_nul = !parser->checking && memchr(value->text, 0, value->count) != NULL;
        return TT_OK;
    }
    bool number =
        (c >= '0' && c <= '9') || (c == '-' && (parser->end - parser->at < 2 || parser->at[1] != 'I'));
    return number ? read_number(parser, value) : read_word(parser, value);
}
