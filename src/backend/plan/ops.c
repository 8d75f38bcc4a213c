/* Estimates the seconds of every op by the chip's rates: matrix products and attention by their FLOPs or their
 * bytes, the rest by bytes. Bytes are those that must be read and written once. */
#include "backend/compose.h"
#include "backend/plan/plan_ops.h"

static double size(tt_tensor tensor)
{
    return plan_size(tensor);
}

static tt_status moves(struct tt_stream *stream, double bytes)
{
    return plan_moves(stream, bytes);
}

static tt_status plan_gemm(struct tt_stream *stream, const struct tt_gemm_args *args)
{
    double k = (double)args->a.dims[args->trans_a ? 0 : 1];
    double flops = 2.0 * k * (double)args->c.dims[0] * (double)args->c.dims[1];
    double bytes = size(args->a) + size(args->b) + size(args->c) * (args->beta != 0.0f ? 2.0 : 1.0);
    tt_plan_spend(stream, flops, stream->device->chip->gemm_flops, bytes);
    return TT_OK;
}

/* Whether a fused kernel runs: its reads and writes then overlap with the arithmetic. */
static bool fuses(const struct tt_stream *stream, tt_tensor x)
{
    return stream->device->chip->fuses && x.dtype == TT_BF16;
}

static double low_rank_flops(const struct tt_low_rank *low, double rows)
{
    double flops = 0.0;
    for (int i = 0; i < low->count; i++) flops += 2.0 * rows * (double)tt_tensor_count(low->parts[i].b);
    return flops;
}

static tt_status product(struct tt_stream *stream, tt_tensor x, tt_tensor w, const struct tt_low_rank *low,
                         double columns, double bytes)
{
    double rows = (double)x.dims[0],
           flops = 2.0 * rows * (double)x.dims[1] * columns + low_rank_flops(low, rows);
    tt_plan_spend(stream, flops, stream->device->chip->gemm_flops, size(x) + size(w) + bytes);
    return TT_OK;
}

/* The products in FP8 that a fused kernel computes (cuda/gemm/fused.c). Plain ones take the same time in cuBLASLt. */
tt_status tt_plan_gemm_coded(struct tt_stream *stream, const struct tt_gemm_lora_args *args)
{
    const struct tt_chip *chip = stream->device->chip;
    bool plain = args->w.count == 1 && args->low.count == 0 && args->rotation.columns == 0;
    if (plain || chip->fp8_flops <= 0.0 || !fuses(stream, args->y_MN)) return TT_ERR_UNSUPPORTED;
    double rows = (double)args->y_MN.dims[0], codes = 0.0;
    for (int i = 0; i < args->w.count; i++) codes += size(tt_coded_codes(&args->w.parts[i]));
    double flops = 2.0 * rows * codes + low_rank_flops(&args->low, rows) * chip->fp8_flops / chip->gemm_flops;
    tt_plan_spend(stream, flops, chip->fp8_flops,
                  size(args->w.quantized.codes_MK) + codes + size(args->y_MN) + size(args->addend_MN));
    return TT_OK;
}

static tt_status plan_gemm_lora(struct tt_stream *stream, const struct tt_gemm_lora_args *args)
{
    if ((args->low.count == 0 && args->rotation.columns == 0) || !fuses(stream, args->x_MK))
        return tt_compose_gemm_lora(stream, args);
    return product(stream, args->x_MK, args->w.dense, &args->low, (double)args->y_MN.dims[1],
                   size(args->y_MN) + size(args->addend_MN));
}

static tt_status plan_gemm_swiglu(struct tt_stream *stream, const struct tt_gemm_swiglu_args *args)
{
    if (!fuses(stream, args->x_MK)) return tt_compose_gemm_swiglu(stream, args);
    return product(stream, args->x_MK, args->w_2FK.dense, &args->low, (double)args->gate_up_M2F.dims[1],
                   (args->keep ? size(args->gate_up_M2F) : 0.0) + size(args->act_MF));
}

