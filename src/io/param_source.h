/* The place of a parameter's values in the files of a model: one tensor of its name, or several, or a part of one. A
 * family lists what its files hold otherwise than its parameters:
 *
 *     renamed      {.param = "layers.#.mlp.down", .parts = {{.tensor = "layers.#.mlp.c_proj"}}}, of any rank
 *     transposed   .parts = {{.tensor = "layers.#.mlp.c_proj", .transposed = true}}
 *     by expert    .parts = {{.tensor = "layers.#.mlp.experts.*.gate_proj.weight"},
 *                            {.tensor = "layers.#.mlp.experts.*.up_proj.weight"}}
 *     a stack      .parts = {{.tensor = "layers.#.attn.qkv", .units = 6, .unit = 4}}: rows 4/6 to 5/6 of the tensor
 *     in turn      .units = 2, .unit = 1, .unit_rows = 1: its odd rows
 *     in groups    .units = 6, .unit = 2, .count = 2, .unit_rows = 128: of every 768 rows those from 256 to 511
 *
 * A folder shows such tensors joined (tt_model_folder_join): who reads it sees the parameters, and nothing else knows
 * how they are stored. Who writes a folder asks for the pieces: for those of the folder that it writes alike
 * (tt_model_folder_pieces), or for those of the first row of a parameter where there are no files yet. A tensor of the
 * files is in parameters as a whole, each of its rows once.
 *
 * The names of parameters are those of transformers' class, and so are an adapter's. Where a family deals the rows of a
 * whole tensor anew, the class has them in the tensor's order, and the rows of an adapter's B follow
 * (tt_adapter_sources).
 *
 * Names are those below the path of the text model ("model"); they have '#' for the number of a layer and '*' for that
 * of an expert. The shape of a joined matrix is [rows, columns], and with experts (of a '*', or of tensors of rank 3)
 * [experts, rows, columns]; that of a vector [rows] or [experts, rows]. Several rows of one parameter are several ways
 * of files to hold it, tried in order. */
#ifndef TT_IO_PARAM_SOURCE_H
#define TT_IO_PARAM_SOURCE_H

#include "io/safetensors.h"
#include "io/text_part.h"

enum {
    TT_SOURCE_PARTS_MAX = 4,
    TT_SOURCE_NAME_BYTES = 256,
    TT_SOURCE_EXPERTS_MAX = 4096,
    TT_PARAM_SOURCES_MAX = 24 /* rows of a family */
};

struct tt_source_part {
    /* of the files: "layers.#.mlp.experts.*.gate_proj.weight"; NULL: no further part */
    const char *tensor;
    bool transposed; /* the files have [columns, rows] */
    /* 0: the part is the whole tensor. Else the tensor's rows are groups of `units` units each, and the part has, of
     * each group, `count` (0: 1) from number `unit` on. */
    int units, unit, count;
    int64_t unit_rows; /* rows of a unit; 0: the tensor is one group */
};

struct tt_param_source {
    const char *param; /* "layers.#.mlp.experts.gate_up_proj"; NULL ends a list */
    /* stacked in this order, in each expert; rows are in proportion to the counts */
    struct tt_source_part parts[TT_SOURCE_PARTS_MAX];
    bool vector; /* a bias: its rows have one column, without a dimension */
    /* 0: any. Else the row is for files where the parameter gets so many: they tell transposed tensors from others of
     * their name. */
    int64_t columns;
};

/* The rows of a family. Its parse may set their numbers, which follow from config.json. */
struct tt_param_sources {
    const char *path; /* of the text model, which the names are below: "model"; lent */
    struct tt_param_source rows[TT_PARAM_SOURCES_MAX + 1];
    /* NULL, or how the files begin names otherwise than the class; the rows have the class's names. */
    const struct tt_part_rename *renames;
};

/* A piece of a parameter: its elements from `first` on, rows x columns. Element (r, c) of them is that of number
 *     offset + r / group_rows * group_stride + r % group_rows * row_stride + c * column_stride
 * of a tensor of the files. */
