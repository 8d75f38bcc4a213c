#include "backend/cuda/sheet.cuh"

namespace
{

/* Noise on embeddings (ops/noise.h): the same roundings as on the cpu. */
template <typename T> struct noise_op {
    view<T> x;
    const int64_t *row_keys;
    const int32_t *borders;
    int64_t sequences, width;
    struct round_keys round_keys;
    float alpha;

    template <int W> struct loaded {
        vec<T, W> x;
        uint64_t row_key;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.x = ::load<T, W>(x.at(row, col));
        in.row_key = (uint64_t)row_keys[row];
    }

    template <int W> __device__ void store(int64_t row, int64_t col, const loaded<W> &in) const
    {
        float p[W], scale = scale_of(row);
        widen(in.x, p);
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < W; i++) {
            if (i % 4 == 0) random_block(round_keys, in.row_key, (uint64_t)(col + i) / 4, words);
            uint32_t word = W == 1 ? word_at(words, (int)(col % 4)) : words[i % 4];
            float u = (float)(word >> 8) * 0x1p-23f - 1.0f;
            p[i] = __fmaf_rn(u, scale, p[i]);
        }
        vec<T, W> out;
        narrow(out, p);
        ::store(x.at(row, col), out);
    }

    static __device__ __forceinline__ uint32_t word_at(const uint32_t (&words)[4], int at)
    {
        uint32_t low = at % 2 == 0 ? words[0] : words[1], high = at % 2 == 0 ? words[2] : words[3];
        return at < 2 ? low : high;
    }

    /* Row and length of the sequence s with borders[s] <= row < borders[s + 1]. */
    __device__ float scale_of(int64_t row) const
    {
        int64_t s = 0, end = sequences;
        while (end - s > 1) {
            int64_t middle = (s + end) / 2;
            if (borders[middle] <= row)
                s = middle;
            else
                end = middle;
        }
        int64_t length = borders[s + 1] - borders[s];
        return __fdiv_rn(alpha, __fsqrt_rn((float)(length * width)));
    }
};

template <typename T> tt_status noise_typed(struct tt_stream *stream, const struct tt_add_noise_args *args)
{
    constexpr int W = wide<T>();
    const tt_tensor &x = args->x_TD;
    struct noise_op<T> op = {};
    op.x = view_of<T>(x);
    op.row_keys = static_cast<const int64_t *>(args->row_keys_T.data);
    op.borders = static_cast<const int32_t *>(args->cu_seqlens.data);
    op.sequences = args->cu_seqlens.dims[0] - 1;
    op.width = x.dims[1];
    op.round_keys = make_round_keys(args->rng);
    op.alpha = args->alpha;
    return apply<W, 4>(stream, "add_noise", op, x.dims[0], x.dims[1], is_aligned(x, W), &x);
}

} // namespace

extern "C" tt_status tt_cuda_add_noise(struct tt_stream *stream, const struct tt_add_noise_args *args)
{
    return with_type(args->x_TD.dtype, [&](auto x) { return noise_typed<decltype(x)>(stream, args); });
}
