/* backend/ops: what the entries of ops refuse before a device sees it, by message. Refusals that belong to a device, or
 * that the file of an op tests beside its results, are there. */
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "backend/ops/attention.h"
#include "backend/ops/center.h"
#include "backend/ops/log_squares.h"
#include "backend/ops/channels.h"
#include "backend/ops/columns.h"
#include "backend/ops/conv.h"
#include "backend/ops/cross_entropy.h"
#include "backend/ops/detection.h"
#include "backend/ops/elementwise.h"
#include "backend/ops/embedding.h"
#include "backend/ops/gemm.h"
#include "backend/ops/gemm_fused.h"
#include "backend/ops/gemm_scaled.h"
#include "backend/ops/group_norm.h"
#include "backend/ops/lora_gradients.h"
#include "backend/ops/muon.h"
#include "backend/ops/noise.h"
#include "backend/ops/optim.h"
#include "backend/ops/quant.h"
#include "backend/ops/rmsnorm.h"
#include "backend/ops/sample.h"
#include "backend/ops/swiglu.h"
#include "ops/harness.h"

static struct test_device device;
static alignas(64) char memory[16][1 << 14];
static struct tt_quant_layout by_rows, in_squares, small;

static int open_device(void **state)
{
    (void)state;
    test_device_open(&device, "cpu", 1);
    struct tt_quant_format format = tt_quant_format_make(TT_QUANT_FP8, false);
    test_ok(tt_quant_layout_make(format, 16, 16, &by_rows));
    test_ok(tt_quant_layout_make(format, 8, 16, &small));
    in_squares = by_rows;
    in_squares.row_squares = 1;
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    test_device_close(&device);
    return 0;
}

/* Views of memory of their own. */
static tt_tensor vector(int place, tt_dtype dtype, int64_t count)
{
    return tt_tensor_1d(memory[place], dtype, count);
}

static tt_tensor matrix(int place, tt_dtype dtype, int64_t rows, int64_t cols)
{
    return tt_tensor_2d(memory[place], dtype, rows, cols);
}

static tt_tensor heads(int place, int64_t tokens, int64_t count, int64_t width)
{
    return tt_tensor_3d(memory[place], TT_F32, tokens, count, width);
}

static struct tt_coded coded(int place, const struct tt_quant_layout *layout)
{
    return (struct tt_coded){layout, vector(place, TT_U8, (int64_t)layout->bytes)};
}

/* The op accepts `good`, but not after the change. */
#define REFUSE(op, good, change, message)                                                                    \
    do {                                                                                                     \
        __typeof__(good) args = good;                                                                        \
        change;                                                                                              \
        test_refused(op(device.stream, &args), TT_ERR_INTERNAL, message);                                    \
    } while (0)

static void attention(void **state)
{
    (void)state;
    static const int32_t whole[] = {0, 4}, falls[] = {0, 3, 2}, beyond[] = {0, 5}, part[] = {0, 3};
    struct tt_attention_forward_args good = {.q_THE = heads(0, 4, 2, 8),
                                             .k_TKE = heads(1, 4, 1, 8),
                                             .v_TKE = heads(2, 4, 1, 8),
                                             .cu_q = whole,
                                             .cu_k = whole,
                                             .sequence_count = 1,
                                             .max_length_q = 4,
                                             .max_length_k = 4,
                                             .scale = 1,
                                             .o_THE = heads(3, 4, 2, 8)};
    test_ok(tt_attention_forward(device.stream, &good));
    REFUSE(tt_attention_forward, good, (args.cu_q = falls, args.sequence_count = 2),
           "attention_forward: cu_q falls from 3 to 2 at sequence 1");
    REFUSE(tt_attention_forward, good, args.max_length_q = 3,
           "cu_q gives sequence 0 4 rows, the longest may have 3");
    REFUSE(tt_attention_forward, good, (args.cu_q = beyond, args.max_length_q = 5),
           "cu_q ends at row 5 of 4");
    REFUSE(tt_attention_forward, good, args.cu_k = part, "sequence 0 has 4 queries but only 3 keys");
    REFUSE(tt_attention_forward, good, args.cu_q = part, "cu_q covers 3 of 4 query rows");
    REFUSE(tt_attention_forward, good,
           (args.q_THE.dims[2] = 513, args.q_THE.strides[1] = 513, args.q_THE.strides[0] = 1026),
           "head dimension 513 is not in 1..512");
    REFUSE(tt_attention_forward, good, args.window = -1, "attention_forward: window -1 is negative");
    REFUSE(tt_attention_forward, good, args.soft_cap = -2, "attention_forward: soft_cap -2 is negative");
}

