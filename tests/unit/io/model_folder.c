/* io/model_folder.h: one file, an index, and every way in which the two disagree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "io/model_folder.h"
#include "support/allocations.h"
#include "support/root.h"

static int fresh(void **state)
{
    if (test_root_create(state) != 0) return -1;
    return tt_file_write_atomic(test_at("config.json"), "{\"model_type\": \"llama\"}", 23) == TT_OK ? 0 : -1;
}

/* A safetensors file of U8 tensors of one element each; element i has the value first + i. */
static void put_tensors(const char *name, const char *const *tensors, int first)
{
    struct tt_safetensors_entry entries[8] = {0};
    size_t count = 0;
    for (; tensors[count] != NULL; count++) {
        entries[count] =
            (struct tt_safetensors_entry){.name = tensors[count], .dtype = TT_U8, .rank = 1, .dims = {1}};
    }
    struct tt_str file = {0};
    uint64_t bytes;
    assert_int_equal(tt_safetensors_layout(entries, count, &file, &bytes), TT_OK);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(tt_str_append_char(&file, (char)(first + (int)i)), TT_OK);
    assert_int_equal(tt_file_write_atomic(test_at(name), file.data, file.bytes), TT_OK);
    tt_str_deinit(&file);
}

static void put_shards(void)
{
    put_tensors("m-1.safetensors", (const char *const[]){"b", "d", NULL}, 10);
    put_tensors("m-2.safetensors", (const char *const[]){"a", "c", NULL}, 20);
}

static void assert_refused(tt_status status, const char *part, const char *hint)
{
    struct tt_model_folder *folder = NULL;
    uint64_t live = tt_alloc_live();
    assert_int_equal(tt_model_folder_open(test_root(), true, &folder), status);
    assert_null(folder);
    const struct tt_error *error = tt_error_last();
    if (strstr(error->message, part) == NULL) fail_msg("'%s' not in '%s'", part, error->message);
    if (hint != NULL && strstr(error->hint, hint) == NULL)
        fail_msg("'%s' not in hint '%s'", hint, error->hint);
    assert_int_equal(tt_alloc_live(), live);
}

static uint8_t value_of(const struct tt_model_folder *folder, const char *name)
{
    uint8_t value = 0;
    const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, name);
    assert_non_null(entry);
    assert_int_equal(tt_model_folder_read(folder, entry, 0, 1, &value, TT_U8), TT_OK);
    return value;
}

static void shards(void **state)
{
    (void)state;
    put_shards();
    test_put("model.safetensors.index.json",
             "{\"metadata\": {\"total_size\": 1, \"other\": []}, \"weight_map\": {\"a\": \"m-2.safetensors\","
             " \"b\": \"m-1.safetensors\", \"c\": \"m-2.safetensors\", \"d\": \"m-1.safetensors\"}}");
    struct tt_model_folder *folder = NULL;
    assert_int_equal(tt_model_folder_open(test_root(), true, &folder), TT_OK);
    assert_int_equal(tt_model_folder_tensor_count(folder), 4);
    static const char *const names[] = {"a", "b", "c", "d"};
    for (size_t i = 0; i < 4; i++) assert_string_equal(tt_model_folder_tensor(folder, i)->name, names[i]);
    assert_null(tt_model_folder_tensor(folder, 4));
    assert_int_equal(value_of(folder, "b"), 10);
    assert_int_equal(value_of(folder, "d"), 11);
    assert_int_equal(value_of(folder, "a"), 20);
    assert_int_equal(value_of(folder, "c"), 21);
    assert_null(tt_model_folder_find(folder, "e"));
    struct tt_safetensors_entry foreign = *tt_model_folder_find(folder, "a");
    uint8_t value;
    assert_int_equal(tt_model_folder_read(folder, &foreign, 0, 1, &value, TT_U8), TT_ERR_INTERNAL);
    assert_true(tt_model_folder_has_weights(folder));
    assert_string_equal(tt_model_folder_path(folder), test_root());
    const char *type = NULL;
    const struct tt_json *config = tt_model_folder_config(folder);
    assert_int_equal(tt_json_string(config, config->root, "model_type", &type), TT_OK);
    assert_string_equal(type, "llama");
    tt_model_folder_close(folder);
    /* One file beside the index wins. */
    put_tensors("model.safetensors", (const char *const[]){"only", NULL}, 7);
    assert_int_equal(tt_model_folder_open(test_root(), true, &folder), TT_OK);
    assert_int_equal(tt_model_folder_tensor_count(folder), 1);
    assert_int_equal(value_of(folder, "only"), 7);
    tt_model_folder_close(folder);
    tt_model_folder_close(NULL);
}

