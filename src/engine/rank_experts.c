/* The frozen matrices of experts, which ranks can share (nn/expert_exchange.h). */
#include "engine/rank_impl.h"

struct search {
    const tt_param **found; /* NULL: they are only counted */
    size_t count;
    int64_t experts; /* that a number must divide to divide those of every layer */
    bool trains;
};

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static tt_status visit(void *context, const struct tt_model_linear *linear)
{
    struct search *search = context;
    if (linear->experts == 0) return TT_OK;
    if (search->found != NULL) search->found[search->count] = linear->weight;
    search->count++;
    search->experts = common_divisor(linear->experts, search->experts);
    search->trains |= linear->weight->trainable;
    return TT_OK;
}

tt_status tt_rank_count_experts(const struct tt_model *model, int64_t *experts)
{
    struct search search = {0};
    TT_TRY(tt_model_visit_linears(model, visit, &search));
    *experts = search.trains ? 0 : search.experts;
    return TT_OK;
}

tt_status tt_rank_find_experts(const struct tt_model *model, const tt_param **found, size_t *count)
{
    struct search search = {.found = found};
    TT_TRY(tt_model_visit_linears(model, visit, &search));
    *count = search.count;
    return TT_OK;
}

tt_status tt_rank_check_experts(const struct tt_rank_config *config, const struct tt_rank *rank)
{
    int64_t experts, least = config->expert_parallel, most = -least;
    if (!config->train || tt_device_is_plan(rank->device) || tt_comm_world_size(config->world) == 1)
        return TT_OK;
    TT_TRY(tt_rank_count_experts(rank->model, &experts));
    if (experts == 0) return TT_OK;
    TT_TRY(tt_comm_host_min(config->world, &least));
    TT_TRY(tt_comm_host_min(config->world, &most));
    if (least == -most) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_USAGE, "ranks chose different numbers of ranks that share experts: %d to %d",
                (int)least, (int)-most);
    tt_hint("give all ranks the same number with --expert_parallel");
    return status;
}
