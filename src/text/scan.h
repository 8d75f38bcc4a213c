/* Hand-written matchers for the pre-tokenizer patterns of most models: several times faster than a regular expression
 * engine and linear for any text. Each gives the same pieces as its pattern; a test compares them with PCRE2. Every
 * character of a text belongs to a piece. */
#ifndef TT_TEXT_SCAN_H
#define TT_TEXT_SCAN_H

#include <stddef.h>

enum tt_scan {
    TT_SCAN_NONE,
    /* GPT-2 and ByteLevel's own: contractions, letters, numbers, others, each with a space before */
    TT_SCAN_GPT2,
    TT_SCAN_LLAMA3, /* cl100k: numbers of up to three digits */
    TT_SCAN_QWEN2,  /* the same with single digits */
};

/* The pattern's text, NULL for TT_SCAN_NONE. */
const char *tt_scan_pattern(enum tt_scan scan);
/* The scanner of a pattern, by its exact bytes; TT_SCAN_NONE for others. */
enum tt_scan tt_scan_of_pattern(const char *pattern, size_t bytes);
/* The end of the piece that starts at `start` < bytes in valid UTF-8 text. */
size_t tt_scan_next(enum tt_scan scan, const char *text, size_t bytes, size_t start);

#endif
