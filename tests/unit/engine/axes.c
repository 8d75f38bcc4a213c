/* Axes of ranks. One that shares samples: the training is, bit for bit, that of the ranks without it. Blocks that
 * exchange rows in every pass: one loss curve at every recompute level, on any number of ranks, also where a rank has
 * no tokens, over the data axis and over one that divides it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "checkpoint/load.h"
#include "engine/axis_exchange.h"
#include "engine/feed_rows.h"
#include "engine/plan.h"
#include "engine/rank_pass.h"
#include "engine/step.h"
#include "support/model_facts.h"
#include "support/ranks.h"

enum {
    STEPS = 4,
    STEP_SAMPLES = 4,
    SAMPLES = 13, /* the fourth step has one: other ranks have no tokens */
    LENGTH = 24,
    VOCAB = 300,
    WIDTH = 16,
    LAYER = 2, /* the block of the second layer */
    AXIS_TEST = TT_AXIS_COUNT
};

static const char shape[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 300, \"hidden_size\": 16, \"intermediate_size\": 24, "
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
    "\"max_position_embeddings\": 256, \"rms_norm_eps\": 1e-5}";

struct setup {
    int world;
    struct tt_axes axes;
    enum tt_level level;
    bool exchanges;    /* the second layer does */
    enum tt_axis over; /* along this axis */
    int failing;       /* the rank whose block fails in the second step; 0: none */
    enum tt_shard_strategy strategy;
};

struct outcome {
    struct setup setup;
    double losses[STEPS], norms[STEPS];
    double last;           /* sum of losses of a pass without gradients */
    int data_size, saving; /* ranks that save the same slices of all */
};

/* ---- A layer whose output rows get half of themselves times a weight, computed by another rank ---- */

static const struct tt_block_ops *inner; /* the layer's own, the same in all ranks */
static enum tt_axis over;
static int failing;

struct kept {
    tt_tensor rows_MD; /* of other ranks */
    int64_t sent[TEST_RANKS_MAX], received[TEST_RANKS_MAX], received_count;
    _Alignas(64) char inner[];
};

static tt_param *weight_of(const struct tt_block *block)
{
    for (size_t i = 0; i < block->param_count; i++)
        if (strstr(block->params[i]->name, "input_layernorm") != NULL) return block->params[i];
    return NULL;
}

static int home_of(const struct tt_pass *pass, int64_t row, int size)
{
    int64_t key = ((const int64_t *)pass->in.batch->row_keys_T.data)[row];
    return (int)(((key >> 24) * 7 + (key & 0xffffff)) % size);
}

/* Rows between the order of tokens and that of their homes. */
static void sort_rows(const struct tt_pass *pass, int size, float *tokens, float *sorted, bool back)
{
    int64_t next = 0;
    for (int home = 0; home < size; home++)
        for (int64_t t = 0; t < pass->in.batch->token_count; t++) {
            if (home_of(pass, t, size) != home) continue;
            float *a = tokens + t * WIDTH, *b = sorted + next++ * WIDTH;
            for (int i = 0; i < WIDTH; i++) *(back ? a + i : b + i) += back ? b[i] : a[i];
        }
}

static tt_status count_rows(const struct tt_pass *pass, struct kept *kept)
{
    const struct tt_exchange *other = pass->lent.exchange;
    int size = other->groups[over].size, rank = other->groups[over].rank;
    int64_t all[TEST_RANKS_MAX * TEST_RANKS_MAX];
    memset(kept->sent, 0, sizeof kept->sent);
    for (int64_t t = 0; t < pass->in.batch->token_count; t++) kept->sent[home_of(pass, t, size)]++;
    TT_TRY(other->gather(other->context, over, tt_tensor_1d(kept->sent, TT_I64, size),
                         tt_tensor_1d(all, TT_I64, (int64_t)size * size)));
    kept->received_count = 0;
    for (int q = 0; q < size; q++) kept->received_count += kept->received[q] = all[q * size + rank];
    return TT_OK;
}

static tt_status push(const struct tt_pass *pass, int64_t rows, tt_tensor *out)
{
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "exchanged rows", TT_F32, rows + 1, WIDTH, out));
    *out = tt_tensor_rows(*out, 0, rows);
    return tt_fill_zero(pass->lent.stream, out->data, tt_tensor_bytes(*out));
}

