/* Saving: every rank writes its own slices at their final offsets, no gather, no collective while bytes move. Nothing is
 * visible before it is complete: temporary folder -> files -> fsync -> rename -> fsync of the parent.
 *
 * An adapter run leaves a PEFT folder (adapter_model.safetensors, adapter_config.json), full fine-tuning a model folder
 * (model.safetensors, or shards with an index; config.json and generation_config.json byte for byte); both with the
 * tokenizer files byte for byte.
 */
#ifndef TT_CHECKPOINT_SAVE_H
#define TT_CHECKPOINT_SAVE_H

#include "comm/comm.h"
#include "model/model.h"
#include "shard/unit.h"

struct tt_save_request {
    const struct tt_model *model;
    struct tt_unit *const *units;
    struct tt_stream *stream;
    struct tt_comm *comm;           /* all ranks of the run; its rank 0 makes folders and small files */
    bool writes;                    /* this rank's slices are not also another rank's to write (replicas) */
    tt_dtype dtype;                 /* of the file */
    const char *base_folder;        /* model folder: for adapter_config.json, config.json and the tokenizer files */
    const char *folder;             /* where to: replaced as a whole, or, with `merge`, file by file */
    bool merge;
    uint64_t max_shard_bytes;       /* of one weights file; 0: 50 GB, transformers' default */
    /* Adds files to the temporary folder before it becomes visible; on rank 0 only; may be NULL. */
    tt_status (*extras)(void *context, const char *folder);
    void *extras_context;
};

/* Collective; on return all ranks agree. */
TT_MUST_USE tt_status tt_checkpoint_save(const struct tt_save_request *request);
/* Bytes that a save will take on disk, weights only (all ranks together). */
TT_MUST_USE tt_status tt_checkpoint_bytes(const struct tt_model *model, tt_dtype dtype, uint64_t *bytes);

#endif
