#include "support/folded_batch.h"

#include "support/must.h"

static tt_tensor list(const void *data, tt_dtype dtype, int64_t count)
{
    return tt_tensor_1d((void *)(uintptr_t)data, dtype, count);
}

void test_fold_batch(struct tt_model_runner *runner, const int32_t *parent, const int32_t *prefix,
                     struct tt_batch_storage *storage, struct tt_batch_fold *fold)
{
    struct tt_device_batch *to = &runner->batch;
    const struct tt_batch batch = {.token_count = to->token_count,
                                   .sequence_count = to->sequence_count,
                                   .max_length = to->max_length,
                                   .ids = to->ids_T.data,
                                   .positions = to->rope_rows_T.data,
                                   .row_keys = to->row_keys_T.data,
                                   .cu_seqlens = to->host_cu_seqlens,
                                   .parent = parent,
                                   .prefix = prefix,
                                   .row_count = to->row_count,
                                   .rows = to->rows_N.data,
                                   .labels = to->labels_N.data};
    test_must(tt_batch_fold(&batch, storage, fold));
    const struct tt_batch *folded = &fold->batch;
    const struct tt_batch_branches *branches = &folded->branches;
    int64_t tokens = folded->token_count, rows = folded->row_count, borders = folded->sequence_count + 1;
    to->token_count = tokens;
    to->ids_T = list(folded->ids, TT_I32, tokens);
    to->rope_rows_T = list(folded->positions, TT_I32, tokens);
    to->row_keys_T = list(folded->row_keys, TT_I64, tokens);
    to->cu_seqlens = list(folded->cu_seqlens, TT_I32, borders);
    to->host_cu_seqlens = folded->cu_seqlens;
    to->row_count = rows;
    to->rows_N = list(folded->rows, TT_I32, rows);
    to->labels_N = list(folded->labels, TT_I32, rows);
    to->branches =
        (struct tt_branches){.key_count = branches->key_count,
                             .host_cu_keys = branches->cu_keys,
                             .cu_keys = list(branches->cu_keys, TT_I32, borders),
                             .key_tokens_M = list(branches->key_tokens, TT_I32, branches->key_count),
                             .token_keys_TS = tt_tensor_2d((void *)(uintptr_t)branches->token_keys, TT_I32,
                                                           tokens, branches->copies),
                             .own_keys_T = list(branches->own_keys, TT_I32, tokens)};
}
