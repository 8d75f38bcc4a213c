/* data/stream.h: rows and texts are one stream that is cut once, with labels or without; supervised tokens are counted
 * after the cut; data that are not packed are shortened as rows that are loaded alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/number.h"
#include "data/cache.h"
#include "data/sampler.h"
#include "data/sources.h"
#include "data/stream.h"
#include "support/root.h"

enum { VOCAB = 1000, LENGTH = 16 };

static struct tt_data_config config = {.dataset_text_field = "text",
                                       .dataset_prompt_field = "prompt",
                                       .dataset_completion_field = "completion",
                                       .max_length = LENGTH,
                                       .packing = true,
                                       .packing_strategy = TT_PACKING_WRAPPED,
                                       .eval_packing = -1,
                                       .completion_only_loss = -1};

/* Appends a row of `count` ids from `first` on, of which those from `labels` on are supervised. */
static void add_row(struct tt_str *text, int first, int count, int labels)
{
    assert_int_equal(tt_str_printf(text, "{\"input_ids\": [%d", first), TT_OK);
    for (int t = 1; t < count; t++) assert_int_equal(tt_str_printf(text, ", %d", first + t), TT_OK);
    assert_int_equal(tt_str_printf(text, "], \"completion_mask\": [%d", labels == 0), TT_OK);
    for (int t = 1; t < count; t++) assert_int_equal(tt_str_printf(text, ", %d", t >= labels), TT_OK);
    assert_int_equal(tt_str_append_text(text, "]}\n"), TT_OK);
}

/* A prompt that fills more than a pack, a row without a label, one of one token, a long one. */
static void put_rows(const char *name)
{
    struct tt_str text = {0};
    add_row(&text, 10, 26, 20);
    add_row(&text, 40, 3, 3);
    add_row(&text, 50, 1, 0);
    add_row(&text, 60, 40, 0);
    test_put(name, tt_str_text(&text));
    tt_str_deinit(&text);
}

static struct tt_dataset *load(const char *name)
{
    struct tt_dataset *dataset = NULL;
    if (tt_dataset_load(test_at(name), &config, NULL, VOCAB, 0, &dataset) != TT_OK)
        fail_msg("%s", tt_error_last()->message);
    return dataset;
}

/* The ids of an epoch in order, and a '|' before each piece: packs are lines. */
static void read_packs(const struct tt_dataset *dataset, struct tt_str *text, int64_t *labels)
{
    const struct tt_sampler_config sampling = {.micro_batch_size = 1,
                                               .world_size = 1,
                                               .accumulation = 1,
                                               .packing = true,
                                               .packing_strategy = TT_PACKING_WRAPPED,
                                               .max_length = LENGTH};
    struct tt_sampler *sampler = NULL;
    struct tt_batch_storage storage = {0};
    struct tt_batch batch;
    *labels = 0;
    assert_int_equal(tt_sampler_create(dataset, &sampling, &sampler), TT_OK);
    for (int64_t step = 0; step < tt_sampler_steps_per_epoch(sampler); step++) {
        assert_int_equal(tt_sampler_batch(sampler, step, 0, 0, &storage, &batch), TT_OK);
        for (int64_t s = 0; s < batch.sequence_count; s++)
            assert_int_equal(tt_str_printf(text, "|%d+%d", (int)batch.ids[batch.cu_seqlens[s]],
                                           batch.cu_seqlens[s + 1] - batch.cu_seqlens[s]),
                             TT_OK);
        assert_int_equal(tt_str_append_char(text, '\n'), TT_OK);
        *labels += batch.row_count;
    }
    tt_batch_storage_deinit(&storage);
    tt_sampler_destroy(sampler);
}

static void rows_are_cut_once(void **state)
{
    (void)state;
    struct tt_str packs = {0};
    struct tt_dataset_report report;
    int64_t labels;
    put_rows("rows.jsonl");
    struct tt_dataset *dataset = load("rows.jsonl");
    assert_int_equal(tt_dataset_count(dataset), 4);
    read_packs(dataset, &packs, &labels);
    assert_string_equal(tt_str_text(&packs), "|10+16\n|26+10|40+3|50+1|60+2\n|62+16\n|78+16\n|94+6\n");
    /* The report says what the packs train: the long row loses the first token of each of its pieces. */
    assert_int_equal(labels, 6 + 1 + 15 + 15 + 5);
    tt_stream_count(dataset, LENGTH);
    tt_dataset_report(dataset, &report);
    assert_int_equal(report.supervised_tokens, labels);
    assert_int_equal(report.tokens, 70);
    assert_int_equal(report.without_supervision + report.truncated + report.dropped, 0);
    assert_int_equal(report.longest, 40);
    tt_str_deinit(&packs);
    tt_dataset_destroy(dataset);
    test_put("none.jsonl", "{\"input_ids\": [5, 6, 7], \"completion_mask\": [1, 0, 0]}");
    dataset = NULL;
    assert_int_equal(tt_dataset_load(test_at("none.jsonl"), &config, NULL, VOCAB, 0, &dataset), TT_ERR_DATA);
}

