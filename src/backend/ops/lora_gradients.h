/* The gradients on the output side of LoRA: both products that read dy, so that a device may read it once for all
 * adapters of a group (cuda/gemm/lora_gradients.cu). Other devices run one product after the other
 * (backend/compose.h), with results equal up to rounding.
 *
 * Letters: M tokens, N outputs, R ranks of all adapters side by side, r of one. */
#ifndef TT_BACKEND_OPS_LORA_GRADIENTS_H
#define TT_BACKEND_OPS_LORA_GRADIENTS_H

#include "backend/device.h"
#include "backend/ops/gemm_fused.h"
#include "tensor/tensor.h"

/* One adapter, with columns first_y .. first_y + n of dy and first_h .. first_h + r of h and dh. */
struct tt_lora_gradients_part {
    tt_tensor b_NR;  /* [n, r], of dy's type */
    tt_tensor db_NR; /* [n, r], f32 or bf16; empty where B is not trained */
    int64_t first_y, first_h;
    float scaling;
};

/* dh[:, part] = scaling dy[:, part] b
 * db += dy[:, part]^T h[:, part] */
struct tt_lora_gradients_args {
    tt_tensor dy_MN; /* f32 or bf16; h and dh are of the same type; rows may be strided */
    tt_tensor h_MR;  /* not read where no part has db */
    struct tt_lora_gradients_part part[TT_LOW_RANK_PARTS];
    int count;
    tt_tensor dh_MR;
};
TT_MUST_USE tt_status tt_lora_gradients(struct tt_stream *stream, const struct tt_lora_gradients_args *args);

#endif
