#include "optim/moments.h"

#include <string.h>

#include "backend/ops/optim.h"
#include "base/alloc.h"
#include "base/integer.h"

enum { ALIGNMENT = 64 };

/* Offsets of the arrays of one moment in the buffer, in bytes. */
struct places {
    size_t values, absmax, codes;
};

/* The elements up to the next run: padding goes with the run before it, so that runs which follow each other in the
 * slices do so in the state. */
static int64_t extent_of(const struct tt_moments *moments, size_t index)
{
    const struct tt_moments_run *run = &moments->runs[index];
    return (index + 1 < moments->run_count ? run[1].offset : moments->count) - run->offset;
}

static size_t take(struct tt_moments *moments, int64_t count, size_t size)
{
    size_t offset = moments->bytes;
    moments->bytes += tt_align_up((size_t)count * size, ALIGNMENT);
    return offset;
}

static struct places lay_out(struct tt_moments *moments, int moment)
{
    int64_t plain = 0, coded = 0;
    struct places places;
    for (size_t r = 0; r < moments->run_count; r++) {
        int64_t *total = moments->runs[r].coded ? &coded : &plain;
        if (moment > 0 && moments->runs[r].whole) continue; /* it has one moment */
        moments->runs[r].at[moment] = *total;
        *total += extent_of(moments, r);
    }
    places.values = take(moments, plain, sizeof(float));
    places.absmax = take(moments, (coded + TT_MOMENT_BLOCK - 1) / TT_MOMENT_BLOCK, sizeof(float));
    places.codes = take(moments, coded, 1);
    return places;
}

tt_status tt_moments_init(struct tt_device *device, const struct tt_optimizer *optimizer,
                          const struct tt_moments_run *runs, size_t run_count, int64_t count, bool offload,
                          struct tt_moments *moments)
{
    tt_status status = TT_OK;
    struct places places[TT_MOMENTS_MAX] = {0};
    int moment_count = optimizer->rule->moment_count;
    *moments = (struct tt_moments){.count = count, .run_count = run_count};
    moments->runs = tt_calloc(run_count + 1, sizeof *runs);
    if (moments->runs == NULL) return TT_ERR_MEMORY;
    for (size_t r = 0; r < run_count; r++) {
        moments->runs[r] = runs[r];
        moments->runs[r].coded = tt_optimizer_codes(optimizer, runs[r].param);
        moments->runs[r].whole = tt_optimizer_takes_whole(optimizer, runs[r].param);
    }
    for (int i = 0; i < moment_count; i++) places[i] = lay_out(moments, i);
    if (moments->bytes == 0) return TT_OK;
    if (offload)
        TT_GO(tt_host_buffer_create(device, moments->bytes, TT_PURPOSE_OPTIMIZER, &moments->buffer));
    else
        TT_GO(tt_buffer_create(device, moments->bytes, TT_PURPOSE_OPTIMIZER, &moments->buffer));
    char *data = tt_buffer_data(moments->buffer);
    for (int i = 0; i < moment_count && data != NULL; i++) {
        moments->values[i] = (float *)(void *)(data + places[i].values);
        moments->absmax[i] = (float *)(void *)(data + places[i].absmax);
        moments->codes[i] = (uint8_t *)(data + places[i].codes);
    }
out:
    if (status != TT_OK) tt_moments_deinit(moments);
    return status;
}

void tt_moments_deinit(struct tt_moments *moments)
{
    tt_buffer_destroy(moments->buffer);
    tt_free(moments->runs);
    *moments = (struct tt_moments){0};
}

void *tt_moments_value(const struct tt_moments *moments, int index, int64_t offset)
{
    const struct tt_moments_run *run = moments->runs;
    int moment = index % TT_MOMENTS_MAX;
    while (run->offset != offset) run++;
    if (index >= TT_MOMENTS_MAX) return moments->absmax[moment] + run->at[moment] / TT_MOMENT_BLOCK;
    if (run->coded) return moments->codes[moment] + run->at[moment];
    return moments->values[moment] + run->at[moment];
}

