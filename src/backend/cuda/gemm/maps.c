#include "backend/cuda/gemm/maps.h"

typedef CUresult (*encode_function)(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                    void *address, const cuuint64_t *dims, const cuuint64_t *strides,
                                    const cuuint32_t *box, const cuuint32_t *element_strides,
                                    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

void *tt_cuda_map_encoder(void)
{
    enum cudaDriverEntryPointQueryResult found;
    void *function = NULL;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                         &found) == cudaSuccess &&
        found == cudaDriverEntryPointSuccess)
        return function;
    cudaGetLastError();
    return NULL;
}

static tt_status encode(const struct tt_cuda_gemm *gemm, tt_tensor tensor, cuuint32_t rank,
                        const cuuint64_t *dims, int64_t row, int rows, CUtensorMap *map)
{
    cuuint32_t bytes = (cuuint32_t)tt_dtype_bytes(tensor.dtype);
    cuuint64_t row_bytes = (cuuint64_t)row * bytes, strides[2] = {row_bytes, row_bytes * dims[1]};
    cuuint32_t box[3] = {128 / bytes, (cuuint32_t)rows, 1}, every[3] = {1, 1, 1};
    char text[96];
    CUresult made = ((encode_function)gemm->encode)(
        map, bytes == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, tensor.data,
        dims, strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (made == CUDA_SUCCESS) return TT_OK;
    return tt_fail(TT_ERR_DEVICE, "no tensor map of %s, rows %lld elements apart: driver error %d",
                   tt_tensor_format(tensor, text, sizeof text), (long long)row, (int)made);
}

tt_status tt_cuda_map_matrix(const struct tt_cuda_gemm *gemm, tt_tensor matrix, int rows, CUtensorMap *map)
{
    const cuuint64_t dims[2] = {(cuuint64_t)matrix.dims[1], (cuuint64_t)matrix.dims[0]};
    return encode(gemm, matrix, 2, dims, tt_cuda_map_row(matrix), rows, map);
}

tt_status tt_cuda_map_matrices(const struct tt_cuda_gemm *gemm, tt_tensor matrices, int rows,
                               CUtensorMap *map)
{
    const cuuint64_t dims[3] = {(cuuint64_t)matrices.dims[2], (cuuint64_t)matrices.dims[1],
                                (cuuint64_t)matrices.dims[0]};
    return encode(gemm, matrices, 3, dims, matrices.dims[2], rows, map);
}
