/* Writes adapter_config.json as PEFT does. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/ascii.h"
#include "base/str.h"
#include "model/adapter_config.h"
#include "model/family.h"
#include "model/lora.h"
#include "model/lora_init.h"
#include "model/pattern.h"

/* The release of this format; the key exists since then. */
static const char peft_version[] = "0.18.0";
/* The first one that has A and B of parameters of experts as here (tt_lora_config.swapped). */
static const char peft_version_of_parameters[] = "0.19.0";
/* PEFT writes, from this many names on, the shortest endings instead of whole paths
 * (MIN_TARGET_MODULES_FOR_OPTIMIZATION). */
enum { WHOLE_PATHS_MAX = 20 };

static tt_status no_memory(void)
{
    return tt_fail(TT_ERR_MEMORY, "no memory to write adapter_config.json");
}

static tt_status set(struct tt_json_value *object, const char *key, struct tt_json_value *value)
{
    return value != NULL && tt_json_set(object, key, value) == 0 ? TT_OK : no_memory();
}

static tt_status set_sorted_list(struct tt_json_value *object, const char *key, const char **texts,
                                 size_t count)
{
    struct tt_json_value *list = tt_json_new_list();
    tt_status status = list != NULL ? TT_OK : no_memory();
    qsort(texts, count, sizeof *texts, tt_compare_texts);
    for (size_t i = 0; i < count && status == TT_OK; i++) {
        if (tt_json_append(list, tt_json_new_string(texts[i])) != 0) status = no_memory();
    }
    if (status != TT_OK) {
        tt_json_release(list);
        return status;
    }
    return set(object, key, list);
}

