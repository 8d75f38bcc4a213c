/* Folding of micro batches (data/fold.h): the arrays of a small one by hand; batches of a sampler that says what
 * samples of a group have in common, from rows whose prompts are of all lengths; its limits; sequences that are not
 * alike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "data/fold.h"
#include "support/temporary.h"

static const int32_t ids[] = {11, 12, 1, 2, 11, 12, 3, 4, 5, 9, 8},
                     positions[] = {0, 1, 2, 3, 0, 1, 2, 3, 4, 0, 1};
static const int64_t keys[] = {0, 1, 2, 3, 100, 101, 102, 103, 104, 200, 201};
static const int32_t cu[] = {0, 4, 9, 11}, rows[] = {0, 1, 2, 4, 5, 6, 7, 9};
static const int32_t labels[] = {12, 1, 2, 12, 3, 4, 5, 8}, parent[] = {0, 0, 2}, prefix[] = {0, 1, 0};
static const uint8_t supervised[] = {0, 1, 1, 0, 1, 1, 1, 1};
static const float of_tokens[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, of_rows[] = {0, 1, 2, 3, 4, 5, 6, 7};
static const struct tt_batch given = {
    .token_count = 11,
    .sequence_count = 3,
    .max_length = 5,
    .ids = ids,
    .positions = positions,
    .row_keys = keys,
    .cu_seqlens = cu,
    .parent = parent,
    .prefix = prefix,
    .row_count = 8,
    .rows = rows,
    .labels = labels,
    .supervised = supervised,
    .column_count = 2,
    .columns = {{"token", TT_PER_TOKEN, of_tokens}, {"row", TT_PER_ROW, of_rows}}};

static void folds_by_hand(void **state)
{
    static const int32_t folded_ids[] = {11, 12, 1, 2, 12, 3, 4, 5, 9, 8}, folded_cu[] = {0, 4, 8, 10};
    static const int32_t key_tokens[] = {0, 1, 2, 3, 0, 4, 5, 6, 7, 8, 9};
    static const int32_t token_keys[] = {0, 4,  1, 11, 2, 11, 3, 11, 5,  11,
                                         6, 11, 7, 11, 8, 11, 9, 11, 10, 11};
    static const int32_t own_keys[] = {0, 1, 2, 3, 5, 6, 7, 8, 9, 10};
    static const int32_t folded_rows[] = {0, 1, 2, 4, 5, 6, 8}, row_of[] = {0, 1, 2, 0, 3, 4, 5, 6};
    struct tt_batch_storage storage = {0};
    struct tt_batch_fold fold;
    (void)state;
    assert_int_equal(tt_batch_fold(&given, &storage, &fold), TT_OK);
    const struct tt_batch *got = &fold.batch;
    assert_int_equal(got->token_count, 10);
    assert_int_equal(got->row_count, 7);
    assert_int_equal(got->branches.key_count, 11);
    assert_memory_equal(got->ids, folded_ids, sizeof folded_ids);
    assert_memory_equal(got->cu_seqlens, folded_cu, sizeof folded_cu);
    assert_memory_equal(got->branches.cu_keys, cu, sizeof cu);
    assert_memory_equal(got->branches.key_tokens, key_tokens, sizeof key_tokens);
    assert_int_equal(got->branches.copies, 2);
    assert_memory_equal(got->branches.own_keys, own_keys, sizeof own_keys);
    assert_memory_equal(got->branches.token_keys, token_keys, sizeof token_keys);
    assert_memory_equal(got->rows, folded_rows, sizeof folded_rows);
    assert_memory_equal(fold.row_of, row_of, sizeof row_of);
    for (int n = 0; n < 8; n++) {
        int32_t row = row_of[n];
        assert_int_equal(got->labels[row], labels[n]);
        assert_int_equal(got->supervised[row], supervised[n]);
        assert_true(tt_batch_column(got, "row", TT_PER_ROW)[row] == of_rows[n == 3 ? 0 : n]);
    }
    for (int m = 0; m < 11; m++) {
        int32_t t = key_tokens[m];
        assert_int_equal(got->positions[t], positions[m]);
        assert_int_equal(got->row_keys[t], m == 4 ? keys[0] : keys[m]);
        assert_true(tt_batch_column(got, "token", TT_PER_TOKEN)[t] == of_tokens[m == 4 ? 0 : m]);
    }
    tt_batch_storage_deinit(&storage);
}

static void what_is_not_alike(void **state)
{
    struct tt_batch batch = given;
    struct tt_batch_storage storage = {0};
    struct tt_batch_fold fold;
    (void)state;
    batch.prefix = NULL; /* nothing in common: the batch itself */
    assert_int_equal(tt_batch_fold(&batch, &storage, &fold), TT_OK);
    assert_ptr_equal(fold.batch.ids, ids);
    assert_null(fold.row_of);
    assert_int_equal(fold.batch.branches.key_count, 0);
    static const int32_t wrong[] = {0, 2, 0}; /* the second token of the two has another label */
    batch.prefix = wrong;
    assert_int_equal(tt_batch_fold(&batch, &storage, &fold), TT_ERR_INTERNAL);
    assert_non_null(
        strstr(tt_error_last()->message, "sequence 1 has another row at token 1 than sequence 0"));
    static const int32_t whole[] = {0, 5, 0}, later[] = {0, 1, 0};
    batch.prefix = whole;
    assert_int_equal(tt_batch_fold(&batch, &storage, &fold), TT_ERR_INTERNAL);
    assert_non_null(strstr(tt_error_last()->message, "sequence 1 cannot begin with 5 tokens of sequence 0"));
    batch.prefix = prefix;
    batch.parent = later;
    assert_int_equal(tt_batch_fold(&batch, &storage, &fold), TT_ERR_INTERNAL);
    assert_non_null(strstr(tt_error_last()->message, "sequence 1 cannot begin with 1 tokens of sequence 1"));
    tt_batch_storage_deinit(&storage);
}

