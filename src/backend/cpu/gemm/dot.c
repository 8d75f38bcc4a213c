/* Dot products against few rows. The narrow sides of adapters (x A^T, dy B with R columns) and decoding (few
 * rows of x against a whole weight) read one large operand once, and packing it would cost more than multiplying
 * it. So the small operand is converted to rows of floats along k, and the rows of the large one are streamed
 * unchanged: six at a time are multiplied by two small rows at a time, while the next six are prefetched.
 *
 * k is divided into chunks, so that the streamed rows stay in the first-level cache until they have been
 * multiplied by all small rows. The chunks are added in order; their size depends on the shape and types alone. */
#include <string.h>

#include "backend/cpu/gemm/variants.h"

enum {
    SMALL_MAX = 32,    /* rows or columns of c; for more, packed panels are faster (Zen 3, 2026-11) */
    SMALL_MAX_AMX = 4, /* the same where panels of bf16 use the tile unit (Sapphire Rapids, 2026-11) */
    SMALL_ROWS_MAX_WIDE =
        8, /* rows of c with AVX-512; columns as with AMX: 211 GFLOP/s instead of 75 for 16 */
    WIDE = 32,
    STREAMED_BLOCK = 60, /* rows of the large operand per task */
    CHUNK_BYTES = 3072,  /* of a streamed row */
};

struct plan {
    const struct tt_gemm_kernel *kernel;
    const struct tt_gemm_problem *problem;
    struct tt_gemm_source streamed, small;
    bool streams_columns; /* streamed rows are columns of c; else rows of c */
    int64_t streamed_rows;
    int tile_rows;
    int64_t small_rows;
    int64_t small_stride;
    float *small_floats;
};

/* Converts row `row` of the small operand to floats along k. */
static void load_small_row(const struct plan *plan, int64_t row)
{
    const struct tt_gemm_source *small = &plan->small;
    float *to = plan->small_floats + row * plan->small_stride;
    bool even_first = plan->streamed.dtype == TT_BF16;
    int64_t along = small->k_contiguous ? 1 : small->stride, across = small->k_contiguous ? small->stride : 1;
    const uint16_t *halves = (const uint16_t *)small->data + row * across;
    const float *floats = (const float *)small->data + row * across;
    memset(to + plan->small_stride - 2 * 16, 0, 2 * 16 * sizeof *to);
    for (int64_t k = 0; k < plan->problem->k; k++) {
        float value = small->dtype == TT_BF16 ? tt_bf16_to_f32(halves[k * along]) : floats[k * along];
        to[even_first ? tt_gemm_even_first(k) : k] = value;
    }
}

/* Multiplies one tile of streamed rows (or the rest of them) by all small rows, for one chunk of k. */
static void multiply_tile(const struct plan *plan, int64_t row, int rows, int64_t k_first, int64_t k,
                          float *sums, int64_t sums_row, int64_t sums_small)
{
    int64_t row_bytes = plan->streamed.stride * (int64_t)tt_dtype_bytes(plan->streamed.dtype);
    int64_t ahead = plan->tile_rows * row_bytes;
    for (int64_t small = 0; small < plan->small_rows; small += TT_GEMM_DOT_SMALLS, ahead += row_bytes) {
        int smalls = plan->small_rows - small < TT_GEMM_DOT_SMALLS ? 1 : TT_GEMM_DOT_SMALLS;
        plan->kernel->dot(&plan->streamed, row, rows,
                          plan->small_floats + small * plan->small_stride + k_first, plan->small_stride,
                          smalls, k_first, k, ahead, sums + small * sums_small, sums_row, sums_small);
    }
}

