/* The head of a language model: logits of the rows with a label, their losses, and with them their gradients. */
#include "nn/head.h"

#include "backend/ops/cross_entropy.h"
#include "backend/ops/elementwise.h"
#include "backend/ops/log_squares.h"

static bool in_parts(const struct tt_pass *pass)
{
    return pass->lent.exchange != NULL && pass->lent.exchange->part_count > 0;
}

int64_t tt_head_chunk_rows(int64_t vocab, tt_dtype dtype, bool host)
{
    int64_t bytes = host ? TT_HEAD_CHUNK_BYTES_HOST : TT_HEAD_CHUNK_BYTES_DEVICE;
    int64_t row_bytes = vocab * (int64_t)tt_dtype_bytes(dtype), rows = bytes / row_bytes;
    if (host && rows < TT_HEAD_CHUNK_ROWS_HOST) {
        rows = TT_HEAD_CHUNK_MOST_HOST / row_bytes;
        if (rows > TT_HEAD_CHUNK_ROWS_HOST) rows = TT_HEAD_CHUNK_ROWS_HOST;
    }
    if (rows > 64) rows -= rows % 64; /* whole tiles */
    return rows < 1 ? 1 : rows;
}

static tt_tensor rows_or_empty(tt_tensor tensor, int64_t first, int64_t count)
{
    return tt_tensor_is_empty(tensor) ? tensor : tt_tensor_rows(tensor, first, count);
}

static tt_tensor result_rows(const struct tt_pass *pass, const char *name, int64_t first, int64_t count)
{
    return rows_or_empty(tt_pass_result(pass->out, name, 0), first, count);
}

tt_status tt_head_loss(const struct tt_head *head, const struct tt_pass *pass, bool gradient, int64_t first,
                       int64_t count, tt_tensor logits_NV)
{
    struct tt_cross_entropy_args args = {
        .logits_NV = logits_NV,
        .labels_N = tt_tensor_rows(pass->in.batch->labels_N, first, count),
        .loss_N = result_rows(pass, TT_RESULT_LOSS, first, count),
        .correct_N = result_rows(pass, TT_RESULT_CORRECT, first, count),
        .entropy_N = result_rows(pass, TT_RESULT_ENTROPY, first, count),
        .mean_N = result_rows(pass, TT_RESULT_MEAN, first, count),
        .grad_scale = pass->in.loss_scale,
        .grad_scale_N = rows_or_empty(pass->in.scale_N, first, count),
        .label_smoothing = pass->in.label_smoothing,
        .soft_cap = head->soft_cap,
        .gradient = gradient,
    };
    if (pass->in.want_squares && !gradient) {
        const struct tt_log_squares_args squares = {
            logits_NV, result_rows(pass, TT_RESULT_SQUARES, first, count), head->soft_cap};
        TT_TRY(tt_log_squares(pass->lent.stream, &squares));
    }
    return tt_cross_entropy(pass->lent.stream, &args);
}

