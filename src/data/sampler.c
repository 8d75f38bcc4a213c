#include "data/sampler.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "base/rng.h"
#include "data/length_order.h"
#include "data/packing.h"
#include "data/store.h"

enum { ARRAY_ALIGNMENT = 64 }; /* bytes */

enum unit_kind { UNIT_GROUP, UNIT_PACK, UNIT_SLICE };

/* A unit of a global batch, with the keys of its place in the batch. */
struct member {
    uint64_t unit;
    uint64_t position; /* in the epoch's order */
    int64_t tokens;
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
    struct tt_length_order *by_length; /* NULL: the permutation itself */
    struct tt_batch_limits largest_unit;
    /* Room for one global batch; used only by tt_sampler_limits, which must not fail. */
    pthread_mutex_t limits_lock;
    struct member *limits_members;
};

/* ---- Units ---- */

/* Tokens first .. first + count - 1 of a sample: the whole sample, except at the borders of a slice. */
struct piece {
    size_t sample;
    int32_t first, count;
};

struct piece_walk {
    uint64_t at, end; /* samples of a group, entries of a pack, or tokens of the stream */
    size_t sample;    /* of a slice: the next one */
};

/* The sample of token `at` of the stream. */
static size_t sample_at(const struct tt_store *store, uint64_t at)
{
    size_t low = 0, high = store->sample_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (store->samples[middle].first <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct piece_walk walk_start(const struct tt_sampler *sampler, uint64_t unit)
{
    if (sampler->kind == UNIT_GROUP) {
        uint64_t size = sampler->group_size;
        return (struct piece_walk){.at = unit * size, .end = (unit + 1) * size};
    }
    if (sampler->kind == UNIT_PACK) {
        return (struct piece_walk){.at = sampler->packs.first[unit], .end = sampler->packs.first[unit + 1]};
    }
    uint64_t length = (uint64_t)sampler->config.max_length, start = unit * length, end = start + length;
    if (end > sampler->store->token_count) end = sampler->store->token_count;
    return (struct piece_walk){.at = start, .end = end, .sample = sample_at(sampler->store, start)};
}

static bool walk_next(const struct tt_sampler *sampler, struct piece_walk *walk, struct piece *piece)
{
    if (walk->at >= walk->end) return false;
    const struct tt_store_sample *samples = sampler->store->samples;
    if (sampler->kind == UNIT_SLICE) {
        const struct tt_store_sample *sample = &samples[walk->sample];
        uint64_t sample_end = sample->first + (uint64_t)sample->count;
        uint64_t end = sample_end < walk->end ? sample_end : walk->end;
        *piece =
            (struct piece){walk->sample++, (int32_t)(walk->at - sample->first), (int32_t)(end - walk->at)};
        walk->at = end;
        return true;
    }
    size_t index = sampler->kind == UNIT_PACK ? sampler->packs.samples[walk->at] : (size_t)walk->at;
    *piece = (struct piece){index, 0, samples[index].count};
    walk->at++;
    return true;
}

/* Tokens with a predecessor in the same piece that are supervised, or all of these. */
static int64_t piece_rows(const struct tt_sampler *sampler, struct piece piece)
{
    if (sampler->config.prompt_rows) return piece.count > 0 ? piece.count - 1 : 0;
    const struct tt_store_sample *sample = &sampler->store->samples[piece.sample];
    if (piece.count == sample->count) return sample->supervised_count;
    const uint8_t *supervised = sampler->store->supervised + sample->first + piece.first;
    int64_t rows = 0;
    for (int32_t i = 1; i < piece.count; i++) rows += supervised[i];
    return rows;
}

struct unit_facts {
    struct tt_batch_limits size;
    int64_t samples, leading_rows; /* samples that begin in it; rows of its first sequence */
};

static struct unit_facts unit_facts(const struct tt_sampler *sampler, uint64_t unit)
{
    struct unit_facts facts = {0};
    struct piece_walk walk = walk_start(sampler, unit);
    for (struct piece piece; walk_next(sampler, &walk, &piece);) {
        int64_t rows = piece_rows(sampler, piece);
        if (facts.size.sequences++ == 0) facts.leading_rows = rows;
        facts.size.tokens += piece.count;
        facts.size.rows += rows;
        if (piece.count > facts.size.length) facts.size.length = piece.count;
        facts.samples += piece.first == 0;
    }
    return facts;
}

/* Tokens only, for the split over ranks and orders by length; `context` is a sampler. */
static int64_t unit_tokens(const void *context, uint64_t unit)
{
    const struct tt_sampler *sampler = context;
    int64_t tokens = 0;
    struct piece_walk walk = walk_start(sampler, unit);
    if (sampler->kind == UNIT_SLICE) return (int64_t)(walk.end - walk.at);
    for (struct piece piece; walk_next(sampler, &walk, &piece);) tokens += piece.count;
    return tokens;
}

/* ---- Steps ---- */

/* The global batch of a step: positions first .. first + count - 1 of the epoch's order, cut into cells, one
 * for each rank of each micro batch. */
struct step {
    int64_t epoch;
    uint64_t first, count;
    int64_t micro_count;
    uint64_t cells;
    struct tt_rng order;
};

static struct step step_at(const struct tt_sampler *sampler, int64_t index)
{
    struct step step = {.epoch = index / sampler->steps_per_epoch};
    step.first = (uint64_t)(index % sampler->steps_per_epoch) * sampler->batch_units;
    step.count = sampler->unit_count - step.first;
    if (step.count > sampler->batch_units) step.count = sampler->batch_units;
    uint64_t micro_units = (uint64_t)sampler->config.micro_batch_size * (uint64_t)sampler->config.world_size;
    step.micro_count = (int64_t)((step.count + micro_units - 1) / micro_units);
    step.cells = (uint64_t)step.micro_count * (uint64_t)sampler->config.world_size;
    step.order = tt_rng_derive_index(sampler->rng, (uint64_t)step.epoch);
    return step;
}

static uint64_t unit_at(const struct tt_sampler *sampler, const struct step *step, uint64_t position)
{
    if (!sampler->config.shuffle) return position;
    if (sampler->by_length != NULL) return tt_length_order_unit(sampler->by_length, step->epoch, position);
    return tt_rng_permute(step->order, position, sampler->unit_count);
}

static int compare_members(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    if (x->tokens != y->tokens) return x->tokens > y->tokens ? -1 : 1;
    return x->position < y->position ? -1 : 1;
}

static int compare_positions(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    return x->position < y->position ? -1 : x->position > y->position;
}

/* The members of a step, sorted so that dealing them out forth and back gives every cell about the same tokens: ranks
 * wait less for each other, and the largest micro batch is smaller. A single cell keeps their order. */
static void list_members(const struct tt_sampler *sampler, const struct step *step, struct member *members)
{
    for (uint64_t i = 0; i < step->count; i++) {
        uint64_t unit = unit_at(sampler, step, step->first + i);
        members[i] = (struct member){unit, step->first + i, unit_tokens(sampler, unit)};
    }
    if (step->cells > 1) qsort(members, step->count, sizeof *members, compare_members);
}

/* Index of the sorted member that a cell gets in a round; `count` when it gets none. */
static uint64_t dealt(const struct step *step, uint64_t cell, uint64_t round)
{
    uint64_t index = round * step->cells + (round % 2 == 0 ? cell : step->cells - 1 - cell);
    return index < step->count ? index : step->count;
}

void tt_sampler_step(const struct tt_sampler *sampler, int64_t index, struct tt_step_facts *out)
{
    struct step step = step_at(sampler, index);
    struct tt_step_facts facts = {.epoch = step.epoch, .micro_count = step.micro_count};
    for (uint64_t i = 0; i < step.count; i++) {
        struct unit_facts unit = unit_facts(sampler, unit_at(sampler, &step, step.first + i));
        facts.supervised += unit.size.rows;
        facts.leading += unit.leading_rows;
        facts.tokens += unit.size.tokens;
        facts.samples += unit.samples;
        facts.groups += unit.size.sequences / (int64_t)sampler->group_size;
    }
    *out = facts;
}

/* ---- Limits ---- */

static void raise_limits(struct tt_batch_limits *limits, const struct tt_batch_limits *other)
{
    *limits = tt_batch_limits_join(limits, other);
}

static void add_unit(struct tt_batch_limits *sum, const struct tt_batch_limits *unit)
{
    sum->tokens += unit->tokens;
    sum->sequences += unit->sequences;
    sum->rows += unit->rows;
    if (unit->length > sum->length) sum->length = unit->length;
}

static void step_limits(const struct tt_sampler *sampler, int64_t index, struct member *members,
                        struct tt_batch_limits *limits)
{
    struct step step = step_at(sampler, index);
    list_members(sampler, &step, members);
    for (uint64_t cell = 0; cell < step.cells; cell++) {
        struct tt_batch_limits batch = {0};
        for (uint64_t round = 0; round * step.cells < step.count; round++) {
            uint64_t at = dealt(&step, cell, round);
            if (at == step.count) continue;
            struct unit_facts unit = unit_facts(sampler, members[at].unit);
            add_unit(&batch, &unit.size);
        }
        raise_limits(limits, &batch);
    }
}

void tt_sampler_limits(const struct tt_sampler *sampler, int64_t first_step, int64_t step_count,
                       struct tt_batch_limits *out)
{
    /* Visiting that many units takes a few seconds. For more units the upper bound of any batch is used. */
    const uint64_t looked_at_max = (uint64_t)1 << 22;
    uint64_t looked_at = 0;
    struct tt_batch_limits limits = {0};
    struct tt_sampler *self = (struct tt_sampler *)(uintptr_t)sampler;
    pthread_mutex_lock(&self->limits_lock);
    for (int64_t i = 0; i < step_count && looked_at < looked_at_max; i++, looked_at += sampler->batch_units) {
        step_limits(sampler, first_step + i, self->limits_members, &limits);
    }
    pthread_mutex_unlock(&self->limits_lock);
    if (looked_at >= looked_at_max) {
        struct tt_batch_limits bound = sampler->largest_unit;
        bound.tokens *= sampler->config.micro_batch_size;
        bound.sequences *= sampler->config.micro_batch_size;
        bound.rows *= sampler->config.micro_batch_size;
        raise_limits(&limits, &bound);
    }
    *out = limits;
}

/* ---- Batches ---- */

void tt_batch_storage_deinit(struct tt_batch_storage *storage)
{
    tt_free(storage->block);
    *storage = (struct tt_batch_storage){0};
}

static tt_status storage_reserve(struct tt_batch_storage *storage, size_t bytes)
{
    if (bytes <= storage->bytes) return TT_OK;
    tt_batch_storage_deinit(storage);
    storage->block = tt_alloc_aligned(bytes);
    if (storage->block == NULL) return TT_ERR_MEMORY;
    storage->bytes = bytes;
    return TT_OK;
}

/* Arrays of a batch, one after the other in a block, each at a multiple of 64 bytes. */
struct batch_arrays {
    int64_t *row_keys;
    int32_t *ids, *positions, *cu_seqlens, *rows, *labels;
    uint8_t *supervised;
    float *columns[TT_COLUMNS_MAX];
};

/* Returns the bytes needed; `block` may be NULL to compute only these. */
static size_t lay_out(const struct tt_sampler *sampler, char *block, const struct tt_batch_limits *size,
                      struct batch_arrays *arrays)
{
    size_t at = 0, tokens = (size_t)size->tokens, rows = (size_t)size->rows;
    const struct tt_columns *columns = &sampler->store->columns;
    const struct {
        void **array;
        size_t bytes;
    } parts[] = {
        {(void **)&arrays->row_keys, tokens * sizeof(int64_t)},
        {(void **)&arrays->ids, tokens * sizeof(int32_t)},
        {(void **)&arrays->positions, tokens * sizeof(int32_t)},
        {(void **)&arrays->cu_seqlens, ((size_t)size->sequences + 1) * sizeof(int32_t)},
        {(void **)&arrays->rows, rows * sizeof(int32_t)},
        {(void **)&arrays->labels, rows * sizeof(int32_t)},
        {(void **)&arrays->supervised, rows},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (block != NULL) *parts[i].array = block + at;
        at += tt_align_up(parts[i].bytes, ARRAY_ALIGNMENT);
    }
    for (int c = 0; c < columns->count; c++) {
        enum tt_per per = columns->list[c].per;
        size_t count = per == TT_PER_TOKEN ? tokens : per == TT_PER_ROW ? rows : (size_t)size->sequences;
        if (block != NULL) arrays->columns[c] = (float *)(block + at);
        at += tt_align_up(count * sizeof(float), ARRAY_ALIGNMENT);
    }
    return at;
}

/* The values of a piece that begins at token `at` and row `first_row` of the batch, as sequence `sequence` of it. */
static void fill_columns(const struct tt_sampler *sampler, struct piece piece,
                         const struct batch_arrays *arrays, int32_t at, int32_t first_row, int32_t end_row,
                         int64_t sequence)
{
    const struct tt_columns *columns = &sampler->store->columns;
    uint64_t start = sampler->store->samples[piece.sample].first + (uint64_t)piece.first;
    for (int c = 0; c < columns->count; c++) {
        const float *from = columns->list[c].values;
        float *to = arrays->columns[c];
        switch (columns->list[c].per) {
        case TT_PER_TOKEN:
            memcpy(to + at, from + start, (size_t)piece.count * sizeof *to);
            break;
        case TT_PER_ROW:
            for (int32_t r = first_row; r < end_row; r++)
                to[r] = from[start + (uint64_t)(arrays->rows[r] - at) + 1];
            break;
        case TT_PER_SEQUENCE:
            to[sequence] = from[piece.sample];
            break;
        case TT_PER_GROUP:
            to[(size_t)sequence / sampler->group_size] = from[piece.sample / sampler->group_size];
            break;
        }
    }
}

static void fill_piece(const struct tt_sampler *sampler, struct piece piece,
                       const struct batch_arrays *arrays, struct tt_batch *batch, int32_t *row_count)
{
    uint64_t start = sampler->store->samples[piece.sample].first + (uint64_t)piece.first;
    const int32_t *ids = sampler->store->ids + start;
    const uint8_t *supervised = sampler->store->supervised + start;
    int32_t at = (int32_t)batch->token_count, rows = *row_count;
    int64_t key = (int64_t)piece.sample << 24 | piece.first;
    memcpy(arrays->ids + at, ids, (size_t)piece.count * sizeof *ids);
    for (int32_t i = 0; i < piece.count; i++) {
        arrays->positions[at + i] = i;
        arrays->row_keys[at + i] = key + i;
        if (i + 1 < piece.count && (supervised[i + 1] || sampler->config.prompt_rows)) {
            arrays->supervised[rows] = supervised[i + 1];
            arrays->rows[rows] = at + i;
            arrays->labels[rows++] = ids[i + 1];
        }
    }
    fill_columns(sampler, piece, arrays, at, *row_count, rows, batch->sequence_count);
    *row_count = rows;
    batch->token_count += piece.count;
    batch->sequence_count++;
    arrays->cu_seqlens[batch->sequence_count] = (int32_t)batch->token_count;
    if (piece.count > batch->max_length) batch->max_length = piece.count;
}

/* Moves the members of one cell to the front, in their order in the epoch; returns how many. */
static uint64_t select_cell(const struct step *step, uint64_t cell, struct member *members)
{
    uint64_t count = 0;
    /* A member never moves to a later place, so none is overwritten before it is read. */
    for (uint64_t round = 0; round * step->cells < step->count; round++) {
        uint64_t at = dealt(step, cell, round);
        if (at < step->count) members[count++] = members[at];
    }
    qsort(members, count, sizeof *members, compare_positions);
    return count;
}

/* The tokens of a unit may come from a file. */
static tt_status check_tokens(const struct tt_sampler *sampler, uint64_t unit)
{
    struct piece_walk walk = walk_start(sampler, unit);
    for (struct piece piece; walk_next(sampler, &walk, &piece);)
        TT_TRY(tt_store_check(sampler->store, piece.sample, piece.first, piece.count));
    return TT_OK;
}

tt_status tt_sampler_batch(const struct tt_sampler *sampler, int64_t index, int64_t micro, int rank,
                           struct tt_batch_storage *storage, struct tt_batch *out)
{
    struct step step = step_at(sampler, index);
    if (micro < 0 || micro >= step.micro_count || rank < 0 || rank >= sampler->config.world_size) {
        return tt_fail(TT_ERR_INTERNAL, "no micro batch %lld of rank %d in step %lld", (long long)micro, rank,
                       (long long)index);
    }
    /* The members come first in the block; the batch follows them. */
    size_t member_bytes = tt_align_up(step.count * sizeof(struct member), ARRAY_ALIGNMENT);
    TT_TRY(storage_reserve(storage, member_bytes));
    list_members(sampler, &step, storage->block);
    uint64_t cell = (uint64_t)micro * (uint64_t)sampler->config.world_size + (uint64_t)rank;
    uint64_t count = select_cell(&step, cell, storage->block);
    struct tt_batch_limits size = {0};
    for (uint64_t i = 0; i < count; i++) {
        TT_TRY(check_tokens(sampler, ((struct member *)storage->block)[i].unit));
        struct unit_facts unit = unit_facts(sampler, ((struct member *)storage->block)[i].unit);
        add_unit(&size, &unit.size);
    }

    struct batch_arrays arrays = {0};
    size_t bytes = member_bytes + lay_out(sampler, NULL, &size, &arrays);
    if (bytes > storage->bytes) {
        TT_TRY(storage_reserve(storage, bytes + bytes / 4));
        list_members(sampler, &step, storage->block);
        count = select_cell(&step, cell, storage->block);
    }
    lay_out(sampler, (char *)storage->block + member_bytes, &size, &arrays);
    const struct member *members = storage->block;
    struct tt_batch batch = {0};
    int32_t row_count = 0;
    arrays.cu_seqlens[0] = 0;
    for (uint64_t i = 0; i < count; i++) {
        struct piece_walk walk = walk_start(sampler, members[i].unit);
        for (struct piece piece; walk_next(sampler, &walk, &piece);)
            fill_piece(sampler, piece, &arrays, &batch, &row_count);
    }
    batch.ids = arrays.ids;
    batch.positions = arrays.positions;
    batch.row_keys = arrays.row_keys;
    batch.cu_seqlens = arrays.cu_seqlens;
    batch.row_count = row_count;
    batch.rows = arrays.rows;
    batch.labels = arrays.labels;
    batch.supervised = arrays.supervised;
    batch.group_size = (int)sampler->group_size;
    batch.group_count = batch.sequence_count / batch.group_size;
    batch.column_count = sampler->store->columns.count;
    for (int c = 0; c < batch.column_count; c++) {
        const struct tt_column *column = &sampler->store->columns.list[c];
        batch.columns[c] = (struct tt_batch_column){column->name, column->per, arrays.columns[c]};
    }
    *out = batch;
    return TT_OK;
}

/* ---- Creation and destruction ---- */

static tt_status check_config(const struct tt_sampler_config *config, uint64_t *batch_units)
{
    int64_t units;
    if (config->micro_batch_size < 1 || config->world_size < 1 || config->accumulation < 1 ||
        __builtin_mul_overflow(config->micro_batch_size, (int64_t)config->world_size, &units) ||
        __builtin_mul_overflow(units, config->accumulation, &units)) {
        return tt_fail(
            TT_ERR_USAGE, "a batch of %lld x %lld steps of accumulation x %d ranks is not possible",
            (long long)config->micro_batch_size, (long long)config->accumulation, config->world_size);
    }
    if (config->packing && (config->max_length < 2 || config->max_length > 1 << 24)) {
        return tt_fail(TT_ERR_USAGE, "packing needs a max_length from 2 to %d", 1 << 24);
    }
    *batch_units = (uint64_t)units;
    return TT_OK;
}

static tt_status make_units(struct tt_sampler *sampler)
{
    const struct tt_sampler_config *config = &sampler->config;
    sampler->group_size = tt_store_group_size(sampler->store);
    sampler->unit_count = tt_store_group_count(sampler->store);
    if (!config->packing) return TT_OK;
    if (sampler->group_size > 1) {
        tt_status status =
            tt_fail(TT_ERR_USAGE, "groups of %zu samples cannot be packed", sampler->group_size);
        tt_hint("set packing to false");
        return status;
    }
    if (config->packing_strategy == TT_PACKING_BFD) {
        sampler->kind = UNIT_PACK;
        TT_TRY(tt_packs_make(sampler->store, config->max_length, &sampler->packs));
        sampler->unit_count = sampler->packs.count;
    } else {
        uint64_t length = (uint64_t)config->max_length;
        sampler->kind = UNIT_SLICE;
        sampler->unit_count = (sampler->store->token_count + length - 1) / length;
    }
    return TT_OK;
}

tt_status tt_micro_batch_check(uint64_t samples, int64_t tokens)
{
    int64_t all;
    if (samples <= INT32_MAX && !__builtin_mul_overflow((int64_t)samples, tokens, &all) && all <= INT32_MAX)
        return TT_OK;
    return tt_fail(TT_ERR_USAGE, "a micro batch of %llu x %lld tokens is too large",
                   (unsigned long long)samples, (long long)tokens);
}

static tt_status check_units(struct tt_sampler *sampler)
{
    const struct tt_sampler_config *config = &sampler->config;
    for (uint64_t unit = 0; unit < sampler->unit_count; unit++) {
        struct unit_facts facts = unit_facts(sampler, unit);
        raise_limits(&sampler->largest_unit, &facts.size);
    }
    uint64_t most = (uint64_t)config->micro_batch_size < sampler->unit_count
                        ? (uint64_t)config->micro_batch_size
                        : sampler->unit_count;
    TT_TRY(tt_micro_batch_check(most, sampler->largest_unit.tokens));
    uint64_t steps = sampler->unit_count / sampler->batch_units;
    if (!config->drop_last && sampler->unit_count % sampler->batch_units != 0) steps++;
    sampler->steps_per_epoch = (int64_t)steps;
    if (steps > 0) return TT_OK;
    tt_fail(TT_ERR_USAGE, "%llu %s are fewer than one batch of %llu, and incomplete batches are dropped",
            (unsigned long long)sampler->unit_count,
            config->packing           ? "packs"
            : sampler->group_size > 1 ? "groups"
                                      : "samples",
            (unsigned long long)sampler->batch_units);
    tt_hint("set dataloader_drop_last to false, or make the batch smaller");
    return TT_ERR_USAGE;
}

tt_status tt_sampler_create(const struct tt_dataset *dataset, const struct tt_sampler_config *config,
                            struct tt_sampler **out)
{
    uint64_t batch_units;
    TT_TRY(check_config(config, &batch_units));
    struct tt_sampler *sampler = tt_calloc(1, sizeof *sampler);
    if (sampler == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    sampler->store = tt_dataset_store(dataset);
    sampler->config = *config;
    sampler->batch_units = batch_units;
    sampler->rng = tt_rng_derive(tt_rng_make(config->seed), "data order");
    pthread_mutex_init(&sampler->limits_lock, NULL);
    TT_GO(make_units(sampler));
    TT_GO(check_units(sampler));
    const struct tt_length_order_config order = {sampler->unit_count, batch_units, unit_tokens, sampler,
                                                 sampler->rng};
    if (config->by_length && config->shuffle) TT_GO(tt_length_order_create(&order, &sampler->by_length));
    size_t members = batch_units < sampler->unit_count ? batch_units : sampler->unit_count;
    sampler->limits_members = tt_calloc(members, sizeof *sampler->limits_members);
    if (sampler->limits_members == NULL) TT_GO(TT_ERR_MEMORY);
    *out = sampler;
    return TT_OK;
out:
    tt_sampler_destroy(sampler);
    return status;
}

void tt_sampler_destroy(struct tt_sampler *sampler)
{
    if (sampler == NULL) return;
    tt_packs_deinit(&sampler->packs);
    tt_length_order_destroy(sampler->by_length);
    tt_free(sampler->limits_members);
    pthread_mutex_destroy(&sampler->limits_lock);
    tt_free(sampler);
}

int64_t tt_sampler_unit_count(const struct tt_sampler *sampler)
{
    return (int64_t)sampler->unit_count;
}

int64_t tt_sampler_steps_per_epoch(const struct tt_sampler *sampler)
{
    return sampler->steps_per_epoch;
}

struct tt_batch_limits tt_batch_limits_join(const struct tt_batch_limits *a, const struct tt_batch_limits *b)
{
    return (struct tt_batch_limits){tt_larger(a->tokens, b->tokens), tt_larger(a->sequences, b->sequences),
                                    tt_larger(a->rows, b->rows),     tt_larger(a->length, b->length),
                                    tt_larger(a->images, b->images), tt_larger(a->boxes, b->boxes),
                                    tt_larger(a->height, b->height), tt_larger(a->width, b->width)};
}
