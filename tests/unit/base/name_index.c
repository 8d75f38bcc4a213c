/* Finds every name among thousands and none that is not there; the first number of a name stays; a failed allocation
 * leaves the index usable. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/name_index.h"

enum { NAMES = 20000 };
static char names[NAMES][48];

static void finds_all_and_no_others(void **state)
{
    struct tt_name_index index = {0};
    size_t number = 77;
    (void)state;
    assert_false(tt_name_index_find(&index, "none", &number));
    for (size_t i = 0; i < NAMES; i++) {
        (void)snprintf(names[i], sizeof names[i], "model.layers.%zu.mlp.experts.%zu.up_proj", i / 128,
                       i % 128);
        assert_int_equal(tt_name_index_add(&index, names[i], i), TT_OK);
    }
    assert_int_equal(tt_name_index_add(&index, "model.layers.0.mlp.experts.5.up_proj", 1), TT_OK);
    assert_int_equal(index.count, NAMES);
    for (size_t i = 0; i < NAMES; i++) {
        char copy[48];
        memcpy(copy, names[i], sizeof copy);
        assert_true(tt_name_index_find(&index, copy, &number));
        assert_int_equal(number, i);
    }
    number = 77;
    assert_false(tt_name_index_find(&index, "model.layers.0.mlp.experts.5.up_pro", &number));
    assert_false(tt_name_index_find(&index, "", &number));
    assert_int_equal(number, 77);
    tt_name_index_deinit(&index);
}

static void failed_growth_loses_nothing(void **state)
{
    struct tt_name_index index = {0};
    size_t number, added = 0;
    (void)state;
    for (; added < 32; added++) assert_int_equal(tt_name_index_add(&index, names[added], added), TT_OK);
    tt_alloc_fail_at(1);
    assert_int_equal(tt_name_index_add(&index, names[added], added), TT_ERR_MEMORY);
    for (size_t i = 0; i < added; i++)
        assert_true(tt_name_index_find(&index, names[i], &number) && number == i);
    assert_int_equal(tt_name_index_add(&index, names[added], added), TT_OK);
    assert_true(tt_name_index_find(&index, names[added], &number) && number == added);
    tt_name_index_deinit(&index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_all_and_no_others),
        cmocka_unit_test(failed_growth_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
