/* A disk that keeps other bytes than were written: a save is read back before it is published, so it fails with the
 * name of the file, and no checkpoint appears. */
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "support/train_run.h"
#include "support/workplace.h"

/* NULL: none. A file of the checkpoint's folder that is changed when it is flushed. */
static const char *target;
static int damaged;

static void change_byte(const char *path)
{
    struct stat info;
    char byte;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0 || fstat(file, &info) != 0 || info.st_size < 20) return;
    off_t at = info.st_size - 20;
    damaged += pread(file, &byte, 1, at) == 1 && (byte ^= 1, pwrite(file, &byte, 1, at) == 1);
    (void)close(file);
}

/* In place of libc's, for everything that is linked here. */
int fsync(int descriptor)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t bytes = readlink(link, path, sizeof path - 1);
    path[bytes > 0 ? bytes : 0] = '\0';
    const char *folder = strstr(path, "checkpoint-1.saving/");
    if (target != NULL && damaged == 0 && folder != NULL && strstr(folder, target) != NULL) change_byte(path);
    return (int)syscall(SYS_fsync, descriptor);
}

static void save_with(const char *name, const char *more)
{
    struct test_workplace place;
    struct test_words words = {0};
    struct tt_train_summary summary;
    char output[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
    test_workplace_create("qwen2", &place);
    test_words_pair(&words, "model_name_or_path", place.model);
    test_words_pair(&words, "dataset_name", TT_TEST_ROOT "/golden/qwen2/train.jsonl");
    test_words_add(&words, "threads 1 max_steps 2 save_steps 1 report_to none");
    test_words_add(&words, more);
    target = name;
    damaged = 0;
    tt_status status = test_train(words.list, test_workplace_path(&place, "out", output), &summary);
    target = NULL;
    if (damaged != 1) fail_msg("%s was not changed", name);
    if (status != TT_ERR_DATA) fail_msg("%s: the run ends with %s", name, tt_status_name(status));
    const char *message = tt_error_last()->message;
    if (strstr(message, name) == NULL ||
        strstr(message, "is not as it was saved: its bytes have changed") == NULL)
        fail_msg("%s: %s", name, message);
    assert_false(tt_path_exists(test_join(output, "checkpoint-1", path)));
    assert_false(tt_path_exists(test_join(output, "checkpoint-1.saving", path)));
    test_workplace_remove(&place);
}

static void every_file_is_read_back(void **state)
{
    static const char *const adapter[] = {"adapter_model.safetensors", "training_state.safetensors",
                                          "adapter_config.json",       "tokenizer.json",
                                          "trainer_state.json",        "training_state.json"};
    (void)state;
    for (size_t i = 0; i < sizeof adapter / sizeof *adapter; i++) save_with(adapter[i], "lora_r 2");
    save_with("/model.safetensors", "use_peft false");
    save_with("config.json", "use_peft false");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_file_is_read_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
