#include "support/stranger.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "support/port.h"

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

int test_stranger_enter(const struct test_stranger *stranger, enum tt_proof_role role)
{
    struct tt_proof proof;
    unsigned char sum[TT_PROOF_SUM_BYTES];
    int file = test_dial(stranger->port, DIAL_SECONDS);
    if (file < 0) return -1;
    tt_proof_open(&stranger->key, role, &proof);
    test_stranger_say(file, &proof.opening, sizeof proof.opening);
    bool good = test_stranger_hear(file, &proof.challenge, sizeof proof.challenge) &&
                proof.challenge.secured == (uint32_t)stranger->key.is_set;
    if (good && stranger->key.is_set) {
        tt_proof_sum(&stranger->key, &proof, TT_PROOF_OPENER, sum);
        test_stranger_say(file, sum, sizeof sum);
        good = test_stranger_hear(file, sum, sizeof sum) &&
               tt_proof_verify(&stranger->key, &proof, TT_PROOF_ACCEPTER, sum);
    }
    if (good) return file;
    close(file);
    return -1;
}

struct tt_wire_hello test_stranger_hello_of(int rank)
{
    return tt_wire_hello_make(2, 1, 1, rank, "odd");
}

void test_stranger_hear_refusal(int file, char text[600])
{
    struct tt_wire_header header = {0};
    memset(text, 0, 600);
    if (test_stranger_hear(file, &header, sizeof header) && header.kind == TT_WIRE_REFUSE &&
        header.bytes < 600)
        (void)!test_stranger_hear(file, text, (size_t)header.bytes);
}

int test_stranger_join_control(const struct test_stranger *stranger, struct tt_wire_accept *accept)
{
    struct tt_wire_header header = {0};
    struct tt_wire_hello hello = test_stranger_hello_of(-1);
    int file = test_stranger_enter(stranger, TT_PROOF_CONTROL);
    if (file < 0) return -1;
    test_stranger_say_hello(file, &hello, test_stranger_settings);
    if (test_stranger_hear(file, &header, sizeof header) && header.kind == TT_WIRE_ACCEPT &&
        test_stranger_hear(file, accept, sizeof *accept))
        return file;
    close(file);
    return -1;
}
