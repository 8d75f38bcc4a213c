#ifndef TT_VECTOR_LANES

#include <math.h>
#include <string.h>

#include "backend/ops/optim.h"
#include "tensor/quant.h"

/* The scalars of one step, rounded to fp32 once. */
struct adamw_scalars {
    float keep, beta1_rest, beta2, beta2_rest, step_size, root_of_correction2, eps, grad_scale;
};

struct lion_scalars {
    float keep, beta1, beta1_rest, beta2, beta2_rest, lr, grad_scale;
};

/* Numbers of one sign, power of two and sixteenth of it share a bin; those below 2^-31 share one of their sign. At most
 * BORDERS_OF_BIN borders are in a bin: entries of a map are at least 0.007 apart near 1, and in lower decades as far in
 * proportion. */
enum { BIN_POWERS = 32, BIN_PARTS = 16, BINS = 2 * BIN_POWERS * BIN_PARTS, BORDERS_OF_BIN = 7 };

/* The largest numbers, divided by their block's size, that still have the code before. */
struct code_borders {
    const float *map;
    float values[TT_QUANT_NESTED_MAP + BORDERS_OF_BIN]; /* infinite from the last entry of the map on */
    int32_t below[BINS];                                /* borders below a bin */
};

struct coded_moment {
    uint8_t *codes;
    float *absmax;
    struct code_borders borders;
};

/* The scalars are rounded as bitsandbytes rounds them: 1 - beta in fp32. */
struct adamw8_run {
    float *param;
    const float *grad;
    int64_t count;
    struct coded_moment m, v;
    float keep, beta1, beta2, step_size, eps, grad_scale;
};
struct lion8_run {
    float *param;
    const float *grad;
    int64_t count;
    struct coded_moment m;
    float keep, beta1, beta2, lr, grad_scale;
};

#define TT_VECTOR_SOURCE "backend/cpu/optim.c"
#include "backend/cpu/vector_math_passes.h"

enum {
    PIECE = 16384,                                             /* elements, a multiple of all vector widths */
    SUMS_MAX = TT_CPU_SCRATCH_BYTES / (int)sizeof(double) / 2, /* partial sums kept at once */
};

tt_status tt_cpu_adamw(struct tt_stream *stream, const struct tt_adamw_args *args)
{
    int64_t count = args->param.dims[0], pieces = (count + PIECE - 1) / PIECE;
    double correction1 = 1 - pow(args->beta1, (double)args->step);
    double correction2 = 1 - pow(args->beta2, (double)args->step);
    const struct adamw_scalars scalars = {
        .keep = (float)(1 - args->lr * args->weight_decay),
        .beta1_rest = (float)(1 - args->beta1),
        .beta2 = (float)args->beta2,
        .beta2_rest = (float)(1 - args->beta2),
        .step_size = (float)(args->lr / correction1),
        .root_of_correction2 = (float)sqrt(correction2),
        .eps = (float)args->eps,
        .grad_scale = args->grad_scale,
    };
    void (*adamw_piece)(const struct adamw_scalars *, float *, const float *, float *, float *, int64_t) =
        TT_BEST(stream, adamw_piece);
    int threads = tt_cpu_threads(stream, count * 4);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t first = piece * PIECE, n = count - first < PIECE ? count - first : PIECE;
        adamw_piece(&scalars, (float *)args->param.data + first, (const float *)args->grad.data + first,
                    (float *)args->m.data + first, (float *)args->v.data + first, n);
    }
    return TT_OK;
}

tt_status tt_cpu_sgd(struct tt_stream *stream, const struct tt_sgd_args *args)
{
    int64_t count = args->param.dims[0], pieces = (count + PIECE - 1) / PIECE;
    void (*sgd_piece)(const struct tt_sgd_args *, int64_t, int64_t) = TT_BEST(stream, sgd_piece);
    int threads = tt_cpu_threads(stream, count * 3);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t first = piece * PIECE;
        sgd_piece(args, first, count - first < PIECE ? count - first : PIECE);
    }
    return TT_OK;
}

/* The least magnitude of bin `index`, of those of one sign. */
static float bin_edge(int index)
{
    int power = index / BIN_PARTS, part = index % BIN_PARTS;
    return index == 0 ? 0.0f : ldexpf(1.0f + (float)part / BIN_PARTS, power + 1 - BIN_POWERS);
}

