#include "support/comm_calls.h"

#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "comm/comm_impl.h"
#include "support/ranks.h"

enum { GUARD_BYTES = 64, GUARD = 0xa5 };

static double value(struct tt_rng rng, uint64_t index)
{
    uint64_t bits = tt_rng_u64(rng, index);
    double fraction = (double)(int64_t)(bits >> 11) * 0x1p-53 + 0.5;
    return ldexp(bits & 1 ? fraction : -fraction, (int)(bits >> 1 & 31) - 16);
}

void test_comm_fill(void *data, tt_dtype dtype, size_t count, uint64_t seed, int rank)
{
    struct tt_rng rng = tt_rng_derive_index(tt_rng_make(seed), (uint64_t)rank);
    for (size_t i = 0; i < count; i++) {
        if (dtype == TT_F32)
            ((float *)data)[i] = (float)value(rng, i);
        else if (dtype == TT_BF16)
            ((uint16_t *)data)[i] = tt_f32_to_bf16((float)value(rng, i));
        else if (dtype == TT_F64)
            ((double *)data)[i] = value(rng, i);
        else if (dtype == TT_I64)
            ((int64_t *)data)[i] = (int64_t)tt_rng_u64(rng, i);
        else
            ((uint8_t *)data)[i] = (uint8_t)tt_rng_u64(rng, i);
    }
}

#define REDUCE(sum, x, reduce)                                                                               \
    ((reduce) == TT_REDUCE_SUM ? (sum) + (x) : (reduce) == TT_REDUCE_MAX ? fmax(sum, x) : fmin(sum, x))

static int64_t reduce_i64(int64_t a, int64_t b, enum tt_reduce reduce)
{
    if (reduce == TT_REDUCE_SUM) return (int64_t)((uint64_t)a + (uint64_t)b);
    return (a > b) == (reduce == TT_REDUCE_MAX) ? a : b;
}

void test_reduce_scalar(void *to, const void *const *from, int from_count, size_t count, tt_dtype dtype,
                        enum tt_reduce reduce)
{
    for (size_t i = 0; i < count; i++) {
        if (dtype == TT_F32) {
            float sum = ((const float *)from[0])[i];
            for (int q = 1; q < from_count; q++)
                sum = (float)REDUCE(sum, ((const float *)from[q])[i], reduce);
            ((float *)to)[i] = sum;
        } else if (dtype == TT_BF16) {
            float sum = tt_bf16_to_f32(((const uint16_t *)from[0])[i]);
            for (int q = 1; q < from_count; q++)
                sum = (float)REDUCE(sum, tt_bf16_to_f32(((const uint16_t *)from[q])[i]), reduce);
            ((uint16_t *)to)[i] = tt_f32_to_bf16(sum);
        } else if (dtype == TT_F64) {
            double sum = ((const double *)from[0])[i];
            for (int q = 1; q < from_count; q++) sum = REDUCE(sum, ((const double *)from[q])[i], reduce);
            ((double *)to)[i] = sum;
        } else {
            int64_t sum = ((const int64_t *)from[0])[i];
            for (int q = 1; q < from_count; q++) sum = reduce_i64(sum, ((const int64_t *)from[q])[i], reduce);
            ((int64_t *)to)[i] = sum;
        }
    }
}

/* The values of one rank: the inputs of all ranks, memory with guards behind it, and the expected results. */
struct desk {
    struct tt_comm *comm;
    struct tt_stream *stream;
    uint64_t seed;
    uint64_t digest;
    int rank, world_size;
    size_t capacity;
    void *sent[TEST_RANKS_MAX]; /* inputs of every rank */
    unsigned char *memory;
    void *wanted;
};

/* 64-bit FNV-1a. */
static void digest(struct desk *desk, const unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) desk->digest = (desk->digest ^ data[i]) * 0x100000001b3u;
}

/* Makes new values for all ranks; this rank's own are copied to `memory` + offset bytes, the rest of it is
 * guards. */
static tt_status lay(struct desk *desk, tt_dtype dtype, size_t count, size_t offset, size_t used)
{
    size_t bytes = count * tt_dtype_bytes(dtype);
    TEST_RANK_CHECK(bytes <= desk->capacity && used + GUARD_BYTES <= desk->capacity);
    desk->seed++;
    for (int q = 0; q < desk->world_size; q++) test_comm_fill(desk->sent[q], dtype, count, desk->seed, q);
    memset(desk->memory, GUARD, used + GUARD_BYTES);
    memcpy(desk->memory + offset, desk->sent[desk->rank], bytes);
    return TT_OK;
}

