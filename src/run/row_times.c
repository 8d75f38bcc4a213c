#include "run/row_times.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/chips.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/number.h"
#include "engine/plan.h"
#include "run/record_file.h"

static const double sensor_seconds = 0.2;

void tt_row_times_init(struct tt_row_times *times, const struct tt_objective *objective, int rank, int ranks,
                       const char *output_dir, double flops)
{
    struct tt_path folder, path;
    char name[40];
    double now = tt_clock_seconds();
    *times = (struct tt_row_times){.rank = rank, .ranks = ranks, .begun = now, .start = now, .flops = flops};
    times->unit = tt_objective_unit(objective);
    if (rank == 0) return;
    snprintf(name, sizeof name, "rank-%d.jsonl", rank);
    tt_status status = tt_path_set(&folder, output_dir, "ranks");
    if (status == TT_OK) status = tt_path_set(&path, folder.text, name);
    if (status == TT_OK) status = tt_dir_create(folder.text);
    if (status == TT_OK) status = tt_record_file_create(path.text, &times->file);
    if (status != TT_OK)
        tt_warn("%s; training continues without the times of rank %d", tt_error_last()->message, rank);
}

void tt_row_times_deinit(struct tt_row_times *times)
{
    tt_record_file_close(times->file);
    times->file = NULL;
}

void tt_row_times_step(struct tt_row_times *times, const struct tt_phases *phases, double seconds,
                       double tokens)
{
    for (int i = 0; i < TT_PHASE_COUNT; i++) times->phases[i] += phases->seconds[i];
    times->stretches[TT_STRETCH_STEP] += seconds;
    times->totals[TT_STRETCH_STEP] += seconds;
    times->tokens += tokens;
    times->steps++;
}

void tt_row_times_stretch(struct tt_row_times *times, enum tt_stretch stretch, double start)
{
    double seconds = tt_clock_seconds() - start;
    times->stretches[stretch] += seconds;
    times->totals[stretch] += seconds;
}

static void add(struct tt_log_field *fields, int *count, const char *name, double value)
{
    if (*count < TT_ROW_TIMES_MAX) fields[(*count)++] = (struct tt_log_field){name, value};
}

/* Where the device queues its work, the host's times of queueing are one number. */
static void add_phases(const struct tt_row_times *times, bool queues, double steps,
                       struct tt_log_field *fields, int *count)
{
    static const char *const names[TT_PHASE_COUNT] = {
        [TT_PHASE_DATA] = "data_seconds",       [TT_PHASE_GATHER] = "gather_seconds",
        [TT_PHASE_FORWARD] = "forward_seconds", [TT_PHASE_BACKWARD] = "backward_seconds",
        [TT_PHASE_REDUCE] = "reduce_seconds",   [TT_PHASE_DEVICE] = "device_wait_seconds",
        [TT_PHASE_RANKS] = "rank_wait_seconds", [TT_PHASE_OPTIMIZER] = "optimizer_seconds",
        [TT_PHASE_SAVE] = "save_wait_seconds",
    };
    double queueing = 0.0;
    add(fields, count, "step_seconds", times->stretches[TT_STRETCH_STEP] / steps);
    for (int i = 0; i < TT_PHASE_COUNT; i++) {
        bool queued = queues && ((i >= TT_PHASE_GATHER && i <= TT_PHASE_REDUCE) || i == TT_PHASE_OPTIMIZER);
        if (queued)
            queueing += times->phases[i];
        else
            add(fields, count, names[i], times->phases[i] / steps);
    }
    if (queues) add(fields, count, "queue_seconds", queueing / steps);
}

const char *tt_row_times_purpose(enum tt_purpose purpose)
{
    return purpose == TT_PURPOSE_WEIGHTS ? "weights" : tt_plan_purpose_key(purpose);
}

/* Bytes of one rank's device by purpose, at their peak. Their names stay in `times`. */
static void add_memory(struct tt_row_times *times, struct tt_device *device, struct tt_log_field *fields,
                       int *count)
{
    struct tt_memory_use memory;
    tt_device_memory(device, &memory);
    for (int p = 0; p < TT_PURPOSE_COUNT; p++) {
        char *name = times->memory_names[p];
        tt_snprintf(name, sizeof times->memory_names[p], "%s_bytes",
                    tt_row_times_purpose((enum tt_purpose)p));
        if (memory.peak[p] > 0) add(fields, count, name, (double)memory.peak[p]);
    }
    add(fields, count, "device_bytes", (double)memory.total_peak);
    if (memory.host_total > 0) add(fields, count, "host_bytes", (double)memory.host_total);
}

void tt_row_times_profile(struct tt_row_times *times, struct tt_device *device)
{
    struct tt_device_sensors sensors;
    tt_device_profile(device, true);
    tt_device_read_sensors(device, &sensors);
    times->profiles = true;
    times->joules = sensors.joules;
}

