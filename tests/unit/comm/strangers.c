/* The rendezvous port and whoever reaches it: with a job secret, and without one beyond loopback. The
 * stranger is a program of the test's own, which knows the protocol; it lacks the secret, or the settings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <netinet/in.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "support/port.h"
#include "support/stranger.h"
#include "support/tcp_ranks.h"

enum { CROWD = TEST_STRANGER_CROWD, DIAL_SECONDS = TEST_STRANGER_DIAL_SECONDS };

/* ---- Runs ---- */

static const char job_secret[] = "the secret of this one run", own_run[] = "a name that nobody is told";

static struct tt_proof_key the_key(void)
{
    struct tt_proof_key key;
    assert_int_equal(tt_proof_key_make(job_secret, sizeof job_secret - 1, &key), TT_OK);
    return key;
}

/* Beyond loopback; with `key` (NULL: none) for all processes. */
static void open_to_all(struct test_tcp_process *processes, int count, const struct tt_proof_key *key)
{
    for (int p = 0; p < count; p++) {
        processes[p].config.local = false;
        processes[p].config.bind = "0.0.0.0";
        processes[p].config.key = key;
    }
}

/* A run of two beyond loopback, or at it, one second apart, with a stranger from its beginning: he may cost it nothing.
 * Beyond loopback twice: with a secret, which he does not have, and without. */
static void outlive_at(bool loopback, tt_thread_main *stranger_main, bool secured,
                       struct test_stranger *stranger)
{
    struct test_tcp_process processes[2];
    struct tt_thread *thread = NULL;
    struct tt_proof_key key = the_key();
    uint64_t live = tt_alloc_live();
    test_tcp_prepare(processes, 2, 1, test_tcp_barrier, NULL);
    if (!loopback) open_to_all(processes, 2, secured ? &key : NULL);
    for (int p = 0; p < 2; p++) processes[p].config.run = own_run;
    processes[1].delay = 1.0;
    processes[0].config.timeout_seconds = processes[1].config.timeout_seconds = 60;
    *stranger = (struct test_stranger){.port = processes[0].config.port};
    double begin = tt_clock_seconds();
    assert_int_equal(tt_thread_start("stranger", stranger_main, stranger, &thread), TT_OK);
    test_tcp_run(processes, 2);
    double seconds = tt_clock_seconds() - begin;
    assert_int_equal(tt_thread_join(thread), TT_OK);
    test_tcp_expect_ok(processes, 2);
    if (seconds > 30) fail_msg("the run waited for %.1f s", seconds);
    assert_true(tt_alloc_live() == live);
}

static void outlive(tt_thread_main *stranger_main, bool secured, struct test_stranger *stranger)
{
    outlive_at(false, stranger_main, secured, stranger);
}

static void outlive_both(tt_thread_main *stranger_main)
{
    struct test_stranger stranger;
    outlive(stranger_main, true, &stranger);
    outlive(stranger_main, false, &stranger);
}

static void outlive_everywhere(tt_thread_main *stranger_main)
{
    struct test_stranger stranger;
    outlive_both(stranger_main);
    outlive_at(true, stranger_main, false, &stranger);
}

/* ---- Bytes ---- */

static tt_status send_nonsense(void *argument)
{
    const struct test_stranger *stranger = argument;
    static const char request[] =
        "GET / HTTP/1.1\r\nHost: example\r\nUser-Agent: somebody, 0123456789 0123456789\r\n\r\n";
    char noise[512];
    int files[12];
    struct tt_proof proof;
    memset(noise, 0xff, sizeof noise);
    for (int i = 0; i < 12; i++) files[i] = test_dial(stranger->port, DIAL_SECONDS);
    test_stranger_say(files[0], request, sizeof request);
    test_stranger_say(files[1], "tri", 3);
    test_stranger_say(files[2], noise, sizeof noise);
    tt_proof_open(&stranger->key, TT_PROOF_CONTROL, &proof);
    test_stranger_say(files[3], &proof.opening, sizeof proof.opening - 1);
    for (int i = 4; i < 12; i++) {
        struct tt_proof other = proof;
        if (i == 4) other.opening.role = 99;
        test_stranger_say(files[i], &other.opening, sizeof other.opening);
    }
    struct tt_wire_hello hello = test_stranger_hello();
    test_stranger_say(files[5], noise, sizeof noise);
    test_stranger_say_frame(files[6], TT_WIRE_HELLO, UINT64_MAX, &hello, sizeof hello);
    test_stranger_say_frame(files[7], TT_WIRE_PLACE, 4, "here", 4);
    test_stranger_say_frame(files[8], TT_WIRE_HELLO, 3, "abc", 3);
    test_stranger_say_frame(files[9], TT_WIRE_ABORT, sizeof(struct tt_error), noise, sizeof noise);
    test_stranger_say_frame(files[10], TT_WIRE_BYE, 0, NULL, 0);
    hello.first_rank = INT32_MAX;
    hello.local_count = INT32_MAX;
    test_stranger_say_hello(files[11], &hello, test_stranger_settings);
    test_sleep(0.3);
    for (int i = 0; i < 12; i++) close(files[i]);
    return TT_OK;
}

