/* Runs a piece of a test on every instruction set that the cpu device has here, on one thread and on three; on a GPU
 * twice, where the same command must give the same bits too.
 */
#ifndef TT_TESTS_OPS_ISA_H
#define TT_TESTS_OPS_ISA_H

#include <stdlib.h>

#include "ops/harness.h"

/* Called with one thread, then with three: results of the second call must be those of the first, bit for
 * bit. */
typedef void test_isa_body(struct test_device *device, int threads, void *context);

static inline void test_on_each_isa(test_isa_body *body, void *context)
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};
    static const int thread_counts[] = {1, 3};
    if (!test_on_cpu()) {
        struct test_device device;
        test_device_open(&device, test_device_kind(), 1);
        for (int t = 0; t < 2; t++) body(&device, thread_counts[t], context);
        test_device_close(&device);
        return;
    }
    for (int i = 0; i < 3; i++) {
        setenv("TRIMTAB_CPU_ISA", isas[i], 1);
        for (int t = 0; t < 2; t++) {
            struct test_device device = {0};
            tt_status status = tt_device_open(
                &(struct tt_device_config){.kind = "cpu", .threads = thread_counts[t]}, &device.device);
            if (status == TT_ERR_UNSUPPORTED) continue; /* this processor does not have it */
            test_ok(status);
            test_ok(tt_stream_create(device.device, &device.stream));
            body(&device, thread_counts[t], context);
            test_device_close(&device);
        }
    }
    unsetenv("TRIMTAB_CPU_ISA");
}

#endif
