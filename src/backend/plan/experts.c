/* The time of ops of mixtures of experts: choice and order of rows by their bytes, products by FLOPs of whole tiles.
 * Bytes of matrices are those of all experts. */
#include <math.h>

#include "backend/plan/plan_ops.h"

tt_status plan_route_forward(struct tt_stream *stream, const struct tt_route_forward_args *args)
{
    double reads = tt_tensor_is_empty(args->load_2X) ? 1.0 : 2.0;
    return plan_moves(stream, reads * plan_size(args->logits_TX) + plan_size(args->ids_TS) +
                                  plan_size(args->weights_TS) + 2.0 * plan_size(args->load_2X));
}

tt_status plan_route_backward(struct tt_stream *stream, const struct tt_route_backward_args *args)
{
    return plan_moves(stream, plan_size(args->logits_TX) + plan_size(args->ids_TS) +
                                  plan_size(args->dweights_TS) + plan_size(args->dlogits_TX));
}

tt_status plan_route_balance(struct tt_stream *stream, const struct tt_route_balance_args *args)
{
    return plan_moves(stream, plan_size(args->load_2X) + plan_size(args->dload_X));
}

tt_status plan_order_rows(struct tt_stream *stream, const struct tt_order_rows_args *args)
{
    return plan_moves(stream, 2.0 * plan_size(args->ids_TS) + plan_size(args->place_TS) +
                                  plan_size(args->slot_M) + plan_size(args->border_X1));
}

tt_status plan_spread_rows(struct tt_stream *stream, const struct tt_spread_rows_args *args)
{
    return plan_moves(stream, plan_size(args->x_TD) + plan_size(args->slot_M) + plan_size(args->y_MD));
}

tt_status plan_combine_rows(struct tt_stream *stream, const struct tt_combine_rows_args *args)
{
    return plan_moves(stream, plan_size(args->x_MD) + plan_size(args->weights_TS) +
                                  plan_size(args->place_TS) + plan_size(args->addend_TD) +
                                  plan_size(args->y_TD));
}

tt_status plan_weigh_rows(struct tt_stream *stream, const struct tt_weigh_rows_args *args)
{
    return plan_moves(stream, plan_size(args->x_MD) + 2.0 * plan_size(args->g_MD) +
                                  plan_size(args->weights_TS) + plan_size(args->dweights_TS));
}

/* Rows that products have. */
static double rows_of(tt_tensor x, int64_t share)
{
    return (double)x.dims[0] / (share > 0 ? (double)share : 1.0);
}

/* Decoding of the experts that have rows: codes are read, numbers written, which the product reads. */
static tt_status plan_decoding(struct tt_stream *stream, const struct tt_grouped_gemm_args *args,
                               double *numbers)
{
    const struct tt_quant_layout *layout = args->coded.layout;
    double experts = (double)(args->border_X1.dims[0] - 1), rows = rows_of(args->x_MK, args->share);
    double share = rows < experts ? rows / experts : 1.0;
    *numbers = share * (double)layout->count * (double)tt_dtype_bytes(args->x_MK.dtype);
    return plan_moves(stream, share * (double)layout->bytes + *numbers);
}

/* The FLOPs of a grouped product. Those of a GPU come in tiles of 64 rows of an expert and 256 columns: half a tile of
 * rows is for nothing, and so is what lacks of the last columns. Measured on an H200 with shapes of four mixtures, such
 * FLOPs run at 602 to 664 TFLOP/s, 0.95 of what dense products make. */
static double grouped_flops(const struct tt_stream *stream, double experts, double rows, double columns,
                            double depth)
{
    enum { TILE_ROWS = 64, TILE_COLUMNS = 256 };
    const double share = 0.95;
    if (stream->device->is_host) return 2.0 * rows * columns * depth;
    double used = rows < experts ? rows : experts;
    return 2.0 / share * (rows + used * TILE_ROWS / 2) * ceil(columns / TILE_COLUMNS) * TILE_COLUMNS * depth;
}

tt_status plan_grouped_gemm(struct tt_stream *stream, const struct tt_grouped_gemm_args *args)
{
    double rows = rows_of(args->x_MK, args->share), columns = (double)args->y_MN.dims[1];
    double depth = (double)args->x_MK.dims[1];
    const struct tt_grouped_codes *codes = &args->codes;
    bool scaled = tt_grouped_is_scaled(args);
    double weights = scaled ? plan_size(codes->w_XNK) : plan_size(args->w_XNK);
    if (args->coded.layout != NULL) TT_TRY(plan_decoding(stream, args, &weights));
    if (!tt_tensor_is_empty(args->h_MR)) depth += (double)args->h_MR.dims[1];
    double experts = (double)(args->border_X1.dims[0] - 1);
    const struct tt_chip *chip = stream->device->chip;
    tt_plan_spend(stream, grouped_flops(stream, experts, rows, columns, depth),
                  scaled && chip->fp8_flops > 0 ? chip->fp8_flops : chip->gemm_flops,
                  (scaled ? plan_size(codes->x_MK) : plan_size(args->x_MK)) + weights +
                      plan_size(args->h_MR) + plan_size(args->b_XNR) + plan_size(args->y_MN));
    return TT_OK;
}

tt_status plan_grouped_gradients(struct tt_stream *stream, const struct tt_grouped_gradients_args *args)
{
    double flops =
        2.0 * rows_of(args->dy_MN, args->share) * (double)args->dy_MN.dims[1] * (double)args->x_MK.dims[1];
    tt_plan_spend(stream, flops, stream->device->chip->gemm_flops,
                  plan_size(args->dy_MN) + plan_size(args->x_MK) + 2.0 * plan_size(args->dw_XNK));
    return TT_OK;
}
