/* Tensors that are made of others: a file of them, which reads from theirs (param_source.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "base/str.h"
#include "io/param_source_impl.h"
#include "io/quantized_pieces.h"
#include "io/safetensors_impl.h"

struct tt_joined_piece {
    struct tt_source_piece piece;
    struct tt_stored_tensor_place place;
    struct tt_source_piece weights; /* of codes: the piece of the matrix; tensor NULL: they are no codes */
    const char *made;               /* NULL, or the bytes of the piece, which no file has */
};

/* The pieces of each tensor of the file, one tensor after the other. */
struct tt_joined {
    struct tt_joined_piece *pieces;
    size_t *firsts; /* [tensors + 1] */
    size_t count, room;
    struct tt_safetensors *own; /* NULL, or a file that the pieces are of, to close with this one */
};

void tt_joined_destroy(struct tt_joined *joined)
{
    if (joined == NULL) return;
    tt_safetensors_close(joined->own);
    tt_free(joined->pieces);
    tt_free(joined->firsts);
    tt_free(joined);
}

tt_status tt_joined_read(const struct tt_safetensors *file, const struct tt_safetensors_entry *entry,
                         int64_t first, int64_t count, void *to)
{
    const struct tt_joined *joined = file->joined;
    size_t tensor = (size_t)(entry - file->entries), width = tt_dtype_bytes(entry->dtype);
    for (size_t p = joined->firsts[tensor]; p < joined->firsts[tensor + 1] && count > 0; p++) {
        const struct tt_joined_piece *from = &joined->pieces[p];
        int64_t end = from->piece.first + from->piece.rows * from->piece.columns;
        if (first >= end) continue;
        int64_t here = tt_smaller(end - first, count);
        if (from->made != NULL)
            memcpy(to, from->made + (first - from->piece.first), (size_t)here);
        else
            TT_TRY(tt_source_piece_read(&from->piece, from->place.file, from->place.entry,
                                        first - from->piece.first, here, to));
        to = (char *)to + (size_t)here * width;
        first += here;
        count -= here;
    }
    return TT_OK;
}

const struct tt_source_piece *tt_joined_piece_at(const struct tt_safetensors *file,
                                                 const struct tt_safetensors_entry *entry, size_t index,
                                                 const struct tt_stored_tensor_place **place)
{
    const size_t *firsts = &file->joined->firsts[entry - file->entries];
    if (index >= firsts[1] - firsts[0]) return NULL;
    const struct tt_joined_piece *found = &file->joined->pieces[firsts[0] + index];
    *place = &found->place;
    return &found->piece;
}

static tt_status refuse_mxfp4(const struct tt_safetensors *file, const struct tt_safetensors_entry *entry)
{
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "'%s': '%s' is in MXFP4, which is read and not written",
                               file->path, entry->name);
    tt_hint("in Python, a model that is loaded with Mxfp4Config(dequantize=True) saves a folder in bfloat16");
    return status;
}

tt_status tt_joined_pieces(const struct tt_safetensors *file, const struct tt_safetensors_entry *entry,
                           tt_source_visit *visit, void *context)
{
    const struct tt_joined *joined = file->joined;
    size_t tensor = (size_t)(entry - file->entries);
    for (size_t p = joined->firsts[tensor]; p < joined->firsts[tensor + 1]; p++) {
        const struct tt_joined_piece *from = &joined->pieces[p];
        struct tt_source_piece piece = from->weights.tensor != NULL ? from->weights : from->piece;
        if (from->place.file->mxfp4 != NULL) return refuse_mxfp4(file, from->place.entry);
        piece.tensor = joined->pieces[p].place.entry->name;
        TT_TRY(visit(context, &piece));
    }
    return TT_OK;
}

/* ---- Joining ---- */

/* The rows of a tensor that parameters have; empty: no parameter has a part of it. */
struct used {
    char *rows;
    int64_t count, columns; /* of the pieces */
};

