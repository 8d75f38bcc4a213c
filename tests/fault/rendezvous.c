/* The rendezvous port of real processes: where it listens, who is let in, and that the job secret stays one.
 * What strangers can say there is tests/unit/comm/strangers.c. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/file.h"
#include "support/processes.h"
#include "support/workplace.h"

static const char secret[] = "a-secret-of-one-run-0123456789";

/* `more`: words for all processes; `other`: for the last. */
static void start(const struct test_workplace *place, int count, const char *more, const char *other,
                  struct test_processes *processes)
{
    char output[TEST_PATH_BYTES];
    struct test_words words = {0};
    test_words_pair(&words, "model_name_or_path", place->model);
    test_words_pair(&words, "dataset_name", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_pair(&words, "output_dir", test_workplace_path(place, "out", output));
    test_words_add(&words, "threads 1 max_steps 4 save_steps 2 overwrite_output_dir true");
    test_words_add(&words, more);
    test_processes_start(processes, count, NULL, &words, other);
}

static bool listens_at(const char *address, int port, double seconds)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    assert_int_equal(inet_pton(AF_INET, address, &to.sin_addr), 1);
    double deadline = tt_clock_seconds() + seconds;
    do {
        int file = socket(AF_INET, SOCK_STREAM, 0);
        bool good = connect(file, (struct sockaddr *)&to, sizeof to) == 0;
        close(file);
        if (good) return true;
        usleep(20000);
    } while (tt_clock_seconds() < deadline);
    return false;
}

/* 127.0.0.2 is an address of this machine too: who listens at 127.0.0.1 alone is not reached there. */
static void where_it_listens(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        bool elsewhere;
    } cases[] = {{"", false}, {"rendezvous_bind 0.0.0.0", true}, {"rendezvous_bind 127.0.0.2", true}};
    struct test_workplace place;
    test_workplace_create("llama2", &place);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct test_processes processes;
        char words[100];
        snprintf(words, sizeof words, "rendezvous_timeout 100 %s", cases[i].more);
        /* Rank 1 never comes: "nobody" is no setting, and it ends at once. */
        start(&place, 2, words, "nobody here", &processes);
        struct test_program *rank0 = &processes.programs[0];
        assert_true(listens_at(i == 2 ? "127.0.0.2" : "127.0.0.1", processes.port, 60));
        assert_int_equal(listens_at("127.0.0.2", processes.port, 0), cases[i].elsewhere);
        if (i == 2) assert_false(listens_at("127.0.0.1", processes.port, 0));
        assert_int_equal(test_program_wait(&processes.programs[1], 60), 2);
        assert_int_equal(kill(rank0->pid, SIGTERM), 0);
        assert_int_equal(test_program_wait(rank0, 60), 11);
        /* One warning where other machines reach it without a secret. */
        assert_int_equal(test_count_text(rank0->output, "no job secret is set"), i == 1);
    }
    test_workplace_remove(&place);
}

static void an_address_that_is_not_here(void **state)
{
    (void)state;
    struct test_workplace place;
    struct test_processes processes;
    test_workplace_create("llama2", &place);
    start(&place, 2, "rendezvous_timeout 3 rendezvous_bind 192.0.2.1", NULL, &processes);
    assert_int_equal(test_program_wait(&processes.programs[0], 60), 10);
    if (strstr(processes.programs[0].output, "cannot listen at 192.0.2.1 port") == NULL)
        fail_msg("%s", processes.programs[0].output);
    assert_int_equal(test_program_wait(&processes.programs[1], 60), 10);
    test_workplace_remove(&place);
}

/* Fails when a file below the folder has the secret in it. */
static tt_status search(void *context, const char *name)
{
    char path[TEST_PATH_BYTES];
    test_join(context, name, path);
    if (tt_path_is_dir(path)) return tt_dir_list(path, search, path);
    struct tt_str data = {0};
    tt_status status = tt_file_read(path, 256 << 20, &data);
    if (status == TT_OK && memmem(tt_str_text(&data), data.bytes, secret, sizeof secret - 1) != NULL)
        status = tt_fail(TT_ERR_INTERNAL, "%s has the secret", path);
    tt_str_deinit(&data);
    return status;
}

/* Beyond loopback with a secret: no warning, and the secret is in no log, no file of the run, and not in what
 * --print_config prints. */
static void a_run_with_a_secret(void **state)
{
    (void)state;
    struct test_workplace place;
    struct test_processes processes;
    char output[TEST_PATH_BYTES];
    test_workplace_create("llama2", &place);
    assert_int_equal(setenv("TRIMTAB_JOB_SECRET", secret, 1), 0);
    start(&place, 2, "rendezvous_bind 0.0.0.0", NULL, &processes);
    test_processes_expect_ok(&processes);
    for (int q = 0; q < 2; q++) assert_null(strstr(processes.programs[q].output, secret));
    assert_null(strstr(processes.programs[0].output, "no job secret"));
    test_workplace_path(&place, "out", output);
    if (tt_dir_list(output, search, output) != TT_OK) fail_msg("%s", tt_error_last()->message);
    start(&place, 1, "print_config true", NULL, &processes);
    test_processes_expect_ok(&processes);
    assert_non_null(strstr(processes.programs[0].output, "rendezvous_timeout: 300"));
    assert_null(strstr(processes.programs[0].output, secret));
    unsetenv("TRIMTAB_JOB_SECRET");
    test_workplace_remove(&place);
}

/* A process with another secret does not get in, and is told no more than that. */
static void another_secret(void **state)
{
    (void)state;
    struct test_workplace place;
    struct test_processes processes, second;
    test_workplace_create("llama2", &place);
    assert_int_equal(setenv("TRIMTAB_JOB_SECRET", secret, 1), 0);
    start(&place, 2, "rendezvous_timeout 8", "nobody here", &processes);
    assert_int_equal(test_program_wait(&processes.programs[1], 60), 2);
    assert_true(listens_at("127.0.0.1", processes.port, 60));
    assert_int_equal(setenv("TRIMTAB_JOB_SECRET", "quite-another-secret-of-a-run", 1), 0);
    struct test_words command = {0};
    char words[400];
    snprintf(words, sizeof words, "env RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d",
             processes.port);
    test_words_add(&command, words);
    test_words_pair(&command, test_trimtab(), "train"); /* its path may have blanks */
    test_words_add(&command, "--rendezvous_timeout 2 --device cpu --model_name_or_path x --dataset_name y");
    int code = test_program_run(command.list, NULL, &second.programs[0]);
    const char *said = second.programs[0].output;
    if (code != 2 || strstr(said, "its proof of the job secret") == NULL ||
        strstr(said, "quite-another") != NULL)
        fail_msg("%d: %s", code, said);
    assert_int_equal(test_program_wait(&processes.programs[0], 60), 10);
    said = processes.programs[0].output;
    if (strstr(said, "its job secret differs") == NULL || strstr(said, secret) != NULL) fail_msg("%s", said);
    unsetenv("TRIMTAB_JOB_SECRET");
    test_workplace_remove(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_it_listens),
        cmocka_unit_test(an_address_that_is_not_here),
        cmocka_unit_test(a_run_with_a_secret),
        cmocka_unit_test(another_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
