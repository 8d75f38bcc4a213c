#include "backend/ops/latent_heads.h"

#include "backend/device_impl.h"
#include "backend/ops/attention.h"
#include "backend/ops/check.h"

static void check_matrix(struct tt_check *check, const char *name, tt_tensor x, tt_dtype dtype, int64_t rows)
{
    tt_check_tensor(check, name, x, 1u << dtype, 2, 2);
    if (check->status != TT_OK) return;
    tt_check_that(check, x.dims[0] == rows, "%s has %lld rows for %lld tokens", name, (long long)x.dims[0],
                  (long long)rows);
}

static void check_widths(struct tt_check *check, const struct tt_latent_heads_args *args)
{
    int64_t heads = args->q_THW.dims[1], width = args->q_THW.dims[2];
    tt_check_that(check, heads >= 1 && args->q_TC.dims[1] % heads == 0 && args->kv_TC.dims[1] % heads == 0,
                  "%lld columns of q and %lld of k and v for %lld heads", (long long)args->q_TC.dims[1],
                  (long long)args->kv_TC.dims[1], (long long)heads);
    if (check->status != TT_OK) return;
    struct tt_latent_widths widths = tt_latent_widths_of(args);
    tt_check_that(check, widths.rotated >= 2 && widths.rotated % 2 == 0,
                  "%lld columns of a head cannot rotate", (long long)widths.rotated);
    tt_check_that(check, widths.plain >= 0 && widths.value >= 1,
                  "heads of q have %lld columns and those of k and v %lld, of which %lld rotate",
                  (long long)(widths.plain + widths.rotated), (long long)(widths.plain + widths.value),
                  (long long)widths.rotated);
    tt_check_that(
        check,
        width >= widths.plain + widths.rotated && width >= widths.value && width <= TT_ATTENTION_HEAD_DIM_MAX,
        "heads of %lld columns for %lld of q and %lld of v, at most %d", (long long)width,
        (long long)(widths.plain + widths.rotated), (long long)widths.value, TT_ATTENTION_HEAD_DIM_MAX);
    if (check->status != TT_OK) return;
    tt_check_tensor(check, "cos", args->cos_PE, TT_TYPES_F32, 2, 2);
    if (check->status != TT_OK) return;
    tt_check_shape(check, "cos", args->cos_PE, TT_TYPES_F32, 2,
                   TT_DIMS(args->cos_PE.dims[0], widths.rotated / 2));
    tt_check_like(check, "sin", args->sin_PE, TT_TYPES_F32, "cos", args->cos_PE);
}

tt_status tt_latent_heads(struct tt_stream *stream, const struct tt_latent_heads_args *args)
{
    struct tt_check check = {.op = "latent_heads"};
    tt_tensor q = args->q_THW;
    tt_check_tensor(&check, "q", q, TT_TYPES_REAL, 3, 3);
    if (check.status != TT_OK) return check.status;
    tt_check_like(&check, "k", args->k_THW, 1u << q.dtype, "q", q);
    tt_check_like(&check, "v", args->v_THW, 1u << q.dtype, "q", q);
    check_matrix(&check, "q's columns", args->q_TC, q.dtype, q.dims[0]);
    check_matrix(&check, "columns of k and v", args->kv_TC, q.dtype, q.dims[0]);
    check_matrix(&check, "shared columns", args->shared_TR, q.dtype, q.dims[0]);
    if (check.status != TT_OK) return check.status;
    check_widths(&check, args);
    tt_check_shape(&check, "positions", args->positions_T, TT_TYPES_I32, 1, TT_DIMS(q.dims[0]));
    tt_check_that(&check, args->temperature == 0 || args->original_positions >= 1,
                  "a temperature over %lld original positions", (long long)args->original_positions);
    const struct {
        const char *name;
        tt_tensor tensor;
    } heads[] = {{"q", q}, {"k", args->k_THW}, {"v", args->v_THW}},
      columns[] = {{"q's columns", args->q_TC},
                   {"columns of k and v", args->kv_TC},
                   {"shared columns", args->shared_TR}};
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++)
            tt_check_apart(&check, heads[i].name, heads[i].tensor, columns[j].name, columns[j].tensor);
        int next = (i + 1) % 3;
        tt_check_apart(&check, heads[i].name, heads[i].tensor, heads[next].name, heads[next].tensor);
        tt_check_apart(&check, columns[i].name, columns[i].tensor, columns[next].name, columns[next].tensor);
    }
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_latent_heads(stream, args);
}
