/* Whole runs on damaged input: each ends before the first step in one error that says what and where, with
 * everything given back and no result in output_dir. The parsers' own tests go deeper; this one holds that
 * nothing between them and the trainer lets damage through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "support/train_run.h"
#include "support/workplace.h"

static const char good_rows[] = "{\"prompt\": \"1 =\", \"completion\": \" one\"}\n"
                                "{\"text\": \"some more words\"}\n";

/* One damage: to a file of the model folder, or to the data, or by settings. */
struct damage {
    const char *file;    /* below the workplace; NULL: none */
    const char *content; /* what it holds then; NULL: it is removed */
    const char *more;    /* settings; NULL: none */
    tt_status status;
    const char *says;
};

static void check_refused(const struct test_workplace *place, const char *more, tt_status status,
                          const char *says, const char *what)
{
    struct test_words words = {0};
    struct tt_train_summary summary;
    char data[TEST_PATH_BYTES], output[TEST_PATH_BYTES], text[4096];
    test_words_pair(&words, "model_name_or_path", place->model);
    test_words_pair(&words, "dataset_name", test_workplace_path(place, "train.jsonl", data));
    test_words_add(&words, "threads 1 ranks 2 max_steps 1 per_device_train_batch_size 1 lora_r 2");
    if (more != NULL) test_words_add(&words, more);
    test_workplace_path(place, "out", output);
    uint64_t live = tt_alloc_live();
    tt_status got = test_train(words.list, output, &summary);
    tt_error_format(tt_error_last(), text, sizeof text);
    if (got == TT_OK) fail_msg("%s: accepted", what);
    if (got != status || strstr(text, says) == NULL)
        fail_msg("%s: wanted %s with '%s', got %s: %s", what, tt_status_name(status), says,
                 tt_status_name(got), text);
    if (tt_alloc_live() != live) fail_msg("%s: memory is lost", what);
    if (tt_path_is_dir(output)) {
        assert_int_equal(test_count_entries(output, "adapter"), 0);
        assert_int_equal(test_count_entries(output, "checkpoint"), 0);
    }
}

static void begin(struct test_workplace *place)
{
    char path[TEST_PATH_BYTES];
    test_workplace_create("qwen2", place);
    test_workplace_write(place, "train.jsonl", good_rows, path);
}

static void apply(const struct test_workplace *place, const struct damage *damage)
{
    char path[TEST_PATH_BYTES];
    if (damage->file == NULL) return;
    if (damage->content != NULL)
        test_workplace_write(place, damage->file, damage->content, path);
    else
        assert_int_equal(unlink(test_workplace_path(place, damage->file, path)), 0);
}

static void check_all(const struct damage *damages, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct test_workplace place;
        begin(&place);
        apply(&place, &damages[i]);
        check_refused(&place, damages[i].more, damages[i].status, damages[i].says, damages[i].says);
        test_workplace_remove(&place);
    }
}

#define DATA "train.jsonl"

