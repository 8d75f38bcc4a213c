/* A model family: one file and one line in families.def. Its parse() fills the facts that all floors read, and the
 * family's own struct; its build() makes the model of them with the parts of model/builder.h; names and keys of GGUF
 * are data. Nothing outside the file knows a name of its modules. */
#ifndef TT_MODEL_FAMILY_H
#define TT_MODEL_FAMILY_H

#include "model/builder.h"
#include "model/lora_convert.h"

/* A tensor of llama.cpp: module "self_attn.q_proj" of a layer is "blk.<layer>.attn_q", and so is a parameter of the
 * layer itself. Where `module` is the whole name of a tensor, "linear_attn.A_log", so is `name`; of experts it may be
 * two names with a blank between, those of the first and the second half of the rows of each, or of a matrix the parts
 * that struct tt_gguf_arrangement has. */
struct tt_gguf_name {
    const char *module, *name;
    bool rotated; /* its rows are heads that rotate */
};

/* The names of most architectures, ended by a NULL module. */
extern const struct tt_gguf_name tt_gguf_names[];

typedef int32_t tt_gguf_of_layer(const struct tt_model_facts *facts, int64_t layer);

struct tt_gguf_key {
    const char *key; /* after "<architecture>." */
    enum { TT_GGUF_KEY_U32, TT_GGUF_KEY_F32, TT_GGUF_KEY_BOOL, TT_GGUF_KEY_I32S, TT_GGUF_KEY_BOOLS } type;
    double value;
    /* of lists: `count` values, lent; or NULL, and one for each layer */
    const int32_t *list;
    size_t count;
    tt_gguf_of_layer *of_layer;
};
enum { TT_GGUF_KEYS_MAX = 40 };
struct tt_gguf_keys {
    struct tt_gguf_key items[TT_GGUF_KEYS_MAX];
    int count;
};
/* A key that is there already gets the new value. */
void tt_gguf_add_u32(struct tt_gguf_keys *keys, const char *key, int64_t value);
void tt_gguf_add_f32(struct tt_gguf_keys *keys, const char *key, double value);
void tt_gguf_add_bool(struct tt_gguf_keys *keys, const char *key, bool value);
void tt_gguf_add_i32s(struct tt_gguf_keys *keys, const char *key, const int32_t *list, size_t count);
void tt_gguf_add_layers_i32(struct tt_gguf_keys *keys, const char *key, tt_gguf_of_layer *of_layer);
void tt_gguf_add_layers_bool(struct tt_gguf_keys *keys, const char *key, tt_gguf_of_layer *of_layer);
/* attention.sliding_window of a model whose windows have one size, and the layers that have one: for architectures that
 * read the list. */
void tt_gguf_add_windows(const struct tt_model_facts *facts, struct tt_gguf_keys *keys);

/* A vector of one value in each layer that the model does not have: "blk.<layer>.<name>.weight". */
struct tt_gguf_constant {
    const char *name;
    int64_t count;
    float value;
};
enum { TT_GGUF_CONSTANTS_MAX = 2 };

/* Another order of a tensor's rows, or of its columns: from `first` on there are groups * each blocks of `size`, and
 * block (g, e) becomes block (e, g). `size` 0: none. */
struct tt_gguf_arrangement {
    int64_t first, groups, each, size;
    bool columns;
    bool negated_exp; /* each value x becomes -exp(x) */
    int64_t lines;    /* a vector is a matrix of this many rows there; 0: it is none */
    /* A matrix with two names: the first `part` of every `period` rows are the first's, the others the second's. Of
     * several periods, or `transposed`, these are matrices in a tensor of rank 3. */
    int64_t period, part;
    bool transposed; /* each matrix of the first name is its transpose */
};