static void nonsense(void **state)
{
    (void)state;
    outlive_both(send_nonsense);
}

static tt_status be_of_another_version(void *argument)
{
    struct test_stranger *stranger = argument;
    char text[600];
    int file = test_stranger_enter(stranger, TT_PROOF_CONTROL);
    struct tt_wire_hello hello = test_stranger_hello();
    strcpy(hello.version, "0.0.1");
    test_stranger_say_hello(file, &hello, test_stranger_settings);
    test_stranger_hear_refusal(file, text);
    stranger->result = strstr(text, "this process 0.0.1") != NULL;
    close(file);
    return TT_OK;
}

static void another_version(void **state)
{
    (void)state;
    struct test_stranger stranger;
    outlive(be_of_another_version, false, &stranger);
    assert_int_equal(stranger.result, 1);
}

/* ---- Many and slow ---- */

/* More connections than there is room for. */
static tt_status be_slow(void *argument)
{
    struct test_stranger *stranger = argument;
    struct tt_proof proof;
    tt_proof_open(&stranger->key, TT_PROOF_CONTROL, &proof);
    return test_stranger_crowd(stranger, &proof);
}

static void slow_connections(void **state)
{
    (void)state;
    outlive_both(be_slow);
}

static tt_status flood(void *argument)
{
    return test_stranger_flood(argument);
}

/* The port closes with the rendezvous, which ends the flood: the thread of the stranger comes to its end. */
static void flooded(void **state)
{
    (void)state;
    struct test_stranger stranger;
    outlive(flood, true, &stranger);
    assert_true(stranger.result > 1);
    outlive(flood, false, &stranger);
    assert_true(stranger.result > 1);
}

/* A process that may open few descriptors: strangers do not take those that its ranks need. The run is a
 * child, since limits cannot be raised again. */
static void few_descriptors(void **state)
{
    (void)state;
    enum { DESCRIPTORS = 80 };
    struct test_tcp_process processes[2];
    test_tcp_prepare(processes, 2, 1, test_tcp_barrier, NULL);
    open_to_all(processes, 2, NULL);
    processes[1].delay = 1.0;
    struct test_stranger stranger = {.port = processes[0].config.port};
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit few = {DESCRIPTORS, DESCRIPTORS};
        if (setrlimit(RLIMIT_NOFILE, &few) != 0) _exit(2);
        test_tcp_run(processes, 2);
        for (int p = 0; p < 2; p++)
            if (processes[p].status != TT_OK)
                fprintf(stderr, "process %d: %s\n", p, processes[p].error.message);
        _exit(processes[0].status != TT_OK || processes[1].status != TT_OK);
    }
    assert_int_equal(be_slow(&stranger), TT_OK);
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

/* ---- Places of ranks ---- */

/* Data lines do not begin here: comm/lines.c. */
static tt_status open_for_data(void *argument)
{
    struct test_stranger *stranger = argument;
    struct tt_wire_hello hello = test_stranger_hello();
    char text[600] = "";
    int file = test_stranger_enter(stranger, TT_PROOF_DATA);
    if (file < 0) return TT_OK;
    test_stranger_say_hello(file, &hello, test_stranger_settings);
    test_stranger_hear_refusal(file, text);
    stranger->result = strstr(text, "opened for another purpose") != NULL;
    close(file);
    return TT_OK;
}

static void a_connection_for_data(void **state)
{
    (void)state;
    struct test_stranger stranger;
    outlive(open_for_data, false, &stranger);
    assert_int_equal(stranger.result, 1);
    outlive(open_for_data, true, &stranger);
    assert_int_equal(stranger.result, 0); /* not even an answer */
}

