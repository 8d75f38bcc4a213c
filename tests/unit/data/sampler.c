/* data/sampler.h: whatever the split over ranks and micro batches, the global batch is the same; every token
 * comes once per epoch; labels stop at borders; limits and facts are what the batches say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"
#include "data/sampler.h"
#include "support/allocations.h"
#include "support/temporary.h"

enum { SAMPLES = 157, LONGEST = 40, PACK = 48 };

static struct tt_dataset *dataset;

/* Samples of 2 to 40 tokens; ids and what is supervised are random. */
static int setup(void **state)
{
    (void)state;
    struct tt_rng rng = tt_rng_make(77);
    struct tt_str text = {0};
    tt_status status = TT_OK;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        struct tt_rng row = tt_rng_derive_index(rng, i);
        uint64_t count = 2 + tt_rng_below(row, 1000, LONGEST - 1);
        status |= tt_str_append_text(&text, "{\"input_ids\": [");
        for (uint64_t t = 0; t < count; t++) {
            status |= tt_str_printf(&text, "%s%d", t > 0 ? ", " : "", (int)tt_rng_below(row, t, 1000));
        }
        status |= tt_str_append_text(&text, "], \"completion_mask\": [");
        for (uint64_t t = 0; t < count; t++) {
            int on = t + 1 == count || tt_rng_below(row, 2000 + t, 3) > 0;
            status |= tt_str_printf(&text, "%s%d", t > 0 ? ", " : "", on);
        }
        status |= tt_str_append_text(&text, "]}\n");
    }
    char path[256];
    test_temporary_of(path, sizeof path, "tt-sampler", (long)getpid(), ".jsonl");
    struct tt_data_config config = {.dataset_text_field = "text",
                                    .dataset_prompt_field = "prompt",
                                    .dataset_completion_field = "completion",
                                    .max_length = 1024,
                                    .packing_strategy = TT_PACKING_BFD,
                                    .eval_packing = -1,
                                    .completion_only_loss = -1};
    if (status == TT_OK) status = tt_file_write_atomic(path, text.data, text.bytes);
    if (status == TT_OK) status = tt_dataset_load(path, &config, NULL, 1000, 0, &dataset);
    tt_str_deinit(&text);
    unlink(path);
    return status == TT_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tt_dataset_destroy(dataset);
    return 0;
}

/* One token of a batch: where it is from and what it predicts (-100: nothing). */
struct token {
    int64_t key;
    int32_t id, label;
};

struct tokens {
    struct token *data;
    size_t count, capacity;
};