/* The tensors of the files. */
struct join {
    const char *origin;
    const struct tt_param_sources *sources;
    const struct tt_stored_tensor_place *tensors; /* [count], in order of name */
    size_t count;
    struct used *used; /* [count] */
    bool all;          /* the file has the other tensors too, where there are joined ones */
};

/* One parameter while its pieces are found. */
struct joining {
    const struct join *join;
    struct tt_joined *joined;
    const struct tt_param_source *source;
    struct tt_safetensors_entry entry;        /* dtype of the first piece */
    const struct tt_quantized_matrix *matrix; /* NULL: the parts are numbers */
    const struct tt_quantized_beside *beside; /* of the matrix: the tensor that is joined */
};

static const struct tt_stored_tensor_place *find_place(const struct join *join, const char *name)
{
    return tt_stored_tensor_find(join->tensors, join->count, name);
}

static const struct tt_stored_tensor_place *
find_part(const struct join *join, const struct tt_source_part *part, struct tt_source_numbers numbers)
{
    char name[TT_SOURCE_NAME_BYTES];
    tt_source_name(join->sources->path, part->tensor, numbers, name);
    return find_place(join, name);
}

enum { SHAPE_BYTES = 22 * TT_SAFETENSORS_RANK_MAX };

static const char *write_shape(int rank, const int64_t *dims, char text[SHAPE_BYTES])
{
    size_t used = 0;
    for (int d = 0; d < rank; d++)
        used +=
            (size_t)snprintf(text + used, SHAPE_BYTES - used, d > 0 ? ", %lld" : "%lld", (long long)dims[d]);
    text[used] = '\0';
    return text;
}

static bool has_shape(const struct tt_safetensors_entry *entry, const struct tt_source_piece *piece)
{
    if (entry->rank != piece->rank) return false;
    for (int d = 0; d < piece->rank; d++)
        if (entry->dims[d] != piece->dims[d]) return false;
    return true;
}

static bool is_plain(const struct tt_safetensors_entry *entry)
{
    return tt_dtype_is_float(entry->dtype) && tt_dtype_bytes(entry->dtype) > 1;
}

/* ---- Rows are in one parameter each ---- */

/* Number of a row of a piece among the rows of its tensor, those of a transposed one being its columns. */
static int64_t stored_row(const struct tt_source_piece *piece, int64_t row)
{
    int64_t place = tt_source_piece_place(piece, row * piece->columns);
    if (tt_source_piece_by_rows(piece)) return place / piece->columns;
    int64_t all = piece->dims[piece->rank - 1], matrix = all * piece->columns;
    return place / matrix * all + place % matrix;
}

static tt_status use_rows(const struct joining *joining, const struct tt_source_piece *piece,
                          const struct tt_stored_tensor_place *place)
{
    struct used *used = &joining->join->used[place - joining->join->tensors];
    int64_t elements =
        joining->matrix != NULL ? joining->matrix->layout.count : tt_safetensors_elements(place->entry);
    int64_t count = piece->columns > 0 ? elements / piece->columns : 0;
    if (used->rows == NULL) *used = (struct used){tt_calloc((size_t)count + 1, 1), count, piece->columns};
    if (used->rows == NULL) return TT_ERR_MEMORY;
    for (int64_t r = 0; r < piece->rows && count > 0; r++) {
        int64_t row = stored_row(piece, r);
        if (used->columns != piece->columns || used->rows[row])
            return tt_fail(TT_ERR_DATA, "'%s': row %lld of '%s' is in '%s' and in another parameter",
                           tt_safetensors_path(place->file), (long long)row, place->entry->name,
                           joining->entry.name);
        used->rows[row] = 1;
    }
    return TT_OK;
}

