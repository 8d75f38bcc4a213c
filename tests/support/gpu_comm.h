/* What communicators of devices do beside the calls of comm_calls.h: exchanges of byte ranges, and sums in order of
 * rank. Memory is the device's, so that this runs on GPUs as on CPUs. What ranks hand in is a pure function of the
 * ranks, so each one knows what must come out. */
#ifndef TT_TESTS_SUPPORT_GPU_COMM_H
#define TT_TESTS_SUPPORT_GPU_COMM_H

#include "comm/comm.h"

/* Ranges of different sizes, some of them empty, between all ranks, several rounds; then one that a rank sends to
 * itself only. */
tt_status test_gpu_comm_exchange(struct tt_comm *comm, struct tt_device *device, struct tt_stream *stream);
/* After tt_comm_order_sums (done here): reduce-scatter, in place and not, and all-reduce of `count` elements, and some
 * more, have the bits of a scalar loop over the ranks in their order. `row_bytes`: so many travel at a time between
 * two ranks, to reach the code for longer sums; 0: as many as there is room for. */
tt_status test_gpu_comm_ordered(struct tt_comm *comm, struct tt_device *device, struct tt_stream *stream,
                                size_t count, size_t row_bytes);

#endif
