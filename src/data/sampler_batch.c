/* The arrays of a micro batch: the samples of its cell of the step, or mismatched ones. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "data/sampler_impl.h"

enum { ARRAY_ALIGNMENT = 64 }; /* bytes */

void tt_batch_storage_deinit(struct tt_batch_storage *storage)
{
    tt_free(storage->block);
    *storage = (struct tt_batch_storage){0};
}

tt_status tt_batch_storage_reserve(struct tt_batch_storage *storage, size_t bytes)
{
    if (bytes <= storage->bytes) return TT_OK;
    tt_batch_storage_deinit(storage);
    storage->block = tt_alloc_aligned(bytes);
    if (storage->block == NULL) return TT_ERR_MEMORY;
    storage->bytes = bytes;
    return TT_OK;
}

/* Arrays of a batch, one after the other in a block, each at a multiple of 64 bytes. */
struct batch_arrays {
    int64_t *row_keys;
    int32_t *ids, *positions, *cu_seqlens, *rows, *labels, *parent, *prefix;
    uint8_t *supervised;
    float *columns[TT_COLUMNS_MAX], *values;
};

/* Returns the bytes needed; `block` may be NULL to compute only these. */
static size_t lay_out(const struct tt_sampler *sampler, char *block, const struct tt_batch_limits *size,
                      struct batch_arrays *arrays)
{
    size_t at = 0, tokens = (size_t)size->keys, rows = (size_t)size->all_rows;
    size_t shared = sampler->config.shares ? (size_t)size->sequences : 0;
    const struct tt_columns *columns = &sampler->store->columns;
    const struct {
        void **array;
        size_t bytes;
    } parts[] = {
        {(void **)&arrays->row_keys, tokens * sizeof(int64_t)},
        {(void **)&arrays->ids, tokens * sizeof(int32_t)},
        {(void **)&arrays->positions, tokens * sizeof(int32_t)},
        {(void **)&arrays->cu_seqlens, ((size_t)size->sequences + 1) * sizeof(int32_t)},
        {(void **)&arrays->rows, rows * sizeof(int32_t)},
        {(void **)&arrays->labels, rows * sizeof(int32_t)},
        {(void **)&arrays->supervised, rows},
        {(void **)&arrays->parent, shared * sizeof(int32_t)},
        {(void **)&arrays->prefix, shared * sizeof(int32_t)},
        {(void **)&arrays->values, (size_t)size->sequences * sizeof(float)},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (block != NULL) *parts[i].array = block + at;
        at += tt_align_up(parts[i].bytes, ARRAY_ALIGNMENT);
    }
    for (int c = 0; c < columns->count; c++) {
        enum tt_per per = columns->list[c].per;
        size_t count = per == TT_PER_TOKEN ? tokens : per == TT_PER_ROW ? rows : (size_t)size->sequences;
        if (block != NULL) arrays->columns[c] = (float *)(block + at);
        at += tt_align_up(count * sizeof(float), ARRAY_ALIGNMENT);
    }
    return at;
}

/* The values of a piece that begins at token `at` and row `first_row` of the batch, as sequence `sequence` of it. */
static void fill_columns(const struct tt_sampler *sampler, struct tt_sampler_piece piece,
                         const struct batch_arrays *arrays, int32_t at, int32_t first_row, int32_t end_row,
                         int64_t sequence)
{
    const struct tt_columns *columns = &sampler->store->columns;
    uint64_t start = sampler->store->samples[piece.sample].first + (uint64_t)piece.first;
    for (int c = 0; c < columns->count; c++) {
        const float *from = columns->list[c].values;
        float *to = arrays->columns[c];
        switch (columns->list[c].per) {
        case TT_PER_TOKEN:
            memcpy(to + at, from + start, (size_t)piece.count * sizeof *to);
            break;
        case TT_PER_ROW:
            for (int32_t r = first_row; r < end_row; r++)
                to[r] = from[start + (uint64_t)(arrays->rows[r] - at) + 1];
            break;
        case TT_PER_SEQUENCE:
            to[sequence] = from[piece.sample];
            break;
        case TT_PER_GROUP:
            to[(size_t)sequence / sampler->group_size] = from[piece.sample / sampler->group_size];
            break;
        }
    }
}

/* Ends the sequence that begins at token `at`. */
static void end_sequence(struct tt_batch *batch, const struct batch_arrays *arrays, int32_t at, int32_t count)
{
    batch->token_count = at + count;
    batch->sequence_count++;
    arrays->cu_seqlens[batch->sequence_count] = (int32_t)batch->token_count;
    if (count > batch->max_length) batch->max_length = count;
}

