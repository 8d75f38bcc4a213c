/* Instructions of Hopper (PTX ISA 8.0, sm_90a): barriers in shared memory, the bulk tensor copy engine, warp
 * group matrix products. TT_HOPPER is defined where the compiler supports them.
 *
 * Waits and arrivals at barriers have PTX's default scope (the CTA), also at the barriers of the other CTA of a
 * cluster: only the copy engine and the tensor cores write and read the guarded data. A cluster-wide acquire or
 * release would add a fence of the whole GPU to each step (a quarter of the speed, seen on an H200). */
#ifndef TT_BACKEND_CUDA_GEMM_HOPPER_CUH
#define TT_BACKEND_CUDA_GEMM_HOPPER_CUH

#include <cuda.h>
#include <cuda_bf16.h>
#include <stdint.h>

#include "backend/cuda/mma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TT_HOPPER 1
#define TT_DEVICE __device__ __forceinline__

TT_DEVICE void barrier_init(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
}

/* Called after barrier_init and before another CTA of the cluster or the copy engine uses the barriers. */
TT_DEVICE void barriers_are_ready()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrives, and makes the phase also wait for `bytes` from the copy engine. */
TT_DEVICE void barrier_expect(uint64_t *barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

TT_DEVICE void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/* Arrives at the same barrier of CTA `cta` of the cluster. */
TT_DEVICE void barrier_arrive_at(uint64_t *barrier, uint32_t cta)
{
    asm volatile("{\n.reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(shared_address(barrier)),
                 "r"(cta)
                 : "memory");
}

/* Waits until the phase of this parity is complete. */
TT_DEVICE void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    asm volatile("{\n.reg .pred done;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

TT_DEVICE void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

/* Fetches a map into the cache of the copy engine. */
TT_DEVICE void prefetch_map(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Copies the box at (x, y) of the map to shared memory; x counts along rows. */
TT_DEVICE void copy_tile(void *to, const CUtensorMap *map, uint64_t *barrier, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y)
                 : "memory");
}

/* The same of a map of three dimensions. */
TT_DEVICE void copy_tile_3d(void *to, const CUtensorMap *map, uint64_t *barrier, int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/* Copies to the same address in both CTAs of a cluster of two, and signals the barriers of both. */
TT_DEVICE void copy_tile_to_all(void *to, const CUtensorMap *map, uint64_t *barrier, int x, int y)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "h"((uint16_t)3)
        : "memory");
}

/* The same of a map of three dimensions. */
TT_DEVICE void copy_tile_3d_to_all(void *to, const CUtensorMap *map, uint64_t *barrier, int x, int y, int z)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4, %6}], [%2], %5;" ::"r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "h"((uint16_t)3), "r"(z)
        : "memory");
}

/* Makes what this thread has stored in shared memory visible to the copy engine. */
TT_DEVICE void stores_before_copies()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Copies a box from shared memory to (x, y) of the map; what lies beyond its edges is left out. */
TT_DEVICE void copy_tile_out(const CUtensorMap *map, const void *from, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(x), "r"(y)
                 : "memory");
}

/* Waits until this thread's copies have read shared memory. */
TT_DEVICE void copies_have_read()
{
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* Synchronizes the 128 threads that use the barrier of this number, 1 to 15. */
TT_DEVICE void group_sync(int number)
{
    asm volatile("bar.sync %0, 128;" ::"r"(number) : "memory");
}

template <int REGISTERS> TT_DEVICE void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS> TT_DEVICE void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/* Descriptor of a matrix in shared memory with the 128-byte swizzle, strides in bytes. With rows along k:
 * `stride` is the distance between groups of 8 rows, `lead` is not used. With rows along m or n: `stride` is the
 * distance between groups of 8 k, `lead` that between blocks of 64 columns. */
TT_DEVICE uint64_t matrix_descriptor(const void *at, uint32_t lead, uint32_t stride)
{
    return (uint64_t)((shared_address(at) & 0x3ffff) >> 4) | (uint64_t)(lead >> 4) << 16 |
           (uint64_t)(stride >> 4) << 32 | 1ull << 62;
}

TT_DEVICE void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

TT_DEVICE void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most PENDING committed groups are left. */
template <int PENDING> TT_DEVICE void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* Called after the last wait: the compiler moves no use of the sums before it. */
template <int COUNT> TT_DEVICE void wgmma_results(float (&sums)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(sums[i])::"memory");
}