enum { PAIRS = 23, EACH = 3 };

/* Prompts of 0 to 10 tokens and answers of 1 to 7; answers of every third row begin alike, and those of one are the
 * same. Of every fourth row one answer is not supervised. */
static struct tt_dataset *load(void)
{
    char path[256];
    struct tt_dataset *dataset = NULL;
    struct tt_str text = {0};
    tt_status status = TT_OK;
    for (int r = 0; r < PAIRS * EACH; r++) {
        int group = r / EACH, prompt = group % 11, answer = 1 + (r * 5 + group) % 7,
            alike = group % 3 == 0 ? 2 : 0;
        status |= tt_str_append_text(&text, "{\"input_ids\": [");
        if (group == 7) answer = 4;
        for (int p = 0; p < prompt + answer; p++) {
            int own = p < prompt + alike || group == 7 ? 0 : 1 + r % EACH;
            status |= tt_str_printf(&text, "%s%d", p > 0 ? ", " : "", (p * 13 + group * 5 + own * 31) % 200);
        }
        status |= tt_str_append_text(&text, "], \"completion_mask\": [");
        for (int p = 0; p < prompt + answer; p++)
            status |= tt_str_printf(&text, "%s%d", p > 0 ? ", " : "",
                                    p >= prompt && (p > prompt || group % 4 != 1 || r % EACH != 1));
        status |= tt_str_append_text(&text, "]}\n");
    }
    test_temporary_of(path, sizeof path, "tt-fold", (long)getpid(), ".jsonl");
    struct tt_data_config config = {.dataset_text_field = "text",
                                    .dataset_prompt_field = "prompt",
                                    .dataset_completion_field = "completion",
                                    .max_length = 1024,
                                    .packing_strategy = TT_PACKING_WRAPPED,
                                    .packing = true, /* rows without a label stay */
                                    .eval_packing = -1,
                                    .completion_only_loss = -1};
    assert_int_equal(status, TT_OK);
    assert_int_equal(tt_file_write_atomic(path, text.data, text.bytes), TT_OK);
    if (tt_dataset_load(path, &config, NULL, 256, 0, &dataset) != TT_OK)
        fail_msg("%s", tt_error_last()->message);
    tt_str_deinit(&text);
    unlink(path);
    assert_int_equal(tt_dataset_count(dataset), PAIRS * EACH);
    assert_int_equal(tt_dataset_group(dataset, EACH), TT_OK);
    return dataset;
}

