/* Checkpoints that lie on a disk, without a run: what is in one, whether it is whole, and one whose training
 * state lies in a file per rank (SHARDED_STATE_DICT) as FULL_STATE_DICT would have written it. */
#ifndef TT_CHECKPOINT_CONSOLIDATE_H
#define TT_CHECKPOINT_CONSOLIDATE_H

#include "base/thread.h"
#include "checkpoint/manifest.h"

struct tt_checkpoint_facts {
    int64_t step;
    bool adapter; /* else a model */
    /* files of training state: 0 none (save_only_model); more than 1: of one rank each, or of a large state */
    int state_parts;
    int64_t ranks;  /* that wrote it; 0: it does not say */
    uint64_t bytes; /* of all files that the manifest lists */
    size_t files;
};
/* From the manifest and the names of its files; TT_ERR_DATA when there is no manifest or a file is missing or
 * of another size (facts are filled as far as known then too). Sums are not looked at. */
TT_MUST_USE tt_status tt_checkpoint_facts(const char *folder, struct tt_checkpoint_facts *facts);

/* Every byte is as it was saved (manifest.h), every safetensors file is well formed, and the training state
 * has every element of every tensor once. TT_ERR_DATA names the file or the tensor. */
TT_MUST_USE tt_status tt_checkpoint_verify(const char *folder, const struct tt_cancel *cancel);

/* Writes the checkpoint once more, its training state in whole tensors, in the very files that FULL_STATE_DICT
 * would have written (with this max_file_bytes: tt_state_split; 0 unless for tests); all other files are copied,
 * but for state_dict_type in training_state.json. `output_dir` must not exist, or be empty, unless `overwrite`;
 * it appears when it is complete. The checkpoint is verified before. *tensors: of the state. */
TT_MUST_USE tt_status tt_checkpoint_consolidate(const char *folder, const char *output_dir, bool overwrite,
                                                uint64_t max_file_bytes, const struct tt_cancel *cancel,
                                                size_t *tensors);

#endif
