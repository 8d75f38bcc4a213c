/* Objects and lists of JSON as automata that call those of their values. */
#include <string.h>

#include "base/integer.h"
#include "grammar/compile.h"

/* ---- Lists ---- */

struct items {
    struct compiler *c;
    struct schema *schema;
    const struct schema_flat *flat;
    int64_t min, max; /* max -1: any number */
};

static uint32_t net_of_item(const struct items *items, int64_t index)
{
    const struct schema_flat *flat = items->flat;
    const struct schema_list *list =
        index < (int64_t)flat->prefix_count ? &flat->prefix[index] : &flat->items;
    return compiler_schemas(items->c, items->schema, list);
}

void compile_list(struct compiler *c, struct schema *schema, const struct schema_flat *flat, uint32_t from,
                  uint32_t to)
{
    struct nfa *nfa = &c->all;
    struct items items = {c, schema, flat, flat->min_items, flat->max_items};
    int64_t prefix = (int64_t)flat->prefix_count;
    bool goes_on = flat->has_items || prefix == 0 || flat->min_items > prefix;
    if (!goes_on && (items.max < 0 || items.max > prefix)) items.max = prefix;
    if (items.max >= 0 && items.min > items.max) return;
    /* The last state repeats. */
    int64_t last = items.max >= 0 ? items.max : tt_larger(tt_larger(prefix, items.min), 1);
    uint32_t begin = nfa_state(nfa), close = nfa_state(nfa), at = nfa_state(nfa);
    nfa_bytes(nfa, from, '[', '[', begin);
    nfa_space(nfa, begin, at);
    nfa_bytes(nfa, close, ']', ']', to);
    if (items.min == 0) nfa_empty(nfa, at, close);
    for (int64_t i = 0; i < last && grammar_is_well(c->work); i++) {
        uint32_t behind = nfa_state(nfa);
        nfa_call(nfa, at, net_of_item(&items, i), behind);
        if (i + 1 >= items.min) nfa_space(nfa, behind, close);
        if (items.max >= 0 && i + 1 == items.max) return;
        uint32_t comma = nfa_state(nfa);
        at = nfa_state(nfa);
        nfa_bytes(nfa, behind, ',', ',', comma);
        nfa_space(nfa, comma, at);
        if (i + 1 == last) nfa_call(nfa, at, net_of_item(&items, last), behind);
    }
}

/* ---- Objects ---- */

/* Properties come in their order. A place is the number of those that are decided; where their number is bounded
 * there is a row of places for each count. */
struct members {
    struct compiler *c;
    struct schema *schema;
    const struct schema_flat *flat;
    int64_t min, max; /* 0 and -1 where they hold in any case */
    int64_t counts;   /* the last count that is told apart */
    bool is_open;
    uint32_t keys, values; /* states before a key, and behind a value: [counts + 1][properties + 1] */
};

static uint32_t place(const struct members *m, uint32_t base, int64_t count, size_t index)
{
    return base + (uint32_t)((size_t)count * (m->flat->property_count + 1) + index);
}

static uint32_t before_key(const struct members *m, int64_t count, size_t index)
{
    return place(m, m->keys, count, index);
}

static uint32_t behind_value(const struct members *m, int64_t count, size_t index)
{
    return place(m, m->values, count, index);
}

/* The net of additional keys. While a least number of properties is wanted, each has another length modulo that
 * number, so that they are different keys. */
static uint32_t net_of_keys(struct members *m, int64_t count)
{
    struct compiler *c = m->c;
    const struct schema_flat *flat = m->flat;
    struct lexical_key spec = {.name_count = flat->property_count};
    struct dfa dfa = {0};
    bool found;
    if (count < m->min) spec.modulus = (uint32_t)m->min, spec.rest = (uint32_t)count;
    struct tt_span *names = schema_alloc(m->schema, (flat->property_count + 1) * sizeof *names);
    if (names == NULL) return 0;
    compiler_name(c, "keys %u %u", spec.modulus, spec.rest);
    for (size_t i = 0; i < flat->property_count; i++) {
        names[i] = flat->properties[i].key;
        compiler_name_more(c, names[i]);
    }
    spec.names = names;
    uint32_t net = compiler_find(c, &found);
    if (found || !grammar_is_well(c->work)) return net;
    lexical_key(c->work, &spec, &dfa);
    return compiler_add_dfa(c, &dfa);
}

