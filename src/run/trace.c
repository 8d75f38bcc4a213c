#include "run/trace.h"

#include <stdio.h>

#include "base/file.h"
#include "base/log.h"

enum { LANE_PHASES, LANE_COMPUTE, LANE_COPY, LANE_COUNT };

void tt_trace_init(struct tt_trace *trace, int rank, const char *output_dir)
{
    *trace = (struct tt_trace){.rank = rank, .output_dir = output_dir};
}

/* Microseconds since the first traced step, as the format wants them. */
static void add_event(struct tt_trace *trace, const char *name, int lane, double start, double seconds)
{
    if (trace->failed) return;
    trace->failed =
        tt_str_printf(&trace->events,
                      ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f}",
                      name, trace->rank, lane, (start - trace->origin) * 1e6, seconds * 1e6) != TT_OK;
}

static void on_span(void *context, enum tt_op span, int lane, double start, double seconds)
{
    add_event(context, tt_op_name(span), lane == 0 ? LANE_COMPUTE : LANE_COPY, start, seconds);
}

static void on_phase(void *context, enum tt_phase phase, double start, double seconds)
{
    static const char *const names[TT_PHASE_COUNT] = {
        [TT_PHASE_DATA] = "data",
        [TT_PHASE_GATHER] = "gather",
        [TT_PHASE_FORWARD] = "forward",
        [TT_PHASE_BACKWARD] = "backward",
        [TT_PHASE_REDUCE] = "reduce",
        [TT_PHASE_DEVICE] = "wait for the device",
        [TT_PHASE_RANKS] = "wait for ranks",
        [TT_PHASE_OPTIMIZER] = "optimizer",
        [TT_PHASE_SAVE] = "wait for a save",
    };
    add_event(context, names[phase], LANE_PHASES, start, seconds);
}

static tt_status write_trace(const struct tt_trace *trace, const char *path)
{
    static const char *const lanes[LANE_COUNT] = {"phases (host)", "ops", "copies and collectives"};
    struct tt_str text = {0};
    tt_status status = TT_OK;
    TT_GO(tt_str_printf(&text,
                        "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"name\":\"process_name\",\"ph\":"
                        "\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}",
                        trace->rank, trace->rank));
    for (int lane = 0; lane < LANE_COUNT; lane++)
        TT_GO(tt_str_printf(
            &text,
            ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":"
            "\"%s\"}}",
            trace->rank, lane, lanes[lane]));
    TT_GO(tt_str_append(&text, tt_str_text(&trace->events), trace->events.bytes));
    TT_GO(tt_str_append_text(&text, "\n]}\n"));
    TT_GO(tt_file_write_atomic(path, text.data, text.bytes));
out:
    tt_str_deinit(&text);
    return status;
}

static void finish(struct tt_trace *trace, struct tt_device *device)
{
    struct tt_path path;
    char name[48] = "trace.json";
    tt_device_trace(device, NULL, NULL); /* reads the last spans */
    trace->records = false;
    trace->written = true;
    if (trace->rank > 0) snprintf(name, sizeof name, "ranks/trace-%d.json", trace->rank);
    tt_status status = trace->failed ? TT_ERR_MEMORY : tt_path_set(&path, trace->output_dir, name);
    if (status == TT_OK) status = write_trace(trace, path.text);
    if (status != TT_OK) {
        tt_warn("%s; there is no trace of rank %d", tt_error_last()->message, trace->rank);
        tt_error_clear();
    }
    tt_str_deinit(&trace->events);
}

void tt_trace_step(struct tt_trace *trace, struct tt_device *device, int64_t number)
{
    if (number == TT_TRACE_SKIPPED) {
        trace->origin = tt_clock_seconds();
        trace->records = true;
        tt_device_trace(device, on_span, trace);
    }
    if (trace->records && number == TT_TRACE_SKIPPED + TT_TRACE_STEPS) finish(trace, device);
}

tt_phase_sink *tt_trace_phases(const struct tt_trace *trace)
{
    return trace->records ? on_phase : NULL;
}

void tt_trace_close(struct tt_trace *trace, struct tt_device *device)
{
    if (trace->records) finish(trace, device);
    tt_str_deinit(&trace->events);
}
