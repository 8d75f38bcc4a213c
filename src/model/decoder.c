/* The blocks of a decoder: embedding, layers of attention and MLP, head. */
#include <math.h>
#include <string.h>

#include "model/builder_impl.h"
#include "nn/embedding_block.h"
#include "nn/head.h"

/* A path inside the text model; "" after a failure. */
static const char *below_text(struct tt_builder *builder, const char *name)
{
    struct tt_model *model = builder->model;
    const char *path = tt_arena_printf(&model->arena, "%s.%s", tt_model_text_path(&model->facts), name);
    if (path == NULL && builder->status == TT_OK) builder->status = TT_ERR_MEMORY;
    return path != NULL ? path : "";
}

/* The parts of embeddings for each layer that are beside the embedding; NULL without them. */
static const struct tt_layer_inputs *build_inputs(struct tt_builder *builder,
                                                  const struct tt_layer_input_spec *spec)
{
    struct tt_model *model = builder->model;
    int64_t layers = model->facts.num_hidden_layers, dim = model->facts.hidden_size;
    struct tt_layer_inputs made = {.layers = layers,
                                   .scale = (float)(1 / sqrt((double)dim)),
                                   .table_scale = spec != NULL ? (float)sqrt((double)spec->columns) : 0};
    if (spec == NULL) return NULL;
    const struct tt_module *table =
        tt_builder_module(builder, below_text(builder, spec->table), TT_MODULE_EMBEDDING);
    if (!builder->listing)
        made.table = tt_builder_param(builder, table, "weight", 2,
                                      (int64_t[]){spec->vocab, layers * spec->columns}, TT_INIT_NORMAL);
    tt_build_linear(builder, below_text(builder, spec->projection), dim, layers * spec->columns, false,
                    &made.projection);
    const struct tt_norm_spec norm = {.path = below_text(builder, spec->norm), .eps = spec->norm_eps};
    tt_build_norm(builder, &norm, spec->columns, TT_REACH_ALWAYS, &made.norm);
    made.offers = builder->inputs = tt_build_side(builder, layers * spec->columns, false);
    struct tt_layer_inputs *inputs = builder->listing ? NULL : tt_builder_take(builder, sizeof *inputs);
    if (inputs != NULL) *inputs = made;
    return inputs;
}

void tt_build_embedding(struct tt_builder *builder, const char *path, double scale, double norm_eps,
                        const struct tt_layer_input_spec *inputs)
{
    struct tt_model *model = builder->model;
    const struct tt_module *module = tt_builder_module(builder, path, TT_MODULE_EMBEDDING);
    if (builder->listing) (void)build_inputs(builder, inputs);
    if (builder->listing || builder->status != TT_OK) return;
    struct tt_embedding_block *embedding = tt_builder_take(builder, sizeof *embedding);
    if (embedding == NULL) return;
    embedding->table =
        tt_builder_param(builder, module, "weight", 2,
                         (int64_t[]){model->facts.vocab_size, model->facts.hidden_size}, TT_INIT_NORMAL);
    if (embedding->table == NULL) return;
    tt_builder_token_rows(builder, module, embedding->table, &embedding->trained);
    builder->trained = embedding->trained;
    embedding->scale = (float)scale;
    embedding->norm = (struct tt_norm){.bare = norm_eps > 0, .eps = norm_eps, .offset = 1.0f};
    embedding->inputs = build_inputs(builder, inputs);
    builder->embedding_module = module;
    builder->embedding = embedding->table;
    model->embedding_name = embedding->table->name;
    tt_builder_block(builder, &tt_embedding_block_ops, module->path, embedding);
}

void tt_build_layers(struct tt_builder *builder, const char *path)
{
    const struct tt_module *module = tt_builder_module(builder, path, TT_MODULE_OTHER);
    if (module != NULL) builder->model->modules.layers = module->path;
}

