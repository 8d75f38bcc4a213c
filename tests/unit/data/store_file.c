/* data/store_file.h and data/cache.h: rows of a file are those of memory; a damaged file, and one that was made to
 * mislead, is refused before memory depends on it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/crc64.h"
#include "base/file.h"
#include "data/cache.h"
#include "data/sampler.h"
#include "data/store_file.h"
#include "data/store_layout.h"
#include "support/allocations.h"
#include "support/root.h"

enum { VOCAB = 500, ROWS = 600 };
static const char key[] = "a key";
static const struct tt_store_bounds bounds = {VOCAB, 64, false};

static struct tt_data_config config = {.dataset_text_field = "text",
                                       .dataset_prompt_field = "prompt",
                                       .dataset_completion_field = "completion",
                                       .max_length = 64,
                                       .completion_only_loss = -1};

/* Rows of 2 to 90 ids: some are truncated, some have labels, some none. */
static void put_rows(const char *name, int rows)
{
    struct tt_str text = {0};
    for (int i = 0; i < rows; i++) {
        int count = 2 + i * 37 % 89;
        assert_int_equal(tt_str_printf(&text, "{\"input_ids\": [%d", i % VOCAB), TT_OK);
        for (int t = 1; t < count; t++)
            assert_int_equal(tt_str_printf(&text, ", %d", (i * 7 + t) % VOCAB), TT_OK);
        assert_int_equal(tt_str_append_text(&text, "], \"completion_mask\": [0"), TT_OK);
        for (int t = 1; t < count; t++)
            assert_int_equal(tt_str_printf(&text, ", %d", i % 50 != 0 && t > i % 5), TT_OK);
        assert_int_equal(tt_str_append_text(&text, "]}\n"), TT_OK);
    }
    test_put(name, tt_str_text(&text));
    tt_str_deinit(&text);
}

static void add_source(struct tt_sources *sources, const char *name, double weight)
{
    assert_int_equal(tt_sources_add(sources, test_at(name), "train", weight), TT_OK);
}

static struct tt_dataset_request request_of(const struct tt_sources *sources)
{
    return (struct tt_dataset_request){sources, &config, NULL, VOCAB, 0, 5};
}

static void assert_equal(const struct tt_dataset *a, const struct tt_dataset *b)
{
    struct tt_dataset_report x, y;
    size_t parts_a, parts_b;
    const struct tt_dataset_part *pa = tt_dataset_parts(a, &parts_a), *pb = tt_dataset_parts(b, &parts_b);
    tt_dataset_report(a, &x);
    tt_dataset_report(b, &y);
    assert_memory_equal(&x, &y, sizeof x);
    assert_int_equal(parts_a, parts_b);
    assert_memory_equal(pa, pb, parts_a * sizeof *pa);
    assert_int_equal(tt_dataset_count(a), tt_dataset_count(b));
    for (size_t i = 0; i < tt_dataset_count(a); i++) {
        struct tt_sample s = tt_dataset_sample(a, i), t = tt_dataset_sample(b, i);
        assert_int_equal(tt_store_check(tt_dataset_store(b), i, 0, t.count), TT_OK);
        assert_int_equal(s.count, t.count);
        assert_int_equal(s.supervised_count, t.supervised_count);
        assert_memory_equal(s.ids, t.ids, (size_t)s.count * sizeof *s.ids);
        assert_memory_equal(s.supervised, t.supervised, (size_t)s.count);
    }
    assert_true(tt_dataset_sum(a) == tt_dataset_sum(b));
}

