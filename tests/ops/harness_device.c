/* Which device a test program runs on, and the way of tensors there and back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/harness.h"
#include "support/tuning.h"

enum { POISON_BYTES = 256 << 20, POISON_PIECE = 8 << 20 };

const char *test_device_kind(void)
{
    const char *kind = getenv("TT_TEST_DEVICE");
    return kind != NULL && kind[0] != '\0' ? kind : "cpu";
}

bool test_on_cpu(void)
{
    return strcmp(test_device_kind(), "cpu") == 0;
}

bool test_sizes_wanted(void)
{
    const char *wanted = getenv("TT_TEST_SIZES");
    if (wanted != NULL && wanted[0] != '\0') return strcmp(wanted, "1") == 0;
    return !test_on_cpu();
}

int test_device_missing(void)
{
    const char *kind = test_device_kind(), *required = getenv("TT_REQUIRE");
    char reason[512] = "the driver sees none";
    if (strcmp(kind, "cpu") == 0) return 0;
    if (strcmp(kind, "cuda") != 0) {
        printf("TT_TEST_DEVICE is '%s', which is neither cpu nor cuda\n", kind);
        return 1;
    }
    if (tt_cuda_device_count(reason, sizeof reason) > 0) return 0;
    bool must = required != NULL && strstr(required, "gpu") != NULL;
    printf("%s: there is no GPU: %s\n", must ? "TT_REQUIRE is gpu" : "skipped", reason);
    return must ? 1 : 77;
}

/* Each test program is one thread. */
static struct test_device gpu;

static void close_gpu(void)
{
    struct tt_memory_use use;
    tt_device_memory(gpu.device, &use);
    if (use.current[TT_PURPOSE_ACTIVATIONS] > 0) return; /* a test that failed has left tensors there */
    tt_stream_destroy(gpu.stream);
    tt_device_close(gpu.device);
}

/* What the device takes for itself afterwards, and what tests allocate, is then less likely to be clean by
 * chance. */
static void poison_free_memory(struct tt_device *device)
{
    struct tt_buffer *buffer, *host;
    struct tt_stream *stream;
    test_ok(tt_buffer_create(device, POISON_BYTES, TT_PURPOSE_ACTIVATIONS, &buffer));
    test_ok(tt_host_buffer_create(device, POISON_PIECE, TT_PURPOSE_STAGING, &host));
    test_ok(tt_stream_create_copy(device, &stream));
    memset(tt_buffer_data(host), 0xFF, POISON_PIECE);
    unsigned char *data = tt_buffer_data(buffer);
    for (size_t at = 0; at < POISON_BYTES; at += POISON_PIECE)
        test_ok(tt_copy_to_device(stream, data + at, tt_buffer_data(host), POISON_PIECE));
    test_ok(tt_stream_synchronize(stream));
    tt_stream_destroy(stream);
    tt_buffer_destroy(host);
    tt_buffer_destroy(buffer);
}

void test_device_open(struct test_device *out, const char *kind, int threads)
{
    struct tt_device_config config = {.kind = kind, .threads = threads, .tuning = test_tuning()};
    *out = (struct test_device){.shared = strcmp(kind, "cuda") == 0};
    if (!out->shared) {
        test_ok(tt_device_open(&config, &out->device));
        test_ok(tt_stream_create(out->device, &out->stream));
        return;
    }
    if (gpu.device == NULL) {
        test_ok(tt_device_open(&config, &gpu.device));
        poison_free_memory(gpu.device);
        test_ok(tt_stream_create(gpu.device, &gpu.stream));
        gpu.shared = true;
        atexit(close_gpu);
    }
    *out = gpu;
}

void test_device_close(struct test_device *device)
{
    if (device->shared) {
        test_ok(tt_stream_synchronize(device->stream));
        return;
    }
    tt_stream_destroy(device->stream);
    tt_device_close(device->device);
}

void test_to_device(const struct test_device *device, struct test_tensor *const *tensors, int count)
{
    if (tt_device_is_host(device->device)) return;
    for (int i = 0; i < count; i++) {
        struct test_tensor *tensor = tensors[i];
        if (tensor->memory == NULL) continue;
        assert_null(tensor->buffer);
        test_ok(
            tt_buffer_create(device->device, tensor->memory_bytes, TT_PURPOSE_ACTIVATIONS, &tensor->buffer));
        unsigned char *data = tt_buffer_data(tensor->buffer);
        test_ok(tt_copy_to_device(device->stream, data, tensor->memory, tensor->memory_bytes));
        tensor->view.data = data + ((unsigned char *)tensor->view.data - tensor->memory);
    }
}

void test_to_host(const struct test_device *device, struct test_tensor *const *tensors, int count)
{
    if (tt_device_is_host(device->device)) return;
    for (int i = 0; i < count; i++) {
        struct test_tensor *tensor = tensors[i];
        if (tensor->buffer == NULL) continue;
        unsigned char *data = tt_buffer_data(tensor->buffer);
        test_ok(tt_copy_to_host(device->stream, tensor->memory, data, tensor->memory_bytes));
        test_ok(tt_stream_synchronize(device->stream));
        tensor->view.data = tensor->memory + ((unsigned char *)tensor->view.data - data);
        tt_buffer_destroy(tensor->buffer);
        tensor->buffer = NULL;
    }
}

void test_array_to_device(const struct test_device *device, struct test_tensor *tensors, int count)
{
    for (int i = 0; i < count; i++) TEST_TO_DEVICE(device, &tensors[i]);
}

void test_array_to_host(const struct test_device *device, struct test_tensor *tensors, int count)
{
    for (int i = 0; i < count; i++) TEST_TO_HOST(device, &tensors[i]);
}
