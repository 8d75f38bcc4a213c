/* Numbers between bounds: decimals are compared digit by digit. A number is its value times 10^places, an integer. */
#include <math.h>
#include <string.h>

#include "base/integer.h"
#include "base/number.h"
#include "grammar/lexical.h"

enum { DIGITS_MAX = 18, DOUBLE_DIGITS = 15, PLACES = 6, MULTIPLE_MAX = 10000 };

static const int64_t largest = INT64_C(999999999999999999);

static int64_t power_of_ten(int exponent)
{
    int64_t power = 1;
    while (exponent-- > 0) power *= 10;
    return power;
}

static int count_digits(int64_t value)
{
    int digits = 1;
    while (value >= 10) value /= 10, digits++;
    return digits;
}

/* ---- Bounds ---- */

struct decimal {
    bool negative;
    int64_t digits;
    int exponent; /* the value is digits times 10^exponent */
};

/* The shortest decimal of a double: what is above or below it is so as a double too, because rounding keeps the
 * order. */
static struct decimal decimal_of(double value)
{
    char text[TT_DOUBLE_TEXT_BYTES];
    struct decimal out = {.negative = value < 0};
    bool fraction = false;
    tt_format_double(fabs(value), text, sizeof text);
    const char *at = text;
    for (; *at != 0 && *at != 'e'; at++) {
        if (*at == '.') {
            fraction = true;
            continue;
        }
        out.digits = out.digits * 10 + (*at - '0');
        out.exponent -= fraction;
    }
    if (*at == 'e') {
        bool minus = at[1] == '-';
        int exponent = 0;
        for (at += 2; *at != 0; at++) exponent = exponent * 10 + (*at - '0');
        out.exponent += minus ? -exponent : exponent;
    }
    while (out.digits != 0 && out.digits % 10 == 0) out.digits /= 10, out.exponent++;
    if (out.digits == 0) out.exponent = 0;
    return out;
}

/* The value times 10^places, rounded up or down; *exact: it is whole. False: it has more than 18 digits. */
static bool scale(struct decimal value, int places, bool up, int64_t *out, bool *exact)
{
    int shift = value.exponent + places;
    int64_t scaled = value.digits;
    *exact = true;
    for (; shift > 0 && scaled != 0; shift--) {
        if (scaled > largest / 10) return false;
        scaled *= 10;
    }
    for (; shift < 0 && scaled != 0; shift++) {
        *exact = *exact && scaled % 10 == 0;
        scaled /= 10;
    }
    if (value.negative) scaled = -scaled;
    if (!*exact && up && !value.negative) scaled++;
    if (!*exact && !up && value.negative) scaled--;
    *out = scaled;
    return true;
}

struct interval {
    bool has_low, has_high, is_empty;
    int64_t low, high;
    int places;
};

static int whole_digits(double value)
{
    double size = fabs(value);
    int digits = 1;
    while (size >= 10 && digits < DOUBLE_DIGITS) size /= 10, digits++;
    return digits;
}

static struct interval make_interval(const struct lexical_number *spec)
{
    struct interval out = {.has_low = spec->has_min, .has_high = spec->has_max};
    struct decimal min = decimal_of(spec->min), max = decimal_of(spec->max);
    bool exact;
    if (!spec->whole) {
        int needed = PLACES, whole = 1;
        if (spec->has_min) needed = (int)tt_larger(needed, -min.exponent), whole = whole_digits(spec->min);
        if (spec->has_max) needed = (int)tt_larger(needed, -max.exponent);
        if (spec->has_max) whole = (int)tt_larger(whole, whole_digits(spec->max));
        out.places = (int)tt_smaller(needed, DOUBLE_DIGITS - whole);
    }
    /* Bounds of more than 18 digits leave nothing, or do not bound what has 18. */
    if (spec->has_min && scale(min, out.places, true, &out.low, &exact))
        out.low += exact && spec->above_min;
    else if (spec->has_min)
        out.is_empty = !min.negative, out.low = -largest;
    if (spec->has_max && scale(max, out.places, false, &out.high, &exact))
        out.high -= exact && spec->below_max;
    else if (spec->has_max)
        out.is_empty = out.is_empty || max.negative, out.high = largest;
    return out;
}

/* ---- Digits ---- */

/* low .. high, not negative, with `whole` digits before the point and up to `places` behind it. A state is a place
 * and whether the digits so far are those of `low` and of `high`. */
