/* The matrix product of the cpu device: a best-first list of variants, each able to decline with a reason; the last
 * takes everything. Which variant runs and how it splits the sums over k depends on the shape, the types and the
 * instruction set alone, never on the number of threads, which only share out whole elements of c.
 *
 * TRIMTAB_CPU_GEMM=onednn|dot|panels forces one variant (then a decline is TT_ERR_UNSUPPORTED): for tests and
 * measurements. */
#ifndef TT_BACKEND_CPU_GEMM_H
#define TT_BACKEND_CPU_GEMM_H

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/gemm_kernel.h"

enum {
    TT_GEMM_SHARED_FLOATS = 1 << 22, /* 16 MiB: packed panels of b, or the small operand of dot products */
};

struct tt_gemm_variant;
struct tt_onednn; /* cpu/onednn.h */

struct tt_gemm_state {
    const struct tt_gemm_kernel *kernel;
    float *shared; /* TT_GEMM_SHARED_FLOATS */
    const struct tt_gemm_variant *forced;
    struct tt_onednn *onednn; /* NULL when this build or processor gains nothing from it */
    uint64_t seen[256];       /* shapes whose variant has been logged, by hash */
};

/* c[m, n] = alpha * a * b + beta * c; every dimension at least 1. */
struct tt_gemm_problem {
    int64_t m, n, k;
    struct tt_gemm_source a; /* across m */
    struct tt_gemm_source b; /* across n */
    struct tt_gemm_target c;
    float alpha, beta;
};

struct tt_gemm_variant {
    const char *name;
    /* Computes, or sets *declined to the reason and leaves c as it is. */
    tt_status (*run)(struct tt_stream *stream, const struct tt_gemm_problem *problem, const char **declined);
};

/* oneDNN, where its kernels beat these (cpu/onednn.c). */
tt_status tt_gemm_onednn(struct tt_stream *stream, const struct tt_gemm_problem *problem, const char **declined);
/* Dot products against few rows, without packing: adapters' narrow sides, decoding (cpu/gemm_dot.c). */
tt_status tt_gemm_dot(struct tt_stream *stream, const struct tt_gemm_problem *problem, const char **declined);
/* Packed panels: everything (cpu/gemm_panels.c). */
tt_status tt_gemm_panels(struct tt_stream *stream, const struct tt_gemm_problem *problem, const char **declined);

TT_MUST_USE tt_status tt_gemm_state_create(struct tt_device *device, struct tt_gemm_state **out);
void tt_gemm_state_destroy(struct tt_gemm_state *state); /* takes NULL */
size_t tt_gemm_state_bytes(const struct tt_gemm_state *state);
/* "own matrix kernels" or "oneDNN 2.6.3 AMX"; returns `text`. */
const char *tt_gemm_state_name(const struct tt_gemm_state *state, char *text, size_t text_bytes);

static inline struct tt_gemm_state *tt_gemm_state_of(const struct tt_stream *stream)
{
    return tt_cpu_of(stream->device)->gemm;
}

/* The team for m * n * k multiplications. */
static inline int tt_gemm_threads(const struct tt_stream *stream, const struct tt_gemm_problem *problem)
{
    double useful = (double)problem->m * (double)problem->n * (double)problem->k / (1 << 18);
    int threads = stream->device->threads;
    if (useful >= threads) return threads;
    return useful < 2 ? 1 : (int)useful;
}

#endif
