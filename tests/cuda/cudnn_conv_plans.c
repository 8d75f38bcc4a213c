/* Plans of convolutions that threads build at once are those that are built one after the other, and so are the stored
 * files. cuDNN builds them for a described H100 (NVIDIA's numbers of it), with a driver that has no GPU.
 * sources: conv/cudnn_plans conv/cudnn_graph cudnn/graph cudnn/store */
#include <dirent.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "backend/cuda/conv/cudnn_plans.h"
#include "backend/cuda/cudnn/store.h"
#include "base/alloc.h"
#include "base/file.h"
#include "base/thread.h"
#include "support/temporary.h"

enum { WORKSPACE_LIMIT = 8 << 20, FILE_BYTES_MAX = 16 << 20, NAME_BYTES = 512 };

static const char h100[] =
    "{\"cudaDeviceId\":0,\"deviceVer\":900,\"driverVer\":13000,\"deviceName\":\"NVIDIA H100 80GB HBM3\","
    "\"isTccDriver\":0,\"supportCoopLaunch\":1,\"multiProcessorCount\":132,\"maxGridSize\":[2147483647,65535,"
    "65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"warpSize\":32,"
    "\"maxSharedMemoryPerBlock\":"
    "49152,\"maxSharedMemoryPerBlockOptin\":232448,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"reservedSharedMemoryPerBlock\":1024,"
    "\"pciDeviceId\":"
    "6,\"smClockRateKHz\":1980000,\"memClockRateKHz\":2619000,\"l2CacheSize\":52428800,\"totalGlobalMem\":"
    "85017493504}";

static struct tt_cudnn cudnn;
static char root[256];        /* of the folders below */
static atomic_int selections; /* of the GPU, by threads */

cudaError_t cudaSetDevice(int index)
{
    assert_int_equal(index, 3);
    atomic_fetch_add(&selections, 1);
    return cudaSuccess;
}

#define CONV(...)                                                                                            \
    {                                                                                                        \
        .images = 2, .height = 16, .width = 16, .in = 64, .kernel = 3, .stride = 1, .padding = 1,            \
        .padding_end = 1, .x_row = 64, __VA_ARGS__                                                           \
    }

/* Two that are compiled forward, one compiled gradient, one of cuDNN's own kernels, and one that wants too much memory:
 * channels that are no multiple of 8. */
static const struct tt_cudnn_conv_shape shapes[] = {
    CONV(.pass = TT_CUDNN_CONV_FORWARD, .out = 64, .y_row = 64, .bias = 1, .relu = 1),
    CONV(.pass = TT_CUDNN_CONV_INPUT, .out = 64, .y_row = 64),
    CONV(.pass = TT_CUDNN_CONV_FORWARD, .out = 40, .y_row = 40, .bias = 1),
    {.pass = TT_CUDNN_CONV_FORWARD,
     .images = 16,
     .height = 100,
     .width = 100,
     .in = 256,
     .out = 819,
     .kernel = 3,
     .stride = 1,
     .padding = 1,
     .padding_end = 1,
     .x_row = 256,
     .y_row = 819},
    CONV(.pass = TT_CUDNN_CONV_WEIGHT, .out = 64, .y_row = 64),
};
enum { SHAPES = sizeof shapes / sizeof *shapes, REFUSED = 3, MADE = SHAPES - 1, SHARED = 3 };

static struct tt_cudnn_conv_plans no_plans(void)
{
    return (struct tt_cudnn_conv_plans){
        .cudnn = &cudnn, .device = "described", .index = 3, .workspace_limit = WORKSPACE_LIMIT};
}

/* Plans are stored below `folder` from now on. */
static void store_in(const char *folder, char path[512])
{
    snprintf(path, 512, "%s/%s", root, folder);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(setenv("XDG_CACHE_HOME", path, 1), 0);
}

/* Asks for each shape twice, as a step does, while shapes are collected. Returns how many are wanted. */
static size_t collect_all(struct tt_cudnn_conv_plans *plans)
{
    bool pending = false;
    tt_cudnn_conv_plans_collect(plans, true);
    for (int i = 0; i < 2 * SHAPES; i++)
        assert_null(tt_cudnn_conv_plans_find(plans, &shapes[i % SHAPES], &pending));
    tt_cudnn_conv_plans_collect(plans, false);
    return plans->wanted_count;
}

/* Collects all shapes and makes their plans; none is wanted afterwards. Returns how many were made. */
static size_t make_all(struct tt_cudnn_conv_plans *plans, int threads)
{
    size_t made = 0;
    assert_int_equal(collect_all(plans), SHAPES);
    assert_int_equal(tt_cudnn_conv_plans_make(plans, threads, &made), TT_OK);
    assert_int_equal(collect_all(plans), 0);
    return made;
}