void tt_build_layer_begin(struct tt_builder *builder, int64_t index)
{
    if (builder->status != TT_OK) return;
    builder->layer = (int)index;
    if (builder->listing) {
        builder->layer_path =
            tt_arena_printf(&builder->model->arena, "%s.%d", builder->model->modules.layers, builder->layer);
        if (builder->layer_path == NULL) builder->status = TT_ERR_MEMORY;
        builder->model->modules.layer_count = index + 1;
    }
    const struct tt_module *module = tt_builder_module(builder, "", TT_MODULE_OTHER);
    if (module != NULL) builder->layer_path = module->path;
    builder->current = (struct tt_layer){0};
}

void tt_build_layer_scalar(struct tt_builder *builder, const char *name)
{
    const struct tt_module layer = {.path = builder->layer_path};
    if (builder->listing || builder->status != TT_OK) return;
    tt_param *scalar = tt_builder_param(builder, &layer, name, 1, (int64_t[]){1}, TT_INIT_ONE);
    if (scalar != NULL) scalar->trainable = false;
    builder->current.scalar = scalar;
}

void tt_build_layer_end(struct tt_builder *builder)
{
    const char *path = builder->layer_path;
    builder->layer_path = NULL;
    if (builder->listing || builder->status != TT_OK) return;
    struct tt_layer *layer = tt_builder_take(builder, sizeof *layer);
    if (layer == NULL) return;
    *layer = builder->current;
    tt_builder_block(builder, &tt_layer_ops, path, layer);
}

void *tt_builder_half(struct tt_builder *builder, const struct tt_half_ops *ops, double scale, size_t bytes)
{
    struct tt_layer *layer = &builder->current;
    void *impl = tt_builder_take(builder, bytes);
    if (impl == NULL) return NULL;
    if (layer->count == TT_LAYER_HALVES) {
        builder->status = tt_fail(TT_ERR_INTERNAL, "a layer has more than %d halves", TT_LAYER_HALVES);
        return NULL;
    }
    layer->halves[layer->count++] = (struct tt_half){.ops = ops, .impl = impl, .scale = (float)scale};
    return impl;
}

/* A query that sees one key has a softmax of one value: nothing reaches what makes scores. */
static enum tt_param_reach scores_reach(const struct tt_layer_facts *facts)
{
    return facts->window == 1 ? TT_REACH_NEVER : TT_REACH_SCORES;
}

/* The bias of k adds the same to all scores of a query where there is neither rotation nor norm; a softmax does not see
 * it. */
static enum tt_param_reach k_bias_reach(const struct tt_attention_spec *spec,
                                        const struct tt_layer_facts *facts)
{
    return facts->rope < 0 && !spec->qk_norm ? TT_REACH_NEVER : scores_reach(facts);
}

/* The norm of q or k. */
static struct tt_norm_spec head_norm(const struct tt_attention_spec *spec, const char *path)
{
    if (!spec->qk_norm) return (struct tt_norm_spec){.path = NULL};
    return (struct tt_norm_spec){
        .path = path, .eps = spec->norm_eps, .offset = spec->norm_offset, .bare = spec->qk_norm_bare};
}

/* The norm behind a half is of the kind of the one before it; `eps` 0: that one's. */
static struct tt_norm_spec post_norm_of(const char *path, double eps, const struct tt_norm_spec *before)
{
    return (struct tt_norm_spec){.path = path, .eps = eps > 0 ? eps : before->eps, .offset = before->offset};
}

/* Whether a layer behind reads the keys and values of the current one. */
static bool are_keys_read(const struct tt_builder *builder)
{
    const struct tt_model_facts *facts = &builder->model->facts;
    for (int64_t i = builder->layer + 1; i < facts->num_hidden_layers; i++)
        if (facts->layers[i].keys_back == i - builder->layer) return true;
    return false;
}

