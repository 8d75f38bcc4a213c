/* Saving during training. The values are copied into host memory (state_snapshot.h); a thread of each rank then writes
 * that rank's slices at their final offsets, without a gather and without a collective during writing. Rank 0 adds the
 * small files and the manifest (manifest.h). A save becomes visible when it is complete: temporary folder -> files ->
 * fsync -> manifest -> rename -> fsync of the parent. Large saves are several files of weights and of state, written at
 * the same time.
 *
 * An adapter run writes a PEFT folder (adapter_model.safetensors, adapter_config.json), full fine-tuning a model
 * folder (model.safetensors, or shards with an index; config.json and generation_config.json byte for byte); both with
 * the tokenizer files byte for byte, and with the training state (layout.h) where a save has one. The adapter file in
 * fp32 holds the masters; the state repeats them only where the weights file has another type.
 *
 *     begin  ->  wait for the copies, before values change  ->  collect (poll this rank's part), each step
 *            ->  finish, all ranks together
 *
 * The thread starts to write when its copies are done, and that of rank 0 publishes when the last rank has written;
 * neither waits for the step that runs meanwhile.
 */
#ifndef TT_CHECKPOINT_SAVE_H
#define TT_CHECKPOINT_SAVE_H

#include "checkpoint/load.h"
#include "checkpoint/state_snapshot.h"
#include "comm/comm.h"

struct tt_saver;

/* A chat template, or a file of the tokenizer with new tokens, as a file of a saved folder:
 * "chat_template.jinja", "additional_chat_templates/tool_use.jinja". */
struct tt_save_template {
    const char *name, *text; /* text NULL: the model folder's file of this name is left out */
};

struct tt_saver_config {
    const struct tt_model *model; /* lent, as all below */
    struct tt_unit *const *units;
    struct tt_stream *stream; /* a save includes all work queued in it */
    struct tt_snapshot *snapshot;
    struct tt_comm *comm; /* all ranks of the run; its rank 0 writes the small files */
    /* this rank writes its slices (false for replicas of a rank that does) */
    bool writes;
    bool sharded;    /* the state is one file per rank that writes */
    int part, parts; /* index of this rank's piece, and number of pieces */
    tt_dtype dtype;  /* of the weights file */
    /* NULL or lent: a stop was requested; shortens waits for other ranks' files */
    const struct tt_cancel *stop;
    /* model folder: its config.json and tokenizer files, as they are now, are a part of each save, and so are the
     * tensors of parts beside the text model that trains; NULL: none */
    const struct tt_model_folder *base;
    /* those that changed the base: what is saved is an adapter of the base as it was (checkpoint/plain_adapter.h), and
     * `dtype` is fp32. Its file has the tensors' names in the folders that are saved; without it: none */
    struct tt_first_adapter first;
    const char *base_name; /* name of the base model in adapter_config.json; NULL: the folder's path */
    /* Chat templates that replace those of the model folder; lent. Without any, its own are saved. Without a model
     * folder: all small files. */
    const struct tt_save_template *templates;
    size_t template_count;
    const char *torch_name;  /* of a file of the same weights as torch.save writes it; NULL: none */
    uint64_t max_file_bytes; /* of one file; 0: 5 GB of weights, 1 GB or a 32nd of the state */
};
/* Collective. */
TT_MUST_USE tt_status tt_saver_create(const struct tt_saver_config *config, struct tt_saver **out);
/* Abandons a save in progress; takes NULL. */
void tt_saver_destroy(struct tt_saver *saver);
/* Call before destroy when the run ends in an error: the values of a save in progress are from before the error, so
 * this rank finishes its part, and rank 0 waits up to patience_seconds for the parts of the others. Not collective;
 * result and `report` as tt_saver_collect. */
struct tt_save_report;
bool tt_saver_complete(struct tt_saver *saver, double patience_seconds, struct tt_save_report *report);

struct tt_save_text {
    const char *name;
    struct tt_str text; /* owned; empty: no such file */
};
enum { TT_SAVE_TEXTS_MAX = 4 };

struct tt_save_job {
    const char *folder; /* destination: replaced as a whole, or, with `merge`, file by file */
    int64_t step;
    /* The folder has other content; no manifest. The texts are written last, and a failure of one is only a warning:
     * the weights are saved without them. */
    bool merge;
    bool state; /* with the training state; requires a snapshot with moments */
    /* on rank 0: more files; ownership is taken, also on failure */
    struct tt_save_text texts[TT_SAVE_TEXTS_MAX];
    /* Called on rank 0, in the background, after the new folder was renamed and verified; may be NULL. Its failure is a
     * failure of the save. `context` is lent until the save is finished. */
    tt_status (*published)(void *context);
    void *context;
};
/* Starts a save, on all ranks; none may have a save in progress. */
TT_MUST_USE tt_status tt_saver_begin(struct tt_saver *saver, struct tt_save_job *job);
/* Waits for the copies; call it before the saved values change. */
TT_MUST_USE tt_status tt_saver_wait_copies(struct tt_saver *saver);

struct tt_save_report {
    char folder[1024];
    double seconds;       /* from begin to the end */
    double stall_seconds; /* part of it in which the caller waited */
    uint64_t bytes;       /* on rank 0: of all files */
};
/* Polls whether this rank's part has succeeded (on rank 0: the whole save is visible). Fills `report` once. Not
 * collective. */
bool tt_saver_collect(struct tt_saver *saver, struct tt_save_report *report);
/* True if this rank's part has failed: all ranks must then call tt_saver_finish. */
bool tt_saver_failed(const struct tt_saver *saver);
/* Waits for the save in progress, if any; collective, with the same outcome on all ranks. After a failure its files are
 * removed. *reported: `report` was filled, because rank 0 has a new report. */
TT_MUST_USE tt_status tt_saver_finish(struct tt_saver *saver, struct tt_save_report *report, bool *reported);

/* Bytes of one save on disk, without the tokenizer and small files. `base`: the model folder, or NULL. `optimizer`:
 * whose state it has; NULL: none. */
TT_MUST_USE tt_status tt_checkpoint_bytes(const struct tt_model *model, const struct tt_model_folder *base,
                                          const struct tt_optimizer *optimizer, tt_dtype dtype,
                                          uint64_t *bytes);

#endif
