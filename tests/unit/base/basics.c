/* base: the error record, allocation, arena, strings, log and threads. */
#include <pthread.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

static void error_record(void **state)
{
    (void)state;
    char text[1024];
    assert_int_equal(tt_fail_errno(ENOENT, "cannot open '%s'", "f"), TT_ERR_DATA);
    tt_while("loading layer %d of %d", 17, 32);
    tt_while("loading model '%s'", "m");
    tt_hint("first");
    tt_hint("second");
    size_t needed = tt_error_format(tt_error_last(), text, sizeof text);
    assert_string_equal(text, "error: cannot open 'f': No such file or directory\n"
                              "  while loading layer 17 of 32\n  while loading model 'm'\n  hint: first");
    assert_int_equal(needed, strlen(text));
    /* Too small a buffer is filled and terminated. */
    assert_int_equal(tt_error_format(tt_error_last(), text, 12), needed);
    assert_string_equal(text, "error: cann");
    assert_int_equal(tt_error_format(tt_error_last(), NULL, 0), needed);
    /* A new failure that quotes the old one starts clean. */
    assert_int_equal(tt_fail(TT_ERR_DATA, "after: %s", tt_error_last()->message), TT_ERR_DATA);
    assert_string_equal(tt_error_last()->message, "after: cannot open 'f': No such file or directory");
    assert_int_equal(tt_error_last()->context_count, 0);
    assert_string_equal(tt_error_last()->hint, "");
    for (int i = 0; i < 20; i++) tt_while("%d", i);
    assert_int_equal(tt_error_last()->context_count, TT_ERROR_CONTEXT_MAX);
    tt_error_clear();
    assert_int_equal(tt_error_last()->status, TT_OK);
}

/* An error of several parts lists them; one more than it has room for is refused, and the list stays as it is. */
static void error_items(void **state)
{
    (void)state;
    char text[TT_ERROR_TEXT_BYTES], before[TT_ERROR_ITEMS_BYTES];
    tt_fail(TT_ERR_USAGE, "two:");
    assert_true(tt_item("line %d", 1));
    assert_true(tt_item("line\n%d", 2)); /* a part is one line */
    tt_hint("correct them");
    tt_error_format(tt_error_last(), text, sizeof text);
    assert_string_equal(text, "error: two:\n  - line 1\n  - line\\x0a2\n  hint: correct them");
    while (tt_item("%0500d", 0)) {
    }
    (void)snprintf(before, sizeof before, "%s", tt_error_last()->items);
    assert_true(strlen(before) > TT_ERROR_ITEMS_BYTES - 520);
    assert_false(tt_item("%0500d", 0));
    assert_string_equal(tt_error_last()->items, before);
    assert_true(tt_error_format(tt_error_last(), text, sizeof text) < sizeof text);
    tt_fail(TT_ERR_USAGE, "alone");
    assert_string_equal(tt_error_last()->items, "");
    tt_error_clear();
}

/* What may work at another try is TT_ERR_IO; a path that is wrong stays wrong. */
static void kinds_of_errno(void **state)
{
    (void)state;
    static const int passing[] = {ENOSPC, EDQUOT, EIO, ESTALE, ETIMEDOUT, EFBIG, EMFILE, EAGAIN, EINTR};
    static const int lasting[] = {ENOENT, ENOTDIR, EISDIR, EACCES, EPERM, ELOOP, EROFS, ENXIO, ENAMETOOLONG};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        assert_int_equal(tt_fail_errno(passing[i], "x"), TT_ERR_IO);
    for (size_t i = 0; i < sizeof lasting / sizeof *lasting; i++)
        assert_int_equal(tt_fail_errno(lasting[i], "x"), TT_ERR_DATA);
    assert_int_equal(tt_fail_errno(EMFILE, "x"), TT_ERR_IO);
    assert_non_null(strstr(tt_error_last()->hint, "ulimit -n"));
    tt_error_clear();
}

static void long_messages_are_cut(void **state)
{
    (void)state;
    char huge[5000];
    memset(huge, 'x', sizeof huge - 1);
    huge[sizeof huge - 1] = '\0';
    assert_int_equal(tt_fail_errno(EIO, "%s", huge), TT_ERR_IO);
    tt_while("%s", huge);
    tt_hint("%s", huge);
    assert_int_equal(strlen(tt_error_last()->message), sizeof tt_error_last()->message - 1);
    tt_error_clear();
}

static tt_status failing_thread(void *argument)
{
    *(int *)argument += 1;
    tt_fail(TT_ERR_DEVICE, "from the thread");
    tt_while("working");
    return TT_ERR_DEVICE;
}

