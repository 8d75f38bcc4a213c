#include "nn/mlp.h"

#include "backend/ops/elementwise.h"
#include "backend/ops/gemm_scaled.h"
#include "backend/ops/quant.h"
#include "backend/ops/swiglu.h"

tt_status tt_mlp_push_mid(const struct tt_pass *pass, int64_t dim, struct tt_mlp_saved *saved)
{
    return tt_workspace_2d(pass->lent.workspace, "residual after attention", pass->in.compute_dtype,
                           pass->in.batch->token_count, dim, &saved->x_mid_TD);
}

static bool has_post_norm(const struct tt_mlp *mlp)
{
    return mlp->post_norm.weight != NULL;
}

static tt_tensor gate_of(const struct tt_mlp_saved *saved)
{
    return tt_tensor_cols(saved->gate_up_TF2, 0, saved->gate_up_TF2.dims[1] / 2);
}

static tt_tensor up_of(const struct tt_mlp_saved *saved)
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
                            struct tt_mlp_saved *saved)
{
    int64_t ffn = tt_linear_group_out(&mlp->gate_up) / 2;
    struct tt_quant_layout *layout = &saved->coded_layout;
    TT_TRY(tt_quant_layout_make(tt_quant_format_make(TT_QUANT_FP8, false), tokens, ffn, layout));
    int64_t bytes = (int64_t)layout->bytes;
    TT_TRY(tt_workspace_1d(pass->lent.workspace, "gate in fp8", TT_U8, bytes, &saved->coded_gate));
    return tt_workspace_1d(pass->lent.workspace, "up in fp8", TT_U8, bytes, &saved->coded_up);
}

