/* Rotary positions in config.json. v4: rope_theta beside rope_scaling; v5: both in rope_parameters. Source:
 * modeling_rope_utils.py of transformers 5. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "model/family.h"

/* Where the keys of one rotation are. */
struct source {
    const struct tt_json *json;
    const struct tt_json_value *object;
    const struct tt_model_facts *facts;
    const struct tt_rope_rules *rules;
};

static tt_status unsupported_type(const struct source *source, const char *name)
{
    tt_status status =
        tt_fail(TT_ERR_UNSUPPORTED, "%s: the rope type '%s' is not supported", source->json->origin, name);
    tt_hint(source->rules->phi3
                ? "supported are default and longrope"
                : "supported are default, linear, dynamic, llama3, yarn, longrope and proportional");
    return status;
}

static tt_status read_type(const struct source *source, struct tt_rope *rope)
{
    static const char *const names[TT_ROPE_TYPES] = {
        [TT_ROPE_DEFAULT] = "default",
        [TT_ROPE_LINEAR] = "linear",
        [TT_ROPE_DYNAMIC] = "dynamic",
        [TT_ROPE_LLAMA3] = "llama3",
        [TT_ROPE_YARN] = "yarn",
        [TT_ROPE_LONGROPE] = "longrope",
        [TT_ROPE_PROPORTIONAL] = "proportional",
    };
    const char *name = "default";
    TT_TRY(tt_json_opt_string(source->json, source->object, "type", &name));
    TT_TRY(tt_json_opt_string(source->json, source->object, "rope_type", &name));
    if (source->rules->sections && strcmp(name, "mrope") == 0) name = "default";
    if (source->rules->phi3) {
        bool known = strcmp(name, "longrope") == 0 || strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0;
        rope->type = known ? TT_ROPE_LONGROPE : TT_ROPE_DEFAULT;
        return known || strcmp(name, "default") == 0 ? TT_OK : unsupported_type(source, name);
    }
    for (int i = 0; i < TT_ROPE_TYPES; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        rope->type = (enum tt_rope_type)i;
        return TT_OK;
    }
    return unsupported_type(source, name);
}

