#include "engine/axis_exchange.h"

#include <inttypes.h>

#include "base/alloc.h"

tt_status tt_axis_exchange_init(const struct tt_mesh *mesh, struct tt_axis_exchange *exchange)
{
    int largest = 1;
    for (int axis = 0; axis < TT_AXES_MAX; axis++)
        if (mesh->axes[axis].size > largest) largest = mesh->axes[axis].size;
    *exchange = (struct tt_axis_exchange){.mesh = mesh};
    exchange->parts = tt_calloc((size_t)largest, sizeof *exchange->parts);
    return exchange->parts != NULL ? TT_OK : TT_ERR_MEMORY;
}

void tt_axis_exchange_deinit(struct tt_axis_exchange *exchange)
{
    tt_free(exchange->parts);
    *exchange = (struct tt_axis_exchange){0};
}

void tt_axis_exchange_groups(const struct tt_mesh *mesh, struct tt_exchange_group groups[TT_AXES_MAX])
{
    for (int axis = 0; axis < TT_AXES_MAX; axis++)
        groups[axis] = (struct tt_exchange_group){mesh->axes[axis].rank, mesh->axes[axis].size};
}

/* Adds the axis to an error. */
static tt_status along(enum tt_axis axis, const char *what, tt_status status)
{
    if (status != TT_OK) tt_while("%s along the axis '%s'", what, tt_axis_name(axis));
    return status;
}

tt_status tt_axis_sum(const struct tt_axis_exchange *exchange, struct tt_stream *stream, enum tt_axis axis,
                      tt_tensor values)
{
    struct tt_comm *comm = exchange->mesh->axes[axis].comm;
    if (comm == NULL) return TT_OK;
    tt_status status = tt_comm_all_reduce(comm, stream, values.data, (size_t)tt_tensor_count(values),
                                          values.dtype, TT_REDUCE_SUM);
    return along(axis, "adding values", status);
}

static tt_status gather(const struct tt_axis_exchange *exchange, struct tt_stream *stream, enum tt_axis axis,
                        tt_tensor values, tt_tensor all)
{
    const struct tt_mesh_axis *group = &exchange->mesh->axes[axis];
    size_t bytes = tt_tensor_bytes(values);
    if (values.dtype != all.dtype || tt_tensor_bytes(all) != bytes * (size_t)group->size)
        return tt_fail(TT_ERR_INTERNAL, "%zu bytes cannot hold %zu of each of %d ranks", tt_tensor_bytes(all),
                       bytes, group->size);
    if (group->comm == NULL) return tt_copy_on_device(stream, all.data, values.data, bytes);
    return tt_comm_all_gather(group->comm, stream, values.data, all.data, bytes);
}

tt_status tt_axis_gather(const struct tt_axis_exchange *exchange, struct tt_stream *stream, enum tt_axis axis,
                         tt_tensor values, tt_tensor all)
{
    return along(axis, "gathering values", gather(exchange, stream, axis, values, all));
}

static tt_status check_rows(const tt_tensor *tensor, const int64_t *rows, int size)
{
    int64_t sum = 0;
    for (int q = 0; q < size; q++) sum += rows[q];
    if (tensor->rank == 2 && tt_tensor_is_contiguous(*tensor) && tensor->dims[0] == sum) return TT_OK;
    return tt_fail(TT_ERR_INTERNAL, "%lld rows travel in a tensor of %lld", (long long)sum,
                   (long long)tensor->dims[0]);
}

static tt_status all_to_all(const struct tt_axis_exchange *exchange, struct tt_stream *stream,
                            enum tt_axis axis, const struct tt_all_to_all *rows)
{
    const struct tt_mesh_axis *group = &exchange->mesh->axes[axis];
    size_t row_bytes = (size_t)rows->send.dims[1] * tt_dtype_bytes(rows->send.dtype);
    const char *send = rows->send.data;
    char *recv = rows->recv.data;
    TT_TRY(check_rows(&rows->send, rows->send_rows, group->size));
    TT_TRY(check_rows(&rows->recv, rows->recv_rows, group->size));
    if (rows->send.dtype != rows->recv.dtype || rows->send.dims[1] != rows->recv.dims[1])
        return tt_fail(TT_ERR_INTERNAL, "rows of one shape travel, and others are expected");
    for (int q = 0; q < group->size; q++) {
        size_t sent = (size_t)rows->send_rows[q] * row_bytes,
               received = (size_t)rows->recv_rows[q] * row_bytes;
        exchange->parts[q] = (struct tt_comm_part){send, sent, recv, received};
        if (sent > 0) send += sent;
        if (received > 0) recv += received;
    }
    if (group->comm != NULL) return tt_comm_exchange(group->comm, stream, exchange->parts);
    if (rows->send_rows[0] != rows->recv_rows[0])
        return tt_fail(TT_ERR_INTERNAL, "a rank sends itself %" PRId64 " rows and expects %" PRId64,
                       rows->send_rows[0], rows->recv_rows[0]);
    return tt_copy_on_device(stream, rows->recv.data, rows->send.data, tt_tensor_bytes(rows->send));
}

tt_status tt_axis_all_to_all(const struct tt_axis_exchange *exchange, struct tt_stream *stream,
                             enum tt_axis axis, const struct tt_all_to_all *rows)
{
    return along(axis, "exchanging rows", all_to_all(exchange, stream, axis, rows));
}
