#include "nn/mlp.h"

#include "backend/ops/gemm_scaled.h"
#include "backend/ops/quant.h"
#include "backend/ops/swiglu.h"

struct saved {
    tt_tensor gate_up_TF2, h_gate_up_TR, h_down_TR, rstd_T;
    /* with codes_gate_up: of gate, and of up; gate_up_TF2 is then scratch */
    struct tt_quant_layout coded_layout;
    tt_tensor coded_gate, coded_up; /* empty: gate_up_TF2 is kept */
    tt_tensor out_TD, rstd_out_T;   /* with a post norm: its input */
    tt_tensor n_TD, act_TF;         /* empty: recomputed */
};
_Static_assert(sizeof(struct saved) <= TT_HALF_SAVED_BYTES, "the layer's record has room for it");

static bool has_norm(const struct tt_mlp *mlp)
{
    return tt_norm_exists(&mlp->norm);
}

static bool has_post_norm(const struct tt_mlp *mlp)
{
    return tt_norm_exists(&mlp->post_norm);
}

static tt_tensor gate_of(const struct saved *saved)
{
    return tt_tensor_cols(saved->gate_up_TF2, 0, saved->gate_up_TF2.dims[1] / 2);
}

static tt_tensor up_of(const struct saved *saved)
{
    int64_t ffn = saved->gate_up_TF2.dims[1] / 2;
    return tt_tensor_cols(saved->gate_up_TF2, ffn, ffn);
}

static tt_status push_gate_up(const struct tt_mlp *mlp, const struct tt_pass *pass, int64_t tokens,
                              tt_tensor *gate_up_TF2)
{
    return tt_workspace_2d(pass->lent.workspace, "gate and up", pass->in.compute_dtype, tokens,
                           tt_linear_group_out(&mlp->gate_up), gate_up_TF2);
}

static tt_status push_coded(const struct tt_mlp *mlp, const struct tt_pass *pass, int64_t tokens,
                            struct saved *saved)
{
    int64_t ffn = tt_linear_group_out(&mlp->gate_up) / 2;
    struct tt_quant_layout *layout = &saved->coded_layout;
    TT_TRY(tt_quant_layout_make(tt_quant_format_make(tt_quant_multiplied(), false), tokens, ffn, layout));
    int64_t bytes = (int64_t)layout->bytes;
    TT_TRY(tt_workspace_1d(pass->lent.workspace, "gate in fp8", TT_U8, bytes, &saved->coded_gate));
    return tt_workspace_1d(pass->lent.workspace, "up in fp8", TT_U8, bytes, &saved->coded_up);
}

/* None where gate and up are kept as they are. */
static struct tt_swiglu_coded coded_of(const struct saved *saved)
{
    if (tt_tensor_is_empty(saved->coded_gate)) return (struct tt_swiglu_coded){.gate_TF = {.layout = NULL}};
    return (struct tt_swiglu_coded){{&saved->coded_layout, saved->coded_gate},
                                    {&saved->coded_layout, saved->coded_up}};
}

static tt_status encode(const struct tt_pass *pass, tt_tensor x_TF, const struct tt_coded *to)
{
    struct tt_quantize_rows_args args = {x_TF, tt_coded_codes(to), tt_coded_scales(to)};
    return tt_quantize_rows(pass->lent.stream, &args);
}

static tt_status decode(const struct tt_pass *pass, const struct tt_coded *from, tt_tensor x_TF)
{
    struct tt_dequantize_args args = {.layout = *from->layout, .packed = from->packed, .y_NK = x_TF};
    return tt_dequantize(pass->lent.stream, &args);
}

/* Pushes n and the activation where they are kept; otherwise they are pushed later as scratch, above all kept
 * results. */
static tt_status push_kept(const struct tt_mlp *mlp, const struct tt_pass *pass, int64_t tokens, int64_t dim,
                           struct saved *saved)
{
    if (has_norm(mlp)) TT_TRY(tt_workspace_1d(pass->lent.workspace, "rstd", TT_F32, tokens, &saved->rstd_T));
    if (has_post_norm(mlp))
        TT_TRY(tt_workspace_1d(pass->lent.workspace, "rstd of down", TT_F32, tokens, &saved->rstd_out_T));
    if (pass->in.level != TT_KEEP_ALL) return TT_OK;
    if (has_norm(mlp) && tt_linear_group_needs_x(&mlp->gate_up))
        TT_TRY(tt_workspace_2d(pass->lent.workspace, "kept input of the MLP", pass->in.compute_dtype, tokens,
                               dim, &saved->n_TD));
    if (!tt_linear_group_needs_x(&mlp->down) || mlp->codes_gate_up) return TT_OK;
    return tt_workspace_2d(pass->lent.workspace, "kept MLP activation", pass->in.compute_dtype, tokens,
                           saved->gate_up_TF2.dims[1] / 2, &saved->act_TF);
}

