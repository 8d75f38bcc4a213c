#include "nn/layer.h"

#include <stddef.h>

#include "backend/ops/elementwise.h"

struct saved {
    tt_tensor residual_TD[TT_LAYER_HALVES]; /* the streams that the halves behind the first add to */
    tt_tensor rstd_T[TT_LAYER_HALVES];      /* of joint norms; what they norm is in residual_TD */
    union {
        max_align_t alignment;
        unsigned char bytes[TT_HALF_SAVED_BYTES];
    } halves[TT_LAYER_HALVES];
};

static tt_status push_residual(const struct tt_pass *pass, const struct tt_half *half, int64_t dim,
                               tt_tensor *residual_TD)
{
    return tt_workspace_2d(pass->lent.workspace, half->ops->residual, pass->in.compute_dtype,
                           pass->in.batch->token_count, dim, residual_TD);
}

/* x_TD is the stream that the half reads, delta_TD the result of the half before, which is not in it yet. A half with
 * `beside` reads x alone, and delta becomes the sum of both. *behind_TD: what the half's result is added to. */
static tt_status choose_input(const struct tt_half *half, const struct tt_pass *pass, tt_tensor x_TD,
                              tt_tensor delta_TD, struct tt_half_input *in, tt_tensor *behind_TD)
{
    in->x_TD = x_TD;
    in->delta_TD = delta_TD;
    *behind_TD = tt_tensor_is_empty(delta_TD) ? x_TD : delta_TD;
    if (!half->beside) return TT_OK;
    in->delta_TD = (tt_tensor){0};
    if (half->joint_norm != NULL) {
        *behind_TD = x_TD;
        return TT_OK;
    }
    struct tt_add_args add = {.a = x_TD, .b = delta_TD, .y = delta_TD};
    return tt_add(pass->lent.stream, &add);
}

/* Both results become their sum in `sum_TD`, the place of the first one, and y_TD that sum normed, with the stream in
 * the layer's last half. Without y_TD, backward reads the sum all the same. */
