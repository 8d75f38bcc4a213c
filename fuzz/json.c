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

static void write_and_read(const struct tt_json *json, int indent)
{
    struct tt_str text = {0};
    struct tt_json again = {0};
    if (tt_json_write(json->root, indent, indent > 0, &text) != TT_OK) abort();
    if (tt_json_parse_nul(text.data, text.bytes, "written", &again) != TT_OK) abort();
    if (!json_equal(json->root, again.root)) abort();
    tt_json_deinit(&again);
    tt_str_deinit(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_json json = {0};
    if (tt_json_parse_nul((const char *)data, size, "fuzz", &json) == TT_OK) {
        get(&json, json.root);
        write_and_read(&json, 0);
        if (size < 4096) write_and_read(&json, 2);
    }
    tt_json_deinit(&json);
    if (tt_json_parse((const char *)data, size, "fuzz", &json) == TT_OK) tt_json_deinit(&json);
    return 0;
}
