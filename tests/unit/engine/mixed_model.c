/* A model whose layers differ (support/mixed_model.h) under the engine, also with a layer that reads a column of the
 * data: its gradients agree with finite differences on 1, 2 and 4 ranks, which have the same loss, also where ranks
 * have no tokens, and are the same bits at every level and where levels mix; its plan is exact to the byte. With
 * TT_TEST_DEVICE=cuda on a GPU, which is one rank. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "comm/host_values.h"
#include "engine/feed_rows.h"
#include "engine/plan.h"
#include "engine/rank_pass.h"
#include "engine/step.h"
#include "support/gradient_check.h"
#include "support/mixed_model.h"
#include "support/ranks.h"

enum { BLOCKS = MIXED_LAYERS + 2, LENGTH = 9, STEP_SAMPLES = 4, VALUES_MAX = 1 << 14, PIECE_MAX = 1 << 11 };

typedef enum tt_level levels_of[BLOCKS];

struct setup {
    int world;
    size_t samples;   /* of the step: below STEP_SAMPLES some ranks have none */
    bool lora, reads; /* it trains with LoRA; the last layer reads a column of the data */
    bool lacks;       /* which the data has not */
    const enum tt_level *levels;
};

struct outcome {
    struct setup setup;
    float gradients[VALUES_MAX]; /* of all parameters, in order of the model */
    double loss;
    bool differences; /* the gradients are checked */
};

struct run {
    struct tt_model_facts facts;
    struct tt_dataset *dataset;
    struct tt_sampler *sampler;
    struct tt_objective objective;
    struct tt_batch_limits limits;
    struct tt_rank rank;
    struct tt_batch_storage storage;
    struct tt_step_facts step;
};

static const char *device_kind(void)
{
    const char *kind = getenv("TT_TEST_DEVICE");
    return kind != NULL ? kind : "cpu";
}

static int most_ranks(void)
{
    return strcmp(device_kind(), "cpu") == 0 ? 4 : 1;
}

static struct tt_rank_config config_of(struct tt_comm *comm, const struct setup *setup, struct run *run)
{
    struct tt_rank_config config = {
        .device = {.kind = device_kind(), .threads = 1},
        .world = comm,
        .local_rank = tt_comm_rank(comm),
        .strategy = TT_FULL_SHARD,
        .model_facts = &run->facts,
        .model_options = {.compute_dtype = TT_F32, .random_init = true, .train_base = !setup->lora},
        .objective = &run->objective,
        .limits = run->limits,
        .train = true,
        .levels = setup->levels,
        .backward_prefetch = TT_PREFETCH_PRE,
        .forward_prefetch = true,
        .reduce_dtype = TT_F32,
        .workspace_bytes = (size_t)8 << 20,
    };
    if (setup->lora)
        config.model_options.lora = (struct tt_lora_config){
            .enabled = true, .r = 3, .alpha = 5, .dropout = 0.2, .target_modules = "all-linear"};
    return config;
}

/* Values of tokens, whose order in the batches of any split shows. */
static tt_status add_column(const struct setup *setup, struct tt_dataset *dataset)
{
    float values[STEP_SAMPLES * LENGTH];
    for (size_t t = 0; t < setup->samples * LENGTH; t++) values[t] = (float)((t * 7 + 3) % 11) / 11 - 0.4f;
    return tt_dataset_add_column(dataset, "weight", TT_PER_TOKEN, values);
}

static tt_status open_data(const struct setup *setup, struct run *run)
{
    const struct tt_sampler_config sampler = {
        .micro_batch_size = STEP_SAMPLES / setup->world, .world_size = setup->world, .accumulation = 1};
    *run = (struct run){.dataset = NULL};
    const struct mixed_size reading = {.vocab = 37, .dim = 16, .ffn = 24, .heads = 2, .column = "weight"};
    TT_TRY(mixed_facts(setup->reads ? &reading : NULL, &run->facts));
    TT_TRY(tt_dataset_create_random(setup->samples, LENGTH, LENGTH, run->facts.vocab_size, 3, &run->dataset));
    if (setup->reads && !setup->lacks) TT_TRY(add_column(setup, run->dataset));
    TT_TRY(tt_sampler_create(run->dataset, &sampler, &run->sampler));
    TT_TRY(tt_objective_init("sft", &run->objective));
    tt_sampler_limits(run->sampler, 0, 1, &run->limits);
    tt_sampler_step(run->sampler, 0, &run->step);
    return TT_OK;
}

