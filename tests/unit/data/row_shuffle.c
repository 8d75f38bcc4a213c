/* data/row_flow.h, data/row_shuffle.h: every row of an epoch once, in an order that the seed and the buffer alone
 * decide, and the same from any place on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "data/row_shuffle.h"
#include "support/root.h"

enum { MOST = 400 };

struct taken {
    int numbers[MOST];
    int64_t epochs[MOST];
    struct tt_shuffle_place places[MOST]; /* before each */
    size_t count;
};

static void put(const char *name, const char *format, int first, int count)
{
    struct tt_str text = {0};
    for (int i = first; i < first + count; i++) assert_int_equal(tt_str_printf(&text, format, i), TT_OK);
    assert_int_equal(tt_file_write_atomic(test_at(name), text.data, text.bytes), TT_OK);
    tt_str_deinit(&text);
}

/* Three files: lines with blank ones between them, a list, and one that is packed. */
static void put_files(struct tt_sources *sources, double weight)
{
    static const char packed[] = "{\"n\": 90}\n{\"n\": 91}\n{\"n\": 92}\n";
    put("a.jsonl", "{\"n\": %d}\n \n", 0, 23);
    put("b.jsonl", " {\"n\": %d}\r\n", 23, 9);
    assert_int_equal(tt_file_write_atomic(test_at("c.json"), "[{\"n\": 80}, {\"n\": 81}]", 22), TT_OK);
    gzFile file = gzopen(test_at("d.jsonl"), "wb"); /* packed by its bytes, not by its name */
    assert_int_equal(gzwrite(file, packed, sizeof packed - 1), (int)sizeof packed - 1);
    gzclose(file);
    static const char *const names[] = {"a.jsonl", "b.jsonl", "c.json", "d.jsonl"};
    for (int i = 0; i < 4; i++)
        assert_int_equal(tt_sources_add(sources, test_at(names[i]), "train", i == 1 ? weight : 1), TT_OK);
}

static void take(struct tt_row_shuffle *shuffle, size_t count, struct taken *taken)
{
    taken->count = 0;
    while (taken->count < count) {
        struct tt_flow_row row;
        bool end;
        taken->places[taken->count] = tt_row_shuffle_place(shuffle);
        assert_int_equal(tt_row_shuffle_next(shuffle, &row, &end), TT_OK);
        if (end) continue;
        taken->epochs[taken->count] = taken->places[taken->count].epoch;
        assert_int_equal(sscanf(row.data, "{\"n\": %d}", &taken->numbers[taken->count++]), 1);
        tt_free(row.data);
    }
}

static void check_epochs(const struct taken *taken, size_t each, size_t buffer, double weight)
{
    for (size_t epoch = 0; epoch < 2; epoch++) {
        int times[100] = {0};
        for (size_t i = epoch * each; i < (epoch + 1) * each; i++) {
            times[taken->numbers[i]]++;
            assert_int_equal(taken->epochs[i], epoch);
            if (weight == 1 && taken->numbers[i] < 32) /* no row comes before it can be in the buffer */
                assert_true((size_t)taken->numbers[i] < i - epoch * each + buffer);
        }
        for (int i = 0; i < 23; i++) assert_int_equal(times[i], 1);
        for (int i = 23; i < 32; i++)
            assert_true(times[i] == (int)weight || times[i] == (int)(weight + 0.99));
        assert_true(times[80] == 1 && times[81] == 1 && times[90] == 1 && times[92] == 1);
    }
}