/* None where gate and up are kept as they are. */
static struct tt_swiglu_coded coded_of(const struct tt_mlp_saved *saved)
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
                           struct tt_mlp_saved *saved)
{
    TT_TRY(tt_workspace_1d(pass->lent.workspace, "rstd", TT_F32, tokens, &saved->rstd_T));
    if (has_post_norm(mlp))
        TT_TRY(tt_workspace_1d(pass->lent.workspace, "rstd of down", TT_F32, tokens, &saved->rstd_out_T));
    if (pass->in.level != TT_KEEP_ALL) return TT_OK;
    if (tt_linear_group_needs_x(&mlp->gate_up))
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

/* gate and up of norm(x_mid + x), also in FP8 where backward reads them so, and with `act_TF` the activation. */
static tt_status run_gate_up(const struct tt_mlp *mlp, const struct tt_pass *pass, tt_tensor x_TD, bool keep,
                             const struct tt_mlp_saved *saved, tt_tensor act_TF,
                             const struct tt_quantized_rows *rows)
{
    struct tt_swiglu_coded coded = coded_of(saved);
    bool encodes = tt_swiglu_is_coded(&coded), at_once = encodes && !tt_tensor_is_empty(rows->codes_MK);
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    tt_tensor n_TD = saved->n_TD;
    struct tt_quantized_rows n_rows;
    TT_TRY(tt_norm_push_result(&mlp->gate_up, pass, "normed input of the MLP", x_TD, &n_TD, &n_rows));
    TT_TRY(tt_norm_forward_add(&mlp->norm, pass, saved->x_mid_TD, x_TD, n_TD, saved->rstd_T, &n_rows));
    struct tt_linear_call call = tt_linear_call_tokens(&mlp->gate_up, pass, n_TD, saved->h_gate_up_TR);
    call.quantized = &n_rows;
    struct tt_linear_swiglu swiglu = {.activation = mlp->activation,
                                      .gate_up_TF2 = saved->gate_up_TF2,
                                      .act_TF = act_TF,
                                      .keep = keep,
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

/* y = x_mid + norm(out), out = down(act). Without y, backward needs out and its rstd all the same. */
static tt_status finish_with_norm(const struct tt_mlp *mlp, const struct tt_pass *pass,
                                  const struct tt_linear_call *down, const struct tt_mlp_saved *saved,
                                  tt_tensor y_TD)
{
    tt_tensor normed_TD = y_TD;
    TT_TRY(tt_linear_forward(down, saved->out_TD));
    if (tt_tensor_is_empty(y_TD))
        TT_TRY(tt_workspace_2d(pass->lent.workspace, "normed output of down", saved->out_TD.dtype,
                               saved->out_TD.dims[0], saved->out_TD.dims[1], &normed_TD));
    TT_TRY(tt_norm_forward(&mlp->post_norm, pass, saved->out_TD, normed_TD, saved->rstd_out_T, NULL));
    if (tt_tensor_is_empty(y_TD)) return TT_OK;
    struct tt_add_args add = {.a = saved->x_mid_TD, .b = y_TD, .y = y_TD};
    return tt_add(pass->lent.stream, &add);
}

/* y = x_mid + down(act), with memory for gate and up. Without y only the inputs of backward are computed: the kept
 * activation, and down's h. */
static tt_status run(const struct tt_mlp *mlp, const struct tt_pass *pass, tt_tensor x_TD, bool keep,
                     const struct tt_mlp_saved *saved, tt_tensor y_TD)
{
    size_t mark = tt_workspace_mark(pass->lent.workspace);
    tt_tensor act_TF = saved->act_TF, gate_up_TF2 = saved->gate_up_TF2;
    struct tt_quantized_rows rows = {.made = false};
    bool again = tt_tensor_is_empty(y_TD), codes = !again && makes_rows(mlp, TT_LINEAR_FORWARD);
    int64_t tokens = gate_up_TF2.dims[0], ffn = gate_up_TF2.dims[1] / 2;
    if (again && !has_post_norm(mlp) && tt_tensor_is_empty(act_TF) && tt_tensor_is_empty(saved->h_down_TR))
        return run_gate_up(mlp, pass, x_TD, keep, saved, (tt_tensor){0}, &rows);
    /* in place, because backward does not need gate */
    if (!keep)
        act_TF = gate_of(saved);
    else if (codes && tt_tensor_is_empty(act_TF) && makes_only_rows(pass, &mlp->down, ffn))
        act_TF = tt_tensor_2d(NULL, pass->in.compute_dtype, tokens, ffn);
    else if (tt_tensor_is_empty(act_TF))
        TT_TRY(tt_workspace_2d(pass->lent.workspace, "MLP activation", pass->in.compute_dtype, tokens, ffn,
                               &act_TF));
    if (codes) TT_TRY(tt_linear_push_quantized(pass, tokens, ffn, &rows));
    TT_TRY(run_gate_up(mlp, pass, x_TD, keep, saved, act_TF, &rows));
    struct tt_linear_call down = tt_linear_call_tokens(&mlp->down, pass, act_TF, saved->h_down_TR);
    if (codes) down.quantized = &rows;
    if (has_post_norm(mlp))
        TT_TRY(finish_with_norm(mlp, pass, &down, saved, y_TD));
    else if (again)
        TT_TRY(tt_linear_forward(&down, y_TD));
    else
        TT_TRY(tt_linear_forward_add(&down, saved->x_mid_TD, y_TD));
    tt_workspace_release(pass->lent.workspace, mark);
    return TT_OK;
}

tt_status tt_mlp_forward(const struct tt_mlp *mlp, const struct tt_pass *pass, tt_tensor x_TD, bool keep,
                         struct tt_mlp_saved *saved, tt_tensor y_TD)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    int64_t tokens = x_TD.dims[0];
    size_t start = tt_workspace_mark(workspace);
    bool codes = keep && mlp->codes_gate_up;
    saved->rstd_T = saved->rstd_out_T = saved->n_TD = saved->act_TF = saved->out_TD = (tt_tensor){0};
    saved->coded_gate = saved->coded_up = (tt_tensor){0};
    TT_TRY(codes ? push_coded(mlp, pass, tokens, saved)
                 : push_gate_up(mlp, pass, tokens, &saved->gate_up_TF2));
    TT_TRY(tt_linear_push_h(&mlp->gate_up, pass, tokens, &saved->h_gate_up_TR));
    TT_TRY(tt_linear_push_h(&mlp->down, pass, tokens, &saved->h_down_TR));
    if (has_post_norm(mlp))
        TT_TRY(tt_workspace_2d(workspace, "output of down", pass->in.compute_dtype, tokens, x_TD.dims[1],
                               &saved->out_TD));
    if (keep) TT_TRY(push_kept(mlp, pass, tokens, x_TD.dims[1], saved));
    size_t mark = tt_workspace_mark(workspace);
    if (codes) TT_TRY(push_gate_up(mlp, pass, tokens, &saved->gate_up_TF2));
    TT_TRY(run(mlp, pass, x_TD, keep, saved, y_TD));
    tt_workspace_release(workspace, keep ? mark : start);
    return TT_OK;
}

/* Memory for the gradients of gate and up: theirs; where they are coded scratch, which holds what their codes stand for
 * unless one operation decodes them as it makes the gradients' rows. Without memory where it makes only rows. */
static tt_status push_gradients(const struct tt_mlp *mlp, const struct tt_pass *pass,
                                const struct tt_mlp_saved *saved, bool at_once, bool only_rows,
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

/* The gradient of down's output: that of y, or behind the post norm scratch, with its rows in FP8 where down takes
 * them. */
static tt_status gradient_of_down(const struct tt_mlp *mlp, const struct tt_pass *pass,
                                  const struct tt_mlp_saved *saved, tt_tensor dy_TD, tt_tensor *dout_TD,
                                  struct tt_quantized_rows *rows)
{
    int64_t tokens = dy_TD.dims[0], dim = dy_TD.dims[1];
    *dout_TD = dy_TD;
    *rows = (struct tt_quantized_rows){.made = false};
    if (!has_post_norm(mlp)) return TT_OK;
    TT_TRY(tt_workspace_2d(pass->lent.workspace, "gradient of down", pass->in.compute_dtype, tokens, dim,
                           dout_TD));
    TT_TRY(tt_linear_push_quantized_for(&mlp->down, TT_LINEAR_BACKWARD, pass, tokens, dim, rows));
    return tt_norm_backward_to(&mlp->post_norm, pass, saved->out_TD, saved->rstd_out_T, dy_TD, *dout_TD,
                               rows);
}

tt_status tt_mlp_backward(const struct tt_mlp *mlp, const struct tt_pass *pass,
                          const struct tt_mlp_saved *saved, tt_tensor dy_TD, tt_tensor dmid_TD,
                          const struct tt_linear_group *reader, struct tt_quantized_rows *dmid_rows)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    int64_t tokens = dy_TD.dims[0], dim = dy_TD.dims[1], ffn = tt_linear_group_out(&mlp->gate_up) / 2;
    tt_tensor dact_TF, dh_TR, n_TD = saved->n_TD, gate_up_TF2;
    struct tt_quantized_rows rows = {.made = false};
    bool codes = makes_rows(mlp, TT_LINEAR_BACKWARD),
         only_rows = codes && makes_only_rows(pass, &mlp->gate_up, ffn);
    size_t start = tt_workspace_mark(workspace);
    if (codes) TT_TRY(tt_linear_push_quantized(pass, tokens, 2 * ffn, &rows));
    TT_TRY(push_gradients(mlp, pass, saved, codes, only_rows, &gate_up_TF2));
    size_t mark = tt_workspace_mark(workspace);

    tt_tensor dout_TD;
    struct tt_quantized_rows dout_rows;
    TT_TRY(gradient_of_down(mlp, pass, saved, dy_TD, &dout_TD, &dout_rows));
    /* d(act) first; then, in one pass, dgate and dup in place of gate and up, and act itself, unless it was
     * kept, in place of d(act). */
    TT_TRY(tt_workspace_2d(workspace, "gradient of the MLP activation", pass->in.compute_dtype, tokens, ffn,
                           &dact_TF));
    TT_TRY(tt_linear_push_h(&mlp->down, pass, tokens, &dh_TR));
    tt_tensor act_TF = saved->act_TF;
    bool again = tt_tensor_is_empty(act_TF) && tt_linear_group_needs_x(&mlp->down);
    if (again) act_TF = dact_TF;
    struct tt_linear_call down = tt_linear_call_tokens(&mlp->down, pass, act_TF, saved->h_down_TR);
    down.quantized = &dout_rows;
    struct tt_linear_swiglu swiglu = {.activation = mlp->activation,
                                      .gate_up_TF2 = gate_up_TF2,
                                      .act_TF = dact_TF,
                                      .keep = again,
                                      .quantized = rows,
                                      .only_rows = only_rows};
    if (codes) swiglu.coded = coded_of(saved);
    TT_TRY(tt_linear_backward_swiglu(&down, dout_TD, dh_TR, &swiglu));
    TT_TRY(tt_linear_backward_params(&down, dout_TD, dh_TR));
    tt_workspace_release(workspace, mark);

    TT_TRY(tt_linear_push_h(&mlp->gate_up, pass, tokens, &dh_TR));
    struct tt_linear_call gate_up = tt_linear_call_tokens(&mlp->gate_up, pass, n_TD, saved->h_gate_up_TR);
    if (codes) gate_up.quantized = &rows;
    TT_TRY(tt_linear_backward_input(&gate_up, gate_up_TF2, dh_TR, dmid_TD));
    if (tt_tensor_is_empty(n_TD) && tt_linear_group_needs_x(&mlp->gate_up)) {
        TT_TRY(tt_workspace_2d(workspace, "normed input of the MLP", pass->in.compute_dtype, tokens, dim,
                               &n_TD));
        TT_TRY(tt_norm_forward(&mlp->norm, pass, saved->x_mid_TD, n_TD, (tt_tensor){0}, NULL));
    }
    gate_up.x_TI = n_TD;
    TT_TRY(tt_linear_backward_params(&gate_up, gate_up_TF2, dh_TR));
    tt_workspace_release(workspace, start);
    if (dmid_rows != NULL)
        TT_TRY(tt_linear_push_quantized_for(reader, TT_LINEAR_BACKWARD, pass, tokens, dim, dmid_rows));
    return tt_norm_backward(&mlp->norm, pass, saved->x_mid_TD, saved->rstd_T, dy_TD, dmid_TD, dmid_rows);
}
