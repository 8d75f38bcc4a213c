/* Rows of a data set as prompts, and what their answers should be. */
#ifndef TT_RUN_ROW_PROMPTS_H
#define TT_RUN_ROW_PROMPTS_H

#include "job/inputs.h"

/* A zeroed struct is empty. */
struct tt_row_prompts {
    size_t *rows; /* [count], ascending */
    struct tt_ids *prompts;
    struct tt_str *references;
    struct tt_str *rejected; /* of rows with two answers: the other one; NULL: rows have one */
    size_t count, longest;
};

/* The first `most` rows of `dataset` that have a prompt (0: all): that of a row of prompt and completion, else the
 * tokens before the last ones that train, which are the reference: the last answer of a conversation, behind the prompt
 * that its template made. The reference of a preference is the chosen answer. TT_ERR_USAGE where no row has a prompt.
 * `inputs` has the tokenizer. */
TT_MUST_USE tt_status tt_row_prompts_read(const struct tt_inputs *inputs, const struct tt_dataset *dataset,
                                          size_t most, struct tt_row_prompts *prompts);
void tt_row_prompts_deinit(struct tt_row_prompts *prompts);

#endif
