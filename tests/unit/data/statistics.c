/* data/statistics.h: ranks, bins without gaps, duplicates that are real ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/str.h"
#include "data/statistics.h"
#include "support/allocations.h"
#include "support/root.h"

static struct tt_dataset *load(const char *rows)
{
    const struct tt_data_config config = {.dataset_text_field = "text",
                                          .dataset_prompt_field = "prompt",
                                          .dataset_completion_field = "completion",
                                          .max_length = 1024,
                                          .completion_only_loss = -1};
    struct tt_dataset *dataset = NULL;
    test_put("rows.jsonl", rows);
    assert_int_equal(tt_dataset_load(test_at("rows.jsonl"), &config, NULL, 400, 0, &dataset), TT_OK);
    return dataset;
}

/* Rows of so many tokens each, all different. */
static struct tt_dataset *load_lengths(const int *lengths, size_t count)
{
    struct tt_str rows = {0};
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(tt_str_printf(&rows, "{\"input_ids\": [%d", (int)i), TT_OK);
        for (int t = 1; t < lengths[i]; t++) assert_int_equal(tt_str_append_text(&rows, ", 7"), TT_OK);
        assert_int_equal(tt_str_append_text(&rows, "]}\n"), TT_OK);
    }
    struct tt_dataset *dataset = load(tt_str_text(&rows));
    tt_str_deinit(&rows);
    return dataset;
}

static void ranks(void **state)
{
    (void)state;
    int lengths[40];
    for (int i = 0; i < 40; i++) lengths[i] = 2 + (i * 7) % 40;              /* 2 .. 41 in some order */
    static const int64_t wanted[][3] = {{1, 2, 2}, {2, 2, 9}, {40, 21, 39}}; /* samples, median, p95 */
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct tt_data_statistics s;
        struct tt_dataset *dataset = load_lengths(lengths, (size_t)wanted[i][0]);
        assert_int_equal(tt_data_statistics_make(dataset, &s), TT_OK);
        assert_int_equal(s.shortest, 2);
        assert_int_equal(s.median, wanted[i][1]);
        assert_int_equal(s.p95, wanted[i][2]);
        assert_int_equal(s.duplicates, 0);
        tt_dataset_destroy(dataset);
    }
}

static void bins_cover_every_sample(void **state)
{
    (void)state;
    for (int longest = 2; longest <= 1024; longest = longest * 2 + 1) {
        int lengths[3] = {2, longest, longest / 2 + 1};
        struct tt_data_statistics s;
        struct tt_dataset *dataset = load_lengths(lengths, 3);
        int64_t sum = 0;
        assert_int_equal(tt_data_statistics_make(dataset, &s), TT_OK);
        assert_int_equal(s.longest, longest);
        assert_in_range(s.bin_count, 1, TT_DATA_BINS_MAX);
        for (int i = 0; i < s.bin_count; i++) {
            sum += s.bins[i].samples;
            assert_int_equal(s.bins[i].from, i == 0 ? 0 : s.bins[i - 1].to + 1);
        }
        assert_true(s.bins[s.bin_count - 1].from <= longest && longest <= s.bins[s.bin_count - 1].to);
        assert_int_equal(sum, 3);
        tt_dataset_destroy(dataset);
    }
}

static void duplicates_have_equal_labels(void **state)
{
    (void)state;
    struct tt_data_statistics s;
    struct tt_dataset *dataset = load("{\"input_ids\": [5, 6, 7]}\n"
                                      "{\"input_ids\": [5, 6, 7], \"labels\": [-100, 6, 7]}\n"
                                      "{\"input_ids\": [5, 6, 7]}\n"
                                      "{\"input_ids\": [5, 6]}\n"
                                      "{\"input_ids\": [5, 6, 7]}\n");
    assert_int_equal(tt_data_statistics_make(dataset, &s), TT_OK);
    assert_int_equal(s.duplicates, 2);
    tt_dataset_destroy(dataset);
}

static tt_status make(void *context)
{
    struct tt_data_statistics s;
    return tt_data_statistics_make(context, &s);
}

static void out_of_memory(void **state)
{
    (void)state;
    const int lengths[3] = {4, 5, 6};
    struct tt_dataset *dataset = load_lengths(lengths, 3);
    assert_int_equal(test_allocations_fail(make, dataset), 2);
    tt_dataset_destroy(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks),
        cmocka_unit_test(bins_cover_every_sample),
        cmocka_unit_test(duplicates_have_equal_labels),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests_name("data/statistics", tests, test_root_create, test_root_remove);
}
