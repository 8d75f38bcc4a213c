/* nn/kv_cache.h: a pass of single tokens stores and reads what an ordinary pass does, closely in its attention, which
 * another op computes; rows behind the last sequence touch no sequence. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "nn/kv_cache.h"
#include "support/must.h"

enum {
    SEQUENCES = 3,
    LENGTH = 7,
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 8,
    WIDTH = (HEADS + 2 * KV_HEADS) * DIM,
    TOKENS = 8
};

struct side {
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_kv_cache *cache;
};

static void open_side(struct side *side)
{
    const struct tt_device_config device = {.kind = "cpu", .threads = 1};
    const struct tt_kv_cache_config config = {.layer_count = 2,
                                              .sequence_count = SEQUENCES,
                                              .max_length = LENGTH,
                                              .kv_heads = KV_HEADS,
                                              .head_dim = DIM,
                                              .dtype = TT_F32};
    test_must(tt_device_open(&device, &side->device));
    test_must(tt_stream_create(side->device, &side->stream));
    test_must(tt_kv_cache_create(side->device, &config, &side->cache));
}

static void close_side(struct side *side)
{
    tt_kv_cache_destroy(side->cache);
    tt_stream_destroy(side->stream);
    tt_device_close(side->device);
}

static void fill(float *qkv, int64_t rows, int seed)
{
    struct tt_rng rng = tt_rng_make((uint64_t)seed);
    for (int64_t i = 0; i < rows * WIDTH; i++) qkv[i] = (float)tt_rng_normal(rng, (uint64_t)i);
}

static tt_tensor columns(float *qkv, int64_t rows, int64_t first, int64_t heads)
{
    return tt_tensor_cols(tt_tensor_2d(qkv, TT_F32, rows, WIDTH), first * DIM, heads * DIM);
}

static void run_ordinary(struct side *side, float *qkv, const int32_t *borders, float *o)
{
    int64_t rows = borders[SEQUENCES];
    test_must(tt_kv_cache_begin(side->cache, side->stream, borders));
    assert_false(tt_kv_cache_is_single(side->cache));
    for (int layer = 0; layer < 2; layer++) {
        struct tt_attention_forward_args args = {
            .q_THE = tt_tensor_heads(columns(qkv, rows, 0, HEADS), HEADS),
            .scale = 0.3,
            .o_THE = tt_tensor_heads(tt_tensor_2d(o, TT_F32, rows, HEADS * DIM), HEADS)};
        test_must(tt_kv_cache_append(side->cache, side->stream, layer, columns(qkv, rows, HEADS, KV_HEADS),
                                     columns(qkv, rows, HEADS + KV_HEADS, KV_HEADS), &args));
        test_must(tt_attention_forward(side->stream, &args));
    }
    tt_kv_cache_end(side->cache);
}

static void run_single(struct side *side, float *qkv, const int32_t *sequences, int64_t count, int64_t rows,
                       float *o)
{
    test_must(tt_kv_cache_begin_single(side->cache, side->stream, sequences, count, rows));
    assert_true(tt_kv_cache_is_single(side->cache));
    for (int layer = 0; layer < 2; layer++) {
        struct tt_attention_decode_args args = {
            .q_THE = tt_tensor_heads(columns(qkv, rows, 0, HEADS), HEADS),
            .scale = 0.3,
            .o_THE = tt_tensor_heads(tt_tensor_2d(o, TT_F32, rows, HEADS * DIM), HEADS)};
        test_must(tt_kv_cache_append_single(side->cache, side->stream, layer,
                                            columns(qkv, rows, HEADS, KV_HEADS),
                                            columns(qkv, rows, HEADS + KV_HEADS, KV_HEADS), &args));
        assert_int_equal(args.max_count, tt_kv_cache_reach(side->cache));
        test_must(tt_attention_decode(side->stream, &args));
    }
    tt_kv_cache_end(side->cache);
}

static void close_to(const float *a, const float *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(a[i] - b[i]) <= 2e-6f)) fail_msg("element %lld: %.8g and %.8g", (long long)i, a[i], b[i]);
}

static void single_tokens_as_ordinary_ones(void **state)
{
    struct side a, b;
    float qkv[TOKENS * WIDTH], o_a[TOKENS * HEADS * DIM], o_b[TOKENS * HEADS * DIM];
    (void)state;
    open_side(&a);
    open_side(&b);
    fill(qkv, 7, 1);
    run_ordinary(&a, qkv, (const int32_t[]){0, 3, 3, 7},
                 o_a); /* prompts of 3 and 4 tokens, sequence 1 is empty */
    run_ordinary(&b, qkv, (const int32_t[]){0, 3, 3, 7}, o_b);
    fill(qkv, 3, 2);
    run_ordinary(&a, qkv, (const int32_t[]){0, 1, 1, 2}, o_a);
    run_single(&b, qkv, (const int32_t[]){0, 2}, 2, 3, o_b);
    close_to(o_a, o_b, 2 * HEADS * DIM);
    for (int64_t s = 0; s < SEQUENCES; s++)
        assert_int_equal(tt_kv_cache_length(a.cache, s), tt_kv_cache_length(b.cache, s));
    fill(qkv, 3, 3);
    run_ordinary(&a, qkv, (const int32_t[]){0, 1, 2, 3}, o_a); /* with a sequence that begins */
    run_single(&b, qkv, (const int32_t[]){0, 1, 2}, 3, 3, o_b);
    close_to(o_a, o_b, 3 * HEADS * DIM);
    fill(qkv, 2, 4);
    run_ordinary(&a, qkv, (const int32_t[]){0, 0, 2, 2},
                 o_a); /* ordinary passes read what single ones stored */
    run_ordinary(&b, qkv, (const int32_t[]){0, 0, 2, 2}, o_b);
    assert_memory_equal(o_a, o_b, 2 * HEADS * DIM * sizeof *o_a);
    close_side(&a);
    close_side(&b);
}

static void limits_hold(void **state)
{
    struct side side;
    float qkv[TOKENS * WIDTH], o[TOKENS * HEADS * DIM];
    (void)state;
    open_side(&side);
    fill(qkv, TOKENS, 5);
    run_ordinary(&side, qkv, (const int32_t[]){0, LENGTH, LENGTH, LENGTH}, o);
    assert_int_equal(tt_kv_cache_begin_single(side.cache, side.stream, (const int32_t[]){0}, 1, 1),
                     TT_ERR_USAGE);
    assert_int_equal(tt_kv_cache_begin_single(side.cache, side.stream, (const int32_t[]){1, 2}, 2, 1),
                     TT_ERR_INTERNAL);
    assert_int_equal(
        tt_kv_cache_begin_single(side.cache, side.stream, (const int32_t[]){1}, 1, SEQUENCES + 1),
        TT_ERR_INTERNAL);
    test_must(tt_kv_cache_begin_single(side.cache, side.stream, (const int32_t[]){1}, 1, 1));
    assert_int_equal(tt_kv_cache_reach(side.cache), LENGTH); /* rounded up, as far as the cache reaches */
    close_side(&side);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_tokens_as_ordinary_ones),
        cmocka_unit_test(limits_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