static tt_status plan_gemm_swiglu_backward(struct tt_stream *stream,
                                           const struct tt_gemm_swiglu_backward_args *args)
{
    if (!fuses(stream, args->dy_MK)) return tt_compose_gemm_swiglu_backward(stream, args);
    return product(stream, args->dy_MK, args->w_KF.dense, &args->low, (double)args->dact_MF.dims[1],
                   2.0 * size(args->gate_up_M2F) + (args->wants_act ? size(args->dact_MF) : 0.0));
}

/* Where a kernel drops elements between memory and the product (compose.h), one pass reads x once (or updates dx
 * once) for all adapters of the pass. The generation of the random numbers of each adapter takes about as long
 * as a pass (H200, docs/performance.md). */
static bool drops_at_once(const struct tt_stream *stream, tt_tensor wide,
                          const struct tt_dropout_parts *parts, bool weights)
{
    return !stream->device->is_host && tt_dropout_is_one_pass(wide, parts, weights);
}

static tt_status drops(struct tt_stream *stream, tt_tensor wide, const struct tt_dropout_parts *parts,
                       int64_t r, int passes)
{
    int kernels = parts->count / tt_dropout_together(r, parts->count);
    return moves(stream, size(wide) * (double)(passes * kernels + parts->count));
}

static tt_status plan_gemm_dropout(struct tt_stream *stream, const struct tt_gemm_dropout_args *args)
{
    if (!drops_at_once(stream, args->x_MK, &args->parts, false)) return tt_compose_gemm_dropout(stream, args);
    return drops(stream, args->x_MK, &args->parts, args->parts.part[0].a_RK.dims[0], 1);
}

static tt_status plan_gemm_dropout_weights(struct tt_stream *stream,
                                           const struct tt_gemm_dropout_weights_args *args)
{
    if (!drops_at_once(stream, args->x_MK, &args->parts, true))
        return tt_compose_gemm_dropout_weights(stream, args);
    return drops(stream, args->x_MK, &args->parts, args->parts.part[0].da_RK.dims[0], 1);
}

static tt_status plan_gemm_dropout_input(struct tt_stream *stream,
                                         const struct tt_gemm_dropout_input_args *args)
{
    if (!drops_at_once(stream, args->dx_MK, &args->parts, false))
        return tt_compose_gemm_dropout_input(stream, args);
    return drops(stream, args->dx_MK, &args->parts, args->parts.part[0].a_RK.dims[0], 2);
}

/* One pass over dy where there is a kernel for it. Its partial sums and its two launches take half as long again as the
 * bytes of dy (H200, docs/performance.md). */
static tt_status plan_lora_gradients(struct tt_stream *stream, const struct tt_lora_gradients_args *args)
{
    double bytes = 0.0;
    if (stream->device->is_host || !tt_lora_gradients_in_one_pass(args))
        return tt_compose_lora_gradients(stream, args);
    for (int i = 0; i < args->count; i++)
        bytes += 1.5 * size(tt_tensor_cols(args->dy_MN, args->part[i].first_y, args->part[i].b_NR.dims[0]));
    return moves(stream, bytes);
}

/* Pairs of a query and a key that it sees, in a sequence of `length` tokens. */
static double pairs_of(double length, double window)
{
    return window > 0.0 && window < length ? window * length - window * window / 2.0 : length * length / 2.0;
}

/* FLOPs of the forward pass, scaled to the rate reached by sequences of 4096 tokens and heads of 128. Shorter
 * sequences reach less: rate ~ length / (length + half), which is within a tenth of cuDNN's on an H200 from 256
 * to 16384 tokens. */