/* The gradient of a chunk of logits -> that of its rows, and those of what trains in the head. */
static tt_status multiply_back(const struct tt_head *head, const struct tt_linear_call *call,
                               tt_tensor dlogits_NV, tt_tensor dh_NR, tt_tensor drows_ND)
{
    const struct tt_pass *pass = call->pass;
    tt_tensor trained_NK;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(tt_token_rows_take(&head->trained, pass, call->x_TI, dlogits_NV, &trained_NK));
    TT_TRY(tt_linear_backward_input(call, dlogits_NV, dh_NR, drows_ND));
    TT_TRY(tt_token_rows_add(&head->trained, pass, trained_NK, drows_ND));
    TT_TRY(tt_linear_backward_params(call, dlogits_NV, dh_NR));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* Normed rows -> loss, hits and entropy, chunk by chunk; with `gradient` also d(rows) and the gradients of the head's
 * trainable weights. */
static tt_status run_chunks(const struct tt_head *head, const struct tt_pass *pass, tt_tensor n_ND,
                            bool gradient, tt_tensor drows_ND)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    const struct tt_linear_group *linear = &head->lm_head;
    int64_t vocab = tt_linear_group_out(linear), total = n_ND.dims[0];
    int64_t chunk = tt_head_chunk_rows(vocab, pass->in.compute_dtype,
                                       tt_device_is_host(tt_stream_device(pass->lent.stream)));
    tt_tensor keys_N, logits_NV, h_NR, dh_NR;
    size_t mark = tt_workspace_mark(workspace);
    if (in_parts(pass)) {
        const struct tt_head_rows rows = {head, pass, n_ND, drows_ND, gradient};
        return tt_head_run_parts(&rows);
    }
    if (chunk > total) chunk = total;
    TT_TRY(tt_head_gather_keys(head, pass, pass->in.batch->rows_N, &keys_N));
    TT_TRY(tt_workspace_2d(workspace, "chunk of logits", pass->in.compute_dtype, chunk, vocab, &logits_NV));
    TT_TRY(tt_linear_push_h(linear, pass, chunk, &h_NR));
    TT_TRY(tt_linear_push_h(linear, pass, chunk, &dh_NR));
    for (int64_t first = 0; first < total; first += chunk) {
        int64_t count = total - first < chunk ? total - first : chunk;
        tt_tensor n = tt_tensor_rows(n_ND, first, count), logits = tt_tensor_rows(logits_NV, 0, count);
        tt_tensor h = rows_or_empty(h_NR, 0, count), dh = rows_or_empty(dh_NR, 0, count);
        struct tt_linear_call call = {.group = linear,
                                      .pass = pass,
                                      .row_keys_T = rows_or_empty(keys_N, first, count),
                                      .x_TI = n,
                                      .h_TR = h};
        TT_TRY(tt_linear_forward(&call, logits));
        TT_TRY(tt_token_rows_logits(&head->trained, pass, n, logits));
        TT_TRY(tt_head_loss(head, pass, gradient, first, count, logits));
        if (!gradient) continue;
        TT_TRY(multiply_back(head, &call, logits, dh, tt_tensor_rows(drows_ND, first, count)));
    }
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

static bool grad_lent(const tt_param *param)
{
    return param == NULL || !param->trainable || !tt_tensor_is_empty(param->grad);
}

static bool grads_lent(const struct tt_head *head)
{
    const struct tt_linear *linear = &head->lm_head.linears[0];
    return grad_lent(linear->weight) && grad_lent(linear->lora_A) && grad_lent(linear->lora_B) &&
           grad_lent(head->trained.rows);
}

static tt_status forward_logits(const struct tt_head *head, const struct tt_pass *pass, tt_tensor x_TD)
{
    tt_tensor n_ND, keys_N, h_NR, logits_NV;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "logits", TT_F32, pass->in.batch->row_count,
                           tt_linear_group_out(&head->lm_head), &logits_NV));
    TT_TRY(tt_pass_give(pass, TT_RESULT_LOGITS, 0, logits_NV));
    if (pass->in.batch->row_count == 0)
        return in_parts(pass) ? tt_head_logits_in_parts(head, pass, (tt_tensor){0}, (tt_tensor){0}) : TT_OK;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(tt_head_gather(pass, pass->in.batch->rows_N, x_TD, &n_ND));
    TT_TRY(tt_head_gather_keys(head, pass, pass->in.batch->rows_N, &keys_N));
    TT_TRY(tt_linear_push_h(&head->lm_head, pass, n_ND.dims[0], &h_NR));
    TT_TRY(tt_head_norm_rows(head, pass, n_ND, n_ND, (tt_tensor){0}));
    struct tt_linear_call call = {.group = &head->lm_head,
                                  .pass = pass,
                                  .row_keys_T = keys_N,
                                  .x_TI = n_ND,
                                  .h_TR = h_NR,
                                  .adapter_T = pass->in.adapters.of_N};
    if (in_parts(pass))
        TT_TRY(tt_head_logits_in_parts(head, pass, n_ND, logits_NV));
    else
        TT_TRY(tt_linear_forward(&call, logits_NV));
    TT_TRY(tt_token_rows_logits(&head->trained, pass, n_ND, logits_NV));
    if (head->soft_cap > 0) {
        struct tt_soft_cap_args args = {.x = logits_NV, .cap = head->soft_cap};
        TT_TRY(tt_soft_cap(pass->lent.stream, &args));
    }
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* A result with one value for each of `rows` rows. */
static tt_status give(const struct tt_pass *pass, const char *name, const char *what, tt_dtype dtype,
                      int64_t rows)
{
    tt_tensor value;
    TT_TRY(tt_workspace_1d(pass->lent.workspace, what, dtype, rows, &value));
    return tt_pass_give(pass, name, 0, value);
}

