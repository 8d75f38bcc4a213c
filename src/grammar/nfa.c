#include "grammar/nfa.h"

#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"

enum { INDENT_MAX = 16, POINT_MAX = 0x10FFFF };

void nfa_deinit(struct nfa *nfa)
{
    tt_free(nfa->edges);
    *nfa = (struct nfa){0};
}

uint32_t nfa_state(struct nfa *nfa)
{
    if (!grammar_spend(nfa->work, 1, 8)) return 0;
    return nfa->states++;
}

static void add(struct nfa *nfa, const struct nfa_edge *edge)
{
    if (!grammar_spend(nfa->work, 2, sizeof *edge)) return;
    tt_status status = tt_grow(&nfa->edges, nfa->count, &nfa->capacity);
    if (status != TT_OK)
        grammar_fail(nfa->work, status);
    else
        nfa->edges[nfa->count++] = *edge;
}

void nfa_bytes(struct nfa *nfa, uint32_t from, uint8_t low, uint8_t high, uint32_t to)
{
    add(nfa, &(struct nfa_edge){.from = from, .to = to, .kind = NFA_BYTES, .low = low, .high = high});
}

void nfa_empty(struct nfa *nfa, uint32_t from, uint32_t to)
{
    add(nfa, &(struct nfa_edge){.from = from, .to = to, .kind = NFA_EMPTY});
}

void nfa_call(struct nfa *nfa, uint32_t from, uint32_t net, uint32_t to)
{
    add(nfa, &(struct nfa_edge){.from = from, .to = to, .kind = NFA_CALL, .net = net});
}

void nfa_assert(struct nfa *nfa, uint32_t from, enum nfa_kind kind, uint32_t to)
{
    add(nfa, &(struct nfa_edge){.from = from, .to = to, .kind = (uint8_t)kind});
}

uint32_t nfa_text(struct nfa *nfa, uint32_t from, struct tt_span text)
{
    for (size_t i = 0; i < text.bytes; i++) {
        uint32_t next = nfa_state(nfa);
        nfa_bytes(nfa, from, (uint8_t)text.data[i], (uint8_t)text.data[i], next);
        from = next;
    }
    return from;
}

uint32_t nfa_word(struct nfa *nfa, uint32_t from, const char *word)
{
    return nfa_text(nfa, from, tt_span_of(word));
}

void nfa_word_to(struct nfa *nfa, uint32_t from, const char *word, uint32_t to)
{
    size_t last = strlen(word) - 1;
    from = nfa_text(nfa, from, (struct tt_span){word, last});
    nfa_bytes(nfa, from, (uint8_t)word[last], (uint8_t)word[last], to);
}

static int encode(uint32_t point, uint8_t bytes[4])
{
    if (point < 0x80) return bytes[0] = (uint8_t)point, 1;
    if (point < 0x800)
        return bytes[0] = (uint8_t)(0xC0 | point >> 6), bytes[1] = (uint8_t)(0x80 | (point & 63)), 2;
    if (point < 0x10000) {
        bytes[0] = (uint8_t)(0xE0 | point >> 12);
        bytes[1] = (uint8_t)(0x80 | (point >> 6 & 63));
        bytes[2] = (uint8_t)(0x80 | (point & 63));
        return 3;
    }
    bytes[0] = (uint8_t)(0xF0 | point >> 18);
    bytes[1] = (uint8_t)(0x80 | (point >> 12 & 63));
    bytes[2] = (uint8_t)(0x80 | (point >> 6 & 63));
    bytes[3] = (uint8_t)(0x80 | (point & 63));
    return 4;
}

