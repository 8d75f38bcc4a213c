#include "ops_copies.h"

#include <string.h>

enum { BYTES = 256 << 20 };

struct host_copy {
    void *host, *device;
};

static tt_status run_to_device(struct tt_stream *stream, const void *args)
{
    const struct host_copy *copy = args;
    return tt_copy_to_device(stream, copy->device, copy->host, BYTES);
}

static tt_status run_to_host(struct tt_stream *stream, const void *args)
{
    const struct host_copy *copy = args;
    return tt_copy_to_host(stream, copy->host, copy->device, BYTES);
}

void bench_host_copies(struct bench *bench)
{
    struct tt_buffer *host = NULL;
    bench_must(tt_host_buffer_create(bench->device, BYTES, TT_PURPOSE_STAGING, &host));
    struct host_copy copy = {.host = tt_buffer_data(host), .device = bench_memory(bench, BYTES)};
    memset(copy.host, 1, BYTES);
    bench_measure(bench, "copy to the device 256 MiB", run_to_device, &copy, 0, BYTES);
    bench_measure(bench, "copy to the host 256 MiB", run_to_host, &copy, 0, BYTES);
    bench_release(bench);
    tt_buffer_destroy(host);
}
