/* Adapters that files hold otherwise than the parameters: rows in another order, linears of single experts. */
#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/str.h"
#include "io/expert_adapters.h"
#include "model/adapter_config.h"
#include "model/family.h"
#include "model/pattern.h"

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

/* The other matrices of the module of experts, behind gate and up: down's. */
static const char *param_behind(const struct tt_param_sources *sources, const struct tt_param_source *source)
{
    size_t module = (size_t)(strrchr(source->param, '.') - source->param) + 1;
    for (const struct tt_param_source *row = sources->rows; row->param != NULL; row++)
        if (!row->vector && strncmp(row->param, source->param, module) == 0 &&
            strcmp(row->param, source->param) != 0)
            return row->param;
    return NULL;
}

/* Whether target_parameters adapts down too, as that of the first layer: gate and up are then the inner adapter. */
static tt_status is_inner(const struct tt_model_facts *facts, const struct tt_lora_config *lora,
                          const struct tt_param_source *source, bool *inner)
{
    char path[TT_SOURCE_NAME_BYTES];
    struct tt_name_pattern pattern;
    const char *behind = param_behind(&facts->sources, source);
    const char *layer = behind != NULL ? strchr(behind, '#') : NULL;
    *inner = false;
    if (layer == NULL || lora->target_parameters == NULL) return TT_OK;
    (void)tt_snprintf(path, sizeof path, "%s.%.*s0%s", facts->sources.path, (int)(layer - behind), behind,
                      layer + 1);
    tt_status status =
        tt_name_pattern_init(&pattern, "target_parameters", lora->target_parameters, TT_NAMES_AS_LIST);
    if (status == TT_OK) status = tt_name_pattern_match(&pattern, path, inner, NULL);
    tt_name_pattern_deinit(&pattern);
    return status;
}

/* The rows of `suffix` of the same module, as those of the weight. Experts have the rows of gate and up so, whose
 * adapter is the inner one beside down's (model/build_experts.c). */
static tt_status add_rows(const struct tt_param_source *of, const char *suffix, bool vector, bool inner,
                          struct tt_arena *arena, struct tt_param_source *to)
{
    const char *param = of->param;
    size_t module =
        is_of_experts(of) ? (size_t)(strrchr(param, '.') - param) : strlen(param) - strlen(weight_end);
    *to = *of;
    to->vector = vector;
    to->param = tt_arena_printf(arena, "%.*s%s.%s", (int)module, param, inner ? ".base_layer" : "", suffix);
    for (int p = 0; p < TT_SOURCE_PARTS_MAX && of->parts[p].tensor != NULL; p++) {
        to->parts[p].tensor = to->param;
        to->parts[p].transposed = false;
    }
    return to->param != NULL ? TT_OK : TT_ERR_MEMORY;
}

tt_status tt_adapter_sources(const struct tt_model_facts *facts, const struct tt_lora_config *lora,
                             struct tt_arena *arena, struct tt_param_sources *sources)
{
    int count = 0;
    *sources = (struct tt_param_sources){.path = NULL};
    for (const struct tt_param_source *of = facts->sources.rows; of->param != NULL; of++) {
        if (!is_dealt(of) || !is_alone(&facts->sources, of)) continue;
        bool inner = false;
        if (is_of_experts(of)) TT_TRY(is_inner(facts, lora, of, &inner));
        TT_TRY(add_rows(of, "lora_B.weight", false, inner, arena, &sources->rows[count++]));
        if (!is_of_experts(of))
            TT_TRY(add_rows(of, "lora_magnitude_vector", true, false, arena, &sources->rows[count++]));
    }
    if (count == 0) return TT_OK;
    char *path = tt_adapter_key(facts->sources.path);
    if (path == NULL) return TT_ERR_MEMORY;
    sources->path = tt_arena_strdup(arena, path);
    tt_free(path);
    return sources->path != NULL ? TT_OK : TT_ERR_MEMORY;
}

