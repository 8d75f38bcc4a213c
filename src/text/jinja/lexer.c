/* Text to tokens, as jinja2/lexer.py with trim_blocks and lstrip_blocks. */
#include <string.h>

#include "base/alloc.h"
#include "base/ascii.h"
#include "text/jinja/ast.h"

struct lexer {
    struct tt_jinja *jinja;
    const char *text;
    size_t bytes, at;
    size_t capacity;
    char closing[TT_JINJA_NESTING_MAX + 1];
    int open;
    bool starts_line;
};

static tt_status add_token(struct lexer *lexer, enum jinja_token_type type, size_t from, size_t to)
{
    struct tt_jinja *jinja = lexer->jinja;
    if (jinja->token_count >= TT_JINJA_TOKENS_MAX)
        return jinja_fail_at(jinja, from, "more than %d words and signs", TT_JINJA_TOKENS_MAX);
    TT_TRY(tt_grow(&jinja->tokens, jinja->token_count, &lexer->capacity));
    jinja->tokens[jinja->token_count++] = (struct jinja_token){
        .type = (uint8_t)type, .offset = (uint32_t)from, .text = {lexer->text + from, to - from}};
    return TT_OK;
}

static size_t space_at(const struct lexer *lexer, size_t at)
{
    if (at >= lexer->bytes) return 0;
    size_t length;
    return jinja_is_space(jinja_point_at(lexer->text + at, lexer->bytes - at, &length)) ? length : 0;
}

static void skip_space(struct lexer *lexer)
{
    for (size_t length; (length = space_at(lexer, lexer->at)) > 0;) lexer->at += length;
}

/* The end of bytes `from` to `to` without the white space there. */
static size_t trimmed_end(const struct lexer *lexer, size_t from, size_t to)
{
    while (to > from) {
        size_t at = to - 1, length;
        while (at > from && ((unsigned char)lexer->text[at] & 0xc0) == 0x80) at--;
        if (!jinja_is_space(jinja_point_at(lexer->text + at, to - at, &length))) break;
        to = at;
    }
    return to;
}

static bool begins(const struct lexer *lexer, size_t at, const char *sign)
{
    size_t length = strlen(sign);
    return lexer->bytes - at >= length && memcmp(lexer->text + at, sign, length) == 0;
}

/* Text up to the next tag, of which `mark` is the second character and `sign` the one behind it. */
static tt_status add_data(struct lexer *lexer, size_t from, size_t to, char mark, char sign)
{
    size_t end = to;
    if (sign == '-') {
        end = trimmed_end(lexer, from, to);
    } else if (sign != '+' && mark != '{') {
        size_t line = to;
        while (line > from && lexer->text[line - 1] != '\n') line--;
        if ((line > from || lexer->starts_line) && trimmed_end(lexer, line, to) == line) end = line;
    }
    return end > from ? add_token(lexer, JINJA_TOKEN_DATA, from, end) : TT_OK;
}

static tt_status skip_comment(struct lexer *lexer, size_t start)
{
    size_t at = lexer->at;
    while (at < lexer->bytes && !begins(lexer, at, "#}")) at++;
    if (at >= lexer->bytes) return jinja_fail_at(lexer->jinja, start, "a comment has no end '#}'");
    char before = at > lexer->at ? lexer->text[at - 1] : '\0';
    lexer->at = at + 2;
    if (before == '-')
        skip_space(lexer);
    else if (before != '+' && lexer->at < lexer->bytes && lexer->text[lexer->at] == '\n')
        lexer->at++;
    return TT_OK;
}

/* Whether the tag ends here; the end is skipped. */
static bool skip_end(struct lexer *lexer, bool is_block)
{
    const char *end = is_block ? "%}" : "}}";
    size_t at = lexer->at;
    char sign = lexer->text[at];
    if (sign == '-' || (sign == '+' && is_block)) at++;
    if (!begins(lexer, at, end)) return false;
    lexer->at = at + 2;
    if (sign == '-')
        skip_space(lexer);
    else if (is_block && sign != '+' && lexer->at < lexer->bytes && lexer->text[lexer->at] == '\n')
        lexer->at++;
    return true;
}

