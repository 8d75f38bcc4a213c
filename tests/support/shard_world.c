#include "support/shard_world.h"

#include <stdio.h>

#include "base/rng.h"
#include "support/ranks.h"
#include "support/tuning.h"

tt_status test_shard_world_open(struct tt_comm *comm, const struct test_how *how,
                                struct test_shard_world *world)
{
    int size = tt_comm_world_size(comm);
    bool hybrid = how->strategy == TT_HYBRID_SHARD;
    *world = (struct test_shard_world){.how = *how, .rank = tt_comm_rank(comm)};
    world->shard_size = how->strategy == TT_NO_SHARD ? 1 : hybrid ? how->shard_size : size;
    world->replica_count = size / world->shard_size;
    if (hybrid) {
        TT_TRY(tt_comm_split(comm, world->rank / world->shard_size, &world->shard_comm));
        TT_TRY(tt_comm_split(comm, world->rank % world->shard_size, &world->replicate_comm));
    }
    TT_TRY(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1, .tuning = test_tuning()},
                          &world->device));
    TT_TRY(tt_stream_create(world->device, &world->compute));
    struct tt_shard_config config = {
        .strategy = how->strategy,
        .device = world->device,
        .compute = world->compute,
        .shard_comm = hybrid ? world->shard_comm : comm,
        .replicate_comm = world->replicate_comm,
        .compute_dtype = how->compute_dtype,
        .reduce_dtype = how->reduce_dtype,
        .train = !how->no_training,
    };
    return tt_shard_context_create(&config, &world->context);
}

void test_shard_world_close(struct test_shard_world *world)
{
    tt_shard_context_destroy(world->context);
    if (world->compute != NULL) tt_stream_destroy(world->compute);
    tt_device_close(world->device);
    tt_comm_destroy(world->replicate_comm);
    tt_comm_destroy(world->shard_comm);
}

static uint64_t bits_of(const struct test_unit *unit, uint64_t what, size_t param, int64_t element)
{
    struct tt_rng rng = tt_rng_derive_index(tt_rng_make(unit->seed), what << 8 | param);
    return tt_rng_u64(rng, (uint64_t)element);
}

/* Not 0, and with magnitudes that differ so much that the order of a sum shows. */
static float number_of(const struct test_unit *unit, uint64_t what, size_t param, int64_t element)
{
    uint64_t bits = bits_of(unit, what, param, element);
    float value = (float)(1 + (bits >> 8 & 0xffffff)) * (bits & 1 ? 0x1p-24f : -0x1p-24f);
    return value * (float)(1 << (bits >> 1 & 15));
}

static float gradient_of(const struct test_unit *unit, size_t param, int64_t element, int rank, int micro,
                         int user)
{
    uint64_t what = 1000 + (uint64_t)(((unit->version * 16 + rank) * 16 + micro) * 4 + user);
    return number_of(unit, what, param, element);
}

void test_unit_make_params(struct test_unit *unit, uint64_t seed)
{
    static const tt_dtype dtypes[] = {TT_F32, TT_BF16, TT_BF16, TT_F16, TT_F64, TT_I8, TT_F8_E4M3, TT_I64};
    static const int64_t extents[] = {0, 1, 1, 2, 3, 5, 7, 8, 13, 64};
    struct tt_rng rng = tt_rng_make(seed);
    uint64_t at = 0;
    *unit = (struct test_unit){.seed = seed};
    unit->param_count = tt_rng_below(rng, at++, TEST_PARAMS_MAX + 1);
    uint64_t only = tt_rng_below(rng, at++, 5); /* now and then all train, or none */
    for (size_t i = 0; i < unit->param_count; i++) {
        tt_param *param = &unit->params[i];
        snprintf(unit->names[i], sizeof unit->names[i], "tensor.%zu", i);
        param->name = unit->names[i];
        param->stored_dtype = dtypes[tt_rng_below(rng, at++, 8)];
        param->trainable = only < 2 ? only == 0 : tt_rng_below(rng, at++, 2) == 0;
        param->exact = param->trainable && tt_rng_below(rng, at++, 4) == 0;
        if (param->exact) param->stored_dtype = TT_F32;
        int rank = (int)tt_rng_below(rng, at++, TT_RANK_MAX + 1);
        while (param->rank < rank) {
            int64_t extent = extents[tt_rng_below(rng, at++, 10)];
            if (extent == 0 && tt_rng_below(rng, at++, 4) > 0) extent = 3;
            if (tt_param_count(param) * extent > TEST_ELEMENTS_MAX) extent = 1;
            param->dims[param->rank++] = extent;
        }
    }
}

