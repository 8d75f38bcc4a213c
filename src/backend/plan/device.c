/* The plan device: it checks all ops, gives out addresses without memory, counts bytes and keeps clocks. A
 * training step on it yields the memory that the same step needs on a real device, and an estimate of its time
 * there. */
#include <stdio.h>
#include <string.h>

#include "backend/device_impl.h"
#include "backend/plan/plan_ops.h"
#include "base/alloc.h"

enum { ALIGNMENT = 256 };

/* The memory of each compute stream in cuda/cuda.h: GEMM workspace and scratch for partial sums. */
static const size_t stream_scratch_bytes = (size_t)(32 + 8) << 20;

/* No process has memory at this address, so that an access faults at once. */
static const uintptr_t first_address = (uintptr_t)1 << 53;

static tt_status plan_open(struct tt_device *device, const struct tt_device_config *config)
{
    const char *name = config->stands_for != NULL ? config->stands_for : "cpu";
    const struct tt_chip *chip = tt_chip_find(name);
    if (chip == NULL) {
        tt_fail(TT_ERR_USAGE, "no chip is called '%s'", name);
        tt_hint("known are %s", tt_chip_names());
        return TT_ERR_USAGE;
    }
    struct tt_plan_state *plan = tt_calloc(1, sizeof *plan);
    if (plan == NULL) return TT_ERR_MEMORY;
    plan->next = first_address;
    plan->network_bytes_per_second = config->network_bytes_per_second > 0.0 ? config->network_bytes_per_second
                                                                            : chip->network_bytes_per_second;
    device->chip = chip;
    device->is_host = strcmp(chip->kind, "cpu") == 0;
    device->impl = plan;
    device->is_plan = true;
    device->threads = config->threads > 0 ? config->threads : 1;
    size_t context_bytes = device->is_host ? 0 : tt_chip_context_bytes(chip);
    tt_status status = tt_device_take(device, TT_PURPOSE_CONTEXT, context_bytes);
    if (status != TT_OK) {
        tt_free(plan);
        return status;
    }
    snprintf(device->name, sizeof device->name, "plan (no compute, no memory)");
    return TT_OK;
}

static void plan_close(struct tt_device *device)
{
    tt_device_give_back(device, TT_PURPOSE_CONTEXT, device->memory.current[TT_PURPOSE_CONTEXT]);
    tt_free(device->impl);
}

/* Addresses are never reused, so a view of a destroyed buffer cannot appear to be inside a new one. */
static tt_status plan_allocate(struct tt_device *device, size_t bytes, void **data)
{
    struct tt_plan_state *plan = device->impl;
    uintptr_t end;
    if (__builtin_add_overflow(plan->next, (uintptr_t)bytes, &end) || end > UINTPTR_MAX - ALIGNMENT) {
        return tt_fail(TT_ERR_MEMORY, "the plan has no addresses left for %zu bytes", bytes);
    }
    *data = (void *)plan->next;
    plan->next = (end + ALIGNMENT) & ~(uintptr_t)(ALIGNMENT - 1);
    return TT_OK;
}

static void plan_release(struct tt_device *device, void *data, size_t bytes)
{
    (void)device, (void)data, (void)bytes;
}

static tt_status plan_create(struct tt_device *device, void **impl)
{
    (void)device;
    *impl = tt_calloc(1, sizeof(struct tt_plan_clock));
    return *impl != NULL ? TT_OK : TT_ERR_MEMORY;
}

static void plan_destroy(struct tt_device *device, void *impl)
{
    (void)device;
    tt_free(impl);
}

struct plan_stream {
    struct tt_plan_clock clock; /* must be first: a stream is used as its clock */
    enum tt_stream_kind kind;
};

static tt_status plan_stream_create(struct tt_device *device, enum tt_stream_kind kind, void **impl)
{
    struct plan_stream *stream = tt_calloc(1, sizeof *stream);
    if (stream == NULL) return TT_ERR_MEMORY;
    stream->kind = kind;
    tt_status status = TT_OK;
    if (kind == TT_STREAM_COMPUTE && !device->is_host)
        status = tt_device_take(device, TT_PURPOSE_SCRATCH, stream_scratch_bytes);
    if (status != TT_OK) {
        tt_free(stream);
        return status;
    }
    *impl = stream;
    return TT_OK;
}

static void plan_stream_destroy(struct tt_device *device, void *impl)
{
    const struct plan_stream *stream = impl;
    if (stream->kind == TT_STREAM_COMPUTE && !device->is_host)
        tt_device_give_back(device, TT_PURPOSE_SCRATCH, stream_scratch_bytes);
    tt_free(impl);
}

static tt_status plan_synchronize(struct tt_stream *stream)
{
    struct tt_plan_state *plan = stream->device->impl;
    const struct tt_plan_clock *clock = stream->impl;
    if (plan->host_seconds < clock->seconds) plan->host_seconds = clock->seconds;
    plan->drag_seconds = 0.0; /* transfers before it slow nothing behind it */
    return TT_OK;
}

static tt_status plan_record(struct tt_event *event, struct tt_stream *stream)
{
    *(struct tt_plan_clock *)event->impl = *(const struct tt_plan_clock *)stream->impl;
    return TT_OK;
}

static tt_status plan_wait(struct tt_stream *stream, struct tt_event *event)
{
    struct tt_plan_clock *clock = stream->impl;
    const struct tt_plan_clock *until = event->impl;
    if (clock->seconds < until->seconds) clock->seconds = until->seconds;
    return TT_OK;
}

static tt_status plan_copy(struct tt_stream *stream, void *to, const void *from, size_t bytes, int direction)
{
    (void)to, (void)from;
    if (direction == TT_COPY_ON_DEVICE)
        tt_plan_spend(stream, 0.0, 1.0, 2.0 * (double)bytes);
    else
        tt_plan_spend_copy(stream, bytes);
    return TT_OK;
}

static tt_status plan_fill_zero(struct tt_stream *stream, void *data, size_t bytes)
{
    (void)data;
    tt_plan_spend(stream, 0.0, 1.0, (double)bytes);
    return TT_OK;
}

const struct tt_device_table tt_plan_device_table = {
    .kind = "plan",
    .open = plan_open,
    .close = plan_close,
    .allocate = plan_allocate,
    .release = plan_release,
    .allocate_host = plan_allocate,
    .release_host = plan_release,
    .stream_create = plan_stream_create,
    .stream_destroy = plan_stream_destroy,
    .stream_synchronize = plan_synchronize,
    .event_create = plan_create,
    .event_destroy = plan_destroy,
    .event_record = plan_record,
    .stream_wait = plan_wait,
    .copy = plan_copy,
    .fill_zero = plan_fill_zero,
    .gemm_coded = tt_plan_gemm_coded,
    .ops = &tt_plan_op_table,
};