/* Ranges whose ends have the same number of bytes: split until all but the last byte that differs are free. */
static void add_sequences(struct nfa *nfa, uint32_t from, uint32_t low, uint32_t high, uint32_t to)
{
    uint8_t first[4], last[4];
    int bytes = encode(low, first);
    encode(high, last);
    for (int i = 1; i < bytes; i++) {
        uint32_t mask = (UINT32_C(1) << 6 * i) - 1;
        if ((low & ~mask) == (high & ~mask)) continue;
        if ((low & mask) != 0) {
            add_sequences(nfa, from, low, low | mask, to);
            add_sequences(nfa, from, (low | mask) + 1, high, to);
            return;
        }
        if ((high & mask) != mask) {
            add_sequences(nfa, from, low, (high & ~mask) - 1, to);
            add_sequences(nfa, from, high & ~mask, high, to);
            return;
        }
    }
    for (int i = 0; i < bytes; i++) {
        uint32_t next = i + 1 == bytes ? to : nfa_state(nfa);
        nfa_bytes(nfa, from, first[i], last[i], next);
        from = next;
    }
}

void nfa_points(struct nfa *nfa, uint32_t from, uint32_t low, uint32_t high, uint32_t to)
{
    /* Where the number of bytes changes, and around the surrogates. */
    static const uint32_t parts[][2] = {
        {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, POINT_MAX}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        uint32_t a = low > parts[i][0] ? low : parts[i][0], b = high < parts[i][1] ? high : parts[i][1];
        if (a <= b && grammar_is_well(nfa->work)) add_sequences(nfa, from, a, b, to);
    }
}

/* The letter of a short escape; 0: none. */
static char short_escape(uint32_t point)
{
    switch (point) {
    case '"':
        return '"';
    case '\\':
        return '\\';
    case '\b':
        return 'b';
    case '\f':
        return 'f';
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    }
    return 0;
}

static void add_escape(struct nfa *nfa, uint32_t from, uint32_t point, uint32_t to)
{
    static const char digits[] = "0123456789abcdef";
    char letter = short_escape(point);
    char text[7] = {'\\', letter, 0};
    if (letter == 0) {
        memcpy(text, "\\u00", 4);
        text[4] = digits[point >> 4];
        text[5] = digits[point & 15];
        text[6] = 0;
    }
    nfa_word_to(nfa, from, text, to);
}

void nfa_json_points(struct nfa *nfa, uint32_t from, uint32_t low, uint32_t high, uint32_t to)
{
    static const uint32_t plain[][2] = {{' ', '!'}, {'#', '['}, {']', POINT_MAX}};
    for (uint32_t point = low > 1 ? low : 1; point <= high && point <= '\\'; point++)
        if (point < ' ' || point == '"' || point == '\\') add_escape(nfa, from, point, to);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        uint32_t a = low > plain[i][0] ? low : plain[i][0], b = high < plain[i][1] ? high : plain[i][1];
        if (a <= b) nfa_points(nfa, from, a, b, to);
    }
}

static void add_hex(struct nfa *nfa, uint32_t from, uint32_t to)
{
    nfa_bytes(nfa, from, '0', '9', to);
    nfa_bytes(nfa, from, 'a', 'f', to);
    nfa_bytes(nfa, from, 'A', 'F', to);
}

/* Four digits behind \u: of characters below U+D800 and from U+E000 on, and pairs of surrogates. U+0000 is left
 * out. */
