/* The gradient of the weight of a 3 x 3 convolution by Winograd's algorithm. */
#ifndef TT_VECTOR_LANES

/* The gradient of the weights: the transpose of the forward algorithm. As many tiles of x and of dz as fit into the
 * shared memory are transformed to 36 points at a time; at each of them dz^T x is summed over these tiles; the sums are
 * transformed to 9 taps and added to dw. A task of the sums has a block of the channels of dz and of x. */
#include <assert.h>
#include <omp.h>
#include <stddef.h>

#include "backend/cpu/conv/winograd.h"
#include "backend/cpu/conv/winograd_tiles.h"
#include "base/integer.h"

enum {
    OUT_BLOCK = 56,              /* channels of dz of a task, */
    IN_BLOCK = TT_TILE_CHANNELS, /* and of x */
    RUN_LEAST = 28,              /* tiles summed at a time: with fewer the transform to taps takes too long */
    RUN_MOST = 256,
    PIECE = 32, /* tiles of one sum; sums of pieces are added, which has less error than one long sum */
    /* The sums of the direct product are, with fewer, so short that it has a third of the error. */
    LEAST_PLACES = 2048,
    LEAST_CHANNELS = 32, /* with fewer blocks are mostly padding */
};

/* The arguments of the passes. */
struct work {
    const struct tt_conv2d_backward_weight_args *args;
    struct tt_tiles tiles;
    int64_t mr, nr, in, out;
    int64_t run;                   /* tiles at a time */
    int64_t out_panels, in_panels; /* of a task */
    int64_t a_panel, b_panel;      /* floats from panel to panel: `run` rows of mr channels of dz, nr of x */
    int64_t a_step, b_step, sums_step; /* from point to point */
    float *a, *b;                      /* the panels of all channels of dz and of x */
};

/* The first channels of a task's blocks, and how many there are. */
struct block {
    int64_t out, out_count, in, in_count;
};

#define TT_VECTOR_SOURCE "backend/cpu/conv/winograd_weight.c"
#include "backend/cpu/vector_math_passes.h"

static int64_t round_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b * b;
}

/* Lays the panels out for as many tiles as fit; false when too few do. */
static bool lay_out(struct work *work, const struct tt_gemm_kernel *kernel)
{
    work->mr = kernel->mr;
    work->nr = kernel->nr;
    work->out_panels = OUT_BLOCK / kernel->mr;
    work->in_panels = IN_BLOCK / kernel->nr;
    int64_t rows = round_up(work->out, work->out_panels * work->mr),
            columns = round_up(work->in, work->in_panels * work->nr);
    int64_t fixed = rows / work->mr * TT_GEMM_PANEL_SLACK + 2 * TT_TILE_PAD;
    work->run = (TT_GEMM_SHARED_FLOATS / TT_TILE_POINTS - fixed) / (rows + columns);
    work->run = tt_smaller(work->run, RUN_MOST);
    /* the last row of a panel is a whole vector */
    work->a_panel = work->run * work->mr + TT_GEMM_PANEL_SLACK;
    work->b_panel = work->run * work->nr;
    work->a_step = rows / work->mr * work->a_panel + TT_TILE_PAD;
    work->b_step = columns / work->nr * work->b_panel + TT_TILE_PAD;
    work->sums_step = work->out_panels * work->in_panels * work->mr * work->nr + TT_TILE_PAD;
    return work->run >= RUN_LEAST;
}

bool tt_winograd_takes_weight(const struct tt_stream *stream, const struct tt_conv_geometry *geometry,
                              tt_dtype dtype, int64_t in, int64_t out)
{
    const struct tt_gemm_state *state = tt_gemm_state_of(stream);
    struct work work = {.in = in, .out = out};
    if (state->forced != NULL) return false;
    if (dtype == TT_BF16 && tt_cpu_isa(stream) >= TT_CPU_AMX) return false;
    return geometry->kernel == 3 && geometry->stride == 1 && geometry->padding == 1 && in >= LEAST_CHANNELS &&
           out >= LEAST_CHANNELS && tt_conv_pixels(geometry) >= LEAST_PLACES && lay_out(&work, state->kernel);
}

typedef void tiles_pass(const struct work *, const struct block *, int64_t tile, int64_t row);
typedef void taps_pass(const struct work *, const struct block *, const float *sums);

struct passes {
    tiles_pass *dz, *x;
    taps_pass *taps;
};

