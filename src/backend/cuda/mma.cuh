/* Tensor cores through mma.sync, compute capability 8.0 and up: m16n8k16 in bf16 with sums in fp32 (PTX ISA, section
 * "Matrix Fragments for mma.m16n8k16"). Lane l, with g = l / 4 and t = l % 4, holds
 *   a [16, 16]: words 0, 1: columns 2t, 2t + 1 of rows g and g + 8; words 2, 3: columns 2t + 8, 2t + 9 of the same rows
 *   b [16, 8]:  words 0, 1: rows 2t, 2t + 1 and 2t + 8, 2t + 9 of column g
 *   c [16, 8]:  0, 1: columns 2t, 2t + 1 of row g; 2, 3: of row g + 8 */
#ifndef TT_BACKEND_CUDA_MMA_CUH
#define TT_BACKEND_CUDA_MMA_CUH

#include <stdint.h>

static __device__ __forceinline__ uint32_t shared_address(const void *data)
{
    return (uint32_t)__cvta_generic_to_shared(data);
}

/* Loads four 8 x 8 pieces from shared memory: lane l gives the address of row l % 8 of piece l / 8. */
static __device__ __forceinline__ void load_pieces(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

static __device__ __forceinline__ void load_pieces_transposed(uint32_t (&r)[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

/* c += a b */
static __device__ __forceinline__ void multiply_piece(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                      uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ uint32_t pack_bf16(float low, float high)
{
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

/* Copies 16 bytes asynchronously; writes zeros and reads nothing when not `valid`. */
static __device__ __forceinline__ void copy_16(uint32_t to, const void *from, bool valid)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
}

static __device__ __forceinline__ void copy_4(uint32_t to, const void *from, bool valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid ? 4 : 0)
                 : "memory");
}

static __device__ __forceinline__ void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until all groups of the thread but the last LEFT are complete. */
template <int LEFT = 0> static __device__ __forceinline__ void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#endif