static void close_run(struct run *run)
{
    tt_batch_storage_deinit(&run->storage);
    tt_rank_deinit(&run->rank);
    tt_sampler_destroy(run->sampler);
    tt_dataset_destroy(run->dataset);
}

static tt_status read_values(struct run *run, const void *from, float *values, int64_t count)
{
    TT_TRY(tt_copy_to_host(run->rank.stream, values, from, (size_t)count * sizeof *values));
    return tt_stream_synchronize(run->rank.stream);
}

static tt_status write_values(struct run *run, void *to, const float *values, int64_t count)
{
    TT_TRY(tt_copy_to_device(run->rank.stream, to, values, (size_t)count * sizeof *values));
    return tt_stream_synchronize(run->rank.stream);
}

/* Values by name and element, on whichever rank they are: no special ones. */
static tt_status fill(struct run *run)
{
    for (int u = 0; u < run->rank.model->unit_count; u++) {
        struct tt_unit *unit = run->rank.units[u];
        for (size_t i = 0; i < tt_unit_piece_count(unit); i++) {
            struct tt_piece piece = tt_unit_piece(unit, i);
            struct tt_rng rng = tt_rng_derive(tt_rng_make(5), piece.param->name);
            float mean = strstr(piece.param->name, "norm") != NULL ? 1 : 0, values[PIECE_MAX];
            TEST_RANK_CHECK(piece.dtype == TT_F32 && piece.count <= PIECE_MAX);
            for (int64_t e = 0; e < piece.count; e++)
                values[e] = mean + 0.3f * (float)tt_rng_normal(rng, (uint64_t)(piece.first + e));
            TT_TRY(write_values(run, piece.data, values, piece.count));
        }
        TT_TRY(tt_unit_frozen_changed(unit));
        TT_TRY(tt_unit_masters_changed(unit));
    }
    return tt_shard_context_share(run->rank.shard);
}

static tt_status upload(struct run *run, struct tt_pass *pass)
{
    struct tt_batch batch;
    TT_TRY(
        tt_sampler_batch(run->sampler, 0, 0, run->rank.mesh.axes[TT_AXIS_DATA].rank, &run->storage, &batch));
    TT_TRY(tt_rank_upload(&run->rank, &batch, pass));
    pass->in.training = true;
    pass->in.dropout_rng = tt_rng_make(7);
    pass->in.loss_scale = 1.0f / (float)run->step.supervised;
    return TT_OK;
}

static tt_status make_gradients(struct run *run)
{
    struct tt_pass pass;
    for (int u = 0; u < run->rank.model->unit_count; u++) TT_TRY(tt_unit_zero_grad(run->rank.units[u]));
    TT_TRY(upload(run, &pass));
    pass.in.gradient = true;
    tt_status status = tt_executor_forward(run->rank.executor, &pass);
    if (status == TT_OK) status = tt_executor_backward(run->rank.executor, &pass, true);
    tt_executor_end(run->rank.executor);
    TT_TRY(status);
    return tt_shard_context_join(run->rank.shard);
}

/* The loss of the step, over all ranks. */
static tt_status loss_of(struct run *run, struct tt_comm *comm, double *loss)
{
    struct tt_pass pass;
    *loss = 0;
    TT_TRY(upload(run, &pass));
    tt_status status = tt_executor_forward(run->rank.executor, &pass);
    float losses[STEP_SAMPLES * LENGTH];
    int64_t rows = run->rank.batch.row_count;
    if (status == TT_OK && rows > 0)
        status = read_values(run, tt_pass_result(&run->rank.results, TT_RESULT_LOSS, 0).data, losses, rows);
    for (int64_t n = 0; status == TT_OK && n < rows; n++) *loss += losses[n];
    tt_executor_end(run->rank.executor);
    TT_TRY(status);
    TT_TRY(tt_comm_host_sum(comm, loss, 1));
    *loss /= (double)run->step.supervised;
    return TT_OK;
}

