/* The sampler assigns samples to micro batches, steps and ranks. It is a pure function of (data set, seed, step,
 * micro batch, rank) without state between calls, so any step can be computed and a run resumes from one integer.
 * Global batch s of an epoch is the next G = micro_batch_size * world_size * accumulation units of the epoch's
 * order (a unit is a group of samples, for most objectives of one, or a pack of samples when packing); its split
 * over ranks and micro batches changes neither its content nor the loss. The last batch of an epoch may be smaller:
 * then some ranks get micro batches with fewer units or none. */
#ifndef TT_DATA_SAMPLER_H
#define TT_DATA_SAMPLER_H

#include "data/count_unit.h"
#include "data/dataset.h"

struct tt_sampler_config {
    int64_t micro_batch_size; /* per_device_train_batch_size: units */
    int world_size;
    int64_t accumulation;
    uint64_t seed;
    bool shuffle;   /* false: file order */
    bool by_length; /* with shuffle: in the order of data/length_order.h */
    bool drop_last; /* drops an incomplete last batch of an epoch */
    bool packing;
    enum tt_packing_strategy packing_strategy;
    int64_t max_length; /* length of a pack */
    bool mismatched;    /* tt_sampler_shared gives mismatched answers */
    const char *value;  /* the column that has the samples' values; NULL: they have none */
    /* Packs that are made: of pack p the samples packs[p] .. packs[p + 1] - 1. [pack_count + 1], copied; NULL: none
     * are. */
    const uint32_t *packs;
    size_t pack_count;
    bool prompt_rows; /* every token with a successor is a row; batch->supervised marks the supervised ones */
    bool shares;      /* batches say which beginnings the samples of a group have in common (batch->prefix) */
};

/* A batch indexes its tokens with 32 bits: TT_ERR_USAGE when `samples` of `tokens` each exceed that. */
TT_MUST_USE tt_status tt_micro_batch_check(uint64_t samples, int64_t tokens);

struct tt_sampler;
/* Borrows the data set. TT_ERR_USAGE when `drop_last` would drop every batch, groups of several samples would be
 * packed, or `mismatched` has batches of one unit. */
TT_MUST_USE tt_status tt_sampler_create(const struct tt_dataset *dataset,
                                        const struct tt_sampler_config *config, struct tt_sampler **out);
void tt_sampler_destroy(struct tt_sampler *sampler);
int64_t tt_sampler_unit_count(const struct tt_sampler *sampler); /* groups or packs in an epoch */
int64_t tt_sampler_steps_per_epoch(const struct tt_sampler *sampler);
/* Tokens of an epoch, and those that passes compute: fewer where batches say which beginnings samples share. */
void tt_sampler_tokens(const struct tt_sampler *sampler, int64_t *all, int64_t *computed);

struct tt_step_facts {
    int64_t epoch;
    int64_t micro_count; /* the same on all ranks; at most accumulation */
    /* Counts of the whole global step: */
    int64_t samples, tokens, images;
    int64_t supervised; /* the denominator of the loss: rows, or images with boxes to find */
    int64_t leading;    /* those of the first sequence of each group */
    int64_t groups;     /* of sequences */
    int64_t pixels;     /* of images, on their canvases */
};
int64_t tt_step_count(const struct tt_step_facts *facts, enum tt_count_unit unit);
void tt_sampler_step(const struct tt_sampler *sampler, int64_t step, struct tt_step_facts *out);

/* The largest micro batch of a run on any rank, for the memory plan. */
struct tt_batch_limits {
    int64_t tokens, sequences, rows, length; /* as passes compute them */
    int64_t images, boxes, height, width;    /* of a detector: images, all their boxes, the canvas */
    int64_t copies; /* sequences that may have tokens in common, which are in `tokens` once; 0: none have */
    int64_t keys, all_rows; /* tokens and rows of all sequences, where some may have */
};
/* The limits of steps first .. first + count - 1. */
void tt_sampler_limits(const struct tt_sampler *sampler, int64_t first_step, int64_t step_count,
                       struct tt_batch_limits *out);
static inline bool tt_batch_limits_are_empty(const struct tt_batch_limits *limits)
{
    return limits->tokens == 0 && limits->images == 0;
}
/* Tokens of all sequences: at least `tokens`. */
static inline int64_t tt_batch_limits_keys(const struct tt_batch_limits *limits)
{
    return limits->keys > limits->tokens ? limits->keys : limits->tokens;
}
/* The maximum of each limit: room for the batches of both. */
struct tt_batch_limits tt_batch_limits_join(const struct tt_batch_limits *a, const struct tt_batch_limits *b);

/* Host arrays for one micro batch, grown as needed. A zeroed struct is empty. */
struct tt_batch_storage {
    void *block;
    size_t bytes;
};
void tt_batch_storage_deinit(struct tt_batch_storage *storage);
/* Makes room for at least `bytes`, at a multiple of 64 bytes. The content may be gone. */
TT_MUST_USE tt_status tt_batch_storage_reserve(struct tt_batch_storage *storage, size_t bytes);
/* `out` points into `storage` until its next use. */
TT_MUST_USE tt_status tt_sampler_batch(const struct tt_sampler *sampler, int64_t step, int64_t micro,
                                       int rank, struct tt_batch_storage *storage, struct tt_batch *out);

/* The micro batch of the pass that comes before those with gradients. With config.mismatched each of its sequences
 * is a prompt of the same micro batch with the answer, which ends the sample, of the sample before it in the order
 * of the step (of the first one: the last one's; of a step of one sample: that of the step before), cut at
 * max_length: no split of the step changes them. Columns per token and per row are 0, those per sequence are the
 * prompt's. Without: the micro batch itself. */
TT_MUST_USE tt_status tt_sampler_shared(const struct tt_sampler *sampler, int64_t step, int64_t micro,
                                        int rank, struct tt_batch_storage *storage, struct tt_batch *out);

#endif
