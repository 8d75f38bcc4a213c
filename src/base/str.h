/* Growing byte strings and borrowed spans. A zeroed tt_str is valid and empty; data is always terminated. */
#ifndef TT_BASE_STR_H
#define TT_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"

struct tt_str {
    char *data;   /* NULL while empty and never grown */
    size_t bytes; /* without the terminator */
    size_t capacity;
};

/* Borrowed bytes, not terminated. */
struct tt_span {
    const char *data;
    size_t bytes;
};

TT_MUST_USE tt_status tt_str_append(struct tt_str *str, const char *data, size_t bytes);
TT_MUST_USE tt_status tt_str_append_text(struct tt_str *str, const char *text);
TT_MUST_USE tt_status tt_str_append_char(struct tt_str *str, char c);
TT_MUST_USE tt_status tt_str_append_fill(struct tt_str *str, char c, size_t count);
TT_MUST_USE tt_status tt_str_printf(struct tt_str *str, const char *format, ...) TT_PRINTF(2, 3);
void tt_str_clear(struct tt_str *str); /* keeps the memory */
void tt_str_deinit(struct tt_str *str);
const char *tt_str_text(const struct tt_str *str); /* never NULL */

struct tt_span tt_span_of(const char *text);
bool tt_span_equals(struct tt_span a, const char *text);
bool tt_span_starts_with(struct tt_span span, const char *start);
bool tt_span_ends_with(struct tt_span span, const char *ending);
bool tt_starts_with(const char *text, const char *start);
bool tt_ends_with(const char *text, const char *ending);
int tt_compare_texts(const void *a, const void *b); /* for qsort of an array of texts: by bytes */
/* True if `text` starts with one of the words of `starts`, which spaces separate. */
bool tt_starts_with_one_of(const char *text, const char *starts);

/* "1.5 GiB", "312 MiB", "17 B"; returns `text`. */
const char *tt_format_bytes(double bytes, char *text, size_t text_bytes);
struct tt_rounded {
    char text[32];
};
/* A number for readers, to three digits: "1,140", "85.4", "0.0791", "9,870,000", "0". In an expression of its caller:
 * tt_rounded(rate).text. */
struct tt_rounded tt_rounded(double value);
/* "1h02m", "3m20s", "12.3s"; returns `text`. */
const char *tt_format_duration(double seconds, char *text, size_t text_bytes);
/* "8.13 ms", "414 ms", "4.88 s", "1m40s"; below a tenth of a millisecond "42.2 us". Returns `text`. */
const char *tt_format_seconds(double seconds, char *text, size_t text_bytes);
/* Damerau-Levenshtein distance of the first 127 bytes of each, for "did you mean". */
int tt_edit_distance(const char *a, const char *b);
/* True if `name` is likely a misspelt `known`: few edits, relative to the part that differs between a common beginning
 * and end (fsdp_use_orig_params and fsdp_offload_params share much and are unrelated). *distance gets the edits. */
bool tt_name_is_near(const char *known, const char *name, int *distance);
/* Parses "24GiB", "512M", "1.5e9". K, M, G, T are powers of 1000; Ki.. and KiB.. powers of 1024. */
TT_MUST_USE tt_status tt_parse_bytes(const char *text, size_t *bytes);

#endif
