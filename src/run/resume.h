/* Resuming from a checkpoint: selects it, checks that it belongs to the same run, and restores its state.
 *
 * The state of a run between steps is small: data order, learning rate and dropout are pure functions of the step.
 * training_state.json has the rest (counters, the best evaluation, the gradient watch), the settings that affect
 * training, the fingerprints of the input files, and the configuration as text. For the tensors see
 * checkpoint/state.h. */
#ifndef TT_RUN_RESUME_H
#define TT_RUN_RESUME_H

#include "base/json.h"
#include "checkpoint/state.h"
#include "data/sampler.h"
#include "io/model_folder.h"
#include "run/memory.h"

struct tt_run_data;
struct tt_run_job;
struct tt_run_length;
struct tt_inputs;
struct tt_objective;
struct tt_optimizer;
struct tt_rank;
struct tt_world;

/* One for each process. A zeroed struct: the run starts from the beginning. */
struct tt_resume {
    char *folder;                    /* owned; NULL: no checkpoint */
    int64_t step;                    /* optimizer steps done */
    struct tt_json state;            /* training_state.json */
    struct tt_json trainer;          /* trainer_state.json: the journal so far */
    struct tt_safetensors *adapter;  /* weights of an adapter run */
    struct tt_model_folder *weights; /* weights of full fine-tuning whose files hold the masters */
    struct tt_state *tensors;
    struct tt_best best; /* of the earlier part, as tt_best_find leaves it */
    char *best_folder;   /* owned; NULL: not found, or there is no best */
    /* The cost, on global rank 0: */
    uint64_t bytes;        /* of the files in the manifest */
    double verify_seconds; /* of all verified checkpoints, skipped ones included */
    double load_seconds;   /* to load model, adapter and training state into the devices */
};

/* True unless resume_from_checkpoint is off. */
bool tt_resume_is_requested(const char *setting);
/* True for the words that select the newest checkpoint; otherwise the setting is a folder. */
bool tt_resume_means_newest(const char *setting);
/* Collective over processes. The process of rank 0 finds the checkpoint, verifies every byte, and sends its name to the
 * others. `true` selects the newest complete checkpoint in output_dir and logs the skipped ones; without any checkpoint
 * the run starts from the beginning. */
TT_MUST_USE tt_status tt_resume_find(const struct tt_run_job *job, struct tt_resume *resume,
                                     struct tt_world *world);
/* Reads training_state.json, trainer_state.json and the tensors' headers; call it before the inputs are opened. */
TT_MUST_USE tt_status tt_resume_open(struct tt_resume *resume);
/* Call after inputs, samplers and configuration are known. Makes adapters load from the checkpoint. In the process of
 * rank 0, changed settings that affect training, rows or base model are TT_ERR_USAGE, which names them, unless
 * resume_changed is set; more steps in all alone are one line, which says what becomes of the learning rate. Other
 * changed input files (evaluation data, tokenizer, start adapter, training data with the same rows) are a warning. */
TT_MUST_USE tt_status tt_resume_prepare(const struct tt_run_job *job, struct tt_resume *resume,
                                        const struct tt_world *world, struct tt_run_data *data,
                                        struct tt_run_length *length);
/* TT_ERR_DATA unless the checkpoint has the parameters that the model trains. */
TT_MUST_USE tt_status tt_resume_check_model(const struct tt_resume *resume,
                                            const struct tt_optimizer *optimizer,
                                            const struct tt_model *model);
void tt_resume_close(struct tt_resume *resume);
/* Called after a device, a rank or the network ended the run: adds the command to resume and the checkpoint of
 * output_dir to the hint of this thread's record. A process that finds no checkpoint adds nothing, unless it has rank 0
 * (`first`). */
void tt_resume_hint(const char *output_dir, bool first);
/* Appends one paragraph: the checkpoint, its content, and the differences. */
TT_MUST_USE tt_status tt_resume_describe(const struct tt_resume *resume, const struct tt_run_job *job,
                                         const struct tt_run_length *length, int world_size,
                                         struct tt_str *text);

/* Call after tt_rank_load: restores the masters and moments of one rank. */
TT_MUST_USE tt_status tt_resume_load(const struct tt_resume *resume, const struct tt_cancel *cancel,
                                     struct tt_rank *rank);
/* Reads the best evaluation of a training_state.json; there need not be one. */
TT_MUST_USE tt_status tt_resume_best(const struct tt_json *state, struct tt_best *best);
/* Restores the memory of the run from the checkpoint, whose sums have the names of the objective's metrics.
 * memory->watch is initialized. */
TT_MUST_USE tt_status tt_resume_restore(const struct tt_resume *resume, const struct tt_objective *objective,
                                        struct tt_memory *memory);
/* Names of the identity: the samples of a step, all steps, and those of the warm-up. */
#define TT_RESUME_SHARED_PROMPT "shared_prompt" /* only where prompts are shared */
#define TT_RESUME_LORA_INIT "init_lora_weights" /* only where it changes the base */
#define TT_RESUME_SAMPLES                                                                                    \
    "samples of a step (ranks x per_device_train_batch_size x gradient_accumulation_steps)"
#define TT_RESUME_STEPS "steps in all (max_steps, num_train_epochs)"
#define TT_RESUME_WARMUP "warmup_steps"
/* run/resume_identity.c: the settings that affect training, by name, with a sum of the training rows and the samples of
 * a step. Owned; NULL without memory. */
struct tt_json_value *tt_resume_identity(const struct tt_run_job *job, const struct tt_inputs *inputs,
                                         const struct tt_run_length *length, int data_size);
/* Adds the word that the row of a setting has for a value. */
void tt_resume_add_word(struct tt_json_value *to, const char *name, int value);
/* The value that an identity without the name has in its place, where only values in use are written. Owned; NULL:
 * nothing is known, as of names that earlier versions lack. */
struct tt_json_value *tt_resume_unwritten(const char *name);
/* run/resume_changes.c: appends "NAME was VALUE and is VALUE" for each name of both identities, or of both tunings,
 * whose values differ; nothing where they agree. `before` may be of an earlier version. A name that one side lacks is
 * compared only where tt_resume_unwritten knows its value; no name of `except` (NULL, or ended by NULL) is compared. */
TT_MUST_USE tt_status tt_resume_changes(const struct tt_json_value *before, const struct tt_json_value *now,
                                        const char *const *except, struct tt_str *text);
/* run/resume_identity.c: how devices compute (backend/tuning.h). It decides how results are rounded, not what trains: a
 * difference is a warning. Owned; NULL without memory. */
struct tt_json_value *tt_resume_tuning(const struct tt_run_job *job, const struct tt_inputs *inputs);
/* Whether the model makes codes in FP8 otherwise than one whose tuning this was; NULL: it stored none. */
bool tt_resume_codes_differ(const struct tt_inputs *inputs, const struct tt_json_value *tuning);

#endif
