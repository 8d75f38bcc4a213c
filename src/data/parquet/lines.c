#include "data/parquet/lines.h"

enum { FLUSH_BYTES = 1 << 20 };

bool parquet_lines_full(const struct parquet_lines *lines)
{
    return lines->limits->rows > 0 && lines->row == lines->limits->rows;
}

void parquet_lines_begin(struct parquet_lines *lines)
{
    lines->row++;
    lines->row_start = lines->text.bytes;
}

tt_status parquet_lines_fits(const struct parquet_lines *l, size_t bytes)
{
    if (l->limits->row_bytes == 0 || l->text.bytes - l->row_start + bytes <= l->limits->row_bytes)
        return TT_OK;
    tt_fail(TT_ERR_DATA, "'%s', row %llu is longer than max_row_size (%llu)", l->path,
            (unsigned long long)l->row, (unsigned long long)l->limits->row_bytes);
    tt_hint("raise max_row_size, or cut the row into several");
    return TT_ERR_DATA;
}

tt_status parquet_lines_check(const struct parquet_lines *l)
{
    char most[32];
    uint64_t bytes = l->written + l->text.bytes;
    TT_TRY(parquet_lines_fits(l, 0));
    if (l->limits->total_bytes == 0 || bytes <= l->limits->total_bytes) return TT_OK;
    tt_fail(TT_ERR_DATA, "'%s', row %llu: the rows have more than %s", l->path, (unsigned long long)l->row,
            tt_format_bytes((double)l->limits->total_bytes, most, sizeof most));
    if (l->limits->remedy != NULL) tt_hint("%s", l->limits->remedy);
    return TT_ERR_DATA;
}

tt_status parquet_lines_keep(struct parquet_lines *lines, const uint8_t *data, size_t bytes)
{
    uint64_t number = 0;
    TT_TRY(lines->sink.keep(lines->sink.context, data, bytes, &number));
    return tt_str_printf(&lines->text, "%llu", (unsigned long long)number);
}

tt_status parquet_lines_end(struct parquet_lines *lines)
{
    TT_TRY(parquet_lines_check(lines));
    TT_TRY(tt_str_append_char(&lines->text, '\n'));
    return lines->text.bytes < FLUSH_BYTES ? TT_OK : parquet_lines_flush(lines);
}

tt_status parquet_lines_flush(struct parquet_lines *lines)
{
    lines->written += lines->text.bytes;
    if (lines->text.bytes > 0)
        TT_TRY(lines->sink.put(lines->sink.context, lines->text.data, lines->text.bytes));
    tt_str_clear(&lines->text);
    return TT_OK;
}