static void multiply_rows(const struct plan *plan, int64_t first, int64_t end)
{
    const struct tt_gemm_problem *problem = plan->problem;
    float sums[STREAMED_BLOCK * SMALL_MAX];
    int64_t sums_row = plan->streams_columns ? 1 : plan->small_rows;
    int64_t sums_small = plan->streams_columns ? STREAMED_BLOCK : 1;
    /* Each streamed row is read once where there is a single group of small rows, so chunks are not needed. */
    int64_t chunk = plan->small_rows > TT_GEMM_DOT_SMALLS
                        ? CHUNK_BYTES / (int64_t)tt_dtype_bytes(plan->streamed.dtype)
                        : problem->k;
    memset(sums, 0, sizeof sums);
    for (int64_t k_first = 0; k_first < problem->k; k_first += chunk) {
        int64_t k = problem->k - k_first < chunk ? problem->k - k_first : chunk;
        for (int64_t row = first; row < end; row += plan->tile_rows) {
            int rows = end - row < plan->tile_rows ? (int)(end - row) : plan->tile_rows;
            multiply_tile(plan, row, rows, k_first, k, sums + (row - first) * sums_row, sums_row, sums_small);
        }
    }
    if (plan->streams_columns) {
        plan->kernel->finish(&problem->c, 0, first, sums, sums_small, plan->small_rows, end - first,
                             problem->alpha, problem->beta);
    } else {
        plan->kernel->finish(&problem->c, first, 0, sums, sums_row, end - first, plan->small_rows,
                             problem->alpha, problem->beta);
    }
}

int64_t tt_gemm_dot_rows_max(const struct tt_gemm_state *state, const struct tt_gemm_problem *problem)
{
    if (tt_gemm_kernel_for(state, problem)->k_unit >= WIDE) return SMALL_MAX_AMX;
    return state->kernel->nr >= WIDE ? SMALL_ROWS_MAX_WIDE : SMALL_MAX;
}

tt_status tt_gemm_dot(struct tt_stream *stream, const struct tt_gemm_problem *problem, const char **declined)
{
    struct tt_gemm_state *state = tt_gemm_state_of(stream);
    struct plan plan = {.kernel = state->kernel, .problem = problem};
    bool wide = state->kernel->nr >= WIDE, amx = tt_gemm_kernel_for(state, problem)->k_unit >= WIDE;
    int64_t rows_max = tt_gemm_dot_rows_max(state, problem);
    int64_t columns_max = amx || wide ? SMALL_MAX_AMX : SMALL_MAX;
    if (problem->low_count > 0) {
        *declined = "it has narrow products";
        return TT_OK;
    }
    if (problem->m <= rows_max && problem->b.k_contiguous) {
        plan.streams_columns = true;
        plan.streamed = problem->b;
        plan.small = problem->a;
    } else if (problem->n <= columns_max && problem->a.k_contiguous && problem->k >= 64) {
        plan.streamed = problem->a;
        plan.small = problem->b;
    } else {
        *declined = "neither few rows nor few columns, or the large operand does not run along k";
        return TT_OK;
    }
    plan.streamed_rows = plan.streamed.across;
    plan.tile_rows = plan.streamed.dtype == TT_BF16 ? TT_GEMM_DOT_ROWS_BF16 : TT_GEMM_DOT_ROWS_F32;
    plan.small_rows = plan.small.across;
    /* Sixteen more than the last k needs: rows whose size is a power of two would all map to the same lines of
     * the cache. */
    plan.small_stride = (problem->k + 15) / 16 * 16 + 16;
    if (plan.small_rows > TT_GEMM_SHARED_FLOATS / plan.small_stride) {
        *declined = "the small operand does not fit its scratch";
        return TT_OK;
    }
    plan.small_floats = state->shared;
    int threads = tt_gemm_threads(stream, problem);
    int64_t blocks = (plan.streamed_rows + STREAMED_BLOCK - 1) / STREAMED_BLOCK;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t row = 0; row < plan.small_rows; row++) load_small_row(&plan, row);
#pragma omp for schedule(dynamic)
        for (int64_t block = 0; block < blocks; block++) {
            int64_t first = block * STREAMED_BLOCK, end = first + STREAMED_BLOCK;
            multiply_rows(&plan, first, end < plan.streamed_rows ? end : plan.streamed_rows);
        }
    }
    return TT_OK;
}
