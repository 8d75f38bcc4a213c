/* The choice of products for the fused kernel. */
#include "backend/cuda/gemm/fused.h"

#include "backend/compose.h"
#include "backend/cuda/gemm/algorithms.h"
#include "backend/cuda/gemm/few.h"
#include "backend/cuda/gemm/maps.h"
#include "backend/cuda/device_parts.h"

/* A tile's element-wise work takes, for a smaller K, longer than the next tile's arithmetic, which should hide it. */
static const int64_t least_depth = 1024;
/* The least useful share of the processors' time over all turns. A last turn with few tiles leaves most
 * processors idle, and tiles that reach beyond the matrix multiply rows and columns that do not exist (one token
 * beside 28672 columns). */
static const double least_share = 0.8;
static const int band_rows = 8; /* 4 and 16 are 0.5 to 1 % slower */

void tt_cuda_fused_open(struct tt_cuda_gemm *gemm, const struct tt_device *device)
{
    const struct tt_cuda_device *cuda = (const struct tt_cuda_device *)device->impl;
    enum tt_tuning_fused wish = device->tuning.gemm_fused;
    gemm->must_fuse = wish == TT_TUNING_FUSED_REQUIRE;
    if (cuda->architecture != 90 || wish == TT_TUNING_FUSED_OFF) return;
    if (!tt_cuda_fused_is_built()) return;
    gemm->encode = tt_cuda_map_encoder();
    gemm->has_scaled = gemm->encode != NULL && tt_cuda_fused_scaled_is_built();
}

static bool low_rank_fits(const struct tt_low_rank *low)
{
    if (low->count > 0 && !tt_cuda_map_fits(low->h_MR)) return false;
    for (int i = 0; i < low->count; i++)
        if (!tt_cuda_map_fits(low->parts[i].b) || low->parts[i].b.dims[1] % 8 != 0) return false;
    return true;
}

/* Whether the kernel supports c = a op(b) + low rank with n columns of c, regardless of what else is done with c. */
static bool takes(const struct tt_cuda_device *cuda, tt_tensor a, tt_tensor b, int64_t n,
                  const struct tt_low_rank *low)
{
    return cuda->gemm->encode != NULL && a.dims[1] >= least_depth && n % 8 == 0 && tt_cuda_map_fits(a) &&
           tt_cuda_map_fits(b) && low_rank_fits(low);
}

/* The number of CTAs for m x n in tiles of `columns`; 0 when less than `least` of the processors' time is useful. */
static int ctas_filling(const struct tt_cuda_device *cuda, int64_t m, int64_t n, int64_t columns,
                        double least)
{
    int64_t high = TT_FUSED_CLUSTER * TT_FUSED_ROWS, at_once = cuda->processors / TT_FUSED_CLUSTER;
    int64_t tiles = (m + high - 1) / high * ((n + columns - 1) / columns);
    int64_t turns = (tiles + at_once - 1) / at_once;
    double filled = (double)m / (double)high * ((double)n / (double)columns); /* in tiles */
    if (filled < least * (double)(turns * at_once)) return 0;
    return (int)(tiles < at_once ? tiles : at_once) * TT_FUSED_CLUSTER;
}

static int ctas_for(const struct tt_cuda_device *cuda, int64_t m, int64_t n, int64_t columns)
{
    return ctas_filling(cuda, m, n, columns, least_share);
}

static tt_status map_low_rank(const struct tt_cuda_gemm *gemm, const struct tt_low_rank *low, bool trans_b,
                              struct tt_fused_params *params)
{
    int b_rows = trans_b ? TT_FUSED_COLUMNS / 2 : TT_FUSED_DEPTH;
    if (low->count == 0) return TT_OK;
    TT_TRY(tt_cuda_map_matrix(gemm, low->h_MR, TT_FUSED_ROWS, &params->a2));
    for (int i = 0; i < low->count; i++)
        TT_TRY(tt_cuda_map_matrix(gemm, low->parts[i].b, b_rows, &params->b2[i]));
    return TT_OK;
}

static tt_status map_operands(const struct tt_cuda_gemm *gemm, tt_tensor a, tt_tensor b, bool trans_b,
                              const struct tt_low_rank *low, struct tt_fused_params *params)
{
    TT_TRY(tt_cuda_map_matrix(gemm, a, TT_FUSED_ROWS, &params->a));
    TT_TRY(tt_cuda_map_matrix(gemm, b, trans_b ? TT_FUSED_COLUMNS / 2 : TT_FUSED_DEPTH, &params->b[0]));
    return map_low_rank(gemm, low, trans_b, params);
}