/* Time of a step by op, on the device's clock. Ops of one stream do not overlap, gathers and reduces do. */
static void add_ops(struct tt_row_times *times, struct tt_device *device, double steps,
                    struct tt_log_field *fields, int *count)
{
    const struct tt_op_time *ops = tt_device_op_times(device);
    for (int i = 0; i < TT_SPAN_COUNT; i++) {
        double seconds = ops[i].seconds - times->ops[i].seconds;
        if (ops[i].calls > times->ops[i].calls) {
            tt_snprintf(times->op_names[i], sizeof times->op_names[i], "op_%s_seconds",
                        tt_op_name((enum tt_op)i));
            add(fields, count, times->op_names[i], seconds / steps);
        }
        times->ops[i] = ops[i];
    }
}

/* Power: the mean since the last row where the device counts its energy, otherwise that of this moment. GPUs update the
 * count every 20 to 100 ms, so rows of less time have the power of this moment too. */
static void add_sensors(struct tt_row_times *times, struct tt_device *device, double seconds,
                        struct tt_log_field *fields, int *count)
{
    struct tt_device_sensors now;
    tt_device_read_sensors(device, &now);
    double joules = now.joules - times->joules; /* a counter that has begun again is less */
    double watts = joules >= 0 && seconds > 0 ? joules / seconds : now.watts;
    if (seconds < sensor_seconds && isfinite(now.watts)) watts = now.watts;
    if (isfinite(watts)) add(fields, count, "watts", watts);
    if (isfinite(now.clock_mhz)) add(fields, count, "clock_mhz", now.clock_mhz);
    if (isfinite(now.clock_max_mhz)) add(fields, count, "clock_max_mhz", now.clock_max_mhz);
    if (isfinite(now.celsius)) add(fields, count, "celsius", now.celsius);
    times->joules = now.joules;
}

int tt_row_times_take(struct tt_row_times *times, struct tt_device *device, double flops,
                      struct tt_log_field fields[TT_ROW_TIMES_MAX])
{
    int count = 0;
    double now = tt_clock_seconds(), steps = times->steps > 0 ? (double)times->steps : 1.0;
    double seconds = times->stretches[TT_STRETCH_STEP];
    const struct tt_chip *chip = tt_device_chip(device);
    add_phases(times, !tt_device_is_host(device), steps, fields, &count);
    add(fields, &count, "save_stall_seconds", times->stretches[TT_STRETCH_SAVE] / steps);
    add(fields, &count, "evaluate_seconds", times->stretches[TT_STRETCH_EVALUATE] / steps);
    add(fields, &count, "wall_seconds", (now - times->begun) / steps);
    if (seconds > 0) {
        double rate = (flops - times->flops) / seconds;
        add(fields, &count, "model_tflops", rate / 1e12);
        if (chip != NULL && chip->peak_flops > 0)
            add(fields, &count, "mfu", rate / (chip->peak_flops * times->ranks));
    }
    add_memory(times, device, fields, &count);
    if (times->profiles) add_ops(times, device, steps, fields, &count);
    if (times->profiles) add_sensors(times, device, now - times->begun, fields, &count);
    memset(times->phases, 0, sizeof times->phases);
    memset(times->stretches, 0, sizeof times->stretches);
    times->begun = now;
    times->flops = flops;
    times->tokens = 0.0;
    times->steps = 0;
    return count;
}

void tt_row_times_write(struct tt_row_times *times, struct tt_device *device, double flops, int64_t step)
{
    struct tt_log_field fields[TT_ROW_TIMES_MAX];
    struct tt_str line = {0};
    char speed[48];
    struct tt_json_value *row = tt_json_pack("{s:i, s:I}", "rank", times->rank, "step", step);
    double tokens = times->tokens, seconds = times->stretches[TT_STRETCH_STEP];
    int count = tt_row_times_take(times, device, flops, fields);
    for (int i = 0; i < count; i++) {
        bool whole = tt_ends_with(fields[i].name, "_bytes");
        tt_json_set(row, fields[i].name,
                    whole ? tt_json_new_integer((int64_t)fields[i].value)
                          : tt_json_new_real(fields[i].value));
    }
    snprintf(speed, sizeof speed, "%s_per_second", times->unit);
    tt_json_set(row, speed, tt_json_new_real(seconds > 0 ? tokens / seconds : 0));
    tt_status status = tt_json_write(row, 0, true, &line);
    if (status == TT_OK) status = tt_str_append_char(&line, '\n');
    if (status == TT_OK && times->file != NULL) tt_record_file_append(times->file, line.data, line.bytes);
    if (status != TT_OK)
        tt_warn("there is no memory for the times of rank %d at step %lld; training continues", times->rank,
                (long long)step);
    tt_str_deinit(&line);
    tt_json_release(row);
}

int tt_row_times_totals(const struct tt_row_times *times, double end,
                        struct tt_log_field fields[TT_ROW_TIMES_MAX])
{
    int count = 0;
    const double *totals = times->totals;
    double all = end - times->start;
    double known = totals[TT_STRETCH_STEP] + totals[TT_STRETCH_SAVE] + totals[TT_STRETCH_EVALUATE];
    add(fields, &count, "steps_total_seconds", totals[TT_STRETCH_STEP]);
    add(fields, &count, "save_stall_total_seconds", totals[TT_STRETCH_SAVE]);
    add(fields, &count, "evaluate_total_seconds", totals[TT_STRETCH_EVALUATE]);
    add(fields, &count, "other_total_seconds", all > known ? all - known : 0.0);
    return count;
}