static tt_status compare(struct desk *desk, const void *got, size_t bytes, size_t used, const char *call,
                         size_t size, tt_dtype dtype)
{
    if (memcmp(got, desk->wanted, bytes) != 0)
        return tt_fail(TT_ERR_INTERNAL, "%s of %zu %s gives other bits than a scalar loop", call, size,
                       tt_dtype_name(dtype));
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (desk->memory[used + i] != GUARD)
            return tt_fail(TT_ERR_INTERNAL, "%s of %zu %s writes behind its result", call, size,
                           tt_dtype_name(dtype));
    }
    digest(desk, got, bytes);
    return TT_OK;
}

static tt_status check_all_gather(struct desk *desk, size_t bytes)
{
    size_t all = bytes * (size_t)desk->world_size, own = bytes * (size_t)desk->rank;
    for (int way = 0; way < 3; way++) { /* in place, out of place, host memory */
        TT_TRY(lay(desk, TT_U8, bytes, own, all));
        for (int q = 0; q < desk->world_size; q++)
            memcpy((char *)desk->wanted + bytes * (size_t)q, desk->sent[q], bytes);
        if (way > 0) memset(desk->memory, GUARD, all);
        const void *send = way == 0 ? desk->memory + own : desk->sent[desk->rank];
        if (way < 2)
            TT_TRY(tt_comm_all_gather(desk->comm, desk->stream, send, desk->memory, bytes));
        else
            TT_TRY(tt_comm_host_all_gather(desk->comm, send, desk->memory, bytes));
        TT_TRY(compare(desk, desk->memory, all, all, "all-gather", bytes, TT_U8));
    }
    return TT_OK;
}

static tt_status check_reduce_scatter(struct desk *desk, size_t count, tt_dtype dtype)
{
    const void *from[TEST_RANKS_MAX];
    size_t bytes = count * tt_dtype_bytes(dtype), world = (size_t)desk->world_size;
    size_t own = bytes * (size_t)desk->rank;
    for (int in_place = 0; in_place < 2; in_place++) {
        size_t used = in_place ? bytes * world : bytes;
        TT_TRY(lay(desk, dtype, count * world, 0, bytes * world));
        for (int q = 0; q < desk->world_size; q++) from[q] = (const char *)desk->sent[q] + own;
        test_reduce_scalar(desk->wanted, from, desk->world_size, count, dtype, TT_REDUCE_SUM);
        if (!in_place) memset(desk->memory, GUARD, bytes * world);
        const void *send = in_place ? desk->memory : desk->sent[desk->rank];
        void *recv = in_place ? desk->memory + own : desk->memory;
        TT_TRY(tt_comm_reduce_scatter(desk->comm, desk->stream, send, recv, count, dtype));
        TT_TRY(compare(desk, recv, bytes, used, "reduce-scatter", count, dtype));
    }
    return TT_OK;
}

static tt_status check_all_reduce(struct desk *desk, size_t count, tt_dtype dtype, enum tt_reduce reduce)
{
    size_t bytes = count * tt_dtype_bytes(dtype);
    TT_TRY(lay(desk, dtype, count, 0, bytes));
    test_reduce_scalar(desk->wanted, (const void *const *)desk->sent, desk->world_size, count, dtype, reduce);
    TT_TRY(tt_comm_all_reduce(desk->comm, desk->stream, desk->memory, count, dtype, reduce));
    return compare(desk, desk->memory, bytes, bytes, "all-reduce", count, dtype);
}

/* Uneven parts, some of them empty. */
static size_t bytes_between(int from, int to, size_t size)
{
    return (from + to) % 3 == 1 ? 0 : size * (size_t)(1 + (from * 3 + to * 5) % 4);
}

static size_t bytes_before(int from, int to, size_t size)
{
    size_t bytes = 0;
    for (int q = 0; q < to; q++) bytes += bytes_between(from, q, size);
    return bytes;
}

static tt_status check_exchange(struct desk *desk, size_t size)
{
    struct tt_comm_part parts[TEST_RANKS_MAX];
    size_t used = 0, most = 4 * size * (size_t)desk->world_size;
    TT_TRY(lay(desk, TT_U8, most, 0, most));
    memset(desk->memory, GUARD, most);
    for (int q = 0; q < desk->world_size; q++) {
        size_t bytes = bytes_between(q, desk->rank, size);
        parts[q] = (struct tt_comm_part){
            .send = (char *)desk->sent[desk->rank] + bytes_before(desk->rank, q, size),
            .send_bytes = bytes_between(desk->rank, q, size),
            .recv = desk->memory + used,
            .recv_bytes = bytes,
        };
        memcpy((char *)desk->wanted + used, (char *)desk->sent[q] + bytes_before(q, desk->rank, size), bytes);
        used += bytes;
    }
    TT_TRY(tt_comm_exchange(desk->comm, desk->stream, parts));
    return compare(desk, desk->memory, used, used, "exchange", size, TT_U8);
}