/* Digits with single underscores between them; `from` when there are none. */
static size_t skip_digits(const struct lexer *lexer, size_t from, bool (*is_digit)(char))
{
    size_t at = from;
    while (at < lexer->bytes) {
        if (is_digit(lexer->text[at]))
            at++;
        else if (at > from && lexer->text[at] == '_' && at + 1 < lexer->bytes &&
                 is_digit(lexer->text[at + 1]))
            at += 2;
        else
            break;
    }
    return at;
}

static bool is_decimal(char c)
{
    return tt_ascii_is_digit(c);
}

static bool is_binary(char c)
{
    return c == '0' || c == '1';
}

static bool is_octal(char c)
{
    return c >= '0' && c <= '7';
}

static bool is_hexadecimal(char c)
{
    char upper = tt_ascii_upper(c);
    return tt_ascii_is_digit(c) || (upper >= 'A' && upper <= 'F');
}

static bool is_zero(char c)
{
    return c == '0';
}

/* The end of a float that begins here, or `from`. */
static size_t float_end(const struct lexer *lexer, size_t from)
{
    if (from > 0 && lexer->text[from - 1] == '.') return from;
    size_t whole = skip_digits(lexer, from, is_decimal), at = whole;
    if (whole == from) return from;
    bool has_point = false;
    if (at < lexer->bytes && lexer->text[at] == '.') {
        size_t end = skip_digits(lexer, at + 1, is_decimal);
        has_point = end > at + 1;
        if (has_point) at = end;
    }
    if (at < lexer->bytes && tt_ascii_upper(lexer->text[at]) == 'E') {
        size_t digits = at + 1;
        if (digits < lexer->bytes && (lexer->text[digits] == '+' || lexer->text[digits] == '-')) digits++;
        size_t end = skip_digits(lexer, digits, is_decimal);
        if (end > digits) return end;
    }
    return has_point ? at : from;
}

static size_t integer_end(const struct lexer *lexer, size_t from)
{
    static const struct {
        char letter;
        bool (*is_digit)(char);
    } bases[] = {{'B', is_binary}, {'O', is_octal}, {'X', is_hexadecimal}};
    if (lexer->text[from] != '0') return skip_digits(lexer, from, is_decimal);
    char letter = from + 1 < lexer->bytes ? tt_ascii_upper(lexer->text[from + 1]) : '\0';
    for (size_t i = 0; i < sizeof bases / sizeof bases[0]; i++) {
        if (bases[i].letter != letter) continue;
        size_t digits = from + 2;
        if (digits < lexer->bytes && lexer->text[digits] == '_') digits++;
        size_t end = skip_digits(lexer, digits, bases[i].is_digit);
        if (end > digits) return end;
    }
    return skip_digits(lexer, from, is_zero);
}

static bool is_name_start(char c)
{
    return tt_ascii_is_letter(c) || c == '_';
}

static tt_status add_string(struct lexer *lexer)
{
    size_t start = lexer->at, at = start + 1;
    char quote = lexer->text[start];
    while (at < lexer->bytes && lexer->text[at] != quote) at += lexer->text[at] == '\\' ? 2 : 1;
    if (at >= lexer->bytes) return jinja_fail_at(lexer->jinja, start, "a text has no end %c", quote);
    TT_TRY(add_token(lexer, JINJA_TOKEN_STRING, start + 1, at));
    lexer->at = at + 1;
    return TT_OK;
}