static void rows(void **state)
{
    static const struct damage damages[] = {
        {DATA, "{\"text\": \"a\"}\n{\"text\": \"b\"\n{\"text\": \"c\"}\n", NULL, TT_ERR_DATA, "row 2"},
        {DATA, "{\"text\": \"a\"}\n\n\n{\"text\" \"b\"}\n", NULL, TT_ERR_DATA, "line 4"},
        {DATA, "[{\"text\": \"a\"},\n {\"text\": 7}]\n", NULL, TT_ERR_DATA, "row 2"},
        {DATA, "{\"text\": \"a\xff\xfe\"}\n", NULL, TT_ERR_DATA, "row 1"},
        {DATA, "{\"words\": \"a\"}\n", NULL, TT_ERR_DATA, "words"},
        {DATA, "\"text\"\n", NULL, TT_ERR_DATA, "must be an object"},
        {DATA, "", NULL, TT_ERR_DATA, "train.jsonl"},
        {DATA, "{\"input_ids\": [3, 4, 290]}\n", NULL, TT_ERR_DATA, "0 to 289"},
        {DATA, "{\"input_ids\": [3, 4, -1]}\n", NULL, TT_ERR_DATA, "input_ids[2] is not a token id"},
        {DATA, "{\"input_ids\": [3, 4, 1e99]}\n", NULL, TT_ERR_DATA, "row 1"},
        {DATA, "{\"input_ids\": [3, 4, 99999999999999999999]}\n", NULL, TT_ERR_DATA, "row 1"},
        {DATA, "{\"input_ids\": [3, 4], \"labels\": [3]}\n", NULL, TT_ERR_DATA, "labels"},
        {DATA, "{\"input_ids\": [3, 4], \"labels\": [3, 5000]}\n", NULL, TT_ERR_UNSUPPORTED, "labels"},
        {DATA, "{\"input_ids\": \"3 4\"}\n", NULL, TT_ERR_DATA, "input_ids"},
        {DATA, "{\"prompt\": \"a\"}\n", NULL, TT_ERR_DATA, "row 1"},
        {DATA, "{\"input_ids\": [3, 4], \"labels\": [-100, -100]}\n", NULL, TT_ERR_DATA, "supervised"},
        {DATA, "{\"text\": \"much too long\"}\n", "max_length 4 over_length error", TT_ERR_DATA, "row 1"},
        {DATA, NULL, NULL, TT_ERR_DATA, "No such file"},
    };
    (void)state;
    check_all(damages, sizeof damages / sizeof *damages);
}

static void model_folder(void **state)
{
    static const struct damage damages[] = {
        {"model/config.json", NULL, NULL, TT_ERR_DATA, "has no 'config.json'"},
        {"model/config.json", "{", NULL, TT_ERR_DATA, "config.json: line 1"},
        {"model/config.json", "[]", NULL, TT_ERR_DATA, "config.json"},
        {"model/config.json", "{\"model_type\": \"bert\"}", NULL, TT_ERR_UNSUPPORTED, "bert"},
        {"model/model.safetensors", NULL, NULL, TT_ERR_DATA, "model.safetensors"},
        {"model/model.safetensors", "", NULL, TT_ERR_DATA, "model.safetensors"},
        {"model/model.safetensors", "\x02\0\0\0\0\0\0\0{}", NULL, TT_ERR_DATA, "model.safetensors"},
        {"model/tokenizer.json", "{\"version\": \"1.0\"", NULL, TT_ERR_DATA, "tokenizer.json"},
        {"model/tokenizer.json", "{}", NULL, TT_ERR_DATA, "tokenizer.json"},
        {"model/tokenizer.json", NULL, NULL, TT_ERR_DATA, "text needs a tokenizer"},
        {NULL, NULL, "lora_target_modules nothing_like_it", TT_ERR_USAGE, "nothing_like_it"},
        {NULL, NULL, "eval_strategy steps eval_steps 1", TT_ERR_USAGE, "no evaluation data"},
        {NULL, NULL, "device_memory 1000", TT_ERR_MEMORY, "the limit is"},
        {NULL, NULL, "adapter_name_or_path /nowhere", TT_ERR_DATA, "/nowhere"},
        {NULL, NULL, "metric_for_best_model f1", TT_ERR_USAGE, "is not a metric"},
    };
    (void)state;
    check_all(damages, sizeof damages / sizeof *damages);
}

