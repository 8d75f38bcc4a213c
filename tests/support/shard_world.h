/* Units of random parameters for tests of src/shard. The values of a tensor and the gradient of a rank are pure
 * functions of (seed, parameter, element, ...), so every rank can check everything. On failure these functions
 * set an error of the rank (support/ranks.h). */
#ifndef TT_TESTS_SUPPORT_SHARD_WORLD_H
#define TT_TESTS_SUPPORT_SHARD_WORLD_H

#include "shard/unit.h"

enum { TEST_PARAMS_MAX = 12, TEST_ELEMENTS_MAX = 2048 };

struct test_how {
    enum tt_shard_strategy strategy;
    tt_dtype compute_dtype, reduce_dtype;
    bool no_training;
    int shard_size; /* HYBRID_SHARD: ranks that split a unit */
};

/* The surroundings of one rank's units. */
struct test_shard_world {
    struct test_how how;
    int rank, shard_size, replica_count; /* of the whole world; a unit is split over shard_size ranks */
    struct tt_device *device;
    struct tt_stream *compute;
    struct tt_comm *shard_comm, *replicate_comm; /* HYBRID_SHARD: owned */
    struct tt_shard_context *context;
};
tt_status test_shard_world_open(struct tt_comm *comm, const struct test_how *how,
                                struct test_shard_world *out);
void test_shard_world_close(struct test_shard_world *world); /* after its units */

/* A unit with its parameters; must not be moved. */
struct test_unit {
    uint64_t seed;
    int user_count;
    int version; /* of the values: another version has other values */
    tt_param params[TEST_PARAMS_MAX];
    char names[TEST_PARAMS_MAX][32];
    size_t param_count;
    struct tt_unit *unit;
};
/* Makes random parameters: none to many, all types, shapes with 0, few or odd numbers of elements. */
void test_unit_make_params(struct test_unit *unit, uint64_t seed);
tt_status test_unit_create(struct test_shard_world *world, const char *name, int user_count,
                           struct test_unit *unit);
/* Writes this rank's pieces of version `version`; the trainable ones only when `frozen_too` is false. */
tt_status test_unit_write(struct test_unit *unit, int version, bool frozen_too);
/* Checks that the lent values are those written, whole, in the right types and shapes. */
tt_status test_unit_check_lent(const struct test_shard_world *world, const struct test_unit *unit);
/* Adds this rank's gradients as one user of the unit does. */
tt_status test_unit_add_gradients(const struct test_shard_world *world, struct test_unit *unit, int micro,
                                  int user);
/* Checks the gradient slice after `micro_count` micro batches: it must have the sums in order, bit for bit. */
tt_status test_unit_check_gradients(const struct test_shard_world *world, const struct test_unit *unit,
                                    int micro_count);

#endif