static void rows_are_those_of_memory(void **state)
{
    (void)state;
    static const double weights[][2] = {{1, 0}, {1, 1}, {2.5, 0.3}, {1, 3}};
    put_rows("a.jsonl", ROWS);
    put_rows("b.jsonl", 70);
    for (size_t w = 0; w < sizeof weights / sizeof *weights; w++) {
        struct tt_sources sources = {0};
        struct tt_dataset *plain = NULL, *made = NULL, *read = NULL;
        bool hit;
        char folder[256];
        add_source(&sources, "a.jsonl", weights[w][0]);
        if (weights[w][1] > 0) add_source(&sources, "b.jsonl", weights[w][1]);
        snprintf(folder, sizeof folder, "%s", test_at("kept"));
        const struct tt_dataset_cache cache = {folder, "setting: 1\n", 1};
        for (int64_t max = 0; max <= 620; max += 310) {
            struct tt_dataset_request request = request_of(&sources);
            request.max_samples = max;
            assert_int_equal(tt_dataset_load_sources(&request, &plain), TT_OK);
            assert_int_equal(tt_dataset_load_cached(&cache, &request, &made, &hit), TT_OK);
            assert_false(hit);
            assert_equal(plain, made);
            assert_int_equal(tt_dataset_load_cached(&cache, &request, &read, &hit), TT_OK);
            assert_true(hit);
            assert_equal(plain, read);
            /* A held-out part is a copy in memory. */
            struct tt_dataset *held_plain = NULL, *held_read = NULL;
            assert_int_equal(tt_dataset_split(plain, 20, 3, false, &held_plain), TT_OK);
            assert_int_equal(tt_dataset_split(read, 20, 3, false, &held_read), TT_OK);
            assert_equal(held_plain, held_read);
            assert_equal(plain, read);
            struct tt_dataset *all[] = {plain, made, read, held_plain, held_read};
            for (size_t i = 0; i < sizeof all / sizeof *all; i++) tt_dataset_destroy(all[i]);
        }
        tt_sources_deinit(&sources);
    }
}

static tt_status count_file(void *context, const char *name)
{
    (void)name;
    ++*(size_t *)context;
    return TT_OK;
}

/* Kept rows are those of a seed where a weight draws rows, and pairs stay pairs. */
static void what_kept_rows_depend_on(void **state)
{
    (void)state;
    char folder[256];
    snprintf(folder, sizeof folder, "%s", test_at("seeds"));
    const struct tt_dataset_cache cache = {folder, "setting: 1\n", 1};
    put_rows("a.jsonl", 40);
    for (int draws = 0; draws < 2; draws++) {
        struct tt_sources sources = {0};
        add_source(&sources, "a.jsonl", draws ? 0.5 : 1);
        for (uint64_t seed = 1; seed < 3; seed++)
            for (int again = 0; again < 2; again++) {
                struct tt_dataset_request request = request_of(&sources);
                struct tt_dataset *dataset = NULL;
                bool hit;
                request.seed = seed;
                assert_int_equal(tt_dataset_load_cached(&cache, &request, &dataset, &hit), TT_OK);
                assert_int_equal(hit, again || (seed == 2 && !draws));
                tt_dataset_destroy(dataset);
            }
        tt_sources_deinit(&sources);
    }
}

/* Rows of another version are made again, in the same file. */
static void rows_of_another_version(void **state)
{
    static const struct {
        int rules;
        bool hit;
    } runs[] = {{2, false}, {2, true}, {3, false}, {3, true}, {2, false}};
    struct tt_sources sources = {0};
    char folder[256];
    (void)state;
    snprintf(folder, sizeof folder, "%s", test_at("versions"));
    put_rows("a.jsonl", 40);
    add_source(&sources, "a.jsonl", 1);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const struct tt_dataset_cache cache = {folder, "setting: 1\n", runs[i].rules};
        struct tt_dataset_request request = request_of(&sources);
        struct tt_dataset *dataset = NULL;
        size_t files = 0;
        bool hit;
        assert_int_equal(tt_dataset_load_cached(&cache, &request, &dataset, &hit), TT_OK);
        assert_int_equal(hit, runs[i].hit);
        assert_int_equal(tt_dir_list(folder, count_file, &files), TT_OK);
        assert_int_equal(files, 1);
        tt_dataset_destroy(dataset);
    }
    tt_sources_deinit(&sources);
}