/* config.json with one member replaced. */
static void absurd_configurations(void **state)
{
    static const struct {
        const char *key, *value;
    } members[] = {
        {"hidden_size", "0"},         {"hidden_size", "-64"},           {"hidden_size", "1000000000000"},
        {"hidden_size", "\"64\""},    {"hidden_size", "128"},           {"num_attention_heads", "0"},
        {"num_attention_heads", "3"}, {"num_key_value_heads", "3"},     {"num_hidden_layers", "1000000000"},
        {"num_hidden_layers", "3"},   {"num_hidden_layers", "1"},       {"vocab_size", "9223372036854775807"},
        {"vocab_size", "17"},         {"intermediate_size", "0"},       {"intermediate_size", "105"},
        {"rms_norm_eps", "\"tiny\""}, {"max_position_embeddings", "0"}, {"rope_parameters", "[1]"},
        {"hidden_act", "\"relu6\""},  {"tie_word_embeddings", "false"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        struct test_workplace place;
        struct tt_json json = {0};
        struct tt_str text = {0};
        char path[TEST_PATH_BYTES], what[128];
        begin(&place);
        test_join(place.model, "config.json", path);
        assert_int_equal(tt_json_read(path, 1 << 20, &json), TT_OK);
        struct tt_json value = {0};
        assert_int_equal(tt_json_parse(members[i].value, strlen(members[i].value), "value", &value), TT_OK);
        assert_int_equal(tt_json_make_editable(&json), TT_OK);
        assert_int_equal(tt_json_set_copy(json.root, members[i].key, value.root), 0);
        tt_json_deinit(&value);
        assert_int_equal(tt_json_write(json.root, 2, true, &text), TT_OK);
        assert_int_equal(tt_file_write_atomic(path, text.data, text.bytes), TT_OK);
        tt_json_deinit(&json);
        tt_str_deinit(&text);
        snprintf(what, sizeof what, "%s = %s", members[i].key, members[i].value);
        struct test_words words = {0};
        struct tt_train_summary summary;
        char data[TEST_PATH_BYTES], output[TEST_PATH_BYTES];
        test_words_pair(&words, "model_name_or_path", place.model);
        test_words_pair(&words, "dataset_name", test_workplace_path(&place, "train.jsonl", data));
        test_words_add(&words, "threads 1 max_steps 1");
        uint64_t live = tt_alloc_live();
        tt_status status = test_train(words.list, test_workplace_path(&place, "out", output), &summary);
        if (status != TT_ERR_DATA && status != TT_ERR_UNSUPPORTED)
            fail_msg("%s: %s, %s", what, tt_status_name(status), tt_error_last()->message);
        if (tt_alloc_live() != live) fail_msg("%s: memory is lost", what);
        test_workplace_remove(&place);
    }
}

/* The weights cut anywhere, and with bytes after their end. */
static void cut_weights(void **state)
{
    (void)state;
    struct test_workplace place;
    struct tt_str whole = {0};
    char path[TEST_PATH_BYTES], what[64];
    begin(&place);
    test_join(place.model, "model.safetensors", path);
    assert_int_equal(tt_file_read(path, 1 << 26, &whole), TT_OK);
    const size_t sizes[] = {1, 7, 8, 9, 100, 2000, whole.bytes / 2, whole.bytes - 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(what, sizeof what, "cut to %zu bytes", sizes[i]);
        assert_int_equal(tt_file_write_atomic(path, whole.data, sizes[i]), TT_OK);
        check_refused(&place, NULL, TT_ERR_DATA, "model.safetensors", what);
    }
    assert_int_equal(tt_str_append(&whole, "more", 4), TT_OK);
    assert_int_equal(tt_file_write_atomic(path, whole.data, whole.bytes), TT_OK);
    check_refused(&place, NULL, TT_ERR_DATA, "model.safetensors", "four bytes more");
    /* A header that claims to be longer than any file. */
    memset(whole.data, 0xff, 7);
    assert_int_equal(tt_file_write_atomic(path, whole.data, whole.bytes), TT_OK);
    check_refused(&place, NULL, TT_ERR_DATA, "model.safetensors", "a header without end");
    tt_str_deinit(&whole);
    test_workplace_remove(&place);
}

/* Adapters that do not fit: another family's shapes, tensors under other names, a damaged file of torch.save. */
static void adapters(void **state)
{
    (void)state;
    struct test_workplace place;
    char folder[TEST_PATH_BYTES], from[TEST_PATH_BYTES], to[TEST_PATH_BYTES], more[TEST_PATH_BYTES + 32];
    struct tt_str text = {0};
    begin(&place);
    test_workplace_path(&place, "adapter", folder);
    assert_int_equal(tt_dir_create(folder), TT_OK);
    snprintf(more, sizeof more, "adapter_name_or_path '%s'", folder);
    check_refused(&place, more, TT_ERR_DATA, "adapter_config.json", "an empty folder");
    test_workplace_write(&place, "adapter/adapter_model.bin", "PK", to);
    test_copy_file(TT_TEST_ROOT "/golden/llama2/adapter_random/adapter_config.json",
                   test_join(folder, "adapter_config.json", to));
    check_refused(&place, more, TT_ERR_DATA, "not a file of torch.save", "a damaged pickle");
    test_copy_file(TT_TEST_ROOT "/golden/llama2/adapter_random/adapter_config.json",
                   test_join(folder, "adapter_config.json", to));
    test_copy_file(TT_TEST_ROOT "/golden/llama2/adapter_random/adapter_model.safetensors",
                   test_join(folder, "adapter_model.safetensors", to));
    check_refused(&place, more, TT_ERR_DATA, "of another shape", "another family's");
    test_copy_file(TT_TEST_ROOT "/golden/qwen2/adapter_random/adapter_config.json",
                   test_join(folder, "adapter_config.json", to));
    test_join(TT_TEST_ROOT, "golden/qwen2/adapter_random/adapter_model.safetensors", from);
    assert_int_equal(tt_file_read(from, 1 << 24, &text), TT_OK);
    char *name = memmem(text.data, text.bytes, "q_proj.lora_A", 13);
    assert_non_null(name);
    name[0] = 'x'; /* q_proj becomes x_proj: one missing, one unexpected */
    test_join(folder, "adapter_model.safetensors", to);
    assert_int_equal(tt_file_write_atomic(to, text.data, text.bytes), TT_OK);
    check_refused(&place, more, TT_ERR_DATA, "1 missing, 1 unexpected", "a renamed tensor");
    tt_str_deinit(&text);
    test_workplace_remove(&place);
}

/* Pipes, devices and links that leave the folder are refused before the first step, and nothing waits for
 * them. Each is planted where a file of the name may be there or not. */
static void planted_files(void **state)
{
    static const struct {
        const char *name, *target; /* NULL: a pipe */
        const char *more, *says;
    } plants[] = {
        {"model/config.json", NULL, NULL, "a pipe"},
        {"model/config.json", "/dev/zero", NULL, "a device"},
        {"model/model.safetensors", NULL, NULL, "a pipe"},
        {"model/tokenizer.json", NULL, NULL, "a pipe"},
        {"model/tokenizer_config.json", NULL, NULL, "a pipe"},
        {"model/merges.txt", NULL, NULL, "a pipe"},
        {"model/vocab.json", "/dev/zero", NULL, "a device"},
        {"model/chat_template.jinja", "/etc/passwd", NULL, "leaves the folder"},
        {"model/chat_template.json", "../train.jsonl", NULL, "leaves the folder"},
        {"model/generation_config.json", "/etc/passwd", "use_peft false", "leaves the folder"},
        {"train.jsonl", NULL, NULL, "a pipe"},
        {"train.jsonl", "/dev/zero", NULL, "a device"},
        {"out/metrics.jsonl", "../train.jsonl", NULL, "is a link"},
        {"out/metrics.jsonl", NULL, NULL, "a pipe"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof plants / sizeof *plants; i++) {
        struct test_workplace place;
        char path[TEST_PATH_BYTES], output[TEST_PATH_BYTES];
        struct tt_str rows = {0};
        begin(&place);
        assert_int_equal(tt_dir_create(test_workplace_path(&place, "out", output)), TT_OK);
        test_workplace_path(&place, plants[i].name, path);
        (void)unlink(path);
        assert_int_equal(plants[i].target != NULL ? symlink(plants[i].target, path) : mkfifo(path, 0600), 0);
        check_refused(&place, plants[i].more, TT_ERR_DATA, plants[i].says, plants[i].name);
        if (strstr(plants[i].name, "metrics") != NULL) {
            assert_int_equal(tt_file_read(test_workplace_path(&place, "train.jsonl", path), 1 << 20, &rows),
                             TT_OK);
            assert_string_equal(tt_str_text(&rows), good_rows);
        }
        tt_str_deinit(&rows);
        test_workplace_remove(&place);
    }
}

/* A model of the hub's cache, whose files are links to blobs, trains; links of weights may lead anywhere. */
static void hub_cache(void **state)
{
    (void)state;
    static const char *const names[] = {"config.json", "tokenizer.json", "model.safetensors"};
    struct test_workplace place;
    struct test_words words = {0};
    struct tt_train_summary summary;
    char from[TEST_PATH_BYTES], to[TEST_PATH_BYTES], path[TEST_PATH_BYTES], link[TEST_PATH_BYTES];
    begin(&place);
    assert_int_equal(tt_dir_create(test_workplace_path(&place, "hub/blobs", path)), TT_OK);
    assert_int_equal(tt_dir_create(test_workplace_path(&place, "hub/snapshots/main", path)), TT_OK);
    for (int i = 0; i < 3; i++) {
        char blob[128];
        snprintf(blob, sizeof blob, i == 2 ? "weights-of-mine" : "hub/blobs/%064d", i);
        test_join(place.model, names[i], from);
        assert_int_equal(tt_file_rename(from, test_workplace_path(&place, blob, to)), TT_OK);
        snprintf(link, sizeof link, "../../%s%s", i == 2 ? "../" : "", i == 2 ? blob : blob + 4);
        snprintf(path, sizeof path, "%s/hub/snapshots/main/%s", place.folder, names[i]);
        assert_int_equal(symlink(link, path), 0);
    }
    test_words_pair(&words, "model_name_or_path", test_workplace_path(&place, "hub/snapshots/main", path));
    test_words_pair(&words, "dataset_name", test_workplace_path(&place, "train.jsonl", from));
    test_words_add(&words, "threads 1 max_steps 1 per_device_train_batch_size 1 lora_r 2");
    if (test_train(words.list, test_workplace_path(&place, "out", to), &summary) != TT_OK)
        fail_msg("%s", tt_error_last()->message);
    test_workplace_remove(&place);
}

/* Places where no result can go. */
static void output_folders(void **state)
{
    (void)state;
    static const char *const folders[] = {"train.jsonl", "train.jsonl/below", "model/config.json/x"};
    struct test_workplace place;
    struct test_words words = {0};
    struct tt_train_summary summary;
    char data[TEST_PATH_BYTES], output[TEST_PATH_BYTES];
    begin(&place);
    test_words_pair(&words, "model_name_or_path", place.model);
    test_words_pair(&words, "dataset_name", test_workplace_path(&place, "train.jsonl", data));
    test_words_add(&words, "threads 1 max_steps 1");
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        assert_int_equal(test_train(words.list, test_workplace_path(&place, folders[i], output), &summary),
                         TT_ERR_DATA);
        assert_non_null(strstr(tt_error_last()->message, "train.jsonl") != NULL
                            ? tt_error_last()->message
                            : strstr(tt_error_last()->message, "config.json"));
    }
    assert_int_equal(test_train(words.list, "/proc/trimtab", &summary), TT_ERR_DATA);
    test_workplace_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows),
        cmocka_unit_test(model_folder),
        cmocka_unit_test(absurd_configurations),
        cmocka_unit_test(cut_weights),
        cmocka_unit_test(adapters),
        cmocka_unit_test(planted_files),
        cmocka_unit_test(hub_cache),
        cmocka_unit_test(output_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
