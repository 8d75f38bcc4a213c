#include "nn/self_attention_impl.h"

#include <math.h>

#include "backend/ops/attention.h"
#include "backend/ops/elementwise.h"
#include "backend/ops/ready_heads.h"
#include "nn/kv_cache.h"

static bool trains(const struct tt_half *half)
{
    const struct tt_self_attention *attention = half->impl;
    const struct tt_norm *norms[] = {&attention->norm, &attention->q_norm, &attention->k_norm,
                                     &attention->post_norm};
    for (int i = 0; i < 4; i++) {
        if (tt_norm_trains(norms[i])) return true;
    }
    if (attention->sinks != NULL && attention->sinks->trainable) return true;
    return tt_linear_group_trains(&attention->qkv) || tt_linear_group_trains(&attention->gate) ||
           tt_linear_group_trains(&attention->o) || tt_latent_trains(attention->latent);
}

static bool has_qk_norm(const struct tt_self_attention *attention)
{
    return tt_norm_exists(&attention->q_norm);
}

/* Whether the rotation comes before everything else that changes q and k. */
static bool rotates_first(const struct tt_self_attention *attention)
{
    return !has_qk_norm(attention) || attention->qk_norm == TT_QK_NORM_AFTER_ROPE;
}

/* The rows of heads that the q/k norms norm. */
static tt_tensor normed_rows(const struct tt_self_attention *attention, tt_tensor x_THE)
{
    return attention->qk_norm == TT_QK_NORM_ALL ? tt_heads_as_rows(x_THE) : x_THE;
}

static bool has_v_norm(const struct tt_self_attention *attention)
{
    return tt_norm_exists(&attention->v_norm);
}

static bool has_norm(const struct tt_self_attention *attention)
{
    return tt_norm_exists(&attention->norm);
}

static bool has_post_norm(const struct tt_self_attention *attention)
{
    return tt_norm_exists(&attention->post_norm);
}

/* Columns of q, k and v; without a linear of v they have columns all the same. */
static int64_t all_columns(const struct tt_self_attention *attention)
{
    return tt_attention_q_columns(attention) + 2 * tt_attention_kv_heads(attention) * attention->head_dim;
}

/* The columns that the linears make. */
static tt_tensor linear_columns(const struct tt_self_attention *attention, tt_tensor qkv_TC)
{
    return tt_tensor_cols(qkv_TC, 0, tt_linear_group_out(&attention->qkv));
}

/* The input of the values' norm. */
static tt_tensor raw_values(const struct tt_self_attention *attention, const struct qkv *raw)
{
    return attention->keys_as_values ? raw->k_TKE : raw->v_TKE;
}

/* Columns of normed q and k, and v where its linear's output must stay beside it. */
static int64_t ready_columns(const struct tt_self_attention *attention)
{
    int64_t kv_heads = tt_attention_kv_heads(attention);
    bool values = has_v_norm(attention) && !attention->keys_as_values;
    return (attention->heads + (values ? 2 : 1) * kv_heads) * attention->head_dim;
}

struct qkv tt_attention_split(const struct tt_self_attention *attention, tt_tensor qkv_TC)
{
    int64_t q_cols = tt_attention_q_columns(attention);
    struct qkv qkv = {.q_THE = tt_tensor_heads(tt_tensor_cols(qkv_TC, 0, q_cols), attention->heads)};
    qkv.q_THE.dims[2] = attention->head_dim; /* a gate may stand beside it */
    if (attention->reads == NULL) tt_attention_set_keys(attention, qkv_TC, q_cols, &qkv);
    return qkv;
}

