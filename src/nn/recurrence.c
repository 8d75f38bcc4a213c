#include "nn/recurrence.h"

#include <math.h>

#include "nn/kv_cache.h"

struct saved {
    tt_tensor in_TP, h_in_TR, rates_TC, h_rates_TR, o_TN, h_out_TR, rstd_T, rstd_TG;
    tt_tensor n_TD, conv_TC, y_TN; /* empty: recomputed */
};
_Static_assert(sizeof(struct saved) <= TT_HALF_SAVED_BYTES, "the layer's record has room for it");

static const struct tt_norm no_norm;

static bool has_rates(const struct tt_recurrence *recurrence)
{
    return recurrence->rates.count > 0;
}

/* Columns of o, and of the gate. */
static int64_t values(const struct tt_recurrence *recurrence)
{
    return recurrence->heads * recurrence->value_dim;
}

static bool needs_input(const struct tt_recurrence *recurrence)
{
    return tt_linear_group_needs_x(&recurrence->in) || tt_linear_group_needs_x(&recurrence->rates);
}

static bool trains(const struct tt_half *half)
{
    const struct tt_recurrence *recurrence = half->impl;
    const tt_param *own[] = {recurrence->conv_weight, recurrence->conv_bias, recurrence->a_log,
                             recurrence->dt_bias,     recurrence->skip,      recurrence->gate_weight};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i] != NULL && own[i]->trainable) return true;
    return tt_norm_trains(&recurrence->norm) || tt_linear_group_trains(&recurrence->in) ||
           tt_linear_group_trains(&recurrence->rates) || tt_linear_group_trains(&recurrence->out);
}

/* The convolution's weight, or its gradient, [C, 1, J] as [C, J]. */
static tt_tensor as_matrix(const struct tt_recurrence *recurrence, tt_tensor x)
{
    const int64_t *dims = recurrence->conv_weight->dims;
    return tt_tensor_is_empty(x) ? x : tt_tensor_2d(x.data, x.dtype, dims[0], dims[2]);
}

/* ---- Columns ---- */

static tt_tensor gate_of(const struct tt_recurrence *recurrence, tt_tensor in_TP)
{
    return tt_tensor_cols(in_TP, recurrence->gate_column, values(recurrence));
}

static tt_tensor conv_of(const struct tt_recurrence *recurrence, tt_tensor in_TP)
{
    return tt_tensor_cols(in_TP, recurrence->conv_column, tt_recurrence_columns(recurrence));
}

/* The rates of the state, of one kind of them: b is the first of the delta rule, a the last of both rules. */
static tt_tensor rates_of(const struct tt_recurrence *recurrence, tt_tensor in_TP, tt_tensor rates_TC,
                          bool last)
{
    int64_t heads = recurrence->heads;
    if (!has_rates(recurrence)) return tt_tensor_cols(in_TP, recurrence->rate_column, heads);
    return tt_tensor_cols(rates_TC, last ? tt_linear_group_out(&recurrence->rates) - heads : 0, heads);
}

struct qkv {
    tt_tensor q_TKE, k_TKE, v_THW;
};

static struct qkv split(const struct tt_recurrence *recurrence, tt_tensor conv_TC)
{
    int64_t keys = recurrence->key_heads * recurrence->key_dim, all = values(recurrence);
    bool delta = recurrence->rule == TT_SCAN_DELTA;
    int64_t q = delta ? 0 : all + keys, k = delta ? keys : all, v = delta ? 2 * keys : 0;
    return (struct qkv){
        .q_TKE = tt_tensor_heads(tt_tensor_cols(conv_TC, q, keys), recurrence->key_heads),
        .k_TKE = tt_tensor_heads(tt_tensor_cols(conv_TC, k, keys), recurrence->key_heads),
        .v_THW = tt_tensor_heads(tt_tensor_cols(conv_TC, v, all), recurrence->heads),
    };
}

/* ---- Memory ---- */

