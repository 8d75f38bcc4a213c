/* CRC-64/XZ (ECMA-182 polynomial, reflected; check value of "123456789": 995dc9bbdf1939fa), as xz uses it. A
 * CRC is linear: the sum of a whole file follows from its parts in any order, whoever wrote them, so nobody
 * reads a file again to know its sum, and parts can be summed by several threads. It finds every change
 * within 64 successive bits, and any other with a probability of 1 - 2^-64. It is no protection against
 * somebody who means harm. */
#ifndef TT_BASE_CRC64_H
#define TT_BASE_CRC64_H

#include <stddef.h>
#include <stdint.h>

/* The sum of `bytes` more bytes after those that gave `crc`; 0 to begin with. */
uint64_t tt_crc64(uint64_t crc, const void *data, size_t bytes);

/* Out of order: a part's term depends on its bytes and on how many come after it in the file. The terms of
 * parts that do not overlap and leave no gap, combined by exclusive or, give the sum of the file
 * (tt_crc64_finish). */
uint64_t tt_crc64_term(const void *data, size_t bytes, uint64_t bytes_after);
/* A part in pieces: the term so far, continued; tt_crc64_shift moves the finished one to its place. */
uint64_t tt_crc64_raw(uint64_t raw, const void *data, size_t bytes); /* 0 to begin with */
uint64_t tt_crc64_shift(uint64_t raw, uint64_t bytes_after);
uint64_t tt_crc64_finish(uint64_t terms, uint64_t file_bytes);

#endif
