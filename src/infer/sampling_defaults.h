/* The settings of sampling that a model's generation_config.json recommends: do_sample, temperature, top_k, top_p,
 * min_p and repetition_penalty, as transformers writes it. */
#ifndef TT_INFER_SAMPLING_DEFAULTS_H
#define TT_INFER_SAMPLING_DEFAULTS_H

#include "base/str.h"
#include "infer/sampling.h"

struct tt_inputs;

/* Values that settings of ours gave, and that stay. */
struct tt_sampling_given {
    bool draws; /* whether tokens are drawn */
    bool temperature, top_k, top_p, min_p, repetition_penalty;
};
/* Replaces what was not given by the file's values, where the folder has the file. `said`: appended to, what was
 * replaced, as "temperature 0.7, top_p 0.8"; nothing where that is nothing. A value of another type or out of range is
 * an error that names the file. */
TT_MUST_USE tt_status tt_sampling_recommend(const struct tt_inputs *inputs,
                                            const struct tt_sampling_given *given,
                                            struct tt_sampling_options *sampling, struct tt_str *said);

#endif
