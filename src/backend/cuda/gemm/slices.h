/* The shape of grids whose thread blocks share the columns of a matrix and slices of its rows. */
#ifndef TT_BACKEND_CUDA_GEMM_SLICES_H
#define TT_BACKEND_CUDA_GEMM_SLICES_H

#include <math.h>

/* The number of slices, 1 to `most`, for `across` thread blocks along the columns. A GPU that runs `at_once` blocks
 * shall be busy for at least `turns_min` turns and until the end. More slices than necessary cost time: each has to
 * read the factors that it keeps, or to add up its sums. */
static inline int tt_cuda_slices(int across, int most, int at_once, double turns_min)
{
    int slices = 1;
    double best = 0;
    for (int s = 1; s <= most && best < 0.95; s++) {
        double turns = (double)across * s / at_once, busy = turns / ceil(turns);
        if (busy > best && (turns >= turns_min || s == most)) best = busy, slices = s;
    }
    return slices;
}

#endif