static bool has_name(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

/* The modules that "all-linear" selected. */
static tt_status set_all_linear(struct tt_json_value *object, const struct tt_module_list *modules)
{
    size_t count = 0;
    const char **names = tt_calloc(modules->count, sizeof *names);
    if (names == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < modules->count; i++) {
        const struct tt_module *module = &modules->items[i];
        if (module->kind == TT_MODULE_LINEAR && !module->bypassed) names[count++] = module->path;
    }
    if (count >= WHOLE_PATHS_MAX) {
        count = 0;
        for (size_t i = 0; i < modules->count; i++) {
            const struct tt_module *module = &modules->items[i];
            const char *name = tt_module_last_name(module);
            if (module->kind == TT_MODULE_LINEAR && !module->bypassed && !has_name(names, count, name))
                names[count++] = name;
        }
    }
    tt_status status = set_sorted_list(object, "target_modules", names, count);
    tt_free(names);
    return status;
}

/* Whether every layer has the same adapted linears as the first. */
static bool layers_are_alike(const struct tt_module_list *modules)
{
    size_t first = 0, all = 0;
    for (size_t i = 0; i < modules->count; i++) {
        const struct tt_module *module = &modules->items[i];
        if (!tt_module_is_adapted_linear(module) || module->layer < 0) continue;
        all++;
        if (module->layer == 0) first++;
        bool in_first = false;
        for (size_t j = 0; j < modules->count && !in_first; j++)
            in_first = modules->items[j].layer == 0 && tt_module_is_adapted_linear(&modules->items[j]) &&
                       strcmp(modules->items[j].name, module->name) == 0;
        if (!in_first) return false;
    }
    return all == first * (size_t)modules->layer_count;
}

/* A name as an expression. */
static tt_status append_escaped(struct tt_str *text, const char *name)
{
    for (; *name != '\0'; name++) TT_TRY(tt_str_printf(text, *name == '.' ? "\\%c" : "%c", *name));
    return TT_OK;
}

/* "model\.language_model\.layers\.\d+\.(self_attn\.q_proj|...)", and paths outside the layers. */
static tt_status write_targets(const struct tt_module_list *modules, struct tt_str *text)
{
    bool alike = layers_are_alike(modules), open = false;
    for (size_t i = 0; i < modules->count; i++) {
        const struct tt_module *module = &modules->items[i];
        if (!tt_module_is_adapted_linear(module) || !alike || module->layer != 0) continue;
        if (!open) TT_TRY(append_escaped(text, modules->layers));
        TT_TRY(tt_str_append_text(text, open ? "|" : "\\.\\d+\\.("));
        TT_TRY(append_escaped(text, module->name));
        open = true;
    }
    if (open) TT_TRY(tt_str_append_char(text, ')'));
    for (size_t i = 0; i < modules->count; i++) {
        const struct tt_module *module = &modules->items[i];
        if (!tt_module_is_adapted_linear(module) || (alike && module->layer >= 0)) continue;
        if (text->bytes > 0) TT_TRY(tt_str_append_char(text, '|'));
        TT_TRY(append_escaped(text, module->path));
    }
    return TT_OK;
}

/* The adapted modules of a text part by one expression for whole paths, which fits no module of another part: names
 * alone, as "q_proj", would have PEFT adapt the vision tower too. It says everything that the settings chose. */
static tt_status set_exact(struct tt_json_value *object, const struct tt_module_list *modules)
{
    static const char *const nulls[] = {"exclude_modules", "layers_pattern", "layers_to_transform"};
    struct tt_str text = {0};
    tt_status status = write_targets(modules, &text);
    if (status == TT_OK) status = set(object, "target_modules", tt_json_new_string(tt_str_text(&text)));
    for (int i = 0; i < 3 && status == TT_OK; i++) status = set(object, nulls[i], tt_json_new_null());
    tt_str_deinit(&text);
    return status;
}

/* A pattern setting as PEFT stores it: null, a list of names, or the expression as a string. */
static tt_status set_names(struct tt_json_value *object, const char *key, const char *text,
                           enum tt_name_spelling spelling)
{
    struct tt_name_pattern pattern = {0};
    tt_status status = TT_OK;
    const char **names = NULL;
    if (text == NULL) return set(object, key, tt_json_new_null());
    TT_GO(tt_name_pattern_init(&pattern, key, text, spelling));
    if (pattern.regex != NULL) {
        TT_GO(set(object, key, tt_json_new_string(pattern.expression)));
        goto out;
    }
    names = tt_calloc(pattern.count, sizeof *names);
    if (names == NULL) TT_GO(TT_ERR_MEMORY);
    for (size_t i = 0; i < pattern.count; i++) names[i] = tt_name_pattern_entry(&pattern, i);
    TT_GO(set_sorted_list(object, key, names, pattern.count));
out:
    tt_free(names);
    tt_name_pattern_deinit(&pattern);
    return status;
}

/* Integers are written without a point, as Python does with an int. */
static struct tt_json_value *number(double value)
{
    return value == floor(value) && fabs(value) < 1e15 ? tt_json_new_integer((int64_t)value)
                                                       : tt_json_new_real(value);
}

static tt_status set_in(struct tt_json_value *object, const char *key, const char *inner,
                        struct tt_json_value *value)
{
    struct tt_json_value *copy = tt_json_copy(tt_json_get(object, key));
    tt_status status = copy != NULL ? set(copy, inner, value) : no_memory();
    return status == TT_OK ? set(object, key, copy) : status;
}

/* JSON objects are written with sorted keys, but the first matching key wins. Where a module matches keys of different
 * values, the pattern is written module by module, so that it does not depend on the order; so it is where the text
 * model is a part, whose keys may be spelled for the text model alone. */
static tt_status set_values(struct tt_json_value *object, const char *key, const char *text, double fallback,
                            double times, const struct tt_module_list *modules)
{
    struct tt_value_pattern pattern = {0};
    tt_status status = TT_OK;
    bool ambiguous = false, renamed = false;
    struct tt_json_value *spelled_out = tt_json_new_object();
    if (spelled_out == NULL) return no_memory();
    TT_GO(tt_value_pattern_init(&pattern, key, text, false, 0, 1e18));
    for (size_t i = 0; i < modules->count; i++) {
        const struct tt_module *module = &modules->items[i];
        if (!tt_module_is_linear(module) && module->kind != TT_MODULE_PARAMETER) continue;
        char text_alone[256];
        const char *alone = tt_module_alone(modules, module->path, text_alone, sizeof text_alone);
        double value = fallback;
        renamed |= alone != module->path;
        if (alone != module->path) TT_GO(tt_value_pattern_find(&pattern, alone, &value, &ambiguous));
        TT_GO(tt_value_pattern_find(&pattern, module->path, &value, &ambiguous));
        if (value != fallback) TT_GO(set(spelled_out, module->path, number(value * times)));
    }
    if (!ambiguous && !renamed && pattern.count > 0) {
        TT_GO(set(object, key, tt_json_copy(pattern.object.root)));
        for (size_t i = 0; times != 1 && i < pattern.count; i++)
            TT_GO(set_in(object, key, pattern.keys[i], number(pattern.values[i] * times)));
    } else {
        TT_GO(set(object, key, tt_json_copy(spelled_out)));
    }
out:
    tt_json_release(spelled_out);
    tt_value_pattern_deinit(&pattern);
    return status;
}

/* Any JSON value, also a bare number: parsed as the only entry of a list. */
static tt_status set_json(struct tt_json_value *object, const char *key, const char *value)
{
    struct tt_json json = {0};
    struct tt_str list = {0};
    if (value == NULL) return set(object, key, tt_json_new_null());
    tt_status status = tt_str_printf(&list, "[%s]", value);
    if (status == TT_OK) status = tt_json_parse(tt_str_text(&list), list.bytes, key, &json);
    if (status == TT_OK) status = set(object, key, tt_json_copy(tt_json_at(json.root, 0)));
    tt_json_deinit(&json);
    tt_str_deinit(&list);
    return status;
}

static tt_status set_constants(struct tt_json_value *object, bool scores, const char *base_model)
{
    static const char *const nulls[] = {"auto_mapping", "layer_replication", "megatron_config", "revision"};
    static const char *const falses[] = {"fan_in_fan_out", "lora_bias"};
    for (size_t i = 0; i < sizeof nulls / sizeof nulls[0]; i++)
        TT_TRY(set(object, nulls[i], tt_json_new_null()));
    for (size_t i = 0; i < sizeof falses / sizeof falses[0]; i++)
        TT_TRY(set(object, falses[i], tt_json_new_bool(false)));
    TT_TRY(set(object, "base_model_name_or_path",
               base_model != NULL ? tt_json_new_string(base_model) : tt_json_new_null()));
    TT_TRY(set(object, "inference_mode", tt_json_new_bool(true)));
    TT_TRY(set(object, "loftq_config", tt_json_new_object()));
    TT_TRY(set(object, "megatron_core", tt_json_new_string("megatron.core")));
    TT_TRY(set(object, "peft_type", tt_json_new_string("LORA")));
    TT_TRY(set(object, "peft_version", tt_json_new_string(peft_version)));
    return set(object, "task_type", tt_json_new_string(scores ? "SEQ_CLS" : "CAUSAL_LM"));
}

/* The modules as the settings name them. */
static tt_status set_targets(struct tt_json_value *object, const struct tt_lora_config *lora,
                             const char *default_targets, const struct tt_module_list *modules)
{
    enum tt_name_spelling spelling = lora->from_adapter ? TT_NAMES_OF_ADAPTER : TT_NAMES_OF_SETTING;
    const char *targets = lora->target_modules != NULL ? lora->target_modules : default_targets;
    bool all_linear;
    TT_TRY(tt_lora_is_all_linear(targets, &all_linear));
    if (all_linear) {
        TT_TRY(set_all_linear(object, modules));
    } else {
        TT_TRY(set_names(object, "target_modules", targets, spelling));
    }
    TT_TRY(set_names(object, "exclude_modules", lora->exclude_modules, spelling));
    TT_TRY(set_names(object, "layers_pattern", lora->layers_pattern, TT_NAMES_AS_LIST));
    return set_json(object, "layers_to_transform", lora->layers_to_transform);
}

/* Modules of the text model as a part get their whole paths, which PEFT finds in the folder's class. */
static tt_status set_saved(struct tt_json_value *object, const char *text,
                           const struct tt_module_list *modules)
{
    static const char key[] = "modules_to_save";
    bool part = modules->text != NULL && strcmp(modules->text, "model") != 0;
    if (text == NULL || !part) return set_names(object, key, text, TT_NAMES_AS_LIST);
    tt_status status = TT_OK;
    size_t count = 0;
    const char **names = tt_calloc(modules->count + 1, sizeof *names);
    if (names == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < modules->count; i++)
        if (modules->items[i].saved && modules->items[i].kind != TT_MODULE_PARAMETER)
            names[count++] = modules->items[i].path;
    status = set_sorted_list(object, key, names, count);
    tt_free(names);
    return status;
}

/* The head of scores trains beside every adapter, named in modules_to_save or not. */
static tt_status add_scores(struct tt_json_value *object)
{
    static const char key[] = "modules_to_save";
    const struct tt_json_value *named = tt_json_get(object, key);
    for (size_t i = 0; i < tt_json_count(named); i++)
        if (strcmp(tt_json_text(tt_json_at(named, i)), TT_MODEL_SCORE) == 0) return TT_OK;
    struct tt_json_value *list = tt_json_is_list(named) ? tt_json_copy(named) : tt_json_new_list();
    if (tt_json_append(list, tt_json_new_string(TT_MODEL_SCORE)) != 0) return no_memory();
    return set(object, key, list);
}

/* The kinds that leave the base as it is, and that PEFT makes anew without its weights where it loads the folder. */
static tt_status set_init(struct tt_json_value *object, const struct tt_lora_config *lora)
{
    const struct tt_lora_init *kind = NULL;
    int64_t number;
    bool named = lora->init_weights != NULL && !tt_ascii_same(lora->init_weights, "true");
    if (named && !lora->from_adapter) TT_TRY(tt_lora_init_find(lora->init_weights, &kind, &number));
    named = named && (kind == NULL || kind->uses == 0);
    return set(object, "init_lora_weights",
               named ? tt_json_new_string(kind != NULL ? kind->name : lora->init_weights)
                     : tt_json_new_bool(true));
}

/* `times`: of the ranks, and of the alphas as far as the scaling stays (PeftModel.save_pretrained). */
static tt_status set_lora(struct tt_json_value *object, const struct tt_model *model, int times)
{
    const struct tt_lora_config *lora = &model->options.lora;
    const struct tt_module_list *modules = &model->modules;
    const char *default_targets = model->facts.family->default_target_modules;
    double of_alpha = lora->use_rslora ? sqrt(times) : times;
    TT_TRY(model->facts.part != NULL ? set_exact(object, modules)
                                     : set_targets(object, lora, default_targets, modules));
    if (lora->target_parameters != NULL) {
        TT_TRY(set_names(object, "target_parameters", lora->target_parameters, TT_NAMES_AS_LIST));
        TT_TRY(set(object, "peft_version", tt_json_new_string(peft_version_of_parameters)));
    }
    TT_TRY(set_saved(object, lora->modules_to_save, modules));
    if (model->facts.label_count > 0) TT_TRY(add_scores(object));
    TT_TRY(set_values(object, "rank_pattern", lora->rank_pattern, (double)lora->r, times, modules));
    TT_TRY(set_values(object, "alpha_pattern", lora->alpha_pattern, lora->alpha, of_alpha, modules));
    TT_TRY(set(object, "r", tt_json_new_integer(times * lora->r)));
    TT_TRY(set(object, "lora_alpha", number(of_alpha * lora->alpha)));
    TT_TRY(set(object, "lora_dropout", tt_json_new_real(lora->dropout)));
    TT_TRY(set(object, "use_rslora", tt_json_new_bool(lora->use_rslora)));
    TT_TRY(set(object, "use_dora", tt_json_new_bool(lora->use_dora)));
    TT_TRY(set(object, "bias", tt_json_new_string(tt_lora_bias_words[lora->bias])));
    if (lora->trainable_token_indices != NULL)
        TT_TRY(set_json(object, "trainable_token_indices", lora->trainable_token_indices));
    if (lora->ensure_weight_tying) TT_TRY(set(object, "ensure_weight_tying", tt_json_new_bool(true)));
    return set_init(object, lora);
}

static tt_status write_times(const struct tt_model *model, const char *base_model, int times,
                             struct tt_str *text)
{
    tt_status status = TT_OK;
    struct tt_json_value *object = tt_json_new_object();
    if (object == NULL) return no_memory();
    TT_GO(set_constants(object, model->facts.label_count > 0, base_model));
    TT_GO(set_lora(object, model, times));
    TT_GO(tt_json_write(object, 2, true, text));
out:
    tt_json_release(object);
    return status;
}

tt_status tt_adapter_config_write(const struct tt_model *model, const char *base_model, struct tt_str *text)
{
    return write_times(model, base_model, tt_lora_changes_base(&model->options.lora) ? 2 : 1, text);
}

tt_status tt_adapter_config_write_first(const struct tt_model *model, const char *base_model,
                                        struct tt_str *text)
{
    return write_times(model, base_model, 1, text);
}