static struct coded_moment coded_moment(const struct tt_coded_moment *moment, const float *map)
{
    struct coded_moment coded = {moment->codes.data, moment->absmax.data, {.map = map}};
    float *values = coded.borders.values;
    for (int i = 0; i + 1 < TT_QUANT_NESTED_MAP; i++) values[i] = (map[i] + map[i + 1]) * 0.5f;
    for (int i = TT_QUANT_NESTED_MAP - 1; i < TT_QUANT_NESTED_MAP + BORDERS_OF_BIN; i++) values[i] = INFINITY;
    int32_t below = 0; /* bins in ascending order: negative ones from the largest magnitude */
    for (int i = BINS - 1; i >= BINS / 2; i--) {
        while (values[below] < -bin_edge(i - BINS / 2 + 1)) below++;
        coded.borders.below[i] = below;
    }
    for (int i = 0; i < BINS / 2; i++) {
        while (values[below] < bin_edge(i)) below++;
        coded.borders.below[i] = below;
    }
    return coded;
}

static int64_t blocks_of(int64_t count)
{
    return (count + TT_MOMENT_BLOCK - 1) / TT_MOMENT_BLOCK;
}

tt_status tt_cpu_adamw8(struct tt_stream *stream, const struct tt_adamw8_args *args)
{
    double root = sqrt(1 - pow(args->beta2, (double)args->step));
    const struct adamw8_run run = {
        .param = args->param.data,
        .grad = args->grad.data,
        .count = args->param.dims[0],
        .m = coded_moment(&args->m, tt_quant_nested_map()),
        .v = coded_moment(&args->v, tt_quant_unsigned_map()),
        .keep = (float)(1 - args->lr * args->weight_decay),
        .beta1 = (float)args->beta1,
        .beta2 = (float)args->beta2,
        .step_size = (float)(args->lr * root / (1 - pow(args->beta1, (double)args->step))),
        .eps = (float)(args->eps * root),
        .grad_scale = args->grad_scale,
    };
    int64_t blocks = blocks_of(run.count);
    void (*adamw8_block)(const struct adamw8_run *, int64_t) = TT_BEST(stream, adamw8_block);
    int threads = tt_cpu_threads(stream, run.count * 16);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t block = 0; block < blocks; block++) adamw8_block(&run, block);
    return TT_OK;
}

tt_status tt_cpu_lion8(struct tt_stream *stream, const struct tt_lion8_args *args)
{
    const struct lion8_run run = {
        .param = args->param.data,
        .grad = args->grad.data,
        .count = args->param.dims[0],
        .m = coded_moment(&args->m, tt_quant_nested_map()),
        .keep = (float)(1 - args->lr * args->weight_decay),
        .beta1 = (float)args->beta1,
        .beta2 = (float)args->beta2,
        .lr = (float)args->lr,
        .grad_scale = args->grad_scale,
    };
    int64_t blocks = blocks_of(run.count);
    void (*lion8_block)(const struct lion8_run *, int64_t) = TT_BEST(stream, lion8_block);
    int threads = tt_cpu_threads(stream, run.count * 8);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t block = 0; block < blocks; block++) lion8_block(&run, block);
    return TT_OK;
}

tt_status tt_cpu_lion(struct tt_stream *stream, const struct tt_lion_args *args)
{
    int64_t count = args->param.dims[0], pieces = (count + PIECE - 1) / PIECE;
    const struct lion_scalars scalars = {
        .keep = (float)(1 - args->lr * args->weight_decay),
        .beta1 = (float)args->beta1,
        .beta1_rest = (float)(1 - args->beta1),
        .beta2 = (float)args->beta2,
        .beta2_rest = (float)(1 - args->beta2),
        .lr = (float)args->lr,
        .grad_scale = args->grad_scale,
    };
    void (*lion_piece)(const struct lion_scalars *, float *, const float *, float *, int64_t) =
        TT_BEST(stream, lion_piece);
    int threads = tt_cpu_threads(stream, count * 3);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t piece = 0; piece < pieces; piece++) {
        int64_t first = piece * PIECE, n = count - first < PIECE ? count - first : PIECE;
        lion_piece(&scalars, (float *)args->param.data + first, (const float *)args->grad.data + first,
                   (float *)args->m.data + first, n);
    }
    return TT_OK;
}

