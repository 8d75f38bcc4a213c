/* Products of four warps. Each has 16 rows of the sums and of the first factor, which is in its registers or a tile of
 * 64 rows of 64 numbers; the second factor is such a tile, or two side by side. On Hopper the four warps multiply
 * together, and tiles are read once for all four; elsewhere each warp reads them by itself. Sums have the same places
 * in registers both ways. */
#ifndef TT_BACKEND_CUDA_SCAN_PRODUCTS_CUH
#define TT_BACKEND_CUDA_SCAN_PRODUCTS_CUH

#include "backend/cuda/gemm/hopper.cuh"
#include "backend/cuda/scan/chunks.cuh"

namespace
{

#ifdef TT_HOPPER

#define SCAN_SUMS_4(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define SCAN_SUMS_32(n)                                                                                      \
    SCAN_SUMS_4(n), SCAN_SUMS_4(n + 1), SCAN_SUMS_4(n + 2), SCAN_SUMS_4(n + 3), SCAN_SUMS_4(n + 4),          \
        SCAN_SUMS_4(n + 5), SCAN_SUMS_4(n + 6), SCAN_SUMS_4(n + 7)

/* c += a b, b of [64, 16] with rows along k, or of [16, 64] when TRANSPOSED. */
template <int TRANSPOSED>
__device__ __forceinline__ void group_product(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, 1, 1, 1, %37;"
                 : SCAN_SUMS_32(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(TRANSPOSED));
}

/* c += a b, b of [16, 128]. */
__device__ __forceinline__ void group_product(float (&c)[16][4], const uint32_t (&a)[4], uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
                 : SCAN_SUMS_32(0), SCAN_SUMS_32(8)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* The same with a first factor in shared memory: [64, 16] with rows along k, or [16, 64] when TURNED; b of [16, 64]. */
template <int TURNED> __device__ __forceinline__ void group_product(float (&c)[8][4], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "%32, %33, 1, 1, 1, %34, 1;"
                 : SCAN_SUMS_32(0)
                 : "l"(a), "l"(b), "n"(TURNED));
}

/* Makes what the thread has stored, or waited for, in shared memory visible to the products. */
__device__ __forceinline__ void tiles_before_products()
{
    stores_before_copies();
}

__device__ __forceinline__ void products_begin()
{
    wgmma_fence();
}

/* Waits for the products with these sums; first factors may be overwritten. */
template <int N> __device__ __forceinline__ void products_end(float (&c)[N][4])
{
    wgmma_commit();
    wgmma_wait<0>();
#pragma unroll
    for (int n = 0; n < N; n++)
        asm volatile("" : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])::"memory");
}

/* Called behind products_end: no register of the factors gets another value before it. */
template <int N> __device__ __forceinline__ void keep_factors(uint32_t (&a)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
        asm volatile("" : "+r"(a[n][0]), "+r"(a[n][1]), "+r"(a[n][2]), "+r"(a[n][3])::"memory");
}

/* c += a x^T: column n of c is row n of the tile, of which columns k .. k + 16 are used. */
__device__ __forceinline__ void times_turned(float (&c)[8][4], const uint32_t (&a)[4],
                                             const unsigned char *tile, int k)
{
    group_product<0>(c, a, matrix_descriptor(tile + k * 2, 0, 1024));
}

/* c += a x: rows k .. k + 16 of the tile are used. */
__device__ __forceinline__ void times_rows(float (&c)[8][4], const uint32_t (&a)[4],
                                           const unsigned char *tile, int k)
{
    group_product<1>(c, a, matrix_descriptor(tile + k * 128, 0, 1024));
}

/* The same with two tiles side by side. */
__device__ __forceinline__ void times_rows(float (&c)[16][4], const uint32_t (&a)[4],
                                           const unsigned char *tile, int k)
{
    group_product(c, a, matrix_descriptor(tile + k * 128, SCAN_SQUARE, 1024));
}

/* c += a x: columns k .. k + 16 of the tile a, or of a turned, and rows k .. k + 16 of x. */
template <bool TURNED>
__device__ __forceinline__ void tile_times_rows(float (&c)[8][4], const unsigned char *a,
                                                const unsigned char *x, int k)
{
    group_product<TURNED>(c, matrix_descriptor(TURNED ? a + k * 128 : a + k * 2, 0, 1024),
                          matrix_descriptor(x + k * 128, 0, 1024));
}

#else

__device__ __forceinline__ void tiles_before_products()
{
}

__device__ __forceinline__ void products_begin()
{
}

template <int N> __device__ __forceinline__ void products_end(float (&)[N][4])
{
}

template <int N> __device__ __forceinline__ void keep_factors(uint32_t (&)[N][4])
{
}

__device__ __forceinline__ void times_turned(float (&c)[8][4], const uint32_t (&a)[4],
                                             const unsigned char *tile, int k)
{
    uint32_t base = lane_base<SCAN_ROWS * 2>(shared_address(tile));
#pragma unroll
    for (int n = 0; n < 8; n += 2) multiply_turned<SCAN_ROWS * 2>(c[n], c[n + 1], a, base, k, n * 8);
}

template <int N>
__device__ __forceinline__ void times_rows(float (&c)[N][4], const uint32_t (&a)[4],
                                           const unsigned char *tile, int k)
{
#pragma unroll
    for (int n = 0; n < N; n += 2)
        multiply_rows<SCAN_ROWS * 2>(c[n], c[n + 1], a,
                                     lane_base<SCAN_ROWS * 2>(shared_address(tile) + n / 8 * SCAN_SQUARE), k,
                                     n % 8 * 8);
}

template <bool TURNED>
__device__ __forceinline__ void tile_times_rows(float (&c)[8][4], const unsigned char *a,
                                                const unsigned char *x, int k)
{
    uint32_t factor[4], base = lane_base<SCAN_ROWS * 2>(shared_address(a));
    int row = (int)threadIdx.x / 32 % 4 * 16;
    if (TURNED)
        first_factor_turned<SCAN_ROWS * 2>(factor, base, row, k);
    else
        first_factor<SCAN_ROWS * 2>(factor, base, row, k);
    times_rows(c, factor, x, k);
}

#endif

/* Copies a chunk's rows of q or k to two tiles side by side. */
__device__ __forceinline__ void fetch_keys(uint32_t to, const struct scan_rows &from, const struct chunk &c,
                                           int64_t head)
{
#pragma unroll
    for (int half = 0; half < 2; half++)
        fetch_rows<SCAN_HALF * 2>(to + half * SCAN_SQUARE, from, c, head, half * SCAN_HALF, SCAN_HALF);
}

} // namespace

#endif