tt_status test_unit_create(struct test_shard_world *world, const char *name, int user_count,
                           struct test_unit *unit)
{
    tt_param *params[TEST_PARAMS_MAX];
    for (size_t i = 0; i < unit->param_count; i++) params[i] = &unit->params[i];
    unit->user_count = user_count;
    return tt_unit_create(world->context, name, params, unit->param_count, user_count, &unit->unit);
}

/* The bytes of an element in its type; those of a trainable one come from its fp32 master. */
static void element_of(const struct test_unit *unit, size_t param, int64_t element, tt_dtype dtype,
                       unsigned char *out)
{
    uint64_t bits = bits_of(unit, 1, param, element);
    if (unit->params[param].trainable) {
        float value = number_of(unit, 2 + (uint64_t)unit->version, param, element);
        uint16_t half = tt_f32_to_bf16(value);
        memcpy(out, dtype == TT_F32 ? (const void *)&value : &half, tt_dtype_bytes(dtype));
        return;
    }
    memcpy(out, &bits, tt_dtype_bytes(dtype));
}

static tt_status write_piece(const struct test_unit *unit, size_t index, const struct tt_piece *piece)
{
    size_t element = tt_dtype_bytes(piece->dtype);
    struct tt_slices slices = tt_unit_slices(unit->unit);
    TEST_RANK_CHECK(piece->param == &unit->params[index]);
    TEST_RANK_CHECK(piece->count == 0 || piece->data != NULL);
    TEST_RANK_CHECK(piece->first >= 0 && piece->first + piece->count <= tt_param_count(piece->param));
    if (piece->slice_offset >= 0 && piece->count > 0) {
        TEST_RANK_CHECK(piece->slice_offset + piece->count <= slices.count);
        TEST_RANK_CHECK(piece->data == slices.master + piece->slice_offset && piece->dtype == TT_F32);
    }
    for (int64_t i = 0; i < piece->count; i++) {
        element_of(unit, index, piece->first + i, piece->dtype,
                   (unsigned char *)piece->data + (size_t)i * element);
    }
    return TT_OK;
}

tt_status test_unit_write(struct test_unit *unit, int version, bool frozen_too)
{
    unit->version = version;
    TEST_RANK_CHECK(tt_unit_piece_count(unit->unit) == unit->param_count);
    for (size_t i = 0; i < unit->param_count; i++) {
        struct tt_piece piece = tt_unit_piece(unit->unit, i);
        if (frozen_too || piece.slice_offset >= 0) TT_TRY(write_piece(unit, i, &piece));
    }
    if (frozen_too) TT_TRY(tt_unit_frozen_changed(unit->unit));
    return tt_unit_masters_changed(unit->unit);
}

static tt_status check_view(const tt_param *param, tt_tensor view, tt_dtype dtype)
{
    TEST_RANK_CHECK(view.dtype == dtype && view.rank == param->rank);
    TEST_RANK_CHECK(memcmp(view.dims, param->dims, (size_t)param->rank * sizeof *view.dims) == 0);
    TEST_RANK_CHECK(tt_tensor_count(view) == 0 || (view.data != NULL && (uintptr_t)view.data % 32 == 0));
    TEST_RANK_CHECK(tt_tensor_is_contiguous(view));
    return TT_OK;
}

tt_status test_unit_check_lent(const struct test_shard_world *world, const struct test_unit *unit)
{
    for (size_t i = 0; i < unit->param_count; i++) {
        const tt_param *param = &unit->params[i];
        tt_dtype dtype = param->trainable && !param->exact ? world->how.compute_dtype : param->stored_dtype;
        size_t element = tt_dtype_bytes(dtype);
        TT_TRY(check_view(param, param->value, dtype));
        for (int64_t k = 0; k < tt_param_count(param); k++) {
            unsigned char wanted[8];
            element_of(unit, i, k, dtype, wanted);
            if (memcmp(wanted, (const char *)param->value.data + (size_t)k * element, element) != 0)
                return tt_fail(TT_ERR_INTERNAL, "rank %d of %s: element %lld of parameter %zu is wrong",
                               world->rank, tt_shard_strategy_name(world->how.strategy), (long long)k, i);
        }
        if (param->trainable && !world->how.no_training)
            TT_TRY(check_view(param, param->grad, TT_F32));
        else
            TEST_RANK_CHECK(tt_tensor_is_empty(param->grad));
    }
    return TT_OK;
}

