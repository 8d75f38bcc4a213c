#include "checkpoint/state_snapshot.h"

#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"

enum { ALIGNMENT = 256 };

/* Bytes of a unit's masters, which its moments follow as they are in their buffer. */
static size_t master_bytes(const struct tt_snapshot *snapshot, int unit)
{
    return tt_align_up((size_t)tt_unit_slices(snapshot->config.units[unit]).count * sizeof(float), ALIGNMENT);
}

static size_t moment_bytes(const struct tt_snapshot *snapshot, int unit)
{
    return snapshot->config.moments != NULL ? tt_align_up(snapshot->config.moments[unit].bytes, ALIGNMENT)
                                            : 0;
}

static size_t frozen_bytes(const struct tt_snapshot *snapshot, const struct tt_piece *piece)
{
    if (!snapshot->frozen_too || piece->param->trainable) return 0;
    return tt_align_up((size_t)piece->count * tt_dtype_bytes(piece->dtype), ALIGNMENT);
}

tt_status tt_snapshot_init(const struct tt_snapshot_config *config, struct tt_snapshot *snapshot)
{
    tt_status status = TT_OK;
    size_t bytes = 0;
    const struct tt_model *model = config->model;
    *snapshot = (struct tt_snapshot){.config = *config, .frozen_too = model->adapter_param_count == 0};
    snapshot->unit_offsets = tt_calloc((size_t)model->unit_count + 1, sizeof *snapshot->unit_offsets);
    if (snapshot->unit_offsets == NULL) TT_GO(TT_ERR_MEMORY);
    for (int u = 0; u < model->unit_count; u++) {
        snapshot->unit_offsets[u] = bytes;
        bytes += master_bytes(snapshot, u) + moment_bytes(snapshot, u);
        for (size_t p = 0; p < tt_unit_piece_count(config->units[u]); p++) {
            struct tt_piece piece = tt_unit_piece(config->units[u], p);
            bytes += frozen_bytes(snapshot, &piece);
        }
    }
    if (bytes > 0) TT_GO(tt_host_buffer_create(config->device, bytes, TT_PURPOSE_STAGING, &snapshot->buffer));
    if (tt_device_is_host(config->device)) return TT_OK;
    TT_GO(tt_stream_create_copy(config->device, &snapshot->copies));
    TT_GO(tt_event_create(config->device, &snapshot->stepped));
    TT_GO(tt_event_create(config->device, &snapshot->taken));
out:
    if (status != TT_OK) {
        tt_while("allocating host memory for saves");
        tt_snapshot_deinit(snapshot);
    }
    return status;
}

void tt_snapshot_deinit(struct tt_snapshot *snapshot)
{
    if (snapshot->stepped != NULL) tt_event_destroy(snapshot->stepped);
    if (snapshot->taken != NULL) tt_event_destroy(snapshot->taken);
    if (snapshot->copies != NULL) {
        struct tt_error error;
        tt_error_copy(&error);
        (void)!tt_stream_synchronize(snapshot->copies); /* no copy may write into freed memory */
        (void)tt_error_restore(&error);
        tt_stream_destroy(snapshot->copies);
    }
    tt_buffer_destroy(snapshot->buffer);
    tt_free(snapshot->unit_offsets);
    *snapshot = (struct tt_snapshot){0};
}

static char *unit_at(const struct tt_snapshot *snapshot, int unit)
{
    return (char *)tt_buffer_data(snapshot->buffer) + snapshot->unit_offsets[unit];
}

static char *moments_at(const struct tt_snapshot *snapshot, int unit)
{
    return unit_at(snapshot, unit) + master_bytes(snapshot, unit);
}

static char *frozen_at(const struct tt_snapshot *snapshot, int unit)
{
    return moments_at(snapshot, unit) + moment_bytes(snapshot, unit);
}

