/* The plan device: the checks of all ops, addresses without memory, counts of bytes. A training step that
 * runs here tells what the same step will need on a real device. */
#include <stdio.h>
#include <string.h>

#include "backend/device_impl.h"
#include "backend/plan/plan_ops.h"
#include "base/alloc.h"

enum { ALIGNMENT = 256 };

struct plan {
    uintptr_t next; /* the next made-up address */
};

/* Where no process is given memory, so that a read or write faults at once. */
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
    struct plan *plan = tt_calloc(1, sizeof *plan);
    if (plan == NULL) return TT_ERR_MEMORY;
    plan->next = first_address;
    device->chip = chip;
    device->is_host = strcmp(chip->kind, "cpu") == 0;
    device->impl = plan;
    device->is_plan = true;
    device->threads = config->threads > 0 ? config->threads : 1;
    snprintf(device->name, sizeof device->name, "plan (no compute, no memory)");
    return TT_OK;
}

static void plan_close(struct tt_device *device)
{
    tt_free(device->impl);
}

/* Addresses are never used twice, so a view of a destroyed buffer cannot seem to lie in a new one. */
static tt_status plan_allocate(struct tt_device *device, size_t bytes, void **data)
{
    struct plan *plan = device->impl;
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
    *impl = NULL;
    return TT_OK;
}

static tt_status plan_stream_create(struct tt_device *device, enum tt_stream_kind kind, void **impl)
{
    (void)kind;
    return plan_create(device, impl);
}

static void plan_destroy(struct tt_device *device, void *impl)
{
    (void)device, (void)impl;
}

static tt_status plan_synchronize(struct tt_stream *stream)
{
    (void)stream;
    return TT_OK;
}

static tt_status plan_record(struct tt_event *event, struct tt_stream *stream)
{
    (void)event, (void)stream;
    return TT_OK;
}

static tt_status plan_wait(struct tt_stream *stream, struct tt_event *event)
{
    (void)stream, (void)event;
    return TT_OK;
}

static tt_status plan_copy(struct tt_stream *stream, void *to, const void *from, size_t bytes, int direction)
{
    (void)stream, (void)to, (void)from, (void)bytes, (void)direction;
    return TT_OK;
}

static tt_status plan_fill_zero(struct tt_stream *stream, void *data, size_t bytes)
{
    (void)stream, (void)data, (void)bytes;
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
    .stream_destroy = plan_destroy,
    .stream_synchronize = plan_synchronize,
    .event_create = plan_create,
    .event_destroy = plan_destroy,
    .event_record = plan_record,
    .stream_wait = plan_wait,
    .copy = plan_copy,
    .fill_zero = plan_fill_zero,
    .ops = &tt_plan_op_table,
};
