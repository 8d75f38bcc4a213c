#include "grammar/masks.h"

#include <string.h>

#include "base/alloc.h"

/* Kept masks; beyond, all are made anew. */
enum { KEPT_BYTES_MAX = 64 << 20, SLOTS = 1 << 12 };

/* The mask of a set, or of a state of a lexical automaton. */
struct kept {
    struct kept *next; /* of the same slot */
    uint64_t hash;
    struct config *configs; /* of a state: one without a stack */
    size_t config_count;
    bool is_local;
    uint32_t *words;
    /* of a state: nodes of the tree where the automaton may end, with more below them */
    uint32_t *exits;
    size_t exit_count, exit_capacity;
};

struct level {
    size_t begin, count; /* of the configurations */
};

struct masks {
    const struct tt_grammar *grammar;
    struct machine *machine;
    const struct tt_vocabulary *vocabulary;
    size_t word_count, bytes;
    struct kept *slots[SLOTS];
    struct configs walked, behind; /* configurations of the levels of a walk; of a begin */
    struct level *levels;          /* [depth + 2] */
    uint32_t *states;              /* [depth + 2] */
    uint32_t *words;               /* of a mask that is not kept */
};

tt_status masks_create(const struct tt_grammar *grammar, struct machine *machine, struct masks **out)
{
    struct masks *masks = tt_calloc(1, sizeof *masks);
    if (masks == NULL) return TT_ERR_MEMORY;
    masks->grammar = grammar;
    masks->machine = machine;
    masks->vocabulary = grammar->vocabulary;
    masks->word_count = tt_vocabulary_words(grammar->vocabulary);
    masks->levels = tt_calloc((size_t)grammar->vocabulary->depth + 2, sizeof *masks->levels);
    masks->states = tt_calloc((size_t)grammar->vocabulary->depth + 2, sizeof *masks->states);
    masks->words = tt_calloc(masks->word_count + 1, sizeof *masks->words);
    *out = masks;
    if (masks->levels != NULL && masks->states != NULL && masks->words != NULL) return TT_OK;
    masks_destroy(masks);
    *out = NULL;
    return TT_ERR_MEMORY;
}

static void kept_destroy(struct kept *kept)
{
    tt_free(kept->configs);
    tt_free(kept->words);
    tt_free(kept->exits);
    tt_free(kept);
}

static void forget_all(struct masks *masks)
{
    for (int i = 0; i < SLOTS; i++)
        while (masks->slots[i] != NULL) {
            struct kept *kept = masks->slots[i];
            masks->slots[i] = kept->next;
            kept_destroy(kept);
        }
    masks->bytes = 0;
}

void masks_destroy(struct masks *masks)
{
    if (masks == NULL) return;
    forget_all(masks);
    tt_free(masks->walked.data);
    tt_free(masks->behind.data);
    tt_free(masks->levels);
    tt_free(masks->states);
    tt_free(masks->words);
    tt_free(masks);
}

static uint64_t hash_of(const struct config *configs, size_t count, bool is_local)
{
    uint64_t hash = count * 2 + is_local;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ configs[i].state) * UINT64_C(0x9E3779B97F4A7C15);
        hash = (hash ^ hash >> 29 ^ configs[i].stack) * UINT64_C(0xBF58476D1CE4E5B9);
    }
    return hash ^ hash >> 32;
}

static struct kept *find(const struct masks *masks, const struct config *configs, size_t count, bool is_local)
{
    uint64_t hash = hash_of(configs, count, is_local);
    struct kept *kept = masks->slots[hash % SLOTS];
    for (; kept != NULL; kept = kept->next)
        if (kept->hash == hash && kept->is_local == is_local && kept->config_count == count &&
            memcmp(kept->configs, configs, count * sizeof *configs) == 0)
            return kept;
    return NULL;
}

/* A new one, with an empty mask; NULL without memory. */
static struct kept *keep(struct masks *masks, const struct config *configs, size_t count, bool is_local)
{
    struct kept *kept = tt_calloc(1, sizeof *kept);
    if (kept == NULL) return NULL;
    kept->configs = tt_calloc(count, sizeof *configs);
    kept->words = tt_calloc(masks->word_count + 1, sizeof *kept->words);
    if (kept->configs == NULL || kept->words == NULL) {
        kept_destroy(kept);
        return NULL;
    }
    memcpy(kept->configs, configs, count * sizeof *configs);
    kept->config_count = count;
    kept->is_local = is_local;
    kept->hash = hash_of(configs, count, is_local);
    kept->next = masks->slots[kept->hash % SLOTS];
    masks->slots[kept->hash % SLOTS] = kept;
    masks->bytes += sizeof *kept + count * sizeof *configs + masks->word_count * sizeof *kept->words;
    return kept;
}

static void allow(const struct masks *masks, uint32_t *words, int32_t token)
{
    for (; token != VOCABULARY_NONE; token = masks->vocabulary->same[token])
        words[token / 32] |= UINT32_C(1) << token % 32;
}

/* ---- Walks ---- */

/* Tokens below `node`, from `count` configurations at the begin of masks->walked. */
static tt_status walk(struct masks *masks, uint32_t node, size_t count, uint32_t *words)
{
    const struct vocabulary_node *nodes = masks->vocabulary->nodes;
    struct configs *set = &masks->walked;
    size_t base = nodes[node].depth;
    bool may_end;
    masks->levels[0] = (struct level){0, count};
    for (uint32_t at = node + 1; at < nodes[node].end;) {
        size_t depth = nodes[at].depth - base;
        const struct level *above = &masks->levels[depth - 1];
        set->count = above->begin + above->count;
        struct level here = {.begin = set->count};
        TT_TRY(machine_step(masks->machine, set, above->begin, above->count, nodes[at].byte, &may_end));
        here.count = set->count - here.begin;
        masks->levels[depth] = here;
        if (here.count > 0 || may_end) allow(masks, words, nodes[at].token);
        at = here.count > 0 ? at + 1 : nodes[at].end;
    }
    return TT_OK;
}

