/* Exact match: greedy completions of the evaluation's prompts that equal the rows' own. */
#ifndef TT_RUN_EXACT_MATCH_H
#define TT_RUN_EXACT_MATCH_H

#include "engine/plan.h"
#include "infer/generator.h"
#include "run/row_prompts.h"

/* The rows that have a prompt, and what completes them. A zeroed struct is empty. */
struct tt_exact_match {
    const struct tt_inputs *inputs; /* lent */
    struct tt_row_prompts prompts;
    struct tt_generate_options options;
    struct tt_generation_limits limits;
};

/* All rows that have a prompt. TT_ERR_USAGE where none has one, or the model too few positions. `device`: of the
 * `ranks` ranks. */
TT_MUST_USE tt_status tt_exact_match_init(const struct tt_inputs *inputs, int64_t max_new_tokens,
                                          const struct tt_device_config *device, int ranks,
                                          struct tt_exact_match *match);
void tt_exact_match_deinit(struct tt_exact_match *match);
/* Completes the prompts on the ranks of the run, each a part of them, with their weights as they are sharded; `rank` is
 * loaded and its plan holds the generation. Every rank gets the sums. Collective. */
TT_MUST_USE tt_status tt_exact_match_run(const struct tt_exact_match *match, struct tt_rank *rank,
                                         const struct tt_cancel *cancel, int64_t *matches, int64_t *rows);

#endif
