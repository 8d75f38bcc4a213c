/* Whole models: what lies in the shards after a load is what the folder holds, on any number of ranks and
 * with either kind of memory; initial values do not depend on either; and what is saved from a device is,
 * byte for byte, what is saved from the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "load_world.h"
#include "support/ranks.h"
#include "support/temporary.h"

#define MODEL TT_TEST_ROOT "/golden/llama_sharded/model"

struct how {
    bool late;
    bool train_base, random;
    tt_dtype dtype;
    const char *save_to; /* NULL: nothing is saved */
};

static tt_status open_world(struct tt_comm *comm, const struct how *how, const struct tt_model_folder *folder,
                            struct load_world *world)
{
    struct tt_model_options options = {
        .compute_dtype = how->dtype, .train_base = how->train_base, .random_init = how->random};
    return open_load_world(comm, how->late, &options, folder, world);
}

static tt_status check_piece(const struct tt_piece *piece, const struct tt_model_folder *folder)
{
    const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, piece->param->name);
    TEST_RANK_CHECK(entry != NULL);
    size_t bytes = (size_t)piece->count * tt_dtype_bytes(piece->dtype);
    void *wanted = tt_alloc_aligned(bytes);
    tt_status status = tt_model_folder_read(folder, entry, piece->first, piece->count, wanted, piece->dtype);
    if (status == TT_OK && memcmp(wanted, piece->data, bytes) != 0)
        status = tt_fail(TT_ERR_INTERNAL, "'%s' is not what the folder holds", piece->param->name);
    tt_free(wanted);
    return status;
}

/* Initial values: one, zero, or the same numbers as a fill of the whole tensor on an ordinary device. */
static tt_status check_made(const struct load_world *world, const struct tt_piece *piece,
                            struct tt_stream *plain)
{
    const tt_param *param = piece->param;
    size_t element = tt_dtype_bytes(piece->dtype);
    int64_t count = tt_param_count(param);
    char *wanted = tt_calloc((size_t)count, element);
    TEST_RANK_CHECK(wanted != NULL && param->init != TT_INIT_FILE);
    const float one = 1.0f;
    if (param->init == TT_INIT_ONE)
        for (int64_t e = 0; e < count; e++)
            (void)tt_dtype_convert(wanted + (size_t)e * element, piece->dtype, &one, TT_F32, 1);
    struct tt_random_fill_args args = {
        .y = tt_tensor_1d(wanted, piece->dtype, count),
        .rng = tt_rng_derive(tt_rng_derive(tt_rng_make(5), "init"), param->name),
        .normal = param->init == TT_INIT_NORMAL,
        .scale = param->init_scale,
    };
    tt_status status = TT_OK;
    if (param->init == TT_INIT_NORMAL || param->init == TT_INIT_UNIFORM)
        status = tt_random_fill(plain, &args);
    if (status == TT_OK &&
        memcmp(wanted + (size_t)piece->first * element, piece->data, (size_t)piece->count * element) != 0)
        status = tt_fail(TT_ERR_INTERNAL, "'%s' has other initial values", param->name);
    tt_free(wanted);
    (void)world;
    return status;
}

static tt_status check_pieces(const struct load_world *world, const struct how *how,
                              const struct tt_model_folder *folder)
{
    struct tt_device *device = NULL;
    struct tt_stream *plain = NULL;
    tt_status status = TT_OK;
    TT_GO(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1}, &device));
    TT_GO(tt_stream_create(device, &plain));
    for (int u = 0; u < world->model->unit_count; u++) {
        for (size_t p = 0; p < tt_unit_piece_count(world->units[u]); p++) {
            struct tt_piece piece = tt_unit_piece(world->units[u], p);
            if (piece.count == 0) continue;
            TT_GO(how->random ? check_made(world, &piece, plain) : check_piece(&piece, folder));
        }
    }
out:
    if (plain != NULL) tt_stream_destroy(plain);
    tt_device_close(device);
    return status;
}

static tt_status save(struct tt_comm *comm, const struct how *how, const struct load_world *world,
                      const struct tt_model_folder *base)
{
    struct tt_snapshot snapshot = {0};
    struct tt_saver *saver = NULL;
    struct tt_save_job job = {.folder = how->save_to};
    struct tt_save_report report;
    bool reported;
    tt_status status = TT_OK;
    struct tt_snapshot_config snapshot_config = {
        .device = world->device, .model = world->model, .units = world->units};
    struct tt_saver_config config = {
        .model = world->model,
        .units = world->units,
        .stream = world->stream,
        .snapshot = &snapshot,
        .comm = comm,
        .writes = true,
        .base = base,
        .dtype = how->dtype,
        .max_file_bytes = 100000,
    };
    TT_GO(tt_snapshot_init(&snapshot_config, &snapshot));
    tt_device_freeze(world->device, true); /* as in training */
    TT_GO(tt_saver_create(&config, &saver));
    TT_GO(tt_saver_begin(saver, &job));
    TT_GO(tt_saver_finish(saver, &report, &reported));
    if (reported != (tt_comm_rank(comm) == 0)) TT_GO(tt_fail(TT_ERR_INTERNAL, "nobody reported"));
out:
    tt_saver_destroy(saver);
    tt_snapshot_deinit(&snapshot);
    return status;
}