static tt_status push(const struct tt_pass *pass, const char *name, int64_t tokens, int64_t columns,
                      tt_tensor *out)
{
    return tt_workspace_2d(pass->lent.workspace, name, pass->in.compute_dtype, tokens, columns, out);
}

static tt_status push_kept(const struct tt_recurrence *recurrence, const struct tt_pass *pass, tt_tensor x_TD,
                           bool keep, struct saved *saved)
{
    int64_t tokens = x_TD.dims[0];
    struct tt_workspace *workspace = pass->lent.workspace;
    *saved = (struct saved){0};
    TT_TRY(push(pass, "projections of a state", tokens, tt_linear_group_out(&recurrence->in), &saved->in_TP));
    if (has_rates(recurrence))
        TT_TRY(push(pass, "rates of a state", tokens, tt_linear_group_out(&recurrence->rates),
                    &saved->rates_TC));
    TT_TRY(push(pass, "output of a state", tokens, values(recurrence), &saved->o_TN));
    TT_TRY(tt_linear_push_h(&recurrence->in, pass, tokens, &saved->h_in_TR));
    TT_TRY(tt_linear_push_h(&recurrence->rates, pass, tokens, &saved->h_rates_TR));
    TT_TRY(tt_linear_push_h(&recurrence->out, pass, tokens, &saved->h_out_TR));
    if (!keep) return TT_OK;
    TT_TRY(tt_workspace_1d(workspace, "rstd", TT_F32, tokens, &saved->rstd_T));
    TT_TRY(tt_workspace_2d(workspace, "rstd of the gated norm", TT_F32, tokens, recurrence->gate_groups,
                           &saved->rstd_TG));
    if (pass->in.level != TT_KEEP_ALL) return TT_OK;
    if (needs_input(recurrence))
        TT_TRY(push(pass, "kept input of a state", tokens, x_TD.dims[1], &saved->n_TD));
    if (tt_linear_group_needs_x(&recurrence->out))
        TT_TRY(push(pass, "kept gated output", tokens, values(recurrence), &saved->y_TN));
    return push(pass, "kept convolution", tokens, tt_recurrence_columns(recurrence), &saved->conv_TC);
}

/* The place of a result: the kept one, or scratch that is pushed here. */
static tt_status push_unless_kept(const struct tt_pass *pass, const char *name, int64_t tokens,
                                  int64_t columns, tt_tensor kept, tt_tensor *out)
{
    *out = kept;
    return tt_tensor_is_empty(kept) ? push(pass, name, tokens, columns, out) : TT_OK;
}

static tt_status push_scratch(const struct tt_pass *pass, size_t bytes, tt_tensor *scratch)
{
    if (bytes == 0) return TT_OK;
    return tt_workspace_1d(pass->lent.workspace, "scratch of a state", TT_U8, (int64_t)bytes, scratch);
}

/* ---- The ops ---- */

static struct tt_sequences sequences_of(const struct tt_pass *pass)
{
    const struct tt_device_batch *batch = pass->in.batch;
    return (struct tt_sequences){batch->host_cu_seqlens, batch->cu_seqlens, batch->sequence_count};
}

static struct tt_conv1d_forward_args conv_args(const struct tt_recurrence *recurrence,
                                               const struct tt_pass *pass, const struct saved *saved,
                                               tt_tensor conv_TC)
{
    struct tt_conv1d_forward_args args = {.sequences = sequences_of(pass),
                                          .x_TC = conv_of(recurrence, saved->in_TP),
                                          .w_CJ =
                                              as_matrix(recurrence, tt_param_value(recurrence->conv_weight)),
                                          .bias_C = tt_param_value(recurrence->conv_bias),
                                          .silu = true,
                                          .y_TC = conv_TC};
    if (pass->lent.cache != NULL)
        tt_kv_cache_states(pass->lent.cache, recurrence->layer, TT_STATE_CONV, &args.sequences, &args.states);
    return args;
}

