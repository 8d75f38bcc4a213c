#include "backend/workspace.h"

#include <assert.h>
#include <string.h>

#include "backend/device_impl.h"
#include "base/alloc.h"

enum { ALIGNMENT = 256, PIECES_RECORDED = 64 };

/* The fictitious address range of a planned workspace: far more than any machine has. */
static const size_t plan_range = (size_t)1 << 46;

struct piece {
    const char *what;
    size_t bytes;
};

struct tt_workspace {
    struct tt_device *device;
    struct tt_buffer *buffer; /* NULL on the plan device */
    char *base;
    size_t bytes;
    size_t top;
    size_t peak;
    /* The plan device keeps the largest of each name, up to this number of names. */
    struct piece pieces[PIECES_RECORDED];
};

tt_status tt_workspace_create(struct tt_device *device, size_t bytes, struct tt_workspace **out)
{
    tt_status status = TT_OK;
    struct tt_workspace *workspace = tt_calloc(1, sizeof *workspace);
    if (workspace == NULL) return TT_ERR_MEMORY;
    workspace->device = device;
    if (tt_device_is_plan(device)) {
        void *base = NULL;
        TT_GO(device->table->allocate(device, plan_range, &base));
        workspace->base = base;
        workspace->bytes = plan_range;
    } else {
        TT_GO(tt_buffer_create(device, bytes, TT_PURPOSE_ACTIVATIONS, &workspace->buffer));
        workspace->base = tt_buffer_data(workspace->buffer);
        workspace->bytes = bytes;
    }
    *out = workspace;
    return TT_OK;
out:
    tt_free(workspace);
    return status;
}

void tt_workspace_destroy(struct tt_workspace *workspace)
{
    if (workspace == NULL) return;
    if (tt_device_is_plan(workspace->device)) {
        tt_device_give_back(workspace->device, TT_PURPOSE_ACTIVATIONS, workspace->peak);
    }
    tt_buffer_destroy(workspace->buffer);
    tt_free(workspace);
}

/* A planned workspace counts its high-water mark on its device, as the real one counts its buffer. */
static tt_status raise_peak(struct tt_workspace *workspace)
{
    if (workspace->top <= workspace->peak) return TT_OK;
    if (tt_device_is_plan(workspace->device)) {
        TT_TRY(tt_device_take(workspace->device, TT_PURPOSE_ACTIVATIONS, workspace->top - workspace->peak));
    }
    workspace->peak = workspace->top;
    return TT_OK;
}

static void note(struct tt_workspace *workspace, const char *what, size_t bytes)
{
    for (int i = 0; i < PIECES_RECORDED; i++) {
        struct piece *piece = &workspace->pieces[i];
        if (piece->what != NULL && strcmp(piece->what, what) != 0) continue;
        piece->what = what;
        if (piece->bytes < bytes) piece->bytes = bytes;
        return;
    }
}

size_t tt_workspace_largest(const struct tt_workspace *workspace, const char *what)
{
    for (int i = 0; i < PIECES_RECORDED && workspace->pieces[i].what != NULL; i++)
        if (strcmp(workspace->pieces[i].what, what) == 0) return workspace->pieces[i].bytes;
    return 0;
}

static tt_status push(struct tt_workspace *workspace, const char *what, size_t bytes, void **data)
{
    size_t left = workspace->bytes - workspace->top, rounded;
    if (__builtin_add_overflow(bytes, ALIGNMENT - 1, &rounded)) rounded = SIZE_MAX;
    rounded -= rounded % ALIGNMENT;
    if (rounded > left && tt_device_is_plan(workspace->device))
        return tt_fail(TT_ERR_MEMORY,
                       "a step takes more than %zu TiB: there is no room for '%s' of %zu bytes",
                       plan_range >> 40, what, rounded);
    if (rounded > left) {
        return tt_fail(TT_ERR_INTERNAL, "the workspace of %zu bytes has %zu left, '%s' needs %zu",
                       workspace->bytes, left, what, rounded);
    }
    *data = workspace->base + workspace->top;
    workspace->top += rounded;
    if (tt_device_is_plan(workspace->device)) note(workspace, what, rounded);
    tt_status status = raise_peak(workspace);
    if (status != TT_OK) {
        tt_while("planning '%s'", what);
        workspace->top -= rounded;
    }
    return status;
}

static bool count_bytes(tt_dtype dtype, int64_t d0, int64_t d1, size_t *bytes)
{
    size_t count;
    return d0 >= 0 && d1 >= 0 && !__builtin_mul_overflow((size_t)d0, (size_t)d1, &count) &&
           !__builtin_mul_overflow(count, tt_dtype_bytes(dtype), bytes);
}

tt_status tt_workspace_1d(struct tt_workspace *workspace, const char *what, tt_dtype dtype, int64_t d0,
                          tt_tensor *out)
{
    size_t bytes = 0;
    void *data = NULL;
    if (!count_bytes(dtype, d0, 1, &bytes)) {
        return tt_fail(TT_ERR_INTERNAL, "'%s' cannot have %lld elements", what, (long long)d0);
    }
    TT_TRY(push(workspace, what, bytes, &data));
    *out = tt_tensor_1d(data, dtype, d0);
    return TT_OK;
}

tt_status tt_workspace_2d(struct tt_workspace *workspace, const char *what, tt_dtype dtype, int64_t d0,
                          int64_t d1, tt_tensor *out)
{
    size_t bytes = 0;
    void *data = NULL;
    if (!count_bytes(dtype, d0, d1, &bytes)) {
        return tt_fail(TT_ERR_INTERNAL, "'%s' cannot have %lld x %lld elements", what, (long long)d0,
                       (long long)d1);
    }
    TT_TRY(push(workspace, what, bytes, &data));
    *out = tt_tensor_2d(data, dtype, d0, d1);
    return TT_OK;
}

tt_tensor tt_workspace_rest(const struct tt_workspace *workspace)
{
    if (tt_device_is_plan(workspace->device)) return (tt_tensor){0};
    return tt_tensor_1d(workspace->base + workspace->top, TT_U8,
                        (int64_t)(workspace->bytes - workspace->top));
}

size_t tt_workspace_mark(const struct tt_workspace *workspace)
{
    return workspace->top;
}

void tt_workspace_release(struct tt_workspace *workspace, size_t mark)
{
    assert(mark <= workspace->top && "released twice, or out of order");
    workspace->top = mark;
}

size_t tt_workspace_peak(const struct tt_workspace *workspace)
{
    return workspace->peak;
}