static void orders(void **state)
{
    (void)state;
    static const size_t buffers[] = {1, 2, 7, 36, 37, 38, 1000};
    static const double weights[] = {1, 2.5};
    const struct tt_data_config config = {0};
    static struct taken all, again;
    int in_order = 0;
    for (size_t b = 0; b < sizeof buffers / sizeof *buffers; b++)
        for (size_t w = 0; w < 2; w++) {
            struct tt_sources sources = {0};
            put_files(&sources, weights[w]);
            struct tt_row_shuffle_config how = {&sources, &config, 0, 5, buffers[b]};
            struct tt_row_shuffle *shuffle;
            assert_int_equal(tt_row_shuffle_create(&how, &shuffle), TT_OK);
            take(shuffle, 150, &all);
            size_t each = 0;
            while (all.epochs[each] == 0) each++;
            if (weights[w] == 1) assert_int_equal(each, 37);
            check_epochs(&all, each, buffers[b], weights[w]);
            for (size_t i = 1; i < 37; i++)
                in_order += buffers[b] > 1 && all.numbers[i] == all.numbers[i - 1] + 1;
            if (buffers[b] == 1 && weights[w] == 1)
                for (int i = 0; i < 32; i++) assert_int_equal(all.numbers[i], i);
            /* The second epoch has another order. */
            if (buffers[b] > 2) assert_memory_not_equal(all.numbers, all.numbers + each, each * sizeof(int));
            /* Another reader goes on at each place. */
            for (size_t i = 0; i < 2 * each + 3; i += 1 + i % 7) {
                struct tt_row_shuffle *other;
                assert_int_equal(tt_row_shuffle_create(&how, &other), TT_OK);
                assert_int_equal(tt_row_shuffle_seek(other, &all.places[i]), TT_OK);
                take(other, 150 - i, &again);
                assert_memory_equal(again.numbers, all.numbers + i, (150 - i) * sizeof(int));
                assert_memory_equal(again.places + 1, all.places + i + 1, 20 * sizeof *all.places);
                tt_row_shuffle_destroy(other);
            }
            how.seed = 6;
            struct tt_row_shuffle *other;
            assert_int_equal(tt_row_shuffle_create(&how, &other), TT_OK);
            take(other, each, &again);
            if (buffers[b] > 2) assert_memory_not_equal(again.numbers, all.numbers, each * sizeof(int));
            tt_row_shuffle_destroy(other);
            tt_row_shuffle_destroy(shuffle);
            tt_sources_deinit(&sources);
        }
    assert_true(in_order < 200); /* of 432 neighbours in buffers */
}

static void limits(void **state)
{
    (void)state;
    static struct taken taken;
    struct tt_sources sources = {0};
    struct tt_data_config config = {.max_source_samples = 2};
    struct tt_row_shuffle *shuffle;
    put_files(&sources, 1);
    struct tt_row_shuffle_config how = {&sources, &config, 5, 5, 1};
    assert_int_equal(tt_row_shuffle_create(&how, &shuffle), TT_OK);
    take(shuffle, 10, &taken);
    static const int wanted[] = {0, 1, 23, 24, 80, 0, 1, 23, 24, 80};
    assert_memory_equal(taken.numbers, wanted, sizeof wanted);
    tt_row_shuffle_destroy(shuffle);
    tt_sources_deinit(&sources);
}

/* A row that is longer than a piece of the file, and one that is cut by its end. */
static void long_rows(void **state)
{
    (void)state;
    enum { BYTES = 9 << 20 };
    struct tt_str text = {0};
    struct tt_sources sources = {0};
    const struct tt_data_config config = {0};
    struct tt_row_flow *flow;
    struct tt_flow_row row;
    bool end;
    assert_int_equal(tt_str_append_text(&text, "\xef\xbb\xbf{}\n"), TT_OK);
    for (int i = 0; i < BYTES; i++) assert_int_equal(tt_str_append_char(&text, (char)('a' + i % 26)), TT_OK);
    assert_int_equal(tt_str_append_text(&text, "\n{\"n\": 1}"), TT_OK);
    assert_int_equal(tt_file_write_atomic(test_at("long.jsonl"), text.data, text.bytes), TT_OK);
    assert_int_equal(tt_sources_add(&sources, test_at("long.jsonl"), "train", 1), TT_OK);
    assert_int_equal(tt_row_flow_create(&sources, &config, 0, &flow), TT_OK);
    for (int i = 0; i < 3; i++) {
        static const size_t bytes[] = {2, BYTES, 8};
        assert_int_equal(tt_row_flow_next(flow, &row, &end), TT_OK);
        assert_false(end);
        assert_int_equal(row.bytes, bytes[i]);
        assert_int_equal(row.line, i + 1);
        if (i == 1) assert_memory_equal(row.data, text.data + 6, BYTES);
        tt_free(row.data);
    }
    assert_int_equal(tt_row_flow_next(flow, &row, &end), TT_OK);
    assert_true(end);
    tt_row_flow_destroy(flow);
    tt_str_deinit(&text);
    tt_sources_deinit(&sources);
}

static void expect_failure(const char *text, const struct tt_data_config *config, int rows, const char *part)
{
    struct tt_sources sources = {0};
    struct tt_row_flow *flow;
    struct tt_flow_row row;
    bool end;
    assert_int_equal(tt_file_write_atomic(test_at("bad.jsonl"), text, strlen(text)), TT_OK);
    assert_int_equal(tt_sources_add(&sources, test_at("bad.jsonl"), "train", 1), TT_OK);
    assert_int_equal(tt_row_flow_create(&sources, config, 0, &flow), TT_OK);
    for (int i = 0; i < rows; i++) {
        assert_int_equal(tt_row_flow_next(flow, &row, &end), TT_OK);
        tt_free(row.data);
    }
    assert_int_equal(tt_row_flow_next(flow, &row, &end), TT_ERR_DATA);
    if (strstr(tt_error_last()->message, part) == NULL) fail_msg("'%s'", tt_error_last()->message);
    tt_row_flow_destroy(flow);
    tt_sources_deinit(&sources);
}

