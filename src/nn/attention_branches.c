/* Attention of sequences that begin with tokens of others (struct tt_branches of nn/pass.h). The queries of a sequence
 * are its own tokens; its keys are copies of those of all its tokens, so that the last query sees all of them, and
 * windows, sinks and caps are those of the whole sequence. The gradient of a key is the sum of those of its copies. */
#include "backend/ops/embedding.h"
#include "backend/ops/expert_rows.h"
#include "nn/self_attention_impl.h"

static bool has_branches(const struct tt_pass *pass)
{
    return pass->in.batch->branches.key_count > 0;
}

/* Memory for keys and values of all sequences, one beside the other, and a row behind them. */
static tt_status push_keys(const struct tt_pass *pass, const char *what, tt_tensor like_TKE, tt_tensor *k_MKE,
                           tt_tensor *v_MKE, tt_tensor *last_1C)
{
    int64_t heads = like_TKE.dims[1], columns = heads * like_TKE.dims[2],
            keys = pass->in.batch->branches.key_count;
    tt_tensor both_MC;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, what, like_TKE.dtype, keys + 1, 2 * columns, &both_MC));
    *last_1C = tt_tensor_rows(both_MC, keys, 1);
    both_MC.dims[0] = keys;
    *k_MKE = tt_tensor_heads(tt_tensor_cols(both_MC, 0, columns), heads);
    *v_MKE = tt_tensor_heads(tt_tensor_cols(both_MC, columns, columns), heads);
    return TT_OK;
}

static tt_status copy(const struct tt_pass *pass, tt_tensor x_TKE, tt_tensor y_MKE)
{
    struct tt_gather_rows_args args = {.x_TD = tt_heads_as_rows(x_TKE),
                                       .rows_N = pass->in.batch->branches.key_tokens_M,
                                       .y_ND = tt_heads_as_rows(y_MKE)};
    return tt_gather_rows(pass->lent.stream, &args);
}

tt_status tt_attention_copy_keys(const struct tt_pass *pass, struct tt_attention_forward_args *args)
{
    const struct tt_branches *branches = &pass->in.batch->branches;
    const tt_tensor k_TKE = args->k_TKE, v_TKE = args->v_TKE;
    tt_tensor last_1C;
    if (!has_branches(pass)) return TT_OK;
    TT_TRY(push_keys(pass, "keys of all sequences", k_TKE, &args->k_TKE, &args->v_TKE, &last_1C));
    TT_TRY(copy(pass, k_TKE, args->k_TKE));
    TT_TRY(copy(pass, v_TKE, args->v_TKE));
    args->cu_k = branches->host_cu_keys;
    args->device_cu_k = branches->cu_keys;
    return TT_OK;
}

tt_status tt_attention_push_copies(const struct tt_pass *pass, struct tt_attention_backward_args *args)
{
    tt_tensor last_1C;
    if (!has_branches(pass)) return TT_OK;
    TT_TRY(push_keys(pass, "gradient of keys of all sequences", args->dk_TKE, &args->dk_TKE, &args->dv_TKE,
                     &last_1C));
    return tt_fill_zero(pass->lent.stream, last_1C.data, tt_tensor_bytes(last_1C));
}

/* The row behind the keys is 0: that of slots without a copy. */
static tt_status join(const struct tt_pass *pass, tt_tensor x_MKE, tt_tensor y_TKE)
{
    struct tt_combine_rows_args args = {.x_MD = tt_heads_as_rows(x_MKE),
                                        .place_TS = pass->in.batch->branches.token_keys_TS,
                                        .y_TD = tt_heads_as_rows(y_TKE)};
    args.x_MD.dims[0]++;
    return tt_combine_rows(pass->lent.stream, &args);
}

tt_status tt_attention_join_copies(const struct tt_pass *pass, const struct tt_attention_backward_args *args,
                                   const struct qkv *grad)
{
    if (!has_branches(pass)) return TT_OK;
    TT_TRY(join(pass, args->dk_TKE, grad->k_TKE));
    return join(pass, args->dv_TKE, grad->v_TKE);
}
