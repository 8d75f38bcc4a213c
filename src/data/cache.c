#include "data/cache.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc64.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/number.h"
#include "data/store_file.h"

/* A process that writes the file is given up when nothing of it has changed for so long. */
static const double patience_seconds = 60.0;

struct work {
    const struct tt_dataset_cache *cache;
    const struct tt_dataset_request *request;
    struct tt_str key, path, temporary, lock_path;
    struct tt_lock *lock;
};

/* ---- The key ---- */

/* Sizes and times of the files: a change means other rows, and no file is read for that. */
static tt_status describe_files(const struct tt_sources *sources, bool states, struct tt_str *text)
{
    for (size_t i = 0; i < sources->file_count; i++) {
        const char *path = sources->files[i].path;
        const struct tt_source *source = &sources->sources[sources->files[i].source];
        struct tt_file_facts info;
        char weight[TT_DOUBLE_TEXT_BYTES];
        struct tt_path real;
        int failed = tt_path_real(path, &real);
        if (failed == 0) failed = tt_file_facts(real.text, &info);
        tt_status status = failed != 0 ? tt_fail_errno(failed, "cannot open '%s'", path) : TT_OK;
        if (status == TT_OK)
            status = tt_str_printf(text, "file %zu %s: %s\n", sources->files[i].source,
                                   tt_format_double(source->weight, weight, sizeof weight), real.text);
        if (status == TT_OK && states)
            status = tt_str_printf(text, "state: %lld %llu %lld.%09ld %lld.%09ld\n", (long long)info.bytes,
                                   (unsigned long long)info.inode, (long long)(info.changed / 1000000000),
                                   (long)(info.changed % 1000000000), (long long)(info.touched / 1000000000),
                                   (long)(info.touched % 1000000000));
        TT_TRY(status);
    }
    return TT_OK;
}

static bool draws_rows(const struct tt_sources *sources)
{
    for (size_t i = 0; i < sources->count; i++)
        if (sources->sources[i].weight != floor(sources->sources[i].weight)) return true;
    return false;
}

/* The version is the first line (data/store_file.h). */
static tt_status describe(const struct work *work, bool states, struct tt_str *text)
{
    const struct tt_dataset_request *request = work->request;
    tt_str_clear(text);
    if (states) TT_TRY(tt_str_printf(text, "rules: %d.%d\n", TT_STORE_FILE_RULES, work->cache->rules));
    TT_TRY(tt_str_printf(text, "vocabulary: %lld\nrows: %lld\n", (long long)request->vocab_size,
                         (long long)request->max_samples));
    if (draws_rows(request->sources))
        TT_TRY(tt_str_printf(text, "seed: %llu\n", (unsigned long long)request->seed));
    TT_TRY(tt_str_append_text(text, work->cache->settings));
    return describe_files(request->sources, states, text);
}

/* The name of the file depends on all but the state of the files and the version: of changed files the newest rows
 * stay, and those that the latest version made. */
static tt_status name_files(struct work *work)
{
    TT_TRY(describe(work, false, &work->key));
    uint64_t sum = tt_crc64(0, work->key.data, work->key.bytes);
    TT_TRY(tt_str_printf(&work->path, "%s/%016llx.rows", work->cache->folder, (unsigned long long)sum));
    TT_TRY(tt_str_printf(&work->temporary, "%s.tmp", tt_str_text(&work->path)));
    TT_TRY(tt_str_printf(&work->lock_path, "%s.lock", tt_str_text(&work->path)));
    return describe(work, true, &work->key);
}

/* ---- Reading ---- */

static tt_status open_rows(struct work *work, struct tt_dataset **out)
{
    struct tt_store store;
    struct tt_dataset_report report;
    const struct tt_dataset_part *parts;
    size_t part_count;
    const struct tt_data_config *config = work->request->config;
    const struct tt_store_bounds bounds = {work->request->vocab_size, tt_dataset_limit(config),
                                           tt_data_streams(config)};
    TT_TRY(tt_store_file_open(tt_str_text(&work->path), tt_str_text(&work->key), &bounds, &store, &report,
                              &parts, &part_count));
    struct tt_dataset *dataset = NULL;
    TT_TRY(tt_dataset_adopt(&store, &report, parts, part_count, &dataset));
    tt_status status = tt_dataset_group(dataset, tt_data_samples_each(config));
    if (status == TT_OK)
        *out = dataset;
    else
        tt_dataset_destroy(dataset);
    return status;
}

