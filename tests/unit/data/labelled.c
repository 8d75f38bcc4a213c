/* Rows with a label: the value reaches batches from memory, from a file, shuffled and split; what is no such row is
 * refused. Mismatched answers (data/sampler.h): each prompt with the answer of the sample before it in the step,
 * whatever the split over ranks and micro batches, cut at max_length, within the limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "data/cache.h"
#include "data/row_kind.h"
#include "data/sampler.h"
#include "support/root.h"

enum { ROWS = 23, BATCH = 6, PROMPT = 0, ANSWER = 1, LENGTH = 12 };

/* The id of a text's letters is 2 i of a prompt and 2 i + 1 of an answer of row i. */
static struct tt_tokenizer *make_tokenizer(void)
{
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_str json = {0};
    assert_int_equal(
        tt_str_append_text(&json, "{\"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {"), TT_OK);
    for (int i = 0; i < 2 * ROWS; i++)
        assert_int_equal(tt_str_printf(&json, "%s\"%s\": %d", i > 0 ? ", " : "",
                                       (char[]){(char)(i < 26 ? 'a' + i : 'A' + i - 26), '\0'}, i),
                         TT_OK);
    assert_int_equal(tt_str_append_text(&json, "}}}"), TT_OK);
    assert_int_equal(tt_tokenizer_parse(json.data, json.bytes, "tokenizer.json", &tokenizer), TT_OK);
    tt_str_deinit(&json);
    return tokenizer;
}

static int tokens_of(int row, int part)
{
    return 1 + (part == PROMPT ? row * 5 % 7 : row * 3 % 8);
}

static bool is_desirable(int row)
{
    return row % 3 != 1;
}

static void put_letters(struct tt_str *text, int row, int part)
{
    int i = 2 * row + part;
    for (int t = 0; t < tokens_of(row, part); t++)
        assert_int_equal(tt_str_printf(text, "%c", i < 26 ? 'a' + i : 'A' + i - 26), TT_OK);
}

static struct tt_data_config config = {.dataset_text_field = "text",
                                       .dataset_prompt_field = "prompt",
                                       .dataset_completion_field = "completion",
                                       .max_length = LENGTH,
                                       .completion_only_loss = -1,
                                       .rows_kind = &tt_row_labelled};

static struct tt_dataset *load(const struct tt_tokenizer *tokenizer, const char *folder, bool wanted_hit)
{
    struct tt_str text = {0};
    struct tt_sources sources = {0};
    struct tt_dataset *dataset = NULL;
    bool hit = false;
    for (int i = 0; i < ROWS; i++) {
        assert_int_equal(tt_str_append_text(&text, "{\"prompt\": \""), TT_OK);
        put_letters(&text, i, PROMPT);
        assert_int_equal(tt_str_append_text(&text, "\", \"completion\": \""), TT_OK);
        put_letters(&text, i, ANSWER);
        assert_int_equal(
            tt_str_printf(&text, "\", \"label\": %s}\n",
                          i % 2 == 0 ? (is_desirable(i) ? "true" : "false") : (is_desirable(i) ? "1" : "0")),
            TT_OK);
    }
    if (!tt_path_exists(test_at("rows.jsonl"))) test_put("rows.jsonl", tt_str_text(&text));
    assert_int_equal(tt_sources_add(&sources, test_at("rows.jsonl"), "train", 1), TT_OK);
    const struct tt_dataset_request request = {&sources, &config, tokenizer, 2 * ROWS, 0, 5};
    if (folder == NULL) {
        assert_int_equal(tt_dataset_load_sources(&request, &dataset), TT_OK);
    } else {
        const struct tt_dataset_cache cache = {folder, "setting: 1\n", 1};
        assert_int_equal(tt_dataset_load_cached(&cache, &request, &dataset, &hit), TT_OK);
    }
    assert_int_equal(hit, wanted_hit);
    tt_sources_deinit(&sources);
    tt_str_deinit(&text);
    return dataset;
}

static const struct tt_sampler_config plain = {.micro_batch_size = BATCH,
                                               .world_size = 1,
                                               .accumulation = 1,
                                               .max_length = LENGTH,
                                               .mismatched = true,
                                               .value = "label"};

