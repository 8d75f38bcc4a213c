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
