#include "support/mixed_model.h"

#include <stdio.h>

#include "backend/ops/elementwise.h"
#include "model/builder_impl.h"
#include "model/family.h"
#include "nn/embedding_block.h"
#include "support/model_facts.h"

/* ---- The embeddings, which offer their first columns ---- */

struct offering {
    struct tt_block embedding;
    const struct tt_side *side;
};

static tt_status offering_forward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD,
                                  void *saved, tt_tensor y_TD)
{
    struct offering *offering = block->impl;
    TT_TRY(tt_embedding_block_ops.forward(&offering->embedding, pass, x_TD, saved, y_TD));
    if (tt_tensor_is_empty(y_TD)) return TT_OK; /* no tokens: the pass takes the table's parts */
    return tt_side_offer(offering->side, pass, 0, tt_tensor_cols(y_TD, 0, offering->side->columns));
}

static tt_status offering_backward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD,
                                   const void *saved, tt_tensor dy_TD, tt_tensor dx_TD)
{
    struct offering *offering = block->impl;
    int64_t columns = offering->side->columns;
    TT_TRY(tt_side_take_gradient(offering->side, pass, 0, tt_tensor_cols(dy_TD, 0, columns)));
    return tt_embedding_block_ops.backward(&offering->embedding, pass, x_TD, saved, dy_TD, dx_TD);
}

static tt_status visit_no_linears(const struct tt_block *block, tt_linear_visit *visit, void *context)
{
    (void)block;
    (void)visit;
    (void)context;
    return TT_OK;
}

static double no_flops(const struct tt_block *block, double length, bool full)
{
    (void)block;
    (void)length;
    (void)full;
    return 0;
}

static const struct tt_block_ops offering_ops = {
    .kind = "embedding that offers inputs",
    .role = TT_ROLE_INPUT,
    .levels = TT_LEVELS_ONE,
    .saved_bytes = 1,
    .forward = offering_forward,
    .backward = offering_backward,
    .visit_linears = visit_no_linears,
    .flops = no_flops,
};

static const struct tt_side *build_offer(struct tt_builder *builder)
{
    const struct tt_side *side = tt_build_side(builder, MIXED_INPUTS, false);
    struct offering *offering = side != NULL ? tt_builder_take(builder, sizeof *offering) : NULL;
    if (offering == NULL) return NULL;
    struct tt_block *block = &builder->model->blocks[0];
    *offering = (struct offering){.embedding = *block, .side = side};
    block->ops = &offering_ops;
    block->impl = offering;
    return side;
}

/* ---- A half that adds a linear of these columns, or of a column of the data, to the stream ---- */

struct inputs_half {
    const struct tt_side *side; /* NULL: the column */
    const char *column;
    struct tt_linear_group linear;
};

static tt_tensor inputs_of(const struct inputs_half *own, const struct tt_pass *pass)
{
    if (own->side != NULL) return tt_side_columns(own->side, pass, 0, MIXED_INPUTS);
    tt_tensor values_T = tt_device_batch_column(pass->in.batch, own->column);
    return tt_tensor_2d(values_T.data, TT_F32, values_T.dims[0], 1);
}

/* The readers' part of the gradient of the side value; the data has none. */
static tt_status give_back(const struct inputs_half *own, const struct tt_linear_call *call,
                           tt_tensor dout_TD, tt_tensor dh_TR)
{
    const struct tt_pass *pass = call->pass;
    tt_tensor dinputs_TC;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "gradient of inputs", pass->in.compute_dtype,
                           dout_TD.dims[0], own->linear.linears[0].in, &dinputs_TC));
    TT_TRY(tt_linear_backward_input(call, dout_TD, dh_TR, dinputs_TC));
    return own->side != NULL ? tt_side_add_gradient(own->side, pass, 0, dinputs_TC) : TT_OK;
}

static const struct tt_norm no_norm = {.weight = NULL};

