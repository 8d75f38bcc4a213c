/* launch/fingerprint.h: what changes a fingerprint, what does not, how much is read for it, and what a
 * checkpoint's says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include <fcntl.h>

#include "base/alloc.h"
#include "base/file.h"
#include "launch/fingerprint.h"
#include "support/root.h"

#define MIB ((uint64_t)1 << 20)

/* A model folder with one weights file of `count` bf16 tensors of `bytes` each, all of it a hole, and a small
 * tensor. */
static void make_model(int count, uint64_t bytes)
{
    struct tt_safetensors_entry *entries = calloc((size_t)count + 1, sizeof *entries);
    struct tt_str header = {0};
    uint64_t file_bytes = 0;
    char names[512][32];
    assert_true(count < 512);
    for (int i = 0; i <= count; i++) {
        snprintf(names[i], sizeof names[i], i < count ? "big.%d.weight" : "small", i);
        entries[i] = (struct tt_safetensors_entry){
            .name = names[i], .dtype = TT_BF16, .rank = 1, .dims = {i < count ? (int64_t)(bytes / 2) : 100}};
    }
    assert_int_equal(tt_safetensors_layout(entries, (size_t)count + 1, &header, &file_bytes), TT_OK);
    test_put("config.json", "{}");
    assert_int_equal(tt_file_write_atomic(test_at("model.safetensors"), header.data, header.bytes), TT_OK);
    assert_int_equal(truncate(test_at("model.safetensors"), (off_t)file_bytes), 0);
    free(entries);
    tt_str_deinit(&header);
}

static struct tt_fingerprint take(enum tt_verify_inputs verify)
{
    struct tt_fingerprint fingerprint;
    struct tt_inputs inputs = {0};
    assert_int_equal(tt_model_folder_open(test_root(), true, &inputs.folder), TT_OK);
    inputs.source.folder = inputs.folder;
    if (tt_fingerprint_compute(verify, "seed: 1\n", &inputs, NULL, NULL, &fingerprint) != TT_OK)
        fail_msg("%s", tt_error_last()->message);
    tt_model_folder_close(inputs.folder);
    return fingerprint;
}

/* Names of the parts that differ, separated by blanks; of those that are in both. */
static const char *difference(const struct tt_fingerprint *a, const struct tt_fingerprint *b)
{
    static char text[1024];
    text[0] = '\0';
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        assert_string_equal(a->parts[i].name, b->parts[i].name);
        if (a->parts[i].quick == b->parts[i].quick && a->parts[i].full == b->parts[i].full) continue;
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", text[0] != '\0' ? ", " : "",
                 a->parts[i].name);
    }
    return text;
}

static void flip(const char *name, uint64_t offset)
{
    int descriptor = -1;
    char byte;
    assert_int_equal(tt_file_open_read(test_at(name), &descriptor, NULL), TT_OK);
    assert_int_equal(tt_file_pread(descriptor, name, &byte, 1, offset), TT_OK);
    tt_file_close(descriptor);
    byte ^= 1;
    assert_int_equal(tt_file_open_write(test_at(name), &descriptor), TT_OK);
    assert_int_equal(tt_file_pwrite(descriptor, name, &byte, 1, offset), TT_OK);
    tt_file_close(descriptor);
}

/* Each kind of file that a model folder has; and times and places of files, which do not count. */
static void files(void **state)
{
    (void)state;
    static const char *const names[] = {"config.json", "tokenizer.json", "chat_template.jinja",
                                        "additional_chat_templates/a.jinja"};
    assert_int_equal(tt_dir_create(test_at("additional_chat_templates")), TT_OK);
    make_model(1, MIB);
    for (size_t i = 0; i < 4; i++) test_put(names[i], "{}");
    struct tt_fingerprint before = take(TT_VERIFY_QUICK);
    assert_int_equal(utimensat(AT_FDCWD, test_at("config.json"), (struct timespec[2]){{1, 0}, {1, 0}}, 0), 0);
    struct tt_fingerprint after = take(TT_VERIFY_QUICK);
    assert_string_equal(difference(&before, &after), "");
    tt_fingerprint_deinit(&after);
    for (size_t i = 0; i < 4; i++) {
        char wanted[128];
        test_put(names[i], "{ }");
        after = take(TT_VERIFY_QUICK);
        snprintf(wanted, sizeof wanted, "'%s'", names[i]);
        assert_string_equal(difference(&before, &after), wanted);
        tt_fingerprint_deinit(&after);
        test_put(names[i], "{}");
    }
    tt_fingerprint_deinit(&before);
}

