#include "checkpoint/base_copies.h"

#include <string.h>

#include "base/number.h"
#include "base/str.h"
#include "model/adapter_config.h"
#include "model/module.h"

static const char *copy_name(const struct tt_module *module, struct tt_arena *arena)
{
    const char *wrapper = module->saved            ? ".original_module"
                          : module->tokens != NULL ? ".token_adapter.base_layer"
                          : module->adapted        ? ".base_layer"
                                                   : "";
    return tt_arena_printf(arena, "base_model.model.%s%s.weight", module->path, wrapper);
}

tt_status tt_base_copies_list(const struct tt_model *model, const struct tt_model_folder *base,
                              struct tt_arena *arena, struct tt_base_copy copies[TT_BASE_COPIES],
                              size_t *count)
{
    const struct tt_model_facts *facts = &model->facts;
    enum tt_save_embeddings saves = model->options.lora.save_embedding_layers;
    bool wanted =
        saves == TT_SAVE_EMBEDDINGS_YES || (saves == TT_SAVE_EMBEDDINGS_AUTO && facts->grown_from > 0);
    *count = 0;
    if (!model->options.lora.enabled || !wanted || base == NULL) return TT_OK;
    for (size_t i = 0; i < model->modules.count && *count < TT_BASE_COPIES; i++) {
        const struct tt_module *module = &model->modules.items[i];
        bool head = module->kind == TT_MODULE_HEAD,
             own = !facts->tie_word_embeddings && facts->label_count == 0;
        if (module->kind != TT_MODULE_EMBEDDING && !(head && own)) continue;
        const char *stored = head || facts->table_in_head ? TT_MODEL_HEAD_NAME : tt_model_table_name(facts);
        const struct tt_safetensors_entry *entry = tt_model_folder_find(base, stored);
        if (entry == NULL || !tt_dtype_is_float(entry->dtype)) continue;
        copies[*count] = (struct tt_base_copy){copy_name(module, arena), entry};
        if (copies[(*count)++].name == NULL) return TT_ERR_MEMORY;
    }
    return TT_OK;
}

void tt_base_copy_param(const char *given, char *name, size_t bytes, bool *original)
{
    static const char *const wrappers[] = {".token_adapter.base_layer.original_module.weight",
                                           ".token_adapter.base_layer.weight", ".base_layer.weight",
                                           ".original_module.weight"};
    enum { WRAPPERS = sizeof wrappers / sizeof *wrappers };
    *original = false;
    for (int w = 0; w < WRAPPERS; w++) {
        if (!tt_ends_with(given, wrappers[w])) continue;
        *original = w == WRAPPERS - 1;
        (void)tt_snprintf(name, bytes, "%.*s.weight", (int)(strlen(given) - strlen(wrappers[w])), given);
        return;
    }
    (void)tt_snprintf(name, bytes, "%s", given);
}