static void rope(void **state)
{
    (void)state;
    tt_tensor rows = matrix(0, TT_F32, 2, 8);
    struct tt_rope_args good = {.x_THE = tt_tensor_heads(tt_tensor_cols(rows, 0, 4), 2),
                                .positions_T = vector(1, TT_I32, 2),
                                .cos_PE = matrix(2, TT_F32, 1, 1),
                                .sin_PE = matrix(3, TT_F32, 1, 1),
                                .rows_TC = rows,
                                .codes_TC = matrix(4, TT_F8_E4M3, 2, 8),
                                .scale_T = vector(5, TT_F32, 2)};
    test_ok(tt_rope(device.stream, &good));
    REFUSE(tt_rope, good, args.x_THE = heads(0, 2, 1, 3), "rope: head dimension 3 is odd");
    REFUSE(tt_rope, good, args.rows_TC = tt_tensor_2d_strided(memory[0], TT_F32, 2, 8, 9),
           "rope: rows of x lie apart otherwise");
    REFUSE(tt_rope, good, args.x_THE.strides[1] = 4, "rope: heads of x have other columns between");
}

static void images(void **state)
{
    (void)state;
    struct tt_channel_mix_args mix = {.g_PC = matrix(0, TT_F32, 2, 4),
                                      .x_PC = matrix(1, TT_F32, 2, 4),
                                      .a_C = vector(2, TT_F32, 4),
                                      .b_C = vector(3, TT_F32, 4),
                                      .c_C = vector(4, TT_F32, 4),
                                      .dx_PC = matrix(5, TT_F32, 2, 4)};
    test_ok(tt_channel_mix(device.stream, &mix));
    REFUSE(tt_channel_mix, mix, args.b_C = (tt_tensor){0}, "channel_mix: a, b or c is missing");
    struct tt_batch_statistics_args statistics = {.sums_2C = matrix(0, TT_F64, 2, 4),
                                                  .count_1 = vector(1, TT_F64, 1),
                                                  .momentum = 0.1,
                                                  .mean_C = vector(2, TT_F32, 4),
                                                  .variance_C = vector(3, TT_F32, 4),
                                                  .running_mean_C = vector(4, TT_F32, 4),
                                                  .running_variance_C = vector(5, TT_F32, 4)};
    test_ok(tt_batch_statistics(device.stream, &statistics));
    REFUSE(tt_batch_statistics, statistics, args.momentum = 1.5,
           "batch_statistics: momentum 1.5 is not in [0, 1]");
    REFUSE(tt_batch_statistics, statistics, args.running_mean_C.dims[0] = 3,
           "batch_statistics: running mean is F32[3], but must be F32[4]");
    REFUSE(tt_batch_statistics, statistics, args.running_variance_C = (tt_tensor){0},
           "batch_statistics: running variance is not given");
    REFUSE(tt_batch_statistics, statistics, args.sums_2C = tt_tensor_2d_strided(memory[0], TT_F64, 2, 4, 5),
           "batch_statistics: sums is F64[2, 4], but must be contiguous");
    const struct tt_conv_geometry geometry = {.images = 1, .height = 2, .width = 2, .kernel = 1, .stride = 1};
    struct tt_conv2d_forward_args conv = {.geometry = geometry,
                                          .x_PC = matrix(0, TT_F32, 4, 3),
                                          .w_OK = matrix(1, TT_F32, 5, 3),
                                          .y_QO = tt_tensor_2d_strided(memory[2], TT_F32, 4, 5, 8),
                                          .padded = true};
    test_ok(tt_conv2d_forward(device.stream, &conv));
    REFUSE(tt_conv2d_forward, conv, args.y_QO = matrix(2, TT_F32, 4, 5),
           "conv2d_forward: rows of y have no room for 8 channels");
    struct tt_maxpool2d_forward_args pool = {
        .geometry = geometry, .x_PC = matrix(0, TT_F32, 4, 3), .y_QC = matrix(1, TT_F32, 4, 3)};
    test_ok(tt_maxpool2d_forward(device.stream, &pool));
    REFUSE(tt_maxpool2d_forward, pool, args.y_QC = matrix(1, TT_F32, 4, 2),
           "maxpool2d_forward: y has 2 channels, x 3");
    struct tt_maxpool2d_backward_args back = {.geometry = geometry,
                                              .which_QC = matrix(0, TT_I32, 4, 3),
                                              .dy_QC = matrix(1, TT_F32, 4, 3),
                                              .dx_PC = matrix(2, TT_F32, 4, 3)};
    test_ok(tt_maxpool2d_backward(device.stream, &back));
    REFUSE(tt_maxpool2d_backward, back, args.dy_QC = matrix(1, TT_F32, 4, 2),
           "maxpool2d_backward: dy has 2 channels, dx 3");
}

