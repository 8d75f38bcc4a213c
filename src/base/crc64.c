#include "base/crc64.h"

#include <lzma.h>
#include <pthread.h>

#define POLYNOMIAL UINT64_C(0xC96C5795D7870F42)
enum { POWERS = 64 };

/* power[k]: x^(8 * 2^k), the factor that moves a remainder over 2^k bytes. Computed once, then read-only. */
static uint64_t power[POWERS];
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

static void make_powers(void)
{
    power[0] = UINT64_C(1) << 55; /* x^8 */
    for (int k = 1; k < POWERS; k++) power[k] = multiply(power[k - 1], power[k - 1]);
}

/* The sum without the inversions before and after it, which liblzma makes. */
static uint64_t sum_raw(uint64_t raw, const void *data, size_t bytes)
{
    return ~lzma_crc64(data, bytes, ~raw);
}

/* Moves a raw sum to its place, `bytes_after` bytes before the end of the file. */
static uint64_t shift(uint64_t raw, uint64_t bytes_after)
{
    pthread_once(&made, make_powers);
    for (int k = 0; bytes_after != 0; k++, bytes_after >>= 1)
        if (bytes_after & 1) raw = multiply(raw, power[k]);
    return raw;
}

uint64_t tt_crc64_term(const void *data, size_t bytes, uint64_t bytes_after)
{
    return shift(sum_raw(0, data, bytes), bytes_after);
}

uint64_t tt_crc64_finish(uint64_t terms, uint64_t file_bytes)
{
    return ~(terms ^ shift(UINT64_MAX, file_bytes));
}

uint64_t tt_crc64(uint64_t crc, const void *data, size_t bytes)
{
    return ~sum_raw(~crc, data, bytes);
}