static tt_status travel(const struct tt_pass *pass, const struct kept *kept, tt_tensor send, tt_tensor recv,
                        bool back)
{
    const struct tt_exchange *other = pass->lent.exchange;
    struct tt_all_to_all rows = {send, recv, kept->sent, kept->received};
    if (back) rows = (struct tt_all_to_all){send, recv, kept->received, kept->sent};
    return other->all_to_all(other->context, over, &rows);
}

/* `values`, of the batch's tokens, += half of the weight times them, at their homes. With a gradient that of the weight
 * is added too. */
static tt_status add_half(const struct tt_block *block, const struct tt_pass *pass, struct kept *kept,
                          tt_tensor values, bool gradient, bool returns)
{
    int size = pass->lent.exchange->groups[over].size;
    const float *weight = weight_of(block)->value.data;
    tt_tensor sorted, back, got = kept->rows_MD;
    TT_TRY(push(pass, pass->in.batch->token_count, &sorted));
    TT_TRY(push(pass, kept->received_count, &back));
    if (gradient) TT_TRY(push(pass, kept->received_count, &got));
    sort_rows(pass, size, values.data, sorted.data, false);
    TT_TRY(travel(pass, kept, sorted, got, false));
    const float *x = kept->rows_MD.data, *g = got.data;
    for (int64_t i = 0; i < kept->received_count * WIDTH; i++) {
        ((float *)back.data)[i] = 0.5f * weight[i % WIDTH] * g[i];
        if (gradient) ((float *)weight_of(block)->grad.data)[i % WIDTH] += 0.5f * x[i] * g[i];
    }
    if (!returns) return TT_OK;
    TT_TRY(travel(pass, kept, back, sorted, true));
    sort_rows(pass, size, values.data, sorted.data, true);
    return TT_OK;
}

static tt_status forward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD, void *saved,
                         tt_tensor y_TD)
{
    struct kept own = {0}, *kept = saved != NULL ? saved : &own;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    int64_t tokens = pass->in.batch->token_count;
    tt_tensor values;
    TT_TRY(push(pass, tokens, &values));
    if (tokens > 0) TT_TRY(inner->forward(block, pass, x_TD, saved != NULL ? kept->inner : NULL, values));
    TT_TRY(count_rows(pass, kept));
    TT_TRY(push(pass, kept->received_count, &kept->rows_MD));
    size_t scratch = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(add_half(block, pass, kept, values, false, !pass->in.again));
    if (!tt_tensor_is_empty(y_TD)) memcpy(y_TD.data, values.data, tt_tensor_bytes(values));
    tt_workspace_release(pass->lent.workspace, saved != NULL ? scratch : mark);
    return TT_OK;
}

