/* Muon (Keller Jordan; as torch.optim.Muon of torch 2.15) for matrices inside of the model, and AdamW for the rest:
 * embeddings, head and vectors, as torch documents it. A matrix's direction is the momentum; its singular values are
 * brought near 1 by the quintic Newton-Schulz iteration
 *     X = direction / max(norm, eps);  A = X X^T;  X = a X + (b A + c A A) X
 * where X has not more rows than columns (else X^T), each product rounded once to the type of X. The rate of a matrix
 * of R x C is that of the run times (adjust_lr_fn)
 *     original: sqrt(max(1, R / C));  match_rms_adamw: 0.2 sqrt(max(R, C));  spectral_unclamped: sqrt(R / C) */
#include <math.h>
#include <string.h>

#include "backend/ops/gemm.h"
#include "backend/ops/muon.h"
#include "backend/workspace.h"
#include "base/json.h"
#include "optim/optimizer.h"

static tt_status update(struct tt_stream *stream, const struct tt_optim_config *config,
                        const struct tt_optimizer_update *update)
{
    return tt_rule_adamw.update(stream, config, update);
}

static bool takes(const tt_param *param)
{
    return param->rank == 2 && param->place == TT_PLACE_INSIDE;
}

static tt_dtype dtype_of(const struct tt_optim_config *config)
{
    return config->ns_dtype == TT_NS_FLOAT32 ? TT_F32 : TT_BF16;
}

static tt_status direct(struct tt_stream *stream, const struct tt_optim_config *config,
                        const struct tt_optimizer_update *update, tt_tensor y)
{
    struct tt_muon_direction_args args = {
        .grad = tt_tensor_1d((float *)update->grad, TT_F32, update->count),
        .m = tt_tensor_1d(update->values[0], TT_F32, update->count),
        .y = y,
        .momentum = config->momentum,
        .grad_scale = update->grad_scale,
        .nesterov = config->nesterov,
    };
    return tt_muon_direction(stream, &args);
}

/* The memory of one iteration. */
struct iteration {
    float a, b, c;
    bool tall;              /* more rows than columns: the iteration is that of X^T */
    tt_tensor gram, powers; /* [m, m], m the smaller side */
};

static tt_status product(struct tt_stream *stream, struct tt_gemm_args args)
{
    return tt_gemm(stream, &args);
}

/* y = a x + (b A + c A A) x. */
static tt_status iterate(struct tt_stream *stream, const struct iteration *it, tt_tensor x, tt_tensor y)
{
    TT_TRY(product(
        stream,
        (struct tt_gemm_args){
            .a = x, .b = x, .c = it->gram, .trans_a = it->tall, .trans_b = !it->tall, .alpha = 1.0f}));
    TT_TRY(product(stream, (struct tt_gemm_args){.a = it->gram,
                                                 .b = it->gram,
                                                 .c = it->powers,
                                                 .addend = it->gram,
                                                 .alpha = it->c,
                                                 .beta = it->b}));
    return product(stream, (struct tt_gemm_args){.a = it->tall ? x : it->powers,
                                                 .b = it->tall ? it->powers : x,
                                                 .c = y,
                                                 .addend = x,
                                                 .trans_b = it->tall,
                                                 .alpha = 1.0f,
                                                 .beta = it->a});
}

static void read_coefficients(const struct tt_optim_config *config, struct iteration *it)
{
    *it = (struct iteration){.a = 3.4445f, .b = -4.7750f, .c = 2.0315f};
    struct tt_json json = {0};
    const char *text = config->ns_coefficients;
    if (text == NULL || tt_json_parse(text, strlen(text), "ns_coefficients", &json) != TT_OK) return;
    it->a = (float)tt_json_number(tt_json_at(json.root, 0));
    it->b = (float)tt_json_number(tt_json_at(json.root, 1));
    it->c = (float)tt_json_number(tt_json_at(json.root, 2));
    tt_json_deinit(&json);
}

