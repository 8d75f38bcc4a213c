/* The plan as text: its table, the error for a plan that does not fit, the comparison with a run. */
#include <stdio.h>
#include <string.h>

#include "engine/plan.h"

#include "base/cgroup.h"

static double host_bytes(const struct tt_plan *plan)
{
    return (double)plan->memory.host_total + (plan->is_host ? (double)plan->memory.total_peak : 0);
}

size_t tt_plan_need(const struct tt_plan *plan)
{
    if (plan->machine.bytes == 0) return plan->memory.total_peak;
    return (size_t)(host_bytes(plan) + (double)plan->program_bytes / plan->machine.ranks);
}

tt_status tt_plan_check_host(const struct tt_plan *plan, const struct tt_machine_memory *machine)
{
    char need[32], have[32];
    double all = host_bytes(plan) * machine->ranks + (double)plan->program_bytes;
    if (machine->bytes == 0 || all <= (double)machine->bytes) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_MEMORY, "this run needs %s of host memory for %d rank%s on this machine, %s %s",
                tt_format_bytes(all, need, sizeof need), machine->ranks, machine->ranks == 1 ? "" : "s",
                machine->grouped ? "the limit of its control group is" : "which has",
                tt_format_bytes((double)machine->bytes, have, sizeof have));
    const char *group = machine->grouped ? "; the limit of a pod is resources.limits.memory" : "";
    if (plan->advice[0] != '\0')
        tt_hint("what would fit: %s%s", plan->advice, group);
    else
        tt_hint("use fewer ranks on a machine, %s%s%s", tt_count_units[plan->unit].smaller,
                plan->may_quantize ? ", or --load_in_4bit" : "", group);
    return status;
}

tt_status tt_plan_check(const struct tt_plan *plan)
{
    char need[32], have[32];
    if (plan->fits) return TT_OK;
    if (plan->machine.bytes > 0) return tt_plan_check_host(plan, &plan->machine);
    tt_status status = tt_fail(TT_ERR_MEMORY, "this run needs %s a rank, the limit is %s",
                               tt_format_bytes((double)plan->memory.total_peak, need, sizeof need),
                               tt_format_bytes((double)plan->limit_bytes, have, sizeof have));
    if (plan->advice[0] != '\0')
        tt_hint("what would fit: %s", plan->advice);
    else
        tt_hint("neither a smaller batch nor more ranks are enough: use %s%s",
                tt_count_units[plan->unit].smaller, plan->may_quantize ? ", or --load_in_4bit" : "");
    return status;
}

tt_status tt_plan_check_here(const struct tt_plan *plan, int ranks)
{
    struct tt_machine_memory machine = {.ranks = ranks};
    machine.bytes = tt_memory_bytes(&machine.grouped);
    TT_TRY(tt_plan_check(plan));
    return tt_plan_check_host(plan, &machine);
}

const char *tt_plan_purpose_key(enum tt_purpose purpose)
{
    static const char *const keys[TT_PURPOSE_COUNT] = {
        [TT_PURPOSE_WEIGHTS] = "weights_shard", [TT_PURPOSE_ADAPTERS] = "adapters",
        [TT_PURPOSE_OPTIMIZER] = "optimizer",   [TT_PURPOSE_GRADIENTS] = "gradients",
        [TT_PURPOSE_GATHER] = "gather",         [TT_PURPOSE_ACTIVATIONS] = "activations",
        [TT_PURPOSE_BATCH] = "batch",           [TT_PURPOSE_COMM] = "communication",
        [TT_PURPOSE_STAGING] = "staging",       [TT_PURPOSE_OFFLOAD] = "offload",
        [TT_PURPOSE_PANELS] = "packed_weights", [TT_PURPOSE_SCRATCH] = "gemm_workspace",
        [TT_PURPOSE_CONTEXT] = "context",
    };
    return keys[purpose];
}

int tt_plan_rows(const struct tt_plan *plan, struct tt_plan_row rows[TT_PLAN_ROWS_MAX])
{
    int count = 0;
    for (int p = 0; p < TT_PURPOSE_COUNT; p++) {
        size_t bytes = plan->memory.peak[p];
        if (bytes == 0) continue;
        struct tt_plan_row row = {tt_plan_purpose_key((enum tt_purpose)p),
                                  tt_purpose_name((enum tt_purpose)p), bytes};
        if (p == TT_PURPOSE_ACTIVATIONS && plan->kept_bytes > 0) {
            row.bytes = plan->kept_bytes;
            rows[count++] = row;
            /* Used in turn: the tensors of the running block, its attention, a chunk of logits. */
            row = (struct tt_plan_row){"workspace", "workspace of a block",
                                       plan->workspace_bytes - plan->kept_bytes};
        }
        rows[count++] = row;
    }
    return count;
}

