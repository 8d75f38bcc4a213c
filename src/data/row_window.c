#include "data/row_window.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "base/thread.h"
#include "data/packing.h"
#include "data/row_samples.h"
#include "data/rows.h"

enum { ROWS_MAX = 1000, BYTES_MAX = 64 << 20, THREADS_MAX = 32, BLOCK_ROWS = 16, BLOCKS_MAX = 63 };

/* Neighbouring rows, tokenized by one thread. */
struct block {
    struct tt_store store;
    struct tt_dataset_report report;
    bool failed;
    struct tt_error error;
};

struct tt_window_reader {
    struct tt_window_config config;
    struct tt_row_reader *readers[THREADS_MAX];
    struct tt_flow_row rows[ROWS_MAX];
    size_t row_count;
    struct block blocks[BLOCKS_MAX];
    size_t block_count;
    atomic_size_t next_block, next_reader;
};

tt_status tt_window_reader_create(const struct tt_window_config *config, struct tt_window_reader **out)
{
    struct tt_window_reader *reader = tt_calloc(1, sizeof *reader);
    if (reader == NULL) return TT_ERR_MEMORY;
    reader->config = *config;
    *out = reader;
    return TT_OK;
}

static void drop_rows(struct tt_window_reader *reader)
{
    for (size_t i = 0; i < reader->row_count; i++) tt_free(reader->rows[i].data);
    for (size_t i = 0; i < reader->block_count; i++) {
        tt_store_deinit(&reader->blocks[i].store);
        reader->blocks[i] = (struct block){0};
    }
    reader->row_count = reader->block_count = 0;
}

void tt_window_reader_destroy(struct tt_window_reader *reader)
{
    if (reader == NULL) return;
    drop_rows(reader);
    for (int i = 0; i < THREADS_MAX; i++) tt_row_reader_destroy(reader->readers[i]);
    tt_free(reader);
}

void tt_row_window_deinit(struct tt_row_window *window)
{
    tt_store_deinit(&window->store);
    tt_free(window->pieces);
    tt_free(window->units);
    *window = (struct tt_row_window){0};
}

/* ---- Rows to samples ---- */