static tt_status give_rows(const struct tt_pass *pass, int64_t rows)
{
    TT_TRY(give(pass, TT_RESULT_LOSS, "loss of rows", TT_F32, rows));
    TT_TRY(give(pass, TT_RESULT_CORRECT, "hits of rows", TT_I32, rows));
    TT_TRY(give(pass, TT_RESULT_ENTROPY, "entropy of rows", TT_F32, rows));
    if (pass->in.want_squares) TT_TRY(give(pass, TT_RESULT_SQUARES, "squares of rows", TT_F32, rows));
    if (!pass->in.scales_follow) return TT_OK;
    return give(pass, TT_RESULT_MEAN, "mean logits of rows", TT_F32, rows);
}

static tt_status forward(const struct tt_head *head, const struct tt_pass *pass, tt_tensor x_TD,
                         struct tt_head_saved *saved)
{
    int64_t rows = pass->in.batch->row_count;
    bool done = saved != NULL && grads_lent(head) && !pass->in.scales_follow;
    if (pass->in.want_logits) return forward_logits(head, pass, x_TD);
    if (pass->in.batch->token_count == 0 && in_parts(pass)) {
        if (saved != NULL) *saved = (struct tt_head_saved){.done = done};
        return run_chunks(head, pass, (tt_tensor){0}, done, (tt_tensor){0});
    }
    TT_TRY(give_rows(pass, rows));
    tt_tensor drows_ND = {0}, rstd_N = {0}, n_ND;
    if (saved != NULL) {
        TT_TRY(tt_workspace_2d(pass->lent.workspace, "gradient of the head's rows", x_TD.dtype, rows,
                               x_TD.dims[1], &drows_ND));
        TT_TRY(tt_workspace_1d(pass->lent.workspace, "rstd", TT_F32, rows, &rstd_N));
        *saved = (struct tt_head_saved){.drows_ND = drows_ND, .rstd_N = rstd_N, .done = done};
    }
    if (rows == 0) return in_parts(pass) ? run_chunks(head, pass, (tt_tensor){0}, done, drows_ND) : TT_OK;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(tt_head_gather(pass, pass->in.batch->rows_N, x_TD, &n_ND));
    TT_TRY(tt_head_norm_rows(head, pass, n_ND, n_ND, rstd_N));
    TT_TRY(run_chunks(head, pass, n_ND, done, drows_ND));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static tt_status backward(const struct tt_head *head, const struct tt_pass *pass, tt_tensor x_TD,
                          const struct tt_head_saved *saved, tt_tensor dx_TD)
{
    if (pass->in.batch->row_count == 0) {
        if (in_parts(pass) && !saved->done)
            TT_TRY(run_chunks(head, pass, (tt_tensor){0}, true, (tt_tensor){0}));
        return tt_head_rows_backward(head, pass, &(struct tt_head_rows_gradient){.dx_TD = dx_TD});
    }
    tt_tensor x_ND, n_ND;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(tt_head_gather(pass, pass->in.batch->rows_N, x_TD, &x_ND));
    if (!saved->done) {
        size_t inner = tt_workspace_mark(pass->lent.workspace);
        TT_TRY(tt_workspace_2d(pass->lent.workspace, "normed rows", x_ND.dtype, x_ND.dims[0], x_ND.dims[1],
                               &n_ND));
        TT_TRY(tt_head_norm_rows(head, pass, x_ND, n_ND, (tt_tensor){0}));
        TT_TRY(run_chunks(head, pass, n_ND, true, saved->drows_ND));
        tt_workspace_release(pass->lent.workspace, inner);
    }
    const struct tt_head_rows_gradient gradient = {x_ND, saved->rstd_N, saved->drows_ND,
                                                   pass->in.batch->rows_N, dx_TD};
    TT_TRY(tt_head_rows_backward(head, pass, &gradient));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

const struct tt_head_ops tt_head_language = {
    .name = "language", .forward = forward, .backward = backward, .splits = true};
