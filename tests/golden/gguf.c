/* GGUF files against those that gguf-py writes (gguf/make_gguf.py), byte for byte; and read back by a reader
 * of their own, whose values are those of the merged model folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "base/file.h"
#include "convert/gguf.h"
#include "support/must.h"
#include "support/train_run.h"
#include "support/workplace.h"

#define GOLDEN TT_TEST_ROOT "/golden/"

/* The reference model with the tokenizer of gguf/tokenizer, in the workplace's model/. */
static void make_model(const char *family, struct test_workplace *place)
{
    char from[TEST_PATH_BYTES], to[TEST_PATH_BYTES];
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json"};
    test_workplace_create(family, place);
    for (int i = 0; i < 2; i++)
        test_copy_file(test_join(GOLDEN "gguf/tokenizer", files[i], from),
                       test_join(place->model, files[i], to));
}

static tt_status export_to(const char *base, const char *adapter, bool adapter_only, tt_dtype dtype,
                           const char *file)
{
    struct tt_merge merge;
    struct tt_gguf_report report;
    struct tt_gguf_options options = {.output_file = file, .adapter_only = adapter_only, .dtype = dtype};
    test_must(tt_merge_open(base, adapter, &merge));
    tt_status status = tt_gguf_export(&merge, &options, &report);
    tt_merge_close(&merge);
    return status;
}

static void same_bytes_as_gguf_py(void **state)
{
    static const struct {
        const char *family, *adapter, *golden;
        tt_dtype dtype;
        const char *config; /* instead of the model's; NULL: that */
    } cases[] = {
        {"llama3", NULL, GOLDEN "gguf/llama3_bf16.gguf", TT_BF16, NULL},
        {"llama3", GOLDEN "llama3/adapter_random", GOLDEN "gguf/llama3_lora.gguf", TT_DTYPE_NONE, NULL},
        {"qwen2", NULL, GOLDEN "gguf/qwen2_f16.gguf", TT_F16, NULL},
        {"smollm3", NULL, GOLDEN "gguf/smollm3_f16.gguf", TT_F16, NULL},
        {"phi3", NULL, GOLDEN "gguf/phi3_f16.gguf", TT_F16, NULL},
        {"gemma2", NULL, GOLDEN "gguf/gemma2_f16.gguf", TT_F16, GOLDEN "gguf/gemma2_config.json"},
        {"gemma3", NULL, GOLDEN "gguf/gemma3_f16.gguf", TT_F16, GOLDEN "gguf/gemma3_config.json"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct test_workplace place;
        char file[TEST_PATH_BYTES], config[TEST_PATH_BYTES];
        make_model(cases[i].family, &place);
        if (cases[i].config != NULL)
            test_copy_file(cases[i].config, test_join(place.model, "config.json", config));
        test_workplace_path(&place, "out.gguf", file);
        test_must(export_to(place.model, cases[i].adapter, cases[i].adapter != NULL, cases[i].dtype, file));
        test_same_file(file, cases[i].golden);
        test_nothing_unfinished(place.folder);
        test_workplace_remove(&place);
    }
}

static void tokenizers_as_gguf_py(void **state)
{
    static const char *const names[] = {"llama2", "mistral", "llama3", "qwen2", "gpt2"};
    struct tt_model_facts *config = calloc(1, sizeof *config);
    (void)state;
    config->vocab_size = 1520;
    config->bos_token_id = 1;
    config->eos_token_ids[0] = 2;
    config->eos_token_count = 1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char folder[512], golden[512], file[512], *work = test_folder_create();
        struct tt_gguf_header header = {0};
        struct tt_str bytes = {0};
        (void)snprintf(folder, sizeof folder, GOLDEN "tokenizer/%s", names[i]);
        (void)snprintf(golden, sizeof golden, GOLDEN "gguf/tokenizer_%s.gguf", names[i]);
        (void)snprintf(file, sizeof file, "%s/keys.gguf", work);
        test_must(tt_gguf_put_string(&header, "general.architecture", tt_span_of("llama")));
        test_must(tt_gguf_put_tokenizer(&header, folder, config));
        test_must(tt_gguf_header_write(&header, &bytes));
        test_must(tt_file_write_atomic(file, bytes.data, bytes.bytes));
        test_same_file(file, golden);
        tt_str_deinit(&bytes);
        tt_gguf_header_deinit(&header);
        test_folder_remove(work);
    }
    free(config);
}

static void header_of(const char *tokenizer, struct tt_str *bytes)
{
    char file[512], *work = test_folder_create();
    struct tt_gguf_header header = {0};
    struct tt_model_facts *config = calloc(1, sizeof *config);
    config->vocab_size = 4;
    (void)snprintf(file, sizeof file, "%s/tokenizer.json", work);
    test_must(tt_file_write_atomic(file, tokenizer, strlen(tokenizer)));
    test_must(tt_gguf_put_tokenizer(&header, work, config));
    test_must(tt_gguf_header_write(&header, bytes));
    tt_gguf_header_deinit(&header);
    test_folder_remove(work);
    free(config);
}