static struct tt_scan_forward_args scan_args(const struct tt_recurrence *recurrence,
                                             const struct tt_pass *pass, const struct saved *saved,
                                             tt_tensor conv_TC)
{
    const struct qkv qkv = split(recurrence, conv_TC);
    bool delta = recurrence->rule == TT_SCAN_DELTA;
    struct tt_scan_forward_args args = {
        .rule = recurrence->rule,
        .sequences = sequences_of(pass),
        .q_TKE = qkv.q_TKE,
        .k_TKE = qkv.k_TKE,
        .v_THW = qkv.v_THW,
        .a_TH = rates_of(recurrence, saved->in_TP, saved->rates_TC, true),
        .a_log_H = tt_param_value(recurrence->a_log),
        .dt_bias_H = tt_param_value(recurrence->dt_bias),
        .skip_H = tt_param_value(recurrence->skip),
        .dt_min = recurrence->dt_min,
        .dt_max = recurrence->dt_max,
        .scale = delta ? 1 / sqrt((double)recurrence->key_dim) : 1,
        .norm_eps = delta ? 1e-6 : 0, /* Qwen's l2norm */
        .o_THW = tt_tensor_heads(saved->o_TN, recurrence->heads),
    };
    if (delta) args.b_TH = rates_of(recurrence, saved->in_TP, saved->rates_TC, false);
    if (pass->lent.cache != NULL)
        tt_kv_cache_states(pass->lent.cache, recurrence->layer, TT_STATE_SCAN, &args.sequences, &args.states);
    return args;
}

/* `rows`: y's rows in FP8, where they have memory; NULL: none. */
static tt_status run_gated_norm(const struct tt_recurrence *recurrence, const struct tt_pass *pass,
                                const struct saved *saved, tt_tensor rstd_TG, tt_tensor y_TN,
                                const struct tt_quantized_rows *rows)
{
    struct tt_gated_norm_forward_args args = {.x_TN = saved->o_TN,
                                              .z_TN = gate_of(recurrence, saved->in_TP),
                                              .weight_N = tt_param_value(recurrence->gate_weight),
                                              .groups = recurrence->gate_groups,
                                              .eps = recurrence->gate_eps,
                                              .gate = TT_GATE_SILU,
                                              .gate_first = recurrence->gate_first,
                                              .y_TN = y_TN,
                                              .rstd_TG = rstd_TG};
    if (rows != NULL) args.codes_TN = rows->codes_MK, args.scale_T = rows->scale_M;
    return tt_gated_norm_forward(pass->lent.stream, &args);
}

/* ---- Forward ---- */

static tt_status project(const struct tt_recurrence *recurrence, const struct tt_pass *pass,
                         const struct tt_half_input *in, const struct saved *saved)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    size_t mark = tt_workspace_mark(workspace);
    tt_tensor n_TD = saved->n_TD;
    struct tt_quantized_rows rows;
    /* the linears of the rates read values, whatever the others read */
    if (has_rates(recurrence) && tt_tensor_is_empty(n_TD))
        TT_TRY(push(pass, "normed input of a state", in->x_TD.dims[0], in->x_TD.dims[1], &n_TD));
    TT_TRY(tt_half_push_norm(&recurrence->norm, &recurrence->in, pass, in, "normed input of a state",
                             saved->rstd_T, &n_TD, &rows));
    struct tt_linear_call call = tt_linear_call_tokens(&recurrence->in, pass, n_TD, saved->h_in_TR);
    call.quantized = &rows;
    TT_TRY(tt_linear_forward(&call, saved->in_TP));
    if (has_rates(recurrence)) {
        struct tt_linear_call rates =
            tt_linear_call_tokens(&recurrence->rates, pass, n_TD, saved->h_rates_TR);
        if (tt_linear_takes_quantized(&recurrence->rates, TT_LINEAR_FORWARD)) rates.quantized = &rows;
        TT_TRY(tt_linear_forward(&rates, saved->rates_TC));
    }
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