static void add_codes(struct nfa *nfa, uint32_t from, uint32_t to)
{
    uint32_t one = nfa_state(nfa), two = nfa_state(nfa), three = nfa_state(nfa);
    uint32_t zero = nfa_state(nfa), zeros = nfa_state(nfa), low_zeros = nfa_state(nfa), d = nfa_state(nfa);
    nfa_bytes(nfa, from, '0', '0', zero);
    nfa_bytes(nfa, from, '1', '9', one);
    nfa_bytes(nfa, from, 'a', 'c', one);
    nfa_bytes(nfa, from, 'A', 'C', one);
    nfa_bytes(nfa, from, 'e', 'f', one);
    nfa_bytes(nfa, from, 'E', 'F', one);
    nfa_bytes(nfa, from, 'd', 'd', d);
    nfa_bytes(nfa, from, 'D', 'D', d);
    add_hex(nfa, one, two);
    add_hex(nfa, two, three);
    add_hex(nfa, three, to);
    nfa_bytes(nfa, zero, '0', '0', zeros);
    nfa_bytes(nfa, zero, '1', '9', two);
    nfa_bytes(nfa, zero, 'a', 'f', two);
    nfa_bytes(nfa, zero, 'A', 'F', two);
    nfa_bytes(nfa, zeros, '0', '0', low_zeros);
    nfa_bytes(nfa, zeros, '1', '9', three);
    nfa_bytes(nfa, zeros, 'a', 'f', three);
    nfa_bytes(nfa, zeros, 'A', 'F', three);
    nfa_bytes(nfa, low_zeros, '1', '9', to);
    nfa_bytes(nfa, low_zeros, 'a', 'f', to);
    nfa_bytes(nfa, low_zeros, 'A', 'F', to);
    nfa_bytes(nfa, d, '0', '7', two);
    uint32_t high = nfa_state(nfa), high_one = nfa_state(nfa), high_two = nfa_state(nfa);
    nfa_bytes(nfa, d, '8', '9', high);
    nfa_bytes(nfa, d, 'a', 'b', high);
    nfa_bytes(nfa, d, 'A', 'B', high);
    add_hex(nfa, high, high_one);
    add_hex(nfa, high_one, high_two);
    uint32_t second = nfa_word(nfa, high_two, "\\u"), low = nfa_state(nfa), low_one = nfa_state(nfa);
    nfa_bytes(nfa, second, 'd', 'd', low);
    nfa_bytes(nfa, second, 'D', 'D', low);
    uint32_t low_two = nfa_state(nfa);
    nfa_bytes(nfa, low, 'c', 'f', low_one);
    nfa_bytes(nfa, low, 'C', 'F', low_one);
    add_hex(nfa, low_one, low_two);
    add_hex(nfa, low_two, to);
}

void nfa_json_any(struct nfa *nfa, uint32_t from, bool codes, uint32_t to)
{
    static const char letters[] = "\"\\/bfnrt";
    nfa_points(nfa, from, ' ', '!', to);
    nfa_points(nfa, from, '#', '[', to);
    nfa_points(nfa, from, ']', POINT_MAX, to);
    uint32_t escape = nfa_state(nfa);
    nfa_bytes(nfa, from, '\\', '\\', escape);
    for (size_t i = 0; i < sizeof letters - 1; i++)
        nfa_bytes(nfa, escape, (uint8_t)letters[i], (uint8_t)letters[i], to);
    if (!codes) return;
    uint32_t digits = nfa_state(nfa);
    nfa_bytes(nfa, escape, 'u', 'u', digits);
    add_codes(nfa, digits, to);
}

uint32_t nfa_json_text(struct nfa *nfa, uint32_t from, struct tt_span text)
{
    from = nfa_word(nfa, from, "\"");
    for (size_t at = 0, length; at < text.bytes; at += length) {
        uint32_t point, next = nfa_state(nfa);
        length = tt_utf8_next(text.data + at, text.bytes - at, &point);
        if (length == 0 || point == 0) { /* only texts of parsed JSON come here, without U+0000 */
            grammar_refuse(nfa->work, "a text of the grammar has U+0000 or is not UTF-8");
            return from;
        }
        nfa_json_points(nfa, from, point, point, next);
        from = next;
    }
    return nfa_word(nfa, from, "\"");
}

void nfa_space(struct nfa *nfa, uint32_t from, uint32_t to)
{
    nfa_empty(nfa, from, to);
    nfa_bytes(nfa, from, ' ', ' ', to);
    uint32_t at = nfa_state(nfa);
    nfa_bytes(nfa, from, '\n', '\n', at);
    nfa_empty(nfa, at, to);
    for (int i = 0; i < INDENT_MAX; i++) {
        uint32_t next = i + 1 == INDENT_MAX ? to : nfa_state(nfa);
        nfa_bytes(nfa, at, ' ', ' ', next);
        nfa_bytes(nfa, at, '\t', '\t', next);
        if (next != to) nfa_empty(nfa, next, to);
        at = next;
    }
}
