/* Updates whose moments have 8 bits (ops/optim.h): one pass over gradients, masters and codes. A warp holds a block of
 * 256 elements in registers, eight a lane; the maps, the borders between their entries and the borders below each bin
 * of numbers are in shared memory. */
#include <math.h>

#include "backend/cuda/device_math.cuh"
#include "backend/cuda/fast_math.cuh"
#include "backend/ops/optim.h"
#include "tensor/quant.h"

namespace
{

enum {
    THREADS = 256,
    WARPS = THREADS / 32,
    EACH = TT_MOMENT_BLOCK / 32, /* elements of a lane */
    ROUNDS = 16,                 /* blocks of a warp, at least: they share the tables */
    CODES = TT_QUANT_NESTED_MAP,
    /* Numbers of one sign, power of two and 128th of it share a bin; those below 2^-24 share one of their sign. At most
     * one border is in a bin: entries of a map are at least 0.007 apart near 1, and in lower decades as far in
     * proportion; a bin is 0.004 wide there. */
    BIN_POWERS = 24,
    BIN_PARTS = 128,
    BINS = BIN_POWERS * BIN_PARTS, /* of one sign */
    FIRST_BIN = (127 - BIN_POWERS) * BIN_PARTS,
};

/* A moment, and its map. */
struct coded {
    uint8_t *codes;
    float *absmax;
    float map[CODES];
};

struct adamw8_rule {
    enum { MOMENTS = 2 };
    float *param;
    const float *grad;
    int64_t count;
    bool aligned;
    float keep, beta1, beta2, step_size, eps, grad_scale;
    struct coded moments[MOMENTS];

    static constexpr bool has_signs(int moment)
    {
        return moment == 0;
    }

    __device__ __forceinline__ void update(float grad_value, float &p, float &m, float &v) const
    {
        float g = grad_value * grad_scale;
        m = m * beta1 + (1.0f - beta1) * g;
        v = v * beta2 + (1.0f - beta2) * g * g;
        p = (p - step_size * (m * reciprocal_fast(sqrtf(v) + eps))) * keep;
    }

    __device__ __forceinline__ void apply(float g, float &p, float (&x)[MOMENTS][EACH], int i) const
    {
        update(g, p, x[0][i], x[1][i]);
    }
};

struct lion8_rule {
    enum { MOMENTS = 1 };
    float *param;
    const float *grad;
    int64_t count;
    bool aligned;
    float keep, beta1, beta2, lr, grad_scale;
    struct coded moments[MOMENTS];

    static constexpr bool has_signs(int)
    {
        return true;
    }

