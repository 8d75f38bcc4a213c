/* Accepted and refused input of the readers of JSON, YAML and safetensors: readers/rows.jsonl, where each row
 * also says what the reference library does with it (versions: VERSIONS.md). Whatever the row, every prefix
 * of it ends in a value or an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "config/yaml.h"
#include "io/safetensors.h"
#include "support/temporary.h"

static char scratch[256];

static tt_status read_json(const char *data, size_t bytes)
{
    struct tt_json json = {0};
    tt_status status = tt_json_parse_source(
        &(struct tt_json_source){.text = data, .bytes = bytes, .origin = "row", .nul = true}, &json);
    tt_json_deinit(&json);
    return status;
}

static tt_status read_yaml(const char *data, size_t bytes, const char *wanted)
{
    struct tt_yaml yaml;
    tt_status status = tt_yaml_parse(data, bytes, "row", &yaml);
    if (status == TT_OK && wanted != NULL) {
        const struct tt_yaml_node *a = tt_yaml_find(yaml.root, "a");
        if (a == NULL || a->text == NULL || strcmp(a->text, wanted) != 0)
            fail_msg("'%s' in: %.200s", a != NULL && a->text != NULL ? a->text : "nothing", data);
    }
    if (status == TT_OK) tt_yaml_deinit(&yaml);
    return status;
}

static tt_status read_safetensors(const char *data, size_t bytes)
{
    struct tt_safetensors *file = NULL;
    struct tt_str text = {0};
    for (int i = 0; i < 8; i++) assert_int_equal(tt_str_append_char(&text, (char)(bytes >> (8 * i))), TT_OK);
    assert_int_equal(tt_str_append(&text, data, bytes), TT_OK);
    assert_int_equal(tt_str_append(&text, "\1\2\3\4", 4), TT_OK);
    assert_int_equal(tt_file_write_atomic(scratch, text.data, text.bytes), TT_OK);
    tt_str_deinit(&text);
    tt_status status = tt_safetensors_open(scratch, &file);
    tt_safetensors_close(file);
    return status;
}

static tt_status read_input(const char *reader, const char *data, size_t bytes, const char *wanted)
{
    if (strcmp(reader, "json") == 0) return read_json(data, bytes);
    if (strcmp(reader, "yaml") == 0) return read_yaml(data, bytes, wanted);
    assert_string_equal(reader, "safetensors");
    return read_safetensors(data, bytes);
}

static void check_row(const struct tt_json *row)
{
    const char *reader, *class, *hex, *ours, *wanted = NULL;
    assert_int_equal(tt_json_string(row, row->root, "reader", &reader), TT_OK);
    assert_int_equal(tt_json_string(row, row->root, "class", &class), TT_OK);
    assert_int_equal(tt_json_string(row, row->root, "hex", &hex), TT_OK);
    assert_int_equal(tt_json_string(row, row->root, "ours", &ours), TT_OK);
    assert_int_equal(tt_json_opt_string(row, row->root, "ours_text", &wanted), TT_OK);
    size_t bytes = strlen(hex) / 2;
    char *data = tt_calloc(bytes + 1, 1);
    assert_non_null(data);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (char)strtol((char[3]){hex[2 * i], hex[2 * i + 1], 0}, NULL, 16);
    uint64_t live = tt_alloc_live();
    tt_status status = read_input(reader, data, bytes, wanted);
    if ((status == TT_OK) != (strcmp(ours, "accept") == 0))
        fail_msg("%s, %s: %s", reader, class, status == TT_OK ? "accepted" : tt_error_last()->message);
    for (size_t i = 0; i < bytes && bytes < 200; i++) (void)read_input(reader, data, i, NULL);
    assert_int_equal(tt_alloc_live(), live);
    tt_free(data);
}

static void all_rows(void **state)
{
    (void)state;
    struct tt_str text = {0};
    size_t count = 0;
    assert_int_equal(tt_file_read(TT_TEST_ROOT "/golden/readers/rows.jsonl", 1 << 20, &text), TT_OK);
    char *end;
    for (char *line = text.data; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        struct tt_json row = {0};
        assert_int_equal(tt_json_parse(line, (size_t)(end - line), "rows.jsonl", &row), TT_OK);
        check_row(&row);
        tt_json_deinit(&row);
        count++;
    }
    assert_true(count > 100);
    tt_str_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_rows)};
    test_temporary(scratch, sizeof scratch, "tt-readers-XXXXXX");
    int descriptor = mkstemp(scratch);
    if (descriptor < 0) return 1;
    close(descriptor);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(scratch);
    return failed;
}
