/* text/jinja/jinja.h: limits, places of errors, origins of bytes, many threads; what templates print is compared with
 * the reference in golden/jinja.c. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "text/jinja/jinja.h"

static const char conversation[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"sys\"}, {\"role\": "
                                   "\"user\", \"content\": \" one two \"}, "
                                   "{\"role\": \"assistant\", \"content\": \"<think>deep</think>said\", "
                                   "\"tool_calls\": [{\"name\": \"f\", \"n\": 1}]}], "
                                   "\"name\": \"value\"}";

static tt_status parse(const char *text, size_t bytes, struct tt_jinja **jinja)
{
    return tt_jinja_parse(&(struct tt_jinja_source){.text = text, .bytes = bytes, .name = "t.jinja"}, jinja);
}

/* Renders with the conversation; the keys of origins are those of `json`. */
static tt_status render_bytes(const char *text, size_t bytes, struct tt_json *json,
                              struct tt_jinja_output *output)
{
    struct tt_jinja *jinja = NULL;
    assert_int_equal(tt_json_parse(conversation, strlen(conversation), "test", json), TT_OK);
    const struct tt_jinja_variable variables[] = {
        {.name = "messages", .kind = TT_JINJA_JSON, .json = tt_json_get(json->root, "messages")},
        {.name = "name", .kind = TT_JINJA_TEXT, .text = tt_span_of("first")},
        {.name = "name", .kind = TT_JINJA_TEXT, .text = tt_span_of("value")},
        {.name = "yes", .kind = TT_JINJA_BOOL, .flag = true},
        {.name = "tools", .kind = TT_JINJA_NONE},
    };
    const struct tt_jinja_input input = {.variables = variables, .variable_count = 5};
    tt_status status = parse(text, bytes, &jinja);
    if (status == TT_OK) status = tt_jinja_render(jinja, &input, output);
    tt_jinja_destroy(jinja);
    return status;
}

static tt_status render(const char *text, struct tt_json *json, struct tt_jinja_output *output)
{
    return render_bytes(text, strlen(text), json, output);
}

static void expect_text(const char *template, const char *wanted)
{
    struct tt_json json = {0};
    struct tt_jinja_output output = {0};
    if (render(template, &json, &output) != TT_OK) fail_msg("%s: %s", template, tt_error_last()->message);
    assert_string_equal(output.text, wanted);
    tt_jinja_output_deinit(&output);
    tt_json_deinit(&json);
}

static void expect_bytes_error(const char *template, size_t bytes, const char *wanted)
{
    struct tt_json json = {0};
    struct tt_jinja_output output = {0};
    uint64_t live = tt_alloc_live();
    double start = tt_clock_seconds();
    assert_int_equal(render_bytes(template, bytes, &json, &output), TT_ERR_DATA);
    if (strstr(tt_error_last()->message, wanted) == NULL)
        fail_msg("%.200s: %s\n  wanted: %s", template, tt_error_last()->message, wanted);
    assert_null(output.text);
    tt_json_deinit(&json);
    assert_int_equal(tt_alloc_live(), live);
    assert_true(tt_clock_seconds() - start < 20); /* no limit is so far that a machine hangs */
}

static void expect_error(const char *template, const char *wanted)
{
    expect_bytes_error(template, strlen(template), wanted);
}

static void variables(void **state)
{
    (void)state;
    expect_text("{{ name }}{{ yes }}{{ tools }}{{ missing }}{{ tools is none }}{{ missing is none }}",
                "valueTrueNoneTrueFalse");
    expect_error("{{ strftime_now('%Y') }}", "none is given");
}

static void changes_within_loops(void **state)
{
    (void)state;
    expect_text("{% for x in [1, 2, 2, 1, 1] %}{{ loop.changed(x) }} {% endfor %}",
                "True True False True False ");
    expect_text("{% for x in [1, 2, 2] %}{{ loop.changed(x, 5) }} {% endfor %}", "True True False ");
}