/* One tile of sums, in runs of PIECE. */
static void multiply_tile(const struct tt_gemm_kernel *kernel, struct tt_gemm_tile *tile, int64_t run)
{
    for (int64_t done = 0; done < run; done += PIECE) {
        tile->k = tt_smaller(PIECE, run - done);
        tile->beta = done == 0 ? 0.0f : 1.0f;
        kernel->tile(tile);
        tile->a += PIECE * kernel->mr;
        tile->b += PIECE * kernel->nr;
    }
}

/* The products of `run` tiles: sums of [panel of x][panel of dz][mr][nr], for each point. */
static void multiply(const struct work *work, const struct tt_gemm_kernel *kernel, const struct block *block,
                     int64_t run, float *sums)
{
    const float *a = work->a + block->out / work->mr * work->a_panel;
    const float *b = work->b + block->in / work->nr * work->b_panel;
    for (int64_t point = 0; point < TT_TILE_POINTS; point++, a += work->a_step, b += work->b_step) {
        float *to = sums + point * work->sums_step;
        for (int64_t j = 0; j * work->nr < block->in_count; j++)
            for (int64_t i = 0; i * work->mr < block->out_count; i++) {
                struct tt_gemm_tile tile = {
                    .a = a + i * work->a_panel,
                    .b = b + j * work->b_panel,
                    .alpha = 1.0f,
                    .to = to + (j * work->out_panels + i) * work->mr * work->nr,
                    .stride = work->nr,
                    .rows = tt_smaller(work->mr, block->out_count - i * work->mr),
                    .columns = tt_smaller(work->nr, block->in_count - j * work->nr),
                    .ahead = a + i * work->a_panel + work->a_step,
                };
                multiply_tile(kernel, &tile, run);
            }
    }
}

/* Block `index` of the channels of dz or of x. */
static struct block block_of(const struct work *work, int64_t out, int64_t in)
{
    int64_t out_block = work->out_panels * work->mr, in_block = work->in_panels * work->nr;
    struct block block = {.out = out * out_block, .in = in * in_block};
    block.out_count = tt_smaller(out_block, work->out - block.out);
    block.in_count = tt_smaller(in_block, work->in - block.in);
    return block;
}

/* Tiles first .. first + run of a block of dz or of x, in order. */
static void pack(const struct work *work, tiles_pass *pass, const struct block *block, int64_t first,
                 int64_t run)
{
    for (int64_t row = 0; row < run; row++) pass(work, block, first + row, row);
}

void tt_winograd_run_weight(struct tt_stream *stream, const struct tt_conv2d_backward_weight_args *args)
{
    const struct tt_gemm_state *state = tt_gemm_state_of(stream);
    const struct passes passes = {TT_BEST(stream, transform_dz), TT_BEST(stream, transform_x),
                                  TT_BEST(stream, transform_taps)};
    const struct tt_conv_geometry *geometry = &args->geometry;
    struct work work = {.args = args,
                        .tiles = tt_tiles_of(geometry->images, geometry->height, geometry->width),
                        .in = args->x_PC.dims[1],
                        .out = args->dz_QO.dims[1],
                        .a = state->shared};
    bool fits = lay_out(&work, state->kernel);
    assert(fits && TT_TILE_POINTS * work.sums_step <= TT_CPU_SCRATCH_BYTES / (int64_t)sizeof(float));
    (void)fits;
    work.b = work.a + TT_TILE_POINTS * work.a_step;
    int64_t outs = round_up(work.out, work.out_panels * work.mr) / (work.out_panels * work.mr);
    int64_t ins = round_up(work.in, work.in_panels * work.nr) / (work.in_panels * work.nr);
    int threads = (int)tt_smaller(stream->device->threads, outs * ins);
#pragma omp parallel num_threads(threads)
    for (int64_t first = 0; first < work.tiles.count; first += work.run) {
        int64_t run = tt_smaller(work.run, work.tiles.count - first);
#pragma omp for schedule(dynamic)
        for (int64_t item = 0; item < outs + ins; item++) {
            struct block block = block_of(&work, item < outs ? item : 0, item < outs ? 0 : item - outs);
            pack(&work, item < outs ? passes.dz : passes.x, &block, first, run);
        }
#pragma omp for schedule(dynamic)
        for (int64_t task = 0; task < outs * ins; task++) {
            struct block block = block_of(&work, task / ins, task % ins);
            float *sums = tt_cpu_scratch(stream, omp_get_thread_num());
            multiply(&work, state->kernel, &block, run, sums);
            passes.taps(&work, &block, sums);
        }
    }
}

