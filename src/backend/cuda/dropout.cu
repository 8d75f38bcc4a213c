#include "backend/cuda/sheet.cuh"

namespace
{

struct masks {
    const int64_t *row_keys;
    struct round_keys round_keys;
    uint32_t threshold;
};

template <typename X, typename Y, bool ACCUMULATE> struct dropout_op {
    view<const X> x;
    view<Y> y;
    struct masks masks;
    float factor;

    template <int W> struct loaded {
        vec<X, W> x;
        vec<Y, W> y;
        uint64_t row_key;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.x = ::load<X, W>(x.at(row, col));
        if (ACCUMULATE) in.y = ::load<Y, W>(y.at(row, col));
        in.row_key = (uint64_t)masks.row_keys[row];
    }

    template <int W> __device__ void store(int64_t row, int64_t col, const loaded<W> &in) const
    {
        float p[W], before[W];
        widen(in.x, p);
        if (ACCUMULATE) widen(in.y, before);
        uint32_t words[4]; /* pieces of W do not cross blocks */
        random_block(masks.round_keys, in.row_key, (uint64_t)col / 8, words);
#pragma unroll
        for (int i = 0; i < W; i++) {
            bool kept = half_at(words, W == 8 ? i : (int)(col % 8) + i) >= masks.threshold;
            p[i] = kept ? p[i] * factor : 0.0f;
            if (ACCUMULATE) p[i] += before[i];
        }
        vec<Y, W> out;
        narrow(out, p);
        ::store(y.at(row, col), out);
    }

    /* The half of element `at` of the eight that share a random block. */
    static __device__ __forceinline__ uint32_t half_at(const uint32_t (&words)[4], int at)
    {
        uint32_t low = at < 2 ? words[0] : words[1], high = at < 6 ? words[2] : words[3];
        return (at < 4 ? low : high) >> 16 * (at % 2) & (TT_DROPOUT_STEPS - 1);
    }
};

template <typename X, typename Y, bool ACCUMULATE>
tt_status dropout_typed(struct tt_stream *stream, const struct tt_dropout_args *args)
{
    constexpr int W = wide<X, Y>();
    const tt_tensor &x = args->x_TD, &y = args->y_TD;
    struct dropout_op<X, Y, ACCUMULATE> op = {
        view_of<const X>(x), view_of<Y>(y), {}, tt_dropout_factor(args->p)
    };
    op.masks.row_keys = static_cast<const int64_t *>(args->row_keys_T.data);
    op.masks.round_keys = make_round_keys(args->rng);
    op.masks.threshold = tt_dropout_threshold(args->p);
    return apply<W, 4>(stream, "dropout", op, y.dims[0], y.dims[1], is_aligned(x, W) && is_aligned(y, W), &y);
}

} // namespace

extern "C" tt_status tt_cuda_dropout(struct tt_stream *stream, const struct tt_dropout_args *args)
{
    return with_type(args->x_TD.dtype, [&](auto x) {
        return with_type(args->y_TD.dtype, [&](auto y) {
            return args->accumulate ? dropout_typed<decltype(x), decltype(y), true>(stream, args)
                                    : dropout_typed<decltype(x), decltype(y), false>(stream, args);
        });
    });
}
