/* The head over a matrix that comes in parts of the vocabulary. */
#include "backend/ops/elementwise.h"
#include "backend/ops/gemm.h"
#include "nn/head.h"

/* Columns [first, first + count) of a matrix. */
static tt_tensor columns(tt_tensor x, int64_t first, int64_t count)
{
    x.data = (char *)x.data + (size_t)first * tt_dtype_bytes(x.dtype);
    x.dims[1] = count;
    return x;
}

/* logits[:, part] = n part^T */
static tt_status multiply_part(const struct tt_pass *pass, tt_tensor part, int64_t first, tt_tensor n_ND,
                               tt_tensor logits_NV)
{
    struct tt_gemm_args args = {
        .a = n_ND, .b = part, .c = columns(logits_NV, first, part.dims[0]), .trans_b = true, .alpha = 1.0f};
    return tt_gemm(pass->lent.stream, &args);
}

/* sum = dlogits[:, part] part, added to the parts before */
static tt_status add_part(const struct tt_pass *pass, tt_tensor part, int64_t first, tt_tensor dlogits_NV,
                          bool fresh, tt_tensor sum_ND)
{
    struct tt_gemm_args args = {.a = columns(dlogits_NV, first, part.dims[0]),
                                .b = part,
                                .c = sum_ND,
                                .alpha = 1.0f,
                                .beta = fresh ? 0.0f : 1.0f};
    return tt_gemm(pass->lent.stream, &args);
}

static int64_t chunk_rows(const struct tt_pass *pass, int64_t vocab)
{
    bool host = tt_device_is_host(tt_stream_device(pass->lent.stream));
    int64_t rows = tt_head_chunk_rows(vocab, pass->in.compute_dtype, host);
    if (!host) rows *= TT_HEAD_SPLIT_BYTES_DEVICE / TT_HEAD_CHUNK_BYTES_DEVICE;
    return rows < pass->lent.exchange->batch_rows ? rows : pass->lent.exchange->batch_rows;
}

static tt_tensor weight_of(const struct tt_head *head)
{
    return head->lm_head.linears[0].weight->value;
}

/* One chunk: all parts forward, the loss, and all parts backward in reverse order, of which the first is at hand. */
static tt_status run_chunk(const struct tt_head_rows *rows, int64_t first, int64_t count, tt_tensor logits_NV,
                           tt_tensor sum_ND, bool more)
{
    const struct tt_pass *pass = rows->pass;
    const struct tt_exchange *exchange = pass->lent.exchange;
    int last = exchange->part_count - 1;
    int again = more ? 0 : -1, turn = last > 0 ? last - 1 : again;
    tt_tensor n = {0}, logits = {0}, sum = {0};
    if (count > 0) {
        n = tt_tensor_rows(rows->n_ND, first, count);
        logits = tt_tensor_rows(logits_NV, 0, count);
        if (rows->gradient) sum = tt_tensor_rows(sum_ND, 0, count);
    }
    for (int part = 0; part <= last; part++) {
        TT_TRY(exchange->take_part(exchange->context, part,
                                   part < last      ? part + 1
                                   : rows->gradient ? turn
                                                    : again));
        if (count > 0)
            TT_TRY(multiply_part(pass, weight_of(rows->head), part * exchange->part_rows, n, logits));
    }
    if (count > 0) TT_TRY(tt_head_loss(rows->head, pass, rows->gradient, first, count, logits));
    for (int part = last; part >= 0 && rows->gradient; part--) {
        TT_TRY(exchange->take_part(exchange->context, part, part > 0 ? part - 1 : again));
        if (count > 0)
            TT_TRY(
                add_part(pass, weight_of(rows->head), part * exchange->part_rows, logits, part == last, sum));
    }
    if (count == 0 || !rows->gradient) return TT_OK;
    struct tt_cast_args cast = {.x = sum, .y = tt_tensor_rows(rows->drows_ND, first, count)};
    return tt_cast(pass->lent.stream, &cast);
}

tt_status tt_head_run_parts(const struct tt_head_rows *rows)
{
    const struct tt_pass *pass = rows->pass;
    struct tt_workspace *workspace = pass->lent.workspace;
    int64_t vocab = tt_linear_group_out(&rows->head->lm_head), total = pass->in.batch->row_count;
    int64_t rounds_end = pass->lent.exchange->batch_rows, chunk = chunk_rows(pass, vocab);
    int64_t room = chunk < total ? chunk : total;
    tt_tensor logits_NV = {0}, sum_ND = {0};
    size_t mark = tt_workspace_mark(workspace);
    if (total > rounds_end)
        return tt_fail(TT_ERR_INTERNAL, "%lld rows, where %lld were announced", (long long)total,
                       (long long)rounds_end);
    if (room > 0)
        TT_TRY(
            tt_workspace_2d(workspace, "chunk of logits", pass->in.compute_dtype, room, vocab, &logits_NV));
    if (room > 0 && rows->gradient)
        TT_TRY(tt_workspace_2d(workspace, "sum over parts", TT_F32, room, rows->n_ND.dims[1], &sum_ND));
    for (int64_t first = 0; first < rounds_end; first += chunk) {
        int64_t count = total - first;
        if (count < 0) count = 0;
        if (count > chunk) count = chunk;
        TT_TRY(run_chunk(rows, first, count, logits_NV, sum_ND, first + chunk < rounds_end));
    }
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

tt_status tt_head_logits_in_parts(const struct tt_head *head, const struct tt_pass *pass, tt_tensor n_ND,
                                  tt_tensor logits_NV)
{
    const struct tt_exchange *exchange = pass->lent.exchange;
    for (int part = 0; part < exchange->part_count; part++) {
        TT_TRY(exchange->take_part(exchange->context, part, part + 1 < exchange->part_count ? part + 1 : -1));
        if (!tt_tensor_is_empty(logits_NV))
            TT_TRY(multiply_part(pass, weight_of(head), part * exchange->part_rows, n_ND, logits_NV));
    }
    return TT_OK;
}
