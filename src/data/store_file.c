#include "data/store_file.h"

#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc64.h"
#include "base/file.h"
#include "data/sources.h"
#include "data/store_layout.h"

struct tt_store_file {
    char *path; /* owned */
    struct tt_file_map map;
    int64_t vocab_size;
    uint64_t rows_sum;
    const uint64_t *sums;
    atomic_uchar *checked; /* of each block of tokens: whether its sum was right */
};

uint64_t tt_store_sum_sample(uint64_t sum, struct tt_sample sample)
{
    int32_t sizes[2] = {sample.count, sample.supervised_count};
    sum = tt_crc64(sum, sizes, sizeof sizes);
    sum = tt_crc64(sum, sample.ids, (size_t)sample.count * sizeof *sample.ids);
    sum = tt_crc64(sum, sample.supervised, (size_t)sample.count);
    return sample.value != 0 ? tt_crc64(sum, &sample.value, sizeof sample.value) : sum;
}

/* ---- Layout ---- */

static bool place(uint64_t *at, uint64_t count, uint64_t size, uint64_t *offset)
{
    uint64_t bytes;
    *offset = *at;
    if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(*at, bytes, at)) return false;
    if (*at > INT64_MAX - TT_STORE_ALIGNMENT) return false;
    *at = (*at + TT_STORE_ALIGNMENT - 1) / TT_STORE_ALIGNMENT * TT_STORE_ALIGNMENT;
    return true;
}

static uint64_t count_blocks(uint64_t tokens)
{
    return tokens / TT_STORE_BLOCK_TOKENS + (tokens % TT_STORE_BLOCK_TOKENS != 0);
}

bool tt_store_lay_out(const struct tt_store_header *header, struct tt_store_layout *out)
{
    uint64_t at = 0, none;
    return place(&at, 1, sizeof *header, &none) && place(&at, header->key_bytes, 1, &out->key) &&
           place(&at, 0, 1, &out->ids) && place(&at, header->token_count, sizeof(int32_t), &out->ids) &&
           place(&at, header->token_count, 1, &out->supervised) &&
           place(&at, header->sample_count, sizeof(struct tt_store_sample), &out->samples) &&
           place(&at, header->text_bytes, 1, &out->texts) &&
           place(&at, header->part_count, sizeof(struct tt_dataset_part), &out->parts) &&
           place(&at, count_blocks(header->token_count), sizeof(uint64_t), &out->sums) &&
           place(&at, 0, 1, &out->end);
}

uint64_t tt_store_header_sum(const struct tt_store_header *header, const char *key)
{
    struct tt_store_header copy = *header;
    copy.header_sum = 0;
    return tt_crc64(tt_crc64(0, &copy, sizeof copy), key, header->key_bytes);
}

/* ---- Opening ---- */

static tt_status damaged(const char *path, const char *what)
{
    return tt_fail(TT_ERR_DATA, "the tokenized rows in '%s' are damaged: %s", path, what);
}

static tt_status other_version(const char *path)
{
    return tt_fail(TT_ERR_DATA, "'%s' is of another version of trimtab", path);
}

static tt_status check_header(const struct tt_store_file *file, const char *key,
                              const struct tt_store_header *header, struct tt_store_layout *layout)
{
    const char *data = (const char *)file->map.data;
    if (memcmp(header->magic, TT_STORE_MAGIC, strcspn(TT_STORE_MAGIC, "0123456789")) != 0)
        return tt_fail(TT_ERR_DATA, "'%s' is no file of tokenized rows", file->path);
    if (memcmp(header->magic, TT_STORE_MAGIC, sizeof header->magic) != 0) return other_version(file->path);
    if (header->byte_order != TT_STORE_BYTE_ORDER)
        return tt_fail(TT_ERR_DATA, "'%s' is of a machine with another order of bytes", file->path);
    if (!tt_store_lay_out(header, layout))
        return damaged(file->path, "the sizes in its header are impossible");
    if (layout->end != file->map.bytes)
        return damaged(file->path, "it has another size than its header says");
    if (tt_store_header_sum(header, data + layout->key) != header->header_sum)
        return damaged(file->path, "the sum of its header is wrong");
    size_t line = strcspn(key, "\n");
    line = key[line] == '\n' ? line + 1 : 0;
    if (header->key_bytes < line || memcmp(data + layout->key, key, line) != 0)
        return other_version(file->path);
    if (header->key_bytes != strlen(key) || memcmp(data + layout->key, key, header->key_bytes) != 0)
        return tt_fail(TT_ERR_DATA, "'%s' was made from other rows, another tokenizer or other settings",
                       file->path);
    if (tt_crc64(0, data + layout->samples, layout->end - layout->samples) != header->tables_sum)
        return damaged(file->path, "the sum of its tables is wrong");
    return TT_OK;
}

