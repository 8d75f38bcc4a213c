#include "text/pattern_class.h"

#include <string.h>

#include "text/unicode.h"

enum { CLASS_DEPTH_MAX = 32 };
#define ANY_CHARACTER "(?s:.)"
/* Superscript digits and fractions of Latin-1: Oniguruma's word characters outside of brackets only. */
#define LATIN1_WORD_ITEMS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

tt_status pattern_unsupported(const struct pattern_reader *reader, const char *what)
{
    return tt_fail(TT_ERR_UNSUPPORTED, "%s at byte %zu of a pattern", what, reader->at);
}

int32_t pattern_peek(const struct pattern_reader *reader)
{
    if (reader->at >= reader->bytes) return -1;
    size_t length;
    return tt_utf8_decode(reader->text + reader->at, &length);
}

int32_t pattern_take(struct pattern_reader *reader)
{
    if (reader->at >= reader->bytes) return -1;
    size_t length;
    int32_t code = tt_utf8_decode(reader->text + reader->at, &length);
    reader->at += length;
    return code;
}

bool pattern_accept(struct pattern_reader *reader, const char *text)
{
    size_t bytes = strlen(text);
    if (reader->bytes - reader->at < bytes || memcmp(reader->text + reader->at, text, bytes) != 0)
        return false;
    reader->at += bytes;
    return true;
}

static int digit_value(int32_t code, int base)
{
    int value = code >= '0' && code <= '9'   ? code - '0'
                : code >= 'a' && code <= 'f' ? code - 'a' + 10
                : code >= 'A' && code <= 'F' ? code - 'A' + 10
                                             : 99;
    return value < base ? value : -1;
}

/* Reads up to `most` digits; returns their number. */
static int take_digits(struct pattern_reader *reader, int base, int most, int32_t *value)
{
    int count = 0;
    *value = 0;
    while (count < most) {
        int digit = digit_value(pattern_peek(reader), base);
        if (digit < 0) break;
        *value = *value * base + digit;
        pattern_take(reader);
        count++;
    }
    return count;
}

tt_status pattern_take_code_escape(struct pattern_reader *reader, int32_t *code)
{
    static const char simple[] = "t\tn\nr\rf\fv\va\ae\x1b";
    int32_t letter = pattern_peek(reader);
    *code = -1;
    for (const char *pair = simple; *pair != 0; pair += 2) {
        if (letter != pair[0]) continue;
        pattern_take(reader);
        *code = pair[1];
        return TT_OK;
    }
    if (letter == 'x' || letter == 'u') {
        pattern_take(reader);
        bool braces = letter == 'x' && pattern_accept(reader, "{");
        int most = braces ? 7 : letter == 'x' ? 2 : 4;
        int count = take_digits(reader, 16, most, code);
        if (braces && !pattern_accept(reader, "}"))
            return pattern_unsupported(reader, "a list of code points");
        if (count == 0 || (letter == 'u' && count != 4))
            return pattern_unsupported(reader, "an incomplete escape");
        /* Oniguruma reads \xHH\xHH as the bytes of one character; as two characters they would differ. */
        if (letter == 'x' && !braces && *code >= 0x80)
            return pattern_unsupported(reader, "an escaped byte above 7F");
        if (*code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000)) {
            return pattern_unsupported(reader, "an escape that is no character");
        }
        return TT_OK;
    }
    if (letter == '0') {
        take_digits(reader, 8, 3, code);
        return TT_OK;
    }
    bool alphanumeric =
        letter >= 0 && letter < 0x80 &&
        (digit_value(letter | 0x20, 16) >= 0 || ((letter | 0x20) >= 'a' && (letter | 0x20) <= 'z'));
    if (letter >= 0 && !alphanumeric) *code = pattern_take(reader);
    return TT_OK;
}

