/* Checkpoints on disk, without a run: listing, verification, and conversion of a training state in one file per rank
 * (SHARDED_STATE_DICT) to the files of FULL_STATE_DICT. */
#ifndef TT_CHECKPOINT_CONSOLIDATE_H
#define TT_CHECKPOINT_CONSOLIDATE_H

#include "base/thread.h"
#include "checkpoint/manifest.h"

struct tt_checkpoint_facts {
    int64_t step;
    bool adapter; /* else a model */
    /* files of training state: 0 none (save_only_model); more than 1: one per rank, or a large state */
    int state_parts;
    int64_t ranks;  /* that wrote it; 0: unknown */
    uint64_t bytes; /* of all files that the manifest lists */
    size_t files;
};
/* Facts from the manifest and the names of its files; sums are not checked. TT_ERR_DATA when there is no manifest or a
 * file is missing or of another size; the known facts are filled even then. */
TT_MUST_USE tt_status tt_checkpoint_facts(const char *folder, struct tt_checkpoint_facts *facts);

/* Checks that every byte is as saved (manifest.h), every safetensors file is well formed, and the training state has
 * every element of every tensor once. TT_ERR_DATA names the file or the tensor. */
TT_MUST_USE tt_status tt_checkpoint_verify(const char *folder, const struct tt_cancel *cancel);

/* Checks that every byte of the weights, and of the other files of the result, is as saved: all but the tensors of the
 * training state. TT_ERR_DATA as tt_manifest_verify. */
TT_MUST_USE tt_status tt_checkpoint_verify_weights(const char *folder, const struct tt_cancel *cancel);

/* Verifies the checkpoint and writes a copy with the training state in whole tensors, in the same files that
 * FULL_STATE_DICT writes (max_file_bytes: see tt_state_split; 0 except in tests). All other files are copied, with
 * state_dict_type changed in training_state.json. `output_dir` must not exist, or be empty, unless `overwrite`; it
 * appears when it is complete. *tensors: number of tensors of the state. */
TT_MUST_USE tt_status tt_checkpoint_consolidate(const char *folder, const char *output_dir, bool overwrite,
                                                uint64_t max_file_bytes, const struct tt_cancel *cancel,
                                                size_t *tensors);

#endif