/* Rows that no parameter has would be lost when the model is saved. */
static tt_status check_rest(const struct join *join, const struct tt_joined *joined)
{
    for (size_t p = 0; p < joined->count; p++) {
        const struct tt_stored_tensor_place *place = &joined->pieces[p].place;
        const struct used *used = &join->used[find_place(join, place->name) - join->tensors];
        const char *left = memchr(used->rows, 0, (size_t)used->count);
        if (left != NULL)
            return tt_fail(TT_ERR_DATA, "'%s': row %lld of '%s' is in no parameter",
                           tt_safetensors_path(place->file), (long long)(left - used->rows),
                           place->entry->name);
    }
    return TT_OK;
}

/* ---- Pieces ---- */

static tt_status fail_missing(const struct joining *joining, const struct tt_source_piece *piece)
{
    char shape[SHAPE_BYTES];
    return tt_fail(TT_ERR_DATA, "'%s' has a part of '%s' and lacks '%s' of shape [%s]", joining->join->origin,
                   joining->entry.name, piece->tensor, write_shape(piece->rank, piece->dims, shape));
}

static tt_status fail_shape(const struct joining *joining, const struct tt_source_piece *piece,
                            const struct tt_stored_tensor_place *place)
{
    char is[SHAPE_BYTES], wanted[SHAPE_BYTES];
    const struct tt_safetensors_entry *entry = place->entry;
    return tt_fail(TT_ERR_DATA, "'%s': '%s' is %s [%s], and as a part of '%s' must be %s [%s]",
                   tt_safetensors_path(place->file), entry->name, entry->dtype_name,
                   write_shape(entry->rank, entry->dims, is), joining->entry.name, joining->entry.dtype_name,
                   write_shape(piece->rank, piece->dims, wanted));
}

/* Codes without scales beside them, of experts, and matrices of several. */
static tt_status refuse_quantized(const struct joining *joining, const struct tt_stored_tensor_place *place)
{
    tt_status status = tt_fail(
        TT_ERR_UNSUPPORTED,
        "'%s': '%s' is %s, and a part of '%s': quantized tensors are read in pieces where a matrix of "
        "one tensor has its scales beside it",
        tt_safetensors_path(place->file), place->entry->name, place->entry->dtype_name, joining->entry.name);
    tt_hint("use the folder of the original weights; they are quantized while loading");
    return status;
}

static tt_status push(struct tt_joined *joined, const struct tt_joined_piece *piece)
{
    TT_TRY(tt_grow(&joined->pieces, joined->count, &joined->room));
    joined->pieces[joined->count++] = *piece;
    return TT_OK;
}

/* A piece of the tensor that is joined, for one of the matrix. The codes have the rows of the matrix. */
static tt_status add_quantized(struct joining *joining, const struct tt_source_piece *of)
{
    const struct tt_quantized_matrix *matrix = joining->matrix;
    const struct tt_quantized_beside *beside = joining->beside;
    bool codes = beside == matrix->beside;
    struct tt_joined_piece piece = {.place = *beside->place};
    if (strcmp(of->tensor, matrix->codes->name) != 0 || !tt_source_piece_by_rows(of))
        return refuse_quantized(joining, matrix->codes);
    if (beside->each == 0 && of->first > 0) return TT_OK;
    TT_TRY(tt_quantized_piece(matrix, beside, of, &piece.piece));
    if (codes) {
        TT_TRY(use_rows(joining, of, matrix->codes));
        piece.weights = *of;
        piece.weights.tensor = matrix->codes->name;
    }
    return push(joining->joined, &piece);
}

static tt_status add_piece(void *context, const struct tt_source_piece *piece)
{
    struct joining *joining = context;
    const struct tt_stored_tensor_place *place = find_place(joining->join, piece->tensor);
    if (place == NULL) return fail_missing(joining, piece);
    if (joining->matrix != NULL) return add_quantized(joining, piece);
    if (!is_plain(place->entry)) return refuse_quantized(joining, place);
    if (!has_shape(place->entry, piece) || place->entry->dtype != joining->entry.dtype)
        return fail_shape(joining, piece, place);
    TT_TRY(use_rows(joining, piece, place));
    struct tt_joined_piece part = {.piece = *piece, .place = *place};
    part.piece.tensor = place->name;
    return push(joining->joined, &part);
}

