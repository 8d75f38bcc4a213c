/* The inputs of a training, in their order. */
#ifndef TT_RUN_RUN_DATA_H
#define TT_RUN_RUN_DATA_H

#include "job/shared_prompt.h"
#include "launch/fingerprint.h"
#include "launch/world.h"
#include "run/reference.h"
#include "run/run_job.h"
#include "run/run_length.h"
#include "run/task.h"

/* A zeroed struct is empty. */
struct tt_run_data {
    /* what chat templates print: of the settings, the checkpoint or the start */
    char date[TT_CHAT_DATE_BYTES];
    /* NULL, or lent: the identity of the run that this one goes on, or is compared with */
    const struct tt_json_value *identity;
    struct tt_shared_prompt prompt;
    struct tt_inputs inputs;
    struct tt_safetensors *first_values; /* owned; NULL: none are read (run/first_adapter.h) */
    struct tt_load_source begin;         /* of a run that goes on: the values with which it began */
    struct tt_fingerprint fingerprint;   /* of the input files */
    struct tt_task_data train, eval;
    struct tt_batch_limits train_limits, eval_limits;
    struct tt_run_reference reference; /* empty unless it is computed before the first step */
};

/* Opens the inputs with data->date, and computes their fingerprint. `checkpoint`: NULL, or the one to resume from. */
TT_MUST_USE tt_status tt_run_data_open(const struct tt_run_job *job, const struct tt_world *world,
                                       const char *checkpoint, struct tt_run_data *data);
void tt_run_data_close(struct tt_run_data *data);
/* Orders the data; sets the limits of micro batches and the number of steps. `data_size`: ranks that train on different
 * samples. */
TT_MUST_USE tt_status tt_run_data_order(const struct tt_run_job *job, int data_size, struct tt_run_data *data,
                                        struct tt_run_length *length);
/* A line about the prompts of ordered rows (tt_shared_prompt_describe). */
void tt_run_data_describe_prompts(const struct tt_run_data *data, char *text, size_t text_bytes);
/* Drops that order, so that it may be made again. */
void tt_run_data_unorder(struct tt_run_data *data);

#endif
