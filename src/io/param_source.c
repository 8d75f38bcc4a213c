#include "io/param_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "io/safetensors_impl.h"

/* The numbers in a name, -1 where it has none. */
struct numbers {
    int64_t layer, expert;
};

static bool take_number(const char **at, int64_t *number)
{
    const char *start = *at;
    int64_t value = 0;
    for (; **at >= '0' && **at <= '9' && *at - start < 9; (*at)++) value = value * 10 + (**at - '0');
    if (*at == start || (*start == '0' && *at - start > 1)) return false;
    *number = value;
    return true;
}

/* Whether a name fits a pattern, and its numbers. */
static bool fits(const char *pattern, const char *name, struct numbers *numbers)
{
    *numbers = (struct numbers){-1, -1};
    for (; *pattern != '\0'; pattern++) {
        if (*pattern == '#' || *pattern == '*') {
            if (!take_number(&name, *pattern == '#' ? &numbers->layer : &numbers->expert)) return false;
        } else if (*name++ != *pattern) {
            return false;
        }
    }
    return *name == '\0';
}

static void write_name(const char *pattern, struct numbers numbers, char name[TT_SOURCE_NAME_BYTES])
{
    size_t used = 0;
    for (; *pattern != '\0' && used + 24 < TT_SOURCE_NAME_BYTES; pattern++) {
        if (*pattern == '#' || *pattern == '*')
            used += (size_t)snprintf(name + used, TT_SOURCE_NAME_BYTES - used, "%lld",
                                     (long long)(*pattern == '#' ? numbers.layer : numbers.expert));
        else
            name[used++] = *pattern;
    }
    name[used] = '\0';
}

static int count_parts(const struct tt_param_source *source)
{
    int count = 0;
    while (count < TT_SOURCE_PARTS_MAX && source->parts[count].tensor != NULL) count++;
    return count;
}

const struct tt_param_source *tt_param_source_find(const struct tt_param_source *sources, const char *param,
                                                   int64_t *layer)
{
    struct numbers numbers;
    for (; sources != NULL && sources->param != NULL; sources++) {
        if (!fits(sources->param, param, &numbers)) continue;
        *layer = numbers.layer;
        return sources;
    }
    return NULL;
}

/* The piece of expert `expert` in part `part`, whose rows have `columns` values; `experts` 0: a matrix. */
static void set_piece(const struct tt_source_part *part, bool each, int64_t experts, int64_t expert,
                      int64_t rows, int64_t columns, struct tt_source_piece *piece)
{
    int ways = part->ways > 1 ? part->ways : 1;
    int64_t all = rows * ways, turned = part->transposed;
    bool stacked = experts > 0 && !each; /* the files' tensor has all experts */
    piece->rank = stacked ? 3 : 2;
    piece->dims[0] = stacked ? experts : 0;
    piece->dims[piece->rank - 2] = turned ? columns : all;
    piece->dims[piece->rank - 1] = turned ? all : columns;
    piece->rows = rows;
    piece->columns = columns;
    piece->row_stride = turned ? 1 : columns;
    piece->column_stride = turned ? all : 1;
    int64_t first_row = part->way * rows;
    if (part->interleaved) first_row = tt_interleaved_row(first_row, all, ways);
    piece->offset = (stacked ? expert * all * columns : 0) + first_row * piece->row_stride;
    if (part->interleaved) piece->row_stride *= ways;
}

/* One tensor as it is, under another name. */
static bool is_renamed(const struct tt_param_source *source, int parts)
{
    const struct tt_source_part *part = &source->parts[0];
    return parts == 1 && part->ways <= 1 && !part->transposed && strchr(part->tensor, '*') == NULL;
}

static tt_status visit_renamed(const struct tt_param_source *source, int64_t layer, int rank,
                               const int64_t *dims, tt_source_visit *visit, void *context)
{
    char name[TT_SOURCE_NAME_BYTES];
    struct tt_source_piece piece = {.tensor = name, .rank = rank, .rows = 1, .column_stride = 1};
    write_name(source->parts[0].tensor, (struct numbers){layer, -1}, name);
    for (int d = 0; d < rank; d++) piece.dims[d] = dims[d];
    for (int d = 0; d + 1 < rank; d++) piece.rows *= dims[d];
    piece.columns = piece.row_stride = dims[rank - 1];
    return visit(context, &piece);
}

