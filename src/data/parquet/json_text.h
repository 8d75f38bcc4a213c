/* A value of a column as JSON: the text that Python's json.dumps gives of what pyarrow's to_pylist() gives, without its
 * escapes of non-ASCII. What JSON has not is the text of Python's str(): dates, times, UUIDs. Decimals are numbers. */
#ifndef TT_DATA_PARQUET_JSON_TEXT_H
#define TT_DATA_PARQUET_JSON_TEXT_H

#include "data/parquet/schema.h"
#include "data/parquet/values.h"

/* Appends the value. False with *why: it has no such text. *status: TT_ERR_MEMORY, else unchanged. */
bool parquet_json_value(const struct parquet_node *node, const struct parquet_value *value,
                        struct tt_str *text, const char **why, tt_status *status);
/* Appends valid UTF-8 as a string of JSON. */
TT_MUST_USE tt_status parquet_json_string(const char *data, size_t bytes, struct tt_str *text);

#endif