static tt_status backward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD,
                          const void *saved, tt_tensor dy_TD, tt_tensor dx_TD)
{
    struct kept *kept = (struct kept *)(uintptr_t)saved;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    int64_t tokens = pass->in.batch->token_count;
    tt_tensor values;
    if (failing > 0 && pass->lent.exchange->groups[TT_AXIS_DATA].rank == failing && tokens > 0)
        return tt_fail(TT_ERR_DATA, "a bad row");
    TT_TRY(push(pass, tokens, &values));
    if (tokens > 0) memcpy(values.data, dy_TD.data, tt_tensor_bytes(values));
    TT_TRY(add_half(block, pass, kept, values, true, true));
    if (tokens > 0) TT_TRY(inner->backward(block, pass, x_TD, kept->inner, values, dx_TD));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static enum tt_block_exchange activations(const struct tt_block *block)
{
    (void)block;
    return TT_EXCHANGE_ACTIVATIONS;
}

/* ---- Training ---- */

struct run {
    struct tt_model_facts model;
    struct tt_dataset *dataset;
    struct tt_sampler *sampler;
    struct tt_rank rank;
    struct tt_gradient_watch watch;
    struct tt_objective objective;
    struct tt_block_ops ops;
    enum tt_level levels[8];
};

/* The executor again, with the block that exchanges. */
static tt_status replace_block(struct run *run)
{
    struct tt_rank *rank = &run->rank;
    struct tt_block *block = &rank->model->blocks[LAYER];
    const struct tt_executor_config config = {.model = rank->model,
                                              .units = rank->units,
                                              .shard = rank->shard,
                                              .workspace = rank->workspace,
                                              .device = rank->device,
                                              .levels = run->levels,
                                              .mesh = &rank->mesh,
                                              .rows_max = rank->limits.rows,
                                              .tokens_max = rank->limits.tokens,
                                              .backward_prefetch = TT_PREFETCH_PRE,
                                              .forward_prefetch = true};
    run->ops = *block->ops;
    run->ops.saved_bytes += sizeof(struct kept);
    run->ops.forward = forward;
    run->ops.backward = backward;
    run->ops.exchange = activations;
    block->ops = &run->ops;
    tt_executor_destroy(rank->executor);
    rank->executor = NULL;
    return tt_executor_create(&config, &rank->executor);
}

static tt_status open_run(struct tt_comm *comm, const struct setup *setup, struct run *run)
{
    struct tt_batch_limits limits;
    int data_size = tt_axes_data_size(&setup->axes, setup->world);
    const struct tt_sampler_config sampler = {.micro_batch_size = STEP_SAMPLES / data_size,
                                              .world_size = data_size,
                                              .accumulation = 1,
                                              .shuffle = true};
    *run = (struct run){0};
    for (int i = 0; i < 8; i++) run->levels[i] = setup->level;
    TT_TRY(test_facts(shape, &run->model));
    TT_TRY(tt_dataset_create_random(SAMPLES, 5, LENGTH, VOCAB, 3, &run->dataset));
    TT_TRY(tt_sampler_create(run->dataset, &sampler, &run->sampler));
    TT_TRY(tt_objective_init("sft", &run->objective));
    tt_sampler_limits(run->sampler, 0, STEPS, &limits);
    const struct tt_rank_config config = {
        .device = {.kind = "cpu", .threads = 1},
        .world = comm,
        .axes = setup->axes,
        .machine = tt_comm_rank(comm) / 2,
        .local_rank = tt_comm_rank(comm) % 2,
        .strategy = setup->strategy,
        .model_facts = &run->model,
        .model_options = {.compute_dtype = TT_F32, .random_init = true, .train_base = true},
        .objective = &run->objective,
        .limits = limits,
        .train = true,
        .levels = run->levels,
        .backward_prefetch = TT_PREFETCH_PRE,
        .forward_prefetch = true,
        .reduce_dtype = TT_F32,
        .workspace_bytes = 16 << 20,
    };
    TT_TRY(tt_rank_init(&config, &run->rank));
    if (setup->exchanges) TT_TRY(replace_block(run));
    TT_TRY(tt_rank_load(&run->rank, &(struct tt_load_source){.seed = 5}));
    return tt_gradient_watch_init(run->rank.model, &run->watch);
}

static void close_run(struct run *run)
{
    tt_gradient_watch_deinit(&run->watch);
    tt_rank_deinit(&run->rank);
    tt_sampler_destroy(run->sampler);
    tt_dataset_destroy(run->dataset);
}

static tt_status train_steps(struct run *run, struct tt_feed *feed, struct outcome *outcome)
{
    const struct tt_optim_config optim = {.optim = "adamw_torch",
                                          .learning_rate = 0.01,
                                          .lr_scheduler_type = "constant",
                                          .adam_beta1 = 0.9,
                                          .adam_beta2 = 0.999,
                                          .adam_epsilon = 1e-8,
                                          .max_grad_norm = 1};
    const struct tt_train_step_config config = {
        .optim = &optim, .feed = feed, .seed = 1, .length = {STEPS, STEPS}};
    for (int64_t s = 0; s < STEPS; s++) {
        struct tt_train_step_result result;
        TT_TRY(tt_train_step(&run->rank, &config, s, &run->watch, &result));
        if (tt_comm_rank(run->rank.world) > 0) continue;
        outcome->losses[s] = result.loss;
        outcome->norms[s] = result.grad_norm;
    }
    return TT_OK;
}

/* The losses of the last step's rows, which only one rank of the data axis has, without gradients. */
static tt_status evaluate(struct run *run, struct tt_feed *feed, struct outcome *outcome)
{
    struct tt_rank *rank = &run->rank;
    struct tt_micro data;
    struct tt_pass pass;
    double sum = 0;
    TT_TRY(tt_feed_micro(feed, STEPS - 1, 0, &data));
    TT_TRY(tt_rank_upload_micro(rank, &data, &pass));
    tt_status status = tt_executor_forward(rank->executor, &pass);
    for (int64_t n = 0; status == TT_OK && n < pass.in.batch->row_count; n++)
        sum += ((const float *)tt_pass_result(pass.out, TT_RESULT_LOSS, 0).data)[n];
    tt_executor_end(rank->executor);
    TT_TRY(status);
    TT_TRY(
        tt_comm_all_reduce(rank->mesh.axes[TT_AXIS_DATA].comm, rank->stream, &sum, 1, TT_F64, TT_REDUCE_SUM));
    double saving = rank->mesh.first_copy ? 1.0 / rank->mesh.part_count : 0;
    TT_TRY(tt_comm_all_reduce(rank->world, rank->stream, &saving, 1, TT_F64, TT_REDUCE_SUM));
    if (tt_comm_rank(rank->world) > 0) return TT_OK;
    outcome->last = sum;
    outcome->data_size = rank->mesh.axes[TT_AXIS_DATA].size;
    outcome->saving = (int)(saving + 0.5);
    return TT_OK;
}

static tt_status train(struct tt_comm *comm, void *argument)
{
    struct outcome *outcome = argument;
    struct run *run = tt_calloc(1, sizeof *run);
    struct tt_feed feed = {0};
    tt_status status = TT_OK;
    if (run == NULL) return TT_ERR_MEMORY;
    TT_GO(open_run(comm, &outcome->setup, run));
    TT_GO(tt_feed_of_rows(run->sampler, run->rank.mesh.axes[TT_AXIS_DATA].rank, &feed));
    TT_GO(train_steps(run, &feed, outcome));
    TT_GO(evaluate(run, &feed, outcome));
out:
    tt_feed_deinit(&feed);
    close_run(run);
    tt_free(run);
    return status;
}

/* The ops of a layer are one table for all ranks. */
static int find_inner(void **state)
{
    struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
    struct tt_model *model = NULL;
    const struct tt_model_options options = {.compute_dtype = TT_F32, .random_init = true};
    (void)state;
    if (facts == NULL || test_facts(shape, facts) != TT_OK ||
        tt_model_create(facts, &options, &model) != TT_OK)
        return -1;
    inner = model->blocks[LAYER].ops;
    tt_model_destroy(model);
    tt_free(facts);
    return 0;
}

static struct outcome outcome_of(struct setup setup)
{
    struct outcome outcome = {.setup = setup};
    over = setup.over;
    failing = setup.failing;
    test_ranks(setup.world, train, &outcome);
    assert_int_equal(outcome.data_size, tt_axes_data_size(&setup.axes, setup.world));
    assert_int_equal(outcome.saving, 1);
    return outcome;
}

static void check_same(const struct outcome *a, const struct outcome *b, double tolerance)
{
    for (int s = 0; s < STEPS; s++)
        if (!(fabs(a->losses[s] - b->losses[s]) <= tolerance * b->losses[s]) ||
            !(fabs(a->norms[s] - b->norms[s]) <= 100 * tolerance * b->norms[s]))
            fail_msg("%d ranks, level %d, step %d: loss %.9f, norm %.9f instead of %.9f, %.9f",
                     a->setup.world, a->setup.level, s + 1, a->losses[s], a->norms[s], b->losses[s],
                     b->norms[s]);
    assert_true(fabs(a->last - b->last) <= 10 * tolerance * b->last);
}

static const struct tt_axis_spec pairs[] = {{(enum tt_axis)AXIS_TEST, 2, true}};
static const struct tt_axis_spec experts[] = {{TT_AXIS_EXPERT, 2, false}};
static const struct tt_axis_spec both[] = {{TT_AXIS_EXPERT, 2, false}, {(enum tt_axis)AXIS_TEST, 2, true}};

static void ranks_that_share_samples(void **state)
{
    (void)state;
    static const struct tt_axes shared = {pairs, 1}, divided = {both, 2};
    for (int strategy = TT_FULL_SHARD; strategy <= TT_NO_SHARD; strategy++) {
        const struct setup plain = {.world = 2, .level = TT_KEEP_CHEAP, .strategy = strategy};
        struct setup setup = plain;
        struct outcome two = outcome_of(plain), four;
        assert_true(two.losses[0] > 0 && two.losses[0] != two.losses[1]);
        setup.world = 4;
        for (int i = 0; i < 2; i++) {
            setup.axes = i == 0 ? shared : divided;
            four = outcome_of(setup);
            assert_memory_equal(four.losses, two.losses, sizeof two.losses);
            assert_memory_equal(four.norms, two.norms, sizeof two.norms);
            assert_true(four.last == two.last);
        }
    }
}

static void rows_that_travel_in_every_pass(void **state)
{
    (void)state;
    const struct setup plain = {.world = 1, .over = TT_AXIS_DATA};
    struct outcome without = outcome_of(plain);
    struct setup setup = plain;
    setup.exchanges = true;
    struct outcome alone = outcome_of(setup);
    assert_true(fabs(alone.losses[0] - without.losses[0]) > 1e-4);
    for (setup.world = 1; setup.world <= 4; setup.world *= 2) {
        setup.level = TT_KEEP_ALL;
        struct outcome kept = outcome_of(setup);
        check_same(&kept, &alone, 2e-6);
        for (int level = TT_KEEP_CHEAP; level < TT_LEVEL_COUNT; level++) {
            setup.level = (enum tt_level)level;
            struct outcome outcome = outcome_of(setup);
            assert_memory_equal(outcome.losses, kept.losses, sizeof kept.losses);
            assert_memory_equal(outcome.norms, kept.norms, sizeof kept.norms);
            assert_true(outcome.last == kept.last);
        }
    }
    setup = (struct setup){.world = 4, .axes = {experts, 1}, .over = TT_AXIS_EXPERT, .exchanges = true};
    for (int level = TT_KEEP_ALL; level < TT_LEVEL_COUNT; level++) {
        setup.level = (enum tt_level)level;
        struct outcome grouped = outcome_of(setup);
        check_same(&grouped, &alone, 2e-6);
    }
}

static bool names_axis(const struct tt_error *error, const char *name)
{
    char wanted[64];
    (void)snprintf(wanted, sizeof wanted, "along the axis '%s'", name);
    for (int i = 0; i < error->context_count; i++)
        if (strstr(error->context[i], wanted) != NULL) return true;
    return false;
}

static void a_rank_that_fails_inside(void **state)
{
    (void)state;
    struct tt_error errors[4];
    struct outcome outcome = {.setup = {.world = 4, .level = TT_RECOMPUTE_BLOCK, .exchanges = true}};
    over = TT_AXIS_DATA;
    failing = 2;
    test_ranks_outcomes(4, train, &outcome, errors);
    failing = 0;
    for (int q = 0; q < 4; q++) {
        assert_int_equal(errors[q].status, q == 2 ? TT_ERR_DATA : TT_ERR_PEER);
        assert_non_null(strstr(errors[q].message, q == 2 ? "a bad row" : "rank 2 failed: a bad row"));
        if (q != 2) assert_true(names_axis(&errors[q], "data"));
    }
}

/* A rank whose group is itself alone copies its rows, and as many as it expects. */
static void rows_of_a_rank_alone(void **state)
{
    (void)state;
    float sent[4] = {1, 2, 3, 4}, received[4] = {0};
    const int64_t two[] = {2}, one[] = {1};
    struct tt_device *device = NULL;
    struct tt_stream *stream = NULL;
    struct tt_axis_exchange exchange = {0};
    struct tt_mesh mesh = {0};
    for (int axis = 0; axis < TT_AXES_MAX; axis++) mesh.axes[axis].size = 1;
    assert_int_equal(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1}, &device), TT_OK);
    assert_int_equal(tt_stream_create(device, &stream), TT_OK);
    assert_int_equal(tt_axis_exchange_init(&mesh, &exchange), TT_OK);
    struct tt_all_to_all rows = {.send = tt_tensor_2d(sent, TT_F32, 2, 2),
                                 .recv = tt_tensor_2d(received, TT_F32, 2, 2),
                                 .send_rows = two,
                                 .recv_rows = two};
    assert_int_equal(tt_axis_all_to_all(&exchange, stream, TT_AXIS_EXPERT, &rows), TT_OK);
    assert_memory_equal(sent, received, sizeof sent);
    rows.recv = tt_tensor_2d(received, TT_F32, 1, 2);
    rows.recv_rows = one;
    assert_int_equal(tt_axis_all_to_all(&exchange, stream, TT_AXIS_EXPERT, &rows), TT_ERR_INTERNAL);
    assert_non_null(strstr(tt_error_last()->message, "a rank sends itself 2 rows and expects 1"));
    tt_axis_exchange_deinit(&exchange);
    tt_stream_destroy(stream);
    tt_device_close(device);
}

