/* The checks that all ops share: which views overlap, which strides are sound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "backend/ops/check.h"

static char memory[4096];

static tt_status apart(tt_tensor a, tt_tensor b)
{
    struct tt_check forth = {.op = "test"}, back = {.op = "test"};
    tt_check_apart(&forth, "a", a, "b", b);
    tt_check_apart(&back, "b", b, "a", a);
    assert_int_equal(forth.status, back.status);
    return forth.status;
}

static void overlap_is_found_and_interleaving_allowed(void **state)
{
    (void)state;
    tt_tensor whole = tt_tensor_2d(memory, TT_F32, 8, 12);
    tt_tensor left = tt_tensor_cols(whole, 0, 5), right = tt_tensor_cols(whole, 5, 7);
    assert_int_equal(apart(left, right), TT_OK);
    assert_int_equal(apart(tt_tensor_cols(whole, 0, 6), right), TT_ERR_INTERNAL);
    assert_int_equal(apart(whole, right), TT_ERR_INTERNAL);
    assert_int_equal(apart(tt_tensor_rows(whole, 0, 4), tt_tensor_rows(whole, 4, 4)), TT_OK);
    assert_int_equal(apart(tt_tensor_rows(whole, 0, 5), tt_tensor_rows(whole, 4, 4)), TT_ERR_INTERNAL);
    /* A single row against columns of many rows. */
    assert_int_equal(apart(left, tt_tensor_rows(right, 3, 1)), TT_OK);
    assert_int_equal(apart(left, tt_tensor_rows(whole, 3, 1)), TT_ERR_INTERNAL);
    /* Different strides: what lies between counts as occupied. */
    tt_tensor narrow = tt_tensor_2d_strided(memory + 20, TT_F32, 4, 1, 24);
    assert_int_equal(apart(left, narrow), TT_ERR_INTERNAL);
    /* Columns that wrap: the last of one row, the first of the next. */
    tt_tensor shifted = tt_tensor_2d_strided(memory + 10 * 4, TT_F32, 7, 4, 12);
    assert_int_equal(apart(tt_tensor_cols(whole, 0, 2), shifted), TT_ERR_INTERNAL);
    assert_int_equal(apart(tt_tensor_cols(whole, 2, 8), shifted), TT_OK);
    /* Heads of a fused matrix. */
    tt_tensor q = tt_tensor_heads(tt_tensor_cols(whole, 0, 8), 2),
              k = tt_tensor_heads(tt_tensor_cols(whole, 8, 4), 1);
    assert_int_equal(apart(q, k), TT_OK);
    assert_int_equal(apart(q, tt_tensor_heads(tt_tensor_cols(whole, 4, 4), 1)), TT_ERR_INTERNAL);
    /* What has no elements, or is not given, overlaps nothing. */
    assert_int_equal(apart(whole, tt_tensor_rows(whole, 2, 0)), TT_OK);
    assert_int_equal(apart(whole, (tt_tensor){0}), TT_OK);
}

static void the_same_view_is_told_from_a_similar_one(void **state)
{
    (void)state;
    tt_tensor x = tt_tensor_2d(memory, TT_F32, 4, 6), y = x;
    struct tt_check check = {.op = "test"};
    tt_check_same_or_apart(&check, "x", x, "y", y);
    assert_int_equal(check.status, TT_OK);
    y.dtype = TT_BF16;
    tt_check_same_or_apart(&check, "x", x, "y", y);
    assert_int_equal(check.status, TT_ERR_INTERNAL);
    assert_non_null(strstr(tt_error_last()->message, "test: x F32[4, 6] and y BF16[4, 6] overlap"));
    check.status = TT_OK;
    tt_check_same_or_apart(&check, "x", tt_tensor_cols(x, 0, 3), "y",
                           tt_tensor_2d_strided(memory, TT_F32, 4, 3, 7));
    assert_int_equal(check.status, TT_ERR_INTERNAL);
}

static tt_status sound(tt_tensor tensor)
{
    struct tt_check check = {.op = "test"};
    tt_check_tensor(&check, "x", tensor, TT_TYPES_REAL, 1, 3);
    return check.status;
}

static void unsound_descriptions_are_refused(void **state)
{
    (void)state;
    tt_tensor x = tt_tensor_3d(memory, TT_F32, 2, 3, 4);
    assert_int_equal(sound(x), TT_OK);
    x.strides[0] = 11;
    assert_int_equal(sound(x), TT_ERR_INTERNAL);
    x.strides[0] = -12;
    assert_int_equal(sound(x), TT_ERR_INTERNAL);
    x.dims[0] = 1; /* then its stride does not matter */
    assert_int_equal(sound(x), TT_OK);
    x = tt_tensor_2d(memory, TT_F32, 2, 3);
    x.dims[1] = -3;
    assert_int_equal(sound(x), TT_ERR_INTERNAL);
    assert_string_equal(tt_error_last()->message, "test: x is F32[2, -3], with a negative dimension");
    x = tt_tensor_2d(memory, TT_F32, 2, 4);
    x.dims[0] = INT64_MAX;
    assert_int_equal(sound(x), TT_ERR_INTERNAL);
    x = tt_tensor_2d_strided(memory, TT_F32, 3, 4, INT64_MAX / 2);
    assert_int_equal(sound(x), TT_ERR_INTERNAL);
    assert_int_equal(sound(tt_tensor_2d(NULL, TT_F32, 0, 3)), TT_OK);
    assert_int_equal(sound(tt_tensor_2d(NULL, TT_F32, 1, 3)), TT_ERR_INTERNAL);
    assert_int_equal(sound(tt_tensor_1d(memory, TT_F64, 1)), TT_ERR_UNSUPPORTED);
    assert_int_equal(sound((tt_tensor){0}), TT_ERR_INTERNAL);
    x = tt_tensor_1d(memory, TT_F32, 1);
    x.rank = 0;
    assert_int_equal(sound(x), TT_ERR_INTERNAL);
}

static void the_first_failure_stays(void **state)
{
    (void)state;
    struct tt_check check = {.op = "test"};
    tt_check_that(&check, false, "number %d", 1);
    tt_check_that(&check, false, "number %d", 2);
    tt_check_tensor(&check, "x", tt_tensor_1d(memory, TT_F64, 1), TT_TYPES_REAL, 1, 1);
    assert_int_equal(check.status, TT_ERR_INTERNAL);
    assert_string_equal(tt_error_last()->message, "test: number 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlap_is_found_and_interleaving_allowed),
        cmocka_unit_test(the_same_view_is_told_from_a_similar_one),
        cmocka_unit_test(unsound_descriptions_are_refused),
        cmocka_unit_test(the_first_failure_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
