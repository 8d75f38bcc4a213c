/* Micro batches of tokens on the device, and the tables of rotations that their passes read. */
#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "backend/ops/attention_whole.h"
#include "data/fold.h"
#include "engine/rank_impl.h"
#include "engine/rank_tokens.h"

/* Alignment of the arrays in the batch buffer, for vector loads. */
enum { BATCH_ALIGNMENT = 256 };

static size_t aligned(size_t bytes)
{
    return tt_align_up(bytes, BATCH_ALIGNMENT);
}

/* The tables of all rotations, one after another in one buffer. */
static tt_status create_ropes(const struct tt_rank_config *config, struct tt_rank *rank)
{
    const struct tt_model_facts *facts = config->model_facts;
    const struct tt_rope_parts *parts = &rank->tokens->rope_parts;
    size_t floats = 0;
    for (int i = 0; i < facts->rope_count; i++) floats += (size_t)(parts->rows * facts->ropes[i].columns);
    TT_TRY(
        tt_buffer_create(rank->device, floats * sizeof(float), TT_PURPOSE_BATCH, &rank->tokens->rope_buffer));
    float *device_table = tt_buffer_data(rank->tokens->rope_buffer), *host = NULL;
    if (!tt_device_is_plan(rank->device)) {
        host = tt_alloc_aligned(floats * sizeof(float));
        if (host == NULL) return TT_ERR_MEMORY;
    }
    size_t at = 0;
    for (int i = 0; i < facts->rope_count; i++) {
        int64_t half = facts->ropes[i].columns / 2;
        size_t table = (size_t)(parts->rows * half);
        rank->tokens->ropes[i].cos_PE = tt_tensor_2d(device_table + at, TT_F32, parts->rows, half);
        rank->tokens->ropes[i].sin_PE = tt_tensor_2d(device_table + at + table, TT_F32, parts->rows, half);
        if (host != NULL) tt_model_fill_rope(&facts->ropes[i], parts, host + at, host + at + table);
        at += 2 * table;
    }
    if (host == NULL) return TT_OK;
    tt_status status = tt_copy_to_device(rank->stream, device_table, host, floats * sizeof(float));
    if (status == TT_OK) status = tt_stream_synchronize(rank->stream);
    tt_free(host);
    return status;
}

/* ---- Columns ---- */

static int64_t values_of(enum tt_per per, int64_t tokens, int64_t rows, int64_t sequences, int64_t groups)
{
    return per == TT_PER_TOKEN      ? tokens
           : per == TT_PER_ROW      ? rows
           : per == TT_PER_SEQUENCE ? sequences
                                    : groups;
}

/* Objective and blocks may ask for the same column: it travels once. */
static tt_status ask(struct tt_rank_tokens *tokens, struct tt_column_name column, const char *block)
{
    for (int c = 0; c < tokens->column_count; c++) {
        struct tt_rank_column *asked = &tokens->columns[c];
        if (strcmp(asked->column.name, column.name) != 0) continue;
        if (asked->block == NULL) asked->block = block;
        if (asked->column.per == column.per) return TT_OK;
        return tt_fail(TT_ERR_INTERNAL, "the column '%s' is read as one value a %s, and by %s as one a %s",
                       column.name, tt_per_name(asked->column.per), block != NULL ? block : "the objective",
                       tt_per_name(column.per));
    }
    if (tokens->column_count == TT_DEVICE_COLUMNS_MAX)
        return tt_fail(TT_ERR_INTERNAL, "blocks and the objective read more than %d columns",
                       TT_DEVICE_COLUMNS_MAX);
    tokens->columns[tokens->column_count++] = (struct tt_rank_column){column, block};
    return TT_OK;
}

static tt_status find_columns(const struct tt_rank *rank)
{
    const struct tt_objective_column *column = rank->objective.ops->columns;
    for (; column != NULL && column->name != NULL; column++)
        if (column->on_device)
            TT_TRY(ask(rank->tokens, (struct tt_column_name){column->name, column->per}, NULL));
    for (int i = 0; i < rank->model->block_count; i++) {
        const struct tt_block *block = &rank->model->blocks[i];
        for (int c = 0; c < block->column_count; c++)
            TT_TRY(ask(rank->tokens, block->columns[c], block->name));
    }
    return TT_OK;
}

