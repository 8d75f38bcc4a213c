#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "backend/chips.h"
#include "backend/device.h"
#include "backend/ops/elementwise.h"
#include "base/thread.h"
#include "support/allocations.h"

static struct tt_device *open_device(const char *kind, int threads, size_t limit)
{
    struct tt_device *device = NULL;
    struct tt_device_config config = {.kind = kind, .threads = threads, .memory_limit = limit};
    assert_int_equal(tt_device_open(&config, &device), TT_OK);
    return device;
}

static void kinds_open_and_say_what_they_are(void **state)
{
    (void)state;
    struct tt_device *cpu = open_device("cpu", 3, 0), *plan = open_device("plan", 0, 0);
    assert_string_equal(tt_device_kind(cpu), "cpu");
    assert_int_equal(tt_device_threads(cpu), 3);
    assert_false(tt_device_is_plan(cpu));
    assert_non_null(strstr(tt_device_name(cpu), ", 3 threads, "));
    assert_string_equal(tt_device_kind(plan), "plan");
    assert_true(tt_device_is_plan(plan));
    assert_true(tt_device_threads(plan) >= 1);
    tt_device_close(cpu);
    tt_device_close(plan);
    cpu = open_device("cpu", 0, 0);
    assert_int_equal(tt_device_threads(cpu), tt_cpu_count());
    tt_device_close(cpu);
    tt_device_close(NULL);
}

static void what_cannot_be_opened_says_why(void **state)
{
    (void)state;
    struct tt_device *device = NULL;
    setenv("TRIMTAB_CUDA_PLUGIN", "/nowhere/libtrimtab_cuda.so", 1);
    assert_int_equal(tt_device_open(&(struct tt_device_config){.kind = "cuda"}, &device), TT_ERR_DEVICE);
    assert_non_null(strstr(tt_error_last()->message, "no GPU can be used: /nowhere/libtrimtab_cuda.so"));
    assert_non_null(strstr(tt_error_last()->hint, "--device cpu"));
    unsetenv("TRIMTAB_CUDA_PLUGIN");
    assert_int_equal(tt_device_open(&(struct tt_device_config){.kind = "abacus"}, &device),
                     TT_ERR_UNSUPPORTED);
    assert_int_equal(tt_device_open(&(struct tt_device_config){.kind = NULL}, &device), TT_ERR_UNSUPPORTED);
    assert_int_equal(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = -1}, &device),
                     TT_ERR_USAGE);
    assert_null(device);
}

