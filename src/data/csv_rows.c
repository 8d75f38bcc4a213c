#include "data/csv_rows.h"

#include <string.h>

#include "base/alloc.h"
#include "base/csv.h"
#include "base/str.h"
#include "base/temporary.h"

enum { BUFFER_BYTES = 1 << 20 };

struct conversion {
    struct tt_csv csv;
    struct tt_str names[TT_CSV_FIELDS_MAX]; /* of the columns, as JSON */
    int columns;
    int to; /* the file without a name */
    uint64_t written;
    struct tt_str text; /* to write */
    uint64_t *lines;
    size_t count, capacity;
};

/* A text as JSON; bytes that are no UTF-8 stay, and are an error of the row that has them. */
static tt_status append_json(struct tt_str *out, struct tt_span text)
{
    TT_TRY(tt_str_append_char(out, '"'));
    for (size_t i = 0, from = 0; i <= text.bytes; i++) {
        unsigned char c = i < text.bytes ? (unsigned char)text.data[i] : '"';
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        if (i > from) TT_TRY(tt_str_append(out, text.data + from, i - from));
        from = i + 1;
        if (i == text.bytes) break;
        TT_TRY(c < 0x20 ? tt_str_printf(out, "\\u%04x", c) : tt_str_printf(out, "\\%c", c));
    }
    return tt_str_append_char(out, '"');
}

static tt_status read_header(struct conversion *c)
{
    bool found;
    TT_TRY(tt_csv_next(&c->csv, &found));
    if (!found) return tt_fail(TT_ERR_DATA, "'%s' has no rows", c->csv.path);
    for (int i = 0; i < c->csv.count; i++, c->columns++) {
        TT_TRY(append_json(&c->names[i], c->csv.fields[i]));
        for (int other = 0; other < i; other++)
            if (strcmp(tt_str_text(&c->names[i]), tt_str_text(&c->names[other])) == 0)
                return tt_fail(TT_ERR_DATA, "'%s': two columns are named %s", c->csv.path,
                               tt_str_text(&c->names[i]));
    }
    return TT_OK;
}

static tt_status flush(struct conversion *c)
{
    tt_status status = tt_file_pwrite(c->to, "the unpacked file", c->text.data, c->text.bytes, c->written);
    if (status != TT_OK) tt_while("writing the rows of '%s' into TMPDIR", c->csv.path);
    c->written += c->text.bytes;
    tt_str_clear(&c->text);
    return status;
}

bool tt_csv_rows_hint(const char *name, size_t bytes)
{
    const char *separator = memchr(name, ';', bytes) != NULL    ? ";"
                            : memchr(name, '\t', bytes) != NULL ? "\\t"
                            : memchr(name, '|', bytes) != NULL  ? "|"
                                                                : NULL;
    if (separator == NULL) return false;
    tt_hint("the fields of a CSV file are separated by commas; convert it once, in Python: "
            "pandas.read_csv('FILE', sep='%s').to_csv('train.csv', index=False)",
            separator);
    return true;
}

static tt_status convert_row(struct conversion *c)
{
    if (c->csv.count != c->columns) {
        tt_fail(TT_ERR_DATA, "'%s', row %zu (line %llu): %d fields, but the header has %d", c->csv.path,
                c->count + 1, (unsigned long long)c->csv.line, c->csv.count, c->columns);
        const struct tt_str *name = &c->names[0];
        if (c->columns > 1 || !tt_csv_rows_hint(tt_str_text(name), name->bytes))
            tt_hint("a field with a comma, a quote or a line break is in quotes, with a quote in it doubled");
        return TT_ERR_DATA;
    }
    for (int i = 0; i < c->columns; i++) {
        TT_TRY(tt_str_printf(&c->text, "%s%s: ", i == 0 ? "{" : ", ", tt_str_text(&c->names[i])));
        TT_TRY(append_json(&c->text, c->csv.fields[i]));
    }
    TT_TRY(tt_str_append_text(&c->text, "}\n"));
    TT_TRY(tt_grow(&c->lines, c->count, &c->capacity));
    c->lines[c->count++] = c->csv.line;
    return c->text.bytes >= BUFFER_BYTES ? flush(c) : TT_OK;
}

static tt_status convert(struct conversion *c, uint64_t rows)
{
    bool found = true;
    TT_TRY(read_header(c));
    while (rows == 0 || c->count < rows) {
        TT_TRY(tt_csv_next(&c->csv, &found));
        if (!found) break;
        TT_TRY(convert_row(c));
    }
    return c->text.bytes > 0 ? flush(c) : TT_OK;
}

tt_status tt_csv_rows_map(const char *path, const struct tt_file_map *csv,
                          const struct tt_csv_rows_limits *limits, struct tt_file_map *out, uint64_t **lines,
                          size_t *count)
{
    struct conversion c = {.to = -1};
    tt_status status = TT_OK;
    tt_csv_over(path, csv, &c.csv);
    c.csv.row_bytes_max = limits->row_bytes > 0 ? limits->row_bytes : UINT64_MAX;
    TT_GO(tt_file_open_temporary(&c.to));
    TT_GO(convert(&c, limits->rows));
    TT_GO(tt_file_map_descriptor(c.to, path, c.written, out));
    *lines = c.lines;
    *count = c.count;
    c.lines = NULL;
out:
    tt_file_close(c.to);
    for (int i = 0; i < TT_CSV_FIELDS_MAX; i++) tt_str_deinit(&c.names[i]);
    tt_str_deinit(&c.text);
    tt_free(c.lines);
    tt_csv_close(&c.csv);
    return status;
}