tt_status tt_param_source_pieces(const struct tt_param_source *source, int64_t layer, int rank,
                                 const int64_t *dims, const int64_t *rows, tt_source_visit *visit,
                                 void *context)
{
    int parts = count_parts(source);
    int64_t experts = rank == 3 ? dims[0] : 0, columns = dims[rank - 1], first = 0;
    if (is_renamed(source, parts)) return visit_renamed(source, layer, rank, dims, visit, context);
    if (rank < 2)
        return tt_fail(TT_ERR_INTERNAL, "parameter '%s' has pieces and %d dimensions: pieces are matrices",
                       source->param, rank);
    for (int64_t e = 0; e < (experts > 0 ? experts : 1); e++)
        for (int p = 0; p < parts; p++) {
            const struct tt_source_part *part = &source->parts[p];
            char name[TT_SOURCE_NAME_BYTES];
            struct tt_source_piece piece = {.tensor = name, .first = first};
            write_name(part->tensor, (struct numbers){layer, e}, name);
            set_piece(part, strchr(part->tensor, '*') != NULL, experts, e,
                      rows != NULL ? rows[p] : dims[rank - 2] / parts, columns, &piece);
            TT_TRY(visit(context, &piece));
            first += piece.rows * piece.columns;
        }
    return TT_OK;
}

/* ---- Joined tensors ---- */

struct tt_joined_piece {
    struct tt_source_piece piece;
    struct tt_stored_tensor_place place;
};

/* The pieces of each tensor of the file, one tensor after the other. */
struct tt_joined {
    struct tt_joined_piece *pieces;
    size_t *firsts; /* [tensors + 1] */
    size_t count, room;
};

void tt_joined_destroy(struct tt_joined *joined)
{
    if (joined == NULL) return;
    tt_free(joined->pieces);
    tt_free(joined->firsts);
    tt_free(joined);
}

/* Elements [first, first + count) of a piece, counted from its own first. */
static tt_status read_piece(const struct tt_joined_piece *from, int64_t first, int64_t count, void *to)
{
    const struct tt_source_piece *piece = &from->piece;
    const struct tt_stored_tensor_place *place = &from->place;
    size_t width = tt_dtype_bytes(place->entry->dtype);
    if (piece->column_stride == 1 && piece->row_stride == piece->columns)
        return tt_safetensors_read(place->file, place->entry, piece->offset + first, count, to,
                                   place->entry->dtype);
    int64_t last = first + count - 1, low_row = first / piece->columns, high_row = last / piece->columns;
    bool whole = low_row < high_row;
    int64_t low_column = whole ? 0 : first % piece->columns,
            high_column = whole ? piece->columns - 1 : last % piece->columns;
    int64_t low = piece->offset + low_row * piece->row_stride + low_column * piece->column_stride;
    int64_t high = piece->offset + high_row * piece->row_stride + high_column * piece->column_stride;
    char *span = tt_alloc_aligned((size_t)(high - low + 1) * width), *out = to;
    if (span == NULL) return TT_ERR_MEMORY;
    tt_status status =
        tt_safetensors_read(place->file, place->entry, low, high - low + 1, span, place->entry->dtype);
    for (int64_t i = first; i <= last && status == TT_OK; i++, out += width) {
        int64_t at = piece->offset + i / piece->columns * piece->row_stride +
                     i % piece->columns * piece->column_stride - low;
        memcpy(out, span + (size_t)at * width, width);
    }
    tt_free(span);
    return status;
}

tt_status tt_joined_read(const struct tt_safetensors *file, const struct tt_safetensors_entry *entry,
                         int64_t first, int64_t count, void *to)
{
    const struct tt_joined *joined = file->joined;
    size_t tensor = (size_t)(entry - file->entries), width = tt_dtype_bytes(entry->dtype);
    for (size_t p = joined->firsts[tensor]; p < joined->firsts[tensor + 1] && count > 0; p++) {
        const struct tt_joined_piece *piece = &joined->pieces[p];
        int64_t end = piece->piece.first + piece->piece.rows * piece->piece.columns;
        if (first >= end) continue;
        int64_t here = end - first < count ? end - first : count;
        TT_TRY(read_piece(piece, first - piece->piece.first, here, to));
        to = (char *)to + (size_t)here * width;
        first += here;
        count -= here;
    }
    return TT_OK;
}

/* The tensors of the files. */
struct join {
    const char *origin;
    const struct tt_param_source *sources;
    const struct tt_stored_tensor_place *tensors; /* [count], in order of name */
    size_t count;
    bool *used; /* [count]: has a part of a joined tensor */
};

