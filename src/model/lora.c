#include "model/lora.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "base/ascii.h"
#include "base/log.h"
#include "base/str.h"
#include "model/lora_init.h"
#include "model/pattern.h"

struct rules {
    const struct tt_lora_config *config;
    bool all_linear;
    struct tt_name_pattern target, parameter, exclude, save, layers_pattern;
    struct tt_json layers;   /* a list of integers, or empty */
    const char *layers_name; /* "layers" */
    struct tt_value_pattern rank, alpha;
    const struct tt_module_list *modules;
};

tt_status tt_lora_is_all_linear(const char *target_modules, bool *all)
{
    static const char word[] = "all-linear";
    struct tt_json list = {0};
    *all = target_modules != NULL && tt_ascii_same(target_modules, word);
    if (*all || target_modules == NULL) return TT_OK;
    if (target_modules[strspn(target_modules, " \t\r\n")] != '[') return TT_OK;
    tt_status status = tt_json_parse(target_modules, strlen(target_modules), "target_modules", &list);
    if (status == TT_ERR_DATA) {
        tt_error_clear(); /* who reads the names reports it */
        return TT_OK;
    }
    TT_TRY(status);
    const char *only = tt_json_count(list.root) == 1 ? tt_json_text(tt_json_at(list.root, 0)) : NULL;
    *all = only != NULL && tt_ascii_same(only, word);
    tt_json_deinit(&list);
    return TT_OK;
}

static void rules_deinit(struct rules *rules)
{
    tt_name_pattern_deinit(&rules->target);
    tt_name_pattern_deinit(&rules->parameter);
    tt_name_pattern_deinit(&rules->exclude);
    tt_name_pattern_deinit(&rules->save);
    tt_name_pattern_deinit(&rules->layers_pattern);
    tt_json_deinit(&rules->layers);
    tt_value_pattern_deinit(&rules->rank);
    tt_value_pattern_deinit(&rules->alpha);
}

static tt_status check_numbers(const struct tt_lora_config *config)
{
    if (config->r < 1 || config->r > 65536)
        return tt_fail(TT_ERR_USAGE, "the LoRA rank r is %" PRId64 "; it must be 1 to 65536", config->r);
    if (!(config->alpha > 0 && config->alpha < 1e9))
        return tt_fail(TT_ERR_USAGE, "lora_alpha is %g; it must be above 0 and below 1e9", config->alpha);
    if (!(config->dropout >= 0 && config->dropout < 1)) {
        return tt_fail(TT_ERR_USAGE, "lora_dropout is %g; it must be at least 0 and below 1",
                       config->dropout);
    }
    return TT_OK;
}

/* An integer is a list of one. */
static tt_status read_layers(struct rules *rules, int64_t layer_count)
{
    const char *text = rules->config->layers_to_transform;
    struct tt_str list = {0};
    if (text == NULL) return TT_OK;
    bool listed = text[strspn(text, " \t\r\n")] == '[';
    tt_status status = tt_str_printf(&list, listed ? "%s" : "[%s]", text);
    if (status == TT_OK) {
        status = tt_pattern_parse("layers_to_transform", tt_str_text(&list), &rules->layers);
    }
    tt_str_deinit(&list);
    if (status != TT_OK) return status;
    size_t index;
    const struct tt_json_value *value;
    for (index = 0; (value = tt_json_at(rules->layers.root, index)) != NULL; index++) {
        if (!tt_json_is_integer(value))
            return tt_fail(TT_ERR_USAGE, "layers_to_transform must be an integer or a list of integers");
        int64_t layer = tt_json_integer(value);
        if ((layer < 0 || layer >= layer_count) && !rules->config->from_adapter) {
            return tt_fail(TT_ERR_USAGE,
                           "layers_to_transform names layer %" PRId64 "; the model has layers 0 to %" PRId64,
                           layer, layer_count - 1);
        }
    }
    return TT_OK;
}

