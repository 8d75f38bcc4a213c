/* Packed panels, after Goto and van de Geijn (ACM TOMS 34:3, 2008): a is divided into panels of mr rows, b into
 * panels of nr columns, both copied as floats in the order in which the register tile reads them. A block of a
 * (block_rows x block_k) stays in the second-level cache, a panel of b in the first.
 *
 * One task computes all sums over k of an element of c, block by block in order. So c is rounded once, and the
 * result does not depend on the thread:
 *  - c of floats: the tile is c itself, to which every block is added;
 *  - c of bf16 and one block of k: through a separate tile;
 *  - c of bf16 and several blocks, and transposed c: through a block of floats in the thread's scratch.
 *
 * b is packed once for all tasks (16 MiB at a time). With so few rows of c that only one task uses a panel, each
 * task packs its own. For a very long k only few columns of b would fit, and a would be packed again for each of
 * them. Then k is divided into several runs, and between them the sums of a slab of rows are kept beside b.
 *
 * A narrow c from an a that is stored across k (dB = dy^T h) is computed transposed, c^T = b^T a^T, because then
 * the large operand is copied in wide rows. */
#include <assert.h>
#include <omp.h>
#include <stddef.h>

#include "backend/cpu/gemm/variants.h"
#include "backend/cpu/gemm/gather.h"
#include "backend/cpu/gemm/kept.h"
#include "base/integer.h"

enum {
    BLOCK_ROWS = 144,
    SHARED_COLUMNS_MAX =
        1024, /* a task's block of c in scratch has at most BLOCK_ROWS rows and this many columns */
    OWN_COLUMNS_MAX = 256,
    TRANSPOSED_MAX = 48,
    FEW_K = 64,
    LINE_FLOATS = 16,
    LOW_K_MAX = 64, /* of a narrow product computed here; its b is packed LOW_COLUMNS at a time */
    LOW_COLUMNS = 256,
    LOW_ROWS_MIN = 64, /* with fewer rows packing costs more than it saves */
    PACK_PANELS = 8,   /* panels that one thread packs at a time */
    FINISH_ROWS = 16,  /* of all panels, so that lines of c shared by panels are written together */
    SUMS_FLOATS_MAX =
        (2048 + 64) * SHARED_COLUMNS_MAX, /* part of `shared` for the sums of a slab between runs over k */
};
struct plan {
    const struct tt_gemm_kernel *kernel;
    const struct tt_gemm_problem *problem;
    bool transposed;           /* c is computed transposed */
    bool waits;                /* sums stay in scratch until the last block of k */
    int64_t k_blocks, block_k; /* block_k but for the last block */
    int64_t row_blocks;
    int64_t columns;                  /* columns of b packed at a time: by all threads, or per task */
    int64_t slab;                     /* rows of c computed at a time */
    int64_t k_run;                    /* blocks of k packed at a time */
    int64_t a_panel, b_panel;         /* from panel to panel, in floats for every panel type */
    int64_t low_a_panel, low_b_panel; /* the same for narrow products */
    float *shared;                    /* NULL: each task packs b */
    float *sums;                      /* of a slab, when k has several runs and sums wait */
    /* panels of all of a (transposed) or of b, block of k by block of k; NULL: tasks pack them */
    const float *kept;
    int64_t kept_panels; /* of one block of k */
};