#else

#include "backend/cpu/conv/winograd_passes.h"

/* Row `row` of the panels of x: one tile. */
static void TT_PASS(transform_x)(const struct work *work, const struct block *block, int64_t tile,
                                 int64_t row)
{
    float *to = work->b + block->in / work->nr * work->b_panel;
    TT_PASS(tile_to_points)
    (&work->tiles, &work->args->x_PC, tile, block->in, block->in_count, to + row * work->nr, work->b_step,
     work->nr, work->b_panel);
}

TT_INLINE void TT_PASS(dz_channels)(const void *const places[TT_TILE_Y * TT_TILE_Y], bool bf16,
                                    int64_t channel, int64_t left, float *to, int64_t step)
{
    vf rows[TT_TILE_Y][TT_TILE_X], m[TT_TILE_X];
    for (int i = 0; i < TT_TILE_Y; i++) {
        vf y[TT_TILE_Y];
        for (int j = 0; j < TT_TILE_Y; j++) y[j] = vload_part(places[i * TT_TILE_Y + j], channel, bf16, left);
        TT_PASS(from_places)(y, rows[i]);
    }
    for (int j = 0; j < TT_TILE_X; j++) {
        const vf y[TT_TILE_Y] = {rows[0][j], rows[1][j], rows[2][j], rows[3][j]};
        TT_PASS(from_places)(y, m);
        for (int i = 0; i < TT_TILE_X; i++) vstore(to + (i * TT_TILE_X + j) * step, 0, false, m[i]);
    }
}

/* Row `row` of the panels of dz. Stores are whole vectors: what exceeds a panel's row is overwritten by the next row,
 * so rows are made in order. */
static void TT_PASS(transform_dz)(const struct work *work, const struct block *block, int64_t tile,
                                  int64_t row)
{
    float *to = work->a + block->out / work->mr * work->a_panel;
    const tt_tensor *dz = &work->args->dz_QO;
    const void *places[TT_TILE_Y * TT_TILE_Y];
    struct tt_tile_corner corner = tt_tile_corner_of(&work->tiles, tile);
    tt_tile_places(&work->tiles, dz, corner.image, corner.h, corner.w, TT_TILE_Y, block->out, places);
    for (int64_t panel = 0; panel * work->mr < block->out_count; panel++) {
        int64_t end = tt_smaller(block->out_count, (panel + 1) * work->mr);
        for (int64_t c = panel * work->mr; c < end; c += TT_VECTOR_LANES) {
            float *at = to + panel * work->a_panel + row * work->mr + c - panel * work->mr;
            if (dz->dtype == TT_BF16)
                TT_PASS(dz_channels)(places, true, c, end - c, at, work->a_step);
            else
                TT_PASS(dz_channels)(places, false, c, end - c, at, work->a_step);
        }
    }
}

/* Adds the sums of a block to dw. */
static void TT_PASS(transform_taps)(const struct work *work, const struct block *block, const float *sums)
{
    tt_tensor dw = work->args->dw_OK;
    for (int64_t o = 0; o < block->out_count; o++)
        for (int64_t c = 0; c < block->in_count; c += TT_VECTOR_LANES) {
            int64_t panel = c / work->nr * work->out_panels + o / work->mr;
            const float *from = sums + (panel * work->mr + o % work->mr) * work->nr + c % work->nr;
            vf rows[3][TT_TILE_X], g[3];
            for (int j = 0; j < TT_TILE_X; j++) {
                vf u[TT_TILE_X];
                for (int i = 0; i < TT_TILE_X; i++)
                    u[i] = vload(from + (i * TT_TILE_X + j) * work->sums_step, 0, false);
                TT_PASS(weights_from_points)(u, g);
                for (int i = 0; i < 3; i++) rows[i][j] = g[i];
            }
            float taps[9][TT_VECTOR_LANES];
            for (int i = 0; i < 3; i++) {
                TT_PASS(weights_from_points)(rows[i], g);
                for (int j = 0; j < 3; j++) vstore(taps[i * 3 + j], 0, false, g[j]);
            }
            float *to = (float *)dw.data + (block->out + o) * dw.strides[0] + (block->in + c) * 9;
            int64_t some = tt_smaller(TT_VECTOR_LANES, block->in_count - c);
            for (int64_t k = 0; k < some; k++)
                for (int tap = 0; tap < 9; tap++) to[k * 9 + tap] += taps[tap][k];
        }
}

#endif
