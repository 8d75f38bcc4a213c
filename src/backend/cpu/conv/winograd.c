#ifndef TT_VECTOR_LANES

/* A task has a few panels of tiles and a chunk of the output's channels. For each piece of 64 channels of the input it
 * transforms its tiles (a strip, packed into 36 panels), multiplies them by the transformed weights, which all threads
 * have packed before, and adds to its 36 matrices of sums; at the end it transforms these to places of y. */
#include "backend/cpu/conv/winograd.h"

#include <assert.h>
#include <omp.h>
#include <stddef.h>

#include "backend/cpu/conv/winograd_tiles.h"
#include "base/integer.h"

enum {
    PIECE = TT_TILE_CHANNELS, /* channels of x summed in one run */
    CHUNK = 128,              /* channels of y of a task */
    TILE_ROWS = 28,
    LEAST_CHANNELS = 128,
    MOST_CHANNELS = 896, /* as many fit into the shared panels */
};

/* The arguments of the passes. */
struct work {
    const struct tt_winograd *problem;
    const struct tt_gemm_kernel *kernel;
    struct tt_tiles tiles;
    int64_t in, out;
    int64_t pieces;      /* of the input's channels */
    int64_t task_tiles;  /* a multiple of the kernel's rows */
    int64_t chunk;       /* channels of y at a time, a multiple of the kernel's columns */
    int64_t weight_step; /* floats from point to point of the packed weights */
    float *weights;      /* [pieces][TT_TILE_POINTS][panels of the chunk][PIECE][nr] */
};

#define TT_VECTOR_SOURCE "backend/cpu/conv/winograd.c"
#include "backend/cpu/vector_math_passes.h"

bool tt_winograd_takes(const struct tt_stream *stream, const struct tt_conv_geometry *geometry,
                       tt_dtype dtype, int64_t in, int64_t out)
{
    if (tt_gemm_state_of(stream)->forced != NULL) return false;
    /* AMX multiplies bf16 ten times as fast as floats. */
    if (dtype == TT_BF16 && tt_cpu_isa(stream) >= TT_CPU_AMX) return false;
    return geometry->kernel == 3 && geometry->stride == 1 && geometry->padding == 1 && in >= LEAST_CHANNELS &&
           in <= MOST_CHANNELS && out >= LEAST_CHANNELS / 4;
}

typedef void weights_pass(const struct work *, int64_t column, int64_t k, int64_t count, float *to);
typedef void tile_pass(const struct work *, int64_t tile, int64_t channel, int64_t count, float *to,
                       int64_t step);
typedef void places_pass(const struct work *, int64_t tile, const float *sums, int64_t step, int64_t column,
                         int64_t count);

struct passes {
    weights_pass *weights;
    tile_pass *tile;
    places_pass *places;
};

/* Views of a thread's scratch. */
struct scratch {
    float *strip, *panels, *sums;
    int64_t strip_step, panel_step, sums_step; /* from point to point */
};

static struct scratch cut_scratch(const struct work *work, float *memory)
{
    int64_t mr = work->kernel->mr, panel = PIECE * mr + TT_GEMM_PANEL_SLACK;
    struct scratch scratch = {.strip = memory,
                              .strip_step = PIECE * mr + TT_TILE_PAD,
                              .panel_step = work->task_tiles / mr * panel,
                              .sums_step = work->task_tiles * work->chunk + TT_TILE_PAD};
    scratch.panels = memory + TT_TILE_POINTS * scratch.strip_step;
    scratch.sums = scratch.panels + TT_TILE_POINTS * scratch.panel_step;
    assert(scratch.sums + TT_TILE_POINTS * scratch.sums_step <=
           memory + TT_CPU_SCRATCH_BYTES / sizeof *memory);
    return scratch;
}

/* Makes the panels of `count` tiles from `first` on and the channels of a piece. */
static void pack_tiles(const struct work *work, const struct passes *passes, const struct scratch *scratch,
                       int64_t first, int64_t count, int64_t k, int64_t some)
{
    int64_t mr = work->kernel->mr, panel = PIECE * mr + TT_GEMM_PANEL_SLACK;
    for (int64_t i = 0; i * mr < count; i++) {
        int64_t rows = tt_smaller(mr, count - i * mr);
        for (int64_t r = 0; r < rows; r++)
            passes->tile(work, first + i * mr + r, k, some, scratch->strip + r * PIECE, scratch->strip_step);
        for (int64_t point = 0; point < TT_TILE_POINTS; point++) {
            const struct tt_gemm_source source = {.data = scratch->strip + point * scratch->strip_step,
                                                  .dtype = TT_F32,
                                                  .stride = PIECE,
                                                  .k_contiguous = true,
                                                  .across = rows};
            work->kernel->pack_a(scratch->panels + point * scratch->panel_step + i * panel, &source, 0, 0,
                                 some);
        }
    }
}

