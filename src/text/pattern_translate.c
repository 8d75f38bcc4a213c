/* Translates patterns of Oniguruma's syntax into PCRE2's. */
#include <string.h>

#include "text/pattern.h"
#include "text/pattern_class.h"
#include "text/unicode.h"

enum { GROUP_DEPTH_MAX = 200, PATTERN_BYTES_MAX = 1 << 16 };
static const size_t NO_ATOM = SIZE_MAX;

struct group {
    size_t start; /* position of its '(' in the output */
    int extra;    /* parentheses opened inside it by options such as (?i) */
    bool fold;    /* whether case was ignored before it */
};

struct translator {
    struct pattern_reader in;
    struct tt_str *out;
    size_t atom;     /* start of the last atom in the output; NO_ATOM when no quantifier may follow */
    bool quantified; /* the last atom has a quantifier already */
    int32_t letter;  /* the last atom if it is a letter whose case is ignored, else -1 */
    struct group groups[GROUP_DEPTH_MAX];
    int depth; /* groups[depth] is the innermost; groups[0] is the whole pattern */
};

static void begin_atom(struct translator *t)
{
    t->atom = t->out->bytes;
    t->quantified = false;
    t->letter = -1;
}

/* Encloses the last atom in "(?:" and ")". */
static tt_status wrap_atom(struct translator *t)
{
    TT_TRY(tt_str_append_text(t->out, "(?:)"));
    char *at = t->out->data + t->atom;
    memmove(at + 3, at, t->out->bytes - t->atom - 4);
    memcpy(at, "(?:", 3);
    t->out->data[t->out->bytes - 1] = ')';
    return TT_OK;
}

/* Reads "{n}", "{n,}", "{n,m}" or "{,m}"; any other '{' is a plain character. high is -1 for no limit. */
static bool take_interval(struct pattern_reader *in, int *low, int *high)
{
    size_t start = in->at;
    int values[2] = {-1, -1};
    bool comma = false;
    pattern_take(in);
    for (;;) {
        int32_t code = pattern_take(in);
        int *value = &values[comma];
        if (code >= '0' && code <= '9' && *value < 100000)
            *value = (*value < 0 ? 0 : *value * 10) + (int)(code - '0');
        else if (code == ',' && !comma)
            comma = true;
        else if (code == '}' && (values[0] >= 0 || values[1] >= 0))
            break;
        else {
            in->at = start;
            return false;
        }
    }
    *low = values[0] < 0 ? 0 : values[0];
    *high = comma ? values[1] : values[0];
    return true;
}

/* Reads one quantifier, if there is one. */
static tt_status take_quantifier(struct translator *t, bool *found)
{
    int32_t code = pattern_peek(&t->in);
    int low = 0, high = 0;
    bool interval = code == '{';
    *found = code == '*' || code == '+' || code == '?' || (interval && take_interval(&t->in, &low, &high));
    if (!*found) return TT_OK;
    if (t->atom == NO_ATOM) return pattern_unsupported(&t->in, "a quantifier without a target");
    if (t->quantified) TT_TRY(wrap_atom(t));
    t->quantified = true;
    t->letter = -1;
    if (!interval) {
        pattern_take(&t->in);
        TT_TRY(tt_str_append_char(t->out, (char)code));
        if (pattern_accept(&t->in, "?")) return tt_str_append_char(t->out, '?');
        if (pattern_accept(&t->in, "+")) return tt_str_append_char(t->out, '+');
        return TT_OK;
    }
    if (high >= 0 && low > high) return pattern_unsupported(&t->in, "a repetition from more to less");
    if (high < 0)
        TT_TRY(tt_str_printf(t->out, "{%d,}", low));
    else
        TT_TRY(tt_str_printf(t->out, "{%d,%d}", low, high));
    /* "{n}?" is an optional repetition; after the other intervals '?' means lazy. */
    if (low != high && pattern_accept(&t->in, "?")) return tt_str_append_char(t->out, '?');
    return TT_OK;
}

static tt_status open_group(struct translator *t, const char *text)
{
    if (t->depth + 1 == GROUP_DEPTH_MAX) return pattern_unsupported(&t->in, "groups nested too deeply");
    t->depth++;
    t->groups[t->depth] = (struct group){t->out->bytes, 0, t->in.fold};
    t->atom = NO_ATOM;
    return tt_str_append_text(t->out, text);
}

