#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "job/task.h"
#include "monitor/run_figures.h"
#include "run/task.h"

static const char usage[] = " RUN_FOLDER [--json]";

enum { OPS_SHOWN = 12 };

struct profile_command {
    bool json;
};

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting own_settings[] = {
    {.name = "json", .type = TT_SETTING_BOOL, .offset = offsetof(struct profile_command, json),
     .default_text = "false", .help = "Print one JSON object."},
    {.name = NULL},
};
/* clang-format on */

static size_t list_sections(struct tt_setting_section *sections)
{
    sections[0] = (struct tt_setting_section){"Profile", own_settings, 0};
    return 1;
}

/* A share above which a part of the time is worth a change. `of`: the whole. */
struct advice {
    enum tt_share share, of;
    double more_than;
    const char *change; /* NULL: that of the task (run/task.h) */
};

static const struct advice advices[] = {
    {TT_SHARE_DATA, TT_SHARE_STEP, 0.10, NULL},
    {TT_SHARE_GATHER, TT_SHARE_STEP, 0.15, NULL},
    {TT_SHARE_REDUCE, TT_SHARE_STEP, 0.15,
     "sums of gradients take long: more gradient_accumulation_steps with NO_SHARD or HYBRID_SHARD, or fewer "
     "trainable parameters"},
    {TT_SHARE_RANKS, TT_SHARE_STEP, 0.10, NULL},
    {TT_SHARE_QUEUE, TT_SHARE_STEP, 0.80,
     "the device waits for the host, which queues its work: a larger per_device_train_batch_size"},
    {TT_SHARE_SAVE_WAIT, TT_SHARE_STEP, 0.05, "updates wait for the copy of a checkpoint: larger save_steps"},
    {TT_SHARE_SAVE_STALL, TT_SHARE_WALL, 0.05,
     "training stands still for saves: larger save_steps, or a faster disk"},
    {TT_SHARE_EVALUATE, TT_SHARE_WALL, 0.25, NULL},
};

/* The rates of the run's rows, in the unit of its task; NULL: no row has one. */
static const struct tt_series *find_rates(const struct tt_run_figures *run,
                                          const struct tt_task_run_ops **task)
{
    for (int t = 0; t < TT_TASKS; t++) {
        *task = tt_task_run_at(t);
        for (int f = 0; f < TT_FIGURE_COUNT; f++) {
            const char *key = tt_figure_key((enum tt_figure)f);
            bool counts = strcmp(key, tt_count_units[(*task)->unit].rate_name) == 0;
            if (counts && run->series[f].count > 0) return &run->series[f];
        }
    }
    *task = tt_task_run_at(0);
    return NULL;
}

static double share_of(const struct tt_run_figures *run, enum tt_share share, enum tt_share of)
{
    return run->shares[of] > 0 ? run->shares[share] / run->shares[of] : 0.0;
}

static tt_status format_shares(const struct tt_run_figures *run, struct tt_str *text)
{
    for (int i = 0; i < TT_SHARE_COUNT; i++) {
        enum tt_share share = (enum tt_share)i, of = i < TT_SHARE_STEP ? TT_SHARE_STEP : TT_SHARE_WALL;
        if (run->shares[i] <= 0) continue;
        const char *key = tt_share_key(share);
        char mean[32];
        TT_TRY(tt_str_printf(text, "  %-14.*s %10s  %5.1f %% of the %s\n",
                             (int)(strlen(key) - strlen("_seconds")), key,
                             tt_format_seconds(run->shares[i] / run->steps, mean, sizeof mean),
                             100.0 * share_of(run, share, of), of == TT_SHARE_STEP ? "step" : "wall time"));
    }
    return TT_OK;
}

