#include "grammar/compile.h"

#include <stdarg.h>
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "grammar/pattern.h"

enum { PARTS_DEPTH_MAX = 128 };

/* ---- Nets by their names ---- */

void compiler_name(struct compiler *c, const char *format, ...)
{
    char text[128];
    va_list arguments;
    va_start(arguments, format);
    tt_vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    tt_str_clear(&c->name);
    tt_status status = tt_str_append_text(&c->name, text);
    if (status != TT_OK) grammar_fail(c->work, status);
}

void compiler_name_more(struct compiler *c, struct tt_span text)
{
    tt_status status = tt_str_printf(&c->name, " %zu:", text.bytes);
    if (status == TT_OK) status = tt_str_append(&c->name, text.data, text.bytes);
    if (status != TT_OK) grammar_fail(c->work, status);
    grammar_spend(c->work, text.bytes / 8, 0);
}

static uint64_t hash_name(const struct tt_str *name)
{
    uint64_t hash = name->bytes;
    for (size_t i = 0; i < name->bytes; i++) hash = (hash ^ (uint8_t)name->data[i]) * UINT64_C(0x100000001B3);
    return hash;
}

uint32_t compiler_find(struct compiler *c, bool *found)
{
    uint64_t hash = hash_name(&c->name);
    grammar_spend(c->work, c->count / 8 + c->name.bytes / 8, 0);
    for (size_t i = 0; i < c->count; i++) {
        const struct net *net = &c->nets[i];
        *found = net->hash == hash && net->name.bytes == c->name.bytes &&
                 memcmp(net->name.data, c->name.data, c->name.bytes) == 0;
        if (*found) return (uint32_t)i;
    }
    *found = false;
    return 0;
}

uint32_t compiler_add(struct compiler *c, const struct net *net)
{
    if (!grammar_spend(c->work, 4, sizeof *net + c->name.bytes)) return 0;
    tt_status status = tt_grow(&c->nets, c->count, &c->capacity);
    if (status == TT_OK) status = tt_grow(&c->starts, c->count, &c->starts_capacity);
    char *name = status == TT_OK ? tt_arena_strndup(&c->arena, tt_str_text(&c->name), c->name.bytes) : NULL;
    if (name == NULL) {
        grammar_fail(c->work, TT_ERR_MEMORY);
        return 0;
    }
    c->nets[c->count] = *net;
    c->nets[c->count].hash = hash_name(&c->name);
    c->nets[c->count].name = (struct tt_span){name, c->name.bytes};
    c->starts[c->count] = nfa_state(&c->all);
    return (uint32_t)c->count++;
}

uint32_t compiler_add_dfa(struct compiler *c, struct dfa *dfa)
{
    uint32_t net = compiler_add(c, &(struct net){.schema = NULL});
    tt_status status = grammar_is_well(c->work) ? tt_grow(&c->dfas, c->dfa_count, &c->dfa_capacity) : TT_OK;
    if (status != TT_OK) grammar_fail(c->work, status);
    if (!grammar_is_well(c->work) || dfa->states == 0) { /* a net without an end */
        dfa_deinit(dfa);
        return net;
    }
    c->dfas[c->dfa_count++] = (struct net_dfa){*dfa, c->all.states};
    c->starts[net] = c->all.states;
    c->all.states += dfa->states;
    *dfa = (struct dfa){0};
    return net;
}

uint32_t compiler_end(struct compiler *c)
{
    uint32_t state = nfa_state(&c->all);
    tt_status status = tt_grow(&c->ends, c->end_count, &c->end_capacity);
    if (status != TT_OK)
        grammar_fail(c->work, status);
    else
        c->ends[c->end_count++] = state;
    return state;
}

/* A schema that is a $ref alone is the one that it names. */
static const struct tt_json_value *follow(struct schema *schema, const struct tt_json_value *from)
{
    for (int i = 0; i < 64 && grammar_is_well(schema->work); i++) {
        const struct tt_json_value *reference = tt_json_get(from, "$ref");
        if (reference == NULL || tt_json_count(from) != 1) return from;
        const struct tt_json_value *named = schema_refer(schema, reference);
        if (named == NULL) return from;
        from = named;
    }
    return from;
}