/* Whether `position` is 0 or that of a text. All texts end inside, because the last byte is a terminator. */
static bool is_text(size_t position, uint64_t text_bytes)
{
    return position <= text_bytes;
}

static bool is_count(int64_t count)
{
    return count >= 0 && count <= INT64_MAX / 2;
}

/* Counts are printed and subtracted: none is negative, or so large that sums overflow. */
static bool is_report(const struct tt_dataset_report *report)
{
    const int64_t *counts = (const int64_t *)report;
    for (size_t i = 0; i < offsetof(struct tt_dataset_report, roles) / sizeof *counts; i++)
        if (!is_count(counts[i])) return false;
    for (size_t i = 0; i < TT_ROLES_MAX; i++) {
        const struct tt_role_count *role = &report->roles[i];
        const char *end = memchr(role->name, '\0', sizeof role->name);
        if (end == NULL || !is_count(role->conversations) || !is_count(role->row) || !is_count(role->masked))
            return false;
        for (const char *at = role->name; at < end; at++)
            if ((unsigned char)*at < ' ') return false;
    }
    return true;
}

/* Samples of a stream may have one token, and no label. */
static bool is_sample(const struct tt_store_sample *sample, const struct tt_store_bounds *bounds)
{
    int32_t fewest = bounds->stream ? 0 : 1;
    return sample->count > fewest && sample->count <= bounds->max_length &&
           sample->supervised_count >= fewest && sample->supervised_count < sample->count &&
           isfinite(sample->value);
}

static tt_status check_samples(const struct tt_store_file *file, const struct tt_store_header *header,
                               const struct tt_store_layout *layout, const struct tt_store_bounds *bounds)
{
    const struct tt_store_sample *samples = (const void *)(file->map.data + layout->samples);
    const struct tt_dataset_part *parts = (const void *)(file->map.data + layout->parts);
    uint64_t at = 0;
    int64_t supervised = 0;
    if (header->text_bytes > 0 && file->map.data[layout->texts + header->text_bytes - 1] != '\0')
        return damaged(file->path, "its texts do not end");
    for (uint64_t i = 0; i < header->sample_count; i++) {
        const struct tt_store_sample *sample = &samples[i];
        if (sample->first != at || !is_sample(sample, bounds) ||
            !is_text(sample->prompt, header->text_bytes) || !is_text(sample->completion, header->text_bytes))
            return damaged(file->path, "a sample is impossible");
        supervised += sample->supervised_count;
        at += (uint64_t)sample->count;
        if (at > header->token_count) return damaged(file->path, "a sample is outside");
    }
    if (at != header->token_count || header->sample_count == 0)
        return damaged(file->path, "samples are missing");
    if (!is_report(&header->report) || header->report.samples != (int64_t)header->sample_count ||
        header->report.tokens != (int64_t)header->token_count ||
        header->report.supervised_tokens != supervised)
        return damaged(file->path, "its counts are impossible");
    for (uint64_t i = 0; i < header->part_count; i++)
        if (parts[i].source >= TT_SOURCES_MAX || (i > 0 && parts[i].source < parts[i - 1].source) ||
            parts[i].once < 0 || !is_report(&parts[i].report))
            return damaged(file->path, "a source is impossible");
    return TT_OK;
}

static tt_status open_file(const char *path, struct tt_store_file **out)
{
    struct tt_store_file *file = tt_calloc(1, sizeof *file);
    if (file == NULL) return TT_ERR_MEMORY;
    file->path = tt_strdup(path);
    tt_status status = file->path != NULL ? tt_file_map_open(path, &file->map) : TT_ERR_MEMORY;
    if (status == TT_OK && file->map.bytes < sizeof(struct tt_store_header))
        status = damaged(path, "it is too short");
    if (status != TT_OK)
        tt_store_file_close(file);
    else
        *out = file;
    return status;
}

