#include "model/mixture.h"

const struct tt_experts_names tt_mixture_names = {TT_EXPERTS_NAMES};

const struct tt_param_source tt_mixture_sources[] = {
    {.param = "layers.#.mlp.experts.gate_up_proj",
     .parts = {{.tensor = "layers.#.mlp.experts.*.gate_proj.weight"},
               {.tensor = "layers.#.mlp.experts.*.up_proj.weight"}}},
    {.param = "layers.#.mlp.experts.down_proj",
     .parts = {{.tensor = "layers.#.mlp.experts.*.down_proj.weight"}}},
    {.param = NULL},
};

/* A size without a default is required. */
static tt_status parse_size(const struct tt_json *json, const char *key, int64_t maximum, int64_t *size)
{
    if (*size == 0) TT_TRY(tt_json_int(json, json->root, key, size));
    return tt_family_parse_size(json, key, maximum, size);
}

tt_status tt_mixture_parse(const struct tt_json *json, const struct tt_mixture_defaults *defaults,
                           struct tt_model_facts *facts)
{
    struct tt_mixture *mixture = TT_FAMILY_OWN(facts, struct tt_mixture);
    /* transformers 5.24 saves num_experts under the name that most of these classes have */
    const char *count = tt_json_get(json->root, "num_experts") != NULL ? "num_experts" : "num_local_experts";
    mixture->count = defaults->count;
    mixture->slots = defaults->slots;
    mixture->ffn = defaults->ffn;
    TT_TRY(parse_size(json, count, TT_ROUTE_EXPERTS_MAX, &mixture->count));
    TT_TRY(parse_size(json, "num_experts_per_tok", TT_ROUTE_SLOTS_MAX, &mixture->slots));
    TT_TRY(parse_size(json, defaults->ffn_key, 1 << 22, &mixture->ffn));
    TT_TRY(tt_family_check_range(json, "num_experts_per_tok", mixture->slots, 1, mixture->count));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) facts->layers[i].experts = true;
    return TT_OK;
}

tt_status tt_mixture_parse_balance(const struct tt_json *json, double coefficient,
                                   struct tt_model_facts *facts)
{
    const struct tt_mixture *mixture = TT_FAMILY_OWN(facts, struct tt_mixture);
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

void tt_mixture_build(const struct tt_model_facts *facts, struct tt_builder *builder,
                      const struct tt_attention_names *attention, const struct tt_experts_names *names)
{
    const struct tt_mixture *mixture = TT_FAMILY_OWN_CONST(facts, struct tt_mixture);
    const struct tt_decoder_shape *shape = &mixture->dense.shape;
    const struct tt_experts_spec experts = {.names = names,
                                            .count = mixture->count,
                                            .slots = mixture->slots,
                                            .ffn = mixture->ffn,
                                            .shared_ffn = mixture->shared_ffn,
                                            .rule = mixture->rule,
                                            .norm_eps = shape->norm_eps,
                                            .residual_scale = mixture->dense.residual_scale,
                                            .activation = shape->activation};
    tt_dense_build_with(facts, builder, attention, &tt_dense_mlp_names,
                        &(struct tt_dense_halves){.experts = &experts});
}
