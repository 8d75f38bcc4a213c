/* Sums, maxima and minima in order of rank, bit for bit what a scalar loop gives. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "comm/comm_impl.h"
#include "support/comm_calls.h"

enum { FROM_MAX = 9, SKIPPED = 5 };

static void same_bits(tt_dtype dtype, size_t count, int from_count, enum tt_reduce reduce, int into)
{
    size_t element = tt_dtype_bytes(dtype), bytes = count * element;
    void *held[FROM_MAX];
    const void *from[FROM_MAX], *at[FROM_MAX];
    char *wanted = malloc(bytes), *apart = malloc(bytes);
    for (int q = 0; q < from_count; q++) {
        held[q] = malloc(bytes + SKIPPED * element);
        test_comm_fill(held[q], dtype, count + SKIPPED, count, q);
        from[q] = held[q];
        at[q] = (const char *)held[q] + SKIPPED * element;
    }
    test_reduce_scalar(wanted, at, from_count, count, dtype, reduce);
    char *to = into < 0 ? apart : (char *)held[into] + SKIPPED * element;
    tt_reduce_ordered(to, from, from_count, SKIPPED, count, dtype, reduce);
    if (memcmp(to, wanted, bytes) != 0)
        fail_msg("%s, %zu elements of %d ranks, reduction %d into %d", tt_dtype_name(dtype), count,
                 from_count, (int)reduce, into);
    for (int q = 0; q < from_count; q++) free(held[q]);
    free(wanted);
    free(apart);
}

static void like_a_scalar_loop(void **state)
{
    (void)state;
    static const tt_dtype dtypes[] = {TT_F32, TT_BF16, TT_F64, TT_I64};
    static const size_t counts[] = {1, 7, 64, 2047, 2048, 2049, 4097};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            for (int from_count = 1; from_count <= FROM_MAX; from_count += from_count < 4 ? 1 : 5) {
                for (int reduce = TT_REDUCE_SUM; reduce <= TT_REDUCE_MIN; reduce++) {
                    same_bits(dtypes[d], counts[c], from_count, (enum tt_reduce)reduce, -1);
                    same_bits(dtypes[d], counts[c], from_count, (enum tt_reduce)reduce, 0);
                    same_bits(dtypes[d], counts[c], from_count, (enum tt_reduce)reduce, from_count - 1);
                }
            }
        }
    }
}

/* The inputs of the other test do tell orders apart: adding the ranks backwards gives other bits. */
static void the_order_shows(void **state)
{
    (void)state;
    float a[64], b[64], c[64], forward[64], backward[64];
    test_comm_fill(a, TT_F32, 64, 1, 0);
    test_comm_fill(b, TT_F32, 64, 1, 1);
    test_comm_fill(c, TT_F32, 64, 1, 2);
    tt_reduce_ordered(forward, (const void *const[]){a, b, c}, 3, 0, 64, TT_F32, TT_REDUCE_SUM);
    tt_reduce_ordered(backward, (const void *const[]){c, b, a}, 3, 0, 64, TT_F32, TT_REDUCE_SUM);
    assert_memory_not_equal(forward, backward, sizeof forward);
}

/* 1 + 2^-8 + 2^-8 is 1 when each sum is rounded to bf16, and 1 + 2^-7 when the last one is. */
static void bf16_is_rounded_once(void **state)
{
    (void)state;
    uint16_t one = tt_f32_to_bf16(1), small = tt_f32_to_bf16(0x1p-8f), sum;
    tt_reduce_ordered(&sum, (const void *const[]){&one, &small, &small}, 3, 0, 1, TT_BF16, TT_REDUCE_SUM);
    assert_true(tt_bf16_to_f32(sum) == 1 + 0x1p-7f);
}

static void i64_wraps(void **state)
{
    (void)state;
    int64_t most = INT64_MAX, one = 1, out;
    tt_reduce_ordered(&out, (const void *const[]){&most, &one}, 2, 0, 1, TT_I64, TT_REDUCE_SUM);
    assert_true(out == INT64_MIN);
    tt_reduce_ordered(&out, (const void *const[]){&most, &one}, 2, 0, 1, TT_I64, TT_REDUCE_MAX);
    assert_true(out == INT64_MAX);
}

static void a_nan_stays(void **state)
{
    (void)state;
    for (int reduce = TT_REDUCE_SUM; reduce <= TT_REDUCE_MIN; reduce++) {
        for (int place = 0; place < 3; place++) {
            float f[3] = {1, -INFINITY, 3}, f_out;
            double d[3] = {1, 2, INFINITY}, d_out;
            uint16_t b[3] = {tt_f32_to_bf16(1), tt_f32_to_bf16(2), tt_f32_to_bf16(3)}, b_out;
            f[place] = NAN;
            d[place] = NAN;
            b[place] = tt_f32_to_bf16(NAN);
            tt_reduce_ordered(&f_out, (const void *const[]){f, f + 1, f + 2}, 3, 0, 1, TT_F32,
                              (enum tt_reduce)reduce);
            tt_reduce_ordered(&d_out, (const void *const[]){d, d + 1, d + 2}, 3, 0, 1, TT_F64,
                              (enum tt_reduce)reduce);
            tt_reduce_ordered(&b_out, (const void *const[]){b, b + 1, b + 2}, 3, 0, 1, TT_BF16,
                              (enum tt_reduce)reduce);
            assert_true(isnan(f_out) && isnan(d_out) && isnan(tt_bf16_to_f32(b_out)));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(like_a_scalar_loop),   cmocka_unit_test(the_order_shows),
        cmocka_unit_test(bf16_is_rounded_once), cmocka_unit_test(i64_wraps),
        cmocka_unit_test(a_nan_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
