/* The seeds of the fuzz target store_file are of this layout: others would be refused before their tables are read.
 *
 *     test_unit_data_store_seeds --write fuzz/corpus/store_file
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "data/store.h"
#include "data/store_file.h"
#include "support/root.h"

#define FOLDER TT_TEST_ROOT "/../fuzz/corpus/store_file"

/* Those of the target. */
static const char key[] = "a key";
static const struct tt_store_bounds bounds = {500, 64, false};

static const struct {
    const char *name;
    int rows;
} seeds[] = {{"three", 3}, {"thirty", 30}};
enum { SEEDS = sizeof seeds / sizeof *seeds };

static void seeds_are_of_this_layout(void **state)
{
    (void)state;
    for (size_t i = 0; i < SEEDS; i++) {
        struct tt_store store;
        struct tt_dataset_report report;
        const struct tt_dataset_part *parts;
        size_t part_count;
        char path[400];
        snprintf(path, sizeof path, FOLDER "/%s", seeds[i].name);
        if (tt_store_file_open(path, key, &bounds, &store, &report, &parts, &part_count) != TT_OK)
            fail_msg("%s; make the seeds anew with --write", tt_error_last()->message);
        assert_int_equal(store.sample_count, seeds[i].rows);
        for (size_t s = 0; s < store.sample_count; s++)
            assert_int_equal(tt_store_check(&store, s, 0, store.samples[s].count), TT_OK);
        tt_store_deinit(&store);
    }
}

/* Samples of 2 to 64 ids, some with texts and a value. */
static tt_status fill(struct tt_store *store, int rows)
{
    int32_t ids[64];
    uint8_t supervised[64];
    for (int i = 0; i < rows; i++) {
        int32_t count = 2 + i * 37 % 63;
        for (int32_t t = 0; t < count; t++) {
            ids[t] = (i * 7 + t) % 500;
            supervised[t] = t > i % 2;
        }
        supervised[count - 1] = 1;
        TT_TRY(tt_store_append(store, ids, supervised, count, i % 3 == 0 ? "a prompt" : NULL,
                               i % 3 == 0 ? "its completion" : NULL));
        store->samples[i].value = i % 4;
    }
    return TT_OK;
}

static tt_status write_seed(const char *path, int rows)
{
    struct tt_store store = {0};
    struct tt_store_writer *writer = NULL;
    struct tt_dataset_part part = {.once = rows};
    struct tt_dataset_report *report = &part.report;
    tt_status status = fill(&store, rows);
    if (status == TT_OK) status = tt_store_writer_open(path, key, &writer);
    for (size_t i = 0; status == TT_OK && i < store.sample_count; i++) {
        status = tt_store_writer_append(writer, &store, i);
        report->supervised_tokens += store.samples[i].supervised_count;
    }
    report->rows = report->samples = rows;
    report->tokens = (int64_t)store.token_count;
    if (status == TT_OK) status = tt_store_writer_finish(writer, report, &part, 1);
    tt_store_writer_destroy(writer);
    tt_store_deinit(&store);
    return status;
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(seeds_are_of_this_layout)};
    if (count != 3 || strcmp(words[1], "--write") != 0) return cmocka_run_group_tests(tests, NULL, NULL);
    for (size_t i = 0; i < SEEDS; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", words[2], seeds[i].name);
        if (write_seed(path, seeds[i].rows) != TT_OK) return 1;
    }
    return 0;
}