/* Calls `visit` for each piece of the trainable parameters that this rank has; `param` NULL: of all. */
typedef tt_status piece_visit(struct run *run, void *context, const struct tt_piece *piece, float *grad);
static tt_status visit_pieces(struct run *run, const tt_param *param, piece_visit *visit, void *context)
{
    for (int u = 0; u < run->rank.model->unit_count; u++) {
        struct tt_slices slices = tt_unit_slices(run->rank.units[u]);
        for (size_t i = 0; i < tt_unit_piece_count(run->rank.units[u]); i++) {
            struct tt_piece piece = tt_unit_piece(run->rank.units[u], i);
            if ((param == NULL || piece.param == param) && piece.slice_offset >= 0 && piece.count > 0)
                TT_TRY(visit(run, context, &piece, slices.grad + piece.slice_offset));
        }
    }
    return TT_OK;
}

static double sign_of(int64_t element)
{
    return tt_rng_u64(tt_rng_make(99), (uint64_t)element) & 1 ? 1 : -1;
}

/* Sums of a parameter: its gradient along the signs, and squares. */
static tt_status add_sums(struct run *run, void *context, const struct tt_piece *piece, float *grad)
{
    double *sums = context;
    float values[PIECE_MAX];
    TT_TRY(read_values(run, grad, values, piece->count));
    for (int64_t e = 0; e < piece->count; e++) {
        sums[0] += values[e] * sign_of(piece->first + e);
        sums[1] += (double)values[e] * values[e];
    }
    return TT_OK;
}

struct move {
    float start[PIECE_MAX]; /* by element */
    double step;
    bool keeps; /* the values become the start */
};

static tt_status move_piece(struct run *run, void *context, const struct tt_piece *piece, float *grad)
{
    struct move *move = context;
    float values[PIECE_MAX];
    (void)grad;
    if (move->keeps) TT_TRY(read_values(run, piece->data, move->start + piece->first, piece->count));
    for (int64_t e = 0; e < piece->count; e++) {
        int64_t element = piece->first + e;
        values[e] = (float)(move->start[element] + move->step * sign_of(element));
    }
    return write_values(run, piece->data, values, piece->count);
}

static tt_status loss_at(struct run *run, struct tt_comm *comm, const tt_param *param, struct move *move,
                         double step, double *loss)
{
    move->step = step;
    TT_TRY(visit_pieces(run, param, move_piece, move));
    for (int u = 0; u < run->rank.model->unit_count; u++) TT_TRY(tt_unit_masters_changed(run->rank.units[u]));
    return loss_of(run, comm, loss);
}

/* The fourth-order central difference along random signs. */
static tt_status check_param(struct run *run, struct tt_comm *comm, const tt_param *param, struct move *move)
{
    double sums[2] = {0}, at[4], h = 4e-3 / sqrt(sqrt((double)tt_param_count(param)));
    const double steps[4] = {h, -h, 2 * h, -2 * h};
    TEST_RANK_CHECK(tt_param_count(param) <= PIECE_MAX);
    TT_TRY(visit_pieces(run, param, add_sums, sums));
    TT_TRY(tt_comm_host_sum(comm, sums, 2));
    move->keeps = true;
    for (int i = 0; i < 4; i++) {
        TT_TRY(loss_at(run, comm, param, move, steps[i], &at[i]));
        move->keeps = false;
    }
    move->step = 0;
    TT_TRY(visit_pieces(run, param, move_piece, move));
    double error = fabs((8 * (at[0] - at[1]) - (at[2] - at[3])) / (12 * h) - sums[0]), norm = sqrt(sums[1]);
    if (norm > 1e-6 && error <= 0.01 * norm + 2e-4) return TT_OK;
    return tt_fail(TT_ERR_INTERNAL,
                   "%s: the loss changes by %g more or less than the gradient (norm %g) says", param->name,
                   error, norm);
}

static tt_status check_differences(struct run *run, struct tt_comm *comm)
{
    struct move *move = tt_calloc(1, sizeof *move);
    tt_status status = move != NULL ? TT_OK : TT_ERR_MEMORY;
    for (size_t i = 0; i < run->rank.model->param_count && status == TT_OK; i++)
        if (run->rank.model->params[i]->trainable)
            status = check_param(run, comm, run->rank.model->params[i], move);
    tt_free(move);
    return status;
}

