/* A model: a plain list of blocks with their parameters, without device memory and independent of ranks. Its arena owns
 * everything it points to. */
#ifndef TT_MODEL_MODEL_H
#define TT_MODEL_MODEL_H

#include "base/arena.h"
#include "base/json.h"
#include "nn/block.h"

enum { TT_MODEL_LAYERS_MAX = 1024, TT_MODEL_SKIP_BYTES = 1024 };

/* The content of config.json, for every family; fields that a family lacks are 0. Key names: Hugging Face. */
struct tt_model_config {
    char model_type[32];       /* "llama" */
    char architecture[64];     /* "LlamaForCausalLM" */
    int64_t hidden_size;       /* D */
    int64_t intermediate_size; /* F */
    int64_t num_hidden_layers;
    int64_t num_attention_heads; /* H */
    int64_t num_key_value_heads; /* K */
    int64_t head_dim;            /* E */
    int64_t vocab_size;          /* V */
    int64_t max_position_embeddings;
    double rms_norm_eps;
    bool tie_word_embeddings;
    bool attention_bias;        /* q, k, v have a bias */
    bool attention_output_bias; /* o has a bias */
    bool mlp_bias;
    bool qk_norm;                            /* Qwen3 */
    int64_t sliding_window;                  /* 0: none */
    bool window_layers[TT_MODEL_LAYERS_MAX]; /* layers with the window (layer_types, max_window_layers) */
    double initializer_range;
    double rope_theta;
    enum { TT_ROPE_DEFAULT, TT_ROPE_LINEAR, TT_ROPE_LLAMA3, TT_ROPE_YARN } rope_type;
    double rope_factor, rope_low_freq_factor, rope_high_freq_factor;
    int64_t rope_original_max_position;
    /* yarn; the factor multiplies cos and sin */
    double rope_beta_fast, rope_beta_slow, rope_attention_factor;
    bool rope_truncate;
    tt_dtype dtype; /* torch_dtype / dtype */
    /* quantization_config: format of the folder's linears, quantized by bitsandbytes; NONE: not quantized */
    enum tt_quant_type stored_quant;
    bool stored_quant_nested;
    char stored_quant_skip[TT_MODEL_SKIP_BYTES]; /* JSON list; empty: null */
    int64_t bos_token_id;                        /* -1: none */
    int64_t eos_token_ids[8];
    int eos_token_count;
};

/* LoRA's settings, in PEFT's words; model/lora.h has the rules. */
struct tt_lora_config {
    bool enabled;
    int64_t r;
    double alpha;
    double dropout;
    bool use_rslora;
    bool gaussian_init;              /* init_lora_weights "gaussian"; otherwise kaiming-uniform */
    const char *target_modules;      /* NULL; "all-linear"; a regular expression; or a JSON list as text */
    const char *exclude_modules;     /* NULL, expression or JSON list */
    const char *modules_to_save;     /* NULL or JSON list */
    const char *layers_to_transform; /* NULL, integer or JSON list */
    const char *layers_pattern;      /* NULL, name or JSON list */
    const char *rank_pattern;        /* NULL or JSON object */
    const char *alpha_pattern;
    /* read from an adapter: parts of a pattern that match nothing are only logged */
    bool from_adapter;
};

/* Storage of the frozen linears (model/quantization.h); lm_head and the embeddings are never quantized. */
struct tt_base_quant {
    enum tt_quant_type type;  /* NONE: in the compute type */
    bool nested;              /* double quantization */
    const char *skip_modules; /* NULL or JSON list: linears that are not quantized */
};

struct tt_model_options {
    tt_dtype compute_dtype; /* type in which frozen matrices are stored and activations computed */
    bool train_base;        /* full fine-tuning: every base parameter trains */
    struct tt_lora_config lora;
    struct tt_base_quant quant;
    bool random_init; /* parameters get their family's random init instead of a file */
};

struct tt_model {
    struct tt_model_config config;
    struct tt_model_options options;
    struct tt_block *blocks; /* [0] embedding, [1 .. L] decoder layers, [L + 1] head */
    int block_count;
    /* unit of the block's parameters; tied embedding and head share one */
    int *unit_of_block;
    int unit_count;
    tt_param **params; /* all, in order of the blocks */
    size_t param_count;
    /* Elements; tied parameters counted once. As PEFT counts: the base includes the originals of modules_to_save. */
    int64_t base_param_count, adapter_param_count, trainable_param_count;
    struct tt_arena arena;
};

/* Parses and checks config.json (TT_ERR_DATA names the key; TT_ERR_UNSUPPORTED the unsupported family or feature). */
TT_MUST_USE tt_status tt_model_config_parse(const struct tt_json *json, struct tt_model_config *config);
/* Builds blocks and parameters. A LoRA pattern that matches nothing is TT_ERR_USAGE. */
TT_MUST_USE tt_status tt_model_create(const struct tt_model_config *config,
                                      const struct tt_model_options *options, struct tt_model **out);
void tt_model_destroy(struct tt_model *model); /* takes NULL */
/* Fills cos and sin tables f32 [positions, E/2] (host memory) by the model's rope type; positions must not exceed
 * max_position_embeddings unless the rope type extends it. */
void tt_model_fill_rope(const struct tt_model_config *config, int64_t positions, float *cos_PE,
                        float *sin_PE);
/* NULL when no parameter has that name. */
tt_param *tt_model_find_param(const struct tt_model *model, const char *name);
/* The tensor of the model folder from which a base parameter is loaded: its own name, except for an lm_head.weight that
 * is separate from tied embeddings because modules_to_save trains one of the two. NULL for LoRA's A and B. */
const char *tt_model_source_name(const struct tt_model *model, const tt_param *param);
/* Embedding and head are one parameter. False too when config.json ties them but modules_to_save trains a copy of one
 * (as PEFT does): such an adapter cannot be merged into a tied model. */
bool tt_model_is_tied(const struct tt_model *model);
/* "trainable params: 1,024 || all params: 10,240 || trainable%: 10.0000", as PEFT prints it; returns `text`. */
const char *tt_model_format_counts(const struct tt_model *model, char *text, size_t text_bytes);

/* Training FLOPs for one token of a sequence of `length` tokens, recompute not counted: 4 (LoRA) or 6 (full) per matrix
 * parameter read, plus causal attention forward and backward. Without the head, which only supervised tokens reach:
 * tt_model_flops_per_label for each of those. */
double tt_model_flops_per_token(const struct tt_model *model, double length, bool full);
double tt_model_flops_per_label(const struct tt_model *model, bool full);

#endif