static tt_status push_kept(const struct tt_self_attention *attention, const struct tt_pass *pass,
                           tt_tensor x_TD, bool keep, struct tt_attention_saved *saved)
{
    int64_t tokens = x_TD.dims[0], dim = x_TD.dims[1];
    struct tt_workspace *workspace = pass->lent.workspace;
    int64_t heads = attention->heads, kv_heads = tt_attention_kv_heads(attention);
    *saved = (struct tt_attention_saved){0};
    TT_TRY(tt_workspace_2d(workspace, "q, k and v", pass->in.compute_dtype, tokens, all_columns(attention),
                           &saved->qkv_TC));
    TT_TRY(tt_workspace_2d(workspace, "attention output", pass->in.compute_dtype, tokens,
                           heads * attention->head_dim, &saved->o_TC));
    TT_TRY(tt_linear_push_h(&attention->qkv, pass, tokens, &saved->h_qkv_TR));
    TT_TRY(tt_linear_push_h(&attention->o, pass, tokens, &saved->h_o_TR));
    TT_TRY(tt_attention_push_gate(attention, pass, tokens, saved));
    TT_TRY(tt_latent_push_kept(attention, pass, tokens, keep, saved));
    if (has_post_norm(attention))
        TT_TRY(
            tt_workspace_2d(workspace, "output of o", pass->in.compute_dtype, tokens, dim, &saved->out_TD));
    if (!keep) return TT_OK;
    if (has_post_norm(attention))
        TT_TRY(tt_workspace_1d(workspace, "rstd of o", TT_F32, tokens, &saved->rstd_out_T));
    TT_TRY(tt_workspace_2d(workspace, "log-sum-exp", TT_F32, heads,
                           tt_attention_query_rows(attention, pass, tokens), &saved->lse_HT));
    if (has_norm(attention)) TT_TRY(tt_workspace_1d(workspace, "rstd", TT_F32, tokens, &saved->rstd_T));
    if (has_qk_norm(attention)) {
        bool all = attention->qk_norm == TT_QK_NORM_ALL;
        int64_t q_rows = all ? 1 : heads, k_rows = all ? 1 : kv_heads;
        TT_TRY(tt_workspace_1d(workspace, "rstd of q", TT_F32, tokens * q_rows, &saved->rstd_q_N));
        if (kv_heads > 0)
            TT_TRY(tt_workspace_1d(workspace, "rstd of k", TT_F32, tokens * k_rows, &saved->rstd_k_N));
        if (has_v_norm(attention) && kv_heads > 0)
            TT_TRY(tt_workspace_1d(workspace, "rstd of v", TT_F32, tokens * kv_heads, &saved->rstd_v_N));
    }
    if (pass->in.level != TT_KEEP_ALL) return TT_OK;
    if (has_norm(attention) && tt_attention_needs_input(attention))
        TT_TRY(tt_workspace_2d(workspace, "kept input of attention", pass->in.compute_dtype, tokens, dim,
                               &saved->n_TD));
    if (!has_qk_norm(attention)) return TT_OK;
    return tt_workspace_2d(workspace, "kept q and k", pass->in.compute_dtype, tokens,
                           ready_columns(attention), &saved->ready_qk_TC);
}

/* Rotates the first columns of each head, as many as the table has angles for. */
static struct tt_rope_args rotation_of(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                       int rope, tt_tensor x_THE, bool inverse)
{
    const struct tt_rope_table *table = &pass->lent.ropes[rope];
    x_THE.dims[2] = 2 * table->cos_PE.dims[1];
    return (struct tt_rope_args){.x_THE = x_THE,
                                 .positions_T = pass->in.batch->rope_rows_T,
                                 .cos_PE = table->cos_PE,
                                 .sin_PE = table->sin_PE,
                                 .inverse = inverse,
                                 .pairs = attention->pairs};
}

static tt_status rotate(const struct tt_self_attention *attention, const struct tt_pass *pass, int rope,
                        tt_tensor x_THE, bool inverse)
{
    struct tt_rope_args args = rotation_of(attention, pass, rope, x_THE, inverse);
    return tt_rope(pass->lent.stream, &args);
}

/* q and k are adjacent in every layout used here, so one pass processes both, unless q has its own table. k is empty
 * where another layer makes it. */
