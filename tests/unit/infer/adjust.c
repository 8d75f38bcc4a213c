/* infer/adjust.h: OpenAI's definition of the penalties, biases, and answers that may not end yet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "infer/adjust.h"
#include "support/must.h"

enum { VOCAB = 12, NEW = 30 };

static int32_t end_data[] = {2, 7, 2}, stop_data[] = {7, 9};
static const struct tt_ids ends = {.data = end_data, .count = 3}, stops = {.data = stop_data, .count = 2};
static const struct tt_ids *const lists[] = {&ends, &stops};

/* What the list adds to each id of `row`; fails where one has two entries. */
static void sum(const struct tt_adjust_list *list, int32_t row, double *sums)
{
    bool seen[VOCAB] = {false};
    for (int i = 0; i < VOCAB; i++) sums[i] = 0;
    for (size_t e = 0; e < list->count; e++) {
        if (list->rows[e] != row) continue;
        assert_false(seen[list->ids[e]]);
        seen[list->ids[e]] = true;
        sums[list->ids[e]] = (double)list->values[e];
    }
}

static void penalties_and_biases(void **state)
{
    (void)state;
    static const struct tt_logit_bias bias[] = {{7, 3}, {3, -1.5f}, {11, -INFINITY}};
    static const int32_t said[] = {5, 3, 3, 8, 3, 5, 0};
    const struct tt_adjust_options options = {
        .presence = 0.5, .frequency = 0.25, .min_tokens = 7, .bias = bias, .bias_count = 3};
    struct tt_adjustment adjustment;
    struct tt_adjust_list list;
    double sums[VOCAB];
    assert_true(tt_adjust_is_needed(&options));
    test_must(tt_adjust_check(&options, VOCAB));
    test_must(tt_adjustment_init(&adjustment, &options, NEW));
    test_must(tt_adjust_list_init(&list, 2 * tt_adjust_entries_max(NEW, 5)));
    for (size_t made = 0; made <= sizeof said / sizeof *said; made++) {
        list.count = 0;
        tt_adjust_list_add(&list, &adjustment, 4, made, lists, 2);
        sum(&list, 4, sums);
        for (int id = 0; id < VOCAB; id++) {
            int count = 0;
            for (size_t i = 0; i < made; i++) count += said[i] == id;
            double wanted = count > 0 ? -(0.25 * count + 0.5) : 0;
            for (int b = 0; b < 3; b++) wanted += bias[b].id == id ? (double)bias[b].value : 0;
            if (made < 7 && (id == 2 || id == 7 || id == 9)) wanted = -INFINITY;
            assert_true(sums[id] == wanted);
        }
        if (made < sizeof said / sizeof *said) tt_adjustment_count(&adjustment, said[made]);
    }
    tt_adjustment_deinit(&adjustment);
    tt_adjust_list_deinit(&list);
}

static void nothing_to_change(void **state)
{
    (void)state;
    const struct tt_adjust_options none = {0};
    struct tt_adjustment adjustment;
    struct tt_adjust_list list;
    assert_false(tt_adjust_is_needed(&none));
    test_must(tt_adjustment_init(&adjustment, &none, NEW));
    test_must(tt_adjust_list_init(&list, tt_adjust_entries_max(NEW, 0)));
    tt_adjustment_count(&adjustment, 3);
    tt_adjust_list_add(&list, &adjustment, 0, 0, lists, 2);
    assert_int_equal(list.count, 0);
    tt_adjustment_deinit(&adjustment);
    tt_adjust_list_deinit(&list);
}

static void wrong_values(void **state)
{
    (void)state;
    static const struct tt_logit_bias far[] = {{VOCAB, 1}}, below[] = {{-1, 1}}, nan_bias[] = {{1, NAN}};
    const struct tt_adjust_options wrong[] = {
        {.presence = NAN},
        {.frequency = INFINITY},
        {.bias = far, .bias_count = 1},
        {.bias = below, .bias_count = 1},
        {.bias = nan_bias, .bias_count = 1},
        {.bias = far, .bias_count = TT_LOGIT_BIASES_MAX + 1},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(tt_adjust_check(&wrong[i], VOCAB), TT_ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(penalties_and_biases),
        cmocka_unit_test(nothing_to_change),
        cmocka_unit_test(wrong_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
