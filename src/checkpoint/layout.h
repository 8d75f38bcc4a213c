/* File and offset of each tensor of a save. Every rank computes the same layout from the model alone. */
#ifndef TT_CHECKPOINT_LAYOUT_H
#define TT_CHECKPOINT_LAYOUT_H

#include "checkpoint/base_copies.h"
#include "io/model_folder.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "shard/unit.h"

/* The values of a trainable parameter, by number: its master, then those of its optimizer (tt_optimizer_value). */
enum { TT_SLOT_MASTER, TT_SLOT_STATE, TT_SLOTS = TT_SLOT_STATE + TT_STATE_VALUES };
/* "master.", fp32, and so on; false: the parameter has no such value. */
bool tt_slot_value(const struct tt_optimizer *optimizer, const tt_param *param, int slot,
                   struct tt_state_value *value);
/* Elements of a value, for `count` of its parameter's from a multiple of value->block on. */
int64_t tt_slot_elements(const struct tt_state_value *value, int64_t count);

/* Elements of a parameter in the entry that has them. */
struct tt_weights_piece {
    size_t entry; /* index in its file */
    const tt_param *param;
    struct tt_source_piece piece; /* io/param_source.h */
};

struct tt_weights_file {
    /* "adapter_model.safetensors", "model-00001-of-00003.safetensors" */
    char name[80];
    struct tt_str header;                 /* owned */
    uint64_t bytes;                       /* header and data */
    struct tt_safetensors_entry *entries; /* owned */
    /* owned, for each entry: its parameter (NULL: it has pieces, or is copied), the number of the value (TT_SLOT_...),
     * the parameter's element that the entry begins with */
    const tt_param **params;
    int *slots;
    int64_t *firsts;
    size_t count;
    struct tt_weights_piece *pieces; /* owned: of parameters that are not one tensor of the file */
    size_t piece_count, piece_room;
};

struct tt_weights_layout {
    struct tt_weights_file *files; /* owned */
    size_t file_count;
    uint64_t tensor_bytes;
    bool adapter;                               /* the adapter's tensors only, and: */
    struct tt_base_copy copies[TT_BASE_COPIES]; /* entries that rank 0 writes, from the base */
    size_t copy_count;
    /* Rank 0 writes the last file, when all ranks have written theirs: tensors of other parts, copied from the base,
     * and transposed ones, of the parameters in `turned`, a file that is then removed; without entries: none. */
    bool of_first;
    struct tt_weights_file turned;
    const struct tt_optimizer *optimizer; /* of a training state */
    struct tt_arena arena;                /* names */
};

/* The layout of the adapter parameters if the model has any, else of all parameters. A zeroed layout is empty. An
 * adapter is one file; a model is split into files of at most max_file_bytes, as even as whole tensors allow. Tensors
 * have names and shapes as in the files of the folder `base` (which may be NULL); without its weights, as the family's
 * first rows say (io/param_source.h). A further file has the tensors of other parts than the text model, and the
 * transposed ones. */
TT_MUST_USE tt_status tt_weights_layout_init(const struct tt_model *model, const struct tt_model_folder *base,
                                             tt_dtype dtype, uint64_t max_file_bytes,
                                             struct tt_weights_layout *layout);
/* The part of one rank, with a file per rank. */
struct tt_state_part {
    struct tt_unit *const *units;
    int number, count;
};
/* The layout of the training state, fp32 unless it says otherwise: the optimizer's moments of every trainable parameter
 * (AdamW's optimizer.exp_avg.<name> and optimizer.exp_avg_sq.<name>; of 8 bits optimizer.state1.<name> and state2, U8,
 * with optimizer.absmax1.<name> and absmax2, vectors with a size for each 256 elements), and, with `masters` (when the
 * weights file does not hold them exactly), master.<name>.
 * Without `part`: whole tensors in training_state.safetensors or, to respect max_file_bytes (tt_state_split), in
 * training_state-0000F-of-0000N.safetensors.
 * With `part`: the pieces of that rank, in training_state-0000R-of-0000N.safetensors; an entry is then a vector named
 * <key>[shape]@first, for example "optimizer.exp_avg.x.lora_A.weight[8,64]@256" for the elements from 256 on of a
 * matrix of 8 x 64. */
TT_MUST_USE tt_status tt_state_layout_init(const struct tt_model *model, const struct tt_optimizer *optimizer,
                                           bool masters, const struct tt_state_part *part,
                                           uint64_t max_file_bytes, struct tt_weights_layout *layout);
/* Assigns the tensors of a whole state to files. `bytes`: sizes of the tensors, in byte order of their names;
 * file_of[i]: number of the file of tensor i. Returns the number of files. max_file_bytes of 0: 1 GB, or a 32nd of the
 * whole where that is more. */
size_t tt_state_split(const uint64_t *bytes, size_t count, uint64_t max_file_bytes, size_t *file_of);
void tt_state_file_name(size_t index, size_t count, char *name, size_t name_bytes);
void tt_weights_layout_deinit(struct tt_weights_layout *layout);
/* model.safetensors.index.json of a layout of several files. */
TT_MUST_USE tt_status tt_weights_layout_index(const struct tt_weights_layout *layout, struct tt_str *json);

#endif