static void kept_pairs_stay_pairs(void **state)
{
    (void)state;
    static const char json[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []}}";
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_sources sources = {0};
    struct tt_data_config pairs = config;
    char folder[256];
    snprintf(folder, sizeof folder, "%s", test_at("pairs"));
    const struct tt_dataset_cache cache = {folder, "setting: 1\n", 1};
    assert_int_equal(tt_tokenizer_parse(json, sizeof json - 1, "tokenizer.json", &tokenizer), TT_OK);
    test_put("p.jsonl", "{\"prompt\": \"ab\", \"chosen\": \"ba\", \"rejected\": \"aa\"}\n"
                        "{\"prompt\": \"ba\", \"chosen\": \"bb\", \"rejected\": \"ab\"}\n");
    add_source(&sources, "p.jsonl", 1);
    pairs.rows_kind = &tt_row_pair;
    for (int again = 0; again < 2; again++) {
        struct tt_dataset_request request = request_of(&sources);
        struct tt_dataset *dataset = NULL;
        bool hit;
        request.config = &pairs;
        request.tokenizer = tokenizer;
        assert_int_equal(tt_dataset_load_cached(&cache, &request, &dataset, &hit), TT_OK);
        assert_int_equal(hit, again);
        assert_int_equal(tt_dataset_count(dataset), 4);
        assert_int_equal(tt_store_group_size(tt_dataset_store(dataset)), 2);
        tt_dataset_destroy(dataset);
    }
    tt_sources_deinit(&sources);
    tt_tokenizer_destroy(tokenizer);
}

/* ---- Damage and forgery ---- */

static struct tt_str written; /* the bytes of a whole file */

static void write_file(int rows)
{
    struct tt_sources sources = {0};
    struct tt_store_writer *writer = NULL;
    put_rows("a.jsonl", rows);
    add_source(&sources, "a.jsonl", 1);
    const struct tt_dataset_request request = request_of(&sources);
    assert_int_equal(tt_store_writer_open(test_at("x.rows"), key, &writer), TT_OK);
    assert_int_equal(tt_dataset_write(&request, writer), TT_OK);
    tt_store_writer_destroy(writer);
    tt_sources_deinit(&sources);
    tt_str_clear(&written);
    assert_int_equal(tt_file_read(test_at("x.rows"), 1 << 26, &written), TT_OK);
}

