/* The parts from which a family builds its model. build() of a family runs twice for a model and must make the same
 * calls both times: the first run lists the modules, so that rules by name (LoRA, quantization) can choose among all of
 * them; the second makes the blocks with their parameters, which lie in memory in order of the calls.
 *
 * Order of a build: tt_build_module for containers, tt_build_embedding, tt_build_layers, each layer from
 * tt_build_layer_begin over its halves to tt_build_layer_end, tt_build_head. Paths inside a layer are relative to the
 * layer's. The first failure stays in the builder; later calls do nothing. */
#ifndef TT_MODEL_BUILDER_H
#define TT_MODEL_BUILDER_H

#include "model/module.h"
#include "nn/conv.h"
#include "nn/experts.h"
#include "nn/layer_inputs.h"
#include "nn/mlp.h"
#include "nn/plain_mlp.h"
#include "nn/recurrence.h"
#include "nn/self_attention.h"
#include "nn/short_conv.h"

struct tt_builder;

/* A module without a weight that rules may name: "mlp.act_fn". */
void tt_build_module(struct tt_builder *builder, const char *path);

struct tt_linear_spec {
    const char *path; /* NULL: this linear does not exist */
    int64_t out;
    bool bias;
    /* How a gradient reaches the weight and its adapter, and how the bias. */
    enum tt_param_reach reach, bias_reach;
    bool plain;    /* it is not quantized: few columns, to which much is sensitive */
    bool router;   /* not quantized, and for rules by name no linear, but the parameter "<path>.weight" */
    bool bypassed; /* PEFT does not adapt it in this model type */
};
/* Linears with the same input of `in` values: their outputs are successive columns of one matrix. */
void tt_build_linears(struct tt_builder *builder, const struct tt_linear_spec *specs, int count, int64_t in,
                      struct tt_linear_group *group);
void tt_build_linear(struct tt_builder *builder, const char *path, int64_t in, int64_t out, bool bias,
                     struct tt_linear_group *group);

struct tt_norm_spec {
    const char *path; /* NULL: this norm does not exist */
    double eps;
    bool offset;  /* the weight is stored as its distance from 1 */
    bool centers; /* a layer norm without a bias */
    bool bare;    /* it has no weight; path: of its module, or NULL where others list that */
};
void tt_build_norm(struct tt_builder *builder, const struct tt_norm_spec *spec, int64_t dim,
                   enum tt_param_reach reach, struct tt_norm *norm);

/* Embeddings for each layer (nn/layer_inputs.h): the modules beside the embedding, those of a layer, and P. */
struct tt_layer_input_spec {
    const char *table, *projection, *norm; /* below the path of the text model */
    const char *gate, *activation, *out, *post_norm;
    int64_t columns, vocab; /* P; rows of the table */
    double norm_eps;
    enum tt_activation kind;
};

/* `inputs`: NULL, or embeddings for each layer beside it.
 * `scale`: of the rows; 1: none. `norm_eps`: they are normed instead, without a weight; 0: not. */
void tt_build_embedding(struct tt_builder *builder, const char *path, double scale, double norm_eps,
                        const struct tt_layer_input_spec *inputs);
/* The list that holds the layers: "model.layers". */
void tt_build_layers(struct tt_builder *builder, const char *path);
void tt_build_layer_begin(struct tt_builder *builder, int64_t index);
void tt_build_layer_end(struct tt_builder *builder);
/* A frozen factor of the layer's output, a buffer of transformers' module; before the end. */
void tt_build_layer_scalar(struct tt_builder *builder, const char *name);
/* A side value (nn/side.h) that the block being built offers; NULL in the first run. Call it behind all parameters of
 * the block that the value is made of: `trains` is whether one of those before the call does. `cached`: keys and
 * values. */
const struct tt_side *tt_build_side(struct tt_builder *builder, int64_t columns, bool cached);
/* A column of the data that the block being built reads (nn/block.h), also more than once, for halves that read it;
 * of an embedding before tt_build_embedding. `name` is copied. */
void tt_build_column(struct tt_builder *builder, const char *name, enum tt_per per);
/* The final norm and the projection to logits; with tie_word_embeddings it shares the embedding's weight. `scale` and
 * then `soft_cap` of the logits; 0: none. Of a model with labels it is the linear of their scores instead. */
void tt_build_head(struct tt_builder *builder, const struct tt_norm_spec *norm, const char *path,
                   double scale, double soft_cap);

/* ---- Detectors: blocks one after the other instead of embedding, layers and head ---- */

/* A convolution with a bias, or with a norm at `norm` (NULL: none), which is frozen, of the batch, or, where it has
 * `groups`, of groups of channels; the weight trains unless `frozen`. */