static double attention_work(const struct tt_attention_forward_args *args, double half)
{
    double head_dim = (double)args->q_THE.dims[2], heads = (double)args->q_THE.dims[1], work = 0.0;
    const double reference = 4096.0;
    for (int64_t b = 0; b < args->sequence_count; b++) {
        double length = (double)(args->cu_k[b + 1] - args->cu_k[b]), window = (double)args->window;
        double before = length - (double)(args->cu_q[b + 1] - args->cu_q[b]); /* keys without a query */
        if (length <= 0.0) continue;
        double pairs = pairs_of(length, window) - pairs_of(before, window);
        work += 4.0 * head_dim * heads * pairs * (length + half) / length * reference / (reference + half);
    }
    return head_dim < 128.0 ? work * (128.0 / head_dim) / (1.0 + (128.0 / head_dim - 1.0) / 2.0) : work;
}

/* FLOPs a second; heads of more than 256 columns have other kernels. H200, 2026-11-29, 8:2 heads of 512: 461 and 257
 * TFLOP/s of 575 and 450 by those for compute capability 9.0, 0.9 and 0.6 by the plain ones that other chips have. The
 * plain ones use no tensor cores and were timed on no other chip: their rate is the H200's, not a share of a chip's. */
static double attention_rate(const struct tt_stream *stream, int64_t head_dim, bool backward)
{
    const struct tt_chip *chip = stream->device->chip;
    double rate = backward ? chip->attention_backward_flops : chip->attention_forward_flops;
    if (head_dim <= 256 || stream->device->is_host) return rate;
    if (chip->fuses) return rate * (backward ? 0.57 : 0.8);
    return backward ? 0.6e12 : 0.9e12;
}

static tt_status plan_attention_forward(struct tt_stream *stream,
                                        const struct tt_attention_forward_args *args)
{
    double bytes =
        size(args->q_THE) + size(args->k_TKE) + size(args->v_TKE) + size(args->o_THE) + size(args->lse_HT);
    tt_plan_spend(stream, attention_work(args, 450.0), attention_rate(stream, args->q_THE.dims[2], false),
                  bytes);
    return TT_OK;
}

static tt_status plan_attention_backward(struct tt_stream *stream,
                                         const struct tt_attention_backward_args *args)
{
    const struct tt_attention_forward_args *forward = &args->forward;
    double bytes =
        2.0 * (size(forward->q_THE) + size(forward->k_TKE) + size(forward->v_TKE) + size(forward->o_THE)) +
        2.0 * size(args->scratch);
    tt_plan_spend(stream, 2.5 * attention_work(forward, 900.0),
                  attention_rate(stream, forward->q_THE.dims[2], true), bytes);
    return TT_OK;
}

/* Every row reads the keys and values of its own sequence. */
static tt_status plan_attention_decode(struct tt_stream *stream, const struct tt_attention_decode_args *args)
{
    double keys = (double)args->max_count, rows = (double)args->q_THE.dims[0];
    if (args->window > 0 && (double)args->window < keys) keys = (double)args->window;
    double row_bytes =
        (double)(args->k_RKE.dims[1] * args->k_RKE.dims[2]) * (double)tt_dtype_bytes(args->k_RKE.dtype);
    return moves(stream, 2.0 * rows * keys * row_bytes + 2.0 * size(args->q_THE));
}

/* Bytes of rows in FP8 that an operation makes of its result; a host reads the result again. */
static double rounding(const struct tt_stream *stream, tt_tensor result, tt_tensor codes)
{
    if (tt_tensor_is_empty(codes)) return 0.0;
    return size(codes) + (stream->device->is_host ? size(result) : 0.0);
}

static tt_status plan_rmsnorm_forward(struct tt_stream *stream, const struct tt_rmsnorm_forward_args *args)
{
    double codes = rounding(stream, args->y_ND, args->codes_ND);
    return moves(stream,
                 size(args->x_ND) + size(args->residual_ND) + size(args->sum_ND) + size(args->y_ND) + codes);
}

static tt_status plan_rmsnorm_backward(struct tt_stream *stream, const struct tt_rmsnorm_backward_args *args)
{
    double codes = rounding(stream, args->dx_ND, args->codes_ND);
    return moves(stream,
                 size(args->dy_ND) + size(args->x_ND) + size(args->dres_ND) + size(args->dx_ND) + codes);
}

