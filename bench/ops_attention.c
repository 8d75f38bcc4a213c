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
    int32_t queries; /* the last ones of each sequence, behind a beginning that another one has; 0: all */
};

/* The pairs of a query and a key that it sees, counted as half of a square without a window. */
static double attention_pairs(const struct attention_shape *shape)
{
    double length = (double)shape->length, window = (double)shape->window;
    double pairs =
        window > 0 && window < length ? window * length - window * window / 2 : length * length / 2;
    double before = shape->queries > 0 ? length - (double)shape->queries : 0;
    pairs -= before * before / 2;
    return (double)shape->sequences * pairs;
}

static void bench_attention(struct bench *bench, tt_dtype dtype, struct attention_shape of)
{
    int64_t heads = of.heads, kv_heads = of.kv_heads, head_dim = of.head_dim;
    int32_t cu_q[SEQUENCES_MAX + 1], cu_k[SEQUENCES_MAX + 1],
        sequences = of.sequences, length = of.length, queries = of.queries > 0 ? of.queries : length,
        tokens = sequences * queries, keys = sequences * length;
    for (int32_t b = 0; b <= sequences; b++) cu_q[b] = b * queries, cu_k[b] = b * length;
    tt_tensor device_cu_q = bench_index_tensor(bench, TT_I32, sequences + 1, queries, INT32_MAX);
    tt_tensor device_cu_k = bench_index_tensor(bench, TT_I32, sequences + 1, length, INT32_MAX);
    struct tt_attention_backward_args args = {
        .forward =
            {.q_THE = tt_tensor_heads(bench_random_tensor(bench, dtype, tokens, heads * head_dim), heads),
             .k_TKE = tt_tensor_heads(bench_random_tensor(bench, dtype, keys, kv_heads * head_dim), kv_heads),
             .v_TKE = tt_tensor_heads(bench_random_tensor(bench, dtype, keys, kv_heads * head_dim), kv_heads),
             .cu_q = cu_q,
             .cu_k = cu_k,
             .device_cu_q = device_cu_q,
             .device_cu_k = device_cu_k,
             .sequence_count = sequences,
             .max_length_q = queries,
             .max_length_k = length,
             .scale = 0.125,
             .window = of.window,
             .o_THE = tt_tensor_heads(bench_random_tensor(bench, dtype, tokens, heads * head_dim), heads),
             .lse_HT = bench_random_tensor(bench, TT_F32, heads, tokens)},
        .do_THE = tt_tensor_heads(bench_random_tensor(bench, dtype, tokens, heads * head_dim), heads),
        .dq_THE = tt_tensor_heads(bench_random_tensor(bench, dtype, tokens, heads * head_dim), heads),
        .dk_TKE = tt_tensor_heads(bench_random_tensor(bench, dtype, keys, kv_heads * head_dim), kv_heads),
        .dv_TKE = tt_tensor_heads(bench_random_tensor(bench, dtype, keys, kv_heads * head_dim), kv_heads)};
    size_t scratch = tt_attention_backward_scratch(bench->device, &args);
    if (scratch > 0) args.scratch = tt_tensor_1d(bench_memory(bench, scratch), TT_U8, (int64_t)scratch);
    /* Two products forward, five backward. */
    double product = 2 * attention_pairs(&of) * (double)heads * (double)head_dim;
    char name[128], shape[96], window[32] = "";
    if (of.window > 0) snprintf(window, sizeof window, " window=%lld", (long long)of.window);
    if (of.queries > 0) snprintf(window, sizeof window, " queries=%d", (int)of.queries);
    snprintf(shape, sizeof shape, "%s %dx%d H=%lld K=%lld E=%lld%s", tt_dtype_name(dtype), (int)sequences,
             (int)length, (long long)heads, (long long)kv_heads, (long long)head_dim, window);
    snprintf(name, sizeof name, "attention forward %s", shape);
    bench_measure(bench, name, run_attention_forward, &args.forward, 2 * product, 0);
    snprintf(name, sizeof name, "attention backward %s", shape);
    bench_measure(bench, name, run_attention_backward, &args, 5 * product, 0);
    bench_release(bench);
}

enum { DECODE_LAYERS = 8, DECODE_ROWS_MAX = 256 };

/* One query of each row, of a cache with the same number of keys for all. */
struct decode_shape {
    int32_t rows, keys;
    int64_t heads, kv_heads, head_dim;
};

static tt_status run_decode(struct tt_stream *stream, const void *args)
{
    const struct tt_attention_decode_args *layers = args;
    for (int i = 0; i < DECODE_LAYERS; i++) TT_TRY(tt_attention_decode(stream, &layers[i]));
    return TT_OK;
}

static tt_status launch_decode(struct tt_stream *stream, const void *graph)
{
    return tt_graph_launch(*(struct tt_graph *const *)graph, stream);
}

/* Layers with keys of their own, one after the other, as generation runs them: those of a single one would stay in the
 * cache of the chip. Generation also launches them as a graph. */
