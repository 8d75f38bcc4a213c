/* backend/kept.h: products with kept panels have the same bits; which matrices are kept, and until when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "backend/kept.h"
#include "backend/ops/gemm.h"
#include "tensor/tensor.h"

enum { ROWS = 16, N = 200, K = 1100, ROOM = 8 << 20 }; /* K: several blocks; N: a panel that is not full */

struct bench {
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_buffer *x, *w, *c, *memory;
    tt_dtype dtype;
};

static void fill(struct tt_buffer *buffer, tt_dtype dtype, uint32_t seed)
{
    size_t count = tt_buffer_bytes(buffer) / tt_dtype_bytes(dtype);
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        float value = (float)(int32_t)(seed >> 16 & 0xffff) / 32768.0f - 1.0f;
        if (dtype == TT_F32)
            ((float *)tt_buffer_data(buffer))[i] = value;
        else
            ((uint16_t *)tt_buffer_data(buffer))[i] = tt_f32_to_bf16(value);
    }
}

static bool open_bench(int isa, tt_dtype dtype, struct bench *bench, struct tt_device_config *config)
{
    *bench = (struct bench){.dtype = dtype};
    *config = (struct tt_device_config){.kind = "cpu", .threads = 2, .tuning.cpu_isa = isa};
    if (tt_device_open(config, &bench->device) != TT_OK) return false;
    size_t element = tt_dtype_bytes(dtype);
    assert_int_equal(tt_stream_create(bench->device, &bench->stream), TT_OK);
    assert_int_equal(tt_buffer_create(bench->device, ROWS * K * element, TT_PURPOSE_BATCH, &bench->x), TT_OK);
    assert_int_equal(tt_buffer_create(bench->device, 2 * N * K * element, TT_PURPOSE_WEIGHTS, &bench->w),
                     TT_OK);
    assert_int_equal(tt_buffer_create(bench->device, ROWS * 2 * N * 4, TT_PURPOSE_BATCH, &bench->c), TT_OK);
    assert_int_equal(tt_buffer_create(bench->device, ROOM, TT_PURPOSE_PANELS, &bench->memory), TT_OK);
    fill(bench->x, dtype, 1);
    fill(bench->w, dtype, 2);
    return true;
}

static void close_bench(struct bench *bench)
{
    tt_device_drop_panels(bench->device);
    tt_buffer_destroy(bench->x);
    tt_buffer_destroy(bench->w);
    tt_buffer_destroy(bench->c);
    tt_buffer_destroy(bench->memory);
    tt_stream_destroy(bench->stream);
    tt_device_close(bench->device);
}

/* x [ROWS, K] times the transpose of `n` rows of w; copies the result. */
static void multiply(const struct bench *bench, int64_t rows, int64_t n, float *result)
{
    struct tt_gemm_args args = {.alpha = 1, .trans_b = true};
    args.a = tt_tensor_2d(tt_buffer_data(bench->x), bench->dtype, rows, K);
    args.b = tt_tensor_2d(tt_buffer_data(bench->w), bench->dtype, n, K);
    args.c = tt_tensor_2d(tt_buffer_data(bench->c), TT_F32, rows, n);
    assert_int_equal(tt_gemm(bench->stream, &args), TT_OK);
    memcpy(result, tt_buffer_data(bench->c), (size_t)(rows * n) * sizeof *result);
}

static void keep(const struct bench *bench, size_t count)
{
    size_t half = tt_buffer_bytes(bench->w) / 2;
    char *data = tt_buffer_data(bench->w);
    const struct tt_kept_range ranges[] = {{data + half, half}, {data, half}}; /* they touch */
    assert_int_equal(tt_device_keep_panels(bench->device, bench->memory, ranges + 2 - count, count), TT_OK);
}