/* Every sequence has the label of its row, which its first id says. Returns how many there are. */
static int check_labels(const struct tt_dataset *dataset)
{
    struct tt_sampler *sampler = NULL;
    struct tt_batch_storage storage = {0};
    int seen = 0;
    assert_int_equal(tt_sampler_create(dataset, &plain, &sampler), TT_OK);
    for (int64_t step = 0; step < tt_sampler_steps_per_epoch(sampler); step++) {
        struct tt_batch batch;
        assert_int_equal(tt_sampler_batch(sampler, step, 0, 0, &storage, &batch), TT_OK);
        const float *labels = tt_batch_column(&batch, "label", TT_PER_SEQUENCE);
        assert_non_null(labels);
        for (int64_t s = 0; s < batch.sequence_count; s++, seen++)
            assert_true((labels[s] != 0) == is_desirable(batch.ids[batch.cu_seqlens[s]] / 2));
    }
    tt_batch_storage_deinit(&storage);
    tt_sampler_destroy(sampler);
    return seen;
}

static void labels_stay_with_their_rows(void **state)
{
    (void)state;
    char folder[256];
    struct tt_tokenizer *tokenizer = make_tokenizer();
    struct tt_dataset *held = NULL, *memory = load(tokenizer, NULL, false);
    snprintf(folder, sizeof folder, "%s", test_at("kept"));
    assert_int_equal(check_labels(memory), ROWS);
    for (int again = 0; again < 2; again++) {
        struct tt_dataset *kept = load(tokenizer, folder, again);
        assert_int_equal(check_labels(kept), ROWS);
        assert_int_equal(tt_dataset_sum(kept), tt_dataset_sum(memory));
        tt_dataset_destroy(kept);
    }
    uint64_t sum = tt_dataset_sum(memory);
    assert_int_equal(tt_dataset_shuffle(memory, 3), TT_OK);
    assert_true(tt_dataset_sum(memory) != sum);
    assert_int_equal(check_labels(memory), ROWS);
    assert_int_equal(tt_dataset_split(memory, 8, 1, false, &held), TT_OK);
    assert_int_equal(check_labels(memory), ROWS - 8);
    assert_int_equal(check_labels(held), 8);
    tt_dataset_destroy(held);
    tt_dataset_destroy(memory);
    tt_tokenizer_destroy(tokenizer);
}

/* The row of the sample at a place of the step in file order: the last step is not full. */
static int row_before(int row)
{
    int first = row / BATCH * BATCH, count = ROWS - first < BATCH ? ROWS - first : BATCH;
    return row > first ? row - 1 : first + count - 1;
}

static void check_mismatch(const struct tt_batch *batch, int64_t s, int64_t *row)
{
    const int32_t *ids = batch->ids + batch->cu_seqlens[s];
    int asked = ids[0] / 2, answering = row_before(asked), prompt = tokens_of(asked, PROMPT);
    int own = LENGTH - tokens_of(answering, PROMPT), answer = tokens_of(answering, ANSWER);
    if (answer > own) answer = own; /* its sample was cut */
    if (prompt + answer > LENGTH) answer = LENGTH - prompt;
    assert_int_equal(batch->cu_seqlens[s + 1] - batch->cu_seqlens[s], prompt + answer);
    for (int t = 0; t < prompt + answer; t++) {
        assert_int_equal(ids[t], t < prompt ? 2 * asked + PROMPT : 2 * answering + ANSWER);
        assert_int_equal(batch->positions[batch->cu_seqlens[s] + t], t);
    }
    for (int t = prompt - 1; t < prompt + answer - 1; t++, (*row)++) {
        assert_int_equal(batch->rows[*row], batch->cu_seqlens[s] + t);
        assert_int_equal(batch->labels[*row], 2 * answering + ANSWER);
        assert_int_equal(batch->supervised[*row], 1);
    }
}

static int check_step(const struct tt_sampler *sampler, const struct tt_sampler_config *how, int64_t step)
{
    struct tt_batch_storage storage = {0};
    struct tt_step_facts facts;
    struct tt_batch_limits limits;
    int seen = 0;
    tt_sampler_step(sampler, step, &facts);
    tt_sampler_limits(sampler, step, 1, &limits);
    for (int64_t micro = 0; micro < facts.micro_count; micro++)
        for (int rank = 0; rank < how->world_size; rank++) {
            struct tt_batch batch;
            int64_t row = 0;
            assert_int_equal(tt_sampler_shared(sampler, step, micro, rank, &storage, &batch), TT_OK);
            for (int64_t s = 0; s < batch.sequence_count; s++, seen++) check_mismatch(&batch, s, &row);
            assert_int_equal(row, batch.row_count);
            assert_true(batch.token_count <= limits.tokens && batch.row_count <= limits.rows);
            assert_true(batch.sequence_count <= limits.sequences && batch.max_length <= limits.length);
        }
    tt_batch_storage_deinit(&storage);
    return seen;
}