static tt_status run_joined(const struct tt_half *half, const struct tt_pass *pass, struct tt_half_input *in,
                            struct saved *saved, int i, tt_tensor stream_TD, tt_tensor sum_TD)
{
    struct tt_half_input own = *in;
    tt_tensor y_TD = in->y_TD;
    bool last = !tt_tensor_is_empty(in->sum_TD);
    size_t mark;
    if (in->keep)
        TT_TRY(tt_workspace_1d(pass->lent.workspace, "rstd of joined halves", TT_F32, sum_TD.dims[0],
                               &saved->rstd_T[i]));
    own.sum_TD = own.y_TD = sum_TD;
    TT_TRY(half->ops->forward(half, pass, &own, saved->halves[i].bytes));
    mark = tt_workspace_mark(pass->lent.workspace);
    if (tt_tensor_is_empty(y_TD))
        TT_TRY(tt_workspace_2d(pass->lent.workspace, "normed sum of halves", sum_TD.dtype, sum_TD.dims[0],
                               sum_TD.dims[1], &y_TD));
    TT_TRY(tt_norm_forward(half->joint_norm, pass, sum_TD, y_TD, saved->rstd_T[i], NULL));
    struct tt_add_args add = {.a = stream_TD, .b = y_TD, .y = y_TD};
    if (last && !tt_tensor_is_empty(in->y_TD)) TT_TRY(tt_add(pass->lent.stream, &add));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* x *= the layer's scalar, which is its gradient too. */
static tt_status scale_stream(const struct tt_layer *layer, const struct tt_pass *pass, tt_tensor x_TD)
{
    if (layer->scalar == NULL || tt_tensor_is_empty(x_TD)) return TT_OK;
    struct tt_scale_args args = {.x = x_TD, .by_1 = layer->scalar->value};
    return tt_scale(pass->lent.stream, &args);
}

static bool half_exchanges(const struct tt_half *half)
{
    return half->ops->exchanges != NULL && half->ops->exchanges(half);
}

/* A rank without tokens answers the others. */
static tt_status forward_empty(const struct tt_layer *layer, const struct tt_pass *pass, struct saved *record)
{
    struct saved local = {0}, *saved = record != NULL ? record : &local;
    for (int i = 0; i < layer->count; i++) {
        const struct tt_half *half = &layer->halves[i];
        struct tt_half_input none = {.keep = record != NULL};
        bool silent = pass->in.again && i + 1 == layer->count && half->joint_norm == NULL;
        if (!silent) none.y_TD = tt_tensor_2d(NULL, pass->in.compute_dtype, 0, 0);
        if (half_exchanges(half)) TT_TRY(half->ops->forward(half, pass, &none, saved->halves[i].bytes));
    }
    return TT_OK;
}

static tt_status backward_empty(const struct tt_layer *layer, const struct tt_pass *pass,
                                const struct saved *saved)
{
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    for (int i = layer->count - 1; i >= 0; i--) {
        const struct tt_half *half = &layer->halves[i];
        struct tt_half_gradient none = {.carries = true};
        if (half_exchanges(half)) TT_TRY(half->ops->backward(half, pass, saved->halves[i].bytes, &none));
    }
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static enum tt_block_exchange exchange(const struct tt_block *block)
{
    const struct tt_layer *layer = block->impl;
    for (int i = 0; i < layer->count; i++)
        if (half_exchanges(&layer->halves[i])) return TT_EXCHANGE_ACTIVATIONS;
    return TT_EXCHANGE_NONE;
}

static tt_status forward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD, void *record,
                         tt_tensor y_TD)
{
    const struct tt_layer *layer = block->impl;
    struct saved local = {0}, *saved = record != NULL ? record : &local;
    bool keep = record != NULL;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    tt_tensor delta_TD = {0}, behind_TD;
    if (pass->in.batch->token_count == 0) return forward_empty(layer, pass, record);
    for (int i = 0; i < layer->count; i++) {
        const struct tt_half *half = &layer->halves[i];
        bool last = i + 1 == layer->count;
        struct tt_half_input in = {.y_TD = y_TD, .scale = half->scale, .keep = keep};
        if (!last) {
            TT_TRY(push_residual(pass, half, x_TD.dims[1], &saved->residual_TD[i + 1]));
            in.y_TD = saved->residual_TD[i + 1];
        }
        TT_TRY(choose_input(half, pass, x_TD, delta_TD, &in, &behind_TD));
        if (last) in.sum_TD = behind_TD;
        TT_TRY(half->joint_norm != NULL ? run_joined(half, pass, &in, saved, i, behind_TD, delta_TD)
                                        : half->ops->forward(half, pass, &in, saved->halves[i].bytes));
        x_TD = behind_TD;
        delta_TD = in.y_TD;
    }
    TT_TRY(scale_stream(layer, pass, y_TD));
    if (!keep) tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static bool half_trains(const struct tt_half *half)
{
    return half->ops->trains(half) || (half->joint_norm != NULL && tt_norm_trains(half->joint_norm));
}

/* Whether a half before `end` trains, or other ranks wait for it. */
static bool runs_before(const struct tt_layer *layer, int end)
{
    for (int i = 0; i < end; i++) {
        if (half_trains(&layer->halves[i]) || half_exchanges(&layer->halves[i])) return true;
    }
    return false;
}

static tt_status push_gradient(const struct tt_pass *pass, const char *name, tt_tensor dy_TD,
                               tt_tensor *dx_TD)
{
    return tt_workspace_2d(pass->lent.workspace, name, pass->in.compute_dtype, dy_TD.dims[0], dy_TD.dims[1],
                           dx_TD);
}

/* Nobody multiplies dy itself behind a scale. */
static const struct tt_linear_group *reader_of(const struct tt_half *half)
{
    return half->scale != 0 ? NULL : half->ops->reader(half);
}

/* The stream that half `i` has read. */
static tt_tensor stream_of(const struct tt_layer *layer, const struct saved *saved, tt_tensor x_TD, int i)
{
    int from = layer->halves[i].beside ? i - 1 : i;
    return from == 0 ? x_TD : saved->residual_TD[from];
}

/* dy of the stream behind halves with a joint norm -> that of the sum of their results, in scratch; what reaches the
 * stream beside them is added behind both. */
static tt_status begin_joined(const struct tt_half *half, const struct tt_pass *pass,
                              const struct saved *saved, int i, struct tt_half_gradient *gradient)
{
    tt_tensor dsum_TD;
    TT_TRY(push_gradient(pass, "gradient of joined halves", gradient->dy_TD, &dsum_TD));
    TT_TRY(tt_norm_backward_to(half->joint_norm, pass, saved->residual_TD[i], saved->rstd_T[i],
                               gradient->dy_TD, dsum_TD, NULL));
    gradient->dy_TD = dsum_TD;
    gradient->dy_rows = (struct tt_quantized_rows){.made = false};
    gradient->carries = false;
    return TT_OK;
}

/* The two halves i - 1 and i, of which the second reads the stream of the first: dx is the sum of what reaches it
 * through both and beside them. */
static tt_status backward_beside(const struct tt_layer *layer, const struct tt_pass *pass,
                                 const struct saved *saved, int i, struct tt_half_gradient *gradient)
{
    const struct tt_half *second = &layer->halves[i], *first = &layer->halves[i - 1];
    tt_tensor dy_TD = gradient->dy_TD;
    bool wanted = !tt_tensor_is_empty(gradient->dx_TD), joined = second->joint_norm != NULL;
    if (joined) TT_TRY(begin_joined(second, pass, saved, i, gradient));
    struct tt_half_gradient side = *gradient;
    side.carries = false;
    side.scale = second->scale;
    gradient->scale = first->scale;
    gradient->dx_reader = side.dx_reader = NULL; /* rows are whole only behind the sum */
    if (wanted) TT_TRY(push_gradient(pass, "gradient beside a half", gradient->dy_TD, &side.dx_TD));
    TT_TRY(second->ops->backward(second, pass, saved->halves[i].bytes, &side));
    TT_TRY(first->ops->backward(first, pass, saved->halves[i - 1].bytes, gradient));
    struct tt_add_args add = {.a = gradient->dx_TD, .b = side.dx_TD, .y = gradient->dx_TD};
    if (wanted) TT_TRY(tt_add(pass->lent.stream, &add));
    if (!joined) return TT_OK;
    gradient->carries = true;
    add.b = dy_TD;
    return wanted ? tt_add(pass->lent.stream, &add) : TT_OK;
}

/* Half i alone, or with the one that it is beside. A half writes dx apart from dy, whose memory a layer may share. */
static tt_status backward_half(const struct tt_layer *layer, const struct tt_pass *pass,
                               const struct saved *saved, int i, struct tt_half_gradient *gradient)
{
    const struct tt_half *half = &layer->halves[i];
    tt_tensor dx_TD = gradient->dx_TD;
    gradient->scale = half->scale;
    bool shares = !tt_tensor_is_empty(dx_TD) && dx_TD.data == gradient->dy_TD.data;
    if (shares) TT_TRY(push_gradient(pass, "gradient of a half", gradient->dy_TD, &gradient->dx_TD));
    TT_TRY(half->beside ? backward_beside(layer, pass, saved, i, gradient)
                        : half->ops->backward(half, pass, saved->halves[i].bytes, gradient));
    if (!shares) return TT_OK;
    size_t bytes = (size_t)tt_tensor_count(dx_TD) * tt_dtype_bytes(dx_TD.dtype);
    return tt_copy_on_device(pass->lent.stream, dx_TD.data, gradient->dx_TD.data, bytes);
}

static tt_status backward(struct tt_block *block, const struct tt_pass *pass, tt_tensor x_TD,
                          const void *record, tt_tensor dy_TD, tt_tensor dx_TD)
{
    const struct tt_layer *layer = block->impl;
    const struct saved *saved = record;
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    struct tt_half_gradient gradient = {.dy_TD = dy_TD, .carries = true};
    tt_tensor turns[2] = {{0}, {0}}; /* memory for gradients between halves */
    if (pass->in.batch->token_count == 0) return backward_empty(layer, pass, saved);
    TT_TRY(scale_stream(layer, pass, dy_TD));
    for (int i = layer->count - 1, turn = 0; i >= 0; i--, turn ^= 1) {
        int first = layer->halves[i].beside ? i - 1 : i; /* of the halves that run now */
        bool goes_on = !tt_tensor_is_empty(dx_TD) || runs_before(layer, first);
        gradient.x_TD = stream_of(layer, saved, x_TD, i);
        gradient.dx_TD = dx_TD;
        gradient.dx_reader = NULL;
        if (first > 0) {
            const struct tt_half *next = &layer->halves[first - 1];
            if (tt_tensor_is_empty(turns[turn]))
                TT_TRY(push_gradient(pass, "gradient between halves", dy_TD, &turns[turn]));
            gradient.dx_TD = turns[turn];
            if (goes_on) gradient.dx_reader = reader_of(next);
        }
        TT_TRY(backward_half(layer, pass, saved, i, &gradient));
        if (!goes_on) break;
        i = first;
        gradient.dy_TD = gradient.dx_TD;
        gradient.dy_rows = gradient.dx_rows;
    }
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static tt_status visit_linears(const struct tt_block *block, tt_linear_visit *visit, void *context)
{
    const struct tt_layer *layer = block->impl;
    for (int i = 0; i < layer->count; i++)
        TT_TRY(layer->halves[i].ops->visit_linears(&layer->halves[i], visit, context));
    return TT_OK;
}

static double flops(const struct tt_block *block, double length, bool full)
{
    const struct tt_layer *layer = block->impl;
    double sum = 0;
    for (int i = 0; i < layer->count; i++)
        sum += layer->halves[i].ops->flops(&layer->halves[i], length, full);
    return sum;
}

const struct tt_block_ops tt_layer_ops = {
    .kind = "decoder layer",
    .role = TT_ROLE_LAYER,
    .levels = TT_LEVELS_ALL,
    .saved_bytes = sizeof(struct saved),
    .forward = forward,
    .backward = backward,
    .visit_linears = visit_linears,
    .flops = flops,
    .exchange = exchange,
};
