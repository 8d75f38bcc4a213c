/* Character classes and case of ASCII, independent of setlocale(): <ctype.h>, strcasecmp() and strftime() depend on the
 * locale. */
#ifndef TT_BASE_ASCII_H
#define TT_BASE_ASCII_H

#include <stdbool.h>
#include <stddef.h>

static inline bool tt_ascii_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool tt_ascii_is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Space, tab, line feed, vertical tab, form feed, carriage return. */
static inline bool tt_ascii_is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static inline char tt_ascii_upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

/* Compares the first `bytes` bytes without regard to case; also true when both texts end earlier. */
static inline bool tt_ascii_same_start(const char *a, const char *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (tt_ascii_upper(a[i]) != tt_ascii_upper(b[i])) return false;
        if (a[i] == '\0') return true;
    }
    return true;
}

/* Compares two texts without regard to case. */
static inline bool tt_ascii_same(const char *a, const char *b)
{
    return tt_ascii_same_start(a, b, (size_t)-1);
}

#endif