/* Named by their texts: equal schemas are one net, and lists of the same schemas that recursion makes again too. */
uint32_t compiler_schemas(struct compiler *c, struct schema *schema, const struct schema_list *list)
{
    struct tt_str text = {0};
    struct schema_list followed = {0};
    bool found;
    compiler_name(c, "schema %p", (const void *)schema->root);
    for (size_t i = 0; i < list->count && grammar_is_well(c->work); i++) {
        const struct tt_json_value *from = follow(schema, list->data[i]);
        bool known = tt_json_is_true(from) || (tt_json_is_object(from) && tt_json_count(from) == 0);
        for (size_t k = 0; k < followed.count && !known; k++) known = followed.data[k] == from;
        if (known) continue;
        followed = schema_list_with(schema, followed, from);
        tt_str_clear(&text);
        tt_status status = tt_json_write(from, 0, false, &text);
        if (status != TT_OK) grammar_fail(c->work, status);
        compiler_name_more(c, (struct tt_span){tt_str_text(&text), text.bytes});
    }
    tt_str_deinit(&text);
    uint32_t net = compiler_find(c, &found);
    if (found || !grammar_is_well(c->work)) return net;
    return compiler_add(c, &(struct net){.schema = schema, .list = followed});
}

/* ---- Values ---- */

static uint32_t net_of_string(struct compiler *c, const struct schema_flat *flat)
{
    struct dfa dfa = {0};
    bool found;
    const struct lexical_string spec = {.min = flat->min_length,
                                        .max = flat->max_length,
                                        .patterns = flat->patterns,
                                        .pattern_count = flat->pattern_count};
    compiler_name(c, "string %lld %lld", (long long)spec.min, (long long)spec.max);
    for (size_t i = 0; i < spec.pattern_count; i++) compiler_name_more(c, spec.patterns[i]);
    uint32_t net = compiler_find(c, &found);
    if (found || !grammar_is_well(c->work)) return net;
    lexical_string(c->work, &spec, &dfa);
    return compiler_add_dfa(c, &dfa);
}

static uint32_t net_of_number(struct compiler *c, const struct schema_flat *flat)
{
    struct dfa dfa = {0};
    struct lexical_number spec = flat->number;
    bool found;
    spec.whole = (flat->types & SCHEMA_FRACTION) == 0;
    compiler_name(c, "number %d %d%d %d%d %.17g %.17g %lld", spec.whole, spec.has_min, spec.has_max,
                  spec.above_min, spec.below_max, spec.min, spec.max, (long long)spec.multiple);
    uint32_t net = compiler_find(c, &found);
    if (found || !grammar_is_well(c->work)) return net;
    lexical_number(c->work, &spec, &dfa);
    return compiler_add_dfa(c, &dfa);
}

/* The given values that all schemas of the net have. */
static void add_values(struct compiler *c, const struct net *net, const struct schema_flats *flats,
                       uint32_t from, uint32_t to)
{
    struct schema_list kept = {0};
    struct dfa dfa = {0};
    for (size_t i = 0; i < flats->count; i++) {
        const struct schema_list *values = &flats->data[i]->values;
        for (size_t v = 0; flats->data[i]->has_values && v < values->count && grammar_is_well(c->work); v++) {
            bool fits = true;
            for (size_t k = 0; k < kept.count && fits; k++) fits = kept.data[k] != values->data[v];
            for (size_t k = 0; k < net->list.count && fits; k++)
                fits = schema_accepts(net->schema, net->list.data[k], values->data[v]);
            grammar_spend(c->work, kept.count, 0);
            if (fits) kept = schema_list_with(net->schema, kept, values->data[v]);
        }
    }
    if (kept.count == 0 || !grammar_is_well(c->work)) return;
    lexical_values(c->work, kept.data, kept.count, &dfa);
    compiler_name(c, "values %zu", c->count);
    nfa_call(&c->all, from, compiler_add_dfa(c, &dfa), to);
}