static int64_t ceil_divide(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t round_up(int64_t a, int64_t b)
{
    return ceil_divide(a, b) * b;
}

struct scratch {
    float *a, *b, *c, *tile, *low;
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
    int64_t columns_max = plan->shared != NULL ? SHARED_COLUMNS_MAX : OWN_COLUMNS_MAX;
    scratch.low = scratch.c + BLOCK_ROWS * columns_max;
    assert(scratch.low + LOW_COLUMNS / plan->kernel->nr * plan->low_b_panel <=
           memory + TT_CPU_SCRATCH_BYTES / sizeof *memory);
    return scratch;
}

/* Divides `total` evenly: blocks differ by one panel at most. */
static void block_range(int64_t block, int64_t blocks, int64_t total, int64_t unit, int64_t *first,
                        int64_t *end)
{
    int64_t units = ceil_divide(total, unit);
    *first = tt_smaller(total, block * units / blocks * unit);
    *end = tt_smaller(total, (block + 1) * units / blocks * unit);
}

typedef void pack_function(float *to, const struct tt_gemm_source *source, int64_t first, int64_t k_first,
                           int64_t k);

/* Packs the panels of first .. end across. A source that is stored across k is copied a few k at a time through
 * all panels, because a single panel would touch a page for every k. */
static void pack_panels(const struct plan *plan, pack_function *pack, int width, float *to,
                        int64_t panel_floats, const struct tt_gemm_source *source, int64_t first, int64_t end,
                        int64_t k_first, int64_t k)
{
    int64_t step = source->gather != NULL ? TT_GEMM_STRIP_K : source->k_contiguous ? k : TT_GEMM_PACK_K;
    int64_t per_float = (int64_t)(sizeof(float) / tt_dtype_bytes(plan->kernel->panel_dtype));
    float strip[TT_GEMM_STRIP_FLOATS];
    for (int64_t p = 0; p < k; p += step) {
        float *panel = to + p * width / per_float;
        for (int64_t at = first; at < end; at += width, panel += panel_floats) {
            int64_t some = tt_smaller(step, k - p);
            if (source->gather == NULL) {
                pack(panel, source, at, k_first + p, some);
                continue;
            }
            struct tt_gemm_source piece = tt_gemm_gather(source, strip, at, width, k_first + p, some);
            pack(panel, &piece, 0, 0, some);
        }
    }
}

/* A block of c: rows x columns from (row, column), and one block of k. */
struct block {
    int64_t row, rows, column, columns;
    int64_t k, k_block;
    const float *a, *b;
    int64_t a_panel, b_panel;
    float *waiting; /* its sums, if they wait: panels of nr columns, each with all rows in order */
    int64_t waiting_panel;
};

/* Computes the tile of panel `i` of a and panel `j` of b. */
static void multiply_tile(const struct plan *plan, const struct block *block, const struct scratch *scratch,
                          int64_t i, int64_t j, const float *ahead)
{
    const struct tt_gemm_kernel *kernel = plan->kernel;
    const struct tt_gemm_problem *problem = plan->problem;
    int64_t first_row = i * kernel->mr, first_column = j * kernel->nr;
    struct tt_gemm_tile tile = {.k = block->k,
                                .a = block->a + i * block->a_panel,
                                .b = block->b + j * block->b_panel,
                                .alpha = 1.0f,
                                .stride = kernel->nr,
                                .rows = tt_smaller(kernel->mr, block->rows - first_row),
                                .columns = tt_smaller(kernel->nr, block->columns - first_column),
                                .ahead = ahead};
    int64_t row = block->row + first_row, column = block->column + first_column;
    float beta = block->k_block == 0 ? problem->beta : 1.0f;
    if (plan->waits) {
        tile.to = block->waiting + j * block->waiting_panel + first_row * kernel->nr;
        tile.beta = block->k_block == 0 ? 0.0f : 1.0f;
        kernel->tile(&tile);
    } else if (problem->c.dtype == TT_F32 && tile.rows == kernel->mr && tile.columns == kernel->nr) {
        tile.stride = problem->c.stride;
        tile.to = (float *)problem->c.data + row * tile.stride + column;
        tile.alpha = problem->alpha;
        tile.beta = beta;
        kernel->tile(&tile);
    } else {
        tile.to = scratch->tile;
        kernel->tile(&tile);
        kernel->finish(&problem->c, row, column, scratch->tile, kernel->nr, tile.rows, tile.columns,
                       problem->alpha, beta);
    }
}

/* Goes down the rows of a panel of b, which stays in the first-level cache. With few k the product is bound by
 * reading and writing c; then it goes along the rows of c. */
static void multiply_block(const struct plan *plan, const struct block *block, const struct scratch *scratch)
{
    int64_t a_panels = ceil_divide(block->rows, plan->kernel->mr),
            b_panels = ceil_divide(block->columns, plan->kernel->nr);
    if (block->k <= FEW_K) {
        for (int64_t i = 0; i < a_panels; i++)
            for (int64_t j = 0; j < b_panels; j++) multiply_tile(plan, block, scratch, i, j, block->b);
        return;
    }
    /* Each tile prefetches a part of the next panel of b. */
    int64_t each = block->b_panel / a_panels / LINE_FLOATS * LINE_FLOATS;
    for (int64_t j = 0; j < b_panels; j++) {
        const float *next = block->b + (j + 1 < b_panels ? j + 1 : j) * block->b_panel;
        for (int64_t i = 0; i < a_panels; i++) multiply_tile(plan, block, scratch, i, j, next + i * each);
    }
}

static void finish_transposed(const struct plan *plan, const struct block *block)
{
    const struct tt_gemm_problem *problem = plan->problem;
    int64_t nr = plan->kernel->nr;
    for (int64_t j = 0; j < block->columns; j++) {
        const float *sums = block->waiting + j / nr * block->waiting_panel + j % nr;
        float row[BLOCK_ROWS];
        for (int64_t i = 0; i < block->rows; i++) row[i] = sums[i * nr];
        plan->kernel->finish(&problem->c, block->column + j, block->row, row, 0, 1, block->rows,
                             problem->alpha, problem->beta);
    }
}

/* Rows that are not evenly spaced are finished one by one. */
static void finish_grid(const struct plan *plan, const struct block *block)
{
    const struct tt_gemm_problem *problem = plan->problem;
    int64_t nr = plan->kernel->nr;
    size_t element = tt_dtype_bytes(problem->c.dtype);
    for (int64_t i = 0; i < block->rows; i++) {
        const struct tt_gemm_target *c = &problem->c;
        int64_t row = block->row + i, run = row / c->run;
        int64_t at =
            run / c->runs * c->group_stride + run % c->runs * c->run_stride + row % c->run * c->stride;
        struct tt_gemm_target one = {.data = (char *)c->data + (size_t)at * element, .dtype = c->dtype};
        const float *sums = block->waiting + i * nr;
        for (int64_t j = 0; j < block->columns; j += nr, sums += block->waiting_panel)
            plan->kernel->finish(&one, 0, block->column + j, sums, nr, 1, tt_smaller(nr, block->columns - j),
                                 problem->alpha, problem->beta);
    }
}

static void finish_block(const struct plan *plan, const struct block *block)
{
    const struct tt_gemm_problem *problem = plan->problem;
    int64_t nr = plan->kernel->nr;
    if (plan->transposed) {
        finish_transposed(plan, block);
        return;
    }
    if (problem->epilogue != NULL)
        for (int64_t j = 0; j < block->columns; j += nr)
            tt_gemm_apply_epilogue(problem->epilogue, problem->c.dtype,
                                   block->waiting + j / nr * block->waiting_panel, nr, block->row,
                                   block->rows, block->column + j, tt_smaller(nr, block->columns - j));
    if (problem->c.run > 0) {
        finish_grid(plan, block);
        return;
    }
    for (int64_t i = 0; i < block->rows; i += FINISH_ROWS) {
        const float *sums = block->waiting + i * nr;
        for (int64_t j = 0; j < block->columns; j += nr, sums += block->waiting_panel)
            plan->kernel->finish(&problem->c, block->row + i, block->column + j, sums, nr,
                                 tt_smaller(FINISH_ROWS, block->rows - i), tt_smaller(nr, block->columns - j),
                                 problem->alpha, problem->beta);
    }
}

/* Adds the narrow products of a task's block after the wide one's last block of k. A part begins at a panel of
 * c. The columns of its last panel beyond its end add zeros. */
static void multiply_low(const struct plan *plan, const struct block *wide, const struct scratch *scratch)
{
    const struct tt_gemm_kernel *kernel = plan->kernel;
    for (int i = 0; i < plan->problem->low_count; i++) {
        const struct tt_gemm_low *low = &plan->problem->low[i];
        int64_t first = low->first > wide->column ? low->first : wide->column;
        int64_t end = tt_smaller(low->end, wide->column + wide->columns);
        if (first >= end) continue;
        struct block block = {.row = wide->row,
                              .rows = wide->rows,
                              .k = low->k,
                              .k_block = 1,
                              .a = scratch->a,
                              .b = scratch->low,
                              .a_panel = plan->low_a_panel,
                              .b_panel = plan->low_b_panel,
                              .waiting_panel = wide->waiting_panel};
        pack_panels(plan, kernel->pack_a, kernel->mr, scratch->a, plan->low_a_panel, &low->a, wide->row,
                    wide->row + wide->rows, 0, low->k);
        for (block.column = first; block.column < end; block.column += LOW_COLUMNS) {
            block.columns = tt_smaller(LOW_COLUMNS, end - block.column);
            block.waiting = wide->waiting + (block.column - wide->column) / kernel->nr * wide->waiting_panel;
            pack_panels(plan, kernel->pack_b, kernel->nr, scratch->low, plan->low_b_panel, &low->b,
                        block.column - low->first, block.column + block.columns - low->first, 0, low->k);
            multiply_block(plan, &block, scratch);
        }
    }
}

/* Computes c[row .. row_end, column .. column_end] over the blocks of k from k_begin on. */
struct task {
    int64_t row, row_end, column, column_end;
    int64_t k_begin, k_end;
    const float *b; /* the first packed panel of `column` in block k_begin; NULL when the task packs */
    int64_t b_step; /* distance to the next block's */
    float *waiting; /* NULL: in the thread's scratch */
};

/* Sets the panels of block.k_block, and packs those that are not there yet. */
static void pack_block(const struct plan *plan, const struct task *task, const struct scratch *scratch,
                       int64_t k_first, struct block *block)
{
    const struct tt_gemm_kernel *kernel = plan->kernel;
    const struct tt_gemm_problem *problem = plan->problem;
    const float *kept = plan->kept;
    block->a = scratch->a;
    block->b = task->b != NULL ? task->b + (block->k_block - task->k_begin) * task->b_step : scratch->b;
    if (kept != NULL && plan->transposed)
        block->a = kept + (block->k_block * plan->kept_panels + task->row / kernel->mr) * plan->a_panel;
    else
        pack_panels(plan, kernel->pack_a, kernel->mr, scratch->a, plan->a_panel, &problem->a, task->row,
                    task->row_end, k_first, block->k);
    if (kept != NULL && !plan->transposed)
        block->b = kept + (block->k_block * plan->kept_panels + task->column / kernel->nr) * plan->b_panel;
    else if (task->b == NULL)
        pack_panels(plan, kernel->pack_b, kernel->nr, scratch->b, plan->b_panel, &problem->b, task->column,
                    task->column_end, k_first, block->k);
}

static void run_task(const struct plan *plan, float *memory, const struct task *task)
{
    const struct tt_gemm_problem *problem = plan->problem;
    const struct tt_gemm_kernel *kernel = plan->kernel;
    struct scratch scratch = cut_scratch(plan, memory);
    struct block block = {.row = task->row,
                          .rows = task->row_end - task->row,
                          .column = task->column,
                          .columns = task->column_end - task->column,
                          .a_panel = plan->a_panel,
                          .b_panel = plan->b_panel,
                          .waiting = task->waiting != NULL ? task->waiting : scratch.c,
                          .waiting_panel = round_up(task->row_end - task->row, kernel->mr) * kernel->nr};
    if (kernel->enter != NULL) kernel->enter();
    for (int64_t k_block = task->k_begin; k_block < task->k_end; k_block++) {
        int64_t k_first = k_block * plan->block_k;
        block.k = tt_smaller(plan->block_k, problem->k - k_first);
        block.k_block = k_block;
        pack_block(plan, task, &scratch, k_first, &block);
        multiply_block(plan, &block, &scratch);
    }
    bool last = task->k_end == plan->k_blocks;
    if (last) multiply_low(plan, &block, &scratch);
    if (kernel->leave != NULL) kernel->leave();
    if (last && plan->waits) finish_block(plan, &block);
}

static void run_own_panels(struct tt_stream *stream, const struct plan *plan, int threads)
{
    const struct tt_gemm_problem *problem = plan->problem;
    int64_t column_blocks = ceil_divide(problem->n, plan->columns), tasks = plan->row_blocks * column_blocks;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t i = 0; i < tasks; i++) {
        struct task task = {.k_end = plan->k_blocks};
        block_range(i % plan->row_blocks, plan->row_blocks, problem->m, plan->kernel->mr, &task.row,
                    &task.row_end);
        block_range(i / plan->row_blocks, column_blocks, problem->n, plan->kernel->nr, &task.column,
                    &task.column_end);
        run_task(plan, tt_cpu_scratch(stream, omp_get_thread_num()), &task);
    }
}

