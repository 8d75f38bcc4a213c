/* Small kernels around attention: the offsets of a packed batch for cuDNN, and the parts of the self-check. */
#ifndef TT_BACKEND_CUDA_ATTENTION_OFFSETS_H
#define TT_BACKEND_CUDA_ATTENTION_OFFSETS_H

#ifdef __cplusplus
extern "C" {
#endif

#include <cuda_runtime.h>
#include <stdint.h>

enum { TT_CUDA_OFFSETS_MAX = 8 };

/* offsets[r][b] = cu[min(b, sequences)] * strides[r] for b = 0 .. bucket; lengths[b] = cu[b+1] - cu[b], and 0
 * for b >= sequences. So the sequences that only fill the bucket are empty and follow the last real one. */
struct tt_cuda_offsets {
    const int32_t *cu; /* [sequences + 1], device */
    int sequences, bucket;
    int count;
    int64_t strides[TT_CUDA_OFFSETS_MAX];
    int64_t *offsets[TT_CUDA_OFFSETS_MAX]; /* [bucket + 1] each */
    int32_t *lengths;                      /* [bucket] */
};
cudaError_t tt_cuda_attention_offsets(cudaStream_t stream, const struct tt_cuda_offsets *args);

/* Copies bf16 matrices of `rows` rows into matrices with other row strides. Strides and columns are in elements
 * and multiples of 8; all pointers are 16-byte aligned. */
struct tt_cuda_moves {
    int count;
    int64_t rows;
    struct {
        const void *from;
        void *to;
        int64_t from_stride, to_stride, columns;
    } moves[3];
};
cudaError_t tt_cuda_attention_move(cudaStream_t stream, const struct tt_cuda_moves *args);

/* [rows, columns] fp32 -> [columns, rows]. */
cudaError_t tt_cuda_attention_transpose(cudaStream_t stream, const float *from, float *to, int64_t rows,
                                        int64_t columns);

/* Fills `data` with bf16 values in (-1.7, 1.7) with a variance of about 1, a pure function of seed and index. */
cudaError_t tt_cuda_attention_noise(cudaStream_t stream, void *data, int64_t count, uint32_t seed);
/* sums[0] += |a - b|^2, sums[1] += |b|^2 over [rows, columns] bf16; the caller zeroes sums (device memory). */
cudaError_t tt_cuda_attention_distance(cudaStream_t stream, const void *a, int64_t a_stride, const void *b,
                                       int64_t b_stride, int64_t rows, int64_t columns, double sums[2]);

#ifdef __cplusplus
}
#endif

#endif