tt_status test_unit_add_gradients(const struct test_shard_world *world, struct test_unit *unit, int micro,
                                  int user)
{
    for (size_t i = 0; i < unit->param_count; i++) {
        float *grad = unit->params[i].grad.data;
        if (!unit->params[i].trainable) continue;
        for (int64_t k = 0; k < tt_param_count(&unit->params[i]); k++)
            grad[k] += gradient_of(unit, i, k, world->rank, micro, user);
    }
    return TT_OK;
}

static float in_type(float value, tt_dtype dtype)
{
    return dtype == TT_F32 ? value : tt_bf16_to_f32(tt_f32_to_bf16(value));
}

/* Adds micro batches first .. last of one replica to `sum`: ranks are summed in order, each in the type that is
 * sent. */
static float add_micros(const struct test_shard_world *world, const struct test_unit *unit, size_t param,
                        int64_t k, int replica, int first, int last, float sum)
{
    tt_dtype dtype = world->how.reduce_dtype;
    float over_ranks = 0;
    for (int q = 0; q < world->shard_size; q++) {
        int rank = replica * world->shard_size + q;
        float own = world->shard_size == 1 ? sum : 0;
        for (int micro = first; micro <= last; micro++)
            for (int user = 0; user < unit->user_count; user++)
                own += gradient_of(unit, param, k, rank, micro, user);
        if (world->shard_size == 1) return own;
        over_ranks = q == 0 ? in_type(own, dtype) : over_ranks + in_type(own, dtype);
    }
    return sum + in_type(over_ranks, dtype);
}

static float gradient_sum(const struct test_shard_world *world, const struct test_unit *unit, size_t param,
                          int64_t k, int micro_count)
{
    tt_dtype dtype = world->how.reduce_dtype;
    float total = 0;
    for (int replica = 0; replica < world->replica_count; replica++) {
        float sum = 0;
        if (tt_unit_sums_at_join(unit->unit))
            sum = add_micros(world, unit, param, k, replica, 0, micro_count - 1, sum);
        for (int micro = 0; micro < micro_count && !tt_unit_sums_at_join(unit->unit); micro++)
            sum = add_micros(world, unit, param, k, replica, micro, micro, sum);
        if (world->replica_count == 1) return sum;
        total = replica == 0 ? in_type(sum, dtype) : total + in_type(sum, dtype);
    }
    return in_type(total, dtype);
}

tt_status test_unit_check_gradients(const struct test_shard_world *world, const struct test_unit *unit,
                                    int micro_count)
{
    struct tt_slices slices = tt_unit_slices(unit->unit);
    size_t run = 0;
    for (size_t i = 0; i < unit->param_count; i++) {
        struct tt_piece piece = tt_unit_piece(unit->unit, i);
        if (piece.slice_offset < 0 || piece.count == 0) continue;
        struct tt_slice_run this_run = tt_unit_run(unit->unit, run++);
        TEST_RANK_CHECK(this_run.param == piece.param && this_run.offset == piece.slice_offset &&
                        this_run.count == piece.count);
        for (int64_t k = 0; k < piece.count; k++) {
            float wanted = gradient_sum(world, unit, i, piece.first + k, micro_count);
            float got = slices.grad[piece.slice_offset + k];
            if (memcmp(&wanted, &got, sizeof got) != 0)
                return tt_fail(TT_ERR_INTERNAL,
                               "rank %d of %s: gradient of element %lld of parameter %zu is %a, wanted %a",
                               world->rank, tt_shard_strategy_name(world->how.strategy),
                               (long long)(piece.first + k), i, (double)got, (double)wanted);
        }
    }
    TEST_RANK_CHECK(run == tt_unit_run_count(unit->unit));
    return TT_OK;
}
