/* Root-mean-square norm of groups of columns with a gate. */
#ifndef TT_VECTOR_LANES

#include <math.h>
#include <string.h>

#include "backend/cpu/parallel.h"

enum {
    LINES_MAX = 64, /* as in rmsnorm.c */
    LINE_ROWS_MIN = 8,
    WIDTH_MAX = TT_CPU_SCRATCH_BYTES / sizeof(float),
    KEPT_COLUMNS = 8192 /* of a group: what the first visit of them computes is kept for the second */
};

/* The inputs of a pass, of which both directions have the same. */
struct gated {
    tt_tensor x, z, weight;
    int64_t groups, width; /* of a group */
    bool sigmoid, gate_first;
};

/* The index of a group's weights. */
static int64_t weight_at(const struct gated *pass, int64_t group)
{
    return pass->weight.dims[0] == pass->width ? 0 : group * pass->width;
}

#define TT_VECTOR_SOURCE "backend/cpu/gated_norm.c"
#include "backend/cpu/vector_math_passes.h"

tt_status tt_cpu_gated_norm_forward(struct tt_stream *stream, const struct tt_gated_norm_forward_args *args)
{
    void (*forward_row)(const struct gated *, const struct tt_gated_norm_forward_args *, int64_t) =
        TT_BEST(stream, forward_row);
    const struct gated pass = {.x = args->x_TN,
                               .z = args->z_TN,
                               .weight = args->weight_N,
                               .groups = args->groups,
                               .width = args->x_TN.dims[1] / args->groups,
                               .sigmoid = args->gate == TT_GATE_SIGMOID,
                               .gate_first = args->gate_first};
    int64_t rows = args->x_TN.dims[0];
    int threads = tt_cpu_threads(stream, rows * args->x_TN.dims[1] * 2);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; row++) forward_row(&pass, args, row);
    if (tt_tensor_is_empty(args->codes_TN)) return TT_OK;
    return tt_cpu_quantize_rows(stream,
                                &(struct tt_quantize_rows_args){args->y_TN, args->codes_TN, args->scale_T});
}

/* The sums of a weight's gradient: rows in lines whose borders depend on their number alone, added in order. */
tt_status tt_cpu_gated_norm_backward(struct tt_stream *stream, const struct tt_gated_norm_backward_args *args)
{
    void (*backward_row)(const struct gated *, const struct tt_gated_norm_backward_args *, int64_t, float *) =
        TT_BEST(stream, backward_row);
    const struct gated pass = {.x = args->x_TN,
                               .z = args->z_TN,
                               .weight = args->weight_N,
                               .groups = args->groups,
                               .width = args->x_TN.dims[1] / args->groups,
                               .sigmoid = args->gate == TT_GATE_SIGMOID,
                               .gate_first = args->gate_first};
    int64_t rows = args->x_TN.dims[0], width = args->weight_N.dims[0];
    int threads = tt_cpu_threads(stream, rows * args->x_TN.dims[1] * 4);
    if (tt_tensor_is_empty(args->dweight_N)) {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t row = 0; row < rows; row++) backward_row(&pass, args, row, NULL);
        return TT_OK;
    }
    if (width > WIDTH_MAX)
        return tt_fail(TT_ERR_UNSUPPORTED, "gated_norm_backward: a weight of %lld, the cpu's limit is %d",
                       (long long)width, WIDTH_MAX);
    int64_t lines = rows / LINE_ROWS_MIN < LINES_MAX ? rows / LINE_ROWS_MIN : LINES_MAX;
    if (lines > WIDTH_MAX / width) lines = WIDTH_MAX / width;
    if (lines < 1) lines = 1;
    float *memory = tt_cpu_scratch(stream, 0); /* the whole team uses it */
    memset(memory, 0, (size_t)(lines * width) * sizeof *memory);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t line = 0; line < lines; line++)
        for (int64_t row = rows * line / lines; row < rows * (line + 1) / lines; row++)
            backward_row(&pass, args, row, memory + line * width);
    float *dweight = args->dweight_N.data;
    for (int64_t n = 0; n < width; n++) {
        double sum = 0;
        for (int64_t line = 0; line < lines; line++) sum += (double)memory[line * width + n];
        dweight[n] += (float)sum;
    }
    return TT_OK;
}

#else

/* Properties of all columns of a pass, constant in the functions made of those below: without them each load
 * would ask for its type. */
struct TT_PASS(kind) {
    bool bf16, sigmoid, gate_first;
};
#define kind TT_PASS(kind)

/* The columns of a group, from `at` on. */
TT_INLINE vf TT_PASS(part)(const tt_tensor *x, int64_t row, int64_t at, int64_t left, struct kind of)
{
    return vload_part(x->data, row * x->strides[0] + at, of.bf16, left);
}
#define part TT_PASS(part)

