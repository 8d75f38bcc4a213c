/* A model: a plain list of blocks with their parameters, without device memory and independent of ranks. Its arena owns
 * everything it points to. */
#ifndef TT_MODEL_MODEL_H
#define TT_MODEL_MODEL_H

#include "base/arena.h"
#include "base/json.h"
#include "base/name_index.h"
#include "io/param_source.h"
#include "io/text_part.h"
#include "nn/block.h"
#include "nn/kv_cache.h"
#include "nn/side.h"

enum {
    TT_MODEL_LAYERS_MAX = 1024,
    TT_MODEL_ROPES_MAX = 2,
    TT_MODEL_SKIP_BYTES = 65536,
    TT_MODEL_OWN_BYTES = 256
};

/* Rotary positions of some layers. Keys of config.json: Hugging Face's. */
enum tt_rope_type {
    TT_ROPE_DEFAULT,
    TT_ROPE_LINEAR,
    /* as default: it begins beyond max_position_embeddings, which no sequence here passes */
    TT_ROPE_DYNAMIC,
    TT_ROPE_LLAMA3,
    TT_ROPE_YARN,
    TT_ROPE_LONGROPE,
    TT_ROPE_PROPORTIONAL, /* all columns of a head are pairs, of which the first `turning` rotate */
    TT_ROPE_TYPES
};
enum { TT_ROPE_FACTORS_MAX = 128 };
struct tt_rope {
    enum tt_rope_type type;
    int64_t columns; /* of a head that rotate: its first ones */
    int64_t turning; /* proportional: pairs whose frequency is not 0 */
    double theta;
    double factor, low_freq_factor, high_freq_factor;
    int64_t original_max_position;
    double attention_factor;     /* yarn and longrope: multiplies cos and sin */
    double beta_fast, beta_slow; /* yarn */
    bool truncate;
    /* of queries: cos and sin are multiplied by 1 + temperature ln(1 + floor(position / original_max_position)) too, as
     * Llama 4's attention does; 0: not */
    double temperature;
    /* longrope: divisors of the frequencies, for sequences within the original positions and beyond them */
    float short_factor[TT_ROPE_FACTORS_MAX], long_factor[TT_ROPE_FACTORS_MAX];
};

/* The tables of rotary angles of a run. All tokens of a sequence rotate by its own length, whatever is beside it:
 * sequences of at most ends[0] tokens read part 0 of the tables, those of at most ends[1] part 1, and so on. There is
 * one part unless a rotation is LongRoPE with fewer original positions than the longest sequence has tokens. Part p has
 * the rows first_rows[p] + 0 .. ends[p] - 1, one a position. */
enum { TT_ROPE_PARTS_MAX = TT_MODEL_ROPES_MAX + 1 };
struct tt_rope_parts {
    int count;
    int64_t ends[TT_ROPE_PARTS_MAX], first_rows[TT_ROPE_PARTS_MAX];
    int64_t rows; /* of all parts */
};

/* One decoder layer as others see it. */
struct tt_layer_facts {
    int64_t kv_heads, head_dim; /* K, E: the shape of a token's keys, and of its values */
    int64_t window;             /* keys that a query sees; 0: all up to its own */
    int rope;                   /* index in ropes; -1: no rotation */
    bool keys_as_values;        /* values are the outputs of the keys' linear, before norm and rotation */
    bool experts;               /* a mixture of experts is in the place of its MLP */
    int64_t keys_back; /* 0: it makes its keys and values; n: it reads those of the n-th layer before it */
    /* Values that the layer carries from token to token instead of keys, which it has none of then; zeros: nothing. */
    struct tt_kv_states state;
};

/* The modules that tie_word_embeddings makes one, in all families of language models: the embeddings below the path of
 * the text model (tt_model_text_path), and the head. */