/* A card with a longer name is not the shorter one, and one that is not known is none. */
static void chips_have_the_names_of_drivers(void **state)
{
    (void)state;
    static const char *const names[][2] = {{"NVIDIA H200", "h200"},
                                           {"NVIDIA H200 NVL", "h200-nvl"},
                                           {"NVIDIA H100 NVL", "h100-nvl"},
                                           {"NVIDIA H100 80GB HBM3", "h100"},
                                           {"NVIDIA B200", "b200"},
                                           {"NVIDIA L4", "l4"},
                                           {"NVIDIA L40S", "l40s"},
                                           {"NVIDIA RTX A5000", "a5000"},
                                           {"NVIDIA GeForce RTX 5090", "rtx5090"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_ptr_equal(tt_chip_of_device_name(names[i][0]), tt_chip_find(names[i][1]));
    assert_null(tt_chip_of_device_name("NVIDIA L40"));
    assert_null(tt_chip_of_device_name("Abacus"));
}

/* The environment's words, and those that there are not. */
static void tuning_is_read(void **state)
{
    (void)state;
    struct tt_device_tuning tuning;
    static const char *const names[] = {"TRIMTAB_CPU_ISA",     "TRIMTAB_CPU_GEMM",  "TRIMTAB_ATTENTION",
                                        "TRIMTAB_GEMM_FUSED",  "TRIMTAB_GEMM_TUNE", "TRIMTAB_DETERMINISTIC",
                                        "TRIMTAB_HANG_SECONDS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    assert_int_equal(tt_device_tuning_read(&tuning), TT_OK);
    assert_true(tuning.cpu_isa == 0 && tuning.cpu_gemm == 0 && tuning.attention == 0 &&
                tuning.gemm_fused == 0);
    assert_false(tuning.gemm_tune || tuning.deterministic || tuning.hang_seconds != 0);
    static const char *const values[] = {"avx2", "pairs", "own", "0", "1", "1", "0.5"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) setenv(names[i], values[i], 1);
    assert_int_equal(tt_device_tuning_read(&tuning), TT_OK);
    assert_int_equal(tuning.cpu_isa, TT_TUNING_ISA_FIRST + 1);
    assert_int_equal(tuning.cpu_gemm, TT_TUNING_GEMM_PAIRS);
    assert_int_equal(tuning.attention, TT_TUNING_ATTENTION_OWN);
    assert_int_equal(tuning.gemm_fused, TT_TUNING_FUSED_OFF);
    assert_true(tuning.gemm_tune && tuning.deterministic && tuning.hang_seconds == 0.5);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        setenv(names[i], "abacus", 1);
        assert_int_equal(tt_device_tuning_read(&tuning), TT_ERR_USAGE);
        assert_non_null(strstr(tt_error_last()->message, names[i]));
        unsetenv(names[i]);
    }
}

/* A level that the processor has is what the device then says it has; of the others the error names both.
 * Levels include each other in this order. */
static void levels_of_instructions(void **state)
{
    (void)state;
    static const char *const levels[] = {"portable", "avx2", "avx512", "avx512_bf16", "amx"};
    bool lacking = false;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        struct tt_device *device = NULL;
        struct tt_device_config config = {
            .kind = "cpu", .threads = 1, .tuning = {.cpu_isa = TT_TUNING_ISA_FIRST + (int)i}};
        tt_status status = tt_device_open(&config, &device);
        if (status == TT_OK) {
            assert_false(lacking);
            const char *name = strrchr(tt_device_name(device), ' ');
            assert_non_null(name);
            assert_string_equal(name + 1, levels[i]);
            tt_device_close(device);
            continue;
        }
        lacking = true;
        assert_int_equal(status, TT_ERR_UNSUPPORTED);
        assert_non_null(strstr(tt_error_last()->message, levels[i]));
        assert_null(device);
    }
    struct tt_device *device = NULL;
    struct tt_device_config pairs = {.kind = "cpu", .tuning = {.cpu_gemm = TT_TUNING_GEMM_PAIRS}};
    assert_int_equal(tt_device_open(&pairs, &device), TT_OK);
    tt_device_close(device);
}

static tt_status open_all(void *context)
{
    struct tt_device *device = NULL;
    struct tt_stream *stream = NULL;
    struct tt_event *event = NULL;
    struct tt_buffer *buffer = NULL;
    (void)context;
    tt_status status = tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 2}, &device);
    if (status == TT_OK) status = tt_stream_create(device, &stream);
    if (status == TT_OK) status = tt_event_create(device, &event);
    if (status == TT_OK) status = tt_buffer_create(device, 100, TT_PURPOSE_BATCH, &buffer);
    tt_buffer_destroy(buffer);
    tt_event_destroy(event);
    tt_stream_destroy(stream);
    tt_device_close(device);
    return status;
}

static void every_failing_allocation_is_reported(void **state)
{
    (void)state;
    assert_true(test_allocations_fail(open_all, NULL) >= 4);
}