static tt_status rules_init(struct rules *rules, const struct tt_lora_config *config,
                            const char *default_targets, const struct tt_module_list *modules)
{
    const char *dot = strrchr(modules->layers, '.');
    enum tt_name_spelling spelling = config->from_adapter ? TT_NAMES_OF_ADAPTER : TT_NAMES_OF_SETTING;
    const char *targets = config->target_modules != NULL ? config->target_modules : default_targets;
    *rules = (struct rules){
        .config = config, .modules = modules, .layers_name = dot != NULL ? dot + 1 : modules->layers};
    TT_TRY(check_numbers(config));
    const struct tt_lora_init *init;
    int64_t number;
    if (!config->from_adapter) TT_TRY(tt_lora_init_find(config->init_weights, &init, &number));
    TT_TRY(tt_lora_is_all_linear(targets, &rules->all_linear));
    TT_TRY(tt_name_pattern_init(&rules->parameter, "target_parameters", config->target_parameters,
                                TT_NAMES_AS_LIST));
    if (targets == NULL && rules->parameter.count == 0) {
        tt_status status = tt_fail(TT_ERR_USAGE, "models of this type have no default for target_modules");
        tt_hint("name the linears to adapt, or all of them: all-linear");
        return status;
    }
    if (!rules->all_linear) TT_TRY(tt_name_pattern_init(&rules->target, "target_modules", targets, spelling));
    TT_TRY(tt_name_pattern_init(&rules->exclude, "exclude_modules", config->exclude_modules, spelling));
    TT_TRY(tt_name_pattern_init(&rules->save, "modules_to_save", config->modules_to_save, TT_NAMES_AS_LIST));
    TT_TRY(tt_name_pattern_init(&rules->layers_pattern, "layers_pattern", config->layers_pattern,
                                TT_NAMES_AS_LIST));
    TT_TRY(read_layers(rules, modules->layer_count));
    TT_TRY(tt_value_pattern_init(&rules->rank, "rank_pattern", config->rank_pattern, true, 1, 65536));
    TT_TRY(tt_value_pattern_init(&rules->alpha, "alpha_pattern", config->alpha_pattern, false, 1e-9, 1e9));
    bool layered = tt_json_count(rules->layers.root) > 0;
    if (layered && (rules->all_linear || rules->target.regex != NULL)) {
        return tt_fail(TT_ERR_USAGE, "layers_to_transform needs target_modules to be a list of names");
    }
    if (rules->layers_pattern.count > 0 && !layered)
        return tt_fail(TT_ERR_USAGE, "layers_pattern needs layers_to_transform");
    return TT_OK;
}

/* True if `path` contains `name` as one or more whole components. */
static bool has_components(const char *path, const char *name)
{
    size_t bytes = strlen(name);
    for (const char *at = strstr(path, name); at != NULL; at = strstr(at + 1, name)) {
        bool starts = at == path || at[-1] == '.', ends = at[bytes] == '\0' || at[bytes] == '.';
        if (starts && ends) return true;
    }
    return false;
}

static tt_status in_transformed_layer(struct rules *rules, const struct tt_module *module, bool *inside)
{
    size_t index;
    const struct tt_json_value *value;
    *inside = tt_json_count(rules->layers.root) == 0;
    if (*inside || module->layer < 0) return TT_OK;
    bool named = rules->layers_pattern.count == 0;
    for (size_t i = 0; i < rules->layers_pattern.count; i++) {
        /* a decoder has one list of layers */
        if (strcmp(tt_name_pattern_entry(&rules->layers_pattern, i), rules->layers_name) == 0) named = true;
    }
    if (!named) return TT_OK;
    for (index = 0; (value = tt_json_at(rules->layers.root, index)) != NULL; index++) {
        if (tt_json_integer(value) == module->layer) *inside = true;
    }
    return TT_OK;
}

enum { ALONE_BYTES = 256 };

/* Matches a module by its path in the folder's class, or by that in the class of the text model alone, over which the
 * adapter may have been made. */
static tt_status match_either(const struct rules *rules, struct tt_name_pattern *pattern, const char *path,
                              bool *matched, bool *exact)
{
    char text[ALONE_BYTES];
    const char *alone = tt_module_alone(rules->modules, path, text, sizeof text);
    TT_TRY(tt_name_pattern_match(pattern, path, matched, exact));
    return *matched || alone == path ? TT_OK : tt_name_pattern_match(pattern, alone, matched, exact);
}

static tt_status find_either(const struct rules *rules, struct tt_value_pattern *pattern, const char *path,
                             double *value)
{
    char text[ALONE_BYTES];
    const char *alone = tt_module_alone(rules->modules, path, text, sizeof text);
    if (alone != path) TT_TRY(tt_value_pattern_find(pattern, alone, value, NULL));
    return tt_value_pattern_find(pattern, path, value, NULL);
}

