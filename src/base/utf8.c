#include "base/utf8.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

size_t tt_utf8_next(const char *text, size_t bytes, uint32_t *point)
{
    if (bytes == 0) return 0;
    const unsigned char *at = (const unsigned char *)text;
    unsigned lead = at[0];
    if (lead < 0x80) return *point = lead, 1;
    size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || length > bytes) return 0;
    uint32_t value = lead & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
        value = value << 6 | (at[i] & 0x3fu);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (value < least[length] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return 0;
    *point = value;
    return length;
}

size_t tt_utf8_invalid_at(const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        uint64_t word;
        if (at + sizeof word <= bytes) {
            memcpy(&word, text + at, sizeof word);
            if ((word & 0x8080808080808080u) == 0) {
                at += sizeof word;
                continue;
            }
        }
        uint32_t point;
        size_t length = tt_utf8_next(text + at, bytes - at, &point);
        if (length == 0) return at;
        at += length;
    }
    return at;
}

/* True for characters that control a terminal instead of being displayed. */
static bool is_control(uint32_t point)
{
    return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x61c || point == 0x200e ||
           point == 0x200f || (point >= 0x2028 && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
}

size_t tt_utf8_printable(const char *text, size_t bytes, const char *keep, char *out, size_t out_bytes)
{
    size_t used = 0;
    bool fits = out_bytes > 0;
    if (out_bytes > 0) out[0] = '\0';
    for (size_t at = 0; at < bytes;) {
        char escape[8];
        const char *piece = text + at;
        uint32_t point = 0;
        size_t length = tt_utf8_next(piece, bytes - at, &point), piece_bytes = length;
        bool kept = length == 1 && point != 0 && strchr(keep, (int)point) != NULL;
        if (length == 0 || (is_control(point) && !kept)) {
            unsigned shown = length == 0 ? (unsigned char)*piece : point;
            piece_bytes =
                (size_t)snprintf(escape, sizeof escape, shown < 0x100 ? "\\x%02x" : "\\u%04x", shown);
            piece = escape;
        }
        fits = fits && used + piece_bytes < out_bytes;
        if (fits) {
            memcpy(out + used, piece, piece_bytes);
            out[used + piece_bytes] = '\0';
        }
        used += piece_bytes;
        at += length > 0 ? length : 1;
    }
    return used;
}