/* Adds the products of one piece: sums of [panel of columns][panel of tiles][mr][nr], for each point. */
static void multiply_piece(const struct work *work, const struct scratch *scratch, int64_t piece,
                           int64_t count, int64_t columns, int64_t some)
{
    const struct tt_gemm_kernel *kernel = work->kernel;
    int64_t mr = kernel->mr, nr = kernel->nr, panels = work->task_tiles / mr;
    for (int64_t point = 0; point < TT_TILE_POINTS; point++) {
        const float *b = work->weights + (piece * TT_TILE_POINTS + point) * work->weight_step;
        float *sums = scratch->sums + point * scratch->sums_step;
        for (int64_t j = 0; j * nr < columns; j++, b += PIECE * nr, sums += panels * mr * nr) {
            for (int64_t i = 0; i * mr < count; i++) {
                struct tt_gemm_tile tile = {
                    .k = some,
                    .a = scratch->panels + point * scratch->panel_step +
                         i * (PIECE * mr + TT_GEMM_PANEL_SLACK),
                    .b = b,
                    .alpha = 1.0f,
                    .beta = piece == 0 ? 0.0f : 1.0f,
                    .to = sums + i * mr * nr,
                    .stride = nr,
                    .rows = tt_smaller(mr, count - i * mr),
                    .columns = tt_smaller(nr, columns - j * nr),
                    .ahead = b + PIECE * nr + i * PIECE * nr / panels,
                };
                kernel->tile(&tile);
            }
        }
    }
}

static void run_task(const struct work *work, const struct passes *passes, float *memory, int64_t first,
                     int64_t column, int64_t columns)
{
    const struct tt_gemm_kernel *kernel = work->kernel;
    struct scratch scratch = cut_scratch(work, memory);
    int64_t mr = kernel->mr, nr = kernel->nr, count = tt_smaller(work->task_tiles, work->tiles.count - first);
    for (int64_t piece = 0; piece < work->pieces; piece++) {
        int64_t k = piece * PIECE, some = tt_smaller(PIECE, work->in - k);
        pack_tiles(work, passes, &scratch, first, count, k, some);
        multiply_piece(work, &scratch, piece, count, columns, some);
    }
    for (int64_t r = 0; r < count; r++)
        for (int64_t j = 0; j * nr < columns; j++) {
            int64_t at = (j * (work->task_tiles / mr) + r / mr) * mr * nr + r % mr * nr;
            passes->places(work, first + r, scratch.sums + at, scratch.sums_step, column + j * nr,
                           tt_smaller(nr, columns - j * nr));
        }
}

void tt_winograd_run(struct tt_stream *stream, const struct tt_winograd *problem)
{
    const struct tt_gemm_state *state = tt_gemm_state_of(stream);
    const struct tt_gemm_kernel *kernel = state->kernel;
    const struct passes passes = {TT_BEST(stream, transform_weights), TT_BEST(stream, transform_tile),
                                  TT_BEST(stream, transform_sums)};
    struct work work = {.problem = problem,
                        .kernel = kernel,
                        .in = problem->x_PC.dims[1],
                        .out = problem->y_QO.dims[1],
                        .tiles = tt_tiles_of(problem->images, problem->height, problem->width),
                        .task_tiles = TILE_ROWS / kernel->mr * kernel->mr,
                        .chunk = CHUNK / kernel->nr * kernel->nr,
                        .weights = state->shared};
    work.pieces = (work.in + PIECE - 1) / PIECE;
    work.weight_step = work.chunk * PIECE + TT_TILE_PAD;
    int64_t tasks = (work.tiles.count + work.task_tiles - 1) / work.task_tiles;
    int threads = stream->device->threads;
    assert(work.pieces * TT_TILE_POINTS * work.weight_step <= TT_GEMM_SHARED_FLOATS);
    /* Threads leave the loop over chunks together: the weights of the next one overwrite those of this one. */
#pragma omp parallel num_threads(threads)
    for (int64_t column = 0; column < work.out; column += work.chunk) {
        int64_t columns = tt_smaller(work.chunk, work.out - column), nr = kernel->nr;
        int64_t panels = (columns + nr - 1) / nr;
#pragma omp for schedule(static)
        for (int64_t item = 0; item < work.pieces * panels; item++) {
            int64_t piece = item / panels, panel = item % panels, k = piece * PIECE;
            passes.weights(&work, column + panel * nr, k, tt_smaller(PIECE, work.in - k),
                           work.weights + piece * TT_TILE_POINTS * work.weight_step + panel * PIECE * nr);
        }
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < tasks; task++)
            run_task(&work, &passes, tt_cpu_scratch(stream, omp_get_thread_num()), task * work.task_tiles,
                     column, columns);
    }
}

#else

#include "backend/cpu/conv/winograd_passes.h"

