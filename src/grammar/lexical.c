/* Strings, keys and given values; numbers are in number.c. */
#include "grammar/lexical.h"

#include "base/number.h"
#include "grammar/pattern.h"

enum { POINT_MAX = 0x10FFFF };

/* Replaces *dfa by what is in `other` too, which it takes. */
static void restrict_to(struct grammar_work *work, struct dfa *dfa, struct dfa *other, bool subtract)
{
    struct dfa both = {0};
    dfa_combine(work, dfa, other, subtract, &both);
    dfa_deinit(dfa);
    dfa_deinit(other);
    *dfa = both;
}

/* Any character, once; or any number of times where `loops`. */
static void make_any(struct grammar_work *work, bool loops, struct dfa *out)
{
    struct nfa nfa = {.work = work};
    uint32_t from = nfa_state(&nfa), to = loops ? from : nfa_state(&nfa);
    nfa_json_any(&nfa, from, loops, to);
    dfa_of_nfa(&nfa, from, to, out);
    nfa_deinit(&nfa);
}

void lexical_string(struct grammar_work *work, const struct lexical_string *spec, struct dfa *out)
{
    struct dfa body = {0}, unit = {0}, pattern = {0};
    const struct pattern_options options = {.json = true, .search = true};
    if (spec->min > 0 || spec->max >= 0) {
        make_any(work, false, &unit);
        dfa_repeat(work, &unit, spec->min, spec->max, &body);
        dfa_deinit(&unit);
    } else {
        make_any(work, true, &body);
    }
    for (size_t i = 0; i < spec->pattern_count && grammar_is_well(work); i++) {
        pattern_compile(work, spec->patterns[i], &options, &pattern);
        restrict_to(work, &body, &pattern, false);
    }
    dfa_quote(work, &body, out);
    dfa_deinit(&body);
}

static void add_plain(struct nfa *nfa, uint32_t from, uint32_t to)
{
    nfa_points(nfa, from, ' ', '!', to);
    nfa_points(nfa, from, '#', '[', to);
    nfa_points(nfa, from, ']', POINT_MAX, to);
}

void lexical_key(struct grammar_work *work, const struct lexical_key *spec, struct dfa *out)
{
    struct nfa nfa = {.work = work}, named = {.work = work};
    struct dfa body = {0}, names = {0};
    uint32_t count = spec->modulus > 0 ? spec->modulus : 1, first = nfa_state(&nfa), end = 0;
    for (uint32_t i = 1; i < count; i++) nfa_state(&nfa);
    for (uint32_t i = 0; i < count && grammar_is_well(work); i++)
        add_plain(&nfa, first + i, first + (i + 1) % count);
    end = nfa_state(&nfa);
    nfa_empty(&nfa, first + spec->rest % count, end);
    dfa_of_nfa(&nfa, first, end, &body);
    uint32_t from = nfa_state(&named), to = nfa_state(&named);
    for (size_t i = 0; i < spec->name_count; i++)
        nfa_empty(&named, nfa_text(&named, from, spec->names[i]), to);
    dfa_of_nfa(&named, from, to, &names);
    restrict_to(work, &body, &names, true);
    dfa_quote(work, &body, out);
    dfa_deinit(&body);
    nfa_deinit(&nfa);
    nfa_deinit(&named);
}

static uint32_t add_value(struct nfa *nfa, uint32_t from, const struct tt_json_value *value);

static uint32_t add_list(struct nfa *nfa, uint32_t from, const struct tt_json_value *list)
{
    from = nfa_word(nfa, from, "[");
    for (size_t i = 0; i < tt_json_count(list); i++) {
        if (i > 0) from = nfa_word(nfa, from, ", ");
        from = add_value(nfa, from, tt_json_at(list, i));
    }
    return nfa_word(nfa, from, "]");
}

static uint32_t add_object(struct nfa *nfa, uint32_t from, const struct tt_json_value *object)
{
    from = nfa_word(nfa, from, "{");
    for (size_t i = 0; i < tt_json_count(object); i++) {
        struct tt_json_member member = tt_json_member(object, i);
        if (i > 0) from = nfa_word(nfa, from, ", ");
        from = nfa_word(nfa, nfa_json_text(nfa, from, member.key), ": ");
        from = add_value(nfa, from, member.value);
    }
    return nfa_word(nfa, from, "}");
}

static uint32_t add_value(struct nfa *nfa, uint32_t from, const struct tt_json_value *value)
{
    struct tt_str text = {0};
    if (tt_json_is_list(value)) return add_list(nfa, from, value);
    if (tt_json_is_object(value)) return add_object(nfa, from, value);
    if (tt_json_is_string(value)) return nfa_json_text(nfa, from, tt_json_span(value));
    tt_status status = tt_json_write(value, 0, false, &text);
    if (status != TT_OK) grammar_fail(nfa->work, status);
    from = nfa_text(nfa, from, (struct tt_span){tt_str_text(&text), text.bytes});
    tt_str_deinit(&text);
    return from;
}

void lexical_values(struct grammar_work *work, const struct tt_json_value *const *values, size_t count,
                    struct dfa *out)
{
    struct nfa nfa = {.work = work};
    uint32_t from = nfa_state(&nfa), to = nfa_state(&nfa);
    for (size_t i = 0; i < count && grammar_is_well(work); i++)
        nfa_empty(&nfa, add_value(&nfa, from, values[i]), to);
    dfa_of_nfa(&nfa, from, to, out);
    nfa_deinit(&nfa);
}