/* Every byte of a small tensor and of the header counts; a stretch of 64 KiB of a large one always has a
 * block that is read; a single byte may be missed, but not by `full`. */
static void tensors(void **state)
{
    (void)state;
    make_model(1, MIB); /* 16 stretches of 64 KiB with 4 KiB of each read */
    uint64_t end = 0;
    struct stat info;
    assert_int_equal(stat(test_at("model.safetensors"), &info), 0);
    end = (uint64_t)info.st_size;
    struct tt_fingerprint quick = take(TT_VERIFY_QUICK), full = take(TT_VERIFY_FULL), now;
    int found = 0, probes = 64;
    for (int i = 0; i < probes; i++) {
        uint64_t place = end - 200 - MIB + (uint64_t)i * (MIB / 64) + 777;
        flip("model.safetensors", place);
        now = take(TT_VERIFY_QUICK);
        found += difference(&quick, &now)[0] != '\0';
        tt_fingerprint_deinit(&now);
        now = take(TT_VERIFY_FULL);
        assert_string_equal(difference(&full, &now), "tensor 'big.0.weight' of 'model.safetensors'");
        tt_fingerprint_deinit(&now);
        flip("model.safetensors", place);
    }
    if (found == 0 || found > probes / 2) fail_msg("quick found %d of %d single bytes", found, probes);
    for (uint64_t byte = end - 200; byte < end; byte += 37) {
        flip("model.safetensors", byte);
        now = take(TT_VERIFY_QUICK);
        assert_string_equal(difference(&quick, &now), "tensor 'small' of 'model.safetensors'");
        tt_fingerprint_deinit(&now);
        flip("model.safetensors", byte);
    }
    for (int stretch = 0; stretch < 16; stretch++) {
        for (uint64_t i = 0; i < 64; i++) /* a byte of each KiB */
            flip("model.safetensors", end - 200 - MIB + (uint64_t)stretch * (64 << 10) + (i << 10));
        now = take(TT_VERIFY_QUICK);
        assert_string_equal(difference(&quick, &now), "tensor 'big.0.weight' of 'model.safetensors'");
        tt_fingerprint_deinit(&now);
        for (uint64_t i = 0; i < 64; i++)
            flip("model.safetensors", end - 200 - MIB + (uint64_t)stretch * (64 << 10) + (i << 10));
    }
    tt_fingerprint_deinit(&quick);
    tt_fingerprint_deinit(&full);
}

/* What this process has read so far. */
static uint64_t bytes_read(void)
{
    unsigned long long bytes = 0;
    FILE *file = fopen("/proc/self/io", "r");
    if (file == NULL || fscanf(file, "rchar: %llu", &bytes) != 1) skip();
    fclose(file);
    return bytes;
}

/* Of a model of 16 GiB some 20 MiB are read: no time of a start. */
static void little_is_read(void **state)
{
    (void)state;
    make_model(292, 56 * MIB);
    uint64_t before = bytes_read();
    struct tt_fingerprint fingerprint = take(TT_VERIFY_QUICK);
    uint64_t bytes = bytes_read() - before;
    if (bytes > 24 * MIB) fail_msg("%llu bytes were read", (unsigned long long)bytes);
    tt_fingerprint_deinit(&fingerprint);
}

