#include "backend/cuda/attention/wide.h"

/* cuTensorMapEncodeTiled, found at run time: the plugin does not link the driver. */
typedef CUresult (*encode_function)(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
                                    void *address, const cuuint64_t *dims, const cuuint64_t *strides,
                                    const cuuint32_t *box, const cuuint32_t *element_strides,
                                    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

static encode_function find_encode()
{
    enum cudaDriverEntryPointQueryResult found;
    void *function = NULL;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                         &found) == cudaSuccess &&
        found == cudaDriverEntryPointSuccess)
        return (encode_function)function;
    cudaGetLastError();
    return NULL;
}

static tt_status map_rows(const tt_attention_view &view, int64_t rows, int heads, int head_dim,
                          CUtensorMap *map)
{
    static const encode_function encode = find_encode();
    if (encode == NULL) return tt_fail(TT_ERR_DEVICE, "the driver makes no tensor maps");
    cuuint64_t dims[3] = {(cuuint64_t)head_dim, (cuuint64_t)heads, (cuuint64_t)rows};
    cuuint64_t strides[2] = {(cuuint64_t)view.head * 2, (cuuint64_t)view.token * 2};
    cuuint32_t box[3] = {64, 1, 32}, every[3] = {1, 1, 1};
    CUresult made = encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, view.data, dims, strides, box, every,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (made == CUDA_SUCCESS) return TT_OK;
    return tt_fail(
        TT_ERR_DEVICE,
        "no tensor map of %lld rows of %d heads of %d, %lld and %lld elements apart: driver error %d",
        (long long)rows, heads, head_dim, (long long)view.token, (long long)view.head, (int)made);
}

static tt_status map_inputs(const tt_attention_problem &p, tt_wide_params *params)
{
    params->problem = p;
    TT_TRY(map_rows(p.q, p.rows_q, p.heads, p.head_dim, &params->q));
    TT_TRY(map_rows(p.k, p.rows_k, p.kv_heads, p.head_dim, &params->k));
    return map_rows(p.v, p.rows_k, p.kv_heads, p.head_dim, &params->v);
}

tt_status tt_attention_wide_forward(const tt_attention_problem *problem, cudaStream_t stream)
{
    tt_wide_params params;
    TT_TRY(map_inputs(*problem, &params));
    tt_attention_wide_launch_forward(&params, stream);
    return TT_OK;
}

tt_status tt_attention_wide_backward(const tt_attention_problem *problem, cudaStream_t stream)
{
    tt_wide_params params;
    TT_TRY(map_inputs(*problem, &params));
    TT_TRY(map_rows(problem->go, problem->rows_q, problem->heads, problem->head_dim, &params.go));
    tt_attention_wide_launch_dq(&params, stream);
    tt_attention_wide_launch_dv(&params, stream);
    tt_attention_wide_launch_dk(&params, stream);
    return TT_OK;
}
