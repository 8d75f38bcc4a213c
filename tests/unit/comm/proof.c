/* The proof of a member: what one connection's sums are worth anywhere else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "comm/proof.h"

static struct tt_proof_key key_of(const char *secret)
{
    struct tt_proof_key key;
    assert_int_equal(tt_proof_key_make(secret, strlen(secret), &key), TT_OK);
    return key;
}

static const char secret[] = "correct horse battery staple";

static struct tt_proof conversation(const struct tt_proof_key *key, enum tt_proof_role role)
{
    struct tt_proof proof;
    tt_proof_open(key, role, &proof);
    assert_true(tt_proof_answer(key, &proof));
    assert_true(tt_proof_is_challenge(&proof));
    return proof;
}

static void sums_of_this_connection(void **state)
{
    (void)state;
    struct tt_proof_key key = key_of(secret), same = key_of(secret);
    struct tt_proof proof = conversation(&key, TT_PROOF_DATA);
    unsigned char opener[TT_PROOF_SUM_BYTES], accepter[TT_PROOF_SUM_BYTES];
    tt_proof_sum(&key, &proof, TT_PROOF_OPENER, opener);
    tt_proof_sum(&key, &proof, TT_PROOF_ACCEPTER, accepter);
    assert_true(tt_proof_verify(&same, &proof, TT_PROOF_OPENER, opener));
    assert_true(tt_proof_verify(&same, &proof, TT_PROOF_ACCEPTER, accepter));
    for (size_t i = 0; i < sizeof opener; i++) {
        opener[i] ^= 1;
        assert_false(tt_proof_verify(&key, &proof, TT_PROOF_OPENER, opener));
        opener[i] ^= 1;
    }
}

/* Reflected, replayed, moved to another kind of connection, made with another secret or none. */
static void sums_of_others(void **state)
{
    (void)state;
    struct tt_proof_key key = key_of(secret), other = key_of("correct horse battery stable"), none = {0};
    struct tt_proof proof = conversation(&key, TT_PROOF_CONTROL), now = proof;
    unsigned char sum[TT_PROOF_SUM_BYTES];
    tt_proof_sum(&key, &proof, TT_PROOF_OPENER, sum);
    assert_false(tt_proof_verify(&key, &proof, TT_PROOF_ACCEPTER, sum)); /* sent back */
    now.opening.role = TT_PROOF_DATA;
    assert_false(tt_proof_verify(&key, &now, TT_PROOF_OPENER, sum));
    now = proof;
    now.challenge = conversation(&key, TT_PROOF_CONTROL).challenge;
    assert_false(tt_proof_verify(&key, &now, TT_PROOF_OPENER, sum)); /* the same opening and sum again */
    now = proof;
    memcpy(now.opening.nonce, proof.challenge.nonce, sizeof now.opening.nonce);
    memcpy(now.challenge.nonce, proof.opening.nonce, sizeof now.challenge.nonce);
    assert_false(tt_proof_verify(&key, &now, TT_PROOF_ACCEPTER, sum)); /* with the nonces changed about */
    assert_false(tt_proof_verify(&key, &now, TT_PROOF_OPENER, sum));
    assert_false(tt_proof_verify(&other, &proof, TT_PROOF_OPENER, sum));
    tt_proof_sum(&none, &proof, TT_PROOF_OPENER, sum);
    assert_false(tt_proof_verify(&none, &proof, TT_PROOF_OPENER, sum)); /* no secret proves nothing */
}

/* A sum is of every field of its message: each byte alone makes another one, of either side. */
static void every_field_counts(void **state)
{
    enum {
        ROLE,
        OPENER_NONCE,
        ACCEPTER_NONCE = OPENER_NONCE + TT_PROOF_NONCE_BYTES,
        KEY = ACCEPTER_NONCE + TT_PROOF_NONCE_BYTES
    };
    (void)state;
    struct tt_proof_key key = key_of(secret);
    struct tt_proof proof = conversation(&key, TT_PROOF_CONTROL);
    unsigned char sums[2][TT_PROOF_SUM_BYTES], changed[TT_PROOF_SUM_BYTES];
    for (int s = 0; s < 2; s++) tt_proof_sum(&key, &proof, TT_PROOF_OPENER + s, sums[s]);
    assert_memory_not_equal(sums[0], sums[1], sizeof changed);
    for (int field = ROLE; field < KEY + (int)sizeof key.bytes; field++) {
        struct tt_proof_key other = key;
        struct tt_proof now = proof;
        if (field == ROLE)
            now.opening.role = TT_PROOF_FILES;
        else if (field < ACCEPTER_NONCE)
            now.opening.nonce[field - OPENER_NONCE] ^= 1;
        else if (field < KEY)
            now.challenge.nonce[field - ACCEPTER_NONCE] ^= 1;
        else
            other.bytes[field - KEY] ^= 1;
        for (int s = 0; s < 2; s++) {
            tt_proof_sum(&other, &now, TT_PROOF_OPENER + s, changed);
            assert_memory_not_equal(changed, sums[s], sizeof changed);
            assert_false(tt_proof_verify(&other, &now, TT_PROOF_OPENER + s, sums[s]));
        }
    }
}

