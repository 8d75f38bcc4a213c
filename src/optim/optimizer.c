#include "optim/optimizer.h"

#include <string.h>

#include "backend/ops/optim.h"

static const struct tt_optimizer optimizers[] = {
#define SPELLING(name, rule, bits, place) {name, &tt_rule_##rule, TT_MOMENT_##bits, TT_MOMENT_##place},
#define VARIANT SPELLING
#define REFUSED(name, instead)
#include "optim/spellings.def"
#undef SPELLING
#undef VARIANT
#undef REFUSED
};

static const struct {
    const char *spelling, *instead;
} refused[] = {
#define SPELLING(name, rule, bits, place)
#define VARIANT SPELLING
#define REFUSED(name, instead) {name, instead},
#include "optim/spellings.def"
#undef SPELLING
#undef VARIANT
#undef REFUSED
};

const struct tt_optimizer *tt_optimizer_of(const struct tt_optim_config *config)
{
    const char *name = config != NULL ? config->optim : NULL;
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers && name != NULL; i++) {
        const struct tt_rule *rule = optimizers[i].rule;
        if (strcmp(optimizers[i].spelling, name) == 0 && (rule->fits == NULL || rule->fits(config)))
            return &optimizers[i];
    }
    return optimizers;
}

const struct tt_optimizer *tt_optimizer_like(const struct tt_optimizer *optimizer, enum tt_moment_bits bits,
                                             enum tt_moment_place place)
{
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        const struct tt_optimizer *other = &optimizers[i];
        if (other->rule == optimizer->rule && other->bits == bits && other->place == place) return other;
    }
    return NULL;
}

static const struct tt_optimizer *find_spelling(const char *spelling)
{
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        if (strcmp(optimizers[i].spelling, spelling) == 0) return &optimizers[i];
    return NULL;
}

bool tt_optimizer_is_same(const char *spelling, const char *other)
{
    const struct tt_optimizer *a = find_spelling(spelling), *b = find_spelling(other);
    return a != NULL && b != NULL && a->rule == b->rule && a->bits == b->bits;
}

tt_status tt_optimizer_check(const struct tt_optim_config *config)
{
    const struct tt_rule *rule = tt_optimizer_of(config)->rule;
    if (!rule->has_momentum && (config->momentum > 0 || config->nesterov)) {
        tt_status status = tt_fail(TT_ERR_USAGE, "%s is a setting of optim sgd and muon, and optim is %s",
                                   config->nesterov ? "nesterov" : "momentum", config->optim);
        tt_hint("%s's averages are set by adam_beta1 and adam_beta2", rule->name);
        return status;
    }
    if (config->nesterov && !(config->momentum > 0)) {
        tt_status status = tt_fail(TT_ERR_USAGE, "nesterov needs momentum above 0");
        tt_hint("--momentum 0.9 is usual");
        return status;
    }
    return rule->check != NULL ? rule->check(config) : TT_OK;
}

const char *tt_optimizer_instead(const char *spelling)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strcmp(refused[i].spelling, spelling) == 0) return refused[i].instead;
    return NULL;
}

int tt_optimizer_moments(const struct tt_optimizer *optimizer, const tt_param *param)
{
    return tt_optimizer_takes_whole(optimizer, param) ? 1 : optimizer->rule->moment_count;
}

bool tt_optimizer_codes(const struct tt_optimizer *optimizer, const tt_param *param)
{
    return optimizer->bits == TT_MOMENT_8 && param->place != TT_PLACE_EMBEDDING &&
           tt_param_count(param) >= TT_CODED_COUNT_MIN;
}

int64_t tt_optimizer_alignment(const struct tt_optimizer *optimizer)
{
    return optimizer->bits == TT_MOMENT_8 ? TT_MOMENT_BLOCK : 1;
}

bool tt_optimizer_value(const struct tt_optimizer *optimizer, const tt_param *param, int index,
                        struct tt_state_value *value)
{
    /* bitsandbytes' names */
    static const char *const coded[TT_STATE_VALUES] = {"optimizer.state1.", "optimizer.state2.",
                                                       "optimizer.absmax1.", "optimizer.absmax2."};
    int moment = index % TT_MOMENTS_MAX;
    bool is_size = index >= TT_MOMENTS_MAX;
    if (moment >= tt_optimizer_moments(optimizer, param)) return false;
    if (!tt_optimizer_codes(optimizer, param)) {
        bool is_whole = tt_optimizer_takes_whole(optimizer, param);
        const struct tt_rule *rule = optimizer->rule;
        *value = (struct tt_state_value){is_whole ? rule->whole->prefix : rule->prefixes[moment], TT_F32, 1};
        return !is_size;
    }
    *value = (struct tt_state_value){coded[index], is_size ? TT_F32 : TT_U8, is_size ? TT_MOMENT_BLOCK : 1};
    return true;
}