/* The keys and values that the current layer reads of another; NULL: it has its own. */
static const struct tt_side *find_keys(struct tt_builder *builder)
{
    const struct tt_layer_facts *layers = builder->model->facts.layers, *own = &layers[builder->layer];
    int64_t from = builder->layer - own->keys_back;
    if (own->keys_back == 0) return NULL;
    if (from >= 0 && layers[from].keys_back == 0 && layers[from].kv_heads == own->kv_heads &&
        layers[from].head_dim == own->head_dim)
        return builder->keys[from];
    if (builder->status == TT_OK)
        builder->status =
            tt_fail(TT_ERR_DATA,
                    "layer %d cannot read keys and values of layer %lld, which makes none of the same heads",
                    builder->layer, (long long)from);
    return NULL;
}

/* A score for each head. transformers' Trainer lets it decay: it leaves out what is called norm or bias. */
static tt_param *build_sinks(struct tt_builder *builder, const struct tt_module *module, const char *name,
                             int64_t heads)
{
    if (builder->listing) return NULL;
    tt_param *sinks = tt_builder_param(builder, module, name, 1, &heads, TT_INIT_NORMAL);
    if (sinks != NULL) sinks->weight_decay = TT_DECAY_FULL;
    return sinks;
}

void tt_build_attention(struct tt_builder *builder, const struct tt_attention_spec *spec)
{
    const struct tt_model_facts *model = &builder->model->facts;
    const struct tt_layer_facts *facts = &model->layers[builder->layer];
    const struct tt_attention_names *names = spec->names;
    struct tt_self_attention *attention =
        tt_builder_half(builder, &tt_attention_half, spec->residual_scale, sizeof *attention);
    if (attention == NULL) return;
    int64_t dim = model->hidden_size, head_dim = facts->head_dim;
    int64_t q_out = spec->heads * head_dim, k_out = facts->kv_heads * head_dim;
    enum tt_param_reach scores = names->sinks != NULL ? TT_REACH_ALWAYS : scores_reach(facts);
    bool own = facts->keys_back == 0;
    struct tt_norm_spec norm = {.path = names->norm,
                                .eps = spec->norm_eps,
                                .offset = spec->norm_offset,
                                .centers = spec->norm_centers},
                        q_norm = head_norm(spec, names->q_norm),
                        k_norm = own ? head_norm(spec, names->k_norm) : (struct tt_norm_spec){.path = NULL},
                        post_norm = post_norm_of(names->post_norm, spec->post_norm_eps, &norm);
    struct tt_linear_spec gate = {.path = names->gate, .out = q_out};
    int64_t q_made = spec->gates_heads ? 2 * q_out : q_out;
    enum tt_param_reach q_reach = spec->gates_heads ? TT_REACH_ALWAYS : scores;
    struct tt_linear_spec qkv[] = {
        {.path = names->q, .out = q_made, .bias = spec->bias, .reach = q_reach, .bias_reach = q_reach},
        {.path = own ? names->k : NULL,
         .out = k_out,
         .bias = spec->bias,
         .reach = scores,
         .bias_reach = names->sinks != NULL ? scores : k_bias_reach(spec, facts)},
        {.path = own && !facts->keys_as_values ? names->v : NULL, .out = k_out, .bias = spec->bias},
        {.path = names->qkv, .out = q_made + 2 * k_out, .bias = spec->bias},
    };
    *attention = (struct tt_self_attention){
        .heads = spec->heads,
        .kv_heads = facts->kv_heads,
        .head_dim = head_dim,
        .window = facts->window,
        .rope = facts->rope,
        .query_rope = facts->rope >= 0 && spec->query_rope > 0 ? spec->query_rope : facts->rope,
        .pairs = spec->pairs,
        .gates_heads = spec->gates_heads,
        .keys_as_values = facts->keys_as_values,
        .qk_norm = spec->qk_norm_kind,
        .scale = spec->scale > 0 ? spec->scale : 1.0 / sqrt((double)head_dim),
        .soft_cap = (float)spec->soft_cap,
        .layer = tt_model_cache_layer(model, builder->layer),
        .reads = find_keys(builder),
    };
    if (!own) attention->rope = attention->query_rope;
    const struct tt_module *module = tt_builder_module(builder, names->module, TT_MODULE_OTHER);
    if (names->sinks != NULL) attention->sinks = build_sinks(builder, module, names->sinks, spec->heads);
    tt_build_norm(builder, &norm, dim, TT_REACH_ALWAYS, &attention->norm);
    tt_build_linears(builder, qkv, 4, dim, &attention->qkv);
    bool all = spec->qk_norm_kind == TT_QK_NORM_ALL;
    tt_build_norm(builder, &q_norm, all ? q_out : head_dim, scores, &attention->q_norm);
    tt_build_norm(builder, &k_norm, all ? k_out : head_dim, scores, &attention->k_norm);
    if (spec->value_norm)
        attention->v_norm = (struct tt_norm){.bare = true, .eps = spec->norm_eps, .offset = 1.0f};
    if (are_keys_read(builder))
        attention->offers = builder->keys[builder->layer] = tt_build_side(builder, 2 * k_out, true);
    tt_build_linears(builder, &gate, 1, dim, &attention->gate);
    tt_build_linear(builder, names->o, q_out, dim, spec->output_bias, &attention->o);
    tt_build_norm(builder, &post_norm, dim, TT_REACH_ALWAYS, &attention->post_norm);
}