static tt_status run_scan(const struct tt_recurrence *recurrence, const struct tt_pass *pass,
                          const struct saved *saved)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    size_t mark = tt_workspace_mark(workspace);
    tt_tensor conv_TC;
    TT_TRY(push_unless_kept(pass, "convolution", saved->o_TN.dims[0], tt_recurrence_columns(recurrence),
                            saved->conv_TC, &conv_TC));
    struct tt_conv1d_forward_args conv = conv_args(recurrence, pass, saved, conv_TC);
    TT_TRY(tt_conv1d_forward(pass->lent.stream, &conv));
    struct tt_scan_forward_args scan = scan_args(recurrence, pass, saved, conv_TC);
    size_t bytes = tt_scan_forward_scratch(tt_stream_device(pass->lent.stream), &scan);
    TT_TRY(push_scratch(pass, bytes, &scan.scratch));
    TT_TRY(tt_scan_forward(pass->lent.stream, &scan));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

/* o -> the gated norm, the last linear and the sum. */
static tt_status finish(const struct tt_recurrence *recurrence, const struct tt_pass *pass,
                        const struct tt_half_input *in, const struct saved *saved)
{
    int64_t tokens = saved->o_TN.dims[0];
    tt_tensor y_TN = saved->o_TN; /* in its place where no backward pass follows */
    struct tt_quantized_rows rows = {.made = false};
    if (in->keep)
        TT_TRY(push_unless_kept(pass, "gated output", tokens, values(recurrence), saved->y_TN, &y_TN));
    if (!tt_tensor_is_empty(in->y_TD))
        TT_TRY(tt_linear_push_quantized_for(&recurrence->out, TT_LINEAR_FORWARD, pass, tokens,
                                            values(recurrence), &rows));
    TT_TRY(run_gated_norm(recurrence, pass, saved, saved->rstd_TG, y_TN, &rows));
    struct tt_linear_call out = tt_linear_call_tokens(&recurrence->out, pass, y_TN, saved->h_out_TR);
    out.quantized = &rows;
    if (tt_tensor_is_empty(in->y_TD) && tt_tensor_is_empty(saved->h_out_TR)) return TT_OK;
    return tt_half_finish(&no_norm, &out, in, (tt_tensor){0}, (tt_tensor){0});
}

static tt_status forward(const struct tt_half *half, const struct tt_pass *pass,
                         const struct tt_half_input *in, void *record)
{
    const struct tt_recurrence *recurrence = half->impl;
    struct saved *saved = record;
    struct tt_workspace *workspace = pass->lent.workspace;
    size_t start = tt_workspace_mark(workspace);
    TT_TRY(push_kept(recurrence, pass, in->x_TD, in->keep, saved));
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(project(recurrence, pass, in, saved));
    TT_TRY(run_scan(recurrence, pass, saved));
    TT_TRY(finish(recurrence, pass, in, saved));
    tt_workspace_release(workspace, in->keep ? mark : start);
    return TT_OK;
}

/* ---- Backward ---- */

/* dy -> the gradient of the gated norm's output, in dy_TN; adds to the gradients of the last linear. */
static tt_status out_back(const struct tt_recurrence *recurrence, const struct tt_pass *pass,
                          const struct saved *saved, const struct tt_half_gradient *gradient, tt_tensor dy_TN)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    size_t mark = tt_workspace_mark(workspace);
    tt_tensor y_TN = saved->y_TN;
    if (tt_tensor_is_empty(y_TN) && tt_linear_group_needs_x(&recurrence->out)) {
        TT_TRY(push(pass, "gated output", dy_TN.dims[0], values(recurrence), &y_TN));
        TT_TRY(run_gated_norm(recurrence, pass, saved, (tt_tensor){0}, y_TN, NULL));
    }
    TT_TRY(tt_half_last_back(&recurrence->out, pass, gradient, y_TN, saved->h_out_TR, dy_TN));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