static tt_status silent_thread(void *argument)
{
    (void)argument;
    return TT_ERR_COMM;
}

/* In a child without room for another stack. */
static void limit_of_threads(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* they reserve far more than any limit */
#endif
    int how = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct tt_thread *thread = NULL;
        const struct rlimit limit = {1 << 20, 1 << 20};
        if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(1);
        if (tt_thread_start("one", silent_thread, NULL, &thread) != TT_ERR_IO) _exit(2);
        _exit(strstr(tt_error_last()->hint, "ulimit -u") != NULL ? 0 : 3);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
}

static void threads_bring_their_error(void **state)
{
    (void)state;
    int runs = 0;
    struct tt_thread *thread = NULL;
    assert_int_equal(tt_thread_start("a name longer than the kernel's limit", failing_thread, &runs, &thread),
                     TT_OK);
    assert_int_equal(tt_thread_join(thread), TT_ERR_DEVICE);
    assert_int_equal(runs, 1);
    assert_string_equal(tt_error_last()->message, "from the thread");
    assert_string_equal(tt_error_last()->context[0], "working");
    assert_int_equal(tt_thread_start("silent", silent_thread, NULL, &thread), TT_OK);
    assert_int_equal(tt_thread_join(thread), TT_ERR_COMM);
    assert_non_null(strstr(tt_error_last()->message, "silent"));
    assert_true(tt_cpu_count() >= 1);
}

enum { SHARING = 4 };

/* The one with number `fails` fails; all go on only when all have come, so that they are as many as asked
 * for. */
struct sharing {
    atomic_int came;
    int fails;
    pthread_barrier_t all;
};

static tt_status share_out(void *argument)
{
    struct sharing *sharing = argument;
    int number = atomic_fetch_add(&sharing->came, 1);
    pthread_barrier_wait(&sharing->all);
    return number == sharing->fails ? tt_fail(TT_ERR_DATA, "number %d", number) : TT_OK;
}

static void threads_share_work_and_tell_of_a_failure(void **state)
{
    (void)state;
    char message[32];
    for (int fails = -1; fails < SHARING; fails++) {
        struct sharing sharing = {.fails = fails};
        assert_int_equal(pthread_barrier_init(&sharing.all, NULL, SHARING), 0);
        tt_error_clear();
        tt_status status = tt_threads_run("share", SHARING, share_out, &sharing);
        assert_int_equal(status, fails < 0 ? TT_OK : TT_ERR_DATA);
        snprintf(message, sizeof message, "number %d", fails);
        assert_string_equal(tt_error_last()->message, fails < 0 ? "" : message);
        assert_int_equal(sharing.came, SHARING);
        pthread_barrier_destroy(&sharing.all);
    }
    tt_error_clear();
    assert_int_equal(tt_threads_run("silent", 1, silent_thread, NULL), TT_ERR_COMM);
    assert_non_null(strstr(tt_error_last()->message, "silent"));
}

static void allocation(void **state)
{
    (void)state;
    uint64_t live = tt_alloc_live();
    void *empty = tt_calloc(0, 8), *aligned = tt_alloc_aligned(100);
    assert_non_null(empty);
    assert_int_equal((uintptr_t)aligned % 64, 0);
    assert_int_equal(tt_alloc_live(), live + 2);
    assert_null(tt_calloc(SIZE_MAX / 2, 4));
    assert_int_equal(tt_error_last()->status, TT_ERR_MEMORY);
    assert_null(tt_realloc(aligned, SIZE_MAX, SIZE_MAX));
    assert_null(tt_alloc_aligned(SIZE_MAX - 10));
    tt_free(empty);
    tt_free(aligned);
    tt_free(NULL);
    tt_alloc_fail_at(2);
    void *first = tt_calloc(1, 1), *second = tt_calloc(1, 1), *third = tt_calloc(1, 1);
    assert_non_null(first);
    assert_null(second);
    assert_non_null(third);
    tt_free(first);
    tt_free(third);
    assert_int_equal(tt_alloc_live(), live);
    int *array = NULL;
    size_t capacity = 0;
    for (size_t i = 0; i < 1000; i++) {
        assert_int_equal(tt_grow(&array, i, &capacity), TT_OK);
        array[i] = (int)i;
    }
    assert_int_equal(array[999], 999);
    tt_alloc_fail_at(1);
    assert_int_equal(tt_grow(&array, capacity, &capacity), TT_ERR_MEMORY);
    assert_int_equal(array[999], 999);
    tt_free(array);
}

struct fail_race {
    atomic_int failures;
};

