#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "data/sampler_impl.h"

/* ---- Units ---- */

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

struct tt_sampler_walk tt_sampler_walk_start(const struct tt_sampler *sampler, uint64_t unit)
{
    if (sampler->kind == UNIT_GROUP) {
        uint64_t size = sampler->group_size;
        return (struct tt_sampler_walk){.at = unit * size, .end = (unit + 1) * size};
    }
    if (sampler->kind == UNIT_PACK) {
        return (struct tt_sampler_walk){.at = sampler->packs.first[unit],
                                        .end = sampler->packs.first[unit + 1]};
    }
    uint64_t length = (uint64_t)sampler->config.max_length, start = unit * length, end = start + length;
    if (end > sampler->store->token_count) end = sampler->store->token_count;
    return (struct tt_sampler_walk){.at = start, .end = end, .sample = sample_at(sampler->store, start)};
}

bool tt_sampler_walk_next(const struct tt_sampler *sampler, struct tt_sampler_walk *walk,
                          struct tt_sampler_piece *piece)
{
    if (walk->at >= walk->end) return false;
    const struct tt_store_sample *samples = sampler->store->samples;
    if (sampler->kind == UNIT_SLICE) {
        const struct tt_store_sample *sample = &samples[walk->sample];
        uint64_t sample_end = sample->first + (uint64_t)sample->count;
        uint64_t end = sample_end < walk->end ? sample_end : walk->end;
        *piece = (struct tt_sampler_piece){walk->sample++, (int32_t)(walk->at - sample->first),
                                           (int32_t)(end - walk->at)};
        walk->at = end;
        return true;
    }
    size_t index = sampler->kind == UNIT_PACK ? sampler->packs.samples[walk->at] : (size_t)walk->at;
    *piece = (struct tt_sampler_piece){index, 0, samples[index].count};
    walk->at++;
    return true;
}

/* Tokens with a predecessor in the same piece that are supervised, or all of these. */
static int64_t piece_rows(const struct tt_sampler *sampler, struct tt_sampler_piece piece)
{
    if (sampler->config.prompt_rows) return piece.count > 0 ? piece.count - 1 : 0;
    const struct tt_store_sample *sample = &sampler->store->samples[piece.sample];
    if (piece.count == sample->count) return sample->supervised_count;
    const uint8_t *supervised = sampler->store->supervised + sample->first + piece.first;
    int64_t rows = 0;
    for (int32_t i = 1; i < piece.count; i++) rows += supervised[i];
    return rows;
}

static struct tt_sampler_prefix find_prefix(const struct tt_sampler *sampler, size_t leader, size_t sample)
{
    const struct tt_store *store = sampler->store;
    const struct tt_store_sample *a = &store->samples[leader], *b = &store->samples[sample];
    const int32_t *ids = store->ids + b->first, *others = store->ids + a->first;
    const uint8_t *supervised = store->supervised + b->first, *marked = store->supervised + a->first;
    int32_t most = a->count < b->count ? a->count : b->count, same = 0;
    struct tt_sampler_prefix prefix = {0};
    while (same < most && ids[same] == others[same] && supervised[same] == marked[same]) same++;
    if (same == 0) return prefix;
    prefix.tokens = same - 1;
    for (int32_t i = 1; i < same; i++) prefix.rows += sampler->config.prompt_rows || supervised[i] != 0;
    return prefix;
}

