/* Attention of sequences that begin with tokens of others (struct tt_branches of nn/pass.h). The keys of a sequence are
 * copies of those of all its tokens, so that its last query sees all of them, and windows, sinks and caps are those of
 * the whole sequence. The gradient of a key is the sum of those of its copies.
 *
 * The queries are those of the tokens that are the sequence's own. Where the device prefers as many queries as keys
 * (`whole`), they are copied too: the output of the first copy of a token counts, and the gradients of those of all
 * others are 0, as they have no part in the gradients of keys then. */
#include "backend/ops/embedding.h"
#include "backend/ops/expert_rows.h"
#include "nn/self_attention_impl.h"

enum { WHOLE_HEAD_DIM_MAX = 256 };

static bool has_branches(const struct tt_pass *pass)
{
    return pass->in.batch->branches.key_count > 0;
}

/* Other attention has no faster way for whole sequences. */
static bool is_whole(const struct tt_self_attention *attention, const struct tt_pass *pass)
{
    return has_branches(pass) && pass->in.batch->branches.whole && attention->soft_cap == 0 &&
           attention->sinks == NULL && !attention->gates_heads && attention->head_dim <= WHOLE_HEAD_DIM_MAX;
}

int64_t tt_attention_query_rows(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                int64_t tokens)
{
    return is_whole(attention, pass) ? pass->in.batch->branches.key_count : tokens;
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

/* Memory for queries, or outputs, of all sequences. */
static tt_status push_queries(const struct tt_pass *pass, const char *what, tt_tensor like_THE,
                              tt_tensor *q_MHE)
{
    int64_t heads = like_THE.dims[1];
    TT_TRY(tt_workspace_2d(pass->lent.workspace, what, like_THE.dtype, pass->in.batch->branches.key_count,
                           heads * like_THE.dims[2], q_MHE));
    *q_MHE = tt_tensor_heads(*q_MHE, heads);
    return TT_OK;
}

/* y[i] = x[rows[i]] */
static tt_status copy(const struct tt_pass *pass, tt_tensor x, tt_tensor rows, tt_tensor y)
{
    struct tt_gather_rows_args args = {
        .x_TD = tt_heads_as_rows(x), .rows_N = rows, .y_ND = tt_heads_as_rows(y)};
    return tt_gather_rows(pass->lent.stream, &args);
}

tt_status tt_attention_copy_keys(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                 struct tt_attention_forward_args *args)
{
    const struct tt_branches *branches = &pass->in.batch->branches;
    const tt_tensor q_THE = args->q_THE, k_TKE = args->k_TKE, v_TKE = args->v_TKE;
    tt_tensor last_1C;
    if (!has_branches(pass)) return TT_OK;
    TT_TRY(push_keys(pass, "keys of all sequences", k_TKE, &args->k_TKE, &args->v_TKE, &last_1C));
    TT_TRY(copy(pass, k_TKE, branches->key_tokens_M, args->k_TKE));
    TT_TRY(copy(pass, v_TKE, branches->key_tokens_M, args->v_TKE));
    args->cu_k = branches->host_cu_keys;
    args->device_cu_k = branches->cu_keys;
    if (!is_whole(attention, pass)) return TT_OK;
    args->cu_q = args->cu_k;
    args->device_cu_q = args->device_cu_k;
    TT_TRY(push_queries(pass, "output of all sequences", args->o_THE, &args->o_THE));
    TT_TRY(push_queries(pass, "queries of all sequences", q_THE, &args->q_THE));
    return copy(pass, q_THE, branches->key_tokens_M, args->q_THE);
}

tt_status tt_attention_take_output(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                   const struct tt_attention_forward_args *args, tt_tensor o_THE)
{
    if (!is_whole(attention, pass)) return TT_OK;
    return copy(pass, args->o_THE, pass->in.batch->branches.own_keys_T, o_THE);
}

tt_status tt_attention_push_copies(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                   tt_tensor o_THE, struct tt_attention_backward_args *args)
{
    const struct tt_branches *branches = &pass->in.batch->branches;
    tt_tensor last_1C, do_MHE;
    if (!has_branches(pass)) return TT_OK;
    TT_TRY(push_keys(pass, "gradient of keys of all sequences", args->dk_TKE, &args->dk_TKE, &args->dv_TKE,
                     &last_1C));
    TT_TRY(tt_fill_zero(pass->lent.stream, last_1C.data, tt_tensor_bytes(last_1C)));
    if (!is_whole(attention, pass)) return TT_OK;
    TT_TRY(copy(pass, o_THE, branches->key_tokens_M, args->forward.o_THE));
    TT_TRY(push_queries(pass, "gradient of the output of all sequences", args->do_THE, &do_MHE));
    struct tt_scatter_rows_args scatter = {.x_ND = tt_heads_as_rows(args->do_THE),
                                           .rows_N = branches->own_keys_T,
                                           .y_TD = tt_heads_as_rows(do_MHE)};
    TT_TRY(tt_scatter_rows(pass->lent.stream, &scatter));
    args->do_THE = do_MHE;
    return push_queries(pass, "gradient of queries of all sequences", args->dq_THE, &args->dq_THE);
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

tt_status tt_attention_join_copies(const struct tt_self_attention *attention, const struct tt_pass *pass,
                                   const struct tt_attention_backward_args *args, const struct qkv *grad)
{
    if (!has_branches(pass)) return TT_OK;
    TT_TRY(join(pass, args->dk_TKE, grad->k_TKE));
    TT_TRY(join(pass, args->dv_TKE, grad->v_TKE));
    if (!is_whole(attention, pass)) return TT_OK;
    return copy(pass, args->dq_THE, pass->in.batch->branches.own_keys_T, grad->q_THE);
}
