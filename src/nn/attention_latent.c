/* Heads of attention from latents: linears of the stream make short rows, and linears of those, normed, the heads. */
#include "backend/ops/elementwise.h"
#include "backend/ops/latent_heads.h"
#include "nn/self_attention_impl.h"

/* One of the two latents, with its place among the columns of the stream's linears. */
struct part {
    const char *latent, *heads; /* names of memory */
    const struct tt_norm *norm;
    const struct tt_linear_group *group;
    int64_t first, columns;
    tt_tensor h_TR, rstd_T, n_TL;
};

static struct part queries_of(const struct tt_self_attention *attention,
                              const struct tt_attention_saved *saved)
{
    const struct tt_latent *latent = attention->latent;
    return (struct part){.latent = "latent of q",
                         .heads = "q of its latent",
                         .norm = &latent->q_norm,
                         .group = &latent->q,
                         .columns = latent->q_columns,
                         .h_TR = saved->h_latent_q_TR,
                         .rstd_T = saved->rstd_latent_q_T,
                         .n_TL = saved->latent_q_TL};
}

static struct part keys_of(const struct tt_self_attention *attention, const struct tt_attention_saved *saved)
{
    const struct tt_latent *latent = attention->latent;
    return (struct part){.latent = "latent of k and v",
                         .heads = "k and v of their latent",
                         .norm = &latent->kv_norm,
                         .group = &latent->kv,
                         .first = latent->q_columns,
                         .columns = latent->kv_columns,
                         .h_TR = saved->h_latent_kv_TR,
                         .rstd_T = saved->rstd_latent_kv_T,
                         .n_TL = saved->latent_kv_TL};
}

static bool has_queries(const struct tt_self_attention *attention)
{
    return attention->latent->q.count > 0;
}

bool tt_latent_trains(const struct tt_latent *latent)
{
    return latent != NULL && (tt_norm_trains(&latent->q_norm) || tt_norm_trains(&latent->kv_norm) ||
                              tt_linear_group_trains(&latent->q) || tt_linear_group_trains(&latent->kv));
}

/* ---- Memory ---- */

static tt_status push_normed(const struct part *part, const struct tt_pass *pass, int64_t tokens,
                             tt_tensor *n_TL)
{
    if (!tt_linear_group_needs_x(part->group)) return TT_OK;
    return tt_workspace_2d(pass->lent.workspace, part->latent, pass->in.compute_dtype, tokens, part->columns,
                           n_TL);
}

tt_status tt_latent_push_kept(const struct tt_self_attention *attention, const struct tt_pass *pass,
                              int64_t tokens, bool keep, struct tt_attention_saved *saved)
{
    const struct tt_latent *latent = attention->latent;
    struct tt_workspace *workspace = pass->lent.workspace;
    if (latent == NULL) return TT_OK;
    TT_TRY(tt_workspace_2d(workspace, "latents", pass->in.compute_dtype, tokens,
                           tt_linear_group_out(&attention->qkv), &saved->latent_TC));
    TT_TRY(tt_linear_push_h(&latent->q, pass, tokens, &saved->h_latent_q_TR));
    TT_TRY(tt_linear_push_h(&latent->kv, pass, tokens, &saved->h_latent_kv_TR));
    if (!keep) return TT_OK;
    if (has_queries(attention))
        TT_TRY(tt_workspace_1d(workspace, "rstd of q's latent", TT_F32, tokens, &saved->rstd_latent_q_T));
    TT_TRY(tt_workspace_1d(workspace, "rstd of k's latent", TT_F32, tokens, &saved->rstd_latent_kv_T));
    if (pass->in.level != TT_KEEP_ALL) return TT_OK;
    const struct part queries = queries_of(attention, saved), keys = keys_of(attention, saved);
    if (has_queries(attention)) TT_TRY(push_normed(&queries, pass, tokens, &saved->latent_q_TL));
    return push_normed(&keys, pass, tokens, &saved->latent_kv_TL);
}

/* ---- Forward ---- */