static tt_status rotate_both(const struct tt_self_attention *attention, const struct tt_pass *pass,
                             tt_tensor q_THE, tt_tensor k_TKE, bool inverse)
{
    if (attention->rope < 0) return TT_OK;
    if (tt_tensor_is_empty(k_TKE)) return rotate(attention, pass, attention->rope, q_THE, inverse);
    const char *q_end =
        (const char *)q_THE.data + (size_t)(q_THE.dims[1] * q_THE.strides[1]) * tt_dtype_bytes(q_THE.dtype);
    bool beside = q_end == k_TKE.data && q_THE.strides[0] == k_TKE.strides[0] &&
                  q_THE.strides[1] == k_TKE.strides[1] && attention->query_rope == attention->rope;
    if (!beside) {
        TT_TRY(rotate(attention, pass, attention->query_rope, q_THE, inverse));
        return rotate(attention, pass, attention->rope, k_TKE, inverse);
    }
    q_THE.dims[1] += k_TKE.dims[1];
    return rotate(attention, pass, attention->rope, q_THE, inverse);
}

/* The normed and rotated q and k where they are separate from the linears' outputs: kept, or in `qk_TC`. */
static struct qkv with_ready(const struct tt_self_attention *attention, struct qkv raw, tt_tensor qk_TC)
{
    int64_t q_cols = attention->heads * attention->head_dim,
            k_cols = attention->kv_heads * attention->head_dim;
    raw.q_THE = tt_tensor_heads(tt_tensor_cols(qk_TC, 0, q_cols), attention->heads);
    if (attention->reads != NULL) return raw;
    if (has_v_norm(attention) && !attention->keys_as_values)
        tt_attention_set_keys(attention, qk_TC, q_cols, &raw);
    else
        raw.k_TKE = tt_tensor_heads(tt_tensor_cols(qk_TC, q_cols, k_cols), attention->kv_heads);
    return raw;
}

/* Whether one rotation turns all columns of q and k, and nothing is between them. */
static bool rotates_whole(const struct tt_self_attention *attention, const struct tt_pass *pass)
{
    return 2 * pass->lent.ropes[attention->rope].cos_PE.dims[1] == attention->head_dim &&
           attention->query_rope == attention->rope && !attention->gates_heads;
}

/* x -> q, k and v: the outputs of the linears, rotated already where no q/k norms come before. */
static tt_status project(const struct tt_self_attention *attention, const struct tt_pass *pass,
                         tt_tensor n_TD, const struct tt_quantized_rows *rows,
                         const struct tt_attention_saved *saved)
{
    struct tt_linear_call call = tt_linear_call_tokens(&attention->qkv, pass, n_TD, saved->h_qkv_TR);
    call.quantized = rows;
    if (attention->latent != NULL) return tt_latent_project(attention, &call, saved);
    tt_tensor out_TC = linear_columns(attention, saved->qkv_TC);
    if (!rotates_first(attention) || attention->rope < 0) return tt_linear_forward(&call, out_TC);
    const struct tt_rope_table *table = &pass->lent.ropes[attention->rope];
    if (!rotates_whole(attention, pass)) {
        struct qkv raw = tt_attention_split(attention, saved->qkv_TC);
        TT_TRY(tt_linear_forward(&call, out_TC));
        return rotate_both(attention, pass, raw.q_THE, raw.k_TKE, false);
    }
    int64_t heads = attention->heads + tt_attention_kv_heads(attention);
    struct tt_rotation rotation = {.columns = heads * attention->head_dim,
                                   .head_dim = attention->head_dim,
                                   .pairs = attention->pairs,
                                   .positions_T = pass->in.batch->rope_rows_T,
                                   .cos_PE = table->cos_PE,
                                   .sin_PE = table->sin_PE};
    return tt_linear_forward_rotated(&call, &rotation, out_TC);
}

