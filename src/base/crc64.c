#include "base/crc64.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL UINT64_C(0xC96C5795D7870F42)
enum { SLICES = 16, POWERS = 64 };

/* table[k][b]: the remainder of byte b with k zero bytes after it. power[k]: x^(8 * 2^k), which moves a
 * remainder over 2^k bytes. Made once, read-only after. */
static uint64_t table[SLICES][256], power[POWERS];
static pthread_once_t made = PTHREAD_ONCE_INIT;

/* a * b modulo the polynomial; bit 63 is x^0. */
static uint64_t multiply(uint64_t a, uint64_t b)
{
    uint64_t product = 0;
    for (; a != 0; a <<= 1) {
        if (a >> 63) product ^= b;
        b = (b >> 1) ^ (b & 1 ? POLYNOMIAL : 0);
    }
    return product;
}

static void make_tables(void)
{
    for (unsigned b = 0; b < 256; b++) {
        uint64_t value = b;
        for (int bit = 0; bit < 8; bit++) value = (value >> 1) ^ (value & 1 ? POLYNOMIAL : 0);
        table[0][b] = value;
    }
    for (int k = 1; k < SLICES; k++)
        for (int b = 0; b < 256; b++) table[k][b] = table[0][table[k - 1][b] & 255] ^ (table[k - 1][b] >> 8);
    power[0] = UINT64_C(1) << 55; /* x^8 */
    for (int k = 1; k < POWERS; k++) power[k] = multiply(power[k - 1], power[k - 1]);
}

static uint64_t load_le(const unsigned char *data)
{
    uint64_t value;
    memcpy(&value, data, sizeof value);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}

uint64_t tt_crc64_raw(uint64_t raw, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    pthread_once(&made, make_tables);
    for (; bytes >= SLICES; bytes -= SLICES, at += SLICES) {
        uint64_t low = raw ^ load_le(at), high = load_le(at + 8), sum = 0;
        for (int k = 0; k < 8; k++) {
            sum ^= table[15 - k][(low >> (8 * k)) & 255];
            sum ^= table[7 - k][(high >> (8 * k)) & 255];
        }
        raw = sum;
    }
    for (; bytes > 0; bytes--, at++) raw = table[0][(raw ^ *at) & 255] ^ (raw >> 8);
    return raw;
}

uint64_t tt_crc64_shift(uint64_t raw, uint64_t bytes_after)
{
    pthread_once(&made, make_tables);
    for (int k = 0; bytes_after != 0; k++, bytes_after >>= 1)
        if (bytes_after & 1) raw = multiply(raw, power[k]);
    return raw;
}

uint64_t tt_crc64_term(const void *data, size_t bytes, uint64_t bytes_after)
{
    return tt_crc64_shift(tt_crc64_raw(0, data, bytes), bytes_after);
}

uint64_t tt_crc64_finish(uint64_t terms, uint64_t file_bytes)
{
    return ~(terms ^ tt_crc64_shift(UINT64_MAX, file_bytes));
}

uint64_t tt_crc64(uint64_t crc, const void *data, size_t bytes)
{
    return ~tt_crc64_raw(~crc, data, bytes);
}
