#include "engine/executor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "base/thread.h"
#include "engine/axis_exchange.h"
#include "engine/executor_offload.h"
#include "engine/lead.h"
#include "engine/places.h"

/* One block's place in the pass. */
struct slot {
    tt_tensor x_TD; /* its input */
    void *saved;    /* host record of the tensors that its forward kept */
    size_t mark;    /* workspace before its output and the kept tensors */
    enum tt_level level;
    bool kept; /* its forward kept the inputs of backward (no recompute) */
    char forward_mark[96], backward_mark[96];
};

struct tt_executor {
    struct tt_executor_config config;
    struct slot *slots;
    char *saved_block; /* memory of all `saved` records */
    struct tt_offload *offload;
    struct tt_lead lead;
    struct tt_stream *stream; /* of the last pass: its marks point into `slots` */
    struct tt_places places;  /* of outputs and gradients */
    size_t begin_mark;
    bool open;                   /* between forward and end */
    bool head_held;              /* the head's unit is still gathered, for the backward pass */
    struct tt_unit *next_unit;   /* its gather waits until the running block reaches its attention */
    struct tt_exchange exchange; /* lent to the blocks */
    struct tt_axis_exchange axes;
    struct tt_side_value *sides;        /* [model->side_count]: of the pass, lent to the blocks */
    struct tt_phases *phases;           /* lent; NULL: no times */
    const struct tt_block_watch *watch; /* lent; NULL: none */
    struct tt_unit *split;              /* the running block's unit while it lends parts; NULL: it is whole */
};

enum { SAVED_ALIGNMENT = 64 };

static size_t saved_stride(const struct tt_block *block)
{
    return tt_align_up(block->ops->saved_bytes, SAVED_ALIGNMENT);
}

static struct tt_unit *unit_of(const struct tt_executor *executor, int block)
{
    return executor->config.units[executor->config.model->unit_of_block[block]];
}

/* The unit of `block`, to be gathered for a pass: backward reads a block's forward parameters only to recompute it. */
static struct tt_unit *unit_for(const struct tt_executor *executor, int block, bool backward)
{
    struct tt_unit *unit = unit_of(executor, block);
    bool forward = !backward || !executor->slots[block].kept;
    tt_unit_set_uses(unit, 1u << TT_USE_ALWAYS | (forward ? 1u << TT_USE_FORWARD : 0) |
                               (backward ? 1u << TT_USE_BACKWARD : 0));
    return unit;
}

static tt_status gather_next(struct tt_executor *executor, bool behind)
{
    struct tt_unit *unit = executor->next_unit;
    executor->next_unit = NULL;
    if (unit == NULL) return TT_OK;
    return behind ? tt_unit_gather_behind(unit) : tt_unit_gather(unit);
}

static tt_status gather_in_quiet(void *context)
{
    return gather_next(context, true);
}

static tt_status take_part(void *context, int part, int next)
{
    struct tt_executor *executor = context;
    return tt_unit_take_part(executor->split, part, next);
}

static tt_status sum(void *context, enum tt_axis axis, tt_tensor values)
{
    const struct tt_executor *executor = context;
    return tt_axis_sum(&executor->axes, executor->stream, axis, values);
}

static tt_status gather(void *context, enum tt_axis axis, tt_tensor values, tt_tensor all)
{
    const struct tt_executor *executor = context;
    return tt_axis_gather(&executor->axes, executor->stream, axis, values, all);
}

static tt_status all_to_all(void *context, enum tt_axis axis, const struct tt_all_to_all *rows)
{
    const struct tt_executor *executor = context;
    return tt_axis_all_to_all(&executor->axes, executor->stream, axis, rows);
}

/* Whether a rank without tokens or images runs the block too, because the others wait for it. */
static bool runs_empty(const struct tt_executor *executor, const struct tt_pass *pass, int index)
{
    enum tt_block_exchange exchange = tt_block_exchange_of(&executor->config.model->blocks[index]);
    return (pass->in.training && exchange == TT_EXCHANGE_STATISTICS) || exchange == TT_EXCHANGE_ACTIVATIONS ||
           executor->split != NULL;
}

