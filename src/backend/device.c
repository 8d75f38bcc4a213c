#include "backend/device.h"

#include <assert.h>

#include "backend/chips.h"
#include "backend/device_impl.h"
#include "backend/plugin.h"
#include "base/alloc.h"
#include "base/str.h"

struct tt_buffer {
    struct tt_device *device;
    enum tt_purpose purpose;
    bool host; /* page-locked host memory, not device memory */
    size_t bytes;
    void *data;
};

const struct tt_device_tuning *tt_device_tuning_of(const struct tt_device *device)
{
    return &device->tuning;
}

static const char *const purpose_names[TT_PURPOSE_COUNT] = {
    [TT_PURPOSE_WEIGHTS] = "weights shard",
    [TT_PURPOSE_ADAPTERS] = "adapter masters",
    [TT_PURPOSE_OPTIMIZER] = "optimizer state",
    [TT_PURPOSE_GRADIENTS] = "gradients",
    [TT_PURPOSE_GATHER] = "gathered units",
    [TT_PURPOSE_ACTIVATIONS] = "activations",
    [TT_PURPOSE_BATCH] = "batch",
    [TT_PURPOSE_COMM] = "communication",
    [TT_PURPOSE_STAGING] = "staging",
    [TT_PURPOSE_OFFLOAD] = "offloaded to the host",
    [TT_PURPOSE_PANELS] = "packed weights",
    [TT_PURPOSE_SCRATCH] = "device scratch",
    [TT_PURPOSE_CONTEXT] = "device context",
};

const char *tt_purpose_name(enum tt_purpose purpose)
{
    if ((unsigned)purpose >= TT_PURPOSE_COUNT) return "unknown purpose";
    return purpose_names[purpose];
}

void tt_device_close(struct tt_device *device)
{
    if (device == NULL) return;
    device->table->close(device);
    assert(device->memory.total_current == 0 && "a buffer outlives its device");
    tt_free(device);
}

const char *tt_device_kind(const struct tt_device *device)
{
    return device->table->kind;
}

const char *tt_device_name(const struct tt_device *device)
{
    return device->name;
}

bool tt_device_is_plan(const struct tt_device *device)
{
    return device->is_plan;
}

const struct tt_chip *tt_device_chip(const struct tt_device *device)
{
    return device->chip;
}

bool tt_device_multiplies_fp8(const struct tt_device *device)
{
    return device->is_host || device->chip == NULL || device->chip->fp8_flops > 0;
}

bool tt_device_is_host(const struct tt_device *device)
{
    return device->is_host;
}

bool tt_device_reach(struct tt_device *device, int index)
{
    if (device->is_host) return true;
    const struct tt_plugin *plugin = device->is_plan ? NULL : tt_plugin_load(NULL, 0);
    return plugin != NULL && (index == device->index || plugin->enable_peer(device->index, index));
}

int tt_device_index(const struct tt_device *device)
{
    return device->index;
}

size_t tt_device_used_bytes(struct tt_device *device)
{
    return device->table->used_bytes != NULL ? device->table->used_bytes(device) : 0;
}

void tt_device_set_watch(struct tt_device *device, tt_device_check *check, void *context)
{
    device->check = check;
    device->check_context = context;
}

int tt_device_threads(const struct tt_device *device)
{
    return device->threads;
}

void tt_device_memory(const struct tt_device *device, struct tt_memory_use *out)
{
    *out = device->memory;
}

void tt_device_freeze(struct tt_device *device, bool frozen)
{
    device->frozen = frozen;
}

tt_status tt_device_take(struct tt_device *device, enum tt_purpose purpose, size_t bytes)
{
    struct tt_memory_use *memory = &device->memory;
    size_t limit = device->memory_limit != 0 ? device->memory_limit : SIZE_MAX;
    if (memory->total_current > limit || bytes > limit - memory->total_current) {
        char need[32], used[32], most[32];
        tt_fail(TT_ERR_MEMORY, "%s need %s more, but %s of %s are in use on %s", tt_purpose_name(purpose),
                tt_format_bytes((double)bytes, need, sizeof need),
                tt_format_bytes((double)memory->total_current, used, sizeof used),
                tt_format_bytes((double)limit, most, sizeof most), device->name);
        return TT_ERR_MEMORY;
    }
    memory->current[purpose] += bytes;
    memory->total_current += bytes;
    if (memory->peak[purpose] < memory->current[purpose]) memory->peak[purpose] = memory->current[purpose];
    if (memory->total_peak < memory->total_current) memory->total_peak = memory->total_current;
    return TT_OK;
}