/* One parameter while its pieces are found. */
struct joining {
    const struct join *join;
    struct tt_joined *joined;
    struct tt_safetensors_entry entry; /* dtype of the first piece */
};

static int compare_places(const void *a, const void *b)
{
    return strcmp(((const struct tt_stored_tensor_place *)a)->name,
                  ((const struct tt_stored_tensor_place *)b)->name);
}

static const struct tt_stored_tensor_place *find_place(const struct join *join, const char *name)
{
    const struct tt_stored_tensor_place key = {.name = name};
    return bsearch(&key, join->tensors, join->count, sizeof key, compare_places);
}

static bool has_shape(const struct tt_safetensors_entry *entry, const struct tt_source_piece *piece)
{
    if (entry->rank != piece->rank) return false;
    for (int d = 0; d < piece->rank; d++)
        if (entry->dims[d] != piece->dims[d]) return false;
    return true;
}

static tt_status add_piece(void *context, const struct tt_source_piece *piece)
{
    struct joining *joining = context;
    struct tt_joined *joined = joining->joined;
    const struct tt_stored_tensor_place *place = find_place(joining->join, piece->tensor);
    if (place == NULL)
        return tt_fail(TT_ERR_DATA, "'%s' has a part of '%s' and lacks '%s'", joining->join->origin,
                       joining->entry.name, piece->tensor);
    if (joining->entry.dtype == TT_DTYPE_NONE) {
        joining->entry.dtype = place->entry->dtype;
        memcpy(joining->entry.dtype_name, place->entry->dtype_name, sizeof joining->entry.dtype_name);
    }
    if (!has_shape(place->entry, piece) || place->entry->dtype != joining->entry.dtype)
        return tt_fail(TT_ERR_DATA, "'%s': '%s' has another shape or type than the other parts of '%s'",
                       joining->join->origin, piece->tensor, joining->entry.name);
    if (joined->count == joined->room) {
        size_t room = joined->room * 2 + 64;
        struct tt_joined_piece *grown = tt_realloc(joined->pieces, room, sizeof *grown);
        if (grown == NULL) return TT_ERR_MEMORY;
        joined->pieces = grown;
        joined->room = room;
    }
    joined->pieces[joined->count] = (struct tt_joined_piece){*piece, *place};
    joined->pieces[joined->count++].piece.tensor = place->name;
    joining->join->used[place - joining->join->tensors] = true;
    return TT_OK;
}

static const struct tt_safetensors_entry *find_part(const struct join *join,
                                                    const struct tt_source_part *part, struct numbers numbers)
{
    char name[TT_SOURCE_NAME_BYTES];
    write_name(part->tensor, numbers, name);
    const struct tt_stored_tensor_place *place = find_place(join, name);
    return place != NULL ? place->entry : NULL;
}

/* The shape of a joined tensor, from its first expert. */
static tt_status find_shape(const struct joining *joining, const struct tt_param_source *source,
                            int64_t layer, int64_t dims[3], int64_t rows[TT_SOURCE_PARTS_MAX])
{
    const struct join *join = joining->join;
    bool each = strchr(source->parts[0].tensor, '*') != NULL;
    dims[0] = dims[1] = dims[2] = 0;
    while (each && dims[0] < TT_SOURCE_EXPERTS_MAX &&
           find_part(join, &source->parts[0], (struct numbers){layer, dims[0]}) != NULL)
        dims[0]++;
    for (int p = 0; p < count_parts(source); p++) {
        const struct tt_source_part *part = &source->parts[p];
        const struct tt_safetensors_entry *entry = find_part(join, part, (struct numbers){layer, 0});
        if (entry == NULL) continue; /* add_piece names it */
        int ways = part->ways > 1 ? part->ways : 1;
        if (entry->rank < 2 || entry->rank > (each ? 2 : 3) ||
            entry->dims[entry->rank - (part->transposed ? 1 : 2)] % ways != 0)
            return tt_fail(TT_ERR_DATA, "'%s': '%s' has another shape or type than the other parts of '%s'",
                           join->origin, entry->name, joining->entry.name);
        if (entry->rank == 3) dims[0] = entry->dims[0];
        rows[p] = entry->dims[entry->rank - (part->transposed ? 1 : 2)] / ways;
        dims[1] += rows[p];
        if (p == 0) dims[2] = entry->dims[entry->rank - (part->transposed ? 2 : 1)];
    }
    return TT_OK;
}

