/* Profile of a device: time spans of a stream, one for every op, and spans marked by other floors. Counted only while
 * profiling is on. Devices that compute in the calling thread use the host's clock, others their own. */
#ifndef TT_BACKEND_PROFILE_H
#define TT_BACKEND_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

struct tt_device;

enum tt_op {
#define OP(name) TT_OP_##name,
#include "backend/ops.def"
#undef OP
    TT_OP_COUNT,
    TT_SPAN_GATHER = TT_OP_COUNT, /* a gather, on the stream that runs it */
    TT_SPAN_GATHER_WAIT,          /* compute waits for a gather: the part that was not hidden */
    TT_SPAN_REDUCE,               /* a reduce of gradients, on the stream that runs it */
    TT_SPAN_OFFLOAD_WAIT,         /* compute waits for a copy from host memory */
    TT_SPAN_COUNT
};

struct tt_op_time {
    int64_t calls;
    double seconds;
};

struct tt_stream;

const char *tt_op_name(enum tt_op op); /* "rmsnorm_forward", "gather wait" */
void tt_device_profile(struct tt_device *device, bool on);
bool tt_device_profiles(const struct tt_device *device);
/* Borrows the [TT_SPAN_COUNT] counters; switching on clears them. Call it when the streams are synchronized. */
const struct tt_op_time *tt_device_op_times(struct tt_device *device);
/* Called for every span that ends while profiling is on; for a device that queues its work when the spans are read
 * (tt_device_op_times). `lane`: 0 a compute stream, 1 a copy stream; `start` on the clock of tt_clock_seconds. NULL: no
 * calls any more. Call it when the streams are synchronized. */
typedef void tt_span_sink(void *context, enum tt_op span, int lane, double start, double seconds);
void tt_device_trace(struct tt_device *device, tt_span_sink *sink, void *context);

/* Readings of the device's own sensors; NAN: unknown. */
struct tt_device_sensors {
    double joules; /* used since some time before */
    double watts, clock_mhz, clock_max_mhz, celsius;
};
void tt_device_read_sensors(struct tt_device *device, struct tt_device_sensors *out);

/* Delimit work of one stream; no effect unless profiling is on. Spans of one kind do not overlap on one stream. */
void tt_span_begin(struct tt_stream *stream, enum tt_op span);
void tt_span_end(struct tt_stream *stream, enum tt_op span);

#endif