/* Norms and rotates the own q and k, the output of `project`. Where the linears' q and k must be kept too, the result
 * goes to its kept place, or to scratch that is pushed here; otherwise in place. */
static tt_status prepare(const struct tt_self_attention *attention, const struct tt_pass *pass, bool keep,
                         const struct tt_attention_saved *saved, struct qkv *ready)
{
    struct qkv raw = tt_attention_split(attention, saved->qkv_TC);
    *ready = raw;
    if (!has_qk_norm(attention)) return TT_OK;
    if (keep) {
        tt_tensor qk_TC = saved->ready_qk_TC;
        if (tt_tensor_is_empty(qk_TC))
            TT_TRY(tt_workspace_2d(pass->lent.workspace, "normed q and k", pass->in.compute_dtype,
                                   saved->qkv_TC.dims[0], ready_columns(attention), &qk_TC));
        *ready = with_ready(attention, raw, qk_TC);
    }
    if (has_v_norm(attention) && attention->reads == NULL)
        TT_TRY(tt_norm_forward(&attention->v_norm, pass, raw_values(attention, &raw), ready->v_TKE,
                               saved->rstd_v_N, NULL));
    TT_TRY(tt_norm_forward(&attention->q_norm, pass, normed_rows(attention, raw.q_THE),
                           normed_rows(attention, ready->q_THE), saved->rstd_q_N, NULL));
    if (attention->reads == NULL)
        TT_TRY(tt_norm_forward(&attention->k_norm, pass, normed_rows(attention, raw.k_TKE),
                               normed_rows(attention, ready->k_TKE), saved->rstd_k_N, NULL));
    return rotates_first(attention) ? TT_OK : rotate_both(attention, pass, ready->q_THE, ready->k_TKE, false);
}

/* Whether ops/ready_heads.h does all that comes between the linears and attention in a pass of single tokens. */
static bool readies_at_once(const struct tt_self_attention *attention)
{
    bool each_head = !has_qk_norm(attention) || attention->qk_norm != TT_QK_NORM_ALL;
    bool one_table = rotates_first(attention) || attention->query_rope == attention->rope;
    return each_head && one_table && attention->reads == NULL && attention->offers == NULL &&
           !has_v_norm(attention) && !attention->keys_as_values && !attention->q_norm.centers &&
           !attention->k_norm.centers;
}

static struct tt_head_norm head_norm(const struct tt_norm *norm)
{
    return (struct tt_head_norm){.is = tt_norm_exists(norm),
                                 .weight_E = norm->bare ? (tt_tensor){0} : tt_param_value(norm->weight),
                                 .offset = norm->offset,
                                 .eps = norm->eps};
}

/* Norms and rotates q and k in place, and stores keys and values in the cache. */
static tt_status ready_single(const struct tt_self_attention *attention, const struct tt_pass *pass,
                              const struct tt_attention_saved *saved, struct qkv *ready)
{
    *ready = tt_attention_split(attention, saved->qkv_TC);
    struct tt_ready_heads_args args = {.q_THE = ready->q_THE,
                                       .k_TKE = ready->k_TKE,
                                       .v_TKE = ready->v_TKE,
                                       .q_norm = head_norm(&attention->q_norm),
                                       .k_norm = head_norm(&attention->k_norm),
                                       .pairs = attention->pairs};
    if (!rotates_first(attention) && attention->rope >= 0) {
        const struct tt_rope_table *table = &pass->lent.ropes[attention->rope];
        args.positions_T = pass->in.batch->rope_rows_T;
        args.cos_PE = table->cos_PE;
        args.sin_PE = table->sin_PE;
    }
    tt_kv_cache_places_single(pass->lent.cache, attention->layer, &args.k_cache_RC, &args.v_cache_RC,
                              &args.rows_T);
    return tt_ready_heads(pass->lent.stream, &args);
}

