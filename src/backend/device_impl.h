/* The structures of a device, for back ends only. A back end fills the two tables; the public functions of devices and
 * ops are in backend/device.c and backend/ops/, once for all back ends. */
#ifndef TT_BACKEND_DEVICE_IMPL_H
#define TT_BACKEND_DEVICE_IMPL_H

#include "backend/device.h"
#include "backend/ops/add_logits.h"
#include "backend/ops/attention.h"
#include "backend/ops/center.h"
#include "backend/ops/channels.h"
#include "backend/ops/columns.h"
#include "backend/ops/conv.h"
#include "backend/ops/conv1d.h"
#include "backend/ops/cross_entropy.h"
#include "backend/ops/detection.h"
#include "backend/ops/elementwise.h"
#include "backend/ops/embedding.h"
#include "backend/ops/expert_rows.h"
#include "backend/ops/gated_norm.h"
#include "backend/ops/gemm.h"
#include "backend/ops/gemm_dropout.h"
#include "backend/ops/gemm_fused.h"
#include "backend/ops/gemm_scaled.h"
#include "backend/ops/group_norm.h"
#include "backend/ops/grouped_gemm.h"
#include "backend/ops/latent_heads.h"
#include "backend/ops/ready_heads.h"
#include "backend/ops/log_squares.h"
#include "backend/ops/lora_gradients.h"
#include "backend/ops/noise.h"
#include "backend/ops/muon.h"
#include "backend/ops/optim.h"
#include "backend/ops/quant.h"
#include "backend/ops/rmsnorm.h"
#include "backend/ops/round_groups.h"
#include "backend/ops/route.h"
#include "backend/ops/sample.h"
#include "backend/ops/scan.h"
#include "backend/ops/sequences.h"
#include "backend/ops/swiglu.h"
#include "backend/ops/transpose.h"
#include "backend/profile.h"
#include "base/clock.h"

/* One function per op; arguments were checked, implementations may only assert. */
struct tt_op_table {
#define OP(name) tt_status (*name)(struct tt_stream * stream, const struct tt_##name##_args *args);
#include "backend/ops.def"
#undef OP
};

struct tt_kept_range;

struct tt_device_table {
    const char *kind;
    /* sets device->impl, name */
    tt_status (*open)(struct tt_device *device, const struct tt_device_config *config);
    void (*close)(struct tt_device *device);
    tt_status (*allocate)(struct tt_device *device, size_t bytes, void **data); /* zero-filled */
    void (*release)(struct tt_device *device, void *data, size_t bytes);
    /* zero-filled, page-locked */
    tt_status (*allocate_host)(struct tt_device *device, size_t bytes, void **data);
    void (*release_host)(struct tt_device *device, void *data, size_t bytes);
    /* tt_buffer_export, tt_device_import and tt_device_unimport; all NULL: no other process reads the memory */
    tt_status (*export_memory)(struct tt_device *device, void *data, struct tt_memory_handle *handle);
    tt_status (*import_memory)(struct tt_device *device, const struct tt_memory_handle *handle, void **data);
    void (*unimport_memory)(struct tt_device *device, void *data);
    size_t (*used_bytes)(struct tt_device *device); /* NULL: 0 */
    tt_status (*stream_create)(struct tt_device *device, enum tt_stream_kind kind, void **impl);
    void (*stream_destroy)(struct tt_device *device, void *impl);
    tt_status (*stream_synchronize)(struct tt_stream *stream);
    tt_status (*event_create)(struct tt_device *device, void **impl);
    void (*event_destroy)(struct tt_device *device, void *impl);
    tt_status (*event_record)(struct tt_event *event, struct tt_stream *stream);
    tt_status (*stream_wait)(struct tt_stream *stream, struct tt_event *event);
    tt_status (*event_synchronize)(struct tt_event *event); /* NULL where the calling thread does the work */
    tt_status (*event_query)(struct tt_event *event, bool *done); /* NULL likewise; from any thread */
    tt_status (*copy)(struct tt_stream *stream, void *to, const void *from, size_t bytes, int direction);
    tt_status (*fill_zero)(struct tt_stream *stream, void *data, size_t bytes);
    void (*mark)(struct tt_stream *stream, const char *what); /* NULL: nothing */
    tt_status (*graph_begin)(struct tt_stream *stream);       /* NULL, as the next three: no graphs */
    tt_status (*graph_end)(struct tt_stream *stream, void **impl);
    tt_status (*graph_launch)(struct tt_stream *stream, void *impl);
    void (*graph_destroy)(struct tt_device *device, void *impl);
    /* Time spans in stream order (profile.h); NULL where the calling thread does the work. `end` of a span follows its
     * `begin` on the same stream; spans of one stream nest or follow each other. collect adds all finished spans to
     * device->spans, after the host has synchronized. */
    void (*span_begin)(struct tt_stream *stream, int span);
    void (*span_end)(struct tt_stream *stream, int span);
    tt_status (*spans_collect)(struct tt_device *device);
    void (*sensors)(struct tt_device *device, struct tt_device_sensors *out); /* NULL: nothing is known */
    /* backend/kept.h; `memory` NULL: drops all. NULL: the device packs nothing */
    tt_status (*keep_panels)(struct tt_device *device, void *memory, size_t bytes,
                             const struct tt_kept_range *ranges, size_t count);
    /* gemm_lora in one kernel with a w that is multiplied coded and rows that are made. TT_ERR_UNSUPPORTED without a
     * record: the caller composes it. NULL: always composed */
    tt_status (*gemm_coded)(struct tt_stream *stream, const struct tt_gemm_lora_args *args);
    /* ops/conv.h; NULL: nothing to prepare */
    tt_status (*conv2d_prepare)(struct tt_stream *stream, const struct tt_conv2d_requests *requests);
    const struct tt_op_table *ops;
};

