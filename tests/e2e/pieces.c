/* A family of the tests whose files hold parameters in every kind of piece, beside the plain one that has the same
 * numbers: trained on two ranks, saved, resumed, the best step restored, evaluated, merged, exported to GGUF, quantized
 * while loading and into a folder, each gives the same bits, and the folders keep the files' form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/commands.h"
#include "io/model_folder.h"
#include "model/family.h"
#include "model/llama.h"
#include "support/must.h"
#include "support/words.h"
#include "support/workplace.h"

/* ---- The family ---- */

#define LAYER "layers.#."
enum { ATTENTION_PARTS = 3, HEAD_ROW = 0, BIAS_ROW = 3, TENSORS_MAX = 64 };

static const struct tt_param_source rows[] = {
    /* query, key and value rows in groups, one for each key/value head */
    {.param = LAYER "self_attn.q_proj.weight", .parts = {{.tensor = LAYER "attn.qkv.weight"}}},
    {.param = LAYER "self_attn.k_proj.weight", .parts = {{.tensor = LAYER "attn.qkv.weight"}}},
    {.param = LAYER "self_attn.v_proj.weight", .parts = {{.tensor = LAYER "attn.qkv.weight"}}},
    /* their biases stacked */
    {.param = LAYER "self_attn.q_proj.bias", .parts = {{.tensor = LAYER "attn.qkv.bias"}}, .vector = true},
    {.param = LAYER "self_attn.k_proj.bias", .parts = {{.tensor = LAYER "attn.qkv.bias"}}, .vector = true},
    {.param = LAYER "self_attn.v_proj.bias", .parts = {{.tensor = LAYER "attn.qkv.bias"}}, .vector = true},
    /* gate and up in turn in a transposed tensor; down transposed under its own name, the odd rows before the even
     * ones, which PEFT's adapters of it have in the files' order; renamed tensors */
    {.param = LAYER "mlp.gate_proj.weight",
     .parts = {{.tensor = LAYER "mlp.gate_up", .transposed = true, .units = 2, .unit = 0, .unit_rows = 1}}},
    {.param = LAYER "mlp.up_proj.weight",
     .parts = {{.tensor = LAYER "mlp.gate_up", .transposed = true, .units = 2, .unit = 1, .unit_rows = 1}}},
    {.param = LAYER "mlp.down_proj.weight",
     .parts =
         {{.tensor = LAYER "mlp.down_proj.weight", .transposed = true, .units = 2, .unit = 1, .unit_rows = 1},
          {.tensor = LAYER "mlp.down_proj.weight",
           .transposed = true,
           .units = 2,
           .unit = 0,
           .unit_rows = 1}}},
    {.param = LAYER "input_layernorm.weight", .parts = {{.tensor = LAYER "ln_1.weight"}}},
    {.param = "embed_tokens.weight", .parts = {{.tensor = "wte.weight"}}},
    {.param = NULL},
};

/* Heads of queries that share a key/value head make its group. */
static tt_status parse(const struct tt_json *json, struct tt_model_facts *facts)
{
    TT_TRY(tt_family_qwen2.parse(json, facts));
    const struct tt_decoder_shape *shape = &TT_FAMILY_OWN(facts, struct tt_llama)->shape;
    int group = (int)(shape->heads / shape->kv_heads), heads = (int)shape->heads,
        pairs = (int)shape->kv_heads;
    const int firsts[] = {0, group, group + 1}, counts[] = {group, 1, 1};
    const int of_bias[] = {0, heads, heads + pairs}, bias_counts[] = {heads, pairs, pairs};
    for (int p = 0; p < ATTENTION_PARTS; p++) {
        struct tt_source_part *weight = &facts->sources.rows[HEAD_ROW + p].parts[0];
        struct tt_source_part *bias = &facts->sources.rows[BIAS_ROW + p].parts[0];
        weight->units = group + 2, weight->unit = firsts[p], weight->count = counts[p];
        weight->unit_rows = shape->head_dim;
        bias->units = heads + 2 * pairs, bias->unit = of_bias[p], bias->count = bias_counts[p];
    }
    return TT_OK;
}

