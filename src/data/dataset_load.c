/* Rows of files to the samples of a data set. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "base/thread.h"
#include "data/prompt_template.h"
#include "data/row_reader.h"
#include "data/sources.h"
#include "data/store_file.h"

enum {
    THREADS_MAX = 32,
    /* Positions have 24 bits of a row key (data/batch.h). */
    SAMPLE_TOKENS_MAX = 1 << 24,
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
    const struct tt_rows *rows;
    const struct tt_data_config *config;
    const struct tt_tokenizer *tokenizer;
    int64_t vocab_size;
    struct block *blocks;
    size_t block_count, block_rows;
    size_t row_limit; /* rows to read, of a text samples; 0: all */
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

static tt_status add_sample(struct block *block, const struct tt_row *row, size_t first, size_t count,
                            bool whole)
{
    /* Token 0 has no prediction. An empty row has no arrays. */
    if (count < 2 || memchr(row->supervised + first + 1, 1, count - 1) == NULL) {
        block->report.without_supervision++;
        return TT_OK;
    }
    TT_TRY(tt_store_append(&block->store, row->ids + first, row->supervised + first, (int32_t)count,
                           whole ? row->prompt : NULL, whole ? row->completion : NULL));
    block->store.samples[block->store.sample_count - 1].value = (double)row->value;
    return TT_OK;
}

static size_t sample_limit(const struct tt_data_config *config)
{
    return config->max_length > 0 && config->max_length < SAMPLE_TOKENS_MAX ? (size_t)config->max_length
                                                                            : SAMPLE_TOKENS_MAX;
}

int64_t tt_dataset_limit(const struct tt_data_config *config)
{
    return tt_data_streams(config) ? SAMPLE_TOKENS_MAX : (int64_t)sample_limit(config);
}

/* Rows of which every token is used: a text, and those of a stream. */
static bool keeps_all(const struct load *load)
{
    return load->rows->plain_text || tt_data_streams(load->config);
}

/* Tokens of a sample that a row of which every token is used is cut into. Only a stream has whole texts, unless samples
 * of them are to be held out. */
static size_t piece_length(const struct load *load)
{
    const struct tt_data_config *config = load->config;
    bool whole = tt_data_streams(config) && !(load->rows->plain_text && tt_data_holds_out(config));
    return whole ? SAMPLE_TOKENS_MAX : sample_limit(config);
}

/* Consecutive samples. In a stream each token counts, with a label or without: it moves the cuts behind it. */
static tt_status add_pieces(const struct load *load, const struct tt_row *row, struct block *block)
{
    size_t length = piece_length(load), count = row->count, most;
    bool streams = tt_data_streams(load->config);
    if (load->rows->plain_text && streams && load->row_limit > 0 &&
        !__builtin_mul_overflow(load->row_limit, sample_limit(load->config), &most) && count > most)
        count = most;
    if (count == 0) block->report.without_supervision++;
    for (size_t first = 0; first < count; first += length) {
        size_t now = count - first < length ? count - first : length;
        bool whole = count <= length;
        TT_TRY(!streams
                   ? add_sample(block, row, first, now, whole)
                   : tt_store_append(&block->store, row->ids + first, row->supervised + first, (int32_t)now,
                                     whole ? row->prompt : NULL, whole ? row->completion : NULL));
    }
    return TT_OK;
}

/* Counts a row of more tokens than max_length; TT_OVER_LENGTH_ERROR fails. */
static tt_status check_length(const struct load *load, size_t index, size_t total)
{
    if (load->config->max_length_of_model) {
        tt_fail(TT_ERR_DATA, "'%s', row %zu (line %llu): %zu tokens are more than the model's %zu positions",
                load->rows->path, index + 1, (unsigned long long)load->rows->spans[index].line, total,
                sample_limit(load->config));
        tt_hint("max_length is null: set it, and over_length, to shorten such rows or to leave them out");
        return TT_ERR_DATA;
    }
    if (load->config->over_length != TT_OVER_LENGTH_ERROR) return TT_OK;
    tt_fail(TT_ERR_DATA, "'%s', row %zu (line %llu): %zu tokens are more than max_length (%zu)",
            load->rows->path, index + 1, (unsigned long long)load->rows->spans[index].line, total,
            sample_limit(load->config));
    tt_hint("raise max_length, or set over_length to truncate or drop");
    return TT_ERR_DATA;
}

static tt_status add_row(const struct load *load, size_t index, const struct tt_row *row, struct block *block)
{
    struct tt_dataset_report *report = &block->report;
    size_t limit = sample_limit(load->config), total = row->total, longest = total;
    if (keeps_all(load) && longest > piece_length(load)) longest = piece_length(load);
    if ((int64_t)longest > report->longest) report->longest = (int64_t)longest;
    if (keeps_all(load)) return add_pieces(load, row, block);
    if (total <= limit) return add_sample(block, row, 0, total, true);
    TT_TRY(check_length(load, index, total));
    if (load->config->over_length == TT_OVER_LENGTH_DROP) {
        report->dropped++;
        return TT_OK;
    }
    report->truncated++;
    return add_sample(block, row, 0, limit, true);
}

