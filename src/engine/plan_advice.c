/* Changes of the settings that make a run fit, each tried by a plan of its own. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/plan_impl.h"

/* *found: the attempt fits. Then `what` and its memory are added to `advice`. */
static tt_status try_advice(const struct tt_plan_attempt *attempt, const char *what,
                            const struct tt_plan *like, char *advice, bool *found)
{
    char need[32];
    struct tt_plan *plan = tt_calloc(1, sizeof *plan);
    if (plan == NULL) return TT_ERR_MEMORY;
    plan->block_count = like->block_count;
    memcpy(plan->choices, like->choices, sizeof plan->choices);
    plan->ranks = like->ranks;
    plan->limit_bytes = like->limit_bytes;
    plan->program_bytes = like->program_bytes;
    plan->machine = like->machine;
    plan->threads = like->threads;
    plan->is_host = like->is_host;
    tt_status status = tt_plan_choose(attempt, plan);
    *found = status == TT_OK && plan->fits;
    if (*found) {
        size_t used = strlen(advice);
        snprintf(advice + used, TT_PLAN_ADVICE_BYTES - used, "%s%s (%s)", used > 0 ? "; or " : "", what,
                 tt_format_bytes((double)tt_plan_need(plan), need, sizeof need));
    }
    tt_free(plan);
    return status;
}

static struct tt_batch_limits part_of(const struct tt_batch_limits *limits, int64_t parts)
{
    struct tt_batch_limits part = *limits;
    part.tokens = (limits->tokens + parts - 1) / parts;
    part.rows = (limits->rows + parts - 1) / parts;
    part.keys = (limits->keys + parts - 1) / parts;
    part.all_rows = (limits->all_rows + parts - 1) / parts;
    part.sequences = (limits->sequences + parts - 1) / parts;
    part.images = (limits->images + parts - 1) / parts;
    part.boxes = (limits->boxes + parts - 1) / parts;
    return part;
}

static bool has_parts(const struct tt_batch_limits *limits, int parts)
{
    return (limits->images == 0 || limits->images >= parts) && limits->tokens >= limits->length * parts;
}

/* Tries smaller batches. `with`: text about the other settings that `tight` changes. */
static tt_status advise_batch(const struct tt_plan_attempt *tight, const char *with,
                              const struct tt_plan *plan, char *advice, bool *found)
{
    static const char *const names[] = {"half", "a quarter", "an eighth"};
    bool trains = !tt_batch_limits_are_empty(&tight->train);
    const struct tt_batch_limits *limits = trains ? &tight->train : &tight->eval;
    *found = false;
    for (int i = 0; i < 3 && !*found && has_parts(limits, 2 << i); i++) {
        char what[160];
        struct tt_plan_attempt smaller = *tight;
        smaller.train = part_of(&tight->train, 2 << i);
        smaller.eval = part_of(&tight->eval, 2 << i);
        smaller.rank.limits = tt_batch_limits_join(&smaller.train, &smaller.eval);
        snprintf(what, sizeof what, "%s of the --per_device_%s_batch_size%s", names[i],
                 trains ? "train" : "eval", with);
        TT_TRY(try_advice(&smaller, what, plan, advice, found));
    }
    return TT_OK;
}

/* Returns the flag that lets backward keep less memory, with its value in *leaner; NULL when nothing keeps less.
 * On the CPU, offloaded inputs take the same memory. */
static const char *find_leaner_flag(const struct tt_rank_config *rank, bool is_host,
                                    enum tt_recompute *leaner)
{
    *leaner = TT_RECOMPUTE_AUTO;
    switch (rank->train ? rank->recompute : TT_RECOMPUTE_AUTO) {
    case TT_RECOMPUTE_NONE:
    case TT_RECOMPUTE_CHEAP:
        return "--recompute auto";
    case TT_RECOMPUTE_NO_BLOCK: /* auto would follow gradient_checkpointing */
        return "--gradient_checkpointing null";
    case TT_RECOMPUTE_EVERY_BLOCK:
        if (is_host) break;
        *leaner = TT_RECOMPUTE_EVERY_OFFLOAD;
        return "--recompute offload";
    default:
        break;
    }
    *leaner = rank->recompute;
    return NULL;
}