/* Called before a block runs: it may ask for the parts of its unit, if the matrix is its own. */
static void lend_parts(struct tt_executor *executor, int index)
{
    const struct tt_block *block = &executor->config.model->blocks[index];
    struct tt_unit *unit = unit_of(executor, index);
    const tt_param *matrix = tt_unit_matrix(unit);
    if (matrix == NULL || block->ops->split == NULL || block->ops->split(block) != matrix) return;
    executor->exchange.part_count = tt_unit_part_count(unit);
    executor->exchange.part_rows = tt_unit_part_rows(unit);
    executor->split = unit;
}

/* Called after it ran. */
static tt_status drop_parts(struct tt_executor *executor)
{
    struct tt_unit *unit = executor->split;
    executor->split = NULL;
    executor->exchange.part_count = 0;
    return unit != NULL ? tt_unit_drop_part(unit) : TT_OK;
}

/* Levels apply to blocks that run backward, which ends at the lowest trainable block. */
static tt_status create_slots(struct tt_executor *executor)
{
    const struct tt_executor_config *config = &executor->config;
    const struct tt_model *model = config->model;
    tt_status status = TT_OK;
    enum tt_level *levels = tt_calloc((size_t)model->block_count, sizeof *levels);
    if (levels == NULL) return TT_ERR_MEMORY;
    char *next = executor->saved_block;
    for (int i = 0; i < model->block_count; i++) {
        struct slot *slot = &executor->slots[i];
        bool chooses = config->levels != NULL && i >= executor->places.first_trainable;
        slot->level = levels[i] =
            chooses ? tt_block_level(&model->blocks[i], config->levels[i]) : TT_KEEP_CHEAP;
        slot->saved = next;
        next += saved_stride(&model->blocks[i]);
        snprintf(slot->forward_mark, sizeof slot->forward_mark, "forward of %s", model->blocks[i].name);
        snprintf(slot->backward_mark, sizeof slot->backward_mark, "backward of %s", model->blocks[i].name);
    }
    status = tt_offload_create(config->device, model, levels, config->tokens_max, &executor->offload);
    tt_free(levels);
    return status;
}

tt_status tt_executor_create(const struct tt_executor_config *config, struct tt_executor **out)
{
    tt_status status = TT_OK;
    const struct tt_model *model = config->model;
    struct tt_executor *executor = tt_calloc(1, sizeof *executor);
    if (executor == NULL) return TT_ERR_MEMORY;
    executor->config = *config;
    executor->places = (struct tt_places){
        .model = model, .workspace = config->workspace, .first_trainable = model->block_count};
    size_t bytes = 0;
    for (int i = model->block_count - 1; i >= 0; i--) {
        bytes += saved_stride(&model->blocks[i]);
        if (model->blocks[i].trains) executor->places.first_trainable = i;
    }
    executor->slots = tt_calloc((size_t)model->block_count, sizeof *executor->slots);
    executor->saved_block = tt_calloc(1, bytes + 1);
    executor->sides = tt_calloc(model->side_count + 1, sizeof *executor->sides);
    if (executor->slots == NULL || executor->saved_block == NULL || executor->sides == NULL)
        TT_GO(TT_ERR_MEMORY);
    TT_GO(create_slots(executor));
    TT_GO(tt_lead_init(config->device, &executor->lead));
    executor->config.levels = NULL; /* lent for this call only */
    TT_GO(tt_axis_exchange_init(config->mesh, &executor->axes));
    executor->exchange = (struct tt_exchange){.quiet = gather_in_quiet,
                                              .take_part = take_part,
                                              .sum = sum,
                                              .gather = gather,
                                              .all_to_all = all_to_all,
                                              .batch_rows = config->rows_max,
                                              .batch_tokens = config->tokens_max,
                                              .context = executor};
    tt_axis_exchange_groups(config->mesh, executor->exchange.groups);
    *out = executor;
out:
    if (status != TT_OK) tt_executor_destroy(executor);
    return status;
}

void tt_executor_destroy(struct tt_executor *executor)
{
    if (executor == NULL) return;
    if (executor->stream != NULL) tt_stream_mark(executor->stream, "the end of the run");
    tt_offload_destroy(executor->offload);
    tt_lead_deinit(&executor->lead);
    tt_axis_exchange_deinit(&executor->axes);
    tt_free(executor->slots);
    tt_free(executor->saved_block);
    tt_free(executor->sides);
    tt_free(executor);
}