static void buffers_are_zero_aligned_and_counted(void **state)
{
    (void)state;
    static const char *const kinds[] = {"cpu", "plan"};
    for (int kind = 0; kind < 2; kind++) {
        struct tt_device *device = open_device(kinds[kind], 1, 0);
        struct tt_memory_use use;
        struct tt_buffer *a = NULL, *b = NULL, *empty = NULL;
        assert_int_equal(tt_buffer_create(device, 1001, TT_PURPOSE_WEIGHTS, &a), TT_OK);
        assert_int_equal(tt_buffer_create(device, 500, TT_PURPOSE_GATHER, &b), TT_OK);
        assert_int_equal(tt_buffer_create(device, 0, TT_PURPOSE_COMM, &empty), TT_OK);
        assert_int_equal(tt_buffer_bytes(a), 1001);
        assert_int_equal((uintptr_t)tt_buffer_data(a) % 256, 0);
        assert_int_equal((uintptr_t)tt_buffer_data(b) % 256, 0);
        const char *a_data = tt_buffer_data(a), *b_data = tt_buffer_data(b);
        assert_true(a_data + 1001 <= b_data || b_data + 500 <= a_data);
        if (kind == 0) {
            for (int i = 0; i < 1001; i++) assert_int_equal(a_data[i], 0);
        }
        tt_buffer_destroy(b);
        tt_device_memory(device, &use);
        assert_int_equal(use.current[TT_PURPOSE_WEIGHTS], 1001);
        assert_int_equal(use.current[TT_PURPOSE_GATHER], 0);
        assert_int_equal(use.peak[TT_PURPOSE_GATHER], 500);
        size_t scratch = use.current[TT_PURPOSE_SCRATCH];
        assert_int_equal(scratch, kind == 0 ? tt_host_scratch_bytes(1) : 0);
        assert_int_equal(use.total_current, scratch + 1001);
        assert_int_equal(use.total_peak, scratch + 1501);
        tt_buffer_destroy(a);
        tt_buffer_destroy(empty);
        tt_buffer_destroy(NULL);
        tt_device_close(device);
    }
}