/* One answer of a preference. Both are added or none: the decision is the same for each, and counted with the first. A
 * prompt that fills max_length leaves nothing of the answers, and so does an answer without a token. */
static tt_status add_side(const struct load *load, size_t index, const struct tt_row *row, size_t part,
                          struct block *block)
{
    struct tt_dataset_report *report = &block->report;
    size_t limit = sample_limit(load->config), prompt = row->border > 0 ? row->border : 1;
    bool first = part == 0, is_long = row->longest > limit;
    if ((int64_t)row->longest > report->longest) report->longest = (int64_t)row->longest;
    if (is_long) TT_TRY(check_length(load, index, row->longest));
    if (is_long && load->config->over_length == TT_OVER_LENGTH_DROP) {
        report->dropped += first;
        return TT_OK;
    }
    if (prompt >= limit || prompt >= row->shortest) {
        report->without_supervision += first;
        return TT_OK;
    }
    report->truncated += first && is_long;
    return add_sample(block, row, 0, row->total < limit ? row->total : limit, true);
}

/* `row`: 0 takes that of the role. */
static void add_role(struct tt_dataset_report *report, const struct tt_role_count *role, int64_t row)
{
    for (size_t i = 0; i < TT_ROLES_MAX; i++) {
        struct tt_role_count *known = &report->roles[i];
        if (known->name[0] == '\0') {
            *known = *role;
            if (row > 0) known->row = row;
            return;
        }
        if (strcmp(known->name, role->name) != 0) continue;
        known->conversations += role->conversations;
        known->masked |= role->masked;
        return;
    }
}

static void count_row(struct tt_dataset_report *report, const struct tt_row *row, size_t index)
{
    report->rows++;
    report->prompt_mismatch += row->prompt_mismatch;
    report->conversations += row->conversation;
    report->roles_mapped += row->roles_mapped;
    report->history_differs += row->history_differs;
    report->role_doubtful += row->role_count > 0;
    report->answer_empty += row->answer_empty;
    int64_t number = (int64_t)index + 1;
    for (int i = 0; i < row->role_count; i++) add_role(report, &row->roles[i], number);
    if (row->answer_empty && report->answer_empty_row == 0) report->answer_empty_row = number;
}

static tt_status read_block(struct load *load, size_t index, struct tt_row_reader *reader, size_t *at)
{
    size_t first = index * load->block_rows, end = first + load->block_rows;
    if (end > load->rows->count) end = load->rows->count;
    for (*at = first; *at < end; (*at)++) {
        struct tt_row row = {.parts = 1};
        for (size_t part = 0; part < row.parts; part++) {
            TT_TRY(tt_row_read(reader, *at, part, &row));
            if (part == 0) count_row(&load->blocks[index].report, &row, *at);
            struct block *block = &load->blocks[index];
            TT_TRY(row.pair ? add_side(load, *at, &row, part, block) : add_row(load, *at, &row, block));
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
    size_t ids_max = keeps_all(load) ? 0 : sample_limit(load->config);
    tt_status status =
        tt_row_reader_create(load->rows, load->config, load->tokenizer, load->vocab_size, ids_max, &reader);
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

void tt_dataset_report_add(struct tt_dataset_report *sum, const struct tt_dataset_report *report)
{
    sum->rows += report->rows;
    sum->truncated += report->truncated;
    sum->dropped += report->dropped;
    sum->without_supervision += report->without_supervision;
    sum->prompt_mismatch += report->prompt_mismatch;
    sum->conversations += report->conversations;
    sum->roles_mapped += report->roles_mapped;
    sum->history_differs += report->history_differs;
    sum->role_doubtful += report->role_doubtful;
    sum->answer_empty += report->answer_empty;
    for (size_t i = 0; i < TT_ROLES_MAX && report->roles[i].name[0] != '\0'; i++)
        add_role(sum, &report->roles[i], 0);
    if (sum->answer_empty_row == 0) sum->answer_empty_row = report->answer_empty_row;
    if (report->longest > sum->longest) sum->longest = report->longest;
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
    int64_t each = (int64_t)tt_data_samples_each(load->config);
    if (load->config->prompt_template != NULL) TT_GO(tt_prompt_template_check(load->config->prompt_template));
    const struct tt_unpack_limits limits = {max_samples > 0 ? limit : 0, load->config->max_row_size,
                                            load->config->max_unpacked_size};
    TT_GO(tt_rows_open(path, &limits, &rows));
    load->rows = &rows;
    load->row_limit = max_samples > 0 ? limit : 0;
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
    struct load load = {.config = config, .tokenizer = tokenizer, .vocab_size = vocab_size};
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
    struct load load = {.config = request->config,
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