/* Other settings: he is refused without having learned ours. */
static tt_status guess_settings(void *argument)
{
    struct test_stranger *stranger = argument;
    struct tt_wire_hello hello = test_stranger_hello();
    char text[600] = "";
    int file = test_stranger_enter(stranger, TT_PROOF_CONTROL);
    if (file < 0) return TT_OK;
    test_stranger_say_hello(file, &hello, "command: train\nlearning_rate: 0.7\n");
    test_stranger_hear_refusal(file, text);
    close(file);
    TEST_RANK_CHECK(strstr(text, "learning_rate") != NULL && strstr(text, "0.1") == NULL);
    return TT_OK;
}

static void settings_are_guessed(void **state)
{
    (void)state;
    outlive_everywhere(guess_settings);
}

/* Of another run, or of a later attempt, for which a rank 0 of the run itself would make room. */
static tt_status claim_another_start(void *argument)
{
    struct test_stranger *stranger = argument;
    for (int later = 0; later < 2; later++) {
        struct tt_wire_hello hello = test_stranger_hello();
        char text[600] = "";
        int file = test_stranger_enter(stranger, TT_PROOF_CONTROL);
        if (file < 0) return TT_OK;
        hello.attempt = later ? 7 : 0;
        if (!later) strcpy(hello.run, "another");
        test_stranger_say_hello(file, &hello, test_stranger_settings);
        test_stranger_hear_refusal(file, text);
        close(file);
        TEST_RANK_CHECK(strstr(text, later ? "attempt 7 has begun" : "of another run") != NULL &&
                        strstr(text, own_run) == NULL);
    }
    return TT_OK;
}

static void another_start_is_claimed(void **state)
{
    (void)state;
    outlive_everywhere(claim_another_start);
}

/* ---- The secret ---- */

/* All that rank 0 says to one who does not have the secret: its challenge. */
static tt_status listen_only(void *argument)
{
    struct test_stranger *stranger = argument;
    enum { WAYS = 3 };
    int files[WAYS];
    struct tt_wire_hello hello = test_stranger_hello();
    for (int way = 0; way < WAYS; way++) {
        struct tt_proof proof;
        struct tt_proof_key claims = {.is_set = way > 0};
        const char guess[TT_PROOF_SUM_BYTES] = "";
        files[way] = test_dial(stranger->port, DIAL_SECONDS);
        TEST_RANK_CHECK(files[way] >= 0);
        tt_proof_open(&claims, TT_PROOF_CONTROL, &proof);
        test_stranger_say(files[way], &proof.opening, sizeof proof.opening);
        if (way == 2) test_stranger_say(files[way], guess, sizeof guess);
        if (way != 1) test_stranger_say_hello(files[way], &hello, test_stranger_settings);
    }
    test_sleep(0.7); /* for all that it may say */
    for (int way = 0; way < WAYS; way++) {
        char heard[4096];
        ssize_t bytes = recv(files[way], heard, sizeof heard, MSG_DONTWAIT);
        close(files[way]);
        TEST_RANK_CHECK(bytes == (ssize_t)sizeof(struct tt_proof_challenge));
    }
    stranger->result = 1;
    return TT_OK;
}

static void nothing_before_the_proof(void **state)
{
    (void)state;
    struct test_stranger stranger;
    outlive(listen_only, true, &stranger);
    assert_int_equal(stranger.result, 1);
}

/* Opening and sum of a member, as somebody who listened has them, on a new connection. */
static tt_status replay(void *argument)
{
    struct test_stranger *stranger = argument;
    struct tt_proof proof, again;
    unsigned char sum[TT_PROOF_SUM_BYTES];
    struct tt_proof_key key;
    TT_TRY(tt_proof_key_make(job_secret, sizeof job_secret - 1, &key));
    int member = test_dial(stranger->port, DIAL_SECONDS);
    tt_proof_open(&key, TT_PROOF_CONTROL, &proof);
    test_stranger_say(member, &proof.opening, sizeof proof.opening);
    TEST_RANK_CHECK(test_stranger_hear(member, &proof.challenge, sizeof proof.challenge));
    tt_proof_sum(&key, &proof, TT_PROOF_OPENER, sum);
    int file = test_dial(stranger->port, DIAL_SECONDS);
    again = proof;
    test_stranger_say(file, &again.opening, sizeof again.opening);
    TEST_RANK_CHECK(test_stranger_hear(file, &again.challenge, sizeof again.challenge));
    test_stranger_say(file, sum, sizeof sum);
    unsigned char answer[TT_PROOF_SUM_BYTES];
    TEST_RANK_CHECK(!test_stranger_hear(file, answer, sizeof answer)); /* closed */
    test_stranger_say(member, sum, sizeof sum);
    TEST_RANK_CHECK(test_stranger_hear(member, answer, sizeof answer)); /* where it was made for it serves */
    close(file);
    close(member);
    stranger->result = 1;
    return TT_OK;
}

