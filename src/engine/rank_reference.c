/* The reference of an objective is the model as it was before the training. Where a new adapter of LoRA and of rows of
 * tokens is all that trains, over the base as it was, it is the model with adapters off, which takes no memory.
 * Otherwise it is a copy of the values that train, sharded as they are: a pass of the reference runs with these in the
 * place of the trained ones. */
#include <string.h>

#include "base/alloc.h"
#include "engine/rank_impl.h"
#include "model/lora_init.h"
#include "objective/reference.h"

bool tt_rank_has_reference(const struct tt_rank *rank)
{
    return (rank->objective.ops->needs & TT_NEEDS_REFERENCE) != 0;
}

/* A parameter of an adapter whose values `adapters_off` does not remove; NULL: none. */
static const tt_param *find_outside_lora(const struct tt_rank *rank)
{
    for (size_t i = 0; i < rank->model->param_count; i++) {
        const tt_param *param = rank->model->params[i];
        bool removed = strstr(param->name, ".lora_") != NULL || param->rows_of != NULL;
        if ((param->trainable || param->adapter) && !removed) return param;
    }
    return NULL;
}

static tt_status keep_unit(struct tt_rank *rank, int u, size_t *largest)
{
    size_t bytes = (size_t)tt_unit_slices(rank->units[u]).count * sizeof(float);
    if (bytes > *largest) *largest = bytes;
    if (bytes == 0) return TT_OK;
    return tt_buffer_create(rank->device, bytes, TT_PURPOSE_ADAPTERS, &rank->reference.masters[u]);
}

tt_status tt_rank_reference_init(const struct tt_rank_config *config, struct tt_rank *rank)
{
    size_t largest = 0;
    if (!tt_rank_has_reference(rank)) return TT_OK;
    const tt_param *outside = find_outside_lora(rank);
    if (!config->train && outside != NULL) {
        tt_status status =
            tt_fail(TT_ERR_USAGE, "objective '%s' needs a reference, and '%s' trained without LoRA",
                    rank->objective.ops->name, outside->name);
        tt_hint("an evaluation has the model with adapters off as its reference: a training evaluates such "
                "adapters");
        return status;
    }
    bool changes = outside != NULL || config->continues || tt_lora_changes_base(&rank->model->options.lora);
    rank->reference.has_values = config->train && changes;
    if (!rank->reference.has_values || rank->objective.precomputed) return TT_OK;
    rank->reference.masters = tt_calloc((size_t)rank->model->unit_count, sizeof *rank->reference.masters);
    if (rank->reference.masters == NULL) return TT_ERR_MEMORY;
    for (int u = 0; u < rank->model->unit_count; u++) TT_TRY(keep_unit(rank, u, &largest));
    return largest == 0
               ? TT_OK
               : tt_buffer_create(rank->device, largest, TT_PURPOSE_ADAPTERS, &rank->reference.scratch);
}

void tt_rank_reference_deinit(struct tt_rank *rank)
{
    for (int u = 0; rank->reference.masters != NULL && u < rank->model->unit_count; u++)
        tt_buffer_destroy(rank->reference.masters[u]);
    tt_free(rank->reference.masters);
    tt_buffer_destroy(rank->reference.scratch);
    rank->reference = (struct tt_rank_reference){0};
}

bool tt_rank_copies_reference(const struct tt_rank *rank)
{
    return rank->reference.masters != NULL;
}

tt_status tt_rank_keep_reference(struct tt_rank *rank)
{
    for (int u = 0; tt_rank_copies_reference(rank) && u < rank->model->unit_count; u++) {
        struct tt_slices slices = tt_unit_slices(rank->units[u]);
        if (slices.count > 0)
            TT_TRY(tt_copy_on_device(rank->stream, tt_buffer_data(rank->reference.masters[u]), slices.master,
                                     (size_t)slices.count * sizeof(float)));
    }
    return tt_stream_synchronize(rank->stream);
}

/* The values of the reference in the place of the trained ones, or back. */
static tt_status exchange(struct tt_rank *rank)
{
    for (int u = 0; tt_rank_copies_reference(rank) && u < rank->model->unit_count; u++)
        TT_TRY(tt_unit_exchange_masters(rank->units[u], rank->reference.masters[u], rank->reference.scratch));
    return TT_OK;
}

/* A pass of the reference over a batch, with log p of its rows in `ref_logp_N`. */
static tt_status run_reference(struct tt_rank *rank, const struct tt_pass *pass)
{
    struct tt_pass_results results = {0}; /* without sums: these are of the passes with a gradient */
    struct tt_pass own = *pass;
    tt_status status = TT_OK;
    bool exchanged = false;
    own.out = &results;
    own.in.adapters_off = !rank->reference.has_values;
    own.in.training = own.in.gradient = own.in.want_squares = false;
    TT_GO(exchange(rank));
    exchanged = true;
    TT_GO(tt_executor_forward(rank->executor, &own));
    if (pass->in.batch->token_count > 0) TT_GO(tt_rank_read_logp(rank, &own, rank->rows.ref_logp_N));
out:
    if (status != TT_OK) tt_while("running the reference");
    tt_executor_end(rank->executor);
    if (exchanged && status == TT_OK) status = exchange(rank);
    return status;
}

tt_status tt_rank_reference(struct tt_rank *rank, const struct tt_pass *pass)
{
    return tt_objective_runs_reference(&rank->objective) ? run_reference(rank, pass) : TT_OK;
}

tt_status tt_rank_compute_reference(struct tt_rank *rank, const struct tt_batch *batch, const float **logp_N)
{
    struct tt_pass pass;
    TT_TRY(tt_rank_upload(rank, batch, &pass));
    pass.in.loss_scale = 1.0f;
    TT_TRY(run_reference(rank, &pass));
    *logp_N = rank->rows.ref_logp_N;
    return TT_OK;
}
