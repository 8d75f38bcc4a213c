#include "text/scan.h"

#include <string.h>

#include "text/unicode.h"

/* Classes of characters in the patterns' sense; OTHER is [^\s\p{L}\p{N}]. */
enum { OTHER = 0, LETTER = 1, NUMBER = 2, SPACE = 4, NEWLINE = 8 };

static const unsigned char ascii_class[128] = {
    ['\t'] = SPACE,         ['\n'] = SPACE | NEWLINE, ['\v'] = SPACE,
    ['\f'] = SPACE,         ['\r'] = SPACE | NEWLINE, [' '] = SPACE,
    ['0' ... '9'] = NUMBER, ['A' ... 'Z'] = LETTER,   ['a' ... 'z'] = LETTER,
};

static int class_of_code(int32_t code)
{
    utf8proc_category_t category = tt_unicode_category(code);
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) return LETTER;
    if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) return NUMBER;
    if (category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP) return SPACE;
    return code == 0x85 ? SPACE : OTHER;
}

/* The class of the character at `at` < bytes, and its length. */
static inline int class_at(const char *text, size_t at, size_t *length)
{
    unsigned char lead = (unsigned char)text[at];
    if (lead < 0x80) {
        *length = 1;
        return ascii_class[lead];
    }
    return class_of_code(tt_utf8_decode(text + at, length));
}

/* The end of the run of characters of that class from `at` on. */
static inline size_t run_end(const char *text, size_t bytes, size_t at, int wanted)
{
    size_t length;
    while (at < bytes) {
        unsigned char lead = (unsigned char)text[at];
        if (lead < 0x80) {
            if (ascii_class[lead] != wanted) break;
            at++;
            continue;
        }
        if (class_at(text, at, &length) != wanted) break;
        at += length;
    }
    return at;
}

/* \s+(?!\S)|\s+ : a run of white space that is followed by something else leaves its last character to that.
 */
static size_t end_of_spaces(const char *text, size_t bytes, size_t start)
{
    size_t at = start, last = start, length;
    while (at < bytes && class_at(text, at, &length) & SPACE) {
        last = at;
        at += length;
    }
    return at < bytes && last > start ? last : at;
}

/* 's|'t|'re|'ve|'m|'ll|'d at an apostrophe; 0 when none matches. `fold` maps letters to lower case first, as
 * (?i: does; the long s folds to s. */
static size_t contraction(const char *text, size_t left, bool fold)
{
    if (left < 2) return 0;
    unsigned char first = (unsigned char)text[1], second = left > 2 ? (unsigned char)text[2] : 0;
    if (fold && first == 0xC5 && second == 0xBF) return 3;
    if (fold) {
        if (first >= 'A' && first <= 'Z') first |= 0x20;
        if (second >= 'A' && second <= 'Z') second |= 0x20;
    }
    switch (first) {
    case 's':
    case 't':
    case 'm':
    case 'd':
        return 2;
    case 'r':
    case 'v':
        return second == 'e' ? 3 : 0;
    case 'l':
        return second == 'l' ? 3 : 0;
    default:
        return 0;
    }
}

static size_t next_gpt2(const char *text, size_t bytes, size_t start)
{
    if (text[start] == '\'') {
        size_t length = contraction(text + start, bytes - start, false);
        if (length > 0) return start + length;
    }
    size_t at = start, length;
    int class = class_at(text, at, &length);
    if (text[start] == ' ' && start + 1 < bytes) {
        at = start + 1;
        class = class_at(text, at, &length);
    }
    if (class & SPACE) return end_of_spaces(text, bytes, start);
    return run_end(text, bytes, at + length, class);
}

/* \s*[\r\n]+ : up to the last newline of the run of white space; 0 when there is none. */
static size_t end_of_newlines(const char *text, size_t bytes, size_t start)
{
    size_t at = start, end = 0, length;
    while (at < bytes) {
        int class = class_at(text, at, &length);
        if (!(class & SPACE)) break;
        at += length;
        if (class & NEWLINE) end = at;
    }
    return end;
}

static size_t next_cl100k(const char *text, size_t bytes, size_t start, int digits)
{
    if (text[start] == '\'') {
        size_t length = contraction(text + start, bytes - start, true);
        if (length > 0) return start + length;
    }
    size_t length, next_length = 0;
    int class = class_at(text, start, &length);
    if (class == LETTER) return run_end(text, bytes, start + length, LETTER);
    if (class == NUMBER) {
        size_t at = start + length;
        for (int i = 1; i < digits && at < bytes && class_at(text, at, &length) == NUMBER; i++) at += length;
        return at;
    }
    size_t next = start + length;
    int next_class = next < bytes ? class_at(text, next, &next_length) : SPACE;
    if (next_class == LETTER && !(class & NEWLINE)) return run_end(text, bytes, next + next_length, LETTER);
    if (class == OTHER || (text[start] == ' ' && next_class == OTHER)) {
        size_t at = run_end(text, bytes, next, OTHER);
        while (at < bytes && (text[at] == '\r' || text[at] == '\n')) at++;
        return at;
    }
    size_t end = end_of_newlines(text, bytes, start);
    return end > 0 ? end : end_of_spaces(text, bytes, start);
}

static const char *const patterns[] = {
    [TT_SCAN_NONE] = NULL,
    [TT_SCAN_GPT2] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    [TT_SCAN_LLAMA3] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
                       " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    [TT_SCAN_QWEN2] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
                      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
};

const char *tt_scan_pattern(enum tt_scan scan)
{
    return patterns[scan];
}

enum tt_scan tt_scan_of_pattern(const char *pattern, size_t bytes)
{
    for (enum tt_scan scan = TT_SCAN_GPT2; scan <= TT_SCAN_QWEN2; scan++) {
        if (strlen(patterns[scan]) == bytes && memcmp(patterns[scan], pattern, bytes) == 0) return scan;
    }
    return TT_SCAN_NONE;
}

size_t tt_scan_next(enum tt_scan scan, const char *text, size_t bytes, size_t start)
{
    switch (scan) {
    case TT_SCAN_GPT2:
        return next_gpt2(text, bytes, start);
    case TT_SCAN_LLAMA3:
        return next_cl100k(text, bytes, start, 3);
    case TT_SCAN_QWEN2:
        return next_cl100k(text, bytes, start, 1);
    case TT_SCAN_NONE:
        break;
    }
    return bytes;
}