#define TT_SUMS_8(i)                                                                                         \
    "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]),               \
        "+f"(sums[i + 5]), "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define TT_SUMS_64(i)                                                                                        \
    TT_SUMS_8(i), TT_SUMS_8(i + 8), TT_SUMS_8(i + 16), TT_SUMS_8(i + 24), TT_SUMS_8(i + 32),                 \
        TT_SUMS_8(i + 40), TT_SUMS_8(i + 48), TT_SUMS_8(i + 56)

#define TT_SUMS_NAMES                                                                                        \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                 \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                       \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                       \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "                       \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                       \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                       \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "           \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/* sums (+)= a b in bf16: a is [64, 16] with rows along k; b is [256, 16] with rows along k, or [16, 256] when
 * TRANSPOSED. Sums 4 i .. 4 i + 3 of thread t of the warp group are columns 8 i + 2 (t % 4) and the next, of row
 * t / 32 * 16 + t % 32 / 4 and of the row 8 below. */
template <int TRANSPOSED>
TT_DEVICE void wgmma_64x256x16(float (&sums)[128], uint64_t a, uint64_t b, int accumulate)
{
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" TT_SUMS_NAMES "}, "
                 "%128, %129, adds, 1, 1, 0, %131;\n}"
                 : TT_SUMS_64(0), TT_SUMS_64(64)
                 : "l"(a), "l"(b), "r"(accumulate), "n"(TRANSPOSED));
}

/* The same for 32 columns: b is [32, 16], rows along k. */
TT_DEVICE void wgmma_64x32x16(float (&sums)[16], uint64_t a, uint64_t b, int accumulate)
{
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %18, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
                 "%16, %17, adds, 1, 1, 0, 0;\n}"
                 : TT_SUMS_8(0), TT_SUMS_8(8)
                 : "l"(a), "l"(b), "r"(accumulate));
}

/* The same for E4M3: a is [64, 32], b [256, 32], both with rows along k. */
TT_DEVICE void wgmma_64x256x32(float (&sums)[128], uint64_t a, uint64_t b, int accumulate)
{
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {" TT_SUMS_NAMES "}, "
                 "%128, %129, adds, 1, 1;\n}"
                 : TT_SUMS_64(0), TT_SUMS_64(64)
                 : "l"(a), "l"(b), "r"(accumulate));
}

#define TT_SUMS_NAMES_64                                                                                     \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                 \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                 \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                 \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

/* The same for 128 columns in E4M3: a is [64, 32] and b [128, 32], rows along k. */
TT_DEVICE void wgmma_64x128x32(float (&sums)[64], uint64_t a, uint64_t b, int accumulate)
{
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {" TT_SUMS_NAMES_64 "}, "
                 "%64, %65, adds, 1, 1;\n}"
                 : TT_SUMS_64(0)
                 : "l"(a), "l"(b), "r"(accumulate));
}

/* Four numbers at `local` in the shared memory of CTA `cta` of the cluster. */
TT_DEVICE float4 load_from(const float *local, uint32_t cta)
{
    float4 x;
    asm volatile("{\n.reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %4, %5;\n"
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n}"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(shared_address(local)), "r"(cta)
                 : "memory");
    return x;
}

/* Stores four 8 x 8 matrices: lane l gives the address of row l % 8 of matrix l / 8. */
TT_DEVICE void store_matrices(void *row, uint32_t m0, uint32_t m1, uint32_t m2, uint32_t m3)
{
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
        "r"(m0), "r"(m1), "r"(m2), "r"(m3)
        : "memory");
}

/* The reverse of store_matrices. */
TT_DEVICE void load_matrices(const void *row, uint32_t (&m)[4])
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(shared_address(row))
                 : "memory");
}

/* Packs two bf16 into a word, the first in its low half. */
TT_DEVICE uint32_t pack(float first, float second)
{
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}

TT_DEVICE float low_half(uint32_t word)
{
    return __uint_as_float(word << 16);
}

TT_DEVICE float high_half(uint32_t word)
{
    return __uint_as_float(word & 0xffff0000u);
}

#endif

/* The warp groups of a kernel redistribute the registers that a CTA starts with: with fewer than `wanted` they would
 * wait for each other for ever. An empty body has four per thread. */
template <typename Params> static inline bool has_registers(void (*kernel)(Params), int threads, int wanted)
{
    cudaFuncAttributes facts;
    if (cudaFuncGetAttributes(&facts, kernel) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    return facts.numRegs * threads >= wanted;
}

#endif
