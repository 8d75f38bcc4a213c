/* Speed of reading conversations on one core: parsing rows, rendering the chat template, tokenizing. One JSON line.
 *
 *     bench_conversations ROWS.jsonl FOLDER [ROUNDS]      FOLDER: tokenizer and chat template
 *
 * The best of the rounds counts. "sum" is CRC-64 of all ids as 32-bit integers, row after row. With
 * --assistant_only as the fourth word the mask of what assistants say is made too.
 * bench/peers/hf_conversations.py runs this and transformers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc64.h"
#include "data/row_reader.h"
#include "text/tokenizer.h"

static tt_status read_all(const struct tt_rows *rows, struct tt_row_reader *reader, size_t *ids,
                          uint64_t *sum)
{
    *ids = 0;
    *sum = 0;
    for (size_t i = 0; i < rows->count; i++) {
        struct tt_row row;
        TT_TRY(tt_row_read(reader, i, 0, &row));
        *ids += row.count;
        *sum = tt_crc64(*sum, row.ids, row.count * sizeof *row.ids);
    }
    return TT_OK;
}

static tt_status measure(const char *path, const char *folder, int rounds, bool assistant_only)
{
    tt_status status = TT_OK;
    struct tt_rows rows = {0};
    struct tt_tokenizer *tokenizer = NULL;
    struct tt_row_reader *reader = NULL;
    const struct tt_data_config config = {.dataset_text_field = "text",
                                          .dataset_prompt_field = "prompt",
                                          .dataset_completion_field = "completion",
                                          .max_length = 1 << 23,
                                          .completion_only_loss = -1,
                                          .assistant_only_loss = assistant_only,
                                          .date = "2026-01-01"};
    double best = 0;
    size_t ids = 0;
    uint64_t sum = 0;
    TT_GO(tt_tokenizer_load(folder, &tokenizer));
    TT_GO(tt_rows_open(path, &(struct tt_unpack_limits){0}, &rows));
    TT_GO(tt_row_reader_create(&rows, &config, tokenizer, tt_tokenizer_vocab_size(tokenizer), 0, &reader));
    for (int round = 0; round < rounds; round++) {
        double start = tt_clock_seconds();
        TT_GO(read_all(&rows, reader, &ids, &sum));
        double seconds = tt_clock_seconds() - start;
        if (round == 0 || seconds < best) best = seconds;
    }
    printf("{\"rows\": %zu, \"bytes\": %llu, \"ids\": %zu, \"sum\": \"%016llx\", \"seconds\": %.6f, "
           "\"ids_per_second\": %.0f, \"MB_per_s\": %.3f}\n",
           rows.count, (unsigned long long)rows.map.bytes, ids, (unsigned long long)sum, best,
           (double)ids / best, (double)rows.map.bytes / 1e6 / best);
out:
    tt_row_reader_destroy(reader);
    tt_rows_close(&rows);
    tt_tokenizer_destroy(tokenizer);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bench_conversations ROWS.jsonl FOLDER [ROUNDS [--assistant_only]]\n");
        return 2;
    }
    bool assistant_only = argc > 4 && strcmp(argv[4], "--assistant_only") == 0;
    if (measure(argv[1], argv[2], argc > 3 ? atoi(argv[3]) : 5, assistant_only) == TT_OK) return 0;
    fprintf(stderr, "error: %s\n", tt_error_last()->message);
    return 1;
}
