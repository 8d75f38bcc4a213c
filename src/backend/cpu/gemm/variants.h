/* The matrix product of the cpu device. It has a list of variants, best first; a variant may decline with a
 * reason, and the last supports everything. The variant that runs, and how it splits the sums over k, depend on
 * the shape, the types and the instruction set alone, never on the number of threads: threads share out whole
 * elements of c.
 *
 * Why not a library: oneDNN's results for bf16 on AMX depend on the size of its team (2.6 and 3.2 split sums
 * over k by it). Called per block with one thread each, it uses slow code whenever a matrix is part of a larger
 * one. One core of a Sapphire Rapids, 2026-11: bf16 products of 1024 .. 4096 at 0.8 .. 1.3 TFLOP/s there and 1.1
 * .. 1.3 here, narrow ones of adapters at 0.1 .. 0.6 and 0.1 .. 0.8, a single row times 4096 x 4096 at 21 and 33
 * GB/s.
 *
 * cpu_gemm (dot, panels, pairs) forces one variant (a decline is then TT_ERR_UNSUPPORTED), for tests and
 * measurements. pairs means panels that use VDPBF16PS for bf16 even where that is slower. */
#ifndef TT_BACKEND_CPU_GEMM_VARIANTS_H
#define TT_BACKEND_CPU_GEMM_VARIANTS_H

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/gemm/kernel.h"

enum {
    TT_GEMM_SHARED_FLOATS = 1 << 22, /* 16 MiB: packed panels of b, or the small operand of dot products */
};

struct tt_gemm_variant;

struct tt_gemm_state {
    const struct tt_gemm_kernel *kernel;      /* supports all types */
    const struct tt_gemm_kernel *bf16_kernel; /* bf16 x bf16 only, faster; NULL when there is none */
    float *shared;                            /* TT_GEMM_SHARED_FLOATS */
    const struct tt_gemm_variant *forced;
    struct tt_gemm_kept *kept; /* NULL: none */
    uint64_t seen[256];        /* shapes whose variant has been logged, by hash */
};

/* A narrow product added to a wide one: c[:, first .. end] += a b, with a across m and b across those columns. */
struct tt_gemm_low {
    struct tt_gemm_source a, b;
    int64_t k, first, end;
};

/* Applied to the sums of a block before they are rounded: relu(sum * scale[n] + bias[n] + residual[m, n]). */
struct tt_gemm_epilogue {
    const float *scale, *bias; /* [n]; NULL: 1 and 0 */
    const void *residual;      /* c's type, rows `residual_stride` apart; NULL: 0 */
    int64_t residual_stride;
    bool relu;
};

/* c[m, n] = alpha * a * b + beta * addend + narrow products; every dimension at least 1. */
struct tt_gemm_problem {
    int64_t m, n, k;
    struct tt_gemm_source a; /* across m */
    struct tt_gemm_source b; /* across n */
    struct tt_gemm_target c;
    float alpha, beta;
    const struct tt_gemm_low *low; /* requires alpha = 1 */
    int low_count;
    const struct tt_gemm_epilogue *epilogue; /* for panels only; NULL: none. Requires alpha = 1, beta = 0 */
};

struct tt_gemm_variant {
    const char *name;
    /* Computes c; or sets *declined to the reason and leaves c unchanged. */
    tt_status (*run)(struct tt_stream *stream, const struct tt_gemm_problem *problem, const char **declined);
};

/* Dot products against few rows, without packing: adapters' narrow sides, decoding (dot.c). */
tt_status tt_gemm_dot(struct tt_stream *stream, const struct tt_gemm_problem *problem, const char **declined);
/* Packed panels: any problem (panels.c). */
tt_status tt_gemm_panels(struct tt_stream *stream, const struct tt_gemm_problem *problem,
                         const char **declined);

/* The rows of c that tt_gemm_dot takes. */
int64_t tt_gemm_dot_rows_max(const struct tt_gemm_state *state, const struct tt_gemm_problem *problem);
/* Floats of the panels of a matrix that are kept for a product like `problem`; 0: none are. */
int64_t tt_gemm_kept_floats(const struct tt_gemm_kernel *kernel, const struct tt_gemm_problem *problem);

/* Whether packed panels compute the narrow products together with the wide one. They are a few more steps along
 * k; c is not read and rounded again. */
bool tt_gemm_takes_low(const struct tt_gemm_state *state, const struct tt_gemm_problem *problem);

/* Runs the first variant that does not decline. */
TT_MUST_USE tt_status tt_gemm_run(struct tt_stream *stream, const struct tt_gemm_problem *problem);
struct tt_gemm_source tt_gemm_source_of(tt_tensor matrix, bool k_contiguous);

TT_MUST_USE tt_status tt_gemm_state_create(struct tt_device *device, struct tt_gemm_state **out);
/* Keeps panels (kept.h) from now on; `memory` NULL: no more. */
struct tt_kept_range;
TT_MUST_USE tt_status tt_gemm_state_keep(struct tt_gemm_state *state, void *memory, size_t bytes,
                                         const struct tt_kept_range *ranges, size_t count);
void tt_gemm_state_destroy(struct tt_gemm_state *state); /* takes NULL */
static inline struct tt_gemm_state *tt_gemm_state_of(const struct tt_stream *stream)
{
    return tt_cpu_of(stream->device)->gemm;
}

static inline const struct tt_gemm_kernel *tt_gemm_kernel_for(const struct tt_gemm_state *state,
                                                              const struct tt_gemm_problem *problem)
{
    bool bf16 = problem->a.dtype == TT_BF16 && problem->b.dtype == TT_BF16;
    return bf16 && state->bf16_kernel != NULL ? state->bf16_kernel : state->kernel;
}

/* The number of threads for m * n * k multiplications. */
static inline int tt_gemm_threads(const struct tt_stream *stream, const struct tt_gemm_problem *problem)
{
    double useful = (double)problem->m * (double)problem->n * (double)problem->k / (1 << 18);
    int threads = stream->device->threads;
    if (useful >= threads) return threads;
    return useful < 2 ? 1 : (int)useful;
}

#endif