static tt_status join_one(struct joining *joining, struct tt_safetensors *file,
                          const struct tt_param_source *source, int64_t layer)
{
    char name[TT_SOURCE_NAME_BYTES];
    int64_t dims[3], rows[TT_SOURCE_PARTS_MAX] = {0}, elements = 1;
    write_name(source->param, (struct numbers){layer, -1}, name);
    joining->entry = (struct tt_safetensors_entry){.name = tt_arena_strdup(&file->arena, name)};
    if (joining->entry.name == NULL) return TT_ERR_MEMORY;
    TT_TRY(find_shape(joining, source, layer, dims, rows));
    int rank = dims[0] > 0 ? 3 : 2;
    joining->joined->firsts[file->count] = joining->joined->count;
    TT_TRY(tt_param_source_pieces(source, layer, rank, dims + 3 - rank, rows, add_piece, joining));
    joining->joined->firsts[file->count + 1] = joining->joined->count;
    joining->entry.rank = rank;
    for (int d = 0; d < rank; d++) {
        joining->entry.dims[d] = dims[3 - rank + d];
        elements *= joining->entry.dims[d];
    }
    joining->entry.offset = file->file_bytes;
    joining->entry.bytes = (uint64_t)elements * tt_dtype_bytes(joining->entry.dtype);
    file->file_bytes += joining->entry.bytes;
    file->entries[file->count++] = joining->entry;
    return TT_OK;
}

/* A parameter is joined where its first part, of its first expert, is there. */
static tt_status join_all(const struct join *join, struct tt_safetensors *file)
{
    for (const struct tt_param_source *source = join->sources; source->param != NULL; source++)
        for (size_t i = 0; i < join->count; i++) {
            struct numbers numbers;
            struct joining joining = {.join = join, .joined = file->joined};
            if (!fits(source->parts[0].tensor, join->tensors[i].name, &numbers) || numbers.expert > 0)
                continue;
            TT_TRY(join_one(&joining, file, source, numbers.layer));
        }
    return TT_OK;
}

static size_t count_sources(const struct tt_param_source *sources)
{
    size_t count = 0;
    while (sources[count].param != NULL) count++;
    return count;
}

/* A file without tensors yet, with room for `most`. */
static tt_status create_file(const char *origin, size_t most, struct tt_safetensors **out)
{
    struct tt_safetensors *file = tt_calloc(1, sizeof *file);
    *out = file;
    if (file == NULL) return TT_ERR_MEMORY;
    file->descriptor = -1;
    file->path = tt_strdup(origin);
    file->entries = tt_calloc(most, sizeof *file->entries);
    file->joined = tt_calloc(1, sizeof *file->joined);
    if (file->joined != NULL) file->joined->firsts = tt_calloc(most + 1, sizeof *file->joined->firsts);
    bool complete = file->path != NULL && file->entries != NULL && file->joined != NULL;
    return complete && file->joined->firsts != NULL ? TT_OK : TT_ERR_MEMORY;
}

/* The list with the joined tensors in the places of their parts. */
static tt_status replace_parts(const struct join *join, const struct tt_safetensors *file,
                               struct tt_stored_tensor_place **tensors, size_t *count)
{
    size_t kept = 0;
    struct tt_stored_tensor_place *shown = tt_calloc(join->count + file->count + 1, sizeof *shown);
    if (shown == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < join->count; i++)
        if (!join->used[i]) shown[kept++] = join->tensors[i];
    for (size_t i = 0; i < file->count; i++)
        shown[kept++] = (struct tt_stored_tensor_place){file->entries[i].name, &file->entries[i], file};
    tt_free(*tensors);
    *tensors = shown;
    *count = kept;
    return TT_OK;
}

tt_status tt_join(const char *origin, const struct tt_param_source *sources,
                  struct tt_stored_tensor_place **tensors, size_t *count, struct tt_safetensors **out)
{
    tt_status status = TT_OK;
    struct tt_safetensors *file = NULL;
    struct join join = {.origin = origin, .sources = sources, .tensors = *tensors, .count = *count};
    *out = NULL;
    join.used = tt_calloc(join.count + 1, sizeof *join.used);
    if (join.used == NULL) return TT_ERR_MEMORY;
    TT_GO(create_file(origin, join.count * count_sources(sources) + 1, &file));
    TT_GO(join_all(&join, file));
    if (file->count == 0) goto out;
    TT_GO(tt_safetensors_index(file));
    TT_GO(replace_parts(&join, file, tensors, count));
    *out = file;
    file = NULL;
out:
    tt_safetensors_close(file);
    tt_free(join.used);
    return status;
}