/* The value behind a key. */
static void add_value(struct members *m, uint32_t from, const struct schema_list *schemas, uint32_t to)
{
    struct nfa *nfa = &m->c->all;
    uint32_t colon = nfa_state(nfa), value = nfa_state(nfa);
    nfa_bytes(nfa, from, ':', ':', colon);
    nfa_space(nfa, colon, value);
    nfa_call(nfa, value, compiler_schemas(m->c, m->schema, schemas), to);
}

static void add_row(struct members *m, int64_t count, uint32_t close)
{
    struct nfa *nfa = &m->c->all;
    const struct schema_flat *flat = m->flat;
    int64_t next = tt_smaller(count + 1, m->counts);
    bool may_add = m->max < 0 || count < m->max;
    for (size_t i = 0; i <= flat->property_count && grammar_is_well(m->c->work); i++) {
        uint32_t key = before_key(m, count, i), behind = behind_value(m, count, i), comma = nfa_state(nfa);
        if (may_add) {
            nfa_bytes(nfa, behind, ',', ',', comma);
            nfa_space(nfa, comma, key);
        }
        if (i == flat->property_count) break;
        const struct schema_property *property = &flat->properties[i];
        if (!property->required) {
            nfa_empty(nfa, key, before_key(m, count, i + 1));
            nfa_empty(nfa, behind, behind_value(m, count, i + 1));
        }
        if (may_add)
            add_value(m, nfa_json_text(nfa, key, property->key), &property->schemas,
                      behind_value(m, next, i + 1));
    }
    uint32_t end = behind_value(m, count, flat->property_count);
    if (count >= m->min) nfa_space(nfa, end, close);
    if (!m->is_open || !may_add) return;
    uint32_t colon = nfa_state(nfa);
    nfa_call(nfa, before_key(m, count, flat->property_count), net_of_keys(m, count), colon);
    add_value(m, colon, &flat->additional, behind_value(m, next, flat->property_count));
}

void compile_object(struct compiler *c, struct schema *schema, const struct schema_flat *flat, uint32_t from,
                    uint32_t to)
{
    struct nfa *nfa = &c->all;
    struct members m = {.c = c, .schema = schema, .flat = flat, .max = -1};
    int64_t properties = (int64_t)flat->property_count, required = 0;
    for (size_t i = 0; i < flat->property_count; i++) required += flat->properties[i].required;
    m.is_open = flat->has_additional || !flat->has_properties || flat->min_properties > properties;
    if (flat->min_properties > required) m.min = flat->min_properties;
    if (flat->max_properties >= 0 && (m.is_open || flat->max_properties < properties))
        m.max = flat->max_properties;
    if (m.max >= 0 && (m.min > m.max || required > m.max)) return;
    m.counts = tt_larger(m.min, m.max);
    size_t places = (flat->property_count + 1) * (size_t)(m.counts + 1);
    if (m.counts > GRAMMAR_STEPS_MAX || !grammar_spend(c->work, 2 * places, 16 * places)) {
        grammar_spend(c->work, GRAMMAR_STEPS_MAX, 0);
        return;
    }
    m.keys = nfa->states;
    m.values = m.keys + (uint32_t)places;
    nfa->states += 2 * (uint32_t)places;
    uint32_t begin = nfa_state(nfa), close = nfa_state(nfa), inside = nfa_state(nfa);
    nfa_bytes(nfa, from, '{', '{', begin);
    nfa_space(nfa, begin, inside);
    nfa_bytes(nfa, close, '}', '}', to);
    nfa_empty(nfa, inside, before_key(&m, 0, 0));
    if (required == 0 && m.min == 0) nfa_empty(nfa, inside, close);
    for (int64_t count = 0; count <= m.counts && grammar_is_well(c->work); count++) add_row(&m, count, close);
}
