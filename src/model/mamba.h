/* Layers with a state by Mamba-2 as architectures of llama.cpp: names, keys, and what these cannot express. Sources:
 * conversion/mamba.py, src/models/mamba-base.cpp of llama.cpp b10605. */
#ifndef TT_MODEL_MAMBA_H
#define TT_MODEL_MAMBA_H

#include "model/family.h"

struct tt_mamba {
    int64_t groups; /* of keys */
    double dt_min, dt_max;
    bool conv_bias, linear_bias;
};

#define TT_MAMBA_GGUF_NAMES(path)                                                                            \
    {path ".in_proj", "ssm_in", false}, {path ".conv1d", "ssm_conv1d", false},                               \
        {path ".norm", "ssm_norm", false}, {path ".out_proj", "ssm_out", false},                             \
        {path ".A_log", "ssm_a", false}, {path ".D", "ssm_d", false},                                        \
    {                                                                                                        \
        path ".dt_bias", "ssm_dt.bias", false                                                                \
    }

/* The keys of a model that has a state: its widths, a number of key heads for each layer, and the context of 2^20 that
 * the converter gives models whose attention does not rotate. */
void tt_mamba_gguf_keys(const struct tt_model_facts *facts, const struct tt_mamba *mamba, bool rotates,
                        struct tt_gguf_keys *keys);
/* A, D and the norm's weight are matrices; `tensor` begins behind the name of the module: "A_log". */
void tt_mamba_gguf_arrange(const struct tt_model_facts *facts, const struct tt_mamba *mamba,
                           const char *tensor, struct tt_gguf_arrangement *arrangement);
const char *tt_mamba_gguf_cannot(const struct tt_model_facts *facts, const struct tt_mamba *mamba);

#endif