static tt_status check_groups(struct tt_comm *comm, void *argument)
{
    const struct tt_axes *axes = argument;
    int rank = tt_comm_rank(comm);
    struct tt_device *device = NULL;
    struct tt_mesh mesh = {0};
    const struct tt_mesh_config config = {.world = comm, .axes = *axes, .strategy = TT_FULL_SHARD};
    tt_status status = TT_OK;
    TT_GO(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1}, &device));
    TT_GO(tt_mesh_init(&config, device, &mesh));
    const struct tt_mesh_axis *expert = &mesh.axes[TT_AXIS_EXPERT], *pair = &mesh.axes[AXIS_TEST],
                              *data = &mesh.axes[TT_AXIS_DATA];
    TEST_RANK_CHECK(expert->size == 2 && expert->rank == rank % 2);
    TEST_RANK_CHECK(pair->size == 2 && pair->rank == rank / 2 % 2);
    TEST_RANK_CHECK(data->size == 4 && data->rank == rank % 2 + rank / 4 * 2);
    TEST_RANK_CHECK(mesh.part_count == 4 && mesh.copies == 1 && mesh.first_copy == (rank / 2 % 2 == 0));
out:
    tt_mesh_deinit(&mesh);
    tt_device_close(device);
    return status;
}

static void the_groups_of_two_axes(void **state)
{
    (void)state;
    test_ranks(8, check_groups, &(struct tt_axes){both, 2});
}