/* The columns of the largest batch. */
static size_t column_bytes(const struct tt_rank_tokens *tokens, const struct tt_batch_limits *limits)
{
    size_t bytes = 0;
    for (int c = 0; c < tokens->column_count; c++) {
        int64_t count = values_of(tokens->columns[c].column.per, limits->tokens, limits->rows,
                                  limits->sequences, limits->sequences);
        bytes += aligned((size_t)count * sizeof(float));
    }
    return bytes;
}

/* The keys of the largest batch whose sequences begin alike. */
static size_t branch_bytes(const struct tt_batch_limits *limits)
{
    size_t word = sizeof(int32_t), keys = (size_t)tt_batch_limits_keys(limits);
    if (limits->copies == 0) return 0;
    return aligned(((size_t)limits->sequences + 1) * word) + aligned(keys * word) +
           aligned((size_t)(limits->tokens * limits->copies) * word) + aligned((size_t)limits->tokens * word);
}

/* ---- Life ---- */

tt_status tt_rank_tokens_init(const struct tt_rank_config *config, struct tt_rank *rank)
{
    const struct tt_batch_limits *limits = &config->limits;
    size_t tokens = (size_t)limits->tokens, rows = (size_t)limits->rows;
    rank->tokens = tt_calloc(1, sizeof *rank->tokens);
    if (rank->tokens == NULL) return TT_ERR_MEMORY;
    TT_TRY(find_columns(rank));
    size_t bytes = 2 * aligned(tokens * sizeof(int32_t)) + aligned(tokens * sizeof(int64_t)) +
                   aligned(((size_t)limits->sequences + 1) * sizeof(int32_t)) +
                   2 * aligned(rows * sizeof(int32_t)) + column_bytes(rank->tokens, limits) +
                   branch_bytes(limits) +
                   (rank->objective.ops->rows != NULL ? aligned(rows * sizeof(float)) : 0) +
                   aligned((size_t)(limits->sequences * tt_rank_labels(rank)) * sizeof(float));
    TT_TRY(tt_buffer_create(rank->device, bytes, TT_PURPOSE_BATCH, &rank->tokens->batch_buffer));
    tt_rope_parts_make(config->model_facts, limits->length, &rank->tokens->rope_parts);
    if (rank->tokens->rope_parts.count > 1) {
        rank->tokens->rope_rows = tt_calloc(tokens, sizeof *rank->tokens->rope_rows);
        if (rank->tokens->rope_rows == NULL) return TT_ERR_MEMORY;
    }
    return create_ropes(config, rank);
}

void tt_rank_tokens_deinit(struct tt_rank *rank)
{
    if (rank->tokens == NULL) return;
    tt_buffer_destroy(rank->tokens->rope_buffer);
    tt_buffer_destroy(rank->tokens->batch_buffer);
    tt_batch_storage_deinit(&rank->tokens->folded);
    tt_free(rank->tokens->rope_rows);
    tt_free(rank->tokens);
    rank->tokens = NULL;
}

int tt_rank_rope_part(const struct tt_rank *rank, int64_t length)
{
    return tt_rope_part_of(&rank->tokens->rope_parts, length);
}

/* The rows of the rotations' tables that the batch's tokens read. */
static const int32_t *find_rope_rows(struct tt_rank *rank, const struct tt_batch *batch)
{
    const struct tt_rope_parts *parts = &rank->tokens->rope_parts;
    const int32_t *keys = batch->branches.key_count > 0 ? batch->branches.cu_keys : batch->cu_seqlens;
    if (parts->count == 1 || batch->positions == NULL) return batch->positions;
    for (int64_t b = 0, t = 0; t < batch->token_count; b++) {
        int64_t end = batch->reached != NULL ? batch->token_count : batch->cu_seqlens[b + 1],
                length = batch->reached != NULL ? end - t : keys[b + 1] - keys[b];
        for (; t < end; t++) {
            int part = tt_rope_part_of(parts, batch->reached != NULL ? batch->reached[t] : length);
            rank->tokens->rope_rows[t] = (int32_t)parts->first_rows[part] + batch->positions[t];
        }
    }
    return rank->tokens->rope_rows;
}

