/* Copies between the host, the device and its streams: all in order of the stream, whatever their size. */
#include <stdlib.h>
#include <string.h>

#include "ops/harness.h"

enum { ROUNDS = 40, BYTES_MAX = 3 << 20 };
static const size_t sizes[] = {1, 48, 4096, 65536, 65537, 300000, 524288, 524289, BYTES_MAX};

static void fill(unsigned char *data, size_t bytes, unsigned round)
{
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)(i * 7 + i / 251 + round * 31);
}

static size_t count_wrong(const unsigned char *data, size_t bytes, unsigned round)
{
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; i++) wrong += data[i] != (unsigned char)(i * 7 + i / 251 + round * 31);
    return wrong;
}

/* What waits in host memory (inputs of blocks, optimizer state): written by one copy, read by the next, and
 * nobody waits in between. */
static void what_goes_out_to_a_host_buffer_comes_back(void **state)
{
    (void)state;
    struct test_device device;
    struct tt_stream *copies;
    struct tt_event *written, *copied;
    struct tt_buffer *source, *target, *host, *rounds;
    unsigned char *plain = malloc(BYTES_MAX);
    assert_non_null(plain);
    test_device_open(&device, test_device_kind(), 1);
    test_ok(tt_stream_create_copy(device.device, &copies));
    test_ok(tt_event_create(device.device, &written));
    test_ok(tt_event_create(device.device, &copied));
    test_ok(tt_buffer_create(device.device, BYTES_MAX, TT_PURPOSE_ACTIVATIONS, &source));
    test_ok(tt_buffer_create(device.device, BYTES_MAX, TT_PURPOSE_ACTIVATIONS, &target));
    test_ok(tt_buffer_create(device.device, (size_t)BYTES_MAX * ROUNDS, TT_PURPOSE_ACTIVATIONS, &rounds));
    test_ok(tt_host_buffer_create(device.device, BYTES_MAX, TT_PURPOSE_OFFLOAD, &host));
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        size_t bytes = sizes[s], wrong = 0;
        for (unsigned round = 0; round < ROUNDS; round++) {
            unsigned char *kept = (unsigned char *)tt_buffer_data(rounds) + round * bytes;
            fill(plain, bytes, round);
            test_ok(tt_copy_to_device(device.stream, tt_buffer_data(source), plain, bytes));
            memset(plain, 0xEE, bytes); /* the caller's again */
            test_ok(tt_event_record(written, device.stream));
            test_ok(tt_stream_wait(copies, written));
            test_ok(tt_copy_to_host(copies, tt_buffer_data(host), tt_buffer_data(source), bytes));
            test_ok(tt_copy_to_device(copies, tt_buffer_data(target), tt_buffer_data(host), bytes));
            test_ok(tt_event_record(copied, copies));
            test_ok(tt_stream_wait(device.stream, copied));
            test_ok(tt_copy_on_device(device.stream, kept, tt_buffer_data(target), bytes));
        }
        for (unsigned round = 0; round < ROUNDS; round++) {
            unsigned char *kept = (unsigned char *)tt_buffer_data(rounds) + round * bytes;
            test_ok(tt_copy_to_host(device.stream, plain, kept, bytes));
            test_ok(tt_stream_synchronize(device.stream));
            wrong += count_wrong(plain, bytes, round);
        }
        if (wrong > 0) fail_msg("%zu bytes of %u rounds of %zu are wrong", wrong, (unsigned)ROUNDS, bytes);
    }
    tt_buffer_destroy(host);
    tt_buffer_destroy(rounds);
    tt_buffer_destroy(target);
    tt_buffer_destroy(source);
    tt_event_destroy(copied);
    tt_event_destroy(written);
    tt_stream_destroy(copies);
    test_device_close(&device);
    free(plain);
}

int main(void)
{
    int missing = test_device_missing();
    if (missing != 0) return missing;
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_goes_out_to_a_host_buffer_comes_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