static tt_status take_unit(struct tt_snapshot *snapshot, struct tt_stream *stream, int u)
{
    struct tt_unit *unit = snapshot->config.units[u];
    struct tt_slices slices = tt_unit_slices(unit);
    size_t bytes = (size_t)slices.count * sizeof(float);
    bool direct = snapshot->copies == NULL || !snapshot->config.moments_in_host;
    if (bytes > 0) TT_TRY(tt_copy_to_host(stream, unit_at(snapshot, u), slices.master, bytes));
    if (moment_bytes(snapshot, u) > 0 && direct) {
        const struct tt_moments *moments = &snapshot->config.moments[u];
        const void *from = tt_buffer_data(moments->buffer);
        TT_TRY(tt_copy_to_host(stream, moments_at(snapshot, u), from, moments->bytes));
    }
    char *to = frozen_at(snapshot, u);
    for (size_t p = 0; p < tt_unit_piece_count(unit); p++) {
        struct tt_piece piece = tt_unit_piece(unit, p);
        size_t room = frozen_bytes(snapshot, &piece);
        bytes = (size_t)piece.count * tt_dtype_bytes(piece.dtype);
        /* constant: copied once */
        if (room > 0 && piece.in_host)
            memcpy(to, piece.data, bytes);
        else if (room > 0)
            TT_TRY(tt_copy_to_host(stream, to, piece.data, bytes));
        to += room;
    }
    return TT_OK;
}

tt_status tt_snapshot_take(struct tt_snapshot *snapshot, struct tt_stream *compute)
{
    struct tt_stream *stream = snapshot->copies != NULL ? snapshot->copies : compute;
    if (snapshot->buffer == NULL) return TT_OK;
    if (snapshot->copies != NULL) {
        TT_TRY(tt_event_record(snapshot->stepped, compute));
        TT_TRY(tt_stream_wait(snapshot->copies, snapshot->stepped));
    }
    for (int u = 0; u < snapshot->config.model->unit_count; u++) TT_TRY(take_unit(snapshot, stream, u));
    return snapshot->copies != NULL ? tt_event_record(snapshot->taken, snapshot->copies) : TT_OK;
}

tt_status tt_snapshot_wait(struct tt_snapshot *snapshot)
{
    if (snapshot->copies == NULL || snapshot->buffer == NULL) return TT_OK;
    return tt_event_synchronize(snapshot->taken);
}

tt_status tt_snapshot_poll(struct tt_snapshot *snapshot, bool *done)
{
    *done = true;
    if (snapshot->copies == NULL || snapshot->buffer == NULL) return TT_OK;
    return tt_event_query(snapshot->taken, done);
}

void tt_snapshot_complete(struct tt_snapshot *snapshot)
{
    if (snapshot->copies == NULL || snapshot->buffer == NULL) return;
    if (!snapshot->config.moments_in_host || snapshot->config.moments == NULL) return;
    /* Moments in host memory: the step has ended, because the copies of its masters have. */
    for (int u = 0; u < snapshot->config.model->unit_count; u++) {
        const struct tt_moments *moments = &snapshot->config.moments[u];
        if (moments->bytes > 0)
            memcpy(moments_at(snapshot, u), tt_buffer_data(moments->buffer), moments->bytes);
    }
}

const void *tt_snapshot_data(const struct tt_snapshot *snapshot, int unit, size_t index, int slot)
{
    struct tt_piece piece = tt_unit_piece(snapshot->config.units[unit], index);
    if (piece.param->trainable && slot == TT_SLOT_MASTER)
        return unit_at(snapshot, unit) + (size_t)piece.slice_offset * sizeof(float);
    if (piece.param->trainable) {
        const struct tt_moments *moments = &snapshot->config.moments[unit];
        const char *value = tt_moments_value(moments, slot - TT_SLOT_STATE, piece.slice_offset);
        return moments_at(snapshot, unit) + (value - (const char *)tt_buffer_data(moments->buffer));
    }
    const char *at = frozen_at(snapshot, unit);
    for (size_t p = 0; p < index; p++) {
        struct tt_piece before = tt_unit_piece(snapshot->config.units[unit], p);
        at += frozen_bytes(snapshot, &before);
    }
    return at;
}
