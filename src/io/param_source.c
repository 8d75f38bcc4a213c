#include "io/param_source_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool take_number(const char **at, int64_t *number)
{
    const char *start = *at;
    int64_t value = 0;
    for (; **at >= '0' && **at <= '9' && *at - start < 9; (*at)++) value = value * 10 + (**at - '0');
    if (*at == start || (*start == '0' && *at - start > 1)) return false;
    *number = value;
    return true;
}

bool tt_source_fits(const char *path, const char *pattern, const char *name,
                    struct tt_source_numbers *numbers)
{
    size_t below = strlen(path);
    *numbers = (struct tt_source_numbers){-1, -1};
    if (strncmp(name, path, below) != 0 || name[below] != '.') return false;
    for (name += below + 1; *pattern != '\0'; pattern++) {
        if (*pattern == '#' || *pattern == '*') {
            if (!take_number(&name, *pattern == '#' ? &numbers->layer : &numbers->expert)) return false;
        } else if (*name++ != *pattern) {
            return false;
        }
    }
    return *name == '\0';
}

void tt_source_name(const char *path, const char *pattern, struct tt_source_numbers numbers,
                    char name[TT_SOURCE_NAME_BYTES])
{
    size_t used = (size_t)snprintf(name, TT_SOURCE_NAME_BYTES, "%s.", path);
    for (; *pattern != '\0' && used + 24 < TT_SOURCE_NAME_BYTES; pattern++) {
        if (*pattern == '#' || *pattern == '*')
            used += (size_t)snprintf(name + used, TT_SOURCE_NAME_BYTES - used, "%lld",
                                     (long long)(*pattern == '#' ? numbers.layer : numbers.expert));
        else
            name[used++] = *pattern;
    }
    name[used] = '\0';
}

int tt_source_part_count(const struct tt_param_source *source)
{
    int count = 0;
    while (count < TT_SOURCE_PARTS_MAX && source->parts[count].tensor != NULL) count++;
    return count;
}

bool tt_source_is_renamed(const struct tt_param_source *source)
{
    const struct tt_source_part *part = &source->parts[0];
    return tt_source_part_count(source) == 1 && part->units == 0 && !part->transposed &&
           !tt_source_by_expert(part);
}

bool tt_source_by_expert(const struct tt_source_part *part)
{
    return strchr(part->tensor, '*') != NULL;
}

int64_t tt_source_units(const struct tt_source_part *part)
{
    return part->count > 0 ? part->count : 1;
}

int64_t tt_source_all_units(const struct tt_param_source *source)
{
    int64_t units = 0;
    for (int p = 0; p < tt_source_part_count(source); p++) units += tt_source_units(&source->parts[p]);
    return units;
}

const struct tt_param_source *tt_param_source_find(const struct tt_param_sources *sources, const char *param,
                                                   int64_t *layer)
{
    struct tt_source_numbers numbers;
    const struct tt_param_source *source = sources != NULL ? sources->rows : NULL;
    for (; source != NULL && source->param != NULL; source++) {
        if (!tt_source_fits(sources->path, source->param, param, &numbers)) continue;
        *layer = numbers.layer;
        return source;
    }
    return NULL;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct tt_stored_tensor_place *)a)->name,
                  ((const struct tt_stored_tensor_place *)b)->name);
}

const struct tt_stored_tensor_place *tt_stored_tensor_find(const struct tt_stored_tensor_place *tensors,
                                                           size_t count, const char *name)
{
    const struct tt_stored_tensor_place key = {.name = name};
    return bsearch(&key, tensors, count, sizeof key, compare_names);
}

/* The parameter as experts of rows. */
struct shape {
    int64_t experts, rows, columns; /* experts 0: one matrix, or vector */
    bool vector;
};

static struct shape shape_of(const struct tt_param_source *source, int rank, const int64_t *dims)
{
    int rows = source->vector ? rank - 1 : rank - 2;
    return (struct shape){.experts = rows == 1 ? dims[0] : 0,
                          .rows = dims[rows],
                          .columns = source->vector ? 1 : dims[rank - 1],
                          .vector = source->vector};
}