static void detectors(void **state)
{
    (void)state;
    struct tt_group_norm_backward_args norm = {.x_PC = matrix(0, TT_F32, 2, 4),
                                               .weight_C = vector(1, TT_F32, 4),
                                               .images = 1,
                                               .groups = 2,
                                               .mean_NG = matrix(2, TT_F32, 1, 2),
                                               .scale_NG = matrix(3, TT_F32, 1, 2),
                                               .dy_PC = matrix(4, TT_F32, 2, 4),
                                               .dx_PC = matrix(5, TT_F32, 2, 4),
                                               .factors_NC = matrix(6, TT_F32, 3, 4),
                                               .parts_NC = matrix(7, TT_F64, 2, 4)};
    test_ok(tt_group_norm_backward(device.stream, &norm));
    REFUSE(tt_group_norm_backward, norm, args.dweight_C = vector(8, TT_F32, 4),
           "group_norm_backward: dweight without dbias");
    struct tt_anchor_match_args match = {.anchors_A4 = matrix(0, TT_F32, 2, 4),
                                         .boxes_M4 = matrix(1, TT_F32, 0, 4),
                                         .offsets = vector(2, TT_I32, 2),
                                         .low = 0.4f,
                                         .high = 0.5f,
                                         .match_NA = matrix(3, TT_I32, 1, 2),
                                         .foreground_N = vector(4, TT_I32, 1),
                                         .best_M = vector(5, TT_F32, 0)};
    test_ok(tt_anchor_match(device.stream, &match));
    REFUSE(tt_anchor_match, match, args.low = 0.75f, "anchor_match: low is 0.75, high 0.5");
    struct tt_focal_loss_args focal = {.logits_PK = matrix(0, TT_F32, 1, 4),
                                       .row_anchors = 2,
                                       .match_NA = matrix(3, TT_I32, 1, 2),
                                       .labels_M = vector(5, TT_I32, 1),
                                       .foreground_N = vector(4, TT_I32, 1),
                                       .sums = vector(6, TT_F64, 1)};
    test_ok(tt_focal_loss(device.stream, &focal));
    REFUSE(tt_focal_loss, focal, args.logits_PK = matrix(0, TT_F32, 1, 3),
           "focal_loss: 2 anchors with 3 columns in rows of 2 anchors");
}

static void columns_of_tokens(void **state)
{
    (void)state;
    struct tt_put_token_columns_args put = {matrix(0, TT_F32, 2, 2), vector(1, TT_I32, 2),
                                            matrix(2, TT_F32, 2, 4)};
    ((int32_t *)put.tokens_K.data)[0] = 0, ((int32_t *)put.tokens_K.data)[1] = 3;
    test_ok(tt_put_token_columns(device.stream, &put));
    REFUSE(tt_put_token_columns, put, args.y_NV.dims[1] = 1,
           "put_token_columns: 2 columns are named, the matrix has 1");
}

