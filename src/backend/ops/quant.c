#include "backend/ops/quant.h"

#include "backend/device_impl.h"
#include "backend/ops/check.h"

static void check_layout(struct tt_check *check, const struct tt_quant_layout *layout)
{
    struct tt_quant_layout made;
    if (check->status != TT_OK) return;
    check->status = tt_quant_layout_make(layout->format, layout->rows, layout->cols, &made);
    tt_check_that(check, made.bytes == layout->bytes && made.offset.offset == layout->offset.offset,
                  "the layout is not that of its format and shape");
}

static void check_packed(struct tt_check *check, const struct tt_quant_layout *layout, tt_tensor packed)
{
    if (check->status != TT_OK) return;
    tt_check_shape(check, "packed", packed, 1u << TT_U8, 1, TT_DIMS((int64_t)layout->bytes));
    tt_check_that(check, (uintptr_t)packed.data % 16 == 0, "packed does not lie at a multiple of 16 bytes");
}

tt_status tt_dequantize(struct tt_stream *stream, const struct tt_dequantize_args *args)
{
    struct tt_check check = {.op = "dequantize"};
    const struct tt_quant_layout *layout = &args->layout;
    check_layout(&check, layout);
    tt_check_tensor(&check, "y", args->y_NK, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    check_packed(&check, layout, args->packed);
    tt_check_shape(&check, "y", args->y_NK, TT_TYPES_REAL, 2, TT_DIMS(args->y_NK.dims[0], layout->cols));
    tt_check_that(&check, args->first_row >= 0 && args->y_NK.dims[0] <= layout->rows - args->first_row,
                  "rows %lld .. %lld of %lld", (long long)args->first_row,
                  (long long)(args->first_row + args->y_NK.dims[0]), (long long)layout->rows);
    tt_check_apart(&check, "y", args->y_NK, "packed", args->packed);
    if (check.status != TT_OK) return check.status;
    if (args->y_NK.dims[0] == 0) return TT_OK;
    return tt_dispatch_dequantize(stream, args);
}

tt_status tt_recode_rows(struct tt_stream *stream, const struct tt_recode_rows_args *args)
{
    struct tt_check check = {.op = "recode_rows"};
    const struct tt_quant_layout *layout = &args->layout;
    const int64_t *shape = TT_DIMS(layout->rows, layout->cols);
    check_layout(&check, layout);
    check_packed(&check, layout, args->packed);
    if (check.status != TT_OK) return check.status;
    tt_check_shape(&check, "scratch", args->scratch_NK, TT_TYPES_REAL, 2, shape);
    tt_check_shape(&check, "codes", args->codes_NK, 1u << TT_F8_E4M3, 2, shape);
    tt_check_contiguous(&check, "codes", args->codes_NK);
    tt_check_shape(&check, "scale", args->scale_N, TT_TYPES_F32, 1, TT_DIMS(layout->rows));
    tt_check_contiguous(&check, "scale", args->scale_N);
    tt_check_apart(&check, "codes", args->codes_NK, "packed", args->packed);
    tt_check_apart(&check, "codes", args->codes_NK, "scratch", args->scratch_NK);
    tt_check_apart(&check, "scale", args->scale_N, "packed", args->packed);
    return check.status != TT_OK ? check.status : tt_dispatch_recode_rows(stream, args);
}
