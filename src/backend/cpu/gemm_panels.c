/* Packed panels, after Goto and van de Geijn (ACM TOMS 34:3, 2008): a is cut into panels of mr rows, b into
 * panels of nr columns, both copied as floats in the order in which the register tile reads them. A block of
 * a (block_rows x block_k) stays in the second-level cache, a panel of b in the first.
 *
 * The sums over k go block by block in order, for each element of c in one task, so that c is rounded once
 * and the result does not depend on who computes it:
 *  - c of floats: the tile itself is c, added to block after block;
 *  - c of bf16 and one block of k: through a tile on the side;
 *  - c of bf16 and several: through a block of floats in the thread's scratch.
 *
 * b is packed once for all (16 MiB at a time), unless c has so few rows that every panel is used by one task
 * only, or k is so long that not even one panel fits: then each task packs its own. */
#include <omp.h>
#include <stddef.h>

#include "backend/cpu/gemm.h"

enum {
    BLOCK_K = 256,
    BLOCK_ROWS = 144,
    SHARED_COLUMNS_MAX = 1024, /* one task's block of c in scratch is at most BLOCK_ROWS x this */
    OWN_COLUMNS_MAX = 256,
    SCRATCH_FLOATS = TT_CPU_SCRATCH_BYTES / 4,
};

struct plan {
    const struct tt_gemm_kernel *kernel;
    const struct tt_gemm_problem *problem;
    int64_t k_blocks, block_k; /* block_k but for the last block */
    int64_t row_blocks;
    int64_t columns;          /* of b that are packed at a time (all threads) or per task */
    int64_t a_panel, b_panel; /* floats from panel to panel */
    float *shared;            /* NULL: each task packs b */
};