/* A latent -> its linear's columns, in scratch that is pushed here. */
static tt_status expand(const struct part *part, const struct tt_pass *pass, tt_tensor latent_TC,
                        tt_tensor *out_TC)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    tt_tensor x_TL = tt_tensor_cols(latent_TC, part->first, part->columns), n_TL = part->n_TL;
    struct tt_quantized_rows rows;
    TT_TRY(tt_workspace_2d(workspace, part->heads, latent_TC.dtype, latent_TC.dims[0],
                           tt_linear_group_out(part->group), out_TC));
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(tt_norm_push_result(part->norm, part->group, pass, part->latent, x_TL, &n_TL, &rows));
    TT_TRY(tt_norm_forward(part->norm, pass, x_TL, n_TL, part->rstd_T, &rows));
    struct tt_linear_call call = tt_linear_call_tokens(part->group, pass, n_TL, part->h_TR);
    call.quantized = &rows;
    TT_TRY(tt_linear_forward(&call, *out_TC));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

static struct tt_latent_heads_args heads_args(const struct tt_self_attention *attention,
                                              const struct tt_pass *pass, tt_tensor latent_TC, tt_tensor q_TC,
                                              tt_tensor kv_TC, tt_tensor qkv_TC)
{
    const struct tt_latent *latent = attention->latent;
    const struct tt_rope_table *table = &pass->lent.ropes[latent->rope];
    const struct qkv heads = tt_attention_split(attention, qkv_TC);
    return (struct tt_latent_heads_args){
        .q_TC = q_TC,
        .kv_TC = kv_TC,
        .shared_TR = tt_tensor_cols(latent_TC, latent->q_columns + latent->kv_columns, latent->rotated),
        .positions_T = pass->in.batch->rope_rows_T,
        .cos_PE = table->cos_PE,
        .sin_PE = table->sin_PE,
        .pairs = attention->pairs,
        .temperature = latent->temperature,
        .original_positions = latent->original_positions,
        .q_THW = heads.q_THE,
        .k_THW = heads.k_TKE,
        .v_THW = heads.v_TKE,
    };
}

tt_status tt_latent_project(const struct tt_self_attention *attention, const struct tt_linear_call *call,
                            const struct tt_attention_saved *saved)
{
    const struct tt_pass *pass = call->pass;
    struct tt_workspace *workspace = pass->lent.workspace;
    const struct part queries = queries_of(attention, saved), keys = keys_of(attention, saved);
    tt_tensor q_TC = tt_tensor_cols(saved->latent_TC, 0, queries.columns), kv_TC;
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(tt_linear_forward(call, saved->latent_TC));
    if (has_queries(attention)) TT_TRY(expand(&queries, pass, saved->latent_TC, &q_TC));
    TT_TRY(expand(&keys, pass, saved->latent_TC, &kv_TC));
    struct tt_latent_heads_args args =
        heads_args(attention, pass, saved->latent_TC, q_TC, kv_TC, saved->qkv_TC);
    TT_TRY(tt_latent_heads(pass->lent.stream, &args));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

/* ---- Backward ---- */

/* The gradient of a latent, in its columns of dlatent; adds to those of its linear and its norm. */
static tt_status expand_back(const struct part *part, const struct tt_pass *pass, tt_tensor latent_TC,
                             tt_tensor dout_TC, tt_tensor dlatent_TC)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    size_t mark = tt_workspace_mark(workspace);
    tt_tensor x_TL = tt_tensor_cols(latent_TC, part->first, part->columns), n_TL = part->n_TL, dh_TR;
    tt_tensor dx_TL = tt_tensor_cols(dlatent_TC, part->first, part->columns);
    TT_TRY(tt_linear_push_h(part->group, pass, dout_TC.dims[0], &dh_TR));
    struct tt_linear_call call = tt_linear_call_tokens(part->group, pass, n_TL, part->h_TR);
    TT_TRY(tt_linear_backward_input(&call, dout_TC, dh_TR, dx_TL));
    if (tt_tensor_is_empty(n_TL) && tt_linear_group_needs_x(part->group)) {
        TT_TRY(push_normed(part, pass, dout_TC.dims[0], &n_TL));
        TT_TRY(tt_norm_forward(part->norm, pass, x_TL, n_TL, (tt_tensor){0}, NULL));
    }
    call.x_TI = n_TL;
    TT_TRY(tt_linear_backward_params(&call, dout_TC, dh_TR));
    tt_workspace_release(workspace, mark);
    return tt_norm_backward(part->norm, pass, x_TL, part->rstd_T, (tt_tensor){0}, dx_TL, NULL);
}