/* The work of one filling of `shared`: rows of a slab, columns of a chunk, blocks of k of a run. */
struct part {
    int64_t row, row_end, column, column_end, k_begin, k_end;
};

static int64_t columns_step(const struct plan *plan, const struct part *part)
{
    return ceil_divide(part->column_end - part->column, plan->kernel->nr) * plan->b_panel;
}

/* Packs eight panels of one block of k. */
static void pack_item(const struct plan *plan, const struct part *part, int64_t item, int64_t groups)
{
    int64_t nr = plan->kernel->nr, k_block = item / groups, panel = item % groups * PACK_PANELS,
            column = part->column + panel * nr, k_first = (part->k_begin + k_block) * plan->block_k;
    pack_panels(plan, plan->kernel->pack_b, (int)nr,
                plan->shared + k_block * columns_step(plan, part) + panel * plan->b_panel, plan->b_panel,
                &plan->problem->b, column, tt_smaller(part->column_end, column + PACK_PANELS * nr), k_first,
                tt_smaller(plan->block_k, plan->problem->k - k_first));
}

/* Runs task `i` of a part with row_blocks x splits tasks. */
static void run_shared_task(const struct plan *plan, const struct part *part, int64_t i, int64_t splits,
                            float *memory)
{
    int64_t mr = plan->kernel->mr, nr = plan->kernel->nr, columns = part->column_end - part->column;
    struct task task = {.k_begin = part->k_begin, .k_end = part->k_end, .b_step = columns_step(plan, part)};
    int64_t row, row_end, column, column_end;
    block_range(i / splits, plan->row_blocks, part->row_end - part->row, mr, &row, &row_end);
    block_range(i % splits, splits, columns, nr, &column, &column_end);
    if (row == row_end || column == column_end) return;
    task.row = part->row + row, task.row_end = part->row + row_end;
    task.column = part->column + column, task.column_end = part->column + column_end;
    task.b = plan->shared + column / nr * plan->b_panel;
    if (plan->sums != NULL)
        task.waiting = plan->sums + row * round_up(columns, nr) + column * round_up(row_end - row, mr);
    run_task(plan, memory, &task);
}

