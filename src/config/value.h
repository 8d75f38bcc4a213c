/* Values as written in YAML files and on command lines. Parsers accept the whole text or nothing, do not depend on the
 * locale, and set no error record: the caller names the expected value. */
#ifndef TT_CONFIG_VALUE_H
#define TT_CONFIG_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

bool tt_value_is_null(const char *text);               /* "", "~", null, none (any case) */
bool tt_value_parse_bool(const char *text, bool *out); /* true/false, yes/no, on/off, 1/0 (any case) */
/* 12, -3, +4, 1_000; also 1e3 and 2.0, which are whole. */
bool tt_value_parse_int(const char *text, int64_t *out);
/* 2e-5, .5, 1., 1_000.5: decimal and finite. */
bool tt_value_parse_double(const char *text, double *out);

/* Shortest decimal that parses back to the same double, in a form that is also a number in YAML 1.1 (2.0e-05). */
const char *tt_value_format_double(double value, char *text, size_t text_bytes);
bool tt_value_is_utf8(const char *text);
/* True if a reader of YAML 1.1 or 1.2 takes `text`, unquoted, as this text; false for some that it would, too. */
bool tt_value_is_plain(const char *text);
/* Appends `text` as a YAML scalar: plain where that is unambiguous, double-quoted otherwise. */
TT_MUST_USE tt_status tt_value_write_yaml(const char *text, struct tt_str *yaml);
/* Appends `text` for a comment or a log line, as one printable line; other characters become '?'. */
TT_MUST_USE tt_status tt_value_write_comment(const char *text, struct tt_str *out);

#endif