static void bad_index(void **state)
{
    (void)state;
    put_shards();
    static const struct {
        const char *map, *part, *hint;
    } cases[] = {
        {"{\"a\": \"m-2.safetensors\", \"b\": \"m-1.safetensors\", \"c\": \"m-2.safetensors\"}",
         "contains tensor 'd', which", NULL},
        {"{\"a\": \"m-2.safetensors\", \"b\": \"m-1.safetensors\", \"c\": \"m-2.safetensors\", \"d\": "
         "\"m-1.safetensors\","
         " \"e\": \"m-1.safetensors\"}",
         "'e' to 'm-1.safetensors', which does not contain it (1 such", NULL},
        {"{\"a\": \"m-1.safetensors\", \"b\": \"m-1.safetensors\", \"c\": \"m-2.safetensors\", \"d\": "
         "\"m-1.safetensors\"}",
         "'a' to 'm-1.safetensors', which does not contain it", NULL},
        {"{\"a\": \"m-2.safetensors\", \"b\": \"m-1.safetensors\", \"z\": \"m-3.safetensors\"}",
         "m-3.safetensors", "the index lists 3 files, the folder has 2"},
        {"{\"a\": \"../m-2.safetensors\"}", "in the same folder", NULL},
        {"{\"a\": \"/etc/passwd\"}", "in the same folder", NULL},
        {"{\"a\": 1}", "in the same folder", NULL},
        {"{}", "lists no tensors", NULL},
        {"[]", "'weight_map' must be an object", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "{\"weight_map\": %s}", cases[i].map);
        test_put("model.safetensors.index.json", text);
        assert_refused(TT_ERR_DATA, cases[i].part, cases[i].hint);
    }
    test_put("model.safetensors.index.json", "{\"weight_map\": ");
    assert_refused(TT_ERR_DATA, "not valid JSON", NULL);
    put_tensors("m-1.safetensors", (const char *const[]){"a", "b", NULL}, 10);
    test_put("model.safetensors.index.json", "{\"weight_map\": {\"a\": \"m-1.safetensors\", \"b\": "
                                             "\"m-1.safetensors\", \"c\": \"m-2.safetensors\"}}");
    assert_refused(TT_ERR_DATA, "'a' is in two files", NULL);
}

static void no_weights(void **state)
{
    (void)state;
    assert_refused(TT_ERR_DATA, "has no weights", NULL);
    struct tt_model_folder *folder = NULL;
    assert_int_equal(tt_model_folder_open(test_root(), false, &folder), TT_OK);
    assert_false(tt_model_folder_has_weights(folder));
    assert_int_equal(tt_model_folder_tensor_count(folder), 0);
    assert_null(tt_model_folder_find(folder, "a"));
    tt_model_folder_close(folder);
    test_put("training_args.bin", "x");
    assert_refused(TT_ERR_DATA, "has no weights", NULL);
    test_put("consolidated.00.pth", "x");
    assert_refused(TT_ERR_DATA, "consolidated.00.pth", "another library's layout");
    test_put("pytorch_model.bin", "x");
    assert_refused(TT_ERR_DATA, "pytorch_model.bin' is not a file of torch.save", NULL);
    assert_int_equal(unlink(test_at("pytorch_model.bin")), 0);
    put_shards();
    assert_refused(TT_ERR_DATA, "2 safetensors files, but neither", "index");
    test_put("model.safetensors", "not one at all");
    assert_refused(TT_ERR_DATA, "not a safetensors file", NULL);
}