/* The shape of a parameter, from the tensor of its first part and first expert. */
struct found_shape {
    int rank;
    int64_t dims[TT_SAFETENSORS_RANK_MAX];
};

static tt_status fail_first(const struct joining *joining, const struct tt_stored_tensor_place *place,
                            int64_t rows)
{
    char is[SHAPE_BYTES];
    return tt_fail(TT_ERR_DATA, "'%s': '%s' is [%s], and as a part of '%s' must have a multiple of %lld rows",
                   tt_safetensors_path(place->file), place->entry->name,
                   write_shape(place->entry->rank, place->entry->dims, is), joining->entry.name,
                   (long long)rows);
}

static int64_t count_experts(const struct join *join, const struct tt_source_part *part, int64_t layer)
{
    int64_t count = 0;
    while (count < TT_SOURCE_EXPERTS_MAX &&
           find_part(join, part, (struct tt_source_numbers){layer, count}) != NULL)
        count++;
    return count;
}

/* Experts are numbered without gaps. */
static tt_status check_expert(const struct join *join, const struct tt_source_part *part,
                              const struct tt_stored_tensor_place *place, struct tt_source_numbers numbers)
{
    char name[TT_SOURCE_NAME_BYTES];
    if (numbers.expert <= 0) return TT_OK;
    numbers.expert--;
    if (find_part(join, part, numbers) != NULL) return TT_OK;
    tt_source_name(join->sources->path, part->tensor, numbers, name);
    return tt_fail(TT_ERR_DATA, "'%s' has '%s' and lacks '%s'", join->origin, place->name, name);
}

static tt_status find_shape(const struct joining *joining, const struct tt_stored_tensor_place *place,
                            int64_t layer, struct found_shape *shape)
{
    const struct tt_param_source *source = joining->source;
    const struct tt_source_part *part = &source->parts[0];
    const struct tt_safetensors_entry *entry = place->entry;
    *shape = (struct found_shape){.rank = entry->rank};
    memcpy(shape->dims, entry->dims, sizeof shape->dims);
    if (tt_source_is_renamed(source)) return TT_OK;
    bool by_expert = tt_source_by_expert(part);
    int least = source->vector ? 1 : 2, most = least + !by_expert;
    int64_t units = tt_source_units(part), divisor = part->units > 0 ? part->units : 1;
    if (part->unit_rows > 0) divisor *= part->unit_rows;
    if (part->units == 0) divisor *= units;
    if (entry->rank < least || entry->rank > most) return fail_first(joining, place, divisor);
    int64_t rows = entry->dims[entry->rank - (source->vector || part->transposed ? 1 : 2)];
    int64_t columns = source->vector ? 1 : entry->dims[entry->rank - (part->transposed ? 2 : 1)];
    if (rows % divisor != 0) return fail_first(joining, place, divisor);
    if (part->units > 0) rows = rows / part->units * units;
    int d = 0;
    if (by_expert) shape->dims[d++] = count_experts(joining->join, part, layer);
    if (entry->rank > least) shape->dims[d++] = entry->dims[0];
    shape->dims[d++] = rows / units * tt_source_all_units(source);
    if (!source->vector) shape->dims[d++] = columns;
    shape->rank = d;
    return TT_OK;
}

static bool is_joined(const struct tt_safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->entries[i].name, name) == 0) return true;
    return false;
}

