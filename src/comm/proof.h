/* The proof of a member: how two processes of one run recognise each other on a new connection, before
 * anything else is said there. Whoever connected is the opener, whoever listened is the accepter:
 *
 *   opener                                    accepter
 *   opening {role, has a secret?, nonce}  ->
 *                                         <-  challenge {has a secret?, nonce}
 *   sum of the opener                     ->                                       with a secret only,
 *                                         <-  sum of the accepter                  from here on
 *
 * A sum is HMAC-SHA-512-256 (libsodium's crypto_auth) over the side that sends it, the role of the connection
 * and both nonces, under a key made of the job secret. So a sum is of no use on another connection (fresh
 * nonces), in the other direction (the side) or for another kind of connection (the role). The opener proves
 * first: an accepter gives a stranger no sum to guess the secret by. Without a secret both nonces are
 * exchanged and nothing is proved.
 *
 * Nothing here touches a socket: the hub answers without blocking, the openers block, and ranks that connect
 * to each other directly can do either. */
#ifndef TT_COMM_PROOF_H
#define TT_COMM_PROOF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum {
    TT_PROOF_NONCE_BYTES = 32,
    TT_PROOF_SUM_BYTES = 32,
    TT_PROOF_SECRET_BYTES_MIN = 16, /* of a job secret */
    TT_PROOF_SECRET_BYTES_MAX = 4096,
};

enum tt_proof_role { TT_PROOF_CONTROL = 1, TT_PROOF_DATA };
enum tt_proof_side { TT_PROOF_OPENER = 1, TT_PROOF_ACCEPTER };

/* Made of the job secret; a zeroed struct: there is none. Never printed, sent or saved. */
struct tt_proof_key {
    bool is_set;
    unsigned char bytes[32];
};

/* As they travel. */
struct tt_proof_opening {
    uint32_t magic, protocol;
    uint32_t role;    /* enum tt_proof_role */
    uint32_t secured; /* 1: the opener has a secret */
    unsigned char nonce[TT_PROOF_NONCE_BYTES];
};

struct tt_proof_challenge {
    uint32_t magic, protocol;
    uint32_t secured, reserved;
    unsigned char nonce[TT_PROOF_NONCE_BYTES];
};

/* What both sides of one connection hold. */
struct tt_proof {
    struct tt_proof_opening opening;
    struct tt_proof_challenge challenge;
};

/* TT_ERR_USAGE for a secret that is too short or too long. The caller wipes the secret. */
TT_MUST_USE tt_status tt_proof_key_make(const void *secret, size_t bytes, struct tt_proof_key *key);
/* The key of one run, for connections between its ranks: made of what rank 0 hands out to all processes that
 * it has accepted, and of the key of the job secret where there is one. */
void tt_proof_key_of_run(const struct tt_proof_key *secret, const unsigned char handed_out[32],
                         struct tt_proof_key *key);
void tt_proof_wipe(void *secret, size_t bytes); /* overwrites memory that held a secret */
void tt_proof_random(void *data, size_t bytes); /* unpredictable bytes */
bool tt_proof_same(const void *a, const void *b,
                   size_t bytes); /* in a time that does not depend on the contents */

/* Opener: fills proof->opening. */
void tt_proof_open(const struct tt_proof_key *key, enum tt_proof_role role, struct tt_proof *proof);
/* Accepter, with the opening that has come: fills proof->challenge. false: the opening is no message. */
bool tt_proof_answer(const struct tt_proof_key *key, struct tt_proof *proof);
/* Opener: whether the challenge that has come is a message at all. */
bool tt_proof_is_challenge(const struct tt_proof *proof);

/* The sum that `side` sends. */
void tt_proof_sum(const struct tt_proof_key *key, const struct tt_proof *proof, enum tt_proof_side side,
                  unsigned char sum[TT_PROOF_SUM_BYTES]);
/* Whether `sum` is that of `side`; compares in constant time. */
bool tt_proof_verify(const struct tt_proof_key *key, const struct tt_proof *proof, enum tt_proof_side side,
                     const unsigned char sum[TT_PROOF_SUM_BYTES]);

#endif
