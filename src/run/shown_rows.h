/* Rows of the evaluation data that each evaluation of a training completes (eval_generate): shown, and recorded in
 * generations.jsonl. Their number and the weights do not depend on it, nor does any other number of the training. */
#ifndef TT_RUN_SHOWN_ROWS_H
#define TT_RUN_SHOWN_ROWS_H

#include "infer/generator.h"
#include "run/row_prompts.h"

struct tt_journal;
struct tt_run_job;

/* Shared by the ranks of a process. A zeroed struct is empty: no rows are shown. */
struct tt_shown_rows {
    struct tt_row_prompts prompts;
    struct tt_generate_options options;
    struct tt_generation_limits limits; /* of each of the ranks */
    struct tt_record_file *file;        /* rank 0's; NULL: none */
};

/* Chooses the rows. The answers are as long as the model's positions allow. TT_ERR_USAGE where no row has a prompt. */
TT_MUST_USE tt_status tt_shown_rows_init(const struct tt_inputs *inputs, const struct tt_watch_spec *watch,
                                         const struct tt_device_config *device, int ranks,
                                         struct tt_shown_rows *rows);
void tt_shown_rows_deinit(struct tt_shown_rows *rows);
/* Called in the process of rank 0: opens output_dir/generations.jsonl, with the lines up to `first_step` that it
 * has. */
TT_MUST_USE tt_status tt_shown_rows_open(const char *output_dir, int64_t first_step,
                                         struct tt_shown_rows *rows);
/* Who is shown them: the observer of the job, and the journal of rank 0. */
struct tt_shown_rows_to {
    const struct tt_run_job *job;
    struct tt_journal *journal;
    const struct tt_tokenizer *tokenizer;
};
/* Completes the rows with the weights as they are after `step`. `team`: NULL: nothing is shown. Collective. */
TT_MUST_USE tt_status tt_shown_rows_run(const struct tt_shown_rows *rows, const struct tt_shown_rows_to *to,
                                        struct tt_generation_team *team, int64_t step);

#endif