#define TT_MODEL_EMBEDDING "embed_tokens"
#define TT_MODEL_HEAD "lm_head"
#define TT_MODEL_HEAD_NAME TT_MODEL_HEAD ".weight"
#define TT_MODEL_TOKEN_ROWS                                                                                  \
    ".token_adapter.trainable_tokens_delta" /* PEFT's name of trained rows of a module */
#define TT_MODEL_SCORE "score"              /* in its place where a model has labels */

struct tt_model_family;
/* The content of config.json. Key names: Hugging Face's. All floors read the members up to `own`; the family keeps the
 * rest of its configuration in `own`, in a struct of its file (model/family.h). */
struct tt_model_facts {
    const struct tt_model_family *family; /* lent: model/family.h */
    char model_type[32];                  /* "llama" */
    char architecture[64];                /* "LlamaForCausalLM" */
    /* NULL, or the class of the folder whose text model this is: io/text_part.h */
    const struct tt_text_part *part;
    struct tt_param_sources sources; /* the family's: parameters that files hold in pieces */
    int64_t image_layers; /* that get features of the tower's layers where there are images (deepstack) */
    int64_t hidden_size;  /* D */
    int64_t vocab_size;   /* V */
    /* vocab_size of the folder's files, where new tokens have rows too (model/new_rows.h); 0: nothing grew. */
    int64_t grown_from;
    bool fixed_vocab;          /* a further table has a row for each token */
    int64_t num_hidden_layers; /* blocks without the first and the last one */
    bool reads_images;         /* a detector */
    int64_t label_count;       /* of a classifier of sequences or a reward model; 0: a language model */
    bool new_scores; /* the head of such a model is not in the folder: it begins with random numbers */
    const char *label_names; /* NULL, or lent: names of the labels other than config.json's (io/labels.h) */
    /* The loss that balances experts, over all layers with them: X, S, and its coefficient; 0: none. */
    struct {
        int64_t experts, slots;
        double coefficient;
    } balance;
    int64_t max_position_embeddings;
    /* Embeddings and head are one table. Set by config.json, then by the weights (checkpoint/unread.h): `own_head` is
     * true where config.json ties them, but the folder has a head that differs; `table_in_head`: where it has the table
     * under the head's name alone; `head_settled`: the weights were asked. */
    bool tie_word_embeddings, own_head, table_in_head, head_settled;
    double initializer_range;
    struct tt_rope ropes[TT_MODEL_ROPES_MAX];
    int rope_count;
    struct tt_layer_facts layers[TT_MODEL_LAYERS_MAX];
    tt_dtype dtype; /* torch_dtype / dtype */
    /* quantization_config: format of the folder's linears; NONE: not quantized */
    enum tt_quant_type stored_quant;
    bool stored_quant_nested;
    /* of the matrices of experts in the folder, kept where they are frozen; NONE: numbers */
    struct tt_quant_format stored_experts;
    bool stored_fp8_blocks;                      /* its scales are of 128 x 128 weights, not of rows */
    bool stored_fp8_powers;                      /* and powers of two, as those of activations */
    char stored_quant_skip[TT_MODEL_SKIP_BYTES]; /* JSON list; empty: null */
    const char *stored_plain;                    /* NULL, or lent: see tt_quantization_inspect */
    int64_t bos_token_id;                        /* -1: none */
    int64_t eos_token_ids[8];
    int eos_token_count;
    _Alignas(16) unsigned char own[TT_MODEL_OWN_BYTES];
};

/* PEFT's `bias`: the base's biases that train beside an adapter: none, all, those of adapted linears. */
enum tt_lora_bias { TT_LORA_BIAS_NONE, TT_LORA_BIAS_ALL, TT_LORA_BIAS_LORA_ONLY };
extern const char *const tt_lora_bias_words[]; /* in PEFT's spelling */

/* PEFT's save_embedding_layers: embeddings and head of the base are saved beside an adapter; AUTO: where their number
 * of rows has changed. */
enum tt_save_embeddings { TT_SAVE_EMBEDDINGS_AUTO, TT_SAVE_EMBEDDINGS_YES, TT_SAVE_EMBEDDINGS_NO };