static tt_status check_cancel(const struct tt_executor *executor)
{
    const struct tt_cancel *cancel = executor->config.cancel;
    if (cancel != NULL && atomic_load_explicit(&cancel->requests, memory_order_relaxed) > 1)
        return tt_fail(TT_ERR_CANCELLED, "stopped at once on request");
    return TT_OK;
}

/* Where ranks copy each other's shards. */
static bool limits_lead(const struct tt_executor *executor)
{
    return executor->config.limits_lead && tt_shard_context_pulls(executor->config.shard);
}

/* Called before a block is queued. */
static tt_status next_block(struct tt_executor *executor, struct tt_stream *compute, const char *mark)
{
    tt_pulse_beat(executor->config.pulse, mark);
    TT_TRY(check_cancel(executor));
    if (!limits_lead(executor)) return TT_OK;
    TT_TRY(tt_lead_next(&executor->lead, compute));
    return check_cancel(executor);
}

/* Memory for the output of `block`. Inputs that a backward pass reads stay in the workspace or move to the host; all
 * others alternate between the two tensors of `pair`. */
static tt_status push_output(struct tt_executor *executor, const struct tt_pass *pass, int block,
                             tt_tensor pair[2], tt_tensor x_TD, tt_tensor *y_TD)
{
    bool wanted = pass->in.gradient && block + 1 >= executor->places.first_trainable;
    *y_TD = (tt_tensor){0};
    if (executor->config.model->blocks[block].ops->role == TT_ROLE_OUTPUT) return TT_OK;
    if (wanted) TT_TRY(tt_offload_take(executor->offload, pass, block + 1, y_TD));
    if (!tt_tensor_is_empty(*y_TD)) return TT_OK;
    tt_tensor *turn = &pair[block % 2];
    bool alike = executor->config.model->blocks[block].width > 0;
    if (!wanted && alike && !tt_tensor_is_empty(*turn)) {
        *y_TD = *turn;
        return TT_OK;
    }
    TT_TRY(tt_places_push_output(&executor->places, pass, block, x_TD, y_TD));
    if (!wanted) *turn = *y_TD;
    return TT_OK;
}

static void watch_begin(const struct tt_executor *executor)
{
    if (executor->watch != NULL) executor->watch->begin(executor->watch->context);
}

static void watch_end(const struct tt_executor *executor, int block, bool backward)
{
    if (executor->watch != NULL) executor->watch->end(executor->watch->context, block, backward);
}

static tt_status forward_block(struct tt_executor *executor, const struct tt_pass *pass, int index,
                               tt_tensor pair[2], tt_tensor *x_TD)
{
    struct tt_model *model = executor->config.model;
    struct tt_block *block = &model->blocks[index];
    struct slot *slot = &executor->slots[index];
    tt_status status = TT_OK;
    struct tt_pass block_pass = *pass;
    tt_tensor y_TD;
    tt_stream_mark(pass->lent.stream, slot->forward_mark);
    slot->mark = tt_workspace_mark(executor->config.workspace);
    slot->x_TD = *x_TD;
    watch_begin(executor);
    TT_GO(push_output(executor, pass, index, pair, slot->x_TD, &y_TD));
    block_pass.in.gradient = slot->kept;
    block_pass.in.level = slot->level;
    TT_GO(block->ops->forward(block, &block_pass, slot->x_TD, slot->kept ? slot->saved : NULL, y_TD));
    watch_end(executor, index, false);
    if (pass->in.gradient && index + 1 < model->block_count)
        TT_GO(tt_offload_put(executor->offload, pass, index + 1));
    *x_TD = y_TD;
out:
    if (status != TT_OK) tt_while("running %s forward", block->name);
    return status;
}

/* A rank without tokens takes the same parts as the others, and part in their exchanges. */
static tt_status forward_empty(struct tt_executor *executor, const struct tt_pass *pass, int index)
{
    struct tt_block *block = &executor->config.model->blocks[index];
    struct slot *slot = &executor->slots[index];
    struct tt_pass block_pass = *pass;
    tt_tensor none = {0};
    slot->mark = tt_workspace_mark(executor->config.workspace);
    if (!runs_empty(executor, pass, index)) return TT_OK;
    block_pass.in.gradient = slot->kept;
    block_pass.in.level = slot->level;
    tt_status status = block->ops->forward(block, &block_pass, none, slot->kept ? slot->saved : NULL, none);
    if (status != TT_OK) tt_while("running %s forward without tokens", block->name);
    return status;
}

