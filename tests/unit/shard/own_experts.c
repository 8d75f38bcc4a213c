/* Ranks that share the experts of a unit: what each holds and is lent of plain and coded matrices, beside tensors that
 * all ranks split, and what cannot be shared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "shard/unit.h"
#include "support/ranks.h"

enum { EXPERTS = 8, ROWS = 16, COLUMNS = 64, EACH = ROWS * COLUMNS, PARAMS = 3 };

struct scene {
    int sharing; /* ranks of a group */
    struct tt_quant_format format;
    int64_t experts;
};

/* A world with its groups, and a unit: a plain matrix of experts, a coded one, and a norm. */
struct desk {
    struct tt_comm *group, *holders;
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_shard_context *context;
    tt_param params[PARAMS];
    struct tt_unit *unit;
};

static void make_params(const struct scene *scene, struct desk *desk, tt_status *status)
{
    const int64_t dims[3] = {scene->experts, ROWS, COLUMNS};
    for (int p = 0; p < PARAMS; p++) {
        desk->params[p] = (tt_param){.name = p == 0   ? "plain"
                                             : p == 1 ? "coded"
                                                      : "norm",
                                     .stored_dtype = p == 1 ? TT_U8 : TT_F32,
                                     .rank = p < 2 ? 3 : 1,
                                     .dims = {p < 2 ? dims[0] : 100, dims[1], dims[2]}};
    }
    *status = tt_quant_layout_make(scene->format, scene->experts * ROWS, COLUMNS, &desk->params[1].quant);
}

static tt_status open_desk(struct tt_comm *comm, const struct scene *scene, struct desk *desk)
{
    int rank = tt_comm_rank(comm), size = tt_comm_world_size(comm);
    tt_status status;
    TT_TRY(tt_comm_split(comm, rank / scene->sharing, &desk->group));
    if (size > scene->sharing) TT_TRY(tt_comm_split(comm, rank % scene->sharing, &desk->holders));
    TT_TRY(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1}, &desk->device));
    TT_TRY(tt_stream_create(desk->device, &desk->stream));
    make_params(scene, desk, &status);
    TT_TRY(status);
    const tt_param *experts[] = {&desk->params[0], &desk->params[1]};
    struct tt_shard_config config = {.strategy = TT_FULL_SHARD,
                                     .device = desk->device,
                                     .compute = desk->stream,
                                     .shard_comm = comm,
                                     .compute_dtype = TT_F32,
                                     .reduce_dtype = TT_F32,
                                     .expert_comm = desk->group,
                                     .holder_comm = desk->holders,
                                     .experts = experts,
                                     .expert_count = 2};
    TT_TRY(tt_shard_context_create(&config, &desk->context));
    tt_param *params[] = {&desk->params[0], &desk->params[1], &desk->params[2]};
    TT_TRY(tt_unit_create(desk->context, "unit", params, PARAMS, 1, &desk->unit));
    return tt_shard_context_seal(desk->context, 1);
}

static void close_desk(struct desk *desk)
{
    tt_unit_destroy(desk->unit);
    tt_shard_context_destroy(desk->context);
    if (desk->stream != NULL) tt_stream_destroy(desk->stream);
    tt_device_close(desk->device);
    tt_comm_destroy(desk->holders);
    tt_comm_destroy(desk->group);
}

static uint8_t byte_of(int64_t at)
{
    return (uint8_t)(at * 131 + at / 251);
}

/* Elements are their place in the whole matrix, bytes a function of theirs. */
static void write_pieces(const struct desk *desk)
{
    for (size_t i = 0; i < tt_unit_piece_count(desk->unit); i++) {
        struct tt_piece piece = tt_unit_piece(desk->unit, i);
        for (int64_t e = 0; e < piece.count; e++) {
            if (piece.dtype == TT_U8)
                ((uint8_t *)piece.data)[e] = byte_of(piece.first + e);
            else
                ((float *)piece.data)[e] = (float)(piece.first + e);
        }
    }
}

/* A section of the lent segment has the bytes from `first` on of that of the whole matrix. */
static tt_status check_section(tt_tensor lent, const struct tt_quant_section *own,
                               const struct tt_quant_section *all, size_t first)
{
    const uint8_t *bytes = lent.data;
    for (size_t i = 0; i < own->bytes; i++)
        TEST_RANK_CHECK(bytes[own->offset + i] == byte_of((int64_t)(all->offset + first + i)));
    return TT_OK;
}