static void squares_of_probabilities(void **state)
{
    (void)state;
    struct tt_log_squares_args squares = {matrix(0, TT_F32, 2, 4), vector(1, TT_F32, 2), 0};
    test_ok(tt_log_squares(device.stream, &squares));
    REFUSE(tt_log_squares, squares, args.y_N = vector(1, TT_F32, 3), "log_squares: y");
    REFUSE(tt_log_squares, squares, args.soft_cap = -1, "soft_cap -1 is negative");
    REFUSE(tt_log_squares, squares, args.y_N = vector(0, TT_F32, 2), "log_squares: ");
}

static void rows_and_elements(void **state)
{
    (void)state;
    struct tt_sum_rows_args sum = {matrix(0, TT_F32, 2, 4), vector(1, TT_F32, 4)};
    test_ok(tt_sum_rows(device.stream, &sum));
    REFUSE(tt_sum_rows, sum, args.x_RD.dims[0] = 0, "sum_rows: x has no rows");
    struct tt_center_args center = {matrix(0, TT_F32, 2, 4), matrix(1, TT_F32, 2, 4)};
    test_ok(tt_center(device.stream, &center));
    REFUSE(tt_center, center, args.y_ND = matrix(1, TT_BF16, 2, 4), "center: y");
    struct tt_soft_cap_args cap = {vector(0, TT_F32, 4), 30};
    test_ok(tt_soft_cap(device.stream, &cap));
    REFUSE(tt_soft_cap, cap, args.cap = 0, "soft_cap: cap 0 is not above 0");
    struct tt_dropout_args dropout = {.x_TD = matrix(0, TT_F32, 2, 4),
                                      .row_keys_T = vector(1, TT_I64, 2),
                                      .p = 0.5,
                                      .y_TD = matrix(0, TT_F32, 2, 4)};
    test_ok(tt_dropout(device.stream, &dropout));
    REFUSE(tt_dropout, dropout, args.p = 1, "dropout: p = 1 is not in [0, 1)");
    REFUSE(tt_dropout, dropout, args.p = -0.5, "dropout: p = -0.5 is not in [0, 1)");
    struct tt_add_noise_args noise = {.x_TD = matrix(0, TT_F32, 2, 4),
                                      .row_keys_T = vector(1, TT_I64, 2),
                                      .cu_seqlens = vector(2, TT_I32, 2),
                                      .alpha = 5};
    *(int32_t *)noise.cu_seqlens.data = 0, ((int32_t *)noise.cu_seqlens.data)[1] = 2;
    test_ok(tt_add_noise(device.stream, &noise));
    REFUSE(tt_add_noise, noise, args.cu_seqlens.dims[0] = 1, "add_noise: cu_seqlens has no sequence");
    REFUSE(tt_add_noise, noise, args.alpha = -1, "add_noise: alpha -1 is negative");
    struct tt_random_fill_args fill = {.y = vector(0, TT_F32, 4)};
    test_ok(tt_random_fill(device.stream, &fill));
    REFUSE(tt_random_fill, fill, args.first = -3, "random_fill: first element -3 is negative");
    REFUSE(tt_random_fill, fill, args.y = tt_tensor_2d(args.y.data, TT_F32, 2, 2),
           "random_fill: 2 columns with a row every 0");
    struct tt_cross_entropy_args entropy = {.logits_NV = matrix(0, TT_F32, 2, 4),
                                            .labels_N = vector(1, TT_I32, 2),
                                            .loss_N = vector(2, TT_F32, 2)};
    test_ok(tt_cross_entropy(device.stream, &entropy));
    REFUSE(tt_cross_entropy, entropy, args.label_smoothing = 1,
           "cross_entropy: label smoothing 1 is not in [0, 1)");
    REFUSE(tt_cross_entropy, entropy, args.logits_NV.dims[1] = 0, "cross_entropy: the vocabulary is empty");
    REFUSE(tt_cross_entropy, entropy, args.soft_cap = -1, "cross_entropy: soft_cap -1 is negative");
    struct tt_gather_rows_args gather = {matrix(0, TT_F32, 2, 4), vector(1, TT_I32, 1),
                                         matrix(2, TT_F32, 1, 4)};
    test_ok(tt_gather_rows(device.stream, &gather));
    REFUSE(tt_gather_rows, gather, args.rows_N.dims[0] = 3, "gather_rows: y is");
    struct tt_scatter_rows_args scatter = {matrix(2, TT_F32, 1, 4), vector(1, TT_I32, 1),
                                           matrix(0, TT_F32, 2, 4), false};
    test_ok(tt_scatter_rows(device.stream, &scatter));
    REFUSE(tt_scatter_rows, scatter, args.rows_N.dims[0] = 3,
           "scatter_rows: 3 rows are named, the matrix has 2");
    struct tt_adamw_args adamw = {.param = vector(0, TT_F32, 4),
                                  .grad = vector(1, TT_F32, 4),
                                  .m = vector(2, TT_F32, 4),
                                  .v = vector(3, TT_F32, 4),
                                  .beta1 = 0.9,
                                  .beta2 = 0.999,
                                  .eps = 1e-8,
                                  .step = 1};
    test_ok(tt_adamw(device.stream, &adamw));
    REFUSE(tt_adamw, adamw, args.step = 0, "adamw: step 0 is counted from 1");
    struct tt_muon_normalize_args normalize = {
        .x = vector(0, TT_F32, 4), .squares = vector(1, TT_F64, 1), .eps = 1e-7};
    test_ok(tt_muon_normalize(device.stream, &normalize));
    REFUSE(tt_muon_normalize, normalize, args.eps = 0, "muon_normalize: eps 0 is not above 0");
    static struct tt_sample_rule rule[2];
    rule[0] = tt_sample_rule_make(&(struct tt_sample_settings){.draws = false});
    struct tt_sample_args sample = {.logits_NV = matrix(0, TT_F32, 1, 4),
                                    .rules_N = tt_tensor_1d(rule, TT_U8, (int64_t)sizeof rule[0]),
                                    .ids_N = vector(1, TT_I32, 1)};
    test_ok(tt_sample(device.stream, &sample));
    REFUSE(tt_sample, sample, args.rules_N.data = (char *)rule + 4, "sample: rules are not 8-byte aligned");
}

