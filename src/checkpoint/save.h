/* Saving, while training goes on. What is saved is copied into host memory (state_snapshot.h); a thread of each rank
 * then writes that rank's slices at their final offsets: no gather, and no collective while bytes move. Rank 0 adds
 * the small files and the manifest (manifest.h). Nothing is visible before it is complete: temporary folder -> files
 * -> fsync -> manifest -> rename -> fsync of the parent. Large saves are several files of weights and of state, which
 * are written at the same time.
 *
 * An adapter run leaves a PEFT folder (adapter_model.safetensors, adapter_config.json), full fine-tuning a model
 * folder (model.safetensors, or shards with an index; config.json and generation_config.json byte for byte); both with
 * the tokenizer files byte for byte, and with the training state (layout.h) where a save has one. The adapter file in
 * fp32 is the masters; only where the weights file has another type does the state repeat them.
 *
 *     begin  ->  wait for the copies, before values change  ->  collect (mine is done?), step by step
 *            ->  finish, all together
 *
 * The thread begins to write as soon as its copies are there, and rank 0's publishes when the last rank has written:
 * neither waits for the step that runs meanwhile.
 */
#ifndef TT_CHECKPOINT_SAVE_H
#define TT_CHECKPOINT_SAVE_H

#include "checkpoint/state_snapshot.h"
#include "comm/comm.h"

struct tt_saver;

struct tt_saver_config {
    const struct tt_model *model; /* lent, as all below */
    struct tt_unit *const *units;
    struct tt_stream *stream; /* what is queued in it is saved */
    struct tt_snapshot *snapshot;
    struct tt_comm *comm; /* all ranks of the run; its rank 0 makes small files */
    /* this rank's slices are not also another rank's to write (replicas) */
    bool writes;
    bool sharded;    /* the state goes into one file per rank that writes */
    int part, parts; /* number of this rank's piece, and of how many */
    tt_dtype dtype;  /* of the weights file */
    /* NULL or lent: a stop was requested; shortens waits for other ranks' files */
    const struct tt_cancel *stop;
    const char *base_folder; /* model folder: its config.json and tokenizer files are copied */
    const char *base_name;   /* what adapter_config.json calls the base model; NULL: base_folder */
    uint64_t max_file_bytes; /* of one file; 0: 5 GB of weights, 1 GB or a 32nd of the state */
};
/* Collective. */
TT_MUST_USE tt_status tt_saver_create(const struct tt_saver_config *config, struct tt_saver **out);
/* A save under way is given up; takes NULL. */
void tt_saver_destroy(struct tt_saver *saver);
/* Before that, when the run ends in an error: what is saved is from before the error, so this rank writes its part to
 * the end, and rank 0 waits so long for the parts of the others. Not collective; true and `report` as
 * tt_saver_collect. */
struct tt_save_report;
bool tt_saver_complete(struct tt_saver *saver, double patience_seconds, struct tt_save_report *report);

struct tt_save_text {
    const char *name;
    struct tt_str text; /* owned; empty: no such file */
};
enum { TT_SAVE_TEXTS_MAX = 4 };

struct tt_save_job {
    const char *folder; /* where to: replaced as a whole, or, with `merge`, file by file */
    int64_t step;
    /* Without a manifest: the folder also holds other things. The texts are written last, and one that cannot be is a
     * warning: what trained is saved without them. */
    bool merge;
    bool state; /* with the training state; needs a snapshot with moments */
    /* on rank 0: more files; taken over, whatever is returned */
    struct tt_save_text texts[TT_SAVE_TEXTS_MAX];
    /* On rank 0, in the background, once the new folder is in its place and was verified; may be NULL. What fails
     * there is a failure of the save. `context` is lent until the save is finished. */
    tt_status (*published)(void *context);
    void *context;
};
/* All ranks; none may have a save under way. */
TT_MUST_USE tt_status tt_saver_begin(struct tt_saver *saver, struct tt_save_job *job);
/* Before what is saved changes: waits for the copies. */
TT_MUST_USE tt_status tt_saver_wait_copies(struct tt_saver *saver);

struct tt_save_report {
    char folder[1024];
    double seconds;       /* begin to the end */
    double stall_seconds; /* of which the caller was kept */
    uint64_t bytes;       /* on rank 0: of all files */
};
/* This rank has ended its part, and ended it well: rank 0 when all is visible. Fills `report` once. Not collective. */
bool tt_saver_collect(struct tt_saver *saver, struct tt_save_report *report);
/* This rank's part has failed: a tt_saver_finish is due, on all ranks. */
bool tt_saver_failed(const struct tt_saver *saver);
/* Waits for the save under way, if any; collective, with the same outcome on all ranks. After a failure nothing of it
 * is left. `report` is filled when rank 0 has something new to report; *reported says whether. */
TT_MUST_USE tt_status tt_saver_finish(struct tt_saver *saver, struct tt_save_report *report, bool *reported);

/* Bytes of one save on disk, tokenizer and small files not counted. */
TT_MUST_USE tt_status tt_checkpoint_bytes(const struct tt_model *model, tt_dtype dtype, bool state,
                                          uint64_t *bytes);

#endif
