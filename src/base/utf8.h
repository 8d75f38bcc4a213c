/* UTF-8 (RFC 3629): what is valid. */
#ifndef TT_BASE_UTF8_H
#define TT_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The code point at `text` and its length; 0 where no valid sequence begins (or bytes is 0). */
size_t tt_utf8_next(const char *text, size_t bytes, uint32_t *point);
/* Offset of the first byte that is not part of valid UTF-8, or `bytes` when all of it is valid. */
size_t tt_utf8_invalid_at(const char *text, size_t bytes);

#endif