void tt_device_give_back(struct tt_device *device, enum tt_purpose purpose, size_t bytes)
{
    assert(device->memory.current[purpose] >= bytes);
    device->memory.current[purpose] -= bytes;
    device->memory.total_current -= bytes;
}

static tt_status create(struct tt_device *device, size_t bytes, enum tt_purpose purpose, bool host,
                        struct tt_buffer **out)
{
    if (device->frozen && !(host && purpose == TT_PURPOSE_STAGING)) {
        return tt_fail(TT_ERR_INTERNAL, "%zu bytes for %s are requested after the device was frozen", bytes,
                       tt_purpose_name(purpose));
    }
    struct tt_buffer *buffer = tt_calloc(1, sizeof *buffer);
    if (buffer == NULL) return TT_ERR_MEMORY;
    tt_status status = host ? TT_OK : tt_device_take(device, purpose, bytes);
    if (status != TT_OK) {
        tt_free(buffer);
        return status;
    }
    const struct tt_device_table *table = device->table;
    status = host ? table->allocate_host(device, bytes, &buffer->data)
                  : table->allocate(device, bytes, &buffer->data);
    if (status != TT_OK) {
        tt_while("creating a %sbuffer for %s", host ? "host " : "", tt_purpose_name(purpose));
        if (!host) tt_device_give_back(device, purpose, bytes);
        tt_free(buffer);
        return status;
    }
    if (host) {
        device->memory.host[purpose] += bytes;
        device->memory.host_total += bytes;
    }
    buffer->device = device;
    buffer->purpose = purpose;
    buffer->host = host;
    buffer->bytes = bytes;
    *out = buffer;
    return TT_OK;
}

tt_status tt_buffer_create(struct tt_device *device, size_t bytes, enum tt_purpose purpose,
                           struct tt_buffer **out)
{
    return create(device, bytes, purpose, false, out);
}

tt_status tt_host_buffer_create(struct tt_device *device, size_t bytes, enum tt_purpose purpose,
                                struct tt_buffer **out)
{
    return create(device, bytes, purpose, true, out);
}

void tt_buffer_destroy(struct tt_buffer *buffer)
{
    if (buffer == NULL) return;
    struct tt_device *device = buffer->device;
    if (buffer->host) {
        device->table->release_host(device, buffer->data, buffer->bytes);
        device->memory.host[buffer->purpose] -= buffer->bytes;
        device->memory.host_total -= buffer->bytes;
    } else {
        device->table->release(device, buffer->data, buffer->bytes);
        tt_device_give_back(device, buffer->purpose, buffer->bytes);
    }
    tt_free(buffer);
}

tt_status tt_buffer_export(const struct tt_buffer *buffer, struct tt_memory_handle *handle)
{
    struct tt_device *device = buffer->device;
    if (device->table->export_memory != NULL && !buffer->host)
        return device->table->export_memory(device, buffer->data, handle);
    return tt_fail(TT_ERR_UNSUPPORTED, "memory of %s cannot be read by other processes", device->name);
}

tt_status tt_device_import(struct tt_device *device, const struct tt_memory_handle *handle, void **data)
{
    if (device->table->import_memory != NULL) return device->table->import_memory(device, handle, data);
    return tt_fail(TT_ERR_UNSUPPORTED, "%s cannot read memory of other processes", device->name);
}

void tt_device_unimport(struct tt_device *device, void *data)
{
    if (data != NULL) device->table->unimport_memory(device, data);
}

void *tt_buffer_data(const struct tt_buffer *buffer)
{
    return buffer->data;
}

size_t tt_buffer_bytes(const struct tt_buffer *buffer)
{
    return buffer->bytes;
}

static tt_status create_stream(struct tt_device *device, enum tt_stream_kind kind, struct tt_stream **out)
{
    struct tt_stream *stream = tt_calloc(1, sizeof *stream);
    if (stream == NULL) return TT_ERR_MEMORY;
    stream->device = device;
    stream->kind = kind;
    tt_status status = device->table->stream_create(device, kind, &stream->impl);
    if (status != TT_OK) {
        tt_free(stream);
        return status;
    }
    *out = stream;
    return TT_OK;
}

tt_status tt_stream_create(struct tt_device *device, struct tt_stream **out)
{
    return create_stream(device, TT_STREAM_COMPUTE, out);
}

tt_status tt_stream_create_copy(struct tt_device *device, struct tt_stream **out)
{
    return create_stream(device, TT_STREAM_COPY, out);
}

void tt_stream_mark(struct tt_stream *stream, const char *what)
{
    if (stream->device->table->mark != NULL) stream->device->table->mark(stream, what);
}

void tt_stream_destroy(struct tt_stream *stream)
{
    if (stream == NULL) return;
    stream->device->table->stream_destroy(stream->device, stream->impl);
    tt_free(stream);
}