TT_INLINE void TT_PASS(store)(const tt_tensor *x, int64_t row, int64_t at, vf value, int64_t left,
                              struct kind of)
{
    vstore_part(x->data, row * x->strides[0] + at, of.bf16, value, left);
}
#define store TT_PASS(store)

TT_INLINE vf TT_PASS(weights)(const struct gated *pass, int64_t group, int64_t d, int64_t left)
{
    return vload_part(pass->weight.data, weight_at(pass, group) + d, pass->weight.dtype == TT_BF16, left);
}

/* act(z) */
TT_INLINE vf TT_PASS(gate_at)(const struct gated *pass, int64_t row, int64_t at, int64_t left, struct kind of)
{
    vf z = part(&pass->z, row, at, left, of), share = vsigmoid(z);
    if (!of.sigmoid) share *= z;
    return share;
}

/* The values that are normed: x, or x act(z). */
TT_INLINE vf TT_PASS(normed)(const struct gated *pass, int64_t row, int64_t at, int64_t left, struct kind of)
{
    vf x = part(&pass->x, row, at, left, of);
    if (!of.gate_first) return x;
    return x * TT_PASS(gate_at)(pass, row, at, left, of);
}
#define normed TT_PASS(normed)

/* Visits the columns of a group: whole vectors, whose number of columns is then a constant, and the rest. */
#define FOR_COLUMNS(width, call)                                                                             \
    do {                                                                                                     \
        int64_t d = 0;                                                                                       \
        for (; d + TT_VECTOR_LANES <= (width); d += TT_VECTOR_LANES) {                                       \
            const int64_t left = TT_VECTOR_LANES;                                                            \
            call;                                                                                            \
        }                                                                                                    \
        if (d < (width)) {                                                                                   \
            const int64_t left = (width)-d;                                                                  \
            call;                                                                                            \
        }                                                                                                    \
    } while (0)

/* The value that is normed, also stored for the second visit of its columns. */
TT_INLINE vf TT_PASS(add_square)(const struct gated *pass, int64_t row, int64_t first, int64_t d,
                                 int64_t left, float *kept, vf squares, struct kind of)
{
    vf u = normed(pass, row, first + d, left, of);
    if (kept != NULL) vstore(kept, d, false, u);
    return vmultiply_add(u, u, squares);
}

TT_INLINE void TT_PASS(forward_part)(const struct gated *pass, const tt_tensor *y_TN, int64_t row,
                                     int64_t group, int64_t d, int64_t left, const float *kept, float rstd,
                                     struct kind of)
{
    int64_t at = group * pass->width + d;
    vf u = kept != NULL ? vload(kept, d, false) : normed(pass, row, at, left, of);
    vf y = u * rstd * TT_PASS(weights)(pass, group, d, left);
    if (!of.gate_first) y *= TT_PASS(gate_at)(pass, row, at, left, of);
    store(y_TN, row, at, y, left, of);
}

TT_INLINE void TT_PASS(forward_kind)(const struct gated *pass, const struct tt_gated_norm_forward_args *args,
                                     int64_t row, struct kind of)
{
    float room[KEPT_COLUMNS + TT_VECTOR_LANES], *kept = NULL;
    if (of.gate_first && pass->width <= KEPT_COLUMNS) kept = room;
    for (int64_t group = 0; group < pass->groups; group++) {
        int64_t first = group * pass->width;
        vf squares = vsplat(0);
        FOR_COLUMNS(pass->width, squares = TT_PASS(add_square)(pass, row, first, d, left, kept, squares, of));
        float rstd = (float)(1.0 / sqrt((double)vsum(squares) / (double)pass->width + args->eps));
        FOR_COLUMNS(pass->width,
                    TT_PASS(forward_part)(pass, &args->y_TN, row, group, d, left, kept, rstd, of));
        if (!tt_tensor_is_empty(args->rstd_TG))
            ((float *)args->rstd_TG.data)[row * pass->groups + group] = rstd;
    }
}

/* Calls a function of (..., kind) with a constant kind. */
#define WITH_KIND(pass, call)                                                                                \
    do {                                                                                                     \
        bool bf16 = (pass)->x.dtype == TT_BF16;                                                              \
        if ((pass)->sigmoid)                                                                                 \
            call((struct kind){bf16, true, (pass)->gate_first});                                             \
        else if ((pass)->gate_first && bf16)                                                                 \
            call((struct kind){true, false, true});                                                          \
        else if ((pass)->gate_first)                                                                         \
            call((struct kind){false, false, true});                                                         \
        else if (bf16)                                                                                       \
            call((struct kind){true, false, false});                                                         \
        else                                                                                                 \
            call((struct kind){false, false, false});                                                        \
    } while (0)

