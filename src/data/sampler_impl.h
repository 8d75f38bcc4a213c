/* Private header of sampler.c and sampler_batch.c: the units of an epoch, and how a step deals them out. */
#ifndef TT_DATA_SAMPLER_IMPL_H
#define TT_DATA_SAMPLER_IMPL_H

#include <pthread.h>

#include "base/rng.h"
#include "data/length_order.h"
#include "data/packing.h"
#include "data/sampler.h"
#include "data/store.h"

enum unit_kind { UNIT_GROUP, UNIT_PACK, UNIT_SLICE };

/* A unit of a global batch, with the keys of its place in the batch. */
struct tt_sampler_member {
    uint64_t unit;
    uint64_t position; /* in the epoch's order */
    int64_t tokens;
};

/* Tokens at the beginning of a sample that the first one of its group begins with too, before another token in both,
 * with equal supervision; and their rows. */
struct tt_sampler_prefix {
    int32_t tokens, rows;
};

struct tt_sampler {
    const struct tt_store *store;
    struct tt_sampler_config config;
    enum unit_kind kind;
    size_t group_size;
    struct tt_packs packs;
    uint64_t unit_count;
    uint64_t batch_units; /* of a full global batch */
    int64_t steps_per_epoch;
    struct tt_rng rng;
    struct tt_length_order *by_length;  /* NULL: the permutation itself */
    struct tt_sampler_prefix *prefixes; /* [samples]; NULL: the sampler does not share */
    struct tt_batch_limits largest_unit;
    int64_t all_tokens, computed_tokens; /* of all units */
    /* Room for one global batch; used only by tt_sampler_limits, which must not fail. */
    pthread_mutex_t limits_lock;
    struct tt_sampler_member *limits_members;
};

/* Tokens first .. first + count - 1 of a sample: the whole sample, except at the borders of a slice. */
struct tt_sampler_piece {
    size_t sample;
    int32_t first, count;
};

struct tt_sampler_walk {
    uint64_t at, end; /* samples of a group, entries of a pack, or tokens of the stream */
    size_t sample;    /* of a slice: the next one */
};

struct tt_sampler_unit {
    struct tt_batch_limits size;
    int64_t samples, leading_rows; /* samples that begin in it; rows of its first sequence */
};

/* The global batch of a step: positions first .. first + count - 1 of the epoch's order, cut into cells, one
 * for each rank of each micro batch. */
struct tt_sampler_cells {
    int64_t epoch;
    uint64_t first, count;
    int64_t micro_count;
    uint64_t cells;
    struct tt_rng order;
};

/* A prompt with the answer of another sample. */
struct tt_sampler_mismatch {
    struct tt_sampler_piece prompt, answer;
};

struct tt_sampler_walk tt_sampler_walk_start(const struct tt_sampler *sampler, uint64_t unit);
bool tt_sampler_walk_next(const struct tt_sampler *sampler, struct tt_sampler_walk *walk,
                          struct tt_sampler_piece *piece);
struct tt_sampler_unit tt_sampler_unit(const struct tt_sampler *sampler, uint64_t unit);
/* The tokens that a sample has in common with the first one of its group; zeros: none. */
struct tt_sampler_prefix tt_sampler_prefix(const struct tt_sampler *sampler, size_t sample);
/* The mismatch at a position of the epoch's order, and its sizes. Units are samples. */
struct tt_sampler_mismatch tt_sampler_mismatch(const struct tt_sampler *sampler,
                                               const struct tt_sampler_cells *step, uint64_t position);
struct tt_batch_limits tt_sampler_mismatch_size(const struct tt_sampler_mismatch *mismatch);
/* Adds a unit to the sizes of a batch. */
void tt_sampler_add_unit(struct tt_batch_limits *sum, const struct tt_batch_limits *unit);
struct tt_sampler_cells tt_sampler_cells(const struct tt_sampler *sampler, int64_t index);
/* The members of a step, sorted so that dealing them out forth and back gives every cell about the same tokens: ranks
 * wait less for each other, and the largest micro batch is smaller. A single cell keeps their order. */
void tt_sampler_members(const struct tt_sampler *sampler, const struct tt_sampler_cells *step,
                        struct tt_sampler_member *members);
/* Index of the sorted member that a cell gets in a round; `count` when it gets none. */
uint64_t tt_sampler_dealt(const struct tt_sampler_cells *step, uint64_t cell, uint64_t round);

#endif
