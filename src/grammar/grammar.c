#include "grammar/grammar.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "grammar/masks.h"

/* ---- Grammars ---- */

static void destroy(struct tt_grammar *grammar)
{
    for (uint32_t i = 0; i < grammar->dfa_count; i++) dfa_deinit(&grammar->dfas[i].dfa);
    masks_destroy(grammar->masks);
    machine_destroy(grammar->machine);
    tt_free(grammar->dfas);
    tt_free(grammar->source);
    tt_free(grammar->first);
    tt_free(grammar->edges);
    tt_free(grammar->need);
    tt_free(grammar->accepts);
    tt_free(grammar->reads);
    tt_free(grammar->dfa_of);
    tt_free(grammar);
}

struct tt_grammar *tt_grammar_retain(struct tt_grammar *grammar)
{
    atomic_fetch_add(&grammar->references, 1);
    return grammar;
}

void tt_grammar_release(struct tt_grammar *grammar)
{
    if (grammar != NULL && atomic_fetch_sub(&grammar->references, 1) == 1) destroy(grammar);
}

tt_status tt_grammar_compile(struct tt_span source, const struct tt_vocabulary *vocabulary,
                             struct tt_grammar **out)
{
    struct tt_grammar *grammar = tt_calloc(1, sizeof *grammar);
    if (grammar == NULL) return TT_ERR_MEMORY;
    struct grammar_work work = {.status = TT_OK};
    atomic_init(&grammar->references, 1);
    grammar->vocabulary = vocabulary;
    grammar->source = tt_calloc(source.bytes + 1, 1);
    grammar->source_bytes = source.bytes;
    if (grammar->source != NULL && source.bytes > 0) memcpy(grammar->source, source.data, source.bytes);
    if (grammar->source == NULL)
        grammar_fail(&work, TT_ERR_MEMORY);
    else
        grammar_build(&work, grammar);
    grammar->steps = work.steps;
    grammar->bytes = work.bytes;
    tt_status status = work.status;
    if (status == TT_OK) status = machine_create(grammar, &grammar->machine);
    if (status == TT_OK) status = masks_create(grammar, grammar->machine, &grammar->masks);
    if (status == TT_OK)
        *out = grammar;
    else
        destroy(grammar);
    return status;
}

void tt_grammar_cost(const struct tt_grammar *grammar, size_t *steps, size_t *bytes)
{
    *steps = grammar->steps;
    *bytes = grammar->bytes;
}

/* ---- The cache ---- */

enum { CACHE_MAX = 32, WORN_NODES = 1 << 16 };

struct tt_grammar_cache {
    const struct tt_vocabulary *vocabulary;
    pthread_mutex_t lock;
    struct tt_grammar *kept[CACHE_MAX]; /* the last used first */
    size_t count;
};

tt_status tt_grammar_cache_create(const struct tt_vocabulary *vocabulary, struct tt_grammar_cache **out)
{
    struct tt_grammar_cache *cache = tt_calloc(1, sizeof *cache);
    if (cache == NULL) return TT_ERR_MEMORY;
    cache->vocabulary = vocabulary;
    pthread_mutex_init(&cache->lock, NULL);
    *out = cache;
    return TT_OK;
}

void tt_grammar_cache_destroy(struct tt_grammar_cache *cache)
{
    if (cache == NULL) return;
    for (size_t i = 0; i < cache->count; i++) tt_grammar_release(cache->kept[i]);
    pthread_mutex_destroy(&cache->lock);
    tt_free(cache);
}

/* Puts a grammar first, in the place of number `index`; the reference is the cache's. */
static void put_first(struct tt_grammar_cache *cache, struct tt_grammar *grammar, size_t index)
{
    memmove(cache->kept + 1, cache->kept, index * sizeof(struct tt_grammar *));
    cache->kept[0] = grammar;
}

static struct tt_grammar *find(struct tt_grammar_cache *cache, struct tt_span source)
{
    for (size_t i = 0; i < cache->count; i++) {
        struct tt_grammar *grammar = cache->kept[i];
        if (grammar->source_bytes != source.bytes || memcmp(grammar->source, source.data, source.bytes) != 0)
            continue;
        put_first(cache, grammar, i);
        return tt_grammar_retain(grammar);
    }
    return NULL;
}

