/* Properties of chips, for plans (sizes, rates) and messages. Rates are those that programs reach; chips.c says where
 * each figure comes from. All results are constants of the program. */
#ifndef TT_BACKEND_CHIPS_H
#define TT_BACKEND_CHIPS_H

#include <stdbool.h>
#include <stddef.h>

struct tt_chip {
    const char *name;         /* "h200" */
    const char *kind;         /* device kind: "cpu" or "cuda" */
    size_t memory_bytes;      /* cudaMemGetInfo's total */
    size_t context_bytes;     /* TT_PURPOSE_CONTEXT of one rank */
    size_t collectives_bytes; /* added to it by NCCL where ranks are processes */
    double gemm_flops;        /* bf16, sustained */
    double attention_forward_flops, attention_backward_flops; /* causal, head dim 128, long sequences */
    double memory_bytes_per_second;                           /* read plus written */
    double link_bytes_per_second;                             /* received from one other GPU of the machine */
    double links_bytes_per_second; /* received from several at once, beside compute */
    /* received from other machines: one network adapter a GPU, as in usual servers */
    double network_bytes_per_second;
    double host_bytes_per_second; /* one way, page-locked */
    bool fuses;                   /* products with LoRA and SwiGLU in one kernel (cuda/gemm/fused.h) */
    double peak_flops;            /* the datasheet's dense bf16, of which MFU is the share; 0: unknown */
    double fp8_flops; /* E4M3 with a scale a row (ops/gemm_scaled.h), sustained; 0: a GPU has none */
};
/* "h200", "h100", "a100-80gb", "rtx4090", ...; NULL: unknown */
const struct tt_chip *tt_chip_find(const char *name);
/* for an unknown chip (NULL): a cautious estimate */
size_t tt_chip_context_bytes(const struct tt_chip *chip);
const char *tt_chip_names(void); /* "h200, h100, ..." for messages */
/* "NVIDIA H200" -> h200; NULL: unknown */
const struct tt_chip *tt_chip_of_device_name(const char *device_name);

#endif
