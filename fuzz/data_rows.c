/* Data files. The first byte chooses the kind of file and the operation; the rest is the file. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "data/sampler.h"

static const char tokenizer_json[] =
    "{\"added_tokens\": [{\"id\": 3, \"content\": \"</s>\", \"single_word\": false, \"lstrip\": false, "
    "\"rstrip\": false,"
    " \"normalized\": false, \"special\": true}], \"normalizer\": null, \"pre_tokenizer\": {\"type\": "
    "\"ByteLevel\","
    " \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": true}, \"post_processor\": null, "
    "\"decoder\": null,"
    " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": "
    "null,"
    " \"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false,"
    " \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"</s>\": 3, \"\\u0120\": 4}, \"merges\": [\"a b\"]}}";

static void read_batches(const struct tt_dataset *dataset, bool wrapped)
{
    struct tt_sampler_config config = {.micro_batch_size = 2,
                                       .world_size = 2,
                                       .accumulation = 1,
                                       .shuffle = true,
                                       .packing = true,
                                       .packing_strategy = wrapped ? TT_PACKING_WRAPPED : TT_PACKING_BFD,
                                       .max_length = 8};
    struct tt_sampler *sampler = NULL;
    struct tt_batch_storage storage = {0};
    if (tt_sampler_create(dataset, &config, &sampler) != TT_OK) abort();
    for (int64_t step = 0; step < tt_sampler_steps_per_epoch(sampler); step++) {
        struct tt_batch batch;
        if (tt_sampler_batch(sampler, step, 0, 1, &storage, &batch) != TT_OK) abort();
        for (int64_t i = 0; i < batch.token_count; i++) {
            if (batch.ids[i] < 0 || batch.ids[i] >= 50) abort();
        }
    }
    tt_batch_storage_deinit(&storage);
    tt_sampler_destroy(sampler);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tt_tokenizer *tokenizer;
    if (tokenizer == NULL &&
        tt_tokenizer_parse(tokenizer_json, sizeof tokenizer_json - 1, "fuzz", &tokenizer) != TT_OK) {
        abort();
    }
    if (size == 0) return 0;
    static const char *const endings[] = {"jsonl", "json", "txt"};
    char path[256];
    const char *temporary = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/tt-fuzz-%ld.%s", temporary != NULL ? temporary : "/dev/shm",
             (long)getpid(), endings[data[0] % 3]);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data + 1, 1, size - 1, file) != size - 1 || fclose(file) != 0) abort();
    bool wrapped = data[0] & 8;
    struct tt_data_config config = {.dataset_text_field = "text",
                                    .dataset_prompt_field = "prompt",
                                    .dataset_completion_field = "completion",
                                    .max_length = 8,
                                    .packing = wrapped,
                                    .packing_strategy = wrapped ? TT_PACKING_WRAPPED : TT_PACKING_BFD,
                                    .eval_packing = -1,
                                    .completion_only_loss = -1,
                                    .eos_token = data[0] & 16 ? "</s>" : NULL,
                                    .prompt_template = data[0] & 32 ? "{q}: {{" : NULL,
                                    .over_length =
                                        data[0] & 64 ? TT_OVER_LENGTH_DROP : TT_OVER_LENGTH_TRUNCATE};
    struct tt_dataset *dataset = NULL;
    if (tt_dataset_load(path, &config, tokenizer, 50, data[0] & 128 ? 3 : 0, &dataset) == TT_OK) {
        struct tt_str text = {0};
        read_batches(dataset, wrapped);
        if (tt_dataset_show(dataset, 0, NULL, "[", "]", &text) != TT_OK) abort();
        tt_str_deinit(&text);
    }
    tt_dataset_destroy(dataset);
    unlink(path);
    return 0;
}