static void TT_PASS(forward_row)(const struct gated *pass, const struct tt_gated_norm_forward_args *args,
                                 int64_t row)
{
#define CALL(...) TT_PASS(forward_kind)(pass, args, row, __VA_ARGS__)
    WITH_KIND(pass, CALL);
#undef CALL
}

/* The parts of a gradient at some columns: that of the norm's result times weight, and of the gate. */
struct TT_PASS(terms) {
    vf x, weight, act, slope; /* of the gate at z */
    vf hat;                   /* what is normed, times rstd */
    vf g;                     /* dy (gated after the norm) weight */
};

/* `share`: the logistic function of z. */
TT_INLINE struct TT_PASS(terms)
    TT_PASS(terms_at)(const struct gated *pass, const tt_tensor *dy, int64_t row, int64_t group, int64_t d,
                      int64_t left, vf share, float rstd, struct kind of)
{
    struct TT_PASS(terms) terms;
    int64_t at = group * pass->width + d;
    terms.act = share;
    terms.slope = share * (1.0f - share);
    if (!of.sigmoid) {
        vf z = part(&pass->z, row, at, left, of);
        terms.slope = share + z * terms.slope;
        terms.act *= z;
    }
    terms.x = part(&pass->x, row, at, left, of);
    terms.weight = TT_PASS(weights)(pass, group, d, left);
    terms.hat = terms.x * rstd;
    if (of.gate_first) terms.hat *= terms.act;
    terms.g = part(dy, row, at, left, of) * terms.weight;
    if (!of.gate_first) terms.g *= terms.act;
    return terms;
}

/* Adds to the sum of g hat; the share is stored for the second visit of its columns. */
TT_INLINE vf TT_PASS(add_term)(const struct gated *pass, const struct tt_gated_norm_backward_args *args,
                               int64_t row, int64_t group, int64_t d, int64_t left, float *kept, vf sum,
                               float rstd, struct kind of)
{
    vf share = vsigmoid(part(&pass->z, row, group * pass->width + d, left, of));
    if (kept != NULL) vstore(kept, d, false, share);
    struct TT_PASS(terms) terms = TT_PASS(terms_at)(pass, &args->dy_TN, row, group, d, left, share, rstd, of);
    return vmultiply_add(terms.g, terms.hat, sum);
}

TT_INLINE void TT_PASS(backward_part)(const struct gated *pass,
                                      const struct tt_gated_norm_backward_args *args, int64_t row,
                                      int64_t group, int64_t d, int64_t left, const float *kept, float *line,
                                      float rstd, float mean, struct kind of)
{
    int64_t at = group * pass->width + d;
    vf share = kept != NULL ? vload(kept, d, false) : vsigmoid(part(&pass->z, row, at, left, of));
    struct TT_PASS(terms) terms = TT_PASS(terms_at)(pass, &args->dy_TN, row, group, d, left, share, rstd, of);
    vf dy = part(&args->dy_TN, row, at, left, of), du = (terms.g - terms.hat * mean) * rstd, dz, dx = du;
    if (of.gate_first) {
        dz = du * terms.x * terms.slope;
        dx = du * terms.act;
    } else {
        dz = dy * terms.weight * terms.hat * terms.slope;
    }
    if (line != NULL) {
        int64_t to = weight_at(pass, group) + d;
        vf seen = dy * terms.hat;
        if (!of.gate_first) seen *= terms.act;
        vstore_part(line, to, false, vload_part(line, to, false, left) + seen, left);
    }
    store(&args->dx_TN, row, at, dx, left, of);
    store(&args->dz_TN, row, at, dz, left, of);
}

TT_INLINE void TT_PASS(backward_kind)(const struct gated *pass,
                                      const struct tt_gated_norm_backward_args *args, int64_t row,
                                      float *line, struct kind of)
{
    float room[KEPT_COLUMNS + TT_VECTOR_LANES], *kept = pass->width <= KEPT_COLUMNS ? room : NULL;
    for (int64_t group = 0; group < pass->groups; group++) {
        float rstd = ((const float *)args->rstd_TG.data)[row * pass->groups + group];
        vf sum = vsplat(0);
        FOR_COLUMNS(pass->width,
                    sum = TT_PASS(add_term)(pass, args, row, group, d, left, kept, sum, rstd, of));
        float mean = vsum(sum) / (float)pass->width;
        FOR_COLUMNS(pass->width,
                    TT_PASS(backward_part)(pass, args, row, group, d, left, kept, line, rstd, mean, of));
    }
}

/* line: the sums of the weight's gradient, or NULL. */
static void TT_PASS(backward_row)(const struct gated *pass, const struct tt_gated_norm_backward_args *args,
                                  int64_t row, float *line)
{
#define CALL(...) TT_PASS(backward_kind)(pass, args, row, line, __VA_ARGS__)
    WITH_KIND(pass, CALL);
#undef CALL
}

#endif