const char *tt_plan_recompute_text(const struct tt_plan *plan, char *text, size_t text_bytes)
{
    int layers = 0, counts[TT_LEVEL_COUNT] = {0};
    for (int i = 0; i < plan->block_count; i++) {
        if (!tt_plan_chooses(plan, i)) continue;
        counts[plan->levels[i]]++;
        layers++;
    }
    size_t used = (size_t)snprintf(text, text_bytes, "recompute");
    for (int level = TT_LEVEL_COUNT - 1; level >= 0; level--) {
        const char *name = tt_level_name((enum tt_level)level);
        if (counts[level] == 0 || used >= text_bytes) continue;
        bool more = used > strlen("recompute");
        if (counts[level] == layers)
            used += (size_t)snprintf(text + used, text_bytes - used, " %s", name);
        else if (more)
            used += (size_t)snprintf(text + used, text_bytes - used, ", %s in %d", name, counts[level]);
        else
            used += (size_t)snprintf(text + used, text_bytes - used, " %s in %d of %d layers", name,
                                     counts[level], layers);
    }
    if (plan->unsharded_blocks > 0 && used < text_bytes)
        used += (size_t)snprintf(text + used, text_bytes - used, ", %d of %d blocks whole",
                                 plan->unsharded_blocks < plan->block_count ? plan->unsharded_blocks
                                                                            : plan->block_count,
                                 plan->block_count);
    if (plan->expert_parallel > 1 && used < text_bytes)
        used += (size_t)snprintf(text + used, text_bytes - used, ", experts shared by %d ranks",
                                 plan->expert_parallel);
    if (plan->page_moments && used < text_bytes)
        used += (size_t)snprintf(text + used, text_bytes - used, ", optimizer state in host memory");
    if (plan->split_vocabulary && used < text_bytes)
        snprintf(text + used, text_bytes - used, ", embedding and head gathered in parts");
    return text;
}

double tt_plan_estimate(const struct tt_plan *plan)
{
    return plan->is_host ? 0.0 : plan->step_seconds;
}

static tt_status format_step(const struct tt_plan *plan, struct tt_str *text)
{
    double seconds = tt_plan_estimate(plan);
    if (seconds <= 0.0) return TT_OK;
    double shown = seconds >= 1.0 ? seconds : seconds * 1e3;
    double speed = (double)plan->step_count / seconds;
    return tt_str_printf(text, "\n  %-22s %8.*f %-3s   about; %.*f %s/s a rank", "time of a step",
                         shown < 10.0 ? 2 : 0, shown, seconds >= 1.0 ? "s" : "ms",
                         tt_count_unit_digits(plan->unit, speed), speed, tt_count_units[plan->unit].name);
}

/* The largest parts of the workspace. */
static tt_status format_workspace(const struct tt_plan *plan, struct tt_str *text)
{
    char attention[32], logits[32];
    if (plan->attention_bytes == 0 && plan->logits_bytes == 0) return TT_OK;
    tt_format_bytes((double)plan->attention_bytes, attention, sizeof attention);
    tt_format_bytes((double)plan->logits_bytes, logits, sizeof logits);
    if (plan->attention_bytes == 0) return tt_str_printf(text, "   a chunk of logits: %s", logits);
    return tt_str_printf(text, "   attention: %s, a chunk of logits: %s", attention, logits);
}

/* The rows on processors, where all of it is the machine's memory: the program, and all ranks against the machine. */
static tt_status format_machine(const struct tt_plan *plan, struct tt_str *text)
{
    char amount[32], limit[32];
    const struct tt_machine_memory *machine = &plan->machine;
    if (plan->program_bytes > 0)
        TT_TRY(tt_str_printf(text, "\n  %-22s %12s   of the process", "program and data",
                             tt_format_bytes((double)plan->program_bytes, amount, sizeof amount)));
    if (machine->bytes == 0) return TT_OK;
    double all = host_bytes(plan) * machine->ranks + (double)plan->program_bytes;
    return tt_str_printf(text, "\n  %-22s %12s   of %s%s%s",
                         machine->grouped ? "of the control group" : "of the machine",
                         tt_format_bytes(all, amount, sizeof amount),
                         tt_format_bytes((double)machine->bytes, limit, sizeof limit),
                         machine->ranks > 1 ? ", all its ranks" : "", plan->fits ? "" : ": does not fit");
}