static tt_status add_sign(struct lexer *lexer)
{
    static const struct {
        const char *text;
        int sign;
    } pairs[] = {{"//", JINJA_SIGN_FLOORDIV}, {"**", JINJA_SIGN_POW}, {"==", JINJA_SIGN_EQ},
                 {"!=", JINJA_SIGN_NE},       {">=", JINJA_SIGN_GE},  {"<=", JINJA_SIGN_LE}};
    size_t at = lexer->at, length = 1;
    char c = lexer->text[at];
    int sign = c != '\0' && strchr("+-*/%~[](){}><=.:|,;", c) != NULL ? c : 0;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (!begins(lexer, at, pairs[i].text)) continue;
        sign = pairs[i].sign;
        length = 2;
    }
    if (sign == 0) {
        size_t bytes;
        jinja_point_at(lexer->text + at, lexer->bytes - at, &bytes);
        return jinja_fail_at(lexer->jinja, at, "unexpected character '%.*s'", (int)bytes, lexer->text + at);
    }
    if (sign == '(' || sign == '[' || sign == '{') {
        if (lexer->open >= TT_JINJA_NESTING_MAX)
            return jinja_fail_at(lexer->jinja, at, "more than %d brackets within each other",
                                 TT_JINJA_NESTING_MAX);
        lexer->closing[lexer->open++] = sign == '(' ? ')' : sign == '[' ? ']' : '}';
    } else if (sign == ')' || sign == ']' || sign == '}') {
        if (lexer->open == 0) return jinja_fail_at(lexer->jinja, at, "unexpected '%c'", sign);
        char expected = lexer->closing[--lexer->open];
        if (expected != sign)
            return jinja_fail_at(lexer->jinja, at, "unexpected '%c', expected '%c'", sign, expected);
    }
    TT_TRY(add_token(lexer, JINJA_TOKEN_SIGN, at, at + length));
    lexer->jinja->tokens[lexer->jinja->token_count - 1].sign = (uint16_t)sign;
    lexer->at += length;
    return TT_OK;
}

static tt_status add_word(struct lexer *lexer)
{
    size_t at = lexer->at, end;
    char c = lexer->text[at];
    enum jinja_token_type type = JINJA_TOKEN_NAME;
    if (tt_ascii_is_digit(c)) {
        end = float_end(lexer, at);
        type = end > at ? JINJA_TOKEN_FLOAT : JINJA_TOKEN_INTEGER;
        if (end == at) end = integer_end(lexer, at);
    } else {
        for (end = at;
             end < lexer->bytes && (is_name_start(lexer->text[end]) || tt_ascii_is_digit(lexer->text[end]));)
            end++;
    }
    lexer->at = end;
    return add_token(lexer, type, at, end);
}

/* The words and signs of a tag, up to its end. */
static tt_status add_tag(struct lexer *lexer, size_t start, bool is_block)
{
    TT_TRY(
        add_token(lexer, is_block ? JINJA_TOKEN_BLOCK_BEGIN : JINJA_TOKEN_VARIABLE_BEGIN, start, lexer->at));
    lexer->open = 0;
    for (;;) {
        skip_space(lexer);
        if (lexer->at >= lexer->bytes)
            return jinja_fail_at(lexer->jinja, start, "this tag has no end '%s'", is_block ? "%}" : "}}");
        size_t end = lexer->at;
        if (lexer->open == 0 && skip_end(lexer, is_block)) {
            enum jinja_token_type type = is_block ? JINJA_TOKEN_BLOCK_END : JINJA_TOKEN_VARIABLE_END;
            return add_token(lexer, type, end, lexer->at);
        }
        char c = lexer->text[lexer->at];
        if (c == '"' || c == '\'')
            TT_TRY(add_string(lexer));
        else if (tt_ascii_is_digit(c) || is_name_start(c))
            TT_TRY(add_word(lexer));
        else
            TT_TRY(add_sign(lexer));
    }
}

static tt_status tokenize(struct lexer *lexer)
{
    while (lexer->at < lexer->bytes) {
        size_t from = lexer->at, start = from;
        while (start + 1 < lexer->bytes &&
               !(lexer->text[start] == '{' && strchr("{%#", lexer->text[start + 1]) != NULL &&
                 lexer->text[start + 1] != '\0'))
            start++;
        if (start + 1 >= lexer->bytes) {
            TT_TRY(add_token(lexer, JINJA_TOKEN_DATA, from, lexer->bytes));
            break;
        }
        char mark = lexer->text[start + 1], sign = start + 2 < lexer->bytes ? lexer->text[start + 2] : '\0';
        TT_TRY(add_data(lexer, from, start, mark, sign));
        lexer->at = start + (sign == '-' || sign == '+' ? 3 : 2);
        if (mark == '#')
            TT_TRY(skip_comment(lexer, start));
        else
            TT_TRY(add_tag(lexer, start, mark == '%'));
        lexer->starts_line = lexer->text[lexer->at - 1] == '\n';
    }
    return add_token(lexer, JINJA_TOKEN_END, lexer->bytes, lexer->bytes);
}