static tt_status turn(struct tt_stream *stream, const struct tt_optim_config *config,
                      struct tt_workspace *workspace, tt_tensor x_RC)
{
    size_t mark = tt_workspace_mark(workspace);
    int64_t rows = x_RC.dims[0], columns = x_RC.dims[1], side = rows < columns ? rows : columns;
    tt_status status = TT_OK;
    struct iteration it;
    tt_tensor other, squares, from = x_RC, flat = tt_tensor_1d(x_RC.data, x_RC.dtype, rows * columns);
    read_coefficients(config, &it);
    it.tall = rows > columns;
    TT_GO(tt_workspace_2d(workspace, "Muon's matrix", x_RC.dtype, rows, columns, &other));
    TT_GO(tt_workspace_2d(workspace, "Muon's products", x_RC.dtype, side, side, &it.gram));
    TT_GO(tt_workspace_2d(workspace, "Muon's products", x_RC.dtype, side, side, &it.powers));
    TT_GO(tt_workspace_1d(workspace, "Muon's norm", TT_F64, 1, &squares));
    struct tt_muon_normalize_args norm = {.x = flat, .squares = squares, .eps = config->ns_epsilon};
    TT_GO(tt_muon_normalize(stream, &norm));
    for (int64_t step = 0; step < config->ns_steps; step++) {
        TT_GO(iterate(stream, &it, from, other));
        tt_tensor last = from;
        from = other;
        other = last;
    }
    if (from.data != x_RC.data) TT_GO(tt_copy_on_device(stream, x_RC.data, from.data, tt_tensor_bytes(from)));
out:
    tt_workspace_release(workspace, mark);
    return status;
}

static double adjusted(const struct tt_optim_config *config, double rows, double columns)
{
    switch ((enum tt_adjust_lr)config->adjust_lr_fn) {
    case TT_ADJUST_ORIGINAL:
        return sqrt(fmax(1.0, rows / columns));
    case TT_ADJUST_MATCH_RMS:
        return 0.2 * sqrt(fmax(rows, columns));
    case TT_ADJUST_SPECTRAL:
        break;
    }
    return sqrt(rows / columns);
}

static tt_status apply(struct tt_stream *stream, const struct tt_optim_config *config,
                       const struct tt_optimizer_update *update, const tt_param *param, tt_tensor x)
{
    struct tt_muon_apply_args args = {
        .param = tt_tensor_1d(update->master, TT_F32, update->count),
        .x = x,
        .lr = update->lr * adjusted(config, (double)param->dims[0], (double)param->dims[1]),
        .decay = update->lr * update->weight_decay,
    };
    return tt_muon_apply(stream, &args);
}

static tt_status check(const struct tt_optim_config *config)
{
    struct tt_json json = {0};
    const char *text = config->ns_coefficients;
    if (text == NULL) return TT_OK;
    bool good = tt_json_parse(text, strlen(text), "ns_coefficients", &json) == TT_OK &&
                tt_json_is_list(json.root) && tt_json_count(json.root) == 3;
    for (size_t i = 0; i < 3 && good; i++) {
        const struct tt_json_value *value = tt_json_at(json.root, i);
        good = tt_json_is_number(value) && isfinite(tt_json_number(value));
    }
    tt_json_deinit(&json);
    if (good) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_USAGE, "ns_coefficients is not a list of three numbers: '%.100s'", text);
    tt_hint("torch's are [3.4445, -4.775, 2.0315]");
    return status;
}

static const struct tt_whole_rule whole = {
    .prefix = "optimizer.momentum_buffer.",
    .takes = takes,
    .dtype = dtype_of,
    .direct = direct,
    .turn = turn,
    .apply = apply,
};

const struct tt_rule tt_rule_muon = {
    .name = "Muon",
    .moment_count = 2,
    .prefixes = {"optimizer.exp_avg.", "optimizer.exp_avg_sq."},
    .has_momentum = true,
    .check = check,
    .update = update,
    .whole = &whole,
};