/* LoRA's settings, in PEFT's words; model/lora.h has the rules. */
struct tt_lora_config {
    bool enabled;
    int64_t r;
    double alpha;
    double dropout;
    bool use_rslora;
    bool use_dora;                   /* the kind of adapter: nn/adapter_kinds.def */
    const char *init_weights;        /* init_lora_weights (model/lora_init.h); NULL: "true" */
    const char *loftq_config;        /* NULL or JSON object */
    const char *target_modules;      /* NULL; "all-linear"; a regular expression; or a JSON list as text */
    const char *target_parameters;   /* NULL or JSON list: parameters of experts */
    const char *exclude_modules;     /* NULL, expression or JSON list */
    const char *modules_to_save;     /* NULL or JSON list */
    const char *layers_to_transform; /* NULL, integer or JSON list */
    const char *layers_pattern;      /* NULL, name or JSON list */
    const char *rank_pattern;        /* NULL or JSON object */
    const char *alpha_pattern;
    /* NULL, JSON list of ids, or object of such lists by module: rows that train (model/trained_tokens.h) */
    const char *trainable_token_indices;
    /* [new_count], lent while the model is made: tokens whose rows train where no setting says how their tables do */
    const int32_t *new_tokens;
    int64_t new_count;
    enum tt_save_embeddings save_embedding_layers;
    /* embeddings and head that are one table stay one when modules_to_save trains it */
    bool ensure_weight_tying;
    enum tt_lora_bias bias;
    bool classifies; /* an adapter's task_type is SEQ_CLS: the scores of a model train in full beside it */
    /* read from an adapter: parts of a pattern that match nothing are only logged */
    bool from_adapter;
    /* of PEFT before 0.19, whose A and B of a parameter [experts, out, in] have the places of each other */
    bool swapped;
};

/* Storage of the frozen linears (model/quantization.h); the embeddings are never quantized. */
enum tt_fp8_products {
    TT_FP8_ALL,     /* also the gradient of the input, with a transposed copy of each weight */
    TT_FP8_FORWARD, /* the gradient of the input decodes the weight */
    TT_FP8_NONE,    /* all products decode the weight, as those of other formats */
    TT_FP8_SINGLE,  /* as ALL without the copy: the codes are transposed for each gradient of the input */
};

/* The form in which backward keeps gate and up of the MLPs (nn/mlp.h). */
enum tt_fp8_gate_up { TT_GATE_UP_COMPUTE, TT_GATE_UP_E4M3 };

struct tt_base_quant {
    enum tt_quant_type type;       /* NONE: in the compute type */
    bool nested;                   /* double quantization */
    enum tt_fp8_products products; /* fp8; with `recodes` */
    enum tt_fp8_gate_up gate_up;   /* fp8 alone */
    bool blocks, powers;           /* fp8 alone: scales of the folder's blocks; powers of two */
    bool head;                     /* fp8 alone: lm_head too, with a scale a row */
    bool experts;                  /* matrices of experts too: each parameter is one matrix */
    bool recodes;                  /* 4 and 8 bits: decoded weights are quantized to fp8 for `products` */
    bool trains;                   /* backward passes follow; set by the code that creates ranks */
    const char *skip_modules;      /* NULL or JSON list: linears that are not quantized */
    const char *plain_modules;     /* NULL, or instead their paths, a line each */
};

struct tt_model_options {
    tt_dtype compute_dtype; /* type in which frozen matrices are stored and activations computed */
    bool train_base;        /* full fine-tuning: every base parameter trains */
    struct tt_lora_config lora;
    /* Read by tt_model_create only: further adapters; each module has the largest rank of all. */
    const struct tt_lora_config *more_lora;
    size_t more_lora_count;
    /* Adapters that lie side by side, `lora` and `more_lora` among them (infer/adapter_set.h); 0: one */
    int64_t adapter_places;
    struct tt_base_quant quant;
    bool random_init; /* parameters get their family's random init instead of a file */
};

