#include "infer/constraint.h"

#include <pthread.h>

#include "base/alloc.h"

struct tt_constraints {
    const struct tt_inputs *inputs;
    pthread_mutex_t lock; /* of the making of the others */
    struct tt_vocabulary *vocabulary;
    struct tt_grammar_cache *cache;
};

tt_status tt_constraints_create(const struct tt_inputs *inputs, struct tt_constraints **out)
{
    struct tt_constraints *constraints = tt_calloc(1, sizeof *constraints);
    if (constraints == NULL) return TT_ERR_MEMORY;
    constraints->inputs = inputs;
    pthread_mutex_init(&constraints->lock, NULL);
    *out = constraints;
    return TT_OK;
}

void tt_constraints_destroy(struct tt_constraints *constraints)
{
    if (constraints == NULL) return;
    tt_grammar_cache_destroy(constraints->cache);
    tt_vocabulary_destroy(constraints->vocabulary);
    pthread_mutex_destroy(&constraints->lock);
    tt_free(constraints);
}

static tt_status prepare(struct tt_constraints *constraints)
{
    const struct tt_inputs *inputs = constraints->inputs;
    if (constraints->cache != NULL) return TT_OK;
    if (inputs->tokenizer == NULL)
        return tt_fail(TT_ERR_UNSUPPORTED,
                       "an answer that follows a grammar needs the model's tokenizer.json");
    if (constraints->vocabulary == NULL)
        TT_TRY(tt_vocabulary_create(inputs->tokenizer, inputs->model_facts.vocab_size,
                                    &constraints->vocabulary));
    return tt_grammar_cache_create(constraints->vocabulary, &constraints->cache);
}

tt_status tt_constraints_get(struct tt_constraints *constraints, struct tt_span source,
                             struct tt_grammar **out)
{
    pthread_mutex_lock(&constraints->lock);
    tt_status status = prepare(constraints);
    pthread_mutex_unlock(&constraints->lock);
    return status == TT_OK ? tt_grammar_cache_get(constraints->cache, source, out) : status;
}