static void refusals(void **state)
{
    (void)state;
    const struct tt_data_config any = {0}, eight = {.max_row_size = 8};
    expect_failure("", &any, 0, "bad.jsonl' has no rows");
    expect_failure(" \n\n", &any, 0, "bad.jsonl' has no rows");
    expect_failure(
        "{}\n\n{\"n\": 12}\n", &eight, 1,
        "bad.jsonl', row 2 (line 3): the line is longer than max_row_size (8); it begins at byte 4");
    expect_failure("{\"n\": 1}\n{\"n\": 12}", &eight, 1, "row 2 (line 2)");
}

/* A file that loses its end while it is read. */
static void shortened(void **state)
{
    (void)state;
    enum { ROWS = 700000 };
    struct tt_sources sources = {0};
    const struct tt_data_config config = {0};
    struct tt_row_flow *flow;
    struct tt_flow_row row;
    bool end;
    tt_status status = TT_OK;
    put("short.jsonl", "{\"n\": %07d}\n", 0, ROWS);
    assert_int_equal(tt_sources_add(&sources, test_at("short.jsonl"), "train", 1), TT_OK);
    assert_int_equal(tt_row_flow_create(&sources, &config, 0, &flow), TT_OK);
    for (int i = 0; status == TT_OK && i < ROWS; i++) {
        status = tt_row_flow_next(flow, &row, &end);
        if (status == TT_OK) tt_free(row.data);
        int descriptor = -1;
        if (i > 0) continue;
        assert_int_equal(tt_file_open_write(test_at("short.jsonl"), &descriptor), TT_OK);
        tt_file_truncate(descriptor, 6 << 20);
        tt_file_close(descriptor);
    }
    assert_int_equal(status, TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "became shorter while it was read"));
    tt_row_flow_destroy(flow);
    /* A place that the files do not have. */
    struct tt_row_shuffle *shuffle;
    const struct tt_row_shuffle_config how = {&sources, &config, 0, 5, 3};
    struct tt_shuffle_place place = {.taken = 3, .oldest = 1000000, .from = {.file = 7, .line = 1}};
    assert_int_equal(tt_row_shuffle_create(&how, &shuffle), TT_OK);
    assert_int_equal(tt_row_shuffle_seek(shuffle, &place), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "the data has no file 7 to go on with"));
    place.from = (struct tt_flow_place){.line = 1, .offset = 1LL << 40};
    assert_int_equal(tt_row_shuffle_seek(shuffle, &place), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "reading goes on at byte"));
    place = (struct tt_shuffle_place){.taken = 9, .count = 5, .from.line = 1};
    assert_int_equal(tt_row_shuffle_seek(shuffle, &place), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "the place in the data is row 9 of an epoch of 5"));
    place = (struct tt_shuffle_place){.taken = 3, .oldest = ROWS, .from = {.line = 1}};
    assert_int_equal(tt_row_shuffle_seek(shuffle, &place), TT_ERR_DATA);
    assert_non_null(
        strstr(tt_error_last()->message, "the data end before the rows that were read from them"));
    tt_row_shuffle_destroy(shuffle);
    tt_sources_deinit(&sources);
}

/* The sum tells a byte in the middle, the size and the order of files. */
static void sums(void **state)
{
    (void)state;
    uint64_t sum[4], bytes;
    for (int i = 0; i < 4; i++) {
        struct tt_sources sources = {0};
        put("s1.jsonl", "{\"n\": %d}\n", i == 1 ? 101 : 100, 4);
        put("s2.jsonl", "{\"n\": %d}\n", 200, i == 2 ? 5 : 4);
        assert_int_equal(tt_sources_add(&sources, test_at(i == 3 ? "s2.jsonl" : "s1.jsonl"), "train", 1),
                         TT_OK);
        assert_int_equal(tt_sources_add(&sources, test_at(i == 3 ? "s1.jsonl" : "s2.jsonl"), "train", 1),
                         TT_OK);
        assert_int_equal(tt_sources_sum(&sources, &sum[i], &bytes), TT_OK);
        assert_int_equal(bytes, i == 2 ? 99 : 88);
        for (int j = 0; j < i; j++) assert_true(sum[i] != sum[j]);
        tt_sources_deinit(&sources);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders),   cmocka_unit_test(limits),    cmocka_unit_test(long_rows),
        cmocka_unit_test(refusals), cmocka_unit_test(shortened), cmocka_unit_test(sums),
    };
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