struct tt_conv_spec {
    const char *path, *norm;
    double norm_eps;
    int64_t in, out, kernel, stride, padding, groups;
    bool bias, relu, frozen;
    bool batch_norm;        /* of the batch; frozen, its weight and bias do not train */
    enum tt_init_kind init; /* of a model without weights */
    double init_scale, bias_init;
};
void tt_build_conv(struct tt_builder *builder, const struct tt_conv_spec *spec, struct tt_conv *conv);
/* Zeroed memory of the model for the description of a block; NULL after a failure. */
void *tt_build_memory(struct tt_builder *builder, size_t bytes);
/* Ends a block with the parameters of the calls since the last one. */
void tt_build_block(struct tt_builder *builder, const struct tt_block_ops *ops, const char *name, void *impl);

/* Names of an attention half inside its layer. */
struct tt_attention_names {
    const char *module, *q, *k, *v, *o, *q_norm, *k_norm;
    const char *norm, *post_norm; /* of the stream; of o's output, before the residual; NULL: none */
    /* one linear instead of q, k and v, with their outputs one after the other; NULL: three */
    const char *qkv;
    const char *gate;  /* of the output: attention * sigmoid(gate) goes to o; NULL: none */
    const char *sinks; /* a parameter of `module`; NULL: none */
};
/* Appends attention to the layer's halves. Window, rotation and key/value heads are those of the layer's facts, which
 * also say whose keys and values it reads: then it has q and o alone. */
struct tt_attention_spec {
    const struct tt_attention_names *names;
    int64_t heads;
    double norm_eps;
    double post_norm_eps;   /* 0: norm_eps */
    bool norm_offset;       /* of all norms: struct tt_norm_spec */
    bool norm_centers;      /* of the stream's norm */
    double scale;           /* of scores; 0: 1 / sqrt(head_dim) */
    double soft_cap;        /* of scores; 0: none */
    bool bias, output_bias; /* of q, k and v; of o */
    bool qk_norm;           /* q and k are normed, as `qk_norm_kind` */
    bool qk_norm_bare;      /* without weights */
    bool value_norm;        /* each head of v is normed too, without a weight */
    enum tt_qk_norm qk_norm_kind;
    bool pairs;       /* neighbouring columns rotate together */
    int query_rope;   /* the rotation of q; 0: the layer's */
    bool gates_heads; /* q makes a gate of the output too, behind each of its heads; with qk_norm of heads */
    double residual_scale; /* of the half's result; 0: none */
};
void tt_build_attention(struct tt_builder *builder, const struct tt_attention_spec *spec);

/* Names of an attention half whose heads are made of latents (struct tt_latent) inside its layer. */
struct tt_latent_names {
    const char *module, *q; /* q: of the stream, without a latent of q */
    const char *q_latent, *q_norm, *q_heads, *kv_latent, *kv_norm, *kv_heads, *o;
    const char *norm; /* of the stream */
};
/* Appends such attention to the layer's halves. Window, rotation, heads of k and v and their width, the larger of those
 * of keys and values, are those of the layer's facts. */
struct tt_latent_spec {
    const struct tt_latent_names *names;
    int64_t heads;
    int64_t q_rank, kv_rank;       /* columns of the latents; q_rank 0: none of q */
    int64_t plain, rotated, value; /* columns of a head */
    double norm_eps, latent_eps;
    double scale;       /* of scores */
    double temperature; /* of queries by position; 0: none */
    int64_t original_positions;
    bool pairs; /* neighbouring columns rotate together */
    bool bias;  /* of the stream's latents, and of o */
};
void tt_build_latent_attention(struct tt_builder *builder, const struct tt_latent_spec *spec);

struct tt_mlp_names {
    const char *module, *gate, *up, *down;
    const char *activation;       /* NULL: it is no module */
    const char *norm, *post_norm; /* of the stream; of down's output, before the residual; NULL: none */
    const char *gate_up;          /* one linear instead of gate and up; NULL: two */
};
/* Appends a feed-forward half to the layer's. */
struct tt_mlp_spec {
    const struct tt_mlp_names *names;
    int64_t ffn; /* F */
    double norm_eps;
    double post_norm_eps; /* 0: norm_eps */
    bool norm_offset;
    bool bias;
    bool bypassed; /* its linears: struct tt_linear_spec */
    bool beside; /* it reads what the attention before it reads, by the same norm; names->norm is not used */
    double residual_scale;
    enum tt_activation activation;
};
void tt_build_mlp(struct tt_builder *builder, const struct tt_mlp_spec *spec);

/* Appends a feed-forward half without a gate (nn/plain_mlp.h): of the names module, up, down, activation and norm, and
 * the width, activation and bias alone. */
void tt_build_plain_mlp(struct tt_builder *builder, const struct tt_mlp_spec *spec);

/* Names of a half with a state inside its layer (nn/recurrence.h). */
struct tt_recurrence_names {
    /* `in` makes what the convolution reads, and what the others are NULL for: the gate, the rates. `rates` makes both
     * rates; otherwise rate_b and rate_a make one each. */
    const char *module, *in, *gate, *rates, *rate_b, *rate_a, *out;
    const char *conv, *activation, *gate_norm;
    const char *norm; /* of the stream */
};
/* Appends a half with a state to the layer's. Heads, their columns and the rows of the convolution are those of the
 * layer's facts. */
