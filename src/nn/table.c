#include "nn/table.h"

#include "backend/ops/embedding.h"

bool tt_table_is_parted(const struct tt_pass *pass, const tt_param *table, const tt_param *split)
{
    const struct tt_exchange *exchange = pass->lent.exchange;
    return exchange != NULL && exchange->part_count > 0 && table == split;
}

static tt_status read_parts(const struct tt_pass *pass, const tt_param *table, tt_tensor y_TD)
{
    const struct tt_exchange *exchange = pass->lent.exchange;
    for (int part = 0; part < exchange->part_count; part++) {
        TT_TRY(exchange->take_part(exchange->context, part, part + 1 < exchange->part_count ? part + 1 : -1));
        if (pass->in.batch->token_count == 0) continue;
        struct tt_embedding_forward_args args = {.table_VD = table->value,
                                                 .ids_T = pass->in.batch->ids_T,
                                                 .y_TD = y_TD,
                                                 .first = part * exchange->part_rows,
                                                 .vocab = table->dims[0]};
        TT_TRY(tt_embedding_forward(pass->lent.stream, &args));
    }
    return TT_OK;
}

tt_status tt_table_read(const struct tt_pass *pass, const tt_param *table, bool parted, tt_tensor y_TD)
{
    if (parted) return read_parts(pass, table, y_TD);
    struct tt_embedding_forward_args args = {
        .table_VD = table->value, .ids_T = pass->in.batch->ids_T, .y_TD = y_TD};
    return pass->in.batch->token_count > 0 ? tt_embedding_forward(pass->lent.stream, &args) : TT_OK;
}
