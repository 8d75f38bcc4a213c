#include "engine/gradient_watch.h"

#include <string.h>

#include "base/alloc.h"
#include "comm/host_values.h"
#include "engine/rank_pass.h"

/* More than one, because a gradient may round to zero. */
enum { SILENT_STEPS_MAX = 3 };
/* Mean number of an adapter's inputs that dropout keeps: it drops all of them with a probability of e^-64. */
static const double inputs_left_min = 64.0;

/* Stores the index of the adapter's other half, "x.lora_A.weight" for "x.lora_B.weight", in *other; -1: none. */
static tt_status find_other(const struct tt_model *model, const tt_param *param, int64_t *other)
{
    const char *half = strstr(param->name, ".lora_");
    size_t index;
    *other = -1;
    if (half == NULL) return TT_OK;
    char *name = tt_strdup(param->name), *letter;
    if (name == NULL) return TT_ERR_MEMORY;
    letter = name + (half - param->name) + strlen(".lora_");
    *letter = *letter == 'A' ? 'B' : 'A';
    if (tt_name_index_find(&model->param_index, name, &index)) *other = (int64_t)index;
    tt_free(name);
    return TT_OK;
}

static tt_status watch_param(const struct tt_model *model, const tt_param *param,
                             struct tt_watched_param *out)
{
    *out = (struct tt_watched_param){.watched = param->trainable, .other = -1};
    if (!param->trainable) return TT_OK;
    out->attends = param->reach != TT_REACH_ALWAYS;
    if (param->reach == TT_REACH_NEVER || param->reach == TT_REACH_TOKENS) out->watched = false;
    TT_TRY(find_other(model, param, &out->other));
    if (out->other < 0) return TT_OK;
    out->is_A = strstr(param->name, ".lora_A.") != NULL;
    out->inputs = (out->is_A ? param : model->params[out->other])->dims[1];
    return TT_OK;
}

tt_status tt_gradient_watch_init(const struct tt_model *model, struct tt_gradient_watch *watch)
{
    *watch =
        (struct tt_gradient_watch){.count = model->param_count, .kept = 1.0 - model->options.lora.dropout};
    watch->params = tt_calloc(model->param_count + 1, sizeof *watch->params);
    if (watch->params == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < model->param_count; i++)
        TT_TRY(watch_param(model, model->params[i], &watch->params[i]));
    return TT_OK;
}

void tt_gradient_watch_deinit(struct tt_gradient_watch *watch)
{
    tt_free(watch->params);
    *watch = (struct tt_gradient_watch){0};
}

int64_t tt_gradient_attending_rows(const struct tt_batch *batch)
{
    int64_t count = 0;
    for (int64_t n = 0; n < batch->row_count; n++) {
        int32_t t = batch->rows[n];
        count += batch->positions[t] > 0 && batch->ids[t] != batch->ids[t - 1];
    }
    return count;
}

tt_status tt_param_squares(struct tt_rank *rank, bool masters, double *squares)
{
    const struct tt_model *model = rank->model;
    for (size_t i = 0; i < model->param_count; i++) squares[i] = 0.0;
    for (int u = 0; u < model->unit_count; u++) {
        struct tt_slices slices = tt_unit_slices(rank->units[u]);
        const float *values = masters ? slices.master : slices.grad;
        for (size_t r = 0; r < tt_unit_run_count(rank->units[u]); r++) {
            struct tt_slice_run run = tt_unit_run(rank->units[u], r);
            size_t index;
            if (!tt_name_index_find(&model->param_index, run.param->name, &index))
                return tt_fail(TT_ERR_INTERNAL, "'%s' is no parameter of the model", run.param->name);
            TT_TRY(tt_rank_add_param_squares(rank, index, values + run.offset, run.count));
        }
    }
    TT_TRY(tt_rank_read_param_squares(rank, squares));
    if (rank->mesh.part_count <= 1) return TT_OK;
    return tt_comm_host_sum(rank->mesh.axes[TT_AXIS_SHARD].comm, squares, model->param_count);
}

/* True when the batch can give the parameter a gradient. */
static bool batch_reaches(const struct tt_gradient_watch *watch, const struct tt_watched_param *param,
                          const struct tt_gradient_chances *chances)
{
    int64_t rows = param->attends ? chances->attending_rows : chances->supervised_rows;
    if (!param->watched || param->seen || rows == 0 || !(chances->loss > 0.0)) return false;
    bool drops = param->inputs > 0 && watch->kept < 1.0;
    return !drops || (double)rows * (double)param->inputs * watch->kept >= inputs_left_min;
}

/* True when the values of an adapter let it have a gradient. */
static bool values_allow(const struct tt_watched_param *param, size_t index, const double *values)
{
    if (param->other < 0) return true;
    bool own = values[index] > 0.0, other = values[param->other] > 0.0;
    return param->is_A ? other : own <= other;
}

static tt_status report_silent(const struct tt_gradient_watch *watch, struct tt_rank *rank)
{
    const char *silent = NULL;
    int64_t count = 0, trainable = 0;
    for (size_t i = 0; i < watch->count; i++) {
        trainable += rank->model->params[i]->trainable;
        if (watch->params[i].silent < SILENT_STEPS_MAX) continue;
        if (silent == NULL) silent = rank->model->params[i]->name;
        count++;
    }
    if (silent == NULL) return TT_OK;
    (void)tt_fail(TT_ERR_DATA, "'%s' has had no gradient in %d steps and would not train", silent,
                  SILENT_STEPS_MAX);
    tt_hint(
        "%lld of %lld trainable tensors are affected: weights of the base are zero, or learning_rate is far "
        "too high",
        (long long)count, (long long)trainable);
    return tt_comm_agree(rank->world, TT_ERR_DATA);
}

tt_status tt_gradient_watch_step(struct tt_gradient_watch *watch, struct tt_rank *rank,
                                 const struct tt_gradient_chances *chances)
{
    bool any = false, open = false;
    tt_status status = TT_OK;
    if (watch->over) return TT_OK;
    for (size_t i = 0; i < watch->count; i++) any |= batch_reaches(watch, &watch->params[i], chances);
    if (!any) return TT_OK; /* the common case: no collective, no wait */
    double *gradients = tt_calloc(2 * watch->count, sizeof *gradients);
    if (gradients == NULL) return TT_ERR_MEMORY;
    double *values = gradients + watch->count;
    TT_GO(tt_param_squares(rank, false, gradients));
    TT_GO(tt_param_squares(rank, true, values));
    for (size_t i = 0; i < watch->count; i++) {
        struct tt_watched_param *param = &watch->params[i];
        bool counts = batch_reaches(watch, param, chances) && values_allow(param, i, values);
        param->seen |= gradients[i] > 0.0;
        param->silent = param->seen ? 0 : param->silent + counts;
        open |= param->watched && !param->seen;
    }
    watch->over = !open;
    status = report_silent(watch, rank);
out:
    tt_free(gradients);
    return status;
}
