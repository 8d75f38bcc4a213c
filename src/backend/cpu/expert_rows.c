/* Rows of tokens in order of their experts, and back. */
#ifndef TT_VECTOR_LANES

#include <string.h>

#include "backend/cpu/parallel.h"

#define TT_VECTOR_SOURCE "backend/cpu/expert_rows.c"
#include "backend/cpu/vector_math_passes.h"

/* One thread: two passes over as many numbers as there are rows. */
tt_status tt_cpu_order_rows(struct tt_stream *stream, const struct tt_order_rows_args *args)
{
    int64_t rows = args->slot_M.dims[0], experts = args->border_X1.dims[0] - 1;
    const int32_t *ids = args->ids_TS.data;
    int32_t *place = args->place_TS.data, *slot = args->slot_M.data, *border = args->border_X1.data;
    (void)stream;
    memset(border, 0, (size_t)(experts + 1) * sizeof *border);
    for (int64_t i = 0; i < rows; i++) {
        int64_t expert = ids[i] - args->first;
        bool here = expert >= 0 && expert < experts;
        if (!here && !args->some)
            return tt_fail(TT_ERR_INTERNAL, "order_rows: slot %lld has expert %d, which is outside 0..%lld",
                           (long long)i, ids[i], (long long)experts - 1);
        place[i] = here ? (int32_t)expert : -1;
        if (here) border[expert + 1]++;
    }
    for (int64_t e = 0; e < experts; e++) border[e + 1] += border[e];
    int64_t used = border[experts];
    /* border[e] moves to the end of expert e, which is the begin of the next */
    for (int64_t i = 0; i < rows; i++) {
        if (place[i] < 0) continue;
        place[i] = border[place[i]]++;
        slot[place[i]] = (int32_t)i;
    }
    for (int64_t m = used; m < rows; m++) slot[m] = -1;
    memmove(border + 1, border, (size_t)experts * sizeof *border);
    border[0] = 0;
    return TT_OK;
}

tt_status tt_cpu_spread_rows(struct tt_stream *stream, const struct tt_spread_rows_args *args)
{
    const tt_tensor *x = &args->x_TD, *y = &args->y_MD;
    int64_t rows = y->dims[0], slots = rows / x->dims[0];
    size_t element = tt_dtype_bytes(x->dtype), bytes = (size_t)x->dims[1] * element;
    const int32_t *slot = args->slot_M.data;
    const float *scale = tt_tensor_is_empty(args->scale_T) ? NULL : args->scale_T.data;
    int threads = tt_cpu_threads(stream, rows * x->dims[1]);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t m = 0; m < rows; m++) {
        int64_t t = slot[m] / slots;
        if (slot[m] < 0) continue;
        memcpy((char *)y->data + (size_t)(m * y->strides[0]) * element,
               (const char *)x->data + (size_t)(t * x->strides[0]) * element, bytes);
        if (scale != NULL) ((float *)args->y_scale_M.data)[m] = scale[t];
    }
    return TT_OK;
}

tt_status tt_cpu_combine_rows(struct tt_stream *stream, const struct tt_combine_rows_args *args)
{
    void (*combine_token)(const struct tt_combine_rows_args *, int64_t) = TT_BEST(stream, combine_token);
    int64_t tokens = args->y_TD.dims[0];
    int threads = tt_cpu_threads(stream, tt_tensor_count(args->x_MD));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t t = 0; t < tokens; t++) combine_token(args, t);
    return TT_OK;
}

tt_status tt_cpu_weigh_rows(struct tt_stream *stream, const struct tt_weigh_rows_args *args)
{
    void (*weigh_row)(const struct tt_weigh_rows_args *, int64_t) = TT_BEST(stream, weigh_row);
    int64_t rows = args->g_MD.dims[0];
    int threads = tt_cpu_threads(stream, tt_tensor_count(args->g_MD));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t m = 0; m < rows; m++) weigh_row(args, m);
    return TT_OK;
}

#else

TT_INLINE vf TT_PASS(columns_of)(const tt_tensor *x, int64_t row, int64_t d, int64_t left)
{
    return vload_part(x->data, row * x->strides[0] + d, x->dtype == TT_BF16, left);
}

static void TT_PASS(combine_token)(const struct tt_combine_rows_args *args, int64_t t)
{
    const tt_tensor *slots = tt_tensor_is_empty(args->place_TS) ? &args->weights_TS : &args->place_TS;
    const tt_tensor *y = &args->y_TD;
    const int32_t *place = args->place_TS.data;
    const float *weights = args->weights_TS.data;
    int64_t count = slots->dims[1], width = y->dims[1];
    for (int64_t d = 0; d < width; d += TT_VECTOR_LANES) {
        int64_t left = width - d < TT_VECTOR_LANES ? width - d : TT_VECTOR_LANES;
        vf sum = vsplat(0);
        if (args->addend_TD.data != NULL) sum = TT_PASS(columns_of)(&args->addend_TD, t, d, left);
        for (int64_t i = t * count; i < (t + 1) * count; i++) {
            if (place != NULL && place[i] < 0) continue;
            vf x = TT_PASS(columns_of)(&args->x_MD, place != NULL ? place[i] : i, d, left);
            sum += x * vsplat(weights != NULL ? weights[i] : 1.0f);
        }
        vstore_part(y->data, t * y->strides[0] + d, y->dtype == TT_BF16, sum, left);
    }
}

static void TT_PASS(weigh_row)(const struct tt_weigh_rows_args *args, int64_t m)
{
    const tt_tensor *g = &args->g_MD;
    int64_t width = g->dims[1],
            slot = args->slot_M.data != NULL ? ((const int32_t *)args->slot_M.data)[m] : m;
    if (slot < 0) return;
    vf dot = vsplat(0), weight = vsplat(((const float *)args->weights_TS.data)[slot]);
    for (int64_t d = 0; d < width; d += TT_VECTOR_LANES) {
        int64_t left = width - d < TT_VECTOR_LANES ? width - d : TT_VECTOR_LANES;
        vf value = TT_PASS(columns_of)(g, m, d, left);
        if (args->x_MD.data != NULL) dot += value * TT_PASS(columns_of)(&args->x_MD, m, d, left);
        vstore_part(g->data, m * g->strides[0] + d, g->dtype == TT_BF16, value * weight, left);
    }
    if (args->dweights_TS.data != NULL) ((float *)args->dweights_TS.data)[slot] = vsum(dot);
}

#endif