static tt_status is_target(struct rules *rules, const struct tt_module *module, bool *target)
{
    bool excluded = false, exact = false, inside = false;
    if (module->kind == TT_MODULE_PARAMETER)
        return match_either(rules, &rules->parameter, module->path, target, NULL);
    *target = module->kind == TT_MODULE_LINEAR && !module->bypassed;
    if (!rules->all_linear) TT_TRY(match_either(rules, &rules->target, module->path, target, &exact));
    TT_TRY(match_either(rules, &rules->exclude, module->path, &excluded, NULL));
    for (size_t i = 0; i < rules->save.count && !excluded; i++) {
        excluded = has_components(module->path, tt_name_pattern_entry(&rules->save, i));
    }
    if (*target && !exact) {
        TT_TRY(in_transformed_layer(rules, module, &inside));
        *target = inside;
    }
    *target = *target && !excluded;
    return TT_OK;
}

/* PEFT adds s B A to the matrix itself, so that no dropout can be between A and its input. */
static tt_status check_parameter(const struct tt_lora_config *config, const struct tt_module *module)
{
    if (config->dropout > 0) {
        tt_status status =
            tt_fail(TT_ERR_USAGE, "lora_dropout is %g, and adapters of parameters ('%s') have none",
                    config->dropout, module->path);
        tt_hint(
            "set lora_dropout: 0, as PEFT asks for; where all-linear chooses parameters of experts, other "
            "linears can be named");
        return status;
    }
    if (config->use_dora) {
        tt_status status =
            tt_fail(TT_ERR_USAGE, "use_dora is set, and adapters of parameters ('%s') have no magnitudes",
                    module->path);
        tt_hint("leave use_dora out, or choose no parameters of experts; PEFT refuses both together too");
        return status;
    }
    if (!config->swapped || module->transposed) return TT_OK;
    tt_status status = tt_fail(
        TT_ERR_UNSUPPORTED,
        "'%s' is adapted as PEFT did before version 0.19, with A for outputs and B for inputs", module->path);
    tt_hint("in Python, that version's PeftModel.from_pretrained(base, folder).merge_and_unload() makes one "
            "model "
            "of base and adapter, whose folder trimtab reads");
    return status;
}

static tt_status adapt(struct rules *rules, struct tt_module *module)
{
    double r = (double)rules->config->r, alpha = rules->config->alpha;
    if (module->kind == TT_MODULE_PARAMETER) {
        TT_TRY(check_parameter(rules->config, module));
    } else if (!tt_module_is_linear(module)) {
        tt_status status = tt_fail(module->kind == TT_MODULE_EMBEDDING ? TT_ERR_UNSUPPORTED : TT_ERR_USAGE,
                                   "target_modules matches '%s', which is not a linear layer", module->path);
        if (module->kind == TT_MODULE_EMBEDDING)
            tt_hint("train the embedding as a whole: modules_to_save %s", tt_module_last_name(module));
        return status;
    }
    if (module->bypassed) {
        tt_status status = tt_fail(
            TT_ERR_UNSUPPORTED,
            "target_modules matches '%s', which PEFT does not adapt in models of this type", module->path);
        tt_hint("name the other linears, or all that can be adapted: all-linear");
        return status;
    }
    TT_TRY(find_either(rules, &rules->rank, module->path, &r));
    TT_TRY(find_either(rules, &rules->alpha, module->path, &alpha));
    module->adapted = true;
    module->r = (int64_t)r;
    module->alpha = alpha;
    module->scaling = (float)(alpha / (rules->config->use_rslora ? sqrt(r) : r));
    return TT_OK;
}

/* The head of scores trains in full beside LoRA, as in PEFT's models of task_type SEQ_CLS (peft_model.py,
 * PeftModelForSequenceClassification). */
static void mark_scores(const struct rules *rules, struct tt_module_list *modules)
{
    const struct tt_lora_config *config = rules->config;
    for (size_t i = 0; i < modules->count; i++) {
        bool scores = strcmp(modules->items[i].path, TT_MODEL_SCORE) == 0 && !modules->items[i].adapted;
        if (scores && (!config->from_adapter || config->classifies)) modules->items[i].saved = true;
    }
}