static tt_status close_group(struct translator *t)
{
    for (; t->groups[t->depth].extra > 0; t->groups[t->depth].extra--)
        TT_TRY(tt_str_append_char(t->out, ')'));
    if (t->depth == 0) return TT_OK;
    TT_TRY(tt_str_append_char(t->out, ')'));
    t->atom = t->groups[t->depth].start;
    t->quantified = false;
    t->in.fold = t->groups[t->depth].fold;
    t->depth--;
    return TT_OK;
}

/* Reads "flags)" or "flags:" after "(?". Ruby's m is PCRE2's s. A flag without a group is active until the end
 * of the enclosing group, alternatives included. */
static tt_status take_options(struct translator *t)
{
    char flags[16] = "(?";
    size_t count = 2;
    bool on = true, fold = t->in.fold;
    for (;;) {
        int32_t code = pattern_take(&t->in);
        if (code == '-') on = false;
        if (code == 'i') fold = on;
        if (code == 'i' || code == 'm' || code == '-') {
            if (count + 3 > sizeof flags) return pattern_unsupported(&t->in, "too many flags");
            flags[count++] = code == 'm' ? 's' : (char)code;
        } else if (code == ':' || code == ')') {
            flags[count++] = ':';
            flags[count] = 0;
            if (code == ':') TT_TRY(open_group(t, flags));
            t->in.fold = fold;
            if (code == ':') return TT_OK;
            if (t->groups[t->depth].extra >= 50) return pattern_unsupported(&t->in, "too many flags");
            t->groups[t->depth].extra++;
            t->atom = NO_ATOM;
            return tt_str_append_text(t->out, flags);
        } else {
            return pattern_unsupported(&t->in, "an unknown kind of group");
        }
    }
}

static tt_status take_name(struct translator *t, const char *before)
{
    struct tt_str text = {0};
    tt_status status = tt_str_append_text(&text, before);
    int32_t code = 0;
    while (status == TT_OK && (code = pattern_take(&t->in)) != '>') {
        bool fits =
            code == '_' || (code >= '0' && code <= '9') || ((code | 0x20) >= 'a' && (code | 0x20) <= 'z');
        status = fits && code < 0x80 ? tt_str_append_char(&text, (char)code)
                                     : pattern_unsupported(&t->in, "an unusual name");
    }
    if (status == TT_OK) status = tt_str_append_char(&text, '>');
    if (status == TT_OK && before[0] == '(') status = open_group(t, text.data);
    if (status == TT_OK && before[0] == '\\') {
        begin_atom(t);
        status = tt_str_append(t->out, text.data, text.bytes);
    }
    tt_str_deinit(&text);
    return status;
}

