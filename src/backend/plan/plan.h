/* What floors above may ask of the plan device beyond what every device does: time. Each stream has a clock;
 * an op moves it by an estimate from the chip's rates, events carry it from stream to stream, as the real
 * device's streams would wait for each other. What a step takes is then where the latest clock stands.
 */
#ifndef TT_BACKEND_PLAN_PLAN_H
#define TT_BACKEND_PLAN_PLAN_H

#include "backend/device.h"

/* A collective, or a copy from another device: `bytes` that this device receives from others on this stream,
 * `network_bytes` of them over its own way to other machines; the slower of both counts. Compute that runs
 * beside it is slowed a little. */
TT_MUST_USE tt_status tt_plan_receive(struct tt_stream *stream, size_t bytes, size_t network_bytes);
/* Where the latest clock of the device stands, in seconds since it was opened. */
double tt_plan_seconds(const struct tt_device *device);

#endif