/* Marks every module whose path ends with an entry, and all below it. */
static tt_status mark_saved(struct rules *rules, struct tt_module_list *modules)
{
    for (size_t e = 0; e < rules->save.count; e++) {
        const char *entry = tt_name_pattern_entry(&rules->save, e);
        for (size_t i = 0; i < modules->count; i++) {
            const char *root = modules->items[i].path;
            size_t bytes = strlen(root);
            char text[ALONE_BYTES];
            if (modules->items[i].kind == TT_MODULE_PARAMETER) continue;
            if (!tt_ends_with(root, entry) &&
                !tt_ends_with(tt_module_alone(modules, root, text, sizeof text), entry))
                continue;
            rules->save.used[e] = true;
            for (size_t j = 0; j < modules->count; j++) {
                const char *path = modules->items[j].path;
                bool below = strncmp(path, root, bytes) == 0 && (path[bytes] == '\0' || path[bytes] == '.');
                modules->items[j].saved = modules->items[j].saved || below;
            }
        }
    }
    mark_scores(rules, modules);
    for (size_t i = 0; i < modules->count; i++) {
        const struct tt_module *module = &modules->items[i];
        if (!module->saved || !module->adapted) continue;
        return tt_fail(TT_ERR_USAGE, "'%s' matches both %s and modules_to_save", module->path,
                       module->kind == TT_MODULE_PARAMETER ? "target_parameters" : "target_modules");
    }
    return TT_OK;
}

/* The module name that is spelled most like the last component of `entry`. */
static const char *nearest_name(const struct tt_module_list *modules, const char *entry)
{
    const char *dot = strrchr(entry, '.'), *wanted = dot != NULL ? dot + 1 : entry, *best = "";
    int best_distance = INT32_MAX;
    for (size_t i = 0; i < modules->count; i++) {
        const struct tt_module *module = &modules->items[i];
        if (module->kind == TT_MODULE_OTHER || module->kind == TT_MODULE_PARAMETER) continue;
        int distance = tt_edit_distance(wanted, tt_module_last_name(module));
        if (distance < best_distance) {
            best_distance = distance;
            best = tt_module_last_name(module);
        }
    }
    return best;
}

/* Whether a linear before has the name of this one. */
static bool is_listed(const struct tt_module_list *modules, size_t index)
{
    const char *name = tt_module_last_name(&modules->items[index]);
    for (size_t i = 0; i < index; i++)
        if (modules->items[i].kind == TT_MODULE_LINEAR &&
            strcmp(tt_module_last_name(&modules->items[i]), name) == 0)
            return true;
    return false;
}

/* "q_proj, k_proj, ... and lm_head": the names of all linears, in order of the layers, and the head's. */
static tt_status list_linears(const struct tt_module_list *modules, struct tt_str *text)
{
    for (size_t i = 0; i < modules->count; i++) {
        const struct tt_module *module = &modules->items[i];
        if (module->kind == TT_MODULE_HEAD)
            TT_TRY(tt_str_printf(text, " and %s", tt_module_last_name(module)));
        else if (module->kind == TT_MODULE_LINEAR && module->layer >= 0 && !is_listed(modules, i))
            TT_TRY(tt_str_printf(text, "%s%s", text->bytes > 0 ? ", " : "", tt_module_last_name(module)));
    }
    return TT_OK;
}

/* Whether the entry of rank_pattern or alpha_pattern is for modules that there are, but that no adapter has. */
static tt_status names_unadapted(const struct rules *rules, const struct tt_module_list *modules,
                                 const char *setting, const char *entry, bool *names)
{
    *names = false;
    const struct tt_value_pattern *values[] = {&rules->rank, &rules->alpha};
    for (int v = 0; v < 2; v++) {
        for (size_t k = 0; k < values[v]->count; k++) {
            if (strcmp(values[v]->setting, setting) != 0 || strcmp(values[v]->keys[k], entry) != 0) continue;
            for (size_t i = 0; i < modules->count && !*names; i++)
                TT_TRY(tt_regex_fullmatch(values[v]->regexes[k], modules->items[i].path, names));
        }
    }
    return TT_OK;
}

/* "mlp.gate.weight, mlp.experts.gate_up_proj, ...": the parameters of the first layer that has any. */
static tt_status list_parameters(const struct tt_module_list *modules, struct tt_str *text)
{
    int layer = -1;
    for (size_t i = 0; i < modules->count; i++) {
        const struct tt_module *module = &modules->items[i];
        if (module->kind != TT_MODULE_PARAMETER || (layer >= 0 && module->layer != layer)) continue;
        layer = module->layer;
        TT_TRY(tt_str_printf(text, "%s%s", text->bytes > 0 ? ", " : "", module->name));
    }
    return TT_OK;
}