struct keep {
    const struct tt_model *model;
    float *gradients;
};

static tt_status keep_piece(struct run *run, void *context, const struct tt_piece *piece, float *grad)
{
    const struct keep *keep = context;
    int64_t at = 0;
    for (size_t i = 0; keep->model->params[i] != piece->param; i++)
        at += tt_param_count(keep->model->params[i]);
    return read_values(run, grad, keep->gradients + at + piece->first, piece->count);
}

static tt_status run_rank(struct tt_comm *comm, struct outcome *outcome, struct run *run)
{
    TT_TRY(open_data(&outcome->setup, run));
    struct tt_rank_config config = config_of(comm, &outcome->setup, run);
    TT_TRY(tt_rank_init(&config, &run->rank));
    TT_TRY(fill(run));
    TT_TRY(make_gradients(run));
    TT_TRY(make_gradients(run)); /* over the memory of another pass */
    struct keep keep = {run->rank.model, outcome->gradients};
    TT_TRY(visit_pieces(run, NULL, keep_piece, &keep));
    double loss;
    TT_TRY(loss_of(run, comm, &loss));
    if (tt_comm_rank(comm) == 0) outcome->loss = loss;
    return outcome->differences ? check_differences(run, comm) : TT_OK;
}

static tt_status rank_main(struct tt_comm *comm, void *argument)
{
    struct run *run = tt_calloc(1, sizeof *run);
    if (run == NULL) return TT_ERR_MEMORY;
    tt_status status = run_rank(comm, argument, run);
    close_run(run);
    tt_free(run);
    return status;
}

static const levels_of levels[] = {
    {TT_KEEP_CHEAP, TT_KEEP_ALL, TT_KEEP_ALL, TT_KEEP_ALL, TT_KEEP_ALL, TT_KEEP_CHEAP},
    {TT_KEEP_CHEAP, TT_KEEP_CHEAP, TT_KEEP_CHEAP, TT_KEEP_CHEAP, TT_KEEP_CHEAP, TT_KEEP_CHEAP},
    {TT_KEEP_CHEAP, TT_RECOMPUTE_BLOCK, TT_RECOMPUTE_BLOCK, TT_RECOMPUTE_BLOCK, TT_RECOMPUTE_BLOCK,
     TT_KEEP_CHEAP},
    {TT_KEEP_CHEAP, TT_RECOMPUTE_OFFLOAD, TT_RECOMPUTE_OFFLOAD, TT_RECOMPUTE_OFFLOAD, TT_RECOMPUTE_OFFLOAD,
     TT_KEEP_CHEAP},
    {TT_KEEP_CHEAP, TT_KEEP_ALL, TT_RECOMPUTE_BLOCK, TT_KEEP_CHEAP, TT_RECOMPUTE_OFFLOAD, TT_KEEP_CHEAP},
    {TT_KEEP_CHEAP, TT_RECOMPUTE_OFFLOAD, TT_KEEP_CHEAP, TT_RECOMPUTE_OFFLOAD, TT_RECOMPUTE_BLOCK,
     TT_KEEP_CHEAP},
};
enum { WAYS = sizeof levels / sizeof levels[0] };

/* Differences at every level; then the gradients of all levels are the same bits. */
static void check_setup(struct setup setup, struct outcome *first)
{
    static struct outcome other;
    for (int way = 0; way < WAYS; way++) {
        struct outcome *outcome = way == 0 ? first : &other;
        memset(outcome, 0, sizeof *outcome);
        setup.levels = levels[way];
        outcome->setup = setup;
        outcome->differences = true;
        test_ranks(setup.world, rank_main, outcome);
        if (way > 0) assert_memory_equal(other.gradients, first->gradients, sizeof first->gradients);
    }
}

