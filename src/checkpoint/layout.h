/* Which tensor of a save lies in which file, and where: made the same by every rank from the model alone. */
#ifndef TT_CHECKPOINT_LAYOUT_H
#define TT_CHECKPOINT_LAYOUT_H

#include "io/safetensors.h"
#include "model/model.h"

struct tt_weights_file {
    char name[48];                        /* "adapter_model.safetensors", "model-00001-of-00003.safetensors" */
    struct tt_str header;                 /* owned */
    uint64_t bytes;                       /* header and data */
    struct tt_safetensors_entry *entries; /* owned */
    const tt_param **params;              /* owned: the parameter of each entry */
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
void tt_weights_layout_deinit(struct tt_weights_layout *layout);
/* model.safetensors.index.json of a layout of several files. */
TT_MUST_USE tt_status tt_weights_layout_index(const struct tt_weights_layout *layout, struct tt_str *json);

#endif