static double decay_of(const struct tt_optim_config *config, enum tt_decay decay)
{
    if (decay == TT_DECAY_NONE) return 0.0;
    bool of_norm = decay == TT_DECAY_NORM && config->norm_weight_decay >= 0;
    return of_norm ? config->norm_weight_decay : config->weight_decay;
}

/* Updated in one call; the padding between such runs is zero and stays zero. */
static bool is_alike(const struct tt_moments_run *a, const struct tt_moments_run *b)
{
    return a->param->weight_decay == b->param->weight_decay && a->param->lr_scale == b->param->lr_scale &&
           a->coded == b->coded && !a->whole && !b->whole;
}

static void set_state(const struct tt_moments *moments, const struct tt_optimizer *optimizer,
                      const struct tt_moments_run *run, struct tt_optimizer_update *update)
{
    for (int i = 0; i < tt_optimizer_moments(optimizer, run->param); i++) {
        if (!run->coded) {
            update->values[i] = moments->values[i] + run->at[i];
            continue;
        }
        update->codes[i] = moments->codes[i] + run->at[i];
        update->absmax[i] = moments->absmax[i] + run->at[i] / TT_MOMENT_BLOCK;
    }
}

static struct tt_optimizer_update make_update(const struct tt_moments *moments,
                                              const struct tt_optimizer *optimizer,
                                              const struct tt_optim_config *config,
                                              const struct tt_moments_step *step,
                                              const struct tt_moments_run *run, int64_t count)
{
    struct tt_optimizer_update update = {
        .master = step->master + run->offset,
        .grad = step->grad + run->offset,
        .count = count,
        .coded = run->coded,
        .lr = step->lr * run->param->lr_scale,
        .weight_decay = decay_of(config, run->param->weight_decay),
        .grad_scale = step->grad_scale,
        .step = step->step,
    };
    set_state(moments, optimizer, run, &update);
    return update;
}

static tt_tensor part_of(tt_tensor slices, const struct tt_moments_run *run)
{
    char *data = (char *)slices.data + (size_t)run->offset * tt_dtype_bytes(slices.dtype);
    return tt_tensor_1d(data, slices.dtype, run->count);
}

tt_status tt_moments_direct(struct tt_stream *stream, const struct tt_optimizer *optimizer,
                            const struct tt_optim_config *config, struct tt_moments *moments,
                            const struct tt_moments_step *step, tt_tensor y)
{
    for (size_t r = 0; r < moments->run_count; r++) {
        const struct tt_moments_run *run = &moments->runs[r];
        if (!run->whole) continue;
        const struct tt_optimizer_update update =
            make_update(moments, optimizer, config, step, run, run->count);
        TT_TRY(optimizer->rule->whole->direct(stream, config, &update, part_of(y, run)));
    }
    return TT_OK;
}

tt_status tt_moments_apply(struct tt_stream *stream, const struct tt_optimizer *optimizer,
                           const struct tt_optim_config *config, struct tt_moments *moments,
                           const struct tt_moments_step *step, tt_tensor x)
{
    for (size_t r = 0; r < moments->run_count; r++) {
        const struct tt_moments_run *run = &moments->runs[r];
        if (!run->whole) continue;
        const struct tt_optimizer_update update =
            make_update(moments, optimizer, config, step, run, run->count);
        TT_TRY(optimizer->rule->whole->apply(stream, config, &update, run->param, part_of(x, run)));
    }
    return TT_OK;
}

tt_status tt_moments_update(struct tt_stream *stream, const struct tt_optimizer *optimizer,
                            const struct tt_optim_config *config, struct tt_moments *moments,
                            const struct tt_moments_step *step)
{
    for (size_t r = 0; r < moments->run_count;) {
        const struct tt_moments_run *first = &moments->runs[r], *last = first;
        for (r++; r < moments->run_count && is_alike(first, &moments->runs[r]); r++) last = &moments->runs[r];
        if (first->whole) continue;
        const struct tt_optimizer_update update =
            make_update(moments, optimizer, config, step, first, last->offset + last->count - first->offset);
        TT_TRY(optimizer->rule->update(stream, config, &update));
    }
    return TT_OK;
}
