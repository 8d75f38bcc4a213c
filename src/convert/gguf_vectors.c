/* Vectors of a GGUF file that no module of the model has: divisors of frequencies, and weights of norms that the model
 * has without. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "convert/gguf.h"
#include "model/family.h"

/* The values are for the caller to fill in. */
static tt_status add(struct tt_gguf_header *header, const char *name, int64_t count,
                     struct tt_gguf_vectors *vectors, float **values)
{
    if (tt_grow(&vectors->items, vectors->count, &vectors->capacity) != 0) return TT_ERR_MEMORY;
    struct tt_gguf_vector *vector = &vectors->items[vectors->count];
    *vector = (struct tt_gguf_vector){.values = tt_calloc((size_t)count, sizeof **values), .count = count};
    if (vector->values == NULL) return TT_ERR_MEMORY;
    *values = vector->values;
    vectors->count++;
    return tt_gguf_add_tensor(header, name, 1, &count, TT_GGUF_F32, &vector->offset);
}

/* Llama 3 divides each frequency by a factor of its own, stored as a tensor: 1 for short waves, rope_factor for long
 * ones, between them the inverse of the mean of the two inverses (model/rope.c). */
static tt_status add_llama3_factors(const struct tt_rope *rope, struct tt_gguf_header *header,
                                    struct tt_gguf_vectors *vectors)
{
    int64_t count = rope->columns / 2;
    float *factors = NULL;
    TT_TRY(add(header, "rope_freqs.weight", count, vectors, &factors));
    for (int64_t i = 0; i < count; i++) {
        double frequency = pow(rope->theta, -(double)(2 * i) / (double)rope->columns);
        double waves = (double)rope->original_max_position * frequency / (2 * 3.14159265358979323846);
        double low = rope->low_freq_factor, high = rope->high_freq_factor;
        double smooth = fmin(1, fmax(0, (waves - low) / (high - low)));
        factors[i] = (float)(1 / ((1 - smooth) / rope->factor + smooth));
    }
    return TT_OK;
}

static tt_status add_longrope_factors(const struct tt_rope *rope, struct tt_gguf_header *header,
                                      struct tt_gguf_vectors *vectors)
{
    int64_t count = rope->columns / 2;
    float *factors = NULL;
    TT_TRY(add(header, "rope_factors_long.weight", count, vectors, &factors));
    memcpy(factors, rope->long_factor, (size_t)count * sizeof *factors);
    TT_TRY(add(header, "rope_factors_short.weight", count, vectors, &factors));
    memcpy(factors, rope->short_factor, (size_t)count * sizeof *factors);
    return TT_OK;
}

/* The pairs that do not turn have the divisor that llama.cpp's converter gives them (conversion/gemma.py). */
static tt_status add_proportional_factors(const struct tt_rope *rope, struct tt_gguf_header *header,
                                          struct tt_gguf_vectors *vectors)
{
    bool proportional = rope->type == TT_ROPE_PROPORTIONAL;
    int64_t count = rope->columns / 2;
    float *factors = NULL;
    TT_TRY(add(header, "rope_freqs.weight", count, vectors, &factors));
    for (int64_t i = 0; i < count; i++) {
        float turning = proportional ? (float)rope->factor : 1.0f;
        factors[i] = !proportional || i < rope->turning ? turning : 1e30f;
    }
    return TT_OK;
}

static tt_status add_constants(const struct tt_model_facts *facts, struct tt_gguf_header *header,
                               struct tt_gguf_vectors *vectors)
{
    struct tt_gguf_constant constants[TT_GGUF_CONSTANTS_MAX];
    int count = facts->family->gguf->constants(facts, constants);
    for (int64_t layer = 0; layer < facts->num_hidden_layers; layer++) {
        for (int c = 0; c < count; c++) {
            char name[64];
            float *values = NULL;
            (void)snprintf(name, sizeof name, "blk.%d.%s.weight", (int)layer, constants[c].name);
            TT_TRY(add(header, name, constants[c].count, vectors, &values));
            for (int64_t i = 0; i < constants[c].count; i++) values[i] = constants[c].value;
        }
    }
    return TT_OK;
}

tt_status tt_gguf_add_vectors(const struct tt_model_facts *facts, struct tt_gguf_header *header,
                              struct tt_gguf_vectors *vectors)
{
    const struct tt_rope *rope = &facts->ropes[0];
    if (rope->type == TT_ROPE_LLAMA3) TT_TRY(add_llama3_factors(rope, header, vectors));
    if (rope->type == TT_ROPE_LONGROPE) TT_TRY(add_longrope_factors(rope, header, vectors));
    if (facts->family->gguf->factors) TT_TRY(add_proportional_factors(rope, header, vectors));
    return facts->family->gguf->constants != NULL ? add_constants(facts, header, vectors) : TT_OK;
}

void tt_gguf_vectors_deinit(struct tt_gguf_vectors *vectors)
{
    for (size_t i = 0; i < vectors->count; i++) tt_free(vectors->items[i].values);
    tt_free(vectors->items);
    *vectors = (struct tt_gguf_vectors){0};
}
