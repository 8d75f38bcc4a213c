#include "base/csv.h"

#include <string.h>

#include "base/number.h"

void tt_csv_over(const char *path, const struct tt_file_map *map, struct tt_csv *csv)
{
    *csv = (struct tt_csv){.path = path, .map = *map, .borrows = true, .row_bytes_max = 1 << 20};
    if (map->bytes >= 3 && memcmp(map->data, "\xef\xbb\xbf", 3) == 0) csv->at = 3;
}

tt_status tt_csv_open(const char *path, struct tt_csv *csv)
{
    struct tt_file_map map;
    *csv = (struct tt_csv){.path = path};
    TT_TRY(tt_file_map_open(path, &map));
    tt_csv_over(path, &map, csv);
    csv->borrows = false;
    return TT_OK;
}

void tt_csv_close(struct tt_csv *csv)
{
    if (!csv->borrows) tt_file_map_close(&csv->map);
    tt_str_deinit(&csv->unquoted);
    *csv = (struct tt_csv){0};
}

static tt_status fail_at(const struct tt_csv *csv, const char *what)
{
    return tt_fail(TT_ERR_DATA, "'%s', row %lld: %s", csv->path, (long long)csv->row, what);
}

/* The bytes of the row at csv->at, without its end; *next: where the following one begins. */
static tt_status find_row(struct tt_csv *csv, struct tt_span *row, uint64_t *next)
{
    const char *start = (const char *)csv->map.data + csv->at;
    uint64_t left = csv->map.bytes - csv->at, bytes = 0;
    bool quoted = false;
    csv->line = csv->lines + 1;
    while (bytes < left && (quoted || start[bytes] != '\n')) {
        if (start[bytes] == '"') quoted = !quoted;
        csv->lines += start[bytes] == '\n';
        if (++bytes > csv->row_bytes_max)
            return tt_fail(TT_ERR_DATA,
                           "'%s', row %lld: a row of more than %llu bytes; a quote may be missing its end",
                           csv->path, (long long)csv->row, (unsigned long long)csv->row_bytes_max);
    }
    if (quoted) return fail_at(csv, "the file ends within quotes");
    csv->lines += bytes < left;
    *next = csv->at + bytes + (bytes < left);
    if (bytes > 0 && start[bytes - 1] == '\r') bytes--;
    *row = (struct tt_span){start, (size_t)bytes};
    return TT_OK;
}

/* A field in quotes, whose first is at `text`; *used: its bytes with both quotes. */
static tt_status unquote(struct tt_csv *csv, struct tt_span text, struct tt_span *field, size_t *used)
{
    size_t at = 1, start = csv->unquoted.bytes;
    for (;; at++) {
        if (at >= text.bytes) return fail_at(csv, "a quote is missing its end");
        if (text.data[at] == '"') {
            if (at + 1 >= text.bytes || text.data[at + 1] != '"') break;
            at++;
        }
        TT_TRY(tt_str_append_char(&csv->unquoted, text.data[at]));
    }
    *used = at + 1;
    *field = (struct tt_span){csv->unquoted.data + start, csv->unquoted.bytes - start};
    return TT_OK;
}

static tt_status split_row(struct tt_csv *csv, struct tt_span row)
{
    size_t at = 0;
    csv->count = 0;
    for (;;) {
        struct tt_span rest = {row.data + at, row.bytes - at}, field;
        size_t used = 0;
        if (csv->count == TT_CSV_FIELDS_MAX) return fail_at(csv, "more fields than are supported");
        if (rest.bytes > 0 && rest.data[0] == '"') {
            TT_TRY(unquote(csv, rest, &field, &used));
        } else {
            const char *comma = rest.bytes > 0 ? memchr(rest.data, ',', rest.bytes) : NULL;
            used = comma != NULL ? (size_t)(comma - rest.data) : rest.bytes;
            field = (struct tt_span){rest.data, used};
        }
        csv->fields[csv->count++] = field;
        at += used;
        if (at == row.bytes) return TT_OK;
        if (row.data[at] != ',') return fail_at(csv, "text after the quotes of a field");
        at++;
    }
}

tt_status tt_csv_next(struct tt_csv *csv, bool *found)
{
    *found = false;
    while (csv->at < csv->map.bytes) {
        struct tt_span row;
        csv->row++;
        TT_TRY(find_row(csv, &row, &csv->at));
        if (row.bytes == 0) continue;
        /* Fields point into this storage, so it must not move while the row is read. */
        tt_str_clear(&csv->unquoted);
        TT_TRY(tt_str_append_fill(&csv->unquoted, ' ', row.bytes + 1));
        tt_str_clear(&csv->unquoted);
        *found = true;
        return split_row(csv, row);
    }
    return TT_OK;
}

int tt_csv_column(const struct tt_csv *csv, const char *name)
{
    for (int i = 0; i < csv->count; i++)
        if (tt_span_equals(csv->fields[i], name)) return i;
    return -1;
}

tt_status tt_csv_number(const struct tt_csv *csv, int column, double *number)
{
    char text[64] = "";
    if (column < csv->count && csv->fields[column].bytes < sizeof text)
        memcpy(text, csv->fields[column].data, csv->fields[column].bytes);
    if (tt_parse_double(text, number)) return TT_OK;
    return tt_fail(TT_ERR_DATA, "'%s', row %lld, column %d: '%s' is no number", csv->path,
                   (long long)csv->row, column + 1, text);
}
