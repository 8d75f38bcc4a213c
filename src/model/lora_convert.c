#include "model/lora_convert.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/str.h"
#include "model/lora.h"
#include "model/pattern.h"

enum part { GATE, UP, DOWN, ROUTER, PARTS };

/* The names of target_modules, while they are translated. */
struct conversion {
    const struct tt_older_experts *older;
    struct tt_json_value *modules, *parameters; /* lists of what stays and of what comes; owned */
    bool has_parameters;                        /* the model has experts */
    bool named[PARTS];
};

static tt_status no_memory(void)
{
    return tt_fail(TT_ERR_MEMORY, "no memory for target_modules");
}

static const char *name_of(const struct conversion *conversion, int part)
{
    const char *const names[] = {conversion->older->gate, conversion->older->up, conversion->older->down,
                                 "gate"};
    return names[part];
}

static bool has_text(const struct tt_json_value *list, const char *text)
{
    for (size_t i = 0; i < tt_json_count(list); i++)
        if (strcmp(tt_json_text(tt_json_at(list, i)), text) == 0) return true;
    return false;
}

static tt_status add_text(struct tt_json_value *list, const char *text)
{
    if (has_text(list, text)) return TT_OK;
    return tt_json_append(list, tt_json_new_string(text)) == 0 ? TT_OK : no_memory();
}

static bool is_name(const char *entry, const char *name)
{
    size_t bytes = strlen(entry), end = strlen(name);
    return bytes >= end && strcmp(entry + bytes - end, name) == 0 &&
           (bytes == end || entry[bytes - end - 1] == '.');
}

static tt_status add_entry(struct conversion *conversion, const char *entry)
{
    static const char *const parameters[] = {"gate_up_proj", "gate_up_proj", "down_proj", "gate.weight"};
    for (int part = 0; part < PARTS; part++) {
        if (!is_name(entry, name_of(conversion, part))) continue;
        conversion->named[part] = true;
        return conversion->has_parameters ? add_text(conversion->parameters, parameters[part]) : TT_OK;
    }
    return add_text(conversion->modules, entry);
}

static tt_status add_all_linear(struct conversion *conversion, const struct tt_module_list *modules)
{
    for (size_t i = 0; i < modules->count; i++)
        if (modules->items[i].kind == TT_MODULE_LINEAR)
            TT_TRY(add_entry(conversion, tt_module_last_name(&modules->items[i])));
    for (int part = 0; part < PARTS; part++) TT_TRY(add_entry(conversion, name_of(conversion, part)));
    return TT_OK;
}

static tt_status add_names(struct conversion *conversion, const struct tt_lora_config *lora)
{
    struct tt_name_pattern targets = {0};
    tt_status status = tt_name_pattern_init(&targets, "target_modules", lora->target_modules,
                                            lora->from_adapter ? TT_NAMES_OF_ADAPTER : TT_NAMES_OF_SETTING);
    for (size_t i = 0; status == TT_OK && i < targets.count; i++)
        status = add_entry(conversion, tt_name_pattern_entry(&targets, i));
    tt_name_pattern_deinit(&targets);
    return status;
}

static tt_status refuse_one(const struct conversion *conversion)
{
    int is = conversion->named[GATE] ? GATE : UP, lacks = conversion->named[GATE] ? UP : GATE;
    tt_status status = tt_fail(TT_ERR_USAGE,
                               "target_modules names '%s' without '%s': in models of this type they are one "
                               "parameter of the experts, gate_up_proj",
                               name_of(conversion, is), name_of(conversion, lacks));
    tt_hint("name both, or the parameter in target_parameters: [gate_up_proj]");
    return status;
}

static tt_status keep(struct tt_arena *arena, const struct tt_json_value *value, const char **out)
{
    struct tt_str text = {0};
    tt_status status = tt_json_write(value, 0, false, &text);
    if (status == TT_OK) *out = tt_arena_strdup(arena, tt_str_text(&text));
    tt_str_deinit(&text);
    return status == TT_OK && *out == NULL ? TT_ERR_MEMORY : status;
}

/* The last key of rank_pattern or alpha_pattern. */
static tt_status add_value(struct tt_arena *arena, const char *setting, const char **pattern,
                           struct tt_json_value *value)
{
    struct tt_json json = {0};
    tt_status status = TT_OK;
    if (*pattern != NULL) status = tt_pattern_parse(setting, *pattern, &json);
    struct tt_json_value *object =
        tt_json_is_object(json.root) ? tt_json_copy(json.root) : tt_json_new_object();
    tt_json_deinit(&json);
    if (status == TT_OK && (value == NULL || tt_json_set(object, ".*\\.gate_up_proj", value) != 0))
        status = no_memory();
    if (status == TT_OK) status = keep(arena, object, pattern);
    tt_json_release(object);
    return status;
}

static tt_status add_parameters(struct conversion *conversion, const struct tt_lora_config *lora)
{
    struct tt_name_pattern given = {0};
    tt_status status =
        tt_name_pattern_init(&given, "target_parameters", lora->target_parameters, TT_NAMES_AS_LIST);
    for (size_t i = 0; status == TT_OK && i < given.count; i++)
        status = add_text(conversion->parameters, tt_name_pattern_entry(&given, i));
    tt_name_pattern_deinit(&given);
    return status;
}

static tt_status convert(struct conversion *conversion, const struct tt_module_list *modules,
                         struct tt_arena *arena, struct tt_lora_config *lora)
{
    bool all_linear;
    TT_TRY(tt_lora_is_all_linear(lora->target_modules, &all_linear));
    if (all_linear && lora->layers_to_transform != NULL) return TT_OK; /* which the rules refuse */
    TT_TRY(all_linear ? add_all_linear(conversion, modules) : add_names(conversion, lora));
    bool any = false;
    for (int part = 0; part < PARTS; part++) any |= conversion->named[part];
    if (!any) return TT_OK;
    if (conversion->named[GATE] != conversion->named[UP]) return refuse_one(conversion);
    TT_TRY(add_parameters(conversion, lora));
    TT_TRY(keep(arena, conversion->modules, &lora->target_modules));
    if (!conversion->has_parameters) return TT_OK;
    TT_TRY(keep(arena, conversion->parameters, &lora->target_parameters));
    if (!conversion->named[GATE]) return TT_OK;
    TT_TRY(add_value(arena, "rank_pattern", &lora->rank_pattern, tt_json_new_integer(2 * lora->r)));
    double alpha = 2 * lora->alpha;
    return add_value(arena, "alpha_pattern", &lora->alpha_pattern,
                     alpha == floor(alpha) ? tt_json_new_integer((int64_t)alpha) : tt_json_new_real(alpha));
}

tt_status tt_lora_convert(const struct tt_older_experts *older, const struct tt_module_list *modules,
                          struct tt_arena *arena, struct tt_lora_config *lora)
{
    struct conversion conversion = {
        .older = older, .modules = tt_json_new_list(), .parameters = tt_json_new_list()};
    tt_status status = TT_OK;
    for (size_t i = 0; i < modules->count; i++)
        conversion.has_parameters |= modules->items[i].kind == TT_MODULE_PARAMETER;
    if (conversion.modules == NULL || conversion.parameters == NULL) status = no_memory();
    if (status == TT_OK && lora->target_modules != NULL) status = convert(&conversion, modules, arena, lora);
    tt_json_release(conversion.modules);
    tt_json_release(conversion.parameters);
    return status;
}
