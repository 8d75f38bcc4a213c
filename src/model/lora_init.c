#include "model/lora_init.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ascii.h"
#include "base/str.h"
#include "io/param_source.h"
#include "model/adapter_config.h"
#include "model/pattern.h"

static const struct tt_lora_init kinds[] = {
#define INIT(name, make, uses, changes_base) {name, make, uses, changes_base},
#include "model/lora_inits.def"
#undef INIT
};
enum { KINDS = sizeof kinds / sizeof *kinds, NUMBER_MAX = 1000 };

/* Whether `name` is that of the kind, whose '*' is a number of at least 1. */
static bool is_name(const struct tt_lora_init *kind, const char *name, int64_t *number)
{
    size_t bytes = strlen(kind->name);
    *number = 0;
    if (kind->name[bytes - 1] != '*') return tt_ascii_same(kind->name, name);
    char *end;
    const char *digits = name + bytes - 1;
    if (strlen(name) < bytes || strncmp(kind->name, name, bytes - 1) != 0) return false;
    if (*digits < '0' || *digits > '9') return false;
    *number = strtoll(digits, &end, 10);
    return *end == '\0' && *number >= 1 && *number <= NUMBER_MAX;
}

static tt_status refuse(const char *name)
{
    struct tt_str names = {0};
    tt_status status = TT_OK;
    for (int k = 0; k < KINDS && status == TT_OK; k++) {
        size_t bytes = strlen(kinds[k].name);
        bool numbered = kinds[k].name[bytes - 1] == '*';
        status = tt_str_printf(&names, "%s%.*s%s", k > 0 ? ", " : "", (int)(bytes - numbered), kinds[k].name,
                               numbered ? "N" : "");
    }
    if (status == TT_OK) {
        status = tt_fail(TT_ERR_USAGE, "init_lora_weights is '%.40s', which is none of: %s", name,
                         tt_str_text(&names));
        tt_hint("docs/lora.md says why other values of PEFT's are none");
    }
    tt_str_deinit(&names);
    return status;
}

tt_status tt_lora_init_find(const char *name, const struct tt_lora_init **kind, int64_t *number)
{
    int64_t found;
    if (name == NULL) name = kinds[0].name;
    for (int k = 0; k < KINDS; k++) {
        if (!is_name(&kinds[k], name, &found)) continue;
        *kind = &kinds[k];
        *number = found;
        return TT_OK;
    }
    return refuse(name);
}

const struct tt_lora_init *tt_lora_init_of(const struct tt_lora_config *lora, int64_t *number)
{
    int64_t found;
    if (!lora->enabled || lora->from_adapter || lora->init_weights == NULL) return NULL;
    for (int k = 0; k < KINDS; k++) {
        if (!is_name(&kinds[k], lora->init_weights, &found) || kinds[k].make == NULL) continue;
        if (number != NULL) *number = found;
        return &kinds[k];
    }
    return NULL;
}

bool tt_lora_changes_base(const struct tt_lora_config *lora)
{
    const struct tt_lora_init *kind = tt_lora_init_of(lora, NULL);
    return kind != NULL && kind->changes_base;
}

/* ---- Linears without such values ---- */

static tt_status refuse_module(const struct tt_lora_config *lora, const struct tt_module *module,
                               const char *reason, const char *hint)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "init_lora_weights is %s, and '%s' %s", lora->init_weights,
                               module->path, reason);
    tt_hint("%s", hint);
    return status;
}

static tt_status check_rank(const struct tt_lora_config *lora, const struct tt_module *module,
                            const struct tt_lora_init *kind, const tt_param *a, const tt_param *b)
{
    int64_t in = a->dims[1], out = b->dims[0], least = in < out ? in : out;
    if ((kind->uses & TT_LORA_INIT_READS_WEIGHT) != 0 && module->r > least) {
        tt_status status = tt_fail(TT_ERR_USAGE,
                                   "init_lora_weights is %s, and the rank of '%s' is %" PRId64
                                   ": its weight of %" PRId64 " x %" PRId64 " has at most %" PRId64,
                                   lora->init_weights, module->path, module->r, out, in, least);
        tt_hint("choose a smaller lora_r, or one for this linear in rank_pattern");
        return status;
    }
    if (kind->make == tt_lora_init_orthogonal && module->r % 2 != 0)
        return refuse_module(lora, module, "has an odd rank",
                             "PEFT has these values for even ranks alone: change lora_r or rank_pattern");
    return TT_OK;
}

/* The formats that PEFT's loftq_init has, each by its bits. */
static int loftq_bits(const tt_param *weight)
{
    const char *format = tt_quant_type_name(weight->quant.format.type);
    return strcmp(format, "nf4") == 0 ? 4 : strcmp(format, "int8") == 0 ? 8 : 0;
}

