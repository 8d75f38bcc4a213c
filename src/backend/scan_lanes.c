/* The layout of the scratch of a scan's backward pass, for the host and the plugin. */
#include "backend/cuda/scan.h"
#include "backend/ops/scan.h"

enum { ROW_VALUES = 3, LINE = 16 };

static int64_t round_up(int64_t a, int64_t unit)
{
    return (a + unit - 1) / unit * unit;
}

struct tt_scan_lanes tt_scan_lanes_of(const struct tt_scan_forward_args *args)
{
    int64_t rows = args->q_TKE.dims[0], width = args->q_TKE.dims[2], heads = args->v_THW.dims[1];
    int64_t group = heads / args->q_TKE.dims[1], value_width = args->v_THW.dims[2];
    struct tt_scan_lanes lanes = {.lanes = heads < TT_SCAN_LANES ? heads : TT_SCAN_LANES};
    if (lanes.lanes > group) lanes.lanes = lanes.lanes / group * group;
    lanes.states = rows > 0 ? (rows - 1) / TT_SCAN_CHUNK : 0;
    lanes.state = tt_cuda_scan_state(width, value_width); /* processors need no more */
    lanes.gradients = 2 * rows * width;
    lanes.lane = round_up(lanes.states * lanes.state + lanes.gradients + ROW_VALUES * rows, LINE);
    lanes.carried = group > lanes.lanes ? lanes.gradients : 0;
    return lanes;
}

bool tt_cuda_scan_has_chunks(const struct tt_scan_forward_args *args)
{
    int64_t value_width = args->v_THW.dims[2];
    return args->q_TKE.dtype == TT_BF16 && args->q_TKE.dims[2] == TT_CUDA_SCAN_WIDTH &&
           (value_width == 64 || value_width == 128);
}

static int64_t take(size_t *bytes, int64_t count, int64_t each)
{
    int64_t at = (int64_t)*bytes;
    *bytes += (size_t)round_up(count * each, 256);
    return at;
}

/* The parts for `count` chunks and heads of a pass. */
static struct tt_cuda_scan_parts parts_of(const struct tt_scan_forward_args *args, bool backward,
                                          int64_t count)
{
    const int64_t chunk = TT_SCAN_CHUNK, half = 2; /* bytes of a number */
    int64_t width = args->q_TKE.dims[2], value_width = args->v_THW.dims[2], square = chunk * chunk * half;
    struct tt_cuda_scan_parts parts = {0};
    parts.m = take(&parts.bytes, args->rule == TT_SCAN_DELTA ? count : 0, square);
    parts.p = take(&parts.bytes, count, square);
    parts.p_rest = take(&parts.bytes, count, square);
    parts.factors = take(&parts.bytes, count, TT_CUDA_SCAN_FACTORS);
    parts.states = take(&parts.bytes, backward ? count : 0, width * value_width * half);
    parts.next = take(&parts.bytes, backward ? count : 0, width * value_width * half);
    parts.fresh = take(&parts.bytes, backward ? count : 0, chunk * value_width * half);
    parts.dn = take(&parts.bytes, backward ? count : 0, chunk * value_width * half);
    return parts;
}

struct tt_cuda_scan_parts tt_cuda_scan_parts_of(const struct tt_scan_forward_args *args, bool backward)
{
    int64_t rows = args->q_TKE.dims[0], heads = args->v_THW.dims[1], key_heads = args->q_TKE.dims[1];
    int64_t slots = rows / TT_SCAN_CHUNK + args->sequences.count, group = heads / key_heads;
    int64_t most = (int64_t)TT_CUDA_SCAN_MEGABYTES << 20,
            bytes = (int64_t)parts_of(args, backward, slots * heads).bytes;
    int64_t passes = (bytes + most - 1) / most; /* of about the same size */
    int64_t pass = passes > key_heads ? group : (key_heads + passes - 1) / (passes > 0 ? passes : 1) * group;
    struct tt_cuda_scan_parts parts = parts_of(args, backward, slots * pass);
    parts.slots = slots, parts.pass = pass;
    parts.rates = take(&parts.bytes, backward ? pass : 0, 2 * rows * (int64_t)sizeof(float));
    return parts;
}