/* *out stays NULL when there is no file, or one that cannot be used, about which `speaks` says whether to log. */
static tt_status try_rows(struct work *work, bool speaks, struct tt_dataset **out)
{
    if (!tt_path_exists(tt_str_text(&work->path))) return TT_OK;
    tt_status status = open_rows(work, out);
    if (status == TT_OK) tt_info("tokenized rows from '%s'", tt_str_text(&work->path));
    if (status == TT_OK || status == TT_ERR_MEMORY) return status;
    if (speaks) tt_notice("%s; the rows are tokenized again", tt_error_last()->message);
    tt_error_clear();
    return TT_OK;
}

/* ---- Writing ---- */

static void nap(void)
{
    const struct timespec pause = {0, 50 * 1000 * 1000};
    (void)nanosleep(&pause, NULL);
}

/* Takes the lock, or waits for the process that has it: then *out may be its rows. */
static tt_status take_turn(struct work *work, struct tt_dataset **out)
{
    struct tt_file_facts info, before = {0};
    double since = tt_clock_seconds();
    for (bool waited = false;; waited = true) {
        tt_status status = tt_lock_take(tt_str_text(&work->lock_path), "the tokenized rows", &work->lock);
        if (status == TT_OK) return try_rows(work, false, out); /* written meanwhile */
        if (status != TT_ERR_USAGE) return status;
        if (tt_file_facts(tt_str_text(&work->temporary), &info) == 0 &&
            (info.bytes != before.bytes || info.changed != before.changed)) {
            before = info;
            since = tt_clock_seconds();
        }
        if (tt_clock_seconds() - since > patience_seconds) return status;
        tt_error_clear();
        if (!waited) tt_info("waiting for the process that writes '%s'", tt_str_text(&work->path));
        nap();
        TT_TRY(try_rows(work, false, out));
        if (*out != NULL) return TT_OK;
    }
}

/* Whether the files are as they were when the key was made. */
static tt_status check_unchanged(const struct work *work)
{
    struct tt_str now = {0};
    tt_status status = describe(work, true, &now);
    if (status == TT_OK && strcmp(tt_str_text(&now), tt_str_text(&work->key)) != 0)
        status = tt_fail(TT_ERR_IO, "the files of rows changed while they were read");
    tt_str_deinit(&now);
    return status;
}

/* Writes and publishes the file. *unusable: an error is one of the folder, not of the rows. */
static tt_status write_rows(struct work *work, bool *unusable)
{
    tt_status status = TT_OK;
    struct tt_store_writer *writer = NULL;
    const char *temporary = tt_str_text(&work->temporary);
    *unusable = true;
    TT_GO(tt_store_writer_open(temporary, tt_str_text(&work->key), &writer));
    status = tt_dataset_write(work->request, writer);
    *unusable = status == TT_OK || tt_store_writer_failed(writer);
    if (status == TT_OK) status = check_unchanged(work);
    if (status == TT_OK) status = tt_file_rename(temporary, tt_str_text(&work->path));
    if (status == TT_OK) status = tt_dir_sync(work->cache->folder);
out:
    if (status != TT_OK) (void)tt_file_remove(temporary);
    tt_store_writer_destroy(writer);
    return status;
}

/* Makes the file, unless another process does; *out stays NULL when the folder cannot be used. */
static tt_status make_rows(struct work *work, struct tt_dataset **out, bool *hit)
{
    bool unusable = true;
    tt_status status = tt_dir_create(work->cache->folder);
    if (status == TT_OK) status = take_turn(work, out);
    if (status == TT_OK && *out != NULL) *hit = true;
    if (status == TT_OK && *out == NULL) {
        status = write_rows(work, &unusable);
        if (status == TT_OK) status = open_rows(work, out);
    }
    tt_lock_release(work->lock);
    work->lock = NULL;
    if (status == TT_OK || status == TT_ERR_MEMORY || !unusable) return status;
    tt_warn("the tokenized rows are not kept for other runs: %s", tt_error_last()->message);
    tt_error_clear();
    return TT_OK;
}

tt_status tt_dataset_load_cached(const struct tt_dataset_cache *cache,
                                 const struct tt_dataset_request *request, struct tt_dataset **out, bool *hit)
{
    tt_status status = TT_OK;
    struct work work = {.cache = cache, .request = request};
    struct tt_dataset *dataset = NULL;
    *hit = false;
    TT_GO(name_files(&work));
    TT_GO(try_rows(&work, true, &dataset));
    *hit = dataset != NULL;
    if (dataset == NULL) TT_GO(make_rows(&work, &dataset, hit));
    if (dataset == NULL) TT_GO(tt_dataset_load_sources(request, &dataset));
    *out = dataset;
out:
    tt_str_deinit(&work.key);
    tt_str_deinit(&work.path);
    tt_str_deinit(&work.temporary);
    tt_str_deinit(&work.lock_path);
    return status;
}
