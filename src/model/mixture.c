#include "model/mixture.h"

#include <inttypes.h>

const struct tt_experts_names tt_mixture_names = {TT_EXPERTS_NAMES};

const struct tt_experts_names tt_mixture_gated_names = {
    TT_EXPERTS_NAMES, TT_SHARED_NAMES("mlp.shared_expert"), .shared_output_gate = "mlp.shared_expert_gate"};
const struct tt_experts_names tt_mixture_grouped_names = {TT_EXPERTS_NAMES,
                                                          TT_SHARED_NAMES("mlp.shared_experts"),
                                                          .choice_bias = "mlp.gate.e_score_correction_bias"};

const struct tt_older_experts tt_mixture_older = {"gate_proj", "up_proj", "down_proj"};
const struct tt_older_experts tt_mixtral_older = {"w1", "w3", "w2"};

const struct tt_param_source tt_mixture_sources[] = {
    TT_EXPERTS_SOURCES,
    {.param = NULL},
};

/* A size without a default is required. */
static tt_status parse_size(const struct tt_json *json, const char *key, int64_t maximum, int64_t *size)
{
    if (*size == 0) TT_TRY(tt_json_int(json, json->root, key, size));
    return tt_family_parse_size(json, key, maximum, size);
}

static const char *count_key(const struct tt_json *json)
{
    /* transformers 5.24 saves num_experts under the name that most of these classes have */
    static const char *const keys[] = {"num_experts", "n_routed_experts", "num_local_experts"};
    int k = 0;
    while (k < 2 && tt_json_get(json->root, keys[k]) == NULL) k++;
    return keys[k];
}

tt_status tt_mixture_parse(const struct tt_json *json, const struct tt_mixture_defaults *defaults,
                           struct tt_model_facts *facts, struct tt_mixture *mixture)
{
    const char *slots_key = defaults->slots_key != NULL ? defaults->slots_key : "num_experts_per_tok";
    mixture->count = defaults->count;
    mixture->slots = defaults->slots;
    mixture->ffn = defaults->ffn;
    mixture->bypassed = defaults->bypassed;
    TT_TRY(parse_size(json, count_key(json), TT_ROUTE_EXPERTS_MAX, &mixture->count));
    TT_TRY(parse_size(json, slots_key, TT_ROUTE_SLOTS_MAX, &mixture->slots));
    TT_TRY(parse_size(json, defaults->ffn_key, 1 << 22, &mixture->ffn));
    TT_TRY(tt_family_check_range(json, slots_key, mixture->slots, 1, mixture->count));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) facts->layers[i].experts = true;
    return TT_OK;
}

static tt_status parse_groups(const struct tt_json *json, const struct tt_mixture_defaults *defaults,
                              struct tt_mixture *mixture)
{
    int64_t groups = defaults->groups, kept = defaults->kept_groups, each;
    TT_TRY(tt_family_parse_size(json, "n_group", TT_ROUTE_GROUPS_MAX, &groups));
    TT_TRY(tt_json_opt_int(json, json->root, "topk_group", &kept));
    TT_TRY(tt_family_check_range(json, "topk_group", kept, 1, groups));
    each = mixture->count / groups;
    if (mixture->count % groups != 0 || (groups > 1 && each < 2))
        return tt_fail(TT_ERR_DATA, "%s: %" PRId64 " experts cannot be in %" PRId64 " groups (n_group)",
                       json->origin, mixture->count, groups);
    if (mixture->slots > kept * each)
        return tt_fail(TT_ERR_DATA,
                       "%s: num_experts_per_tok is %" PRId64 "; topk_group leaves %" PRId64 " experts",
                       json->origin, mixture->slots, kept * each);
    if (kept == groups) return TT_OK; /* all are left */
    mixture->rule.groups = (int)groups;
    mixture->rule.kept_groups = (int)kept;
    return TT_OK;
}