/* Scratch stays pushed. */
static tt_status attend(const struct tt_self_attention *attention, const struct tt_pass *pass,
                        const struct qkv *ready, const struct tt_attention_saved *saved,
                        struct tt_attention_forward_args *args)
{
    const struct tt_device_batch *batch = pass->in.batch;
    *args = (struct tt_attention_forward_args){
        .q_THE = ready->q_THE,
        .k_TKE = ready->k_TKE,
        .v_TKE = ready->v_TKE,
        .cu_q = batch->host_cu_seqlens,
        .cu_k = batch->host_cu_seqlens,
        .device_cu_q = batch->cu_seqlens,
        .device_cu_k = batch->cu_seqlens,
        .sequence_count = batch->sequence_count,
        .max_length_q = batch->max_length,
        .max_length_k = batch->max_length,
        .scale = attention->scale,
        .window = attention->window,
        .soft_cap = attention->soft_cap,
        .o_THE = tt_tensor_heads(saved->o_TC, attention->heads),
        .lse_HT = saved->lse_HT,
    };
    TT_TRY(tt_attention_copy_keys(attention, pass, args));
    return tt_attention_widen_sinks(attention, pass, &args->sinks_H);
}

/* Attention comes next. */
static tt_status offer_quiet(const struct tt_pass *pass)
{
    const struct tt_exchange *exchange = pass->lent.exchange;
    return exchange != NULL && exchange->quiet != NULL ? exchange->quiet(exchange->context) : TT_OK;
}

/* q, k and v -> the output of attention, with the cache's keys where there is one. Scratch stays pushed. */
static tt_status run_attention(const struct tt_self_attention *attention, const struct tt_pass *pass,
                               bool keep, const struct tt_attention_saved *saved)
{
    struct qkv ready;
    bool single = pass->lent.cache != NULL && tt_kv_cache_is_single(pass->lent.cache);
    if (single && readies_at_once(attention)) {
        TT_TRY(ready_single(attention, pass, saved, &ready));
        TT_TRY(offer_quiet(pass));
        return tt_attention_attend_single(attention, pass, &ready, true, saved->qkv_TC, saved->o_TC);
    }
    TT_TRY(prepare(attention, pass, keep, saved, &ready));
    tt_attention_read_keys(attention, pass, &ready);
    TT_TRY(tt_attention_offer_keys(attention, pass, &ready));
    struct tt_attention_forward_args args;
    TT_TRY(attend(attention, pass, &ready, saved, &args));
    if (pass->lent.cache != NULL && !single)
        TT_TRY(tt_attention_take_cached(attention, pass, saved->qkv_TC, &args));
    TT_TRY(offer_quiet(pass));
    if (single) return tt_attention_attend_single(attention, pass, &ready, false, saved->qkv_TC, saved->o_TC);
    TT_TRY(tt_attention_forward(pass->lent.stream, &args));
    return tt_attention_take_output(attention, pass, &args, tt_tensor_heads(saved->o_TC, attention->heads));
}

static tt_status finish(const struct tt_self_attention *attention, const struct tt_pass *pass,
                        const struct tt_half_input *in, const struct tt_attention_saved *saved)
{
    tt_tensor gated_TC;
    TT_TRY(tt_attention_apply_gate(attention, pass, in->keep, saved, &gated_TC));
    TT_TRY(tt_latent_take_values(attention, pass, &gated_TC));
    struct tt_linear_call o = tt_linear_call_tokens(&attention->o, pass, gated_TC, saved->h_o_TR);
    return tt_half_finish(&attention->post_norm, &o, in, saved->out_TD, saved->rstd_out_T);
}

