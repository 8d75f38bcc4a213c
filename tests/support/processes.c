#include "support/processes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "support/port.h"

static void start(struct test_processes *processes, int index, const char *environment,
                  const struct test_words *words)
{
    struct test_words command = {0};
    test_words_add(&command, "env");
    test_words_add(&command, environment);
    test_words_command(&command, test_trimtab(), "train", words);
    test_program_start(command.list, NULL, &processes->programs[index]);
}

/* Copies word by word, because the list has pointers into itself. */
static void copy_words(struct test_words *to, const struct test_words *from)
{
    *to = (struct test_words){0};
    for (int i = 0; i + 1 < from->count; i += 2) test_words_pair(to, from->list[i], from->list[i + 1]);
    test_words_add(to, "device cpu");
}

void test_processes_start(struct test_processes *processes, int count, const char *machines,
                          const struct test_words *words, const char *other)
{
    assert_in_range(count, 1, TEST_PROCESSES_MAX);
    processes->count = count;
    processes->port = test_free_port();
    for (int q = 0; q < count; q++) {
        char environment[256];
        struct test_words all;
        snprintf(environment, sizeof environment,
                 "RANK=%d WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d TRIMTAB_NODE=%c", q, count,
                 processes->port, machines != NULL ? machines[q] : 'a');
        copy_words(&all, words);
        if (other != NULL && q == count - 1) test_words_add(&all, other);
        start(processes, q, environment, &all);
    }
}

void test_machines_start(struct test_processes *processes, int count, int ranks,
                         const struct test_words *words)
{
    assert_in_range(count, 1, TEST_PROCESSES_MAX);
    processes->count = count;
    processes->port = test_free_port();
    for (int m = 0; m < count; m++) {
        char launch[256];
        struct test_words all;
        snprintf(launch, sizeof launch,
                 "num_machines %d machine_rank %d main_process_ip 127.0.0.1 main_process_port %d ranks %d",
                 count, m, processes->port, ranks);
        copy_words(&all, words);
        test_words_add(&all, launch);
        start(processes, m, "-u RANK", &all);
    }
}

void test_processes_expect_ok(struct test_processes *processes)
{
    for (int q = 0; q < processes->count; q++) {
        struct test_program *program = &processes->programs[q];
        int code = test_program_wait(program, TEST_RUN_SECONDS);
        if (code != 0) fail_msg("process %d ends with %d: %s", q, code, program->output);
    }
}
