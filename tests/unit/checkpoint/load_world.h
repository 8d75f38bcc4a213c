/* For tests that load whole models: one rank's device, model and units, FULL_SHARD over `comm`. */
#ifndef TT_TESTS_UNIT_CHECKPOINT_LOAD_WORLD_H
#define TT_TESTS_UNIT_CHECKPOINT_LOAD_WORLD_H

#include "base/alloc.h"
#include "checkpoint/load.h"
#include "load_device.h"

struct load_world {
    struct late_device *late;
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_model *model;
    struct tt_shard_context *context;
    struct tt_unit **units;
};

static inline void close_load_world(struct load_world *world)
{
    for (int u = 0; world->units != NULL && u < world->model->unit_count; u++)
        tt_unit_destroy(world->units[u]);
    tt_free(world->units);
    tt_shard_context_destroy(world->context);
    tt_model_destroy(world->model);
    if (world->stream != NULL) tt_stream_destroy(world->stream);
    tt_device_close(world->device);
    tt_free(world->late);
}

static inline tt_status create_load_units(struct load_world *world)
{
    struct tt_model *model = world->model;
    world->units = tt_calloc((size_t)model->unit_count, sizeof *world->units);
    if (world->units == NULL) return TT_ERR_MEMORY;
    for (int b = 0; b < model->block_count; b++) {
        const struct tt_block *block = &model->blocks[b];
        int u = model->unit_of_block[b];
        if (world->units[u] != NULL) continue; /* no model of these tests is tied */
        TT_TRY(tt_unit_create(world->context, block->name, block->params, block->param_count, 1,
                              &world->units[u]));
    }
    return tt_shard_context_seal(world->context, 1);
}

/* `late`: memory of its own, behind. A world that failed to open is closed as one that did not. */
static inline tt_status open_load_world(struct tt_comm *comm, bool late,
                                        const struct tt_model_options *options,
                                        const struct tt_model_folder *folder, struct load_world *world)
{
    struct tt_model_facts config;
    if (late) world->late = tt_calloc(1, sizeof *world->late);
    TT_TRY(late_device_open(world->late, 2, &world->device));
    TT_TRY(tt_stream_create(world->device, &world->stream));
    TT_TRY(tt_model_facts_parse(tt_model_folder_config(folder), &config));
    TT_TRY(tt_model_create(&config, options, &world->model));
    struct tt_shard_config shard = {
        .strategy = TT_FULL_SHARD,
        .device = world->device,
        .compute = world->stream,
        .shard_comm = comm,
        .compute_dtype = options->compute_dtype,
        .reduce_dtype = TT_F32,
        .train = options->train_base,
    };
    TT_TRY(tt_shard_context_create(&shard, &world->context));
    return create_load_units(world);
}

#endif
