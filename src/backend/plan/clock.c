/* Time on the plan device: what an op, a copy or a collective adds to the clock of its stream. */
#include "backend/plan/plan_ops.h"

/* The time of an empty kernel and of an empty collective. */
static const double launch_seconds = 4e-6, collective_seconds = 20e-6;
/* The slowdown of compute beside a transfer, in copies of the transferred bytes, by the copy engine beside products:
 * from other GPUs (four H200s: 4.5 in bf16, 5.9 in FP8, 2.4 with 70 billion parameters), and from or to the host. */
static const double link_drag = 4.0, host_drag = 1.5;

/* Advances a stream by `seconds`. Where the device is the host, the calling thread does the work, so the host's
 * clock advances too. */
static void advance(struct tt_stream *stream, double seconds)
{
    struct tt_device *device = stream->device;
    struct tt_plan_state *plan = device->impl;
    struct tt_plan_clock *clock = stream->impl;
    if (clock->seconds < plan->host_seconds) clock->seconds = plan->host_seconds;
    clock->seconds += seconds;
    if (device->is_host) plan->host_seconds = clock->seconds;
    if (device->planned_seconds < clock->seconds) device->planned_seconds = clock->seconds;
}

void tt_plan_spend(struct tt_stream *stream, double flops, double flops_rate, double bytes)
{
    struct tt_plan_state *plan = stream->device->impl;
    const struct tt_chip *chip = stream->device->chip;
    double seconds = flops / flops_rate, moving = bytes / chip->memory_bytes_per_second;
    if (seconds < moving) seconds = moving;
    if (seconds < launch_seconds && !stream->device->is_host) seconds = launch_seconds;
    if (stream->kind == TT_STREAM_COMPUTE) {
        plan->work_seconds += seconds;
        seconds += plan->drag_seconds;
        plan->drag_seconds = 0.0;
    }
    advance(stream, seconds);
}

static void transfer(struct tt_stream *stream, double dragged, double seconds, double least)
{
    struct tt_plan_state *plan = stream->device->impl;
    bool is_host = stream->device->is_host;
    if (!is_host) plan->drag_seconds += dragged / stream->device->chip->memory_bytes_per_second;
    advance(stream, seconds + (is_host ? 0.0 : least));
}

void tt_plan_spend_copy(struct tt_stream *stream, size_t bytes)
{
    double seconds = (double)bytes / stream->device->chip->host_bytes_per_second;
    transfer(stream, host_drag * (double)bytes, seconds, launch_seconds);
}

tt_status tt_plan_receive(struct tt_stream *stream, size_t bytes, size_t network_bytes, int sources)
{
    const struct tt_plan_state *plan = stream->device->impl;
    const struct tt_chip *chip = stream->device->chip;
    double rate = sources > 1 ? chip->links_bytes_per_second : chip->link_bytes_per_second;
    double inside = (double)bytes / rate, outside = (double)network_bytes / plan->network_bytes_per_second;
    transfer(stream, link_drag * (double)bytes, inside > outside ? inside : outside, collective_seconds);
    return TT_OK;
}

double tt_plan_seconds(const struct tt_device *device)
{
    return device->planned_seconds;
}

double tt_plan_work_seconds(const struct tt_device *device)
{
    return ((const struct tt_plan_state *)device->impl)->work_seconds;
}

void tt_plan_record_convolutions(struct tt_device *device, struct tt_conv2d_requests *requests)
{
    ((struct tt_plan_state *)device->impl)->convolutions = requests;
}

tt_status tt_plan_record_convolution(struct tt_stream *stream, const struct tt_conv2d_request *request)
{
    const struct tt_plan_state *plan = stream->device->impl;
    return plan->convolutions != NULL ? tt_conv2d_requests_add(plan->convolutions, request) : TT_OK;
}
