/* The scratch of scans on GPUs, also for plans: of the plain kernels (scan.cu), and of those by chunks (scan/). */
#ifndef TT_BACKEND_CUDA_SCAN_H
#define TT_BACKEND_CUDA_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TT_CUDA_SCAN_BLOCKS =
        32, /* thread blocks of the backward pass, each with a sequence of a value head at a time */
    TT_CUDA_SCAN_TILE = 32, /* rows and columns of a state are divided by it */
    /* The kernels by chunks: */
    TT_CUDA_SCAN_WIDTH = 128,      /* rows of a state; its columns are 64 or 128 */
    TT_CUDA_SCAN_FACTORS = 2048,   /* bytes of the factors of a chunk's rows */
    TT_CUDA_SCAN_MEGABYTES = 1536, /* of a pass, unless the value heads of a key head have more */
};

/* Floats of the state of E x W in whole tiles. */
static inline int64_t tt_cuda_scan_state(int64_t width, int64_t value_width)
{
    const int64_t tile = TT_CUDA_SCAN_TILE;
    return (width + tile - 1) / tile * ((value_width + tile - 1) / tile) * tile * tile;
}

/* Floats of a thread block of the backward pass: the states before the rows of a chunk, and v - k S of these. */
static inline int64_t tt_cuda_scan_block(int64_t chunk, int64_t width, int64_t value_width)
{
    return chunk * (tt_cuda_scan_state(width, value_width) + value_width);
}

struct tt_scan_forward_args;

/* The scratch of a pass by chunks: a part for each quantity of chunks and value heads, in bytes from its start. */
struct tt_cuda_scan_parts {
    int64_t slots; /* places of chunks: those of sequence b begin with cu[b] / TT_SCAN_CHUNK + b */
    int64_t pass;  /* value heads at a time: whole groups of a key head */
    int64_t m, p, p_rest, factors, states, next, fresh, dn, rates;
    size_t bytes;
};
struct tt_cuda_scan_parts tt_cuda_scan_parts_of(const struct tt_scan_forward_args *args, bool backward);

/* Whether scans of these types and sizes run by chunks, as long as their rows are aligned to 16 bytes. */
bool tt_cuda_scan_has_chunks(const struct tt_scan_forward_args *args);

#ifdef __cplusplus
}
#endif

#endif