static void set_part(struct tt_fused_params *params, int i, const struct tt_low_rank *low, int from,
                     bool trans)
{
    tt_tensor b = low->parts[from].b;
    params->part[i].first = (int)low->parts[from].first_y;
    params->part[i].end = (int)(low->parts[from].first_y + b.dims[trans ? 0 : 1]);
    params->part[i].h = (int)low->parts[from].first_h;
    params->part[i].r = (int)b.dims[trans ? 1 : 0];
}

/* Sets the low-rank parts: adjacent, with borders on borders of tiles. */
static bool set_parts(struct tt_fused_params *params, const struct tt_low_rank *low, bool trans, int64_t n)
{
    params->parts = low->count;
    for (int i = 0; i < low->count; i++) {
        set_part(params, i, low, i, trans);
        if (params->part[i].first % TT_FUSED_COLUMNS != 0) return false;
        if (params->part[i].end % TT_FUSED_COLUMNS != 0 && params->part[i].end != n) return false;
        if (i > 0 && params->part[i].first < params->part[i - 1].end) return false;
    }
    return true;
}

/* Sets the parts of gate and up; h of the second follows that of the first. */
static bool set_gate_and_up(struct tt_fused_params *params, const struct tt_low_rank *low, int64_t f)
{
    int next = 0;
    if (low->count == 0) return true;
    params->parts = 2;
    for (int i = 0; i < 2; i++) {
        bool given = next < low->count && low->parts[next].first_y == i * f;
        if (given && low->parts[next].b.dims[0] != f) return false;
        if (given) set_part(params, i, low, next, true);
        next += given;
    }
    if (next != low->count) return false;
    if (params->part[0].r == 0) params->part[0].h = params->part[1].h;
    return params->part[1].r == 0 || params->part[1].h == params->part[0].h + params->part[0].r;
}

/* Sets the rotation: tiles hold whole heads, and all heads of a tile are rotated or none. Neighbours rotate in a pass
 * of their own. */
static bool set_rotation(struct tt_fused_params *params, const struct tt_rotation *rotation, int64_t n)
{
    int64_t half = rotation->head_dim / 2, columns = rotation->columns;
    if (rotation->pairs || (half != 32 && half != 64 && half != 128)) return false;
    if (columns % TT_FUSED_COLUMNS != 0 && columns != n) return false;
    if ((uintptr_t)rotation->cos_PE.data % 16 != 0 || (uintptr_t)rotation->sin_PE.data % 16 != 0)
        return false;
    if (!tt_tensor_is_contiguous(rotation->cos_PE) || !tt_tensor_is_contiguous(rotation->sin_PE))
        return false;
    params->rotated = (int)columns;
    params->half = (int)half;
    params->positions = rotation->positions_T.data;
    params->cos = rotation->cos_PE.data;
    params->sin = rotation->sin_PE.data;
    return true;
}

/* Called before a product is composed of several kernels. The results do not differ, so tests set
 * TRIMTAB_GEMM_FUSED=require to fail here. */
static tt_status may_compose(const struct tt_cuda_device *cuda, const char *op, tt_tensor a, tt_tensor b)
{
    char a_text[96], b_text[96];
    if (!cuda->gemm->must_fuse) return TT_OK;
    return tt_fail(TT_ERR_DEVICE, "%s of %s and %s is not for the fused kernel, and gemm_fused is require",
                   op, tt_tensor_format(a, a_text, sizeof a_text),
                   tt_tensor_format(b, b_text, sizeof b_text));
}

static struct tt_fused_params params_of(tt_tensor a, int64_t n)
{
    return (struct tt_fused_params){.m = (int)a.dims[0], .n = (int)n, .k = (int)a.dims[1], .band = band_rows};
}

static bool fuses_few(const struct tt_stream *stream)
{
    return stream->device->tuning.gemm_fused != TT_TUNING_FUSED_OFF;
}