/* Removes the text values of `key`. */
static void strip(char *json, const char *key)
{
    char wanted[32];
    int length = snprintf(wanted, sizeof wanted, "\"%s\":\"", key);
    for (char *at = json; (at = strstr(at, wanted)) != NULL;) {
        at += length;
        char *end = strchr(at, '"');
        assert_non_null(end);
        memmove(at, end, strlen(end) + 1);
    }
}

/* The plan as text: its graph, engine, configuration, kernels and their launches. Without the parameters of the
 * kernels, where addresses are not initialised, and without the machine code: NVIDIA's compiler schedules a kernel
 * differently after others that the process has compiled, in one thread too (cuDNN 9.19, CUDA 13.0). */
static char *text_of(struct tt_cudnn_conv_plans *plans, const struct tt_cudnn_conv_shape *shape)
{
    char *json = NULL;
    size_t bytes = 0;
    bool pending = true;
    const struct tt_cudnn_plan *plan = tt_cudnn_conv_plans_find(plans, shape, &pending);
    assert_false(pending);
    if (plan == NULL) return NULL;
    assert_int_equal(tt_cudnn_plan_write(plan, &json, &bytes), TT_OK);
    strip(json, "rawData");
    strip(json, "cubin");
    return json;
}

static int count_files(const char *folder)
{
    char path[600];
    int count = 0;
    snprintf(path, sizeof path, "%s/trimtab", folder);
    DIR *listing = opendir(path);
    assert_non_null(listing);
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;) count += entry->d_name[0] != '.';
    closedir(listing);
    return count;
}

