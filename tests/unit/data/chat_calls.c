/* data/chat_roles.h and the limits of conversation.h: calls that are messages, roles in doubt, tools as texts, rows
 * that are too large. */
#include "unit/data/marked_chat.h"

#define SPOKEN                                                                                               \
    "{% for m in messages %}{{ m.role + ':' + m.content }}{% for c in m.tool_calls or [] %}{{ '<' + "        \
    "c.function.name + ' ' + (c.function.arguments | tojson) + '>' }}{% endfor %}{{ '<|im_end|>' }}"         \
    "{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"

/* Calls that are messages of their own, in the names of several trainers. */
static void roles_of_calls(void **state)
{
    (void)state;
    struct tt_data_config config = assistant();
    static const char *const rows[] = {
        "{'conversations': [{'from': 'human', 'value': 'q'}, {'from': 'function_call', 'value': "
        "'{\\'name\\': \\'f\\', \\'arguments\\': {}}'}, {'from': 'observation', 'value': '1'}, "
        "{'from': 'gpt', 'value': 'a'}]}",
        "{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'tool_call', 'content': {'name': 'f', "
        "'arguments': {}}}, {'role': 'tool_response', 'content': '1'}, {'role': 'model', 'content': 'a'}]}",
        "{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': '', "
        "'function_call': {'name': 'f', 'arguments': {}}}, {'role': 'tool', 'content': '1'}, {'role': 'bot', "
        "'content': 'a'}]}",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect(&config, SPOKEN, rows[i],
               "user:q" E "assistant:[[<f {}>" E "]]tool:1" E "assistant:[[a" E "]]");
    assert_int_equal(report.role_count, 0);
    /* Neighbouring calls belong to one message, and to the text before them; not to one that does not train. */
    expect(
        &config, SPOKEN,
        "{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': 'wait'}, {'role': "
        "'tool_call', 'content': '[{\\'name\\': \\'f\\', \\'arguments\\': {}}]'}, {'role': 'tool_call', "
        "'content': '{\\'name\\': \\'g\\', \\'arguments\\': {\\'x\\': 1}}'}, {'role': 'tool', "
        "'content': '1'}]}",
        "user:q" E "assistant:[[wait<f {}><g {\"x\": 1}>" E "]]tool:1" E);
    expect(&config, SPOKEN,
           "{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': 'wait', 'loss': "
           "false}, {'role': 'tool_call', 'content': '{\\'name\\': \\'f\\', \\'arguments\\': {}}'}]}",
           "user:q" E "assistant:wait" E "assistant:[[<f {}>" E "]]");
    /* A text that is no call is what the assistant says. */
    expect(
        &config, SPOKEN,
        "{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'tool_call', 'content': 'look'}, {'role': "
        "'AI', 'content': 'a'}]}",
        "user:q" E "assistant:[[look" E "]]assistant:[[a" E "]]");
    config.roles_to_train = "[model]";
    expect(&config, SPOKEN, rows[1], "user:q" E "assistant:[[<f {}>" E "]]tool:1" E "assistant:[[a" E "]]");
}

/* Roles that do not train and are none of the usual ones are reported by name, once for a conversation. */
static void roles_in_doubt(void **state)
{
    (void)state;
    struct tt_data_config config = assistant();
    static const char row[] =
        "{'messages': [{'role': 'narrator', 'content': 'n'}, {'role': 'user', 'content': 'q'}, {'role': "
        "'asistant', 'content': 'x'}, {'role': 'assistant', 'content': 'a'}, {'role': 'narrator', 'content': "
        "'m'}, {'role': 'tool', 'content': 't'}]}";
    static const char wanted[] =
        "narrator:n" E "user:q" E "asistant:x" E "assistant:[[a" E "]]narrator:m" E "tool:t" E;
    expect(&config, SPOKEN, row, wanted);
    assert_int_equal(report.role_count, 2);
    assert_string_equal(report.roles[0].name, "narrator");
    assert_string_equal(report.roles[1].name, "asistant");
    assert_int_equal(report.roles[0].masked, 1);
    config.roles_to_train = "assistant, narrator, asistant";
    expect(&config, SPOKEN, row,
           "narrator:[[n" E "]]user:q" E "asistant:[[x" E "]]assistant:[[a" E "]]narrator:[[m" E
           "]]tool:t" E);
    assert_int_equal(report.role_count, 1); /* it trains, but may be a mistake */
    assert_int_equal(report.roles[0].masked, 0);
    config = (struct tt_data_config){.completion_only_loss = -1};
    expect(&config, "{{ messages[0].role }}", row, "[[narrator]]");
    assert_int_equal(report.role_count, 1);
    assert_string_equal(report.roles[0].name, "asistant");
}

/* Rows that would take many times their bytes are refused before they do. */
static void large_rows(void **state)
{
    (void)state;
    struct tt_data_config config = {.completion_only_loss = -1};
    struct tt_str row = {0};
    assert_int_equal(tt_str_append_text(&row, "{'messages': [{'role': 'user', 'content': 'a'}"), TT_OK);
    for (int i = 1; i < TT_MESSAGES_MAX; i++)
        assert_int_equal(tt_str_append_text(&row, ", {'role': 'user', 'content': 'a'}"), TT_OK);
    assert_int_equal(tt_str_append_text(&row, "]}"), TT_OK);
    expect(&config, "{{ messages | length }}", tt_str_text(&row), "[[65536]]");
    row.bytes -= 2;
    assert_int_equal(tt_str_append_text(&row, ", {}]}"), TT_OK);
    expect_error(&config, "{{ messages | length }}", tt_str_text(&row), TT_ERR_DATA,
                 "'messages' has 65537 messages; 65536 are the limit");
    tt_str_clear(&row);
    assert_int_equal(tt_str_append_text(&row, "{'messages': [{'role': 'user', 'content': 'a', 'of': [0"),
                     TT_OK);
    for (int i = 0; i < TT_ROW_VALUES_MAX; i++) assert_int_equal(tt_str_append_text(&row, ",0"), TT_OK);
    assert_int_equal(tt_str_append_text(&row, "]}]}"), TT_OK);
    expect_error(&config, "{{ messages | length }}", tt_str_text(&row), TT_ERR_DATA,
                 "the row has more than 1048576 values");
    tt_str_deinit(&row);
}

static void tools_as_texts(void **state)
{
    (void)state;
    struct tt_data_config config = {.completion_only_loss = -1};
    static const char template[] = "{{ tools[0].name }}{{ tools[1].name }}";
    expect(&config, template,
           "{'messages': [{'role': 'user', 'content': 'x'}], 'tools': ['{\\'name\\': \\'f\\'}', {'name': "
           "'g'}]}",
           "[[fg]]");
    expect_error(&config, template, "{'messages': [{'role': 'user', 'content': 'x'}], 'tools': ['[1]']}",
                 TT_ERR_DATA, "tools[0] is a text that is no JSON object");
    expect_error(&config, template, "{'messages': [{'role': 'user', 'content': 'x'}], 'tools': ['{']}",
                 TT_ERR_DATA, "a tool");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(roles_of_calls),
        cmocka_unit_test(roles_in_doubt),
        cmocka_unit_test(tools_as_texts),
        cmocka_unit_test(large_rows),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