static tt_status check_broadcast(struct desk *desk, size_t bytes, int root)
{
    TT_TRY(lay(desk, TT_U8, bytes, 0, bytes));
    memcpy(desk->wanted, desk->sent[root], bytes);
    TT_TRY(tt_comm_host_broadcast(desk->comm, desk->memory, bytes, root));
    return compare(desk, desk->memory, bytes, bytes, "broadcast", bytes, TT_U8);
}

static tt_status check_all(struct desk *desk)
{
    static const size_t sizes[] = {1, 2, 3, 63, 64, 65, 513, 2049};
    static const tt_dtype dtypes[] = {TT_F32, TT_BF16, TT_F64, TT_I64};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        TT_TRY(check_all_gather(desk, sizes[s]));
        TT_TRY(check_reduce_scatter(desk, sizes[s], TT_F32));
        TT_TRY(check_reduce_scatter(desk, sizes[s], TT_BF16));
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            for (int reduce = TT_REDUCE_SUM; reduce <= TT_REDUCE_MIN; reduce++)
                TT_TRY(check_all_reduce(desk, sizes[s], dtypes[d], (enum tt_reduce)reduce));
        }
        TT_TRY(check_exchange(desk, sizes[s]));
        for (int root = 0; root < desk->world_size; root++) TT_TRY(check_broadcast(desk, sizes[s], root));
        TT_TRY(tt_comm_barrier(desk->comm));
    }
    TT_TRY(check_all_reduce(desk, 40003, TT_F32, TT_REDUCE_SUM));
    TT_TRY(check_all_reduce(desk, 40003, TT_BF16, TT_REDUCE_SUM));
    TT_TRY(check_reduce_scatter(desk, 5003, TT_F32));
    TT_TRY(check_exchange(desk, 5003));
    return check_all_gather(desk, 20011);
}

tt_status test_comm_calls(struct tt_comm *comm, uint64_t seed, uint64_t *out)
{
    struct tt_device *device = NULL;
    struct desk desk = {.comm = comm, .seed = seed << 32, .digest = 0xcbf29ce484222325u};
    tt_status status = TT_OK;
    desk.rank = tt_comm_rank(comm);
    desk.world_size = tt_comm_world_size(comm);
    desk.capacity = (size_t)200 << 10;
    if (desk.capacity < (size_t)desk.world_size * 24 << 10)
        desk.capacity = (size_t)desk.world_size * 24 << 10;
    desk.memory = tt_alloc_aligned(desk.capacity);
    desk.wanted = tt_alloc_aligned(desk.capacity);
    for (int q = 0; q < desk.world_size; q++) {
        desk.sent[q] = tt_alloc_aligned(desk.capacity);
        if (desk.sent[q] == NULL) status = TT_ERR_MEMORY;
    }
    if (desk.memory == NULL || desk.wanted == NULL) status = TT_ERR_MEMORY;
    if (status != TT_OK) goto out;
    TT_GO(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1}, &device));
    TT_GO(tt_stream_create(device, &desk.stream));
    TT_GO(check_all(&desk));
    *out = desk.digest;
out:
    if (desk.stream != NULL) tt_stream_destroy(desk.stream);
    tt_device_close(device);
    for (int q = 0; q < desk.world_size; q++) tt_free(desk.sent[q]);
    tt_free(desk.memory);
    tt_free(desk.wanted);
    return status;
}

/* Which ranks of the world fail by themselves, and which because of another one. */
struct agreement {
    unsigned failed, followed;
};

static tt_status check_agreement(struct tt_comm *comm, const struct agreement *now, int blamed)
{
    int rank = tt_comm_rank(comm);
    char own[40], wanted[100];
    tt_status status = TT_OK;
    snprintf(own, sizeof own, "trouble of rank %d", rank);
    tt_error_clear();
    if (now->failed >> rank & 1) status = tt_fail(TT_ERR_IO, "%s", own);
    if (now->followed >> rank & 1) status = tt_fail(TT_ERR_PEER, "%s", own);
    if (status != TT_OK) {
        tt_while("loading layer %d", rank);
        tt_hint("ask rank %d", rank);
    }
    struct tt_error before, after;
    tt_error_copy(&before);
    tt_status agreed = tt_comm_agree(comm, status);
    tt_error_copy(&after);
    if (status != TT_OK || blamed < 0) {
        TEST_RANK_CHECK(agreed == status);
        TEST_RANK_CHECK(memcmp(&before, &after, sizeof before) == 0);
        return TT_OK;
    }
    snprintf(wanted, sizeof wanted, "rank %d failed: trouble of rank %d", blamed, blamed);
    TEST_RANK_CHECK(agreed == TT_ERR_PEER && after.status == TT_ERR_PEER);
    TEST_RANK_CHECK(strcmp(after.message, wanted) == 0);
    snprintf(wanted, sizeof wanted, "loading layer %d", blamed);
    TEST_RANK_CHECK(after.context_count == 1 && strcmp(after.context[0], wanted) == 0);
    snprintf(wanted, sizeof wanted, "ask rank %d", blamed);
    TEST_RANK_CHECK(strcmp(after.hint, wanted) == 0);
    return TT_OK;
}