/* dy_TN -> do in its place, and the gradient of the gate in its columns of din. */
static tt_status gated_norm_back(const struct tt_recurrence *recurrence, const struct tt_pass *pass,
                                 const struct saved *saved, tt_tensor dy_TN, tt_tensor din_TP)
{
    struct tt_gated_norm_backward_args args = {.dy_TN = dy_TN,
                                               .x_TN = saved->o_TN,
                                               .z_TN = gate_of(recurrence, saved->in_TP),
                                               .weight_N = tt_param_value(recurrence->gate_weight),
                                               .groups = recurrence->gate_groups,
                                               .gate = TT_GATE_SILU,
                                               .gate_first = recurrence->gate_first,
                                               .rstd_TG = saved->rstd_TG,
                                               .dx_TN = dy_TN,
                                               .dz_TN = gate_of(recurrence, din_TP),
                                               .dweight_N = tt_param_grad(recurrence->gate_weight)};
    return tt_gated_norm_backward(pass->lent.stream, &args);
}

/* do -> the gradients of the convolution's columns and of the rates. */
static tt_status scan_back(const struct tt_recurrence *recurrence, const struct tt_pass *pass,
                           const struct saved *saved, tt_tensor do_TN, tt_tensor din_TP, tt_tensor drates_TC)
{
    struct tt_workspace *workspace = pass->lent.workspace;
    size_t mark = tt_workspace_mark(workspace);
    int64_t tokens = do_TN.dims[0], columns = tt_recurrence_columns(recurrence);
    tt_tensor conv_TC, dconv_TC;
    TT_TRY(push(pass, "gradient of the convolution", tokens, columns, &dconv_TC));
    TT_TRY(push_unless_kept(pass, "convolution", tokens, columns, saved->conv_TC, &conv_TC));
    struct tt_conv1d_backward_args conv = {.forward = conv_args(recurrence, pass, saved, conv_TC),
                                           .dy_TC = dconv_TC,
                                           .dx_TC = conv_of(recurrence, din_TP),
                                           .dw_CJ =
                                               as_matrix(recurrence, tt_param_grad(recurrence->conv_weight)),
                                           .dbias_C = tt_param_grad(recurrence->conv_bias)};
    if (tt_tensor_is_empty(saved->conv_TC)) TT_TRY(tt_conv1d_forward(pass->lent.stream, &conv.forward));
    const struct qkv d = split(recurrence, dconv_TC);
    struct tt_scan_backward_args scan = {.forward = scan_args(recurrence, pass, saved, conv_TC),
                                         .do_THW = tt_tensor_heads(do_TN, recurrence->heads),
                                         .dq_TKE = d.q_TKE,
                                         .dk_TKE = d.k_TKE,
                                         .dv_THW = d.v_THW,
                                         .da_TH = rates_of(recurrence, din_TP, drates_TC, true),
                                         .da_log_H = tt_param_grad(recurrence->a_log),
                                         .ddt_bias_H = tt_param_grad(recurrence->dt_bias),
                                         .dskip_H = tt_param_grad(recurrence->skip)};
    if (recurrence->rule == TT_SCAN_DELTA) scan.db_TH = rates_of(recurrence, din_TP, drates_TC, false);
    size_t bytes = tt_scan_backward_scratch(tt_stream_device(pass->lent.stream), &scan);
    TT_TRY(push_scratch(pass, bytes, &scan.scratch));
    TT_TRY(tt_scan_backward(pass->lent.stream, &scan));
    conv.forward.y_TC = (tt_tensor){0};
    TT_TRY(tt_conv1d_backward(pass->lent.stream, &conv));
    tt_workspace_release(workspace, mark);
    return TT_OK;
}