tt_status tt_cpu_sum_squares(struct tt_stream *stream, const struct tt_sum_squares_args *args)
{
    int64_t count = args->x.dims[0], pieces = (count + PIECE - 1) / PIECE;
    double (*squares_piece)(const float *, int64_t) = TT_BEST(stream, squares_piece);
    double *sums = tt_cpu_scratch(stream, 0), total = 0; /* the whole team writes and reads it */
    int threads = tt_cpu_threads(stream, count);
    for (int64_t done = 0; done < pieces; done += SUMS_MAX) {
        int64_t now = pieces - done < SUMS_MAX ? pieces - done : SUMS_MAX;
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t i = 0; i < now; i++) {
            int64_t first = (done + i) * PIECE, n = count - first < PIECE ? count - first : PIECE;
            sums[i] = squares_piece((const float *)args->x.data + first, n);
        }
        for (int64_t i = 0; i < now; i++) total += sums[i];
    }
    *(double *)args->out.data += total;
    return TT_OK;
}

#else

/* Updates one element; m + (1 - b1)(g - m) is PyTorch's form of b1 m + (1 - b1) g. */
static void TT_PASS(adamw_piece)(const struct adamw_scalars *s, float *restrict param,
                                 const float *restrict grad, float *restrict m, float *restrict v,
                                 int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float g = grad[i] * s->grad_scale;
        m[i] = m[i] + s->beta1_rest * (g - m[i]);
        v[i] = v[i] * s->beta2 + s->beta2_rest * g * g;
        float denominator = sqrtf(v[i]) / s->root_of_correction2 + s->eps;
        param[i] = param[i] * s->keep - s->step_size * (m[i] / denominator);
    }
}

static void TT_PASS(lion_piece)(const struct lion_scalars *s, float *restrict param,
                                const float *restrict grad, float *restrict m, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float g = grad[i] * s->grad_scale;
        float ahead = s->beta1 * m[i] + s->beta1_rest * g;
        float sign = (float)((ahead > 0) - (ahead < 0));
        param[i] = param[i] * s->keep - s->lr * sign;
        m[i] = s->beta2 * m[i] + s->beta2_rest * g;
    }
}

/* Fills a whole block: with zeros behind its `n` elements. */
static void TT_PASS(decode_block)(const struct coded_moment *moment, int64_t block, int n, float *restrict x)
{
    const uint8_t *codes = moment->codes + block * TT_MOMENT_BLOCK;
    float absmax = moment->absmax[block];
    for (int i = 0; i < n; i++) x[i] = moment->borders.map[codes[i]] * absmax;
    for (int i = n; i < TT_MOMENT_BLOCK; i++) x[i] = 0;
}

/* The numbers of borders below x: those below its bin, and a bisection inside of it, for several elements at once and
 * without branches. */
static void TT_PASS(count_borders)(const struct code_borders *borders, const float *restrict x,
                                   int32_t *restrict index)
{
    enum { AT_ONCE = 16, LEAST = (127 + 1 - BIN_POWERS) * BIN_PARTS /* exponent and part of 2^-31 */ };
    const float *restrict values = borders->values;
    for (int first = 0; first < TT_MOMENT_BLOCK; first += AT_ONCE) {
        int32_t below[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) {
            uint32_t bits;
            memcpy(&bits, x + first + i, sizeof bits);
            int32_t bin = (int32_t)(bits << 1 >> 20) - LEAST;
            bin = bin > 0 ? bin : 0;
            bin = bin < BINS / 2 ? bin : BINS / 2 - 1; /* NaN: the size of the block is infinite */
            below[i] = borders->below[bin + (int32_t)(bits >> 31) * (BINS / 2)];
        }
        for (int step = (BORDERS_OF_BIN + 1) / 2; step > 0; step /= 2)
            for (int i = 0; i < AT_ONCE; i++) below[i] += (x[first + i] > values[below[i] + step - 1]) * step;
        for (int i = 0; i < AT_ONCE; i++) index[first + i] = below[i];
    }
}