tt_status tt_plan_format(const struct tt_plan *plan, struct tt_str *text)
{
    char amount[32], limit[32], levels[96], machines[32] = "";
    struct tt_plan_row rows[TT_PLAN_ROWS_MAX];
    int count = tt_plan_rows(plan, rows);
    if (plan->ranks.machines > 1)
        snprintf(machines, sizeof machines, " on %d machines", plan->ranks.machines);
    TT_TRY(tt_str_printf(text, "memory of a rank (%d in all%s), planned for %s, %s:", plan->ranks.count,
                         machines, plan->device, tt_plan_recompute_text(plan, levels, sizeof levels)));
    for (int i = 0; i < count; i++) {
        TT_TRY(tt_str_printf(text, "\n  %-22s %12s", rows[i].name,
                             tt_format_bytes((double)rows[i].bytes, amount, sizeof amount)));
        if (strcmp(rows[i].key, "workspace") == 0) TT_TRY(format_workspace(plan, text));
    }
    TT_TRY(tt_str_printf(text, "\n  %-22s %12s", "in all",
                         tt_format_bytes((double)plan->memory.total_peak, amount, sizeof amount)));
    if (plan->limit_bytes != 0 && plan->machine.bytes == 0)
        TT_TRY(tt_str_printf(text, "   of %s%s",
                             tt_format_bytes((double)plan->limit_bytes, limit, sizeof limit),
                             plan->fits ? "" : ": does not fit"));
    if (plan->memory.host_total > 0)
        TT_TRY(tt_str_printf(text, "\n  %-22s %12s", "in host memory",
                             tt_format_bytes((double)plan->memory.host_total, amount, sizeof amount)));
    TT_TRY(format_machine(plan, text));
    TT_TRY(format_step(plan, text));
    return plan->prompts[0] != '\0' ? tt_str_printf(text, "\n%s", plan->prompts) : TT_OK;
}

/* The process on processors: its pages before its ranks were made, and the most that it ever had in memory, all its
 * ranks and the pages of files together. Buffers have pages as far as they were used. */
static tt_status compare_process(const struct tt_plan *plan, struct tt_str *text)
{
    char planned[32], measured[32];
    struct tt_process_memory memory = tt_process_memory_read();
    if (plan->program_bytes == 0 || memory.peak == 0) return TT_OK;
    return tt_str_printf(text, "\n  %-19s %12s\n  %-19s %12s %12s", "program and data",
                         tt_format_bytes((double)plan->program_bytes, planned, sizeof planned),
                         "resident pages", "",
                         tt_format_bytes((double)memory.peak, measured, sizeof measured));
}

tt_status tt_plan_compare(const struct tt_plan *plan, struct tt_device *device, struct tt_str *text)
{
    char planned[32], measured[32];
    struct tt_memory_use memory;
    tt_device_memory(device, &memory);
    /* The memory of driver and libraries: the driver's count without our buffers. */
    size_t total = memory.total_peak, used = tt_device_used_bytes(device);
    if (used > 0) {
        size_t buffers = memory.total_current - memory.current[TT_PURPOSE_CONTEXT];
        memory.peak[TT_PURPOSE_CONTEXT] = used > buffers ? used - buffers : 0;
        total = used;
    }
    TT_TRY(tt_str_printf(text, "memory of rank 0      %12s %12s", "planned", "measured"));
    for (int p = 0; p < TT_PURPOSE_COUNT; p++) {
        size_t plan_bytes = plan->memory.peak[p], bytes = memory.peak[p];
        if (p == TT_PURPOSE_COMM && used > 0) continue; /* the driver counts it with the context */
        if (p == TT_PURPOSE_CONTEXT && used > 0) plan_bytes += plan->memory.peak[TT_PURPOSE_COMM];
        if (plan_bytes == 0 && (bytes == 0 || p == TT_PURPOSE_SCRATCH)) continue;
        TT_TRY(tt_str_printf(text, "\n  %-19s %12s %12s", tt_purpose_name((enum tt_purpose)p),
                             tt_format_bytes((double)plan_bytes, planned, sizeof planned),
                             tt_format_bytes((double)bytes, measured, sizeof measured)));
    }
    TT_TRY(tt_str_printf(text, "\n  %-19s %12s %12s", "in all",
                         tt_format_bytes((double)plan->memory.total_peak, planned, sizeof planned),
                         tt_format_bytes((double)total, measured, sizeof measured)));
    return compare_process(plan, text);
}
