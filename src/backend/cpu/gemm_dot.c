/* Dot products against few rows. The narrow sides of adapters (x A^T, dy B with R columns) and decoding (few
 * rows of x against a whole weight) read one large operand once, and packing that one would cost more than
 * multiplying it. So the small operand becomes rows of floats along k, and the rows of the large one stream
 * past it as they are.
 *
 * k goes in chunks, such that one group of small rows stays in the first-level cache; the chunks are added in
 * order, and their size depends on the number of small rows alone. */
#include <omp.h>
#include <string.h>

#include "backend/cpu/gemm.h"

enum {
    SMALL_COLUMNS_MAX = 32, /* measured: beyond, packed panels are faster */
    SMALL_ROWS_MAX = 8,
    STREAMED_BLOCK = 48, /* rows of the large operand that meet all small rows before the next come */
    CHUNK_FLOATS = 4096, /* of a group of small rows */
};

struct plan {
    const struct tt_gemm_kernel *kernel;
    const struct tt_gemm_problem *problem;
    struct tt_gemm_source streamed, small;
    bool streams_columns; /* streamed rows are columns of c; otherwise rows of c */
    int64_t streamed_rows;
    int64_t small_rows;
    int64_t small_stride;
    float *small_floats;
};

/* Row `row` of the small operand, as floats along k. */
static void load_small_row(const struct plan *plan, int64_t row)
{
    const struct tt_gemm_source *small = &plan->small;
    float *to = plan->small_floats + row * plan->small_stride;
    int64_t k = plan->problem->k, element = (int64_t)tt_dtype_bytes(small->dtype);
    if (small->k_contiguous) {
        tt_dtype_convert(to, TT_F32, (const char *)small->data + row * small->stride * element, small->dtype,
                         (size_t)k);
    } else if (small->dtype == TT_BF16) {
        const uint16_t *from = (const uint16_t *)small->data + row;
        for (int64_t i = 0; i < k; i++) to[i] = tt_bf16_to_f32(from[i * small->stride]);
    } else {
        const float *from = (const float *)small->data + row;
        for (int64_t i = 0; i < k; i++) to[i] = from[i * small->stride];
    }
}

static void multiply_rows(const struct plan *plan, int64_t first, int64_t end)
{
    const struct tt_gemm_problem *problem = plan->problem;
    float sums[STREAMED_BLOCK * SMALL_COLUMNS_MAX];
    int64_t sums_row = plan->streams_columns ? 1 : plan->small_rows;
    int64_t sums_small = plan->streams_columns ? STREAMED_BLOCK : 1;
    int64_t group_max = plan->small_rows < TT_GEMM_DOT_SMALL ? plan->small_rows : TT_GEMM_DOT_SMALL;
    int64_t chunk = CHUNK_FLOATS / group_max / 8 * 8;
    memset(sums, 0, sizeof sums);
    for (int64_t k_first = 0; k_first < problem->k; k_first += chunk) {
        int64_t k = problem->k - k_first < chunk ? problem->k - k_first : chunk;
        for (int64_t group = 0; group < plan->small_rows; group += group_max) {
            int64_t smalls = plan->small_rows - group < group_max ? plan->small_rows - group : group_max;
            plan->kernel->dot(&plan->streamed, first, (int)(end - first),
                              plan->small_floats + group * plan->small_stride + k_first, plan->small_stride,
                              (int)smalls, k_first, k, sums + group * sums_small, sums_row, sums_small);
        }
    }
    const struct tt_gemm_target *c = &problem->c;
    if (plan->streams_columns) {
        for (int64_t row = 0; row < plan->small_rows; row++) {
            plan->kernel->finish(tt_gemm_row(c, row, first), c->dtype, sums + row * sums_small, end - first,
                                 problem->alpha, problem->beta);
        }
        return;
    }
    for (int64_t row = first; row < end; row++) {
        plan->kernel->finish(tt_gemm_row(c, row, 0), c->dtype, sums + (row - first) * sums_row,
                             plan->small_rows, problem->alpha, problem->beta);
    }
}

tt_status tt_gemm_dot(struct tt_stream *stream, const struct tt_gemm_problem *problem, const char **declined)
{
    struct plan plan = {.kernel = tt_gemm_state_of(stream)->kernel, .problem = problem};
    if (problem->m <= SMALL_ROWS_MAX && problem->b.k_contiguous) {
        plan.streams_columns = true;
        plan.streamed = problem->b;
        plan.small = problem->a;
    } else if (problem->n <= SMALL_COLUMNS_MAX && problem->a.k_contiguous && problem->k >= 64) {
        plan.streamed = problem->a;
        plan.small = problem->b;
    } else {
        *declined = "neither few rows nor few columns, or the large operand does not run along k";
        return TT_OK;
    }
    plan.streamed_rows = plan.streamed.across;
    plan.small_rows = plan.small.across;
    plan.small_stride = (problem->k + 7) / 8 * 8;
    if (plan.small_rows > TT_GEMM_SHARED_FLOATS / plan.small_stride) {
        *declined = "the small operand does not fit its scratch";
        return TT_OK;
    }
    plan.small_floats = tt_gemm_state_of(stream)->shared;
    int threads = tt_gemm_threads(stream, problem);
    int64_t blocks = (plan.streamed_rows + STREAMED_BLOCK - 1) / STREAMED_BLOCK;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t row = 0; row < plan.small_rows; row++) load_small_row(&plan, row);
#pragma omp for schedule(static)
        for (int64_t block = 0; block < blocks; block++) {
            int64_t first = block * STREAMED_BLOCK, end = first + STREAMED_BLOCK;
            multiply_rows(&plan, first, end < plan.streamed_rows ? end : plan.streamed_rows);
        }
    }
    return TT_OK;
}