/* A tensor of the files as it is. */
static tt_status add_whole(struct tt_safetensors *file, const struct tt_stored_tensor_place *place)
{
    struct tt_joined *joined = file->joined;
    struct tt_safetensors_entry entry = *place->entry;
    int64_t count = tt_safetensors_elements(&entry);
    struct tt_source_piece piece = {
        .tensor = place->name, .rank = entry.rank, .rows = 1, .columns = count, .group_rows = 1};
    piece.group_stride = piece.row_stride = count;
    piece.column_stride = 1;
    memcpy(piece.dims, entry.dims, sizeof piece.dims);
    entry.name = tt_arena_strdup(&file->arena, place->name);
    if (entry.name == NULL) return TT_ERR_MEMORY;
    joined->firsts[file->count] = joined->count;
    TT_TRY(push(joined, &(struct tt_joined_piece){.piece = piece, .place = *place}));
    joined->firsts[file->count + 1] = joined->count;
    entry.offset = file->file_bytes;
    file->file_bytes += entry.bytes;
    file->entries[file->count++] = entry;
    return TT_OK;
}

/* The tensor `joining->entry` of this shape, whose pieces begin with `first`. */
static void add_entry(struct joining *joining, struct tt_safetensors *file, const struct found_shape *shape,
                      size_t first)
{
    struct tt_safetensors_entry *entry = &joining->entry;
    entry->rank = shape->rank;
    memcpy(entry->dims, shape->dims, sizeof shape->dims);
    entry->offset = file->file_bytes;
    entry->bytes = (uint64_t)tt_safetensors_elements(entry) * tt_dtype_bytes(entry->dtype);
    file->joined->firsts[file->count] = first;
    file->joined->firsts[file->count + 1] = joining->joined->count;
    file->file_bytes += entry->bytes;
    file->entries[file->count++] = *entry;
}

static tt_status join_pieces(struct joining *joining, struct tt_safetensors *file, int64_t layer,
                             const struct found_shape *shape)
{
    size_t first = joining->joined->count;
    TT_TRY(tt_param_source_pieces(joining->join->sources, joining->source, layer, shape->rank, shape->dims,
                                  add_piece, joining));
    add_entry(joining, file, shape, first);
    return TT_OK;
}

/* ---- Quantized matrices ---- */

static tt_status join_state(struct joining *joining, struct tt_safetensors *file, int64_t rows)
{
    struct tt_str text = {0};
    struct found_shape shape = {.rank = 1};
    struct tt_joined_piece piece = {.place = *joining->beside->place};
    tt_status status = tt_quantized_piece_state(joining->matrix, rows, &text);
    piece.made = status == TT_OK ? tt_arena_strdup(&file->arena, tt_str_text(&text)) : NULL;
    shape.dims[0] = piece.piece.columns = (int64_t)text.bytes;
    piece.piece.rows = 1;
    tt_str_deinit(&text);
    if (status != TT_OK || piece.made == NULL) return status != TT_OK ? status : TT_ERR_MEMORY;
    size_t first = joining->joined->count;
    TT_TRY(push(joining->joined, &piece));
    add_entry(joining, file, &shape, first);
    return TT_OK;
}

/* The shape of a part of `rows` rows; what belongs to every part has that of the whole. */
static struct found_shape shape_beside(const struct tt_quantized_matrix *matrix,
                                       const struct tt_quantized_beside *beside, int64_t rows)
{
    const struct tt_safetensors_entry *entry = beside->place->entry;
    struct found_shape shape = {.rank = entry->rank};
    memcpy(shape.dims, entry->dims, sizeof shape.dims);
    if (beside->each == 0 || rows == matrix->layout.rows) return shape;
    int64_t count = rows / beside->each * beside->columns;
    bool flat = entry->rank == 1 || entry->dims[1] == 1; /* codes of 4 bits, and scales of rows */
    shape.dims[0] = flat ? count : rows / beside->each;
    return shape;
}

