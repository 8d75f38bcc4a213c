/* Rows of adapters in another order than that of the parameters. */
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "model/adapter_config.h"

static const char weight_end[] = ".weight";

/* Matrices of all experts are no module's weight. */
static bool is_of_experts(const struct tt_param_source *source)
{
    return !tt_ends_with(source->param, weight_end);
}

/* A matrix, or those of all experts, that is one whole tensor of the files, its rows in another order. */
static bool is_dealt(const struct tt_param_source *source)
{
    const char *tensor = source->parts[0].tensor;
    if (source->vector || source->parts[0].units == 0) return false;
    if (is_of_experts(source) && strcmp(source->param, tensor) != 0) return false; /* in another format */
    for (int p = 0; p < TT_SOURCE_PARTS_MAX && source->parts[p].tensor != NULL; p++)
        if (strcmp(source->parts[p].tensor, tensor) != 0 || strchr(tensor, '*') != NULL) return false;
    return true;
}

/* Whether no other parameter has rows of the tensor. */
static bool is_alone(const struct tt_param_sources *sources, const struct tt_param_source *source)
{
    for (const struct tt_param_source *other = sources->rows; other->param != NULL; other++)
        for (int p = 0; p < TT_SOURCE_PARTS_MAX && other->parts[p].tensor != NULL; p++)
            if (strcmp(other->param, source->param) != 0 &&
                strcmp(other->parts[p].tensor, source->parts[0].tensor) == 0)
                return false;
    return true;
}

/* Experts have the rows of gate and up so, whose adapter is the inner one (model/build_experts.c). */
static const char *name_of_B(const struct tt_param_source *source, struct tt_arena *arena)
{
    const char *param = source->param;
    size_t bytes =
        is_of_experts(source) ? (size_t)(strrchr(param, '.') - param) : strlen(param) - strlen(weight_end);
    return tt_arena_printf(arena, "%.*s%s.lora_B.weight", (int)bytes, param,
                           is_of_experts(source) ? ".base_layer" : "");
}

tt_status tt_adapter_sources(const struct tt_model_facts *facts, struct tt_arena *arena,
                             struct tt_param_sources *sources)
{
    int count = 0;
    *sources = (struct tt_param_sources){.path = NULL};
    for (const struct tt_param_source *of = facts->sources.rows; of->param != NULL; of++) {
        if (!is_dealt(of) || !is_alone(&facts->sources, of)) continue;
        struct tt_param_source *to = &sources->rows[count++];
        *to = *of;
        to->param = name_of_B(of, arena);
        for (int p = 0; p < TT_SOURCE_PARTS_MAX && of->parts[p].tensor != NULL; p++) {
            to->parts[p].tensor = to->param;
            to->parts[p].transposed = false;
        }
        if (to->param == NULL) return TT_ERR_MEMORY;
    }
    if (count == 0) return TT_OK;
    char *path = tt_adapter_key(facts->sources.path);
    if (path == NULL) return TT_ERR_MEMORY;
    sources->path = tt_arena_strdup(arena, path);
    tt_free(path);
    return sources->path != NULL ? TT_OK : TT_ERR_MEMORY;
}

tt_status tt_adapter_join(const struct tt_model_facts *facts, struct tt_safetensors **file)
{
    struct tt_param_sources sources;
    struct tt_arena arena = {0};
    tt_status status = tt_adapter_sources(facts, &arena, &sources);
    if (status == TT_OK && sources.path != NULL) status = tt_join_file(&sources, file);
    tt_arena_deinit(&arena);
    return status;
}
