/* CRC-64/XZ (ECMA-182 polynomial, reflected; check value of "123456789": 995dc9bbdf1939fa), as xz uses it. A CRC is
 * linear: the sum of a file follows from its parts in any order, so no written file has to be read again, and several
 * threads can sum its parts. It detects every change within 64 successive bits, and any other with a probability of
 * 1 - 2^-64. It does not protect against deliberate changes. */
#ifndef TT_BASE_CRC64_H
#define TT_BASE_CRC64_H

#include <stddef.h>
#include <stdint.h>

/* Continues the sum `crc` (0 at the start of a file) over `bytes` more bytes. */
uint64_t tt_crc64(uint64_t crc, const void *data, size_t bytes);

/* Out of order: the term of a part depends on its bytes and on the number of bytes after it in the file. The exclusive
 * or of the terms of all parts, without overlap or gap, gives the sum of the file (tt_crc64_finish). */
uint64_t tt_crc64_term(const void *data, size_t bytes, uint64_t bytes_after);
uint64_t tt_crc64_finish(uint64_t terms, uint64_t file_bytes);

#endif
