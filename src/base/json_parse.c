/* The parser of base/json.h: one pass over the text, values in an arena.
 *
 * Every decoded string is shorter than its source with the quotes, so that one block as long as the text
 * holds all of them with their terminators. Members and elements are collected on a stack and copied into the
 * arena, as many as there are, when their object or list ends; lists of numbers are counted first. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_value.h"
#include "base/number.h"
#include "base/utf8.h"

/* A member, or an element, which has no key. */
struct entry {
    struct json_member member;
    const char *source; /* where its key begins */
};

struct parser {
    const char *start, *at, *end;
    const struct tt_json_source *source;
    struct tt_arena *arena;
    char *texts; /* the next free byte of the block of strings */
    struct entry *stack;
    size_t stacked, capacity;
    int depth;
};

static tt_status fail_at(const struct parser *parser, const char *at, const char *what)
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

static void skip_space(struct parser *parser)
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

/* The four digits of \uXXXX at `at`; -1 when they are none. */
static int32_t read_hex(const struct parser *parser, const char *at)
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

/* \uXXXX, or two of them that make one code point; parser->at stands on the 'u'. */
static tt_status read_unicode_escape(struct parser *parser, char **out)
{
    int32_t code = read_hex(parser, parser->at + 1);
    if (code < 0) return fail_at(parser, parser->at - 1, "\\u needs four hexadecimal digits");
    const char *escape = parser->at - 1;
    parser->at += 5;
    if (code >= 0xd800 && code < 0xe000) {
        bool pair =
            code < 0xdc00 && parser->end - parser->at >= 6 && parser->at[0] == '\\' && parser->at[1] == 'u';
        int32_t low = pair ? read_hex(parser, parser->at + 2) : -1;
        if (low < 0xdc00 || low > 0xdfff) return fail_at(parser, escape, "half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        parser->at += 6;
    }
    *out = write_utf8(*out, (uint32_t)code);
    return TT_OK;
}

/* parser->at stands behind the backslash. */
static tt_status read_escape(struct parser *parser, char **out)
{
    static const char letters[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    if (parser->at == parser->end) return fail_at(parser, parser->at, "the text ends inside a string");
    if (*parser->at == 'u') return read_unicode_escape(parser, out);
    const char *letter = *parser->at != '\0' ? strchr(letters, *parser->at) : NULL;
    if (letter == NULL)
        return fail_at(parser, parser->at - 1, "a backslash before a character that it does not go with");
    *(*out)++ = bytes[letter - letters];
    parser->at++;
    return TT_OK;
}

/* Whether one of eight bytes is '"', '\\', below a space, or not ASCII. The tricks are those of "Bit
 * Twiddling Hacks" (Anderson): x - 0x01..01 & ~x has a high bit where a byte of x was 0 (or above one that
 * was). */
static bool has_special(uint64_t word)
{
    const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    uint64_t quote = word ^ (ones * '"'), backslash = word ^ (ones * '\\');
    return ((word | ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | (word - ones * ' ')) &
            high) != 0;
}

/* Copies what needs no look at single bytes. */
static char *copy_plain(struct parser *parser, char *out)
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

/* parser->at stands on the opening quote. */
static tt_status read_string(struct parser *parser, char **text, uint32_t *bytes)
{
    const char *quote = parser->at++;
    char *out = parser->texts;
    for (;;) {
        out = copy_plain(parser, out);
        if (parser->at == parser->end) return fail_at(parser, quote, "a string that does not end");
        unsigned char c = (unsigned char)*parser->at;
        if (c == '"') break;
        if (c < ' ') return fail_at(parser, parser->at, "a control character inside a string");
        if (c == '\\') {
            parser->at++;
            TT_TRY(read_escape(parser, &out));
            continue;
        }
        uint32_t point;
        size_t length = tt_utf8_next(parser->at, (size_t)(parser->end - parser->at), &point);
        if (length == 0) return fail_at(parser, parser->at, "invalid UTF-8");
        for (; length > 0; length--) *out++ = *parser->at++;
    }
    parser->at++;
    *text = parser->texts;
    *bytes = (uint32_t)(out - parser->texts);
    *out = '\0';
    if (!parser->source->nul && memchr(*text, 0, *bytes) != NULL)
        return fail_at(parser, quote, "a string with the character U+0000");
    parser->texts = out + 1;
    return TT_OK;
}

/* ---- Numbers and words ---- */

static bool is_digit(const struct parser *parser, const char *at)
{
    return at < parser->end && *at >= '0' && *at <= '9';
}

/* The number as a terminated text in the block of strings, which keeps it only when the caller moves `texts`
 * on. */
static char *number_text(struct parser *parser, const char *number, size_t bytes)
{
    memcpy(parser->texts, number, bytes);
    parser->texts[bytes] = '\0';
    return parser->texts;
}

static void set_integer(struct parser *parser, const char *number, struct tt_json_value *value)
{
    bool negative = *number == '-', fits = true;
    uint64_t magnitude = 0, limit = (uint64_t)INT64_MAX + negative;
    for (const char *at = number + negative; at < parser->at && fits; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        fits = magnitude <= (limit - digit) / 10;
        magnitude = magnitude * 10 + digit;
    }
    if (fits) {
        value->type = TT_JSON_INTEGER;
        value->integer = (int64_t)(negative ? 0 - magnitude : magnitude);
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

static tt_status read_number(struct parser *parser, struct tt_json_value *value)
{
    const char *number = parser->at, *at = number + (*number == '-');
    bool real = false;
    if (!is_digit(parser, at)) return fail_at(parser, number, "a minus sign without a number");
    if (*at == '0' && is_digit(parser, at + 1))
        return fail_at(parser, number, "a number with a leading zero");
    while (is_digit(parser, at)) at++;
    if (at < parser->end && *at == '.') {
        real = true;
        if (!is_digit(parser, ++at)) return fail_at(parser, number, "a number that ends in its point");
        while (is_digit(parser, at)) at++;
    }
    if (at < parser->end && (*at == 'e' || *at == 'E')) {
        real = true;
        at++;
        if (at < parser->end && (*at == '+' || *at == '-')) at++;
        if (!is_digit(parser, at)) return fail_at(parser, number, "a number that ends in its exponent");
        while (is_digit(parser, at)) at++;
    }
    parser->at = at;
    if (!real) {
        set_integer(parser, number, value);
        return TT_OK;
    }
    value->type = TT_JSON_REAL;
    if (!read_exact(number, at, &value->real))
        (void)tt_parse_double_prefix(number_text(parser, number, (size_t)(at - number)), &value->real);
    return TT_OK;
}

static tt_status read_word(struct parser *parser, struct tt_json_value *value)
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
    return fail_at(parser, parser->at,
                   parser->at == parser->end ? "the text ends where a value is expected"
                                             : "a value is expected");
}

/* ---- Objects and lists ---- */

static tt_status push(struct parser *parser, const struct entry *entry)
{
    if (tt_grow((void **)&parser->stack, parser->stacked, &parser->capacity, sizeof *parser->stack) != 0)
        return TT_ERR_MEMORY;
    parser->stack[parser->stacked++] = *entry;
    return TT_OK;
}

static tt_status fail_duplicate(const struct parser *parser, const struct entry *entry)
{
    char what[160];
    snprintf(what, sizeof what, "duplicate key \"%.100s\"", entry->member.key);
    return fail_at(parser, entry->source, what);
}

static tt_status check_unique(const struct parser *parser, const struct entry *entries,
                              struct json_members *members, uint32_t count)
{
    uint32_t repeated = count;
    if (count > JSON_UNINDEXED_MAX) {
        members->slots = json_index_slots(count);
        members->index = tt_arena_alloc(parser->arena, members->slots * sizeof *members->index);
        if (members->index == NULL) return TT_ERR_MEMORY;
        repeated = json_index_fill(members, count);
    }
    for (uint32_t i = 1; count <= JSON_UNINDEXED_MAX && i < count && repeated == count; i++) {
        const struct json_member *a = &members->list[i];
        for (uint32_t j = 0; j < i; j++) {
            const struct json_member *b = &members->list[j];
            if (a->key_bytes == b->key_bytes && memcmp(a->key, b->key, a->key_bytes) == 0) repeated = i;
        }
    }
    return repeated == count ? TT_OK : fail_duplicate(parser, &entries[repeated]);
}

static tt_status close_object(struct parser *parser, size_t first, struct tt_json_value *value)
{
    const struct entry *entries = parser->stacked > first ? parser->stack + first : NULL;
    uint32_t count = (uint32_t)(parser->stacked - first);
    value->type = TT_JSON_OBJECT;
    value->count = count;
    parser->stacked = first;
    if (count == 0) return TT_OK;
    struct json_members *members = tt_arena_alloc(parser->arena, sizeof *members);
    if (members == NULL) return TT_ERR_MEMORY;
    members->list = tt_arena_alloc(parser->arena, count * sizeof *members->list);
    if (members->list == NULL) return TT_ERR_MEMORY;
    for (uint32_t i = 0; i < count; i++) members->list[i] = entries[i].member;
    value->members = members;
    return check_unique(parser, entries, members, count);
}

static tt_status close_list(struct parser *parser, size_t first, struct tt_json_value *value)
{
    const struct entry *entries = parser->stacked > first ? parser->stack + first : NULL;
    uint32_t count = (uint32_t)(parser->stacked - first);
    value->type = TT_JSON_LIST;
    value->count = count;
    parser->stacked = first;
    if (count == 0) return TT_OK;
    value->elements = tt_arena_alloc(parser->arena, count * sizeof *value->elements);
    if (value->elements == NULL) return TT_ERR_MEMORY;
    for (uint32_t i = 0; i < count; i++) value->elements[i] = entries[i].member.value;
    return TT_OK;
}

static tt_status read_value(struct parser *parser, struct tt_json_value *value);

/* Behind an element: true when another one follows, false when `end` closes. */
static tt_status read_separator(struct parser *parser, char end, bool *more)
{
    skip_space(parser);
    char c = parser->at < parser->end ? *parser->at : '\0';
    if (parser->at == parser->end)
        return fail_at(parser, parser->at, "the text ends inside an object or a list");
    if (c != ',' && c != end)
        return fail_at(parser, parser->at, end == '}' ? "',' or '}' is expected" : "',' or ']' is expected");
    *more = c == ',';
    parser->at++;
    skip_space(parser);
    return TT_OK;
}

/* Elements of a list that holds numbers only, 0: it does not, or has no end. */
static size_t count_numbers(const struct parser *parser)
{
    size_t count = 1;
    for (const char *c = parser->at; c < parser->end; c++) {
        if (*c == ']') return c > parser->at ? count : 0;
        if (*c == ',') count++;
        if (*c == '\0' || strchr("0123456789,-+.eE \n\r\t", *c) == NULL) return 0;
    }
    return 0;
}

/* Numbers need no stack: rows of ids are long, and take the memory of their values only. */
static tt_status read_numbers(struct parser *parser, size_t count, struct tt_json_value *value)
{
    bool more = true;
    value->type = TT_JSON_LIST;
    value->count = (uint32_t)count;
    value->elements = tt_arena_alloc(parser->arena, count * sizeof *value->elements);
    if (value->elements == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; more; i++) {
        value->elements[i] = (struct tt_json_value){0};
        TT_TRY(read_value(parser, &value->elements[i]));
        TT_TRY(read_separator(parser, ']', &more));
    }
    return TT_OK;
}

static tt_status read_list(struct parser *parser, struct tt_json_value *value)
{
    size_t first = parser->stacked, numbers = count_numbers(parser);
    if (numbers > 0) return read_numbers(parser, numbers, value);
    bool more = parser->at == parser->end || *parser->at != ']';
    if (!more) parser->at++;
    while (more) {
        struct entry entry = {.source = parser->at};
        TT_TRY(read_value(parser, &entry.member.value));
        TT_TRY(push(parser, &entry));
        TT_TRY(read_separator(parser, ']', &more));
    }
    return close_list(parser, first, value);
}

static tt_status read_key(struct parser *parser, struct entry *entry)
{
    entry->source = parser->at;
    if (parser->at == parser->end || *parser->at != '"')
        return fail_at(parser, parser->at, "a key in quotes is expected");
    TT_TRY(read_string(parser, &entry->member.key, &entry->member.key_bytes));
    skip_space(parser);
    if (parser->at == parser->end || *parser->at != ':')
        return fail_at(parser, parser->at, "':' is expected");
    parser->at++;
    skip_space(parser);
    return TT_OK;
}

static tt_status read_object(struct parser *parser, struct tt_json_value *value)
{
    size_t first = parser->stacked;
    bool more = parser->at == parser->end || *parser->at != '}';
    if (!more) parser->at++;
    while (more) {
        struct entry entry = {0};
        TT_TRY(read_key(parser, &entry));
        TT_TRY(read_value(parser, &entry.member.value));
        TT_TRY(push(parser, &entry));
        TT_TRY(read_separator(parser, '}', &more));
    }
    return close_object(parser, first, value);
}

/* parser->at stands on the first byte of the value. */
static tt_status read_value(struct parser *parser, struct tt_json_value *value)
{
    value->in_arena = true;
    char c = parser->at < parser->end ? *parser->at : '\0';
    if (c == '"') {
        value->type = TT_JSON_STRING;
        TT_TRY(read_string(parser, &value->text, &value->count));
        value->has_nul = memchr(value->text, 0, value->count) != NULL;
        return TT_OK;
    }
    bool number =
        (c >= '0' && c <= '9') || (c == '-' && (parser->end - parser->at < 2 || parser->at[1] != 'I'));
    if (number) return read_number(parser, value);
    if (c != '{' && c != '[') return read_word(parser, value);
    if (++parser->depth > TT_JSON_DEPTH_MAX) return fail_at(parser, parser->at, "nested too deeply");
    parser->at++;
    skip_space(parser);
    TT_TRY(c == '{' ? read_object(parser, value) : read_list(parser, value));
    parser->depth--;
    return TT_OK;
}

static tt_status read_document(struct parser *parser, struct tt_json_value *root)
{
    skip_space(parser);
    TT_TRY(read_value(parser, root));
    skip_space(parser);
    return parser->at == parser->end ? TT_OK : fail_at(parser, parser->at, "more text behind the value");
}

tt_status tt_json_parse_source(const struct tt_json_source *source, struct tt_json *json)
{
    struct tt_json made = {0};
    struct parser parser = {
        .start = source->text, .at = source->text, .source = source, .arena = &made.arena};
    tt_status status = TT_OK;
    if (source->bytes >= UINT32_MAX)
        return tt_fail(TT_ERR_DATA, "%s: %zu bytes of JSON; 4 GiB are the limit", source->origin,
                       source->bytes);
    parser.end = source->text + source->bytes;
    made.origin = tt_arena_strdup(&made.arena, source->origin);
    made.root = tt_arena_alloc(&made.arena, sizeof *made.root);
    parser.texts = tt_arena_alloc(&made.arena, source->bytes + 1);
    if (made.origin == NULL || made.root == NULL || parser.texts == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(read_document(&parser, made.root));
    *json = made;
out:
    tt_free(parser.stack);
    if (status != TT_OK) tt_arena_deinit(&made.arena);
    return status;
}