static void fill_piece(const struct tt_sampler *sampler, struct tt_sampler_piece piece,
                       const struct batch_arrays *arrays, struct tt_batch *batch, int32_t *row_count)
{
    uint64_t start = sampler->store->samples[piece.sample].first + (uint64_t)piece.first;
    const int32_t *ids = sampler->store->ids + start;
    const uint8_t *supervised = sampler->store->supervised + start;
    int32_t at = (int32_t)batch->token_count, rows = *row_count;
    int64_t key = (int64_t)piece.sample << 24 | piece.first;
    memcpy(arrays->ids + at, ids, (size_t)piece.count * sizeof *ids);
    for (int32_t i = 0; i < piece.count; i++) {
        arrays->positions[at + i] = i;
        arrays->row_keys[at + i] = key + i;
        if (i + 1 < piece.count && (supervised[i + 1] || sampler->config.prompt_rows)) {
            arrays->supervised[rows] = supervised[i + 1];
            arrays->rows[rows] = at + i;
            arrays->labels[rows++] = ids[i + 1];
        }
    }
    fill_columns(sampler, piece, arrays, at, *row_count, rows, batch->sequence_count);
    arrays->values[batch->sequence_count] = (float)sampler->store->samples[piece.sample].value;
    if (sampler->config.shares) {
        int64_t leader = batch->sequence_count / (int64_t)sampler->group_size * (int64_t)sampler->group_size;
        arrays->parent[batch->sequence_count] = (int32_t)leader;
        arrays->prefix[batch->sequence_count] = tt_sampler_prefix(sampler, piece.sample).tokens;
    }
    *row_count = rows;
    end_sequence(batch, arrays, at, piece.count);
}

static void fill_mismatch(const struct tt_sampler *sampler, const struct tt_sampler_mismatch *mismatch,
                          const struct batch_arrays *arrays, struct tt_batch *batch, int32_t *row_count)
{
    const struct tt_store *store = sampler->store;
    const struct tt_sampler_piece *prompt = &mismatch->prompt, *answer = &mismatch->answer;
    int32_t at = (int32_t)batch->token_count, count = prompt->count + answer->count, rows = *row_count;
    int32_t *ids = arrays->ids + at;
    memcpy(ids, store->ids + store->samples[prompt->sample].first, (size_t)prompt->count * sizeof *ids);
    memcpy(ids + prompt->count, store->ids + store->samples[answer->sample].first + (uint64_t)answer->first,
           (size_t)answer->count * sizeof *ids);
    for (int32_t i = 0; i < count; i++) {
        arrays->positions[at + i] = i;
        arrays->row_keys[at + i] = (int64_t)prompt->sample << 24 | i;
        if (i + 1 < count && i + 1 >= prompt->count) {
            arrays->supervised[rows] = 1;
            arrays->rows[rows] = at + i;
            arrays->labels[rows++] = ids[i + 1];
        }
    }
    for (int c = 0; c < store->columns.count; c++)
        if (store->columns.list[c].per == TT_PER_SEQUENCE)
            arrays->columns[c][batch->sequence_count] = store->columns.list[c].values[prompt->sample];
    arrays->values[batch->sequence_count] = (float)store->samples[prompt->sample].value;
    *row_count = rows;
    end_sequence(batch, arrays, at, count);
}

static int compare_positions(const void *a, const void *b)
{
    const struct tt_sampler_member *x = a, *y = b;
    return x->position < y->position ? -1 : x->position > y->position;
}

/* Moves the members of one cell to the front, in their order in the epoch; returns how many. */
static uint64_t select_cell(const struct tt_sampler_cells *step, uint64_t cell,
                            struct tt_sampler_member *members)
{
    uint64_t count = 0;
    /* A member never moves to a later place, so none is overwritten before it is read. */
    for (uint64_t round = 0; round * step->cells < step->count; round++) {
        uint64_t at = tt_sampler_dealt(step, cell, round);
        if (at < step->count) members[count++] = members[at];
    }
    qsort(members, count, sizeof *members, compare_positions);
    return count;
}

/* The tokens of a unit may come from a file. */
static tt_status check_tokens(const struct tt_sampler *sampler, uint64_t unit)
{
    struct tt_sampler_walk walk = tt_sampler_walk_start(sampler, unit);
    for (struct tt_sampler_piece piece; tt_sampler_walk_next(sampler, &walk, &piece);)
        TT_TRY(tt_store_check(sampler->store, piece.sample, piece.first, piece.count));
    return TT_OK;
}

/* Adds a member to the sizes of the batch, and checks its tokens. */
static tt_status measure_member(const struct tt_sampler *sampler, const struct tt_sampler_cells *step,
                                const struct tt_sampler_member *member, bool mismatched,
                                struct tt_batch_limits *size)
{
    if (!mismatched) {
        struct tt_sampler_unit unit = tt_sampler_unit(sampler, member->unit);
        tt_sampler_add_unit(size, &unit.size);
        return check_tokens(sampler, member->unit);
    }
    struct tt_sampler_mismatch mismatch = tt_sampler_mismatch(sampler, step, member->position);
    struct tt_batch_limits own = tt_sampler_mismatch_size(&mismatch);
    tt_sampler_add_unit(size, &own);
    TT_TRY(check_tokens(sampler, mismatch.prompt.sample));
    return check_tokens(sampler, mismatch.answer.sample);
}

