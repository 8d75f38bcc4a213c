/* Which tensor of a save lies in which file, and where: made the same by every rank from the model alone. */
#ifndef TT_CHECKPOINT_LAYOUT_H
#define TT_CHECKPOINT_LAYOUT_H

#include "io/safetensors.h"
#include "model/model.h"
#include "shard/unit.h"

/* Which of a parameter's values: what trains has a master and two moments. */
enum tt_slot { TT_SLOT_MASTER, TT_SLOT_EXP_AVG, TT_SLOT_EXP_AVG_SQ, TT_SLOT_COUNT };

struct tt_weights_file {
    char name[48];                        /* "adapter_model.safetensors", "model-00001-of-00003.safetensors" */
    struct tt_str header;                 /* owned */
    uint64_t bytes;                       /* header and data */
    struct tt_safetensors_entry *entries; /* owned */
    const tt_param **params;              /* owned: the parameter of each entry, */
    enum tt_slot *slots;                  /* which of its values, and with which of its elements */
    int64_t *firsts;                      /* the entry begins */
    size_t count;
};

struct tt_weights_layout {
    struct tt_weights_file *files; /* owned */
    size_t file_count;
    uint64_t tensor_bytes;
    bool adapter;                  /* the adapter's tensors only */
    struct tt_arena arena;         /* names */
};

/* A model with adapter parameters lays out these; else all parameters. A zeroed layout is empty. */
TT_MUST_USE tt_status tt_weights_layout_init(const struct tt_model *model, tt_dtype dtype, uint64_t max_shard_bytes,
                                             struct tt_weights_layout *layout);
/* The training state, fp32: optimizer.exp_avg.<name> and optimizer.exp_avg_sq.<name> of every parameter that trains, and,
 * with `masters` (when the weights file does not hold them as they are), master.<name>. Without `units` whole tensors in
 * one file, training_state.safetensors. With the units of one rank: what that rank holds, in file `part` of `parts`,
 * training_state-0000R-of-0000N.safetensors; an entry is then a vector called <key>[shape]@first, which is
 * "optimizer.exp_avg.x.lora_A.weight[8,64]@256" for elements 256 and on of a matrix of 8 x 64. */
TT_MUST_USE tt_status tt_state_layout_init(const struct tt_model *model, bool masters, struct tt_unit *const *units,
                                           int part, int parts, struct tt_weights_layout *layout);
/* "optimizer.exp_avg." and so on. */
const char *tt_slot_prefix(enum tt_slot slot);

void tt_weights_layout_deinit(struct tt_weights_layout *layout);
/* model.safetensors.index.json of a layout of several files. */
TT_MUST_USE tt_status tt_weights_layout_index(const struct tt_weights_layout *layout, struct tt_str *json);

#endif
