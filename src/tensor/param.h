/* A parameter: name, full shape, trainable or frozen, and views that src/shard lends while its unit is gathered.
 *
 * `value` and `grad` are valid only between tt_unit_wait and tt_unit_release of the unit that holds the
 * parameter; outside they are empty. `grad` (fp32, full shape, accumulated into) is lent for trainable
 * parameters during backward only.
 */
#ifndef TT_TENSOR_PARAM_H
#define TT_TENSOR_PARAM_H

#include "tensor/quant.h"
#include "tensor/tensor.h"

/* Initial value of a parameter that is not read from a file. */
enum tt_init_kind {
    TT_INIT_FILE = 0, /* must come from the model folder or adapter */
    TT_INIT_ZERO,
    TT_INIT_ONE,
    TT_INIT_NORMAL,   /* mean 0, deviation `init_scale` */
    TT_INIT_UNIFORM,  /* [-init_scale, init_scale) */
    TT_INIT_CONSTANT, /* init_scale */
    TT_INIT_ROWS,     /* those rows of `rows_of` that `tokens` lists */
    TT_INIT_TOKENS,   /* `tokens` themselves */
    TT_INIT_DERIVED, /* by the kind of its linear's adapter, of weights that are in place (nn/adapter_kind.h) */
};

/* How the loss reaches a parameter. */
enum tt_param_reach {
    TT_REACH_ALWAYS,
    TT_REACH_SCORES, /* through scores of attention alone: only rows that see two keys give a gradient */
    TT_REACH_TOKENS, /* through single tokens, which the data may lack */
    TT_REACH_NEVER,  /* not at all in this model */
};

/* The passes in which a frozen parameter is read: a unit gathers it for those alone. A recomputation is a forward
 * pass. */
enum tt_param_use {
    TT_USE_ALWAYS,
    TT_USE_FORWARD,
    TT_USE_BACKWARD,
    TT_USE_COUNT,
};

/* The weight decay of a trainable parameter: of norms and biases of a language model none, as transformers' Trainer
 * groups them; of a detector all, and norms by a setting of their own, as torchvision's references group them. */
enum tt_decay { TT_DECAY_NONE, TT_DECAY_FULL, TT_DECAY_NORM };

/* The place of a parameter in a language model, for rules of the optimizer that treat it differently. A table that
 * embedding and head share is an EMBEDDING. */
enum tt_param_place { TT_PLACE_INSIDE, TT_PLACE_EMBEDDING, TT_PLACE_HEAD };

typedef struct tt_param {
    /* name in the model folder or adapter: "model.layers.0.self_attn.q_proj.weight",
     * "model.layers.0.self_attn.q_proj.lora_A.weight"; owned by the model's arena */
    const char *name;
    tt_dtype stored_dtype; /* frozen: the type in the shard; trainable: fp32, the master */
    /* format.type TT_QUANT_NONE, or the layout of the segment of bytes that is stored instead, and lent as
     * U8 [quant.bytes]; dims are still those of the matrix, stored_dtype is U8. Never trainable */
    struct tt_quant_layout quant;
    int rank;
    int64_t dims[TT_RANK_MAX];
    bool trainable;
    bool exact; /* lent in fp32 whatever the compute type is */
    /* TT_INIT_DERIVED: the value is the factor that follows from the file's and from frozen weights, so that passes
     * need not compute it; set after loading where nothing trains */
    bool folded;
    enum tt_decay weight_decay;
    enum tt_param_place place;
    double lr_scale; /* trainable: its learning rate over the run's; 1 unless a group says otherwise */
    bool adapter;    /* belongs to the adapter, not to the base model */
    bool bias;       /* one of the base that trains beside an adapter, whose files may lack it */
    /* the name in an adapter's files where it is another one than `name`; NULL: it is not */
    const char *adapter_name;
    enum tt_param_use use;
    /* NULL, or: this is a copy of that matrix, which was transposed and then coded by its own rows; no file has it */
    const struct tt_param *transposed_of;
    /* TT_INIT_ROWS: K rows of that table, which train apart from it (nn/token_rows.h). No file of a model has them */
    struct tt_param *rows_of;
    /* [K], those of TT_INIT_ROWS and of TT_INIT_TOKENS, which is what passes read of them: i32, in no file. NULL */
    const int32_t *tokens;
    enum tt_param_reach reach;
    enum tt_init_kind init;
    double init_scale;
    tt_tensor value; /* lent */
    tt_tensor grad;  /* lent */
} tt_param;

int64_t tt_param_count(const tt_param *param); /* elements of the matrix */
/* Views that may be absent: empty where `param` is NULL, and the gradient also where it is frozen. */
static inline tt_tensor tt_param_value(const tt_param *param)
{
    return param != NULL ? param->value : (tt_tensor){0};
}
static inline tt_tensor tt_param_grad(const tt_param *param)
{
    return param != NULL && param->trainable ? param->grad : (tt_tensor){0};
}
static inline bool tt_param_is_quantized(const tt_param *param)
{
    return param->quant.format.type != TT_QUANT_NONE;
}
/* Stored elements of stored_dtype; bytes of the segment when quantized. */
int64_t tt_param_stored_count(const tt_param *param);

#endif