static tt_status join_matrix(struct joining *joining, struct tt_safetensors *file, int64_t layer,
                             const struct found_shape *shape)
{
    const struct tt_quantized_matrix *matrix = joining->matrix;
    const char *weight = joining->entry.name;
    int module = (int)(strlen(weight) - strlen(matrix->beside[0].ending));
    for (int i = 0; i < matrix->count; i++) {
        const struct tt_quantized_beside *beside = joining->beside = &matrix->beside[i];
        struct found_shape part = shape_beside(matrix, beside, shape->dims[0]);
        size_t first = joining->joined->count;
        joining->entry = *beside->place->entry;
        joining->entry.name = tt_arena_printf(&file->arena, "%.*s%s", module, weight, beside->ending);
        if (joining->entry.name == NULL) return TT_ERR_MEMORY;
        if (beside->is_state) {
            TT_TRY(join_state(joining, file, shape->dims[0]));
        } else {
            TT_TRY(tt_param_source_pieces(joining->join->sources, joining->source, layer, shape->rank,
                                          shape->dims, add_piece, joining));
            add_entry(joining, file, &part, first);
        }
        struct used *used = &joining->join->used[beside->place - joining->join->tensors];
        if (used->rows == NULL) *used = (struct used){.rows = tt_calloc(1, 1)};
        if (used->rows == NULL) return TT_ERR_MEMORY;
    }
    return TT_OK;
}

static tt_status join_one(struct joining *joining, struct tt_safetensors *file,
                          const struct tt_stored_tensor_place *place, int64_t layer)
{
    char name[TT_SOURCE_NAME_BYTES];
    const struct tt_param_source *source = joining->source;
    const struct join *join = joining->join;
    struct found_shape shape;
    struct tt_quantized_matrix matrix;
    struct tt_stored_tensor_place seen = *place;
    tt_source_name(join->sources->path, source->param, (struct tt_source_numbers){layer, -1}, name);
    if (is_joined(file, name)) return TT_OK;
    joining->entry = *place->entry;
    joining->entry.name = tt_arena_strdup(&file->arena, name);
    if (joining->entry.name == NULL) return TT_ERR_MEMORY;
    TT_TRY(tt_quantized_matrix_find(place, join->tensors, join->count, &matrix));
    bool quantized = matrix.codes != NULL;
    bool weight = tt_ends_with(name, matrix.codes != NULL ? matrix.beside[0].ending : "");
    if (quantized ? source->vector || tt_source_by_expert(&source->parts[0]) || !weight
                  : !is_plain(place->entry))
        return refuse_quantized(joining, place);
    struct tt_safetensors_entry entry = *place->entry;
    if (quantized) {
        entry.rank = 2;
        entry.dims[0] = matrix.layout.rows;
        entry.dims[1] = matrix.layout.cols;
        seen.entry = &entry;
        joining->matrix = &matrix;
    }
    TT_TRY(find_shape(joining, &seen, layer, &shape));
    if (source->columns > 0 && shape.dims[shape.rank - 1] != source->columns) return TT_OK;
    return quantized ? join_matrix(joining, file, layer, &shape) : join_pieces(joining, file, layer, &shape);
}

/* A parameter is joined where its first part, of its first expert, is there. */
static tt_status join_all(const struct join *join, struct tt_safetensors *file)
{
    for (const struct tt_param_source *source = join->sources->rows; source->param != NULL; source++)
        for (size_t i = 0; i < join->count; i++) {
            struct tt_source_numbers numbers;
            const struct tt_stored_tensor_place *place = &join->tensors[i];
            struct joining joining = {.join = join, .joined = file->joined, .source = source};
            if (!tt_source_fits(join->sources->path, source->parts[0].tensor, place->name, &numbers))
                continue;
            TT_TRY(check_expert(join, &source->parts[0], place, numbers));
            if (numbers.expert <= 0) TT_TRY(join_one(&joining, file, place, numbers.layer));
        }
    TT_TRY(check_rest(join, file->joined));
    for (size_t i = 0, joined = file->count; i < join->count && join->all && joined > 0; i++)
        if (join->used[i].rows == NULL) TT_TRY(add_whole(file, &join->tensors[i]));
    return TT_OK;
}

