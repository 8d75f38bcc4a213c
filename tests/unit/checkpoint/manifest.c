/* A manifest says what belongs to a checkpoint, and finds what is missing, cut or changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "checkpoint/manifest.h"
#include "support/temporary.h"

enum { PATH_BYTES = 512, LARGE_BYTES = 9 * 1000 * 1000 };

struct folder {
    char path[160];
};

static const char *in(const struct folder *folder, const char *name, char path[PATH_BYTES])
{
    (void)snprintf(path, PATH_BYTES, "%s/%s", folder->path, name);
    return path;
}

static void write_file(const struct folder *folder, const char *name, const char *data, size_t bytes)
{
    char path[PATH_BYTES];
    assert_int_equal(tt_file_write_atomic(in(folder, name, path), data, bytes), TT_OK);
}

static void make(const struct folder *folder, int64_t step)
{
    struct tt_manifest manifest = {.step = step};
    char path[PATH_BYTES], *large = tt_calloc(LARGE_BYTES, 1);
    assert_non_null(large);
    assert_int_equal(tt_dir_create(in(folder, "below", path)), TT_OK);
    write_file(folder, "large.safetensors", large, LARGE_BYTES); /* several chunks */
    write_file(folder, "empty", "", 0);
    write_file(folder, "below/template", "hello", 5);
    tt_free(large);
    assert_int_equal(tt_manifest_add_rest(&manifest, folder->path), TT_OK);
    assert_int_equal(manifest.count, 3);
    assert_int_equal(tt_manifest_write(&manifest, folder->path), TT_OK);
    tt_manifest_deinit(&manifest);
}

static tt_status verify(const struct folder *folder)
{
    struct tt_manifest manifest = {0};
    TT_TRY(tt_manifest_read(folder->path, &manifest));
    tt_status status = tt_manifest_verify(&manifest, folder->path, NULL);
    tt_manifest_deinit(&manifest);
    return status;
}

static void expect_broken(const struct folder *folder, const char *word, const char *name)
{
    assert_int_equal(verify(folder), TT_ERR_DATA);
    const char *message = tt_error_last()->message;
    if (strstr(message, word) == NULL || strstr(message, name) == NULL) fail_msg("%s", message);
}

static void flip(const struct folder *folder, const char *name, uint64_t offset)
{
    char path[PATH_BYTES], byte;
    int descriptor;
    assert_int_equal(tt_file_open_read(in(folder, name, path), &descriptor, NULL), TT_OK);
    assert_int_equal(tt_file_pread(descriptor, path, &byte, 1, offset), TT_OK);
    tt_file_close(descriptor);
    byte ^= 4;
    assert_int_equal(tt_file_open_write(path, &descriptor), TT_OK);
    assert_int_equal(tt_file_pwrite(descriptor, path, &byte, 1, offset), TT_OK);
    tt_file_close(descriptor);
}

static void begin(struct folder *folder)
{
    test_temporary_of(folder->path, sizeof folder->path, "trimtab-manifest", (long)getpid(), "");
    assert_int_equal(tt_dir_remove(folder->path), TT_OK);
    assert_int_equal(tt_dir_create(folder->path), TT_OK);
}

static void finds_every_change(void **state)
{
    (void)state;
    struct folder folder;
    char path[PATH_BYTES];
    static const uint64_t offsets[] = {0, 1, 4194303, 4194304, LARGE_BYTES / 2, LARGE_BYTES - 1};
    begin(&folder);
    make(&folder, 7);
    assert_int_equal(verify(&folder), TT_OK);
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        flip(&folder, "large.safetensors", offsets[i]);
        expect_broken(&folder, "not as it was saved", "large.safetensors");
        flip(&folder, "large.safetensors", offsets[i]);
    }
    flip(&folder, "below/template", 4);
    expect_broken(&folder, "not as it was saved", "below/template");
    flip(&folder, "below/template", 4);
    assert_int_equal(verify(&folder), TT_OK);
    write_file(&folder, "empty", "x", 1);
    expect_broken(&folder, "1 bytes, and 0", "empty");
    assert_int_equal(remove(in(&folder, "empty", path)), 0);
    expect_broken(&folder, "missing", "empty");
    assert_int_equal(remove(in(&folder, TT_MANIFEST_NAME, path)), 0);
    expect_broken(&folder, "not a complete checkpoint", folder.path);
    assert_int_equal(tt_dir_remove(folder.path), TT_OK);
}

/* Every byte of the manifest itself: changed, it is refused, or says of some file what is not so. The one
 * thing that no other byte repeats is the step. */
static void manifest_is_not_trusted(void **state)
{
    (void)state;
    struct folder folder;
    struct tt_str text = {0};
    char path[PATH_BYTES];
    begin(&folder);
    make(&folder, 7);
    assert_int_equal(tt_file_read(in(&folder, TT_MANIFEST_NAME, path), 1 << 20, &text), TT_OK);
    const char *step = strstr(text.data, "\"step\": 7");
    assert_non_null(step);
    size_t step_at = (size_t)(step - text.data) + 8;
    for (size_t at = 0; at < text.bytes; at += 3) {
        if (at == step_at || strchr(" \n", text.data[at]) != NULL) continue;
        char kept = text.data[at];
        text.data[at] = kept == '1' ? '2' : '1';
        write_file(&folder, TT_MANIFEST_NAME, text.data, text.bytes);
        if (verify(&folder) == TT_OK) fail_msg("byte %zu of %s", at, text.data);
        text.data[at] = kept;
    }
    static const char *const hostile[] = {"../x", "/etc/passwd", "a/../../x", "", "a//b", "./x"};
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        tt_str_clear(&text);
        assert_int_equal(
            tt_str_printf(&text,
                          "{\"format\": \"trimtab-checkpoint\", \"version\": 1, \"step\": 1, "
                          "\"files\": {\"%s\": {\"bytes\": 0, \"crc64\": \"0000000000000000\"}}}",
                          hostile[i]),
            TT_OK);
        write_file(&folder, TT_MANIFEST_NAME, text.data, text.bytes);
        expect_broken(&folder, "not a file of the folder", hostile[i]);
    }
    tt_str_deinit(&text);
    assert_int_equal(tt_dir_remove(folder.path), TT_OK);
}

