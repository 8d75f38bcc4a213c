#include "optim/groups.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

static bool contains(const tt_param *param, const char *part)
{
    return strstr(param->name, part) != NULL;
}

bool tt_param_is_vocabulary(const tt_param *param)
{
    return contains(param, "embed_tokens") || contains(param, "lm_head");
}

static tt_status fail_group(size_t index, const char *why)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "group %zu of lr_groups %s", index + 1, why);
    tt_hint("a group is {name: TEXT, modules: [part of a parameter's name, ...], lr: NUMBER}");
    return status;
}

static tt_status check_group(const struct tt_json_value *group, size_t index)
{
    const struct tt_json_value *modules = tt_json_get(group, "modules"), *lr = tt_json_get(group, "lr");
    const char *key;
    const struct tt_json_value *value;
    if (!tt_json_is_object(group)) return fail_group(index, "is not a mapping");
    for (size_t at = 0; tt_json_next_member(group, &at, &key, &value);)
        if (strcmp(key, "name") != 0 && strcmp(key, "modules") != 0 && strcmp(key, "lr") != 0) {
            tt_status status =
                tt_fail(TT_ERR_USAGE, "group %zu of lr_groups has the key '%.60s'", index + 1, key);
            tt_hint("its keys are name, modules and lr");
            return status;
        }
    if (!tt_json_is_number(lr) || !isfinite(tt_json_number(lr)) || tt_json_number(lr) < 0)
        return fail_group(index, "has no learning rate 'lr' from 0");
    if (!tt_json_is_list(modules) || tt_json_count(modules) == 0)
        return fail_group(index, "has no list 'modules'");
    for (size_t m = 0; m < tt_json_count(modules); m++)
        if (!tt_json_is_string(tt_json_at(modules, m)) || tt_json_text(tt_json_at(modules, m))[0] == '\0')
            return fail_group(index, "has a module that is no text");
    return TT_OK;
}

/* `json` is left empty without groups. */
static tt_status read_groups(const struct tt_optim_config *config, struct tt_json *json)
{
    const char *text = config->lr_groups;
    *json = (struct tt_json){0};
    if (text == NULL) return TT_OK;
    tt_status status = TT_OK;
    if (tt_json_parse(text, strlen(text), "lr_groups", json) != TT_OK || !tt_json_is_list(json->root))
        TT_GO(tt_fail(TT_ERR_USAGE, "lr_groups is not a list: '%.200s'", text));
    for (size_t g = 0; g < tt_json_count(json->root); g++) TT_GO(check_group(tt_json_at(json->root, g), g));
out:
    if (status != TT_OK) tt_json_deinit(json);
    return status;
}

tt_status tt_param_groups_check(const struct tt_optim_config *config)
{
    struct tt_json json;
    if (config->embedding_lr > 0 && config->embedding_lr_scale > 0) {
        tt_status status =
            tt_fail(TT_ERR_USAGE, "embedding_learning_rate and embedding_lr_scale are both given");
        tt_hint("set one of them: the rate itself, or its share of learning_rate");
        return status;
    }
    TT_TRY(read_groups(config, &json));
    tt_json_deinit(&json);
    return TT_OK;
}

static bool is_named(const tt_param *param, const struct tt_json_value *group)
{
    const struct tt_json_value *modules = tt_json_get(group, "modules");
    for (size_t m = 0; m < tt_json_count(modules); m++)
        if (contains(param, tt_json_text(tt_json_at(modules, m)))) return true;
    return false;
}

/* The first group that names the parameter; the number of groups: none does. */
static size_t group_of(const struct tt_json_value *groups, const tt_param *param)
{
    size_t g = 0;
    while (g < tt_json_count(groups) && !is_named(param, tt_json_at(groups, g))) g++;
    return g;
}

static double vocabulary_scale(const struct tt_optim_config *config)
{
    return config->embedding_lr > 0 ? config->embedding_lr / config->learning_rate
                                    : config->embedding_lr_scale;
}

static void apply(const struct tt_optim_config *config, const struct tt_json_value *groups, tt_param *param)
{
    bool plus = config->loraplus_lr_ratio > 0, vector = param->rank == 1;
    if (plus && vector && !contains(param, "bias")) param->weight_decay = TT_DECAY_FULL;
    size_t g = group_of(groups, param);
    if (g < tt_json_count(groups))
        param->lr_scale = tt_json_number(tt_json_get(tt_json_at(groups, g), "lr")) / config->learning_rate;
    else if (vocabulary_scale(config) > 0 && tt_param_is_vocabulary(param))
        param->lr_scale = vocabulary_scale(config);
    else if (plus && (vector || contains(param, "lora_B")))
        param->lr_scale = config->loraplus_lr_ratio;
}

static bool any_named(const struct tt_json_value *group, tt_param *const *params, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (params[i]->trainable && is_named(params[i], group)) return true;
    return false;
}

tt_status tt_param_groups_apply(const struct tt_optim_config *config, tt_param *const *params, size_t count)
{
    struct tt_json json;
    tt_status status = TT_OK;
    TT_TRY(read_groups(config, &json));
    for (size_t g = 0; g < tt_json_count(json.root); g++) {
        const struct tt_json_value *group = tt_json_at(json.root, g);
        if (any_named(group, params, count)) continue;
        status = tt_fail(TT_ERR_USAGE,
                         "no parameter that trains has a name with '%.100s' (group %zu of lr_groups)",
                         tt_json_text(tt_json_at(tt_json_get(group, "modules"), 0)), g + 1);
        tt_hint("names are as model.layers.0.self_attn.q_proj.lora_B.weight; a part of one is enough");
        TT_GO(status);
    }
    for (size_t i = 0; i < count; i++)
        if (params[i]->trainable) apply(config, json.root, params[i]);
out:
    tt_json_deinit(&json);
    return status;
}
