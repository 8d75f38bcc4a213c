#include "data/dataset.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc64.h"
#include "base/rng.h"
#include "base/thread.h"
#include "data/prompt_template.h"
#include "data/row_reader.h"
#include "data/sources.h"
#include "data/store.h"

enum {
    THREADS_MAX = 32,
    /* Positions have 24 bits of a row key (data/batch.h). */
    SAMPLE_TOKENS_MAX = 1 << 24,
    BLOCK_ROWS_MAX = 512,
    SMALL_FILE_BYTES = 64 << 10,
};

struct tt_dataset {
    struct tt_store store;
    struct tt_dataset_report report;
    struct tt_dataset_part *parts;
    size_t part_count, part_capacity;
};

/* ---- Rows to samples ---- */

/* Rows first .. first + count - 1, read by one thread. */
struct block {
    struct tt_store store;
    struct tt_dataset_report report;
};

struct load {
    const struct tt_rows *rows;
    const struct tt_data_config *config;
    const struct tt_tokenizer *tokenizer;
    int64_t vocab_size;
    struct block *blocks;
    size_t block_count, block_rows;
    atomic_size_t next_block;
    atomic_bool failed;
    /* The failure of the first row that failed, in any thread, so that messages do not depend on timing. Blocks are
     * assigned in order, so every row before it was read. */
    pthread_mutex_t lock;
    size_t failed_row;
    struct tt_error error;
};

static tt_status add_sample(struct block *block, const struct tt_row *row, size_t first, size_t count,
                            bool whole)
{
    /* Token 0 has no prediction. An empty row has no arrays. */
    if (count < 2 || memchr(row->supervised + first + 1, 1, count - 1) == NULL) {
        block->report.without_supervision++;
        return TT_OK;
    }
    return tt_store_append(&block->store, row->ids + first, row->supervised + first, (int32_t)count,
                           whole ? row->prompt : NULL, whole ? row->completion : NULL);
}

/* Consecutive samples of max_length tokens each. */
static tt_status add_pieces(struct block *block, const struct tt_row *row, size_t length)
{
    for (size_t first = 0; first < row->count; first += length) {
        size_t left = row->count - first;
        TT_TRY(add_sample(block, row, first, left < length ? left : length, row->count <= length));
    }
    return TT_OK;
}

static size_t sample_limit(const struct tt_data_config *config)
{
    return config->max_length > 0 && config->max_length < SAMPLE_TOKENS_MAX ? (size_t)config->max_length
                                                                            : SAMPLE_TOKENS_MAX;
}

/* A text file is one long row, and a stream is cut in any case: neither loses tokens. */
static bool is_cut(const struct load *load)
{
    const struct tt_data_config *config = load->config;
    return load->rows->plain_text || (config->packing && config->packing_strategy == TT_PACKING_WRAPPED);
}

static tt_status add_row(const struct load *load, size_t index, const struct tt_row *row, struct block *block)
{
    const struct tt_data_config *config = load->config;
    struct tt_dataset_report *report = &block->report;
    size_t limit = sample_limit(config), total = row->total;
    if ((int64_t)total > report->longest) report->longest = (int64_t)total;
    if (total <= limit) return add_sample(block, row, 0, total, true);
    if (is_cut(load)) {
        report->longest = (int64_t)limit;
        return add_pieces(block, row, limit);
    }
    switch (config->over_length) {
    case TT_OVER_LENGTH_DROP:
        report->dropped++;
        return TT_OK;
    case TT_OVER_LENGTH_ERROR:
        tt_fail(TT_ERR_DATA, "'%s', row %zu (line %llu): %zu tokens are more than max_length (%zu)",
                load->rows->path, index + 1, (unsigned long long)load->rows->spans[index].line, total, limit);
        tt_hint("raise max_length, or set over_length to truncate or drop");
        return TT_ERR_DATA;
    case TT_OVER_LENGTH_TRUNCATE:
        break;
    }
    report->truncated++;
    return add_sample(block, row, 0, limit, true);
}

static void count_row(struct tt_dataset_report *report, const struct tt_row *row)
{
    report->rows++;
    report->prompt_mismatch += row->prompt_mismatch;
    report->conversations += row->conversation;
    report->roles_mapped += row->roles_mapped;
    report->history_differs += row->history_differs;
}

