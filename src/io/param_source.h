/* The place of a parameter's values in the files of a model: one tensor of its name, or several, or a part of one. A
 * family lists what its files hold otherwise than its parameters: a matrix for each expert, weights of two linears
 * stacked or row by row in turn in one tensor, matrices that are transposed. A folder shows such tensors joined
 * (tt_model_folder_join): who reads it sees the parameters, and nothing else knows how they are stored. Who writes a
 * folder asks for the pieces.
 *
 * Names have '#' for the number of a layer and '*' for that of an expert. The shape of a joined tensor is [rows,
 * columns], and with experts (of a '*', or of tensors of rank 3) [experts, rows, columns]. */
#ifndef TT_IO_PARAM_SOURCE_H
#define TT_IO_PARAM_SOURCE_H

#include "io/safetensors.h"

enum { TT_SOURCE_PARTS_MAX = 4, TT_SOURCE_NAME_BYTES = 256, TT_SOURCE_EXPERTS_MAX = 4096 };

struct tt_source_part {
    /* of the files: "model.layers.#.mlp.experts.*.gate_proj.weight"; NULL: no further part */
    const char *tensor;
    bool transposed; /* the files have [columns, rows] */
    /* 0: the part is the whole tensor. Else the tensor's rows are `ways` stacks of as many rows, of which the part is
     * number `way`. */
    int ways, way;
    bool interleaved; /* their rows in turn, instead of one stack after the other */
};

struct tt_param_source {
    const char *param; /* "model.layers.#.mlp.experts.gate_up_proj"; NULL ends a list */
    struct tt_source_part parts[TT_SOURCE_PARTS_MAX]; /* stacked in this order, in each expert */
};

/* A piece of a parameter: its elements from `first` on are rows x columns of a tensor of the files. */
struct tt_source_piece {
    const char *tensor; /* lent for the visit */
    int rank;           /* of the tensor, as all of its pieces say */
    int64_t dims[3];
    int64_t first, rows, columns;
    int64_t offset, row_stride, column_stride; /* elements of the tensor */
};
typedef tt_status tt_source_visit(void *context, const struct tt_source_piece *piece);

/* Row `row` of a stack of `ways` stacks, `rows` rows in all, where their rows are in turn. */
static inline int64_t tt_interleaved_row(int64_t row, int64_t rows, int ways)
{
    int64_t each = rows / ways;
    return row % each * ways + row / each;
}

/* The row of `sources` (NULL: none) for a parameter of this name, and the number of its layer (-1: none); NULL: it is
 * one tensor of its own name. */
const struct tt_param_source *tt_param_source_find(const struct tt_param_source *sources, const char *param,
                                                   int64_t *layer);
/* The pieces of a parameter of this shape, in order of its elements; `rows[i]`: of part i in each expert; NULL: all
 * parts have as many. */
TT_MUST_USE tt_status tt_param_source_pieces(const struct tt_param_source *source, int64_t layer, int rank,
                                             const int64_t *dims, const int64_t *rows, tt_source_visit *visit,
                                             void *context);

/* ---- Joined tensors, for model_folder.c ---- */

struct tt_stored_tensor_place {
    const char *name; /* that the folder gives it */
    const struct tt_safetensors_entry *entry;
    const struct tt_safetensors *file;
};
/* Makes a file of the joined tensors, which reads from the others, and puts them at the end of the list (owned by the
 * caller, in order of name) in the place of those that hold their parts; NULL in *out where nothing is joined. Parts
 * that are missing or of other shapes are TT_ERR_DATA. `origin`: of the files, for messages. */
TT_MUST_USE tt_status tt_join(const char *origin, const struct tt_param_source *sources,
                              struct tt_stored_tensor_place **tensors, size_t *count,
                              struct tt_safetensors **out);

#endif
