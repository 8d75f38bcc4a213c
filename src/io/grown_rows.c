#include "io/grown_rows.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "base/rng.h"
#include "io/param_source_impl.h"
#include "io/safetensors_impl.h"

enum { READ_NUMBERS = 1 << 18 };

/* The share of the covariance that the samples have, as in transformers. */
static const double spread = 1e-9;

struct table {
    struct tt_stored_tensor_place stored;
    int64_t elements; /* of the stored one */
    void *rows;       /* owned: the new ones, in the table's type */
};

/* The tables of a file, in order of its entries. */
struct tt_grown_rows {
    struct table tables[TT_GROWN_TABLES];
};

void tt_grown_rows_destroy(struct tt_grown_rows *grown)
{
    if (grown == NULL) return;
    for (int t = 0; t < TT_GROWN_TABLES; t++) tt_free(grown->tables[t].rows);
    tt_free(grown);
}

tt_status tt_grown_rows_read(const struct tt_safetensors *file, const struct tt_safetensors_entry *entry,
                             int64_t first, int64_t count, void *to)
{
    const struct table *table = &file->grown->tables[entry - file->entries];
    size_t width = tt_dtype_bytes(entry->dtype);
    int64_t stored = tt_smaller(count, tt_larger(table->elements - first, 0)),
            beyond = first + stored - table->elements;
    if (stored > 0)
        TT_TRY(tt_safetensors_read(table->stored.file, table->stored.entry, first, stored, to, entry->dtype));
    if (count > stored)
        memcpy((char *)to + (size_t)stored * width, (const char *)table->rows + (size_t)beyond * width,
               (size_t)(count - stored) * width);
    return TT_OK;
}

/* ---- Values of new rows ---- */

static tt_status find_mean(const struct table *table, int64_t columns, double *mean)
{
    int64_t rows = table->elements / columns, each = tt_larger(READ_NUMBERS / columns, 1);
    float *values = tt_calloc((size_t)(each * columns), sizeof *values);
    tt_status status = values != NULL ? TT_OK : TT_ERR_MEMORY;
    for (int64_t row = 0; row < rows && status == TT_OK; row += each) {
        int64_t here = tt_smaller(each, rows - row);
        status = tt_safetensors_read(table->stored.file, table->stored.entry, row * columns, here * columns,
                                     values, TT_F32);
        for (int64_t i = 0; i < here && status == TT_OK; i++)
            for (int64_t c = 0; c < columns; c++) mean[c] += (double)values[i * columns + c];
    }
    for (int64_t c = 0; c < columns; c++) mean[c] /= (double)rows;
    tt_free(values);
    return status;
}

/* Sample number `row`; `values` and `sum` have room for a row. */
static tt_status draw_row(const struct table *table, const double *mean, int64_t columns, int64_t row,
                          float *values, double *sum)
{
    int64_t rows = table->elements / columns;
    const double scale = sqrt(spread / TT_GROWN_WITH);
    struct tt_rng rng = tt_rng_derive_index(tt_rng_derive(tt_rng_make(0), table->stored.name), (uint64_t)row);
    memset(sum, 0, (size_t)columns * sizeof *sum);
    for (int i = 0; i < TT_GROWN_WITH; i++) {
        int64_t of = (int64_t)tt_rng_below(rng, (uint64_t)i, (uint64_t)rows);
        TT_TRY(tt_safetensors_read(table->stored.file, table->stored.entry, of * columns, columns, values,
                                   TT_F32));
        for (int64_t c = 0; c < columns; c++) sum[c] += (double)values[c] - mean[c];
    }
    for (int64_t c = 0; c < columns; c++) values[c] = (float)(mean[c] + scale * sum[c]);
    return TT_OK;
}