static tt_status forward(const struct tt_half *half, const struct tt_pass *pass,
                         const struct tt_half_input *in, void *record)
{
    const struct tt_self_attention *attention = half->impl;
    struct tt_attention_saved *saved = record;
    struct tt_workspace *workspace = pass->lent.workspace;
    size_t start = tt_workspace_mark(workspace);
    TT_TRY(push_kept(attention, pass, in->x_TD, in->keep, saved));

    size_t mark = tt_workspace_mark(workspace);
    tt_tensor n_TD = saved->n_TD;
    struct tt_quantized_rows rows;
    TT_TRY(tt_attention_push_input(attention, pass, in->x_TD, &n_TD));
    TT_TRY(tt_half_push_norm(&attention->norm, &attention->qkv, pass, in, "normed input of attention",
                             saved->rstd_T, &n_TD, &rows));
    TT_TRY(project(attention, pass, n_TD, &rows, saved));
    TT_TRY(tt_attention_project_gate(attention, pass, n_TD, &rows, saved));
    tt_workspace_release(workspace, mark);

    TT_TRY(run_attention(attention, pass, in->keep, saved));
    tt_workspace_release(workspace, mark);
    bool done =
        tt_tensor_is_empty(in->y_TD) && !has_post_norm(attention) && tt_tensor_is_empty(saved->h_o_TR);
    if (!done) TT_TRY(finish(attention, pass, in, saved));
    tt_workspace_release(workspace, in->keep ? mark : start);
    return TT_OK;
}

static tt_status push_attention_scratch(const struct tt_pass *pass, struct tt_attention_backward_args *args)
{
    size_t bytes = tt_attention_backward_scratch(tt_stream_device(pass->lent.stream), args);
    if (bytes == 0) return TT_OK;
    return tt_workspace_1d(pass->lent.workspace, "attention scratch", TT_U8, (int64_t)bytes, &args->scratch);
}

/* The gradients of q, k and v before their norms, in place; those of values that are keys join the keys'. */
static tt_status norms_back(const struct tt_self_attention *attention, const struct tt_pass *pass,
                            const struct tt_attention_saved *saved, tt_tensor dqkv_TC)
{
    struct qkv raw = tt_attention_split(attention, saved->qkv_TC),
               grad = tt_attention_split(attention, dqkv_TC);
    TT_TRY(tt_norm_backward(&attention->q_norm, pass, normed_rows(attention, raw.q_THE), saved->rstd_q_N,
                            (tt_tensor){0}, normed_rows(attention, grad.q_THE), NULL));
    if (attention->reads != NULL) return TT_OK;
    TT_TRY(tt_norm_backward(&attention->k_norm, pass, normed_rows(attention, raw.k_TKE), saved->rstd_k_N,
                            (tt_tensor){0}, normed_rows(attention, grad.k_TKE), NULL));
    if (!has_v_norm(attention)) return TT_OK;
    TT_TRY(tt_norm_backward(&attention->v_norm, pass, raw_values(attention, &raw), saved->rstd_v_N,
                            (tt_tensor){0}, grad.v_TKE, NULL));
    if (!attention->keys_as_values) return TT_OK;
    tt_tensor dk_TC = tt_heads_as_rows(grad.k_TKE);
    struct tt_add_args add = {.a = dk_TC, .b = tt_heads_as_rows(grad.v_TKE), .y = dk_TC};
    return tt_add(pass->lent.stream, &add);
}

/* The gradients of q and k before the rotation, in place. Where the linears take rows in FP8 and nothing else changes
 * dqkv, those of all of it too, pushed here. */
static tt_status rotate_back(const struct tt_self_attention *attention, const struct tt_pass *pass,
                             tt_tensor dqkv_TC, struct tt_quantized_rows *rows)
{
    struct qkv grad = tt_attention_split(attention, dqkv_TC);
    *rows = (struct tt_quantized_rows){.made = false};
    if (attention->rope < 0) return TT_OK;
    bool last = rotates_first(attention) && rotates_whole(attention, pass);
    if (!last || !tt_linear_takes_quantized(&attention->qkv, TT_LINEAR_BACKWARD))
        return rotate_both(attention, pass, grad.q_THE, grad.k_TKE, true);
    TT_TRY(tt_linear_push_quantized(pass, dqkv_TC.dims[0], dqkv_TC.dims[1], rows));
    grad.q_THE.dims[1] += tt_attention_kv_heads(attention);
    struct tt_rope_args args = rotation_of(attention, pass, attention->rope, grad.q_THE, true);
    args.rows_TC = dqkv_TC;
    args.codes_TC = rows->codes_MK;
    args.scale_T = rows->scale_M;
    return tt_rope(pass->lent.stream, &args);
}