/* The pass of a block that runs forward again. Backward reads the kept tensors at once: memory costs more than the
 * element-wise ops. */
static struct tt_pass pass_again(const struct tt_pass *pass)
{
    struct tt_pass again = *pass;
    again.in.level = TT_KEEP_CHEAP;
    again.in.again = true;
    return again;
}

static tt_status backward_empty(struct tt_executor *executor, const struct tt_pass *pass, int index)
{
    struct tt_block *block = &executor->config.model->blocks[index];
    struct slot *slot = &executor->slots[index];
    tt_tensor none = {0};
    tt_status status = TT_OK;
    if (!runs_empty(executor, pass, index)) return TT_OK;
    const struct tt_pass again = pass_again(pass);
    if (!slot->kept) tt_workspace_release(executor->config.workspace, slot->mark);
    if (!slot->kept) TT_GO(block->ops->forward(block, &again, none, slot->saved, none));
    TT_GO(block->ops->backward(block, pass, none, slot->saved, none, none));
    tt_workspace_release(executor->config.workspace, slot->mark);
out:
    if (status != TT_OK) tt_while("running %s backward without tokens", block->name);
    return status;
}

/* The forward of a gathered block, with the parts of its unit. */
static tt_status run_forward(struct tt_executor *executor, const struct tt_pass *pass, int index,
                             tt_tensor pair[2], tt_tensor *x_TD)
{
    struct slot *slot = &executor->slots[index];
    slot->kept =
        pass->in.gradient && index >= executor->places.first_trainable && slot->level < TT_RECOMPUTE_BLOCK;
    lend_parts(executor, index);
    if (!tt_device_batch_is_empty(pass->in.batch))
        TT_TRY(forward_block(executor, pass, index, pair, x_TD));
    else
        TT_TRY(forward_empty(executor, pass, index));
    return drop_parts(executor);
}

/* Gathers the unit of `block`, whose backward runs next. Without prefetch the transfer starts only now. */
static tt_status gather_for_backward(struct tt_executor *executor, int block)
{
    struct tt_unit *unit = unit_for(executor, block, true);
    bool now = executor->config.backward_prefetch == TT_PREFETCH_NONE;
    TT_TRY(now ? tt_unit_gather_behind(unit) : tt_unit_gather(unit));
    return tt_unit_wait(unit);
}

/* BACKWARD_POST, after backward of `block`: releases its values, so that those of the block before are gathered while
 * the gradients are reduced. */
static tt_status gather_post(struct tt_executor *executor, int block)
{
    struct tt_unit *unit = unit_of(executor, block), *next = unit_for(executor, block - 1, true);
    if (unit != next) TT_TRY(tt_unit_release_values(unit));
    return tt_unit_gather_behind(next);
}

/* Gathers the unit of `block`, which runs next: now, or when the running block reaches its attention. A copy that waits
 * on its stream holds up the copies of other GPUs behind it (docs/performance.md), so that with a limited lead nothing
 * is gathered before its turn: then the host is a block ahead, and the buffer is free. */
static tt_status prefetch(struct tt_executor *executor, const struct tt_pass *pass, int block, bool backward)
{
    int64_t tokens_min = executor->config.late_gather_tokens;
    /* ranks that share experts exchange rows inside blocks: all gather at the same place among these calls */
    bool shares = executor->exchange.groups[TT_AXIS_EXPERT].size > 1;
    bool late = !shares && tokens_min > 0 && pass->in.batch->token_count >= tokens_min;
    if (limits_lead(executor)) return TT_OK;
    executor->next_unit = unit_for(executor, block, backward);
    return late ? TT_OK : gather_next(executor, false);
}

static struct tt_pass lend(struct tt_executor *executor, const struct tt_pass *pass)
{
    struct tt_pass own = *pass;
    own.lent.exchange = &executor->exchange;
    own.lent.sides = executor->sides;
    return own;
}