/* All others wait for the rank that waits the least. */
static tt_status format_ranks(const struct tt_run_figures *run, struct tt_str *text)
{
    char shortest[32], longest[32];
    if (run->rank_count == 0) return TT_OK;
    int slowest = 0;
    double least = run->shares[TT_SHARE_RANKS], most = least;
    for (size_t i = 0; i < run->rank_count; i++) {
        double wait = run->ranks[i].rank_wait_seconds;
        if (wait < least) slowest = run->ranks[i].rank;
        if (wait < least) least = wait;
        if (wait > most) most = wait;
    }
    return tt_str_printf(
        text, "  ranks: %zu; rank %d waits the least for the others, %s a step, another one %s\n",
        run->rank_count + 1, slowest, tt_format_seconds(least / run->steps, shortest, sizeof shortest),
        tt_format_seconds(most / run->steps, longest, sizeof longest));
}

static int by_seconds(const void *a, const void *b)
{
    double x = ((const struct tt_op_figures *)a)->seconds, y = ((const struct tt_op_figures *)b)->seconds;
    return (x < y) - (x > y);
}

/* The ops with the most time, and the last readings of the device's sensors. */
static tt_status format_ops(const struct tt_run_figures *run, struct tt_str *text)
{
    static const struct {
        const char *key, *format;
    } sensors[] = {{"watts", ", %.0f W"},
                   {"clock_mhz", ", %.0f MHz"},
                   {"clock_max_mhz", " of %.0f MHz"},
                   {"celsius", ", %.0f degrees Celsius"}};
    struct tt_str said = {0};
    tt_status status = TT_OK;
    double step = run->shares[TT_SHARE_STEP] / (run->steps > 0 ? run->steps : 1.0);
    if (run->op_count == 0) return TT_OK;
    qsort(run->ops, run->op_count, sizeof *run->ops, by_seconds);
    TT_TRY(tt_str_append_text(text, "  by op (gathers and reduces run beside the others):\n"));
    for (size_t i = 0; i < run->op_count && i < OPS_SHOWN; i++) {
        double seconds = run->ops[i].seconds / run->op_steps;
        char mean[32];
        TT_TRY(tt_str_printf(text, "    %-24s %10s  %5.1f %% of the step\n", run->ops[i].name,
                             tt_format_seconds(seconds, mean, sizeof mean),
                             step > 0 ? 100.0 * seconds / step : 0.0));
    }
    for (size_t i = 0; i < sizeof sensors / sizeof *sensors; i++) {
        const struct tt_json_value *value = tt_json_get(run->last, sensors[i].key);
        /* Each format has one number. */
        if (tt_json_is_number(value)) TT_GO(tt_str_printf(&said, sensors[i].format, tt_json_number(value)));
    }
    if (said.bytes > 0) status = tt_str_printf(text, "  device: %s (last row)\n", said.data + 2);
out:
    tt_str_deinit(&said);
    return status;
}

static tt_status format_state(const struct tt_run_figures *run, struct tt_str *text)
{
    if (!run->ended) TT_TRY(tt_str_append_text(text, "  the run has not ended, or was killed\n"));
    if (run->broken > 0)
        TT_TRY(tt_str_printf(text, "  %zu line%s not a whole row and left out\n", run->broken,
                             run->broken == 1 ? " is" : "s are"));
    return TT_OK;
}

/* A clock far below its maximum: the power or the heat of the GPU is at its limit. */
static bool is_clock_low(const struct tt_run_figures *run)
{
    double clock = tt_json_number(tt_json_get(run->last, "clock_mhz"));
    return clock > 0 && clock < 0.75 * tt_json_number(tt_json_get(run->last, "clock_max_mhz"));
}

