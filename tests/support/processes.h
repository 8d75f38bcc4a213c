/* A run over several processes that find each other by address, as a launcher would start them. A failing system
 * call fails the running test. */
#ifndef TT_TESTS_SUPPORT_PROCESSES_H
#define TT_TESTS_SUPPORT_PROCESSES_H

#include "support/program.h"
#include "support/train_run.h"

enum { TEST_PROCESSES_MAX = 4 };

struct test_processes {
    int count;
    int port;
    struct test_program programs[TEST_PROCESSES_MAX];
};

/* Starts `trimtab train` with `words` and --device cpu, `count` times. Each process is one rank (RANK,
 * WORLD_SIZE, MASTER_ADDR, MASTER_PORT). `machines`: NULL, or one letter per rank; ranks with the same letter
 * claim to be on the same machine. The last process also gets the words of `other` (may be NULL). */
void test_processes_start(struct test_processes *processes, int count, const char *machines,
                          const struct test_words *words, const char *other);
/* The same with one process per machine of `ranks` ranks each (num_machines, machine_rank, ...). */
void test_machines_start(struct test_processes *processes, int count, int ranks,
                         const struct test_words *words);
/* All must end within 120 s without an error. */
void test_processes_expect_ok(struct test_processes *processes);

#endif