static void a_proof_is_replayed(void **state)
{
    (void)state;
    struct test_stranger stranger;
    outlive(replay, true, &stranger);
    assert_int_equal(stranger.result, 1);
}

/* Six runs at the same time. */
static void secrets_that_differ(void **state)
{
    (void)state;
    struct tt_proof_key key = the_key(), other;
    assert_int_equal(tt_proof_key_make("another secret, as long", 23, &other), TT_OK);
    const struct tt_proof_key *pairs[3][2] = {{&key, &other}, {&key, NULL}, {NULL, &key}};
    const char *words[] = {"closed the connection before it sent its proof of the job secret",
                           "has a job secret, and this process has none",
                           "has no job secret, and this process has one"};
    enum { ROUNDS = 6 };
    struct test_tcp_process processes[2 * ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        struct test_tcp_process *both = &processes[2 * round];
        test_tcp_prepare(both, 2, 1, test_tcp_barrier, NULL);
        open_to_all(both, 2, NULL);
        for (int p = 0; p < 2; p++) both[p].config.key = pairs[round % 3][p];
        both[0].config.timeout_seconds = 3;
        /* While rank 0 is still there, or when it has ended already. */
        both[1].config.timeout_seconds = round < 3 ? 1.5 : 5;
    }
    test_tcp_run(processes, 2 * ROUNDS);
    for (int round = 0; round < ROUNDS; round++) {
        const struct test_tcp_process *both = &processes[2 * round];
        test_tcp_expect(&both[0], TT_ERR_COMM, "rank 1 of 2 did not connect");
        test_tcp_expect(&both[1], TT_ERR_USAGE, words[round % 3]);
        assert_non_null(strstr(both[1].error.hint, "must be the same for all processes"));
        assert_null(strstr(both[1].error.message, job_secret));
    }
}

/* Somebody else listens where rank 0 will: he hears nothing worth hearing, and rank 1 tries again until it is
 * rank 0. */
static tt_status be_rank_0(void *argument)
{
    struct test_stranger *stranger = argument;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)stranger->port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    TEST_RANK_CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 &&
                    listen(listener, 8) == 0);
    struct timeval patience = {.tv_sec = 10};
    (void)setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    for (int way = 0; way < 3; way++) {
        char heard[4096];
        struct tt_proof proof;
        int file = accept(listener, NULL, NULL);
        TEST_RANK_CHECK(file >= 0 && test_stranger_hear(file, &proof.opening, sizeof proof.opening));
        struct tt_proof_key claims = {.is_set = true};
        if (way == 0) test_stranger_say(file, "no challenge, but as long as one; 0123456789 0123456789", 48);
        TEST_RANK_CHECK(tt_proof_answer(&claims, &proof));
        if (way > 0) test_stranger_say(file, &proof.challenge, sizeof proof.challenge);
        if (way > 0) TEST_RANK_CHECK(test_stranger_hear(file, heard, TT_PROOF_SUM_BYTES));
        if (way > 1) test_stranger_say(file, heard, TT_PROOF_SUM_BYTES); /* reflected */
        if (way > 1) TEST_RANK_CHECK(recv(file, heard, sizeof heard, 0) <= 0);
        close(file);
    }
    close(listener);
    stranger->result = 1;
    return TT_OK;
}

static void somebody_else_listens(void **state)
{
    (void)state;
    struct test_tcp_process processes[2];
    struct tt_thread *thread = NULL;
    struct tt_proof_key key = the_key();
    test_tcp_prepare(processes, 2, 1, test_tcp_barrier, NULL);
    for (int p = 0; p < 2; p++) processes[p].config.key = &key;
    processes[0].config.timeout_seconds = processes[1].config.timeout_seconds = 60;
    processes[0].delay = 3;
    processes[1].delay = 0.2;
    struct test_stranger stranger = {.port = processes[0].config.port};
    assert_int_equal(tt_thread_start("rank 0", be_rank_0, &stranger, &thread), TT_OK);
    test_tcp_run(processes, 2);
    assert_int_equal(tt_thread_join(thread), TT_OK);
    assert_int_equal(stranger.result, 1);
    test_tcp_expect_ok(processes, 2);
}