static void bench_decode(struct bench *bench, struct decode_shape of)
{
    int32_t numbers[2 * DECODE_ROWS_MAX], *device_numbers = bench_memory(bench, sizeof numbers);
    int64_t keys = (int64_t)of.rows * of.keys, width = of.kv_heads * of.head_dim;
    for (int32_t i = 0; i < of.rows; i++) {
        numbers[i] = i * of.keys;
        numbers[DECODE_ROWS_MAX + i] = of.keys;
    }
    bench_must(tt_copy_to_device(bench->stream, device_numbers, numbers, sizeof numbers));
    bench_must(tt_stream_synchronize(bench->stream));
    tt_tensor k =
        tt_tensor_heads(bench_random_tensor(bench, TT_BF16, DECODE_LAYERS * keys, width), of.kv_heads);
    tt_tensor v =
        tt_tensor_heads(bench_random_tensor(bench, TT_BF16, DECODE_LAYERS * keys, width), of.kv_heads);
    struct tt_attention_decode_args layers[DECODE_LAYERS] = {
        {.q_THE =
             tt_tensor_heads(bench_random_tensor(bench, TT_BF16, of.rows, of.heads * of.head_dim), of.heads),
         .first_T = tt_tensor_1d(device_numbers, TT_I32, of.rows),
         .count_T = tt_tensor_1d(device_numbers + DECODE_ROWS_MAX, TT_I32, of.rows),
         .max_count = of.keys,
         .scale = 0.125,
         .o_THE = tt_tensor_heads(bench_random_tensor(bench, TT_BF16, of.rows, of.heads * of.head_dim),
                                  of.heads)}};
    size_t scratch = tt_attention_decode_scratch(bench->device, &layers[0]);
    if (scratch > 0) layers[0].scratch = tt_tensor_1d(bench_memory(bench, scratch), TT_U8, (int64_t)scratch);
    for (int i = DECODE_LAYERS - 1; i >= 0; i--) {
        layers[i] = layers[0];
        layers[i].k_RKE = tt_tensor_rows(k, i * keys, keys);
        layers[i].v_RKE = tt_tensor_rows(v, i * keys, keys);
    }
    char name[128];
    snprintf(name, sizeof name, "attention decode bf16 %d layers %dx%d H=%lld K=%lld E=%lld", DECODE_LAYERS,
             (int)of.rows, (int)of.keys, (long long)of.heads, (long long)of.kv_heads, (long long)of.head_dim);
    double bytes = 2.0 * DECODE_LAYERS * (double)keys * (double)width * 2.0;
    struct tt_graph *graph = NULL;
    if (tt_device_has_graphs(bench->device)) {
        bench_must(tt_graph_begin(bench->stream));
        bench_must(run_decode(bench->stream, layers));
        bench_must(tt_graph_end(bench->stream, &graph));
        bench_measure(bench, name, launch_decode, &graph, 0, bytes);
    } else {
        bench_measure(bench, name, run_decode, layers, 0, bytes);
    }
    bench_release(bench);
    tt_graph_destroy(graph);
}

/* Qwen3-30B-A3B, Qwen3.5 9B; short and long contexts. */
void bench_decode_of_models(struct bench *bench)
{
    static const struct decode_shape shapes[] = {
        {1, 132, 32, 4, 128},   {64, 132, 32, 4, 128},  {256, 132, 32, 4, 128}, {64, 500, 32, 4, 128},
        {64, 2000, 32, 4, 128}, {1, 2000, 32, 4, 128},  {1, 32768, 32, 4, 128}, {1, 132, 16, 4, 256},
        {64, 132, 16, 4, 256},  {1, 32768, 16, 4, 256}, {64, 132, 14, 2, 64},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) bench_decode(bench, shapes[i]);
}

void bench_attention_of_models(struct bench *bench)
{
    static const struct attention_shape shapes[] = {
        {4, 4096, 32, 8, 128, 0, 0},
        {1, 16384, 32, 8, 128, 0, 0},
        {16, 1024, 32, 8, 128, 0, 0},
        /* answers behind prompts of half and three quarters of 2048 tokens, which the sequences before them have */
        {8, 2048, 32, 8, 128, 0, 1024},
        {8, 2048, 32, 8, 128, 0, 512},
        {64, 256, 32, 8, 128, 0, 0},
        {4, 4096, 32, 8, 64, 0, 0},
        {4, 2048, 16, 8, 256, 0, 0},
        /* Gemma 4: full and sliding layers */
        {1, 8192, 8, 2, 512, 0, 0},
        {4, 4096, 8, 2, 512, 0, 0},
        {16, 512, 8, 2, 512, 0, 0},
        {1, 8192, 8, 2, 256, 512, 0},
        {1, 8192, 16, 8, 256, 1024, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) bench_attention(bench, TT_BF16, shapes[i]);
}

void bench_attention_of_small_models(struct bench *bench)
{
    bench_attention(bench, TT_BF16, (struct attention_shape){1, 2048, 16, 4, 64, 0, 0});
    bench_attention(bench, TT_F32, (struct attention_shape){1, 1024, 16, 4, 128, 0, 0});
    bench_attention(bench, TT_BF16, (struct attention_shape){1, 512, 14, 2, 64, 0, 0});
    bench_attention(bench, TT_BF16, (struct attention_shape){4, 512, 14, 2, 64, 0, 256});
}

void bench_decode_of_small_models(struct bench *bench)
{
    bench_decode(bench, (struct decode_shape){8, 132, 14, 2, 64});
}