tt_status tt_mixture_parse_grouped(const struct tt_json *json, const struct tt_mixture_defaults *defaults,
                                   struct tt_model_facts *facts, struct tt_mixture *mixture)
{
    int64_t shared = defaults->shared, dense = defaults->dense_layers;
    double factor = defaults->factor;
    TT_TRY(tt_mixture_parse(json, defaults, facts, mixture));
    mixture->wide_logits = true;
    mixture->rule = (struct tt_route_rule){.score = TT_ROUTE_SIGMOID, .normalizes = true, .epsilon = 1e-20f};
    TT_TRY(tt_json_opt_bool(json, json->root, "norm_topk_prob", &mixture->rule.normalizes));
    TT_TRY(tt_json_opt_double(json, json->root, "routed_scaling_factor", &factor));
    TT_TRY(tt_family_check_positive(json, "routed_scaling_factor", factor, 1e6));
    mixture->rule.factor = (float)factor;
    TT_TRY(parse_groups(json, defaults, mixture));
    TT_TRY(tt_family_parse_size(json, "n_shared_experts", 1 << 10, &shared));
    mixture->shared_ffn = shared * mixture->ffn;
    TT_TRY(tt_json_opt_int(json, json->root, "first_k_dense_replace", &dense));
    for (int64_t i = 0; i < facts->num_hidden_layers && i < dense; i++) facts->layers[i].experts = false;
    return TT_OK;
}

tt_status tt_mixture_parse_balance(const struct tt_json *json, double coefficient,
                                   const struct tt_mixture *mixture, struct tt_model_facts *facts)
{
    const char *key = "router_aux_loss_coef";
    TT_TRY(tt_json_opt_double(json, json->root, key, &coefficient));
    if (!(coefficient >= 0 && coefficient <= 1e6))
        return tt_fail(TT_ERR_DATA, "%s: %s is %g; it must be 0 to 1e6", json->origin, key, coefficient);
    facts->balance.experts = mixture->count;
    facts->balance.slots = mixture->slots;
    facts->balance.coefficient = coefficient;
    return TT_OK;
}

tt_status tt_mixture_parse_dense_layers(const struct tt_json *json, struct tt_model_facts *facts)
{
    int64_t step = 1;
    const struct tt_json_value *list = tt_json_get(json->root, "mlp_only_layers"), *item;
    TT_TRY(tt_family_parse_size(json, "decoder_sparse_step", TT_MODEL_LAYERS_MAX, &step));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) facts->layers[i].experts = (i + 1) % step == 0;
    if (list == NULL || tt_json_is_null(list)) return TT_OK;
    TT_TRY(tt_json_array(json, json->root, "mlp_only_layers", &list));
    for (size_t i = 0; (item = tt_json_at(list, i)) != NULL; i++) {
        if (!tt_json_is_integer(item))
            return tt_fail(TT_ERR_DATA, "%s: mlp_only_layers has an entry that is no number of a layer",
                           json->origin);
        int64_t layer = tt_json_integer(item);
        if (layer >= 0 && layer < facts->num_hidden_layers) facts->layers[layer].experts = false;
    }
    return TT_OK;
}

tt_status tt_mixture_refuse_jitter(const struct tt_json *json)
{
    double jitter = 0;
    TT_TRY(tt_json_opt_double(json, json->root, "router_jitter_noise", &jitter));
    if (jitter == 0) return TT_OK;
    return tt_fail(TT_ERR_UNSUPPORTED, "%s: router_jitter_noise is %g; only 0 is supported", json->origin,
                   jitter);
}

struct tt_experts_spec tt_mixture_spec(const struct tt_mixture *mixture, const struct tt_decoder_shape *shape,
                                       const struct tt_experts_names *names)
{
    return (struct tt_experts_spec){.names = names,
                                    .count = mixture->count,
                                    .slots = mixture->slots,
                                    .ffn = mixture->ffn,
                                    .shared_ffn = mixture->shared_ffn,
                                    .shared_bypassed = mixture->bypassed,
                                    .rule = mixture->rule,
                                    .wide_logits = mixture->wide_logits,
                                    .bias = mixture->bias,
                                    .norm_eps = shape->norm_eps,
                                    .activation = shape->activation};
}

void tt_mixture_build(const struct tt_model_facts *facts, struct tt_builder *builder,
                      const struct tt_attention_names *attention, const struct tt_experts_names *names)
{
    const struct tt_dense_mixture *own = TT_FAMILY_OWN_CONST(facts, struct tt_dense_mixture);
    struct tt_experts_spec experts = tt_mixture_spec(&own->mixture, &own->dense.shape, names);
    experts.residual_scale = own->dense.residual_scale;
    tt_dense_build_with(facts, builder, attention, &tt_dense_mlp_names,
                        &(struct tt_dense_halves){.experts = &experts});
}
