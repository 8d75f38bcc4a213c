/* Going on from a checkpoint: which one, whether the run is still the same one, and what is put back.
 *
 * What a run remembers from step to step is little: data order, learning rate and dropout are pure functions of the
 * step. training_state.json has the rest (counters, the best so far, what was watched) beside the settings that
 * matter, the fingerprints of the input files, and the configuration as text. The tensors are in checkpoint/state.h. */
#ifndef TT_RUN_RESUME_H
#define TT_RUN_RESUME_H

#include "base/json.h"
#include "checkpoint/state.h"
#include "data/sampler.h"
#include "io/model_folder.h"

struct tt_run;
struct tt_rank;
struct tt_world;
struct tt_memory;

/* One per process; a zeroed struct: the run begins at the beginning. */
struct tt_resume {
    char *folder;                    /* owned; NULL: nothing to go on from */
    int64_t step;                    /* optimizer steps done */
    struct tt_json state;            /* training_state.json */
    struct tt_json trainer;          /* trainer_state.json: the log so far */
    struct tt_safetensors *adapter;  /* what trained, when it was an adapter; */
    struct tt_model_folder *weights; /* when it was a whole model, and its files are the masters */
    struct tt_state *tensors;
    /* On global rank 0: what it cost. */
    uint64_t bytes;        /* of the files that the manifest lists */
    double verify_seconds; /* until the one to go on from was found: those that are passed over are in it */
    double load_seconds;   /* model, adapter and training state into the devices */
};

/* resume_from_checkpoint says more than "no". */
bool tt_resume_is_asked(const char *setting);
/* Collective over processes. The process of rank 0 looks for the checkpoint and verifies every byte; the others are
 * told. `true` takes the newest whole one in output_dir and names those it passes over; when there is none at all, the
 * run begins at the beginning. */
TT_MUST_USE tt_status tt_resume_find(struct tt_run *run, struct tt_world *world);
/* Before the inputs are opened: training_state.json, trainer_state.json, the tensors' headers. */
TT_MUST_USE tt_status tt_resume_open(struct tt_run *run);
/* When inputs, samplers and configuration are known: adapters are loaded from the checkpoint, and on the process of
 * rank 0 a setting that matters, rows or a base model that have changed are TT_ERR_USAGE, which names them, unless
 * resume_changed says to go on. Other input files that have changed (evaluation data, tokenizer, start adapter,
 * training data with the same rows) are a warning. */
TT_MUST_USE tt_status tt_resume_prepare(struct tt_run *run, const struct tt_world *world);
TT_MUST_USE tt_status tt_resume_check_model(const struct tt_run *run, const struct tt_model *model);
void tt_resume_close(struct tt_resume *resume);
/* After a device, a rank or the network ended the run: adds to the hint of this thread's record how to resume, and from
 * which checkpoint of output_dir. A process that sees none adds nothing, unless it has rank 0 (`first`). */
void tt_resume_hint(const char *output_dir, bool first);
/* One paragraph: from where, with what, and what is different. */
TT_MUST_USE tt_status tt_resume_describe(const struct tt_run *run, const struct tt_world *world,
                                         struct tt_str *text);

/* After tt_rank_load: masters and moments of one rank. */
TT_MUST_USE tt_status tt_resume_load(const struct tt_run *run, struct tt_rank *rank);
/* The memory of the run as the checkpoint has it. memory->watch is initialized. */
TT_MUST_USE tt_status tt_resume_restore(const struct tt_run *run, struct tt_memory *memory);
/* training_state.json as it is after `step`. Rank 0. */
TT_MUST_USE tt_status tt_resume_text(const struct tt_run *run, const struct tt_rank *rank, int64_t step,
                                     const struct tt_memory *memory, struct tt_str *text);

/* The name, in the identity, of what a step has in all. */
#define TT_RESUME_SAMPLES                                                                                    \
    "samples of a step (ranks x per_device_train_batch_size x gradient_accumulation_steps)"
/* run/resume_identity.c: settings that matter for going on, by their names, with a sum of the training rows and the
 * samples of a step. Owned; NULL without memory. */
struct tt_json_value *tt_resume_identity(const struct tt_run *run, int world_size);

#endif