static tt_status take_group(struct translator *t)
{
    static const char *const kinds[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
    if (pattern_accept(&t->in, "*")) return pattern_unsupported(&t->in, "a callout");
    if (!pattern_accept(&t->in, "?")) return open_group(t, "(");
    if (pattern_accept(&t->in, "#")) {
        int32_t code;
        while ((code = pattern_take(&t->in)) != ')') {
            if (code < 0) return pattern_unsupported(&t->in, "a comment without an end");
        }
        return TT_OK;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (pattern_accept(&t->in, kinds[i] + 2)) return open_group(t, kinds[i]);
    }
    if (pattern_accept(&t->in, "<")) return take_name(t, "(?<");
    return take_options(t);
}

/* Oniguruma uses full case folding: (?i)\u00df matches "ss" and (?i)ss matches \u00df, also when a group begins
 * between the two letters. PCRE2 folds single characters, so letters and pairs of letters that need full folding
 * are refused. */
static tt_status check_fold(struct translator *t, int32_t before, int32_t code)
{
    if (!tt_unicode_folds_simply(code, code))
        return pattern_unsupported(&t->in, "a case-insensitive letter that folds to several letters");
    if (before >= 0 && tt_unicode_folds_together(before, code)) {
        return pattern_unsupported(&t->in, "two case-insensitive letters that one letter folds to");
    }
    t->letter = code;
    return TT_OK;
}

static tt_status append_code(struct translator *t, int32_t code)
{
    int32_t before = t->letter;
    begin_atom(t);
    if (t->in.fold) TT_TRY(check_fold(t, before, code));
    bool plain =
        code >= 0x80 || (code >= '0' && code <= '9') || ((code | 0x20) >= 'a' && (code | 0x20) <= 'z');
    if (!plain) return tt_str_printf(t->out, "\\x{%x}", (unsigned)code);
    char encoded[4];
    return tt_str_append(t->out, encoded, tt_utf8_encode(code, encoded));
}

/* Appends \b and \B with Oniguruma's word characters. */
static tt_status append_border(struct translator *t, bool border)
{
    struct tt_str w = {0};
    tt_status status = pattern_word_items(&w);
    begin_atom(t);
    if (status == TT_OK) {
        const char *format = border ? "(?-i:(?<=[%s])(?![%s])|(?<![%s])(?=[%s]))"
                                    : "(?-i:(?<=[%s])(?=[%s])|(?<![%s])(?![%s]))";
        status = tt_str_printf(t->out, format, w.data, w.data, w.data, w.data);
    }
    tt_str_deinit(&w);
    return status;
}

static tt_status take_escape(struct translator *t)
{
    struct pattern_set set = {0};
    bool found = false;
    tt_status status = pattern_take_set_escape(&t->in, &set, &found);
    if (status == TT_OK && found) {
        begin_atom(t);
        /* Oniguruma does not fold a set outside of brackets: (?i)\p{Lu} matches upper case only. PCRE2 10.42 does not
         * either; newer versions fold the set, or the code points listed in it. */
        if (t->in.fold) status = tt_str_append_text(t->out, "(?-i:");
        if (status == TT_OK) status = pattern_append_lone_set(t->out, &set);
        if (status == TT_OK && t->in.fold) status = tt_str_append_char(t->out, ')');
    }
    pattern_set_deinit(&set);
    if (status != TT_OK || found) return status;
    int32_t code;
    TT_TRY(pattern_take_code_escape(&t->in, &code));
    if (code >= 0) return append_code(t, code);
    code = pattern_take(&t->in);
    begin_atom(t);
    if (t->in.fold && (code == 'k' || (code >= '1' && code <= '9')))
        return pattern_unsupported(&t->in, "a case-insensitive back reference");
    switch (code) {
    case 'A':
        return tt_str_append_text(t->out, "\\A");
    case 'z':
        return tt_str_append_text(t->out, "\\z");
    case 'Z':
        return tt_str_append_text(t->out, "\\Z");
    case 'G':
        return tt_str_append_text(t->out, "\\G");
    case 'X':
        return pattern_unsupported(&t->in, "\\X (grapheme clusters depend on the version of Unicode)");
    case 'R':
        return tt_str_append_text(t->out, "(?>\\r\\n|[\\x{a}-\\x{d}\\x{85}\\x{2028}\\x{2029}])");
    case 'b':
        return append_border(t, true);
    case 'B':
        return append_border(t, false);
    case 'k':
        if (pattern_accept(&t->in, "<")) return take_name(t, "\\k<");
        break;
    default:
        if (code >= '1' && code <= '9') return tt_str_printf(t->out, "\\g{%d}", (int)(code - '0'));
    }
    return pattern_unsupported(&t->in, "an unknown escape");
}

static tt_status take_one(struct translator *t)
{
    bool quantifier = false;
    TT_TRY(take_quantifier(t, &quantifier));
    if (quantifier) return TT_OK;
    int32_t code = pattern_take(&t->in);
    switch (code) {
    case '\\':
        return take_escape(t);
    case '(':
        return take_group(t);
    case ')':
        if (t->depth == 0) return pattern_unsupported(&t->in, "a closing parenthesis too many");
        return close_group(t);
    case '[':
        begin_atom(t);
        return pattern_take_class(&t->in, t->out);
    case '|':
        t->atom = NO_ATOM;
        t->letter = -1;
        return tt_str_append_char(t->out, '|');
    case '.':
    case '^':
    case '$':
        begin_atom(t);
        return tt_str_append_char(t->out, (char)code);
    default:
        return append_code(t, code);
    }
}

tt_status tt_pattern_translate(const char *pattern, size_t bytes, struct tt_str *out)
{
    if (bytes > PATTERN_BYTES_MAX) {
        return tt_fail(TT_ERR_UNSUPPORTED, "a pattern of %zu bytes; at most %d are read", bytes,
                       PATTERN_BYTES_MAX);
    }
    struct translator t = {
        .in = {.text = pattern, .bytes = bytes}, .out = out, .atom = NO_ATOM, .letter = -1};
    tt_str_clear(out);
    while (t.in.at < t.in.bytes) TT_TRY(take_one(&t));
    if (t.depth > 0) return pattern_unsupported(&t.in, "a group without an end");
    return close_group(&t);
}
