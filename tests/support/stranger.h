/* A stranger at the rendezvous port that speaks its protocol frame by frame, as rank 1 of 2. Nothing here fails
 * the test, because the other side may ignore everything that a stranger sends. */
#ifndef TT_TESTS_SUPPORT_STRANGER_H
#define TT_TESTS_SUPPORT_STRANGER_H

#include "comm/proof.h"
#include "comm/wire.h"

extern const char test_stranger_settings[]; /* the same as in test_tcp_prepare */

struct test_stranger {
    int port;
    struct tt_proof_key key; /* of the stranger's secret; zero: it has none */
    int result;              /* of the function that runs */
};

void test_stranger_say(int file, const void *data, size_t bytes);
/* Whether `bytes` were received before the connection closed and within 20 s. */
bool test_stranger_hear(int file, void *data, size_t bytes);
/* Sends a frame whose header claims `says` bytes, with a payload of `bytes`. */
void test_stranger_say_frame(int file, uint32_t kind, uint64_t says, const void *payload, size_t bytes);
void test_stranger_say_hello(int file, const struct tt_wire_hello *hello, const char *text);
/* Opens a connection up to its hello; -1 when the hub does not agree. */
int test_stranger_enter(const struct test_stranger *stranger, enum tt_proof_role role);
struct tt_wire_hello test_stranger_hello(void);
/* Receives the text of a refusal; "" for another frame or none. */
void test_stranger_hear_refusal(int file, char text[600]);
/* Connects and disconnects as fast as possible, with a few bytes each time, until the port closes; `result` counts. */
tt_status test_stranger_flood(struct test_stranger *stranger);
/* Keeps TEST_STRANGER_CROWD connections that are silent, stop inside `opening` or stop after it. Closed
 * connections are opened again, until the port closes or 40 s have passed; `result` counts. */
enum { TEST_STRANGER_CROWD = 400, TEST_STRANGER_DIAL_SECONDS = 10 };
tt_status test_stranger_crowd(struct test_stranger *stranger, const struct tt_proof *opening);
/* Joins as rank 1; returns the accepted control connection, or -1. */
int test_stranger_join_control(const struct test_stranger *stranger);
/* The same with the data line to rank 0; both members are open, or -1. */
struct test_stranger_rank {
    int control, line;
};
struct test_stranger_rank test_stranger_join(const struct test_stranger *stranger);

#endif
