/* Groups of samples and columns beside them (data/batch.h): whatever the order and the split over ranks and micro
 * batches, a group stays together, and each token, row, sequence and group keeps its values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "data/sampler.h"
#include "support/allocations.h"
#include "support/temporary.h"

enum { SAMPLES = 60, WIDTH = 16, VOCAB = SAMPLES * WIDTH };

/* Token p of sample s is s * WIDTH + p, so that a token tells where it is from. Every third one is not supervised. */
static struct tt_dataset *load(size_t group_size)
{
    char path[256];
    struct tt_dataset *dataset = NULL;
    struct tt_str text = {0};
    tt_status status = TT_OK;
    for (int s = 0; s < SAMPLES; s++) {
        int count = 3 + s * 7 % (WIDTH - 3);
        status |= tt_str_append_text(&text, "{\"input_ids\": [");
        for (int p = 0; p < count; p++)
            status |= tt_str_printf(&text, "%s%d", p > 0 ? ", " : "", s * WIDTH + p);
        status |= tt_str_append_text(&text, "], \"completion_mask\": [");
        for (int p = 0; p < count; p++) status |= tt_str_printf(&text, "%s%d", p > 0 ? ", " : "", p % 3 != 0);
        status |= tt_str_append_text(&text, "]}\n");
    }
    test_temporary_of(path, sizeof path, "tt-groups", (long)getpid(), ".jsonl");
    struct tt_data_config config = {.dataset_text_field = "text",
                                    .dataset_prompt_field = "prompt",
                                    .dataset_completion_field = "completion",
                                    .max_length = 1024,
                                    .eval_packing = -1,
                                    .completion_only_loss = -1};
    assert_int_equal(status, TT_OK);
    assert_int_equal(tt_file_write_atomic(path, text.data, text.bytes), TT_OK);
    if (tt_dataset_load(path, &config, NULL, VOCAB, 0, &dataset) != TT_OK)
        fail_msg("%s", tt_error_last()->message);
    tt_str_deinit(&text);
    unlink(path);
    assert_int_equal(tt_dataset_count(dataset), SAMPLES);
    assert_int_equal(tt_dataset_group(dataset, group_size), TT_OK);
    return dataset;
}

/* The value of a token's column is its id; that of a row's the id that it predicts, negative. */
static void add_columns(struct tt_dataset *dataset, int group_size)
{
    float tokens[VOCAB], rows[VOCAB], samples[SAMPLES], groups[SAMPLES];
    int at = 0;
    for (int s = 0; s < SAMPLES; s++) {
        struct tt_sample sample = tt_dataset_sample(dataset, (size_t)s);
        for (int32_t p = 0; p < sample.count; p++, at++) {
            tokens[at] = (float)sample.ids[p];
            rows[at] = -(float)sample.ids[p];
        }
        samples[s] = (float)s + 0.5f;
        groups[s / group_size] = (float)(s / group_size) + 0.25f;
    }
    assert_int_equal(tt_dataset_add_column(dataset, "token", TT_PER_TOKEN, tokens), TT_OK);
    assert_int_equal(tt_dataset_add_column(dataset, "row", TT_PER_ROW, rows), TT_OK);
    assert_int_equal(tt_dataset_add_column(dataset, "sequence", TT_PER_SEQUENCE, samples), TT_OK);
    assert_int_equal(tt_dataset_add_column(dataset, "group", TT_PER_GROUP, groups), TT_OK);
}

