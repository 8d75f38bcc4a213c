#ifndef TT_VECTOR_LANES

#include <math.h>

#include "backend/ops/optim.h"

/* The scalars of one step, rounded to fp32 once. */
struct adamw_scalars {
    float keep, beta1_rest, beta2, beta2_rest, step_size, root_of_correction2, eps, grad_scale;
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
