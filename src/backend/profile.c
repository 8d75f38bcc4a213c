#include "backend/profile.h"

#include <math.h>
#include <string.h>

#include "backend/device_impl.h"
#include "base/clock.h"

const char *tt_op_name(enum tt_op op)
{
    static const char *const names[TT_SPAN_COUNT] = {
#define OP(name) #name,
#include "backend/ops.def"
#undef OP
        [TT_SPAN_GATHER] = "gather",
        [TT_SPAN_GATHER_WAIT] = "gather_wait",
        [TT_SPAN_REDUCE] = "reduce",
        [TT_SPAN_OFFLOAD_WAIT] = "offload_wait",
    };
    return names[op];
}

void tt_device_profile(struct tt_device *device, bool on)
{
    if (on) {
        if (device->table->spans_collect != NULL) (void)device->table->spans_collect(device);
        memset(device->spans, 0, sizeof device->spans);
    }
    device->profiles = on;
}

bool tt_device_profiles(const struct tt_device *device)
{
    return device->profiles;
}

const struct tt_op_time *tt_device_op_times(struct tt_device *device)
{
    if (device->table->spans_collect != NULL) (void)device->table->spans_collect(device);
    return device->spans;
}

void tt_device_trace(struct tt_device *device, tt_span_sink *sink, void *context)
{
    (void)tt_device_op_times(device); /* spans from before belong to nobody */
    device->span_context = context;
    device->span_sink = sink;
}

void tt_device_read_sensors(struct tt_device *device, struct tt_device_sensors *out)
{
    *out = (struct tt_device_sensors){NAN, NAN, NAN, NAN, NAN};
    if (device->table->sensors != NULL) device->table->sensors(device, out);
}

void tt_span_begin(struct tt_stream *stream, enum tt_op span)
{
    struct tt_device *device = stream->device;
    if (!device->profiles) return;
    if (device->table->span_begin != NULL)
        device->table->span_begin(stream, span);
    else
        device->span_begins[span] = tt_clock_seconds();
}

void tt_span_end(struct tt_stream *stream, enum tt_op span)
{
    struct tt_device *device = stream->device;
    if (!device->profiles) return;
    device->spans[span].calls++;
    if (device->table->span_end != NULL) {
        device->table->span_end(stream, span);
        return;
    }
    double start = device->span_begins[span], seconds = tt_clock_seconds() - start;
    device->spans[span].seconds += seconds;
    if (device->span_sink != NULL)
        device->span_sink(device->span_context, span, stream->kind == TT_STREAM_COPY, start, seconds);
}