static tt_status plan_dequantize(struct tt_stream *stream, const struct tt_dequantize_args *args)
{
    double share = (double)args->y_NK.dims[0] / (double)args->layout.rows;
    return moves(stream, (double)args->layout.bytes * share + size(args->y_NK));
}

static tt_status plan_quantize_rows(struct tt_stream *stream, const struct tt_quantize_rows_args *args)
{
    return moves(stream, size(args->x_MK) + size(args->codes_MK) + size(args->scale_M));
}

/* Numbers are read for the scales, and again. */
static tt_status plan_quantize_columns(struct tt_stream *stream, const struct tt_quantize_columns_args *args)
{
    return moves(stream, 2.0 * size(args->x_MK) + size(args->codes_KM) + size(args->scale_K));
}

/* A host stores the decoded numbers and reads them again. */
static tt_status plan_recode_rows(struct tt_stream *stream, const struct tt_recode_rows_args *args)
{
    double between = stream->device->is_host ? 2.0 * size(args->scratch_NK) : 0.0;
    return moves(stream, (double)args->layout.bytes + between + size(args->codes_NK) + size(args->scale_N));
}

static tt_status plan_round_groups(struct tt_stream *stream, const struct tt_round_groups_args *args)
{
    return moves(stream, size(args->x_MK) + size(args->y_MK));
}

/* Codes are read for the scales, and again. */
static tt_status plan_transpose_codes(struct tt_stream *stream, const struct tt_transpose_codes_args *args)
{
    return moves(stream, 3.0 * size(args->codes_NK));
}

/* A host decodes and multiplies in bf16. */
static tt_status plan_gemm_scaled(struct tt_stream *stream, const struct tt_gemm_scaled_args *args)
{
    double k = (double)args->a_MK.dims[1], bytes = size(args->a_MK) + size(args->b_NK) + size(args->y_MN);
    const struct tt_chip *chip = stream->device->chip;
    tt_plan_spend(stream, 2.0 * k * (double)args->y_MN.dims[0] * (double)args->y_MN.dims[1],
                  chip->fp8_flops > 0 ? chip->fp8_flops : chip->gemm_flops, bytes + size(args->addend_MN));
    return TT_OK;
}

static tt_status plan_bias_forward(struct tt_stream *stream, const struct tt_bias_forward_args *args)
{
    return moves(stream, 2.0 * size(args->y_TN));
}

static tt_status plan_bias_backward(struct tt_stream *stream, const struct tt_bias_backward_args *args)
{
    return moves(stream, size(args->dy_TN));
}

static tt_status plan_row_norms(struct tt_stream *stream, const struct tt_row_norms_args *args)
{
    return moves(stream, size(args->w_NK));
}

static tt_status plan_scale_columns(struct tt_stream *stream, const struct tt_scale_columns_args *args)
{
    return moves(stream, size(args->x_TN) + size(args->addend_TN) + size(args->y_TN));
}

static tt_status plan_column_dots(struct tt_stream *stream, const struct tt_column_dots_args *args)
{
    return moves(stream, size(args->x_TN) + size(args->g_TN));
}

static tt_status plan_keep_columns(struct tt_stream *stream, const struct tt_keep_columns_args *args)
{
    return moves(stream, size(args->x_TN));
}

static tt_status plan_rope(struct tt_stream *stream, const struct tt_rope_args *args)
{
    double codes = rounding(stream, args->rows_TC, args->codes_TC);
    if (codes > 0.0 && !stream->device->is_host) codes += size(args->rows_TC) - size(args->x_THE); /* read */
    return moves(stream, 2.0 * size(args->x_THE) + codes);
}

static tt_status plan_swiglu_forward(struct tt_stream *stream, const struct tt_swiglu_forward_args *args)
{
    return moves(stream, 2.0 * size(args->h_TF) + size(args->up_TF));
}

