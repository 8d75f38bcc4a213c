/* The orientation of Exif (CIPA DC-008, tag 0x0112) in JPEG files (an APP1 segment) and PNG files (a chunk eXIf): the
 * head and the first directory of a TIFF file. */
#include <string.h>

#include "image/image.h"

enum { NORMAL = 1, ORIENTATION_LAST = 8, TAG = 0x0112, SHORT = 3, ENTRY_BYTES = 12 };

struct bytes {
    const uint8_t *data;
    size_t count;
    bool little;
};

static uint32_t number(const struct bytes *from, size_t at, size_t width)
{
    uint32_t value = 0;
    for (size_t i = 0; i < width; i++)
        value = value << 8 | from->data[at + (from->little ? width - 1 - i : i)];
    return value;
}

static int find_tag(const uint8_t *data, size_t count)
{
    struct bytes tiff = {data, count, false};
    if (count < 8 || (memcmp(data, "II*\0", 4) != 0 && memcmp(data, "MM\0*", 4) != 0)) return NORMAL;
    tiff.little = data[0] == 'I';
    size_t at = number(&tiff, 4, 4);
    if (at > count || count - at < 2) return NORMAL;
    size_t entries = number(&tiff, at, 2);
    at += 2;
    for (size_t i = 0; i < entries && count - at >= ENTRY_BYTES; i++, at += ENTRY_BYTES) {
        if (number(&tiff, at, 2) != TAG || number(&tiff, at + 2, 2) != SHORT) continue;
        uint32_t value = number(&tiff, at + 8, 2);
        return value >= NORMAL && value <= ORIENTATION_LAST ? (int)value : NORMAL;
    }
    return NORMAL;
}

static int find_in_jpeg(const uint8_t *data, size_t count)
{
    enum { HEAD = 4, APP1 = 0xe1, SCAN = 0xda, MARK_BYTES = 6 };
    struct bytes file = {data, count, false};
    for (size_t at = 2; at + HEAD <= count && data[at] == 0xff && data[at + 1] != SCAN;) {
        size_t bytes = number(&file, at + 2, 2); /* with these two */
        if (bytes < 2 || bytes > count - at - 2) break;
        const uint8_t *segment = data + at + HEAD;
        if (data[at + 1] == APP1 && bytes >= 2 + MARK_BYTES && memcmp(segment, "Exif\0\0", MARK_BYTES) == 0)
            return find_tag(segment + MARK_BYTES, bytes - 2 - MARK_BYTES);
        at += 2 + bytes;
    }
    return NORMAL;
}

static int find_in_png(const uint8_t *data, size_t count)
{
    enum { MARK_BYTES = 8, HEAD = 8, SUM = 4 };
    struct bytes file = {data, count, false};
    for (size_t at = MARK_BYTES; count - at >= HEAD + SUM;) {
        size_t bytes = number(&file, at, 4);
        if (bytes > count - at - HEAD - SUM) break;
        if (memcmp(data + at + 4, "eXIf", 4) == 0) return find_tag(data + at + HEAD, bytes);
        at += HEAD + bytes + SUM;
    }
    return NORMAL;
}

int tt_image_orientation(const void *data, size_t bytes)
{
    if (bytes >= 4 && memcmp(data, "\xff\xd8\xff", 3) == 0) return find_in_jpeg(data, bytes);
    if (bytes >= 8 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0) return find_in_png(data, bytes);
    return NORMAL;
}