static tt_status unused_parameter(const struct rules *rules, const struct tt_module_list *modules,
                                  const char *entry)
{
    struct tt_str parameters = {0};
    if (rules->config->from_adapter) {
        tt_info("target_parameters: '%s' matches no parameter of experts of this model", entry);
        return TT_OK;
    }
    TT_TRY(list_parameters(modules, &parameters));
    tt_status status =
        tt_fail(TT_ERR_USAGE, "target_parameters: '%s' matches no parameter of experts of this model", entry);
    if (parameters.bytes == 0)
        tt_hint("the model has no experts: name its linears in target_modules");
    else
        tt_hint("those of this model are %s; linears are named in target_modules", tt_str_text(&parameters));
    tt_str_deinit(&parameters);
    return status;
}

static tt_status unused(const struct rules *rules, const struct tt_module_list *modules, const char *setting,
                        const char *entry)
{
    struct tt_str linears = {0};
    bool unadapted;
    TT_TRY(names_unadapted(rules, modules, setting, entry, &unadapted));
    if (unadapted && !rules->config->from_adapter) {
        tt_status status =
            tt_fail(TT_ERR_USAGE, "%s: '%s' matches none of the modules that are adapted", setting, entry);
        tt_hint("the model has such modules: name them in target_modules too, or leave the entry out");
        return status;
    }
    if (rules->config->from_adapter) {
        tt_info("%s: '%s' matches no module of this model", setting, entry);
        return TT_OK;
    }
    TT_TRY(list_linears(modules, &linears));
    tt_status status = tt_fail(TT_ERR_USAGE, "%s: '%s' matches no module of this model", setting, entry);
    tt_hint("the nearest name is '%s'; the linears are %s", nearest_name(modules, entry),
            tt_str_text(&linears));
    tt_str_deinit(&linears);
    return status;
}

static tt_status check_names_used(const struct rules *rules, const struct tt_module_list *modules,
                                  const struct tt_name_pattern *pattern)
{
    for (size_t i = 0; i < pattern->count; i++) {
        if (!pattern->used[i])
            TT_TRY(unused(rules, modules, pattern->setting, tt_name_pattern_entry(pattern, i)));
    }
    return TT_OK;
}

static tt_status check_all_used(const struct rules *rules, const struct tt_module_list *modules,
                                size_t adapted)
{
    if (rules->config->target_modules != NULL) TT_TRY(check_names_used(rules, modules, &rules->target));
    for (size_t i = 0; i < rules->parameter.count; i++)
        if (!rules->parameter.used[i])
            TT_TRY(unused_parameter(rules, modules, tt_name_pattern_entry(&rules->parameter, i)));
    TT_TRY(check_names_used(rules, modules, &rules->exclude));
    TT_TRY(check_names_used(rules, modules, &rules->save));
    const struct tt_value_pattern *values[] = {&rules->rank, &rules->alpha};
    for (int v = 0; v < 2; v++) {
        for (size_t i = 0; i < values[v]->count; i++) {
            if (!values[v]->used[i]) TT_TRY(unused(rules, modules, values[v]->setting, values[v]->keys[i]));
        }
    }
    if (adapted > 0) return TT_OK;
    const char *text = rules->config->target_modules != NULL ? rules->config->target_modules : "(default)";
    tt_status status = tt_fail(TT_ERR_USAGE, "target_modules %s matches no module of this model%s", text,
                               rules->exclude.given ? " that exclude_modules leaves" : "");
    tt_hint("an expression must match the whole path, such as '%s'; the nearest name is '%s'",
            tt_module_example(modules), nearest_name(modules, text));
    return status;
}

tt_status tt_lora_apply(const struct tt_lora_config *config, const char *default_targets,
                        struct tt_module_list *modules)
{
    struct rules rules = {0};
    tt_status status = TT_OK;
    size_t adapted = 0;
    TT_GO(rules_init(&rules, config, default_targets, modules));
    for (size_t i = 0; i < modules->count; i++) {
        bool target = false;
        TT_GO(is_target(&rules, &modules->items[i], &target));
        if (!target) continue;
        TT_GO(adapt(&rules, &modules->items[i]));
        adapted++;
    }
    TT_GO(mark_saved(&rules, modules));
    TT_GO(check_all_used(&rules, modules, adapted));
out:
    if (status != TT_OK) tt_while("applying LoRA to the model");
    rules_deinit(&rules);
    return status;
}
