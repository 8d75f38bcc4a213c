/* Keys and values that a layer shares: with layers behind it, and with later passes through a cache. */
#include "backend/ops/elementwise.h"
#include "nn/kv_cache.h"
#include "nn/self_attention_impl.h"

void tt_attention_set_keys(const struct tt_self_attention *attention, tt_tensor all_TC, int64_t first,
                           struct qkv *qkv)
{
    int64_t k_cols = attention->kv_heads * attention->head_dim;
    if (tt_tensor_is_empty(all_TC)) return;
    qkv->k_TKE = tt_tensor_heads(tt_tensor_cols(all_TC, first, k_cols), attention->kv_heads);
    qkv->v_TKE = tt_tensor_heads(tt_tensor_cols(all_TC, first + k_cols, k_cols), attention->kv_heads);
}

tt_tensor tt_heads_as_rows(tt_tensor x_THE)
{
    x_THE.rank = 2;
    x_THE.dims[1] *= x_THE.dims[2];
    x_THE.strides[1] = 1;
    return x_THE;
}

void tt_attention_read_keys(const struct tt_self_attention *attention, const struct tt_pass *pass,
                            struct qkv *ready)
{
    const struct tt_side *reads = attention->reads;
    if (reads != NULL)
        tt_attention_set_keys(attention, tt_side_columns(reads, pass, 0, reads->columns), 0, ready);
}

tt_status tt_attention_offer_keys(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                  const struct qkv *ready)
{
    int64_t k_cols = attention->kv_heads * attention->head_dim;
    if (attention->offers == NULL) return TT_OK;
    TT_TRY(tt_side_offer(attention->offers, pass, 0, tt_heads_as_rows(ready->k_TKE)));
    return tt_side_offer(attention->offers, pass, k_cols, tt_heads_as_rows(ready->v_TKE));
}

tt_status tt_attention_push_key_gradients(const struct tt_self_attention *attention,
                                          const struct tt_pass *pass, struct qkv *grad, tt_tensor *dkv_TC)
{
    *dkv_TC = (tt_tensor){0};
    if (attention->reads == NULL) return TT_OK;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "gradient of another layer's keys", pass->in.compute_dtype,
                           grad->q_THE.dims[0], attention->reads->columns, dkv_TC));
    tt_attention_set_keys(attention, *dkv_TC, 0, grad);
    return TT_OK;
}

tt_status tt_attention_pass_key_gradients(const struct tt_self_attention *attention,
                                          const struct tt_pass *pass, tt_tensor dqkv_TC, tt_tensor dkv_TC)
{
    const struct tt_side *offers = attention->offers;
    int64_t q_cols = tt_attention_q_columns(attention);
    if (attention->reads != NULL) return tt_side_add_gradient(attention->reads, pass, 0, dkv_TC);
    if (offers == NULL) return TT_OK;
    return tt_side_take_gradient(offers, pass, 0, tt_tensor_cols(dqkv_TC, q_cols, offers->columns));
}

tt_status tt_attention_widen_sinks(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                   tt_tensor *sinks_H)
{
    struct tt_cast_args cast = {.x = tt_param_value(attention->sinks)};
    *sinks_H = cast.x;
    if (tt_tensor_is_empty(cast.x) || cast.x.dtype == TT_F32) return TT_OK;
    TT_TRY(tt_workspace_1d(pass->lent.workspace, "sinks", TT_F32, attention->heads, &cast.y));
    *sinks_H = cast.y;
    return tt_cast(pass->lent.stream, &cast);
}

tt_status tt_attention_attend_single(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                     const struct qkv *ready, bool stored, tt_tensor qkv_TC, tt_tensor o_TC)
{
    int64_t k_cols = attention->kv_heads * attention->head_dim, q_cols = tt_attention_q_columns(attention);
    struct tt_attention_decode_args args = {
        .q_THE = ready->q_THE,
        .scale = attention->scale,
        .window = attention->window,
        .soft_cap = attention->soft_cap,
        .o_THE = tt_tensor_heads(o_TC, attention->heads),
    };
    TT_TRY(tt_attention_widen_sinks(attention, pass, &args.sinks_H));
    if (attention->reads != NULL || stored)
        tt_kv_cache_read_single(pass->lent.cache, attention->layer, &args);
    else
        TT_TRY(tt_kv_cache_append_single(pass->lent.cache, pass->lent.stream, attention->layer,
                                         tt_tensor_cols(qkv_TC, q_cols, k_cols),
                                         tt_tensor_cols(qkv_TC, q_cols + k_cols, k_cols), &args));
    size_t bytes = tt_attention_decode_scratch(tt_stream_device(pass->lent.stream), &args);
    if (bytes > 0)
        TT_TRY(
            tt_workspace_1d(pass->lent.workspace, "attention scratch", TT_U8, (int64_t)bytes, &args.scratch));
    return tt_attention_decode(pass->lent.stream, &args);
}

tt_status tt_attention_take_cached(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                   tt_tensor qkv_TC, struct tt_attention_forward_args *args)
{
    int64_t k_cols = attention->kv_heads * attention->head_dim, q_cols = tt_attention_q_columns(attention);
    if (attention->reads != NULL) {
        tt_kv_cache_read(pass->lent.cache, attention->layer, args);
        return TT_OK;
    }
    return tt_kv_cache_append(pass->lent.cache, pass->lent.stream, attention->layer,
                              tt_tensor_cols(qkv_TC, q_cols, k_cols),
                              tt_tensor_cols(qkv_TC, q_cols + k_cols, k_cols), args);
}