static tt_status inputs_forward(const struct tt_half *half, const struct tt_pass *pass,
                                const struct tt_half_input *in, void *saved)
{
    const struct inputs_half *own = half->impl;
    tt_tensor *h_TR = saved, stream_TD, none = {0};
    struct tt_quantized_rows rows;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(tt_linear_push_h(&own->linear, pass, in->x_TD.dims[0], h_TR));
    TT_TRY(tt_half_push_norm(&no_norm, NULL, pass, in, "no norm", none, &stream_TD, &rows));
    struct tt_linear_call call = tt_linear_call_tokens(&own->linear, pass, inputs_of(own, pass), *h_TR);
    TT_TRY(tt_half_finish(&no_norm, &call, in, none, none));
    if (!in->keep) tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static tt_status inputs_backward(const struct tt_half *half, const struct tt_pass *pass, const void *saved,
                                 struct tt_half_gradient *gradient)
{
    const struct inputs_half *own = half->impl;
    const tt_tensor *h_TR = saved, none = {0};
    tt_tensor dout_TD, dh_TR, dx_TD;
    struct tt_quantized_rows rows;
    int64_t tokens = gradient->dy_TD.dims[0];
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    TT_TRY(tt_half_begin_backward(&no_norm, &own->linear, pass, gradient, "gradient", none, none, &dout_TD,
                                  &rows));
    TT_TRY(tt_linear_push_h(&own->linear, pass, tokens, &dh_TR));
    struct tt_linear_call call = tt_linear_call_tokens(&own->linear, pass, inputs_of(own, pass), *h_TR);
    TT_TRY(give_back(own, &call, dout_TD, dh_TR));
    TT_TRY(tt_linear_backward_params(&call, dout_TD, dh_TR));
    TT_TRY(tt_half_push_gradient(&no_norm, pass, gradient, &dx_TD));
    if (!tt_tensor_is_empty(dx_TD))
        TT_TRY(tt_fill_zero(pass->lent.stream, dx_TD.data, tt_tensor_bytes(dx_TD)));
    tt_workspace_release(pass->lent.workspace, mark);
    return tt_half_end_backward(&no_norm, pass, gradient, none, dx_TD);
}

static const struct tt_linear_group *inputs_reader(const struct tt_half *half)
{
    const struct inputs_half *own = half->impl;
    return &own->linear;
}

static bool inputs_trains(const struct tt_half *half)
{
    const struct inputs_half *own = half->impl;
    return tt_linear_group_trains(&own->linear);
}

static tt_status inputs_visit(const struct tt_half *half, tt_linear_visit *visit, void *context)
{
    const struct inputs_half *own = half->impl;
    return tt_linear_group_visit(&own->linear, visit, context);
}

static double inputs_flops(const struct tt_half *half, double length, bool full)
{
    const struct inputs_half *own = half->impl;
    (void)length;
    return tt_linear_group_flops(&own->linear, full);
}

static const struct tt_half_ops inputs_ops = {
    .kind = "inputs",
    .residual = "residual after inputs",
    .forward = inputs_forward,
    .backward = inputs_backward,
    .reader = inputs_reader,
    .trains = inputs_trains,
    .visit_linears = inputs_visit,
    .flops = inputs_flops,
};

/* Of a side value, or of the data's column where there is none. */
static void build_inputs(struct tt_builder *builder, const struct tt_side *side, const char *column)
{
    struct tt_layer *layer = &builder->current;
    struct inputs_half *own = tt_builder_take(builder, sizeof *own);
    if (own == NULL) return;
    *own = (struct inputs_half){.side = side, .column = column};
    if (column != NULL) tt_build_column(builder, column, TT_PER_TOKEN);
    tt_build_linear(builder, "inputs_proj", column != NULL ? 1 : MIXED_INPUTS,
                    builder->model->facts.hidden_size, false, &own->linear);
    layer->halves[layer->count++] = (struct tt_half){.ops = &inputs_ops, .impl = own};
}

/* ---- The family ---- */

static const struct tt_attention_names attention_names = {TT_ATTENTION_NAMES};
static const struct tt_mlp_names mlp_names = {TT_MLP_NAMES, .norm = "post_attention_layernorm"};

static void build(const struct tt_model_facts *facts, struct tt_builder *builder)
{
    const struct mixed_size *size = TT_FAMILY_OWN_CONST(facts, struct mixed_size);
    const struct tt_attention_spec attention = {
        .names = &attention_names, .heads = size->heads, .norm_eps = 1e-5};
    struct tt_mlp_spec mlp = {.names = &mlp_names, .ffn = size->ffn, .norm_eps = 1e-5};
    tt_build_module(builder, "model");
    tt_build_embedding(builder, "model.embed_tokens", 1, 0, NULL);
    const struct tt_side *inputs = build_offer(builder);
    tt_build_layers(builder, "model.layers");
    for (int64_t i = 0; i < MIXED_LAYERS; i++) {
        tt_build_layer_begin(builder, i);
        if (i < 3) tt_build_attention(builder, &attention);
        if (i == 2) build_inputs(builder, inputs, NULL);
        if (i == 3 && size->column != NULL) build_inputs(builder, NULL, size->column);
        mlp.ffn = i < 3 ? size->ffn : 2 * size->ffn;
        tt_build_mlp(builder, &mlp);
        tt_build_layer_end(builder);
    }
    tt_build_head(builder, &(struct tt_norm_spec){.path = "model.norm", .eps = 1e-5}, "lm_head", 0, 0);
}

static const struct tt_model_family mixed = {.model_type = "llama", .architecture = "Mixed", .build = build};

tt_status mixed_facts(const struct mixed_size *size, struct tt_model_facts *facts)
{
    static const struct mixed_size tiny = {.vocab = 37, .dim = 16, .ffn = 24, .heads = 2};
    char text[512];
    if (size == NULL) size = &tiny;
    (void)snprintf(
        text, sizeof text,
        "{\"model_type\": \"llama\", \"vocab_size\": %d, \"hidden_size\": %d, \"intermediate_size\": %d, "
        "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
        "\"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5, \"rope_theta\": 100}",
        (int)size->vocab, (int)size->dim, (int)size->ffn, MIXED_LAYERS, (int)size->heads,
        (int)size->heads / 2);
    TT_TRY(test_facts(text, facts));
    facts->family = &mixed;
    facts->layers[2].keys_back = 1;
    *TT_FAMILY_OWN(facts, struct mixed_size) = *size;
    return TT_OK;
}