/* A key of the object, checked. */
static tt_status read_positive(const struct source *source, const char *key, double *value)
{
    TT_TRY(tt_json_opt_double(source->json, source->object, key, value));
    return tt_family_check_positive(source->json, key, *value, 1e6);
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

static tt_status read_yarn(const struct source *source, struct tt_rope *rope)
{
    double mscale = 0, mscale_all_dim = 0;
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    rope->truncate = true;
    TT_TRY(read_positive(source, "beta_fast", &rope->beta_fast));
    TT_TRY(read_positive(source, "beta_slow", &rope->beta_slow));
    TT_TRY(tt_json_opt_bool(source->json, source->object, "truncate", &rope->truncate));
    TT_TRY(tt_json_opt_double(source->json, source->object, "mscale", &mscale));
    TT_TRY(tt_json_opt_double(source->json, source->object, "mscale_all_dim", &mscale_all_dim));
    rope->attention_factor = yarn_mscale(rope->factor, 1);
    if (mscale != 0 && mscale_all_dim != 0)
        rope->attention_factor =
            yarn_mscale(rope->factor, mscale) / yarn_mscale(rope->factor, mscale_all_dim);
    return read_positive(source, "attention_factor", &rope->attention_factor);
}

static tt_status read_llama3(const struct source *source, struct tt_rope *rope)
{
    const struct tt_json *json = source->json;
    TT_TRY(tt_json_double(json, source->object, "low_freq_factor", &rope->low_freq_factor));
    TT_TRY(tt_json_double(json, source->object, "high_freq_factor", &rope->high_freq_factor));
    TT_TRY(tt_family_check_positive(json, "low_freq_factor", rope->low_freq_factor, 1e6));
    TT_TRY(tt_family_check_positive(json, "high_freq_factor", rope->high_freq_factor, 1e6));
    if (rope->high_freq_factor > rope->low_freq_factor) return TT_OK;
    return tt_fail(TT_ERR_DATA, "%s: high_freq_factor (%g) must be above low_freq_factor (%g)", json->origin,
                   rope->high_freq_factor, rope->low_freq_factor);
}

static tt_status read_factors(const struct source *source, const struct tt_rope *rope, const char *key,
                              float factors[TT_ROPE_FACTORS_MAX])
{
    const struct tt_json *json = source->json;
    const struct tt_json_value *list;
    TT_TRY(tt_json_array(json, source->object, key, &list));
    if ((int64_t)tt_json_count(list) != rope->columns / 2)
        return tt_fail(TT_ERR_DATA, "%s: %s has %zu entries for %" PRId64 " pairs of columns", json->origin,
                       key, tt_json_count(list), rope->columns / 2);
    for (size_t i = 0; i < tt_json_count(list); i++) {
        const struct tt_json_value *item = tt_json_at(list, i);
        if (!tt_json_is_number(item))
            return tt_fail(TT_ERR_DATA, "%s: %s is not a list of numbers", json->origin, key);
        TT_TRY(tt_family_check_positive(json, key, tt_json_number(item), 1e6));
        factors[i] = (float)tt_json_number(item);
    }
    return TT_OK;
}

/* `factor` is by default the ratio of the positions of today and of the training before. */
static tt_status read_longrope(const struct source *source, struct tt_rope *rope)
{
    double original = (double)rope->original_max_position;
    rope->factor = (double)source->facts->max_position_embeddings / original;
    TT_TRY(read_positive(source, "factor", &rope->factor));
    TT_TRY(read_factors(source, rope, "short_factor", rope->short_factor));
    TT_TRY(read_factors(source, rope, "long_factor", rope->long_factor));
    rope->attention_factor = rope->factor > 1 ? sqrt(1 + log(rope->factor) / log(original)) : 1;
    return read_positive(source, "attention_factor", &rope->attention_factor);
}

static tt_status read_original(const struct source *source, struct tt_rope *rope)
{
    static const char key[] = "original_max_position_embeddings";
    const struct tt_rope_rules *rules = source->rules;
    rope->original_max_position = source->facts->max_position_embeddings;
    TT_TRY(tt_json_opt_int(source->json, source->object, key, &rope->original_max_position));
    if (rules->original_positions > 0) rope->original_max_position = rules->original_positions;
    if (rules->layer_type == NULL)
        TT_TRY(tt_json_opt_int(source->json, source->json->root, key, &rope->original_max_position));
    return tt_family_check_range(source->json, key, rope->original_max_position, 1, INT32_MAX);
}

static tt_status read_scaling(const struct source *source, struct tt_rope *rope)
{
    const struct tt_json *json = source->json;
    if (rope->type == TT_ROPE_DEFAULT) return TT_OK;
    if (rope->type == TT_ROPE_PROPORTIONAL) return read_positive(source, "factor", &rope->factor);
    if (rope->type == TT_ROPE_LONGROPE) {
        TT_TRY(read_original(source, rope));
        return read_longrope(source, rope);
    }
    TT_TRY(tt_json_double(json, source->object, "factor", &rope->factor));
    TT_TRY(tt_family_check_positive(json, "the rope factor", rope->factor, 1e6));
    if (rope->type == TT_ROPE_LINEAR || rope->type == TT_ROPE_DYNAMIC) return TT_OK;
    TT_TRY(read_original(source, rope));
    return rope->type == TT_ROPE_YARN ? read_yarn(source, rope) : read_llama3(source, rope);
}

static tt_status read_partial(const struct source *source, const struct tt_json_value *object,
                              double *partial)
{
    TT_TRY(tt_json_opt_double(source->json, object, "partial_rotary_factor", partial));
    return tt_family_check_positive(source->json, "partial_rotary_factor", *partial, 1);
}

/* Phi-3 and families with a default. */
static bool reads_partial(const struct tt_rope_rules *rules)
{
    return rules->phi3 || rules->partial > 0;
}

/* Columns of a head that rotate: the reference rounds down, and an odd number has no pairs. Few families read
 * partial_rotary_factor where the type is default; with the other types the reference's models of the others make too
 * few angles for a head, and fail. */
static tt_status set_columns(const struct source *source, double partial, struct tt_rope *rope)
{
    bool reads = reads_partial(source->rules);
    if (rope->type == TT_ROPE_PROPORTIONAL) {
        rope->turning = (int64_t)((double)source->rules->head_dim * partial / 2);
        partial = 1;
        reads = true;
    }
    if (!reads && partial != 1 && rope->type != TT_ROPE_DEFAULT)
        return tt_fail(
            TT_ERR_UNSUPPORTED,
            "%s: partial_rotary_factor is %g, and the rope type is not default: for model_type '%s' "
            "only 1 is supported",
            source->json->origin, partial, source->facts->model_type);
    if (!reads) partial = 1;
    rope->columns = (int64_t)((double)source->rules->head_dim * partial);
    if (rope->columns >= 2 && rope->columns % 2 == 0) return TT_OK;
    return tt_fail(TT_ERR_DATA,
                   "%s: partial_rotary_factor %g of a head_dim of %" PRId64 " is no even number of columns",
                   source->json->origin, partial, source->rules->head_dim);
}

static tt_status check_theta(const struct tt_json *json, double theta)
{
    if (!(theta > 1))
        return tt_fail(TT_ERR_DATA, "%s: rope_theta is %g; it must be above 1", json->origin, theta);
    return tt_family_check_positive(json, "rope_theta", theta, 1e15);
}

/* The object of one key for these layers; NULL: none. */
static tt_status find_object(struct source *source, const char *key, bool v4)
{
    const struct tt_json *json = source->json;
    const struct tt_rope_rules *rules = source->rules;
    const struct tt_json_value *object = tt_json_get(json->root, key);
    source->object = NULL;
    if (object == NULL || tt_json_is_null(object) || (v4 && rules->unscaled)) return TT_OK;
    TT_TRY(tt_json_object(json, json->root, key, &object));
    bool typed = tt_json_is_object(tt_json_get(object, "full_attention")) ||
                 tt_json_is_object(tt_json_get(object, "sliding_attention"));
    if (typed && rules->layer_type == NULL)
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: %s differ by layer type, which is not supported",
                       json->origin, key);
    if (!typed && rules->layer_type != NULL && !v4)
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: %s has no layer types", json->origin, key);
    source->object = typed ? tt_json_get(object, rules->layer_type) : object;
    return TT_OK;
}