static tt_status plan_swiglu_backward(struct tt_stream *stream, const struct tt_swiglu_backward_args *args)
{
    return moves(stream, 3.0 * size(args->dh_TF) + size(args->up_TF) + size(args->dup_TF) + size(args->h_TF));
}

static tt_status plan_swiglu_rows(struct tt_stream *stream, const struct tt_swiglu_rows_args *args)
{
    const struct tt_swiglu_forward_args *pass = &args->pass;
    if (!tt_swiglu_rows_in_one_pass(stream->device, pass->gate_TF.dims[1], pass->gate_TF.dtype))
        return tt_compose_swiglu_rows(stream, args);
    return moves(stream, 2.0 * size(pass->gate_TF) + size(pass->h_TF) + size(args->codes_TF) +
                             size(args->kept.gate_TF.packed) + size(args->kept.up_TF.packed));
}

static tt_status plan_swiglu_rows_backward(struct tt_stream *stream,
                                           const struct tt_swiglu_rows_backward_args *args)
{
    const struct tt_swiglu_backward_args *pass = &args->pass;
    if (!tt_swiglu_rows_in_one_pass(stream->device, pass->dh_TF.dims[1], pass->dh_TF.dtype))
        return tt_compose_swiglu_rows_backward(stream, args);
    return moves(stream, size(pass->dh_TF) + size(pass->gate_TF) + size(pass->up_TF) +
                             size(args->coded.gate_TF.packed) + size(args->coded.up_TF.packed) +
                             size(pass->dgate_TF) + size(pass->dup_TF) + size(pass->h_TF) +
                             size(args->codes_T2F));
}

static tt_status plan_dropout(struct tt_stream *stream, const struct tt_dropout_args *args)
{
    return moves(stream, size(args->x_TD) + size(args->y_TD) * (args->accumulate ? 2.0 : 1.0));
}

static tt_status plan_add_noise(struct tt_stream *stream, const struct tt_add_noise_args *args)
{
    return moves(stream, 2.0 * size(args->x_TD));
}

static tt_status plan_add(struct tt_stream *stream, const struct tt_add_args *args)
{
    return moves(stream, size(args->a) + size(args->b) + size(args->y));
}

static tt_status plan_sum_rows(struct tt_stream *stream, const struct tt_sum_rows_args *args)
{
    return moves(stream, size(args->x_RD) + size(args->y_D));
}

static tt_status plan_scale(struct tt_stream *stream, const struct tt_scale_args *args)
{
    return moves(stream, 2.0 * size(args->x));
}

static tt_status plan_center(struct tt_stream *stream, const struct tt_center_args *args)
{
    return moves(stream, 2.0 * size(args->x_ND));
}

static tt_status plan_transpose(struct tt_stream *stream, const struct tt_transpose_args *args)
{
    return moves(stream, (args->accumulate ? 3.0 : 2.0) * size(args->x_MN));
}

static tt_status plan_soft_cap(struct tt_stream *stream, const struct tt_soft_cap_args *args)
{
    return moves(stream, 2.0 * size(args->x));
}

static tt_status plan_cast(struct tt_stream *stream, const struct tt_cast_args *args)
{
    return moves(stream, size(args->x) + size(args->y));
}

/* The largest first, then the sums. */
static tt_status plan_log_squares(struct tt_stream *stream, const struct tt_log_squares_args *args)
{
    return moves(stream, 2.0 * size(args->logits_NV));
}

static tt_status plan_cross_entropy(struct tt_stream *stream, const struct tt_cross_entropy_args *args)
{
    return moves(stream, size(args->logits_NV) * (args->gradient ? 3.0 : 1.0));
}

/* Four passes: the largest, two to count, one to find the token. */
static tt_status plan_add_logits(struct tt_stream *stream, const struct tt_add_logits_args *args)
{
    return moves(stream, 3.0 * size(args->values_E) + 2.0 * size(args->ids_E));
}

