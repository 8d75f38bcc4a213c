#include "base/sha256.h"

#include <string.h>

#include "base/sha256_impl.h"

enum { BLOCK_BYTES = 64 };

const uint32_t sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, int bits)
{
    return x >> bits | x << (32 - bits);
}

static uint32_t word_at(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void add_block(uint32_t state[8], const unsigned char *block)
{
    uint32_t w[64], s[8];
    memcpy(s, state, sizeof s);
    for (int t = 0; t < 16; t++) w[t] = word_at(block + 4 * t);
    for (int t = 16; t < 64; t++) {
        uint32_t early = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t late = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + early + w[t - 7] + late;
    }
    /* Instead of the words the letters move: at round t the word a is s[-t mod 8]. Unrolled, they lie in registers. */
#pragma GCC unroll 64
    for (unsigned t = 0; t < 64; t++) {
        const uint32_t a = s[(8 - t) % 8], b = s[(1 - t) % 8], c = s[(2 - t) % 8];
        const uint32_t e = s[(4 - t) % 8], f = s[(5 - t) % 8], g = s[(6 - t) % 8];
        uint32_t *d = &s[(3 - t) % 8], *h = &s[(7 - t) % 8];
        *h +=
            (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + (g ^ (e & (f ^ g))) + sha256_constants[t] + w[t];
        *d += *h;
        *h += (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) | (c & (a | b)));
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

void sha256_add_plain(uint32_t state[8], const unsigned char *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++) add_block(state, blocks + BLOCK_BYTES * i);
}

static void add_blocks(struct tt_sha256 *sha256, const unsigned char *blocks, size_t count)
{
    if (sha256->fast)
        sha256_add_fast(sha256->state, blocks, count);
    else
        sha256_add_plain(sha256->state, blocks, count);
}

void tt_sha256_init(struct tt_sha256 *sha256)
{
    *sha256 = (struct tt_sha256){.fast = sha256_has_instructions(),
                                 .state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                           0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void tt_sha256_update(struct tt_sha256 *sha256, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    size_t used = sha256->bytes % BLOCK_BYTES;
    sha256->bytes += bytes;
    if (used > 0) {
        size_t room = BLOCK_BYTES - used, now = bytes < room ? bytes : room;
        memcpy(sha256->block + used, from, now);
        if (now < room) return;
        add_blocks(sha256, sha256->block, 1);
        from += now;
        bytes -= now;
    }
    add_blocks(sha256, from, bytes / BLOCK_BYTES);
    if (bytes % BLOCK_BYTES > 0)
        memcpy(sha256->block, from + bytes / BLOCK_BYTES * BLOCK_BYTES, bytes % BLOCK_BYTES);
}

void tt_sha256_final(struct tt_sha256 *sha256, unsigned char digest[TT_SHA256_BYTES])
{
    static const unsigned char padding[BLOCK_BYTES] = {0x80};
    unsigned char length[8];
    const uint64_t bits = 8 * sha256->bytes;
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    const size_t used = sha256->bytes % BLOCK_BYTES;
    tt_sha256_update(sha256, padding, (used < 56 ? 56 : 56 + BLOCK_BYTES) - used);
    tt_sha256_update(sha256, length, sizeof length);
    for (int i = 0; i < TT_SHA256_BYTES; i++)
        digest[i] = (unsigned char)(sha256->state[i / 4] >> (24 - 8 * (i % 4)));
}
