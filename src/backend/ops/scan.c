#include "backend/ops/scan.h"

#include "backend/cuda/scan.h"
#include "backend/device_impl.h"

/* A product with the state has 2 E W FLOPs a row and value head, a triangle of rows by rows C E or C W. Forward: k S
 * with the delta rule, q S, and k^T v'; the triangles q k^T and p v', with the delta rule also k k^T and m n. */
double tt_scan_forward_flops(const struct tt_scan_forward_args *args)
{
    double rows = (double)(args->v_THW.dims[0] * args->v_THW.dims[1]), width = (double)args->q_TKE.dims[2];
    double value_width = (double)args->v_THW.dims[2], half = TT_SCAN_CHUNK;
    bool delta = args->rule == TT_SCAN_DELTA;
    double states = (delta ? 3 : 2) * 2 * width * value_width;
    return rows * (states + (delta ? 2 : 1) * half * (width + value_width));
}

/* The states again, then the chunks in reverse (cpu/scan/backward.c): k S twice with the delta rule, k^T v'; k D,
 * v' D^T, do S^T, q^T do, with the delta rule g S^T and k^T g. */
double tt_scan_backward_flops(const struct tt_scan_forward_args *args)
{
    double rows = (double)(args->v_THW.dims[0] * args->v_THW.dims[1]), width = (double)args->q_TKE.dims[2];
    double value_width = (double)args->v_THW.dims[2], half = TT_SCAN_CHUNK;
    bool delta = args->rule == TT_SCAN_DELTA;
    double states = (delta ? 2 + 1 + 6 : 1 + 4) * 2 * width * value_width;
    double triangles = delta ? 2 * (width + value_width) + 3 * width + 4 * value_width + 2 * width
                             : 3 * width + 2 * value_width;
    return rows * (states + half * triangles);
}

size_t tt_scan_forward_scratch(const struct tt_device *device, const struct tt_scan_forward_args *args)
{
    if (tt_device_is_host(device) || !tt_cuda_scan_has_chunks(args)) return 0;
    return tt_cuda_scan_parts_of(args, false).bytes;
}

size_t tt_scan_backward_scratch(const struct tt_device *device, const struct tt_scan_backward_args *args)
{
    struct tt_scan_lanes lanes = tt_scan_lanes_of(&args->forward);
    size_t floats = (size_t)(lanes.lanes * lanes.lane + lanes.carried);
    if (!tt_device_is_host(device))
        floats +=
            (size_t)(TT_CUDA_SCAN_BLOCKS * tt_cuda_scan_block(TT_SCAN_CHUNK, args->forward.q_TKE.dims[2],
                                                              args->forward.v_THW.dims[2]));
    size_t bytes = (floats * sizeof(float) + 255) / 256 * 256, of_chunks = 0;
    if (!tt_device_is_host(device) && tt_cuda_scan_has_chunks(&args->forward))
        of_chunks = tt_cuda_scan_parts_of(&args->forward, true).bytes;
    return of_chunks > bytes ? of_chunks : bytes;
}

struct named {
    const char *name, *like_name;
    tt_tensor tensor, like;
};

static void check_sizes(struct tt_check *check, tt_tensor q, tt_tensor v)
{
    int64_t key_heads = q.dims[1], width = q.dims[2], heads = v.dims[1], value_width = v.dims[2];
    tt_check_that(check, key_heads >= 1 && heads >= 1 && heads % key_heads == 0,
                  "%lld value heads are no multiple of %lld key heads", (long long)heads,
                  (long long)key_heads);
    tt_check_that(check,
                  width >= 1 && width <= TT_SCAN_WIDTH_MAX && value_width >= 1 &&
                      value_width <= TT_SCAN_WIDTH_MAX && width * value_width <= TT_SCAN_STATE_MAX,
                  "a state of %lld x %lld: a side is in 1..%d, and their product at most %d",
                  (long long)width, (long long)value_width, TT_SCAN_WIDTH_MAX, TT_SCAN_STATE_MAX);
}

static void check_like(struct tt_check *check, const struct named *rows, tt_dtype dtype)
{
    tt_check_like(check, rows->name, rows->tensor, TT_TYPES_REAL, rows->like_name, rows->like);
    tt_check_type(check, rows->name, rows->tensor, dtype);
}

static void check_head_values(struct tt_check *check, const char *name, tt_tensor values, int64_t heads)
{
    tt_check_shape(check, name, values, TT_TYPES_REAL, 1, TT_DIMS(heads));
}

/* Checks the arguments of one of the rules. */
static void check_rule(struct tt_check *check, const struct tt_scan_forward_args *args)
{
    if (check->status != TT_OK) return;
    if (args->rule == TT_SCAN_DELTA) {
        tt_check_that(check, tt_tensor_is_empty(args->skip_H), "the delta rule has no skip");
        check_like(check, &(struct named){"b", "a", args->b_TH, args->a_TH}, args->q_TKE.dtype);
        return;
    }
    tt_check_that(check, args->rule == TT_SCAN_MAMBA2, "there is no rule %d", (int)args->rule);
    tt_check_that(check, tt_tensor_is_empty(args->b_TH), "Mamba-2 has no b");
    tt_check_that(check, args->dt_min >= 0 && args->dt_max >= args->dt_min, "dt from %g to %g", args->dt_min,
                  args->dt_max);
    if (!tt_tensor_is_empty(args->skip_H))
        check_head_values(check, "skip", args->skip_H, args->v_THW.dims[1]);
}