/* Begins a pass: the memory that stays until its end. */
static tt_status begin(struct tt_executor *executor, const struct tt_pass *pass)
{
    const struct tt_model *model = executor->config.model;
    executor->begin_mark = tt_workspace_mark(executor->config.workspace);
    executor->open = true;
    executor->stream = pass->lent.stream;
    memset(executor->sides, 0, model->side_count * sizeof *executor->sides);
    if (tt_device_batch_is_empty(pass->in.batch)) return TT_OK;
    if (pass->in.gradient) TT_TRY(tt_places_push_gradients(&executor->places, pass));
    if (pass->in.gradient) TT_TRY(tt_offload_begin(executor->offload, pass));
    return tt_sides_push(model->sides, (int)model->side_count, pass, executor->sides);
}

void tt_executor_watch(struct tt_executor *executor, const struct tt_block_watch *watch)
{
    executor->watch = watch;
}

void tt_executor_time(struct tt_executor *executor, struct tt_phases *phases)
{
    executor->phases = phases;
}

tt_status tt_executor_forward(struct tt_executor *executor, const struct tt_pass *pass)
{
    struct tt_pass own = lend(executor, pass);
    const struct tt_executor_config *config = &executor->config;
    int count = config->model->block_count;
    tt_tensor x_TD = {0}, pair[2] = {{0}, {0}};
    TT_TRY(begin(executor, pass));
    for (int i = 0; i < count; i++) {
        TT_TRY(next_block(executor, pass->lent.stream, executor->slots[i].forward_mark));
        tt_phases_end(executor->phases, TT_PHASE_FORWARD);
        TT_TRY(tt_unit_gather(unit_for(executor, i, false)));
        TT_TRY(tt_unit_wait(unit_of(executor, i)));
        if (i + 1 < count && config->forward_prefetch) TT_TRY(prefetch(executor, pass, i + 1, false));
        tt_phases_end(executor->phases, TT_PHASE_GATHER);
        TT_TRY(run_forward(executor, &own, i, pair, &x_TD));
        TT_TRY(gather_next(executor, false)); /* a block without attention */
        if (i + 1 == count && pass->in.gradient) {
            executor->head_held = true; /* its backward runs next */
            break;
        }
        TT_TRY(tt_unit_release(unit_of(executor, i), pass->in.gradient));
    }
    tt_phases_end(executor->phases, TT_PHASE_FORWARD);
    return TT_OK;
}

/* Runs forward again. No block reads this block's output any more: its memory is reused, and no output is made, unless
 * the block's own backward may read it, as that of a tower. */
static tt_status recompute_block(struct tt_executor *executor, const struct tt_pass *pass, int index)
{
    struct tt_block *block = &executor->config.model->blocks[index];
    struct slot *slot = &executor->slots[index];
    const struct tt_pass block_pass = pass_again(pass);
    tt_tensor y_TD = {0};
    tt_workspace_release(executor->config.workspace, slot->mark);
    TT_TRY(tt_offload_get(executor->offload, pass, index));
    if (block->width == 0) {
        int64_t dims[2];
        tt_places_output_dims(&executor->places, pass, index, dims);
        TT_TRY(tt_workspace_2d(executor->config.workspace, "the output again", pass->in.compute_dtype,
                               dims[0], dims[1], &y_TD));
    }
    return block->ops->forward(block, &block_pass, slot->x_TD, slot->saved, y_TD);
}

static tt_status backward_block(struct tt_executor *executor, const struct tt_pass *pass, int index)
{
    struct tt_block *block = &executor->config.model->blocks[index];
    struct slot *slot = &executor->slots[index];
    tt_status status = TT_OK;
    tt_stream_mark(pass->lent.stream, slot->backward_mark);
    watch_begin(executor);
    if (!slot->kept) TT_GO(recompute_block(executor, pass, index));
    tt_tensor dy_TD = tt_places_gradient(&executor->places, pass, index + 1),
              dx_TD = tt_places_gradient(&executor->places, pass, index);
    TT_GO(block->ops->backward(block, pass, slot->x_TD, slot->saved, dy_TD, dx_TD));
    watch_end(executor, index, true);
    TT_GO(tt_offload_done(executor->offload, pass, index));
    tt_workspace_release(executor->config.workspace, slot->mark);
out:
    if (status != TT_OK) tt_while("running %s backward", block->name);
    return status;
}

