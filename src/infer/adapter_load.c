/* An adapter that is loaded while an engine runs. Every rank opens the folder, and all know of each what came of it:
 * the places of the ranks have the same adapter, or the one before. */
#include <string.h>

#include "base/alloc.h"
#include "infer/adapter_set.h"
#include "infer/generation_impl.h"

/* The first status of the ranks that is no success; a rank that has none of its own says which one has. */
static tt_status compare(const struct tt_generation_engine *engine, tt_status own, tt_status *all)
{
    struct tt_comm *world = engine->rank.rank->world;
    int ranks = tt_comm_world_size(world), first = -1;
    int64_t mine = own, *each;
    *all = own;
    if (ranks == 1) return TT_OK;
    each = tt_calloc((size_t)ranks, sizeof *each);
    if (each == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_comm_host_all_gather(world, &mine, each, sizeof mine);
    for (int r = 0; r < ranks && status == TT_OK && first < 0; r++)
        if (each[r] != TT_OK) first = r;
    if (status == TT_OK && own == TT_OK && first >= 0)
        *all = tt_fail((tt_status)each[first], "rank %d cannot load the adapter", first);
    tt_free(each);
    return status;
}

/* Tokens that were computed with what the place had before are of no use. A request that still has it is one that
 * nobody waits for, whose end has not come to this rank yet: it ends here, or it would leave such tokens behind. */
static void forget(struct tt_generation_engine *engine, int place)
{
    for (int64_t s = 0; s < engine->limits.slots; s++) {
        struct slot *slot = &engine->slots[s];
        if (slot->adapter != place) continue;
        if (slot->request != NULL) tt_generation_finish(engine, slot->request, TT_GENERATION_CANCELLED);
        tt_kv_cache_truncate(engine->rank.cache, s, 0);
        tt_generation_unlearn(slot, 0);
    }
}

static tt_status open_adapter(const struct tt_generation_engine *engine, const char *folder,
                              struct tt_arena *arena, struct tt_inputs_adapter *adapter)
{
    const struct tt_inputs *inputs = engine->inputs;
    if (inputs->model_options.adapter_places == 0)
        return tt_fail(TT_ERR_UNSUPPORTED, "no places were reserved for adapters");
    TT_TRY(tt_inputs_open_adapter(inputs, folder, arena, adapter));
    return tt_adapter_set_fits(inputs, engine->rank.rank->model, adapter);
}

tt_status tt_generation_load_adapter(struct tt_generation_engine *engine, const char *folder, int place,
                                     tt_status *verdict)
{
    struct tt_arena arena = {0};
    struct tt_inputs_adapter adapter = {0};
    tt_status status = TT_OK;
    TT_GO(compare(engine, open_adapter(engine, folder, &arena, &adapter), verdict));
    if (*verdict != TT_OK) goto out;
    forget(engine, place);
    TT_GO(compare(engine, tt_adapter_set_write(engine->rank.rank, engine->inputs, &adapter, place), verdict));
out:
    tt_safetensors_close(adapter.file);
    tt_arena_deinit(&arena);
    return status;
}
