/* The innermost functions of the matrix product, one set per instruction set. Their one source is
 * kernel.inc; the files <isa>.c compile it with their register tile and their compiler options
 * (cmake/backends.cmake). */
#ifndef TT_BACKEND_CPU_GEMM_KERNEL_H
#define TT_BACKEND_CPU_GEMM_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/dtype.h"

struct tt_gemm_gather;

/* The source of a panel: a matrix with one dimension along k and the other across the panel. */
struct tt_gemm_source {
    const void *data; /* f32 or bf16 */
    tt_dtype dtype;
    int64_t stride;                      /* elements between stored rows */
    bool k_contiguous;                   /* stored rows run along k; else across the panel */
    int64_t across;                      /* elements across, of all panels together */
    const struct tt_gemm_gather *gather; /* NULL: a stored matrix; else gather.h, for panels only */
};

/* One output block: rows of f32 or bf16. */
struct tt_gemm_target {
    void *data;
    tt_dtype dtype;
    int64_t stride;
    const void *addend; /* beta is its factor; in the layout of c; NULL: c itself */
    /* Rows in a grid, for panels only: row r is at r / (run * runs) * group_stride + r / run % runs * run_stride +
     * r % run * stride. 0: all rows are `stride` apart. */
    int64_t run, runs, run_stride, group_stride;
};

/* to[i][j] = alpha * sum_k a[k][i] * b[k][j] + beta * to[i][j] for i < mr and j < nr; with beta = 0 `to` is not
 * read. Only the first rows x columns of the result are used, but there is memory for the whole tile. */
struct tt_gemm_tile {
    int64_t k;
    const float *a, *b; /* panels */
    float alpha, beta;
    float *to;
    int64_t stride;
    int64_t rows, columns;
    const void *ahead; /* memory of the next tiles, prefetched meanwhile; never NULL */
};

enum {
    TT_GEMM_PANEL_SLACK = 16, /* floats after each panel that packing may overwrite */
    TT_GEMM_PACK_K = 32, /* rows stored across k are packed in steps of this many k, through all panels */
    TT_GEMM_TILE_FLOATS = 32 * 32, /* the largest mr * nr */
    TT_GEMM_DOT_ROWS_F32 = 6,      /* rows of each kind in one dot tile: the limit of sixteen registers */
    TT_GEMM_DOT_ROWS_BF16 = 5,
    TT_GEMM_DOT_SMALLS = 2,
};

/* The index of element k in a stored small row: in each sixteen the even elements precede the odd ones. */
static inline int64_t tt_gemm_even_first(int64_t k)
{
    return (k & ~(int64_t)15) + (k & 1) * 8 + ((k & 15) >> 1);
}

struct tt_gemm_kernel {
    int mr, nr;           /* the register tile */
    int block_k;          /* number of k for which a panel of b fits the first-level cache */
    int k_unit;           /* panels hold a multiple of this many k, padded with zeros */
    tt_dtype panel_dtype; /* F32, for any operands; or BF16, for bf16 operands only */

    /* Called before and after the calls of `tile` in one thread; NULL: nothing to do. */
    void (*enter)(void);
    void (*leave)(void);

    void (*tile)(const struct tt_gemm_tile *args);

    /* Packs a panel `to` of width mr or nr: elements first .. first + width across, k_first .. k_first + k
     * along, with zeros beyond the matrix. F32: to[k][width]. */
    void (*pack_a)(float *to, const struct tt_gemm_source *source, int64_t first, int64_t k_first, int64_t k);
    void (*pack_b)(float *to, const struct tt_gemm_source *source, int64_t first, int64_t k_first, int64_t k);

    /* c[row + i, column + j] = alpha * sum[i * sum_stride + j] + beta * c[..], rounded once; with beta = 0 the
     * addend is not read. */
    void (*finish)(const struct tt_gemm_target *c, int64_t row, int64_t column, const float *sum,
                   int64_t sum_stride, int64_t rows, int64_t columns, float alpha, float beta);

    /* sums[r * sums_row + s * sums_small] += streamed[row + r][k_first .. +k) . small[s][0 .. k) for r < rows,
     * at most TT_GEMM_DOT_ROWS_<type>, and s < smalls <= 2. `small` rows are floats, `small_stride` apart,
     * padded with zeros to a multiple of 16, and for a bf16 `streamed` in the order of tt_gemm_even_first.
     * k_first is a multiple of 16. The memory `ahead` bytes after the first row is prefetched. Kernels with F32
     * panels only. */
    void (*dot)(const struct tt_gemm_source *streamed, int64_t row, int rows, const float *small,
                int64_t small_stride, int smalls, int64_t k_first, int64_t k, int64_t ahead, float *sums,
                int64_t sums_row, int64_t sums_small);
};

extern const struct tt_gemm_kernel tt_gemm_kernel_portable;
#if defined(__x86_64__)
extern const struct tt_gemm_kernel tt_gemm_kernel_avx2;
extern const struct tt_gemm_kernel tt_gemm_kernel_avx512;
extern const struct tt_gemm_kernel tt_gemm_kernel_avx512_bf16; /* VDPBF16PS */
extern const struct tt_gemm_kernel tt_gemm_kernel_amx;

/* Asks the operating system for the use of AMX's tiles of bf16; true when it and the processor support them. */
bool tt_gemm_amx_request(void);
#endif

#endif
