/* The proof of membership: how two processes of one run recognise each other on a new connection, before any other
 * message. The side that connected is the opener, the side that listened is the accepter:
 *
 *   opener                                    accepter
 *   opening {role, has a secret?, nonce}  ->
 *                                         <-  challenge {has a secret?, nonce}
 *   sum of the opener                     ->                                       with a secret only,
 *                                         <-  sum of the accepter                  from here on
 *
 * A sum is HMAC-SHA-512-256 (libsodium's crypto_auth) over the side that sends it, the role of the connection and both
 * nonces, under a key derived from the job secret. So a sum is invalid on another connection (fresh nonces), in the
 * other direction (the side) and for another kind of connection (the role). The opener proves first: an accepter sends
 * no sum to a stranger, who could use it to guess the secret offline. Without a secret both nonces are exchanged and
 * nothing is proved.
 *
 * These functions use no sockets: the hub answers without blocking, openers of control connections block, and data
 * lines are opened and accepted without blocking. */
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

enum tt_proof_role { TT_PROOF_CONTROL = 1, TT_PROOF_DATA, TT_PROOF_FILES };
enum tt_proof_side { TT_PROOF_OPENER = 1, TT_PROOF_ACCEPTER };

/* Derived from the job secret; a zeroed struct means that there is none. Never printed, sent or saved. */
struct tt_proof_key {
    bool is_set;
    unsigned char bytes[32];
};

/* The messages, in the layout in which they are sent. */
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

/* The state of a proof, on either side. */
struct tt_proof {
    struct tt_proof_opening opening;
    struct tt_proof_challenge challenge;
};

/* Derives the key from secret[bytes]. TT_ERR_USAGE for a secret that is too short or too long. The caller wipes the
 * secret. */
TT_MUST_USE tt_status tt_proof_key_make(const void *secret, size_t bytes, struct tt_proof_key *key);
/* Derives the key of one run, for connections between its ranks, from the random bytes that rank 0 sends to all
 * processes that it has accepted and from the key of the job secret, if there is one. */
void tt_proof_key_of_run(const struct tt_proof_key *secret, const unsigned char handed_out[32],
                         struct tt_proof_key *key);
void tt_proof_wipe(void *secret, size_t bytes); /* overwrites memory that held a secret */
void tt_proof_random(void *data, size_t bytes); /* unpredictable bytes */

/* Opener: fills proof->opening. */
void tt_proof_open(const struct tt_proof_key *key, enum tt_proof_role role, struct tt_proof *proof);
/* Accepter, after proof->opening is received: fills proof->challenge. false: the opening is invalid. */
bool tt_proof_answer(const struct tt_proof_key *key, struct tt_proof *proof);
/* Opener: true if the received proof->challenge is valid. */
bool tt_proof_is_challenge(const struct tt_proof *proof);

/* The sum that `side` sends. */
void tt_proof_sum(const struct tt_proof_key *key, const struct tt_proof *proof, enum tt_proof_side side,
                  unsigned char sum[TT_PROOF_SUM_BYTES]);
/* True if `sum` is that of `side`. Compares in constant time. */
bool tt_proof_verify(const struct tt_proof_key *key, const struct tt_proof *proof, enum tt_proof_side side,
                     const unsigned char sum[TT_PROOF_SUM_BYTES]);

#endif