struct tt_recurrence_spec {
    const struct tt_recurrence_names *names;
    enum tt_scan_rule rule;
    int64_t key_heads;
    double norm_eps, gate_eps;
    bool norm_offset;
    bool conv_bias, linear_bias;
    bool out_bypassed; /* struct tt_linear_spec */
    /* The gated norm has one weight for all heads, each normed by itself; otherwise key_heads groups. */
    bool gate_by_head;
    double dt_min, dt_max; /* Mamba-2 */
    double residual_scale;
};
void tt_build_recurrence(struct tt_builder *builder, const struct tt_recurrence_spec *spec);

/* Appends a half with a short convolution (nn/short_conv.h), whose rows are those of the layer's facts. */
struct tt_short_conv_spec {
    const char *module, *in, *conv, *out, *norm;
    double norm_eps;
    bool bias; /* of the linears and the convolution */
};
void tt_build_short_conv(struct tt_builder *builder, const struct tt_short_conv_spec *spec);

/* Names of a mixture of experts inside its layer. */
struct tt_experts_names {
    const char *module, *router, *experts, *activation;
    const char *gate_up, *down; /* parameters of `experts`; activation NULL: it is no module */
    const char *gate_up_bias, *down_bias;
    /* in transformers' class these two have the shape [experts, in, out]; gate_up has rows of gate and up in turn */
    bool transposed, in_turn;
    const char *norm, *post_norm; /* of the stream; of the result, before the residual; NULL: none */
    /* of the router's own norm, a module without a weight, whose weight is a parameter of router_module; of the
     * weights of the chosen experts, frozen; NULL: none */
    const char *router_norm, *router_module, *router_weight, *weights_scale;
    const char *joint_norm; /* with `beside`: of the sum of both results; NULL: none */
    /* of the expert that every token has, and of the gate of its output; NULL: none */
    const char *shared, *shared_gate, *shared_up, *shared_down, *shared_activation, *shared_output_gate;
    const char *shared_gate_up; /* one linear instead of gate and up; NULL: two */
    const char *choice_bias; /* a buffer of the layer, which is added to scores for the choice; NULL: none */
};
/* Appends a half with a mixture of experts (nn/experts.h) to the layer's. */
struct tt_experts_spec {
    const struct tt_experts_names *names;
    int64_t count, slots, ffn; /* X, S, I */
    int64_t shared_ffn;        /* of the expert that every token has; 0: none */
    bool shared_bias;          /* of its linears */
    bool shared_bypassed;      /* they are: struct tt_linear_spec */
    struct tt_route_rule rule;
    bool wide_logits;
    bool bias;  /* of the router and of the experts' linears */
    bool plain; /* experts have no gate: gate_up is up alone, and names->shared_gate NULL */
    double norm_eps;
    bool norm_offset;
    double residual_scale;
    double router_scale; /* of the router's logits; 0: none */
    bool beside;         /* it reads what the half before it reads */
    /* the router is a linear for rules by name; otherwise the parameter "<path>.weight" */
    bool router_adapts;
    enum tt_activation activation;
};
void tt_build_experts(struct tt_builder *builder, const struct tt_experts_spec *spec);

/* A decoder whose layers differ in their facts only, under transformers' usual names: the family's embeddings, whose
 * output is multiplied by `embedding_scale`, "layers", with rotations "rotary_emb", and "norm" below the path of the
 * text model ("model"), and "lm_head". */
struct tt_decoder_spec {
    const struct tt_attention_spec *attention;
    const struct tt_latent_spec *latent; /* instead of attention; NULL: none */
    const struct tt_mlp_spec *mlp;
    /* Instead of attention in layers with a state, and in those with a convolution alone; NULL: none. */
    const struct tt_recurrence_spec *recurrence;
    const struct tt_short_conv_spec *short_conv;
    /* Instead of the MLP, or beside it, in layers that have them; NULL: none. */
    const struct tt_experts_spec *experts;
    /* Layers are one half each: where they have neither keys nor a state it is this; NULL: an MLP ends each layer. */
    const struct tt_mlp_spec *lone_mlp;
    const struct tt_layer_input_spec *inputs; /* NULL: none */
    int64_t reading_ffn; /* of the MLP in layers that read keys of others; 0: as the others */
    double embedding_scale, embedding_norm_eps; /* tt_build_embedding */
    double logit_scale, logit_cap;              /* tt_build_head */
    struct tt_norm_spec norm;                   /* the final one, below the text model's path; NULL: "norm" */
    const char *layer_scalar;                   /* tt_build_layer_scalar; NULL: none */
};
void tt_build_decoder(struct tt_builder *builder, const struct tt_model_facts *facts,
                      const struct tt_decoder_spec *spec);

#endif
