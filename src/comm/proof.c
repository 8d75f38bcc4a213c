#include "comm/proof.h"

#include <sodium.h>
#include <string.h>

enum { MAGIC = 0x74726d70, PROTOCOL = 1 };

_Static_assert(TT_PROOF_SUM_BYTES == crypto_auth_BYTES, "a sum is crypto_auth's");
_Static_assert(sizeof((struct tt_proof_key *)0)->bytes == crypto_auth_KEYBYTES, "a key is crypto_auth's");

/* BLAKE2b of the secret, keyed with the purpose, so that the same secret used elsewhere gives another key. */
tt_status tt_proof_key_make(const void *secret, size_t bytes, struct tt_proof_key *key)
{
    static const unsigned char purpose[] = "trimtab job secret, key of proofs";
    if (bytes < TT_PROOF_SECRET_BYTES_MIN || bytes > TT_PROOF_SECRET_BYTES_MAX) {
        tt_fail(TT_ERR_USAGE, "the job secret has %zu bytes; it must have from %d to %d", bytes,
                TT_PROOF_SECRET_BYTES_MIN, TT_PROOF_SECRET_BYTES_MAX);
        tt_hint("'openssl rand -hex 32' makes a good one");
        return TT_ERR_USAGE;
    }
    if (sodium_init() < 0) return tt_fail(TT_ERR_INTERNAL, "libsodium cannot start");
    *key = (struct tt_proof_key){.is_set = true};
    crypto_generichash(key->bytes, sizeof key->bytes, secret, bytes, purpose, sizeof purpose - 1);
    return TT_OK;
}

void tt_proof_key_of_run(const struct tt_proof_key *secret, const unsigned char handed_out[32],
                         struct tt_proof_key *key)
{
    static const char purpose[32] = "trimtab key of a run";
    unsigned char message[64];
    memcpy(message, purpose, sizeof purpose);
    memcpy(message + sizeof purpose, handed_out, 32);
    (void)!sodium_init();
    key->is_set = true;
    crypto_generichash(key->bytes, sizeof key->bytes, message, sizeof message,
                       secret->is_set ? secret->bytes : NULL, secret->is_set ? sizeof secret->bytes : 0);
    sodium_memzero(message, sizeof message);
}

void tt_proof_wipe(void *secret, size_t bytes)
{
    sodium_memzero(secret, bytes);
}

void tt_proof_random(void *data, size_t bytes)
{
    (void)!sodium_init(); /* for runs without a secret; tt_proof_key_make has called it otherwise */
    randombytes_buf(data, bytes);
}

void tt_proof_open(const struct tt_proof_key *key, enum tt_proof_role role, struct tt_proof *proof)
{
    *proof = (struct tt_proof){
        .opening = {.magic = MAGIC, .protocol = PROTOCOL, .role = role, .secured = key->is_set}};
    tt_proof_random(proof->opening.nonce, sizeof proof->opening.nonce);
}

bool tt_proof_answer(const struct tt_proof_key *key, struct tt_proof *proof)
{
    const struct tt_proof_opening *opening = &proof->opening;
    if (opening->magic != MAGIC || opening->protocol != PROTOCOL || opening->secured > 1 ||
        opening->role < TT_PROOF_CONTROL || opening->role > TT_PROOF_FILES)
        return false;
    proof->challenge =
        (struct tt_proof_challenge){.magic = MAGIC, .protocol = PROTOCOL, .secured = key->is_set};
    tt_proof_random(proof->challenge.nonce, sizeof proof->challenge.nonce);
    return true;
}

bool tt_proof_is_challenge(const struct tt_proof *proof)
{
    const struct tt_proof_challenge *challenge = &proof->challenge;
    return challenge->magic == MAGIC && challenge->protocol == PROTOCOL && challenge->secured <= 1 &&
           challenge->reserved == 0;
}

/* The message of a sum: all fields have fixed offsets, so different connections never give the same bytes. */
struct summed {
    char purpose[24];
    uint32_t side, protocol, role, reserved;
    unsigned char opener[TT_PROOF_NONCE_BYTES], accepter[TT_PROOF_NONCE_BYTES];
};

static struct summed message_of(const struct tt_proof *proof, enum tt_proof_side side)
{
    struct summed summed = {
        .purpose = "trimtab member", .side = side, .protocol = PROTOCOL, .role = proof->opening.role};
    memcpy(summed.opener, proof->opening.nonce, sizeof summed.opener);
    memcpy(summed.accepter, proof->challenge.nonce, sizeof summed.accepter);
    return summed;
}

void tt_proof_sum(const struct tt_proof_key *key, const struct tt_proof *proof, enum tt_proof_side side,
                  unsigned char sum[TT_PROOF_SUM_BYTES])
{
    struct summed summed = message_of(proof, side);
    crypto_auth(sum, (const unsigned char *)&summed, sizeof summed, key->bytes);
}

bool tt_proof_verify(const struct tt_proof_key *key, const struct tt_proof *proof, enum tt_proof_side side,
                     const unsigned char sum[TT_PROOF_SUM_BYTES])
{
    struct summed summed = message_of(proof, side);
    return key->is_set &&
           crypto_auth_verify(sum, (const unsigned char *)&summed, sizeof summed, key->bytes) == 0;
}