static void put_bytes(const char *data, size_t bytes)
{
    FILE *file = fopen(test_at("y.rows"), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* Why the bytes are refused, at once or when a sample is used; NULL: they are not. */
static const char *why_refused(const char *data, size_t bytes)
{
    struct tt_store store;
    struct tt_dataset_report report;
    const struct tt_dataset_part *parts;
    size_t part_count;
    put_bytes(data, bytes);
    tt_status status =
        tt_store_file_open(test_at("y.rows"), key, &bounds, &store, &report, &parts, &part_count);
    if (status != TT_OK) {
        assert_int_equal(status, TT_ERR_DATA);
        return tt_error_last()->message;
    }
    for (size_t i = 0; i < store.sample_count && status == TT_OK; i++)
        status = tt_store_check(&store, i, 0, store.samples[i].count);
    if (status != TT_OK) assert_int_equal(status, TT_ERR_DATA);
    tt_store_deinit(&store);
    return status != TT_OK ? tt_error_last()->message : NULL;
}

static bool is_refused(const char *data, size_t bytes)
{
    return why_refused(data, bytes) != NULL;
}

static void assert_why(const char *why)
{
    const char *said = why_refused(written.data, written.bytes);
    if (said == NULL || strstr(said, why) == NULL) fail_msg("%s, not %s", said != NULL ? said : "read", why);
}

static void every_damaged_byte_is_found(void **state)
{
    (void)state;
    write_file(9);
    struct tt_store_layout layout;
    assert_true(tt_store_lay_out((const struct tt_store_header *)written.data, &layout));
    assert_false(is_refused(written.data, written.bytes));
    for (size_t i = 0; i < written.bytes; i++) {
        size_t tokens = (size_t)((const struct tt_store_header *)written.data)->token_count;
        bool gap = (i >= sizeof(struct tt_store_header) && i < layout.key) ||
                   (i >= layout.key + strlen(key) && i < layout.ids) ||
                   (i >= layout.ids + tokens * 4 && i < layout.supervised) ||
                   (i >= layout.supervised + tokens && i < layout.samples);
        written.data[i] ^= 0x10;
        if (!gap && !is_refused(written.data, written.bytes)) fail_msg("damage at byte %zu is not found", i);
        written.data[i] ^= 0x10;
    }
    for (size_t bytes = 0; bytes < written.bytes; bytes += 13) assert_true(is_refused(written.data, bytes));
    assert_int_equal(tt_str_append_text(&written, "more"), TT_OK);
    assert_true(is_refused(written.data, written.bytes));
}

/* Makes the sums of a changed file right. */
static void forge(void)
{
    struct tt_store_header *header = (struct tt_store_header *)written.data;
    struct tt_store_layout layout;
    assert_true(tt_store_lay_out(header, &layout));
    uint64_t *sums = (uint64_t *)(written.data + layout.sums);
    for (uint64_t first = 0; first < header->token_count; first += TT_STORE_BLOCK_TOKENS) {
        uint64_t count = header->token_count - first;
        if (count > TT_STORE_BLOCK_TOKENS) count = TT_STORE_BLOCK_TOKENS;
        uint64_t sum = tt_crc64(0, written.data + layout.ids + first * 4, count * 4);
        sums[first / TT_STORE_BLOCK_TOKENS] = tt_crc64(sum, written.data + layout.supervised + first, count);
    }
    header->tables_sum = tt_crc64(0, written.data + layout.samples, layout.end - layout.samples);
    header->header_sum = tt_store_header_sum(header, written.data + layout.key);
}

/* One of the changes of a written file; 0: none. */
static void change_samples(int change, struct tt_store_header *header, struct tt_store_sample *samples)
{
    struct tt_store_sample *last = &samples[header->sample_count - 1];
    switch (change) {
    case 5:
        samples[5].first++;
        break;
    case 6:
        samples[0].count = INT32_MAX;
        break;
    case 7:
        samples[0].count = -samples[0].count;
        break;
    case 8:
        samples[2].supervised_count = samples[2].count;
        break;
    case 9:
        samples[4].prompt = 1;
        break;
    case 10:
        samples[4].completion = SIZE_MAX;
        break;
    case 13: /* two samples as one: longer than max_length, or not the number of samples */
        samples[0].count += samples[1].count;
        samples[0].supervised_count += samples[1].supervised_count;
        memmove(samples + 1, samples + 2, (header->sample_count - 2) * sizeof *samples);
        break;
    case 18:
        samples[0].supervised_count = 0;
        break;
    case 19:
        last->count += 5;
        break;
    case 20:
        last->count--;
        last->supervised_count--;
        break;
    }
}

static void change_file(int change)
{
    struct tt_store_layout layout;
    struct tt_store_header *header = (struct tt_store_header *)written.data;
    assert_true(tt_store_lay_out(header, &layout));
    int32_t *ids = (int32_t *)(written.data + layout.ids);
    uint8_t *supervised = (uint8_t *)written.data + layout.supervised;
    struct tt_store_sample *samples = (struct tt_store_sample *)(written.data + layout.samples);
    struct tt_dataset_part *parts = (struct tt_dataset_part *)(written.data + layout.parts);
    assert_in_range(header->token_count, TT_STORE_BLOCK_TOKENS + 1, 1 << 20);
    change_samples(change, header, samples);
    switch (change) {
    case 0:
        break; /* a right one */
    case 1:
        ids[header->token_count - 1] = VOCAB;
        break;
    case 2:
        ids[0] = -1;
        break;
    case 3:
        supervised[samples[3].first + 1] = 2;
        break;
    case 4: /* more than the sample says: a batch would have no room for them */
        supervised[samples[1].first + 1] = !supervised[samples[1].first + 1];
        break;
    case 11:
        parts[0].source = TT_SOURCES_MAX;
        break;
    case 12:
        header->report.supervised_tokens++;
        break;
    case 14:
        header->report.tokens--;
        break;
    case 15:
        parts[0].report.samples = -1;
        break;
    case 16:
        header->report.longest = -1;
        break;
    case 17:
        parts[0].once = -1;
        break;
    }
}

static void forged_files_are_refused(void **state)
{
    (void)state;
    static const char tokens[] = "y.rows' are damaged at token ",
                      sample[] = "are damaged: a sample is impossible",
                      source[] = "are damaged: a source is impossible",
                      counts[] = "are damaged: its counts are impossible";
    static const char *const why[] = {[1] = tokens,
                                      [2] = tokens,
                                      [3] = tokens,
                                      [4] = tokens,
                                      [5] = sample,
                                      [6] = sample,
                                      [7] = sample,
                                      [8] = sample,
                                      [9] = sample,
                                      [10] = sample,
                                      [11] = source,
                                      [12] = counts,
                                      [13] = sample,
                                      [14] = counts,
                                      [15] = source,
                                      [16] = counts,
                                      [17] = source,
                                      [18] = sample,
                                      [19] = "are damaged: a sample is outside",
                                      [20] = "are damaged: samples are missing"};
    write_file(ROWS);
    change_file(0);
    forge();
    assert_false(is_refused(written.data, written.bytes));
    for (int change = 1; change < (int)(sizeof why / sizeof why[0]); change++) {
        write_file(ROWS);
        change_file(change);
        forge();
        assert_why(why[change]);
    }
}

/* What is wrong with a file as a whole is said by name. */
static void damage_is_named(void **state)
{
    (void)state;
    struct tt_store_layout layout;
    write_file(9);
    struct tt_store_header *header = (struct tt_store_header *)written.data;
    assert_true(tt_store_lay_out(header, &layout));
    header->token_count = UINT64_MAX;
    assert_why("the tokenized rows in '");
    assert_why("y.rows' are damaged: the sizes in its header are impossible");
    write_file(9);
    ((struct tt_store_header *)written.data)->rows_sum++;
    assert_why("are damaged: the sum of its header is wrong");
    write_file(9);
    written.data[layout.samples]++;
    assert_why("are damaged: the sum of its tables is wrong");
    write_file(9);
    assert_int_equal(tt_str_append_text(&written, "more"), TT_OK);
    assert_why("are damaged: it has another size than its header says");
    written.bytes = 10;
    assert_why("are damaged: it is too short");
    write_file(9);
    written.data[0]++;
    assert_why("y.rows' is no file of tokenized rows");
    write_file(9);
    written.data[6]++;
    assert_why("y.rows' is of another version of trimtab");
    write_file(9);
    ((struct tt_store_header *)written.data)->byte_order++;
    assert_why("y.rows' is of a machine with another order of bytes");
    /* Texts of one alignment, without a terminator. */
    write_file(9);
    struct tt_str whole = {0};
    static const char letters[TT_STORE_ALIGNMENT] = "abc";
    assert_int_equal(tt_str_append(&whole, written.data, layout.texts), TT_OK);
    assert_int_equal(tt_str_append(&whole, letters, sizeof letters), TT_OK);
    assert_int_equal(tt_str_append(&whole, written.data + layout.texts, written.bytes - layout.texts), TT_OK);
    tt_str_deinit(&written);
    written = whole;
    ((struct tt_store_header *)written.data)->text_bytes = TT_STORE_ALIGNMENT;
    forge();
    assert_false(is_refused(written.data, written.bytes));
    written.data[layout.texts + TT_STORE_ALIGNMENT - 1] = 'x';
    forge();
    assert_why("are damaged: its texts do not end");
}

/* With a right sum of the header, as far as there can be one. */
static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    for (int field = 0; field < 5; field++) {
        write_file(9);
        struct tt_store_header *header = (struct tt_store_header *)written.data;
        uint64_t *fields[] = {&header->key_bytes, &header->token_count, &header->sample_count,
                              &header->text_bytes, &header->part_count};
        static const uint64_t values[] = {UINT64_MAX, UINT64_MAX / 4 + 1, UINT64_MAX / 32 + 1, INT64_MAX, 0};
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            uint64_t before = *fields[field];
            *fields[field] = values[v];
            if (field > 0) header->header_sum = tt_store_header_sum(header, key);
            if (before != values[v]) assert_true(is_refused(written.data, written.bytes));
            *fields[field] = before;
        }
    }
}