static tt_status read_block(struct load *load, size_t index, struct tt_row_reader *reader, size_t *at)
{
    size_t first = index * load->block_rows, end = first + load->block_rows;
    if (end > load->rows->count) end = load->rows->count;
    for (*at = first; *at < end; (*at)++) {
        struct tt_row row = {.parts = 1};
        for (size_t part = 0; part < row.parts; part++) {
            TT_TRY(tt_row_read(reader, *at, part, &row));
            if (part == 0) count_row(&load->blocks[index].report, &row);
            TT_TRY(add_row(load, *at, &row, &load->blocks[index]));
        }
    }
    return TT_OK;
}

static void record_failure(struct load *load, size_t row)
{
    atomic_store(&load->failed, true);
    pthread_mutex_lock(&load->lock);
    if (row < load->failed_row) {
        load->failed_row = row;
        tt_error_copy(&load->error);
    }
    pthread_mutex_unlock(&load->lock);
}

/* Failures are recorded in the load. */
static tt_status read_blocks(void *argument)
{
    struct load *load = argument;
    struct tt_row_reader *reader = NULL;
    size_t row = 0;
    size_t ids_max = is_cut(load) ? 0 : sample_limit(load->config);
    tt_status status =
        tt_row_reader_create(load->rows, load->config, load->tokenizer, load->vocab_size, ids_max, &reader);
    while (status == TT_OK && !atomic_load(&load->failed)) {
        size_t index = atomic_fetch_add(&load->next_block, 1);
        if (index >= load->block_count) break;
        status = read_block(load, index, reader, &row);
    }
    if (status != TT_OK) record_failure(load, row);
    tt_row_reader_destroy(reader);
    return TT_OK;
}

static tt_status run_threads(struct load *load)
{
    int wanted = tt_cpu_count();
    if (wanted > THREADS_MAX) wanted = THREADS_MAX;
    if ((size_t)wanted > load->block_count) wanted = (int)load->block_count;
    TT_TRY(tt_threads_run("rows", wanted, read_blocks, load)); /* a thread that cannot be started */
    return atomic_load(&load->failed) ? tt_error_restore(&load->error) : TT_OK;
}

/* Counts of rows; samples are counted when they are complete. */
static void add_report(struct tt_dataset_report *sum, const struct tt_dataset_report *report)
{
    sum->rows += report->rows;
    sum->truncated += report->truncated;
    sum->dropped += report->dropped;
    sum->without_supervision += report->without_supervision;
    sum->prompt_mismatch += report->prompt_mismatch;
    sum->conversations += report->conversations;
    sum->roles_mapped += report->roles_mapped;
    sum->history_differs += report->history_differs;
    if (report->longest > sum->longest) sum->longest = report->longest;
}

/* Each block is freed after copying, so that peak memory is little more than the result. */
static tt_status join_blocks(struct load *load, size_t max_samples, struct tt_dataset *dataset)
{
    size_t tokens = 0, samples = 0;
    for (size_t i = 0; i < load->block_count; i++) {
        tokens += load->blocks[i].store.token_count;
        samples += load->blocks[i].store.sample_count;
        add_report(&dataset->report, &load->blocks[i].report);
    }
    TT_TRY(tt_store_reserve(&dataset->store, tokens, samples));
    for (size_t i = 0; i < load->block_count; i++) {
        struct tt_store *store = &load->blocks[i].store;
        for (size_t j = 0; j < store->sample_count && dataset->store.sample_count < max_samples; j++) {
            TT_TRY(tt_store_append_sample(&dataset->store, store, j));
        }
        tt_store_deinit(store);
    }
    return TT_OK;
}

/* Numbers that follow from the samples. */
static void count_samples(struct tt_dataset *dataset)
{
    const struct tt_store *store = &dataset->store;
    struct tt_dataset_report *report = &dataset->report;
    report->samples = (int64_t)store->sample_count;
    report->tokens = (int64_t)store->token_count;
    report->supervised_tokens = 0;
    for (size_t i = 0; i < store->sample_count; i++)
        report->supervised_tokens += store->samples[i].supervised_count;
}

static tt_status fail_empty(const char *path, const struct tt_dataset_report *report)
{
    tt_fail(TT_ERR_DATA,
            "'%s' has no row that can be used: of %lld rows %lld are too long, %lld have no supervised token",
            path, (long long)report->rows, (long long)report->dropped,
            (long long)report->without_supervision);
    tt_hint("a row needs at least two tokens, and a supervised one within max_length");
    return TT_ERR_DATA;
}

