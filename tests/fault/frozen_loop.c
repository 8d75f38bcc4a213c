/* A training whose loop stands still: /healthz tells, while the process lives and answers; the run then goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "support/port.h"
#include "support/train_run.h"
#include "support/workplace.h"

enum { FROZEN_STEP = 3 };

struct watched {
    int port;
    char health[400], ready[400];
};

static void get(int port, const char *path, char *answer, size_t answer_bytes)
{
    char request[100];
    size_t bytes = 0;
    ssize_t got;
    int line = test_dial(port, 10);
    assert_true(line >= 0);
    int request_bytes = snprintf(request, sizeof request,
                                 "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    assert_int_equal(write(line, request, (size_t)request_bytes), request_bytes);
    while (bytes < answer_bytes - 1 && (got = read(line, answer + bytes, answer_bytes - 1 - bytes)) > 0)
        bytes += (size_t)got;
    answer[bytes] = '\0';
    close(line);
}

/* The loop waits for its observer, longer than hang_seconds. */
static void freeze_once(void *context, const struct tt_progress *progress)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    struct watched *watched = context;
    if (progress->step != FROZEN_STEP) return;
    for (int i = 0; i < 400 && strstr(watched->health, " 503 ") == NULL; i++) {
        get(watched->port, "/healthz", watched->health, sizeof watched->health);
        nanosleep(&pause, NULL);
    }
    get(watched->port, "/readyz", watched->ready, sizeof watched->ready);
}

static void frozen_loop(void **state)
{
    struct test_workplace place;
    struct tt_train_summary summary;
    struct watched watched = {.port = test_free_port()};
    struct tt_train_observer observer = {.context = &watched, .on_progress = freeze_once};
    char output[TEST_PATH_BYTES], data[TEST_PATH_BYTES], port[16];
    (void)state;
    test_workplace_create("qwen2", &place);
    test_workplace_path(&place, "out", output);
    test_workplace_write(&place, "train.jsonl", "{\"text\": \"one two\"}\n{\"text\": \"three four\"}\n",
                         data);
    snprintf(port, sizeof port, "%d", watched.port);
    const char *const pairs[] = {
        "model_name_or_path", place.model, "dataset_name", data, "max_steps", "5",    "device", "cpu",
        "hang_seconds",       "0.3",       "metrics_port", port, "report_to", "none", NULL};
    tt_status status = test_train_watched(pairs, output, &observer, NULL, &summary);
    assert_int_equal(status, TT_OK);
    assert_int_equal(summary.steps, 5);
    assert_non_null(strstr(watched.health, " 503 "));
    assert_non_null(strstr(watched.health, "while training after step 3"));
    assert_non_null(strstr(watched.ready, " 200 "));
    assert_int_equal(test_dial(watched.port, 0), -1); /* the endpoints end with the run */
    test_workplace_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(frozen_loop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
