#include "data/rows.h"

#include <string.h>

#include "base/alloc.h"
#include "base/ascii.h"
#include "base/utf8.h"
#include "data/csv_rows.h"
#include "data/unpack.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The bytes of a name without the ending of compressed files. */
static size_t plain_bytes(const char *path)
{
    size_t bytes = strlen(path);
    for (size_t i = 0; tt_unpack_endings[i] != NULL; i++) {
        size_t ending = strlen(tt_unpack_endings[i]);
        if (bytes > ending && tt_ascii_same(path + bytes - ending, tt_unpack_endings[i]))
            return bytes - ending;
    }
    return bytes;
}

static bool has_ending(const char *path, const char *ending)
{
    size_t path_bytes = plain_bytes(path), bytes = strlen(ending);
    return path_bytes >= bytes && tt_ascii_same_start(path + path_bytes - bytes, ending, bytes);
}

bool tt_rows_is_name(const char *path)
{
    return has_ending(path, ".jsonl") || has_ending(path, ".json") || has_ending(path, ".ndjson") ||
           has_ending(path, ".txt") || has_ending(path, ".csv") || tt_unpack_is_table(path);
}

static tt_status add(struct tt_rows *rows, const char *data, size_t bytes, uint64_t line)
{
    TT_TRY(tt_grow(&rows->spans, rows->count, &rows->capacity));
    rows->spans[rows->count++] = (struct tt_row_span){data, bytes, line};
    tt_file_map_release(data, bytes); /* a long row, until it is read */
    return TT_OK;
}

/* The row is not scanned to its end to find its length: the message gives the distance to the end of the file. */
static tt_status fail_long(const struct tt_rows *rows, uint64_t line, const char *what, size_t rest)
{
    tt_fail(TT_ERR_DATA,
            "'%s', row %zu (line %llu): %s is longer than max_row_size (%zu); it begins %zu bytes before the "
            "end of the file",
            rows->path, rows->count + 1, (unsigned long long)line, what, rows->max_row_size, rest);
    tt_hint("raise max_row_size, or cut the row into several; a file without line ends is one row");
    return TT_ERR_DATA;
}

/* The end of the bytes that a row at `at` may have. */
static const char *row_limit(const struct tt_rows *rows, const char *at, const char *end)
{
    return (size_t)(end - at) > rows->max_row_size ? at + rows->max_row_size : end;
}

/* Blank lines are no rows. */
static tt_status find_lines(struct tt_rows *rows, const char *at, const char *end, size_t max_rows)
{
    for (uint64_t line = 1; at < end && rows->count < max_rows; line++) {
        const char *limit = row_limit(rows, at, end);
        const char *newline = memchr(at, '\n', (size_t)(limit - at));
        if (newline == NULL && limit < end) {
            if (*limit != '\n') return fail_long(rows, line, "the line", (size_t)(end - at));
            newline = limit;
        }
        const char *stop = newline != NULL ? newline : end;
        const char *start = at;
        while (start < stop && is_space(*start)) start++;
        if (start < stop) TT_TRY(add(rows, start, (size_t)(stop - start), line));
        at = newline != NULL ? newline + 1 : end;
    }
    return TT_OK;
}

static const char *skip_space(const char *at, const char *end, uint64_t *line)
{
    while (at < end && is_space(*at)) {
        if (*at == '\n') (*line)++;
        at++;
    }
    return at;
}

/* The quote that ends the text that begins at `at`, or the last byte. */
static const char *string_end(const char *at, const char *end, uint64_t *line)
{
    for (at++; at < end && *at != '"'; at++) {
        if (*at == '\n') (*line)++;
        if (*at == '\\' && at + 1 < end) at++;
    }
    return at < end ? at : end - 1;
}

/* The end of one element of an array: the next comma or bracket outside of strings and inner values. Finds borders
 * only; the parser checks the element. */
