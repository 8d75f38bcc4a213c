/* tensor/tensor.h: views of views point where they should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tensor/param.h"
#include "tensor/tensor.h"

static float *at(tt_tensor tensor, int64_t i, int64_t j, int64_t k)
{
    return (float *)tensor.data + i * tensor.strides[0] + j * tensor.strides[1] + k * tensor.strides[2];
}

static void views(void **state)
{
    (void)state;
    static float data[6 * 24];
    tt_tensor x = tt_tensor_2d(data, TT_F32, 6, 24);
    assert_true(tt_tensor_is_contiguous(x));
    assert_int_equal(tt_tensor_bytes(x), sizeof data);
    tt_tensor part = tt_tensor_cols(tt_tensor_rows(x, 2, 3), 8, 8);
    assert_false(tt_tensor_is_contiguous(part));
    assert_int_equal(tt_tensor_count(part), 24);
    assert_ptr_equal(part.data, data + 2 * 24 + 8);
    tt_tensor heads = tt_tensor_heads(part, 2);
    assert_int_equal(heads.rank, 3);
    assert_ptr_equal(at(heads, 1, 1, 3), data + 3 * 24 + 8 + 4 + 3);
    assert_false(tt_tensor_is_contiguous(heads));
    assert_true(tt_tensor_is_contiguous(tt_tensor_heads(x, 4)));
    assert_true(tt_tensor_is_contiguous(tt_tensor_rows(part, 0, 1)));
    assert_true(tt_tensor_is_contiguous(tt_tensor_cols(x, 0, 0)));
    assert_true(tt_tensor_same_shape(part, tt_tensor_2d(NULL, TT_BF16, 3, 8)));
    assert_false(tt_tensor_same_shape(part, heads));
    tt_tensor strided = tt_tensor_2d_strided(data, TT_F32, 3, 4, 24);
    assert_ptr_equal((float *)strided.data + strided.strides[0], data + 24);
    tt_tensor cube = tt_tensor_3d(data, TT_F32, 2, 3, 4);
    assert_ptr_equal(tt_tensor_rows(cube, 1, 1).data, data + 12);
}

static void empty(void **state)
{
    (void)state;
    tt_tensor none = {0};
    assert_true(tt_tensor_is_empty(none));
    assert_int_equal(tt_tensor_count(none), 0);
    assert_int_equal(tt_tensor_bytes(none), 0);
    tt_tensor no_rows = tt_tensor_rows(tt_tensor_2d(NULL, TT_F32, 0, 8), 0, 0);
    assert_null(no_rows.data);
    assert_int_equal(tt_tensor_count(no_rows), 0);
    assert_false(tt_tensor_is_empty(no_rows));
    assert_int_equal(tt_tensor_count(tt_tensor_1d(NULL, TT_U8, 5)), 5);
}

static void format(void **state)
{
    (void)state;
    char text[32];
    assert_string_equal(tt_tensor_format(tt_tensor_2d(NULL, TT_BF16, 16, 4096), text, sizeof text),
                        "BF16[16, 4096]");
    assert_string_equal(tt_tensor_format(tt_tensor_2d(NULL, TT_BF16, 16, 4096), text, 8), "BF16[16");
    assert_string_equal(tt_tensor_format((tt_tensor){0}, text, sizeof text), "none[]");
}

static void param(void **state)
{
    (void)state;
    tt_param p = {.rank = 2, .dims = {3, 5}};
    assert_int_equal(tt_param_count(&p), 15);
    p.rank = 0;
    assert_int_equal(tt_param_count(&p), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(views), cmocka_unit_test(empty),
                                       cmocka_unit_test(format), cmocka_unit_test(param)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
