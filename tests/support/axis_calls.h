/* What blocks ask along the axes of a run (engine/axis_exchange.h), over any communicator of processors: sums, gathers
 * and rows of any number along an axis that divides the samples, one that shares them, and the data axis, with a rank
 * that has no rows. */
#ifndef TT_TESTS_SUPPORT_AXIS_CALLS_H
#define TT_TESTS_SUPPORT_AXIS_CALLS_H

#include "engine/axis_exchange.h"

/* The mesh of a rank, and its exchange, on a device of its own. */
struct test_axis_desk {
    struct tt_axis_spec specs[2]; /* expert, and one that tests add: in twos as far as the ranks go */
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_mesh mesh;
    struct tt_axis_exchange exchange;
};
/* Closed after an error too. */
tt_status test_axis_open(struct tt_comm *comm, struct test_axis_desk *desk);
void test_axis_close(struct test_axis_desk *desk);

/* All calls along all axes; a wrong result is TT_ERR_INTERNAL with a description. */
tt_status test_axis_calls(struct tt_comm *comm);

#endif