/* PEFT's module of an adapted linear holds the base's as base_layer. */
static const char *name_of_bias(const void *context, const char *key, struct tt_arena *arena)
{
    static const char wrapped[] = ".base_layer.bias";
    (void)context;
    if (!tt_ends_with(key, wrapped)) return key;
    return tt_arena_printf(arena, "%.*s.bias", (int)(strlen(key) - strlen(wrapped)), key);
}

tt_status tt_adapter_join(const struct tt_model_facts *facts, const struct tt_lora_config *lora,
                          struct tt_safetensors **file)
{
    TT_TRY(tt_safetensors_rename(*file, name_of_bias, NULL));
    struct tt_param_sources sources;
    struct tt_arena arena = {0};
    tt_status status = tt_adapter_sources(facts, lora, &arena, &sources);
    if (status == TT_OK && sources.path != NULL) status = tt_join_file(&sources, file);
    tt_arena_deinit(&arena);
    return status;
}

/* "layers.#.mlp.experts.*.gate_proj" of that with ".weight". */
static tt_status add_linear(struct tt_arena *arena, const struct tt_source_part *part, const char **linear)
{
    *linear = tt_arena_printf(arena, "%.*s", (int)(strlen(part->tensor) - strlen(weight_end)), part->tensor);
    return *linear != NULL ? TT_OK : TT_ERR_MEMORY;
}

static bool has_each_expert(const struct tt_param_source *source)
{
    return strstr(source->parts[0].tensor, ".*.") != NULL &&
           tt_ends_with(source->parts[0].tensor, weight_end);
}

/* The parameter's module. */
static tt_status add_experts(struct tt_arena *arena, const struct tt_param_source *source,
                             struct tt_expert_adapter *adapter)
{
    adapter->experts =
        tt_arena_printf(arena, "%.*s", (int)(strrchr(source->param, '.') - source->param), source->param);
    if (adapter->experts == NULL) return TT_ERR_MEMORY;
    for (int p = 0; p < TT_EXPERT_ADAPTER_PARTS && source->parts[p].tensor != NULL; p++)
        TT_TRY(add_linear(arena, &source->parts[p], &adapter->linears[p]));
    return TT_OK;
}

/* The rows of gate and up stand before that of down of the same files. */
static tt_status list_experts(const struct tt_param_source *rows, struct tt_arena *arena,
                              struct tt_expert_adapters *adapters)
{
    for (const struct tt_param_source *row = rows; row->param != NULL; row++) {
        const struct tt_source_part *part = &row->parts[0];
        if (tt_ends_with(row->param, ".gate.weight") && row->parts[1].tensor == NULL) {
            struct tt_source_part now = {.tensor = row->param};
            TT_TRY(add_linear(arena, part, &adapters->renamed.from));
            TT_TRY(add_linear(arena, &now, &adapters->renamed.to));
        }
        if (!has_each_expert(row) || adapters->count == TT_EXPERT_ADAPTERS_MAX) continue;
        struct tt_expert_adapter *adapter = &adapters->items[adapters->count++];
        TT_TRY(add_experts(arena, row, adapter));
        bool pair = row->parts[1].tensor != NULL && row[1].param != NULL && has_each_expert(&row[1]);
        if (pair) TT_TRY(add_linear(arena, &row[1].parts[0], &adapter->outer));
    }
    return TT_OK;
}

tt_status tt_adapter_show_experts(const struct tt_model_facts *facts, struct tt_safetensors **file)
{
    struct tt_expert_adapters adapters = {.count = 0};
    struct tt_arena arena = {0};
    if (facts->family->older_experts == NULL) return TT_OK;
    char *path = tt_adapter_key(facts->sources.path);
    tt_status status = path != NULL ? list_experts(facts->sources.rows, &arena, &adapters) : TT_ERR_MEMORY;
    adapters.path = path;
    if (status == TT_OK) status = tt_expert_adapters_show(&adapters, file);
    tt_free(path);
    tt_arena_deinit(&arena);
    return status;
}