static tt_status run_rank(struct tt_comm *comm, void *argument)
{
    const struct how *how = argument;
    struct load_world world = {0};
    struct tt_model_folder *folder = NULL;
    tt_status status = TT_OK;
    struct tt_memory_use memory;
    TT_GO(tt_model_folder_open(MODEL, true, &folder));
    TT_GO(open_world(comm, how, folder, &world));
    struct tt_load_source source = {.folder = how->random ? NULL : folder, .seed = 5};
    TT_GO(tt_load_check(world.model, &source));
    TT_GO(tt_load_units(world.model, world.units, world.stream, &source));
    TT_GO(check_pieces(&world, how, folder));
    tt_device_memory(world.device, &memory);
    if (memory.host_total != 0) TT_GO(tt_fail(TT_ERR_INTERNAL, "a staging buffer is left"));
    if (how->save_to != NULL) TT_GO(save(comm, how, &world, folder));
out:
    close_load_world(&world);
    tt_model_folder_close(folder);
    return status;
}

static void test_loads(void **state)
{
    static const tt_dtype dtypes[] = {TT_BF16, TT_F32};
    (void)state;
    for (int bits = 0; bits < 16; bits++) {
        struct how how = {
            .late = bits & 1, .train_base = bits & 2, .random = bits & 4, .dtype = dtypes[bits >> 3 & 1]};
        for (int ranks = 1; ranks <= 3; ranks++) test_ranks(ranks, run_rank, &how);
    }
}

static void check_same_file(const char *a, const char *b, const char *name)
{
    char path[512];
    struct tt_str x = {0}, y = {0};
    (void)snprintf(path, sizeof path, "%s/%s", a, name);
    assert_int_equal(tt_file_read(path, 1 << 26, &x), TT_OK);
    (void)snprintf(path, sizeof path, "%s/%s", b, name);
    assert_int_equal(tt_file_read(path, 1 << 26, &y), TT_OK);
    assert_int_equal(x.bytes, y.bytes);
    assert_memory_equal(x.data, y.data, x.bytes);
    tt_str_deinit(&x);
    tt_str_deinit(&y);
}

static tt_status visit(void *context, const char *name)
{
    const char *const *folders = context;
    if (strstr(name, ".safetensors") != NULL) check_same_file(folders[0], folders[1], name);
    return TT_OK;
}

static void test_saves_the_same_bytes(void **state)
{
    static const tt_dtype dtypes[] = {TT_BF16, TT_F32};
    char host[160], device[160];
    const char *folders[2] = {host, device};
    (void)state;
    test_temporary_of(host, sizeof host, "trimtab-save", (long)getpid(), "-host");
    test_temporary_of(device, sizeof device, "trimtab-save", (long)getpid(), "-device");
    for (int bits = 0; bits < 4; bits++) {
        struct how how = {.train_base = bits & 1, .dtype = dtypes[bits >> 1], .save_to = host};
        test_ranks(1, run_rank, &how);
        how.late = true;
        how.save_to = device;
        for (int ranks = 1; ranks <= 2; ranks++) {
            test_ranks(ranks, run_rank, &how);
            assert_int_equal(tt_dir_list(host, visit, folders), TT_OK);
        }
    }
    assert_int_equal(tt_dir_remove(host), TT_OK);
    assert_int_equal(tt_dir_remove(device), TT_OK);
}

static void test_cancelled(void **state)
{
    struct tt_comm *comm = NULL;
    struct load_world world = {0};
    struct tt_model_folder *folder = NULL;
    struct how how = {.late = true, .dtype = TT_BF16};
    struct tt_cancel cancel = {.requests = 1};
    (void)state;
    assert_int_equal(tt_comm_create_self(&comm), TT_OK);
    assert_int_equal(tt_model_folder_open(MODEL, true, &folder), TT_OK);
    assert_int_equal(open_world(comm, &how, folder, &world), TT_OK);
    struct tt_load_source source = {.folder = folder, .cancel = &cancel};
    assert_int_equal(tt_load_units(world.model, world.units, world.stream, &source), TT_ERR_CANCELLED);
    atomic_store(&cancel.requests, 0);
    assert_int_equal(tt_load_units(world.model, world.units, world.stream, &source), TT_OK);
    close_load_world(&world);
    tt_model_folder_close(folder);
    tt_comm_destroy(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loads),
        cmocka_unit_test(test_saves_the_same_bytes),
        cmocka_unit_test(test_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