static void places(void **state)
{
    (void)state;
    expect_error("a\n\n  {{ messages.x.y }}",
                 "t.jinja line 3, column 17: 'list object' has no attribute 'x'");
    expect_error("{{ missing.x }}", "line 1, column 12: 'missing' is undefined");
    expect_error("{{ missing() }}", "'missing' is undefined");
    expect_error("\r\n{{ 1 + 'a' }}", "line 2, column 6: unsupported operand type(s) for +: 'int' and 'str'");
    expect_error("{{ 'a' + [1] }}", "can only concatenate str (not \"list\") to str");
    expect_error("x{% if yes %}\n{{ raise_exception('no ' ~ name) }}{% endif %}",
                 "line 2, column 19: the template refuses this conversation: no value");
    expect_error("{% if yes %}", "line 1, column 13: the template ends within a block, expected 'elif'");
    expect_error("a {% foo %}", "line 1, column 6: unknown tag 'foo'");
    expect_error("{% include 'x' %}", "line 1, column 4: the tag 'include' is not supported");
    expect_error("{{ name|nothing }}", "line 1, column 9: there is no filter 'nothing'");
    expect_error("{{ name|batch }}", "line 1, column 9: the filter 'batch' is not supported");
    expect_error("{{ name is nothing }}", "there is no test 'nothing'");
    expect_error("{{ 'a }}", "line 1, column 4: a text has no end '");
    expect_error("{{ (1 }}", "unexpected '}', expected ')'");
    expect_error("{{ 1 +", "line 1, column 1: this tag has no end '}}'");
    expect_error("{# a", "a comment has no end '#}'");
    expect_error("{{ a ? b }}", "line 1, column 6: unexpected character '?'");
    expect_error("{% for x in messages recursive %}{% endfor %}", "recursive loops are not supported");
    expect_error("{% macro m(a) %}{{ a.b.c }}{% endmacro %}{{ m({}) }}",
                 "line 1, column 24: 'dict object' has no attribute 'b'");
    expect_error("{{ messages.append(1) }}", "'list object' has no attribute 'append'");
    expect_bytes_error("a\xff", 2, "t.jinja is not UTF-8 at byte 1");
}

/* `part`, many times over, between `head` and `tail`. */
static void expect_repeated_error(const char *head, const char *part, size_t times, const char *tail,
                                  const char *wanted)
{
    struct tt_str text = {0};
    assert_int_equal(tt_str_append_text(&text, head), TT_OK);
    for (size_t i = 0; i < times; i++) assert_int_equal(tt_str_append_text(&text, part), TT_OK);
    assert_int_equal(tt_str_append_text(&text, tail), TT_OK);
    expect_bytes_error(text.data, text.bytes, wanted);
    tt_str_deinit(&text);
}

static void limits_of_templates(void **state)
{
    (void)state;
    expect_repeated_error("", "0123456789abcdef", (1 << 20) / 16 + 1, "", "a template at most 1048576");
    expect_repeated_error("{{ [", "1,", 101000, "] }}", "more than 200000 words and signs");
    expect_repeated_error("{{ ", "(", 100000, "", "more than 300 brackets within each other");
    char closing[200] = "";
    memset(closing, ']', 150);
    expect_repeated_error("{{ ", "[", 150, strcat(closing, " }}"),
                          "more than 300 blocks and expressions within each other");
    expect_repeated_error("{{ ", "not ", 100000, "1 }}",
                          "more than 300 blocks and expressions within each other");
    expect_repeated_error("{{ ", "-", 50000, "1 }}",
                          "more than 300 blocks and expressions within each other");
    expect_repeated_error("", "{% if yes %}", 20000, "",
                          "more than 300 blocks and expressions within each other");
    expect_repeated_error("{{ name", ".a", 90000, " }}",
                          "more than 1500 expressions and blocks within each other");
    expect_repeated_error("{{ 1", " + 1", 90000, " }}",
                          "more than 1500 expressions and blocks within each other");
    expect_repeated_error("{{ name", "|trim", 90000, " }}",
                          "more than 1500 expressions and blocks within each other");
    expect_repeated_error("{{ 1", " and 1", 90000, " }}",
                          "more than 1500 expressions and blocks within each other");
    struct tt_str text = {0};
    for (int i = 0; i < 5000; i++) assert_int_equal(tt_str_printf(&text, "{{ v%d }}", i), TT_OK);
    expect_bytes_error(text.data, text.bytes, "more than 4096 names of variables");
    tt_str_deinit(&text);
}

