/* SHA-256 of what comes in pieces: by libcrypto (OpenSSL), which is opened at run time and uses the processor's
 * instructions for it, and where it is missing by libsodium, whose plain code takes four times as long. Keyed sums are
 * libsodium's. Source: https://docs.openssl.org/3.0/man3/EVP_DigestInit/. */
#ifndef TT_NET_SHA256_H
#define TT_NET_SHA256_H

#include <sodium.h>
#include <stdbool.h>
#include <stddef.h>

enum { TT_SHA256_BYTES = 32 };

struct tt_sha256 {
    void *library; /* libcrypto's state; NULL: the sum is libsodium's */
    bool failed;
    crypto_hash_sha256_state plain;
};

/* Each sum that was begun is ended. */
void tt_sha256_begin(struct tt_sha256 *sum);
void tt_sha256_begin_plain(struct tt_sha256 *sum); /* by libsodium */
void tt_sha256_add(struct tt_sha256 *sum, const void *data, size_t bytes);
/* Zeros where libcrypto refused to go on, so that no comparison finds them equal. */
void tt_sha256_end(struct tt_sha256 *sum, unsigned char digest[TT_SHA256_BYTES]);

#endif