/* The same loss and gradients on any number of ranks. */
static void check_like(const struct outcome *outcome, const struct outcome *alone)
{
    double apart = 0, norm = 0;
    for (int i = 0; i < VALUES_MAX; i++) {
        double difference = (double)outcome->gradients[i] - alone->gradients[i];
        apart += difference * difference;
        norm += (double)alone->gradients[i] * alone->gradients[i];
    }
    assert_true(fabs(outcome->loss - alone->loss) <= 1e-6 * alone->loss);
    assert_true(norm > 1e-4 && sqrt(apart) <= 1e-5 * sqrt(norm));
}

static void gradients_of_every_split(void **state)
{
    static struct outcome alone[4], outcome;
    (void)state;
    for (int world = 1; world <= most_ranks(); world *= 2)
        for (int i = 0; i < 4; i++) {
            const struct setup setup = {
                .world = world, .samples = STEP_SAMPLES, .lora = i % 2 == 1, .reads = i >= 2};
            check_setup(setup, world == 1 ? &alone[i] : &outcome);
            if (world > 1) check_like(&outcome, &alone[i]);
            if (world == 1 && i >= 2) assert_true(fabs(alone[i].loss - alone[i - 2].loss) > 1e-4);
        }
}

/* Three of four ranks have no tokens. */
static void ranks_without_tokens(void **state)
{
    (void)state;
    static struct outcome outcome;
    if (most_ranks() == 1) skip();
    check_setup((struct setup){.world = 4, .samples = 1}, &outcome);
    check_setup((struct setup){.world = 4, .samples = 1, .reads = true}, &outcome);
    check_setup((struct setup){.world = 2, .samples = 1, .lora = true}, &outcome);
}

/* ---- Columns that cannot be read ---- */

static const struct tt_objective_column by_rows[] = {{"weight", TT_PER_ROW, true}, {.name = NULL}};

static tt_status try_column(struct tt_comm *comm, const struct setup *setup, struct run *run)
{
    struct tt_pass pass;
    TT_TRY(open_data(setup, run));
    struct tt_rank_config config = config_of(comm, setup, run);
    struct tt_objective_ops ops = *run->objective.ops;
    ops.columns = by_rows;
    if (!setup->lacks) run->objective.ops = &ops;
    TT_TRY(tt_rank_init(&config, &run->rank));
    return upload(run, &pass);
}

static tt_status column_main(struct tt_comm *comm, void *argument)
{
    struct run *run = tt_calloc(1, sizeof *run);
    if (run == NULL) return TT_ERR_MEMORY;
    tt_status status = try_column(comm, argument, run);
    close_run(run);
    tt_free(run);
    return status;
}

static void columns_that_cannot_be_read(void **state)
{
    struct setup setup = {.world = 1, .samples = STEP_SAMPLES, .reads = true, .lacks = true};
    struct tt_error error;
    (void)state;
    test_ranks_outcomes(1, column_main, &setup, &error);
    assert_int_equal(error.status, TT_ERR_DATA);
    assert_string_equal(error.message, "block 'model.layers.3' reads the column 'weight', one value a token, "
                                       "and the data has none");
    setup.lacks = false; /* an objective reads it too, and otherwise */
    test_ranks_outcomes(1, column_main, &setup, &error);
    assert_int_equal(error.status, TT_ERR_INTERNAL);
    assert_string_equal(error.message, "the column 'weight' is read as one value a row, and by "
                                       "model.layers.3 as one a token");
}

/* ---- The plan ---- */

struct planned {
    struct setup setup;
    enum tt_recompute recompute;
    size_t limit;
    struct tt_plan plan; /* of rank 0 */
};

static tt_status train_once(struct run *run)
{
    struct tt_gradient_watch watch;
    struct tt_feed feed;
    struct tt_train_step_result result;
    const struct tt_optim_config optim = {.optim = "adamw_torch",
                                          .learning_rate = 0.01,
                                          .lr_scheduler_type = "constant",
                                          .adam_beta1 = 0.9,
                                          .adam_beta2 = 0.999,
                                          .adam_epsilon = 1e-8};
    TT_TRY(tt_gradient_watch_init(run->rank.model, &watch));
    tt_status status = tt_feed_of_rows(run->sampler, run->rank.mesh.axes[TT_AXIS_DATA].rank, &feed);
    struct tt_train_step_config config = {.optim = &optim, .feed = &feed, .seed = 1, .length = {1, 1}};
    if (status == TT_OK) {
        status = tt_train_step(&run->rank, &config, 0, &watch, &result);
        tt_feed_deinit(&feed);
    }
    tt_gradient_watch_deinit(&watch);
    return status;
}

