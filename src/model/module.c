#include "model/module.h"

#include <string.h>

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