/* Reads "{Name}" or "{^Name}" after \p, or "Name:]" of a POSIX bracket, including `close`. */
static tt_status take_named_set(struct pattern_reader *reader, const char *close, struct pattern_set *set)
{
    char name[64];
    size_t count = 0;
    if (pattern_accept(reader, "^")) set->negated = !set->negated;
    while (!pattern_accept(reader, close)) {
        int32_t code = pattern_take(reader);
        if (code < 0 || code > 0x7E || count + 1 == sizeof name)
            return pattern_unsupported(reader, "a broken name");
        if (code == ' ' || code == '_' || code == '-') continue;
        if (code >= 'A' && code <= 'Z') code += 'a' - 'A';
        if (digit_value(code, 10) < 0 && (code < 'a' || code > 'z')) {
            return pattern_unsupported(reader, "a broken name");
        }
        name[count++] = (char)code;
    }
    name[count] = 0;
    set->is_word = strcmp(name, "word") == 0 && !set->negated;
    /* [[:punct:]] contains symbols too, \p{Punct} does not. */
    if (close[0] == ':' && strcmp(name, "punct") == 0) TT_TRY(pattern_append_named_set(reader, "s", set));
    return pattern_append_named_set(reader, name, set);
}

tt_status pattern_word_items(struct tt_str *items)
{
    struct pattern_reader nowhere = {0};
    struct pattern_set set = {0};
    tt_status status = pattern_append_named_set(&nowhere, "word", &set);
    if (status == TT_OK) status = tt_str_append(items, tt_str_text(&set.items), set.items.bytes);
    if (status == TT_OK) status = tt_str_append_text(items, LATIN1_WORD_ITEMS);
    pattern_set_deinit(&set);
    return status;
}

tt_status pattern_take_set_escape(struct pattern_reader *reader, struct pattern_set *set, bool *found)
{
    static const char letters[] = "dDsSwWhHpP";
    int32_t letter = pattern_peek(reader);
    *found = letter > 0 && letter < 0x80 && strchr(letters, letter) != NULL;
    if (!*found) return TT_OK;
    pattern_take(reader);
    set->negated = letter < 'a';
    switch (letter | 0x20) {
    case 'd':
        return pattern_append_named_set(reader, "nd", set);
    case 's':
        return pattern_append_named_set(reader, "space", set);
    case 'w':
        set->is_word = true;
        return pattern_append_named_set(reader, "word", set);
    case 'h':
        return pattern_append_named_set(reader, "xdigit", set);
    default:
        break;
    }
    if (!pattern_accept(reader, "{")) return pattern_unsupported(reader, "a property without braces");
    return take_named_set(reader, "}", set);
}

tt_status pattern_append_lone_set(struct tt_str *out, struct pattern_set *set)
{
    if (set->is_word) TT_TRY(tt_str_append_text(&set->items, LATIN1_WORD_ITEMS));
    return pattern_append_set(out, set);
}

tt_status pattern_append_set(struct tt_str *out, const struct pattern_set *set)
{
    const char *items = tt_str_text(&set->items), *without = tt_str_text(&set->without);
    if (set->without.bytes == 0) return tt_str_printf(out, set->negated ? "[^%s]" : "[%s]", items);
    if (set->negated) return tt_str_printf(out, "(?:[^%s]|[%s])", items, without);
    return tt_str_printf(out, "(?:[%s](?<![%s]))", items, without);
}

void pattern_set_deinit(struct pattern_set *set)
{
    tt_str_deinit(&set->items);
    tt_str_deinit(&set->without);
}

/* A bracket expression that is being read. The union so far is "[items]" and the alternatives of `others` (each
 * preceded by a '|'); `terms` has the complete operands of && as look-aheads. */
struct bracket {
    struct tt_str items, others, terms;
    bool negated;
};

static void bracket_deinit(struct bracket *bracket)
{
    tt_str_deinit(&bracket->items);
    tt_str_deinit(&bracket->others);
    tt_str_deinit(&bracket->terms);
}

