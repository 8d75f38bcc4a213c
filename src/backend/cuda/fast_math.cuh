/* The hardware's approximations, one instruction each (PTX ISA, ex2.approx.ftz and rcp.approx.ftz, lists their errors).
 * Denormals count as zero: __expf and __fdividef spend several more instructions on them. */
#ifndef TT_BACKEND_CUDA_FAST_MATH_CUH
#define TT_BACKEND_CUDA_FAST_MATH_CUH

/* 2^x */
static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float exp_fast(float x)
{
    return exp2_fast(x * 1.4426950408889634f);
}

/* 1 / x */
static __device__ __forceinline__ float reciprocal_fast(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float sigmoid_fast(float x)
{
    return reciprocal_fast(1.0f + exp_fast(-x));
}

#endif