/* Bytes of this process that are in memory. */
static size_t resident(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
    if (file != NULL) fclose(file);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Large blocks are pages that come when they are touched, zero again after a block that was not. */
static void large_buffers_take_memory_when_they_are_used(void **state)
{
    (void)state;
    const size_t sizes[] = {((size_t)4 << 20) - 1, (size_t)4 << 20, ((size_t)4 << 20) + 1, 9000001};
    struct tt_device *device = open_device("cpu", 1, 0);
    struct tt_buffer *buffer = NULL;
    for (size_t i = 0; i < 2 * (sizeof sizes / sizeof *sizes); i++) {
        size_t bytes = sizes[i / 2];
        assert_int_equal(tt_buffer_create(device, bytes, TT_PURPOSE_WEIGHTS, &buffer), TT_OK);
        char *data = tt_buffer_data(buffer);
        assert_int_equal((uintptr_t)data % (bytes < sizes[1] ? 256 : (size_t)2 << 20), 0);
        assert_true(data[0] == 0 && memcmp(data, data + 1, bytes - 1) == 0);
        memset(data, 1, bytes);
        tt_buffer_destroy(buffer);
    }
    size_t before = resident();
    if (before == 0) skip(); /* no /proc */
    assert_int_equal(tt_host_buffer_create(device, (size_t)1 << 30, TT_PURPOSE_OFFLOAD, &buffer), TT_OK);
    char *data = tt_buffer_data(buffer);
    data[(size_t)512 << 20] = 1;
    assert_true(resident() - before < (size_t)64 << 20);
    tt_buffer_destroy(buffer);
    assert_int_equal(tt_buffer_create(device, (size_t)1 << 60, TT_PURPOSE_WEIGHTS, &buffer), TT_ERR_MEMORY);
    assert_non_null(
        strstr(tt_error_last()->message, "cannot allocate 1152921504606846976 bytes of host memory: "));
    assert_non_null(strstr(tt_error_last()->hint, "trimtab plan --device cpu"));
    tt_device_close(device);
}

static void the_limit_holds(void **state)
{
    (void)state;
    const size_t scratch = tt_host_scratch_bytes(1); /* is a part of it */
    struct tt_device *device = open_device("cpu", 1, scratch + 10000);
    struct tt_buffer *a = NULL, *b = NULL;
    assert_int_equal(tt_buffer_create(device, 6000, TT_PURPOSE_WEIGHTS, &a), TT_OK);
    assert_int_equal(tt_buffer_create(device, 4001, TT_PURPOSE_ACTIVATIONS, &b), TT_ERR_MEMORY);
    assert_non_null(strstr(tt_error_last()->message, "activations"));
    assert_int_equal(tt_buffer_create(device, SIZE_MAX, TT_PURPOSE_ACTIVATIONS, &b), TT_ERR_MEMORY);
    assert_int_equal(tt_buffer_create(device, 4000, TT_PURPOSE_ACTIVATIONS, &b), TT_OK);
    tt_buffer_destroy(a);
    tt_buffer_destroy(b);
    tt_device_close(device);
    device = open_device("cpu", 1, 0);
    assert_int_equal(tt_buffer_create(device, SIZE_MAX - 100, TT_PURPOSE_ACTIVATIONS, &b), TT_ERR_MEMORY);
    struct tt_memory_use use;
    tt_device_memory(device, &use);
    assert_int_equal(use.total_current, scratch);
    tt_device_close(device);
    const struct tt_device_config less = {.kind = "cpu", .threads = 1, .memory_limit = scratch - 1};
    assert_int_equal(tt_device_open(&less, &device), TT_ERR_MEMORY);
    assert_non_null(strstr(tt_error_last()->message, "device scratch"));
}

static void a_frozen_device_gives_nothing(void **state)
{
    (void)state;
    struct tt_device *device = open_device("cpu", 1, 0);
    struct tt_buffer *buffer = NULL;
    tt_device_freeze(device, true);
    assert_int_equal(tt_buffer_create(device, 1, TT_PURPOSE_BATCH, &buffer), TT_ERR_INTERNAL);
    assert_non_null(strstr(tt_error_last()->message, "frozen"));
    tt_device_freeze(device, false);
    assert_int_equal(tt_buffer_create(device, 1, TT_PURPOSE_BATCH, &buffer), TT_OK);
    tt_buffer_destroy(buffer);
    tt_device_close(device);
}

static void copies_and_fills_go_in_stream_order(void **state)
{
    (void)state;
    struct tt_device *device = open_device("cpu", 1, 0);
    struct tt_stream *stream = NULL, *other = NULL;
    struct tt_event *event = NULL;
    struct tt_buffer *buffer = NULL;
    assert_int_equal(tt_stream_create(device, &stream), TT_OK);
    assert_int_equal(tt_stream_create(device, &other), TT_OK);
    assert_int_equal(tt_event_create(device, &event), TT_OK);
    assert_int_equal(tt_buffer_create(device, 8, TT_PURPOSE_BATCH, &buffer), TT_OK);
    assert_ptr_equal(tt_stream_device(stream), device);
    char *data = tt_buffer_data(buffer), host[8];
    assert_int_equal(tt_copy_to_device(stream, data, "abcdefg", 8), TT_OK);
    assert_int_equal(tt_event_record(event, stream), TT_OK);
    assert_int_equal(tt_stream_wait(other, event), TT_OK);
    assert_int_equal(tt_fill_zero(other, data + 1, 2), TT_OK);
    assert_int_equal(tt_copy_on_device(other, data + 5, data + 3, 2), TT_OK);
    assert_int_equal(tt_copy_to_host(other, host, data, 8), TT_OK);
    assert_int_equal(tt_stream_synchronize(other), TT_OK);
    assert_memory_equal(host, "a\0\0dede", 8);
    assert_int_equal(tt_copy_to_host(stream, NULL, NULL, 0), TT_OK);
    assert_int_equal(tt_copy_to_host(stream, NULL, data, 1), TT_ERR_INTERNAL);
    assert_int_equal(tt_fill_zero(stream, NULL, 1), TT_ERR_INTERNAL);
    tt_buffer_destroy(buffer);
    tt_event_destroy(event);
    tt_stream_destroy(other);
    tt_stream_destroy(stream);
    tt_device_close(device);
}

/* The plan device checks ops as the others do, and touches no memory. */
static void the_plan_checks_and_computes_nothing(void **state)
{
    (void)state;
    struct tt_device *device = open_device("plan", 1, 0);
    struct tt_stream *stream = NULL;
    struct tt_buffer *buffer = NULL;
    assert_int_equal(tt_stream_create(device, &stream), TT_OK);
    assert_int_equal(tt_buffer_create(device, (size_t)1 << 40, TT_PURPOSE_WEIGHTS, &buffer), TT_OK);
    void *data = tt_buffer_data(buffer);
    struct tt_scale_args scale = {.x = tt_tensor_1d(data, TT_F32, 1 << 20), .factor = 2};
    assert_int_equal(tt_scale(stream, &scale), TT_OK);
    scale.x.dtype = TT_I32;
    assert_int_equal(tt_scale(stream, &scale), TT_ERR_UNSUPPORTED);
    struct tt_add_args add = {.a = tt_tensor_1d(data, TT_F32, 10),
                              .b = tt_tensor_1d(data, TT_F32, 10),
                              .y = tt_tensor_1d((char *)data + 4, TT_F32, 10)};
    assert_int_equal(tt_add(stream, &add), TT_ERR_INTERNAL);
    add.y = add.a;
    assert_int_equal(tt_add(stream, &add), TT_OK);
    assert_int_equal(tt_fill_zero(stream, data, 100), TT_OK);
    assert_int_equal(tt_copy_on_device(stream, data, (char *)data + 1000, 100), TT_OK);
    tt_buffer_destroy(buffer);
    tt_stream_destroy(stream);
    tt_device_close(device);
}

static void purposes_have_names(void **state)
{
    (void)state;
    for (int i = 0; i < TT_PURPOSE_COUNT; i++) {
        assert_non_null(tt_purpose_name((enum tt_purpose)i));
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(tt_purpose_name((enum tt_purpose)i), tt_purpose_name((enum tt_purpose)j));
        }
    }
    assert_string_equal(tt_purpose_name(TT_PURPOSE_WEIGHTS), "weights shard");
}