/* Tries more ranks, then a smaller batch, each together with the changes that were not enough alone. */
static tt_status advise_together(const struct tt_plan_attempt *tight, struct tt_plan *plan)
{
    char what[160], *advice = plan->advice;
    struct tt_plan_attempt attempt = *tight;
    const struct tt_rank_config *rank = &tight->rank;
    const char *flag = find_leaner_flag(rank, plan->is_host, &attempt.rank.recompute);
    bool found = false, offload = !plan->is_host && !rank->offload_params;
    attempt.rank.strategy = TT_FULL_SHARD;
    int machines = tight->ranks.machines, most = tight->ranks.count < 8 ? 64 : 8 * tight->ranks.count;
    if (most > TT_PLAN_RANKS_MAX) most = TT_PLAN_RANKS_MAX;
    bool other = rank->strategy != TT_FULL_SHARD && tight->ranks.count > 1;
    for (attempt.ranks.count = (other ? 1 : 2) * tight->ranks.count; attempt.ranks.count <= most && !found;
         attempt.ranks.count *= 2) {
        snprintf(what, sizeof what, "%d --ranks%s with --sharding_strategy FULL_SHARD%s%s",
                 attempt.ranks.count / machines, machines > 1 ? " on each machine" : "",
                 flag != NULL ? " and " : "", flag != NULL ? flag : "");
        TT_TRY(try_advice(&attempt, what, plan, advice, &found));
    }
    if (found || (flag == NULL && !offload)) return TT_OK;
    attempt.ranks = tight->ranks;
    attempt.rank.strategy = rank->strategy;
    attempt.rank.offload_params |= offload;
    snprintf(what, sizeof what, " with %s%s%s", offload ? "--offload_params true" : "",
             offload && flag != NULL ? " and " : "", flag != NULL ? flag : "");
    return advise_batch(&attempt, what, plan, advice, &found);
}

/* Whether training holds each weight in FP8 twice. */
static bool has_two_copies(const struct tt_rank_config *rank)
{
    const struct tt_base_quant *quant = &rank->model_options.quant;
    return tt_quant_multiplies(quant->type) && quant->products == TT_FP8_ALL && quant->trains &&
           !quant->blocks;
}

/* Whether training over FP8 keeps gate and up as they are. */
static bool may_code_gate_up(const struct tt_rank_config *rank)
{
    const struct tt_base_quant *quant = &rank->model_options.quant;
    return tt_quant_multiplies(quant->type) && quant->gate_up == TT_GATE_UP_COMPUTE && quant->trains;
}

/* Whether the base is quantized, but not its experts. */
static bool may_quantize_experts(const struct tt_rank_config *rank)
{
    const struct tt_base_quant *quant = &rank->model_options.quant;
    return quant->type != TT_QUANT_NONE && !quant->experts &&
           tt_model_facts_have_experts(rank->model_facts) &&
           rank->model_facts->stored_experts.type == TT_QUANT_NONE;
}

/* Tries moments of 8 bits, and where the device has memory of its own the same paged. */
static tt_status advise_optimizer(const struct tt_plan_attempt *tight, struct tt_plan *plan)
{
    char what[80];
    bool found = false;
    struct tt_plan_attempt attempt = *tight;
    const struct tt_rank_config *rank = &tight->rank;
    const struct tt_optimizer *now = rank->optimizer != NULL ? rank->optimizer : tt_optimizer_of(NULL);
    for (int place = TT_MOMENT_RESIDENT; rank->train && place <= TT_MOMENT_PAGED && !found; place++) {
        const struct tt_optimizer *other = tt_optimizer_like(now, TT_MOMENT_8, (enum tt_moment_place)place);
        bool more = now->bits == TT_MOMENT_32 || place > (int)now->place;
        bool pages = place == TT_MOMENT_PAGED;
        if (other == NULL || !more || (pages && (plan->is_host || rank->offload_params))) continue;
        attempt.rank.optimizer = other;
        snprintf(what, sizeof what, "--optim %s", other->spelling);
        TT_TRY(try_advice(&attempt, what, plan, plan->advice, &found));
    }
    return TT_OK;
}

tt_status tt_plan_advise(const struct tt_plan_attempt *tight, struct tt_plan *plan)
{
    bool found = false;
    struct tt_plan_attempt attempt = *tight;
    const char *flag = find_leaner_flag(&tight->rank, plan->is_host, &attempt.rank.recompute);
    if (flag != NULL) TT_TRY(try_advice(&attempt, flag, plan, plan->advice, &found));
    attempt = *tight;
    attempt.rank.model_options.quant.products = TT_FP8_SINGLE;
    if (has_two_copies(&tight->rank))
        TT_TRY(try_advice(&attempt, "--fp8_products single", plan, plan->advice, &found));
    attempt = *tight;
    attempt.rank.model_options.quant.gate_up = TT_GATE_UP_E4M3;
    if (may_code_gate_up(&tight->rank))
        TT_TRY(try_advice(&attempt, "--fp8_gate_up e4m3", plan, plan->advice, &found));
    attempt = *tight;
    attempt.rank.model_options.quant.experts = true;
    if (may_quantize_experts(&tight->rank))
        TT_TRY(try_advice(&attempt, "--quantize_moe_experts true", plan, plan->advice, &found));
    attempt = *tight;
    attempt.rank.offload_params = true;
    if (!plan->is_host && !tight->rank.offload_params)
        TT_TRY(try_advice(&attempt, "--offload_params true", plan, plan->advice, &found));
    TT_TRY(advise_batch(tight, "", plan, plan->advice, &found));
    TT_TRY(advise_optimizer(tight, plan));
    return plan->advice[0] != '\0' ? TT_OK : advise_together(tight, plan);
}