/* The last half reads the stream of the attention before it, by its norm. */
static void share_input(struct tt_layer *layer, struct tt_norm *norm)
{
    const struct tt_self_attention *before = layer->halves[layer->count - 2].impl;
    layer->halves[layer->count - 1].beside = true;
    *norm = before->norm;
}

void tt_build_mlp(struct tt_builder *builder, const struct tt_mlp_spec *spec)
{
    const struct tt_mlp_names *names = spec->names;
    struct tt_mlp *mlp = tt_builder_half(builder, &tt_mlp_half, spec->residual_scale, sizeof *mlp);
    if (mlp == NULL) return;
    int64_t dim = builder->model->facts.hidden_size;
    struct tt_linear_spec gate_up[] = {
        {.path = names->gate, .out = spec->ffn, .bias = spec->bias, .bypassed = spec->bypassed},
        {.path = names->up, .out = spec->ffn, .bias = spec->bias, .bypassed = spec->bypassed},
        {.path = names->gate_up, .out = 2 * spec->ffn, .bias = spec->bias, .bypassed = spec->bypassed},
    };
    const struct tt_linear_spec down = {
        .path = names->down, .out = dim, .bias = spec->bias, .bypassed = spec->bypassed};
    struct tt_norm_spec norm = {.path = names->norm, .eps = spec->norm_eps, .offset = spec->norm_offset},
                        post_norm = post_norm_of(names->post_norm, spec->post_norm_eps, &norm);
    *mlp = (struct tt_mlp){.activation = spec->activation,
                           .codes_gate_up = builder->model->options.quant.gate_up == TT_GATE_UP_E4M3};
    tt_build_module(builder, names->module);
    if (spec->beside)
        share_input(&builder->current, &mlp->norm);
    else
        tt_build_norm(builder, &norm, dim, TT_REACH_ALWAYS, &mlp->norm);
    tt_build_linears(builder, gate_up, 3, dim, &mlp->gate_up);
    tt_build_linears(builder, &down, 1, spec->ffn, &mlp->down);
    tt_build_norm(builder, &post_norm, dim, TT_REACH_ALWAYS, &mlp->post_norm);
    if (names->activation != NULL) tt_build_module(builder, names->activation);
}

