/* JSON: parsing, the getters on whatever was parsed, and writing: what is written must read back as the same
 * value. */
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"

static void get(const struct tt_json *json, const json_t *value)
{
    int64_t integer;
    double real;
    bool boolean;
    const char *text;
    const json_t *child;
    (void)!tt_json_int(json, value, "a", &integer);
    (void)!tt_json_double(json, value, "a", &real);
    (void)!tt_json_bool(json, value, "a", &boolean);
    (void)!tt_json_opt_string(json, value, "a", &text);
    (void)!tt_json_array(json, value, "a", &child);
    if (tt_json_object(json, value, "a", &child) == TT_OK) get(json, child);
}

static void write_and_read(const json_t *value, int indent)
{
    struct tt_str text = {0};
    json_error_t error;
    if (tt_json_write(value, indent, indent > 0, &text) != TT_OK) abort();
    json_t *again = json_loadb(text.data, text.bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (again == NULL || !json_equal(value, again)) abort();
    json_decref(again);
    tt_str_deinit(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_json json = {0};
    if (tt_json_parse((const char *)data, size, "fuzz", &json) == TT_OK) get(&json, json.root);
    tt_json_deinit(&json);
    /* Data rows may hold U+0000. */
    json_error_t error;
    json_t *value = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (value != NULL) {
        write_and_read(value, 0);
        if (size < 4096) write_and_read(value, 2);
    }
    json_decref(value);
    return 0;
}
