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

tt_status tt_dequantize(struct tt_stream *stream, const struct tt_dequantize_args *args)
{
    struct tt_check check = {.op = "dequantize"};
    const struct tt_quant_layout *layout = &args->layout;
    check_layout(&check, layout);
    tt_check_tensor(&check, "y", args->y_NK, TT_TYPES_REAL, 2, 2);
    if (check.status != TT_OK) return check.status;
    tt_check_shape(&check, "packed", args->packed, 1u << TT_U8, 1, TT_DIMS((int64_t)layout->bytes));
    tt_check_shape(&check, "y", args->y_NK, TT_TYPES_REAL, 2, TT_DIMS(args->y_NK.dims[0], layout->cols));
    tt_check_that(&check, (uintptr_t)args->packed.data % 16 == 0,
                  "packed does not lie at a multiple of 16 bytes");
    tt_check_that(&check, args->first_row >= 0 && args->y_NK.dims[0] <= layout->rows - args->first_row,
                  "rows %lld .. %lld of %lld", (long long)args->first_row,
                  (long long)(args->first_row + args->y_NK.dims[0]), (long long)layout->rows);
    tt_check_apart(&check, "y", args->y_NK, "packed", args->packed);
    if (check.status != TT_OK) return check.status;
    if (args->y_NK.dims[0] == 0) return TT_OK;
    return tt_dispatch_dequantize(stream, args);
}