static void norms(void **state)
{
    (void)state;
    struct tt_rmsnorm_forward_args good = {.x_ND = matrix(0, TT_F32, 2, 16),
                                           .weight_D = vector(1, TT_F32, 16),
                                           .y_ND = matrix(2, TT_F32, 2, 16),
                                           .codes_ND = matrix(3, TT_F8_E4M3, 2, 16),
                                           .scale_N = vector(4, TT_F32, 2)};
    test_ok(tt_rmsnorm_forward(device.stream, &good));
    REFUSE(tt_rmsnorm_forward, good, args.sum_ND = matrix(5, TT_F32, 2, 16),
           "rmsnorm_forward: sum is given without residual");
    REFUSE(tt_rmsnorm_forward, good, (args.x_ND = heads(0, 2, 1, 16), args.y_ND = heads(2, 2, 1, 16)),
           "rmsnorm_forward: rows in FP8 of x with rank 3");
    REFUSE(tt_rmsnorm_forward, good, args.codes_ND.data = memory[2],
           "rmsnorm_forward: codes F8_E4M3[2, 16] and another tensor F32[2, 16] overlap");
}

static void products(void **state)
{
    (void)state;
    struct tt_gemm_args gemm = {
        .a = matrix(0, TT_F32, 2, 3), .b = matrix(1, TT_F32, 3, 4), .c = matrix(2, TT_F32, 2, 4), .alpha = 1};
    test_ok(tt_gemm(device.stream, &gemm));
    REFUSE(tt_gemm, gemm, args.trans_a = true,
           "gemm: the inner dimensions of a F32[2, 3] transposed and b F32[3, 4] differ");
    REFUSE(tt_gemm, gemm, args.a.strides[0] = 2, "gemm: a is F32[2, 3], but its rows overlap");
    REFUSE(tt_gemm, gemm, (args.a.dims[0] = INT64_MAX / 2, args.a.strides[0] = 4),
           "larger than memory can be");
    struct tt_gemm_lora_args lora = {
        .x_MK = matrix(0, TT_F32, 2, 16),
        .w = tt_matrix_of(matrix(1, TT_F32, 4, 16)),
        .trans_w = true,
        .low = {.h_MR = matrix(2, TT_F32, 2, 3), .parts = {{matrix(3, TT_F32, 4, 3), 0, 0}}, .count = 1},
        .y_MN = matrix(4, TT_F32, 2, 4)};
    test_ok(tt_gemm_lora(device.stream, &lora));
    REFUSE(tt_gemm_lora, lora, args.low.count = 4, "gemm_lora: 4 parts of low rank");
    REFUSE(tt_gemm_lora, lora, args.low.h_MR.dims[0] = 1, "gemm_lora: h has 1 rows, x 2");
    REFUSE(tt_gemm_lora, lora, args.low.parts[0].first_y = 1,
           "gemm_lora: b of part 0 is for columns 1 to 5 of 4");
    struct tt_lora_gradients_args gradients = {.dy_MN = matrix(0, TT_F32, 2, 4),
                                               .h_MR = matrix(1, TT_F32, 2, 3),
                                               .part = {{.b_NR = matrix(2, TT_F32, 4, 3), .scaling = 1}},
                                               .count = 1,
                                               .dh_MR = matrix(3, TT_F32, 2, 3)};
    test_ok(tt_lora_gradients(device.stream, &gradients));
    REFUSE(tt_lora_gradients, gradients, args.dh_MR.dims[0] = 1, "lora_gradients: dh has 1 rows, dy 2");
    struct tt_gemm_scaled_args scaled = {.a_MK = matrix(0, TT_F8_E4M3, 2, 16),
                                         .a_scale_M = vector(1, TT_F32, 2),
                                         .b_NK = matrix(2, TT_F8_E4M3, 16, 16),
                                         .b_scale_N = vector(3, TT_F32, 16),
                                         .y_MN = matrix(4, TT_F32, 2, 16),
                                         .scratch = vector(5, TT_U8, sizeof memory[5])};
    test_ok(tt_gemm_scaled(device.stream, &scaled));
    REFUSE(tt_gemm_scaled, scaled, args.a_MK.dims[1] = 8, "gemm_scaled: a has 8 columns, b 16");
    struct tt_dequantize_args decode = {
        .layout = by_rows, .packed = coded(0, &by_rows).packed, .y_NK = matrix(1, TT_F32, 16, 16)};
    test_ok(tt_dequantize(device.stream, &decode));
    REFUSE(tt_dequantize, decode, args.packed.data = memory[0] + 8,
           "dequantize: packed does not lie at a multiple of 16 bytes");
}