tt_status jinja_tokenize(struct tt_jinja *jinja)
{
    struct lexer lexer = {.jinja = jinja, .text = jinja->text, .bytes = jinja->bytes, .starts_line = true};
    return tokenize(&lexer);
}

/* Appends the code point of `digits` hexadecimal digits at `at`. */
static tt_status append_escaped(struct tt_jinja *jinja, const struct jinja_token *token, size_t at,
                                int digits, struct tt_str *out)
{
    uint32_t point = 0;
    char text[4];
    for (int i = 0; i < digits; i++) {
        char c = at + (size_t)i < token->text.bytes ? token->text.data[at + (size_t)i] : '\0';
        if (!is_hexadecimal(c))
            return jinja_fail_at(jinja, token->offset + at, "an escape needs %d hexadecimal digits", digits);
        point = point << 4 | (uint32_t)(tt_ascii_is_digit(c) ? c - '0' : tt_ascii_upper(c) - 'A' + 10);
    }
    if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
        return jinja_fail_at(jinja, token->offset + at, "U+%04X is no character", (unsigned)point);
    return tt_str_append(out, text, jinja_encode(point, text));
}

/* One escape behind the backslash at `at`; *length gets the bytes that it takes with the backslash. */
static tt_status unescape_one(struct tt_jinja *jinja, const struct jinja_token *token, size_t at,
                              struct tt_str *out, size_t *length)
{
    static const char letters[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    const char *text = token->text.data;
    char c = text[at + 1], encoded[16];
    const char *found = c != '\0' ? strchr(letters, c) : NULL;
    *length = 2;
    if (found != NULL) return tt_str_append_char(out, values[found - letters]);
    if (c == '\n') return TT_OK;
    if (c == 'x' || c == 'u' || c == 'U') {
        int digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        *length = 2 + (size_t)digits;
        return append_escaped(jinja, token, at + 2, digits, out);
    }
    if (c == 'N')
        return jinja_fail_at(jinja, token->offset + at, "escapes by name (\\N{...}) are not supported");
    if (is_octal(c)) {
        uint32_t point = 0;
        for (*length = 1; *length < 4 && at + *length < token->text.bytes && is_octal(text[at + *length]);
             ++*length)
            point = point * 8 + (uint32_t)(text[at + *length] - '0');
        return tt_str_append(out, encoded, jinja_encode(point, encoded));
    }
    if ((unsigned char)c < 0x80) {
        encoded[0] = '\\';
        encoded[1] = c;
        return tt_str_append(out, encoded, 2);
    }
    /* The reference escapes what is not ASCII before it reads escapes, so that the backslash meets another one. */
    size_t bytes;
    uint32_t point = jinja_point_at(text + at + 1, token->text.bytes - at - 1, &bytes);
    *length = 1 + bytes;
    return tt_str_printf(out,
                         point < 0x100     ? "\\x%02x"
                         : point < 0x10000 ? "\\u%04x"
                                           : "\\U%08x",
                         (unsigned)point);
}

tt_status jinja_unescape(struct tt_jinja *jinja, const struct jinja_token *token, struct tt_str *out)
{
    for (size_t at = 0, length = 0; at < token->text.bytes; at += length) {
        const char *escape = memchr(token->text.data + at, '\\', token->text.bytes - at);
        length = escape != NULL ? (size_t)(escape - token->text.data) - at : token->text.bytes - at;
        if (length > 0)
            TT_TRY(tt_str_append(out, token->text.data + at, length));
        else
            TT_TRY(unescape_one(jinja, token, at, out, &length));
    }
    return TT_OK;
}