static tt_status plan_sample(struct tt_stream *stream, const struct tt_sample_args *args)
{
    return moves(stream, 4.0 * size(args->logits_NV));
}

static tt_status plan_loss_sums(struct tt_stream *stream, const struct tt_loss_sums_args *args)
{
    return moves(stream, size(args->loss_N) + size(args->correct_N) + size(args->entropy_N));
}

static tt_status plan_adamw(struct tt_stream *stream, const struct tt_adamw_args *args)
{
    return moves(stream, 7.0 * size(args->param));
}

static tt_status plan_lion(struct tt_stream *stream, const struct tt_lion_args *args)
{
    return moves(stream, 5.0 * size(args->param));
}

static double coded_size(const struct tt_coded_moment *moment)
{
    return size(moment->codes) + size(moment->absmax);
}

static tt_status plan_adamw8(struct tt_stream *stream, const struct tt_adamw8_args *args)
{
    return moves(stream, 3.0 * size(args->param) + 2.0 * (coded_size(&args->m) + coded_size(&args->v)));
}

static tt_status plan_lion8(struct tt_stream *stream, const struct tt_lion8_args *args)
{
    return moves(stream, 3.0 * size(args->param) + 2.0 * coded_size(&args->m));
}

static tt_status plan_sum_squares(struct tt_stream *stream, const struct tt_sum_squares_args *args)
{
    return moves(stream, size(args->x));
}

static tt_status plan_random_fill(struct tt_stream *stream, const struct tt_random_fill_args *args)
{
    return moves(stream, size(args->y));
}

static tt_status convolves(struct tt_stream *stream, const struct tt_conv_geometry *geometry, tt_tensor w,
                           double bytes)
{
    double flops = 2.0 * (double)tt_conv_pixels(geometry) * (double)tt_tensor_count(w);
    tt_plan_spend(stream, flops, stream->device->chip->gemm_flops, bytes);
    return TT_OK;
}

static tt_status plan_conv2d_forward(struct tt_stream *stream, const struct tt_conv2d_forward_args *args)
{
    const struct tt_conv2d_request request = {TT_CONV2D_FORWARD, {.forward = *args}};
    TT_TRY(tt_plan_record_convolution(stream, &request));
    return convolves(stream, &args->geometry, args->w_OK,
                     size(args->x_PC) + size(args->w_OK) + size(args->residual_QO) + size(args->y_QO));
}

static tt_status plan_conv2d_backward_input(struct tt_stream *stream,
                                            const struct tt_conv2d_backward_input_args *args)
{
    const struct tt_conv2d_request request = {TT_CONV2D_BACKWARD_INPUT, {.input = *args}};
    TT_TRY(tt_plan_record_convolution(stream, &request));
    return convolves(stream, &args->geometry, args->w_OK,
                     size(args->dz_QO) + size(args->w_OK) +
                         size(args->dx_PC) * (args->accumulate ? 2.0 : 1.0));
}

static tt_status plan_conv2d_backward_weight(struct tt_stream *stream,
                                             const struct tt_conv2d_backward_weight_args *args)
{
    const struct tt_conv2d_request request = {TT_CONV2D_BACKWARD_WEIGHT, {.weight = *args}};
    TT_TRY(tt_plan_record_convolution(stream, &request));
    return convolves(stream, &args->geometry, args->dw_OK,
                     size(args->dz_QO) + size(args->x_PC) + 2.0 * size(args->dw_OK));
}

static tt_status plan_conv2d_backward_output(struct tt_stream *stream,
                                             const struct tt_conv2d_backward_output_args *args)
{
    return moves(stream, 2.0 * size(args->dy_QO) + size(args->y_QO) + size(args->dresidual_QO));
}

static tt_status plan_maxpool2d_forward(struct tt_stream *stream,
                                        const struct tt_maxpool2d_forward_args *args)
{
    return moves(stream, size(args->x_PC) + size(args->y_QC) + size(args->which_QC));
}