tt_status tt_cuda_gemm_lora(struct tt_stream *stream, const struct tt_gemm_lora_args *args)
{
    const struct tt_cuda_device *cuda = tt_cuda_device_of(stream);
    const struct tt_low_rank *low = &args->low;
    int64_t n = args->y_MN.dims[1];
    bool adds = !tt_tensor_is_empty(args->addend_MN), trans = args->trans_w,
         rotates = args->rotation.columns > 0;
    /* cuBLASLt also adds an addend, and is faster when nothing is fused. */
    if (low->count == 0 && !rotates) return tt_compose_gemm_lora(stream, args);
    tt_status few = fuses_few(stream) ? tt_cuda_gemm_few_lora(stream, args) : TT_ERR_UNSUPPORTED;
    if (few != TT_ERR_UNSUPPORTED) return few;
    struct tt_fused_params params = params_of(args->x_MK, n);
    int ctas = 0;
    if (takes(cuda, args->x_MK, args->w.dense, n, low) && tt_cuda_map_fits(args->y_MN) &&
        (!adds || tt_cuda_map_fits(args->addend_MN)) && set_parts(&params, low, trans, n) &&
        (!rotates || (trans && !adds && set_rotation(&params, &args->rotation, n))))
        ctas = ctas_for(cuda, args->x_MK.dims[0], n, TT_FUSED_COLUMNS);
    if (ctas == 0) {
        TT_TRY(may_compose(cuda, "gemm_lora", args->x_MK, args->w.dense));
        return tt_compose_gemm_lora(stream, args);
    }
    TT_TRY(map_operands(cuda->gemm, args->x_MK, args->w.dense, trans, low, &params));
    params.addend = adds ? args->addend_MN.data : NULL;
    params.c = args->y_MN.data;
    params.c_row = tt_cuda_map_row(args->y_MN);
    enum tt_fused_kind kind = rotates ? TT_FUSED_ROTATED : trans ? TT_FUSED_LORA : TT_FUSED_LORA_NN;
    return tt_cuda_check(tt_cuda_fused_launch(kind, &params, ctas, tt_cuda_handle(stream)), stream,
                         "gemm_lora");
}

tt_status tt_cuda_gemm_swiglu(struct tt_stream *stream, const struct tt_gemm_swiglu_args *args)
{
    const struct tt_cuda_device *cuda = tt_cuda_device_of(stream);
    int64_t f = args->act_MF.dims[1];
    struct tt_fused_params params = params_of(args->x_MK, f);
    int ctas = 0;
    tt_status few = fuses_few(stream) ? tt_cuda_gemm_few_swiglu(stream, args) : TT_ERR_UNSUPPORTED;
    if (few != TT_ERR_UNSUPPORTED) return few;
    if (args->activation == TT_ACTIVATION_SILU && takes(cuda, args->x_MK, args->w_2FK.dense, f, &args->low) &&
        tt_cuda_map_fits(args->gate_up_M2F) && tt_cuda_map_fits(args->act_MF) &&
        set_gate_and_up(&params, &args->low, f))
        ctas = ctas_for(cuda, args->x_MK.dims[0], f, TT_FUSED_COLUMNS / 2);
    if (ctas == 0) {
        TT_TRY(may_compose(cuda, "gemm_swiglu", args->x_MK, args->w_2FK.dense));
        return tt_compose_gemm_swiglu(stream, args);
    }
    struct tt_low_rank low = args->low;
    if (low.count == 1) { /* the missing half reads beyond the edge of the same map, which gives zeros */
        low.parts[1] = low.parts[0];
        low.count = 2;
    }
    TT_TRY(map_operands(cuda->gemm, args->x_MK, args->w_2FK.dense, true, &low, &params));
    params.c = args->keep ? args->gate_up_M2F.data : NULL;
    params.c_row = tt_cuda_map_row(args->gate_up_M2F);
    params.act = args->act_MF.data;
    params.act_row = tt_cuda_map_row(args->act_MF);
    return tt_cuda_check(tt_cuda_fused_launch(TT_FUSED_SWIGLU, &params, ctas, tt_cuda_handle(stream)), stream,
                         "gemm_swiglu");
}

