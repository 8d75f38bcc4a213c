/* Rows of files to the samples of a data set. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "base/thread.h"
#include "data/prompt_template.h"
#include "data/row_reader.h"
#include "data/row_samples.h"
#include "data/sources.h"
#include "data/store_file.h"

enum {
    THREADS_MAX = 32,
    BLOCK_ROWS_MAX = 512,
    SMALL_FILE_BYTES = 64 << 10,
};

/* ---- Rows to samples ---- */

/* Rows first .. first + count - 1, read by one thread. */
struct block {
    struct tt_store store;
    struct tt_dataset_report report;
    bool complete;
};

struct load {
    struct tt_row_making making;
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
    /* Members for a load into a file: blocks are written in order, under the lock, as soon as all before them are. */
    struct tt_store_writer *writer;
    size_t delivered;
    int64_t sample_limit;
    struct tt_store_counts written;
};

static tt_status read_block(struct load *load, size_t index, struct tt_row_reader *reader, size_t *at)
{
    size_t first = index * load->block_rows, end = first + load->block_rows;
    if (end > load->making.rows->count) end = load->making.rows->count;
    for (*at = first; *at < end; (*at)++) {
        struct block *block = &load->blocks[index];
        const struct tt_row_target to = {&block->store, &block->report};
        TT_TRY(tt_row_samples_add(&load->making, reader, *at, &to));
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

static tt_status write_sample(struct load *load, const struct tt_store *from, size_t index)
{
    const struct tt_store_sample *sample = &from->samples[index];
    load->written.samples++;
    load->written.tokens += sample->count;
    load->written.supervised += sample->supervised_count;
    return tt_store_writer_append(load->writer, from, index);
}

static tt_status write_block(struct load *load, struct tt_store *store)
{
    tt_status status = TT_OK;
    for (size_t j = 0; j < store->sample_count && status == TT_OK; j++)
        if (load->written.samples < load->sample_limit) status = write_sample(load, store, j);
    tt_store_deinit(store);
    return status;
}

/* Notes that a block is complete, and writes the blocks whose turn it is. */
static tt_status deliver(struct load *load, size_t index)
{
    tt_status status = TT_OK;
    pthread_mutex_lock(&load->lock);
    load->blocks[index].complete = true;
    while (status == TT_OK && load->delivered < load->block_count && load->blocks[load->delivered].complete)
        status = write_block(load, &load->blocks[load->delivered++].store);
    pthread_mutex_unlock(&load->lock);
    return status;
}

/* Failures are recorded in the load. */
static tt_status read_blocks(void *argument)
{
    struct load *load = argument;
    struct tt_row_reader *reader = NULL;
    size_t row = 0;
    size_t ids_max = tt_row_keeps_all(&load->making) ? 0 : tt_row_sample_limit(load->making.config);
    tt_status status = tt_row_reader_create(load->making.rows, load->making.config, load->tokenizer,
                                            load->vocab_size, ids_max, &reader);
    while (status == TT_OK && !atomic_load(&load->failed)) {
        size_t index = atomic_fetch_add(&load->next_block, 1);
        if (index >= load->block_count) break;
        status = read_block(load, index, reader, &row);
        if (status == TT_OK && load->writer != NULL) status = deliver(load, index);
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

/* Each block is freed after copying, so that peak memory is little more than the result. */
static tt_status join_blocks(struct load *load, size_t max_samples, struct tt_dataset *dataset)
{
    size_t tokens = 0, samples = 0;
    for (size_t i = 0; i < load->block_count; i++) {
        tokens += load->blocks[i].store.token_count;
        samples += load->blocks[i].store.sample_count;
        tt_dataset_report_add(&dataset->report, &load->blocks[i].report);
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

/* Reads a file into the writer of the load, or else into the data set, which is empty. */
static tt_status load_file(const char *path, struct load *load, int64_t max_samples,
                           struct tt_dataset *dataset)
{
    tt_status status = TT_OK;
    struct tt_rows rows = {0};
    size_t limit = max_samples > 0 ? (size_t)max_samples : SIZE_MAX;
    int64_t each = (int64_t)tt_data_samples_each(load->making.config);
    if (load->making.config->prompt_template != NULL)
        TT_GO(tt_prompt_template_check(load->making.config->prompt_template));
    const struct tt_unpack_limits limits = {max_samples > 0 ? limit : 0, load->making.config->max_row_size,
                                            load->making.config->max_unpacked_size};
    TT_GO(tt_rows_open(path, &limits, &rows));
    load->making.rows = &rows;
    load->making.row_limit = max_samples > 0 ? limit : 0;
    load->sample_limit = max_samples > 0 && max_samples < INT64_MAX / each ? max_samples * each : INT64_MAX;
    TT_GO(load_rows(&rows, load, (size_t)load->sample_limit, dataset));
    tt_dataset_count_samples(dataset);
    if (load->writer != NULL) {
        dataset->report.samples = load->written.samples;
        dataset->report.tokens = load->written.tokens;
        dataset->report.supervised_tokens = load->written.supervised;
    }
    if (dataset->report.supervised_tokens == 0) TT_GO(fail_empty(path, &dataset->report));
out:
    tt_rows_close(&rows);
    return status;
}

tt_status tt_dataset_load(const char *path, const struct tt_data_config *config,
                          const struct tt_tokenizer *tokenizer, int64_t vocab_size, int64_t max_samples,
                          struct tt_dataset **out)
{
    struct load load = {.making.config = config, .tokenizer = tokenizer, .vocab_size = vocab_size};
    struct tt_dataset *dataset = tt_calloc(1, sizeof *dataset);
    if (dataset == NULL) return TT_ERR_MEMORY;
    tt_status status = load_file(path, &load, max_samples, dataset);
    if (status == TT_OK) status = tt_dataset_group(dataset, tt_data_samples_each(config));
    if (status == TT_OK)
        *out = dataset;
    else
        tt_dataset_destroy(dataset);
    return status;
}

/* ---- Several files ---- */

/* A data set that is made of several files, in memory or with a writer. */
struct gathering {
    const struct tt_dataset_request *request;
    struct tt_store_writer *writer; /* NULL: memory */
    struct tt_dataset *dataset;
    struct tt_dataset_part *files; /* that were read */
    size_t file_count, file_capacity;
};

static tt_status add_one(const struct gathering *gathering, const struct tt_store *from, size_t index)
{
    struct tt_dataset_report *report = &gathering->dataset->report;
    report->samples++;
    report->tokens += from->samples[index].count;
    report->supervised_tokens += from->samples[index].supervised_count;
    return gathering->writer != NULL ? tt_store_writer_append(gathering->writer, from, index)
                                     : tt_store_append_sample(&gathering->dataset->store, from, index);
}

static tt_status add_samples(const struct gathering *gathering, const struct tt_dataset *from, double weight,
                             struct tt_rng rng)
{
    size_t each = tt_data_samples_each(gathering->request->config);
    size_t count = from->store.sample_count, whole = (size_t)weight, groups = count / each;
    size_t some = (size_t)((weight - (double)whole) * (double)groups + 0.5);
    for (size_t i = 0; i < whole * count; i++) TT_TRY(add_one(gathering, &from->store, i % count));
    for (size_t i = 0; i < count; i++)
        if (tt_rng_permute(rng, i / each, groups) < some) TT_TRY(add_one(gathering, &from->store, i));
    return TT_OK;
}

/* Lists a file with its counts of rows, and of the samples since `before`. */
static tt_status list_file(struct gathering *gathering, size_t source, const struct tt_dataset_report *before,
                           const struct tt_dataset_report *read)
{
    const struct tt_dataset_report *now = &gathering->dataset->report;
    TT_TRY(tt_grow(&gathering->files, gathering->file_count, &gathering->file_capacity));
    struct tt_dataset_part *file = &gathering->files[gathering->file_count++];
    *file = (struct tt_dataset_part){.source = source, .once = read->samples, .report = *read};
    file->report.samples = now->samples - before->samples;
    file->report.tokens = now->tokens - before->tokens;
    file->report.supervised_tokens = now->supervised_tokens - before->supervised_tokens;
    return TT_OK;
}

/* Adds the rows of a file; `left`: so many of them, 0: all. Rows that a writer takes once, and those of the only
 * file, go where they belong without a copy. */
static tt_status add_file(struct gathering *gathering, const struct tt_source_file *file, int64_t left,
                          struct tt_rng rng)
{
    const struct tt_dataset_request *request = gathering->request;
    double weight = request->sources->sources[file->source].weight;
    bool direct = weight == 1 && (gathering->writer != NULL || request->sources->file_count == 1);
    struct tt_dataset read = {0}, *dataset = gathering->dataset;
    struct tt_dataset_report before = dataset->report;
    struct load load = {.making.config = request->config,
                        .tokenizer = request->tokenizer,
                        .vocab_size = request->vocab_size,
                        .writer = direct ? gathering->writer : NULL};
    tt_status status = load_file(file->path, &load, left, &read);
    if (status == TT_OK && direct) {
        dataset->report.samples += read.report.samples;
        dataset->report.tokens += read.report.tokens;
        dataset->report.supervised_tokens += read.report.supervised_tokens;
        if (gathering->writer == NULL) {
            dataset->store = read.store;
            read.store = (struct tt_store){0};
        }
    } else if (status == TT_OK) {
        status = add_samples(gathering, &read, weight, rng);
    }
    tt_dataset_report_add(&dataset->report, &read.report);
    if (status == TT_OK) status = list_file(gathering, file->source, &before, &read.report);
    tt_store_deinit(&read.store);
    return status;
}

static tt_status gather(struct gathering *gathering)
{
    const struct tt_sources *sources = gathering->request->sources;
    struct tt_rng rng = tt_rng_derive(tt_rng_make(gathering->request->seed), "data mixture");
    const int64_t most = gathering->request->max_samples,
                  most_each = gathering->request->config->max_source_samples;
    const struct tt_dataset_report *report = &gathering->dataset->report;
    int64_t of_source = 0; /* rows */
    for (size_t i = 0; i < sources->file_count; i++) {
        if (i > 0 && sources->files[i].source != sources->files[i - 1].source) of_source = 0;
        if ((most > 0 && report->rows >= most) || (most_each > 0 && of_source >= most_each)) continue;
        int64_t left = most > 0 ? most - report->rows : 0, before = report->rows;
        if (most_each > 0 && (left == 0 || most_each - of_source < left)) left = most_each - of_source;
        struct tt_rng own = tt_rng_derive(rng, tt_path_basename(sources->files[i].path));
        TT_TRY(add_file(gathering, &sources->files[i], left, own));
        of_source += report->rows - before;
    }
    if (gathering->dataset->report.samples > 0) return TT_OK;
    return fail_empty(sources->sources[0].name, &gathering->dataset->report);
}

tt_status tt_dataset_load_sources(const struct tt_dataset_request *request, struct tt_dataset **out)
{
    struct gathering gathering = {.request = request, .dataset = tt_calloc(1, sizeof(struct tt_dataset))};
    if (gathering.dataset == NULL) return TT_ERR_MEMORY;
    tt_status status = gather(&gathering);
    if (status == TT_OK)
        status = tt_dataset_set_files(gathering.dataset, gathering.files, gathering.file_count);
    if (status == TT_OK) status = tt_dataset_group(gathering.dataset, tt_data_samples_each(request->config));
    if (status == TT_OK)
        *out = gathering.dataset;
    else
        tt_dataset_destroy(gathering.dataset);
    tt_free(gathering.files);
    return status;
}

tt_status tt_dataset_write(const struct tt_dataset_request *request, struct tt_store_writer *writer)
{
    struct gathering gathering = {
        .request = request, .writer = writer, .dataset = tt_calloc(1, sizeof(struct tt_dataset))};
    if (gathering.dataset == NULL) return TT_ERR_MEMORY;
    tt_status status = gather(&gathering);
    if (status == TT_OK)
        status =
            tt_store_writer_finish(writer, &gathering.dataset->report, gathering.files, gathering.file_count);
    tt_dataset_destroy(gathering.dataset);
    tt_free(gathering.files);
    return status;
}

tt_status tt_dataset_adopt(struct tt_store *store, const struct tt_dataset_report *report,
                           const struct tt_dataset_part *files, size_t file_count, struct tt_dataset **out)
{
    struct tt_dataset *dataset = tt_calloc(1, sizeof *dataset);
    if (dataset == NULL) {
        tt_store_deinit(store);
        return TT_ERR_MEMORY;
    }
    *dataset = (struct tt_dataset){.store = *store, .report = *report};
    tt_status status = tt_dataset_set_files(dataset, files, file_count);
    if (status == TT_OK)
        *out = dataset;
    else
        tt_dataset_destroy(dataset);
    return status;
}