static void limits_of_renderings(void **state)
{
    (void)state;
    expect_error("{{ range(1000000000) }}", "a range may have at most 100000 elements");
    expect_error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
                 "more than 64 calls of macros within each other");
    expect_error("{% macro m(x) %}{{ caller(x) }}{% endmacro %}{% macro n(x) %}{% call(y) m(x) %}{{ n(y) "
                 "}}{% endcall %}"
                 "{% endmacro %}{{ n(1) }}",
                 "more than 64 calls of macros within each other");
    expect_error(
        "{% set ns = namespace(x='a') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "a text may have at most 16777216 bytes");
    expect_error("{{ 'abcdefgh' * 9999999 }}", "a text may have at most 16777216 bytes");
    expect_error("{{ ('a' * 9999999).replace('a', 'bbbb') }}", "a rendering may take at most 10000000 steps");
    expect_error("{{ 'a'.center(999999999999) }}", "a text may have at most 16777216 bytes");
    expect_error("{{ [0] * 99999999999 }}", "exceeds the memory limit");
    expect_error(
        "{% set ns = namespace(x=[0]) %}{% for i in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "may take at most 256 MiB of memory");
    expect_error("{% for i in range(100) %}{{ 'abcdefghijklmnop' * 62500 }}{% endfor %}",
                 "the output may have at most 67108864 bytes");
    expect_error("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
                 "a rendering may take at most 10000000 steps");
    expect_error("{% set ns = namespace(x=[]) %}{% for i in range(2000) %}{% set ns.x = [ns.x] %}{% endfor "
                 "%}{{ ns.x }}",
                 "more than 600 lists and dicts within each other");
    expect_error("{% set a = namespace(x=[]) %}{% set b = namespace(x=[]) %}{% for i in range(2000) %}"
                 "{% set a.x = [a.x] %}{% set b.x = [b.x] %}{% endfor %}{{ a.x == b.x }}",
                 "more than 600 lists and dicts within each other");
    expect_error("{% set a = namespace(x={}) %}{% for i in range(2000) %}{% set a.x = {'a': a.x} %}{% endfor "
                 "%}{{ a.x|tojson }}",
                 "more than 600 lists and dicts within each other");
    expect_error("{% set s = 'a' * 9999999 %}{% for i in range(9999) %}{{ 'b' in s }}{% endfor %}",
                 "a rendering may take at most 10000000 steps");
    expect_error("{{ 2 ** 62 * 2 }}", "integers beyond 64 bits are not supported");
}

/* "[path]text" of each span; * for generation. */
static void expect_spans(const char *template, const char *wanted)
{
    struct tt_json json = {0};
    struct tt_jinja_output output = {0};
    struct tt_str shown = {0};
    if (render(template, &json, &output) != TT_OK) fail_msg("%s: %s", template, tt_error_last()->message);
    uint32_t begin = 0;
    for (size_t i = 0; i < output.span_count; i++) {
        const struct tt_jinja_span *span = &output.spans[i];
        assert_true(span->end > begin);
        assert_int_equal(tt_str_append_text(&shown, span->generation ? "*[" : "["), TT_OK);
        assert_int_equal(tt_jinja_origin_path(&output, span->origin, &shown), TT_OK);
        assert_int_equal(tt_str_append_text(&shown, "]"), TT_OK);
        assert_int_equal(tt_str_append(&shown, output.text + begin, span->end - begin), TT_OK);
        begin = span->end;
    }
    assert_int_equal(begin, output.bytes);
    assert_string_equal(tt_str_text(&shown), wanted);
    tt_str_deinit(&shown);
    tt_jinja_output_deinit(&output);
    tt_json_deinit(&json);
}

static void origins(void **state)
{
    (void)state;
    expect_spans("", "");
    expect_spans("a{{ name }}b", "[]a[name]value[]b");
    expect_spans("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}",
                 "[]<[messages[0].role]system[]>[messages[0].content]sys[]<[messages[1].role]user[]>"
                 "[messages[1].content] one two []<[messages[2].role]assistant[]>"
                 "[messages[2].content]<think>deep</think>said");
    expect_spans("{{ messages[1].content|trim + '!' }}", "[messages[1].content]one two[]!");
    expect_spans("{{ 'a' ~ name ~ messages[0].content }}", "[]a[name]value[messages[0].content]sys");
    expect_spans("{{ ('a' + name + 'b')[1:-1] }}", "[name]value");
    expect_spans("{{ ('a' + name + 'b')[::-1] }}", "[]b[name]eulav[]a");
    expect_spans("{{ ('a' + name + 'b')|upper }}", "[]A[name]VALUE[]B");
    expect_spans("{{ name.replace('l', '-') }}", "[name]va[]-[name]ue");
    expect_spans(
        "{{ messages[2].content.split('</think>')[-1] }}|{{ messages[2].content.split('<think>')[1][:4] }}",
        "[messages[2].content]said[]|[messages[2].content]deep");
    expect_spans("{% set x %}<{{ name }}>{% endset %}{{ x }}{{ x|length }}", "[]<[name]value[]>7");
    expect_spans("{% macro m(t) %}<{{ t }}>{% endmacro %}{{ m(name)|trim('<') }}", "[name]value[]>");
    expect_spans("{{ [name, 'x', name]|join('-') }}", "[name]value[]-x-[name]value");
    expect_spans(
        "{{ messages[2].tool_calls|tojson }}",
        "[messages[2].tool_calls][[messages[2].tool_calls[0]]{[messages[2].tool_calls[0].name]\"name\""
        "[messages[2].tool_calls[0]]: [messages[2].tool_calls[0].name]\"f\"[messages[2].tool_calls[0]], "
        "[messages[2].tool_calls[0].n]\"n\"[messages[2].tool_calls[0]]: [messages[2].tool_calls[0].n]1"
        "[messages[2].tool_calls[0]]}[messages[2].tool_calls]]");
    expect_spans("{{ '%s=%5s' % ('a', name) }}{{ name|e }}{{ ('x' ~ name)|indent }}",
                 "[]a=[name]valuevalue[]x[name]value");
    expect_spans("{{ name if yes else 'x' }}{{ name and 'y' }}", "[name]value[]y");
}

static void generation(void **state)
{
    (void)state;
    expect_spans("a{% generation %}b{{ name }}{% endgeneration %}c", "[]a*[]b*[name]value[]c");
    expect_spans("{% macro m(t) %}<{% generation %}{{ t }}{% endgeneration %}>{% endmacro %}x{{ m(name) }}{{ "
                 "m('y') }}",
                 "[]x<*[name]value[]><*[]y[]>");
    expect_spans("{% set x %}{% generation %}{{ name }} {% endgeneration %}!{% endset %}{{ x[1:] }}",
                 "*[name]alue*[] []!");
    struct tt_jinja *jinja = NULL;
    assert_int_equal(parse("{% generation %}{% endgeneration %}", 35, &jinja), TT_OK);
    assert_true(tt_jinja_has_generation(jinja));
    tt_jinja_destroy(jinja);
    assert_int_equal(parse("a", 1, &jinja), TT_OK);
    assert_false(tt_jinja_has_generation(jinja));
    tt_jinja_destroy(jinja);
}

static void elements(void **state)
{
    (void)state;
    struct tt_json json = {0};
    struct tt_jinja_output output = {0};
    struct tt_str path = {0};
    uint32_t index = 99, member = 99;
    assert_int_equal(
        render("{{ messages[2].tool_calls[0].name }}{{ messages[1]|tojson }}{{ name }}x", &json, &output),
        TT_OK);
    assert_true(tt_jinja_origin_element(&output, output.spans[0].origin, "messages", &index, &member));
    assert_int_equal(index, 2);
    assert_int_equal(tt_jinja_origin_path(&output, member, &path), TT_OK);
    assert_string_equal(path.data, "messages[2].tool_calls");
    assert_true(tt_jinja_origin_element(&output, output.spans[1].origin, "messages", &index, &member));
    assert_int_equal(index, 1);
    assert_int_equal(member, 0);
    assert_false(tt_jinja_origin_element(&output, output.spans[0].origin, "tools", &index, &member));
    assert_false(tt_jinja_origin_element(&output, output.spans[output.span_count - 2].origin, "name", &index,
                                         &member));
    assert_false(tt_jinja_origin_element(&output, 0, "messages", &index, &member));
    tt_str_deinit(&path);
    tt_jinja_output_deinit(&output);
    tt_json_deinit(&json);
}

/* Every allocation may fail: an error, no leak. */
static void memory_runs_out(void **state)
{
    (void)state;
    static const char template[] = "{% macro m(a, b=1) %}{% generation %}{{ a }}{% endgeneration %}{% "
                                   "endmacro %}{% set ns = namespace(x={}) %}"
                                   "{% for x in messages if x.role %}{{ m(x.content ~ loop.length) }}{{ "
                                   "x|tojson }}{{ x.items()|list }}{% endfor %}";
    uint64_t live = tt_alloc_live();
    bool failed = true;
    for (uint64_t nth = 1; failed; nth++) {
        struct tt_json json = {0};
        struct tt_jinja_output output = {0};
        struct tt_jinja *jinja = NULL;
        assert_int_equal(tt_json_parse(conversation, strlen(conversation), "test", &json), TT_OK);
        const struct tt_jinja_variable messages = {
            .name = "messages", .kind = TT_JINJA_JSON, .json = tt_json_get(json.root, "messages")};
        const struct tt_jinja_input input = {.variables = &messages, .variable_count = 1};
        tt_alloc_fail_at(nth);
        tt_status status = parse(template, sizeof template - 1, &jinja);
        if (status == TT_OK) status = tt_jinja_render(jinja, &input, &output);
        tt_alloc_fail_at(0);
        failed = status != TT_OK;
        if (failed) assert_int_equal(status, TT_ERR_MEMORY);
        assert_true(nth > 3 || failed);
        tt_jinja_destroy(jinja);
        tt_jinja_output_deinit(&output);
        tt_json_deinit(&json);
        assert_int_equal(tt_alloc_live(), live);
    }
}

enum { THREADS = 4, RENDERINGS = 200 };

static void *render_often(void *context)
{
    const struct tt_jinja *jinja = context;
    struct tt_jinja_output output = {0};
    struct tt_json json = {0};
    bool same = tt_json_parse(conversation, strlen(conversation), "test", &json) == TT_OK;
    const struct tt_jinja_variable messages = {
        .name = "messages", .kind = TT_JINJA_JSON, .json = tt_json_get(json.root, "messages")};
    const struct tt_jinja_input input = {.variables = &messages, .variable_count = 1};
    for (int i = 0; same && i < RENDERINGS; i++) {
        same = tt_jinja_render(jinja, &input, &output) == TT_OK &&
               strcmp(output.text, "sys1h\u00e9 one two 2h\u00e9<think>deep</think>said3h\u00e9") == 0;
        tt_jinja_output_deinit(&output);
    }
    tt_json_deinit(&json);
    return same ? context : NULL;
}

static void many_threads(void **state)
{
    (void)state;
    static const char template[] =
        "{% for m in messages %}{{ m.content ~ loop.index }}{{ 'xh\u00e9y'[1:-1] }}{% endfor %}";
    struct tt_jinja *jinja = NULL;
    pthread_t threads[THREADS];
    assert_int_equal(parse(template, sizeof template - 1, &jinja), TT_OK);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, jinja), 0);
    for (int i = 0; i < THREADS; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_non_null(result);
    }
    tt_jinja_destroy(jinja);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(variables),
                                       cmocka_unit_test(changes_within_loops),
                                       cmocka_unit_test(places),
                                       cmocka_unit_test(limits_of_templates),
                                       cmocka_unit_test(limits_of_renderings),
                                       cmocka_unit_test(origins),
                                       cmocka_unit_test(generation),
                                       cmocka_unit_test(elements),
                                       cmocka_unit_test(memory_runs_out),
                                       cmocka_unit_test(many_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
