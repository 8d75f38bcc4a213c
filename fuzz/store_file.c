/* Files of tokenized rows. The sums are made right, so that what they would hide is reached; then every sample is
 * checked, shown, counted and put into batches.
 * words: src/data/store_file.c src/data/store_layout.h */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc64.h"
#include "data/sampler.h"
#include "data/show.h"
#include "data/statistics.h"
#include "data/store_file.h"
#include "data/store_layout.h"
#include "folder.h"

/* Those of the seeds, which tests/unit/data/store_seeds.c makes and opens. */
enum { VOCAB = 500, MAX_LENGTH = 64 };

static void mend(uint8_t *data, size_t bytes)
{
    struct tt_store_header *header = (struct tt_store_header *)data;
    struct tt_store_layout layout;
    memcpy(header->magic, TT_STORE_MAGIC, sizeof header->magic);
    header->byte_order = TT_STORE_BYTE_ORDER;
    if (!tt_store_lay_out(header, &layout) || layout.end != bytes) return;
    uint64_t *sums = (uint64_t *)(data + layout.sums);
    for (uint64_t first = 0; first < header->token_count; first += TT_STORE_BLOCK_TOKENS) {
        uint64_t count = header->token_count - first;
        if (count > TT_STORE_BLOCK_TOKENS) count = TT_STORE_BLOCK_TOKENS;
        uint64_t sum = tt_crc64(0, data + layout.ids + first * 4, count * 4);
        sums[first / TT_STORE_BLOCK_TOKENS] = tt_crc64(sum, data + layout.supervised + first, count);
    }
    header->tables_sum = tt_crc64(0, data + layout.samples, layout.end - layout.samples);
    header->header_sum = tt_store_header_sum(header, (const char *)data + layout.key);
}

static const struct tt_store_bounds bounds = {VOCAB, MAX_LENGTH, false};

static void use_batches(const struct tt_dataset *dataset, int packing)
{
    const struct tt_sampler_config config = {.micro_batch_size = 2,
                                             .world_size = 1,
                                             .accumulation = 1,
                                             .packing = packing > 0,
                                             .packing_strategy =
                                                 packing > 1 ? TT_PACKING_WRAPPED : TT_PACKING_BFD,
                                             .max_length = MAX_LENGTH};
    struct tt_sampler *sampler = NULL;
    struct tt_batch_storage storage = {0};
    if (tt_sampler_create(dataset, &config, &sampler) != TT_OK) return;
    for (int64_t step = 0; step < tt_sampler_steps_per_epoch(sampler); step++) {
        struct tt_batch batch;
        if (tt_sampler_batch(sampler, step, 0, 0, &storage, &batch) != TT_OK) break;
        for (int64_t t = 0; t < batch.token_count; t++)
            if (batch.ids[t] < 0 || batch.ids[t] >= VOCAB) abort();
    }
    tt_batch_storage_deinit(&storage);
    tt_sampler_destroy(sampler);
}

static void use(const struct tt_dataset *dataset)
{
    struct tt_data_statistics statistics;
    struct tt_str text = {0};
    for (size_t i = 0; i < tt_dataset_count(dataset); i++) {
        const char *prompt = tt_dataset_prompt(dataset, i), *completion = tt_dataset_completion(dataset, i);
        if (prompt != NULL) (void)strlen(prompt);
        if (completion != NULL) (void)strlen(completion);
        (void)!tt_dataset_show(dataset, i, NULL, "[", "]", &text);
        tt_str_clear(&text);
    }
    (void)!tt_data_statistics_make(dataset, &statistics);
    for (int packing = 0; packing < 3; packing++) use_batches(dataset, packing);
    tt_str_deinit(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char key[] = "a key";
    struct tt_store store;
    struct tt_dataset_report report;
    const struct tt_dataset_part *parts;
    size_t part_count;
    struct tt_dataset *dataset = NULL;
    if (bytes > 1 << 16) return 0;
    uint8_t *copy = malloc(bytes + 1);
    if (copy == NULL) abort();
    memcpy(copy, data, bytes);
    if (bytes >= sizeof(struct tt_store_header)) mend(copy, bytes);
    const char *path = fuzz_write("x.rows", copy, bytes);
    free(copy);
    if (tt_store_file_open(path, key, &bounds, &store, &report, &parts, &part_count) != TT_OK) return 0;
    if (tt_dataset_adopt(&store, &report, parts, part_count, &dataset) != TT_OK) abort();
    use(dataset);
    tt_dataset_destroy(dataset);
    return 0;
}