static tt_status allocate_much(void *argument)
{
    struct fail_race *race = argument;
    for (int i = 0; i < 20000; i++) {
        void *block = tt_calloc(1, 16);
        if (block == NULL) atomic_fetch_add(&race->failures, 1);
        tt_free(block);
    }
    return TT_OK;
}

/* Exactly one allocation fails, whichever thread makes it. */
static void fail_at_is_thread_safe(void **state)
{
    (void)state;
    struct fail_race race = {0};
    struct tt_thread *threads[4];
    tt_alloc_fail_at(30000);
    for (int i = 0; i < 4; i++)
        assert_int_equal(tt_thread_start("race", allocate_much, &race, &threads[i]), TT_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(tt_thread_join(threads[i]), TT_OK);
    assert_int_equal(atomic_load(&race.failures), 1);
}

static void arena(void **state)
{
    (void)state;
    struct tt_arena all = {0};
    char *kept[3000];
    for (int i = 0; i < 3000; i++) {
        kept[i] = tt_arena_printf(&all, "%d", i);
        assert_int_equal((uintptr_t)kept[i] % 16, 0);
        if (i % 1000 == 0) assert_non_null(tt_arena_alloc(&all, 3 << 20));
    }
    char number[16];
    for (int i = 0; i < 3000; i++) {
        snprintf(number, sizeof number, "%d", i);
        assert_string_equal(kept[i], number);
    }
    assert_string_equal(tt_arena_strndup(&all, "abcdef", 3), "abc");
    assert_string_equal(tt_arena_strdup(&all, ""), "");
    assert_null(tt_arena_alloc(&all, SIZE_MAX));
    unsigned char *zero = tt_arena_alloc(&all, 1000);
    for (int i = 0; i < 1000; i++) assert_int_equal(zero[i], 0);
    tt_arena_deinit(&all);
    tt_arena_deinit(&all);
}

static void strings(void **state)
{
    (void)state;
    struct tt_str text = {0};
    assert_string_equal(tt_str_text(&text), "");
    assert_int_equal(tt_str_append(&text, NULL, 0), TT_OK);
    for (int i = 0; i < 1000; i++) assert_int_equal(tt_str_printf(&text, "%d,", i % 10), TT_OK);
    assert_int_equal(text.bytes, 2000);
    assert_int_equal(strlen(text.data), 2000);
    tt_str_clear(&text);
    assert_int_equal(tt_str_append_char(&text, 'x'), TT_OK);
    assert_int_equal(tt_str_append_text(&text, "yz"), TT_OK);
    assert_string_equal(text.data, "xyz");
    assert_true(tt_span_equals(tt_span_of("xyz"), text.data));
    assert_false(tt_span_equals((struct tt_span){"xyz", 2}, "xyz"));
    assert_true(tt_span_equals((struct tt_span){NULL, 0}, ""));
    struct tt_span part = {"model.bin", 5};
    assert_true(tt_span_starts_with(part, "mod") && tt_span_ends_with(part, "del"));
    assert_true(tt_span_starts_with(part, "model") && tt_span_ends_with(part, "model"));
    assert_false(tt_span_starts_with(part, "model.") || tt_span_ends_with(part, "bin"));
    assert_true(tt_span_starts_with((struct tt_span){0}, "") && tt_span_ends_with((struct tt_span){0}, ""));
    assert_true(tt_starts_with("model.bin", "model") && tt_starts_with("model.bin", ""));
    assert_false(tt_starts_with("mod", "model"));
    assert_true(tt_starts_with_one_of("fsdp_offload", "deepspeed_ fsdp_"));
    assert_true(tt_starts_with_one_of("deepspeed_x", "deepspeed_  fsdp_"));
    assert_false(tt_starts_with_one_of("fsdp", "deepspeed_ fsdp_") || tt_starts_with_one_of("fsdp", ""));
    assert_false(tt_starts_with_one_of("xfsdp_", " fsdp_ "));
    assert_true(tt_ends_with("model.bin", ".bin") && tt_ends_with(".bin", ".bin"));
    assert_false(tt_ends_with("bin", ".bin") || tt_ends_with("model.bin2", ".bin"));
    tt_str_deinit(&text);
}

static void formats(void **state)
{
    (void)state;
    char text[64];
    assert_string_equal(tt_format_bytes(17, text, sizeof text), "17 B");
    assert_string_equal(tt_format_bytes(1.5 * 1024 * 1024 * 1024, text, sizeof text), "1.5 GiB");
    assert_string_equal(tt_format_bytes(312.0 * 1024 * 1024, text, sizeof text), "312 MiB");
    assert_string_equal(tt_format_bytes(1024 * 1024 - 1, text, sizeof text), "1.0 MiB");
    static const struct {
        double value;
        const char *text;
    } rounded[] = {{1139.7, "1,140"},   {999.6, "1,000"},    {999.4, "999"},
                   {85.42, "85.4"},     {0.07912, "0.0791"}, {9866383, "9,870,000"},
                   {123456, "123,000"}, {-1660, "-1,660"},   {0, "0"},
                   {1e18, "1e+18"},     {INFINITY, "inf"},   {9.994e14, "999,000,000,000,000"}};
    for (size_t i = 0; i < sizeof rounded / sizeof *rounded; i++)
        assert_string_equal(tt_rounded(rounded[i].value).text, rounded[i].text);
    static const struct {
        double seconds;
        const char *text;
    } seconds[] = {{4.219e-6, "4.22 us"}, {1.587e-5, "15.9 us"}, {1e-4, "0.10 ms"},
                   {0.00813, "8.13 ms"},  {0.414, "414 ms"},     {0.9999, "1.00 s"},
                   {4.88, "4.88 s"},      {100, "1m40s"},        {-1, "?"}};
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++)
        assert_string_equal(tt_format_seconds(seconds[i].seconds, text, sizeof text), seconds[i].text);
    assert_string_equal(tt_format_duration(12.34, text, sizeof text), "12.3s");
    assert_string_equal(tt_format_duration(59.99, text, sizeof text), "1m00s");
    assert_string_equal(tt_format_duration(200, text, sizeof text), "3m20s");
    assert_string_equal(tt_format_duration(3599.9, text, sizeof text), "1h00m");
    assert_string_equal(tt_format_duration(3725, text, sizeof text), "1h02m");
    assert_string_equal(tt_format_duration(-1, text, sizeof text), "?");
    assert_string_equal(tt_format_duration(0.0 / 0.0, text, sizeof text), "?");
}