static const struct tt_gguf_family gguf = {.name = "qwen2", .add_keys = tt_llama_gguf_keys};

static const struct tt_model_family tt_family_pieces = {
    .model_type = "pieces",
    .architecture = "PiecesForCausalLM",
    .default_target_modules = "[\"down_proj\"]",
    .gguf = &gguf,
    .sources = rows,
    .parse = parse,
    .build = tt_llama_build,
};

/* The families of this program (model/families.c has those of others). */
const struct tt_model_family *tt_model_family_at(size_t index)
{
    const struct tt_model_family *const families[] = {&tt_family_qwen2, &tt_family_pieces};
    return index < 2 ? families[index] : NULL;
}

/* ---- Its folder, from the plain one ---- */

struct making {
    struct tt_safetensors_entry tensors[TENSORS_MAX];
    float *data[TENSORS_MAX];
    size_t count;
    const float *values; /* of a parameter */
};

static tt_status put_piece(void *context, const struct tt_source_piece *piece)
{
    struct making *making = context;
    size_t t = 0;
    uint64_t elements = 1;
    for (int d = 0; d < piece->rank; d++) elements *= (uint64_t)piece->dims[d];
    while (t < making->count && strcmp(making->tensors[t].name, piece->tensor) != 0) t++;
    if (t == making->count) {
        assert_true(making->count < TENSORS_MAX);
        making->tensors[t] = (struct tt_safetensors_entry){
            .name = tt_strdup(piece->tensor), .dtype = TT_F32, .rank = piece->rank};
        memcpy(making->tensors[t].dims, piece->dims, sizeof piece->dims);
        making->data[making->count++] = tt_calloc(elements, sizeof(float));
    }
    for (int64_t i = 0; i < piece->rows * piece->columns; i++)
        making->data[t][tt_source_piece_place(piece, i)] = making->values[piece->first + i];
    return TT_OK;
}

static void put_tensor(struct making *making, const struct tt_model_folder *plain, size_t index,
                       const struct tt_param_sources *sources)
{
    const struct tt_safetensors_entry *entry = tt_model_folder_tensor(plain, index);
    int64_t count = (int64_t)(entry->bytes / tt_dtype_bytes(entry->dtype)), layer = -1;
    float *values = tt_calloc((size_t)count, sizeof *values);
    test_must(tt_model_folder_read(plain, entry, 0, count, values, TT_F32));
    const struct tt_param_source *source = tt_param_source_find(sources, entry->name, &layer);
    struct tt_source_piece whole = {.tensor = entry->name, .rank = entry->rank, .rows = 1, .columns = count};
    whole.group_rows = whole.column_stride = 1;
    memcpy(whole.dims, entry->dims, sizeof whole.dims);
    making->values = values;
    if (source == NULL)
        test_must(put_piece(making, &whole));
    else
        test_must(
            tt_param_source_pieces(sources, source, layer, entry->rank, entry->dims, put_piece, making));
    tt_free(values);
}

static void write_weights(struct making *making, const char *path)
{
    struct tt_safetensors_entry sorted[TENSORS_MAX];
    struct tt_str file = {0};
    uint64_t bytes;
    memcpy(sorted, making->tensors, sizeof sorted);
    test_must(tt_safetensors_layout(sorted, making->count, &file, &bytes));
    for (size_t e = 0; e < making->count; e++)
        for (size_t t = 0; t < making->count; t++)
            if (making->tensors[t].name == sorted[e].name)
                test_must(tt_str_append(&file, (const char *)making->data[t], sorted[e].bytes));
    test_must(tt_file_write_atomic(path, file.data, file.bytes));
    tt_str_deinit(&file);
    for (size_t t = 0; t < making->count; t++) {
        tt_free((void *)(uintptr_t)making->tensors[t].name);
        tt_free(making->data[t]);
    }
}

