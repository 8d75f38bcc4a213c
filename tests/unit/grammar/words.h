/* A vocabulary for tests of grammars: every byte, pieces of several bytes, and a token without text. */
#ifndef TT_TESTS_UNIT_GRAMMAR_WORDS_H
#define TT_TESTS_UNIT_GRAMMAR_WORDS_H

#include "grammar/grammar.h"
#include "support/must.h"

enum { BYTE_TOKENS = 256, PIECES_MAX = 64 };

static const char *const pieces[] = {
    "{\"",  "\":",  "\": ",     "\",",  "\", \"", "\"}",    "}",   "]]",       "[[",   "true",  "fal",
    "null", "12",   "-1",       "0.5",  "e1",     "ab",     "abc", "  ",       "\n  ", "\\u0",  "\\\"",
    "é",    "日本", "\xE6\x97", "\xA5", "\"a\"",  "name\"", ",\"", "{\"a\": ", "}}",   "[1, 2", "x\"]}"};
enum {
    PIECES = sizeof pieces / sizeof *pieces,
    VOCABULARY = BYTE_TOKENS + PIECES + 1,
    NO_TEXT = VOCABULARY - 1
};

static inline void make_texts(struct tt_span texts[VOCABULARY], char bytes[BYTE_TOKENS])
{
    for (int b = 0; b < BYTE_TOKENS; b++) {
        bytes[b] = (char)b;
        texts[b] = (struct tt_span){bytes + b, 1};
    }
    for (size_t i = 0; i < PIECES; i++) texts[BYTE_TOKENS + i] = tt_span_of(pieces[i]);
    texts[NO_TEXT] = (struct tt_span){"", 0};
}

#endif