static void openings_that_are_none(void **state)
{
    (void)state;
    struct tt_proof_key key = key_of(secret);
    for (int fault = 0; fault < 5; fault++) {
        struct tt_proof proof;
        tt_proof_open(&key, TT_PROOF_CONTROL, &proof);
        if (fault == 0) proof.opening.magic++;
        if (fault == 1) proof.opening.protocol++;
        if (fault == 2) proof.opening.role = 0;
        if (fault == 3) proof.opening.role = TT_PROOF_FILES + 1;
        if (fault == 4) proof.opening.secured = 2;
        assert_false(tt_proof_answer(&key, &proof));
    }
    struct tt_proof proof = conversation(&key, TT_PROOF_CONTROL);
    proof.challenge.magic++;
    assert_false(tt_proof_is_challenge(&proof));
}

static void nonces_are_fresh(void **state)
{
    (void)state;
    struct tt_proof_key key = key_of(secret);
    struct tt_proof one = conversation(&key, TT_PROOF_CONTROL), two = conversation(&key, TT_PROOF_CONTROL);
    assert_memory_not_equal(one.opening.nonce, two.opening.nonce, sizeof one.opening.nonce);
    assert_memory_not_equal(one.challenge.nonce, two.challenge.nonce, sizeof one.challenge.nonce);
    assert_memory_not_equal(one.opening.nonce, one.challenge.nonce, sizeof one.opening.nonce);
}

/* A secret that is no good is refused by its length, which is all that the message says of it. */
static void secrets(void **state)
{
    (void)state;
    struct tt_proof_key key = {0};
    char longest[TT_PROOF_SECRET_BYTES_MAX + 1];
    memset(longest, 'x', sizeof longest);
    assert_int_equal(tt_proof_key_make("hunter2hunter2!", 15, &key), TT_ERR_USAGE);
    assert_non_null(strstr(tt_error_last()->message, "15 bytes"));
    assert_null(strstr(tt_error_last()->message, "hunter"));
    assert_int_equal(tt_proof_key_make(longest, sizeof longest, &key), TT_ERR_USAGE);
    assert_false(key.is_set);
    assert_int_equal(tt_proof_key_make(longest, sizeof longest - 1, &key), TT_OK);
    assert_true(key.is_set);
    struct tt_proof_key again = key_of(secret);
    assert_memory_not_equal(again.bytes, secret, 16);
}

/* What rank 0 hands out is the key where there is no secret; where there is one, it is of no use without that. */
static void the_key_of_a_run(void **state)
{
    (void)state;
    unsigned char handed_out[2][32] = {"one run", "another run"};
    struct tt_proof_key secrets[3] = {0}, keys[6];
    assert_int_equal(tt_proof_key_make("the secret of one job", 21, &secrets[1]), TT_OK);
    assert_int_equal(tt_proof_key_make("the secret of another", 21, &secrets[2]), TT_OK);
    for (int i = 0; i < 6; i++) {
        struct tt_proof_key again;
        tt_proof_key_of_run(&secrets[i / 2], handed_out[i % 2], &keys[i]);
        tt_proof_key_of_run(&secrets[i / 2], handed_out[i % 2], &again);
        assert_true(keys[i].is_set);
        assert_memory_equal(keys[i].bytes, again.bytes, sizeof again.bytes);
        assert_memory_not_equal(keys[i].bytes, secrets[i / 2].bytes, sizeof again.bytes);
        for (int j = 0; j < i; j++) assert_memory_not_equal(keys[i].bytes, keys[j].bytes, sizeof again.bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_this_connection), cmocka_unit_test(sums_of_others),
        cmocka_unit_test(every_field_counts),      cmocka_unit_test(openings_that_are_none),
        cmocka_unit_test(nonces_are_fresh),        cmocka_unit_test(secrets),
        cmocka_unit_test(the_key_of_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