static tt_status check_loftq(const struct tt_lora_config *lora, const struct tt_module *module,
                             const tt_param *weight)
{
    struct tt_json json = {0};
    int bits = loftq_bits(weight);
    int64_t wanted = bits, iterations = 1;
    if (bits == 0)
        return refuse_module(lora, module, "is quantized neither in NF4 nor in 8 bits",
                             "set load_in_4bit: true with bnb_4bit_quant_type: nf4, or load_in_8bit: true");
    if (lora->loftq_config == NULL) return TT_OK;
    TT_TRY(tt_pattern_parse("loftq_config", lora->loftq_config, &json));
    tt_status status = tt_json_opt_int(&json, json.root, "loftq_bits", &wanted);
    if (status == TT_OK) status = tt_json_opt_int(&json, json.root, "loftq_iter", &iterations);
    tt_json_deinit(&json);
    TT_TRY(status);
    if (wanted != bits) {
        status = tt_fail(TT_ERR_USAGE, "loftq_bits is %" PRId64 ", and '%s' is quantized to %d bits", wanted,
                         module->path, bits);
        tt_hint("load_in_4bit: true has 4, load_in_8bit: true has 8");
    } else if (iterations != 1) {
        status =
            tt_fail(TT_ERR_UNSUPPORTED, "loftq_iter is %" PRId64 ", and only 1 is supported", iterations);
        tt_hint("with more iterations the quantized base is one that no folder has, so that nothing could "
                "load the "
                "adapter");
    }
    return status;
}

static tt_status check_weight(const struct tt_model *model, const struct tt_module *module,
                              const struct tt_lora_init *kind, const tt_param *weight)
{
    const struct tt_lora_config *lora = &model->options.lora;
    if ((kind->uses & TT_LORA_INIT_READS_WEIGHT) == 0) return TT_OK;
    if (weight == NULL)
        return refuse_module(lora, module, "has the weight of the embeddings, which it would change",
                             "leave the head out of lora_target_modules, or choose init_lora_weights: true");
    if (model->facts.stored_quant != TT_QUANT_NONE)
        return refuse_module(lora, module, "is in a folder of quantized weights",
                             "use the folder of the original weights; load_in_4bit quantizes what is left of "
                             "them while loading");
    if ((kind->uses & TT_LORA_INIT_QUANTIZED) != 0 && !tt_param_is_quantized(weight))
        return refuse_module(lora, module, "is not quantized",
                             "set load_in_4bit: true or load_in_8bit: true");
    return kind->make == tt_lora_init_loftq ? check_loftq(lora, module, weight) : TT_OK;
}

/* Linears whose rows the files have in another order than the model. */
static tt_status check_order(const struct tt_model *model, const struct tt_lora_init *kind)
{
    struct tt_param_sources sources;
    struct tt_arena arena = {0};
    if (!kind->changes_base) return TT_OK;
    tt_status status = tt_adapter_sources(&model->facts, &model->options.lora, &arena, &sources);
    bool dealt = status == TT_OK && sources.path != NULL;
    tt_arena_deinit(&arena);
    if (dealt)
        return tt_fail(TT_ERR_UNSUPPORTED, "init_lora_weights is %s, which models of type %s have not",
                       model->options.lora.init_weights, model->facts.model_type);
    return status;
}

static tt_param *find_param(const struct tt_model *model, const struct tt_module *module, const char *suffix)
{
    char name[512];
    (void)snprintf(name, sizeof name, "%s.%s", module->path, suffix);
    return tt_model_find_param(model, name);
}

tt_status tt_lora_init_check(const struct tt_model *model)
{
    const struct tt_lora_config *lora = &model->options.lora;
    const struct tt_lora_init *kind = tt_lora_init_of(lora, NULL);
    if (kind == NULL) return TT_OK;
    TT_TRY(check_order(model, kind));
    for (size_t i = 0; i < model->modules.count; i++) {
        const struct tt_module *module = &model->modules.items[i];
        if (!module->adapted) continue;
        if (module->kind == TT_MODULE_PARAMETER)
            return refuse_module(lora, module, "is a parameter of experts",
                                 "PEFT has init_lora_weights: true alone for target_parameters");
        const tt_param *a = find_param(model, module, "lora_A.weight");
        const tt_param *b = find_param(model, module, "lora_B.weight");
        if (a == NULL || b == NULL) continue;
        TT_TRY(check_rank(lora, module, kind, a, b));
        TT_TRY(check_weight(model, module, kind, find_param(model, module, "weight")));
    }
    return TT_OK;
}