/* The piece of expert `expert` in part `part`, which has `rows` rows. */
static void set_piece(const struct tt_source_part *part, const struct shape *shape, int64_t expert,
                      int64_t rows, struct tt_source_piece *piece)
{
    bool stacked = shape->experts > 0 && !tt_source_by_expert(part); /* the files' tensor has all experts */
    int64_t count = tt_source_units(part), all = part->units > 0 ? rows / count * part->units : rows;
    int64_t unit_rows = part->unit_rows > 0 ? part->unit_rows : rows / count;
    int d = 0;
    if (stacked) piece->dims[d++] = shape->experts;
    if (part->transposed) piece->dims[d++] = shape->columns;
    piece->dims[d++] = all;
    if (!part->transposed && !shape->vector) piece->dims[d++] = shape->columns;
    piece->rank = d;
    piece->rows = rows;
    piece->columns = shape->columns;
    piece->row_stride = part->transposed ? 1 : shape->columns;
    piece->column_stride = part->transposed ? all : 1;
    piece->group_rows = part->units > 0 ? count * unit_rows : rows;
    piece->group_stride = (part->units > 0 ? part->units * unit_rows : rows) * piece->row_stride;
    piece->offset = (stacked ? expert * all * shape->columns : 0) +
                    (part->units > 0 ? part->unit * unit_rows : 0) * piece->row_stride;
}

/* One tensor as it is, under another name. */
static tt_status visit_renamed(const char *name, int rank, const int64_t *dims, tt_source_visit *visit,
                               void *context)
{
    struct tt_source_piece piece = {.tensor = name, .rank = rank, .rows = 1, .column_stride = 1};
    for (int d = 0; d < rank; d++) piece.dims[d] = dims[d];
    for (int d = 0; d < rank - (rank > 1); d++) piece.rows *= dims[d];
    piece.columns = piece.row_stride = rank > 1 ? dims[rank - 1] : 1;
    piece.group_rows = piece.rows;
    piece.group_stride = piece.rows * piece.columns;
    return visit(context, &piece);
}

static bool can_cut(const struct tt_param_source *source, const struct shape *shape)
{
    int64_t all = tt_source_all_units(source);
    if (shape->rows % all != 0) return false;
    for (int p = 0; p < tt_source_part_count(source); p++) {
        const struct tt_source_part *part = &source->parts[p];
        int64_t rows = shape->rows / all * tt_source_units(part);
        if (part->unit_rows > 0 && rows % (part->unit_rows * tt_source_units(part)) != 0) return false;
    }
    return true;
}

tt_status tt_param_source_pieces(const struct tt_param_sources *sources, const struct tt_param_source *source,
                                 int64_t layer, int rank, const int64_t *dims, tt_source_visit *visit,
                                 void *context)
{
    char name[TT_SOURCE_NAME_BYTES];
    tt_source_name(sources->path, source->parts[0].tensor, (struct tt_source_numbers){layer, -1}, name);
    if (tt_source_is_renamed(source)) return visit_renamed(name, rank, dims, visit, context);
    int least = source->vector ? 1 : 2;
    if (rank < least || rank > least + 1)
        return tt_fail(TT_ERR_INTERNAL, "parameter '%s' is in pieces of rank %d and has rank %d",
                       source->param, least, rank);
    struct shape shape = shape_of(source, rank, dims);
    if (!can_cut(source, &shape))
        return tt_fail(TT_ERR_INTERNAL, "parameter '%s' has %lld rows, which do not make whole pieces",
                       source->param, (long long)shape.rows);
    int64_t first = 0, all = tt_source_all_units(source);
    for (int64_t e = 0; e < (shape.experts > 0 ? shape.experts : 1); e++)
        for (int p = 0; p < tt_source_part_count(source); p++) {
            const struct tt_source_part *part = &source->parts[p];
            struct tt_source_piece piece = {.tensor = name, .first = first};
            tt_source_name(sources->path, part->tensor, (struct tt_source_numbers){layer, e}, name);
            set_piece(part, &shape, e, shape.rows / all * tt_source_units(part), &piece);
            TT_TRY(visit(context, &piece));
            first += piece.rows * piece.columns;
        }
    return TT_OK;
}