static tt_status load_rows(const struct tt_rows *rows, struct load *load, size_t max_samples,
                           struct tt_dataset *dataset)
{
    /* Threads cost more than they gain for a small file. */
    size_t block_rows =
        rows->map.bytes < SMALL_FILE_BYTES ? rows->count : rows->count / (THREADS_MAX * 4) + 1;
    load->block_rows = block_rows < BLOCK_ROWS_MAX ? block_rows : BLOCK_ROWS_MAX;
    load->block_count = (rows->count + load->block_rows - 1) / load->block_rows;
    load->failed_row = SIZE_MAX;
    load->blocks = tt_calloc(load->block_count, sizeof *load->blocks);
    if (load->blocks == NULL) return TT_ERR_MEMORY;
    pthread_mutex_init(&load->lock, NULL);
    tt_status status = run_threads(load);
    if (status == TT_OK) status = join_blocks(load, max_samples, dataset);
    for (size_t i = 0; i < load->block_count; i++) tt_store_deinit(&load->blocks[i].store);
    pthread_mutex_destroy(&load->lock);
    tt_free(load->blocks);
    return status;
}

tt_status tt_dataset_load(const char *path, const struct tt_data_config *config,
                          const struct tt_tokenizer *tokenizer, int64_t vocab_size, int64_t max_samples,
                          struct tt_dataset **out)
{
    tt_status status = TT_OK;
    struct tt_rows rows = {0};
    size_t limit = max_samples > 0 ? (size_t)max_samples : SIZE_MAX;
    struct tt_dataset *dataset = tt_calloc(1, sizeof *dataset);
    if (dataset == NULL) return TT_ERR_MEMORY;
    if (config->prompt_template != NULL) TT_GO(tt_prompt_template_check(config->prompt_template));
    TT_GO(tt_rows_open(path, max_samples > 0 ? limit : 0, config->max_row_size, &rows));
    struct load load = {.rows = &rows, .config = config, .tokenizer = tokenizer, .vocab_size = vocab_size};
    TT_GO(load_rows(&rows, &load, limit, dataset));
    count_samples(dataset);
    if (dataset->store.sample_count == 0) TT_GO(fail_empty(path, &dataset->report));
    *out = dataset;
    dataset = NULL;
out:
    tt_rows_close(&rows);
    tt_dataset_destroy(dataset);
    return status;
}

/* ---- Several files ---- */

static tt_status append_samples(struct tt_dataset *dataset, const struct tt_dataset *from, double weight,
                                struct tt_rng rng)
{
    size_t count = from->store.sample_count, whole = (size_t)weight;
    size_t some = (size_t)((weight - (double)whole) * (double)count + 0.5);
    for (size_t i = 0; i < whole * count; i++)
        TT_TRY(tt_store_append_sample(&dataset->store, &from->store, i % count));
    for (size_t i = 0; i < count; i++)
        if (tt_rng_permute(rng, i, count) < some)
            TT_TRY(tt_store_append_sample(&dataset->store, &from->store, i));
    return TT_OK;
}

/* Adds a file's counts of rows, and those of its samples, which are the last ones, to the part of its source. */
static tt_status add_to_part(struct tt_dataset *dataset, size_t source, size_t first_sample,
                             const struct tt_dataset_report *rows)
{
    const struct tt_store *store = &dataset->store;
    if (dataset->part_count == 0 || dataset->parts[dataset->part_count - 1].source != source) {
        if (tt_grow((void **)&dataset->parts, dataset->part_count, &dataset->part_capacity,
                    sizeof *dataset->parts) != 0)
            return TT_ERR_MEMORY;
        dataset->parts[dataset->part_count++] = (struct tt_dataset_part){.source = source};
    }
    struct tt_dataset_report *report = &dataset->parts[dataset->part_count - 1].report;
    add_report(report, rows);
    for (size_t i = first_sample; i < store->sample_count; i++) {
        report->samples++;
        report->tokens += store->samples[i].count;
        report->supervised_tokens += store->samples[i].supervised_count;
    }
    return TT_OK;
}

/* Appends the rows of a file; *left: rows that may still be read. */
static tt_status append_file(struct tt_dataset *dataset, const struct tt_source_file *file, double weight,
                             const struct load *load, int64_t *left, struct tt_rng rng)
{
    struct tt_dataset *one = NULL;
    size_t before = dataset->store.sample_count;
    TT_TRY(tt_dataset_load(file->path, load->config, load->tokenizer, load->vocab_size, *left, &one));
    tt_status status = append_samples(dataset, one, weight, rng);
    add_report(&dataset->report, &one->report);
    if (status == TT_OK) status = add_to_part(dataset, file->source, before, &one->report);
    if (*left > 0) *left -= one->report.rows;
    tt_dataset_destroy(one);
    return status;
}

