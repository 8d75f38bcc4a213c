/* The plan of a model with a block that exchanges along an axis in every pass: the bytes that it counts are those of a
 * run, for each purpose and of the workspace, on 1, 2 and 4 ranks, over the data axis and over one that divides it, at
 * every level, also with gathers. The block of the last layer adds to each of its rows a share of the sum of all rows
 * of the axis; every rank has rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "backend/ops/gemm.h"
#include "backend/ops/elementwise.h"
#include "base/alloc.h"
#include "checkpoint/load.h"
#include "engine/feed_rows.h"
#include "engine/plan.h"
#include "engine/step.h"
#include "model/builder_impl.h"
#include "model/family.h"
#include "model/llama.h"
#include "support/model_facts.h"
#include "support/ranks.h"

enum { STEP_SAMPLES = 4, LENGTH = 24, VOCAB = 40, BLOCK = 3 };

static const char shape[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 40, \"hidden_size\": 16, \"intermediate_size\": 24, "
    "\"num_hidden_layers\": 3, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
    "\"max_position_embeddings\": 256, \"rms_norm_eps\": 1e-5}";

/* ---- The block ---- */

static enum tt_axis over; /* set while no rank runs */

/* rows += 1 / 64 of the sum of all rows of the axis. */
static tt_status add_shares(const struct tt_pass *pass, tt_tensor rows_TD)
{
    const struct tt_exchange *other = pass->lent.exchange;
    struct tt_workspace *workspace = pass->lent.workspace;
    size_t mark = tt_workspace_mark(workspace);
    tt_tensor sum_D;
    TT_TRY(tt_workspace_1d(workspace, "sum of an axis", TT_F32, rows_TD.dims[1], &sum_D));
    TT_TRY(tt_fill_zero(pass->lent.stream, sum_D.data, tt_tensor_bytes(sum_D)));
    const struct tt_bias_backward_args add = {.dy_TN = rows_TD, .dbias_N = sum_D};
    TT_TRY(tt_bias_backward(pass->lent.stream, &add));
    TT_TRY(other->sum(other->context, over, sum_D));
    TT_TRY(tt_scale(pass->lent.stream, &(struct tt_scale_args){.x = sum_D, .factor = 1.0f / 64}));
    const struct tt_bias_forward_args share = {.bias_N = sum_D, .y_TN = rows_TD};
    TT_TRY(tt_bias_forward(pass->lent.stream, &share));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

static tt_status forward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD, void *saved,
                         tt_tensor y_TD)
{
    TT_TRY(tt_layer_ops.forward(block, pass, x_TD, saved, y_TD));
    return tt_tensor_is_empty(y_TD) ? TT_OK : add_shares(pass, y_TD);
}

static tt_status backward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD,
                          const void *saved, tt_tensor dy_TD, tt_tensor dx_TD)
{
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    tt_tensor all_TD;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "gradient of all", dy_TD.dtype, dy_TD.dims[0], dy_TD.dims[1],
                           &all_TD));
    TT_TRY(tt_cast(pass->lent.stream, &(struct tt_cast_args){.x = dy_TD, .y = all_TD}));
    TT_TRY(add_shares(pass, all_TD));
    TT_TRY(tt_layer_ops.backward(block, pass, x_TD, saved, all_TD, dx_TD));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static enum tt_block_exchange activations(const struct tt_block *block)
{
    (void)block;
    return TT_EXCHANGE_ACTIVATIONS;
}

static struct tt_block_ops exchanging;

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    tt_llama_build(facts, builder);
    if (!builder->listing && builder->status == TT_OK) builder->model->blocks[BLOCK].ops = &exchanging;
}

static struct tt_model_family family;

static int set_family(void **state)
{
    (void)state;
    exchanging = tt_layer_ops;
    exchanging.forward = forward;
    exchanging.backward = backward;
    exchanging.exchange = activations;
    family = tt_family_llama;
    family.build = build;
    return 0;
}

/* ---- Runs ---- */

struct planned {
    int world;
    struct tt_axes axes;
    enum tt_recompute recompute;
    bool plain; /* the model without the exchange */
    size_t limit;
    struct tt_plan plan; /* of rank 0 */
    double loss;
};

struct run {
    struct tt_model_facts facts;
    struct tt_dataset *dataset;
    struct tt_sampler *sampler;
    struct tt_objective objective;
    struct tt_rank rank;
    struct tt_plan plan;
};

static tt_status train_once(struct run *run, struct planned *planned)
{
    const struct tt_optim_config optim = {.optim = "adamw_torch",
                                          .learning_rate = 0.01,
                                          .lr_scheduler_type = "constant",
                                          .adam_beta1 = 0.9,
                                          .adam_beta2 = 0.999,
                                          .adam_epsilon = 1e-8};
    struct tt_gradient_watch watch;
    struct tt_feed feed;
    struct tt_train_step_result result;
    TT_TRY(tt_gradient_watch_init(run->rank.model, &watch));
    tt_status status = tt_feed_of_rows(run->sampler, run->rank.mesh.axes[TT_AXIS_DATA].rank, &feed);
    struct tt_train_step_config config = {.optim = &optim, .feed = &feed, .seed = 1, .length = {1, 1}};
    if (status == TT_OK) {
        status = tt_train_step(&run->rank, &config, 0, &watch, &result);
        tt_feed_deinit(&feed);
    }
    tt_gradient_watch_deinit(&watch);
    if (status == TT_OK && tt_comm_rank(run->rank.world) == 0) planned->loss = result.loss;
    return status;
}

