#include "base/utf8.h"

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