/* Takes the next piece of the batch buffer and copies `bytes` from the host into it. */
static tt_status upload(struct tt_rank *rank, char **next, const void *host, size_t bytes, void **device)
{
    *device = *next;
    *next += aligned(bytes);
    if (bytes == 0 || tt_device_is_plan(rank->device)) return TT_OK; /* a plan has sizes, not tokens */
    return tt_copy_to_device(rank->stream, *device, host, bytes);
}

/* Data that lacks a column is refused before any pass reads it. */
static tt_status check_columns(const struct tt_rank *rank, const struct tt_batch *batch)
{
    if (batch->token_count == 0 || tt_device_is_plan(rank->device)) return TT_OK;
    TT_TRY(tt_objective_check_columns(&rank->objective, batch));
    for (int c = 0; c < rank->tokens->column_count; c++) {
        const struct tt_rank_column *asked = &rank->tokens->columns[c];
        if (tt_batch_column(batch, asked->column.name, asked->column.per) != NULL) continue;
        return tt_fail(TT_ERR_DATA, "block '%s' reads the column '%s', one value a %s, and the data has none",
                       asked->block, asked->column.name, tt_per_name(asked->column.per));
    }
    return TT_OK;
}

static tt_status upload_columns(struct tt_rank *rank, const struct tt_batch *batch, char **next)
{
    for (int c = 0; c < rank->tokens->column_count; c++) {
        const struct tt_column_name *column = &rank->tokens->columns[c].column;
        int64_t count = values_of(column->per, batch->token_count, batch->row_count, batch->sequence_count,
                                  batch->group_count);
        const float *values = tt_batch_column(batch, column->name, column->per);
        void *device;
        TT_TRY(upload(rank, next, values, (size_t)count * sizeof *values, &device));
        rank->batch.columns[rank->batch.column_count++] =
            (struct tt_device_column){column->name, tt_tensor_1d(device, TT_F32, count)};
    }
    return TT_OK;
}

static tt_status check_limits(const struct tt_batch_limits *limits, const struct tt_batch *batch)
{
    const struct tt_batch_branches *branches = &batch->branches;
    if (batch->token_count <= limits->tokens && batch->row_count <= limits->rows &&
        batch->sequence_count <= limits->sequences &&
        (branches->key_count == 0 ||
         (branches->copies <= limits->copies && branches->key_count <= tt_batch_limits_keys(limits))))
        return TT_OK;
    return tt_fail(TT_ERR_INTERNAL, "a micro batch of %lld tokens is larger than the %lld planned for",
                   (long long)batch->token_count, (long long)limits->tokens);
}

/* The keys of a folded batch. */
static tt_status upload_branches(struct tt_rank *rank, const struct tt_batch *batch, char **next)
{
    const struct tt_batch_branches *branches = &batch->branches;
    struct tt_branches *to = &rank->batch.branches;
    int64_t keys = branches->key_count, slots = batch->token_count * branches->copies, word = sizeof(int32_t);
    void *cu_keys, *key_tokens, *token_keys, *own_keys;
    if (keys == 0) return TT_OK;
    TT_TRY(upload(rank, next, branches->cu_keys, (size_t)((batch->sequence_count + 1) * word), &cu_keys));
    TT_TRY(upload(rank, next, branches->key_tokens, (size_t)(keys * word), &key_tokens));
    TT_TRY(upload(rank, next, branches->token_keys, (size_t)(slots * word), &token_keys));
    TT_TRY(upload(rank, next, branches->own_keys, (size_t)(batch->token_count * word), &own_keys));
    *to = (struct tt_branches){
        .key_count = keys,
        .host_cu_keys = branches->cu_keys,
        .cu_keys = tt_tensor_1d(cu_keys, TT_I32, batch->sequence_count + 1),
        .key_tokens_M = tt_tensor_1d(key_tokens, TT_I32, keys),
        .token_keys_TS = tt_tensor_2d(token_keys, TT_I32, batch->token_count, branches->copies),
        .own_keys_T = tt_tensor_1d(own_keys, TT_I32, batch->token_count),
        .whole = rank->model->options.compute_dtype == TT_BF16 && tt_attention_prefers_whole(rank->device)};
    return TT_OK;
}

