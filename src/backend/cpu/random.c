/* Random numbers as initial values. */
#include "backend/cpu/parallel.h"
#include "backend/ops/elementwise.h"

/* Cost of a number in loads: each needs a block of the generator, and a normal one a logarithm and a cosine. */
enum { COST = 16 };

tt_status tt_cpu_random_fill(struct tt_stream *stream, const struct tt_random_fill_args *args)
{
    int64_t count = tt_tensor_count(args->y), cols = args->y.rank == 2 ? args->y.dims[1] : count;
    void *data = args->y.data;
    bool bf16 = args->y.dtype == TT_BF16;
    int threads = tt_cpu_threads(stream, count * COST);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; i++) {
        uint64_t counter = (uint64_t)(args->first + i / cols * args->row_step + i % cols);
        double number =
            args->normal ? tt_rng_normal(args->rng, counter) : 2 * tt_rng_uniform(args->rng, counter) - 1;
        float value = (float)(number * args->scale);
        if (bf16)
            ((uint16_t *)data)[i] = tt_f32_to_bf16(value);
        else
            ((float *)data)[i] = value;
    }
    return TT_OK;
}