static void add_same_length(struct nfa *nfa, uint32_t from, int64_t low, int64_t high, int whole, int places,
                            uint32_t to)
{
    int digits = whole + places;
    uint32_t at[2][2] = {{UINT32_MAX, UINT32_MAX}, {UINT32_MAX, UINT32_MAX}};
    at[1][1] = from;
    for (int place = 0; place <= digits && grammar_is_well(nfa->work); place++) {
        int64_t unit = power_of_ten(digits - place);
        uint32_t next[2][2] = {{UINT32_MAX, UINT32_MAX}, {UINT32_MAX, UINT32_MAX}};
        for (int state = 0; state < 4; state++) {
            int is_low = state & 1, is_high = state >> 1;
            uint32_t here = at[is_low][is_high];
            if (here == UINT32_MAX) continue;
            if (place >= whole && (!is_low || low % unit == 0)) nfa_empty(nfa, here, to);
            if (place == digits) continue;
            if (place == whole) here = nfa_word(nfa, here, ".");
            int least = is_low ? (int)(low / (unit / 10) % 10) : 0;
            int most = is_high ? (int)(high / (unit / 10) % 10) : 9;
            for (int digit = least; digit <= most; digit++) {
                uint32_t *target = &next[is_low && digit == least][is_high && digit == most];
                if (*target == UINT32_MAX) *target = nfa_state(nfa);
                nfa_bytes(nfa, here, (uint8_t)('0' + digit), (uint8_t)('0' + digit), *target);
            }
        }
        memcpy(at, next, sizeof at);
    }
}

static void add_fraction(struct nfa *nfa, uint32_t from, int places, uint32_t to)
{
    nfa_empty(nfa, from, to);
    if (places > 0) from = nfa_word(nfa, from, ".");
    for (int i = 0; i < places; i++) {
        uint32_t next = nfa_state(nfa);
        nfa_bytes(nfa, from, '0', '9', next);
        nfa_empty(nfa, next, to);
        from = next;
    }
}

/* low or more, not negative; without has_high there is no end. */
static void add_magnitudes(struct nfa *nfa, uint32_t from, int64_t low, bool has_high, int64_t high,
                           int places, uint32_t to)
{
    int64_t one = power_of_ten(places);
    int first = count_digits(low / one), last = has_high ? count_digits(high / one) : first;
    if (has_high && low > high) return;
    for (int whole = first; whole <= last; whole++) {
        int64_t least = whole == 1 ? 0 : power_of_ten(whole - 1) * one;
        int64_t most = whole + places >= DIGITS_MAX ? largest : power_of_ten(whole) * one - 1;
        if (least < low) least = low;
        if (has_high && most > high) most = high;
        if (least <= most) add_same_length(nfa, from, least, most, whole, places, to);
    }
    if (has_high) return;
    uint32_t at = nfa_state(nfa), fraction = nfa_state(nfa);
    nfa_bytes(nfa, from, '1', '9', at);
    for (int i = 1; i < DIGITS_MAX; i++) {
        if (i > last) nfa_empty(nfa, at, fraction);
        uint32_t next = nfa_state(nfa);
        nfa_bytes(nfa, at, '0', '9', next);
        at = next;
    }
    nfa_empty(nfa, at, fraction);
    add_fraction(nfa, fraction, places, to);
}

static void add_interval(struct nfa *nfa, uint32_t from, const struct interval *interval, uint32_t to)
{
    if (interval->is_empty) return;
    if (!interval->has_high || interval->high >= 0) {
        int64_t low = interval->has_low && interval->low > 0 ? interval->low : 0;
        add_magnitudes(nfa, from, low, interval->has_high, interval->high, interval->places, to);
    }
    if (!interval->has_low || interval->low < 0) {
        int64_t low = interval->has_high && interval->high < 0 ? -interval->high : 1;
        add_magnitudes(nfa, nfa_word(nfa, from, "-"), low, interval->has_low, -interval->low,
                       interval->places, to);
    }
}

