/* run/patience.h against transformers' EarlyStoppingCallback (golden/trainer/make_patience.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/json.h"
#include "run/patience.h"

static void as_the_callback(void **state)
{
    (void)state;
    struct tt_json json = {0};
    size_t stopped = 0;
    assert_int_equal(tt_json_read(TT_TEST_ROOT "/golden/trainer/patience.json", 1 << 20, &json), TT_OK);
    size_t count = tt_json_count(json.root);
    assert_true(count >= 200);
    for (size_t i = 0; i < count; i++) {
        const struct tt_json_value *row = tt_json_at(json.root, i), *metrics = tt_json_get(row, "metrics");
        int64_t patience = tt_json_integer(tt_json_get(row, "patience")), stops = 0;
        double threshold = tt_json_number(tt_json_get(row, "threshold"));
        bool greater = tt_json_is_true(tt_json_get(row, "greater"));
        struct tt_patience record = {0};
        for (size_t e = 0; e < tt_json_count(metrics) && stops == 0; e++) {
            tt_patience_record(&record, tt_json_number(tt_json_at(metrics, e)), greater, threshold);
            if (record.waited >= patience) stops = (int64_t)e + 1;
        }
        if (stops != tt_json_integer(tt_json_get(row, "stops")))
            fail_msg("case %zu stops after %d", i, (int)stops);
        stopped += stops > 0;
    }
    assert_true(stopped > 20 && stopped < count);
    tt_json_deinit(&json);
}

/* Two evaluations without a number end a run of patience 1, and the third may improve. */
static void not_a_number_first(void **state)
{
    (void)state;
    struct tt_patience record = {0};
    tt_patience_record(&record, NAN, false, 0);
    assert_int_equal(record.waited, 0);
    tt_patience_record(&record, NAN, false, 0);
    assert_int_equal(record.waited, 1);
    tt_patience_record(&record, 0.5, false, 0);
    assert_int_equal(record.waited, 0);
    assert_true(record.metric == 0.5);
    tt_patience_record(&record, NAN, false, 0);
    assert_int_equal(record.waited, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_the_callback),
                                       cmocka_unit_test(not_a_number_first)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
