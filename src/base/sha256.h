/* SHA-256 of files: by the processor's instructions for it (SHA-NI), five times as fast as by plain code, which is the
 * rest's. Keyed sums are libsodium's. Source: FIPS 180-4, 6.2. */
#ifndef TT_BASE_SHA256_H
#define TT_BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TT_SHA256_BYTES = 32 };

struct tt_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
    bool fast; /* the processor has the instructions: in a virtual machine it takes long to ask */
};

void tt_sha256_init(struct tt_sha256 *sha256);
void tt_sha256_update(struct tt_sha256 *sha256, const void *data, size_t bytes);
void tt_sha256_final(struct tt_sha256 *sha256, unsigned char digest[TT_SHA256_BYTES]);

#endif
