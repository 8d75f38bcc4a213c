/* Square tiles, whose rows and columns both stay in the cache; a thread has whole tiles. */
#include "backend/cpu/parallel.h"
#include "base/integer.h"

enum { TILE = 32 };

static void turn_bf16(const tt_tensor *x, const tt_tensor *y, int64_t m, int64_t n, bool accumulate)
{
    int64_t rows = tt_smaller(TILE, x->dims[0] - m), cols = tt_smaller(TILE, x->dims[1] - n);
    const uint16_t *from = (const uint16_t *)x->data + m * x->strides[0] + n;
    uint16_t *to = (uint16_t *)y->data + n * y->strides[0] + m;
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = 0; i < rows; i++) {
            uint16_t value = from[i * x->strides[0] + j], *place = &to[j * y->strides[0] + i];
            *place = accumulate ? tt_f32_to_bf16(tt_bf16_to_f32(*place) + tt_bf16_to_f32(value)) : value;
        }
}

static void turn_f32(const tt_tensor *x, const tt_tensor *y, int64_t m, int64_t n, bool accumulate)
{
    int64_t rows = tt_smaller(TILE, x->dims[0] - m), cols = tt_smaller(TILE, x->dims[1] - n);
    const float *from = (const float *)x->data + m * x->strides[0] + n;
    float *to = (float *)y->data + n * y->strides[0] + m;
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = 0; i < rows; i++) {
            float value = from[i * x->strides[0] + j], *place = &to[j * y->strides[0] + i];
            *place = accumulate ? *place + value : value;
        }
}

tt_status tt_cpu_transpose(struct tt_stream *stream, const struct tt_transpose_args *args)
{
    const tt_tensor *x = &args->x_MN, *y = &args->y_NM;
    int64_t down = (x->dims[0] + TILE - 1) / TILE, across = (x->dims[1] + TILE - 1) / TILE;
    int threads = tt_cpu_threads(stream, tt_tensor_count(*x));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t tile = 0; tile < down * across; tile++) {
        int64_t m = tile / across * TILE, n = tile % across * TILE;
        if (x->dtype == TT_BF16)
            turn_bf16(x, y, m, n, args->accumulate);
        else
            turn_f32(x, y, m, n, args->accumulate);
    }
    return TT_OK;
}