tt_status tt_grammar_cache_get(struct tt_grammar_cache *cache, struct tt_span source, struct tt_grammar **out)
{
    pthread_mutex_lock(&cache->lock);
    struct tt_grammar *grammar = find(cache, source);
    pthread_mutex_unlock(&cache->lock);
    *out = grammar;
    if (grammar != NULL) return TT_OK;
    TT_TRY(tt_grammar_compile(source, cache->vocabulary, &grammar));
    pthread_mutex_lock(&cache->lock);
    struct tt_grammar *same = find(cache, source), *dropped = NULL; /* another thread was first */
    if (same == NULL) {
        if (cache->count == CACHE_MAX) dropped = cache->kept[--cache->count];
        put_first(cache, tt_grammar_retain(grammar), cache->count++);
    }
    pthread_mutex_unlock(&cache->lock);
    tt_grammar_release(dropped);
    if (same != NULL) tt_grammar_release(grammar);
    *out = same != NULL ? same : grammar;
    return TT_OK;
}

/* ---- Matchers ---- */

struct tt_grammar_matcher {
    struct tt_grammar *grammar;
    struct configs set, next;
    bool may_end, begins; /* begins: nothing was written yet */
};

tt_status tt_grammar_matcher_create(struct tt_grammar *grammar, struct tt_grammar_matcher **out)
{
    struct tt_grammar_matcher *matcher = tt_calloc(1, sizeof *matcher);
    if (matcher == NULL) return TT_ERR_MEMORY;
    matcher->grammar = tt_grammar_retain(grammar);
    matcher->begins = true;
    tt_status status = configs_add(&matcher->set, (struct config){.state = grammar->start});
    if (status == TT_OK) status = machine_close(grammar->machine, &matcher->set, 0, &matcher->may_end);
    if (status == TT_OK)
        *out = matcher;
    else
        tt_grammar_matcher_destroy(matcher);
    return status;
}

void tt_grammar_matcher_destroy(struct tt_grammar_matcher *matcher)
{
    if (matcher == NULL) return;
    tt_free(matcher->set.data);
    tt_free(matcher->next.data);
    tt_grammar_release(matcher->grammar);
    tt_free(matcher);
}

tt_status tt_grammar_matcher_mask(struct tt_grammar_matcher *matcher, const uint32_t **words)
{
    return masks_find(matcher->grammar->masks, &matcher->set, matcher->begins, words);
}

bool tt_grammar_matcher_may_end(const struct tt_grammar_matcher *matcher)
{
    return matcher->may_end;
}

bool tt_grammar_matcher_is_over(const struct tt_grammar_matcher *matcher)
{
    return matcher->set.count == 0;
}

tt_status tt_grammar_matcher_advance_bytes(struct tt_grammar_matcher *matcher, struct tt_span bytes,
                                           bool *fits)
{
    struct configs *next = &matcher->next;
    bool may_end = matcher->may_end;
    size_t begin = 0, count = matcher->set.count;
    next->count = 0;
    *fits = false;
    for (size_t i = 0; i < count; i++) TT_TRY(configs_add(next, matcher->set.data[i]));
    for (size_t i = 0; i < bytes.bytes; i++) {
        if (count == 0) return TT_OK;
        TT_TRY(machine_step(matcher->grammar->machine, next, begin, count, (uint8_t)bytes.data[i], &may_end));
        begin += count;
        count = next->count - begin;
        if (count == 0 && !may_end) return TT_OK;
    }
    matcher->set.count = 0;
    for (size_t i = begin; i < begin + count; i++) TT_TRY(configs_add(&matcher->set, next->data[i]));
    matcher->may_end = may_end;
    matcher->begins = false;
    *fits = true;
    return TT_OK;
}

tt_status tt_grammar_matcher_advance(struct tt_grammar_matcher *matcher, int32_t token, bool *fits)
{
    const struct tt_vocabulary *vocabulary = matcher->grammar->vocabulary;
    struct tt_span bytes = vocabulary_bytes(vocabulary, token);
    bool drops = matcher->begins && vocabulary->drops_space && bytes.bytes > 0 && *bytes.data == ' ';
    *fits = false;
    if (drops) bytes.data++, bytes.bytes--;
    if (bytes.bytes == 0) return TT_OK;
    return tt_grammar_matcher_advance_bytes(matcher, bytes, fits);
}