static void write_config(const struct tt_model_folder *plain, const char *folder)
{
    struct tt_json_value *root = tt_json_copy(tt_model_folder_config(plain)->root);
    struct tt_json_value *names = tt_json_new_list();
    tt_json_append(names, tt_json_new_string("PiecesForCausalLM"));
    tt_json_set(root, "architectures", names);
    tt_json_set(root, "model_type", tt_json_new_string("pieces"));
    test_must(tt_json_write_file(root, 2, false, folder, "config.json"));
    tt_json_release(root);
}

/* A folder for each of both: plain/model and pieces/model, with what is made of them beside it. */
struct story {
    struct test_workplace place;
    char data[TEST_PATH_BYTES];
};

static const char *path_of(const struct story *story, int pieces, const char *name,
                           char path[TEST_PATH_BYTES])
{
    char below[200];
    snprintf(below, sizeof below, "%s/%s", pieces ? "pieces" : "plain", name);
    return test_workplace_path(&story->place, below, path);
}

static void copy_small(const char *from, const char *to)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "generation_config.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char source[TEST_PATH_BYTES], target[TEST_PATH_BYTES];
        if (!tt_path_exists(test_join(from, names[i], source))) continue;
        test_copy_file(source, test_join(to, names[i], target));
    }
}

static int begin(void **state)
{
    struct story *story = calloc(1, sizeof *story);
    struct tt_model_folder *plain = NULL;
    struct tt_model_facts *facts = calloc(1, sizeof *facts);
    struct making making = {.count = 0};
    char folder[2][TEST_PATH_BYTES], from[TEST_PATH_BYTES], to[TEST_PATH_BYTES];
    test_workplace_create("qwen2", &story->place);
    test_workplace_write(&story->place, "train.jsonl",
                         "{\"text\": \"red green blue\"}\n{\"text\": \"one two three four\"}\n"
                         "{\"text\": \"the sky is blue\"}\n{\"text\": \"a b c d e f g\"}\n",
                         story->data);
    for (int p = 0; p < 2; p++) {
        test_must(tt_dir_create(path_of(story, p, "model", folder[p])));
        copy_small(story->place.model, folder[p]);
    }
    test_copy_file(test_join(story->place.model, "config.json", from),
                   test_join(folder[0], "config.json", to));
    test_copy_file(test_join(story->place.model, "model.safetensors", from),
                   test_join(folder[0], "model.safetensors", to));
    test_must(tt_model_folder_open(folder[0], true, &plain));
    write_config(plain, folder[1]);
    struct tt_json json = {0};
    test_must(tt_json_read(test_join(folder[1], "config.json", to), 1 << 20, &json));
    test_must(tt_model_facts_parse(&json, facts));
    tt_json_deinit(&json);
    for (size_t i = 0; i < tt_model_folder_tensor_count(plain); i++)
        put_tensor(&making, plain, i, &facts->sources);
    write_weights(&making, test_join(folder[1], "model.safetensors", to));
    tt_model_folder_close(plain);
    free(facts);
    *state = story;
    return 0;
}

static int end(void **state)
{
    struct story *story = *state;
    test_workplace_remove(&story->place);
    free(story);
    return 0;
}

/* ---- Commands ---- */

/* Runs a command of this program; a '@' in a word stands for plain/ or pieces/ of the workplace. */
static int run(const struct story *story, int pieces, const char *command, char *output, size_t output_bytes)
{
    struct test_words words = {0};
    char expanded[4096], *at = expanded, *text = NULL, below[TEST_PATH_BYTES];
    size_t bytes = 0;
    path_of(story, pieces, "", below);
    for (const char *c = command; *c != '\0'; c++)
        at += *c == '@'   ? sprintf(at, "%s", below)
              : *c == '%' ? sprintf(at, "%s", story->data)
                          : sprintf(at, "%c", *c);
    test_words_add(&words, expanded);
    char *argv[160] = {0};
    for (int i = 0; i < words.count; i++) argv[i] = (char *)(uintptr_t)words.list[i];
    FILE *out = open_memstream(&text, &bytes);
    int code = tt_cli_main(words.count, argv, out, out);
    fclose(out);
    snprintf(output, output_bytes, "%s", text);
    free(text);
    return code;
}

