#include "backend/ops/expert_rows.h"

#include "backend/device_impl.h"
#include "backend/ops/route.h"

enum { ROWS_MAX = INT32_MAX };

static void check_slots(struct tt_check *check, const char *name, tt_tensor x, unsigned types, tt_tensor like)
{
    tt_check_like(check, name, x, types, "slots", like);
    tt_check_contiguous(check, name, x);
}

static void check_rows(struct tt_check *check, const char *name, tt_tensor x, int64_t rows, int64_t columns,
                       tt_dtype dtype)
{
    tt_check_shape(check, name, x, TT_TYPES_REAL, 2, TT_DIMS(rows, columns));
    tt_check_type(check, name, x, dtype);
}

tt_status tt_order_rows(struct tt_stream *stream, const struct tt_order_rows_args *args)
{
    struct tt_check check = {.op = "order_rows"};
    tt_check_tensor(&check, "ids", args->ids_TS, TT_TYPES_I32, 2, 2);
    tt_check_tensor(&check, "border", args->border_X1, TT_TYPES_I32, 1, 1);
    if (check.status != TT_OK) return check.status;
    int64_t rows = tt_tensor_count(args->ids_TS);
    tt_check_that(&check, rows <= ROWS_MAX, "%lld rows", (long long)rows);
    tt_check_that(&check, args->border_X1.dims[0] >= 2, "border is of no expert");
    tt_check_that(&check, args->first >= 0 && (args->some || args->first == 0), "the first expert is %lld",
                  (long long)args->first);
    tt_check_that(&check, args->border_X1.dims[0] - 1 <= TT_ROUTE_EXPERTS_MAX, "%lld experts",
                  (long long)args->border_X1.dims[0] - 1);
    tt_check_contiguous(&check, "ids", args->ids_TS);
    check_slots(&check, "place", args->place_TS, TT_TYPES_I32, args->ids_TS);
    tt_check_shape(&check, "slot", args->slot_M, TT_TYPES_I32, 1, TT_DIMS(rows));
    tt_check_apart(&check, "place", args->place_TS, "ids", args->ids_TS);
    tt_check_apart(&check, "slot", args->slot_M, "ids", args->ids_TS);
    tt_check_apart(&check, "slot", args->slot_M, "place", args->place_TS);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_order_rows(stream, args);
}

tt_status tt_spread_rows(struct tt_stream *stream, const struct tt_spread_rows_args *args)
{
    struct tt_check check = {.op = "spread_rows"};
    const unsigned types = TT_TYPES_REAL | 1u << TT_F8_E4M3;
    tt_tensor x = args->x_TD, y = args->y_MD;
    tt_check_tensor(&check, "x", x, types, 2, 2);
    tt_check_tensor(&check, "y", y, types, 2, 2);
    if (check.status != TT_OK) return check.status;
    tt_check_shape(&check, "y", y, types, 2, TT_DIMS(y.dims[0], x.dims[1]));
    tt_check_type(&check, "y", y, x.dtype);
    if (x.dtype == TT_F8_E4M3) {
        tt_check_that(&check, x.dims[1] % 16 == 0, "%lld codes of a row", (long long)x.dims[1]);
        tt_check_contiguous(&check, "x", x);
        tt_check_contiguous(&check, "y", y);
        tt_check_shape(&check, "scale", args->scale_T, TT_TYPES_F32, 1, TT_DIMS(x.dims[0]));
        tt_check_shape(&check, "scale of y", args->y_scale_M, TT_TYPES_F32, 1, TT_DIMS(y.dims[0]));
        tt_check_apart(&check, "scale of y", args->y_scale_M, "scale", args->scale_T);
    }
    tt_check_that(&check, x.dims[0] > 0 ? y.dims[0] % x.dims[0] == 0 : y.dims[0] == 0,
                  "%lld rows are not slots of %lld tokens", (long long)y.dims[0], (long long)x.dims[0]);
    tt_check_shape(&check, "slot", args->slot_M, TT_TYPES_I32, 1, TT_DIMS(y.dims[0]));
    tt_check_apart(&check, "y", y, "x", x);
    if (check.status != TT_OK || y.dims[0] == 0) return check.status;
    return tt_dispatch_spread_rows(stream, args);
}

tt_status tt_combine_rows(struct tt_stream *stream, const struct tt_combine_rows_args *args)
{
    struct tt_check check = {.op = "combine_rows"};
    tt_tensor x = args->x_MD, y = args->y_TD;
    tt_tensor slots = tt_tensor_is_empty(args->place_TS) ? args->weights_TS : args->place_TS;
    tt_check_tensor(&check, "x", x, TT_TYPES_REAL, 2, 2);
    tt_check_tensor(&check, "slots", slots, TT_TYPES_I32 | TT_TYPES_F32, 2, 2);
    if (check.status != TT_OK) return check.status;
    int64_t tokens = slots.dims[0];
    tt_check_that(&check, !tt_tensor_is_empty(args->place_TS) || x.dims[0] == tt_tensor_count(slots),
                  "x has %lld rows for %lld slots", (long long)x.dims[0], (long long)tt_tensor_count(slots));
    if (!tt_tensor_is_empty(args->place_TS))
        check_slots(&check, "place", args->place_TS, TT_TYPES_I32, slots);
    if (!tt_tensor_is_empty(args->weights_TS))
        check_slots(&check, "weights", args->weights_TS, TT_TYPES_F32, slots);
    bool wide = y.dtype == TT_F32 && tt_tensor_is_empty(args->addend_TD);
    check_rows(&check, "y", y, tokens, x.dims[1], wide ? TT_F32 : x.dtype);
    if (!tt_tensor_is_empty(args->addend_TD)) {
        check_rows(&check, "addend", args->addend_TD, tokens, x.dims[1], x.dtype);
        tt_check_same_or_apart(&check, "addend", args->addend_TD, "y", y);
    }
    tt_check_apart(&check, "y", y, "x", x);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_combine_rows(stream, args);
}

tt_status tt_weigh_rows(struct tt_stream *stream, const struct tt_weigh_rows_args *args)
{
    struct tt_check check = {.op = "weigh_rows"};
    tt_tensor g = args->g_MD, weights = args->weights_TS;
    tt_check_tensor(&check, "g", g, TT_TYPES_REAL, 2, 2);
    tt_check_tensor(&check, "weights", weights, TT_TYPES_F32, 2, 2);
    tt_check_contiguous(&check, "weights", weights);
    if (check.status != TT_OK) return check.status;
    tt_check_that(&check, g.dims[0] == tt_tensor_count(weights), "g has %lld rows for %lld slots",
                  (long long)g.dims[0], (long long)tt_tensor_count(weights));
    tt_check_that(&check, tt_tensor_is_empty(args->x_MD) == tt_tensor_is_empty(args->dweights_TS),
                  "x is given without dweights, or dweights without x");
    if (!tt_tensor_is_empty(args->slot_M))
        tt_check_shape(&check, "slot", args->slot_M, TT_TYPES_I32, 1, TT_DIMS(g.dims[0]));
    if (!tt_tensor_is_empty(args->x_MD)) {
        check_rows(&check, "x", args->x_MD, g.dims[0], g.dims[1], g.dtype);
        check_slots(&check, "dweights", args->dweights_TS, TT_TYPES_F32, weights);
        tt_check_apart(&check, "g", g, "x", args->x_MD);
        tt_check_apart(&check, "dweights", args->dweights_TS, "weights", weights);
    }
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_weigh_rows(stream, args);
}