static void edit_distance(void **state)
{
    (void)state;
    assert_int_equal(tt_edit_distance("", ""), 0);
    assert_int_equal(tt_edit_distance("abc", ""), 3);
    assert_int_equal(tt_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(tt_edit_distance("lora_aplha", "lora_alpha"), 1);
    assert_int_equal(tt_edit_distance("learning_rate", "learnig_rate"), 1);
    char long_text[1000];
    memset(long_text, 'a', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    assert_int_equal(tt_edit_distance(long_text, long_text), 0);
    assert_int_equal(tt_edit_distance(long_text, ""), 127);
}

static void parse_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t bytes;
    } good[] = {
        {"24GiB", (size_t)24 << 30},
        {"512M", 512000000},
        {"1.5e9", 1500000000},
        {"0", 0},
        {"4Ki", 4096},
        {"1 MB", 1000000},
        {"2k", 2000},
        {"17 B", 17},
        {"1.5KiB", 1536},
        {"3T", 3000000000000},
        {" 8 ", 8},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        size_t bytes = 1;
        assert_int_equal(tt_parse_bytes(good[i].text, &bytes), TT_OK);
        assert_int_equal(bytes, good[i].bytes);
    }
    static const char *const bad[] = {"",    "G",    "-1",    "+1",    "1X",  "1GiBx", "nan",
                                      "inf", "0x10", "1e300", "1.2.3", "KiB", "1iB"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        size_t bytes = 42;
        assert_int_equal(tt_parse_bytes(bad[i], &bytes), TT_ERR_USAGE);
        assert_int_equal(bytes, 42);
    }
}

static void remember_line(void *context, enum tt_log_level level, const char *line)
{
    snprintf(context, 64, "%d %s", (int)level, line);
}

static void log_sink(void **state)
{
    (void)state;
    char line[64] = "";
    tt_info("nobody listens");
    tt_log_set_sink(remember_line, line);
    tt_warn("%d of %d", 1, 2);
    char expected[32];
    snprintf(expected, sizeof expected, "%d 1 of 2", TT_LOG_WARNING);
    assert_string_equal(line, expected);
    tt_log_set_sink(NULL, NULL);
    assert_true(tt_clock_seconds() <= tt_clock_seconds());
    assert_true(tt_clock_unix_seconds() > 1.6e9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_record),
        cmocka_unit_test(error_items),
        cmocka_unit_test(kinds_of_errno),
        cmocka_unit_test(limit_of_threads),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(allocation),
        cmocka_unit_test(threads_bring_their_error),
        cmocka_unit_test(arena),
        cmocka_unit_test(fail_at_is_thread_safe),
        cmocka_unit_test(threads_share_work_and_tell_of_a_failure),
        cmocka_unit_test(strings),
        cmocka_unit_test(formats),
        cmocka_unit_test(edit_distance),
        cmocka_unit_test(parse_bytes),
        cmocka_unit_test(log_sink),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