tt_status tt_dataset_load_sources(const struct tt_sources *sources, const struct tt_data_config *config,
                                  const struct tt_tokenizer *tokenizer, int64_t vocab_size,
                                  int64_t max_samples, uint64_t seed, struct tt_dataset **out)
{
    const struct load load = {.config = config, .tokenizer = tokenizer, .vocab_size = vocab_size};
    struct tt_rng rng = tt_rng_derive(tt_rng_make(seed), "data mixture");
    int64_t left = max_samples;
    tt_status status = TT_OK;
    if (sources->file_count == 1 && sources->sources[0].weight == 1) {
        TT_TRY(tt_dataset_load(sources->files[0].path, config, tokenizer, vocab_size, max_samples, out));
        status = add_to_part(*out, 0, 0, &(*out)->report);
        if (status != TT_OK) tt_dataset_destroy(*out);
        return status;
    }
    struct tt_dataset *dataset = tt_calloc(1, sizeof *dataset);
    if (dataset == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < sources->file_count && (max_samples <= 0 || left > 0); i++) {
        const struct tt_source_file *file = &sources->files[i];
        struct tt_rng own = tt_rng_derive(rng, tt_path_basename(file->path));
        TT_GO(append_file(dataset, file, sources->sources[file->source].weight, &load, &left, own));
    }
    count_samples(dataset);
    if (dataset->store.sample_count == 0) TT_GO(fail_empty(sources->sources[0].name, &dataset->report));
    *out = dataset;
    dataset = NULL;
out:
    tt_dataset_destroy(dataset);
    return status;
}

/* ---- Access ---- */

void tt_dataset_destroy(struct tt_dataset *dataset)
{
    if (dataset == NULL) return;
    tt_store_deinit(&dataset->store);
    tt_free(dataset->parts);
    tt_free(dataset);
}

const struct tt_dataset_part *tt_dataset_parts(const struct tt_dataset *dataset, size_t *count)
{
    *count = dataset->part_count;
    return dataset->parts;
}

size_t tt_dataset_count(const struct tt_dataset *dataset)
{
    return dataset->store.sample_count;
}

struct tt_sample tt_dataset_sample(const struct tt_dataset *dataset, size_t index)
{
    return tt_store_sample(&dataset->store, index);
}

const char *tt_dataset_prompt(const struct tt_dataset *dataset, size_t index)
{
    return tt_store_text(&dataset->store, dataset->store.samples[index].prompt);
}

const char *tt_dataset_completion(const struct tt_dataset *dataset, size_t index)
{
    return tt_store_text(&dataset->store, dataset->store.samples[index].completion);
}

void tt_dataset_report(const struct tt_dataset *dataset, struct tt_dataset_report *out)
{
    *out = dataset->report;
}

const struct tt_store *tt_dataset_store(const struct tt_dataset *dataset)
{
    return &dataset->store;
}

/* ---- Order and splitting ---- */

tt_status tt_dataset_create_random(size_t samples, int32_t length_min, int32_t length_max, int64_t vocab_size,
                                   uint64_t seed, struct tt_dataset **out)
{
    tt_status status = TT_OK;
    struct tt_rng rng = tt_rng_derive(tt_rng_make(seed), "random data set");
    struct tt_rng lengths = tt_rng_derive(rng, "lengths");
    struct tt_dataset *dataset = tt_calloc(1, sizeof *dataset);
    int32_t *ids = tt_calloc((size_t)length_max, sizeof *ids);
    uint8_t *supervised = tt_calloc((size_t)length_max, sizeof *supervised);
    if (dataset == NULL || ids == NULL || supervised == NULL) TT_GO(TT_ERR_MEMORY);
    memset(supervised, 1, (size_t)length_max);
    TT_GO(tt_store_reserve(&dataset->store, samples * (size_t)length_max, samples));
    for (size_t i = 0; i < samples; i++) {
        uint64_t spread = (uint64_t)(length_max - length_min) + 1;
        int32_t length = length_min + (int32_t)tt_rng_below(lengths, i, spread);
        for (int32_t t = 0; t < length; t++)
            ids[t] = (int32_t)tt_rng_below(rng, i * (uint64_t)length_max + (uint64_t)t, (uint64_t)vocab_size);
        TT_GO(tt_store_append(&dataset->store, ids, supervised, length, NULL, NULL));
        dataset->report.tokens += length;
        if (length > dataset->report.longest) dataset->report.longest = length;
    }
    dataset->report.rows = dataset->report.samples = (int64_t)samples;
    dataset->report.supervised_tokens = dataset->report.tokens;
    *out = dataset;
    dataset = NULL;
out:
    tt_dataset_destroy(dataset);
    tt_free(ids);
    tt_free(supervised);
    return status;
}