static int compare_tokens(const void *a, const void *b)
{
    const struct token *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* Checks one micro batch on its own and adds its tokens to `all`. */
static void check_batch(const struct tt_batch *batch, int64_t length_max, struct tokens *all)
{
    int64_t row = 0, longest = 0;
    assert_int_equal(batch->cu_seqlens[0], 0);
    assert_int_equal(batch->cu_seqlens[batch->sequence_count], batch->token_count);
    for (int64_t s = 0; s < batch->sequence_count; s++) {
        int32_t first = batch->cu_seqlens[s], end = batch->cu_seqlens[s + 1];
        assert_true(end > first && end - first <= length_max);
        if (end - first > longest) longest = end - first;
        for (int32_t t = first; t < end; t++) {
            int64_t sample = batch->row_keys[t] >> 24, position = batch->row_keys[t] & 0xffffff;
            struct tt_sample from = tt_dataset_sample(dataset, (size_t)sample);
            assert_int_equal(batch->positions[t], t - first);
            assert_int_equal(batch->row_keys[t], batch->row_keys[first] + (t - first));
            assert_int_equal(batch->ids[t], from.ids[position]);
            struct token token = {batch->row_keys[t], batch->ids[t], TT_LABEL_NONE};
            bool wanted = t + 1 < end && from.supervised[position + 1];
            if (wanted) {
                assert_true(row < batch->row_count);
                assert_int_equal(batch->rows[row], t);
                assert_int_equal(batch->labels[row], from.ids[position + 1]);
                token.label = batch->labels[row++];
            }
            assert_int_equal(tt_grow(&all->data, all->count, &all->capacity), 0);
            all->data[all->count++] = token;
        }
    }
    assert_int_equal(row, batch->row_count);
    assert_int_equal(longest, batch->max_length);
}

static void raise(int64_t *limit, int64_t value)
{
    if (value > *limit) *limit = value;
}

/* All micro batches of a step on all ranks, sorted by token. */
static struct tokens read_step(const struct tt_sampler *sampler, const struct tt_sampler_config *config,
                               int64_t step, struct tt_batch_limits *limits, int *empty)
{
    struct tokens all = {0};
    struct tt_step_facts facts;
    struct tt_batch_storage storage = {0};
    int64_t tokens = 0, rows = 0;
    tt_sampler_step(sampler, step, &facts);
    assert_in_range(facts.micro_count, 1, config->accumulation);
    for (int64_t micro = 0; micro < facts.micro_count; micro++) {
        int64_t units = 0;
        for (int rank = 0; rank < config->world_size; rank++) {
            struct tt_batch batch;
            assert_int_equal(tt_sampler_batch(sampler, step, micro, rank, &storage, &batch), TT_OK);
            check_batch(&batch, config->packing ? config->max_length : LONGEST, &all);
            if (!config->packing) assert_true(batch.sequence_count <= config->micro_batch_size);
            assert_true(batch.token_count <= config->micro_batch_size * (config->packing ? PACK : LONGEST));
            tokens += batch.token_count;
            rows += batch.row_count;
            units += batch.sequence_count;
            *empty += batch.token_count == 0;
            raise(&limits->tokens, batch.token_count);
            raise(&limits->sequences, batch.sequence_count);
            raise(&limits->rows, batch.row_count);
            raise(&limits->length, batch.max_length);
        }
        assert_true(units > 0);
    }
    assert_int_equal(facts.tokens, tokens);
    assert_int_equal(facts.supervised, rows);
    struct tt_batch batch;
    assert_int_equal(tt_sampler_batch(sampler, step, facts.micro_count, 0, &storage, &batch),
                     TT_ERR_INTERNAL);
    assert_int_equal(tt_sampler_batch(sampler, step, 0, config->world_size, &storage, &batch),
                     TT_ERR_INTERNAL);
    tt_batch_storage_deinit(&storage);
    qsort(all.data, all.count, sizeof *all.data, compare_tokens);
    return all;
}

static struct tt_sampler *create(const struct tt_sampler_config *config)
{
    struct tt_sampler *sampler = NULL;
    if (tt_sampler_create(dataset, config, &sampler) != TT_OK) fail_msg("%s", tt_error_last()->message);
    return sampler;
}

/* Two epochs of one split: each step equals that of the reference sampler (one rank, one micro batch), and
 * each epoch has every token once. */
static void check_split(struct tt_sampler_config config, const struct tt_sampler *reference,
                        const struct tt_sampler_config *reference_config, int *empty)
{
    struct tt_sampler *sampler = create(&config);
    int64_t steps = tt_sampler_steps_per_epoch(sampler);
    int unused = 0;
    assert_int_equal(steps, tt_sampler_steps_per_epoch(reference));
    assert_int_equal(tt_sampler_unit_count(sampler), tt_sampler_unit_count(reference));
    struct tt_batch_limits limits = {0}, ignored = {0}, said;
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        struct tokens whole = {0};
        int64_t samples = 0;
        for (int64_t s = epoch * steps; s < (epoch + 1) * steps; s++) {
            struct tokens here = read_step(sampler, &config, s, &limits, empty);
            struct tokens there = read_step(reference, reference_config, s, &ignored, &unused);
            assert_int_equal(here.count, there.count);
            assert_memory_equal(here.data, there.data, here.count * sizeof *here.data);
            struct tt_step_facts facts;
            tt_sampler_step(sampler, s, &facts);
            assert_int_equal(facts.epoch, epoch);
            samples += facts.samples;
            for (size_t i = 0; i < here.count; i++) {
                assert_int_equal(tt_grow(&whole.data, whole.count, &whole.capacity), 0);
                whole.data[whole.count++] = here.data[i];
            }
            tt_free(here.data);
            tt_free(there.data);
        }
        qsort(whole.data, whole.count, sizeof *whole.data, compare_tokens);
        for (size_t i = 1; i < whole.count; i++) assert_true(whole.data[i - 1].key < whole.data[i].key);
        struct tt_dataset_report report;
        tt_dataset_report(dataset, &report);
        if (!config.drop_last) {
            assert_int_equal(whole.count, report.tokens);
            assert_int_equal(samples, SAMPLES);
        }
        tt_free(whole.data);
    }
    tt_sampler_limits(sampler, 0, 2 * steps, &said);
    assert_int_equal(said.tokens, limits.tokens);
    assert_int_equal(said.sequences, limits.sequences);
    assert_int_equal(said.rows, limits.rows);
    assert_int_equal(said.length, limits.length);
    tt_sampler_destroy(sampler);
}

