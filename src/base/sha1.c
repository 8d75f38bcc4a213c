#include "base/sha1.h"

#include <string.h>

static uint32_t rotate(uint32_t x, int bits)
{
    return x << bits | x >> (32 - bits);
}

static void add_block(struct tt_sha1 *sha1, const unsigned char *block)
{
    static const uint32_t constants[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    uint32_t w[80], a = sha1->state[0], b = sha1->state[1], c = sha1->state[2], d = sha1->state[3],
                    e = sha1->state[4];
    for (int t = 0; t < 16; t++)
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 |
               (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
    for (int t = 16; t < 80; t++) w[t] = rotate(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    for (int t = 0; t < 80; t++) {
        uint32_t f = t < 20              ? (b & c) | (~b & d)
                     : t < 40 || t >= 60 ? b ^ c ^ d
                                         : (b & c) | (b & d) | (c & d);
        uint32_t next = rotate(a, 5) + f + e + constants[t / 20] + w[t];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    sha1->state[0] += a;
    sha1->state[1] += b;
    sha1->state[2] += c;
    sha1->state[3] += d;
    sha1->state[4] += e;
}

void tt_sha1_init(struct tt_sha1 *sha1)
{
    *sha1 = (struct tt_sha1){.state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}};
}

void tt_sha1_update(struct tt_sha1 *sha1, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    size_t used = sha1->bytes % sizeof sha1->block;
    sha1->bytes += bytes;
    while (bytes > 0) {
        size_t room = sizeof sha1->block - used, now = bytes < room ? bytes : room;
        memcpy(sha1->block + used, from, now);
        from += now;
        bytes -= now;
        used += now;
        if (used < sizeof sha1->block) break;
        add_block(sha1, sha1->block);
        used = 0;
    }
}

void tt_sha1_final(struct tt_sha1 *sha1, unsigned char digest[TT_SHA1_BYTES])
{
    uint64_t bits = sha1->bytes * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
    tt_sha1_update(sha1, "\x80", 1);
    while (sha1->bytes % sizeof sha1->block != 56) tt_sha1_update(sha1, "", 1);
    tt_sha1_update(sha1, length, sizeof length);
    for (int i = 0; i < TT_SHA1_BYTES; i++)
        digest[i] = (unsigned char)(sha1->state[i / 4] >> (24 - 8 * (i % 4)));
}