static void run_shared_panels(struct tt_stream *stream, const struct plan *plan, int threads)
{
    const struct tt_gemm_problem *problem = plan->problem;
    int64_t nr = plan->kernel->nr, chunks = ceil_divide(problem->n, plan->columns),
            slabs = ceil_divide(problem->m, plan->slab), runs = ceil_divide(plan->k_blocks, plan->k_run);
#pragma omp parallel num_threads(threads)
    for (int64_t i = 0; i < slabs * chunks * runs; i++) {
        struct part part = {.k_begin = i % runs * plan->k_run};
        part.k_end = tt_smaller(plan->k_blocks, part.k_begin + plan->k_run);
        block_range(i / runs % chunks, chunks, problem->n, nr, &part.column, &part.column_end);
        block_range(i / runs / chunks, slabs, problem->m, plan->kernel->mr, &part.row, &part.row_end);
        int64_t panels = ceil_divide(part.column_end - part.column, nr);
        int64_t groups = ceil_divide(panels, PACK_PANELS);
        /* Few blocks of rows for many threads: the columns are divided too. */
        int64_t splits = tt_smaller(panels, ceil_divide(threads, plan->row_blocks));
#pragma omp for schedule(dynamic)
        for (int64_t item = 0; item < groups * (part.k_end - part.k_begin); item++)
            pack_item(plan, &part, item, groups);
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < plan->row_blocks * splits; task++)
            run_shared_task(plan, &part, task, splits, tt_cpu_scratch(stream, omp_get_thread_num()));
    }
}