tt_status tt_dataset_group(struct tt_dataset *dataset, size_t size)
{
    if (size == 0 || dataset->store.sample_count % size != 0)
        return tt_fail(TT_ERR_DATA, "%zu samples cannot be groups of %zu", dataset->store.sample_count, size);
    dataset->store.group_size = size;
    return TT_OK;
}

tt_status tt_dataset_add_column(struct tt_dataset *dataset, const char *name, enum tt_per per,
                                const float *values)
{
    struct tt_store *store = &dataset->store;
    struct tt_column_counts counts = {store->token_count, store->sample_count, tt_store_group_count(store)};
    return tt_columns_add(&store->columns, name, per, &counts, values);
}

uint64_t tt_dataset_sum_columns(const struct tt_dataset *dataset, uint64_t sum)
{
    const struct tt_store *store = &dataset->store;
    struct tt_column_counts counts = {store->token_count, store->sample_count, tt_store_group_count(store)};
    uint64_t group_size = tt_store_group_size(store);
    if (group_size > 1) sum = tt_crc64(sum, &group_size, sizeof group_size);
    return tt_columns_sum(&store->columns, &counts, sum);
}

tt_status tt_dataset_shuffle(struct tt_dataset *dataset, uint64_t seed)
{
    struct tt_store *store = &dataset->store, shuffled = {0};
    struct tt_rng rng = tt_rng_derive(tt_rng_make(seed), "data shuffle");
    size_t groups = tt_store_group_count(store);
    tt_status status = tt_store_init_like(&shuffled, store);
    if (status == TT_OK) status = tt_store_reserve(&shuffled, store->token_count, store->sample_count);
    for (size_t i = 0; status == TT_OK && i < groups; i++) {
        status = tt_store_append_group(&shuffled, store, tt_rng_permute(rng, i, groups));
    }
    if (status == TT_OK) {
        struct tt_store before = *store;
        *store = shuffled;
        shuffled = before;
        dataset->part_count = 0;
    }
    tt_store_deinit(&shuffled);
    return status;
}

tt_status tt_dataset_split(struct tt_dataset *dataset, size_t count, uint64_t seed, struct tt_dataset **out)
{
    size_t total = tt_store_group_count(&dataset->store), size = tt_store_group_size(&dataset->store);
    if (count == 0 || count >= total) {
        return tt_fail(TT_ERR_USAGE, "cannot hold out %zu of %zu %s: both parts need one", count, total,
                       size > 1 ? "groups" : "samples");
    }
    tt_status status = TT_OK;
    struct tt_store kept = {0};
    struct tt_dataset *held = tt_calloc(1, sizeof *held);
    uint8_t *moves = tt_calloc(total, 1);
    if (held == NULL || moves == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_store_init_like(&kept, &dataset->store));
    TT_GO(tt_store_init_like(&held->store, &dataset->store));
    struct tt_rng rng = tt_rng_derive(tt_rng_make(seed), "data split");
    for (size_t i = total - count; i < total; i++) moves[tt_rng_permute(rng, i, total)] = 1;
    for (size_t i = 0; i < total; i++) {
        TT_GO(tt_store_append_group(moves[i] ? &held->store : &kept, &dataset->store, i));
    }
    tt_store_deinit(&dataset->store);
    dataset->store = kept;
    dataset->part_count = 0;
    kept = (struct tt_store){0};
    count_samples(dataset);
    count_samples(held);
    held->report.rows = (int64_t)count;
    dataset->report.rows -= (int64_t)count;
    for (size_t i = 0; i < held->store.sample_count; i++) {
        if (held->store.samples[i].count > held->report.longest)
            held->report.longest = held->store.samples[i].count;
    }
    *out = held;
    held = NULL;
out:
    tt_store_deinit(&kept);
    tt_dataset_destroy(held);
    tt_free(moves);
    return status;
}