static tt_status find_prefixes(struct tt_sampler *sampler)
{
    size_t group = sampler->group_size, count = sampler->store->sample_count;
    sampler->config.shares = sampler->config.shares && group > 1;
    if (!sampler->config.shares) return TT_OK;
    sampler->prefixes = tt_calloc(count, sizeof *sampler->prefixes);
    if (sampler->prefixes == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        if (i % group != 0) sampler->prefixes[i] = find_prefix(sampler, i - i % group, i);
    return TT_OK;
}

struct tt_sampler_prefix tt_sampler_prefix(const struct tt_sampler *sampler, size_t sample)
{
    return sampler->prefixes != NULL ? sampler->prefixes[sample] : (struct tt_sampler_prefix){0};
}

struct tt_sampler_unit tt_sampler_unit(const struct tt_sampler *sampler, uint64_t unit)
{
    struct tt_sampler_unit facts = {.size.copies = sampler->config.shares ? (int64_t)sampler->group_size : 0};
    struct tt_sampler_walk walk = tt_sampler_walk_start(sampler, unit);
    for (struct tt_sampler_piece piece; tt_sampler_walk_next(sampler, &walk, &piece);) {
        int64_t rows = piece_rows(sampler, piece);
        struct tt_sampler_prefix prefix = tt_sampler_prefix(sampler, piece.sample);
        if (facts.size.sequences++ == 0) facts.leading_rows = rows;
        facts.size.keys += piece.count;
        facts.size.all_rows += rows;
        facts.size.tokens += piece.count - prefix.tokens;
        facts.size.rows += rows - prefix.rows;
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
    struct tt_sampler_walk walk = tt_sampler_walk_start(sampler, unit);
    if (sampler->kind == UNIT_SLICE) return (int64_t)(walk.end - walk.at);
    for (struct tt_sampler_piece piece; tt_sampler_walk_next(sampler, &walk, &piece);) tokens += piece.count;
    return tokens;
}

/* ---- Steps ---- */

struct tt_sampler_cells tt_sampler_cells(const struct tt_sampler *sampler, int64_t index)
{
    struct tt_sampler_cells step = {.epoch = index / sampler->steps_per_epoch};
    step.first = (uint64_t)(index % sampler->steps_per_epoch) * sampler->batch_units;
    step.count = sampler->unit_count - step.first;
    if (step.count > sampler->batch_units) step.count = sampler->batch_units;
    uint64_t micro_units = (uint64_t)sampler->config.micro_batch_size * (uint64_t)sampler->config.world_size;
    step.micro_count = (int64_t)((step.count + micro_units - 1) / micro_units);
    step.cells = (uint64_t)step.micro_count * (uint64_t)sampler->config.world_size;
    step.order = tt_rng_derive_index(sampler->rng, (uint64_t)step.epoch);
    return step;
}

static uint64_t unit_at(const struct tt_sampler *sampler, const struct tt_sampler_cells *step,
                        uint64_t position)
{
    if (!sampler->config.shuffle) return position;
    if (sampler->by_length != NULL) return tt_length_order_unit(sampler->by_length, step->epoch, position);
    return tt_rng_permute(step->order, position, sampler->unit_count);
}

static int compare_members(const void *a, const void *b)
{
    const struct tt_sampler_member *x = a, *y = b;
    if (x->tokens != y->tokens) return x->tokens > y->tokens ? -1 : 1;
    return x->position < y->position ? -1 : 1;
}

void tt_sampler_members(const struct tt_sampler *sampler, const struct tt_sampler_cells *step,
                        struct tt_sampler_member *members)
{
    for (uint64_t i = 0; i < step->count; i++) {
        uint64_t unit = unit_at(sampler, step, step->first + i);
        int64_t tokens =
            sampler->config.shares ? tt_sampler_unit(sampler, unit).size.tokens : unit_tokens(sampler, unit);
        members[i] = (struct tt_sampler_member){unit, step->first + i, tokens};
    }
    if (step->cells > 1) qsort(members, step->count, sizeof *members, compare_members);
}

uint64_t tt_sampler_dealt(const struct tt_sampler_cells *step, uint64_t cell, uint64_t round)
{
    uint64_t index = round * step->cells + (round % 2 == 0 ? cell : step->cells - 1 - cell);
    return index < step->count ? index : step->count;
}

void tt_sampler_step(const struct tt_sampler *sampler, int64_t index, struct tt_step_facts *out)
{
    struct tt_sampler_cells step = tt_sampler_cells(sampler, index);
    struct tt_step_facts facts = {.epoch = step.epoch, .micro_count = step.micro_count};
    for (uint64_t i = 0; i < step.count; i++) {
        struct tt_sampler_unit unit = tt_sampler_unit(sampler, unit_at(sampler, &step, step.first + i));
        facts.supervised += unit.size.all_rows;
        facts.leading += unit.leading_rows;
        facts.tokens += unit.size.keys;
        facts.samples += unit.samples;
        facts.groups += unit.size.sequences / (int64_t)sampler->group_size;
    }
    *out = facts;
}

/* ---- Mismatched answers ---- */

/* Tokens before the answer: all behind them are supervised. */
static int32_t prompt_tokens(const struct tt_store *store, size_t sample)
{
    const struct tt_store_sample *entry = &store->samples[sample];
    return entry->count - entry->supervised_count - (store->supervised[entry->first] != 0);
}

struct tt_sampler_mismatch tt_sampler_mismatch(const struct tt_sampler *sampler,
                                               const struct tt_sampler_cells *step, uint64_t position)
{
    const struct tt_store *store = sampler->store;
    uint64_t other = position > step->first || (step->count == 1 && position > 0)
                         ? position - 1
                         : step->first + step->count - 1;
    size_t asked = unit_at(sampler, step, position), answering = unit_at(sampler, step, other);
    int32_t before = prompt_tokens(store, answering), most = INT32_MAX;
    struct tt_sampler_mismatch mismatch = {{asked, 0, prompt_tokens(store, asked)},
                                           {answering, before, store->samples[answering].count - before}};
    if (sampler->config.max_length > 0) most = (int32_t)sampler->config.max_length - mismatch.prompt.count;
    if (mismatch.answer.count > most) mismatch.answer.count = most;
    return mismatch;
}

struct tt_batch_limits tt_sampler_mismatch_size(const struct tt_sampler_mismatch *mismatch)
{
    int64_t tokens = (int64_t)mismatch->prompt.count + mismatch->answer.count;
    return (struct tt_batch_limits){.tokens = tokens,
                                    .sequences = 1,
                                    .rows = mismatch->answer.count - (mismatch->prompt.count == 0),
                                    .length = tokens,
                                    .keys = tokens,
                                    .all_rows = mismatch->answer.count - (mismatch->prompt.count == 0)};
}

/* ---- Limits ---- */

static void raise_limits(struct tt_batch_limits *limits, const struct tt_batch_limits *other)
{
    *limits = tt_batch_limits_join(limits, other);
}

void tt_sampler_add_unit(struct tt_batch_limits *sum, const struct tt_batch_limits *unit)
{
    sum->tokens += unit->tokens;
    sum->sequences += unit->sequences;
    sum->rows += unit->rows;
    sum->keys += unit->keys;
    sum->all_rows += unit->all_rows;
    if (unit->copies > sum->copies) sum->copies = unit->copies;
    if (unit->length > sum->length) sum->length = unit->length;
}

static void step_limits(const struct tt_sampler *sampler, int64_t index, struct tt_sampler_member *members,
                        struct tt_batch_limits *limits)
{
    struct tt_sampler_cells step = tt_sampler_cells(sampler, index);
    tt_sampler_members(sampler, &step, members);
    for (uint64_t cell = 0; cell < step.cells; cell++) {
        struct tt_batch_limits batch = {0}, shared = {0};
        for (uint64_t round = 0; round * step.cells < step.count; round++) {
            uint64_t at = tt_sampler_dealt(&step, cell, round);
            if (at == step.count) continue;
            struct tt_sampler_unit unit = tt_sampler_unit(sampler, members[at].unit);
            tt_sampler_add_unit(&batch, &unit.size);
            if (!sampler->config.mismatched) continue;
            struct tt_sampler_mismatch mismatch = tt_sampler_mismatch(sampler, &step, members[at].position);
            struct tt_batch_limits size = tt_sampler_mismatch_size(&mismatch);
            tt_sampler_add_unit(&shared, &size);
        }
        raise_limits(limits, &batch);
        raise_limits(limits, &shared);
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
        bound.keys *= sampler->config.micro_batch_size;
        bound.all_rows *= sampler->config.micro_batch_size;
        raise_limits(&limits, &bound);
    }
    *out = limits;
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
    if (config->mismatched && units < 2) {
        tt_fail(TT_ERR_USAGE, "a batch of one row has no mismatched answer");
        tt_hint("make the batch larger: per_device_train_batch_size or gradient_accumulation_steps of a "
                "training, per_device_eval_batch_size of an evaluation");
        return TT_ERR_USAGE;
    }
    if (config->packing && (config->max_length < 2 || config->max_length > 1 << 24)) {
        return tt_fail(TT_ERR_USAGE, "packing needs a max_length from 2 to %d", 1 << 24);
    }
    *batch_units = (uint64_t)units;
    return TT_OK;
}

/* Packs of samples that are in their order. */
static tt_status take_packs(struct tt_sampler *sampler)
{
    struct tt_packs *packs = &sampler->packs;
    size_t count = sampler->config.pack_count, samples = sampler->store->sample_count;
    packs->first = tt_calloc(count + 1, sizeof *packs->first);
    packs->samples = tt_calloc(samples, sizeof *packs->samples);
    if (packs->first == NULL || packs->samples == NULL) return TT_ERR_MEMORY;
    memcpy(packs->first, sampler->config.packs, (count + 1) * sizeof *packs->first);
    for (size_t i = 0; i < samples; i++) packs->samples[i] = (uint32_t)i;
    packs->count = count;
    sampler->kind = UNIT_PACK;
    sampler->unit_count = count;
    sampler->config.packs = NULL;
    return TT_OK;
}

static tt_status make_units(struct tt_sampler *sampler)
{
    const struct tt_sampler_config *config = &sampler->config;
    sampler->group_size = tt_store_group_size(sampler->store);
    sampler->unit_count = tt_store_group_count(sampler->store);
    if (config->packs != NULL) return take_packs(sampler);
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
        struct tt_sampler_unit facts = tt_sampler_unit(sampler, unit);
        raise_limits(&sampler->largest_unit, &facts.size);
        sampler->all_tokens += facts.size.keys;
        sampler->computed_tokens += facts.size.tokens;
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
    TT_GO(find_prefixes(sampler));
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
    tt_free(sampler->prefixes);
    pthread_mutex_destroy(&sampler->limits_lock);
    tt_free(sampler);
}

int64_t tt_sampler_unit_count(const struct tt_sampler *sampler)
{
    return (int64_t)sampler->unit_count;
}

void tt_sampler_tokens(const struct tt_sampler *sampler, int64_t *all, int64_t *computed)
{
    *all = sampler->all_tokens;
    *computed = sampler->computed_tokens;
}

int64_t tt_sampler_steps_per_epoch(const struct tt_sampler *sampler)
{
    return sampler->steps_per_epoch;
}

struct tt_batch_limits tt_batch_limits_join(const struct tt_batch_limits *a, const struct tt_batch_limits *b)
{
    return (struct tt_batch_limits){.tokens = tt_larger(a->tokens, b->tokens),
                                    .sequences = tt_larger(a->sequences, b->sequences),
                                    .rows = tt_larger(a->rows, b->rows),
                                    .length = tt_larger(a->length, b->length),
                                    .images = tt_larger(a->images, b->images),
                                    .boxes = tt_larger(a->boxes, b->boxes),
                                    .height = tt_larger(a->height, b->height),
                                    .width = tt_larger(a->width, b->width),
                                    .copies = tt_larger(a->copies, b->copies),
                                    .keys = tt_larger(a->keys, b->keys),
                                    .all_rows = tt_larger(a->all_rows, b->all_rows)};
}