tt_status tt_store_file_open(const char *path, const char *key, const struct tt_store_bounds *bounds,
                             struct tt_store *store, struct tt_dataset_report *report,
                             const struct tt_dataset_part **parts, size_t *part_count)
{
    tt_status status = TT_OK;
    struct tt_store_file *file = NULL;
    struct tt_store_layout layout;
    TT_TRY(open_file(path, &file));
    const struct tt_store_header *header = (const void *)file->map.data;
    TT_GO(check_header(file, key, header, &layout));
    TT_GO(check_samples(file, header, &layout, bounds));
    const uint8_t *data = file->map.data;
    file->vocab_size = bounds->vocab_size;
    file->rows_sum = header->rows_sum;
    file->sums = (const void *)(data + layout.sums);
    file->checked = tt_calloc(count_blocks(header->token_count), sizeof *file->checked);
    if (file->checked == NULL) TT_GO(TT_ERR_MEMORY);
    *report = header->report;
    *parts = (const void *)(data + layout.parts);
    *part_count = header->part_count;
    /* The store does not write through these while it has a file. */
    *store = (struct tt_store){
        .ids = (int32_t *)(uintptr_t)(data + layout.ids),
        .supervised = (uint8_t *)(uintptr_t)(data + layout.supervised),
        .token_count = header->token_count,
        .samples = (struct tt_store_sample *)(uintptr_t)(data + layout.samples),
        .sample_count = header->sample_count,
        .texts = {(char *)(uintptr_t)(data + layout.texts), header->text_bytes, 0},
        .file = file,
    };
    file = NULL;
out:
    tt_store_file_close(file);
    return status;
}

void tt_store_file_close(struct tt_store_file *file)
{
    if (file == NULL) return;
    tt_file_map_close(&file->map);
    tt_free(file->checked);
    tt_free(file->path);
    tt_free(file);
}

uint64_t tt_store_file_sum(const struct tt_store_file *file)
{
    return file->rows_sum;
}

/* ---- Tokens ---- */

static tt_status fail_tokens(const struct tt_store_file *file, uint64_t token)
{
    tt_fail(TT_ERR_DATA, "the tokenized rows in '%s' are damaged at token %llu", file->path,
            (unsigned long long)token);
    tt_hint("remove the file: the next run makes it again");
    return TT_ERR_DATA;
}

static tt_status check_block(const struct tt_store *store, uint64_t block)
{
    const struct tt_store_file *file = store->file;
    if (atomic_load_explicit(&file->checked[block], memory_order_relaxed) != 0) return TT_OK;
    uint64_t first = block * TT_STORE_BLOCK_TOKENS, count = store->token_count - first;
    if (count > TT_STORE_BLOCK_TOKENS) count = TT_STORE_BLOCK_TOKENS;
    uint64_t sum = tt_crc64(0, store->ids + first, count * sizeof *store->ids);
    if (tt_crc64(sum, store->supervised + first, count) != file->sums[block]) return fail_tokens(file, first);
    atomic_store_explicit(&file->checked[block], 1, memory_order_relaxed);
    return TT_OK;
}

tt_status tt_store_file_check(const struct tt_store *store, size_t index, int32_t first, int32_t count)
{
    const struct tt_store_sample *sample = &store->samples[index];
    uint64_t begin = sample->first + (uint64_t)first, end = begin + (uint64_t)count;
    const int32_t *ids = store->ids + begin;
    const uint8_t *supervised = store->supervised + begin;
    int64_t marked = 0;
    for (uint64_t b = begin / TT_STORE_BLOCK_TOKENS; b * TT_STORE_BLOCK_TOKENS < end; b++)
        TT_TRY(check_block(store, b));
    /* A sum can be forged: memory is only read and written by what this finds. */
    for (int32_t t = 0; t < count; t++) {
        if (ids[t] < 0 || ids[t] >= store->file->vocab_size || supervised[t] > 1)
            return fail_tokens(store->file, begin + (uint64_t)t);
        marked += t > 0 && supervised[t];
    }
    bool whole = count == sample->count;
    return !whole || marked == sample->supervised_count ? TT_OK : fail_tokens(store->file, begin);
}