/* The family as an architecture of llama.cpp. */
struct tt_gguf_family {
    const char *name; /* "llama" */
    /* It rotates neighbouring pairs, while Hugging Face's weights are for pairs half a head apart: the rows of rotated
     * tensors are permuted. */
    bool pairs;
    bool windows;     /* it has sliding windows */
    bool longrope;    /* it has LongRoPE's factors */
    bool yarn_keys;   /* it reads yarn's betas, and rope.scaling.yarn_log_multiplier */
    bool factors;     /* it needs the divisors of frequencies of rotation 0, which may all be 1 */
    bool untruncated; /* its yarn rounds no borders, and readers do: written with a notice */
    /* Tokenizers of SentencePiece's kind have merges instead of scores, under this name of the kind; NULL: scores. */
    const char *tokenizer;
    /* NULL, or tensors that readers multiply by without their LoRA, of layers without "blk.<layer>."; ended by NULL */
    const char *const *unadapted;
    const struct tt_gguf_name *names; /* other than tt_gguf_names, ended by a NULL module; NULL: none */
    void (*add_keys)(const struct tt_model_facts *facts, struct tt_gguf_keys *keys);
    /* NULL: it has none; returns their number */
    int (*constants)(const struct tt_model_facts *facts,
                     struct tt_gguf_constant constants[TT_GGUF_CONSTANTS_MAX]);
    /* NULL, or fills in the arrangement of a tensor of a layer, "linear_attn.A_log", which is zeroed before. */
    void (*arrange)(const struct tt_model_facts *facts, const char *tensor,
                    struct tt_gguf_arrangement *arrangement);
    /* A property of this model that the architecture cannot express; NULL: none. */
    const char *(*cannot)(const struct tt_model_facts *facts);
    /* NULL, or what readers compute otherwise than this model, for a notice; NULL: nothing. */
    const char *(*notice)(const struct tt_model_facts *facts);
    /* NULL, or m: where yarn scales the rotation, scores are multiplied by (0.1 m ln(factor) + 1)^2, cos and sin are
     * not; 0: neither is. yarn_apart: readers then take 1 for the mscale of cos and sin, and else m for it too. */
    double (*yarn_scores)(const struct tt_model_facts *facts);
    bool yarn_apart;
    /* NULL, or the architecture that this model has instead. */
    const struct tt_gguf_family *(*instead)(const struct tt_model_facts *facts);
};

/* The name of a module by the family's own names, then by those of most; NULL: it has none. */
const struct tt_gguf_name *tt_gguf_find_name(const struct tt_gguf_family *family, const char *module);

struct tt_model_family {
    const char *model_type;
    const char *other_type; /* NULL, or a model_type whose configurations are this one's, of the same class */
    const char *architecture;
    /* PEFT's TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING, a JSON list; NULL: PEFT has no default */
    const char *default_target_modules;
    const struct tt_older_experts *older_experts; /* NULL: PEFT translates no names (model/lora_convert.h) */
    const struct tt_gguf_family *gguf;            /* NULL: not an architecture of llama.cpp */
    /* NULL: each parameter is one tensor of its name. Else at most TT_PARAM_SOURCES_MAX rows and the end of the list,
     * which become those of the facts (io/param_source.h). */
    const struct tt_param_source *sources;
    const struct tt_part_rename *renames; /* NULL: the files' names are the class's (io/param_source.h) */
    /* Files may have layers behind the last one that predict further tokens, under its names or below "mtp.": nobody
     * reads them, as in transformers. */
    bool predicts_further;
    const char *table; /* the weight of the embeddings; NULL: model.embed_tokens.weight */
    /* Called after the keys common to all families. Fills sizes, max_position_embeddings, ropes, layers and own, and
     * the numbers of facts->sources that follow from them. */
    tt_status (*parse)(const struct tt_json *json, struct tt_model_facts *facts);
    void (*build)(const struct tt_model_facts *facts, struct tt_builder *builder);
};

#define FAMILY(name) extern const struct tt_model_family tt_family_##name;
#include "model/families.def"
#undef FAMILY

/* Families in the order of families.def; NULL behind the last. The list has a file for itself, so that a program can
 * have another. */
const struct tt_model_family *tt_model_family_at(size_t index);
const struct tt_model_family *tt_model_family_find(const char *model_type); /* NULL when not supported */

/* The family's own struct of `type` in the facts. */
#define TT_FAMILY_OWN(facts, type)                                                                           \
    ((void)sizeof(char[sizeof(type) <= TT_MODEL_OWN_BYTES ? 1 : -1]), (type *)(void *)(facts)->own)
#define TT_FAMILY_OWN_CONST(facts, type) ((const type *)(const void *)(facts)->own)

/* ---- Names of modules ---- */

/* Those of most families, as the first members of an initializer, to which further members add. */
#define TT_ATTENTION_LINEARS                                                                                 \
    .module = "self_attn", .q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj",        \
    .o = "self_attn.o_proj"
#define TT_ATTENTION_NAMES                                                                                   \
    TT_ATTENTION_LINEARS, .norm = "input_layernorm", .q_norm = "self_attn.q_norm",                           \
                          .k_norm = "self_attn.k_norm"
#define TT_MLP_NAMES                                                                                         \
    .module = "mlp", .activation = "mlp.act_fn", .gate = "mlp.gate_proj", .up = "mlp.up_proj",               \
    .down = "mlp.down_proj"

/* ---- Helpers for parse() ---- */

/* Sizes that most families have under the same keys. */
struct tt_decoder_shape {
    int64_t ffn;                       /* intermediate_size, F */
    int64_t heads, kv_heads, head_dim; /* H, K, E */
    double norm_eps;                   /* rms_norm_eps */
    enum tt_activation activation;     /* of the MLP: tt_family_parse_activation */
};