tt_status tt_executor_backward(struct tt_executor *executor, const struct tt_pass *pass, bool last_micro)
{
    struct tt_pass own = lend(executor, pass);
    const struct tt_executor_config *config = &executor->config;
    int last = config->model->block_count - 1;
    bool compute = !tt_device_batch_is_empty(pass->in.batch);
    for (int i = last; i >= executor->places.first_trainable; i--) {
        struct tt_unit *unit = unit_of(executor, i);
        bool more = i > executor->places.first_trainable;
        TT_TRY(next_block(executor, pass->lent.stream, executor->slots[i].backward_mark));
        tt_phases_end(executor->phases, TT_PHASE_BACKWARD);
        if (!executor->head_held) TT_TRY(gather_for_backward(executor, i)); /* held: gathered by forward */
        executor->head_held = false;
        if (more && config->backward_prefetch == TT_PREFETCH_PRE)
            TT_TRY(prefetch(executor, pass, i - 1, true));
        tt_phases_end(executor->phases, TT_PHASE_GATHER);
        lend_parts(executor, i);
        TT_TRY(compute ? backward_block(executor, &own, i) : backward_empty(executor, &own, i));
        TT_TRY(drop_parts(executor));
        TT_TRY(gather_next(executor, false));
        tt_phases_end(executor->phases, TT_PHASE_BACKWARD);
        if (more && config->backward_prefetch == TT_PREFETCH_POST) TT_TRY(gather_post(executor, i));
        tt_phases_end(executor->phases, TT_PHASE_GATHER);
        TT_TRY(tt_unit_reduce(unit, last_micro));
        TT_TRY(tt_unit_release(unit, false));
        tt_phases_end(executor->phases, TT_PHASE_REDUCE);
    }
    return TT_OK;
}

void tt_executor_end(struct tt_executor *executor)
{
    tt_pulse_rest(executor->config.pulse);
    executor->phases = NULL;
    if (!executor->open) return;
    tt_workspace_release(executor->config.workspace, executor->begin_mark);
    executor->open = false;
    executor->head_held = false;
    executor->next_unit = NULL;
    executor->split = NULL;
}

static tt_status has_nonfinite(const struct tt_pass *pass, tt_tensor y_TD, bool *found)
{
    size_t bytes = tt_tensor_bytes(y_TD);
    int64_t count = tt_tensor_count(y_TD);
    float *values = tt_alloc_aligned((size_t)count * sizeof *values + bytes);
    if (values == NULL) return TT_ERR_MEMORY;
    char *host = (char *)(values + count); /* in the device's type */
    tt_status status = tt_copy_to_host(pass->lent.stream, host, y_TD.data, bytes);
    if (status == TT_OK) status = tt_stream_synchronize(pass->lent.stream);
    *found = false;
    if (status == TT_OK) {
        (void)tt_dtype_convert(values, TT_F32, host, y_TD.dtype, (size_t)count);
        for (int64_t i = 0; i < count && !*found; i++) *found = !isfinite(values[i]);
    }
    tt_free(values);
    return status;
}

tt_status tt_executor_find_nonfinite(struct tt_executor *executor, const struct tt_pass *pass, char *where,
                                     size_t where_bytes)
{
    const struct tt_executor_config *config = &executor->config;
    bool found = false;
    tt_tensor x_TD = {0}, pair[2] = {{0}, {0}};
    tt_status status = TT_OK;
    struct tt_pass own = lend(executor, pass);
    own.in.gradient = false;
    snprintf(where, where_bytes, "the loss");
    TT_GO(begin(executor, &own));
    for (int i = 0; i < config->model->block_count; i++) {
        TT_GO(tt_unit_gather(unit_for(executor, i, false)));
        TT_GO(tt_unit_wait(unit_of(executor, i)));
        TT_GO(run_forward(executor, &own, i, pair, &x_TD));
        if (!found && !tt_tensor_is_empty(x_TD)) {
            TT_GO(has_nonfinite(pass, x_TD, &found));
            if (found) snprintf(where, where_bytes, "the output of %s", config->model->blocks[i].name);
        }
        TT_GO(tt_unit_release(unit_of(executor, i), false));
    }
out:
    tt_executor_end(executor);
    return status;
}