static tt_status place_folded(struct tt_rank *rank, const struct tt_batch *batch, struct tt_pass *pass)
{
    TT_TRY(check_limits(&rank->limits, batch));
    TT_TRY(check_columns(rank, batch));
    int64_t tokens = batch->token_count, rows = batch->row_count;
    char *next = tt_buffer_data(rank->tokens->batch_buffer);
    void *ids, *rope_rows, *keys, *borders, *row_list, *labels;
    size_t borders_bytes = tokens > 0 ? (size_t)(batch->sequence_count + 1) * sizeof(int32_t) : 0;
    TT_TRY(upload(rank, &next, batch->ids, (size_t)tokens * sizeof(int32_t), &ids));
    TT_TRY(upload(rank, &next, find_rope_rows(rank, batch), (size_t)tokens * sizeof(int32_t), &rope_rows));
    TT_TRY(upload(rank, &next, batch->row_keys, (size_t)tokens * sizeof(int64_t), &keys));
    TT_TRY(upload(rank, &next, batch->cu_seqlens, borders_bytes, &borders));
    TT_TRY(upload(rank, &next, batch->rows, (size_t)rows * sizeof(int32_t), &row_list));
    TT_TRY(upload(rank, &next, batch->labels, (size_t)rows * sizeof(int32_t), &labels));
    rank->batch = (struct tt_device_batch){
        .token_count = tokens,
        .sequence_count = batch->sequence_count,
        .max_length = batch->max_length,
        .ids_T = tt_tensor_1d(ids, TT_I32, tokens),
        .rope_rows_T = tt_tensor_1d(rope_rows, TT_I32, tokens),
        .row_keys_T = tt_tensor_1d(keys, TT_I64, tokens),
        .cu_seqlens = tt_tensor_1d(borders, TT_I32, batch->sequence_count + 1),
        .host_cu_seqlens = batch->cu_seqlens,
        .row_count = rows,
        .rows_N = tt_tensor_1d(row_list, TT_I32, rows),
        .labels_N = tt_tensor_1d(labels, TT_I32, rows),
    };
    TT_TRY(upload_columns(rank, batch, &next));
    TT_TRY(upload_branches(rank, batch, &next));
    memcpy(pass->lent.ropes, rank->tokens->ropes, sizeof pass->lent.ropes);
    if (rank->objective.ops->rows != NULL) {
        int64_t scores = tt_rank_labels(rank);
        pass->in.scales_follow = true;
        pass->in.want_squares = tt_objective_reads_squares(&rank->objective);
        if (scores > 0)
            pass->in.dscores_BL = tt_tensor_2d(next, TT_F32, batch->sequence_count, scores);
        else
            pass->in.scale_N = tt_tensor_1d(next, TT_F32, rows);
    }
    return TT_OK;
}

tt_status tt_rank_place_tokens(struct tt_rank *rank, const struct tt_batch *batch, struct tt_pass *pass)
{
    struct tt_batch_fold fold;
    struct tt_rank_tokens *tokens = rank->tokens;
    if (rank->limits.tokens == 0 && batch->token_count == 0) return TT_OK; /* no rank ever has any */
    TT_TRY(tt_batch_fold(batch, &tokens->folded, &fold));
    tokens->row_of = fold.row_of;
    tokens->all_rows = batch->row_count;
    return place_folded(rank, &fold.batch, pass);
}

void tt_rank_unfold_rows(const struct tt_rank *rank, void *values_N)
{
    const int32_t *row_of = rank->tokens->row_of;
    int32_t *values = values_N;
    /* No row comes behind its place among all: those that are read are still as they were. */
    for (int64_t n = rank->tokens->all_rows - 1; row_of != NULL && n >= 0; n--) values[n] = values[row_of[n]];
}

const float *tt_rank_fold_scales(const struct tt_rank *rank, const float *scale_N, float *folded_N)
{
    const int32_t *row_of = rank->tokens->row_of;
    if (row_of == NULL) return scale_N;
    memset(folded_N, 0, (size_t)rank->batch.row_count * sizeof *folded_N);
    for (int64_t n = 0; n < rank->tokens->all_rows; n++) folded_N[row_of[n]] += scale_N[n];
    return folded_N;
}
