/* Choice of the next token from logits. */
#ifndef TT_INFER_SAMPLING_H
#define TT_INFER_SAMPLING_H

#include "base/rng.h"
#include "infer/generator.h"

/* Returns the id of the next token. logits[vocab] is overwritten when sampling; order[vocab] is scratch. The draw is a
 * pure function of (rng, counter). Greedy: the lowest index of the largest logit. */
int32_t tt_sample_token(float *logits, int64_t vocab, const struct tt_generate_options *options,
                        struct tt_rng rng, uint64_t counter, int32_t *order);

#endif