/* Texts of GGUF have a length: a token of U+0000 is written as every other one. */
static void token_with_nul(void **state)
{
    static const char format[] = "{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
                                 "\"content\": \"\u2581\"}, "
                                 "\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": "
                                 "{\"%1$s\": 0, \"a\": 1, \"%1$sa\": 2, "
                                 "\"%1$saa\": 3}, \"merges\": [[\"%1$s\", \"a\"], \"%1$sa a\"]}}";
    char with_nul[600], with_letter[600];
    struct tt_str nul = {0}, letter = {0};
    size_t replaced = 0;
    (void)state;
    (void)snprintf(with_nul, sizeof with_nul, format, "\\u0000");
    (void)snprintf(with_letter, sizeof with_letter, format, "Q");
    header_of(with_nul, &nul);
    header_of(with_letter, &letter);
    for (size_t i = 0; i < letter.bytes; i++) {
        if (letter.data[i] != 'Q') continue;
        letter.data[i] = 0;
        replaced++;
    }
    assert_int_equal(replaced, 3);
    assert_int_equal(nul.bytes, letter.bytes);
    assert_memory_equal(nul.data, letter.data, letter.bytes);
    tt_str_deinit(&nul);
    tt_str_deinit(&letter);
}

/* ---- A reader ---- */

struct found {
    char name[64];
    int rank;
    uint64_t dims[4], offset;
    uint32_t type;
};

struct reader {
    struct tt_str file;
    size_t at;
    double head_count, head_count_kv, rope_base;
    size_t tokens;
    struct found tensors[256];
    uint64_t tensor_count, start;
};

static const char *take(struct reader *reader, size_t bytes)
{
    assert_true(bytes <= reader->file.bytes - reader->at);
    reader->at += bytes;
    return reader->file.data + reader->at - bytes;
}

static uint64_t take_number(struct reader *reader, size_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, take(reader, bytes), bytes);
    return value;
}

static void take_text(struct reader *reader, char *text, size_t text_bytes)
{
    size_t bytes = take_number(reader, 8);
    (void)snprintf(text, text_bytes, "%.*s", (int)bytes, take(reader, bytes));
}

/* Returns a number, the count of an array, or 0 for a text. */
static double take_value(struct reader *reader, uint64_t type)
{
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    char text[64];
    float real;
    assert_true(type <= 12);
    if (type == 8) {
        take_text(reader, text, sizeof text);
        return 0;
    }
    if (type == 9) {
        uint64_t inner = take_number(reader, 4), count = take_number(reader, 8);
        for (uint64_t i = 0; i < count; i++) (void)take_value(reader, inner);
        return (double)count;
    }
    if (type != 6) return (double)take_number(reader, sizes[type]);
    memcpy(&real, take(reader, 4), 4);
    return real;
}

static void read_keys(struct reader *reader, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        char key[128];
        take_text(reader, key, sizeof key);
        double value = take_value(reader, take_number(reader, 4));
        const char *name = strchr(key, '.');
        if (strcmp(name, ".attention.head_count") == 0) reader->head_count = value;
        if (strcmp(name, ".attention.head_count_kv") == 0) reader->head_count_kv = value;
        if (strcmp(name, ".rope.freq_base") == 0) reader->rope_base = value;
        if (strcmp(key, "tokenizer.ggml.tokens") == 0) reader->tokens = (size_t)value;
    }
}

static void read_file(const char *path, struct reader *reader)
{
    *reader = (struct reader){0};
    test_must(tt_file_read(path, 64 << 20, &reader->file));
    assert_memory_equal(take(reader, 4), "GGUF", 4);
    assert_int_equal(take_number(reader, 4), 3);
    reader->tensor_count = take_number(reader, 8);
    uint64_t keys = take_number(reader, 8), end = 0;
    assert_true(reader->tensor_count <= 256);
    read_keys(reader, keys);
    for (uint64_t i = 0; i < reader->tensor_count; i++) {
        struct found *tensor = &reader->tensors[i];
        take_text(reader, tensor->name, sizeof tensor->name);
        tensor->rank = (int)take_number(reader, 4);
        assert_in_range(tensor->rank, 1, 2);
        uint64_t bytes = 4;
        for (int d = 0; d < tensor->rank; d++) bytes *= tensor->dims[d] = take_number(reader, 8);
        tensor->type = (uint32_t)take_number(reader, 4);
        tensor->offset = take_number(reader, 8);
        assert_int_equal(tensor->offset, end); /* no holes but padding */
        end = (tensor->offset + (tensor->type == 0 ? bytes : bytes / 2) + 31) / 32 * 32;
    }
    reader->start = (reader->at + 31) / 32 * 32;
    assert_int_equal(reader->start + end, reader->file.bytes);
}

static const struct found *find(const struct reader *reader, const char *name)
{
    for (uint64_t i = 0; i < reader->tensor_count; i++)
        if (strcmp(reader->tensors[i].name, name) == 0) return &reader->tensors[i];
    fail_msg("no '%s'", name);
    return NULL;
}