static void add_flat(struct compiler *c, struct schema *schema, const struct schema_flat *flat, uint32_t from,
                     uint32_t to)
{
    struct nfa *nfa = &c->all;
    if ((flat->types & SCHEMA_NULL) != 0) nfa_word_to(nfa, from, "null", to);
    if ((flat->types & SCHEMA_BOOLEAN) != 0) {
        nfa_word_to(nfa, from, "true", to);
        nfa_word_to(nfa, from, "false", to);
    }
    if ((flat->types & SCHEMA_STRING) != 0) nfa_call(nfa, from, net_of_string(c, flat), to);
    if ((flat->types & SCHEMA_INTEGER) != 0) nfa_call(nfa, from, net_of_number(c, flat), to);
    if ((flat->types & SCHEMA_ARRAY) != 0) compile_list(c, schema, flat, from, to);
    if ((flat->types & SCHEMA_OBJECT) != 0) compile_object(c, schema, flat, from, to);
}

static void build_net(struct compiler *c, size_t index)
{
    const struct net net = c->nets[index]; /* others are added meanwhile */
    struct schema_flats flats;
    uint32_t from = c->starts[index], to = compiler_end(c);
    schema_flatten(net.schema, &net.list, &flats);
    if (!grammar_is_well(c->work)) return;
    add_values(c, &net, &flats, from, to);
    for (size_t i = 0; i < flats.count && grammar_is_well(c->work); i++)
        if (!flats.data[i]->has_values) add_flat(c, net.schema, flats.data[i], from, to);
}

/* ---- Parts of a text ---- */

struct parts {
    struct compiler *c;
    struct schema **schemas; /* owned, one for each part of JSON */
    size_t count, capacity;
};

static void add_part(struct parts *p, uint32_t from, const struct tt_json_value *part, uint32_t to,
                     int depth);

static void add_json(struct parts *p, uint32_t from, const struct tt_json_value *root, uint32_t to)
{
    struct compiler *c = p->c;
    struct schema_list list = {0};
    tt_status status = tt_grow(&p->schemas, p->count, &p->capacity);
    struct schema *schema = status == TT_OK ? tt_calloc(1, sizeof *schema) : NULL;
    if (schema == NULL) {
        grammar_fail(c->work, TT_ERR_MEMORY);
        return;
    }
    p->schemas[p->count++] = schema;
    *schema = (struct schema){.work = c->work, .root = root};
    schema_check(schema);
    if (!grammar_is_well(c->work)) return;
    list = schema_list_with(schema, list, root);
    nfa_call(&c->all, from, compiler_schemas(c, schema, &list), to);
}

/* Any text without `word` in it. */
static void make_without(struct grammar_work *work, struct tt_span word, struct dfa *out)
{
    struct nfa nfa = {.work = work}, any = {.work = work};
    struct dfa all = {0}, with = {0};
    uint32_t from = nfa_state(&any), begin = nfa_state(&nfa);
    nfa_points(&any, from, 0, 0x10FFFF, from);
    dfa_of_nfa(&any, from, from, &all);
    nfa_bytes(&nfa, begin, 0, 255, begin);
    uint32_t end = nfa_text(&nfa, begin, word);
    nfa_bytes(&nfa, end, 0, 255, end);
    dfa_of_nfa(&nfa, begin, end, &with);
    dfa_combine(work, &all, &with, true, out);
    dfa_deinit(&all);
    dfa_deinit(&with);
    nfa_deinit(&nfa);
    nfa_deinit(&any);
}

static void add_lexical(struct parts *p, uint32_t from, struct tt_span text, bool is_regex, uint32_t to)
{
    struct compiler *c = p->c;
    struct dfa dfa = {0};
    if (is_regex)
        pattern_compile(c->work, text, &(struct pattern_options){.json = false}, &dfa);
    else
        make_without(c->work, text, &dfa);
    compiler_name(c, "part %zu", c->count);
    nfa_call(&c->all, from, compiler_add_dfa(c, &dfa), to);
}

static void add_token(struct parts *p, uint32_t from, const struct tt_json_value *id, uint32_t to)
{
    char bytes[VOCABULARY_ID_BYTES];
    vocabulary_id_bytes((int32_t)tt_json_integer(id), bytes);
    nfa_empty(&p->c->all, nfa_text(&p->c->all, from, (struct tt_span){bytes, sizeof bytes}), to);
}

static void add_sequence(struct parts *p, uint32_t from, const struct tt_json_value *list, uint32_t to,
                         int depth)
{
    struct nfa *nfa = &p->c->all;
    for (size_t i = 0; i < tt_json_count(list) && grammar_is_well(p->c->work); i++) {
        uint32_t next = nfa_state(nfa);
        add_part(p, from, tt_json_at(list, i), next, depth + 1);
        from = next;
    }
    nfa_empty(nfa, from, to);
}