static void run_both(const struct story *story, const char *command)
{
    for (int p = 0; p < 2; p++) {
        char output[8192];
        int code = run(story, p, command, output, sizeof output);
        if (code != 0) fail_msg("%s: '%s' ends with %d: %s", p ? "pieces" : "plain", command, code, output);
    }
}

static void refuse(const struct story *story, const char *command, const char *wanted)
{
    char output[8192];
    int code = run(story, 1, command, output, sizeof output);
    if (code == 0 || strstr(output, wanted) == NULL)
        fail_msg("'%s' ends with %d, wanted '%s': %s", command, code, wanted, output);
}

/* ---- Comparing ---- */

static struct tt_model_folder *open_joined(const char *path)
{
    struct tt_model_folder *folder = NULL;
    struct tt_model_facts *facts = calloc(1, sizeof *facts);
    test_must(tt_model_folder_open(path, true, &folder));
    test_must(tt_model_facts_parse(tt_model_folder_config(folder), facts));
    test_must(tt_model_folder_join(folder, &facts->sources));
    free(facts);
    return folder;
}

static void same_values(const struct tt_model_folder *a, const struct tt_safetensors_entry *x,
                        const struct tt_model_folder *b, const struct tt_safetensors_entry *y)
{
    assert_true(x->dtype == y->dtype && x->bytes == y->bytes && x->rank == y->rank);
    assert_memory_equal(x->dims, y->dims, sizeof x->dims);
    int64_t count = (int64_t)(x->bytes / tt_dtype_bytes(x->dtype));
    void *left = malloc(x->bytes), *right = malloc(x->bytes);
    test_must(tt_model_folder_read(a, x, 0, count, left, x->dtype));
    test_must(tt_model_folder_read(b, y, 0, count, right, y->dtype));
    if (memcmp(left, right, x->bytes) != 0) fail_msg("'%s' has other values", x->name);
    free(left);
    free(right);
}

/* The folders `name` hold the same parameters, and that in pieces has the tensors of pieces/model, `more` of them. */
static void same_folders(const struct story *story, const char *name, size_t more)
{
    char path[TEST_PATH_BYTES];
    struct tt_model_folder *plain = open_joined(path_of(story, 0, name, path)), *first = NULL, *files = NULL;
    struct tt_model_folder *pieces = open_joined(path_of(story, 1, name, path));
    assert_int_equal(tt_model_folder_tensor_count(plain), tt_model_folder_tensor_count(pieces));
    for (size_t i = 0; i < tt_model_folder_tensor_count(plain); i++) {
        const struct tt_safetensors_entry *entry = tt_model_folder_tensor(plain, i);
        const struct tt_safetensors_entry *other = tt_model_folder_find(pieces, entry->name);
        if (other == NULL) fail_msg("there is no '%s'", entry->name);
        same_values(plain, entry, pieces, other);
    }
    test_must(tt_model_folder_open(path_of(story, 1, "model", path), true, &first));
    test_must(tt_model_folder_open(path_of(story, 1, name, path), true, &files));
    assert_int_equal(tt_model_folder_tensor_count(files), tt_model_folder_tensor_count(first) + more);
    for (size_t i = 0; i < tt_model_folder_tensor_count(first); i++) {
        const struct tt_safetensors_entry *entry = tt_model_folder_tensor(first, i);
        const struct tt_safetensors_entry *now = tt_model_folder_find(files, entry->name);
        if (now == NULL) fail_msg("'%s' has no '%s'", name, entry->name);
        if (more == 0) assert_memory_equal(entry->dims, now->dims, sizeof entry->dims);
    }
    tt_model_folder_close(plain);
    tt_model_folder_close(pieces);
    tt_model_folder_close(first);
    tt_model_folder_close(files);
}

static void same_bytes(const struct story *story, const char *name)
{
    char path[TEST_PATH_BYTES];
    struct tt_str text[2] = {{0}};
    for (int p = 0; p < 2; p++) test_must(tt_file_read(path_of(story, p, name, path), 1 << 26, &text[p]));
    assert_int_equal(text[0].bytes, text[1].bytes);
    assert_memory_equal(text[0].data, text[1].data, text[0].bytes);
    for (int p = 0; p < 2; p++) tt_str_deinit(&text[p]);
}