/* Whether SwiGLU also writes its result in FP8, because the product that reads it multiplies codes. */
static bool makes_rows(const struct tt_mlp *mlp, enum tt_linear_way way)
{
    return tt_linear_takes_quantized(&mlp->gate_up, way) && tt_linear_takes_quantized(&mlp->down, way);
}

/* Whether it then writes nothing else: one kernel does all of it, and no adapter of `reader` reads the result. */
static bool makes_only_rows(const struct tt_pass *pass, const struct tt_linear_group *reader, int64_t ffn)
{
    const struct tt_device *device = tt_stream_device(pass->lent.stream);
    return tt_swiglu_rows_in_one_pass(device, ffn, pass->in.compute_dtype) && !tt_linear_reads_values(reader);
}

/* gate and up of the normed stream, also in FP8 where backward reads them so, and with `act_TF` the activation. */
static tt_status run_gate_up(const struct tt_mlp *mlp, const struct tt_pass *pass,
                             const struct tt_half_input *in, const struct saved *saved, tt_tensor act_TF,
                             const struct tt_quantized_rows *rows)
{
    struct tt_swiglu_coded coded = coded_of(saved);
    bool encodes = tt_swiglu_is_coded(&coded), at_once = encodes && !tt_tensor_is_empty(rows->codes_MK);
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    tt_tensor n_TD = saved->n_TD;
    struct tt_quantized_rows n_rows;
    TT_TRY(tt_half_push_norm(&mlp->norm, &mlp->gate_up, pass, in, "normed input of the MLP", saved->rstd_T,
                             &n_TD, &n_rows));
    struct tt_linear_call call = tt_linear_call_tokens(&mlp->gate_up, pass, n_TD, saved->h_gate_up_TR);
    call.quantized = &n_rows;
    struct tt_linear_swiglu swiglu = {.activation = mlp->activation,
                                      .gate_up_TF2 = saved->gate_up_TF2,
                                      .act_TF = act_TF,
                                      .keep = in->keep,
                                      .quantized = *rows,
                                      .only_rows = act_TF.data == NULL};
    if (at_once) swiglu.coded = coded;
    if (tt_tensor_is_empty(act_TF))
        TT_TRY(tt_linear_forward(&call, saved->gate_up_TF2));
    else
        TT_TRY(tt_linear_forward_swiglu(&call, &swiglu));
    if (encodes && !at_once) {
        TT_TRY(encode(pass, gate_of(saved), &coded.gate_TF));
        TT_TRY(encode(pass, up_of(saved), &coded.up_TF));
    }
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

/* The whole half, with memory for gate and up. Without y only the inputs of backward are computed: the kept activation,
 * and down's h. */
static tt_status run(const struct tt_mlp *mlp, const struct tt_pass *pass, const struct tt_half_input *in,
                     const struct saved *saved)
{
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    tt_tensor act_TF = saved->act_TF, gate_up_TF2 = saved->gate_up_TF2;
    struct tt_quantized_rows rows = {.made = false};
    bool again = tt_tensor_is_empty(in->y_TD), codes = !again && makes_rows(mlp, TT_LINEAR_FORWARD);
    int64_t tokens = gate_up_TF2.dims[0], ffn = gate_up_TF2.dims[1] / 2;
    if (again && !has_post_norm(mlp) && tt_tensor_is_empty(act_TF) && tt_tensor_is_empty(saved->h_down_TR))
        return run_gate_up(mlp, pass, in, saved, (tt_tensor){0}, &rows);
    /* in place, because backward does not need gate */
    if (!in->keep)
        act_TF = gate_of(saved);
    else if (codes && tt_tensor_is_empty(act_TF) && makes_only_rows(pass, &mlp->down, ffn))
        act_TF = tt_tensor_2d(NULL, pass->in.compute_dtype, tokens, ffn);
    else if (tt_tensor_is_empty(act_TF))
        TT_TRY(tt_workspace_2d(pass->lent.workspace, "MLP activation", pass->in.compute_dtype, tokens, ffn,
                               &act_TF));
    if (codes) TT_TRY(tt_linear_push_quantized(pass, tokens, ffn, &rows));
    TT_TRY(run_gate_up(mlp, pass, in, saved, act_TF, &rows));
    struct tt_linear_call down = tt_linear_call_tokens(&mlp->down, pass, act_TF, saved->h_down_TR);
    if (codes) down.quantized = &rows;
    TT_TRY(tt_half_finish(&mlp->post_norm, &down, in, saved->out_TD, saved->rstd_out_T));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

static tt_status forward(const struct tt_half *half, const struct tt_pass *pass,
                         const struct tt_half_input *in, void *record)
{
    const struct tt_mlp *mlp = half->impl;
    struct saved *saved = record;
    struct tt_workspace *workspace = pass->lent.workspace;
    int64_t tokens = in->x_TD.dims[0], dim = in->x_TD.dims[1];
    size_t start = tt_workspace_mark(workspace);
    bool codes = in->keep && mlp->codes_gate_up;
    *saved = (struct saved){.gate_up_TF2 = {0}};
    TT_TRY(codes ? push_coded(mlp, pass, tokens, saved)
                 : push_gate_up(mlp, pass, tokens, &saved->gate_up_TF2));
    TT_TRY(tt_linear_push_h(&mlp->gate_up, pass, tokens, &saved->h_gate_up_TR));
    TT_TRY(tt_linear_push_h(&mlp->down, pass, tokens, &saved->h_down_TR));
    if (has_post_norm(mlp))
        TT_TRY(tt_workspace_2d(workspace, "output of down", pass->in.compute_dtype, tokens, dim,
                               &saved->out_TD));
    if (in->keep) TT_TRY(push_kept(mlp, pass, tokens, dim, saved));
    size_t mark = tt_workspace_mark(workspace);
    if (codes) TT_TRY(push_gate_up(mlp, pass, tokens, &saved->gate_up_TF2));
    TT_TRY(run(mlp, pass, in, saved));
    tt_workspace_release(workspace, in->keep ? mark : start);
    return TT_OK;
}

/* Memory for the gradients of gate and up: theirs; where they are coded scratch, which holds what their codes stand for
 * unless one operation decodes them as it makes the gradients' rows. Without memory where it makes only rows. */
static tt_status push_gradients(const struct tt_mlp *mlp, const struct tt_pass *pass,
                                const struct saved *saved, bool at_once, bool only_rows,
                                tt_tensor *gate_up_TF2)
{
    struct tt_swiglu_coded coded = coded_of(saved);
    int64_t ffn2 = tt_linear_group_out(&mlp->gate_up);
    *gate_up_TF2 = saved->gate_up_TF2;
    if (!tt_swiglu_is_coded(&coded)) return TT_OK;
    int64_t tokens = coded.gate_TF.layout->rows;
    *gate_up_TF2 = tt_tensor_2d(NULL, pass->in.compute_dtype, tokens, ffn2);
    if (at_once && only_rows) return TT_OK;
    TT_TRY(push_gate_up(mlp, pass, tokens, gate_up_TF2));
    if (at_once) return TT_OK;
    TT_TRY(decode(pass, &coded.gate_TF, tt_tensor_cols(*gate_up_TF2, 0, ffn2 / 2)));
    return decode(pass, &coded.up_TF, tt_tensor_cols(*gate_up_TF2, ffn2 / 2, ffn2 / 2));
}

/* Gradients behind and of down: d(act) first; then, in one pass, dgate and dup in place of gate and up, and act itself,
 * unless it was kept, in place of d(act). */
static tt_status backward_down(const struct tt_mlp *mlp, const struct tt_pass *pass,
                               const struct saved *saved, const struct tt_half_gradient *gradient,
                               struct tt_linear_swiglu *swiglu)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    int64_t tokens = gradient->dy_TD.dims[0], ffn = tt_linear_group_out(&mlp->gate_up) / 2;
    size_t mark = tt_workspace_mark(workspace);
    tt_tensor dout_TD, dact_TF, dh_TR, act_TF = saved->act_TF;
    struct tt_quantized_rows dout_rows;
    TT_TRY(tt_half_begin_backward(&mlp->post_norm, &mlp->down, pass, gradient, "gradient of down",
                                  saved->out_TD, saved->rstd_out_T, &dout_TD, &dout_rows));
    TT_TRY(tt_workspace_2d(workspace, "gradient of the MLP activation", pass->in.compute_dtype, tokens, ffn,
                           &dact_TF));
    TT_TRY(tt_linear_push_h(&mlp->down, pass, tokens, &dh_TR));
    swiglu->keep = tt_tensor_is_empty(act_TF) && tt_linear_group_needs_x(&mlp->down);
    if (swiglu->keep) act_TF = dact_TF;
    swiglu->act_TF = dact_TF;
    struct tt_linear_call down = tt_linear_call_tokens(&mlp->down, pass, act_TF, saved->h_down_TR);
    down.quantized = &dout_rows;
    TT_TRY(tt_linear_backward_swiglu(&down, dout_TD, dh_TR, swiglu));
    TT_TRY(tt_linear_backward_params(&down, dout_TD, dh_TR));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

static tt_status backward(const struct tt_half *half, const struct tt_pass *pass, const void *record,
                          struct tt_half_gradient *gradient)
{
    const struct tt_mlp *mlp = half->impl;
    const struct saved *saved = record;
    struct tt_workspace *workspace = pass->lent.workspace;
    int64_t tokens = gradient->dy_TD.dims[0], ffn = tt_linear_group_out(&mlp->gate_up) / 2;
    tt_tensor dh_TR, n_TD = saved->n_TD, dn_TD = gradient->dx_TD;
    struct tt_quantized_rows rows = {.made = false};
    bool codes = makes_rows(mlp, TT_LINEAR_BACKWARD),
         only_rows = codes && makes_only_rows(pass, &mlp->gate_up, ffn);
    TT_TRY(tt_half_push_gradient(&mlp->norm, pass, gradient, &dn_TD));
    size_t start = tt_workspace_mark(workspace);
    if (codes) TT_TRY(tt_linear_push_quantized(pass, tokens, 2 * ffn, &rows));
    struct tt_linear_swiglu swiglu = {
        .activation = mlp->activation, .quantized = rows, .only_rows = only_rows};
    TT_TRY(push_gradients(mlp, pass, saved, codes, only_rows, &swiglu.gate_up_TF2));
    if (codes) swiglu.coded = coded_of(saved);
    TT_TRY(backward_down(mlp, pass, saved, gradient, &swiglu));

    TT_TRY(tt_linear_push_h(&mlp->gate_up, pass, tokens, &dh_TR));
    struct tt_linear_call gate_up = tt_linear_call_tokens(&mlp->gate_up, pass, n_TD, saved->h_gate_up_TR);
    if (codes) gate_up.quantized = &rows;
    TT_TRY(tt_linear_backward_input(&gate_up, swiglu.gate_up_TF2, dh_TR, dn_TD));
    if (tt_linear_group_needs_x(&mlp->gate_up))
        TT_TRY(tt_half_push_norm_again(&mlp->norm, pass, gradient, "normed input of the MLP", &n_TD));
    gate_up.x_TI = n_TD;
    TT_TRY(tt_linear_backward_params(&gate_up, swiglu.gate_up_TF2, dh_TR));
    tt_workspace_release(workspace, start);
    return tt_half_end_backward(&mlp->norm, pass, gradient, saved->rstd_T, dn_TD);
}

static const struct tt_linear_group *reader(const struct tt_half *half)
{
    const struct tt_mlp *mlp = half->impl;
    return has_post_norm(mlp) ? NULL : &mlp->down;
}

static bool trains(const struct tt_half *half)
{
    const struct tt_mlp *mlp = half->impl;
    return tt_norm_trains(&mlp->norm) || tt_norm_trains(&mlp->post_norm) ||
           tt_linear_group_trains(&mlp->gate_up) || tt_linear_group_trains(&mlp->down);
}

static tt_status visit_linears(const struct tt_half *half, tt_linear_visit *visit, void *context)
{
    const struct tt_mlp *mlp = half->impl;
    TT_TRY(tt_linear_group_visit(&mlp->gate_up, visit, context));
    return tt_linear_group_visit(&mlp->down, visit, context);
}

static double flops(const struct tt_half *half, double length, bool full)
{
    const struct tt_mlp *mlp = half->impl;
    (void)length;
    return tt_linear_group_flops(&mlp->gate_up, full) + tt_linear_group_flops(&mlp->down, full);
}

const struct tt_half_ops tt_mlp_half = {
    .kind = "MLP",
    .residual = "residual after MLP",
    .forward = forward,
    .backward = backward,
    .reader = reader,
    .trains = trains,
    .visit_linears = visit_linears,
    .flops = flops,
};