/* -?(0|[1-9][0-9]{0,17}), of a number with a fraction and an exponent of one or two digits, which keep it a double. */
static void add_any(struct nfa *nfa, uint32_t from, bool whole, uint32_t to)
{
    uint32_t begin = nfa_state(nfa), digits = nfa_state(nfa), fraction = nfa_state(nfa),
             exponent = nfa_state(nfa);
    nfa_empty(nfa, from, begin);
    nfa_bytes(nfa, begin, '0', '0', fraction);
    nfa_bytes(nfa, begin, '1', '9', digits);
    nfa_empty(nfa, digits, fraction);
    for (uint32_t i = 1, at = digits, next; i < DIGITS_MAX; i++, at = next) {
        next = nfa_state(nfa);
        nfa_bytes(nfa, at, '0', '9', next);
        nfa_empty(nfa, next, fraction);
    }
    nfa_empty(nfa, fraction, to);
    uint32_t negative = nfa_word(nfa, from, "-");
    nfa_bytes(nfa, negative, '1', '9', digits);
    if (whole) return;
    nfa_bytes(nfa, negative, '0', '0', fraction);
    uint32_t point = nfa_word(nfa, fraction, "."), behind = nfa_state(nfa), sign = nfa_state(nfa);
    nfa_bytes(nfa, point, '0', '9', behind);
    nfa_bytes(nfa, behind, '0', '9', behind);
    nfa_empty(nfa, behind, to);
    nfa_empty(nfa, behind, exponent);
    nfa_empty(nfa, fraction, exponent);
    nfa_bytes(nfa, exponent, 'e', 'e', sign);
    nfa_bytes(nfa, exponent, 'E', 'E', sign);
    uint32_t power = nfa_state(nfa), one = nfa_state(nfa);
    nfa_empty(nfa, sign, power);
    nfa_bytes(nfa, sign, '+', '+', power);
    nfa_bytes(nfa, sign, '-', '-', power);
    nfa_bytes(nfa, power, '0', '9', one);
    nfa_empty(nfa, one, to);
    nfa_bytes(nfa, one, '0', '9', to);
}

/* Integers by their rest. */
static void make_multiples(struct grammar_work *work, int64_t multiple, struct dfa *out)
{
    struct nfa nfa = {.work = work};
    uint32_t from = nfa_state(&nfa), first = nfa_state(&nfa), to;
    for (int64_t i = 1; i < multiple && grammar_is_well(work); i++) nfa_state(&nfa);
    nfa_bytes(&nfa, from, '-', '-', from);
    for (int64_t rest = -1; rest < multiple && grammar_is_well(work); rest++)
        for (int64_t digit = 0; digit < 10; digit++) {
            int64_t next = (rest > 0 ? rest * 10 + digit : digit) % multiple;
            nfa_bytes(&nfa, rest < 0 ? from : first + (uint32_t)rest, (uint8_t)('0' + digit),
                      (uint8_t)('0' + digit), first + (uint32_t)next);
        }
    to = nfa_state(&nfa);
    nfa_empty(&nfa, first, to);
    dfa_of_nfa(&nfa, from, to, out);
    nfa_deinit(&nfa);
}

void lexical_number(struct grammar_work *work, const struct lexical_number *spec, struct dfa *out)
{
    struct nfa nfa = {.work = work};
    struct lexical_number chosen = *spec;
    struct dfa multiples = {0}, both = {0};
    if (spec->multiple > 0) {
        /* Doubles tell integers of 15 digits apart, and so the rests of them. */
        double most = (double)(power_of_ten(DOUBLE_DIGITS) - 1);
        chosen.whole = true;
        if (!spec->has_max || spec->max > most)
            chosen.max = most, chosen.has_max = true, chosen.below_max = false;
        if (!spec->has_min || spec->min < -most)
            chosen.min = -most, chosen.has_min = true, chosen.above_min = false;
    }
    if (spec->multiple > MULTIPLE_MAX)
        grammar_refuse(work, "multipleOf is %lld: at most %d is supported", (long long)spec->multiple,
                       MULTIPLE_MAX);
    uint32_t from = nfa_state(&nfa), to = nfa_state(&nfa);
    struct interval interval = make_interval(&chosen);
    if (chosen.has_min || chosen.has_max)
        add_interval(&nfa, from, &interval, to);
    else
        add_any(&nfa, from, chosen.whole, to);
    dfa_of_nfa(&nfa, from, to, out);
    nfa_deinit(&nfa);
    if (spec->multiple <= 1 || !grammar_is_well(work)) return;
    make_multiples(work, spec->multiple, &multiples);
    dfa_combine(work, out, &multiples, false, &both);
    dfa_deinit(&multiples);
    dfa_deinit(out);
    *out = both;
}
