/* Embeddings and head of the base in an adapter's file (PEFT's save_embedding_layers): where new tokens have changed
 * their number of rows, who opens the adapter has a base with fewer. Names are PEFT's, by what wraps the module. */
#ifndef TT_CHECKPOINT_BASE_COPIES_H
#define TT_CHECKPOINT_BASE_COPIES_H

#include "io/model_folder.h"
#include "model/model.h"

struct tt_base_copy {
    const char *name;                        /* in the adapter's file */
    const struct tt_safetensors_entry *base; /* in the folder */
};
enum { TT_BASE_COPIES = 2 };

/* The tables that an adapter of this model has beside its own tensors; names are in `arena`. */
TT_MUST_USE tt_status tt_base_copies_list(const struct tt_model *model, const struct tt_model_folder *base,
                                          struct tt_arena *arena, struct tt_base_copy copies[TT_BASE_COPIES],
                                          size_t *count);
/* Writes the parameter of the base of which an adapter's key has a copy, by its name below "base_model.model."; true in
 * *original where PEFT names it so because modules_to_save trains another copy. */
void tt_base_copy_param(const char *given, char *name, size_t bytes, bool *original);

#endif
