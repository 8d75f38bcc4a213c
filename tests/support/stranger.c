#include "support/stranger.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/lines.h"
#include "support/port.h"
#include "support/tcp_ranks.h"

enum { DIAL_SECONDS = 10, HEAR_SECONDS = 20 };

const char test_stranger_settings[] = "command: train\nlearning_rate: 0.1\nseed: 1\n";

void test_stranger_say(int file, const void *data, size_t bytes)
{
    (void)!send(file, data, bytes, MSG_NOSIGNAL);
}

bool test_stranger_hear(int file, void *data, size_t bytes)
{
    struct timeval patience = {.tv_sec = HEAR_SECONDS};
    (void)setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return recv(file, data, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

void test_stranger_say_frame(int file, uint32_t kind, uint64_t says, const void *payload, size_t bytes)
{
    struct tt_wire_header header = {.magic = TT_WIRE_MAGIC, .kind = kind, .bytes = says};
    test_stranger_say(file, &header, sizeof header);
    if (bytes > 0) test_stranger_say(file, payload, bytes);
}

void test_stranger_say_hello(int file, const struct tt_wire_hello *hello, const char *text)
{
    char both[sizeof *hello + 200];
    memcpy(both, hello, sizeof *hello);
    memcpy(both + sizeof *hello, text, strlen(text));
    test_stranger_say_frame(file, TT_WIRE_HELLO, sizeof *hello + strlen(text), both,
                            sizeof *hello + strlen(text));
}

/* Authenticates on a new connection; -1 when the other side does not agree. */
static int prove(int port, const struct tt_proof_key *key, enum tt_proof_role role)
{
    struct tt_proof proof;
    unsigned char sum[TT_PROOF_SUM_BYTES];
    int file = test_dial(port, DIAL_SECONDS);
    if (file < 0) return -1;
    tt_proof_open(key, role, &proof);
    test_stranger_say(file, &proof.opening, sizeof proof.opening);
    bool good = test_stranger_hear(file, &proof.challenge, sizeof proof.challenge) &&
                proof.challenge.secured == (uint32_t)key->is_set;
    if (good && key->is_set) {
        tt_proof_sum(key, &proof, TT_PROOF_OPENER, sum);
        test_stranger_say(file, sum, sizeof sum);
        good =
            test_stranger_hear(file, sum, sizeof sum) && tt_proof_verify(key, &proof, TT_PROOF_ACCEPTER, sum);
    }
    if (good) return file;
    close(file);
    return -1;
}

int test_stranger_enter(const struct test_stranger *stranger, enum tt_proof_role role)
{
    return prove(stranger->port, &stranger->key, role);
}

struct tt_wire_hello test_stranger_hello(void)
{
    return tt_wire_hello_make(
        &(struct tt_tcp_config){.world_size = 2, .first_rank = 1, .local_count = 1, .machine = "odd"});
}

void test_stranger_hear_refusal(int file, char text[600])
{
    struct tt_wire_header header = {0};
    memset(text, 0, 600);
    if (test_stranger_hear(file, &header, sizeof header) && header.kind == TT_WIRE_REFUSE &&
        header.bytes < 600)
        (void)!test_stranger_hear(file, text, (size_t)header.bytes);
}

int test_stranger_join_control(const struct test_stranger *stranger)
{
    struct tt_wire_header header = {0};
    struct tt_wire_accept accept;
    struct tt_wire_hello hello = test_stranger_hello();
    int file = test_stranger_enter(stranger, TT_PROOF_CONTROL);
    if (file < 0) return -1;
    test_stranger_say_hello(file, &hello, test_stranger_settings);
    if (test_stranger_hear(file, &header, sizeof header) && header.kind == TT_WIRE_ACCEPT &&
        test_stranger_hear(file, &accept, sizeof accept))
        return file;
    close(file);
    return -1;
}

/* Receives the next frame that is not a beat, of `bytes`. */
static bool hear_frame(int file, uint32_t kind, void *payload, size_t bytes)
{
    struct tt_wire_header header;
    do
        if (!test_stranger_hear(file, &header, sizeof header)) return false;
    while (header.kind == TT_WIRE_BEAT);
    return header.kind == kind && header.bytes == bytes && test_stranger_hear(file, payload, bytes);
}

struct test_stranger_rank test_stranger_join(const struct test_stranger *stranger)
{
    struct test_stranger_rank rank = {test_stranger_join_control(stranger), -1};
    struct tt_wire_address place = {.family = TT_WIRE_SAME, .port = 9}; /* nobody calls the highest rank */
    struct tt_line_hello hello = {.magic = TT_WIRE_MAGIC, .from = 1, .to = 0};
    struct tt_wire_welcome welcome;
    struct tt_wire_rank rank0;
    char both[sizeof welcome + 2 * sizeof rank0];
    struct tt_proof_key key;
    test_stranger_say_frame(rank.control, TT_WIRE_PLACE, sizeof place, &place, sizeof place);
    if (!hear_frame(rank.control, TT_WIRE_WELCOME, both, sizeof both)) return rank;
    memcpy(&welcome, both, sizeof welcome);
    memcpy(&rank0, both + sizeof welcome, sizeof rank0);
    tt_proof_key_of_run(&stranger->key, welcome.key, &key);
    rank.line = prove(rank0.place.port, &key, TT_PROOF_DATA);
    if (rank.line >= 0) test_stranger_say(rank.line, &hello, sizeof hello);
    return rank;
}

/* Retries the first connection until the port is open. */
static int dial_again(const struct test_stranger *stranger)
{
    return test_dial(stranger->port, stranger->result == 0 ? TEST_STRANGER_DIAL_SECONDS : 0);
}

tt_status test_stranger_flood(struct test_stranger *stranger)
{
    for (int file; (file = dial_again(stranger)) >= 0;) {
        test_stranger_say(file, "trimtrim", 8);
        close(file);
        stranger->result++;
    }
    return TT_OK;
}

tt_status test_stranger_crowd(struct test_stranger *stranger, const struct tt_proof *opening)
{
    int *files = tt_calloc(TEST_STRANGER_CROWD, sizeof *files);
    if (files == NULL) return TT_ERR_MEMORY;
    bool is_open = true;
    for (int i = 0; i < TEST_STRANGER_CROWD; i++) files[i] = -1;
    for (double end = tt_clock_seconds() + 40; is_open && tt_clock_seconds() < end; test_sleep(0.02)) {
        for (int i = 0; i < TEST_STRANGER_CROWD && is_open; i++) {
            char byte;
            if (files[i] >= 0 && recv(files[i], &byte, 1, MSG_DONTWAIT) != 0) continue;
            if (files[i] >= 0) close(files[i]);
            files[i] = dial_again(stranger);
            is_open = files[i] >= 0;
            stranger->result += is_open;
            if (is_open && i % 3 == 1) test_stranger_say(files[i], &opening->opening, 7);
            if (is_open && i % 3 == 2)
                test_stranger_say(files[i], &opening->opening, sizeof opening->opening);
        }
    }
    for (int i = 0; i < TEST_STRANGER_CROWD; i++)
        if (files[i] >= 0) close(files[i]);
    tt_free(files);
    return TT_OK;
}