static void fill_member(const struct tt_sampler *sampler, const struct tt_sampler_cells *step,
                        const struct tt_sampler_member *member, bool mismatched,
                        const struct batch_arrays *arrays, struct tt_batch *batch, int32_t *row_count)
{
    if (mismatched) {
        struct tt_sampler_mismatch mismatch = tt_sampler_mismatch(sampler, step, member->position);
        fill_mismatch(sampler, &mismatch, arrays, batch, row_count);
        return;
    }
    struct tt_sampler_walk walk = tt_sampler_walk_start(sampler, member->unit);
    for (struct tt_sampler_piece piece; tt_sampler_walk_next(sampler, &walk, &piece);)
        fill_piece(sampler, piece, arrays, batch, row_count);
}

static void list_columns(const struct tt_sampler *sampler, const struct batch_arrays *arrays,
                         struct tt_batch *batch)
{
    const struct tt_columns *columns = &sampler->store->columns;
    for (int c = 0; c < columns->count; c++)
        batch->columns[batch->column_count++] =
            (struct tt_batch_column){columns->list[c].name, columns->list[c].per, arrays->columns[c]};
    if (sampler->config.value != NULL && batch->column_count < TT_COLUMNS_MAX)
        batch->columns[batch->column_count++] =
            (struct tt_batch_column){sampler->config.value, TT_PER_SEQUENCE, arrays->values};
}

static tt_status make_batch(const struct tt_sampler *sampler, int64_t index, int64_t micro, int rank,
                            bool mismatched, struct tt_batch_storage *storage, struct tt_batch *out)
{
    struct tt_sampler_cells step = tt_sampler_cells(sampler, index);
    if (micro < 0 || micro >= step.micro_count || rank < 0 || rank >= sampler->config.world_size) {
        return tt_fail(TT_ERR_INTERNAL, "no micro batch %lld of rank %d in step %lld", (long long)micro, rank,
                       (long long)index);
    }
    /* The members come first in the block; the batch follows them. */
    size_t member_bytes = tt_align_up(step.count * sizeof(struct tt_sampler_member), ARRAY_ALIGNMENT);
    TT_TRY(tt_batch_storage_reserve(storage, member_bytes));
    tt_sampler_members(sampler, &step, storage->block);
    uint64_t cell = (uint64_t)micro * (uint64_t)sampler->config.world_size + (uint64_t)rank;
    uint64_t count = select_cell(&step, cell, storage->block);
    const struct tt_sampler_member *members = storage->block;
    struct tt_batch_limits size = {0};
    for (uint64_t i = 0; i < count; i++)
        TT_TRY(measure_member(sampler, &step, &members[i], mismatched, &size));

    struct batch_arrays arrays = {0};
    size_t bytes = member_bytes + lay_out(sampler, NULL, &size, &arrays);
    if (bytes > storage->bytes) {
        TT_TRY(tt_batch_storage_reserve(storage, bytes + bytes / 4));
        tt_sampler_members(sampler, &step, storage->block);
        count = select_cell(&step, cell, storage->block);
        members = storage->block;
    }
    lay_out(sampler, (char *)storage->block + member_bytes, &size, &arrays);
    if (mismatched) memset((char *)storage->block + member_bytes, 0, bytes - member_bytes);
    struct tt_batch batch = {0};
    int32_t row_count = 0;
    arrays.cu_seqlens[0] = 0;
    for (uint64_t i = 0; i < count; i++)
        fill_member(sampler, &step, &members[i], mismatched, &arrays, &batch, &row_count);
    batch.ids = arrays.ids;
    batch.positions = arrays.positions;
    batch.row_keys = arrays.row_keys;
    batch.cu_seqlens = arrays.cu_seqlens;
    batch.parent = sampler->config.shares && !mismatched ? arrays.parent : NULL;
    batch.prefix = sampler->config.shares && !mismatched ? arrays.prefix : NULL;
    batch.row_count = row_count;
    batch.rows = arrays.rows;
    batch.labels = arrays.labels;
    batch.supervised = arrays.supervised;
    batch.group_size = (int)sampler->group_size;
    batch.group_count = batch.sequence_count / batch.group_size;
    list_columns(sampler, &arrays, &batch);
    *out = batch;
    return TT_OK;
}

tt_status tt_sampler_batch(const struct tt_sampler *sampler, int64_t index, int64_t micro, int rank,
                           struct tt_batch_storage *storage, struct tt_batch *out)
{
    return make_batch(sampler, index, micro, rank, false, storage, out);
}

tt_status tt_sampler_shared(const struct tt_sampler *sampler, int64_t index, int64_t micro, int rank,
                            struct tt_batch_storage *storage, struct tt_batch *out)
{
    return make_batch(sampler, index, micro, rank, sampler->config.mismatched, storage, out);
}
