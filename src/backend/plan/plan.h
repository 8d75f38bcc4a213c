/* Calls of the plan device besides those of every device: time, and the convolutions of what runs on it.
 * Each stream has a clock; an op advances it by
 * an estimate from the chip's rates, and events pass it from stream to stream, as the real device's streams would wait
 * for each other. The time of a step is the latest clock. */
#ifndef TT_BACKEND_PLAN_PLAN_H
#define TT_BACKEND_PLAN_PLAN_H

#include "backend/device.h"
#include "backend/ops/conv.h"

/* A collective, or a copy from another device: this device receives `bytes` from others on this stream, `network_bytes`
 * of them over its own network link; the slower of both counts. `sources`: other devices of the machine that send at
 * once. Concurrent compute is slowed a little. */
TT_MUST_USE tt_status tt_plan_receive(struct tt_stream *stream, size_t bytes, size_t network_bytes,
                                      int sources);
/* The latest clock of the device, in seconds since it was opened. */
double tt_plan_seconds(const struct tt_device *device);
/* The time of all compute so far alone: without waits, and without what transfers beside it cost. */
double tt_plan_work_seconds(const struct tt_device *device);
/* Adds the arguments of each convolution from now on to `requests`, which outlives the device or the next call; NULL:
 * no more. */
void tt_plan_record_convolutions(struct tt_device *device, struct tt_conv2d_requests *requests);

#endif