static void ranks_that_no_group_divides(void **state)
{
    (void)state;
    struct tt_error errors[3];
    struct outcome outcome = {.setup = {.world = 3, .axes = {experts, 1}}};
    test_ranks_outcomes(3, train, &outcome, errors);
    for (int q = 0; q < 3; q++) {
        assert_int_equal(errors[q].status, TT_ERR_USAGE);
        assert_string_equal(errors[q].message,
                            "3 ranks cannot be divided into groups of 2 along the axis 'expert'");
    }
    outcome.setup = (struct setup){.world = 2, .axes = {both, 2}};
    test_ranks_outcomes(2, train, &outcome, errors);
    for (int q = 0; q < 2; q++)
        assert_string_equal(
            errors[q].message,
            "2 ranks cannot be divided into groups of 2 along the axis 'added' and those before it");
}

static tt_status split_unequally(struct tt_comm *comm, void *argument)
{
    int rank = tt_comm_rank(comm);
    struct tt_device *device = NULL;
    struct tt_mesh mesh = {0};
    const struct tt_mesh_config config = {.world = comm,
                                          .machine = rank / 3,
                                          .local_rank = rank % 3,
                                          .axes = {pairs, 1},
                                          .strategy = TT_HYBRID_SHARD};
    (void)argument;
    TT_TRY(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1}, &device));
    tt_status status = tt_mesh_init(&config, device, &mesh);
    tt_mesh_deinit(&mesh);
    tt_device_close(device);
    return status;
}