static tt_status walk_from(struct masks *masks, uint32_t node, const struct config *configs, size_t count,
                           uint32_t *words)
{
    masks->walked.count = 0;
    for (size_t i = 0; i < count; i++) TT_TRY(configs_add(&masks->walked, configs[i]));
    return count > 0 ? walk(masks, node, count, words) : TT_OK;
}

/* Tokens that a lexical automaton takes from a state on. */
static tt_status walk_dfa(struct masks *masks, const struct net_dfa *own, uint32_t state, struct kept *kept)
{
    const struct vocabulary_node *nodes = masks->vocabulary->nodes;
    const struct dfa *dfa = &own->dfa;
    uint32_t *states = masks->states;
    states[0] = state;
    for (uint32_t at = 1; at < nodes[0].end;) {
        uint32_t to = dfa_step(dfa, states[nodes[at].depth - 1], nodes[at].byte);
        if (to == DFA_DEAD) {
            at = nodes[at].end;
            continue;
        }
        states[nodes[at].depth] = to;
        if (nodes[at].token != VOCABULARY_NONE) allow(masks, kept->words, nodes[at].token);
        if (dfa->accepts[to] && nodes[at].end > at + 1) {
            TT_TRY(tt_grow(&kept->exits, kept->exit_count, &kept->exit_capacity));
            kept->exits[kept->exit_count++] = at;
        }
        at++;
    }
    masks->bytes += kept->exit_capacity * sizeof *kept->exits;
    return TT_OK;
}

static tt_status find_local(struct masks *masks, const struct net_dfa *own, uint32_t state, struct kept **out)
{
    const struct config key = {.state = state};
    *out = find(masks, &key, 1, true);
    if (*out != NULL) return TT_OK;
    *out = keep(masks, &key, 1, true);
    if (*out == NULL) return TT_ERR_MEMORY;
    return walk_dfa(masks, own, state - own->base, *out);
}

static void join(const struct masks *masks, uint32_t *words, const uint32_t *more)
{
    for (size_t i = 0; i < masks->word_count; i++) words[i] |= more[i];
}

/* A state of a lexical automaton with its stack: its own tokens, and those that go on behind its end. */
static tt_status add_dfa(struct masks *masks, const struct net_dfa *own, struct config config,
                         uint32_t *words)
{
    struct kept *local;
    bool may_end;
    TT_TRY(find_local(masks, own, config.state, &local));
    join(masks, words, local->words);
    if (config.stack == 0 || local->exit_count == 0) return TT_OK;
    const struct stack_node *top = &masks->machine->nodes[config.stack];
    masks->behind.count = 0;
    TT_TRY(configs_add(&masks->behind, (struct config){top->state, top->below}));
    TT_TRY(machine_close(masks->machine, &masks->behind, 0, &may_end));
    for (size_t i = 0; i < local->exit_count && masks->behind.count > 0; i++)
        TT_TRY(walk_from(masks, local->exits[i], masks->behind.data, masks->behind.count, words));
    return TT_OK;
}

static tt_status add_all(struct masks *masks, const struct configs *set, uint32_t *words)
{
    struct configs others = {0};
    tt_status status = TT_OK;
    for (size_t i = 0; i < set->count && status == TT_OK; i++) {
        const struct net_dfa *own = net_dfa_of(masks->grammar, set->data[i].state);
        status = own != NULL ? add_dfa(masks, own, set->data[i], words) : configs_add(&others, set->data[i]);
    }
    if (status == TT_OK) status = walk_from(masks, 0, others.data, others.count, words);
    tt_free(others.data);
    return status;
}

/* The first token of a text, whose space is not shown: what follows it begins the text. */
static tt_status add_first(struct masks *masks, const struct configs *set, uint32_t *words)
{
    const struct tt_vocabulary *vocabulary = masks->vocabulary;
    const struct vocabulary_node *space = &vocabulary->nodes[vocabulary->space];
    TT_TRY(walk_from(masks, 0, set->data, set->count, words));
    if (vocabulary->space == 0) return TT_OK;
    for (uint32_t at = vocabulary->space; at < space->end; at++) /* those were taken with the space */
        for (int32_t token = vocabulary->nodes[at].token; token != VOCABULARY_NONE;
             token = vocabulary->same[token])
            words[token / 32] &= ~(UINT32_C(1) << token % 32);
    return walk_from(masks, vocabulary->space, set->data, set->count, words);
}

tt_status masks_find(struct masks *masks, const struct configs *set, bool begins, const uint32_t **words)
{
    if (begins && masks->vocabulary->drops_space) {
        memset(masks->words, 0, masks->word_count * sizeof *masks->words);
        *words = masks->words;
        return add_first(masks, set, masks->words);
    }
    struct kept *kept = find(masks, set->data, set->count, false);
    if (kept == NULL) {
        memset(masks->words, 0, masks->word_count * sizeof *masks->words);
        if (masks->bytes > KEPT_BYTES_MAX) forget_all(masks);
        TT_TRY(add_all(masks, set, masks->words));
        kept = keep(masks, set->data, set->count, false);
        if (kept == NULL) return TT_ERR_MEMORY;
        memcpy(kept->words, masks->words, masks->word_count * sizeof *kept->words);
    }
    *words = kept->words;
    return TT_OK;
}