/* Weights of torch.save, in two files with an index, have the bytes of the same model as safetensors. */
static void pickled_weights(void **state)
{
    (void)state;
    static const char golden[] = TT_TEST_ROOT "/golden/";
    static const char *const names[] = {"pytorch_model-00001-of-00002.bin",
                                        "pytorch_model-00002-of-00002.bin", "pytorch_model.bin.index.json"};
    char from[300];
    for (size_t i = 0; i < 3; i++) {
        snprintf(from, sizeof from, "%spth/sharded/%s", golden, names[i]);
        assert_int_equal(tt_file_copy(from, test_at(names[i])), TT_OK);
    }
    struct tt_model_folder *pickled = NULL, *folder = NULL;
    snprintf(from, sizeof from, "%sllama_sharded/model", golden);
    assert_int_equal(tt_model_folder_open(test_root(), true, &pickled), TT_OK);
    assert_int_equal(tt_model_folder_open(from, true, &folder), TT_OK);
    assert_int_equal(tt_model_folder_tensor_count(pickled), tt_model_folder_tensor_count(folder));
    for (size_t i = 0; i < tt_model_folder_tensor_count(folder); i++) {
        const struct tt_safetensors_entry *a = tt_model_folder_tensor(folder, i);
        const struct tt_safetensors_entry *b = tt_model_folder_tensor(pickled, i);
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->dtype, b->dtype);
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims);
        void *data[2] = {tt_calloc(a->bytes, 1), tt_calloc(a->bytes, 1)};
        int64_t count = (int64_t)(a->bytes / tt_dtype_bytes(a->dtype));
        assert_int_equal(tt_model_folder_read(folder, a, 0, count, data[0], a->dtype), TT_OK);
        assert_int_equal(tt_model_folder_read(pickled, b, 0, count, data[1], a->dtype), TT_OK);
        assert_memory_equal(data[0], data[1], a->bytes);
        tt_free(data[0]);
        tt_free(data[1]);
    }
    tt_model_folder_close(pickled);
    tt_model_folder_close(folder);
    assert_int_equal(unlink(test_at(names[1])), 0);
    assert_refused(TT_ERR_DATA, names[1], "the index lists 2 files, the folder has 1");
}

static void bad_config(void **state)
{
    (void)state;
    test_put("config.json", "[1]");
    assert_refused(TT_ERR_DATA, "must hold one object", NULL);
    test_put("config.json", "{\"a\": 1, \"a\": 2}");
    assert_refused(TT_ERR_DATA, "duplicate", NULL);
    assert_int_equal(unlink(test_at("config.json")), 0);
    assert_refused(TT_ERR_DATA, "has no 'config.json'", NULL);
    test_put("adapter_config.json", "{}");
    assert_refused(TT_ERR_DATA, "has no 'config.json'", "adapter");
    struct tt_model_folder *folder = NULL;
    assert_int_equal(tt_model_folder_open(test_at("absent"), true, &folder), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "does not exist"));
    assert_int_equal(tt_model_folder_open(test_at("adapter_config.json"), true, &folder), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "is a file"));
}

