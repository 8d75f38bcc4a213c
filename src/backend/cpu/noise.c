/* Noise on embeddings: a generator block serves four elements. */
#include <math.h>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/parallel.h"
#include "backend/ops/noise.h"

/* Cost of an element in loads. */
enum { COST = 8 };

static float read_value(const tt_tensor *x, int64_t at)
{
    return x->dtype == TT_BF16 ? tt_bf16_to_f32(((const uint16_t *)x->data)[at])
                               : ((const float *)x->data)[at];
}

static void write_value(const tt_tensor *x, int64_t at, float value)
{
    if (x->dtype == TT_BF16)
        ((uint16_t *)x->data)[at] = tt_f32_to_bf16(value);
    else
        ((float *)x->data)[at] = value;
}

static void add_to_row(const struct tt_add_noise_args *args, int64_t t, float scale)
{
    const tt_tensor *x = &args->x_TD;
    uint64_t row_key = (uint64_t)((const int64_t *)args->row_keys_T.data)[t];
    uint32_t words[4];
    for (int64_t d = 0; d < x->dims[1]; d++) {
        if (d % 4 == 0) tt_rng_block(args->rng, row_key, (uint64_t)d / 4, words);
        float u = (float)(words[d % 4] >> 8) * 0x1p-23f - 1.0f; /* exact */
        int64_t at = t * x->strides[0] + d;
        write_value(x, at, fmaf(u, scale, read_value(x, at)));
    }
}

tt_status tt_cpu_add_noise(struct tt_stream *stream, const struct tt_add_noise_args *args)
{
    const int32_t *borders = args->cu_seqlens.data;
    int64_t width = args->x_TD.dims[1];
    int threads = tt_cpu_threads(stream, args->x_TD.dims[0] * width * COST);
    for (int64_t s = 0; s + 1 < args->cu_seqlens.dims[0]; s++) {
        float scale = args->alpha / sqrtf((float)((borders[s + 1] - borders[s]) * width));
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t t = borders[s]; t < borders[s + 1]; t++) add_to_row(args, t, scale);
    }
    return TT_OK;
}