static size_t count_sources(const struct tt_param_sources *sources)
{
    size_t count = 0;
    while (sources->rows[count].param != NULL) count++;
    return count;
}

/* A file without tensors yet, with room for `most`. */
static tt_status create_file(const char *origin, size_t most, struct tt_safetensors **out)
{
    struct tt_safetensors *file = *out = tt_safetensors_create(origin, most);
    if (file == NULL) return TT_ERR_MEMORY;
    file->joined = tt_calloc(1, sizeof *file->joined);
    if (file->joined != NULL) file->joined->firsts = tt_calloc(most + 1, sizeof *file->joined->firsts);
    return file->joined != NULL && file->joined->firsts != NULL ? TT_OK : TT_ERR_MEMORY;
}

/* The list with the joined tensors in the places of their parts. */
static tt_status replace_parts(const struct join *join, const struct tt_safetensors *file,
                               struct tt_stored_tensor_place **tensors, size_t *count)
{
    size_t kept = 0;
    struct tt_stored_tensor_place *shown = tt_calloc(join->count + file->count + 1, sizeof *shown);
    if (shown == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < join->count; i++)
        if (join->used[i].rows == NULL) shown[kept++] = join->tensors[i];
    for (size_t i = 0; i < file->count; i++)
        shown[kept++] = (struct tt_stored_tensor_place){file->entries[i].name, &file->entries[i], file};
    tt_free(*tensors);
    *tensors = shown;
    *count = kept;
    return TT_OK;
}

/* Makes the file; NULL where nothing is joined. */
static tt_status make_file(struct join *join, struct tt_safetensors **out)
{
    tt_status status = TT_OK;
    struct tt_safetensors *file = NULL;
    *out = NULL;
    join->used = tt_calloc(join->count + 1, sizeof *join->used);
    if (join->used == NULL) return TT_ERR_MEMORY;
    TT_GO(create_file(join->origin,
                      join->count * (count_sources(join->sources) * TT_QUANTIZED_BESIDE_MAX + join->all) + 1,
                      &file));
    TT_GO(join_all(join, file));
    if (file->count == 0) goto out;
    TT_GO(tt_safetensors_index(file));
    *out = file;
    file = NULL;
out:
    tt_safetensors_close(file);
    return status;
}

static void free_used(struct join *join)
{
    for (size_t i = 0; i < join->count && join->used != NULL; i++) tt_free(join->used[i].rows);
    tt_free(join->used);
}

tt_status tt_join(const char *origin, const struct tt_param_sources *sources,
                  struct tt_stored_tensor_place **tensors, size_t *count, struct tt_safetensors **out)
{
    struct join join = {.origin = origin, .sources = sources, .tensors = *tensors, .count = *count};
    tt_status status = make_file(&join, out);
    if (status == TT_OK && *out != NULL) status = replace_parts(&join, *out, tensors, count);
    if (status != TT_OK) {
        tt_safetensors_close(*out);
        *out = NULL;
    }
    free_used(&join);
    return status;
}

tt_status tt_join_file(const struct tt_param_sources *sources, struct tt_safetensors **file)
{
    struct tt_safetensors *from = *file, *made = NULL;
    struct tt_stored_tensor_place *tensors = tt_calloc(from->count + 1, sizeof *tensors);
    if (tensors == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < from->count; i++)
        tensors[i] = (struct tt_stored_tensor_place){from->by_name[i]->name, from->by_name[i], from};
    struct join join = {
        .origin = from->path, .sources = sources, .tensors = tensors, .count = from->count, .all = true};
    tt_status status = make_file(&join, &made);
    free_used(&join);
    tt_free(tensors);
    if (status != TT_OK || made == NULL) return status;
    made->joined->own = from;
    *file = made;
    return TT_OK;
}