/* A panel of b is packed fastest from rows across k; on the tile unit a panel of a from rows along k. */
static bool is_better_transposed(const struct tt_gemm_kernel *kernel, const struct tt_gemm_problem *problem)
{
    if (problem->low_count > 0 || problem->epilogue != NULL || problem->c.run > 0) return false;
    if (problem->n <= TRANSPOSED_MAX && problem->m > problem->n && !problem->a.k_contiguous) return true;
    return kernel->panel_dtype == TT_BF16 && problem->m <= TRANSPOSED_MAX && problem->n > problem->m &&
           problem->b.k_contiguous;
}

static void transpose(struct plan *plan, struct tt_gemm_problem *transposed)
{
    *transposed = *plan->problem;
    transposed->m = plan->problem->n;
    transposed->n = plan->problem->m;
    transposed->a = plan->problem->b;
    transposed->b = plan->problem->a;
    plan->problem = transposed;
    plan->transposed = true;
}

bool tt_gemm_takes_low(const struct tt_gemm_state *state, const struct tt_gemm_problem *problem)
{
    const struct tt_gemm_kernel *kernel = tt_gemm_kernel_for(state, problem);
    bool bf16 = kernel->panel_dtype == TT_BF16;
    if (problem->m < LOW_ROWS_MIN || (state->forced != NULL && state->forced->run != tt_gemm_panels))
        return false;
    for (int i = 0; i < problem->low_count; i++) {
        const struct tt_gemm_low *low = &problem->low[i];
        bool aligned = low->first % kernel->nr == 0 && (low->end % kernel->nr == 0 || low->end == problem->n);
        if (!aligned || low->k > LOW_K_MAX || low->k < 1 || low->first >= low->end) return false;
        if (bf16 && (low->a.dtype != TT_BF16 || low->b.dtype != TT_BF16)) return false;
    }
    return true;
}