static void copy_tokenizer(void **state)
{
    (void)state;
    test_put("tokenizer.json", "{\"t\": \"\xc3\xa9\"}\r\n");
    test_put("chat_template.jinja", "{{ x }}");
    test_put("generation_config.json", "{}");
    test_put("README.md", "no");
    assert_int_equal(tt_dir_create(test_at("additional_chat_templates")), TT_OK);
    test_put("additional_chat_templates/rag.jinja", "rag");
    assert_int_equal(tt_dir_create(test_at("out")), TT_OK);
    assert_int_equal(tt_model_folder_copy_tokenizer(test_root(), test_at("out"), false), TT_OK);
    struct tt_str data = {0};
    assert_int_equal(tt_file_read(test_at("out/tokenizer.json"), 100, &data), TT_OK);
    assert_string_equal(data.data, "{\"t\": \"\xc3\xa9\"}\r\n");
    assert_int_equal(tt_file_read(test_at("out/additional_chat_templates/rag.jinja"), 100, &data), TT_OK);
    assert_string_equal(data.data, "rag");
    tt_str_deinit(&data);
    assert_true(tt_path_exists(test_at("out/chat_template.jinja")));
    assert_false(tt_path_exists(test_at("out/generation_config.json")));
    assert_false(tt_path_exists(test_at("out/README.md")));
    assert_int_equal(tt_model_folder_copy_tokenizer(test_root(), test_at("out"), true), TT_OK);
    assert_true(tt_path_exists(test_at("out/generation_config.json")));
    assert_int_equal(tt_model_folder_copy_tokenizer(test_root(), test_at("no/such"), true), TT_ERR_DATA);
}

static void names_of_tokenizers(void **state)
{
    (void)state;
    static const char *const names[] = {
        "tokenizer.json",    "tokenizer_config.json", "special_tokens_map.json",
        "added_tokens.json", "tokenizer.model",       "vocab.json",
        "merges.txt",        "chat_template.jinja",   "chat_template.json"};
    assert_int_equal(tt_dir_create(test_at("out")), TT_OK);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) test_put(names[i], names[i]);
    assert_int_equal(tt_model_folder_copy_tokenizer(test_root(), test_at("out"), false), TT_OK);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char copied[80];
        snprintf(copied, sizeof copied, "out/%s", names[i]);
        if (!tt_path_exists(test_at(copied))) fail_msg("%s is not copied", names[i]);
    }
}

/* Every file that is copied is looked at before: it must lie in the folder and be a regular file. Weights may
 * be links. */
static void what_is_copied_is_checked(void **state)
{
    (void)state;
    static const char *const names[] = {"chat_template.jinja", "merges.txt", "tokenizer.json",
                                        "additional_chat_templates/x.jinja"};
    test_put("weights", "w");
    assert_int_equal(tt_dir_create(test_at("additional_chat_templates")), TT_OK);
    assert_int_equal(symlink("/etc/passwd", test_at("model.safetensors")), 0);
    assert_int_equal(tt_model_folder_check_copied(test_root(), true), TT_OK);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(symlink("/etc/passwd", test_at(names[i])), 0);
        assert_int_equal(tt_model_folder_check_copied(test_root(), true), TT_ERR_DATA);
        assert_non_null(strstr(tt_error_last()->message, names[i]));
        assert_int_equal(tt_dir_create(test_at("out")), TT_OK);
        assert_int_equal(tt_model_folder_copy_tokenizer(test_root(), test_at("out"), true), TT_ERR_DATA);
        assert_int_equal(unlink(test_at(names[i])), 0);
        assert_int_equal(mkfifo(test_at(names[i]), 0600), 0);
        assert_int_equal(tt_model_folder_check_copied(test_root(), true), TT_ERR_DATA);
        assert_non_null(strstr(tt_error_last()->message, "a pipe"));
        assert_int_equal(unlink(test_at(names[i])), 0);
    }
    int descriptor = -1;
    assert_int_equal(tt_file_create(test_at("vocab.json"), 0, &descriptor), TT_OK);
    assert_int_equal(ftruncate(descriptor, (off_t)TT_MODEL_FOLDER_COPY_BYTES_MAX + 1), 0);
    tt_file_close(descriptor);
    assert_int_equal(tt_model_folder_check_copied(test_root(), false), TT_ERR_DATA);
    assert_non_null(strstr(tt_error_last()->message, "vocab.json"));
    /* generation_config.json counts only where it is copied. */
    assert_int_equal(unlink(test_at("vocab.json")), 0);
    assert_int_equal(symlink("/etc/passwd", test_at("generation_config.json")), 0);
    assert_int_equal(tt_model_folder_check_copied(test_root(), false), TT_OK);
    assert_int_equal(tt_model_folder_check_copied(test_root(), true), TT_ERR_DATA);
}