static tt_status check_bytes(const struct tt_plan *plan, struct run *run)
{
    struct tt_memory_use use;
    tt_device_memory(run->rank.device, &use);
    TEST_RANK_CHECK(tt_workspace_peak(run->rank.workspace) == plan->workspace_bytes);
    for (int p = 0; p < TT_PURPOSE_COUNT; p++) {
        bool measured = p == TT_PURPOSE_SCRATCH || p == TT_PURPOSE_CONTEXT; /* of a driver, or by threads */
        if (measured || use.peak[p] == plan->memory.peak[p]) continue;
        return tt_fail(TT_ERR_INTERNAL, "%s: %zu bytes, planned %zu", tt_purpose_name((enum tt_purpose)p),
                       use.peak[p], plan->memory.peak[p]);
    }
    TEST_RANK_CHECK(use.host_total == plan->memory.host_total);
    return TT_OK;
}

static tt_status run_planned(struct tt_comm *comm, struct planned *planned, struct run *run,
                             struct tt_plan *plan)
{
    const struct tt_batch_limits none = {0};
    TT_TRY(open_data(&planned->setup, run));
    struct tt_rank_config config = config_of(comm, &planned->setup, run);
    config.recompute = planned->recompute;
    config.device.memory_limit = planned->limit;
    TT_TRY(
        tt_plan_make(&config, (struct tt_plan_ranks){planned->setup.world, 1}, 1, &run->limits, &none, plan));
    if (tt_comm_rank(comm) == 0) planned->plan = *plan;
    config.levels = plan->levels;
    config.workspace_bytes = plan->workspace_bytes;
    TT_TRY(tt_rank_init(&config, &run->rank));
    TT_TRY(fill(run));
    TT_TRY(train_once(run));
    return check_bytes(plan, run);
}

static tt_status planned_main(struct tt_comm *comm, void *argument)
{
    struct run *run = tt_calloc(1, sizeof *run);
    struct tt_plan *plan = tt_calloc(1, sizeof *plan);
    tt_status status = run != NULL && plan != NULL ? TT_OK : TT_ERR_MEMORY;
    if (status == TT_OK) status = run_planned(comm, argument, run, plan);
    if (run != NULL) close_run(run);
    tt_free(plan);
    tt_free(run);
    return status;
}

static struct planned plan_of(struct setup setup, enum tt_recompute recompute, size_t limit)
{
    struct planned planned = {.setup = setup, .recompute = recompute, .limit = limit};
    test_ranks(setup.world, planned_main, &planned);
    return planned;
}

static void plans_are_exact(void **state)
{
    (void)state;
    for (int world = 1; world <= most_ranks(); world *= 2)
        for (int i = 0; i < 3; i++) {
            struct setup setup = {.world = world, .samples = STEP_SAMPLES, .lora = i == 1, .reads = i == 2};
            struct planned most = plan_of(setup, TT_RECOMPUTE_NONE, 0),
                           least = plan_of(setup, TT_RECOMPUTE_EVERY_BLOCK, 0);
            (void)plan_of(setup, TT_RECOMPUTE_CHEAP, 0);
            (void)plan_of(setup, TT_RECOMPUTE_EVERY_OFFLOAD, 0);
            size_t high = most.plan.memory.total_peak, low = least.plan.memory.total_peak;
            assert_true(high > low);
            int mixed = 0;
            for (size_t part = 1; part < 8; part++) {
                struct planned between = plan_of(setup, TT_RECOMPUTE_AUTO, low + (high - low) * part / 8);
                assert_true(between.plan.fits);
                for (int b = 2; b <= MIXED_LAYERS; b++)
                    mixed += between.plan.levels[b] != between.plan.levels[1];
            }
            assert_true(mixed > 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_every_split),
        cmocka_unit_test(ranks_without_tokens),
        cmocka_unit_test(columns_that_cannot_be_read),
        cmocka_unit_test(plans_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