/* The matrix of an fp32 file in the rows' order of Hugging Face: neighbours come apart by half a head. */
static float *values_of(const struct reader *reader, const char *name, double heads)
{
    const struct found *tensor = find(reader, name);
    size_t columns = tensor->dims[0], rows = tensor->rank > 1 ? tensor->dims[1] : 1;
    size_t head = heads > 0 ? rows / (size_t)heads : rows;
    float *values = calloc(rows * columns, sizeof *values);
    const char *data = reader->file.data + reader->start + tensor->offset;
    assert_int_equal(tensor->type, 0);
    for (size_t row = 0; row < rows; row++) {
        size_t in_head = row % head, to = row;
        if (heads > 0) to = row - in_head + in_head % 2 * (head / 2) + in_head / 2;
        memcpy(values + to * columns, data + row * columns * sizeof *values, columns * sizeof *values);
    }
    return values;
}

static void check_tensor(const struct reader *reader, const struct tt_model_folder *folder, const char *name,
                         const char *gguf_name, double heads)
{
    const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, name);
    assert_non_null(entry);
    int64_t count = (int64_t)(entry->bytes / 4);
    float *expected = calloc((size_t)count, sizeof *expected), *got = values_of(reader, gguf_name, heads);
    test_must(tt_model_folder_read(folder, entry, 0, count, expected, TT_F32));
    assert_memory_equal(got, expected, (size_t)count * sizeof *got);
    free(expected);
    free(got);
}

static void values_of_a_merged_model(void **state)
{
    struct test_workplace place;
    struct tt_merge merge;
    struct tt_merge_report report;
    struct tt_model_folder *folder;
    char file[TEST_PATH_BYTES], merged[TEST_PATH_BYTES];
    struct reader *reader = calloc(1, sizeof *reader);
    (void)state;
    make_model("llama3", &place);
    test_workplace_path(&place, "out.gguf", file);
    test_workplace_path(&place, "merged", merged);
    test_must(export_to(place.model, GOLDEN "llama3/adapter_random", false, TT_DTYPE_NONE, file));
    test_must(tt_merge_open(place.model, GOLDEN "llama3/adapter_random", &merge));
    test_must(tt_merge_write(&merge, &(struct tt_merge_options){.output_dir = merged}, &report));
    tt_merge_report_deinit(&report);
    tt_merge_close(&merge);
    test_must(tt_model_folder_open(merged, true, &folder));
    read_file(file, reader);
    assert_true(reader->head_count == 4 && reader->head_count_kv == 2 && reader->rope_base == 500000);
    assert_int_equal(reader->tokens, 263);
    assert_int_equal(reader->tensor_count, 21);
    check_tensor(reader, folder, "model.embed_tokens.weight", "token_embd.weight", 0);
    check_tensor(reader, folder, "model.norm.weight", "output_norm.weight", 0);
    check_tensor(reader, folder, "model.layers.1.self_attn.q_proj.weight", "blk.1.attn_q.weight", 4);
    check_tensor(reader, folder, "model.layers.1.self_attn.k_proj.weight", "blk.1.attn_k.weight", 2);
    check_tensor(reader, folder, "model.layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight", 0);
    check_tensor(reader, folder, "model.layers.0.self_attn.o_proj.weight", "blk.0.attn_output.weight", 0);
    check_tensor(reader, folder, "model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight", 0);
    check_tensor(reader, folder, "model.layers.1.post_attention_layernorm.weight", "blk.1.ffn_norm.weight",
                 0);
    tt_str_deinit(&reader->file);
    free(reader);
    tt_model_folder_close(folder);
    test_workplace_remove(&place);
}

static void refusals(void **state)
{
    static const struct {
        const char *family, *adapter, *text;
        bool adapter_only;
    } cases[] = {
        {"llama2", GOLDEN "llama2/variety", "modules_to_save in an adapter: 'lm_head.weight'", true},
        {"qwen2", GOLDEN "qwen2/variety", "modules_to_save in an adapter: 'model.embed_tokens.weight'", true},
        {"mistral", NULL, "the sliding_window of 4096 tokens", false},
        {"gemma2", NULL, "this query_pre_attn_scalar", false},
        {"gemma3", NULL, "layers without a window other than every sixth", false},
        {"llama2", NULL, "has id 257, and the model embeds 257", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct test_workplace place;
        char file[TEST_PATH_BYTES];
        make_model(cases[i].family, &place);
        test_workplace_path(&place, "out.gguf", file);
        assert_int_not_equal(export_to(place.model, cases[i].adapter, cases[i].adapter_only, TT_F32, file),
                             TT_OK);
        if (strstr(tt_error_last()->message, cases[i].text) == NULL)
            fail_msg("no '%s' in: %s", cases[i].text, tt_error_last()->message);
        assert_int_equal(test_count_entries(place.folder, "out"), 0);
        test_workplace_remove(&place);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes_as_gguf_py),
        cmocka_unit_test(tokenizers_as_gguf_py),
        cmocka_unit_test(token_with_nul),
        cmocka_unit_test(values_of_a_merged_model),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