static int64_t ceil_divide(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t round_up(int64_t a, int64_t b)
{
    return ceil_divide(a, b) * b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Floats of scratch: a's block, then b's (when packed per task), then the block of c, then one tile. */
struct scratch {
    float *a, *b, *c, *tile;
};

static struct scratch cut_scratch(const struct plan *plan, float *memory)
{
    struct scratch scratch;
    int64_t a_panels = ceil_divide(BLOCK_ROWS, plan->kernel->mr);
    scratch.tile = memory;
    scratch.a = memory + TT_GEMM_TILE_FLOATS;
    scratch.b = scratch.a + a_panels * plan->a_panel;
    scratch.c = scratch.b;
    if (plan->shared == NULL) scratch.c += ceil_divide(OWN_COLUMNS_MAX, plan->kernel->nr) * plan->b_panel;
    return scratch;
}

/* Shared out so that blocks differ by one panel at most. */
static void block_range(int64_t block, int64_t blocks, int64_t total, int64_t unit, int64_t *first,
                        int64_t *end)
{
    int64_t units = ceil_divide(total, unit);
    *first = smaller(total, block * units / blocks * unit);
    *end = smaller(total, (block + 1) * units / blocks * unit);
}

static void pack_a_block(const struct plan *plan, float *to, int64_t first, int64_t end, int64_t k_first,
                         int64_t k)
{
    const struct tt_gemm_kernel *kernel = plan->kernel;
    for (int64_t row = first; row < end; row += kernel->mr, to += plan->a_panel) {
        kernel->pack_a(to, &plan->problem->a, row, k_first, k);
    }
}

static void pack_b_block(const struct plan *plan, float *to, int64_t first, int64_t end, int64_t k_first,
                         int64_t k)
{
    const struct tt_gemm_kernel *kernel = plan->kernel;
    for (int64_t column = first; column < end; column += kernel->nr, to += plan->b_panel) {
        kernel->pack_b(to, &plan->problem->b, column, k_first, k);
    }
}

/* A block of c: rows x columns from (row, column), and one block of k. */
struct block {
    int64_t row, rows, column, columns;
    int64_t k, k_block;
    const float *a, *b;
};

/* Where the sums of a bf16 c wait for their last block of k. */
static int64_t waiting_stride(const struct plan *plan, const struct block *block)
{
    return round_up(block->columns, plan->kernel->nr);
}

static void multiply_tile(const struct plan *plan, const struct block *block, const struct scratch *scratch,
                          int64_t i, int64_t j)
{
    const struct tt_gemm_kernel *kernel = plan->kernel;
    const struct tt_gemm_problem *problem = plan->problem;
    const float *a = block->a + i / kernel->mr * plan->a_panel;
    const float *b = block->b + j / kernel->nr * plan->b_panel;
    int64_t rows = smaller(kernel->mr, block->rows - i), columns = smaller(kernel->nr, block->columns - j);
    float beta = block->k_block == 0 ? problem->beta : 1.0f;
    if (problem->c.dtype == TT_BF16 && plan->k_blocks > 1) {
        int64_t stride = waiting_stride(plan, block);
        kernel->tile(block->k, a, b, 1.0f, block->k_block == 0 ? 0.0f : 1.0f, scratch->c + i * stride + j,
                     stride);
        return;
    }
    if (problem->c.dtype == TT_F32 && rows == kernel->mr && columns == kernel->nr) {
        kernel->tile(block->k, a, b, problem->alpha, beta,
                     tt_gemm_row(&problem->c, block->row + i, block->column + j), problem->c.stride);
        return;
    }
    kernel->tile(block->k, a, b, 1.0f, 0.0f, scratch->tile, kernel->nr);
    for (int64_t r = 0; r < rows; r++) {
        kernel->finish(tt_gemm_row(&problem->c, block->row + i + r, block->column + j), problem->c.dtype,
                       scratch->tile + r * kernel->nr, columns, problem->alpha, beta);
    }
}

static void multiply_block(const struct plan *plan, const struct block *block, const struct scratch *scratch)
{
    for (int64_t j = 0; j < block->columns; j += plan->kernel->nr) {
        for (int64_t i = 0; i < block->rows; i += plan->kernel->mr) multiply_tile(plan, block, scratch, i, j);
    }
}

/* One task: c[row .. row_end, column .. column_end] over all of k. `shared_b` is the first packed panel of
 * `column` in block 0, the next block's lies `shared_step` further; NULL when the task packs. */
static void run_task(const struct plan *plan, float *memory, int64_t row, int64_t row_end, int64_t column,
                     int64_t column_end, const float *shared_b, int64_t shared_step)
{
    const struct tt_gemm_problem *problem = plan->problem;
    struct scratch scratch = cut_scratch(plan, memory);
    struct block block = {
        .row = row, .rows = row_end - row, .column = column, .columns = column_end - column};
    for (int64_t k_block = 0; k_block < plan->k_blocks; k_block++) {
        int64_t k_first = k_block * plan->block_k;
        block.k = smaller(plan->block_k, problem->k - k_first);
        block.k_block = k_block;
        pack_a_block(plan, scratch.a, row, row_end, k_first, block.k);
        if (shared_b == NULL) pack_b_block(plan, scratch.b, column, column_end, k_first, block.k);
        block.a = scratch.a;
        block.b = shared_b != NULL ? shared_b + k_block * shared_step : scratch.b;
        multiply_block(plan, &block, &scratch);
    }
    if (problem->c.dtype != TT_BF16 || plan->k_blocks == 1) return;
    int64_t stride = waiting_stride(plan, &block);
    for (int64_t i = 0; i < block.rows; i++) {
        plan->kernel->finish(tt_gemm_row(&problem->c, row + i, column), TT_BF16, scratch.c + i * stride,
                             block.columns, problem->alpha, problem->beta);
    }
}

static void run_own_panels(struct tt_stream *stream, const struct plan *plan, int threads)
{
    const struct tt_gemm_problem *problem = plan->problem;
    int64_t unit = plan->kernel->nr, column_blocks = ceil_divide(problem->n, plan->columns);
    int64_t tasks = plan->row_blocks * column_blocks;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t task = 0; task < tasks; task++) {
        int64_t row, row_end, column, column_end;
        block_range(task % plan->row_blocks, plan->row_blocks, problem->m, plan->kernel->mr, &row, &row_end);
        block_range(task / plan->row_blocks, column_blocks, problem->n, unit, &column, &column_end);
        run_task(plan, tt_cpu_scratch(stream, omp_get_thread_num()), row, row_end, column, column_end, NULL,
                 0);
    }
}

static void run_shared_panels(struct tt_stream *stream, const struct plan *plan, int threads)
{
    const struct tt_gemm_problem *problem = plan->problem;
    int64_t nr = plan->kernel->nr, chunks = ceil_divide(problem->n, plan->columns);
#pragma omp parallel num_threads(threads)
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        int64_t first, end;
        block_range(chunk, chunks, problem->n, nr, &first, &end);
        int64_t panels = ceil_divide(end - first, nr), step = panels * plan->b_panel;
        /* Few blocks of rows for many threads: the columns are shared out as well. */
        int64_t splits = smaller(panels, ceil_divide(threads, plan->row_blocks));
#pragma omp for schedule(static)
        for (int64_t item = 0; item < panels * plan->k_blocks; item++) {
            int64_t k_first = item / panels * plan->block_k, panel = item % panels;
            plan->kernel->pack_b(plan->shared + item * plan->b_panel, &problem->b, first + panel * nr,
                                 k_first, smaller(plan->block_k, problem->k - k_first));
        }
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < plan->row_blocks * splits; task++) {
            int64_t row, row_end, column, column_end;
            block_range(task / splits, plan->row_blocks, problem->m, plan->kernel->mr, &row, &row_end);
            block_range(task % splits, splits, end - first, nr, &column, &column_end);
            run_task(plan, tt_cpu_scratch(stream, omp_get_thread_num()), row, row_end, first + column,
                     first + column_end, plan->shared + column / nr * plan->b_panel, step);
        }
    }
}