static const char *element_end(const char *at, const char *end, uint64_t *line)
{
    int64_t depth = 0;
    for (; at < end; at++) {
        char c = *at;
        if (c == '\n') (*line)++;
        if (c == '"') {
            at = string_end(at, end, line);
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (depth > 0 && (c == '}' || c == ']')) {
            depth--;
        } else if (depth == 0 && (c == ',' || c == ']')) {
            return at;
        }
    }
    return NULL;
}

static tt_status find_elements(struct tt_rows *rows, const char *at, const char *end, size_t max_rows)
{
    uint64_t line = 1;
    at = skip_space(at, end, &line) + 1;
    at = skip_space(at, end, &line);
    if (at < end && *at == ']') return TT_OK;
    for (;;) {
        if (rows->count == max_rows) return TT_OK;
        const char *start = skip_space(at, end, &line);
        uint64_t first_line = line;
        const char *limit = row_limit(rows, start, end);
        /* Includes the comma or bracket after a row of the maximal length. */
        at = element_end(start, limit < end ? limit + 1 : end, &line);
        if (at == NULL && limit < end)
            return fail_long(rows, first_line, "the element", (size_t)(end - start));
        if (at == NULL) {
            return tt_fail(TT_ERR_DATA, "'%s': the list of rows has no end: row %zu begins on line %llu",
                           rows->path, rows->count + 1, (unsigned long long)first_line);
        }
        TT_TRY(add(rows, start, (size_t)(at - start), first_line));
        if (*at++ == ']') break;
    }
    at = skip_space(at, end, &line);
    if (at == end) return TT_OK;
    return tt_fail(TT_ERR_DATA, "'%s': line %llu: text after the list of rows", rows->path,
                   (unsigned long long)line);
}

/* The end of the object that begins at `at`; NULL: it has none before `end`. */
static const char *object_end(const char *at, const char *end)
{
    uint64_t lines = 0;
    int64_t depth = 0;
    for (; at < end; at++) {
        if (*at == '"') {
            at = string_end(at, end, &lines);
        } else if (*at == '{' || *at == '[') {
            depth++;
        } else if ((*at == '}' || *at == ']') && --depth == 0) {
            return at + 1;
        }
    }
    return NULL;
}

/* Whether all of a .json file is one object, over any lines; it is then one row. */
static bool is_object(const struct tt_rows *rows, const char *at, const char *end)
{
    const char *limit = row_limit(rows, at, end);
    if (!has_ending(rows->path, ".json") || at == end || *at != '{') return false;
    const char *behind = object_end(at, limit);
    uint64_t line = 0;
    return behind != NULL && skip_space(behind, end, &line) == end;
}

static tt_status refuse_kind(const char *path)
{
    tt_fail(
        TT_ERR_UNSUPPORTED,
        "'%s' is not supported: data files are .jsonl, .json, .csv or .txt, also with .gz or .zst behind, "
        ".arrow and .parquet",
        path);
    if (has_ending(path, ".tsv"))
        tt_hint(
            "convert it once, in Python: pandas.read_csv('%s', sep='\\t').to_csv('train.csv', index=False)",
            path);
    return TT_ERR_UNSUPPORTED;
}

static tt_status find_rows(struct tt_rows *rows, size_t max_rows)
{
    const char *at = (const char *)rows->map.data, *end = at + rows->map.bytes;
    /* A byte order mark has no meaning in UTF-8. */
    if (end - at >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0) at += 3;
    if (rows->plain_text) return at < end ? add(rows, at, (size_t)(end - at), 1) : TT_OK;
    const char *start = at;
    while (start < end && is_space(*start)) start++;
    if (start < end && *start == '[') return find_elements(rows, at, end, max_rows);
    if (is_object(rows, start, end)) return add(rows, start, (size_t)(end - start), 1);
    return find_lines(rows, at, end, max_rows);
}

/* Replaces the map of a CSV file by that of its rows, with the lines that they have in the file. */
static tt_status find_csv_rows(struct tt_rows *rows, size_t max_rows)
{
    const struct tt_csv_rows_limits limits = {max_rows == SIZE_MAX ? 0 : max_rows, rows->max_row_size};
    struct tt_file_map map;
    uint64_t *lines = NULL;
    size_t count;
    TT_TRY(tt_csv_rows_map(rows->path, &rows->map, &limits, &map, &lines, &count));
    tt_file_map_close(&rows->map);
    rows->map = map;
    rows->max_row_size = SIZE_MAX; /* of the file, which was checked */
    tt_status status = find_rows(rows, max_rows);
    for (size_t i = 0; i < rows->count && i < count; i++) rows->spans[i].line = lines[i];
    tt_free(lines);
    return status;
}

tt_status tt_rows_open(const char *path, const struct tt_unpack_limits *limits, struct tt_rows *rows)
{
    struct tt_rows opened = {.path = path,
                             .max_row_size = limits->row_bytes > 0 ? limits->row_bytes : SIZE_MAX};
    opened.plain_text = has_ending(path, ".txt");
    if (!tt_rows_is_name(path) && !tt_path_is_dir(path) && tt_path_exists(path)) return refuse_kind(path);
    bool packed = false;
    tt_status status = tt_unpack_map(path, limits, &opened.map, &packed);
    if (status == TT_OK && !packed) status = tt_file_map_open(path, &opened.map);
    if (status != TT_OK && !tt_path_exists(path))
        tt_hint("rows are read from a local .jsonl, .json, .csv, .txt or .parquet file");
    TT_GO(status);
    size_t most = limits->rows > 0 ? limits->rows : SIZE_MAX;
    TT_GO(has_ending(path, ".csv") ? find_csv_rows(&opened, most) : find_rows(&opened, most));
    if (opened.count == 0) TT_GO(tt_fail(TT_ERR_DATA, "'%s' has no rows", path));
    *rows = opened;
    return TT_OK;
out:
    tt_rows_close(&opened);
    return status;
}

void tt_rows_close(struct tt_rows *rows)
{
    tt_free(rows->spans);
    tt_file_map_close(&rows->map);
    *rows = (struct tt_rows){0};
}

/* The likely format of a row that is not JSON. */
static void hint_format(const char *at, size_t bytes)
{
    const char *end = at + bytes;
    while (at < end && memchr(" \t\r\n", *at, 4) != NULL) at++;
    if (at == end || memchr("{[\"", *at, 3) == NULL)
        tt_hint("a row is a JSON object on one line, {\"prompt\": \"...\", \"completion\": \"...\"}; a table "
                "with a line of names is read from a .csv file, plain text from a .txt file");
    else if (end - at > 1 && at[0] == '{' && at[1] == '\'')
        tt_hint("JSON has double quotes: write the row by json.dumps(row), not str(row)");
    else if (at[0] == '{' && end[-1] != '}')
        tt_hint("a row is one JSON object on one line, and this one is cut off");
}

void tt_rows_hint(const struct tt_rows *rows, size_t index)
{
    const struct tt_row_span *row = &rows->spans[index];
    const uint8_t *file = rows->map.data;
    bool marked =
        rows->map.bytes >= 2 && (memcmp(file, "\xff\xfe", 2) == 0 || memcmp(file, "\xfe\xff", 2) == 0);
    size_t bytes = row->bytes;
    while (bytes > 0 && memchr(" \t\r\n", row->data[bytes - 1], 4) != NULL) bytes--;
    if (marked)
        tt_hint("the file is UTF-16: iconv -f UTF-16 -t UTF-8 FILE >rows.jsonl");
    else if (tt_utf8_invalid_at(row->data, row->bytes) < row->bytes)
        tt_hint("the file is not UTF-8: iconv -f WINDOWS-1252 -t UTF-8 FILE >rows.jsonl, where that is its "
                "encoding");
    else if (bytes == 1 && row->data[0] == '{')
        tt_hint("each line is one row: jq -c . FILE >rows.jsonl writes objects so");
    else if (!has_ending(rows->path, ".csv"))
        hint_format(row->data, bytes);
}
