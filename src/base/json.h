/* JSON: a thin view over jansson. Values are borrowed from the document that owns them. Getters report the
 * path of the offending key and what was found; documents remember where they came from for messages.
 *
 * Duplicate keys are an error, depth is limited, numbers out of range are an error, and strings hold UTF-8 (with
 * \u0000 refused unless asked for): what jansson checks, plus a size limit.
 */
#ifndef TT_BASE_JSON_H
#define TT_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"
#include "base/str.h"

/* An owned document. A zeroed struct is empty; deinit takes it. */
struct tt_json {
    json_t *root;
    char *origin; /* "config.json", "train.jsonl row 17": used in messages */
};

/* Errors say origin, line and column. */
TT_MUST_USE tt_status tt_json_parse(const char *text, size_t bytes, const char *origin, struct tt_json *json);
TT_MUST_USE tt_status tt_json_read(const char *path, size_t max_bytes, struct tt_json *json);
void tt_json_deinit(struct tt_json *json);

/* Required members: TT_ERR_DATA when missing or of another type. `object` is any object inside `json`. */
TT_MUST_USE tt_status tt_json_int(const struct tt_json *json, const json_t *object, const char *key, int64_t *out);
TT_MUST_USE tt_status tt_json_double(const struct tt_json *json, const json_t *object, const char *key, double *out);
TT_MUST_USE tt_status tt_json_bool(const struct tt_json *json, const json_t *object, const char *key, bool *out);
TT_MUST_USE tt_status tt_json_string(const struct tt_json *json, const json_t *object, const char *key, const char **out);
TT_MUST_USE tt_status tt_json_array(const struct tt_json *json, const json_t *object, const char *key, const json_t **out);
TT_MUST_USE tt_status tt_json_object(const struct tt_json *json, const json_t *object, const char *key, const json_t **out);
/* Optional members: missing or null leaves *out as it is; another type is an error. */
TT_MUST_USE tt_status tt_json_opt_int(const struct tt_json *json, const json_t *object, const char *key, int64_t *out);
TT_MUST_USE tt_status tt_json_opt_double(const struct tt_json *json, const json_t *object, const char *key, double *out);
TT_MUST_USE tt_status tt_json_opt_bool(const struct tt_json *json, const json_t *object, const char *key, bool *out);
TT_MUST_USE tt_status tt_json_opt_string(const struct tt_json *json, const json_t *object, const char *key, const char **out);

/* Text as Python's json.dumps(value, indent=2, sort_keys=True) writes it (floats in their shortest form that
 * reads back the same), without a newline at the end; indent 0 gives one line with ", " and ": ". */
TT_MUST_USE tt_status tt_json_write(const json_t *value, int indent, bool sort_keys, struct tt_str *text);
/* The same and a newline into folder/name, which appears as a whole. */
TT_MUST_USE tt_status tt_json_write_file(const json_t *value, int indent, bool sort_keys, const char *folder, const char *name);

#endif