tt_status tt_gemm_panels(struct tt_stream *stream, const struct tt_gemm_problem *problem,
                         const char **declined)
{
    (void)declined;
    struct tt_gemm_state *state = tt_gemm_state_of(stream);
    const struct tt_gemm_kernel *kernel = state->kernel;
    int threads = tt_gemm_threads(stream, problem);
    struct plan plan = {.kernel = kernel, .problem = problem};
    plan.k_blocks = ceil_divide(problem->k, BLOCK_K);
    plan.block_k = round_up(ceil_divide(problem->k, plan.k_blocks), 8);
    plan.k_blocks = ceil_divide(problem->k, plan.block_k);
    plan.a_panel = plan.block_k * kernel->mr + TT_GEMM_PANEL_SLACK;
    plan.b_panel = plan.block_k * kernel->nr + TT_GEMM_PANEL_SLACK;
    plan.row_blocks = ceil_divide(problem->m, BLOCK_ROWS / kernel->mr * kernel->mr);
    int64_t fitting =
        smaller(SHARED_COLUMNS_MAX, TT_GEMM_SHARED_FLOATS / (plan.k_blocks * plan.b_panel) * kernel->nr);
    if (plan.row_blocks > 1 && fitting > 0) {
        plan.shared = state->shared;
        plan.columns = fitting;
        /* An even share of blocks for each thread, while blocks stay worth packing. */
        int64_t even = round_up(plan.row_blocks, threads);
        if (problem->m / even >= 4 * kernel->mr) plan.row_blocks = even;
        run_shared_panels(stream, &plan, threads);
    } else {
        int64_t share = round_up(ceil_divide(problem->n, threads), kernel->nr);
        plan.columns = smaller(OWN_COLUMNS_MAX, share);
        run_own_panels(stream, &plan, threads);
    }
    return TT_OK;
}
