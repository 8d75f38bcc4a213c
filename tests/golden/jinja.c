/* Templates render as by Jinja2 in transformers' environment, byte for byte, or both refuse: jinja/cases.jsonl of small
 * templates and expressions, jinja/renderings.jsonl of chat templates and conversations (versions: VERSIONS.md). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "text/jinja/jinja.h"

enum { VARIABLES_MAX = 64, SETS_MAX = 64 };

/* Sets of variables by name, each on a line before those that use it. */
struct sets {
    struct tt_json json[SETS_MAX];
    size_t count;
};

static const struct tt_json_value *find_set(const struct sets *sets, const char *name)
{
    for (size_t i = 0; i < sets->count; i++)
        if (strcmp(tt_json_text(tt_json_get(sets->json[i].root, "name")), name) == 0)
            return tt_json_get(sets->json[i].root, "values");
    fail_msg("there are no variables '%s'", name);
    return NULL;
}

static tt_status render(struct tt_span template, const struct tt_json_value *values,
                        struct tt_jinja_output *output)
{
    struct tt_jinja_variable variables[VARIABLES_MAX];
    struct tt_jinja_input input = {.variables = variables, .date = {2026, 3, 5, 7, 8, 9}};
    for (struct tt_json_member member; (member = tt_json_member(values, input.variable_count)).value != NULL;)
        variables[input.variable_count++] =
            (struct tt_jinja_variable){.name = member.key.data, .kind = TT_JINJA_JSON, .json = member.value};
    struct tt_jinja *jinja = NULL;
    tt_status status =
        tt_jinja_parse(&(struct tt_jinja_source){template.data, template.bytes, "template"}, &jinja);
    if (status == TT_OK) status = tt_jinja_render(jinja, &input, output);
    tt_jinja_destroy(jinja);
    return status;
}

/* The ranges of generation, as the reference has them: neighbours joined. */
static void check_generation(const struct tt_json_value *row, const struct tt_jinja_output *output)
{
    const struct tt_json_value *ranges = tt_json_get(row, "generation");
    size_t range = 0, byte = 0;
    if (ranges == NULL) return;
    for (size_t i = 0; i < output->span_count; byte = output->spans[i++].end) {
        while (range < tt_json_count(ranges) &&
               tt_json_integer(tt_json_at(tt_json_at(ranges, range), 1)) <= (int64_t)byte)
            range++;
        const struct tt_json_value *at = tt_json_at(ranges, range);
        bool inside = at != NULL && tt_json_integer(tt_json_at(at, 0)) <= (int64_t)byte;
        assert_int_equal(output->spans[i].generation, inside);
        int64_t border = at == NULL ? INT64_MAX : tt_json_integer(tt_json_at(at, inside ? 1 : 0));
        assert_true((int64_t)output->spans[i].end <= border);
    }
    assert_int_equal(byte, output->bytes);
}

static int check_row(const struct sets *sets, const struct tt_json_value *row)
{
    struct tt_str source = {0};
    struct tt_span template = tt_json_span(tt_json_get(row, "template"));
    if (template.data == NULL) {
        char path[512];
        snprintf(path, sizeof path, TT_TEST_ROOT "/golden/jinja/templates/%s",
                 tt_json_text(tt_json_get(row, "file")));
        assert_int_equal(tt_file_read(path, 1 << 20, &source), TT_OK);
        template = (struct tt_span){source.data, source.bytes};
    }
    const struct tt_json_value *values = find_set(sets, tt_json_text(tt_json_get(row, "variables")));
    const struct tt_json_value *wanted = tt_json_get(row, "output");
    struct tt_jinja_output output = {0};
    uint64_t live = tt_alloc_live();
    tt_status status = render(template, values, &output);
    struct tt_span text = tt_json_span(wanted);
    int failed = 0;
    if (wanted == NULL && status == TT_OK) {
        print_error("%.300s\n  rendered: %.300s\n", template.data, output.text);
        failed = 1;
    } else if (wanted != NULL && status != TT_OK) {
        print_error("%.300s\n  refused: %s\n  wanted: %.300s\n", template.data, tt_error_last()->message,
                    text.data);
        failed = 1;
    } else if (wanted != NULL &&
               (text.bytes != output.bytes || memcmp(text.data, output.text, text.bytes) != 0)) {
        print_error("%.300s\n  rendered: %.300s\n  wanted:   %.300s\n", template.data, output.text,
                    text.data);
        failed = 1;
    } else if (wanted != NULL) {
        check_generation(row, &output);
    } else {
        assert_int_equal(status, TT_ERR_DATA);
        assert_non_null(strstr(tt_error_last()->message, "template line "));
        assert_non_null(strstr(tt_error_last()->message, ", column "));
    }
    tt_jinja_output_deinit(&output);
    assert_int_equal(tt_alloc_live(), live);
    tt_str_deinit(&source);
    return failed;
}

static void check_file(const char *path, size_t least)
{
    struct tt_str text = {0};
    struct sets *sets = tt_calloc(1, sizeof *sets);
    size_t count = 0;
    int failed = 0;
    assert_non_null(sets);
    assert_int_equal(tt_file_read(path, 16 << 20, &text), TT_OK);
    char *end;
    for (char *line = text.data; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        struct tt_json row = {0};
        struct tt_json_source source = {
            .text = line, .bytes = (size_t)(end - line), .origin = path, .nul = true};
        assert_int_equal(tt_json_parse_source(&source, &row), TT_OK);
        if (tt_json_get(row.root, "values") != NULL) {
            assert_true(sets->count < SETS_MAX);
            sets->json[sets->count++] = row;
            continue;
        }
        failed += check_row(sets, row.root);
        tt_json_deinit(&row);
        count++;
    }
    assert_true(count >= least);
    if (failed > 0) fail_msg("%d of %zu", failed, count);
    for (size_t i = 0; i < sets->count; i++) tt_json_deinit(&sets->json[i]);
    tt_free(sets);
    tt_str_deinit(&text);
}

static void cases(void **state)
{
    (void)state;
    check_file(TT_TEST_ROOT "/golden/jinja/cases.jsonl", 900);
}

static void renderings(void **state)
{
    (void)state;
    check_file(TT_TEST_ROOT "/golden/jinja/renderings.jsonl", 15 * 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cases), cmocka_unit_test(renderings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