/* A weight of two coded parts of 16 x 16, multiplied as it is. */
static struct tt_matrix coded_weight(void)
{
    return (struct tt_matrix){.parts = {coded(8, &by_rows), coded(9, &by_rows)},
                              .count = 2,
                              .quantized = {.codes_MK = matrix(10, TT_F8_E4M3, 2, 16),
                                            .scale_M = vector(11, TT_F32, 2),
                                            .scratch = vector(12, TT_U8, sizeof memory[12])}};
}

static void coded_products(void **state)
{
    (void)state;
    struct tt_gemm_lora_args good = {.x_MK = matrix(0, TT_F32, 2, 16),
                                     .w = coded_weight(),
                                     .trans_w = true,
                                     .y_MN = matrix(1, TT_F32, 2, 32)};
    test_ok(tt_gemm_lora(device.stream, &good));
    REFUSE(tt_gemm_lora, good, args.w.parts[1] = coded(9, &in_squares),
           "gemm_lora: w is fp8 in squares, only fp8 by rows is multiplied coded");
    REFUSE(tt_gemm_lora, good, args.w.parts[1].packed.dims[0]--, "gemm_lora: a part of w is U8[");
    REFUSE(tt_gemm_lora, good, (args.trans_w = false, args.w.parts[1] = coded(9, &small)),
           "gemm_lora: part 1 of w is [8, 16], the first [16, 16]");
    const struct tt_matrix decoded = {
        .parts = {coded(8, &by_rows)}, .count = 1, .scratch = matrix(9, TT_F32, 8, 16)};
    REFUSE(tt_gemm_lora, good, (args.w = decoded, args.y_MN = matrix(1, TT_F32, 2, 8)),
           "matrix: 16 rows of parts, 8 of scratch");
    struct tt_gemm_swiglu_args forward = {.x_MK = matrix(0, TT_F32, 2, 16),
                                          .w_2FK = coded_weight(),
                                          .gate_up_M2F = matrix(1, TT_F32, 2, 32),
                                          .keep = true,
                                          .act_MF = matrix(2, TT_F32, 2, 16)};
    test_ok(tt_gemm_swiglu(device.stream, &forward));
    REFUSE(tt_gemm_swiglu, forward, args.x_MK = matrix(0, TT_F32, 2, 8),
           "gemm_swiglu: w is [32, 16], x has 8 columns");
    REFUSE(tt_gemm_swiglu, forward,
           (args.w_2FK = tt_matrix_of(matrix(8, TT_F32, 32, 16)),
            args.act_rows =
                (struct tt_quantized_rows){matrix(3, TT_F8_E4M3, 2, 16), vector(4, TT_F32, 2), {0}, false}),
           "gemm_swiglu: rows of act in FP8 for a dense w");
    REFUSE(tt_gemm_swiglu, forward, args.kept.gate_TF = coded(5, &by_rows),
           "gemm_swiglu: gate and up in FP8, and not act");
    struct tt_gemm_swiglu_backward_args backward = {.dy_MK = matrix(0, TT_F32, 2, 4),
                                                    .w_KF = tt_matrix_of(matrix(1, TT_F32, 4, 16)),
                                                    .gate_up_M2F = matrix(2, TT_F32, 2, 32),
                                                    .dact_MF = matrix(3, TT_F32, 2, 16)};
    test_ok(tt_gemm_swiglu_backward(device.stream, &backward));
    REFUSE(tt_gemm_swiglu_backward, backward, args.coded.gate_TF = coded(5, &by_rows),
           "gemm_swiglu_backward: gate and up in FP8, and not their gradients");
}

