#include "model/module.h"

#include <string.h>

#include "base/number.h"
#include "base/str.h"

const char *tt_module_last_name(const struct tt_module *module)
{
    const char *dot = strrchr(module->path, '.');
    return dot != NULL ? dot + 1 : module->path;
}

static const char *first_of(const struct tt_module_list *list, enum tt_module_kind kind)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].kind == kind) return list->items[i].path;
    return "";
}

const char *tt_module_example(const struct tt_module_list *list)
{
    return first_of(list, TT_MODULE_LINEAR);
}

const char *tt_module_head(const struct tt_module_list *list)
{
    return first_of(list, TT_MODULE_HEAD);
}

const char *tt_module_alone(const struct tt_module_list *list, const char *path, char *to, size_t bytes)
{
    size_t prefix = list->text != NULL ? strlen(list->text) : 0;
    if (prefix == 0 || strcmp(list->text, "model") == 0 || strncmp(path, list->text, prefix) != 0)
        return path;
    if (path[prefix] != '.' && path[prefix] != '\0') return path;
    (void)tt_snprintf(to, bytes, "model%s", path + prefix);
    return to;
}

const char *tt_module_group(const char *tensor)
{
    static const struct {
        const char *word, *group;
    } known[] = {
        {"lora_", "LoRA"},   {"embed_tokens", "embedding"},
        {"lm_head", "head"}, {"model.embeddings", "embedding"},
        {"norm", "norms"},   {"self_attn", "attention"},
        {"mlp", "MLP"},      {"attn", "attention"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(tensor, known[i].word) != NULL) return known[i].group;
    return "other";
}

bool tt_module_is_buffer(const char *tensor)
{
    return tt_ends_with(tensor, "rotary_emb.inv_freq");
}
