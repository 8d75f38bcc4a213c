/* Runs a piece of a test on every instruction set that the cpu device has here, on one thread and on three; on a GPU
 * twice, where the same command must give the same bits too.
 */
#ifndef TT_TESTS_OPS_ISA_H
#define TT_TESTS_OPS_ISA_H

#include <stdlib.h>

#include "ops/harness.h"
#include "support/tuning.h"

/* Whether the processor has these instructions; says so if not. */
static inline bool test_isa_is_here(const char *isa)
{
    struct tt_device *device = NULL;
    setenv("TRIMTAB_CPU_ISA", isa, 1);
    tt_status status = tt_device_open(
        &(struct tt_device_config){.kind = "cpu", .threads = 1, .tuning = test_tuning()}, &device);
    if (status == TT_ERR_UNSUPPORTED) {
        print_message("skipped: no %s\n", isa);
        return false;
    }
    test_ok(status);
    tt_device_close(device);
    return true;
}

/* Called with one thread, then with three: results of the second call must be those of the first, bit for
 * bit. */
typedef void test_isa_body(struct test_device *device, int threads, void *context);

static inline void test_on_each_isa(test_isa_body *body, void *context)
{
    static const char *const isas[] = {"portable", "avx2", "avx512", "avx512_bf16"};
    static const int thread_counts[] = {1, 3};
    if (!test_on_cpu()) {
        struct test_device device;
        test_device_open(&device, test_device_kind(), 1);
        for (int t = 0; t < 2; t++) body(&device, thread_counts[t], context);
        test_device_close(&device);
        return;
    }
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        if (!test_isa_is_here(isas[i])) continue;
        for (int t = 0; t < 2; t++) {
            struct test_device device = {0};
            test_ok(tt_device_open(&(struct tt_device_config){.kind = "cpu",
                                                              .threads = thread_counts[t],
                                                              .tuning = test_tuning()},
                                   &device.device));
            test_ok(tt_stream_create(device.device, &device.stream));
            body(&device, thread_counts[t], context);
            test_device_close(&device);
        }
    }
    unsetenv("TRIMTAB_CPU_ISA");
}

/* A result of a body: its gaps, and its values, with one thread against the oracle (test_close), with more against
 * `first`, the result before. Then `got` is moved to *first. */
static inline void test_check_result(const char *what, struct test_tensor got, int threads,
                                     const double *oracle, const double *plain, double factor,
                                     struct test_tensor *first)
{
    test_tensor_check_gaps(what, &got);
    if (threads == 1) {
        double *values = test_tensor_values(&got);
        test_close(what, values, oracle, plain, tt_tensor_count(got.view), got.view.dtype, factor);
        free(values);
    } else {
        test_tensor_equal(what, &got, first);
    }
    test_tensor_free(first);
    *first = got;
}

/* A tensor that the op must leave as it was in `before`. Frees it. */
static inline void test_check_untouched(const char *what, struct test_tensor *tensor,
                                        const struct test_tensor *before)
{
    test_tensor_check_gaps(what, tensor);
    test_tensor_equal(what, tensor, before);
    test_tensor_free(tensor);
}

/* A case table whose rows are the context of `body`, which does not change them. */
static inline void test_isa_table(const char *what, const void *rows, size_t row_bytes, size_t count,
                                  test_isa_body *body)
{
    for (size_t row = 0; row < count; row++) {
        test_case_set(what, row);
        test_on_each_isa(body, (void *)((uintptr_t)rows + row * row_bytes));
    }
    test_case_set(NULL, 0);
}
#define TEST_ISA_CASES(what, rows, body)                                                                     \
    test_isa_table(what, rows, sizeof(rows)[0], sizeof(rows) / sizeof(rows)[0], body)

#endif