static tt_status plan_maxpool2d_backward(struct tt_stream *stream,
                                         const struct tt_maxpool2d_backward_args *args)
{
    return moves(stream, size(args->dx_PC) + size(args->dy_QC) + size(args->which_QC));
}

static tt_status plan_upsample_add(struct tt_stream *stream, const struct tt_upsample_add_args *args)
{
    return moves(stream, size(args->x_PC) + 2.0 * size(args->y_QC));
}

static tt_status plan_upsample_backward(struct tt_stream *stream,
                                        const struct tt_upsample_backward_args *args)
{
    return moves(stream, size(args->dy_QC) + 2.0 * size(args->dx_PC));
}

static tt_status plan_anchor_match(struct tt_stream *stream, const struct tt_anchor_match_args *args)
{
    return moves(stream, 2.0 * size(args->anchors_A4) + size(args->match_NA));
}

static tt_status plan_focal_loss(struct tt_stream *stream, const struct tt_focal_loss_args *args)
{
    return moves(stream, 2.0 * size(args->logits_PK) + size(args->match_NA));
}

static tt_status plan_box_loss(struct tt_stream *stream, const struct tt_box_loss_args *args)
{
    return moves(stream, 2.0 * size(args->deltas_P4) + size(args->match_NA));
}

static tt_status plan_channel_sums(struct tt_stream *stream, const struct tt_channel_sums_args *args)
{
    return moves(stream, size(args->x_PC) + size(args->g_PC));
}

static tt_status plan_channel_affine(struct tt_stream *stream, const struct tt_channel_affine_args *args)
{
    return moves(stream, size(args->x_PC) + size(args->residual_PC) + size(args->y_PC));
}

static tt_status plan_channel_mix(struct tt_stream *stream, const struct tt_channel_mix_args *args)
{
    return moves(stream, size(args->g_PC) + size(args->x_PC) + size(args->dx_PC));
}

static tt_status plan_norm_fold(struct tt_stream *stream, const struct tt_norm_fold_args *args)
{
    return moves(stream, 6.0 * size(args->scale_C));
}

static tt_status plan_batch_statistics(struct tt_stream *stream, const struct tt_batch_statistics_args *args)
{
    return moves(stream, size(args->sums_2C) + 6.0 * size(args->mean_C));
}

static tt_status plan_batch_norm_gradient(struct tt_stream *stream,
                                          const struct tt_batch_norm_gradient_args *args)
{
    return moves(stream, 2.0 * size(args->all_2C) + 10.0 * size(args->mean_C));
}

static tt_status plan_group_norm(struct tt_stream *stream, const struct tt_group_norm_args *args)
{
    return moves(stream, 2.0 * size(args->x_PC) + size(args->y_PC));
}

static tt_status plan_group_norm_backward(struct tt_stream *stream,
                                          const struct tt_group_norm_backward_args *args)
{
    return moves(stream, 2.0 * (size(args->x_PC) + size(args->dy_PC) + size(args->y_PC)) + size(args->dx_PC));
}

static tt_status plan_sgd(struct tt_stream *stream, const struct tt_sgd_args *args)
{
    return moves(stream, 3.0 * size(args->param) + 2.0 * size(args->v));
}

static tt_status plan_muon_direction(struct tt_stream *stream, const struct tt_muon_direction_args *args)
{
    return moves(stream, size(args->grad) + 2.0 * size(args->m) + size(args->y));
}

static tt_status plan_muon_normalize(struct tt_stream *stream, const struct tt_muon_normalize_args *args)
{
    return moves(stream, 3.0 * size(args->x));
}

static tt_status plan_muon_apply(struct tt_stream *stream, const struct tt_muon_apply_args *args)
{
    return moves(stream, 2.0 * size(args->param) + size(args->x));
}

const struct tt_op_table tt_plan_op_table = {
#define OP(name) .name = plan_##name,
#include "backend/ops.def"
#undef OP
};
