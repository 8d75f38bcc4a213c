/* The time of moving rows, by their bytes. Of trained tokens the share of a batch is not known here: one row each. */
#include "backend/plan/plan_ops.h"

tt_status plan_embedding_forward(struct tt_stream *stream, const struct tt_embedding_forward_args *args)
{
    return plan_moves(stream, 2.0 * plan_size(args->y_TD));
}

tt_status plan_embedding_backward(struct tt_stream *stream, const struct tt_embedding_backward_args *args)
{
    return plan_moves(stream, 5.0 * plan_size(args->dy_TD));
}

tt_status plan_put_token_rows(struct tt_stream *stream, const struct tt_put_token_rows_args *args)
{
    return plan_moves(stream, plan_size(args->ids_T) + 2.0 * plan_size(args->rows_KD));
}

tt_status plan_add_token_rows(struct tt_stream *stream, const struct tt_add_token_rows_args *args)
{
    return plan_moves(stream, plan_size(args->ids_T) + 3.0 * plan_size(args->drows_KD));
}

tt_status plan_put_token_columns(struct tt_stream *stream, const struct tt_put_token_columns_args *args)
{
    return plan_moves(stream, 2.0 * plan_size(args->x_NK));
}

tt_status plan_take_token_columns(struct tt_stream *stream, const struct tt_take_token_columns_args *args)
{
    return plan_moves(stream, 3.0 * plan_size(args->x_NK));
}

tt_status plan_gather_rows(struct tt_stream *stream, const struct tt_gather_rows_args *args)
{
    return plan_moves(stream, 2.0 * plan_size(args->y_ND));
}

tt_status plan_scatter_rows(struct tt_stream *stream, const struct tt_scatter_rows_args *args)
{
    return plan_moves(stream, plan_size(args->x_ND) * 2.0 + (args->keep ? 0.0 : plan_size(args->y_TD)));
}