static void mismatches_are_those_of_the_step(void **state)
{
    (void)state;
    static const int splits[][3] = {{6, 1, 1}, {3, 2, 1}, {1, 2, 3}, {2, 1, 3}, {1, 6, 1}};
    struct tt_tokenizer *tokenizer = make_tokenizer();
    struct tt_dataset *dataset = load(tokenizer, NULL, false);
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        struct tt_sampler_config how = plain;
        struct tt_sampler *sampler = NULL;
        int seen = 0;
        how.micro_batch_size = splits[i][0];
        how.world_size = splits[i][1];
        how.accumulation = splits[i][2];
        assert_int_equal(tt_sampler_create(dataset, &how, &sampler), TT_OK);
        for (int64_t step = 0; step < tt_sampler_steps_per_epoch(sampler); step++)
            seen += check_step(sampler, &how, step);
        assert_int_equal(seen, ROWS);
        tt_sampler_destroy(sampler);
    }
    tt_dataset_destroy(dataset);
    tt_tokenizer_destroy(tokenizer);
}

/* The last step of 23 rows in batches of 2 has one row: its answer is that of the row before. */
static void steps_of_one_row(void **state)
{
    (void)state;
    struct tt_tokenizer *tokenizer = make_tokenizer();
    struct tt_dataset *dataset = load(tokenizer, NULL, false);
    struct tt_sampler_config how = plain;
    struct tt_sampler *sampler = NULL;
    struct tt_batch_storage storage = {0};
    struct tt_batch batch;
    how.micro_batch_size = 2;
    assert_int_equal(tt_sampler_create(dataset, &how, &sampler), TT_OK);
    assert_int_equal(tt_sampler_shared(sampler, ROWS / 2, 0, 0, &storage, &batch), TT_OK);
    assert_int_equal(batch.sequence_count, 1);
    assert_int_equal(batch.ids[0], 2 * (ROWS - 1) + PROMPT);
    assert_int_equal(batch.ids[batch.token_count - 1], 2 * (ROWS - 2) + ANSWER);
    tt_sampler_destroy(sampler);
    how.micro_batch_size = 1;
    assert_int_equal(tt_sampler_create(dataset, &how, &sampler), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "no mismatched answer"));
    tt_batch_storage_deinit(&storage);
    tt_dataset_destroy(dataset);
    tt_tokenizer_destroy(tokenizer);
}

static void other_rows_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *row, *message, *hint;
    } cases[] = {
        {"{\"prompt\": \"a\", \"completion\": \"b\"}", "no prompt, completion and label; it has 'prompt'",
         "true or false"},
        {"{\"prompt\": \"a\", \"completion\": \"b\", \"label\": null}", "no prompt, completion and label",
         "true or false"},
        {"{\"prompt\": \"a\", \"label\": true}", "no prompt, completion and label", "true or false"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"label\": true}",
         "it has 'messages', 'label'", "true or false"},
        {"{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}", "it has 'prompt', 'chosen'",
         "as two rows"},
        {"{\"prompt\": \"a\", \"completion\": \"b\", \"label\": \"yes\"}",
         "'label' is neither true nor false", "desirable"},
        {"{\"prompt\": \"a\", \"completion\": \"b\", \"label\": 2}", "'label' is neither true nor false",
         "desirable"},
    };
    struct tt_tokenizer *tokenizer = make_tokenizer();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_dataset *dataset = NULL;
        char text[1024];
        test_put("bad.jsonl", cases[i].row);
        assert_int_equal(tt_dataset_load(test_at("bad.jsonl"), &config, tokenizer, 2 * ROWS, 0, &dataset),
                         TT_ERR_DATA);
        (void)tt_error_format(tt_error_last(), text, sizeof text);
        if (strstr(text, cases[i].message) == NULL || strstr(text, cases[i].hint) == NULL)
            fail_msg("%s", text);
    }
    tt_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_stay_with_their_rows),
        cmocka_unit_test(mismatches_are_those_of_the_step),
        cmocka_unit_test(steps_of_one_row),
        cmocka_unit_test(other_rows_are_refused),
    };
    return cmocka_run_group_tests(tests, test_root_create, test_root_remove);
}
