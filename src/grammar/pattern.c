#include "grammar/pattern.h"

#include "base/utf8.h"

enum { DEPTH_MAX = 64, REPEAT_MAX = 100000, RANGES_MAX = 256, POINT_MAX = 0x10FFFF };

struct range {
    uint32_t low, high;
};
struct ranges {
    struct range list[RANGES_MAX];
    size_t count;
};

struct parser {
    struct nfa *nfa;
    const char *start, *at, *end;
    bool json;
    int depth;
};

static const struct range digits[] = {{'0', '9'}};
static const struct range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct range spaces[] = {{9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                      {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                      {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
static const struct range line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

static void refuse(struct parser *p, const char *what)
{
    size_t bytes = (size_t)(p->end - p->start);
    grammar_refuse(p->nfa->work, "the pattern '%.*s' at byte %zu: %s", bytes < 80 ? (int)bytes : 80, p->start,
                   (size_t)(p->at - p->start), what);
    p->at = p->end;
}

static bool more(const struct parser *p)
{
    return p->at < p->end && grammar_is_well(p->nfa->work);
}

static bool take(struct parser *p, char c)
{
    if (!more(p) || *p->at != c) return false;
    p->at++;
    return true;
}

/* ---- Sets of characters ---- */

static void add_range(struct parser *p, struct ranges *set, uint32_t low, uint32_t high)
{
    if (set->count == RANGES_MAX)
        refuse(p, "this class has more than 256 ranges");
    else
        set->list[set->count++] = (struct range){low, high};
}

static void add_ranges(struct parser *p, struct ranges *set, const struct range *list, size_t count,
                       bool negated)
{
    uint32_t next = 0;
    for (size_t i = 0; i < count; i++) {
        if (!negated) add_range(p, set, list[i].low, list[i].high);
        if (negated && list[i].low > next) add_range(p, set, next, list[i].low - 1);
        next = list[i].high + 1;
    }
    if (negated && next <= POINT_MAX) add_range(p, set, next, POINT_MAX);
}

/* Sorted, without overlaps. */
static void join_ranges(struct ranges *set)
{
    size_t kept = 0;
    for (size_t i = 1; i < set->count; i++) {
        struct range moved = set->list[i];
        size_t at = i;
        for (; at > 0 && set->list[at - 1].low > moved.low; at--) set->list[at] = set->list[at - 1];
        set->list[at] = moved;
    }
    for (size_t i = 0; i < set->count; i++) {
        struct range *last = kept > 0 ? &set->list[kept - 1] : NULL;
        if (last != NULL && set->list[i].low <= last->high + 1) {
            if (set->list[i].high > last->high) last->high = set->list[i].high;
        } else {
            set->list[kept++] = set->list[i];
        }
    }
    set->count = kept;
}

static uint32_t add_set(struct parser *p, uint32_t from, struct ranges *set, bool negated)
{
    struct ranges opposite = {.count = 0};
    uint32_t to = nfa_state(p->nfa);
    join_ranges(set);
    if (negated) add_ranges(p, &opposite, set->list, set->count, true);
    const struct ranges *chosen = negated ? &opposite : set;
    for (size_t i = 0; i < chosen->count; i++) {
        if (p->json)
            nfa_json_points(p->nfa, from, chosen->list[i].low, chosen->list[i].high, to);
        else
            nfa_points(p->nfa, from, chosen->list[i].low, chosen->list[i].high, to);
    }
    return to;
}

/* \d, \W and the like behind the backslash; false: another letter. */
static bool take_class_letter(struct parser *p, struct ranges *set)
{
    if (!more(p)) return false;
    char letter = *p->at, lower = (char)(letter | 0x20);
    bool negated = letter != lower;
    if (lower != 'd' && lower != 'w' && lower != 's') return false;
    p->at++;
    if (lower == 'd') add_ranges(p, set, digits, sizeof digits / sizeof *digits, negated);
    if (lower == 'w') add_ranges(p, set, words, sizeof words / sizeof *words, negated);
    if (lower == 's') add_ranges(p, set, spaces, sizeof spaces / sizeof *spaces, negated);
    return true;
}

static int hex_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') return (c | 0x20) - 'a' + 10;
    return -1;
}

/* `count` hexadecimal digits. */
static uint32_t take_hex(struct parser *p, int count)
{
    uint32_t value = 0;
    for (int i = 0; i < count; i++) {
        int digit = more(p) ? hex_of(*p->at) : -1;
        if (digit < 0) {
            refuse(p, "hexadecimal digits are missing");
            return 0;
        }
        value = value * 16 + (uint32_t)digit;
        p->at++;
    }
    return value;
}

/* \uXXXX, a pair of them, or \u{X...}. */
static uint32_t take_code(struct parser *p)
{
    uint32_t value = 0;
    if (take(p, '{')) {
        while (more(p) && hex_of(*p->at) >= 0 && value <= POINT_MAX)
            value = value * 16 + (uint32_t)hex_of(*p->at++);
        if (!take(p, '}') || value > POINT_MAX) refuse(p, "\\u{...} is no code point");
        return value;
    }
    value = take_hex(p, 4);
    if (value >= 0xD800 && value < 0xDC00 && p->end - p->at >= 6 && p->at[0] == '\\' && p->at[1] == 'u') {
        p->at += 2;
        uint32_t low = take_hex(p, 4);
        if (low < 0xDC00 || low > 0xDFFF) refuse(p, "a surrogate has no pair");
        return 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    }
    if (value >= 0xD800 && value < 0xE000) refuse(p, "a surrogate has no pair");
    return value;
}

/* The character of an escape, behind the backslash. */
static uint32_t take_escaped(struct parser *p, bool in_class)
{
    if (!more(p)) {
        refuse(p, "a backslash at the end");
        return 0;
    }
    char c = *p->at++;
    switch (c) {
    case 't':
        return '\t';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 'f':
        return '\f';
    case 'v':
        return '\v';
    case 'x':
        return take_hex(p, 2);
    case 'u':
        return take_code(p);
    case 'b':
        if (in_class) return '\b';
        break;
    case 'c':
        if (more(p) && (*p->at | 0x20) >= 'a' && (*p->at | 0x20) <= 'z') return (uint32_t)(*p->at++ & 31);
        break;
    case '0':
        if (!more(p) || *p->at < '0' || *p->at > '9') return 0;
        break;
    default:
        if ((unsigned char)c < 0x80 && hex_of(c) < 0 && !((c | 0x20) >= 'g' && (c | 0x20) <= 'z'))
            return (uint32_t)c;
    }
    p->at--;
    refuse(p, "this escape is not supported");
    return 0;
}

static uint32_t take_point(struct parser *p)
{
    uint32_t point = 0;
    size_t length = tt_utf8_next(p->at, (size_t)(p->end - p->at), &point);
    if (length == 0) {
        refuse(p, "it is not UTF-8");
        return 0;
    }
    p->at += length;
    return point;
}

/* One element of a class: *single: a character, which may begin a range. */
static uint32_t take_element(struct parser *p, struct ranges *set, bool *single)
{
    *single = true;
    if (!take(p, '\\')) return take_point(p);
    *single = !take_class_letter(p, set);
    return *single ? take_escaped(p, true) : 0;
}

/* The bracket is taken. */
static uint32_t parse_class(struct parser *p, uint32_t from)
{
    struct ranges set = {.count = 0};
    bool negated = take(p, '^'), single, second;
    while (more(p) && *p->at != ']') {
        uint32_t low = take_element(p, &set, &single), high = low;
        bool ranges = p->end - p->at >= 2 && p->at[0] == '-' && p->at[1] != ']';
        if (ranges) {
            p->at++;
            high = take_element(p, &set, &second);
            if (!single || !second || high < low) refuse(p, "this range is out of order");
        }
        if (single) add_range(p, &set, low, high);
    }
    if (!take(p, ']')) refuse(p, "a class has no end");
    return add_set(p, from, &set, negated);
}

/* ---- Expressions ---- */

static uint32_t parse_choice(struct parser *p, uint32_t from);

/* The parenthesis is taken. */
static uint32_t parse_group(struct parser *p, uint32_t from)
{
    if (take(p, '?')) {
        take(p, 'P');
        bool named = p->end - p->at >= 2 && p->at[0] == '<' && p->at[1] != '=' && p->at[1] != '!';
        if (named)
            while (more(p) && *p->at != '>') p->at++;
        if (!take(p, named ? '>' : ':')) {
            refuse(p, "this kind of group is not supported");
            return from;
        }
    }
    if (++p->depth > DEPTH_MAX) refuse(p, "groups are more than 64 deep");
    uint32_t to = parse_choice(p, from);
    p->depth--;
    if (!take(p, ')')) refuse(p, "a parenthesis has no end");
    return to;
}

static uint32_t parse_atom(struct parser *p, uint32_t from)
{
    struct ranges set = {.count = 0};
    if (take(p, '(')) return parse_group(p, from);
    if (take(p, '[')) return parse_class(p, from);
    if (take(p, '.')) {
        add_ranges(p, &set, line_ends, sizeof line_ends / sizeof *line_ends, true);
        return add_set(p, from, &set, false);
    }
    if (take(p, '\\')) {
        if (!take_class_letter(p, &set)) {
            uint32_t point = take_escaped(p, false);
            add_range(p, &set, point, point);
        }
        return add_set(p, from, &set, false);
    }
    if (more(p) && (*p->at == '*' || *p->at == '+' || *p->at == '?' || *p->at == '{')) {
        refuse(p, "there is nothing to repeat");
        return from;
    }
    uint32_t point = take_point(p);
    add_range(p, &set, point, point);
    return add_set(p, from, &set, false);
}

static int64_t take_count(struct parser *p)
{
    int64_t value = -1;
    while (more(p) && *p->at >= '0' && *p->at <= '9') {
        value = (value < 0 ? 0 : value * 10) + (*p->at++ - '0');
        if (value > REPEAT_MAX) refuse(p, "a count above 100000");
    }
    return value;
}

/* {n}, {n,} or {n,m}, * + or ?; false: none. max -1: without a limit. */
static bool take_quantifier(struct parser *p, int64_t *min, int64_t *max)
{
    *min = *max = 1;
    if (take(p, '*'))
        *min = 0, *max = -1;
    else if (take(p, '+'))
        *max = -1;
    else if (take(p, '?'))
        *min = 0;
    else if (take(p, '{')) {
        *min = *max = take_count(p);
        if (*min < 0) refuse(p, "a count is missing");
        if (take(p, ',')) *max = take_count(p);
        if (!take(p, '}')) refuse(p, "a count has no end");
        if (*max >= 0 && *max < *min) refuse(p, "these counts are out of order");
    } else {
        return false;
    }
    take(p, '?'); /* a lazy one matches the same texts */
    return true;
}

/* One more copy of the atom that begins at `atom`. */
static uint32_t copy_atom(struct parser *p, const char *atom, uint32_t from)
{
    const char *behind = p->at;
    uint32_t begin = nfa_state(p->nfa);
    nfa_empty(p->nfa, from, begin);
    grammar_spend(p->nfa->work, 4, 0);
    p->at = atom;
    uint32_t to = parse_atom(p, begin);
    p->at = grammar_is_well(p->nfa->work) ? behind : p->end;
    return to;
}

static uint32_t parse_repeated(struct parser *p, uint32_t from)
{
    const char *atom = p->at;
    int64_t min, max;
    struct nfa *nfa = p->nfa;
    uint32_t begin = nfa_state(nfa), to = parse_atom(p, begin);
    if (!take_quantifier(p, &min, &max)) {
        nfa_empty(nfa, from, begin);
        return to;
    }
    for (int64_t i = 0; i < min && grammar_is_well(nfa->work); i++) from = copy_atom(p, atom, from);
    if (max < 0) {
        uint32_t loop = nfa_state(nfa);
        nfa_empty(nfa, from, loop);
        nfa_empty(nfa, copy_atom(p, atom, loop), loop);
        return loop;
    }
    uint32_t end = nfa_state(nfa);
    for (int64_t i = min; i < max && grammar_is_well(nfa->work); i++) {
        nfa_empty(nfa, from, end);
        from = copy_atom(p, atom, from);
    }
    nfa_empty(nfa, from, end);
    return end;
}

static uint32_t parse_sequence(struct parser *p, uint32_t from)
{
    while (more(p) && *p->at != '|' && *p->at != ')') {
        bool begins = *p->at == '^';
        if (begins || *p->at == '$') {
            uint32_t next = nfa_state(p->nfa);
            p->at++;
            nfa_assert(p->nfa, from, begins ? NFA_BEGIN : NFA_END, next);
            from = next;
        } else {
            from = parse_repeated(p, from);
        }
    }
    return from;
}

static uint32_t parse_choice(struct parser *p, uint32_t from)
{
    uint32_t to = nfa_state(p->nfa);
    do {
        uint32_t begin = nfa_state(p->nfa);
        nfa_empty(p->nfa, from, begin);
        nfa_empty(p->nfa, parse_sequence(p, begin), to);
    } while (take(p, '|'));
    return to;
}

/* ---- Assertions ---- */

/* Copies of all states: before the first character or behind it, and before or behind a $, which no character
 * follows. */
static void resolve_assertions(const struct nfa *nfa, struct nfa *out)
{
    uint32_t n = nfa->states;
    grammar_spend(nfa->work, 4 * (size_t)n, 0);
    out->states = 4 * n;
    for (size_t i = 0; i < nfa->count && grammar_is_well(nfa->work); i++) {
        const struct nfa_edge *edge = &nfa->edges[i];
        uint32_t from = edge->from, to = edge->to;
        for (uint32_t behind = 0; behind < 2; behind++) {
            if (edge->kind == NFA_BYTES) {
                nfa_bytes(out, from + behind * n, edge->low, edge->high, to + n);
                continue;
            }
            if (edge->kind == NFA_BEGIN && behind > 0) continue;
            for (uint32_t ended = 0; ended < 2; ended++) {
                uint32_t to_ended = edge->kind == NFA_END ? 1 : ended;
                nfa_empty(out, from + (behind + 2 * ended) * n, to + (behind + 2 * to_ended) * n);
            }
        }
    }
}

void pattern_compile(struct grammar_work *work, struct tt_span pattern, const struct pattern_options *options,
                     struct dfa *out)
{
    struct nfa nfa = {.work = work}, resolved = {.work = work};
    struct parser p = {.nfa = &nfa, .json = options->json, .start = pattern.data};
    p.at = p.start;
    p.end = p.start + pattern.bytes;
    *out = (struct dfa){0};
    uint32_t start = nfa_state(&nfa), begin = nfa_state(&nfa), end = parse_choice(&p, begin);
    nfa_empty(&nfa, start, begin);
    if (p.at < p.end && grammar_is_well(work)) refuse(&p, "a parenthesis has no begin");
    if (options->search) {
        uint32_t rest = nfa_state(&nfa);
        nfa_empty(&nfa, end, rest);
        const uint32_t loops[] = {start, rest};
        for (int i = 0; i < 2; i++) {
            if (options->json)
                nfa_json_points(&nfa, loops[i], 0, POINT_MAX, loops[i]);
            else
                nfa_points(&nfa, loops[i], 0, POINT_MAX, loops[i]);
        }
        end = rest;
    }
    if (grammar_is_well(work)) resolve_assertions(&nfa, &resolved);
    uint32_t last = nfa_state(&resolved);
    for (uint32_t copy = 0; copy < 4; copy++) nfa_empty(&resolved, end + copy * nfa.states, last);
    dfa_of_nfa(&resolved, start, last, out);
    nfa_deinit(&nfa);
    nfa_deinit(&resolved);
}
