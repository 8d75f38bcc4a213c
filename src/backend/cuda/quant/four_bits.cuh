/* Device code for segments of quantized matrices (tensor/quant.h): where their sections lie, and the numbers of 4-bit
 * codes. A thread decodes pieces of 8 weights, whose codes are a word. */
#ifndef TT_BACKEND_CUDA_QUANT_FOUR_BITS_CUH
#define TT_BACKEND_CUDA_QUANT_FOUR_BITS_CUH

#include "backend/cuda/cuda.h"
#include "tensor/quant.h"

namespace
{

enum { PIECE = 8 };

/* The sections of a segment. */
struct packed {
    const uint8_t *codes;
    const void *absmax;
    const float *nested_absmax, *map, *nested_map, *offset;
    int64_t first; /* index of the weight of the output's first element */
    int block_shift, nested_shift;
};

inline struct packed packed_of(const struct tt_quant_layout &layout, const tt_tensor &segment,
                               int64_t first_row)
{
    const uint8_t *data = static_cast<const uint8_t *>(segment.data);
    struct packed p = {};
    p.codes = data + layout.codes.offset;
    p.absmax = data + layout.absmax.offset;
    p.nested_absmax = reinterpret_cast<const float *>(data + layout.nested_absmax.offset);
    p.map = reinterpret_cast<const float *>(data + layout.map.offset);
    p.nested_map = reinterpret_cast<const float *>(data + layout.nested_map.offset);
    p.offset = reinterpret_cast<const float *>(data + layout.offset.offset);
    p.first = first_row * layout.cols;
    while (((int64_t)1 << p.block_shift) < layout.format.block) p.block_shift++;
    while (((int64_t)1 << p.nested_shift) < layout.format.nested_block) p.nested_shift++;
    return p;
}

struct scale {
    uint8_t code;
    float absmax; /* NESTED: absmax of the block of absmax codes */
};

template <bool NESTED>
__device__ __forceinline__ struct scale load_scale(const struct packed &p, int64_t weight)
{
    int64_t block = weight >> p.block_shift;
    struct scale s = {};
    if constexpr (NESTED) {
        s.code = static_cast<const uint8_t *>(p.absmax)[block];
        s.absmax = p.nested_absmax[block >> p.nested_shift];
    } else {
        s.absmax = static_cast<const float *>(p.absmax)[block];
    }
    return s;
}

/* Each operation is rounded on its own, as on the host. */
template <bool NESTED>
__device__ __forceinline__ float absmax_of(const struct scale &s, const float *nested_map, float offset)
{
    if constexpr (NESTED)
        return __fadd_rn(__fmul_rn(nested_map[s.code], s.absmax), offset);
    else
        return s.absmax;
}

/* The first weight is in the high half of a byte. */
__device__ __forceinline__ int code_of(uint32_t word, int i)
{
    return (int)(word >> (8 * (i / 2) + (i % 2 == 0 ? 4 : 0)) & 15u);
}

} // namespace

#endif