/* The modules of the model with the names that rules and files use (model/module.h). */
struct tt_module_list {
    struct tt_module *items;
    size_t count;
    int64_t layer_count;
    const char *layers; /* path of the list of layers: "model.layers" */
    const char *text;   /* of the text model: tt_model_text_path */
};

struct tt_model {
    struct tt_model_facts facts;
    struct tt_model_options options;
    struct tt_module_list modules; /* as the family built them */
    struct tt_block *blocks;       /* in the order of a forward pass */
    int block_count;
    /* unit of the block's parameters; tied embedding and head share one */
    int *unit_of_block;
    int unit_count;
    const struct tt_side **sides; /* by index: nn/side.h */
    size_t side_count;
    tt_param **params; /* all, in order of the blocks */
    size_t param_count;
    struct tt_name_index param_index, module_index; /* by name, by path */
    /* Elements; tied parameters counted once. As PEFT counts: the base includes the originals of modules_to_save. */
    int64_t base_param_count, adapter_param_count, trainable_param_count;
    /* "model.embed_tokens.weight", "lm_head.weight"; NULL: a detector */
    const char *embedding_name, *head_name;
    struct tt_arena arena;
};

/* Parses and checks config.json (TT_ERR_DATA names the key; TT_ERR_UNSUPPORTED the unsupported family or feature). */
TT_MUST_USE tt_status tt_model_facts_parse(const struct tt_json *json, struct tt_model_facts *config);
/* The same of a folder, which is refused too where its weights alone say that the head gives scores. */
struct tt_model_folder;
TT_MUST_USE tt_status tt_model_facts_of_folder(const struct tt_model_folder *folder,
                                               struct tt_model_facts *config);
/* The same, also of a model whose head gives scores (label_count), which tt_model_facts_parse refuses. */
TT_MUST_USE tt_status tt_model_facts_parse_any(const struct tt_json *json, struct tt_model_facts *config);
/* Whether any layer has a mixture of experts. */
bool tt_model_facts_have_experts(const struct tt_model_facts *facts);
/* Another coefficient of the loss that balances experts (the setting router_aux_loss_coef); -1: as it is. */
TT_MUST_USE tt_status tt_model_facts_balance(struct tt_model_facts *facts, double coefficient);
/* Builds blocks and parameters. A LoRA pattern that matches nothing is TT_ERR_USAGE. */
TT_MUST_USE tt_status tt_model_create(const struct tt_model_facts *config,
                                      const struct tt_model_options *options, struct tt_model **out);
void tt_model_destroy(struct tt_model *model); /* takes NULL */
/* Path of the module that holds embeddings and layers: "model", "model.language_model". */
const char *tt_model_text_path(const struct tt_model_facts *facts);
/* The weight of the embeddings: "model.embed_tokens.weight". */
const char *tt_model_table_name(const struct tt_model_facts *facts);
/* Key/value caches have a place for each layer that makes its keys and values: that of `layer`, or of the one that it
 * reads; and the number of places. */
int tt_model_cache_layer(const struct tt_model_facts *facts, int64_t layer);
int64_t tt_model_cache_layers(const struct tt_model_facts *facts);
/* The content of each place; true: a layer has a state. */
bool tt_model_cache_shape(const struct tt_model_facts *facts, struct tt_kv_heads heads[TT_MODEL_LAYERS_MAX],
                          struct tt_kv_states states[TT_MODEL_LAYERS_MAX]);
/* The parts of tables for sequences of at most `length` tokens. */
void tt_rope_parts_make(const struct tt_model_facts *facts, int64_t length, struct tt_rope_parts *parts);
/* The part of a sequence that reaches `length` tokens, those before it in a cache included. */
int tt_rope_part_of(const struct tt_rope_parts *parts, int64_t length);
/* Fills cos and sin tables f32 [rows, columns / 2] (host memory) of a rotation for all parts. LongRoPE takes its long
 * factors in parts for more tokens than its original positions. */