/* Chooses what `shared` holds at a time; false when nothing fits. */
static bool fill_shared(struct plan *plan, float *shared, int threads)
{
    const struct tt_gemm_kernel *kernel = plan->kernel;
    int64_t m = plan->problem->m,
            wanted = tt_smaller(SHARED_COLUMNS_MAX, round_up(plan->problem->n, kernel->nr));
    int64_t fitting = TT_GEMM_SHARED_FLOATS / (plan->k_blocks * plan->b_panel) * kernel->nr, sums = 0;
    plan->shared = shared;
    plan->columns = tt_smaller(wanted, fitting);
    plan->slab = m;
    plan->k_run = plan->k_blocks;
    if (fitting < wanted) {
        if (plan->waits) {
            int64_t slabs = ceil_divide(m, SUMS_FLOATS_MAX / wanted / kernel->mr * kernel->mr - kernel->mr);
            plan->slab = round_up(ceil_divide(m, slabs), kernel->mr);
            plan->sums = shared;
            sums = (plan->slab + kernel->mr) * wanted;
            plan->shared += sums;
        }
        plan->columns = wanted;
        plan->k_run = (TT_GEMM_SHARED_FLOATS - sums) / (wanted / kernel->nr * plan->b_panel);
        if (plan->k_run < 1) {
            plan->shared = plan->sums = NULL;
            return false;
        }
    }
    plan->row_blocks = ceil_divide(plan->slab, BLOCK_ROWS / kernel->mr * kernel->mr);
    /* An even share of blocks for each thread, as long as blocks are worth packing. */
    int64_t even = round_up(plan->row_blocks, threads);
    if (plan->slab / even >= 4 * kernel->mr) plan->row_blocks = even;
    return true;
}

static void lay_k(struct plan *plan)
{
    const struct tt_gemm_kernel *kernel = plan->kernel;
    int64_t k = plan->problem->k, per_float = (int64_t)(sizeof(float) / tt_dtype_bytes(kernel->panel_dtype));
    plan->block_k = round_up(ceil_divide(k, ceil_divide(k, kernel->block_k)), kernel->k_unit);
    plan->k_blocks = ceil_divide(k, plan->block_k);
    plan->a_panel = plan->block_k * kernel->mr / per_float + TT_GEMM_PANEL_SLACK;
    plan->b_panel = plan->block_k * kernel->nr / per_float + TT_GEMM_PANEL_SLACK;
}

/* Panels of the large operand are worth keeping where few rows are multiplied: those of bf16 as `a` of the transposed
 * product, others as `b` of one that each task packs itself. */
static bool can_keep(const struct plan *plan)
{
    if (plan->transposed) return plan->kernel->panel_dtype == TT_BF16;
    return plan->kernel->panel_dtype == TT_F32 && plan->row_blocks == 1;
}

