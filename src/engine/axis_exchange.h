/* Requests of blocks along an axis (struct tt_exchange of nn/pass.h) over the communicators of the mesh. On the plan
 * device they count their time. Errors name the axis. */
#ifndef TT_ENGINE_AXIS_EXCHANGE_H
#define TT_ENGINE_AXIS_EXCHANGE_H

#include "engine/mesh.h"
#include "nn/pass.h"

struct tt_axis_exchange {
    const struct tt_mesh *mesh; /* lent */
    struct tt_comm_part *parts; /* of the largest group */
};

/* A zeroed struct is empty. */
TT_MUST_USE tt_status tt_axis_exchange_init(const struct tt_mesh *mesh, struct tt_axis_exchange *exchange);
void tt_axis_exchange_deinit(struct tt_axis_exchange *exchange);
void tt_axis_exchange_groups(const struct tt_mesh *mesh, struct tt_exchange_group groups[TT_AXES_MAX]);

TT_MUST_USE tt_status tt_axis_sum(const struct tt_axis_exchange *exchange, struct tt_stream *stream,
                                  enum tt_axis axis, tt_tensor values);
TT_MUST_USE tt_status tt_axis_gather(const struct tt_axis_exchange *exchange, struct tt_stream *stream,
                                     enum tt_axis axis, tt_tensor values, tt_tensor all);
TT_MUST_USE tt_status tt_axis_all_to_all(const struct tt_axis_exchange *exchange, struct tt_stream *stream,
                                         enum tt_axis axis, const struct tt_all_to_all *rows);

#endif
