/* The scratch of the plain kernels of scans (scan.cu), also for plans. */
#ifndef TT_BACKEND_CUDA_SCAN_H
#define TT_BACKEND_CUDA_SCAN_H

#include <stddef.h>
#include <stdint.h>

enum {
    TT_CUDA_SCAN_BLOCKS =
        32, /* thread blocks of the backward pass, each with a sequence of a value head at a time */
    TT_CUDA_SCAN_TILE = 32, /* rows and columns of a state are divided by it */
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

#endif