static tt_status append_union(const struct bracket *bracket, struct tt_str *out)
{
    if (bracket->items.bytes == 0 && bracket->others.bytes == 0) return tt_str_append_text(out, "(?!)");
    if (bracket->others.bytes == 0) return tt_str_printf(out, "[%s]", bracket->items.data);
    if (bracket->items.bytes == 0) return tt_str_printf(out, "(?:%s)", bracket->others.data + 1);
    return tt_str_printf(out, "(?:[%s]%s)", bracket->items.data, bracket->others.data);
}

/* Ends one operand of &&. */
static tt_status close_term(struct bracket *bracket)
{
    TT_TRY(tt_str_append_text(&bracket->terms, "(?="));
    TT_TRY(append_union(bracket, &bracket->terms));
    TT_TRY(tt_str_append_char(&bracket->terms, ')'));
    tt_str_clear(&bracket->items);
    tt_str_clear(&bracket->others);
    return TT_OK;
}

static tt_status append_bracket(struct bracket *bracket, struct tt_str *out)
{
    bool simple = bracket->terms.bytes == 0 && bracket->others.bytes == 0 && bracket->items.bytes > 0;
    if (simple) return tt_str_printf(out, bracket->negated ? "[^%s]" : "[%s]", bracket->items.data);
    if (bracket->terms.bytes > 0) {
        TT_TRY(close_term(bracket));
    } else if (!bracket->negated) {
        return append_union(bracket, out);
    }
    TT_TRY(tt_str_append_text(out, bracket->negated ? "(?:(?!" : "(?:"));
    if (bracket->terms.bytes > 0) {
        TT_TRY(tt_str_append(out, bracket->terms.data, bracket->terms.bytes));
    } else {
        TT_TRY(append_union(bracket, out));
    }
    return tt_str_append_text(out, bracket->negated ? ")" ANY_CHARACTER ")" : ANY_CHARACTER ")");
}

/* Oniguruma adds to a bracket expression under (?i) the other cases of all its characters. If the expression is not
 * negated it also adds the sequences that its characters fold to. Only sets that this does not change, or changes by
 * one character, are supported. */
static tt_status add_set(struct pattern_reader *reader, struct bracket *bracket,
                         const struct pattern_set *set)
{
    if (reader->fold) {
        bool letters = set->fold == PATTERN_FOLD_LETTERS;
        if (set->negated || set->fold == PATTERN_FOLD_CHANGES || (letters && !bracket->negated))
            return pattern_unsupported(reader, "a set in case-insensitive brackets");
        /* U+0345 is a mark, and an iota in another case. */
        if (letters) TT_TRY(tt_str_append_text(&bracket->items, "\\x{345}"));
    }
    if (!set->negated && set->without.bytes == 0)
        return tt_str_append(&bracket->items, tt_str_text(&set->items), set->items.bytes);
    TT_TRY(tt_str_append_char(&bracket->others, '|'));
    return pattern_append_set(&bracket->others, set);
}

static tt_status take_bracket(struct pattern_reader *reader, int depth, struct tt_str *out,
                              struct tt_str *merge);

/* Reads the end of a range after "first-"; false when it is not a single character. */
static tt_status take_range_end(struct pattern_reader *reader, int32_t *last)
{
    size_t start = reader->at;
    *last = -1;
    if (pattern_accept(reader, "\\")) {
        if (pattern_accept(reader, "b"))
            *last = '\b';
        else
            TT_TRY(pattern_take_code_escape(reader, last));
    } else if (pattern_peek(reader) != '[' && pattern_peek(reader) != ']') {
        *last = pattern_take(reader);
    }
    if (*last < 0) reader->at = start;
    return TT_OK;
}

static tt_status add_code(struct pattern_reader *reader, struct bracket *bracket, int32_t first)
{
    size_t start = reader->at;
    int32_t last = -1;
    if (pattern_accept(reader, "-")) TT_TRY(take_range_end(reader, &last));
    if (last < 0) {
        reader->at = start;
        last = first;
    }
    if (last < first) return pattern_unsupported(reader, "an empty range");
    if (reader->fold && !tt_unicode_folds_simply(first, last))
        return pattern_unsupported(reader, "a case-insensitive letter that folds to several letters");
    return pattern_append_range(&bracket->items, first, last);
}

