#include "data/columns.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc64.h"

const float *tt_batch_column(const struct tt_batch *batch, const char *name, enum tt_per per)
{
    for (int c = 0; c < batch->column_count; c++)
        if (batch->columns[c].per == per && strcmp(batch->columns[c].name, name) == 0)
            return batch->columns[c].values;
    return NULL;
}

void tt_columns_deinit(struct tt_columns *columns)
{
    for (int c = 0; c < columns->count; c++) tt_free(columns->list[c].values);
    *columns = (struct tt_columns){0};
}

static size_t count_of(const struct tt_column_counts *counts, enum tt_per per)
{
    switch (per) {
    case TT_PER_SEQUENCE:
        return counts->samples;
    case TT_PER_GROUP:
        return counts->groups;
    default:
        return counts->tokens;
    }
}

tt_status tt_columns_add(struct tt_columns *columns, const char *name, enum tt_per per,
                         const struct tt_column_counts *counts, const float *values)
{
    size_t count = count_of(counts, per);
    struct tt_column column = {.per = per};
    if (columns->count == TT_COLUMNS_MAX)
        return tt_fail(TT_ERR_USAGE, "column '%.60s': there are %d columns, and no more are possible", name,
                       TT_COLUMNS_MAX);
    if (strlen(name) >= sizeof column.name)
        return tt_fail(TT_ERR_USAGE, "column '%.60s': a name has at most %zu bytes", name,
                       sizeof column.name - 1);
    for (int c = 0; c < columns->count; c++)
        if (strcmp(columns->list[c].name, name) == 0)
            return tt_fail(TT_ERR_USAGE, "column '%s' is there already", name);
    snprintf(column.name, sizeof column.name, "%s", name);
    column.values = tt_calloc(count + 1, sizeof *column.values);
    if (column.values == NULL) return TT_ERR_MEMORY;
    if (values != NULL) memcpy(column.values, values, count * sizeof *values);
    columns->list[columns->count++] = column;
    return TT_OK;
}

void tt_columns_copy(struct tt_columns *columns, const struct tt_column_counts *at,
                     const struct tt_columns *from, const struct tt_column_counts *from_at,
                     const struct tt_column_counts *count)
{
    for (int c = 0; c < columns->count; c++) {
        enum tt_per per = columns->list[c].per;
        memcpy(columns->list[c].values + count_of(at, per), from->list[c].values + count_of(from_at, per),
               count_of(count, per) * sizeof *columns->list[c].values);
    }
}

uint64_t tt_columns_sum(const struct tt_columns *columns, const struct tt_column_counts *counts, uint64_t sum)
{
    for (int c = 0; c < columns->count; c++) {
        const struct tt_column *column = &columns->list[c];
        int32_t per = (int32_t)column->per;
        if (column->derived) continue;
        sum = tt_crc64(sum, column->name, strlen(column->name) + 1);
        sum = tt_crc64(sum, &per, sizeof per);
        sum = tt_crc64(sum, column->values, count_of(counts, column->per) * sizeof *column->values);
    }
    return sum;
}
