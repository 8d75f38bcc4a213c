/* UTF-8 (RFC 3629): validation, and escaping for terminals. */
#ifndef TT_BASE_UTF8_H
#define TT_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Decodes the code point at `text` and returns its length; 0 where no valid sequence begins (or bytes is 0). */
size_t tt_utf8_next(const char *text, size_t bytes, uint32_t *point);
/* Offset of the first byte that is not part of valid UTF-8, or `bytes` when all of it is valid. */
size_t tt_utf8_invalid_at(const char *text, size_t bytes);

/* Escapes `text` for a terminal: control characters (C0, DEL, C1), line and paragraph separators, and the marks and
 * overrides of bidirectional text become \x1b or \u202e, bytes that are not UTF-8 become \xff. All other characters,
 * and those of `keep` ("" or "\n\t"), stay. The function is idempotent. Returns the bytes that a large enough `out`
 * would hold, without the terminator; a text that does not fit is cut between characters. */
size_t tt_utf8_printable(const char *text, size_t bytes, const char *keep, char *out, size_t out_bytes);

#endif
