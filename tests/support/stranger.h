/* Somebody at the rendezvous port who speaks its protocol by hand, frame by frame, as rank 1 of 2. Nothing
 * here fails the test: what he says may find no ear. */
#ifndef TT_TESTS_SUPPORT_STRANGER_H
#define TT_TESTS_SUPPORT_STRANGER_H

#include "comm/proof.h"
#include "comm/wire.h"

extern const char test_stranger_settings[]; /* those of test_tcp_prepare */

struct test_stranger {
    int port;
    struct tt_proof_key key; /* of the secret that he has; zero: none */
    int result;              /* of whatever he tries */
};

void test_stranger_say(int file, const void *data, size_t bytes);
/* Whether `bytes` came before the end of the connection, or 20 s. */
bool test_stranger_hear(int file, void *data, size_t bytes);
/* A frame that claims `says` bytes and brings `bytes`. */
void test_stranger_say_frame(int file, uint32_t kind, uint64_t says, const void *payload, size_t bytes);
void test_stranger_say_hello(int file, const struct tt_wire_hello *hello, const char *text);
/* A connection up to its hello; -1 when the hub did not agree. */
int test_stranger_enter(const struct test_stranger *stranger, enum tt_proof_role role);
struct tt_wire_hello test_stranger_hello(void);
/* The text of a refusal, "" when another frame or nothing comes. */
void test_stranger_hear_refusal(int file, char text[600]);
/* Comes and goes as fast as it can, with a few bytes each time, until the port is closed; `result` counts. */
tt_status test_stranger_flood(struct test_stranger *stranger);
/* Keeps TEST_STRANGER_CROWD connections that are silent, stop amid `opening` or stop after it; connections that are
 * closed are opened again, until the port is closed or 40 s have passed; `result` counts. */
enum { TEST_STRANGER_CROWD = 400, TEST_STRANGER_DIAL_SECONDS = 10 };
tt_status test_stranger_crowd(struct test_stranger *stranger, const struct tt_proof *opening);
/* The place of rank 1: its control connection, accepted; -1. */
int test_stranger_join_control(const struct test_stranger *stranger);
/* And then its data line to rank 0; both are there, or -1. */
struct test_stranger_rank {
    int control, line;
};
struct test_stranger_rank test_stranger_join(const struct test_stranger *stranger);

#endif