struct tt_source_piece {
    const char *tensor; /* lent for the visit */
    int rank;           /* of the tensor, as all of its pieces say */
    int64_t dims[TT_SAFETENSORS_RANK_MAX];
    int64_t first, rows, columns;
    int64_t offset, group_rows, group_stride, row_stride, column_stride;
};
typedef tt_status tt_source_visit(void *context, const struct tt_source_piece *piece);

/* The place of element `element` of a piece in the tensor, and how many from it on are stored one after the other. */
int64_t tt_source_piece_place(const struct tt_source_piece *piece, int64_t element);
int64_t tt_source_piece_run(const struct tt_source_piece *piece, int64_t element);
/* Whether its rows are rows of the tensor, so that runs are whole rows at least. */
static inline bool tt_source_piece_by_rows(const struct tt_source_piece *piece)
{
    return piece->column_stride == 1;
}

/* Row `row` of a stack of `ways` stacks, `rows` rows in all, where their rows are in turn. */
static inline int64_t tt_interleaved_row(int64_t row, int64_t rows, int ways)
{
    int64_t each = rows / ways;
    return row % each * ways + row / each;
}

/* The first row of `sources` (NULL: none) for a parameter of this name, and the number of its layer (-1: none); NULL:
 * it is one tensor of its own name. */
const struct tt_param_source *tt_param_source_find(const struct tt_param_sources *sources, const char *param,
                                                   int64_t *layer);
/* The pieces of a parameter of this shape, in order of its elements, by one of the rows. A shape that cannot be cut so
 * is TT_ERR_INTERNAL. */
TT_MUST_USE tt_status tt_param_source_pieces(const struct tt_param_sources *sources,
                                             const struct tt_param_source *source, int64_t layer, int rank,
                                             const int64_t *dims, tt_source_visit *visit, void *context);

/* Elements [first, first + count) of a piece, counted from its own first, in the tensor's type: read from a file
 * tensor, no more than the rows or parts of rows that have them, or the range that covers them where they lie close. */
TT_MUST_USE tt_status tt_source_piece_read(const struct tt_source_piece *piece,
                                           const struct tt_safetensors *file,
                                           const struct tt_safetensors_entry *entry, int64_t first,
                                           int64_t count, void *to);
/* A tensor in a file that is written: its values begin at byte `offset`. */
struct tt_source_output {
    int descriptor;
    const char *path; /* for messages */
    uint64_t offset;
    size_t width; /* bytes of an element */
};
/* Writes such elements. Where the piece is not by rows and has gaps, what is between its elements is read and written
 * again: by one thread at a time for one tensor. */
TT_MUST_USE tt_status tt_source_piece_write(const struct tt_source_piece *piece,
                                            const struct tt_source_output *file, int64_t first, int64_t count,
                                            const void *from);

/* ---- Joined tensors, for model_folder.c and adapters ---- */

struct tt_stored_tensor_place {
    const char *name; /* that the folder gives it */
    const struct tt_safetensors_entry *entry;
    const struct tt_safetensors *file;
};
/* Makes a file of the joined tensors, which reads from the others, and puts them at the end of the list (owned by the
 * caller, in order of name) in the place of those that hold their parts; NULL in *out where nothing is joined. Parts
 * that are missing, of other shapes or in two parameters, and rows in none, are TT_ERR_DATA. `origin`: of the files,
 * for messages. */
TT_MUST_USE tt_status tt_join(const char *origin, const struct tt_param_sources *sources,
                              struct tt_stored_tensor_place **tensors, size_t *count,
                              struct tt_safetensors **out);
/* The same for one file, such as an adapter's: where tensors are joined *file becomes one of these and all others,
 * which owns the first. */
TT_MUST_USE tt_status tt_join_file(const struct tt_param_sources *sources, struct tt_safetensors **file);
/* The pieces of a joined tensor of such a file, in order of its elements; names are the files' own. */
TT_MUST_USE tt_status tt_joined_pieces(const struct tt_safetensors *file,
                                       const struct tt_safetensors_entry *entry, tt_source_visit *visit,
                                       void *context);

#endif