/* Takes the place of rank 0 without a secret, up to the end of the proof; *out: the connection of rank 1. */
static tt_status take_its_place(const struct test_stranger *stranger, int *out)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)stranger->port)};
    struct tt_proof_key none = {0};
    struct tt_proof proof;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    TEST_RANK_CHECK(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 &&
                    listen(listener, 8) == 0);
    int file = *out = accept(listener, NULL, NULL);
    close(listener);
    TEST_RANK_CHECK(file >= 0 && test_stranger_hear(file, &proof.opening, sizeof proof.opening));
    TEST_RANK_CHECK(tt_proof_answer(&none, &proof));
    test_stranger_say(file, &proof.challenge, sizeof proof.challenge);
    return TT_OK;
}

/* Without a secret somebody in the place of rank 0 can keep rank 1 waiting, until its time is over and no
 * longer: also when something comes all the time. */
static tt_status beat_for_ever(void *argument)
{
    struct test_stranger *stranger = argument;
    struct tt_wire_header beats[64];
    int file;
    for (size_t i = 0; i < 64; i++)
        beats[i] = (struct tt_wire_header){.magic = TT_WIRE_MAGIC, .kind = TT_WIRE_BEAT};
    TT_TRY(take_its_place(stranger, &file));
    double end = tt_clock_seconds() + 60;
    while (send(file, beats, sizeof beats, MSG_NOSIGNAL) > 0 && tt_clock_seconds() < end) stranger->result++;
    close(file);
    return tt_clock_seconds() < end ? TT_OK : TT_ERR_COMM; /* rank 1 has closed it */
}

/* Rank 0 has accepted rank 1, and ends before all ranks have met. */
static tt_status accept_and_end(void *argument)
{
    struct tt_wire_accept accepted = {0};
    struct tt_wire_header header = {.magic = TT_WIRE_MAGIC, .kind = TT_WIRE_ACCEPT, .bytes = sizeof accepted};
    int file;
    TT_TRY(take_its_place(argument, &file));
    test_stranger_say(file, &header, sizeof header);
    test_stranger_say(file, &accepted, sizeof accepted);
    test_sleep(0.3);
    close(file);
    return TT_OK;
}

static void rank_0_is_lost(void **state)
{
    (void)state;
    struct test_tcp_process processes[2];
    struct tt_thread *thread = NULL;
    test_tcp_prepare(processes, 2, 1, test_tcp_barrier, NULL);
    struct test_stranger stranger = {.port = processes[1].config.port};
    assert_int_equal(tt_thread_start("rank 0", accept_and_end, &stranger, &thread), TT_OK);
    processes[1].delay = 0.2;
    test_tcp_run(processes + 1, 1);
    assert_int_equal(tt_thread_join(thread), TT_OK);
    test_tcp_expect(&processes[1], TT_ERR_COMM,
                    "closed the connection before it sent the addresses of all ranks");
    assert_non_null(strstr(processes[1].error.hint, "its log says why"));
}

static void somebody_else_keeps_talking(void **state)
{
    (void)state;
    struct test_tcp_process processes[2];
    struct tt_thread *thread = NULL;
    test_tcp_prepare(processes, 2, 1, test_tcp_barrier, NULL);
    processes[1].config.timeout_seconds = 2;
    struct test_stranger stranger = {.port = processes[1].config.port};
    assert_int_equal(tt_thread_start("rank 0", beat_for_ever, &stranger, &thread), TT_OK);
    processes[1].delay = 0.2;
    test_tcp_run(processes + 1, 1);
    assert_int_equal(tt_thread_join(thread), TT_OK);
    assert_true(stranger.result > 0);
    test_tcp_expect(&processes[1], TT_ERR_COMM, "did not send its acceptance of this process in time");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nonsense),
        cmocka_unit_test(another_version),
        cmocka_unit_test(slow_connections),
        cmocka_unit_test(flooded),
        cmocka_unit_test(few_descriptors),
        cmocka_unit_test(a_connection_for_data),
        cmocka_unit_test(settings_are_guessed),
        cmocka_unit_test(another_start_is_claimed),
        cmocka_unit_test(nothing_before_the_proof),
        cmocka_unit_test(a_proof_is_replayed),
        cmocka_unit_test(secrets_that_differ),
        cmocka_unit_test(somebody_else_listens),
        cmocka_unit_test(somebody_else_keeps_talking),
        cmocka_unit_test(rank_0_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
