#include "nn/expert_exchange.h"

#include "backend/ops/elementwise.h"
#include "backend/ops/expert_rows.h"
#include "backend/ops/route.h"

struct tt_expert_share tt_expert_share_of(const struct tt_pass *pass, int64_t experts)
{
    const struct tt_exchange *exchange = pass->lent.exchange;
    struct tt_expert_share share = {.size = 1, .count = experts};
    if (exchange == NULL || exchange->groups[TT_AXIS_EXPERT].size <= 1) return share;
    share.rank = exchange->groups[TT_AXIS_EXPERT].rank;
    share.size = exchange->groups[TT_AXIS_EXPERT].size;
    share.count = experts / share.size;
    share.first = share.rank * share.count;
    share.each = exchange->batch_tokens;
    return share;
}

int64_t tt_expert_share_rows(const struct tt_expert_share *share, int64_t tokens)
{
    return share->size > 1 ? share->size * share->each : tokens;
}

tt_tensor tt_expert_share_own(const struct tt_expert_share *share, tt_tensor all, int64_t tokens)
{
    return tt_tensor_rows(all, share->rank * share->each, tokens);
}

static tt_status fill_zero(const struct tt_pass *pass, tt_tensor x)
{
    return tt_fill_zero(pass->lent.stream, x.data, tt_tensor_bytes(x));
}

/* -1 everywhere: the places of slots without a row. */
static tt_status fill_none(const struct tt_pass *pass, tt_tensor x_TS)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    size_t mark = tt_workspace_mark(workspace);
    tt_tensor ids_TS, slot_M, border_2;
    TT_TRY(tt_workspace_2d(workspace, "ids of no expert", TT_I32, x_TS.dims[0], x_TS.dims[1], &ids_TS));
    TT_TRY(tt_workspace_1d(workspace, "slots of no expert", TT_I32, tt_tensor_count(x_TS), &slot_M));
    TT_TRY(tt_workspace_1d(workspace, "border of no expert", TT_I32, 2, &border_2));
    TT_TRY(fill_zero(pass, ids_TS));
    struct tt_order_rows_args order = {ids_TS, x_TS, slot_M, border_2, .some = true, .first = 1};
    TT_TRY(tt_order_rows(pass->lent.stream, &order));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

tt_status tt_expert_share_gather(const struct tt_expert_share *share, const struct tt_pass *pass,
                                 tt_tensor all, int64_t tokens, bool none)
{
    const struct tt_exchange *exchange = pass->lent.exchange;
    int64_t first = share->rank * share->each;
    if (share->size <= 1) return TT_OK;
    if (tokens > share->each)
        return tt_fail(TT_ERR_INTERNAL, "%lld tokens in a batch of at most %lld", (long long)tokens,
                       (long long)share->each);
    tt_tensor rest = tt_tensor_rows(all, first + tokens, share->each - tokens);
    if (rest.dims[0] > 0) TT_TRY(none ? fill_none(pass, rest) : fill_zero(pass, rest));
    return exchange->gather(exchange->context, TT_AXIS_EXPERT, tt_tensor_rows(all, first, share->each), all);
}

tt_status tt_expert_share_push(const struct tt_expert_share *share, const struct tt_pass *pass,
                               const char *name, tt_tensor x_TD, int64_t columns, tt_tensor *all_ND)
{
    int64_t tokens = x_TD.dims[0];
    TT_TRY(tt_workspace_2d(pass->lent.workspace, name, pass->in.compute_dtype,
                           tt_expert_share_rows(share, tokens), columns, all_ND));
    tt_tensor own_TD = tt_expert_share_own(share, *all_ND, tokens);
    if (tokens > 0)
        TT_TRY(tt_copy_on_device(pass->lent.stream, own_TD.data, x_TD.data, tt_tensor_bytes(own_TD)));
    return tt_expert_share_gather(share, pass, *all_ND, tokens, false);
}

/* The sums of the first ranks are added in place of those of rank 0. */
static tt_status add_in_order(const struct tt_expert_share *share, const struct tt_pass *pass,
                              tt_tensor parts_ND, tt_tensor addend_TD, tt_tensor y_TD)
{
    bool adds = !tt_tensor_is_empty(addend_TD);
    tt_tensor sum = tt_tensor_rows(parts_ND, 0, y_TD.dims[0]);
    for (int q = 1; q < share->size; q++) {
        bool last = q + 1 == share->size && !adds;
        struct tt_add_args add = {
            .a = sum, .b = tt_tensor_rows(parts_ND, q * share->each, y_TD.dims[0]), .y = last ? y_TD : sum};
        TT_TRY(tt_add(pass->lent.stream, &add));
    }
    struct tt_add_args add = {.a = sum, .b = addend_TD, .y = y_TD};
    return adds ? tt_add(pass->lent.stream, &add) : TT_OK;
}

tt_status tt_expert_share_return(const struct tt_expert_share *share, const struct tt_pass *pass,
                                 tt_tensor sums_ND, tt_tensor addend_TD, tt_tensor y_TD)
{
    const struct tt_exchange *exchange = pass->lent.exchange;
    struct tt_workspace *workspace = pass->lent.workspace;
    int64_t rows[TT_ROUTE_EXPERTS_MAX];
    tt_tensor parts_ND;
    if (share->size > TT_ROUTE_EXPERTS_MAX)
        return tt_fail(TT_ERR_INTERNAL, "%d ranks share experts", share->size);
    for (int q = 0; q < share->size; q++) rows[q] = share->each;
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(tt_workspace_2d(workspace, "sums of experts of all ranks", TT_F32, sums_ND.dims[0],
                           sums_ND.dims[1], &parts_ND));
    struct tt_all_to_all travel = {.send = sums_ND, .recv = parts_ND, .send_rows = rows, .recv_rows = rows};
    TT_TRY(exchange->all_to_all(exchange->context, TT_AXIS_EXPERT, &travel));
    if (!tt_tensor_is_empty(y_TD) && y_TD.dims[0] > 0)
        TT_TRY(add_in_order(share, pass, parts_ND, addend_TD, y_TD));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}