void tt_model_fill_rope(const struct tt_rope *rope, const struct tt_rope_parts *parts, float *cos_PE,
                        float *sin_PE);
/* The first block with this role; -1: none. */
int tt_model_block_of(const struct tt_model *model, enum tt_block_role role);
/* NULL when no parameter has that name. */
tt_param *tt_model_find_param(const struct tt_model *model, const char *name);
/* The components of `name` without which it is a parameter's: "_orig_mod." of "_orig_mod.model.norm.weight". Lent by
 * `name`; empty when there are none. */
struct tt_span tt_model_extra_part(const struct tt_model *model, const char *name);
/* The module with this path; NULL when there is none. */
const struct tt_module *tt_model_find_module(const struct tt_model *model, const char *path);
/* Bytes of ".lora_A.weight" and the like at the end of a parameter's name; 0: it is none of an adapter's matrices and
 * vectors. */
size_t tt_model_adapter_part(const char *name);
/* The tensor of the model folder from which a base parameter is loaded: its own name, except for an lm_head.weight that
 * is separate from tied embeddings because modules_to_save trains one of the two, and for a tied table that the folder
 * has under the head's name. NULL for those of an adapter, and for transposed copies (tensor/param.h). */
const char *tt_model_source_name(const struct tt_model *model, const tt_param *param);
/* The parameter is a head of its own, which begins with the values of the table that it is tied to in the folder. */
bool tt_model_repeats_table(const struct tt_model *model, const tt_param *param);
/* Embedding and head are one parameter. False too when config.json ties them but modules_to_save trains a copy of one
 * (as PEFT does): such an adapter cannot be merged into a tied model. */
bool tt_model_is_tied(const struct tt_model *model);
/* modules_to_save trains one table for both (ensure_weight_tying): an adapter's file has it under both names. */
bool tt_model_saves_table_twice(const struct tt_model *model);
/* "trainable params: 1,024 || all params: 10,240 || trainable%: 10.0000", as PEFT prints it; returns `text`. */
const char *tt_model_format_counts(const struct tt_model *model, char *text, size_t text_bytes);

/* Appends the adapter's parameters by the names of their modules: "adapted: q_proj 5,120, v_proj 5,120"; nothing where
 * the model has none. */
TT_MUST_USE tt_status tt_model_describe_adapted(const struct tt_model *model, struct tt_str *text);

/* A linear and its adapter. A tied head has the embedding's weight. Without LoRA r is 0, and A and B are NULL; vector
 * (DoRA's magnitudes) is NULL where the kind of adapter has none. */
struct tt_model_linear {
    const tt_param *weight, *lora_A, *lora_B, *vector;
    int64_t experts; /* 0: one matrix; else those of all experts, with adapters as in nn/expert_linear.h */
    int64_t idle;    /* elements that a token does not read, of experts that it does not have */
    int64_t r;
    int64_t adapters; /* side by side, of r / adapters each; 0: one */
    float scaling;
};
/* Calls `visit` for each linear, in order of the blocks, until one fails. */
TT_MUST_USE tt_status tt_model_visit_linears(const struct tt_model *model,
                                             tt_status (*visit)(void *context,
                                                                const struct tt_model_linear *linear),
                                             void *context);

/* The base's parameters without those of experts that a token does not have. */
int64_t tt_model_active_count(const struct tt_model *model);

/* Training FLOPs for one token of a sequence of `length` tokens, recompute not counted: 4 (LoRA) or 6 (full) per matrix
 * parameter read, plus causal attention forward and backward. Without the head, which only supervised tokens reach:
 * tt_model_flops_per_label for each of those. */
double tt_model_flops_per_token(const struct tt_model *model, double length, bool full);
/* The same for an image of a detector, whose canvas has so many pixels. */
double tt_model_flops_per_image(const struct tt_model *model, double pixels);
double tt_model_flops_per_label(const struct tt_model *model, bool full);

#endif
