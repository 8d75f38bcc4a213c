/* Rotary positions in config.json. v4: rope_theta beside rope_scaling; v5: both in rope_parameters. Source:
 * modeling_rope_utils.py of transformers 5. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "model/family.h"

/* Where the keys of one rotation are. */
struct source {
    const struct tt_json *json;
    const struct tt_json_value *object;
    const struct tt_model_facts *facts;
};

static tt_status read_type(const struct source *source, struct tt_rope *rope)
{
    static const char *const names[] = {"default", "linear", "llama3", "yarn"}; /* in order of the enum */
    const char *name = "default";
    TT_TRY(tt_json_opt_string(source->json, source->object, "type", &name));
    TT_TRY(tt_json_opt_string(source->json, source->object, "rope_type", &name));
    for (int i = 0; i < 4; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        rope->type = (enum tt_rope_type)i;
        return TT_OK;
    }
    tt_status status =
        tt_fail(TT_ERR_UNSUPPORTED, "%s: the rope type '%s' is not supported", source->json->origin, name);
    tt_hint("supported are default, linear, llama3 and yarn");
    return status;
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

static tt_status read_scaling(const struct source *source, struct tt_rope *rope)
{
    static const char original[] = "original_max_position_embeddings";
    const struct tt_json *json = source->json;
    TT_TRY(read_type(source, rope));
    if (rope->type == TT_ROPE_DEFAULT) return TT_OK;
    TT_TRY(tt_json_double(json, source->object, "factor", &rope->factor));
    TT_TRY(tt_family_check_positive(json, "the rope factor", rope->factor, 1e6));
    if (rope->type == TT_ROPE_LINEAR) return TT_OK;
    rope->original_max_position = source->facts->max_position_embeddings;
    TT_TRY(tt_json_opt_int(json, source->object, original, &rope->original_max_position));
    TT_TRY(tt_json_opt_int(json, json->root, original, &rope->original_max_position));
    TT_TRY(tt_family_check_range(json, original, rope->original_max_position, 1, INT32_MAX));
    return rope->type == TT_ROPE_YARN ? read_yarn(source, rope) : read_llama3(source, rope);
}

static tt_status check_theta(const struct tt_json *json, double theta)
{
    if (!(theta > 1))
        return tt_fail(TT_ERR_DATA, "%s: rope_theta is %g; it must be above 1", json->origin, theta);
    return tt_family_check_positive(json, "rope_theta", theta, 1e15);
}

tt_status tt_family_parse_rope(const struct tt_json *json, int64_t columns, double theta,
                               const struct tt_model_facts *facts, struct tt_rope *rope)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    double partial = 1;
    *rope = (struct tt_rope){.columns = columns, .theta = theta, .factor = 1, .attention_factor = 1};
    TT_TRY(tt_json_opt_double(json, json->root, "rope_theta", &rope->theta));
    TT_TRY(tt_json_opt_double(json, json->root, "partial_rotary_factor", &partial));
    for (int i = 0; i < 2; i++) {
        struct source source = {.json = json, .object = tt_json_get(json->root, keys[i]), .facts = facts};
        if (source.object == NULL || tt_json_is_null(source.object)) continue;
        TT_TRY(tt_json_object(json, json->root, keys[i], &source.object));
        if (tt_json_is_object(tt_json_get(source.object, "full_attention")) ||
            tt_json_is_object(tt_json_get(source.object, "sliding_attention"))) {
            return tt_fail(TT_ERR_UNSUPPORTED, "%s: %s differ by layer type, which is not supported",
                           json->origin, keys[i]);
        }
        TT_TRY(tt_json_opt_double(json, source.object, "rope_theta", &rope->theta));
        TT_TRY(tt_json_opt_double(json, source.object, "partial_rotary_factor", &partial));
        TT_TRY(read_scaling(&source, rope));
    }
    if (partial != 1) {
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: partial_rotary_factor is %g; only 1 is supported",
                       json->origin, partial);
    }
    return check_theta(json, rope->theta);
}