/* The tokens, positions and rows of every sequence of the folded batch are those of the batch. */
static void check_fold(const struct tt_batch *batch, const struct tt_batch_fold *fold)
{
    const struct tt_batch *got = &fold->batch;
    if (fold->row_of == NULL) return;
    assert_int_equal(got->branches.key_count, batch->token_count);
    for (int64_t m = 0; m < batch->token_count; m++) {
        int32_t t = got->branches.key_tokens[m];
        assert_in_range(t, 0, got->token_count - 1);
        assert_int_equal(got->ids[t], batch->ids[m]);
        assert_int_equal(got->positions[t], batch->positions[m]);
    }
    for (int64_t n = 0; n < batch->row_count; n++) {
        int32_t row = fold->row_of[n];
        assert_true(row <= n);
        assert_int_equal(got->labels[row], batch->labels[n]);
        assert_int_equal(got->supervised[row], batch->supervised[n]);
        assert_int_equal(got->rows[row], got->branches.key_tokens[batch->rows[n]]);
    }
    for (int64_t n = 1; n < got->row_count; n++) assert_true(got->rows[n] > got->rows[n - 1]);
    for (int64_t b = 0; b < batch->sequence_count; b++) /* each sequence ends with a token of its own */
        assert_true(got->cu_seqlens[b + 1] > got->cu_seqlens[b]);
}

static void read_steps(const struct tt_dataset *dataset, bool prompt_rows, int ranks, int64_t *saved)
{
    struct tt_sampler_config config = {.micro_batch_size = 3,
                                       .world_size = ranks,
                                       .accumulation = 2,
                                       .shuffle = true,
                                       .prompt_rows = prompt_rows};
    struct tt_sampler *plain = NULL, *shares = NULL;
    struct tt_batch_storage storage = {0}, folded = {0};
    struct tt_batch batch;
    struct tt_batch_limits limits;
    int64_t all = 0, computed = 0, counted = 0, tokens = 0;
    assert_int_equal(tt_sampler_create(dataset, &config, &plain), TT_OK);
    config.shares = true;
    assert_int_equal(tt_sampler_create(dataset, &config, &shares), TT_OK);
    for (int64_t step = 0; step < tt_sampler_steps_per_epoch(shares); step++) {
        struct tt_step_facts facts, wanted;
        struct tt_batch_limits most = {0};
        tt_sampler_step(shares, step, &facts);
        tt_sampler_step(plain, step, &wanted);
        assert_memory_equal(&facts, &wanted, sizeof facts); /* counts are of all sequences */
        tt_sampler_limits(shares, step, 1, &limits);
        assert_true(limits.copies == EACH && limits.keys >= limits.tokens && limits.all_rows >= limits.rows);
        for (int64_t micro = 0; micro < facts.micro_count; micro++)
            for (int rank = 0; rank < ranks; rank++) {
                struct tt_batch_fold fold;
                assert_int_equal(tt_sampler_batch(plain, step, micro, rank, &storage, &batch), TT_OK);
                assert_null(batch.prefix);
                assert_int_equal(tt_sampler_batch(shares, step, micro, rank, &storage, &batch), TT_OK);
                assert_int_equal(tt_batch_fold(&batch, &folded, &fold), TT_OK);
                check_fold(&batch, &fold);
                const struct tt_batch_limits size = {.tokens = fold.batch.token_count,
                                                     .rows = fold.batch.row_count,
                                                     .keys = batch.token_count,
                                                     .all_rows = batch.row_count};
                most = tt_batch_limits_join(&most, &size);
                counted += fold.batch.token_count;
            }
        assert_int_equal(limits.tokens, most.tokens);
        assert_int_equal(limits.rows, most.rows);
        assert_int_equal(limits.keys, most.keys);
        assert_int_equal(limits.all_rows, most.all_rows);
    }
    tt_sampler_tokens(shares, &all, &computed);
    assert_int_equal(counted, computed);
    *saved = all - computed;
    for (size_t i = 0; i < tt_dataset_count(dataset); i++) tokens += tt_dataset_sample(dataset, i).count;
    assert_int_equal(all, tokens);
    tt_sampler_tokens(plain, &all, &computed);
    assert_int_equal(all, computed);
    tt_batch_storage_deinit(&storage);
    tt_batch_storage_deinit(&folded);
    tt_sampler_destroy(plain);
    tt_sampler_destroy(shares);
}

static void samplers_share_what_samples_have_in_common(void **state)
{
    int64_t saved = 0, of_prompts = 0;
    struct tt_dataset *dataset = load();
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        read_steps(dataset, false, ranks, &saved);
        read_steps(dataset, true, ranks, &of_prompts);
        assert_int_equal(saved, of_prompts);
        assert_true(saved > 100);
    }
    tt_dataset_destroy(dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folds_by_hand),
        cmocka_unit_test(what_is_not_alike),
        cmocka_unit_test(samplers_share_what_samples_have_in_common),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