/* One panel: `count` channels of x from k on, the outputs from `column` on; zeros beyond the last output. */
static void TT_PASS(transform_weights)(const struct work *work, int64_t column, int64_t k, int64_t count,
                                       float *to)
{
    const struct tt_winograd *problem = work->problem;
    bool bf16 = problem->x_PC.dtype == TT_BF16;
    int64_t nr = work->kernel->nr, valid = tt_smaller(nr, work->out - column);
    for (int64_t c = 0; c < count; c++, to += nr) {
        float taps[9][TT_GEMM_TILE_FLOATS / 8] = {{0}};
        for (int64_t o = 0; o < valid; o++) {
            int64_t at = (column + o) * problem->w_out + (k + c) * problem->w_in;
            for (int tap = 0; tap < 9; tap++) {
                int64_t from = at + (problem->flipped ? 8 - tap : tap);
                taps[tap][o] = bf16 ? tt_bf16_to_f32(((const uint16_t *)problem->w)[from])
                                    : ((const float *)problem->w)[from];
            }
        }
        for (int64_t lane = 0; lane < nr; lane += TT_VECTOR_LANES) {
            vf rows[3][TT_TILE_X], u[TT_TILE_X];
            for (int i = 0; i < 3; i++) {
                vf g[3];
                for (int j = 0; j < 3; j++) g[j] = vload(taps[i * 3 + j], lane, false);
                TT_PASS(weights_to_points)(g, rows[i]);
            }
            for (int j = 0; j < TT_TILE_X; j++) {
                const vf g[3] = {rows[0][j], rows[1][j], rows[2][j]};
                TT_PASS(weights_to_points)(g, u);
                for (int i = 0; i < TT_TILE_X; i++)
                    vstore(to + (i * TT_TILE_X + j) * work->weight_step, lane, false, u[i]);
            }
        }
    }
}

/* `count` channels of one tile. */
static void TT_PASS(transform_tile)(const struct work *work, int64_t tile, int64_t channel, int64_t count,
                                    float *to, int64_t step)
{
    TT_PASS(tile_to_points)(&work->tiles, &work->problem->x_PC, tile, channel, count, to, step, PIECE, 0);
}

/* One vector of a place of y. */
TT_INLINE void TT_PASS(finish_place)(const struct tt_winograd *problem, int64_t row, int64_t column,
                                     int64_t left, vf scale, vf bias, vf sum)
{
    const struct tt_gemm_epilogue *epilogue = &problem->epilogue;
    bool bf16 = problem->y_QO.dtype == TT_BF16;
    vf y = sum * scale + bias;
    if (epilogue->residual != NULL)
        y += vload_part(epilogue->residual, row * epilogue->residual_stride + column, bf16, left);
    if (epilogue->relu) y = vselect(y < vsplat(0.0f), vsplat(0.0f), y); /* NaN stays */
    vstore_part((void *)tt_tile_place(&problem->y_QO, row, column), 0, bf16, y, left);
}

/* The places of y of one tile and `count` channels from `column` on: sums[point * step]. */
static void TT_PASS(transform_sums)(const struct work *work, int64_t tile, const float *sums, int64_t step,
                                    int64_t column, int64_t count)
{
    const struct tt_winograd *problem = work->problem;
    const struct tt_gemm_epilogue *epilogue = &problem->epilogue;
    struct tt_tile_corner corner = tt_tile_corner_of(&work->tiles, tile);
    int64_t first = corner.image + corner.h * problem->width + corner.w;
    int64_t high = tt_smaller(TT_TILE_Y, problem->height - corner.h),
            wide = tt_smaller(TT_TILE_Y, problem->width - corner.w);
    for (int64_t c = 0; c < count; c += TT_VECTOR_LANES) {
        vf rows[TT_TILE_Y][TT_TILE_X], scale = vsplat(1.0f), bias = vsplat(0.0f);
        int64_t left = count - c;
        for (int j = 0; j < TT_TILE_X; j++) {
            vf m[TT_TILE_X], y[TT_TILE_Y];
            for (int i = 0; i < TT_TILE_X; i++) m[i] = vload(sums + (i * TT_TILE_X + j) * step, c, false);
            TT_PASS(to_places)(m, y);
            for (int i = 0; i < TT_TILE_Y; i++) rows[i][j] = y[i];
        }
        if (epilogue->scale != NULL) scale = vload_part(epilogue->scale, column + c, false, left);
        if (epilogue->bias != NULL) bias = vload_part(epilogue->bias, column + c, false, left);
        for (int64_t i = 0; i < high; i++) {
            vf y[TT_TILE_Y];
            TT_PASS(to_places)(rows[i], y);
            for (int64_t j = 0; j < wide; j++) TT_PASS(finish_place)
            (problem, first + i * problem->width + j, column + c, left, scale, bias, y[j]);
        }
    }
}

#endif
