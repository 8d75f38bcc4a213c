/* Calls of tools in answers; an answer is cut at any byte, as a stream shows it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "serve/call_format.h"
#include "serve/tool_calls.h"
#include "support/allocations.h"

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\": {\"properties\": "
    "{\"city\": "
    "{\"type\": \"string\"}, \"days\": {\"type\": \"integer\"}}}}}, {\"name\": \"add\"}]";

/* Calls as "name arguments; name arguments", after "content|"; no calls: NULL. */
static const char *calls_of(const char *answer, char *out, size_t bytes)
{
    struct tt_json tools = {0};
    struct tt_json_value *calls = NULL;
    size_t content, at;
    assert_int_equal(tt_json_parse(tools_text, strlen(tools_text), "tools", &tools), TT_OK);
    assert_int_equal(tt_tool_calls_find(tt_span_of(answer), tools.root, 1, &calls, &content), TT_OK);
    at = (size_t)snprintf(out, bytes, "%.*s|", (int)content, answer);
    for (size_t i = 0; i < tt_json_count(calls); i++) {
        const struct tt_json_value *call = tt_json_at(calls, i), *function = tt_json_get(call, "function");
        const char *id = tt_json_text(tt_json_get(call, "id"));
        assert_string_equal(tt_json_text(tt_json_get(call, "type")), "function");
        assert_int_equal(strlen(id), 9);
        assert_int_equal(strspn(id, "0123456789abcdefghijklmnopqrstuvwxyz"), 9);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(id, tt_json_text(tt_json_get(tt_json_at(calls, j), "id")));
        at += (size_t)snprintf(out + at, bytes - at, "%s%s %s", i > 0 ? "; " : "",
                               tt_json_text(tt_json_get(function, "name")),
                               tt_json_text(tt_json_get(function, "arguments")));
    }
    bool none = calls == NULL;
    if (none) assert_int_equal(content, strlen(answer));
    tt_json_release(calls);
    tt_json_deinit(&tools);
    return none ? NULL : out;
}

static const struct {
    const char *answer, *calls;
} cases[] = {
    {"<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>",
     "|weather {\"city\": \"Rome\"}"},
    {"I look.\n\n<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": [2.5]}}</tool_call>\n"
     "<tool_call>{\"arguments\": {}, \"name\": \"weather\"}</tool_call>\n",
     "I look.|add {\"a\": 1, \"b\": [2.5]}; weather {}"},
    {"<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>", "|add {\"a\": 1}"},
    {"<tool_call>\n{\"name\": \"add\", \"arguments\": {}}", "|add {}"},
    {" {\"name\": \"weather\", \"parameters\": {\"city\": \"Rome\"}}\n", "|weather {\"city\": \"Rome\"}"},
    {"[{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"add\", \"arguments\": {\"a\": 2}}]",
     "|add {\"a\": 1}; add {\"a\": 2}"},
    /* Qwen3-Coder */
    {"So.\n<tool_call>\n<function=weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n</"
     "parameter>\n"
     "</function>\n</tool_call>\n<tool_call>\n<function=add>\n</function>\n</tool_call>",
     "So.|weather {\"city\": \"12\", \"days\": 3}; add {}"},
    {"<function=weather>\n<parameter=city>\nNew\nYork\n</parameter>\n<parameter=days>\nx\n</parameter>\n</"
     "function>",
     "|weather {\"city\": \"New\\nYork\", \"days\": \"x\"}"},
    {"<tool_call>\n<function=unknown>\n</function>\n</tool_call>", NULL},
    {"<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</function>\n</tool_call>", NULL},
    {"<tool_call>\n<function=add>\n</function>\n</tool_call> and more", NULL},
    /* Mistral, with its token shown and without it */
    {"[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 1}}]", "|add {\"a\": 1}"},
    {"Ok.[TOOL_CALLS]add[ARGS]{\"a\": \"}\"}[TOOL_CALLS]weather[ARGS]{}",
     "Ok.|add {\"a\": \"}\"}; weather {}"},
    {"add{\"a\": {\"b\": 2}}weather{}", "|add {\"a\": {\"b\": 2}}; weather {}"},
    {"add{\"a\": 1", NULL},
    {"add{\"a\": 1} or not", NULL},
    {"adder{\"a\": 1}", NULL},
    /* Gemma 4 and FunctionGemma */
    {"I ask.<|tool_call>call:weather{city:<|\"|>New York, USA<|\"|>,days:3}<tool_call|>",
     "I ask.|weather {\"city\": \"New York, USA\", \"days\": 3}"},
    {"<start_function_call>call:add{a:<escape>x<escape>,b:[1,{c:true}]}<end_function_call>"
     "<start_function_call>call:weather{}<end_function_call>",
     "|add {\"a\": \"x\", \"b\": [1, {\"c\": true}]}; weather {}"},
    {"call:weather{city:New York}", "|weather {\"city\": \"New York\"}"},
    {"call:weather{city:New York", NULL},
    {"call:unknown{}", NULL},
    {"<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>", NULL},
    {"<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call> and more", NULL},
    {"<tool_call>{\"name\": \"add\", \"arguments\": {</tool_call>", NULL},
    {"<tool_call>{\"name\": \"add\", \"arguments\": 5}</tool_call>", NULL},
    {"<tool_call></tool_call>", NULL},
    {"{\"name\": \"add\"}", NULL},
    {"{\"name\": \"add\", \"arguments\": {}} is a call", NULL},
    {"[]", NULL},
    {"[{\"name\": \"add\", \"arguments\": {}}, 5]", NULL},
    {"{", NULL},
    {"plain text <tool", NULL},
    {" \n", NULL},
    {"", NULL},
};