/* dy -> gradients of the linears' q, k, v, with the rows of rotate_back; adds to the gradients of o_proj and of the
 * norms behind and before it. */
static tt_status backward_to_qkv(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                 const struct tt_attention_saved *saved,
                                 const struct tt_half_gradient *gradient, tt_tensor dqkv_TC,
                                 struct tt_quantized_rows *dqkv_rows)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    tt_tensor do_TC, dh_TR, dout_TD, dkv_TC;
    size_t mark = tt_workspace_mark(workspace);
    struct tt_quantized_rows dout_rows;
    TT_TRY(tt_half_begin_backward(&attention->post_norm, &attention->o, pass, gradient, "gradient of o",
                                  saved->out_TD, saved->rstd_out_T, &dout_TD, &dout_rows));
    int64_t tokens = dout_TD.dims[0];
    TT_TRY(tt_workspace_2d(workspace, "gradient of the attention output", pass->in.compute_dtype, tokens,
                           attention->heads * tt_attention_value_dim(attention), &do_TC));
    TT_TRY(tt_linear_push_h(&attention->o, pass, tokens, &dh_TR));
    struct tt_linear_call o = tt_linear_call_tokens(&attention->o, pass, saved->o_TC, saved->h_o_TR);
    o.quantized = &dout_rows;
    TT_TRY(tt_linear_backward_input(&o, dout_TD, dh_TR, do_TC));
    TT_TRY(tt_attention_gate_back(attention, pass, saved, dqkv_TC, &o.x_TI, &do_TC));
    if (tt_linear_group_needs_x(&attention->o)) TT_TRY(tt_latent_take_values(attention, pass, &o.x_TI));
    TT_TRY(tt_latent_widen_gradient(attention, pass, &do_TC));
    TT_TRY(tt_linear_backward_params(&o, dout_TD, dh_TR));

    struct qkv raw = tt_attention_split(attention, saved->qkv_TC), ready = raw,
               grad = tt_attention_split(attention, dqkv_TC);
    if (!tt_tensor_is_empty(saved->ready_qk_TC))
        ready = with_ready(attention, raw, saved->ready_qk_TC);
    else if (has_qk_norm(attention))
        TT_TRY(prepare(attention, pass, true, saved, &ready));
    tt_attention_read_keys(attention, pass, &ready);
    TT_TRY(tt_attention_push_key_gradients(attention, pass, &grad, &dkv_TC));
    struct tt_attention_backward_args args = {.do_THE = tt_tensor_heads(do_TC, attention->heads),
                                              .dq_THE = grad.q_THE,
                                              .dk_TKE = grad.k_TKE,
                                              .dv_TKE = grad.v_TKE,
                                              .dsinks_H = tt_param_grad(attention->sinks)};
    TT_TRY(attend(attention, pass, &ready, saved, &args.forward));
    TT_TRY(tt_attention_push_copies(attention, pass, tt_tensor_heads(saved->o_TC, attention->heads), &args));
    TT_TRY(push_attention_scratch(pass, &args));
    TT_TRY(offer_quiet(pass));
    TT_TRY(tt_attention_backward(pass->lent.stream, &args));
    TT_TRY(tt_attention_join_copies(attention, pass, &args, &grad));
    TT_TRY(tt_attention_pass_key_gradients(attention, pass, dqkv_TC, dkv_TC));
    tt_workspace_release(workspace, mark);
    if (has_qk_norm(attention) && rotates_first(attention))
        TT_TRY(norms_back(attention, pass, saved, dqkv_TC));
    TT_TRY(rotate_back(attention, pass, dqkv_TC, dqkv_rows));
    return rotates_first(attention) ? TT_OK : norms_back(attention, pass, saved, dqkv_TC);
}