int64_t tt_gemm_kept_floats(const struct tt_gemm_kernel *kernel, const struct tt_gemm_problem *problem)
{
    struct plan plan = {.kernel = kernel, .problem = problem, .row_blocks = 1};
    struct tt_gemm_problem transposed;
    if (is_better_transposed(kernel, problem)) transpose(&plan, &transposed);
    lay_k(&plan);
    if (!can_keep(&plan)) return 0;
    int64_t panels = ceil_divide(problem->n, plan.transposed ? kernel->mr : kernel->nr),
            floats = plan.k_blocks * panels * (plan.transposed ? plan.a_panel : plan.b_panel);
    return round_up(floats, LINE_FLOATS);
}

/* Uses panels of an earlier product with the same matrix, or packs them for the next ones. */
static void find_kept(struct tt_gemm_kept *kept, struct plan *plan, int threads)
{
    const struct tt_gemm_kernel *kernel = plan->kernel;
    const struct tt_gemm_source *matrix = plan->transposed ? &plan->problem->a : &plan->problem->b;
    int64_t k = plan->problem->k, width = plan->transposed ? kernel->mr : kernel->nr,
            step = plan->transposed ? plan->a_panel : plan->b_panel,
            panels = ceil_divide(matrix->across, width), groups = ceil_divide(panels, PACK_PANELS);
    bool fresh;
    if (!can_keep(plan)) return;
    float *to = tt_gemm_kept_find(kept, matrix, k, plan->transposed, plan->k_blocks * panels * step, &fresh);
    plan->kept = to;
    plan->kept_panels = panels;
    if (!fresh) return;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t item = 0; item < groups * plan->k_blocks; item++) {
        int64_t k_block = item / groups, panel = item % groups * PACK_PANELS, first = panel * width,
                k_first = k_block * plan->block_k;
        pack_panels(plan, plan->transposed ? kernel->pack_a : kernel->pack_b, (int)width,
                    to + (k_block * panels + panel) * step, step, matrix, first,
                    tt_smaller(matrix->across, first + PACK_PANELS * width), k_first,
                    tt_smaller(plan->block_k, k - k_first));
    }
}

tt_status tt_gemm_panels(struct tt_stream *stream, const struct tt_gemm_problem *problem,
                         const char **declined)
{
    (void)declined;
    struct tt_gemm_state *state = tt_gemm_state_of(stream);
    const struct tt_gemm_kernel *kernel = tt_gemm_kernel_for(state, problem);
    int threads = tt_gemm_threads(stream, problem);
    struct plan plan = {.kernel = kernel, .problem = problem};
    struct tt_gemm_problem transposed;
    if (is_better_transposed(kernel, problem)) transpose(&plan, &transposed);
    int64_t m = plan.problem->m, n = plan.problem->n;
    lay_k(&plan);
    plan.waits = plan.transposed || problem->c.addend != NULL || problem->epilogue != NULL ||
                 problem->c.run > 0 ||
                 (problem->c.dtype == TT_BF16 && (plan.k_blocks > 1 || problem->low_count > 0));
    int64_t per_float = (int64_t)(sizeof(float) / tt_dtype_bytes(kernel->panel_dtype));
    for (int i = 0; i < problem->low_count; i++) {
        int64_t low_k = round_up(problem->low[i].k, kernel->k_unit);
        int64_t a_panel = low_k * kernel->mr / per_float + TT_GEMM_PANEL_SLACK,
                b_panel = low_k * kernel->nr / per_float + TT_GEMM_PANEL_SLACK;
        if (a_panel > plan.low_a_panel) plan.low_a_panel = a_panel;
        if (b_panel > plan.low_b_panel) plan.low_b_panel = b_panel;
    }
    plan.row_blocks = ceil_divide(m, BLOCK_ROWS / kernel->mr * kernel->mr);
    if (state->kept != NULL) find_kept(state->kept, &plan, threads);
    if (plan.row_blocks > 1 && fill_shared(&plan, state->shared, threads)) {
        run_shared_panels(stream, &plan, threads);
    } else {
        plan.columns = tt_smaller(OWN_COLUMNS_MAX, round_up(ceil_divide(n, threads), kernel->nr));
        run_own_panels(stream, &plan, threads);
    }
    return TT_OK;
}