/* A batch of damaged tokens is an error of the step, not a step. */
static void batches_are_checked(void **state)
{
    (void)state;
    struct tt_store store;
    struct tt_dataset_report report;
    const struct tt_dataset_part *parts;
    size_t part_count;
    struct tt_dataset *dataset = NULL;
    write_file(ROWS);
    for (int strategy = -1; strategy <= TT_PACKING_WRAPPED; strategy++) {
        const struct tt_sampler_config sampling = {.micro_batch_size = 1,
                                                   .world_size = 1,
                                                   .accumulation = 1,
                                                   .packing = strategy >= 0,
                                                   .packing_strategy =
                                                       strategy >= 0 ? strategy : TT_PACKING_BFD,
                                                   .max_length = 64};
        for (int damaged = 0; damaged < 2; damaged++) {
            struct tt_sampler *sampler = NULL;
            struct tt_batch_storage storage = {0};
            struct tt_batch batch;
            struct tt_store_layout layout;
            int refused = 0;
            assert_true(tt_store_lay_out((const struct tt_store_header *)written.data, &layout));
            written.data[layout.ids + 4] ^= (char)damaged;
            put_bytes(written.data, written.bytes);
            written.data[layout.ids + 4] ^= (char)damaged;
            assert_int_equal(
                tt_store_file_open(test_at("y.rows"), key, &bounds, &store, &report, &parts, &part_count),
                TT_OK);
            assert_int_equal(tt_dataset_adopt(&store, &report, parts, part_count, &dataset), TT_OK);
            assert_int_equal(tt_sampler_create(dataset, &sampling, &sampler), TT_OK);
            for (int64_t step = 0; step < tt_sampler_steps_per_epoch(sampler); step++)
                refused += tt_sampler_batch(sampler, step, 0, 0, &storage, &batch) != TT_OK;
            assert_true(damaged ? refused > 0 : refused == 0);
            tt_batch_storage_deinit(&storage);
            tt_sampler_destroy(sampler);
            tt_dataset_destroy(dataset);
        }
    }
}