tt_status tt_cuda_gemm_swiglu_backward(struct tt_stream *stream,
                                       const struct tt_gemm_swiglu_backward_args *args)
{
    const struct tt_cuda_device *cuda = tt_cuda_device_of(stream);
    int64_t f = args->dact_MF.dims[1];
    struct tt_fused_params params = params_of(args->dy_MK, f);
    int ctas = 0;
    if (args->activation == TT_ACTIVATION_SILU && takes(cuda, args->dy_MK, args->w_KF.dense, f, &args->low) &&
        tt_cuda_map_fits(args->gate_up_M2F) && tt_cuda_map_fits(args->dact_MF) &&
        set_parts(&params, &args->low, false, f))
        ctas = ctas_for(cuda, args->dy_MK.dims[0], f, TT_FUSED_COLUMNS);
    if (ctas == 0) {
        TT_TRY(may_compose(cuda, "gemm_swiglu_backward", args->dy_MK, args->w_KF.dense));
        return tt_compose_gemm_swiglu_backward(stream, args);
    }
    TT_TRY(map_operands(cuda->gemm, args->dy_MK, args->w_KF.dense, false, &args->low, &params));
    params.c = args->gate_up_M2F.data;
    params.c_row = tt_cuda_map_row(args->gate_up_M2F);
    params.act = args->wants_act ? args->dact_MF.data : NULL;
    params.act_row = tt_cuda_map_row(args->dact_MF);
    return tt_cuda_check(
        tt_cuda_fused_launch(TT_FUSED_SWIGLU_BACKWARD, &params, ctas, tt_cuda_handle(stream)), stream,
        "gemm_swiglu_backward");
}

/* ---- Products in E4M3 ---- */

/* y = a b^T + low rank (+ addend), then rotated; b in parts along n, or along k. */
struct scaled_product {
    tt_tensor a, a_scale;
    struct {
        tt_tensor codes, scale;
    } b[TT_MATRIX_PARTS];
    int count;
    bool along_n;
    const struct tt_low_rank *low;
    const struct tt_rotation *rotation;
    tt_tensor addend, y;
};

static bool codes_fit(tt_tensor codes, tt_tensor scale)
{
    return codes.dtype == TT_F8_E4M3 && (uintptr_t)codes.data % 16 == 0 && (uintptr_t)scale.data % 8 == 0 &&
           codes.dims[1] % 16 == 0 && (codes.dims[0] <= 1 || codes.strides[0] % 16 == 0) &&
           codes.dims[0] <= INT32_MAX && codes.dims[1] <= INT32_MAX;
}

static bool is_plain(const struct scaled_product *product)
{
    return product->count == 1 && product->low->count == 0 && product->rotation->columns == 0;
}

/* The least useful share of the processors' time with which the kernel computes a product that it supports.
 *
 * Deep products: any share, because cuBLASLt does not keep its sums apart, and its error grows with k. With fewer rows
 * than a cluster has, as in decoding, most processors would idle, and cuBLASLt computes them.
 *
 * Plain products, on an H100 at its 700 W: cuBLASLt reaches 1218 to 1275 TFLOP/s, whatever the shape. The kernel
 * reaches 1286 where all turns are full (16384 x 28672 x 4096), and 1210 to 1220 where 3 % of the tiles' places stay
 * empty (16384 x 6144 x 4096, 8192 x 14336 x 4096). With a narrow product, a rotation or several parts it saves passes
 * over the result and launches. */
static double least_share_of(const struct tt_cuda_device *cuda, const struct scaled_product *product)
{
    static const double plain_share = 0.98;
    const int64_t rows = TT_FUSED_CLUSTER * TT_FUSED_ROWS, chain = TT_FUSED_CHAIN * 2 * TT_FUSED_DEPTH;
    if (product->a.dims[1] > chain && product->a.dims[0] >= rows) return 0;
    return is_plain(product) && !cuda->gemm->must_fuse ? plain_share : least_share;
}

/* Sets the scales and the parts of b; half of a tile's columns lie in one part. */
static bool set_scaled(struct tt_fused_params *params, const struct scaled_product *product)
{
    struct tt_fused_scaled *scaled = &params->scaled;
    if (!codes_fit(product->a, product->a_scale)) return false;
    scaled->a_scale = product->a_scale.data;
    scaled->parts = product->count;
    scaled->chain = TT_FUSED_CHAIN;
    for (int i = 0, first = 0; i < product->count; i++) {
        tt_tensor codes = product->b[i].codes;
        if (!codes_fit(codes, product->b[i].scale)) return false;
        if (product->along_n && first % (TT_FUSED_COLUMNS / 2) != 0) return false;
        scaled->part[i].scale = product->b[i].scale.data;
        scaled->part[i].first = first;
        scaled->part[i].size = (int)codes.dims[product->along_n ? 0 : 1];
        first += scaled->part[i].size;
    }
    return true;
}