/* The row of the files for row `row` of down's parameter. */
static int64_t row_in_files(int64_t row, int64_t count)
{
    return row < count / 2 ? 2 * row + 1 : 2 * (row - count / 2);
}

static float *values_of(const struct tt_safetensors *file, const struct tt_safetensors_entry *entry)
{
    float *values = malloc(entry->bytes);
    assert_true(values != NULL && entry->dtype == TT_F32);
    test_must(tt_safetensors_read(file, entry, 0, (int64_t)(entry->bytes / 4), values, TT_F32));
    return values;
}

/* Both adapters are one, with the rows of down's B in the order of the files of each. */
static void same_adapters(const struct story *story, const char *name)
{
    char path[TEST_PATH_BYTES], below[100];
    struct tt_safetensors *files[2];
    size_t dealt = 0;
    snprintf(below, sizeof below, "%s/adapter_model.safetensors", name);
    for (int p = 0; p < 2; p++) test_must(tt_safetensors_open(path_of(story, p, below, path), &files[p]));
    assert_int_equal(tt_safetensors_count(files[0]), tt_safetensors_count(files[1]));
    for (size_t i = 0; i < tt_safetensors_count(files[0]); i++) {
        const struct tt_safetensors_entry *entry = tt_safetensors_entry(files[0], i), *other;
        other = tt_safetensors_find(files[1], entry->name);
        if (other == NULL) fail_msg("there is no '%s'", entry->name);
        float *a = values_of(files[0], entry), *b = values_of(files[1], other);
        bool is_B = strstr(entry->name, "down_proj.lora_B") != NULL;
        int64_t count = entry->dims[0], columns = entry->dims[1];
        for (int64_t r = 0; r < count; r++) {
            int64_t to = is_B ? row_in_files(r, count) : r;
            if (memcmp(a + r * columns, b + to * columns, (size_t)columns * sizeof *a) != 0)
                fail_msg("%s: row %lld of '%s' differs", name, (long long)r, entry->name);
        }
        dealt += is_B && memcmp(a, b, entry->bytes) != 0;
        free(a);
        free(b);
    }
    assert_true(dealt > 0);
    for (int p = 0; p < 2; p++) tt_safetensors_close(files[p]);
}

/* ---- What is done with both ---- */

#define TRAIN                                                                                                \
    "trimtab train --model_name_or_path @model --dataset_name % --bf16 false --threads 1 "                   \
    "--per_device_train_batch_size 1 --gradient_accumulation_steps 1 --seed 3 --report_to none "

static void trained_saved_and_resumed(void **state)
{
    const struct story *story = *state;
    run_both(story, TRAIN "--use_peft false --ranks 2 --max_steps 4 --save_steps 2 --output_dir @full");
    same_folders(story, "full", 0);
    same_folders(story, "full/checkpoint-2", 0);
    run_both(story, TRAIN "--use_peft false --ranks 2 --max_steps 4 --save_steps 2 --output_dir @again "
                          "--resume_from_checkpoint @full/checkpoint-2");
    same_folders(story, "again", 0);
}

static void best_step(void **state)
{
    const struct story *story = *state;
    run_both(story, TRAIN "--use_peft false --ranks 2 --max_steps 3 --save_steps 1 --eval_strategy steps "
                          "--eval_steps 1 --eval_dataset % --learning_rate 3 --lr_scheduler_type constant "
                          "--load_best_model_at_end true --output_dir @best");
    same_folders(story, "best", 0);
}

/* LoRA on parts of fused tensors too, whose adapters are on the class's modules as PEFT's are. */
#define LORA                                                                                                 \
    "--use_peft true --lora_r 4 --max_steps 3 --learning_rate 0.01 --lora_target_modules "                   \
    "[\"q_proj\",\"v_proj\",\"gate_proj\",\"down_proj\"] "

