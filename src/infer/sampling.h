/* Settings of the choice of the next token (backend/ops/sample.h). */
#ifndef TT_INFER_SAMPLING_H
#define TT_INFER_SAMPLING_H

#include <stdbool.h>

#include "backend/ops/sample.h"
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
/* Sampling by settings that tt_generate_resolve has resolved. */
struct tt_sampling_options tt_sampling_options_of(const struct tt_generate_config *config);
/* TT_ERR_USAGE for a value out of range. */
TT_MUST_USE tt_status tt_sampling_check(const struct tt_sampling_options *sampling);

bool tt_sampling_has_penalty(const struct tt_sampling_options *sampling);
/* The rules of a row for one draw. `uniform` in [0, 1); seen_row: where the op finds the ids so far. */
struct tt_sample_rule tt_sampling_rule(const struct tt_sampling_options *sampling, double uniform,
                                       int32_t seen_row);

#endif