struct tt_device *tt_stream_device(const struct tt_stream *stream)
{
    return stream->device;
}

tt_status tt_stream_synchronize(struct tt_stream *stream)
{
    return stream->device->table->stream_synchronize(stream);
}

tt_status tt_event_create(struct tt_device *device, struct tt_event **out)
{
    struct tt_event *event = tt_calloc(1, sizeof *event);
    if (event == NULL) return TT_ERR_MEMORY;
    event->device = device;
    tt_status status = device->table->event_create(device, &event->impl);
    if (status != TT_OK) {
        tt_free(event);
        return status;
    }
    *out = event;
    return TT_OK;
}

void tt_event_destroy(struct tt_event *event)
{
    if (event == NULL) return;
    event->device->table->event_destroy(event->device, event->impl);
    tt_free(event);
}

tt_status tt_event_record(struct tt_event *event, struct tt_stream *stream)
{
    return stream->device->table->event_record(event, stream);
}

tt_status tt_stream_wait(struct tt_stream *stream, struct tt_event *event)
{
    return stream->device->table->stream_wait(stream, event);
}

tt_status tt_event_synchronize(struct tt_event *event)
{
    struct tt_device *device = event->device;
    if (device->table->event_synchronize != NULL) return device->table->event_synchronize(event);
    if (device->is_host || device->is_plan) return TT_OK;
    return tt_fail(TT_ERR_INTERNAL, "a device of kind '%s' cannot wait for an event", device->table->kind);
}

tt_status tt_event_query(struct tt_event *event, bool *done)
{
    struct tt_device *device = event->device;
    *done = true;
    if (device->table->event_query != NULL) return device->table->event_query(event, done);
    if (device->is_host || device->is_plan) return TT_OK;
    return tt_fail(TT_ERR_INTERNAL, "a device of kind '%s' cannot query an event", device->table->kind);
}

bool tt_device_has_graphs(const struct tt_device *device)
{
    return device->table->graph_begin != NULL;
}

tt_status tt_graph_begin(struct tt_stream *stream)
{
    struct tt_device *device = stream->device;
    if (device->table->graph_begin != NULL) return device->table->graph_begin(stream);
    return tt_fail(TT_ERR_INTERNAL, "a device of kind '%s' records no graphs", device->table->kind);
}

tt_status tt_graph_end(struct tt_stream *stream, struct tt_graph **out)
{
    struct tt_device *device = stream->device;
    struct tt_graph *graph = tt_calloc(1, sizeof *graph);
    void *impl = NULL;
    tt_status status = device->table->graph_end(stream, &impl); /* in any case: the stream must run again */
    if (status == TT_OK && graph == NULL) {
        device->table->graph_destroy(device, impl);
        return TT_ERR_MEMORY;
    }
    if (status != TT_OK) {
        tt_free(graph);
        return status;
    }
    *graph = (struct tt_graph){.device = device, .impl = impl};
    *out = graph;
    return TT_OK;
}

tt_status tt_graph_launch(struct tt_graph *graph, struct tt_stream *stream)
{
    return graph->device->table->graph_launch(stream, graph->impl);
}

void tt_graph_destroy(struct tt_graph *graph)
{
    if (graph == NULL) return;
    graph->device->table->graph_destroy(graph->device, graph->impl);
    tt_free(graph);
}

static tt_status copy(struct tt_stream *stream, void *to, const void *from, size_t bytes, int direction)
{
    if (bytes == 0) return TT_OK;
    if (to == NULL || from == NULL) {
        return tt_fail(TT_ERR_INTERNAL, "a copy of %zu bytes has no %s", bytes,
                       to == NULL ? "target" : "source");
    }
    return stream->device->table->copy(stream, to, from, bytes, direction);
}

tt_status tt_copy_to_device(struct tt_stream *stream, void *to, const void *from_host, size_t bytes)
{
    return copy(stream, to, from_host, bytes, TT_COPY_TO_DEVICE);
}

tt_status tt_copy_to_host(struct tt_stream *stream, void *to_host, const void *from, size_t bytes)
{
    return copy(stream, to_host, from, bytes, TT_COPY_TO_HOST);
}

tt_status tt_copy_on_device(struct tt_stream *stream, void *to, const void *from, size_t bytes)
{
    return copy(stream, to, from, bytes, TT_COPY_ON_DEVICE);
}

tt_status tt_fill_zero(struct tt_stream *stream, void *data, size_t bytes)
{
    if (bytes == 0) return TT_OK;
    if (data == NULL) return tt_fail(TT_ERR_INTERNAL, "a fill of %zu bytes has no target", bytes);
    return stream->device->table->fill_zero(stream, data, bytes);
}