/* Values of missing keys. */
struct tt_decoder_defaults {
    int64_t vocab, heads; /* 0: the key is required */
    int64_t kv_heads;     /* 0: as many as heads, which null always means */
    int64_t head_dim;     /* 0: hidden_size / num_attention_heads */
    int64_t ffn;          /* 0: intermediate_size is required */
    int64_t positions;
    double rope_theta;        /* 0: 10000 */
    double norm_eps;          /* 0: 1e-6 */
    bool sections;            /* rotations may be by sections: struct tt_rope_rules */
    int64_t layers;           /* 0: num_hidden_layers is required; else a key beside it has this number */
    const char *norm_eps_key; /* NULL: rms_norm_eps */
};

/* Reads the sizes; sets max_position_embeddings and every layer's key/value heads, with no window and rotation 0. */
TT_MUST_USE tt_status tt_family_parse_shape(const struct tt_json *json,
                                            const struct tt_decoder_defaults *defaults,
                                            struct tt_model_facts *facts, struct tt_decoder_shape *shape);
/* Reads the activation of the MLP under one of its names of transformers (activations.py); without the key it is
 * `activation` as it was. */
TT_MUST_USE tt_status tt_family_parse_activation(const struct tt_json *json, const char *key,
                                                 enum tt_activation *activation);
struct tt_rope_rules {
    int64_t head_dim;
    double theta; /* default of rope_theta; 0: 10000 */
    /* Phi-3's: of the types only default and LongRoPE, also called su and yarn; partial_rotary_factor may be below 1 */
    bool phi3;
    double partial; /* default of partial_rotary_factor for a family that reads it; 0: it does not */
    /* default of original_max_position_embeddings beside the object, before its own; 0: its own, or
     * max_position_embeddings */
    int64_t original_positions;
    /* NULL, or the layers that rotate so: "full_attention". rope_parameters then has an object for each type. */
    const char *layer_type;
    const char *theta_key; /* beside rope_scaling; NULL: rope_theta */
    bool unscaled;         /* rope_scaling is not for these layers */
    /* The type may be mrope, a rotation by sections of positions in time, height and width: for text the three are one
     * position, and the rotation is default's. */
    bool sections;
};
/* Reads a rotation from rope_theta with rope_scaling, or from rope_parameters. */
TT_MUST_USE tt_status tt_family_parse_rope(const struct tt_json *json, const struct tt_rope_rules *rules,
                                           const struct tt_model_facts *facts, struct tt_rope *rope);
/* Reads layer_types: sliding[i] for "sliding_attention", false for "full_attention". Without the key `sliding` is
 * unchanged. */
TT_MUST_USE tt_status tt_family_parse_layer_types(const struct tt_json *json,
                                                  const struct tt_model_facts *facts,
                                                  bool sliding[TT_MODEL_LAYERS_MAX]);
/* The same for a list under any key and two other types of layers: whether each is of the second. */
TT_MUST_USE tt_status tt_family_parse_layer_kinds(const struct tt_json *json, const char *key,
                                                  const struct tt_model_facts *facts,
                                                  const char *const names[2],
                                                  bool second[TT_MODEL_LAYERS_MAX]);
/* Reads time_step_limit of Mamba-2, the bounds of a step of time; without it there are none. */
TT_MUST_USE tt_status tt_family_parse_time_steps(const struct tt_json *json, double *least, double *most);
/* The state of the layers that have one, which is the same in all; NULL: none has. */
const struct tt_kv_states *tt_family_state(const struct tt_model_facts *facts);
/* The windows of Qwen: use_sliding_window, sliding_window, and layer_types or max_window_layers (layers from that index
 * on; `first_layer` where it is missing). */
TT_MUST_USE tt_status tt_family_parse_qwen_windows(const struct tt_json *json, int64_t first_layer,
                                                   struct tt_model_facts *facts);

/* Reads a size from 1 to `maximum`; without the key it is as it was. */
TT_MUST_USE tt_status tt_family_parse_size(const struct tt_json *json, const char *key, int64_t maximum,
                                           int64_t *size);
/* Checks of values; the message names the key. */
TT_MUST_USE tt_status tt_family_check_range(const struct tt_json *json, const char *key, int64_t value,
                                            int64_t minimum, int64_t maximum);
TT_MUST_USE tt_status tt_family_check_positive(const struct tt_json *json, const char *key, double value,
                                               double maximum);

/* ---- Helpers for add_keys ---- */

/* The keys of a decoder with this shape, rotation keys excepted. */
void tt_gguf_add_decoder(const struct tt_model_facts *facts, const struct tt_decoder_shape *shape,
                         struct tt_gguf_keys *keys);

#endif