void tt_build_plain_mlp(struct tt_builder *builder, const struct tt_mlp_spec *spec)
{
    const struct tt_mlp_names *names = spec->names;
    struct tt_plain_mlp *mlp =
        tt_builder_half(builder, &tt_plain_mlp_half, spec->residual_scale, sizeof *mlp);
    if (mlp == NULL) return;
    int64_t dim = builder->model->facts.hidden_size;
    const struct tt_norm_spec norm = {
        .path = names->norm, .eps = spec->norm_eps, .offset = spec->norm_offset};
    *mlp = (struct tt_plain_mlp){.activation = spec->activation};
    tt_build_norm(builder, &norm, dim, TT_REACH_ALWAYS, &mlp->norm);
    tt_build_module(builder, names->module);
    tt_build_linear(builder, names->up, dim, spec->ffn, spec->bias, &mlp->up);
    tt_build_linear(builder, names->down, spec->ffn, dim, spec->bias, &mlp->down);
    tt_build_module(builder, names->activation);
}

/* Embedding and head share one parameter unless modules_to_save trains a copy of one: PEFT then separates them, except
 * with ensure_weight_tying. */
static bool shares_head(const struct tt_builder *builder, const struct tt_module *head)
{
    bool saves = builder->embedding_module->saved || head->saved;
    return builder->model->facts.tie_word_embeddings &&
           (!saves || builder->model->options.lora.ensure_weight_tying);
}

static tt_status check_fp8_head(const struct tt_builder *builder, const struct tt_module *module)
{
    if (!builder->model->options.quant.head || (!builder->shares_head && !module->saved)) return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE,
                               module->saved ? "fp8_lm_head: modules_to_save trains '%s'"
                                             : "fp8_lm_head: '%s' of this model is the table of its "
                                               "embeddings (tie_word_embeddings), which are read as they are",
                               module->path);
    tt_hint("leave fp8_lm_head out");
    return status;
}

/* Those of the embedding, whose table is the head's. */
static void use_token_rows(struct tt_builder *builder, struct tt_token_rows *rows)
{
    *rows = builder->trained;
    tt_builder_use_param(builder, rows->rows);
    tt_builder_use_param(builder, rows->tokens);
}

void tt_build_head(struct tt_builder *builder, const struct tt_norm_spec *norm, const char *path,
                   double scale, double soft_cap)
{
    struct tt_model *model = builder->model;
    int64_t dim = model->facts.hidden_size, labels = model->facts.label_count;
    struct tt_head made = {.ops = &tt_head_language, .soft_cap = (float)soft_cap, .scale = (float)scale};
    if (labels > 0) {
        made = (struct tt_head){.ops = &tt_head_score};
        path = TT_MODEL_SCORE;
    }
    tt_build_norm(builder, norm, dim, TT_REACH_ALWAYS, &made.norm);
    const struct tt_module *module = tt_builder_module(builder, path, TT_MODULE_HEAD);
    if (builder->listing || builder->status != TT_OK) return;
    struct tt_head *head = tt_builder_take(builder, sizeof *head);
    model->head_name = tt_arena_printf(&model->arena, "%s.weight", path);
    if (head == NULL || model->head_name == NULL) {
        builder->status = TT_ERR_MEMORY;
        return;
    }
    *head = made;
    builder->shares_head = shares_head(builder, module);
    builder->status = check_fp8_head(builder, module);
    tt_builder_head_linear(builder, module, dim, labels > 0 ? labels : model->facts.vocab_size,
                           builder->shares_head ? builder->embedding : NULL, &head->lm_head);
    if (builder->status != TT_OK) return; /* there is no linear */
    tt_param *weight = head->lm_head.linears[0].weight;
    if (model->facts.new_scores && weight != NULL) weight->init = TT_INIT_NORMAL;
    if (module->shares_tokens)
        use_token_rows(builder, &head->trained);
    else
        tt_builder_token_rows(builder, module, weight, &head->trained);
    tt_builder_block(builder, &tt_head_block_ops, path, head);
}

