#include "cli/wrap.h"

#include <string.h>

/* Columns of a text: bytes that continue a character take none. */
static int width_of(const char *text, size_t bytes)
{
    int width = 0;
    for (size_t i = 0; i < bytes; i++) width += ((unsigned char)text[i] & 0xc0) != 0x80;
    return width;
}

/* Bytes of `line` that fit into `room` columns and end where it may be broken; all of it where nothing may. */
static size_t find_break(const char *line, size_t bytes, int room, bool keep_brackets)
{
    size_t words = 0, fields = 0;
    int depth = 0, width = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (keep_brackets) depth += (line[i] == '[') - (line[i] == ']');
        bool ends = line[i] == ' ' && i > 0 && line[i - 1] != ' ' && depth <= 0;
        if (ends && width > room && words > 0) break;
        if (ends) words = i;
        if (ends && i + 1 < bytes && line[i + 1] == ' ' && width <= room && width > room / 2) fields = i;
        width += ((unsigned char)line[i] & 0xc0) != 0x80;
    }
    if (width <= room || words == 0) return bytes;
    return fields > 0 ? fields : words;
}

static tt_status wrap_line(struct tt_str *out, const char *line, size_t bytes, int used,
                           const struct tt_wrap *wrap)
{
    size_t blanks = strspn(line, " ");
    int room = wrap->columns - used, further = (int)blanks + wrap->indent;
    if (blanks > bytes) blanks = bytes;
    TT_TRY(tt_str_append(out, line, blanks));
    room -= (int)blanks;
    line += blanks;
    bytes -= blanks;
    while (width_of(line, bytes) > room) {
        size_t taken = find_break(line, bytes, room, wrap->keep_brackets);
        if (taken == bytes) break;
        TT_TRY(tt_str_append(out, line, taken));
        while (taken < bytes && line[taken] == ' ') taken++;
        line += taken;
        bytes -= taken;
        TT_TRY(tt_str_printf(out, "\n%*s", further, ""));
        room = wrap->columns - further;
    }
    return tt_str_append(out, line, bytes);
}

tt_status tt_wrap_append(struct tt_str *out, const char *text, const struct tt_wrap *wrap)
{
    int used = wrap->used;
    while (*text != '\0') {
        size_t bytes = strcspn(text, "\n");
        TT_TRY(wrap_line(out, text, bytes, used, wrap));
        text += bytes;
        if (*text == '\n') TT_TRY(tt_str_append_char(out, *text++));
        used = 0;
    }
    return TT_OK;
}
