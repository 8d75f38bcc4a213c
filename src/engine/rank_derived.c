/* Values that follow from weights (model/derived.h), when the weights are in place: each rank computes them of whole
 * blocks, and keeps its own pieces. */
#include "checkpoint/load.h"
#include "engine/rank_impl.h"
#include "model/derived.h"

struct place {
    struct tt_rank *rank;
    struct tt_unit *unit;
};

static bool trains(void *context, const tt_param *param)
{
    const struct place *place = context;
    for (size_t p = 0; p < tt_unit_piece_count(place->unit); p++) {
        struct tt_piece piece = tt_unit_piece(place->unit, p);
        if (piece.param == param) return piece.slice_offset >= 0;
    }
    return false;
}

static tt_status keep(void *context, const tt_param *param, tt_tensor values)
{
    const struct place *place = context;
    for (size_t p = 0; p < tt_unit_piece_count(place->unit); p++) {
        struct tt_piece piece = tt_unit_piece(place->unit, p);
        if (piece.param != param || piece.count == 0) continue;
        const float *from = (const float *)values.data + piece.first;
        size_t bytes = (size_t)piece.count * sizeof(float);
        return piece.in_host ? tt_copy_to_host(place->rank->stream, piece.data, from, bytes)
                             : tt_copy_on_device(place->rank->stream, piece.data, from, bytes);
    }
    return TT_OK;
}

static tt_status derive_block(struct tt_rank *rank, const struct tt_block *block, bool loaded)
{
    struct place place = {.rank = rank, .unit = rank->units[rank->model->unit_of_block[block->index]]};
    const struct tt_derivation derivation = {
        .loaded = loaded, .trains = trains, .keep = keep, .context = &place};
    struct tt_pass pass = {.lent = {.stream = rank->stream, .workspace = rank->workspace},
                           .in = {.compute_dtype = rank->model->options.compute_dtype}};
    TT_TRY(tt_unit_gather(place.unit));
    TT_TRY(tt_unit_wait(place.unit));
    TT_TRY(tt_block_derive(block, &pass, &derivation));
    TT_TRY(tt_unit_release(place.unit, false));
    TT_TRY(tt_unit_frozen_changed(place.unit));
    return tt_unit_masters_changed(place.unit);
}

tt_status tt_rank_derive(struct tt_rank *rank, const struct tt_load_source *source)
{
    bool some = false;
    if (tt_device_is_plan(rank->device)) return TT_OK;
    for (int i = 0; i < rank->model->block_count; i++) {
        const struct tt_block *block = &rank->model->blocks[i];
        if (!tt_block_has_derived(block)) continue;
        TT_TRY(derive_block(rank, block, source->adapter != NULL));
        some = true;
    }
    return some ? tt_comm_barrier(rank->world) : TT_OK; /* other ranks may copy this rank's shard */
}