static void TT_PASS(encode_block)(const struct coded_moment *moment, int64_t block, int n, bool has_signs,
                                  const float *restrict x)
{
    uint8_t *restrict codes = moment->codes + block * TT_MOMENT_BLOCK;
    float scaled[TT_MOMENT_BLOCK], absmax = 0;
    int32_t index[TT_MOMENT_BLOCK];
    for (int i = 0; i < TT_MOMENT_BLOCK; i++) absmax = fabsf(x[i]) > absmax ? fabsf(x[i]) : absmax;
    moment->absmax[block] = absmax;
    if (absmax == 0) {
        memset(codes, has_signs ? TT_MOMENT_ZERO_SIGNED : TT_MOMENT_ZERO, (size_t)n);
        return;
    }
    for (int i = 0; i < TT_MOMENT_BLOCK; i++) scaled[i] = x[i] / absmax;
    TT_PASS(count_borders)(&moment->borders, scaled, index);
    for (int i = 0; i < n; i++) {
        if (has_signs && !signbit(moment->borders.map[index[i]]) != !signbit(x[i]))
            index[i] += x[i] > 0 ? 1 : -1;
        codes[i] = (uint8_t)index[i];
    }
}

static void TT_PASS(adamw8_block)(const struct adamw8_run *run, int64_t block)
{
    int64_t first = block * TT_MOMENT_BLOCK, left = run->count - first;
    int n = left < TT_MOMENT_BLOCK ? (int)left : TT_MOMENT_BLOCK;
    float *restrict param = run->param + first;
    const float *restrict grad = run->grad + first;
    float m[TT_MOMENT_BLOCK], v[TT_MOMENT_BLOCK];
    const float beta1 = run->beta1, beta2 = run->beta2, rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    const float step_size = run->step_size, eps = run->eps, keep = run->keep, grad_scale = run->grad_scale;
    TT_PASS(decode_block)(&run->m, block, n, m);
    TT_PASS(decode_block)(&run->v, block, n, v);
    for (int i = 0; i < n; i++) {
        float g = grad[i] * grad_scale;
        m[i] = m[i] * beta1 + rest1 * g;
        v[i] = v[i] * beta2 + rest2 * g * g;
        param[i] = (param[i] - step_size * (m[i] / (sqrtf(v[i]) + eps))) * keep;
    }
    TT_PASS(encode_block)(&run->m, block, n, true, m);
    TT_PASS(encode_block)(&run->v, block, n, false, v);
}

static void TT_PASS(lion8_block)(const struct lion8_run *run, int64_t block)
{
    int64_t first = block * TT_MOMENT_BLOCK, left = run->count - first;
    int n = left < TT_MOMENT_BLOCK ? (int)left : TT_MOMENT_BLOCK;
    float *restrict param = run->param + first;
    const float *restrict grad = run->grad + first;
    float m[TT_MOMENT_BLOCK], rest1 = 1.0f - run->beta1, rest2 = 1.0f - run->beta2;
    TT_PASS(decode_block)(&run->m, block, n, m);
    for (int i = 0; i < n; i++) {
        float g = grad[i] * run->grad_scale, ahead = m[i] * run->beta1 + rest1 * g;
        float sign = (float)((ahead > 0) - (ahead < 0));
        param[i] = param[i] * run->keep - run->lr * sign;
        m[i] = m[i] * run->beta2 + rest2 * g;
    }
    TT_PASS(encode_block)(&run->m, block, n, true, m);
}

static void TT_PASS(sgd_piece)(const struct tt_sgd_args *args, int64_t first, int64_t count)
{
    float *restrict param = (float *)args->param.data + first;
    const float *restrict grad = (const float *)args->grad.data + first;
    float lr = (float)args->lr, momentum = (float)args->momentum, decay = (float)args->weight_decay;
    if (tt_tensor_is_empty(args->v)) {
        for (int64_t i = 0; i < count; i++) param[i] -= lr * (grad[i] * args->grad_scale + decay * param[i]);
        return;
    }
    float *restrict v = (float *)args->v.data + first;
    if (!args->nesterov) {
        for (int64_t i = 0; i < count; i++) {
            v[i] = momentum * v[i] + (grad[i] * args->grad_scale + decay * param[i]);
            param[i] -= lr * v[i];
        }
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        float g = grad[i] * args->grad_scale + decay * param[i];
        v[i] = momentum * v[i] + g;
        param[i] -= lr * (g + momentum * v[i]);
    }
}

/* Sums in sixteen chains, which are then added by halves. */
static double TT_PASS(squares_piece)(const float *x, int64_t count)
{
    double sums[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= count; i += 16)
        for (int k = 0; k < 16; k++) sums[k] += (double)x[i + k] * (double)x[i + k];
    for (; i < count; i++) sums[0] += (double)x[i] * (double)x[i];
    for (int half = 8; half > 0; half /= 2)
        for (int k = 0; k < half; k++) sums[k] += sums[k + half];
    return sums[0];
}

#endif