static void coded_gates(void **state)
{
    (void)state;
    struct tt_swiglu_rows_args good = {.pass = {.gate_TF = matrix(0, TT_F32, 16, 16),
                                                .up_TF = matrix(1, TT_F32, 16, 16),
                                                .h_TF = matrix(2, TT_F32, 16, 16)},
                                       .codes_TF = matrix(3, TT_F8_E4M3, 16, 16),
                                       .scale_T = vector(4, TT_F32, 16),
                                       .kept = {coded(5, &by_rows), coded(6, &by_rows)}};
    test_ok(tt_swiglu_rows(device.stream, &good));
    REFUSE(tt_swiglu_rows, good, args.kept.gate_TF = coded(5, &in_squares),
           "swiglu_rows: codes of gate are not fp8 by rows");
    REFUSE(tt_swiglu_rows, good, args.kept.up_TF = coded(6, &small),
           "swiglu_rows: codes of up are [8, 16], not [16, 16]");
    REFUSE(tt_swiglu_rows, good, args.kept.up_TF.packed.data = memory[6] + 8,
           "swiglu_rows: codes of up are not at a multiple of 16 bytes");
    tt_tensor both = matrix(3, TT_F32, 2, 32);
    struct tt_swiglu_rows_backward_args backward = {.pass = {.dh_TF = matrix(0, TT_F32, 2, 16),
                                                             .gate_TF = matrix(1, TT_F32, 2, 16),
                                                             .up_TF = matrix(2, TT_F32, 2, 16),
                                                             .dgate_TF = tt_tensor_cols(both, 0, 16),
                                                             .dup_TF = tt_tensor_cols(both, 16, 16)},
                                                    .codes_T2F = matrix(4, TT_F8_E4M3, 2, 32),
                                                    .scale_T = vector(5, TT_F32, 2)};
    test_ok(tt_swiglu_rows_backward(device.stream, &backward));
    REFUSE(
        tt_swiglu_rows_backward, backward,
        (args.pass.dgate_TF = tt_tensor_cols(both, 16, 16), args.pass.dup_TF = tt_tensor_cols(both, 0, 16)),
        "swiglu_rows_backward: dgate and dup are not halves of one matrix");
}

static void devices(void **state)
{
    (void)state;
    struct tt_device *opened = NULL;
    const struct tt_device_config config = {.kind = "cpu", .threads = -1};
    test_refused(tt_device_open(&config, &opened), TT_ERR_USAGE, "a device cannot have -1 threads");
    assert_null(opened);
}