static void check_inputs(struct tt_check *check, const struct tt_scan_forward_args *args)
{
    tt_tensor q = args->q_TKE, v = args->v_THW;
    tt_check_tensor(check, "q", q, TT_TYPES_REAL, 3, 3);
    tt_check_tensor(check, "v", v, TT_TYPES_REAL, 3, 3);
    if (check->status != TT_OK) return;
    check_sizes(check, q, v);
    tt_check_shape(check, "v", v, TT_TYPES_REAL, 3, TT_DIMS(q.dims[0], v.dims[1], v.dims[2]));
    tt_check_type(check, "v", v, q.dtype);
    check_like(check, &(struct named){"k", "q", args->k_TKE, q}, q.dtype);
    tt_check_shape(check, "a", args->a_TH, TT_TYPES_REAL, 2, TT_DIMS(q.dims[0], v.dims[1]));
    tt_check_type(check, "a", args->a_TH, q.dtype);
    check_head_values(check, "a_log", args->a_log_H, v.dims[1]);
    check_head_values(check, "dt_bias", args->dt_bias_H, v.dims[1]);
    tt_check_that(check, args->norm_eps >= 0, "norm_eps %g is negative", args->norm_eps);
    check_rule(check, args);
    if (check->status == TT_OK) tt_check_sequences(check, &args->sequences, q.dims[0]);
}

static void check_apart_from_inputs(struct tt_check *check, const char *name, tt_tensor result,
                                    const struct tt_scan_forward_args *args)
{
    tt_check_apart(check, name, result, "q", args->q_TKE);
    tt_check_apart(check, name, result, "k", args->k_TKE);
    tt_check_apart(check, name, result, "v", args->v_THW);
    tt_check_apart(check, name, result, "a", args->a_TH);
    tt_check_apart(check, name, result, "b", args->b_TH);
}

tt_status tt_scan_forward(struct tt_stream *stream, const struct tt_scan_forward_args *args)
{
    struct tt_check check = {.op = "scan_forward"};
    check_inputs(&check, args);
    if (check.status != TT_OK) return check.status;
    tt_tensor v = args->v_THW;
    check_like(&check, &(struct named){"o", "v", args->o_THW, v}, v.dtype);
    tt_check_states(&check, &args->states, args->sequences.count, 4,
                    TT_DIMS(v.dims[1], args->q_TKE.dims[2], v.dims[2]));
    check_apart_from_inputs(&check, "o", args->o_THW, args);
    check_apart_from_inputs(&check, "states", args->states.pool, args);
    tt_check_apart(&check, "o", args->o_THW, "states", args->states.pool);
    if (check.status != TT_OK) return check.status;
    tt_check_scratch(&check, args->scratch, tt_scan_forward_scratch(tt_stream_device(stream), args), 256);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_scan_forward(stream, args);
}

static void check_gradients(struct tt_check *check, const struct tt_scan_backward_args *args)
{
    const struct tt_scan_forward_args *forward = &args->forward;
    bool delta = forward->rule == TT_SCAN_DELTA;
    const struct named rows[] = {
        {"do", "v", args->do_THW, forward->v_THW}, {"dq", "q", args->dq_TKE, forward->q_TKE},
        {"dk", "k", args->dk_TKE, forward->k_TKE}, {"dv", "v", args->dv_THW, forward->v_THW},
        {"da", "a", args->da_TH, forward->a_TH},   {"db", "b", args->db_TH, forward->b_TH},
    };
    int count = delta ? 6 : 5;
    tt_check_that(check, delta || tt_tensor_is_empty(args->db_TH), "Mamba-2 has no db");
    for (int i = 0; i < count; i++) check_like(check, &rows[i], forward->q_TKE.dtype);
    for (int i = 1; i < count; i++) {
        check_apart_from_inputs(check, rows[i].name, rows[i].tensor, forward);
        tt_check_apart(check, rows[i].name, rows[i].tensor, "do", args->do_THW);
        for (int j = i + 1; j < count; j++)
            tt_check_apart(check, rows[i].name, rows[i].tensor, rows[j].name, rows[j].tensor);
    }
}

static void check_sum(struct tt_check *check, const char *name, tt_tensor sum, int64_t heads)
{
    if (tt_tensor_is_empty(sum)) return;
    tt_check_shape(check, name, sum, TT_TYPES_F32, 1, TT_DIMS(heads));
}

tt_status tt_scan_backward(struct tt_stream *stream, const struct tt_scan_backward_args *args)
{
    const struct tt_scan_forward_args *forward = &args->forward;
    struct tt_check check = {.op = "scan_backward"};
    check_inputs(&check, forward);
    tt_check_that(&check, tt_tensor_is_empty(forward->states.pool), "states have no gradient");
    if (check.status != TT_OK) return check.status;
    int64_t heads = forward->v_THW.dims[1];
    check_gradients(&check, args);
    check_sum(&check, "da_log", args->da_log_H, heads);
    check_sum(&check, "ddt_bias", args->ddt_bias_H, heads);
    check_sum(&check, "dskip", args->dskip_H, heads);
    tt_check_that(&check, tt_tensor_is_empty(args->dskip_H) || !tt_tensor_is_empty(forward->skip_H),
                  "dskip is given without skip");
    if (check.status != TT_OK) return check.status;
    tt_check_scratch(&check, args->scratch, tt_scan_backward_scratch(tt_stream_device(stream), args), 256);
    if (check.status != TT_OK) return check.status;
    return tt_dispatch_scan_backward(stream, args);
}