/* Two machines of three ranks, two of which share their samples: slices would have copies of other sizes. */
static void machines_that_an_axis_divides_unequally(void **state)
{
    (void)state;
    struct tt_error errors[6];
    test_ranks_outcomes(6, split_unequally, NULL, errors);
    for (int q = 0; q < 6; q++)
        assert_true(errors[q].status == TT_ERR_USAGE || errors[q].status == TT_ERR_PEER);
    assert_non_null(strstr(errors[0].message, "HYBRID_SHARD: 3 ranks take different samples"));
}

/* A plan has the communicators of all axes, whose sizes it counts with. */
static void a_plan_divides_its_ranks(void **state)
{
    (void)state;
    const struct tt_batch_limits limits = {.tokens = 96, .sequences = 4, .rows = 96, .length = LENGTH},
                                 none = {0};
    struct tt_model_facts *facts = tt_calloc(1, sizeof *facts);
    size_t bytes[2];
    assert_true(facts != NULL && test_facts(shape, facts) == TT_OK);
    for (int i = 0; i < 2; i++) {
        struct tt_plan plan;
        const struct tt_rank_config config = {
            .device = {.kind = "cpu", .threads = 1},
            .axes = {pairs, i},
            .strategy = TT_FULL_SHARD,
            .model_facts = facts,
            .model_options = {.random_init = true, .train_base = true, .compute_dtype = TT_F32},
            .limits = limits,
            .train = true,
            .reduce_dtype = TT_F32};
        if (tt_plan_make(&config, (struct tt_plan_ranks){i == 0 ? 2 : 4, 1}, 1, &limits, &none, &plan) !=
            TT_OK)
            fail_msg("%s", tt_error_last()->message);
        bytes[i] = plan.memory.total_peak;
    }
    assert_true(bytes[0] > 0 && bytes[0] == bytes[1]);
    tt_free(facts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_share_samples), cmocka_unit_test(rows_that_travel_in_every_pass),
        cmocka_unit_test(a_rank_that_fails_inside), cmocka_unit_test(the_groups_of_two_axes),
        cmocka_unit_test(rows_of_a_rank_alone),     cmocka_unit_test(ranks_that_no_group_divides),
        cmocka_unit_test(a_plan_divides_its_ranks), cmocka_unit_test(machines_that_an_axis_divides_unequally),
    };
    return cmocka_run_group_tests(tests, find_inner, NULL);
}
