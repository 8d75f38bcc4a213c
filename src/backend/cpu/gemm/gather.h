/* Operands of a product that are not stored as matrices: the patches of images that a convolution multiplies, and its
 * weights with their elements in the patches' order. Panels are packed from them piece by piece, so no matrix of
 * patches is ever made (implicit im2col; Chetlur et al. 2014, arXiv 1410.0759).
 *
 * A row has taps_h * taps_w * channels elements, channels fastest. An image's rows are the places (n, i, j) of a grid;
 * element (h, w, c) is channel c of the pixel (first_h + i * step + h * tap_step, first_w + j * step + w * tap_step) of
 * image n, or zero outside. Row r of weights has it at first + r * row + h * tap_h + w * tap_w + c * channel.
 * Rows run along k (source.k_contiguous), or along the other dimension. */
#ifndef TT_BACKEND_CPU_GEMM_GATHER_H
#define TT_BACKEND_CPU_GEMM_GATHER_H

#include "backend/cpu/gemm/variants.h"

struct tt_gemm_gather {
    bool is_image;
    int64_t channels, taps_h, taps_w;
    /* images: `pixel` elements from pixel to pixel */
    int64_t grid_h, grid_w, height, width, pixel;
    int64_t step, tap_step, first_h, first_w;
    /* weights */
    int64_t first, row, tap_h, tap_w, channel;
};

enum {
    TT_GEMM_STRIP_K = 64, /* of a piece; a multiple of every kernel's k_unit */
    TT_GEMM_STRIP_WIDTH = 32,
    TT_GEMM_STRIP_FLOATS = TT_GEMM_STRIP_K * TT_GEMM_STRIP_WIDTH,
};

/* Copies elements first .. first + width across (zeros beyond source->across are the packer's) and k_first ..
 * k_first + k along into `strip`, and returns it as a stored matrix. k <= TT_GEMM_STRIP_K, width <=
 * TT_GEMM_STRIP_WIDTH. */
struct tt_gemm_source tt_gemm_gather(const struct tt_gemm_source *source, float *strip, int64_t first,
                                     int width, int64_t k_first, int64_t k);

/* Applies the epilogue to sums[i * stride + j], the element (row + i, column + j) of c. */
void tt_gemm_apply_epilogue(const struct tt_gemm_epilogue *epilogue, tt_dtype dtype, float *sums,
                            int64_t stride, int64_t row, int64_t rows, int64_t column, int64_t columns);

#endif