tt_status tt_latent_back(const struct tt_self_attention *attention, const struct tt_pass *pass,
                         const struct tt_attention_saved *saved, tt_tensor dqkv_TC, tt_tensor *dlatent_TC)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    const struct part queries = queries_of(attention, saved), keys = keys_of(attention, saved);
    int64_t tokens = dqkv_TC.dims[0];
    tt_tensor dkv_TC, dq_TC;
    TT_TRY(tt_workspace_2d(workspace, "gradient of latents", dqkv_TC.dtype, tokens, saved->latent_TC.dims[1],
                           dlatent_TC));
    size_t mark = tt_workspace_mark(workspace);
    dq_TC = tt_tensor_cols(*dlatent_TC, 0, queries.columns);
    if (has_queries(attention))
        TT_TRY(tt_workspace_2d(workspace, "gradient of q", dqkv_TC.dtype, tokens,
                               tt_linear_group_out(queries.group), &dq_TC));
    TT_TRY(tt_workspace_2d(workspace, "gradient of k and v", dqkv_TC.dtype, tokens,
                           tt_linear_group_out(keys.group), &dkv_TC));
    struct tt_latent_heads_args args = heads_args(attention, pass, *dlatent_TC, dq_TC, dkv_TC, dqkv_TC);
    args.backward = true;
    TT_TRY(tt_latent_heads(pass->lent.stream, &args));
    if (has_queries(attention)) TT_TRY(expand_back(&queries, pass, saved->latent_TC, dq_TC, *dlatent_TC));
    TT_TRY(expand_back(&keys, pass, saved->latent_TC, dkv_TC, *dlatent_TC));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

/* ---- Values that are narrower than the heads ---- */

static bool is_narrow(const struct tt_self_attention *attention)
{
    return tt_attention_value_dim(attention) < attention->head_dim;
}

/* The values of wide heads, a row for each head. */
static tt_tensor value_rows(const struct tt_self_attention *attention, tt_tensor wide_TC)
{
    return tt_tensor_2d_strided(wide_TC.data, wide_TC.dtype, wide_TC.dims[0] * attention->heads,
                                attention->latent->value, attention->head_dim);
}

tt_status tt_latent_take_values(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                tt_tensor *o_TC)
{
    tt_tensor wide_TC = *o_TC;
    if (!is_narrow(attention)) return TT_OK;
    int64_t tokens = wide_TC.dims[0], value = attention->latent->value;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "values of the attention output", wide_TC.dtype, tokens,
                           attention->heads * value, o_TC));
    struct tt_cast_args args = {.x = value_rows(attention, wide_TC),
                                .y = tt_tensor_2d(o_TC->data, o_TC->dtype, tokens * attention->heads, value)};
    return tt_cast(pass->lent.stream, &args);
}

tt_status tt_latent_widen_gradient(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                   tt_tensor *do_TC)
{
    tt_tensor narrow_TC = *do_TC;
    if (!is_narrow(attention)) return TT_OK;
    int64_t tokens = narrow_TC.dims[0];
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "gradient of wide heads", narrow_TC.dtype, tokens,
                           attention->heads * attention->head_dim, do_TC));
    TT_TRY(tt_fill_zero(pass->lent.stream, do_TC->data, tt_tensor_bytes(*do_TC)));
    struct tt_cast_args args = {.x = tt_tensor_2d(narrow_TC.data, narrow_TC.dtype, tokens * attention->heads,
                                                  attention->latent->value),
                                .y = value_rows(attention, *do_TC)};
    return tt_cast(pass->lent.stream, &args);
}

double tt_latent_flops(const struct tt_latent *latent, bool full)
{
    if (latent == NULL) return 0;
    return tt_linear_group_flops(&latent->q, full) + tt_linear_group_flops(&latent->kv, full);
}