enum { TT_COPY_TO_DEVICE, TT_COPY_TO_HOST, TT_COPY_ON_DEVICE };

struct tt_device {
    const struct tt_device_table *table;
    void *impl;
    char name[160];
    int index;
    int threads;
    size_t memory_limit;
    bool is_plan;
    bool frozen;
    bool is_host;               /* set by open: its memory is the host's */
    const struct tt_chip *chip; /* set by open when known */
    struct tt_device_tuning tuning;
    struct tt_memory_use memory;
    tt_device_check *check; /* tt_device_set_watch */
    void *check_context;
    bool profiles; /* spans are counted */
    struct tt_op_time spans[TT_SPAN_COUNT];
    double span_begins[TT_SPAN_COUNT]; /* of open spans, where the calling thread does the work */
    tt_span_sink *span_sink;           /* NULL: none */
    void *span_context;
    double planned_seconds; /* plan: estimate of all ops so far, by the chip's rates */
};

struct tt_stream {
    struct tt_device *device;
    enum tt_stream_kind kind;
    void *impl;
};

struct tt_event {
    struct tt_device *device;
    void *impl;
};

struct tt_graph {
    struct tt_device *device;
    void *impl;
};

/* Counts `bytes` more under `purpose`; TT_ERR_MEMORY when the limit forbids it (then nothing is counted). */
TT_MUST_USE tt_status tt_device_take(struct tt_device *device, enum tt_purpose purpose, size_t bytes);
void tt_device_give_back(struct tt_device *device, enum tt_purpose purpose, size_t bytes);

/* tt_dispatch_<op>: the last call of a checked entry. */
#define OP(name)                                                                                             \
    static inline tt_status tt_dispatch_##name(struct tt_stream *stream,                                     \
                                               const struct tt_##name##_args *args)                          \
    {                                                                                                        \
        struct tt_device *device = stream->device;                                                           \
        if (!device->profiles) return device->table->ops->name(stream, args);                                \
        tt_span_begin(stream, TT_OP_##name);                                                                 \
        tt_status status = device->table->ops->name(stream, args);                                           \
        tt_span_end(stream, TT_OP_##name);                                                                   \
        return status;                                                                                       \
    }
#include "backend/ops.def"
#undef OP

/* The part of tt_kept_bytes for this machine's processor (cpu/gemm/gemm.c). */
size_t tt_cpu_kept_bytes(const struct tt_device_tuning *tuning, int64_t rows, int64_t n, int64_t k,
                         tt_dtype dtype, tt_dtype input);

extern const struct tt_device_table tt_cpu_device_table;
extern const struct tt_device_table tt_plan_device_table;

#endif
