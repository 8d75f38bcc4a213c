/* The state of a build, for the files that implement model/builder.h and tt_model_create. */
#ifndef TT_MODEL_BUILDER_IMPL_H
#define TT_MODEL_BUILDER_IMPL_H

#include "model/builder.h"
#include "nn/layer.h"
#include "nn/token_rows.h"

struct tt_builder {
    struct tt_model *model;
    bool listing; /* the first run */
    size_t module_capacity, next_module;
    const char *layer_path; /* NULL outside layers */
    int layer;
    struct tt_layer current;                         /* the layer that is being built */
    const struct tt_side *keys[TT_MODEL_LAYERS_MAX]; /* that layers offer */
    const struct tt_side *inputs;                    /* of every layer, that the embedding offers */
    size_t side_capacity;
    tt_param **block_params; /* of the current block */
    size_t block_param_count, block_param_capacity;
    struct tt_column_name columns[TT_DEVICE_COLUMNS_MAX]; /* that it reads */
    int column_count;
    size_t param_capacity;
    const struct tt_module *embedding_module;
    tt_param *embedding;
    struct tt_token_rows trained; /* rows of tokens that the embedding has apart */
    bool shares_head;             /* embedding and head are one parameter */
    tt_status status;
};

/* Zeroed memory of the model; NULL after a failure. */
void *tt_builder_take(struct tt_builder *builder, size_t bytes);
/* Zeroed memory for the next half of the current layer; NULL after a failure. */
void *tt_builder_half(struct tt_builder *builder, const struct tt_half_ops *ops, double scale, size_t bytes);
/* The next module: added in the first run, found in the second. NULL after a failure. */
struct tt_module *tt_builder_module(struct tt_builder *builder, const char *path, enum tt_module_kind kind);
/* Adapters that lie side by side, at least 1. */
int64_t tt_builder_adapters(const struct tt_builder *builder);
/* Adds a parameter that another block owns to the current block. */
void tt_builder_use_param(struct tt_builder *builder, tt_param *param);
/* A parameter of the base model: frozen, trained with everything, or trained as a copy (modules_to_save). */
tt_param *tt_builder_param(struct tt_builder *builder, const struct tt_module *module, const char *suffix,
                           int rank, const int64_t *dims, enum tt_init_kind random_init);
/* Where the module is quantized and the weight frozen: a segment of bytes in the format of the options instead of the
 * matrix, or of one with the rows of all experts; of experts that are not quantized in that of the folder. */
void tt_builder_quantize(struct tt_builder *builder, const struct tt_module *module, tt_param *weight);
/* A matrix of an adapter; both have their first values by tt_builder_lora_init, A that of its rank and columns. */
tt_param *tt_builder_lora(struct tt_builder *builder, const struct tt_module *module, const char *suffix,
                          int64_t rows, int64_t columns, enum tt_param_reach reach);
void tt_builder_lora_init(struct tt_builder *builder, int64_t r, tt_param *lora_A, tt_param *lora_B);
/* The rows of tokens of `module` that train apart from its table; none: zeros. */
void tt_builder_token_rows(struct tt_builder *builder, const struct tt_module *module, tt_param *table,
                           struct tt_token_rows *rows);
/* The same as tt_build_linears for one linear that is module `module`; `tied` (or NULL) replaces its weight. */
void tt_builder_head_linear(struct tt_builder *builder, const struct tt_module *module, int64_t in,
                            int64_t out, tt_param *tied, struct tt_linear_group *group);
/* Ends the current block. */
void tt_builder_block(struct tt_builder *builder, const struct tt_block_ops *ops, const char *name,
                      void *impl);

#endif
