#include "backend/cuda/sheet.cuh"

namespace
{

enum { ITEMS = 4 };

/* y[row] = x[rows[row]] */
template <typename X, typename Y> struct gather_op {
    view<const X> x;
    const int32_t *rows;
    view<Y> y;

    template <int W> struct loaded {
        vec<X, W> x;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.x = ::load<X, W>(x.at(rows[row], col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, const loaded<W> &in) const
    {
        if constexpr (sizeof(X) == sizeof(Y)) {
            ::store(y.at(row, col), in.x);
        } else {
            float p[W];
            widen(in.x, p);
            vec<Y, W> out;
            narrow(out, p);
            ::store(y.at(row, col), out);
        }
    }
};

/* y[row] = x[rows[row] - first] where that is in [0, count); other rows of y stay as they are. */
template <typename X, typename Y> struct gather_part_op {
    struct gather_op<X, Y> whole;
    int64_t first, count;

    template <int W> struct loaded {
        typename gather_op<X, Y>::template loaded<W> x;
        bool here;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        int64_t from = whole.rows[row] - first;
        in.here = from >= 0 && from < count;
        if (in.here) in.x.x = ::load<X, W>(whole.x.at(from, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, const loaded<W> &in) const
    {
        if (in.here) whole.template store<W>(row, col, in.x);
    }
};

/* y[row] = x[from[row]], or zeros where from[row] is negative. */
template <typename T> struct scatter_op {
    view<const T> x;
    const int32_t *from;
    view<T> y;

    template <int W> struct loaded {
        vec<T, W> x;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        int32_t n = from[row];
        in.x = {};
        if (n >= 0) in.x = ::load<T, W>(x.at(n, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, const loaded<W> &in) const
    {
        ::store(y.at(row, col), in.x);
    }
};

/* y[to[row]] = x[row] */
template <typename T> struct put_op {
    view<const T> x;
    const int32_t *to;
    view<T> y;

    template <int W> struct loaded {
        vec<T, W> x;
    };

    template <int W> __device__ void load(int64_t row, int64_t col, loaded<W> &in) const
    {
        in.x = ::load<T, W>(x.at(row, col));
    }

    template <int W> __device__ void store(int64_t row, int64_t col, const loaded<W> &in) const
    {
        ::store(y.at(to[row], col), in.x);
    }
};

enum { THREADS = 256, TILE = 1024 };

/* from[rows[n] - first] = n for the rows named in [first, first + count) */
__global__ void __launch_bounds__(THREADS)
    invert(int32_t *from, const int32_t *rows, int64_t rows_count, int64_t first, int64_t count)
{
    int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (n >= rows_count) return;
    int64_t at = rows[n] - first;
    if (at >= 0 && at < count) from[at] = (int32_t)n;
}

/* Counts the occurrences of each id, and finds the first. Sums and minima of integers do not depend on the order. */
__global__ void __launch_bounds__(THREADS)
    count_ids(int32_t *first, int32_t *counts, const int32_t *ids, int64_t tokens)
{
    int64_t t = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (t >= tokens) return;
    atomicMin(first + ids[t], (int32_t)t);
    atomicAdd(counts + ids[t], 1);
}

struct occurrences {
    const int32_t *ids, *first, *counts; /* first NULL: the vocabulary is too large for the scratch */
    int64_t tokens;
};

/* Whether an earlier token has the id of token t; called by the whole thread block. */
__device__ bool occurs_before(const struct occurrences &o, int64_t t, int32_t id)
{
    bool found = false;
    for (int64_t i = threadIdx.x; i < t && !found; i += THREADS) found = o.ids[i] == id;
    return __syncthreads_or(found) != 0;
}

/* Lists the tokens of [base, base + TILE) that have the id, in order; returns their number. */
__device__ int list_tile(const struct occurrences &o, int64_t base, int32_t id, int32_t (&list)[TILE])
{
    constexpr int warps = THREADS / 32, masks = TILE / 32;
    static_assert(masks == 32, "one lane for each mask");
    __shared__ uint32_t mask[masks];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    __syncthreads(); /* other threads may still read the list and the masks of the previous tile */
    for (int k = warp; k < masks; k += warps) {
        int64_t t = base + k * 32 + lane;
        uint32_t matches = __ballot_sync(0xffffffffu, t < o.tokens && o.ids[t] == id);
        if (lane == 0) mask[k] = matches;
    }
    __syncthreads();
    int before = __popc(mask[lane]), own = before;
    for (int step = 1; step < 32; step *= 2) {
        int other = __shfl_up_sync(0xffffffffu, before, step);
        if (lane >= step) before += other;
    }
    int total = __shfl_sync(0xffffffffu, before, 31);
    before -= own;
    for (int k = warp; k < masks; k += warps) {
        int at = __shfl_sync(0xffffffffu, before, k) + __popc(mask[k] & ((1u << lane) - 1));
        if (mask[k] >> lane & 1) list[at] = (int32_t)(base + k * 32 + lane);
    }
    __syncthreads();
    return total;
}

/* One thread block per token and strip of columns. The block of the first token of an id adds all of them, in order. */
template <typename T, int W>
__global__ void __launch_bounds__(THREADS)
    add_occurrences(view<float> dtable, view<const T> dy, const struct occurrences o, int64_t width)
{
    __shared__ int32_t list[TILE];
    int64_t t = blockIdx.x, col = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * W;
    int32_t id = o.ids[t];
    if (o.first != nullptr ? o.first[id] != t : occurs_before(o, t, id)) return;
    int64_t left = o.first != nullptr ? o.counts[id] : o.tokens;
    bool inside = col < width;
    float sum[W] = {};
    if (inside) widen(load<float, W>(dtable.at(id, col)), sum);
    for (int64_t base = t; left > 0 && base < o.tokens; base += TILE) {
        int count = 1;
        /* the id occurs once; every thread writes the same value */
        if (base == t && left == 1)
            list[0] = (int32_t)t;
        else
            count = list_tile(o, base, id, list);
#pragma unroll 4
        for (int i = 0; i < count; i++) {
            if (!inside) break;
            float part[W];
            widen(load<T, W>(dy.at(list[i], col)), part);
#pragma unroll
            for (int j = 0; j < W; j++) sum[j] += part[j];
        }
        left -= count;
    }
    if (!inside) return;
    vec<float, W> out;
    narrow(out, sum);
    store(dtable.at(id, col), out);
}

/* The thread block of token t copies the row of its id, if that is one of the tokens. */
template <typename X, typename Y>
__global__ void __launch_bounds__(THREADS) put_tokens(view<Y> y, view<const X> rows, const int32_t *tokens,
                                                      int64_t count, const int32_t *ids, int64_t width)
{
    __shared__ int64_t found;
    int64_t t = blockIdx.x;
    int32_t id = ids[t];
    if (threadIdx.x == 0) found = -1;
    __syncthreads();
    for (int64_t k = threadIdx.x; k < count; k += THREADS)
        if (tokens[k] == id) found = k;
    __syncthreads();
    if (found < 0) return;
    for (int64_t d = threadIdx.x; d < width; d += THREADS) {
        float p[1];
        vec<Y, 1> out;
        widen(load<X, 1>(rows.at(found, d)), p);
        narrow(out, p);
        store(y.at(t, d), out);
    }
}

/* One thread block per token and strip of columns: it adds all occurrences, in order. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    add_tokens(view<float> drows, view<const T> dy, const int32_t *tokens, const int32_t *ids, int64_t count,
               int64_t width)
{
    __shared__ bool here[THREADS];
    int64_t k = blockIdx.x, col = (int64_t)blockIdx.y * THREADS + threadIdx.x;
    int32_t token = tokens[k];
    bool inside = col < width;
    float sum = inside ? *drows.at(k, col) : 0.0f;
    for (int64_t base = 0; base < count; base += THREADS) {
        int64_t t = base + threadIdx.x;
        bool mine = t < count && ids[t] == token;
        here[threadIdx.x] = mine;
        if (!__syncthreads_or(mine)) continue;
        for (int i = 0; i < THREADS && inside; i++) {
            if (!here[i]) continue;
            float p[1];
            widen(load<T, 1>(dy.at(base + i, col)), p);
            sum += p[0];
        }
        __syncthreads(); /* others may still read `here` */
    }
    if (inside) *drows.at(k, col) = sum;
}

/* Values move between columns of y and those of x. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    move_columns(view<T> y, const int32_t *tokens, view<T> x, int64_t rows, int64_t count, bool take)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= rows * count) return;
    int64_t n = at / count, k = at % count;
    T *whole = y.at(n, tokens[k]), *own = x.at(n, k);
    if (!take) {
        *whole = *own;
        return;
    }
    const float zero[1] = {};
    vec<T, 1> nothing;
    narrow(nothing, zero);
    *own = *whole;
    store(whole, nothing);
}

tt_status columns_typed(struct tt_stream *stream, const char *name, const tt_tensor &y,
                        const tt_tensor &tokens, const tt_tensor &x, bool take)
{
    int64_t all = x.dims[0] * x.dims[1];
    if (all == 0) return TT_OK;
    return with_type(y.dtype, [&](auto t) {
        move_columns<decltype(t)>
            <<<(unsigned)((all + THREADS - 1) / THREADS), THREADS, 0, tt_cuda_handle(stream)>>>(
                view_of<decltype(t)>(y), static_cast<const int32_t *>(tokens.data), view_of<decltype(t)>(x),
                x.dims[0], x.dims[1], take);
        return tt_cuda_launched(stream, name, &y);
    });
}

template <typename T, int W>
void launch_add(struct tt_stream *stream, const struct tt_embedding_backward_args *args,
                const struct occurrences &o)
{
    int64_t width = args->dy_TD.dims[1], strip = THREADS * W;
    dim3 blocks((unsigned)o.tokens, (unsigned)((width + strip - 1) / strip));
    add_occurrences<T, W><<<blocks, THREADS, 0, tt_cuda_handle(stream)>>>(
        view_of<float>(args->dtable_VD), view_of<const T>(args->dy_TD), o, width);
}

template <typename T>
tt_status scatter_typed(struct tt_stream *stream, const struct tt_scatter_rows_args *args)
{
    constexpr int W = wide<T>();
    const tt_tensor &x = args->x_ND, &y = args->y_TD;
    const int32_t *rows = static_cast<const int32_t *>(args->rows_N.data);
    int64_t named = x.dims[0], fits = TT_CUDA_SCRATCH_BYTES / (int64_t)sizeof(int32_t);
    bool aligned = is_aligned(x, W) && is_aligned(y, W);
    int32_t *from = static_cast<int32_t *>(tt_cuda_scratch(stream));
    cudaStream_t handle = tt_cuda_handle(stream);
    if (args->keep) {
        struct put_op<T> op = {
            view_of<const T>(x), rows, view_of<T>(y)
        };
        return apply<W, ITEMS>(stream, "scatter_rows", op, named, y.dims[1], aligned, &y);
    }
    for (int64_t first = 0; first < y.dims[0]; first += fits) {
        int64_t count = y.dims[0] - first < fits ? y.dims[0] - first : fits;
        TT_TRY(tt_cuda_check(cudaMemsetAsync(from, 0xff, (size_t)count * sizeof *from, handle), stream,
                             "scatter_rows"));
        if (named > 0)
            invert<<<(unsigned)((named + THREADS - 1) / THREADS), THREADS, 0, handle>>>(from, rows, named,
                                                                                        first, count);
        struct scatter_op<T> op = {
            view_of<const T>(x), from, view_of<T>(y)
        };
        op.y.data += first * op.y.stride;
        TT_TRY((apply<W, ITEMS>(stream, "scatter_rows", op, count, y.dims[1], aligned, &y)));
    }
    return TT_OK;
}

template <typename X, typename Y>
tt_status gather_typed(struct tt_stream *stream, const char *name, const tt_tensor &x, const tt_tensor &rows,
                       const tt_tensor &y)
{
    constexpr int W = wide<X, Y>();
    struct gather_op<X, Y> op = {
        view_of<const X>(x), static_cast<const int32_t *>(rows.data), view_of<Y>(y)
    };
    return apply<W, ITEMS>(stream, name, op, y.dims[0], y.dims[1], is_aligned(x, W) && is_aligned(y, W), &y);
}

template <typename X, typename Y>
tt_status gather_part_typed(struct tt_stream *stream, const struct tt_embedding_forward_args *args)
{
    constexpr int W = wide<X, Y>();
    const tt_tensor &x = args->table_VD, &y = args->y_TD;
    struct gather_part_op<X, Y> op = {
        {view_of<const X>(x), static_cast<const int32_t *>(args->ids_T.data), view_of<Y>(y)}, args->first,
            x.dims[0]
    };
    return apply<W, ITEMS>(stream, "embedding_forward", op, y.dims[0], y.dims[1],
                           is_aligned(x, W) && is_aligned(y, W), &y);
}

} // namespace

extern "C" tt_status tt_cuda_embedding_forward(struct tt_stream *stream,
                                               const struct tt_embedding_forward_args *args)
{
    return with_type(args->table_VD.dtype, [&](auto x) {
        return with_type(args->y_TD.dtype, [&](auto y) {
            if (args->vocab > 0) return gather_part_typed<decltype(x), decltype(y)>(stream, args);
            return gather_typed<decltype(x), decltype(y)>(stream, "embedding_forward", args->table_VD,
                                                          args->ids_T, args->y_TD);
        });
    });
}

extern "C" tt_status tt_cuda_embedding_backward(struct tt_stream *stream,
                                                const struct tt_embedding_backward_args *args)
{
    struct occurrences o = {};
    int64_t words = args->dtable_VD.dims[0];
    o.tokens = args->dy_TD.dims[0], o.ids = static_cast<const int32_t *>(args->ids_T.data);
    if (o.tokens == 0 || args->dy_TD.dims[1] == 0) return TT_OK;
    if (words * 2 * (int64_t)sizeof(int32_t) <= TT_CUDA_SCRATCH_BYTES) {
        cudaStream_t handle = tt_cuda_handle(stream);
        int32_t *first = static_cast<int32_t *>(tt_cuda_scratch(stream)), *counts = first + words;
        size_t bytes = (size_t)words * sizeof *first;
        TT_TRY(tt_cuda_check(cudaMemsetAsync(first, 0x7f, bytes, handle), stream, "embedding_backward"));
        TT_TRY(tt_cuda_check(cudaMemsetAsync(counts, 0, bytes, handle), stream, "embedding_backward"));
        count_ids<<<(unsigned)((o.tokens + THREADS - 1) / THREADS), THREADS, 0, handle>>>(first, counts,
                                                                                          o.ids, o.tokens);
        o.first = first, o.counts = counts;
    }
    bool aligned =
        is_aligned(args->dy_TD, 4) && is_aligned(args->dtable_VD, 4) && args->dy_TD.dims[1] % 4 == 0;
    return with_type(args->dy_TD.dtype, [&](auto t) {
        if (aligned)
            launch_add<decltype(t), 4>(stream, args, o);
        else
            launch_add<decltype(t), 1>(stream, args, o);
        return tt_cuda_launched(stream, "embedding_backward", &args->dy_TD);
    });
}

extern "C" tt_status tt_cuda_gather_rows(struct tt_stream *stream, const struct tt_gather_rows_args *args)
{
    return with_type(args->x_TD.dtype, [&](auto t) {
        return gather_typed<decltype(t), decltype(t)>(stream, "gather_rows", args->x_TD, args->rows_N,
                                                      args->y_ND);
    });
}

extern "C" tt_status tt_cuda_scatter_rows(struct tt_stream *stream, const struct tt_scatter_rows_args *args)
{
    return with_type(args->y_TD.dtype, [&](auto t) { return scatter_typed<decltype(t)>(stream, args); });
}

extern "C" tt_status tt_cuda_put_token_rows(struct tt_stream *stream,
                                            const struct tt_put_token_rows_args *args)
{
    const tt_tensor &rows = args->rows_KD, &y = args->y_TD;
    if (y.dims[0] == 0 || rows.dims[0] == 0) return TT_OK;
    return with_type(rows.dtype, [&](auto x) {
        return with_type(y.dtype, [&](auto t) {
            put_tokens<decltype(x), decltype(t)><<<(unsigned)y.dims[0], THREADS, 0, tt_cuda_handle(stream)>>>(
                view_of<decltype(t)>(y), view_of<const decltype(x)>(rows),
                static_cast<const int32_t *>(args->tokens_K.data), rows.dims[0],
                static_cast<const int32_t *>(args->ids_T.data), y.dims[1]);
            return tt_cuda_launched(stream, "put_token_rows", &args->y_TD);
        });
    });
}

extern "C" tt_status tt_cuda_add_token_rows(struct tt_stream *stream,
                                            const struct tt_add_token_rows_args *args)
{
    const tt_tensor &dy = args->dy_TD, &drows = args->drows_KD;
    if (dy.dims[0] == 0 || drows.dims[0] == 0 || dy.dims[1] == 0) return TT_OK;
    dim3 blocks((unsigned)drows.dims[0], (unsigned)((dy.dims[1] + THREADS - 1) / THREADS));
    return with_type(dy.dtype, [&](auto t) {
        add_tokens<decltype(t)><<<blocks, THREADS, 0, tt_cuda_handle(stream)>>>(
            view_of<float>(drows), view_of<const decltype(t)>(dy),
            static_cast<const int32_t *>(args->tokens_K.data), static_cast<const int32_t *>(args->ids_T.data),
            dy.dims[0], dy.dims[1]);
        return tt_cuda_launched(stream, "add_token_rows", &args->drows_KD);
    });
}

extern "C" tt_status tt_cuda_put_token_columns(struct tt_stream *stream,
                                               const struct tt_put_token_columns_args *args)
{
    return columns_typed(stream, "put_token_columns", args->y_NV, args->tokens_K, args->x_NK, false);
}

extern "C" tt_status tt_cuda_take_token_columns(struct tt_stream *stream,
                                                const struct tt_take_token_columns_args *args)
{
    return columns_typed(stream, "take_token_columns", args->y_NV, args->tokens_K, args->x_NK, true);
}
