#include "serve/model_list.h"

#include <string.h>

static bool is_base(const struct tt_model_names *names, const char *name)
{
    return strcmp(name, names->base) == 0;
}

bool tt_serve_has_model(const struct tt_model_names *names, const char *name)
{
    return is_base(names, name) || tt_serve_adapters_have(names->adapters, name);
}

/* vLLM says, too, which model an adapter belongs to. */
static struct tt_json_value *describe(const struct tt_model_names *names, const char *name)
{
    if (is_base(names, name))
        return tt_json_pack("{s:s, s:s, s:i, s:s}", "id", name, "object", "model", "created", 0, "owned_by",
                            "trimtab");
    return tt_json_pack("{s:s, s:s, s:i, s:s, s:s}", "id", name, "object", "model", "created", 0, "owned_by",
                        "trimtab", "parent", names->base);
}

struct model_list {
    const struct tt_model_names *names;
    struct tt_json_value *list;
};

static void add(void *context, const char *name)
{
    struct model_list *models = context;
    tt_json_append(models->list, describe(models->names, name));
}

tt_status tt_serve_write_models(const struct tt_model_names *names, const char *name, struct tt_str *text)
{
    struct model_list models = {names, NULL};
    struct tt_json_value *value;
    if (name != NULL) {
        value = describe(names, name);
    } else {
        models.list = tt_json_new_list();
        add(&models, names->base);
        tt_serve_adapters_visit(names->adapters, add, &models);
        value = tt_json_pack("{s:s, s:o}", "object", "list", "data", models.list);
    }
    tt_status status = tt_json_write(value, 0, false, text);
    tt_json_release(value);
    return status;
}