static void every_split_gives_the_same_batch(void **state)
{
    (void)state;
    /* Each has 12 units in a global batch: 157 samples end in a batch of one, which three of four ranks have
     * no part in. */
    static const struct {
        int64_t micro;
        int world;
        int64_t accumulation;
    } splits[] = {{12, 1, 1}, {1, 1, 12}, {4, 1, 3},  {6, 2, 1}, {3, 2, 2},
                  {1, 4, 3},  {3, 4, 1},  {1, 12, 1}, {1, 2, 6}};
    static const enum tt_packing_strategy packings[] = {TT_PACKING_BFD, TT_PACKING_BFD, TT_PACKING_WRAPPED};
    int empty = 0;
    for (int p = 0; p < 3; p++) {
        for (int flags = 0; flags < 8; flags++) {
            struct tt_sampler_config config = {.micro_batch_size = 12,
                                               .world_size = 1,
                                               .accumulation = 1,
                                               .seed = 5,
                                               .shuffle = flags & 1,
                                               .by_length = flags & 4,
                                               .drop_last = flags & 2,
                                               .packing = p > 0,
                                               .packing_strategy = packings[p],
                                               .max_length = PACK};
            struct tt_sampler *reference = create(&config);
            struct tt_sampler_config reference_config = config;
            for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
                config.micro_batch_size = splits[i].micro;
                config.world_size = splits[i].world;
                config.accumulation = splits[i].accumulation;
                check_split(config, reference, &reference_config, &empty);
            }
            tt_sampler_destroy(reference);
        }
    }
    assert_true(empty > 0);
}

/* All tokens of an epoch, with labels. */
static struct tokens read_epoch(const struct tt_sampler_config *config)
{
    struct tt_sampler *sampler = create(config);
    struct tokens whole = {0};
    struct tt_batch_limits limits = {0};
    int empty = 0;
    for (int64_t s = 0; s < tt_sampler_steps_per_epoch(sampler); s++) {
        struct tokens here = read_step(sampler, config, s, &limits, &empty);
        for (size_t i = 0; i < here.count; i++) {
            assert_int_equal(tt_grow(&whole.data, whole.count, &whole.capacity), 0);
            whole.data[whole.count++] = here.data[i];
        }
        tt_free(here.data);
    }
    qsort(whole.data, whole.count, sizeof *whole.data, compare_tokens);
    tt_sampler_destroy(sampler);
    return whole;
}

static void packing_changes_no_token(void **state)
{
    (void)state;
    struct tt_sampler_config config = {.micro_batch_size = 5,
                                       .world_size = 2,
                                       .accumulation = 2,
                                       .shuffle = true,
                                       .packing_strategy = TT_PACKING_BFD,
                                       .max_length = PACK};
    struct tokens plain = read_epoch(&config);
    config.packing = true;
    struct tokens packed = read_epoch(&config);
    config.packing_strategy = TT_PACKING_WRAPPED;
    struct tokens wrapped = read_epoch(&config);
    assert_int_equal(plain.count, packed.count);
    assert_memory_equal(plain.data, packed.data, plain.count * sizeof *plain.data);
    /* A cut costs the label of the token before it, at most one per slice. */
    assert_int_equal(plain.count, wrapped.count);
    size_t lost = 0;
    for (size_t i = 0; i < plain.count; i++) {
        assert_int_equal(plain.data[i].key, wrapped.data[i].key);
        if (wrapped.data[i].label == plain.data[i].label) continue;
        assert_int_equal(wrapped.data[i].label, TT_LABEL_NONE);
        lost++;
    }
    assert_in_range(lost, 1, plain.count / PACK + 1);
    tt_free(plain.data);
    tt_free(packed.data);
    tt_free(wrapped.data);
}

static void order(void **state)
{
    (void)state;
    struct tt_sampler_config config = {.micro_batch_size = 10, .world_size = 1, .accumulation = 1, .seed = 1};
    struct tt_sampler *sampler = create(&config);
    struct tt_batch_storage storage = {0}, other = {0};
    struct tt_batch batch, again;
    /* Not shuffled and not cut: the order of the file, in every epoch. */
    assert_int_equal(tt_sampler_steps_per_epoch(sampler), 16);
    for (int64_t step = 0; step < 32; step++) {
        assert_int_equal(tt_sampler_batch(sampler, step, 0, 0, &storage, &batch), TT_OK);
        assert_int_equal(batch.sequence_count, step % 16 == 15 ? 7 : 10);
        for (int64_t s = 0; s < batch.sequence_count; s++) {
            assert_int_equal(batch.row_keys[batch.cu_seqlens[s]] >> 24, step % 16 * 10 + s);
        }
    }
    tt_sampler_destroy(sampler);
    /* Cut over ranks, each still has its samples in the order of the epoch. */
    struct tt_sampler_config cut = {.micro_batch_size = 10, .world_size = 3, .accumulation = 2};
    sampler = create(&cut);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(tt_sampler_batch(sampler, 1, 1, rank, &storage, &batch), TT_OK);
        for (int64_t t = 1; t < batch.token_count; t++)
            assert_true(batch.row_keys[t - 1] < batch.row_keys[t]);
    }
    tt_sampler_destroy(sampler);
    config.shuffle = true;
    sampler = create(&config);
    /* Any step can be asked for first, and again; epochs and seeds have orders of their own. */
    struct tt_sampler *fresh = create(&config);
    config.seed = 2;
    struct tt_sampler *seeded = create(&config);
    int epochs_differ = 0, seeds_differ = 0;
    for (int64_t step = 15; step >= 0; step--) {
        assert_int_equal(tt_sampler_batch(sampler, step, 0, 0, &storage, &batch), TT_OK);
        assert_int_equal(tt_sampler_batch(fresh, step, 0, 0, &other, &again), TT_OK);
        assert_int_equal(batch.token_count, again.token_count);
        assert_memory_equal(batch.row_keys, again.row_keys,
                            (size_t)batch.token_count * sizeof *batch.row_keys);
        assert_int_equal(tt_sampler_batch(fresh, step + 16, 0, 0, &other, &again), TT_OK);
        epochs_differ += batch.row_keys[0] != again.row_keys[0];
        assert_int_equal(tt_sampler_batch(seeded, step, 0, 0, &other, &again), TT_OK);
        seeds_differ += batch.row_keys[0] != again.row_keys[0];
    }
    assert_true(epochs_differ > 10);
    assert_true(seeds_differ > 10);
    tt_sampler_destroy(fresh);
    tt_sampler_destroy(seeded);
    tt_sampler_destroy(sampler);
    tt_batch_storage_deinit(&storage);
    tt_batch_storage_deinit(&other);
}