static tt_status check_bytes(struct run *run)
{
    struct tt_memory_use use;
    const struct tt_plan *plan = &run->plan;
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

static tt_status run_planned(struct tt_comm *comm, struct planned *planned, struct run *run)
{
    int data_size = tt_axes_data_size(&planned->axes, planned->world);
    const struct tt_batch_limits none = {0};
    struct tt_batch_limits limits;
    const struct tt_sampler_config sampler = {
        .micro_batch_size = STEP_SAMPLES / data_size, .world_size = data_size, .accumulation = 1};
    TT_TRY(test_facts(shape, &run->facts));
    if (!planned->plain) run->facts.family = &family;
    TT_TRY(tt_dataset_create_random(STEP_SAMPLES, LENGTH, LENGTH, VOCAB, 3, &run->dataset));
    TT_TRY(tt_sampler_create(run->dataset, &sampler, &run->sampler));
    TT_TRY(tt_objective_init("sft", &run->objective));
    tt_sampler_limits(run->sampler, 0, 1, &limits);
    struct tt_rank_config config = {
        .device = {.kind = "cpu", .threads = 1, .memory_limit = planned->limit},
        .world = comm,
        .axes = planned->axes,
        .local_rank = tt_comm_rank(comm),
        .strategy = TT_FULL_SHARD,
        .model_facts = &run->facts,
        .model_options = {.compute_dtype = TT_F32, .random_init = true, .train_base = true},
        .objective = &run->objective,
        .limits = limits,
        .train = true,
        .recompute = planned->recompute,
        .backward_prefetch = TT_PREFETCH_PRE,
        .forward_prefetch = true,
        .reduce_dtype = TT_F32,
    };
    TT_TRY(tt_plan_make(&config, (struct tt_plan_ranks){planned->world, 1}, 1, &limits, &none, &run->plan));
    if (tt_comm_rank(comm) == 0) planned->plan = run->plan;
    config.levels = run->plan.levels;
    config.workspace_bytes = run->plan.workspace_bytes;
    TT_TRY(tt_rank_init(&config, &run->rank));
    TT_TRY(tt_rank_load(&run->rank, &(struct tt_load_source){.seed = 5}));
    TT_TRY(train_once(run, planned));
    return check_bytes(run);
}

static tt_status rank_main(struct tt_comm *comm, void *argument)
{
    struct run *run = tt_calloc(1, sizeof *run);
    if (run == NULL) return TT_ERR_MEMORY;
    tt_status status = run_planned(comm, argument, run);
    tt_rank_deinit(&run->rank);
    tt_sampler_destroy(run->sampler);
    tt_dataset_destroy(run->dataset);
    tt_free(run);
    return status;
}

static struct planned plan_of(struct planned planned)
{
    test_ranks(planned.world, rank_main, &planned);
    assert_true(planned.loss > 0);
    return planned;
}

static void check_levels(struct planned planned)
{
    planned.recompute = TT_RECOMPUTE_NONE;
    struct planned most = plan_of(planned);
    planned.recompute = TT_RECOMPUTE_EVERY_BLOCK;
    struct planned least = plan_of(planned);
    size_t high = most.plan.memory.total_peak, low = least.plan.memory.total_peak;
    assert_true(high > low && most.loss == least.loss);
    planned.recompute = TT_RECOMPUTE_EVERY_OFFLOAD;
    (void)plan_of(planned);
    planned.recompute = TT_RECOMPUTE_AUTO;
    for (size_t part = 1; part < 4; part++) {
        planned.limit = low + (high - low) * part / 4;
        struct planned between = plan_of(planned);
        assert_true(between.plan.fits && between.plan.memory.total_peak <= planned.limit);
    }
}

static void bytes_are_those_of_a_run(void **state)
{
    static const struct tt_axis_spec experts[] = {{TT_AXIS_EXPERT, 2, false}};
    (void)state;
    for (int world = 1; world <= 4; world *= 2) {
        over = TT_AXIS_DATA;
        check_levels((struct planned){.world = world});
        over = TT_AXIS_EXPERT;
        if (world > 1) check_levels((struct planned){.world = world, .axes = {experts, 1}});
    }
}

/* The exchange is in the run: it changes the loss, and needs memory that the plan has counted. */
static void the_block_exchanges(void **state)
{
    (void)state;
    over = TT_AXIS_DATA;
    struct planned with = plan_of((struct planned){.world = 2, .recompute = TT_RECOMPUTE_NONE}),
                   without =
                       plan_of((struct planned){.world = 2, .recompute = TT_RECOMPUTE_NONE, .plain = true});
    assert_true(with.loss != without.loss);
    assert_true(with.plan.workspace_bytes > without.plan.workspace_bytes);
    assert_true(with.plan.step_seconds > without.plan.step_seconds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_a_run),
        cmocka_unit_test(the_block_exchanges),
    };
    return cmocka_run_group_tests(tests, set_family, NULL);
}
