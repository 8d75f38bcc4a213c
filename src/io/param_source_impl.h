/* Patterns of names and the sizes of parts, for who joins tensors. Internal to src/io (param_source.h). */
#ifndef TT_IO_PARAM_SOURCE_IMPL_H
#define TT_IO_PARAM_SOURCE_IMPL_H

#include "io/param_source.h"

/* The numbers in a name, -1 where it has none. */
struct tt_source_numbers {
    int64_t layer, expert;
};

/* Whether a name below `path` fits a pattern, and its numbers. */
bool tt_source_fits(const char *path, const char *pattern, const char *name,
                    struct tt_source_numbers *numbers);
void tt_source_name(const char *path, const char *pattern, struct tt_source_numbers numbers,
                    char name[TT_SOURCE_NAME_BYTES]);
int tt_source_part_count(const struct tt_param_source *source);
/* One whole tensor as it is, of any rank. */
bool tt_source_is_renamed(const struct tt_param_source *source);
bool tt_source_by_expert(const struct tt_source_part *part);
/* Units of a part, and of all parts: the shares of the parameter's rows. */
int64_t tt_source_units(const struct tt_source_part *part);
int64_t tt_source_all_units(const struct tt_param_source *source);

/* The tensor of this name in a list in order of name; NULL: none. */
const struct tt_stored_tensor_place *tt_stored_tensor_find(const struct tt_stored_tensor_place *tensors,
                                                           size_t count, const char *name);

/* Piece `index` of a joined tensor, in order of its elements, and the tensor that it is of; NULL behind the last. */
const struct tt_source_piece *tt_joined_piece_at(const struct tt_safetensors *file,
                                                 const struct tt_safetensors_entry *entry, size_t index,
                                                 const struct tt_stored_tensor_place **place);

#endif
