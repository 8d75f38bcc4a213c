/* Whether the prompt of a row with several answers is computed once for all of them (data/fold.h). It is where that is
 * exact, up to the order of sums: not where a token of the prompt is drawn or turned otherwise for each answer. */
#ifndef TT_JOB_SHARED_PROMPT_H
#define TT_JOB_SHARED_PROMPT_H

#include "job/spec.h"

struct tt_shared_prompt {
    bool shares;
    size_t answers;     /* of a row; 1: there is nothing to share */
    const char *reason; /* NULL, or why it does not share */
};

/* Settles it by the setting shared_prompt. TT_ERR_USAGE: it is true, and sharing is not exact. `length`: tokens of the
 * longest sequence; `trains`: a training, with its dropout and noise. */
TT_MUST_USE tt_status tt_shared_prompt_settle(const struct tt_job_spec *job,
                                              const struct tt_model_facts *facts,
                                              const struct tt_model_options *options, int64_t length,
                                              bool trains, struct tt_shared_prompt *out);

/* A line for plans, of rows with `all` tokens of which `computed` are computed; 0: not known. Empty where a row has one
 * answer. */
void tt_shared_prompt_describe(const struct tt_shared_prompt *prompt, int64_t all, int64_t computed,
                               char *text, size_t text_bytes);

#endif