/* Several files are one stream, also from a file of tokenized rows. */
static void files_are_one_stream(void **state)
{
    (void)state;
    struct tt_sources sources = {0};
    struct tt_str packs = {0}, kept_packs = {0};
    int64_t labels, kept_labels;
    size_t count;
    bool hit;
    put_rows("rows.jsonl");
    assert_int_equal(tt_sources_add(&sources, test_at("rows.jsonl"), "train", 1), TT_OK);
    assert_int_equal(tt_sources_add(&sources, test_at("rows.jsonl"), "train", 2), TT_OK);
    const struct tt_dataset_request request = {&sources, &config, NULL, VOCAB, 0, 5};
    char folder[256];
    (void)tt_snprintf(folder, sizeof folder, "%s", test_at("kept"));
    const struct tt_dataset_cache cache = {folder, "stream\n", 1};
    struct tt_dataset *dataset = NULL, *kept = NULL;
    assert_int_equal(tt_dataset_load_sources(&request, &dataset), TT_OK);
    for (int run = 0; run < 2; run++) {
        tt_dataset_destroy(kept);
        assert_int_equal(tt_dataset_load_cached(&cache, &request, &kept, &hit), TT_OK);
        assert_int_equal(hit, run);
    }
    read_packs(dataset, &packs, &labels);
    read_packs(kept, &kept_packs, &kept_labels);
    assert_string_equal(tt_str_text(&packs), tt_str_text(&kept_packs));
    assert_non_null(strstr(tt_str_text(&packs), "|94+6|10+10\n|20+16\n|40+3|50+1|60+12\n"));
    for (int i = 0; i < 2; i++) {
        struct tt_dataset *one = i == 0 ? dataset : kept;
        struct tt_dataset_report report;
        tt_stream_count(one, LENGTH);
        tt_dataset_report(one, &report);
        const struct tt_dataset_part *parts = tt_dataset_parts(one, &count);
        assert_int_equal(report.supervised_tokens, labels);
        assert_int_equal(count, 2);
        assert_int_equal(parts[0].report.supervised_tokens + parts[1].report.supervised_tokens, labels);
    }
    tt_str_deinit(&packs);
    tt_str_deinit(&kept_packs);
    tt_dataset_destroy(dataset);
    tt_dataset_destroy(kept);
    tt_sources_deinit(&sources);
}

/* Rows that were loaded for a stream, and are evaluated one by one. */
static void parts_are_shortened(void **state)
{
    (void)state;
    put_rows("rows.jsonl");
    struct tt_dataset_report report, alone;
    for (int drops = 0; drops < 2; drops++) {
        struct tt_data_config single = config;
        struct tt_dataset *reference = NULL;
        single.packing = false;
        single.over_length = drops ? TT_OVER_LENGTH_DROP : TT_OVER_LENGTH_TRUNCATE;
        assert_int_equal(tt_dataset_load(test_at("rows.jsonl"), &single, NULL, VOCAB, 0, &reference),
                         drops ? TT_ERR_DATA : TT_OK);
        struct tt_dataset *dataset = load("rows.jsonl");
        assert_int_equal(tt_stream_part(dataset, &single, "evaluation data"), drops ? TT_ERR_DATA : TT_OK);
        if (drops)
            assert_string_equal(tt_error_last()->message,
                                "the evaluation data has no row with a supervised token within max_length");
        if (!drops) {
            tt_dataset_report(reference, &alone);
            tt_dataset_report(dataset, &report);
            assert_int_equal(report.samples, alone.samples);
            assert_int_equal(report.truncated, alone.truncated);
            assert_int_equal(report.without_supervision, alone.without_supervision);
            assert_int_equal(report.supervised_tokens, alone.supervised_tokens);
            assert_true(tt_dataset_sum(dataset) == tt_dataset_sum(reference));
        }
        tt_dataset_destroy(reference);
        tt_dataset_destroy(dataset);
    }
    struct tt_data_config strict = config;
    struct tt_dataset *dataset = load("rows.jsonl");
    strict.over_length = TT_OVER_LENGTH_ERROR;
    assert_int_equal(tt_stream_part(dataset, &strict, "evaluation data"), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message,
                           "the evaluation data has a row of 26 tokens, more than max_length (16)"));
    tt_dataset_destroy(dataset);
}

/* Where no limit was wished, that of the model shortens no row. */
static void positions_are_no_length(void **state)
{
    (void)state;
    struct tt_data_config single = config;
    struct tt_dataset *dataset = NULL;
    single.packing = false;
    single.max_length_of_model = true;
    put_rows("rows.jsonl");
    assert_int_equal(tt_dataset_load(test_at("rows.jsonl"), &single, NULL, VOCAB, 0, &dataset), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "26 tokens are more than the model's 16 positions"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_cut_once),
        cmocka_unit_test(files_are_one_stream),
        cmocka_unit_test(parts_are_shortened),
        cmocka_unit_test(positions_are_no_length),
    };
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