/* Appends the half that adds the layer's own embeddings. */
static void build_layer_input(struct tt_builder *builder, const struct tt_layer_input_spec *spec)
{
    int64_t dim = builder->model->facts.hidden_size;
    struct tt_layer_input *input = tt_builder_half(builder, &tt_layer_input_half, 0, sizeof *input);
    if (input == NULL) return;
    const struct tt_norm_spec post_norm = {.path = spec->post_norm, .eps = spec->norm_eps};
    *input = (struct tt_layer_input){.activation = spec->kind,
                                     .reads = builder->inputs,
                                     .first = builder->layer * spec->columns,
                                     .columns = spec->columns};
    tt_build_linear(builder, spec->gate, dim, spec->columns, false, &input->gate);
    tt_build_module(builder, spec->activation);
    tt_build_linear(builder, spec->out, spec->columns, dim, false, &input->projection);
    tt_build_norm(builder, &post_norm, dim, TT_REACH_ALWAYS, &input->post_norm);
}

/* The MLP of the current layer, as wide as it is there. */
static void build_own_mlp(struct tt_builder *builder, const struct tt_model_facts *facts,
                          const struct tt_decoder_spec *spec)
{
    struct tt_mlp_spec mlp = *spec->mlp;
    if (facts->layers[builder->layer].keys_back > 0 && spec->reading_ffn > 0) mlp.ffn = spec->reading_ffn;
    tt_build_mlp(builder, &mlp);
}

/* The half that carries something from token to token; false: the layer has none. */
static bool build_mixer(struct tt_builder *builder, const struct tt_layer_facts *facts,
                        const struct tt_decoder_spec *spec)
{
    if (facts->state.heads > 0)
        tt_build_recurrence(builder, spec->recurrence);
    else if (facts->state.conv_rows > 0)
        tt_build_short_conv(builder, spec->short_conv);
    else if (spec->latent != NULL)
        tt_build_latent_attention(builder, spec->latent);
    else if (facts->kv_heads > 0)
        tt_build_attention(builder, spec->attention);
    else
        return false;
    return true;
}

/* The module that has the embeddings' weight. */
static const char *embedding_path(struct tt_builder *builder)
{
    const char *table = tt_model_table_name(&builder->model->facts);
    size_t bytes = strlen(table) - strlen(".weight");
    const char *path = tt_arena_printf(&builder->model->arena, "%.*s", (int)bytes, table);
    if (path == NULL && builder->status == TT_OK) builder->status = TT_ERR_MEMORY;
    return path != NULL ? path : "";
}

void tt_build_decoder(struct tt_builder *builder, const struct tt_model_facts *facts,
                      const struct tt_decoder_spec *spec)
{
    struct tt_norm_spec norm = spec->norm;
    norm.path = below_text(builder, norm.path != NULL ? norm.path : "norm");
    if (facts->part != NULL) tt_build_module(builder, "model");
    tt_build_module(builder, tt_model_text_path(facts));
    tt_build_embedding(builder, embedding_path(builder), spec->embedding_scale, spec->embedding_norm_eps,
                       spec->inputs);
    tt_build_layers(builder, below_text(builder, "layers"));
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) {
        tt_build_layer_begin(builder, i);
        bool mixes = build_mixer(builder, &facts->layers[i], spec);
        if (facts->layers[i].experts && spec->experts->beside) build_own_mlp(builder, facts, spec);
        if (facts->layers[i].experts)
            tt_build_experts(builder, spec->experts);
        else if (spec->lone_mlp == NULL)
            build_own_mlp(builder, facts, spec);
        else if (!mixes)
            tt_build_plain_mlp(builder, spec->lone_mlp);
        if (spec->inputs != NULL) build_layer_input(builder, spec->inputs);
        if (spec->layer_scalar != NULL) tt_build_layer_scalar(builder, spec->layer_scalar);
        tt_build_layer_end(builder);
    }
    if (facts->rope_count > 0) tt_build_module(builder, below_text(builder, "rotary_emb"));
    tt_build_head(builder, &norm, TT_MODEL_HEAD, spec->logit_scale, spec->logit_cap);
}