    __device__ __forceinline__ void apply(float grad_value, float &p, float (&x)[MOMENTS][EACH], int i) const
    {
        float g = grad_value * grad_scale, m = x[0][i];
        float ahead = m * beta1 + (1.0f - beta1) * g;
        p = p * keep - lr * (float)((ahead > 0) - (ahead < 0));
        x[0][i] = m * beta2 + (1.0f - beta2) * g;
    }
};

/* The map of a moment, the borders between its entries, the last of which is infinite, and the number of borders below
 * each bin: of moments that have signs the negative ones first. */
template <bool SIGNS> struct table {
    float map[CODES], borders[CODES];
    uint8_t below[SIGNS ? 2 * BINS : BINS];
};
template <typename Rule> struct tables {
    table<Rule::has_signs(0)> first;
    table<Rule::has_signs(Rule::MOMENTS - 1)> last;
};

/* The least magnitude of a bin. */
__device__ __forceinline__ float bin_edge(int bin)
{
    return bin == 0 ? 0.0f : __uint_as_float((uint32_t)(bin + FIRST_BIN) << 16);
}

/* The number of borders below x. */
__device__ __forceinline__ int borders_below(const float *borders, float x)
{
    int index = 0;
#pragma unroll
    for (int step = CODES / 2; step > 0; step /= 2) index += x > borders[index + step - 1] ? step : 0;
    return index;
}

/* All threads of a block call it; each fills bins that are neighbours. */
template <bool SIGNS> __device__ __forceinline__ void fill_table(table<SIGNS> &t, const float *map)
{
    constexpr int SHARE = BINS / THREADS;
    static_assert(THREADS == CODES && BINS % THREADS == 0, "one entry and equal shares a thread");
    int i = (int)threadIdx.x, first = i * SHARE;
    t.map[i] = map[i];
    t.borders[i] = i + 1 < CODES ? (map[i] + map[i + 1]) * 0.5f : INFINITY;
    __syncthreads();
    int below = borders_below(t.borders, bin_edge(first));
    for (int bin = first; bin < first + SHARE; bin++) {
        while (t.borders[below] < bin_edge(bin)) below++;
        t.below[bin] = (uint8_t)below;
    }
    if constexpr (SIGNS) {
        below = borders_below(t.borders, -bin_edge(first + SHARE));
        for (int bin = first + SHARE - 1; bin >= first; bin--) {
            while (t.borders[below] < -bin_edge(bin + 1)) below++;
            t.below[BINS + bin] = (uint8_t)below;
        }
    }
}

/* `scaled`: x over the size of its block. */
template <bool SIGNS> __device__ __forceinline__ uint32_t code_of(const table<SIGNS> &t, float scaled)
{
    uint32_t bits = __float_as_uint(scaled);
    int bin = min(max((int)(bits << 1 >> 17) - FIRST_BIN, 0), BINS - 1);
    if (SIGNS) bin += (int)(bits >> 31) * BINS;
    int index = t.below[bin];
    index += scaled > t.borders[index] ? 1 : 0;
    if (SIGNS && signbit(t.map[index]) != signbit(scaled)) index += scaled > 0 ? 1 : -1;
    return (uint32_t)index & 0xff;
}

__device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

/* The lane's elements of a block that is whole and aligned, or those that exist. */
__device__ __forceinline__ void load_floats(const float *from, int n, bool whole, float (&x)[EACH])
{
    if (whole) {
#pragma unroll
        for (int half = 0; half < EACH; half += 4) {
            float part[4];
            widen(load<float, 4>(from + half), part);
#pragma unroll
            for (int i = 0; i < 4; i++) x[half + i] = part[i];
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) x[i] = i < n ? from[i] : 0.0f;
}

__device__ __forceinline__ void store_floats(float *to, int n, bool whole, const float (&x)[EACH])
{
    if (whole) {
#pragma unroll
        for (int half = 0; half < EACH; half += 4) {
            const float part[4] = {x[half], x[half + 1], x[half + 2], x[half + 3]};
            vec<float, 4> v;
            narrow(v, part);
            store(to + half, v);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (i < n) to[i] = x[i];
}

__device__ __forceinline__ void load_codes(const uint8_t *from, int n, bool whole, uint32_t (&code)[EACH])
{
    if (whole) {
        uint2 raw = *reinterpret_cast<const uint2 *>(from);
#pragma unroll
        for (int i = 0; i < EACH; i++) code[i] = (i < 4 ? raw.x >> 8 * i : raw.y >> 8 * (i - 4)) & 0xff;
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) code[i] = i < n ? from[i] : 0;
}

__device__ __forceinline__ void store_codes(uint8_t *to, int n, bool whole, const uint32_t (&code)[EACH])
{
    if (whole) {
        uint2 raw = make_uint2(0, 0);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            raw.x |= code[i] << 8 * i;
            raw.y |= code[4 + i] << 8 * i;
        }
        *reinterpret_cast<uint2 *>(to) = raw;
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (i < n) to[i] = (uint8_t)code[i];
}

/* Quotients by a reciprocal are within two units in the last place, as the library's; sizes without a normal reciprocal
 * divide. A block of zeros has the codes that the library writes for it; its size makes them 0. */
template <bool SIGNS>
__device__ __forceinline__ void encode(const struct coded &moment, const table<SIGNS> &t, int64_t block,
                                       int64_t first, int n, bool whole, const float (&x)[EACH])
{
    float absmax = 0.0f;
    uint32_t code[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) absmax = fmaxf(absmax, i < n ? fabsf(x[i]) : 0.0f);
    absmax = warp_max(absmax);
    if (threadIdx.x % 32 == 0) moment.absmax[block] = absmax;
    if (absmax > 0x1p-120f && absmax < 0x1p120f) {
        float factor = 1.0f / absmax;
#pragma unroll
        for (int i = 0; i < EACH; i++) code[i] = code_of<SIGNS>(t, x[i] * factor);
    } else {
#pragma unroll
        for (int i = 0; i < EACH; i++)
            code[i] = absmax > 0 ? code_of<SIGNS>(t, x[i] / absmax)
                      : SIGNS    ? TT_MOMENT_ZERO_SIGNED
                                 : TT_MOMENT_ZERO;
    }
    store_codes(moment.codes + first, n, whole, code);
}

template <typename Rule>
__device__ __forceinline__ void update_block(const Rule &rule, const tables<Rule> &t, int64_t block)
{
    constexpr int MOMENTS = Rule::MOMENTS;
    int64_t first = block * TT_MOMENT_BLOCK + (int64_t)(threadIdx.x % 32) * EACH, left = rule.count - first;
    int n = left >= EACH ? EACH : left > 0 ? (int)left : 0;
    bool whole = rule.aligned && n == EACH;
    float g[EACH], p[EACH], x[MOMENTS][EACH];
    load_floats(rule.grad + first, n, whole, g);
    load_floats(rule.param + first, n, whole, p);
#pragma unroll
    for (int k = 0; k < MOMENTS; k++) {
        uint32_t code[EACH];
        load_codes(rule.moments[k].codes + first, n, whole, code);
        float absmax = rule.moments[k].absmax[block];
#pragma unroll
        for (int i = 0; i < EACH; i++) x[k][i] = (k == 0 ? t.first.map : t.last.map)[code[i]] * absmax;
    }
    __syncwarp(); /* all lanes have read absmax before one writes it */
#pragma unroll
    for (int i = 0; i < EACH; i++) rule.apply(g[i], p[i], x, i);
    store_floats(rule.param + first, n, whole, p);
    encode(rule.moments[0], t.first, block, first, n, whole, x[0]);
    if constexpr (MOMENTS > 1) encode(rule.moments[1], t.last, block, first, n, whole, x[1]);
}

template <typename Rule>
__global__ void __launch_bounds__(THREADS) update_coded(const __grid_constant__ Rule rule, int64_t blocks)
{
    __shared__ tables<Rule> t;
    fill_table(t.first, rule.moments[0].map);
    if constexpr (Rule::MOMENTS > 1) fill_table(t.last, rule.moments[1].map);
    __syncthreads();
    int64_t warp = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, warps = (int64_t)gridDim.x * WARPS;
    for (int64_t block = warp; block < blocks; block += warps) update_block(rule, t, block);
}

void set_moment(struct coded *to, const struct tt_coded_moment *from, const float *map)
{
    to->codes = static_cast<uint8_t *>(from->codes.data);
    to->absmax = static_cast<float *>(from->absmax.data);
    for (int i = 0; i < CODES; i++) to->map[i] = map[i];
}

template <typename Rule, typename Args> void set_values(Rule *rule, const Args *args)
{
    rule->param = static_cast<float *>(args->param.data);
    rule->grad = static_cast<const float *>(args->grad.data);
    rule->count = args->param.dims[0];
    rule->aligned = is_aligned(args->param, 4) && is_aligned(args->grad, 4);
    for (int k = 0; k < Rule::MOMENTS; k++)
        rule->aligned = rule->aligned && reinterpret_cast<uintptr_t>(rule->moments[k].codes) % 8 == 0;
    rule->keep = (float)(1 - args->lr * args->weight_decay);
    rule->beta1 = (float)args->beta1;
    rule->beta2 = (float)args->beta2;
    rule->grad_scale = args->grad_scale;
}

template <typename Rule>
tt_status launch(struct tt_stream *stream, const char *name, const Rule &rule, const tt_tensor *param)
{
    int64_t blocks = (rule.count + TT_MOMENT_BLOCK - 1) / TT_MOMENT_BLOCK, each = WARPS * ROUNDS;
    if (blocks == 0) return TT_OK;
    unsigned grid = (unsigned)((blocks + each - 1) / each);
    update_coded<Rule><<<grid, THREADS, 0, tt_cuda_handle(stream)>>>(rule, blocks);
    return tt_cuda_launched(stream, name, param);
}

} // namespace

extern "C" tt_status tt_cuda_adamw8(struct tt_stream *stream, const struct tt_adamw8_args *args)
{
    double root = sqrt(1 - pow(args->beta2, (double)args->step));
    struct adamw8_rule rule = {};
    set_moment(&rule.moments[0], &args->m, tt_quant_nested_map());
    set_moment(&rule.moments[1], &args->v, tt_quant_unsigned_map());
    set_values(&rule, args);
    rule.step_size = (float)(args->lr * root / (1 - pow(args->beta1, (double)args->step)));
    rule.eps = (float)(args->eps * root);
    return launch(stream, "adamw8", rule, &args->param);
}

extern "C" tt_status tt_cuda_lion8(struct tt_stream *stream, const struct tt_lion8_args *args)
{
    struct lion8_rule rule = {};
    set_moment(&rule.moments[0], &args->m, tt_quant_nested_map());
    set_values(&rule, args);
    rule.lr = (float)args->lr;
    return launch(stream, "lion8", rule, &args->param);
}
