/* The sum of whole blocks of 64 bytes, in two ways. For sha256.c and its test. */
#ifndef TT_BASE_SHA256_IMPL_H
#define TT_BASE_SHA256_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* FIPS 180-4, 4.2.2 */
extern const uint32_t sha256_constants[64];

void sha256_add_plain(uint32_t state[8], const unsigned char *blocks, size_t count);

bool sha256_has_instructions(void);
/* Only where sha256_has_instructions. */
void sha256_add_fast(uint32_t state[8], const unsigned char *blocks, size_t count);

#endif
