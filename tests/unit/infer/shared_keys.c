/* Generation of a model whose layers differ (support/mixed_model.h): one reads the keys and values of another from that
 * one's rows of the cache, and one has inputs of its own. Logits are those of passes without a cache, and the plan is
 * exact. With TT_TEST_DEVICE=cuda on a GPU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint/load.h"
#include "engine/executor.h"
#include "engine/rank_pass.h"
#include "infer/generation_rank.h"
#include "support/mixed_model.h"
#include "support/must.h"

enum { SEQUENCES = 3, LENGTH = 12, ROWS = SEQUENCES * LENGTH, VOCAB = 37 };

/* Tokens of each sequence in the first pass; the others follow one by one. */
static const int64_t prompts[SEQUENCES] = {5, 2, 7};

static const struct tt_generation_adapters base_alone = {.off = true};

struct scene {
    struct tt_model_facts facts;
    struct tt_comm *comm;
    struct tt_rank_config config;
    struct tt_generation_limits limits;
    struct tt_plan plan;
    struct tt_rank rank;
    struct tt_generation_rank generation;
};

/* The arrays of a batch. */
struct tokens {
    int32_t ids[ROWS], positions[ROWS], reached[ROWS], borders[SEQUENCES + 1], rows[ROWS], labels[ROWS];
    int64_t keys[ROWS];
};

static int32_t id_of(int sequence, int64_t position)
{
    return (int32_t)((sequence * 13 + position * 7 + position * position) % VOCAB);
}

static void open_scene(struct scene *scene)
{
    const char *kind = getenv("TT_TEST_DEVICE");
    const struct tt_batch_limits none = {0},
                                 whole = {
                                     .tokens = ROWS, .sequences = SEQUENCES, .rows = ROWS, .length = LENGTH};
    struct tt_rank_layout layout = {.world_size = 1, .machines = 1, .ranks_per_machine = 1};
    const struct tt_model_options options = {.compute_dtype = TT_F32, .random_init = true};
    layout.device = (struct tt_device_config){.kind = kind != NULL ? kind : "cpu", .threads = 1};
    test_must(mixed_facts(NULL, &scene->facts));
    scene->facts.initializer_range = 0.3;
    test_must(tt_comm_create_self(&scene->comm));
    test_must(
        tt_rank_config_make(NULL, &layout, &scene->facts, &options, TT_RANK_EVALUATES, NULL, &scene->config));
    scene->limits = (struct tt_generation_limits){.slots = SEQUENCES, .length = LENGTH};
    tt_generation_limits_fill(&layout.device, &scene->limits);
    const struct tt_batch_limits generation = tt_generation_batch_limits(&scene->limits);
    scene->config.limits = tt_batch_limits_join(&whole, &generation);
    test_must(tt_plan_make(&scene->config, (struct tt_plan_ranks){1, 1}, 1, &none, &whole, &scene->plan));
    test_must(tt_generation_plan(&scene->config, &scene->limits, &scene->plan));
    scene->config.world = scene->config.shard_comm = scene->comm;
    scene->config.workspace_bytes = scene->plan.workspace_bytes;
    test_must(tt_rank_init(&scene->config, &scene->rank));
    test_must(tt_rank_load(&scene->rank, &(struct tt_load_source){.seed = 5}));
    test_must(tt_generation_rank_attach(&scene->rank, &scene->limits, &scene->generation));
}

static void close_scene(struct scene *scene)
{
    tt_generation_rank_deinit(&scene->generation);
    tt_rank_deinit(&scene->rank);
    tt_comm_destroy(scene->comm);
}

/* `counts` tokens of each sequence behind `done` of them; a row for each token, or for the last ones. */
static struct tt_batch make_batch(struct tokens *tokens, const int64_t *done, const int64_t *counts, bool all)
{
    struct tt_batch batch = {.sequence_count = SEQUENCES,
                             .ids = tokens->ids,
                             .positions = tokens->positions,
                             .reached = tokens->reached,
                             .row_keys = tokens->keys,
                             .cu_seqlens = tokens->borders,
                             .rows = tokens->rows,
                             .labels = tokens->labels};
    memset(tokens, 0, sizeof *tokens);
    for (int s = 0; s < SEQUENCES; s++) {
        for (int64_t t = 0; t < counts[s]; t++) {
            int64_t at = batch.token_count++, position = done[s] + t;
            tokens->ids[at] = id_of(s, position);
            tokens->positions[at] = (int32_t)position;
            tokens->reached[at] = (int32_t)(done[s] + counts[s]);
            tokens->keys[at] = (int64_t)s << 24 | position;
            if (all || t + 1 == counts[s]) tokens->rows[batch.row_count++] = (int32_t)at;
        }
        tokens->borders[s + 1] = (int32_t)batch.token_count;
        if (counts[s] > batch.max_length) batch.max_length = counts[s];
    }
    return batch;
}

