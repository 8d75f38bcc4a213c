/* The ranks that share the experts of a layer (nn/expert_exchange.h). Every number that divides the ranks of a machine
 * which split a unit, and the experts, is planned, and taken where its step is faster than with experts that every rank
 * gathers, or where nothing else fits. On processors, whose steps are not estimated, the setting alone decides. */
#include "base/alloc.h"
#include "engine/plan_impl.h"
#include "engine/rank_impl.h"

static tt_status refuse(int count, const char *what, const char *hint)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "expert_parallel %d: %s", count, what);
    tt_hint("%s", hint);
    return status;
}

tt_status tt_plan_check_experts(const struct tt_plan_attempt *attempt)
{
    int count = attempt->rank.expert_parallel;
    if (count <= 1) return TT_OK;
    if (attempt->experts == 0)
        return refuse(count, "the model has no experts whose weights are frozen",
                      "ranks share frozen experts: leave expert_parallel out, or train adapters (use_peft)");
    if (attempt->rank.strategy == TT_NO_SHARD)
        return refuse(count, "with NO_SHARD every rank holds all experts",
                      "sharding_strategy FULL_SHARD splits them");
    if (attempt->experts % count == 0) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_USAGE, "expert_parallel %d: %lld experts of a layer cannot be divided by it", count,
                (long long)attempt->experts);
    tt_hint("expert_parallel takes a number that divides the experts and the ranks");
    return status;
}

/* Ranks of one machine that split a unit. */
static int machine_ranks(const struct tt_plan_attempt *attempt)
{
    int machines = attempt->ranks.machines > 0 ? attempt->ranks.machines : 1;
    int ranks = tt_axes_data_size(&attempt->rank.axes, attempt->ranks.count);
    return ranks % machines == 0 ? ranks / machines : 1;
}

/* Takes `other` where it is better than *plan. */
static tt_status try_count(const struct tt_plan_attempt *attempt, struct tt_plan *other, struct tt_plan *plan)
{
    tt_status status = tt_plan_choose(attempt, other);
    if (status == TT_ERR_UNSUPPORTED) { /* codes that this number does not divide */
        tt_error_clear();
        return TT_OK;
    }
    TT_TRY(status);
    if (other->fits && (!plan->fits || other->step_seconds < plan->step_seconds)) *plan = *other;
    return TT_OK;
}

tt_status tt_plan_choose_experts(const struct tt_plan_attempt *attempt, struct tt_plan *plan)
{
    tt_status status = TT_OK;
    struct tt_plan_attempt own = *attempt;
    const struct tt_plan begin = *plan;
    bool chooses = attempt->rank.expert_parallel == TT_EXPERTS_AUTO && attempt->rank.train &&
                   attempt->experts > 0 && attempt->rank.strategy != TT_NO_SHARD && !plan->is_host;
    if (own.rank.expert_parallel < 1) own.rank.expert_parallel = 1;
    TT_TRY(tt_plan_choose(&own, plan));
    if (!chooses) return TT_OK;
    struct tt_plan *other = tt_calloc(1, sizeof *other);
    if (other == NULL) return TT_ERR_MEMORY;
    for (int count = 2, most = machine_ranks(attempt); count <= most && status == TT_OK; count++) {
        if (most % count != 0 || attempt->experts % count != 0) continue;
        *other = begin;
        own.rank.expert_parallel = count;
        status = try_count(&own, other, plan);
    }
    tt_free(other);
    return status;
}