/* Marks the samples that the batch has. */
static void check_batch(const struct tt_batch *batch, int size, int *seen)
{
    const float *token = tt_batch_column(batch, "token", TT_PER_TOKEN),
                *row = tt_batch_column(batch, "row", TT_PER_ROW),
                *sequence = tt_batch_column(batch, "sequence", TT_PER_SEQUENCE),
                *group = tt_batch_column(batch, "group", TT_PER_GROUP);
    assert_null(tt_batch_column(batch, "token", TT_PER_ROW)); /* a column has one kind */
    assert_null(tt_batch_column(batch, "pair", TT_PER_TOKEN));
    assert_int_equal(batch->column_count, 4);
    assert_int_equal(batch->group_size, size);
    assert_int_equal(batch->group_count * size, batch->sequence_count);
    for (int64_t t = 0; t < batch->token_count; t++) assert_true(token[t] == (float)batch->ids[t]);
    for (int64_t n = 0; n < batch->row_count; n++) assert_true(row[n] == -(float)batch->labels[n]);
    for (int64_t s = 0; s < batch->sequence_count; s++) {
        int sample = batch->ids[batch->cu_seqlens[s]] / WIDTH;
        assert_true(sequence[s] == (float)sample + 0.5f);
        assert_true(group[s / size] == (float)(sample / size) + 0.25f);
        assert_int_equal(sample % size, s % size); /* all of the group, in its order */
        seen[sample]++;
    }
}

static void read_epoch(const struct tt_dataset *dataset, const struct tt_sampler_config *config, int size,
                       int *seen)
{
    struct tt_sampler *sampler = NULL;
    struct tt_batch_storage storage = {0};
    struct tt_batch batch;
    int64_t groups = 0;
    if (tt_sampler_create(dataset, config, &sampler) != TT_OK) fail_msg("%s", tt_error_last()->message);
    assert_int_equal(tt_sampler_unit_count(sampler), tt_dataset_count(dataset) / (size_t)size);
    for (int64_t step = 0; step < tt_sampler_steps_per_epoch(sampler); step++) {
        struct tt_step_facts facts;
        int64_t here = 0;
        tt_sampler_step(sampler, step, &facts);
        for (int64_t micro = 0; micro < facts.micro_count; micro++)
            for (int rank = 0; rank < config->world_size; rank++) {
                assert_int_equal(tt_sampler_batch(sampler, step, micro, rank, &storage, &batch), TT_OK);
                assert_true(batch.group_count <= config->micro_batch_size);
                check_batch(&batch, size, seen);
                here += batch.group_count;
            }
        assert_int_equal(facts.groups, here);
        assert_int_equal(facts.samples, here * size);
        groups += here;
    }
    assert_int_equal(groups, tt_sampler_unit_count(sampler));
    tt_batch_storage_deinit(&storage);
    tt_sampler_destroy(sampler);
}

static void groups_stay_together(void **state)
{
    (void)state;
    static const struct tt_sampler_config splits[] = {
        {.micro_batch_size = 6, .world_size = 1, .accumulation = 1},
        {.micro_batch_size = 1, .world_size = 3, .accumulation = 2, .shuffle = true},
        {.micro_batch_size = 3, .world_size = 2, .accumulation = 1, .shuffle = true, .seed = 4},
        {.micro_batch_size = 2, .world_size = 4, .accumulation = 3, .shuffle = true},
    };
    static const int sizes[] = {1, 2, 3, 4};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct tt_dataset *dataset = load((size_t)sizes[i]);
        add_columns(dataset, sizes[i]);
        for (size_t s = 0; s < sizeof splits / sizeof *splits; s++) {
            int seen[SAMPLES] = {0};
            read_epoch(dataset, &splits[s], sizes[i], seen);
            for (int j = 0; j < SAMPLES; j++) assert_int_equal(seen[j], 1);
        }
        tt_dataset_destroy(dataset);
    }
}