static void read_logits(struct scene *scene, int64_t rows, float *logits)
{
    test_must(tt_copy_to_host(scene->rank.stream, logits,
                              tt_pass_result(&scene->rank.results, TT_RESULT_LOGITS, 0).data,
                              (size_t)(rows * VOCAB) * sizeof *logits));
    test_must(tt_stream_synchronize(scene->rank.stream));
}

/* Logits of all tokens, by sequence and position. */
static void run_whole(struct scene *scene, float *logits)
{
    static const int64_t none[SEQUENCES], counts[SEQUENCES] = {LENGTH, LENGTH, LENGTH};
    struct tokens tokens;
    struct tt_pass pass;
    struct tt_batch batch = make_batch(&tokens, none, counts, true);
    test_must(tt_rank_upload(&scene->rank, &batch, &pass));
    pass.in.want_logits = true;
    test_must(tt_executor_forward(scene->rank.executor, &pass));
    read_logits(scene, ROWS, logits);
    tt_executor_end(scene->rank.executor);
}

/* `got` are the logits behind a token, `wanted` those of the pass without a cache. */
static void check_logits(const float *got, const float *wanted, int sequence)
{
    for (int v = 0; v < VOCAB; v++)
        if (!(fabsf(wanted[v] - got[v]) < 2e-4f * (1 + fabsf(wanted[v]))))
            fail_msg("sequence %d: logit %g instead of %g", sequence, (double)got[v], (double)wanted[v]);
}

/* The chosen token has the largest logit. */
static void check_chosen(const float *wanted, int32_t chosen)
{
    for (int v = 0; v < VOCAB; v++) assert_true(wanted[v] <= wanted[chosen] + 2e-4f * (1 + fabsf(wanted[v])));
}

/* One pass over the next tokens, whose last ones of each sequence have the logits of `whole`. A pass that a device
 * repeats as a recorded graph gives the chosen tokens alone. */
static void run_next(struct scene *scene, int64_t *done, const int64_t *counts, const float *whole)
{
    static float logits[SEQUENCES * VOCAB];
    struct tokens tokens;
    struct tt_sample_rule rules[SEQUENCES];
    const int32_t *chosen;
    for (int s = 0; s < SEQUENCES; s++) rules[s] = (struct tt_sample_rule){.penalty = 1, .seen_row = -1};
    struct tt_batch batch = make_batch(&tokens, done, counts, false);
    test_must(tt_generation_rank_pass(&scene->generation, &batch, rules, &base_alone, &chosen));
    bool repeated = tt_pass_result(&scene->rank.results, TT_RESULT_LOGITS, 0).data == NULL;
    assert_true(!repeated || tt_device_has_graphs(scene->rank.device));
    if (!repeated) read_logits(scene, SEQUENCES, logits);
    for (int s = 0; s < SEQUENCES; s++) {
        done[s] += counts[s];
        const float *wanted = whole + (s * LENGTH + done[s] - 1) * VOCAB;
        check_chosen(wanted, chosen[s]);
        if (!repeated) check_logits(logits + (size_t)s * VOCAB, wanted, s);
    }
    tt_generation_rank_end(&scene->generation);
}

static void cached_as_without_a_cache(void **state)
{
    static struct scene scene;
    static float whole[ROWS * VOCAB];
    static const int64_t one[SEQUENCES] = {1, 1, 1};
    int64_t done[SEQUENCES] = {0};
    struct tt_memory_use memory;
    (void)state;
    open_scene(&scene);
    assert_int_equal(tt_model_cache_layers(&scene.facts), 3);
    run_whole(&scene, whole);
    assert_true(fabsf(whole[0]) + fabsf(whole[VOCAB]) > 0.1f);
    for (int step = 0; step < LENGTH - 7; step++) run_next(&scene, done, step == 0 ? prompts : one, whole);
    tt_device_memory(scene.rank.device, &memory);
    assert_int_equal(memory.peak[TT_PURPOSE_ACTIVATIONS], scene.plan.memory.peak[TT_PURPOSE_ACTIVATIONS]);
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cached_as_without_a_cache)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