/* A batch cut over 4 ranks: the largest share is close to the mean. */
static void ranks_get_equal_shares(void **state)
{
    (void)state;
    struct tt_sampler_config config = {
        .micro_batch_size = 8, .world_size = 4, .accumulation = 1, .shuffle = true};
    struct tt_sampler *sampler = create(&config);
    struct tt_batch_storage storage = {0};
    for (int64_t step = 0; step < 4; step++) {
        struct tt_step_facts facts;
        int64_t largest = 0;
        tt_sampler_step(sampler, step, &facts);
        for (int rank = 0; rank < 4; rank++) {
            struct tt_batch batch;
            assert_int_equal(tt_sampler_batch(sampler, step, 0, rank, &storage, &batch), TT_OK);
            raise(&largest, batch.token_count);
        }
        assert_true((double)largest < 1.08 * (double)facts.tokens / 4);
    }
    tt_batch_storage_deinit(&storage);
    tt_sampler_destroy(sampler);
}

static void refusals(void **state)
{
    (void)state;
    struct tt_sampler *sampler = NULL;
    struct tt_sampler_config config = {
        .micro_batch_size = 100, .world_size = 2, .accumulation = 1, .drop_last = true};
    assert_int_equal(tt_sampler_create(dataset, &config, &sampler), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "157 samples are fewer than one batch of 200"));
    config = (struct tt_sampler_config){.micro_batch_size = 0, .world_size = 1, .accumulation = 1};
    assert_int_equal(tt_sampler_create(dataset, &config, &sampler), TT_ERR_USAGE);
    config = (struct tt_sampler_config){.micro_batch_size = INT64_MAX, .world_size = 2, .accumulation = 1};
    assert_int_equal(tt_sampler_create(dataset, &config, &sampler), TT_ERR_USAGE);
    config = (struct tt_sampler_config){.micro_batch_size = 1,
                                        .world_size = 1,
                                        .accumulation = 1,
                                        .packing = true,
                                        .packing_strategy = TT_PACKING_BFD,
                                        .max_length = LONGEST - 1};
    assert_int_equal(tt_sampler_create(dataset, &config, &sampler), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "does not fit into a pack of 39"));
    config.max_length = 0;
    assert_int_equal(tt_sampler_create(dataset, &config, &sampler), TT_ERR_USAGE);
    assert_null(sampler);
    tt_sampler_destroy(NULL);
}

static tt_status sample(void *context)
{
    struct tt_sampler *sampler = NULL;
    struct tt_batch_storage storage = {0};
    struct tt_batch batch;
    tt_status status = tt_sampler_create(dataset, context, &sampler);
    if (status == TT_OK) status = tt_sampler_batch(sampler, 0, 0, 1, &storage, &batch);
    tt_batch_storage_deinit(&storage);
    tt_sampler_destroy(sampler);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct tt_sampler_config config = {.micro_batch_size = 3,
                                       .world_size = 2,
                                       .accumulation = 1,
                                       .packing = true,
                                       .packing_strategy = TT_PACKING_BFD,
                                       .max_length = PACK};
    test_allocations_fail(sample, &config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_split_gives_the_same_batch),
        cmocka_unit_test(packing_changes_no_token),
        cmocka_unit_test(order),
        cmocka_unit_test(ranks_get_equal_shares),
        cmocka_unit_test(refusals),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