/* Data above 1 GiB: both ends and 1,024 blocks; `full` reads all of it. */
static void long_data(void **state)
{
    (void)state;
    const struct tt_data_config config = {.dataset_text_field = "text",
                                          .dataset_prompt_field = "prompt",
                                          .dataset_completion_field = "completion",
                                          .max_length = 16,
                                          .packing_strategy = TT_PACKING_BFD,
                                          .eval_packing = -1,
                                          .completion_only_loss = -1};
    struct tt_inputs inputs = {0};
    struct tt_fingerprint prints[2][4];
    const uint64_t bytes = 1025 * MIB, places[] = {0, MIB - 1, bytes - 1};
    make_model(1, MIB);
    test_put("rows.jsonl", "{\"input_ids\": [1, 2, 3]}\n");
    test_put("long.jsonl", "");
    assert_int_equal(truncate(test_at("long.jsonl"), (off_t)bytes), 0);
    assert_int_equal(tt_sources_add(&inputs.train_files, test_at("long.jsonl"), "train", 1), TT_OK);
    assert_int_equal(tt_model_folder_open(test_root(), true, &inputs.folder), TT_OK);
    assert_int_equal(tt_dataset_load(test_at("rows.jsonl"), &config, NULL, 100, 0, &inputs.train), TT_OK);
    uint64_t before = bytes_read();
    for (int i = 0; i < 4; i++) {
        if (i > 0) flip("long.jsonl", places[i - 1]);
        assert_int_equal(tt_fingerprint_compute(TT_VERIFY_QUICK, NULL, &inputs, NULL, NULL, &prints[0][i]),
                         TT_OK);
        if (i == 0) continue;
        assert_string_equal(difference(&prints[0][0], &prints[0][i]), "the file of the training data");
        flip("long.jsonl", places[i - 1]);
    }
    assert_true(bytes_read() - before < 32 * MIB);
    assert_int_equal(tt_fingerprint_compute(TT_VERIFY_FULL, NULL, &inputs, NULL, NULL, &prints[1][0]), TT_OK);
    flip("long.jsonl", 700 * MIB + 12345);
    assert_int_equal(tt_fingerprint_compute(TT_VERIFY_FULL, NULL, &inputs, NULL, NULL, &prints[1][1]), TT_OK);
    assert_string_equal(difference(&prints[1][0], &prints[1][1]), "the file of the training data");
    for (int i = 0; i < 4; i++) tt_fingerprint_deinit(&prints[0][i]);
    for (int i = 0; i < 2; i++) tt_fingerprint_deinit(&prints[1][i]);
    tt_inputs_close(&inputs);
}

static void changes_since_a_checkpoint(void **state)
{
    (void)state;
    struct tt_str broken = {0}, changed = {0};
    make_model(1, MIB);
    test_put("tokenizer.json", "{}");
    test_put("vocab.json", "{}");
    struct tt_fingerprint quick = take(TT_VERIFY_QUICK), full = take(TT_VERIFY_FULL);
    struct tt_json_value *kept = tt_fingerprint_json(&quick), *kept_full = tt_fingerprint_json(&full);
    assert_null(tt_json_get(kept, "setting 'seed'"));
    assert_int_equal(tt_fingerprint_changes(&quick, kept, &broken, &changed), TT_OK);
    assert_int_equal(tt_fingerprint_changes(&full, kept, &broken, &changed), TT_OK);
    assert_int_equal(tt_fingerprint_changes(&quick, kept_full, &broken, &changed), TT_OK);
    assert_int_equal(tt_fingerprint_changes(&full, kept_full, &broken, &changed), TT_OK);
    assert_string_equal(tt_str_text(&broken), "");
    assert_string_equal(tt_str_text(&changed), "");
    tt_fingerprint_deinit(&quick);
    tt_fingerprint_deinit(&full);
    test_put("config.json", "{ }");
    test_put("tokenizer.json", "{ }");
    test_put("merges.txt", "");
    assert_int_equal(unlink(test_at("vocab.json")), 0);
    full = take(TT_VERIFY_FULL);
    assert_int_equal(tt_fingerprint_changes(&full, kept, &broken, &changed), TT_OK);
    assert_string_equal(tt_str_text(&broken), "'config.json' has changed");
    assert_string_equal(tt_str_text(&changed),
                        "'tokenizer.json' has changed; 'merges.txt' is new; 'vocab.json' is missing");
    tt_fingerprint_deinit(&full);
    tt_str_deinit(&broken);
    tt_str_deinit(&changed);
    tt_json_release(kept);
    tt_json_release(kept_full);
}

static void a_stop_on_request(void **state)
{
    (void)state;
    struct tt_cancel cancel = {.requests = 1};
    struct tt_inputs inputs = {0};
    struct tt_fingerprint fingerprint;
    make_model(1, MIB);
    assert_int_equal(tt_model_folder_open(test_root(), true, &inputs.folder), TT_OK);
    uint64_t live = tt_alloc_live();
    assert_int_equal(tt_fingerprint_compute(TT_VERIFY_QUICK, NULL, &inputs, NULL, &cancel, &fingerprint),
                     TT_ERR_CANCELLED);
    assert_int_equal(fingerprint.count, 0);
    assert_int_equal(tt_alloc_live(), live);
    tt_model_folder_close(inputs.folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files, test_root_create, test_root_remove),
        cmocka_unit_test_setup_teardown(tensors, test_root_create, test_root_remove),
        cmocka_unit_test_setup_teardown(little_is_read, test_root_create, test_root_remove),
        cmocka_unit_test_setup_teardown(long_data, test_root_create, test_root_remove),
        cmocka_unit_test_setup_teardown(changes_since_a_checkpoint, test_root_create, test_root_remove),
        cmocka_unit_test_setup_teardown(a_stop_on_request, test_root_create, test_root_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