static tt_status map_scaled(const struct tt_cuda_gemm *gemm, const struct scaled_product *product,
                            struct tt_fused_params *params)
{
    TT_TRY(tt_cuda_map_matrix(gemm, product->a, TT_FUSED_ROWS, &params->a));
    for (int i = 0; i < product->count; i++)
        TT_TRY(tt_cuda_map_matrix(gemm, product->b[i].codes, TT_FUSED_COLUMNS / 2, &params->b[i]));
    if (params->scaled.copies_out) TT_TRY(tt_cuda_map_matrix(gemm, product->y, TT_FUSED_ROWS, &params->y));
    return map_low_rank(gemm, product->low, product->along_n, params);
}

static tt_status multiply_scaled(struct tt_stream *stream, const char *op,
                                 const struct scaled_product *product)
{
    const struct tt_cuda_device *cuda = tt_cuda_device_of(stream);
    const struct tt_low_rank *low = product->low;
    const struct tt_rotation *rotation = product->rotation;
    int64_t m = product->a.dims[0], n = product->y.dims[1];
    bool adds = !tt_tensor_is_empty(product->addend), rotates = rotation->columns > 0,
         along_n = product->along_n;
    struct tt_fused_params params = params_of(product->a, n);
    int ctas = 0;
    if (cuda->gemm->has_scaled && product->a.dims[1] >= least_depth && tt_cuda_map_fits(product->y) &&
        (!adds || tt_cuda_map_fits(product->addend)) && low_rank_fits(low) &&
        set_parts(&params, low, along_n, n) &&
        (!rotates || (along_n && !adds && set_rotation(&params, rotation, n))) &&
        set_scaled(&params, product))
        ctas = ctas_filling(cuda, m, n, TT_FUSED_COLUMNS, least_share_of(cuda, product));
    if (ctas == 0) {
        if (!is_plain(product)) TT_TRY(may_compose(cuda, op, product->a, product->b[0].codes));
        return TT_ERR_UNSUPPORTED;
    }
    params.scaled.copies_out = !adds && !rotates;
    TT_TRY(map_scaled(cuda->gemm, product, &params));
    params.addend = adds ? product->addend.data : NULL;
    params.c = product->y.data;
    params.c_row = tt_cuda_map_row(product->y);
    enum tt_fused_kind kind = rotates ? TT_FUSED_ROTATED : along_n ? TT_FUSED_LORA : TT_FUSED_LORA_NN;
    return tt_cuda_check(tt_cuda_fused_scaled_launch(kind, &params, ctas, tt_cuda_handle(stream)), stream,
                         op);
}

tt_status tt_cuda_gemm_coded(struct tt_stream *stream, const struct tt_gemm_lora_args *args)
{
    struct scaled_product product = {.a = args->w.quantized.codes_MK,
                                     .a_scale = args->w.quantized.scale_M,
                                     .count = args->w.count,
                                     .along_n = args->trans_w,
                                     .low = &args->low,
                                     .rotation = &args->rotation,
                                     .addend = args->addend_MN,
                                     .y = args->y_MN};
    for (int i = 0; i < args->w.count; i++) {
        product.b[i].codes = tt_coded_codes(&args->w.parts[i]);
        product.b[i].scale = tt_coded_scales(&args->w.parts[i]);
    }
    return multiply_scaled(stream, "gemm_lora in fp8", &product);
}

tt_status tt_cuda_gemm_scaled_fused(struct tt_stream *stream, const struct tt_gemm_scaled_args *args)
{
    const struct tt_low_rank none = {.count = 0};
    const struct tt_rotation straight = {.columns = 0};
    struct scaled_product product = {.a = args->a_MK,
                                     .a_scale = args->a_scale_M,
                                     .b[0] = {args->b_NK, args->b_scale_N},
                                     .count = 1,
                                     .along_n = true,
                                     .low = &none,
                                     .rotation = &straight,
                                     .addend = args->addend_MN,
                                     .y = args->y_MN};
    return multiply_scaled(stream, "gemm_scaled", &product);
}