static void too_many_templates(void **state)
{
    (void)state;
    char name[64];
    assert_int_equal(tt_dir_create(test_at("additional_chat_templates")), TT_OK);
    for (int i = 0; i <= 1000; i++) {
        snprintf(name, sizeof name, "additional_chat_templates/%d.jinja", i);
        test_put(name, "");
    }
    assert_int_equal(tt_model_folder_check_copied(test_root(), true), TT_ERR_DATA);
    assert_non_null(
        strstr(tt_error_last()->message, "/additional_chat_templates' holds more than 1000 files"));
    snprintf(name, sizeof name, "additional_chat_templates/%d.jinja", 0);
    assert_int_equal(unlink(test_at(name)), 0);
    assert_int_equal(tt_model_folder_check_copied(test_root(), true), TT_OK);
}

static bool name_alike(void *context, const struct tt_safetensors_entry *entry, char *name, size_t bytes)
{
    return snprintf(name, bytes, "%s", context != NULL ? (const char *)context : entry->name) > 0;
}

static void tensors_renamed_alike(void **state)
{
    (void)state;
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                                 "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}";
    struct tt_safetensors *file = NULL;
    struct tt_model_folder *folder = NULL;
    struct tt_str bytes = {0};
    const char size[8] = {sizeof header - 1};
    assert_int_equal(tt_str_append(&bytes, size, sizeof size), TT_OK);
    assert_int_equal(tt_str_append(&bytes, header, sizeof header - 1), TT_OK);
    assert_int_equal(tt_str_append(&bytes, "12", 2), TT_OK);
    assert_int_equal(tt_file_write_atomic(test_at("x.safetensors"), bytes.data, bytes.bytes), TT_OK);
    tt_str_deinit(&bytes);
    assert_int_equal(tt_safetensors_open(test_at("x.safetensors"), &file), TT_OK);
    assert_int_equal(tt_model_folder_of_file(file, name_alike, NULL, &folder), TT_OK);
    tt_model_folder_close(folder);
    folder = NULL;
    assert_int_equal(tt_safetensors_open(test_at("x.safetensors"), &file), TT_OK);
    assert_int_equal(tt_model_folder_of_file(file, name_alike, "c", &folder), TT_ERR_DATA);
    assert_null(folder);
    assert_non_null(strstr(tt_error_last()->message, "x.safetensors' has tensor 'c' under two names"));
}

static void golden_shards(void **state)
{
    (void)state;
    struct tt_model_folder *folder = NULL;
    const char *path = TT_TEST_ROOT "/golden/llama_sharded/model";
    if (!tt_path_exists(path)) skip();
    assert_int_equal(tt_model_folder_open(path, true, &folder), TT_OK);
    const struct tt_safetensors_entry *entry = tt_model_folder_find(folder, "model.embed_tokens.weight");
    assert_non_null(entry);
    assert_int_equal(entry->rank, 2);
    tt_model_folder_close(folder);
}

static tt_status open_folder(void *context)
{
    struct tt_model_folder *folder = NULL;
    (void)context;
    tt_status status = tt_model_folder_open(test_root(), true, &folder);
    tt_model_folder_close(folder);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    put_shards();
    test_put("model.safetensors.index.json",
             "{\"weight_map\": {\"a\": \"m-2.safetensors\", \"b\": \"m-1.safetensors\","
             " \"c\": \"m-2.safetensors\", \"d\": \"m-1.safetensors\"}}");
    test_allocations_fail(open_folder, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shards, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(bad_index, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(no_weights, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(pickled_weights, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(bad_config, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(what_is_copied_is_checked, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(names_of_tokenizers, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(tensors_renamed_alike, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(too_many_templates, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(copy_tokenizer, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(golden_shards, fresh, test_root_remove),
        cmocka_unit_test_setup_teardown(every_allocation_may_fail, fresh, test_root_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