/* With prompt_rows every token but the last of a sequence is a row, and those with a supervised label are marked. */
static void prompts_have_rows_too(void **state)
{
    (void)state;
    const struct tt_sampler_config plain = {.micro_batch_size = 4, .world_size = 2, .accumulation = 2},
                                   all = {.micro_batch_size = 4,
                                          .world_size = 2,
                                          .accumulation = 2,
                                          .prompt_rows = true};
    struct tt_dataset *dataset = load(2);
    struct tt_sampler *of_answers = NULL, *of_all = NULL;
    struct tt_batch_storage storage = {0};
    struct tt_batch batch;
    struct tt_step_facts facts, other;
    struct tt_batch_limits limits;
    int64_t rows = 0, marked = 0, leading = 0;
    add_columns(dataset, 2);
    assert_int_equal(tt_sampler_create(dataset, &plain, &of_answers), TT_OK);
    assert_int_equal(tt_sampler_create(dataset, &all, &of_all), TT_OK);
    tt_sampler_step(of_answers, 0, &other);
    tt_sampler_step(of_all, 0, &facts);
    tt_sampler_limits(of_all, 0, 1, &limits);
    for (int64_t micro = 0; micro < facts.micro_count; micro++)
        for (int rank = 0; rank < 2; rank++) {
            int seen[SAMPLES] = {0};
            assert_int_equal(tt_sampler_batch(of_all, 0, micro, rank, &storage, &batch), TT_OK);
            check_batch(&batch, 2, seen);
            assert_int_equal(batch.row_count, batch.token_count - batch.sequence_count);
            assert_true(batch.row_count <= limits.rows);
            rows += batch.row_count;
            for (int64_t n = 0; n < batch.row_count; n++) {
                assert_int_equal(batch.supervised[n], batch.labels[n] % WIDTH % 3 != 0);
                marked += batch.supervised[n];
                leading += batch.labels[n] / WIDTH % 2 == 0;
            }
        }
    assert_int_equal(facts.supervised, rows);
    assert_int_equal(facts.leading, leading);
    assert_int_equal(other.supervised, marked);
    assert_true(marked < rows && leading < rows && other.leading < marked);
    assert_int_equal(tt_sampler_batch(of_answers, 0, 0, 0, &storage, &batch), TT_OK);
    for (int64_t n = 0; n < batch.row_count; n++) assert_int_equal(batch.supervised[n], 1);
    tt_batch_storage_deinit(&storage);
    tt_sampler_destroy(of_answers);
    tt_sampler_destroy(of_all);
    tt_dataset_destroy(dataset);
}

static void shuffles_and_splits_move_groups(void **state)
{
    (void)state;
    const struct tt_sampler_config config = {.micro_batch_size = 2, .world_size = 2, .accumulation = 1};
    int seen[SAMPLES] = {0}, held_seen[SAMPLES] = {0};
    struct tt_dataset *dataset = load(2), *held = NULL;
    add_columns(dataset, 2);
    assert_int_equal(tt_dataset_shuffle(dataset, 9), TT_OK);
    assert_int_not_equal(tt_dataset_sample(dataset, 0).ids[0], 0); /* something moved */
    assert_int_equal(tt_dataset_split(dataset, 7, 3, false, &held), TT_OK);
    assert_int_equal(tt_dataset_count(held), 14);
    assert_int_equal(tt_dataset_count(dataset), SAMPLES - 14);
    read_epoch(dataset, &config, 2, seen);
    read_epoch(held, &config, 2, held_seen);
    for (int j = 0; j < SAMPLES; j++) assert_int_equal(seen[j] + held_seen[j], 1);
    tt_dataset_destroy(held);
    tt_dataset_destroy(dataset);
}

/* A sample that is packed or cut keeps its values: a row's at the token that it predicts. */
static void packs_have_columns_too(void **state)
{
    (void)state;
    struct tt_dataset *dataset = load(1);
    add_columns(dataset, 1);
    for (int wrapped = 0; wrapped < 2; wrapped++) {
        struct tt_sampler_config config = {.micro_batch_size = 2,
                                           .world_size = 1,
                                           .accumulation = 1,
                                           .packing = true,
                                           .packing_strategy = wrapped ? TT_PACKING_WRAPPED : TT_PACKING_BFD,
                                           .max_length = 20};
        struct tt_sampler *sampler = NULL;
        struct tt_batch_storage storage = {0};
        struct tt_batch batch;
        int seen[SAMPLES] = {0};
        assert_int_equal(tt_sampler_create(dataset, &config, &sampler), TT_OK);
        for (int64_t step = 0; step < tt_sampler_steps_per_epoch(sampler); step++) {
            assert_int_equal(tt_sampler_batch(sampler, step, 0, 0, &storage, &batch), TT_OK);
            check_batch(&batch, 1, seen);
        }
        for (int j = 0; j < SAMPLES; j++) assert_true(seen[j] >= 1);
        tt_batch_storage_deinit(&storage);
        tt_sampler_destroy(sampler);
    }
    tt_dataset_destroy(dataset);
}