static tt_status format(const struct tt_run_figures *run, struct tt_str *text)
{
    char bytes[32];
    int named = 0;
    const struct tt_task_run_ops *task;
    const struct tt_series *speed = find_rates(run, &task);
    const struct tt_count_unit_facts *unit = &tt_count_units[task->unit];
    TT_TRY(tt_str_printf(text, "%s: %.0f steps with times, %zu save%s\n", run->folder, run->steps, run->saves,
                         run->saves == 1 ? "" : "s"));
    TT_TRY(format_state(run, text));
    if (run->steps <= 0) return tt_str_append_text(text, "  no row has times\n");
    TT_TRY(format_shares(run, text));
    if (speed != NULL)
        TT_TRY(tt_str_printf(text, unit->is_fine ? "  %.4g %s/s" : "  %.0f %s/s",
                             speed->values[speed->count - 1], unit->name));
    if (run->series[TT_FIGURE_TFLOPS].count > 0)
        TT_TRY(tt_str_printf(text, ", %.4g TFLOP/s of the model",
                             run->series[TT_FIGURE_TFLOPS].values[run->series[TT_FIGURE_TFLOPS].count - 1]));
    if (run->mfu > 0) TT_TRY(tt_str_printf(text, ", MFU %.1f %%", 100.0 * run->mfu));
    if (run->device_bytes > 0)
        TT_TRY(tt_str_printf(text, ", %s of device memory",
                             tt_format_bytes(run->device_bytes, bytes, sizeof bytes)));
    TT_TRY(tt_str_append_text(text, " (last row)\n"));
    TT_TRY(format_ops(run, text));
    TT_TRY(format_ranks(run, text));
    for (size_t i = 0; i < sizeof advices / sizeof *advices; i++) {
        double share = share_of(run, advices[i].share, advices[i].of);
        if (share <= advices[i].more_than) continue;
        named++;
        const char *change = advices[i].change != NULL ? advices[i].change : task->advice[advices[i].share];
        TT_TRY(tt_str_printf(text, "change: %s (%.0f %%)\n", change, 100.0 * share));
    }
    if (is_clock_low(run)) {
        named++;
        TT_TRY(tt_str_append_text(
            text, "change: the clock is far below its maximum: the power limit or the heat of the "
                  "device (nvidia-smi -q -d PERFORMANCE)\n"));
    }
    return named > 0 ? TT_OK
                     : tt_str_append_text(text, "change: nothing, the blocks compute most of the time\n");
}

static tt_status format_json(const struct tt_run_figures *run, struct tt_str *text)
{
    struct tt_json_value *seconds = tt_json_new_object();
    for (int i = 0; i < TT_SHARE_COUNT && run->steps > 0; i++)
        tt_json_set(seconds, tt_share_key((enum tt_share)i), tt_json_new_real(run->shares[i] / run->steps));
    struct tt_json_value *object =
        tt_json_pack("{s:s,s:b,s:I,s:I,s:I,s:I,s:o}", "folder", run->folder, "ended", (int)run->ended,
                     "steps", (int64_t)run->steps, "saves", (int64_t)run->saves, "broken_lines",
                     (int64_t)run->broken, "ranks", (int64_t)run->rank_count + 1, "seconds", seconds);
    tt_status status = tt_json_write(object, 0, false, text);
    if (status == TT_OK) status = tt_str_append_char(text, '\n');
    tt_json_release(object);
    return status;
}

static tt_status run(struct tt_cli *cli, const struct tt_command_call *call)
{
    const struct profile_command *command = call->target;
    struct tt_run_figures figures;
    struct tt_str text = {0};
    TT_TRY(tt_run_figures_read(call->argv[0], &figures));
    tt_status status = command->json ? format_json(&figures, &text) : format(&figures, &text);
    if (status == TT_OK)
        status = tt_report_print_wrapped(cli->report, tt_str_text(&text), command->json ? -1 : 2);
    tt_str_deinit(&text);
    tt_run_figures_deinit(&figures);
    return status;
}

static tt_status parse_words(int argc, char *const *argv, int *count)
{
    *count = 1;
    if (argc > 0 && argv[0][0] != '-') return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE, "profile needs the folder of a run");
    tt_hint("trimtab profile%s", usage);
    return status;
}

const struct tt_command_ops tt_cmd_profile = {
    .usage = usage,
    .sections = list_sections,
    .target_bytes = sizeof(struct profile_command),
    .parse_words = parse_words,
    .run = run,
};