static void check_matrix(int isa, tt_dtype dtype)
{
    static float plain[ROWS * 2 * N], kept[ROWS * 2 * N];
    struct bench bench;
    struct tt_device_config config;
    if (!open_bench(isa, dtype, &bench, &config)) return; /* this processor lacks the instructions */
    size_t floats = ROWS * 2 * N;
    bool keeps = tt_kept_bytes(&config, ROWS, 2 * N, K, dtype, dtype) > 0;
    multiply(&bench, ROWS, 2 * N, plain);
    keep(&bench, 2);
    for (int round = 0; round < 2; round++) {
        multiply(&bench, ROWS, 2 * N, kept);
        assert_memory_equal(plain, kept, floats * sizeof *kept);
    }
    fill(bench.w, dtype, 3); /* what a caller must not do: shows whether the panels are used */
    multiply(&bench, ROWS, 2 * N, kept);
    assert_int_equal(memcmp(plain, kept, floats * sizeof *kept) == 0, keeps);
    multiply(&bench, ROWS, N, kept); /* another matrix at the same address is packed by itself */
    assert_true(memcmp(plain, kept, N * sizeof *kept) != 0);
    fill(bench.w, dtype, 2);
    tt_device_drop_panels(bench.device);
    multiply(&bench, ROWS, 2 * N, kept);
    assert_memory_equal(plain, kept, floats * sizeof *kept);
    /* Half of the matrix may change: it is not kept. */
    keep(&bench, 1);
    multiply(&bench, ROWS, 2 * N, kept);
    fill(bench.w, dtype, 3);
    multiply(&bench, ROWS, 2 * N, kept);
    assert_true(memcmp(plain, kept, floats * sizeof *kept) != 0);
    close_bench(&bench);
}

static void same_bits(void **state)
{
    (void)state;
    for (int isa = TT_TUNING_ISA_FIRST; isa < TT_TUNING_ISA_FIRST + 5; isa++) {
        check_matrix(isa, TT_F32);
        check_matrix(isa, TT_BF16);
    }
}

/* Memory for less than the matrix: it is packed as before. */
static void little_memory(void **state)
{
    static float plain[ROWS * N], kept[ROWS * N];
    struct bench bench;
    struct tt_device_config config;
    struct tt_buffer *little = NULL;
    (void)state;
    assert_true(open_bench(TT_TUNING_ISA_AUTO, TT_F32, &bench, &config));
    assert_int_equal(tt_buffer_create(bench.device, 4096, TT_PURPOSE_PANELS, &little), TT_OK);
    const struct tt_kept_range all = {tt_buffer_data(bench.w), tt_buffer_bytes(bench.w)};
    multiply(&bench, ROWS, N, plain);
    assert_int_equal(tt_device_keep_panels(bench.device, little, &all, 1), TT_OK);
    multiply(&bench, ROWS, N, kept);
    assert_memory_equal(plain, kept, sizeof kept);
    fill(bench.w, TT_F32, 3);
    multiply(&bench, ROWS, N, kept);
    assert_memory_not_equal(plain, kept, sizeof kept);
    tt_device_drop_panels(bench.device);
    tt_buffer_destroy(little);
    close_bench(&bench);
}

/* Nothing is reserved for products that read a matrix as it is stored, and on devices that do not pack. */
static void sizes(void **state)
{
    struct tt_device_config config = {.kind = "cpu"};
    (void)state;
    assert_int_equal(tt_kept_bytes(&config, 1, N, K, TT_F32, TT_F32), 0);
    size_t bytes = tt_kept_bytes(&config, 64, N, K, TT_F32, TT_F32);
    assert_in_range(bytes, (size_t)N * K * 4, (size_t)N * K * 5);
    config = (struct tt_device_config){.kind = "plan"};
    assert_int_equal(tt_kept_bytes(&config, 64, N, K, TT_F32, TT_F32), bytes);
    config.stands_for = "h200";
    assert_int_equal(tt_kept_bytes(&config, 64, N, K, TT_F32, TT_F32), 0);
    config = (struct tt_device_config){.kind = "cuda"};
    assert_int_equal(tt_kept_bytes(&config, 64, N, K, TT_F32, TT_F32), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits), cmocka_unit_test(little_memory),
                                       cmocka_unit_test(sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
