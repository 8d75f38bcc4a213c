/* LoRA of the linears of single experts, as PEFT wrote it when experts were modules (before transformers 5), shown as
 * that of the matrices of all experts, as PEFT has it since (nn/expert_linear.h); converted as PEFT 0.21 does
 * (peft/utils/transformers_weight_conversion.py). Of X experts and P linears of rank r each, one after the other in the
 * rows of the matrix (gate and up, or down alone):
 *     A  [X P r, in]         the A of all linears of expert 0, then of expert 1, ...
 *     B  [P out, P r X]      in block p row o, column (p r + j) X + e: element (o, j) of B of linear p of expert e; 0
 *                            elsewhere
 * Numbers are read from the file when they are asked for. */
#ifndef TT_IO_EXPERT_ADAPTERS_H
#define TT_IO_EXPERT_ADAPTERS_H

#include "io/safetensors.h"

enum { TT_EXPERT_ADAPTERS_MAX = 8, TT_EXPERT_ADAPTER_PARTS = 2 };

/* Names are below a path, and have '#' for the number of a layer and '*' for that of an expert. */
struct tt_expert_adapter {
    const char *experts; /* the module whose adapter is shown: "layers.#.mlp.experts" */
    /* the linears' modules: "layers.#.mlp.experts.*.gate_proj"; NULL: no further one */
    const char *linears[TT_EXPERT_ADAPTER_PARTS];
    /* NULL, or a linear whose adapter, where a layer has one, makes this one that of the module's base layer */
    const char *outer;
};

struct tt_expert_adapters {
    const char *path; /* "base_model.model.model" */
    struct tt_expert_adapter items[TT_EXPERT_ADAPTERS_MAX];
    int count;
    /* modules with another name now: "layers.#.block_sparse_moe.gate"; `to` NULL: none */
    struct {
        const char *from, *to;
    } renamed;
};

/* Where the file has adapters of linears of experts it becomes one that shows them so, beside all other tensors, and
 * owns the first. Missing ones, and other types and shapes than that of the first, are TT_ERR_DATA. */
TT_MUST_USE tt_status tt_expert_adapters_show(const struct tt_expert_adapters *adapters,
                                              struct tt_safetensors **file);

#endif