tt_status test_comm_agreement(struct tt_comm *comm)
{
    unsigned all = 1u << tt_comm_world_size(comm);
    for (unsigned failed = 0; failed < all; failed++) {
        for (unsigned followed = 0; followed < all; followed++) {
            if ((failed & followed) != 0) continue;
            unsigned to_blame = failed != 0 ? failed : followed;
            int blamed = to_blame == 0 ? -1 : __builtin_ctz(to_blame);
            TT_TRY(check_agreement(comm, &(struct agreement){failed, followed}, blamed));
        }
    }
    return TT_OK;
}

tt_status test_comm_splits(struct tt_comm *comm, uint64_t *out)
{
    int rank = tt_comm_rank(comm), world_size = tt_comm_world_size(comm);
    struct tt_comm *part = NULL, *inner = NULL;
    for (int colors = 1; colors <= world_size; colors++) {
        int color = (rank * 7 + 3) % colors, members = 0, own = 0;
        for (int q = 0; q < world_size; q++) {
            if ((q * 7 + 3) % colors != color) continue;
            own += q < rank;
            members++;
        }
        TT_TRY(tt_comm_split(comm, color, &part));
        TEST_RANK_CHECK(tt_comm_world_size(part) == members && tt_comm_rank(part) == own);
        int64_t sum = rank;
        TT_TRY(tt_comm_host_all_gather(part, &sum, (int64_t[TEST_RANKS_MAX]){0}, sizeof sum));
        if (colors == 2) TT_TRY(test_comm_calls(part, 5, out));
        TT_TRY(tt_comm_split(part, rank, &inner)); /* one rank each */
        TEST_RANK_CHECK(tt_comm_world_size(inner) == 1);
        tt_comm_destroy(part);
        TT_TRY(tt_comm_barrier(inner));
        tt_comm_destroy(inner);
    }
    return tt_comm_barrier(comm);
}

/* Rank 1 gives another order than the others, the `way`th. */
static tt_status call_differently(struct tt_comm *comm, struct tt_stream *stream, int way)
{
    bool other = tt_comm_rank(comm) == 1;
    double data[TEST_RANKS_MAX] = {0};
    switch (way) {
    case 0:
        return tt_comm_all_reduce(comm, stream, data, 4, TT_F32, other ? TT_REDUCE_MAX : TT_REDUCE_SUM);
    case 1:
        return tt_comm_all_reduce(comm, stream, data, 4, other ? TT_I64 : TT_F64, TT_REDUCE_SUM);
    case 2:
        return tt_comm_reduce_scatter(comm, stream, data, data, 1, other ? TT_BF16 : TT_F32);
    default:
        return tt_comm_host_broadcast(comm, data, sizeof *data, other);
    }
}

tt_status test_comm_orders(struct tt_comm *comm)
{
    struct tt_device *device = NULL;
    struct tt_stream *stream = NULL;
    tt_status status = TT_OK;
    TT_GO(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1}, &device));
    TT_GO(tt_stream_create(device, &stream));
    for (int way = 0; way < 4; way++) {
        int64_t ones = 1;
        if (!test_failed_with(call_differently(comm, stream, way), TT_ERR_INTERNAL, " while rank 1 calls "))
            TT_GO(tt_fail(TT_ERR_DATA, "rank %d: orders that differ, the %dth: %s", tt_comm_rank(comm), way,
                          tt_error_last()->message));
        TT_GO(
            tt_comm_all_reduce(comm, stream, &ones, 1, TT_I64, TT_REDUCE_SUM)); /* nothing is broken by it */
        if (ones != tt_comm_world_size(comm)) TT_GO(tt_fail(TT_ERR_DATA, "a sum of %lld", (long long)ones));
    }
out:
    if (stream != NULL) tt_stream_destroy(stream);
    tt_device_close(device);
    return status;
}