static void adapted_and_merged(void **state)
{
    const struct story *story = *state;
    run_both(story, TRAIN LORA "--output_dir @adapter");
    same_adapters(story, "adapter");
    run_both(story, TRAIN LORA "--ranks 2 --save_steps 2 --output_dir @twice");
    run_both(story, TRAIN LORA "--ranks 2 --save_steps 2 --output_dir @resumed "
                               "--resume_from_checkpoint @twice/checkpoint-2");
    same_adapters(story, "twice");
    same_adapters(story, "resumed");
    run_both(story, "trimtab merge --model_name_or_path @model --adapter_name_or_path @adapter "
                    "--output_dir @merged");
    same_folders(story, "merged", 0);
    run_both(story, "trimtab export gguf --model_name_or_path @model --adapter_name_or_path @adapter "
                    "--output_file @model.gguf");
    same_bytes(story, "model.gguf");
}

static void quantized_while_loading(void **state)
{
    const struct story *story = *state;
    run_both(story, TRAIN LORA "--load_in_4bit true --ranks 2 --output_dir @qlora");
    same_adapters(story, "qlora");
    refuse(
        story, "trimtab quantize --model_name_or_path @model --output_dir @nf4",
        "is a part of 'model.layers.0.mlp.gate_up' in the files, transposed: it is quantized while loading");
    refuse(story,
           "trimtab quantize --model_name_or_path @model --output_dir @nf4 --llm_int8_skip_modules "
           "[\"k_proj\",\"gate_proj\",\"up_proj\",\"down_proj\"]",
           "'model.layers.0.self_attn.k_proj.weight' is a part of 'model.layers.0.attn.qkv.weight' in the "
           "files, of which not all is quantized");
    refuse(story,
           "trimtab quantize --model_name_or_path @model --output_dir @nf4 --bnb_4bit_use_double_quant true "
           "--llm_int8_skip_modules [\"gate_proj\",\"up_proj\",\"down_proj\"]",
           "is a part of 'model.layers.0.attn.qkv.weight' in the files, and its rows are no whole blocks");
}

/* Folders whose fused tensors are quantized as a whole: the codes and scales of each part are those of the plain
 * folder, so adapters over them and what is merged and exported have the same bits. */
static void quantized_in_folders(void **state)
{
    static const char *const formats[] = {"--to nf4", "--to nf4 --bnb_4bit_quant_storage bfloat16",
                                          "--to int8", "--to fp8"};
    const struct story *story = *state;
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        char line[512];
        snprintf(
            line, sizeof line,
            "trimtab quantize --model_name_or_path @model --output_dir @coded --overwrite_output_dir true "
            "--llm_int8_skip_modules [\"gate_proj\",\"up_proj\",\"down_proj\"] %s",
            formats[f]);
        run_both(story, line);
        run_both(story,
                 "trimtab train --model_name_or_path @coded --dataset_name % --bf16 false --threads 1 "
                 "--per_device_train_batch_size 1 --seed 3 --report_to none --overwrite_output_dir true "
                 "--save_steps 2 --ranks 2 " LORA "--output_dir @over");
        same_adapters(story, "over");
        run_both(story,
                 "trimtab train --model_name_or_path @coded --dataset_name % --bf16 false --threads 1 "
                 "--per_device_train_batch_size 1 --seed 3 --report_to none --overwrite_output_dir true "
                 "--save_steps 2 --ranks 2 " LORA "--output_dir @over-again "
                 "--resume_from_checkpoint @over/checkpoint-2");
        same_adapters(story, "over-again");
        run_both(story, "trimtab merge --model_name_or_path @coded --adapter_name_or_path @over "
                        "--output_dir @over-merged --overwrite_output_dir true");
        same_folders(story, "over-merged", 0);
        run_both(story, "trimtab export gguf --model_name_or_path @coded --adapter_name_or_path @over "
                        "--output_file @over.gguf --overwrite true");
        same_bytes(story, "over.gguf");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trained_saved_and_resumed), cmocka_unit_test(best_step),
        cmocka_unit_test(adapted_and_merged),        cmocka_unit_test(quantized_while_loading),
        cmocka_unit_test(quantized_in_folders),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