/* Limits of the CPU device, whose scratch has so much room, and a kernel that settings ask for. */
static void limits_of_cpus(void **state)
{
    (void)state;
    enum { CHANNELS = 65537, WIDTH = 262145 };
    float *x = calloc(3 * WIDTH, sizeof *x);
    assert_non_null(x);
    struct tt_channel_sums_args sums = {.x_PC = tt_tensor_2d(x, TT_F32, 1, CHANNELS),
                                        .sums_2C = tt_tensor_2d(x + WIDTH + 1, TT_F64, 2, CHANNELS)};
    test_refused(tt_channel_sums(device.stream, &sums), TT_ERR_UNSUPPORTED,
                 "channel_sums: 65537 channels, the cpu's limit is 65536");
    sums.x_PC.dims[1] = sums.sums_2C.dims[1] = 0;
    test_ok(tt_channel_sums(device.stream, &sums));
    tt_tensor row = tt_tensor_2d(x, TT_F32, 1, WIDTH);
    struct tt_rmsnorm_backward_args norm = {.dy_ND = row,
                                            .x_ND = tt_tensor_2d(x + WIDTH, TT_F32, 1, WIDTH),
                                            .weight_D = tt_tensor_1d(x + WIDTH, TT_F32, WIDTH),
                                            .rstd_N = vector(0, TT_F32, 1),
                                            .dx_ND = row,
                                            .dweight_D = tt_tensor_1d(x + 2 * WIDTH, TT_F32, WIDTH)};
    test_refused(tt_rmsnorm_backward(device.stream, &norm), TT_ERR_UNSUPPORTED,
                 "rmsnorm_backward: rows of 262145, the cpu's limit is 262144");
    free(x);
    struct tt_device *forced = NULL;
    struct tt_stream *stream = NULL;
    const struct tt_device_config config = {
        .kind = "cpu", .threads = 1, .tuning = {.cpu_gemm = TT_TUNING_GEMM_DOT}};
    test_ok(tt_device_open(&config, &forced));
    test_ok(tt_stream_create(forced, &stream));
    struct tt_gemm_args gemm = {.a = matrix(0, TT_F32, 60, 60),
                                .b = matrix(1, TT_F32, 60, 60),
                                .c = matrix(2, TT_F32, 60, 60),
                                .alpha = 1};
    test_refused(tt_gemm(stream, &gemm), TT_ERR_UNSUPPORTED,
                 "gemm: the forced variant dot declines 60x60x60: neither few rows nor few columns");
    tt_stream_destroy(stream);
    tt_device_close(forced);
}

/* Columns of adapters side by side. */
static void groups(void **state)
{
    (void)state;
    struct tt_keep_columns_args good = {
        .x_TN = matrix(0, TT_F32, 4, 12), .group_R = vector(1, TT_I32, 4), .share = 1, .count = 3, .each = 4};
    test_ok(tt_keep_columns(device.stream, &good));
    REFUSE(tt_keep_columns, good, args.first = -1, "keep_columns: groups of 4 columns, 3 of them from -1 on");
    REFUSE(tt_keep_columns, good, args.each = 5, "keep_columns: 12 columns of 3 groups of 5");
    REFUSE(tt_keep_columns, good, args.group_R.dims[0] = 3, "keep_columns: groups of 3 rows, and x has 4");
    REFUSE(tt_keep_columns, good, args.share = 2, "keep_columns: groups of 4 rows, and x has 4");
    REFUSE(tt_keep_columns, good, (args.row_T = vector(2, TT_I32, 4), args.share = 0),
           "keep_columns: share 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention),
        cmocka_unit_test(rope),
        cmocka_unit_test(images),
        cmocka_unit_test(detectors),
        cmocka_unit_test(norms),
        cmocka_unit_test(products),
        cmocka_unit_test(columns_of_tokens),
        cmocka_unit_test(squares_of_probabilities),
        cmocka_unit_test(rows_and_elements),
        cmocka_unit_test(coded_products),
        cmocka_unit_test(coded_gates),
        cmocka_unit_test(devices),
        cmocka_unit_test(limits_of_cpus),
        cmocka_unit_test(groups),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