tt_status tt_family_parse_rope(const struct tt_json *json, const struct tt_rope_rules *rules,
                               const struct tt_model_facts *facts, struct tt_rope *rope)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    struct source source = {.json = json, .facts = facts, .rules = rules};
    double partial = rules->partial > 0 ? rules->partial : 1;
    *rope = (struct tt_rope){
        .theta = rules->theta > 0 ? rules->theta : 10000, .factor = 1, .attention_factor = 1};
    TT_TRY(tt_json_opt_double(json, json->root, rules->theta_key != NULL ? rules->theta_key : "rope_theta",
                              &rope->theta));
    TT_TRY(read_partial(&source, json->root, &partial));
    TT_TRY(set_columns(&source, partial, rope));
    for (int i = 0; i < 2; i++) {
        TT_TRY(find_object(&source, keys[i], i == 0));
        if (source.object == NULL) continue;
        TT_TRY(tt_json_opt_double(json, source.object, "rope_theta", &rope->theta));
        TT_TRY(read_partial(&source, source.object, &partial));
        TT_TRY(read_type(&source, rope));
        TT_TRY(set_columns(&source, partial, rope));
        TT_TRY(read_scaling(&source, rope));
    }
    if (partial != 1 && !reads_partial(rules) && !rules->unscaled && rope->type != TT_ROPE_PROPORTIONAL)
        tt_warn("%s: partial_rotary_factor %g has no effect on models of model_type '%s', here as in "
                "transformers",
                json->origin, partial, facts->model_type);
    return check_theta(json, rope->theta);
}