static void refusals(void **state)
{
    (void)state;
    static const float values[VOCAB];
    struct tt_sampler *sampler = NULL;
    struct tt_dataset *dataset = load(2);
    assert_int_equal(tt_dataset_group(dataset, 7), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "60 samples cannot be groups of 7"));
    assert_int_equal(tt_dataset_group(dataset, 0), TT_ERR_DATA);
    add_columns(dataset, 2);
    assert_int_equal(tt_dataset_add_column(dataset, "row", TT_PER_TOKEN, values), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "'row' is there already"));
    assert_int_equal(tt_dataset_add_column(dataset, "a name of more than 31 character", TT_PER_TOKEN, values),
                     TT_ERR_USAGE);
    assert_string_equal(tt_error_last()->message,
                        "column 'a name of more than 31 character': a name has at most 31 bytes");
    for (int i = 4; i < TT_COLUMNS_MAX; i++) {
        char name[] = {(char)('a' + i), '\0'};
        assert_int_equal(tt_dataset_add_column(dataset, name, TT_PER_GROUP, values), TT_OK);
    }
    assert_int_equal(tt_dataset_add_column(dataset, "ninth", TT_PER_GROUP, values), TT_ERR_USAGE);
    struct tt_sampler_config config = {
        .micro_batch_size = 1, .world_size = 1, .accumulation = 1, .packing = true, .max_length = 64};
    assert_int_equal(tt_sampler_create(dataset, &config, &sampler), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "groups of 2 samples cannot be packed"));
    config = (struct tt_sampler_config){
        .micro_batch_size = 31, .world_size = 1, .accumulation = 1, .drop_last = true};
    assert_int_equal(tt_sampler_create(dataset, &config, &sampler), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "30 groups are fewer than one batch of 31"));
    struct tt_dataset *held = NULL;
    assert_int_equal(tt_dataset_split(dataset, 30, 1, false, &held), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "cannot hold out 30 of 30 groups: both parts need one"));
    tt_dataset_destroy(dataset);
}

static tt_status move(void *context)
{
    (void)context;
    struct tt_dataset *dataset = NULL, *held = NULL;
    struct tt_sampler *sampler = NULL;
    struct tt_batch_storage storage = {0};
    struct tt_batch batch;
    const struct tt_sampler_config config = {.micro_batch_size = 2, .world_size = 1, .accumulation = 1};
    float values[20 * WIDTH] = {0};
    tt_status status = TT_OK;
    TT_GO(tt_dataset_create_random(20, 4, WIDTH, VOCAB, 1, &dataset));
    TT_GO(tt_dataset_group(dataset, 2));
    TT_GO(tt_dataset_add_column(dataset, "token", TT_PER_TOKEN, values));
    TT_GO(tt_dataset_add_column(dataset, "group", TT_PER_GROUP, values));
    TT_GO(tt_dataset_shuffle(dataset, 1));
    TT_GO(tt_dataset_split(dataset, 3, 1, false, &held));
    TT_GO(tt_sampler_create(held, &config, &sampler));
    TT_GO(tt_sampler_batch(sampler, 0, 0, 0, &storage, &batch));
out:
    tt_batch_storage_deinit(&storage);
    tt_sampler_destroy(sampler);
    tt_dataset_destroy(held);
    tt_dataset_destroy(dataset);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    test_allocations_fail(move, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_stay_together),
        cmocka_unit_test(prompts_have_rows_too),
        cmocka_unit_test(shuffles_and_splits_move_groups),
        cmocka_unit_test(packs_have_columns_too),
        cmocka_unit_test(refusals),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
