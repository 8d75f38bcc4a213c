/* Choice of the next token from logits: repetition penalty, temperature, top_k, top_p, min_p, in this order, then a
 * draw. transformers applies the same rules in the same order. */
#ifndef TT_INFER_SAMPLING_H
#define TT_INFER_SAMPLING_H

#include <stdbool.h>

#include "base/error.h"
#include "job/parts.h"

/* A zeroed struct is greedy, and without a penalty: 0 turns each rule off. */
struct tt_sampling_options {
    bool sample;        /* false: the likeliest token, after the penalty */
    double temperature; /* > 0; 0: 1 */
    int64_t top_k;      /* draw from this many likeliest tokens */
    double top_p;       /* in (0, 1]: draw from the likeliest tokens with this total probability */
    double min_p;       /* in (0, 1]: draw from tokens with at least this share of the largest probability */
    /* > 0: logits of ids that the prompt or the answer has are divided by it, negative ones multiplied */
    double repetition_penalty;
};
/* From settings that tt_generate_resolve has resolved. */
struct tt_sampling_options tt_sampling_options_of(const struct tt_generate_config *config);
/* TT_ERR_USAGE for a value out of range. */
TT_MUST_USE tt_status tt_sampling_check(const struct tt_sampling_options *sampling);

/* Memory of the choice among `vocab` tokens. A zeroed struct is empty. */
struct tt_sampling_scratch {
    int64_t vocab;
    int32_t *candidates; /* [vocab] */
    double *weights;     /* [vocab], of the candidates */
    uint64_t *seen;      /* a bit for each token, all 0 between calls */
};
TT_MUST_USE tt_status tt_sampling_scratch_init(int64_t vocab, struct tt_sampling_scratch *scratch);
void tt_sampling_scratch_deinit(struct tt_sampling_scratch *scratch);

/* Returns the id of the next token. `past`: the tokens of the prompt and the answer so far, which a repetition penalty
 * reads; it changes logits[scratch->vocab]. The draw is a pure function of the arguments: in descending order of the
 * probabilities, the token into whose share `uniform`, in [0, 1), falls. Of equal logits the lowest id counts as the
 * likeliest. */
int32_t tt_sample_token(float *logits, const struct tt_sampling_options *sampling, const int32_t *past,
                        size_t past_count, double uniform, struct tt_sampling_scratch *scratch);

#endif