/* Reads one element: an escape, a nested bracket, a POSIX bracket, a character or a range. */
static tt_status take_element(struct pattern_reader *reader, int depth, struct bracket *bracket)
{
    struct pattern_set set = {0};
    tt_status status = TT_OK;
    if (pattern_accept(reader, "\\")) {
        bool found = false;
        int32_t code = -1;
        TT_GO(pattern_take_set_escape(reader, &set, &found));
        if (found) {
            bool range = reader->bytes - reader->at > 1 && reader->text[reader->at] == '-' &&
                         reader->text[reader->at + 1] != ']';
            if (range) TT_GO(pattern_unsupported(reader, "a range that begins with a set"));
            TT_GO(add_set(reader, bracket, &set));
            goto out;
        }
        if (pattern_accept(reader, "b"))
            code = '\b';
        else
            TT_GO(pattern_take_code_escape(reader, &code));
        if (code < 0) TT_GO(pattern_unsupported(reader, "an unknown escape in brackets"));
        TT_GO(add_code(reader, bracket, code));
    } else if (pattern_accept(reader, "[:")) {
        TT_GO(take_named_set(reader, ":]", &set));
        TT_GO(add_set(reader, bracket, &set));
    } else if (pattern_accept(reader, "[")) {
        if (depth == CLASS_DEPTH_MAX) TT_GO(pattern_unsupported(reader, "brackets nested too deeply"));
        if (reader->fold && pattern_peek(reader) == '^')
            TT_GO(pattern_unsupported(reader, "negated brackets in case-insensitive ones"));
        TT_GO(take_bracket(reader, depth + 1, &bracket->others, &bracket->items));
    } else {
        TT_GO(add_code(reader, bracket, pattern_take(reader)));
    }
out:
    pattern_set_deinit(&set);
    return status;
}

/* Appends the expression to `out`. Inside another bracket `merge` has the items of that one: a simple set is
 * added to them, any other expression becomes an alternative in `out`. */
static tt_status take_bracket(struct pattern_reader *reader, int depth, struct tt_str *out,
                              struct tt_str *merge)
{
    struct bracket bracket = {.negated = pattern_accept(reader, "^")};
    tt_status status = TT_OK;
    if (pattern_peek(reader) == ']') {
        /* "[]a]": the first ] is a character if another ] follows. */
        if (memchr(reader->text + reader->at + 1, ']', reader->bytes - reader->at - 1) == NULL) {
            TT_GO(pattern_unsupported(reader, "empty brackets"));
        }
        TT_GO(add_code(reader, &bracket, pattern_take(reader)));
    }
    while (!pattern_accept(reader, "]")) {
        if (pattern_peek(reader) < 0) TT_GO(pattern_unsupported(reader, "brackets without an end"));
        bool intersection = pattern_accept(reader, "&&");
        if (intersection && reader->fold)
            TT_GO(pattern_unsupported(reader, "a case-insensitive intersection"));
        if (intersection)
            TT_GO(close_term(&bracket));
        else
            TT_GO(take_element(reader, depth, &bracket));
    }
    bool simple = !bracket.negated && bracket.terms.bytes == 0 && bracket.others.bytes == 0;
    if (merge != NULL && simple) {
        TT_GO(tt_str_append(merge, tt_str_text(&bracket.items), bracket.items.bytes));
    } else {
        if (merge != NULL) TT_GO(tt_str_append_char(out, '|'));
        TT_GO(append_bracket(&bracket, out));
    }
out:
    bracket_deinit(&bracket);
    return status;
}

tt_status pattern_take_class(struct pattern_reader *reader, struct tt_str *out)
{
    return take_bracket(reader, 0, out, NULL);
}
