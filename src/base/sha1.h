/* SHA-1, as git names its objects by: a check against damage, none against forgers. Source: FIPS 180-4, 6.1. */
#ifndef TT_BASE_SHA1_H
#define TT_BASE_SHA1_H

#include <stddef.h>
#include <stdint.h>

enum { TT_SHA1_BYTES = 20 };

struct tt_sha1 {
    uint32_t state[5];
    uint64_t bytes;
    unsigned char block[64];
};

void tt_sha1_init(struct tt_sha1 *sha1);
void tt_sha1_update(struct tt_sha1 *sha1, const void *data, size_t bytes);
void tt_sha1_final(struct tt_sha1 *sha1, unsigned char digest[TT_SHA1_BYTES]);

#endif