static void malformed_manifests(void **state)
{
    (void)state;
    static const char head[] =
        "{\"format\": \"trimtab-checkpoint\", \"version\": 1, \"step\": 1, \"files\": ";
    static const struct {
        const char *text, *part; /* text: of all, or of the files behind the head */
    } rows[] = {
        {"{\"format\": \"other\", \"version\": 1}",
         "is of format 'other' version 1; trimtab-checkpoint version 1 is expected"},
        {"{\"format\": \"trimtab-checkpoint\", \"version\": 0}",
         "is of format 'trimtab-checkpoint' version 0; trimtab-checkpoint version 1 is expected"},
        {"{\"format\": \"trimtab-checkpoint\", \"version\": 2}",
         "is of format 'trimtab-checkpoint' version 2; trimtab-checkpoint version 1 is expected"},
        {":{\"a\": 1}}", "lists 'a', which is not a file of the folder"},
        {":{\"a\": {\"bytes\": -1, \"crc64\": \"0000000000000000\"}}}", "has no size or no sum for 'a'"},
        {":{\"a\": {\"bytes\": 0, \"crc64\": \"000000000000000\"}}}", "has no size or no sum for 'a'"},
        {":{\"a\": {\"bytes\": 0, \"crc64\": \"00000000000000000\"}}}", "has no size or no sum for 'a'"},
        {":{\"a\": {\"bytes\": 0, \"crc64\": \"000000000000000g\"}}}", "has no size or no sum for 'a'"},
    };
    struct folder folder;
    struct tt_str text = {0};
    begin(&folder);
    make(&folder, 7);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool is_rest = rows[i].text[0] == ':';
        tt_str_clear(&text);
        assert_int_equal(tt_str_printf(&text, "%s%s", is_rest ? head : "", rows[i].text + is_rest), TT_OK);
        write_file(&folder, TT_MANIFEST_NAME, text.data, text.bytes);
        expect_broken(&folder, rows[i].part, TT_MANIFEST_NAME);
    }
    tt_str_deinit(&text);
    assert_int_equal(tt_dir_remove(folder.path), TT_OK);
}

struct skipped {
    char names[256];
};

static void note(void *context, const char *path, const char *reason)
{
    struct skipped *skipped = context;
    (void)reason;
    strcat(skipped->names, strrchr(path, '/'));
}

static void newest_whole_one(void **state)
{
    (void)state;
    struct folder folder;
    static const int64_t steps[] = {2, 10, 9, 100};
    struct skipped skipped = {""};
    char path[PATH_BYTES], *found = NULL;
    int64_t *listed = NULL;
    size_t count, passed_over;
    begin(&folder);
    for (size_t i = 0; i < 4; i++) {
        struct folder one;
        (void)snprintf(one.path, sizeof one.path, "%.120s/checkpoint-%d", folder.path, (int)steps[i]);
        assert_int_equal(tt_dir_create(one.path), TT_OK);
        make(&one, steps[i]);
    }
    assert_int_equal(tt_dir_create(in(&folder, "checkpoint-200.saving", path)), TT_OK);
    assert_int_equal(tt_dir_create(in(&folder, "checkpoint-x", path)), TT_OK);
    write_file(&folder, "checkpoint-300", "a file", 6);
    assert_int_equal(tt_checkpoint_list(folder.path, &listed, &count), TT_OK);
    assert_int_equal(count, 4);
    assert_true(listed[0] == 100 && listed[1] == 10 && listed[2] == 9 && listed[3] == 2);
    tt_free(listed);
    flip(&folder, "checkpoint-100/large.safetensors", 77);
    assert_int_equal(remove(in(&folder, "checkpoint-10/manifest.json", path)), 0);
    struct tt_checkpoint_search search = {.output_dir = folder.path, .skipped = note, .context = &skipped};
    assert_int_equal(tt_checkpoint_find_newest(&search, &found, &passed_over), TT_OK);
    assert_string_equal(strrchr(found, '/'), "/checkpoint-9");
    assert_string_equal(skipped.names, "/checkpoint-100/checkpoint-10");
    assert_int_equal(passed_over, 2);
    tt_free(found);
    struct tt_cancel cancel = {.requests = 1};
    search = (struct tt_checkpoint_search){.output_dir = "/tmp/there/is/none"};
    assert_int_equal(tt_checkpoint_find_newest(&search, &found, &passed_over), TT_OK);
    assert_null(found);
    assert_int_equal(passed_over, 0);
    search = (struct tt_checkpoint_search){.output_dir = folder.path, .cancel = &cancel};
    assert_int_equal(tt_checkpoint_find_newest(&search, &found, &passed_over), TT_ERR_CANCELLED);
    assert_int_equal(tt_dir_remove(folder.path), TT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_every_change),
        cmocka_unit_test(manifest_is_not_trusted),
        cmocka_unit_test(malformed_manifests),
        cmocka_unit_test(newest_whole_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