/* Handles are for GPUs. */
static void other_processes_read_no_memory_of_a_processor(void **state)
{
    (void)state;
    struct tt_device *device = open_device("cpu", 1, 0);
    struct tt_buffer *buffer = NULL;
    struct tt_memory_handle handle = {{0}};
    void *data = NULL;
    assert_int_equal(tt_buffer_create(device, 64, TT_PURPOSE_WEIGHTS, &buffer), TT_OK);
    assert_int_equal(tt_buffer_export(buffer, &handle), TT_ERR_UNSUPPORTED);
    assert_non_null(strstr(tt_error_last()->message, "cannot be read by other processes"));
    assert_int_equal(tt_device_import(device, &handle, &data), TT_ERR_UNSUPPORTED);
    assert_non_null(strstr(tt_error_last()->message, "cannot read memory of other processes"));
    assert_null(data);
    tt_device_unimport(device, NULL);
    tt_buffer_destroy(buffer);
    tt_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_open_and_say_what_they_are),
        cmocka_unit_test(what_cannot_be_opened_says_why),
        cmocka_unit_test(chips_have_the_names_of_drivers),
        cmocka_unit_test(levels_of_instructions),
        cmocka_unit_test(tuning_is_read),
        cmocka_unit_test(every_failing_allocation_is_reported),
        cmocka_unit_test(buffers_are_zero_aligned_and_counted),
        cmocka_unit_test(large_buffers_take_memory_when_they_are_used),
        cmocka_unit_test(the_limit_holds),
        cmocka_unit_test(a_frozen_device_gives_nothing),
        cmocka_unit_test(copies_and_fills_go_in_stream_order),
        cmocka_unit_test(the_plan_checks_and_computes_nothing),
        cmocka_unit_test(purposes_have_names),
        cmocka_unit_test(other_processes_read_no_memory_of_a_processor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
