/* UTF-8 (RFC 3629): what is valid, and what may reach a terminal. */
#ifndef TT_BASE_UTF8_H
#define TT_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The code point at `text` and its length; 0 where no valid sequence begins (or bytes is 0). */
size_t tt_utf8_next(const char *text, size_t bytes, uint32_t *point);
/* Offset of the first byte that is not part of valid UTF-8, or `bytes` when all of it is valid. */
size_t tt_utf8_invalid_at(const char *text, size_t bytes);

/* `text` as it may be shown on a terminal: control characters (C0, DEL, C1), line and paragraph separators, and the
 * marks and overrides of bidirectional text are written as \x1b or \u202e, bytes that are not UTF-8 as \xff; all other
 * characters stay. Those of `keep` ("" or "\n\t") stay too. Done twice it changes nothing more. Returns what a large
 * enough `out` would hold, without the terminator; a text that does not fit is cut between characters. */
size_t tt_utf8_printable(const char *text, size_t bytes, const char *keep, char *out, size_t out_bytes);

#endif
