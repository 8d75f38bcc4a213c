/* Embeddings for each layer (Gemma 4's E sizes): beside the stream a second table gives each token P values for each of
 * L layers, to which a projection of the embedded row is added:
 *     p[t, i] = (norm(scale projection(x[t]))[i] + table[id[t]][i] table_scale) / sqrt(2)
 * They are a side value (nn/side.h), made by the embedding block, read by a half of each layer:
 *     x_next = x + post_norm(projection(act(gate(x)) * p[i]))
 *
 * Kept for backward: by the block the embedded rows, D elements of the compute type, where the projection trains; by
 * the half P for the gate, D for the norm's input, 1 f of rstd and the LoRA h. */
#ifndef TT_NN_LAYER_INPUTS_H
#define TT_NN_LAYER_INPUTS_H

#include "nn/half.h"
#include "nn/side.h"

struct tt_layer_inputs {
    tt_param *table;                   /* [V', L P] */
    struct tt_linear_group projection; /* D -> L P */
    struct tt_norm norm;               /* of P values */
    const struct tt_side *offers;
    int64_t layers;
    float scale, table_scale;
};

/* x_TD: the output of the embedding; `parted`: the table comes in parts (nn/table.h); *kept_TD: a copy of x that
 * backward needs; NULL: there is no backward. */
TT_MUST_USE tt_status tt_layer_inputs_forward(const struct tt_layer_inputs *inputs,
                                              const struct tt_pass *pass, tt_tensor x_TD, bool parted,
                                              tt_tensor *kept_TD);
/* Adds to the gradients of trainable parameters, and to dx_TD unless it is empty. */
TT_MUST_USE tt_status tt_layer_inputs_backward(const struct tt_layer_inputs *inputs,
                                               const struct tt_pass *pass, tt_tensor kept_TD,
                                               tt_tensor dx_TD);

/* The half. */
struct tt_layer_input {
    struct tt_linear_group gate, projection;
    struct tt_norm post_norm;
    enum tt_activation activation;
    const struct tt_side *reads;
    int64_t first, columns; /* of the side value */
};

#endif
