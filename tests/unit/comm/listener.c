/* comm/listener.h: a candidate whose side alone has a job secret, or has none, goes no further. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "comm/listener.h"

static void secrets_of_both_sides(void **state)
{
    (void)state;
    struct tt_proof_key keys[2] = {{0}, {0}};
    assert_int_equal(tt_proof_key_make("sixteen bytes or more", 21, &keys[1]), TT_OK);
    for (int own = 0; own < 2; own++)
        for (int other = 0; other < 2; other++) {
            int sockets[2];
            struct tt_proof proof;
            struct tt_candidate candidate;
            struct tt_listener listener = {.key = &keys[own], .no_key = "none", .other_key = "another"};
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets), 0);
            tt_candidate_init(&candidate, sockets[0], 1);
            tt_proof_open(&keys[other], TT_PROOF_CONTROL, &proof);
            assert_int_equal(tt_candidate_read(&listener, &candidate, 1), TT_CANDIDATE_WAITS);
            assert_int_equal(write(sockets[1], &proof.opening, sizeof proof.opening), sizeof proof.opening);
            assert_int_equal(tt_candidate_read(&listener, &candidate, 1),
                             own == other ? TT_CANDIDATE_PROGRESS : TT_CANDIDATE_KEY_MISMATCH);
            assert_int_equal(listener.strangers, own != other);
            if (own == other) assert_int_equal(candidate.stage, own ? TT_CANDIDATE_SUM : TT_CANDIDATE_READY);
            assert_false(candidate.proven);
            tt_candidate_close(&candidate);
            close(sockets[1]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(secrets_of_both_sides)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