static tt_status draw_rows(const struct table *table, const struct tt_safetensors_entry *entry)
{
    int64_t columns = entry->dims[1], before = table->elements / columns;
    size_t row_bytes = (size_t)columns * tt_dtype_bytes(entry->dtype);
    double *mean = tt_calloc((size_t)columns * 2, sizeof *mean);
    float *values = tt_calloc((size_t)columns, sizeof *values);
    tt_status status = mean != NULL && values != NULL ? TT_OK : TT_ERR_MEMORY;
    if (status == TT_OK) status = find_mean(table, columns, mean);
    for (int64_t row = before; row < entry->dims[0] && status == TT_OK; row++) {
        status = draw_row(table, mean, columns, row, values, mean + columns);
        void *to = (char *)table->rows + (size_t)(row - before) * row_bytes;
        if (status == TT_OK && !tt_dtype_convert(to, entry->dtype, values, TT_F32, (size_t)columns))
            status = tt_fail(TT_ERR_INTERNAL, "'%s' is no table of numbers", table->stored.name);
    }
    tt_free(mean);
    tt_free(values);
    return status;
}

static tt_status make_rows(const char *origin, const struct tt_grown_table *from, const struct table *table,
                           const struct tt_safetensors_entry *entry)
{
    int64_t columns = entry->dims[1], all = entry->dims[0] * columns;
    if (from->entry == NULL) return draw_rows(table, entry);
    if (from->entry->rank == 2 && from->entry->dims[0] == entry->dims[0] && from->entry->dims[1] == columns)
        return tt_safetensors_read(from->copy, from->entry, table->elements, all - table->elements,
                                   table->rows, entry->dtype);
    return tt_fail(TT_ERR_DATA, "'%s': '%s' is not a table of %lld rows and %lld columns, as that of '%s'",
                   tt_safetensors_path(from->copy), from->entry->name, (long long)entry->dims[0],
                   (long long)columns, origin);
}

/* ---- Showing ---- */

static tt_status add_table(const char *origin, const struct tt_growth *growth,
                           const struct tt_grown_table *from, struct tt_stored_tensor_place *place,
                           struct tt_safetensors *file)
{
    struct tt_safetensors_entry entry = *place->entry;
    struct table *table = &file->grown->tables[file->count];
    if (entry.rank != 2 || !tt_dtype_is_float(entry.dtype)) {
        tt_status status =
            tt_fail(TT_ERR_UNSUPPORTED,
                    "'%s': '%s' is not stored as a matrix of numbers, and gets no rows for new tokens",
                    origin, place->name);
        tt_hint("use the folder of the model in bfloat16");
        return status;
    }
    *table = (struct table){.stored = *place, .elements = tt_safetensors_elements(&entry)};
    entry.dims[0] = growth->rows;
    entry.bytes = (uint64_t)entry.dims[0] * (uint64_t)entry.dims[1] * tt_dtype_bytes(entry.dtype);
    table->rows = tt_calloc((size_t)(entry.bytes - place->entry->bytes) + 1, 1);
    if (table->rows == NULL) return TT_ERR_MEMORY;
    TT_TRY(make_rows(origin, from, table, &entry));
    entry.offset = file->file_bytes;
    file->file_bytes += entry.bytes;
    file->entries[file->count] = entry;
    *place = (struct tt_stored_tensor_place){place->name, &file->entries[file->count++], file};
    return TT_OK;
}

tt_status tt_grow_rows(const char *origin, const struct tt_growth *growth,
                       struct tt_stored_tensor_place *tensors, size_t count, struct tt_safetensors **out)
{
    tt_status status = TT_OK;
    struct tt_safetensors *file = tt_safetensors_create(origin, TT_GROWN_TABLES);
    *out = NULL;
    if (file == NULL) return TT_ERR_MEMORY;
    file->grown = tt_calloc(1, sizeof *file->grown);
    if (file->grown == NULL) TT_GO(TT_ERR_MEMORY);
    for (const struct tt_grown_table *from = growth->tables; from->name != NULL; from++)
        for (size_t i = 0; i < count; i++)
            if (strcmp(tensors[i].name, from->name) == 0 && tensors[i].entry->dims[0] < growth->rows)
                TT_GO(add_table(origin, growth, from, &tensors[i], file));
    TT_GO(tt_safetensors_index(file));
    if (file->count > 0) {
        *out = file;
        return TT_OK;
    }
out:
    tt_safetensors_close(file);
    return status;
}