/* Every file of `one` is in `other` too, under the same name and with the same first line. */
static void same_files(const char *one, const char *other)
{
    char path[600], name[1024];
    snprintf(path, sizeof path, "%s/trimtab", one);
    DIR *listing = opendir(path);
    assert_non_null(listing);
    for (const struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        struct tt_str a = {0}, b = {0};
        if (entry->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%s/trimtab/%s", one, entry->d_name);
        assert_int_equal(tt_file_read(name, FILE_BYTES_MAX, &a), TT_OK);
        snprintf(name, sizeof name, "%s/trimtab/%s", other, entry->d_name);
        assert_int_equal(tt_file_read(name, FILE_BYTES_MAX, &b), TT_OK);
        assert_true(b.bytes > strcspn(a.data, "\n"));
        assert_memory_equal(a.data, b.data, strcspn(a.data, "\n") + 1);
        tt_str_deinit(&a);
        tt_str_deinit(&b);
    }
    closedir(listing);
}

static void threads_build_the_same(void **state)
{
    (void)state;
    struct tt_cudnn_conv_plans ordered = no_plans(), threaded = no_plans(), later = no_plans();
    char in_order[512], by_threads[512];
    store_in("in_order", in_order);
    for (int i = 0; i < SHAPES; i++) {
        bool pending = true;
        const struct tt_cudnn_plan *plan = tt_cudnn_conv_plans_find(&ordered, &shapes[i], &pending);
        assert_false(pending);
        assert_int_equal(plan != NULL, i != REFUSED);
    }
    assert_int_equal(count_files(in_order), MADE);

    store_in("by_threads", by_threads);
    assert_int_equal(make_all(&threaded, 3), MADE);
    assert_int_equal(atomic_load(&selections), 3);
    assert_int_equal(threaded.count, SHAPES); /* also an entry for the one that cuDNN refuses */
    assert_int_equal(count_files(by_threads), MADE);
    same_files(in_order, by_threads);
    same_files(by_threads, in_order);

    /* A later process builds nothing, but for the one that has no plan. */
    assert_int_equal(make_all(&later, 2), 0);
    for (int i = 0; i < SHAPES; i++) {
        char *a = text_of(&ordered, &shapes[i]), *b = text_of(&threaded, &shapes[i]),
             *c = text_of(&later, &shapes[i]);
        if (i == REFUSED) {
            assert_true(a == NULL && b == NULL && c == NULL);
            continue;
        }
        assert_string_equal(a, b);
        assert_string_equal(a, c);
        tt_free(a);
        tt_free(b);
        tt_free(c);
    }
    tt_cudnn_conv_plans_deinit(&ordered);
    tt_cudnn_conv_plans_deinit(&threaded);
    tt_cudnn_conv_plans_deinit(&later);
}

/* What is collected later: known shapes are not built again, and a shape without a plan is not pending. */
static void known_shapes_are_left(void **state)
{
    (void)state;
    char folder[512];
    size_t made = 1;
    bool pending = true;
    struct tt_cudnn_conv_plans plans = no_plans();
    store_in("known", folder);
    const struct tt_cudnn_plan *plan = tt_cudnn_conv_plans_find(&plans, &shapes[1], &pending);
    assert_non_null(plan);
    assert_null(tt_cudnn_conv_plans_find(&plans, &shapes[REFUSED], &pending));
    tt_cudnn_conv_plans_collect(&plans, true);
    assert_null(tt_cudnn_conv_plans_find(&plans, &shapes[1], &pending));
    assert_true(pending);
    assert_null(tt_cudnn_conv_plans_find(&plans, &shapes[REFUSED], &pending));
    assert_false(pending);
    tt_cudnn_conv_plans_collect(&plans, false);
    assert_int_equal(tt_cudnn_conv_plans_make(&plans, 4, &made), TT_OK);
    assert_int_equal(made, 0);
    assert_ptr_equal(tt_cudnn_conv_plans_find(&plans, &shapes[1], &pending), plan);
    tt_cudnn_conv_plans_deinit(&plans);
}

/* Without a folder of caches plans are made all the same. */
static void nothing_is_stored(void **state)
{
    (void)state;
    bool pending = true;
    size_t made = 0;
    struct tt_cudnn_conv_plans plans = no_plans();
    setenv("XDG_CACHE_HOME", "/proc/none", 1);
    tt_cudnn_conv_plans_collect(&plans, true);
    (void)tt_cudnn_conv_plans_find(&plans, &shapes[1], &pending);
    tt_cudnn_conv_plans_collect(&plans, false);
    assert_int_equal(tt_cudnn_conv_plans_make(&plans, 1, &made), TT_OK);
    assert_int_equal(made, 1);
    assert_int_equal(plans.count, 1);
    assert_non_null(tt_cudnn_conv_plans_find(&plans, &shapes[1], &pending));
    tt_cudnn_conv_plans_deinit(&plans);
}

/* Two ranks of a machine with the same folder, at the same time. */
static tt_status make_as_rank(void *argument)
{
    struct tt_cudnn_conv_plans *plans = argument;
    size_t made;
    bool pending;
    tt_cudnn_conv_plans_collect(plans, true);
    for (int i = 0; i < SHARED; i++) (void)tt_cudnn_conv_plans_find(plans, &shapes[i], &pending);
    tt_cudnn_conv_plans_collect(plans, false);
    return tt_cudnn_conv_plans_make(plans, 2, &made);
}

static void ranks_share_a_folder(void **state)
{
    (void)state;
    char folder[512];
    struct tt_cudnn_conv_plans plans[2] = {no_plans(), no_plans()};
    struct tt_thread *other = NULL;
    store_in("shared", folder);
    assert_int_equal(tt_thread_start("rank 1", make_as_rank, &plans[1], &other), TT_OK);
    assert_int_equal(make_as_rank(&plans[0]), TT_OK);
    assert_int_equal(tt_thread_join(other), TT_OK);
    for (int i = 0; i < SHARED; i++) {
        char *a = text_of(&plans[0], &shapes[i]), *b = text_of(&plans[1], &shapes[i]);
        assert_string_equal(a, b);
        tt_free(a);
        tt_free(b);
    }
    assert_int_equal(count_files(folder), SHARED); /* whole ones, and nothing temporary */
    tt_cudnn_conv_plans_deinit(&plans[0]);
    tt_cudnn_conv_plans_deinit(&plans[1]);
}

static int open_cudnn(void)
{
    if (dlopen(TT_DRIVER_WITHOUT_GPU, RTLD_NOW | RTLD_GLOBAL) == NULL) {
        printf("%s\n", dlerror());
        return 1;
    }
    if (tt_cudnn_open(&cudnn) != TT_OK) {
        printf("skipped: cuDNN: %s\n", tt_error_last()->message);
        return 77;
    }
    cudnnBackendDescriptor_t device = NULL;
    if (cudnn.create_descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device) != CUDNN_STATUS_SUCCESS ||
        cudnn.set_attribute(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                            (int64_t)strlen(h100), h100) != CUDNN_STATUS_SUCCESS ||
        cudnn.finalize(device) != CUDNN_STATUS_SUCCESS) {
        printf("cuDNN does not take the description of a GPU\n");
        return 1;
    }
    cudnn.device = device;
    return 0;
}

int main(void)
{
    int code = open_cudnn();
    if (code != 0) return code;
    test_temporary(root, sizeof root, "plans-XXXXXX");
    if (mkdtemp(root) == NULL) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_build_the_same),
        cmocka_unit_test(known_shapes_are_left),
        cmocka_unit_test(nothing_is_stored),
        cmocka_unit_test(ranks_share_a_folder),
    };
    code = cmocka_run_group_tests(tests, NULL, NULL);
    tt_cudnn_close(&cudnn);
    return code;
}