static void add_part(struct parts *p, uint32_t from, const struct tt_json_value *part, uint32_t to, int depth)
{
    struct nfa *nfa = &p->c->all;
    struct tt_json_member member = tt_json_member(part, 0);
    struct tt_span text = tt_json_span(member.value);
    if (!grammar_spend(p->c->work, 8, 0)) return;
    if (tt_json_is_object(part) && tt_json_count(part) == 1 && depth < PARTS_DEPTH_MAX) {
        if (tt_span_equals(member.key, "json")) {
            add_json(p, from, member.value, to);
            return;
        }
        if (text.data != NULL && tt_span_equals(member.key, "text")) {
            nfa_empty(nfa, nfa_text(nfa, from, text), to);
            return;
        }
        if (text.data != NULL &&
            (tt_span_equals(member.key, "regex") || tt_span_equals(member.key, "without"))) {
            add_lexical(p, from, text, tt_span_equals(member.key, "regex"), to);
            return;
        }
        if (tt_json_is_integer(member.value) && tt_span_equals(member.key, "token")) {
            add_token(p, from, member.value, to);
            return;
        }
        if (tt_json_is_list(member.value) && tt_span_equals(member.key, "sequence")) {
            add_sequence(p, from, member.value, to, depth);
            return;
        }
        if (tt_json_is_list(member.value) && tt_span_equals(member.key, "choice")) {
            for (size_t i = 0; i < tt_json_count(member.value) && grammar_is_well(p->c->work); i++)
                add_part(p, from, tt_json_at(member.value, i), to, depth + 1);
            return;
        }
        if (tt_span_equals(member.key, "repeat")) {
            uint32_t begin = nfa_state(nfa), end = nfa_state(nfa);
            nfa_empty(nfa, from, begin);
            add_part(p, begin, member.value, end, depth + 1);
            nfa_empty(nfa, end, begin);
            nfa_empty(nfa, end, to);
            return;
        }
    }
    grammar_refuse(p->c->work, "a part of a grammar is an object with one of text, token, json, "
                               "regex, without, sequence, choice, repeat");
}

static void link_nets(struct compiler *c, uint32_t start, struct tt_grammar *grammar)
{
    bool *ends = tt_calloc((size_t)c->all.states + 1, sizeof *ends);
    if (ends == NULL) {
        grammar_fail(c->work, TT_ERR_MEMORY);
        return;
    }
    for (size_t i = 0; i < c->end_count; i++) ends[c->ends[i]] = true;
    net_link(&(struct net_parts){.nfa = &c->all,
                                 .ends = ends,
                                 .nets = c->starts,
                                 .dfas = c->dfas,
                                 .dfa_count = (uint32_t)c->dfa_count,
                                 .start = start},
             grammar);
    tt_free(ends);
}

void grammar_build(struct grammar_work *work, struct tt_grammar *grammar)
{
    struct compiler c = {.work = work, .all = {.work = work}};
    struct parts parts = {.c = &c};
    struct tt_json json = {0};
    tt_status status = tt_json_parse(grammar->source, grammar->source_bytes, "the grammar", &json);
    if (status != TT_OK) grammar_fail(work, status);
    memcpy(work->alphabet, grammar->vocabulary->alphabet, sizeof work->alphabet);
    if (grammar_is_well(work)) {
        uint32_t start = nfa_state(&c.all), end = compiler_end(&c);
        add_part(&parts, start, json.root, end, 0);
        for (size_t i = 0; i < c.count && grammar_is_well(work); i++)
            if (c.nets[i].schema != NULL) build_net(&c, i);
        if (grammar_is_well(work)) link_nets(&c, start, grammar);
    }
    grammar->dfas = c.dfas;
    grammar->dfa_count = (uint32_t)c.dfa_count;
    for (size_t i = 0; i < parts.count; i++) {
        schema_deinit(parts.schemas[i]);
        tt_free(parts.schemas[i]);
    }
    tt_free(parts.schemas);
    nfa_deinit(&c.all);
    tt_free(c.nets);
    tt_free(c.starts);
    tt_free(c.ends);
    tt_str_deinit(&c.name);
    tt_arena_deinit(&c.arena);
    tt_json_deinit(&json);
}