static void answers(void **state)
{
    (void)state;
    char out[600];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *calls = calls_of(cases[i].answer, out, sizeof out);
        if (cases[i].calls == NULL)
            assert_null(calls);
        else
            assert_string_equal(calls, cases[i].calls);
    }
}

/* What a stream has sent is never taken back, and is never a part of a call. */
static void streams(void **state)
{
    (void)state;
    struct tt_json tools = {0};
    assert_int_equal(tt_json_parse(tools_text, strlen(tools_text), "tools", &tools), TT_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *answer = cases[i].answer, *border = cases[i].calls;
        size_t sent = 0, most = border != NULL ? (size_t)(strchr(border, '|') - border) : strlen(answer);
        for (size_t bytes = 0; bytes <= strlen(answer); bytes++) {
            size_t settled = tt_tool_calls_settled((struct tt_span){answer, bytes}, tools.root);
            assert_true(settled >= sent && settled <= bytes && settled <= most);
            sent = settled;
        }
        if (border != NULL) assert_int_equal(sent, most);
    }
    assert_int_equal(tt_tool_calls_settled(tt_span_of("a <b"), tools.root), 4);
    assert_int_equal(tt_tool_calls_settled(tt_span_of("a <tool_callx"), tools.root), 13);
    assert_int_equal(tt_tool_calls_settled(tt_span_of("a <tool_cal"), tools.root), 1);
    tt_json_deinit(&tools);
}

/* A template has the form whose mark it has; plain ones that of Llama. */
static void templates(void **state)
{
    static const char *const known[][2] = {
        {"<tool_call>\n<function={{ name }}>", "qwen_xml"},
        {"<tool_call>{{ call | tojson }}", "hermes"},
        {"[TOOL_CALLS][ARGS]", "mistral"},
        {"<|tool_call>call:", "gemma"},
        {"<start_function_call>call:", "gemma"},
        {"<|start|>assistant<|channel|>commentary to=functions.", "harmony"},
        {"{{ messages }}", "json"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_string_equal(tt_call_format_of(known[i][0])->name, known[i][1]);
    assert_string_equal(tt_call_format_of(NULL)->name, "json");
}

static tt_status attempt(void *context)
{
    const struct tt_json *tools = context;
    size_t content;
    struct tt_json_value *calls = NULL;
    tt_status status = tt_tool_calls_find(tt_span_of(cases[1].answer), tools->root, 3, &calls, &content);
    tt_json_release(calls);
    return status;
}

static void failing_allocations(void **state)
{
    (void)state;
    struct tt_json tools = {0};
    assert_int_equal(tt_json_parse(tools_text, strlen(tools_text), "tools", &tools), TT_OK);
    assert_true(test_allocations_fail(attempt, &tools) > 5);
    tt_json_deinit(&tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers),
        cmocka_unit_test(streams),
        cmocka_unit_test(templates),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
