/* Writes a store's file with little memory: ids go to their place; what comes behind them is collected in files without
 * a name in the same folder, and copied at the end. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc64.h"
#include "base/file.h"
#include "data/store_file.h"
#include "data/store_layout.h"

enum { SPILL_BYTES = 1 << 18 };

struct spill {
    int descriptor, reader; /* of the same file */
    uint64_t bytes;         /* in it */
    size_t held;            /* in the buffer */
    uint8_t *buffer;
};

struct tt_store_writer {
    char *path; /* owned */
    const char *key;
    int descriptor;
    bool failed;
    struct tt_store_header header;
    struct tt_store_layout layout;
    int32_t ids[TT_STORE_BLOCK_TOKENS]; /* the last, incomplete block */
    uint8_t supervised[TT_STORE_BLOCK_TOKENS];
    size_t held;
    uint64_t written; /* tokens in complete blocks */
    struct spill masks, samples, texts, sums;
};

static tt_status spill_open(const char *path, const char *ending, struct spill *spill)
{
    tt_status status = TT_OK;
    struct tt_str name = {0};
    spill->buffer = tt_calloc(SPILL_BYTES, 1);
    if (spill->buffer == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_str_printf(&name, "%s%s", path, ending));
    TT_GO(tt_file_create(tt_str_text(&name), 0, &spill->descriptor));
    status = tt_file_open_read(tt_str_text(&name), &spill->reader, NULL);
    int failed = tt_file_remove(tt_str_text(&name));
    if (failed != 0) status = tt_fail_errno(failed, "cannot remove '%s'", tt_str_text(&name));
out:
    tt_str_deinit(&name);
    return status;
}

static tt_status spill_flush(struct tt_store_writer *writer, struct spill *spill)
{
    TT_TRY(tt_file_pwrite(spill->descriptor, writer->path, spill->buffer, spill->held, spill->bytes));
    spill->bytes += spill->held;
    spill->held = 0;
    return TT_OK;
}

static tt_status spill_append(struct tt_store_writer *writer, struct spill *spill, const void *data,
                              size_t bytes)
{
    const uint8_t *from = data;
    while (bytes > 0) {
        size_t now = SPILL_BYTES - spill->held;
        if (now > bytes) now = bytes;
        memcpy(spill->buffer + spill->held, from, now);
        spill->held += now;
        from += now;
        bytes -= now;
        if (spill->held == SPILL_BYTES) TT_TRY(spill_flush(writer, spill));
    }
    return TT_OK;
}

/* Appends the collected bytes to the file at `offset`, and continues *sum, if there is one, over them and over the
 * zeros up to `end`. */
static tt_status spill_copy(struct tt_store_writer *writer, struct spill *spill, uint64_t offset,
                            uint64_t end, uint64_t *sum)
{
    TT_TRY(spill_flush(writer, spill));
    for (uint64_t done = 0; done < spill->bytes;) {
        size_t now = spill->bytes - done < SPILL_BYTES ? (size_t)(spill->bytes - done) : SPILL_BYTES;
        TT_TRY(tt_file_pread(spill->reader, writer->path, spill->buffer, now, done));
        TT_TRY(tt_file_pwrite(writer->descriptor, writer->path, spill->buffer, now, offset + done));
        if (sum != NULL) *sum = tt_crc64(*sum, spill->buffer, now);
        done += now;
    }
    static const uint8_t zeros[TT_STORE_ALIGNMENT];
    size_t fill = (size_t)(end - offset - spill->bytes);
    if (fill > 0) TT_TRY(tt_file_pwrite(writer->descriptor, writer->path, zeros, fill, end - fill));
    if (sum != NULL) *sum = tt_crc64(*sum, zeros, fill);
    return TT_OK;
}

tt_status tt_store_writer_open(const char *path, const char *key, struct tt_store_writer **out)
{
    tt_status status = TT_OK;
    struct tt_store_writer *writer = tt_calloc(1, sizeof *writer);
    if (writer == NULL) return TT_ERR_MEMORY;
    writer->descriptor = -1;
    writer->masks = writer->samples = writer->texts = writer->sums =
        (struct spill){.descriptor = -1, .reader = -1};
    writer->key = key;
    memcpy(writer->header.magic, TT_STORE_MAGIC, sizeof writer->header.magic);
    writer->header.byte_order = TT_STORE_BYTE_ORDER;
    writer->header.key_bytes = strlen(key);
    writer->path = tt_strdup(path);
    if (writer->path == NULL) TT_GO(TT_ERR_MEMORY);
    (void)tt_store_lay_out(&writer->header, &writer->layout); /* for the place of the ids */
    TT_GO(tt_file_create(path, 0, &writer->descriptor));
    TT_GO(spill_open(path, "-masks", &writer->masks));
    TT_GO(spill_open(path, "-samples", &writer->samples));
    TT_GO(spill_open(path, "-texts", &writer->texts));
    TT_GO(spill_open(path, "-sums", &writer->sums));
    *out = writer;
    return TT_OK;
out:
    tt_store_writer_destroy(writer);
    return status;
}

void tt_store_writer_destroy(struct tt_store_writer *writer)
{
    if (writer == NULL) return;
    struct spill *spills[] = {&writer->masks, &writer->samples, &writer->texts, &writer->sums};
    for (size_t i = 0; i < sizeof spills / sizeof *spills; i++) {
        tt_file_close(spills[i]->descriptor);
        tt_file_close(spills[i]->reader);
        tt_free(spills[i]->buffer);
    }
    tt_file_close(writer->descriptor);
    tt_free(writer->path);
    tt_free(writer);
}