static tt_status backward(const struct tt_half *half, const struct tt_pass *pass, const void *record,
                          struct tt_half_gradient *gradient)
{
    const struct tt_self_attention *attention = half->impl;
    const struct tt_attention_saved *saved = record;
    struct tt_workspace *workspace = pass->lent.workspace;
    int64_t tokens = gradient->dy_TD.dims[0];
    tt_tensor dqkv_TC, dn_TD, n_TD = saved->n_TD;
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(tt_workspace_2d(workspace, "gradient of q, k and v", pass->in.compute_dtype, tokens,
                           all_columns(attention), &dqkv_TC));
    struct tt_quantized_rows dqkv_rows;
    TT_TRY(backward_to_qkv(attention, pass, saved, gradient, dqkv_TC, &dqkv_rows));
    if (attention->latent != NULL) TT_TRY(tt_latent_back(attention, pass, saved, dqkv_TC, &dqkv_TC));
    dqkv_TC = linear_columns(attention, dqkv_TC);
    TT_TRY(tt_half_push_gradient(&attention->norm, pass, gradient, &dn_TD));
    TT_TRY(tt_half_first_back(&attention->norm, &attention->qkv, pass, gradient, "normed input of attention",
                              tt_attention_needs_input(attention), dqkv_TC, &dqkv_rows, saved->h_qkv_TR,
                              &n_TD, dn_TD));
    TT_TRY(tt_attention_gate_linear_back(attention, pass, saved, n_TD, dn_TD));
    /* Memory of dn that is not dx lies above the mark. */
    if (!tt_tensor_is_empty(gradient->dx_TD)) tt_workspace_release(workspace, mark);
    return tt_half_end_backward(&attention->norm, pass, gradient, saved->rstd_T, dn_TD);
}

static const struct tt_linear_group *reader(const struct tt_half *half)
{
    const struct tt_self_attention *attention = half->impl;
    return has_post_norm(attention) ? NULL : &attention->o;
}

static tt_status visit_linears(const struct tt_half *half, tt_linear_visit *visit, void *context)
{
    const struct tt_self_attention *attention = half->impl;
    TT_TRY(tt_linear_group_visit(&attention->qkv, visit, context));
    TT_TRY(tt_linear_group_visit(&attention->gate, visit, context));
    if (attention->latent != NULL) {
        TT_TRY(tt_linear_group_visit(&attention->latent->q, visit, context));
        TT_TRY(tt_linear_group_visit(&attention->latent->kv, visit, context));
    }
    return tt_linear_group_visit(&attention->o, visit, context);
}

static double flops(const struct tt_half *half, double length, bool full)
{
    const struct tt_self_attention *attention = half->impl;
    double window = attention->window > 0 ? fmin((double)attention->window, length) : length;
    double seen = length > 0 ? window - window * window / (2 * length) : 0; /* keys per query, their mean */
    double sum = tt_linear_group_flops(&attention->qkv, full) +
                 tt_linear_group_flops(&attention->gate, full) + tt_linear_group_flops(&attention->o, full) +
                 tt_latent_flops(attention->latent, full);
    int64_t columns = 2 * attention->head_dim; /* of q, and of v */
    if (attention->latent != NULL)
        columns = attention->latent->plain + attention->latent->rotated + attention->latent->value;
    /* forward: scores and values, 2 products of 2 FLOPs; backward: twice that */
    return sum + 6.0 * seen * (double)(attention->heads * columns);
}

const struct tt_half_ops tt_attention_half = {
    .kind = "attention",
    .residual = "residual after attention",
    .forward = forward,
    .backward = backward,
    .reader = reader,
    .trains = trains,
    .visit_linears = visit_linears,
    .flops = flops,
};
