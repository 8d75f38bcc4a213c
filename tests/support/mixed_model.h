/* A model of the tests whose layers differ, built of its facts as any family's. Two dense layers; a layer of three
 * halves, attention that reads the keys and values of the layer before it, a half that reads the inputs made with the
 * embeddings, and an MLP; and a layer of an MLP alone, twice as wide, which may read a column of the data before it. */
#ifndef TT_TESTS_SUPPORT_MIXED_MODEL_H
#define TT_TESTS_SUPPORT_MIXED_MODEL_H

#include "model/model.h"

enum { MIXED_LAYERS = 4, MIXED_INPUTS = 8 /* columns of the side value that the embeddings offer */ };

struct mixed_size {
    int64_t vocab, dim, ffn,
        heads; /* with as many values a head as make `dim`, and half as many key/value heads */
    /* NULL, or of the data, one value a token: a linear of it is added to the stream of the last layer, in f32 */
    const char *column;
};
/* The facts of such a model; `size` NULL: a tiny one. */
tt_status mixed_facts(const struct mixed_size *size, struct tt_model_facts *facts);

#endif