static tt_status check_coded(const struct desk *desk, int place, int64_t count)
{
    struct tt_quant_layout own;
    const struct tt_quant_layout *all = &desk->params[1].quant;
    tt_tensor lent = desk->params[1].value;
    TT_TRY(tt_quant_layout_make(all->format, count * ROWS, COLUMNS, &own));
    TEST_RANK_CHECK(lent.rank == 1 && lent.dims[0] == (int64_t)own.bytes);
    TT_TRY(check_section(lent, &own.codes, &all->codes, own.codes.bytes * (size_t)place));
    TT_TRY(check_section(lent, &own.absmax, &all->absmax, own.absmax.bytes * (size_t)place));
    TT_TRY(check_section(lent, &own.nested_absmax, &all->nested_absmax,
                         own.nested_absmax.bytes * (size_t)place));
    TT_TRY(check_section(lent, &own.map, &all->map, 0));
    TT_TRY(check_section(lent, &own.nested_map, &all->nested_map, 0));
    return check_section(lent, &own.offset, &all->offset, 0);
}

static tt_status check_lent(const struct desk *desk, const struct scene *scene, int place)
{
    int64_t count = scene->experts / scene->sharing;
    tt_tensor plain = desk->params[0].value, norm = desk->params[2].value;
    TEST_RANK_CHECK(plain.rank == 3 && plain.dims[0] == count && plain.dims[2] == COLUMNS);
    for (int64_t e = 0; e < count * EACH; e++)
        TEST_RANK_CHECK(((const float *)plain.data)[e] == (float)(place * count * EACH + e));
    for (int64_t e = 0; e < 100; e++) TEST_RANK_CHECK(((const float *)norm.data)[e] == (float)e);
    return check_coded(desk, place, count);
}

static tt_status hold(struct tt_comm *comm, void *argument)
{
    const struct scene *scene = argument;
    struct desk desk = {0};
    tt_status status = TT_OK;
    TT_GO(open_desk(comm, scene, &desk));
    write_pieces(&desk);
    TT_GO(tt_unit_frozen_changed(desk.unit));
    for (int pass = 0; pass < 2; pass++) {
        TT_GO(tt_unit_gather(desk.unit));
        TT_GO(tt_unit_wait(desk.unit));
        TT_GO(check_lent(&desk, scene, tt_comm_rank(comm) % scene->sharing));
        TT_GO(tt_unit_release(desk.unit, false));
    }
    if (desk.params[0].value.data != NULL) status = tt_fail(TT_ERR_INTERNAL, "a released matrix is lent");
out:
    close_desk(&desk);
    return status;
}

static void lent_are_the_own(void **state)
{
    static const int shapes[][2] = {{2, 2}, {4, 2}, {4, 4}, {8, 2}};
    const struct tt_quant_format formats[] = {tt_quant_format_make(TT_QUANT_NF4, false),
                                              tt_quant_format_make(TT_QUANT_INT8, false),
                                              {TT_QUANT_NF4, true, 32, 16}};
    (void)state;
    for (int f = 0; f < 3; f++)
        for (int i = 0; i < 4; i++) {
            struct scene scene = {shapes[i][1], formats[f], EXPERTS};
            test_ranks(shapes[i][0], hold, &scene);
        }
}

static void what_cannot_be_shared(void **state)
{
    struct tt_error outcomes[2];
    struct scene odd = {2, tt_quant_format_make(TT_QUANT_NF4, false), 7};
    struct scene nested = {2, tt_quant_format_make(TT_QUANT_NF4, true), 2};
    /* 1.5 nested blocks of two, and 0.75 of one: as many bytes twice as once, and a block of both ranks */
    struct scene straddles = {2, tt_quant_format_make(TT_QUANT_NF4, true), 24};
    (void)state;
    test_ranks_outcomes(2, hold, &odd, outcomes);
    assert_non_null(strstr(outcomes[0].message, "7 experts cannot be divided among 2 ranks: 'plain'"));
    test_ranks_outcomes(2, hold, &nested, outcomes);
    assert_non_null(strstr(outcomes[0].message, "the codes of 'coded' cannot be divided among 2 ranks"));
    test_ranks_outcomes(2, hold, &straddles, outcomes);
    assert_non_null(strstr(outcomes[0].message, "the codes of 'coded' cannot be divided among 2 ranks"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lent_are_the_own),
        cmocka_unit_test(what_cannot_be_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