static tt_status load_cached(void *context)
{
    struct tt_dataset *dataset = NULL;
    bool hit;
    char folder[256];
    snprintf(folder, sizeof folder, "%s", test_at("few"));
    const struct tt_dataset_cache cache = {folder, "", 1};
    const struct tt_dataset_request request = request_of(context);
    tt_status status = tt_dataset_load_cached(&cache, &request, &dataset, &hit);
    if (status == TT_OK) tt_dataset_destroy(dataset);
    return status;
}

static void out_of_memory(void **state)
{
    (void)state;
    struct tt_sources sources = {0};
    put_rows("few.jsonl", 4);
    add_source(&sources, "few.jsonl", 1);
    test_allocations_fail(load_cached, &sources); /* writes it at last */
    test_allocations_fail(load_cached, &sources); /* reads it */
    tt_sources_deinit(&sources);
}

static int remove_all(void **state)
{
    tt_str_deinit(&written);
    return test_root_remove(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_memory),
        cmocka_unit_test(what_kept_rows_depend_on),
        cmocka_unit_test(rows_of_another_version),
        cmocka_unit_test(kept_pairs_stay_pairs),
        cmocka_unit_test(every_damaged_byte_is_found),
        cmocka_unit_test(forged_files_are_refused),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(batches_are_checked),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests_name("data/store_file", tests, test_root_create, remove_all);
}