static tt_status backward(const struct tt_half *half, const struct tt_pass *pass, const void *record,
                          struct tt_half_gradient *gradient)
{
    const struct tt_recurrence *recurrence = half->impl;
    const struct saved *saved = record;
    struct tt_workspace *workspace = pass->lent.workspace;
    int64_t tokens = gradient->dy_TD.dims[0];
    tt_tensor din_TP, drates_TC = {0}, dy_TN, dn_TD, n_TD = saved->n_TD;
    size_t mark = tt_workspace_mark(workspace);
    TT_TRY(push(pass, "gradient of projections", tokens, tt_linear_group_out(&recurrence->in), &din_TP));
    if (has_rates(recurrence))
        TT_TRY(push(pass, "gradient of rates", tokens, tt_linear_group_out(&recurrence->rates), &drates_TC));
    size_t scratch = tt_workspace_mark(workspace);
    TT_TRY(push(pass, "gradient of the gated output", tokens, values(recurrence), &dy_TN));
    TT_TRY(out_back(recurrence, pass, saved, gradient, dy_TN));
    TT_TRY(gated_norm_back(recurrence, pass, saved, dy_TN, din_TP));
    TT_TRY(scan_back(recurrence, pass, saved, dy_TN, din_TP, drates_TC));
    tt_workspace_release(workspace, scratch);

    TT_TRY(tt_half_push_gradient(&recurrence->norm, pass, gradient, &dn_TD));
    TT_TRY(tt_half_first_back(&recurrence->norm, &recurrence->in, pass, gradient, "normed input of a state",
                              needs_input(recurrence), din_TP, NULL, saved->h_in_TR, &n_TD, dn_TD));
    if (has_rates(recurrence))
        TT_TRY(tt_half_second_back(&recurrence->rates, pass, "gradient through the rates", drates_TC,
                                   saved->h_rates_TR, n_TD, dn_TD));
    /* Memory of dn that is not dx lies above the mark. */
    if (!tt_tensor_is_empty(gradient->dx_TD)) tt_workspace_release(workspace, mark);
    return tt_half_end_backward(&recurrence->norm, pass, gradient, saved->rstd_T, dn_TD);
}

/* ---- For others ---- */

static const struct tt_linear_group *reader(const struct tt_half *half)
{
    const struct tt_recurrence *recurrence = half->impl;
    return &recurrence->out;
}

static tt_status visit_linears(const struct tt_half *half, tt_linear_visit *visit, void *context)
{
    const struct tt_recurrence *recurrence = half->impl;
    TT_TRY(tt_linear_group_visit(&recurrence->in, visit, context));
    TT_TRY(tt_linear_group_visit(&recurrence->rates, visit, context));
    return tt_linear_group_visit(&recurrence->out, visit, context);
}

/* Products of a whole chunk of C tokens, for each of them: scores of keys, and with the delta rule the solution of its
 * triangle; the state read and written. */
static double scan_flops(const struct tt_recurrence *recurrence)
{
    double chunk = TT_SCAN_CHUNK, key = (double)recurrence->key_dim, value = (double)recurrence->value_dim;
    double each = 2 * chunk * (key + value) + 4 * key * value;
    if (recurrence->rule == TT_SCAN_DELTA)
        each += 2 * chunk * (2 * key + value) + 2 * key * value + chunk * chunk;
    return (double)recurrence->heads * each;
}

static double flops(const struct tt_half *half, double length, bool full)
{
    const struct tt_recurrence *recurrence = half->impl;
    (void)length;
    return tt_linear_group_flops(&recurrence->in, full) + tt_linear_group_flops(&recurrence->rates, full) +
           tt_linear_group_flops(&recurrence->out, full) + 3 * scan_flops(recurrence);
}

const struct tt_half_ops tt_recurrence_half = {
    .kind = "recurrence",
    .residual = "residual after a state",
    .forward = forward,
    .backward = backward,
    .reader = reader,
    .trains = trains,
    .visit_linears = visit_linears,
    .flops = flops,
};
