#include "ops_attention.h"

#include <stdio.h>

#include "backend/ops/attention.h"

static tt_status run_attention_forward(struct tt_stream *stream, const void *args)
{
    return tt_attention_forward(stream, args);
}

static tt_status run_attention_backward(struct tt_stream *stream, const void *args)
{
    return tt_attention_backward(stream, args);
}

enum { SEQUENCES_MAX = 64 };

/* B causal sequences of the same length, H query heads over K key heads. */
struct attention_shape {
    int32_t sequences, length;
    int64_t heads, kv_heads, head_dim, window;
};

/* The pairs of a query and a key that it sees, counted as half of a square without a window. */
static double attention_pairs(const struct attention_shape *shape)
{
    double length = (double)shape->length, window = (double)shape->window;
    double pairs =
        window > 0 && window < length ? window * length - window * window / 2 : length * length / 2;
    return (double)shape->sequences * pairs;
}

static void bench_attention(struct bench *bench, tt_dtype dtype, struct attention_shape of)
{
    int64_t heads = of.heads, kv_heads = of.kv_heads, head_dim = of.head_dim;
    int32_t cu[SEQUENCES_MAX + 1], sequences = of.sequences, length = of.length, tokens = sequences * length;
    for (int32_t b = 0; b <= sequences; b++) cu[b] = b * length;
    tt_tensor device_cu = bench_index_tensor(bench, TT_I32, sequences + 1, length, INT32_MAX);
    struct tt_attention_backward_args args = {
        .forward = {.q_THE =
                        tt_tensor_heads(bench_random_tensor(bench, dtype, tokens, heads * head_dim), heads),
                    .k_TKE = tt_tensor_heads(bench_random_tensor(bench, dtype, tokens, kv_heads * head_dim),
                                             kv_heads),
                    .v_TKE = tt_tensor_heads(bench_random_tensor(bench, dtype, tokens, kv_heads * head_dim),
                                             kv_heads),
                    .cu_q = cu,
                    .cu_k = cu,
                    .device_cu_q = device_cu,
                    .device_cu_k = device_cu,
                    .sequence_count = sequences,
                    .max_length_q = length,
                    .max_length_k = length,
                    .scale = 0.125,
                    .window = of.window,
                    .o_THE =
                        tt_tensor_heads(bench_random_tensor(bench, dtype, tokens, heads * head_dim), heads),
                    .lse_HT = bench_random_tensor(bench, TT_F32, heads, tokens)},
        .do_THE = tt_tensor_heads(bench_random_tensor(bench, dtype, tokens, heads * head_dim), heads),
        .dq_THE = tt_tensor_heads(bench_random_tensor(bench, dtype, tokens, heads * head_dim), heads),
        .dk_TKE = tt_tensor_heads(bench_random_tensor(bench, dtype, tokens, kv_heads * head_dim), kv_heads),
        .dv_TKE = tt_tensor_heads(bench_random_tensor(bench, dtype, tokens, kv_heads * head_dim), kv_heads)};
    size_t scratch = tt_attention_backward_scratch(bench->device, &args);
    if (scratch > 0) args.scratch = tt_tensor_1d(bench_memory(bench, scratch), TT_U8, (int64_t)scratch);
    /* Two products forward, five backward. */
    double product = 2 * attention_pairs(&of) * (double)heads * (double)head_dim;
    char name[128], shape[96], window[32] = "";
    if (of.window > 0) snprintf(window, sizeof window, " window=%lld", (long long)of.window);
    snprintf(shape, sizeof shape, "%s %dx%d H=%lld K=%lld E=%lld%s", tt_dtype_name(dtype), (int)sequences,
             (int)length, (long long)heads, (long long)kv_heads, (long long)head_dim, window);
    snprintf(name, sizeof name, "attention forward %s", shape);
    bench_measure(bench, name, run_attention_forward, &args.forward, 2 * product, 0);
    snprintf(name, sizeof name, "attention backward %s", shape);
    bench_measure(bench, name, run_attention_backward, &args, 5 * product, 0);
    bench_release(bench);
}

void bench_attention_of_models(struct bench *bench)
{
    static const struct attention_shape shapes[] = {
        {4, 4096, 32, 8, 128, 0},
        {1, 16384, 32, 8, 128, 0},
        {16, 1024, 32, 8, 128, 0},
        {64, 256, 32, 8, 128, 0},
        {4, 4096, 32, 8, 64, 0},
        {4, 2048, 16, 8, 256, 0},
        /* Gemma 4: full and sliding layers */
        {1, 8192, 8, 2, 512, 0},
        {4, 4096, 8, 2, 512, 0},
        {16, 512, 8, 2, 512, 0},
        {1, 8192, 8, 2, 256, 512},
        {1, 8192, 16, 8, 256, 1024},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) bench_attention(bench, TT_BF16, shapes[i]);
}

void bench_attention_of_small_models(struct bench *bench)
{
    bench_attention(bench, TT_BF16, (struct attention_shape){1, 2048, 16, 4, 64, 0});
    bench_attention(bench, TT_F32, (struct attention_shape){1, 1024, 16, 4, 128, 0});
    bench_attention(bench, TT_BF16, (struct attention_shape){1, 512, 14, 2, 64, 0});
}