static bool is_text(const char *path)
{
    static const char *const endings[] = {".txt", ".txt.gz", ".txt.zst", ".txt.zstd"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (tt_ends_with(path, endings[i])) return true;
    return false;
}

static tt_status read_row(const struct tt_window_reader *reader, const struct tt_flow_row *row,
                          struct tt_row_reader **tokens, struct block *block)
{
    const struct tt_window_config *config = &reader->config;
    struct tt_row_span span = {row->data, row->bytes, row->line};
    const char *path = config->sources->files[row->place.file].path;
    const struct tt_rows rows = {.path = path,
                                 .plain_text = is_text(path),
                                 .in_memory = true,
                                 .spans = &span,
                                 .count = 1,
                                 .before = (size_t)row->place.row};
    const struct tt_row_making making = {.rows = &rows, .config = config->config};
    const struct tt_row_target to = {&block->store, &block->report};
    if (*tokens == NULL)
        TT_TRY(tt_row_reader_create(&rows, config->config, config->tokenizer, config->vocab_size, 0, tokens));
    tt_row_reader_turn(*tokens, &rows);
    return tt_row_samples_add(&making, *tokens, 0, &to);
}

static void read_block(struct tt_window_reader *reader, size_t index, struct tt_row_reader **tokens)
{
    struct block *block = &reader->blocks[index];
    size_t end = (index + 1) * BLOCK_ROWS < reader->row_count ? (index + 1) * BLOCK_ROWS : reader->row_count;
    for (size_t i = index * BLOCK_ROWS; i < end && !block->failed; i++) {
        block->failed = read_row(reader, &reader->rows[i], tokens, block) != TT_OK;
        if (block->failed) tt_error_copy(&block->error);
        tt_free(reader->rows[i].data);
        reader->rows[i].data = NULL;
    }
}

static tt_status read_blocks(void *argument)
{
    struct tt_window_reader *reader = argument;
    struct tt_row_reader **tokens = &reader->readers[atomic_fetch_add(&reader->next_reader, 1)];
    for (size_t i; (i = atomic_fetch_add(&reader->next_block, 1)) < reader->block_count;)
        read_block(reader, i, tokens);
    return TT_OK;
}

static tt_status tokenize(struct tt_window_reader *reader, struct tt_row_window *window)
{
    int threads = tt_cpu_count() < THREADS_MAX ? tt_cpu_count() : THREADS_MAX;
    reader->block_count = (reader->row_count + BLOCK_ROWS - 1) / BLOCK_ROWS;
    if ((size_t)threads > reader->block_count) threads = (int)reader->block_count;
    atomic_store(&reader->next_block, 0);
    atomic_store(&reader->next_reader, 0);
    if (threads > 0) TT_TRY(tt_threads_run("rows", threads, read_blocks, reader));
    for (size_t i = 0; i < reader->block_count; i++) {
        struct block *block = &reader->blocks[i];
        if (block->failed) return tt_error_restore(&block->error);
        tt_dataset_report_add(&window->report, &block->report);
        for (size_t j = 0; j < block->store.sample_count; j++)
            TT_TRY(tt_store_append_sample(&window->store, &block->store, j));
        tt_store_deinit(&block->store);
    }
    return TT_OK;
}

static tt_status take_rows(struct tt_window_reader *reader, struct tt_row_shuffle *shuffle,
                           struct tt_row_window *window)
{
    size_t bytes = 0;
    while (reader->row_count < ROWS_MAX && bytes < BYTES_MAX) {
        struct tt_flow_row *row = &reader->rows[reader->row_count];
        TT_TRY(tt_row_shuffle_next(shuffle, row, &window->ends_epoch));
        if (window->ends_epoch) return TT_OK;
        bytes += row->bytes;
        reader->row_count++;
    }
    return TT_OK;
}

/* ---- Units ---- */

static tt_status add_piece(struct tt_row_window *window, size_t sample, int32_t first, int32_t count)
{
    TT_TRY(tt_grow(&window->pieces, window->piece_count, &window->piece_capacity));
    window->pieces[window->piece_count++] = (struct tt_window_piece){sample, first, count};
    return TT_OK;
}

/* A unit ends with the last piece. */
static tt_status end_unit(struct tt_row_window *window)
{
    if (window->units == NULL) TT_TRY(tt_grow(&window->units, 0, &window->unit_capacity));
    TT_TRY(tt_grow(&window->units, window->unit_count + 1, &window->unit_capacity));
    window->units[0] = 0;
    window->units[++window->unit_count] = window->piece_count;
    return TT_OK;
}

static tt_status make_groups(struct tt_row_window *window, size_t each)
{
    for (size_t i = 0; i < window->store.sample_count; i++) {
        TT_TRY(add_piece(window, i, 0, window->store.samples[i].count));
        if ((i + 1) % each == 0) TT_TRY(end_unit(window));
    }
    return TT_OK;
}

static tt_status make_slices(struct tt_row_window *window, int64_t length)
{
    int64_t room = length;
    for (size_t i = 0; i < window->store.sample_count; i++) {
        const int32_t all = window->store.samples[i].count;
        for (int32_t first = 0; first < all;) {
            int32_t count = all - first < room ? all - first : (int32_t)room;
            TT_TRY(add_piece(window, i, first, count));
            first += count;
            room -= count;
            if (room > 0) continue;
            TT_TRY(end_unit(window));
            room = length;
        }
    }
    return room < length ? end_unit(window) : TT_OK;
}

static tt_status make_packs(const struct tt_window_config *config, struct tt_row_window *window)
{
    struct tt_packs packs = {0};
    uint64_t number = (uint64_t)window->place.epoch << 40 ^ (uint64_t)window->place.taken;
    struct tt_rng rng =
        tt_rng_derive_index(tt_rng_derive(tt_rng_make(config->seed), "packs of a window"), number);
    tt_status status = tt_packs_make(&window->store, config->pack_length, &packs);
    for (size_t i = 0; status == TT_OK && i < packs.count; i++) {
        size_t pack = config->shuffle ? (size_t)tt_rng_permute(rng, i, packs.count) : i;
        for (size_t j = packs.first[pack]; status == TT_OK && j < packs.first[pack + 1]; j++)
            status = add_piece(window, packs.samples[j], 0, window->store.samples[packs.samples[j]].count);
        if (status == TT_OK) status = end_unit(window);
    }
    tt_packs_deinit(&packs);
    return status;
}

static tt_status make_units(const struct tt_window_config *config, struct tt_row_window *window)
{
    if (window->store.sample_count == 0) return TT_OK;
    if (!config->config->packing) return make_groups(window, tt_data_samples_each(config->config));
    return tt_data_streams(config->config) ? make_slices(window, config->pack_length)
                                           : make_packs(config, window);
}

tt_status tt_window_read(struct tt_window_reader *reader, struct tt_row_shuffle *shuffle,
                         struct tt_row_window *window)
{
    window->place = tt_row_shuffle_place(shuffle);
    tt_status status = take_rows(reader, shuffle, window);
    if (status == TT_OK) status = tokenize(reader, window);
    if (status == TT_OK) status = make_units(&reader->config, window);
    drop_rows(reader);
    if (status != TT_OK) tt_row_window_deinit(window);
    return status;
}