bool tt_store_writer_failed(const struct tt_store_writer *writer)
{
    return writer->failed;
}

static tt_status write_block(struct tt_store_writer *writer)
{
    uint64_t sum = tt_crc64(0, writer->ids, writer->held * sizeof *writer->ids);
    sum = tt_crc64(sum, writer->supervised, writer->held);
    TT_TRY(tt_file_pwrite(writer->descriptor, writer->path, writer->ids, writer->held * sizeof *writer->ids,
                          writer->layout.ids + writer->written * sizeof *writer->ids));
    TT_TRY(spill_append(writer, &writer->masks, writer->supervised, writer->held));
    TT_TRY(spill_append(writer, &writer->sums, &sum, sizeof sum));
    writer->written += writer->held;
    writer->held = 0;
    return TT_OK;
}

static tt_status append_tokens(struct tt_store_writer *writer, const struct tt_sample *sample)
{
    for (size_t done = 0, count = (size_t)sample->count; done < count;) {
        size_t now = TT_STORE_BLOCK_TOKENS - writer->held;
        if (now > count - done) now = count - done;
        memcpy(writer->ids + writer->held, sample->ids + done, now * sizeof *writer->ids);
        memcpy(writer->supervised + writer->held, sample->supervised + done, now);
        writer->held += now;
        done += now;
        if (writer->held == TT_STORE_BLOCK_TOKENS) TT_TRY(write_block(writer));
    }
    return TT_OK;
}

static tt_status append_text(struct tt_store_writer *writer, const char *text, size_t *position)
{
    *position = 0;
    if (text == NULL) return TT_OK;
    size_t bytes = strlen(text) + 1;
    TT_TRY(spill_append(writer, &writer->texts, text, bytes));
    *position = writer->header.text_bytes + 1;
    writer->header.text_bytes += bytes;
    return TT_OK;
}

static tt_status append(struct tt_store_writer *writer, const struct tt_store *from, size_t index)
{
    struct tt_sample sample = tt_store_sample(from, index);
    struct tt_store_sample entry = {.first = writer->header.token_count,
                                    .count = sample.count,
                                    .supervised_count = sample.supervised_count,
                                    .value = sample.value};
    TT_TRY(append_text(writer, tt_store_text(from, from->samples[index].prompt), &entry.prompt));
    TT_TRY(append_text(writer, tt_store_text(from, from->samples[index].completion), &entry.completion));
    TT_TRY(append_tokens(writer, &sample));
    TT_TRY(spill_append(writer, &writer->samples, &entry, sizeof entry));
    writer->header.token_count += (uint64_t)sample.count;
    writer->header.sample_count++;
    writer->header.rows_sum = tt_store_sum_sample(writer->header.rows_sum, sample);
    return TT_OK;
}

tt_status tt_store_writer_append(struct tt_store_writer *writer, const struct tt_store *from, size_t index)
{
    tt_status status = append(writer, from, index);
    if (status != TT_OK) writer->failed = true;
    return status;
}

static tt_status write_parts(struct tt_store_writer *writer, const struct tt_dataset_part *parts,
                             uint64_t *sum)
{
    const struct tt_store_layout *layout = &writer->layout;
    size_t room = (size_t)(layout->sums - layout->parts);
    uint8_t *block = tt_calloc(room, 1);
    if (block == NULL) return TT_ERR_MEMORY;
    if (writer->header.part_count > 0) memcpy(block, parts, writer->header.part_count * sizeof *parts);
    tt_status status = tt_file_pwrite(writer->descriptor, writer->path, block, room, layout->parts);
    *sum = tt_crc64(*sum, block, room);
    tt_free(block);
    return status;
}

static tt_status finish(struct tt_store_writer *writer, const struct tt_dataset_part *parts)
{
    struct tt_store_header *header = &writer->header;
    struct tt_store_layout *layout = &writer->layout;
    static const uint8_t zeros[TT_STORE_ALIGNMENT];
    uint64_t sum = 0;
    if (writer->held > 0) TT_TRY(write_block(writer));
    if (!tt_store_lay_out(header, layout))
        return tt_fail(TT_ERR_INTERNAL, "'%s' would be too large", writer->path);
    uint64_t end_of_ids = layout->ids + header->token_count * sizeof(int32_t);
    TT_TRY(tt_file_pwrite(writer->descriptor, writer->path, zeros, (size_t)(layout->supervised - end_of_ids),
                          end_of_ids));
    TT_TRY(spill_copy(writer, &writer->masks, layout->supervised, layout->samples, NULL));
    TT_TRY(spill_copy(writer, &writer->samples, layout->samples, layout->texts, &sum));
    TT_TRY(spill_copy(writer, &writer->texts, layout->texts, layout->parts, &sum));
    TT_TRY(write_parts(writer, parts, &sum));
    TT_TRY(spill_copy(writer, &writer->sums, layout->sums, layout->end, &sum));
    header->tables_sum = sum;
    header->header_sum = tt_store_header_sum(header, writer->key);
    TT_TRY(tt_file_pwrite(writer->descriptor, writer->path, writer->key, header->key_bytes, layout->key));
    TT_TRY(tt_file_pwrite(writer->descriptor, writer->path, header, sizeof *header, 0));
    int descriptor = writer->descriptor;
    writer->descriptor = -1;
    return tt_file_sync_close(descriptor, writer->path);
}

tt_status tt_store_writer_finish(struct tt_store_writer *writer, const struct tt_dataset_report *report,
                                 const struct tt_dataset_part *parts, size_t part_count)
{
    writer->header.report = *report;
    writer->header.part_count = part_count;
    tt_status status = finish(writer, parts);
    if (status != TT_OK) writer->failed = true;
    return status;
}
