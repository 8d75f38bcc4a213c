/* data/chat_row.h, chat_mask.h, conversation.h: what trains, by settings, messages and templates; dialects; refusals.
 * golden/chat.c compares ids and labels with the reference. */
#include "unit/data/marked_chat.h"

static void what_trains(void **state)
{
    (void)state;
    struct tt_data_config config = {.completion_only_loss = -1};
    expect(&config, CHATML, TALK,
           "[[" S "system\nS" E "\n" S "user\nq" E "\n" S "assistant\na" E "\n" S "user\nr" E "\n" S
           "assistant\nb" E "\n]]");
    config = assistant();
    expect(&config, CHATML, TALK,
           S "system\nS" E "\n" S "user\nq" E "\n" S "assistant\n[[a" E "\n]]" S "user\nr" E "\n" S
             "assistant\n[[b" E "\n]]");
    config.train_last_turn_only = true;
    expect(&config, CHATML, TALK,
           S "system\nS" E "\n" S "user\nq" E "\n" S "assistant\na" E "\n" S "user\nr" E "\n" S
             "assistant\n[[b" E "\n]]");
    config = assistant();
    config.train_on_eos = TT_TRAIN_EOS_NONE;
    expect(&config, CHATML, TALK,
           S "system\nS" E "\n" S "user\nq" E "\n" S "assistant\n[[a]]" E "\n" S "user\nr" E "\n" S
             "assistant\n[[b]]" E "\n");
    config.train_on_eos = TT_TRAIN_EOS_LAST;
    expect(&config, CHATML, TALK,
           S "system\nS" E "\n" S "user\nq" E "\n" S "assistant\n[[a]]" E "\n" S "user\nr" E "\n" S
             "assistant\n[[b" E "\n]]");
    config.train_on_eos = TT_TRAIN_EOS_ALL;
    expect(&config, CHATML, TALK,
           S "system\nS[[" E "]]\n" S "user\nq[[" E "]]\n" S "assistant\n[[a" E "\n]]" S "user\nr[[" E
             "]]\n" S "assistant\n[[b" E "\n]]");
    config = assistant();
    config.roles_to_train = "[\"user\", \"system\"]";
    expect(&config, CHATML, TALK,
           S "system\n[[S" E "\n]]" S "user\n[[q" E "\n]]" S "assistant\na" E "\n" S "user\n[[r" E "\n]]" S
             "assistant\nb" E "\n");
    /* The name of a message is its header's, as the role is. */
    expect(
        &config,
        "{% for m in messages %}{{ m.role }}{% if m.name %}{{ ' ' + m.name }}{% endif %}{{ ': ' + m.content "
        "+ "
        "'<|im_end|>' }}{% endfor %}",
        "{'messages': [{'role': 'user', 'name': 'Ann', 'content': 'q'}, {'role': 'assistant', 'name': 'Bo', "
        "'content': 'a'}]}",
        "user Ann: [[q" E "]]assistant Bo: a" E);
    /* An empty role is none of the list, and searching the list for it ends. */
    expect(&config, CHATML, "{'messages': [{'role': '', 'content': 'n'}, {'role': 'user', 'content': 'q'}]}",
           S "\nn" E "\n" S "user\n[[q" E "\n]]");
}

static void single_messages(void **state)
{
    (void)state;
    struct tt_data_config config = assistant();
    static const char row[] = "{'messages': [{'role': 'user', 'content': 'q', 'train': true}, {'role': "
                              "'assistant', 'content': 'a', 'weight': 0}, {'role': 'user', 'content': 'r'}, "
                              "{'role': 'assistant', 'content': 'b', 'weight': 1, 'name': null}]}";
    expect(&config, CHATML, row,
           S "user\n[[q" E "\n]]" S "assistant\na" E "\n" S "user\nr" E "\n" S "assistant\n[[b" E "\n]]");
    static const char *const others[] = {"loss", "training", "train"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char said[300];
        snprintf(
            said, sizeof said,
            "{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': 'a', '%s': "
            "false}, {'role': 'user', 'content': 'r', '%s': null}, {'role': 'assistant', 'content': 'b', "
            "'%s': true}]}",
            others[i], others[i], others[i]);
        expect(&config, CHATML, said,
               S "user\nq" E "\n" S "assistant\na" E "\n" S "user\nr" E "\n" S "assistant\n[[b" E "\n]]");
    }
    static const char *const masks[] = {"train_detail", "loss_scale", "loss_mask"};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        char said[200];
        snprintf(said, sizeof said, "{'messages': [{'role': 'assistant', 'content': 'a', '%s': 1}]}",
                 masks[i]);
        expect_error(&config, CHATML, said, TT_ERR_UNSUPPORTED, masks[i]);
        assert_non_null(strstr(tt_error_last()->message, "': a message trains as a whole or not at all"));
    }
    /* A tag does not overrule them. */
    expect(&config,
           "{% for m in messages %}{{ m.role + ':' }}{% generation %}{{ m.content + '<|im_end|>' }}"
           "{% endgeneration %}{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}",
           row, "user:[[q" E "]]assistant:a" E "user:r" E "assistant:[[b" E "]]");
    config.assistant_only_loss = false;
    expect_error(&config, CHATML, row, TT_ERR_DATA,
                 "message 2 is not to train, which needs assistant_only_loss");
    config.completion_only_loss = 1;
    expect_error(&config, CHATML, "{'messages': [{'role': 'user', 'content': 'q'}]}", TT_ERR_DATA,
                 "completion_only_loss is set, but the row has no prompt and completion");
    config = assistant();
    expect_error(&config, CHATML, "{'messages': [{'role': 'user', 'content': 'q', 'weight': 0.5}]}",
                 TT_ERR_DATA, "messages[0]: weight must be 0 or 1");
    expect(&config, CHATML,
           "{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': 'a', 'weight': "
           "0}]}",
           S "user\nq" E "\n" S "assistant\na" E "\n");
    expect_error(&config, CHATML, "{'messages': [{'role': 'user', 'content': 'q'}]}", TT_ERR_DATA,
                 "no token of the row would train");
}

/* What LLaMA-Factory and axolotl have beside the messages: a system message and earlier turns. */
static void beside_messages(void **state)
{
    (void)state;
    struct tt_data_config config = assistant();
    expect(
        &config, CHATML,
        "{'system': 'be', 'conversations': [{'from': 'human', 'value': 'q'}, {'from': 'gpt', 'value': 'a'}]}",
        S "system\nbe" E "\n" S "user\nq" E "\n" S "assistant\n[[a" E "\n]]");
    expect(&config, CHATML,
           "{'system': 'no', 'messages': [{'role': 'system', 'content': 'be'}, {'role': 'user', 'content': "
           "'q'}, "
           "{'role': 'assistant', 'content': 'a'}]}",
           S "system\nbe" E "\n" S "user\nq" E "\n" S "assistant\n[[a" E "\n]]");
    expect(&config, CHATML,
           "{'system': '', 'history': [['h', 'i']], 'instruction': 'add', 'input': null, 'output': '3'}",
           S "user\nh" E "\n" S "assistant\n[[i" E "\n]]" S "user\nadd" E "\n" S "assistant\n[[3" E "\n]]");
    expect(&config, CHATML, "{'system': 'be', 'history': null, 'instruction': 'add', 'output': '3'}",
           S "system\nbe" E "\n" S "user\nadd" E "\n" S "assistant\n[[3" E "\n]]");
    config.assistant_only_loss = false;
    expect(
        &config, CHATML,
        "{'system': 'be', 'prompt': [{'role': 'user', 'content': 'q'}], 'completion': [{'role': 'assistant', "
        "'content': 'a'}]}",
        S "system\nbe" E "\n" S "user\nq" E "\n" S "assistant\n[[a" E "\n]]");
    expect_error(&config, CHATML, "{'system': 1, 'instruction': 'add', 'output': '3'}", TT_ERR_DATA,
                 "'system' must be a text");
    expect_error(&config, CHATML, "{'history': [['h']], 'instruction': 'add', 'output': '3'}", TT_ERR_DATA,
                 "history[0] must be a list of two texts");
    expect_error(&config, CHATML, "{'history': 'h', 'instruction': 'add', 'output': '3'}", TT_ERR_DATA,
                 "'history' must be a list");
    expect_error(
        &config, CHATML,
        "{'conversations': [{'from': 'human', 'value': 'q'}], 'chosen': {'from': 'gpt', 'value': 'a'}, "
        "'rejected': {'from': 'gpt', 'value': 'b'}}",
        TT_ERR_DATA, "the row has a preference");
}

static void dialects(void **state)
{
    (void)state;
    struct tt_data_config config = assistant();
    expect(&config, CHATML,
           "{'conversations': [{'from': 'human', 'value': 'q'}, {'from': 'gpt', 'value': 'a'}]}",
           S "user\nq" E "\n" S "assistant\n[[a" E "\n]]");
    assert_true(report.roles_mapped);
    /* ShareGPT's names in the usual members, in either column; a tool's role is the template's. */
    static const char *const columns[] = {"messages", "conversations"};
    for (size_t i = 0; i < 2; i++) {
        char row[200];
        snprintf(row, sizeof row,
                 "{'%s': [{'role': 'human', 'content': 'q'}, {'role': 'function', 'content': '1'}, "
                 "{'role': 'gpt', 'content': 'a'}]}",
                 columns[i]);
        expect(&config, CHATML, row, S "user\nq" E "\n" S "function\n1" E "\n" S "assistant\n[[a" E "\n]]");
        assert_true(report.roles_mapped);
    }
    config.roles_to_train = "gpt";
    expect(&config, CHATML, "{'messages': [{'from': 'human', 'value': 'q'}, {'from': 'gpt', 'value': 'a'}]}",
           S "user\nq" E "\n" S "assistant\n[[a" E "\n]]");
    config.roles_to_train = "human";
    expect(&config, CHATML,
           "{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': 'a'}]}",
           S "user\n[[q" E "\n]]" S "assistant\na" E "\n");
    assert_false(report.roles_mapped);
    config.roles_to_train = NULL;
    expect(&config, CHATML, "{'instruction': 'add', 'input': '1 2', 'output': '3'}",
           S "user\nadd\n1 2" E "\n" S "assistant\n[[3" E "\n]]");
    assert_false(report.roles_mapped);
    expect(&config, CHATML, "{'instruction': 'add', 'input': '', 'output': '3'}",
           S "user\nadd" E "\n" S "assistant\n[[3" E "\n]]");
    expect(&config, "{% for m in messages %}{{ m.input }};{{ m.instruction }}{{ m.content }}.{% endfor %}",
           "{'instruction': 'add', 'input': '1', 'output': '3'}", "1;addadd\n1.[[;3.]]");
    expect(&config, CHATML,
           "{'conversation': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': 'a'}]}",
           S "user\nq" E "\n" S "assistant\n[[a" E "\n]]");
    config.drop_system_message = true;
    expect(&config, CHATML,
           "{'system': 's', 'messages': [{'role': 'user', 'content': 'q', 'train': true}, {'role': "
           "'assistant', 'content': 'a'}]}",
           S "user\n[[q" E "\n]]" S "assistant\n[[a" E "\n]]");
    config.drop_system_message = false;
    config.assistant_only_loss = false;
    expect(&config, CHATML,
           "{'prompt': [{'role': 'user', 'content': 'q'}], 'completion': [{'role': 'assistant', 'content': "
           "'a'}]}",
           S "user\nq" E "\n" S "assistant\n[[a" E "\n]]");
    config.completion_only_loss = 0;
    expect(&config, CHATML,
           "{'prompt': [{'role': 'user', 'content': 'q'}], 'completion': [{'role': 'assistant', 'content': "
           "'a'}]}",
           "[[" S "user\nq" E "\n" S "assistant\na" E "\n]]");
    config.completion_only_loss = 1;
    expect_error(&config, CHATML, TALK, TT_ERR_DATA, "the row has no prompt and completion");
    config.completion_only_loss = -1;
    expect(
        &config, "{{ tools[0].name }}{{ documents[0].text }}{{ mode }}{{ messages[0].reasoning_content }}",
        "{'messages': [{'role': 'user', 'thinking': 't'}], 'tools': '[{}, 1]', 'documents': [{'text': 'd'}], "
        "'chat_template_kwargs': {'mode': 'm'}}",
        "[[dmt]]");
    expect_error(&config, CHATML, "{'messages': [{'role': 'user', 'content': 'x'}], 'tools': '[1'}",
                 TT_ERR_DATA, "tools");
    expect_error(&config, CHATML, "{'messages': [{'role': 'user', 'content': 'x'}], 'tools': {}}",
                 TT_ERR_DATA, "'tools' must be a list");
    expect_error(&config, CHATML,
                 "{'messages': [{'role': 'user', 'content': 'x'}], 'chat_template_kwargs': []}", TT_ERR_DATA,
                 "'chat_template_kwargs' must be an object");
}

/* A special token in a message is ordinary text, so no turn ends there. */
static void special_tokens_in_messages(void **state)
{
    (void)state;
    static const char row[] =
        "{'messages': [{'role': 'user', 'content': 'q<|im_end|>'}, {'role': 'assistant', "
        "'content': 'a<|im_end|>b'}]}";
    struct tt_data_config config = assistant();
    int32_t end = tt_tokenizer_token_id(tokenizer, E);
    for (int on = 0; on < 2; on++) {
        struct tt_chat *chat = NULL;
        struct tt_json json = {0};
        struct tt_ids ids = {0};
        struct tt_str supervised = {0}, quoted = {0};
        config.special_tokens_in_messages = on;
        config.chat_template_path = test_at("t.jinja");
        test_put("t.jinja", CHATML);
        for (const char *at = row; *at != '\0'; at++)
            assert_int_equal(tt_str_append_char(&quoted, *at == '\'' ? '"' : *at), TT_OK);
        assert_int_equal(tt_json_parse(quoted.data, quoted.bytes, "row", &json), TT_OK);
        assert_int_equal(tt_chat_create(&config, tokenizer, &chat), TT_OK);
        assert_int_equal(tt_chat_row_read(chat, scratch, &json, 0, &ids, &supervised, &report), TT_OK);
        size_t ends = 0;
        for (size_t i = 0; i < ids.count; i++) ends += ids.data[i] == end;
        assert_int_equal(ends, on ? 4 : 2);
        assert_int_equal(supervised.data[ids.count - 1], 1);
        tt_chat_destroy(chat);
        tt_json_deinit(&json);
        tt_ids_deinit(&ids);
        tt_str_deinit(&supervised);
        tt_str_deinit(&quoted);
    }
}

#define THINK                                                                                                \
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' and loop.last "  \
    "%}"                                                                                                     \
    "{{ '<think>\n' + (m.reasoning_content or '') + '</think>\n' }}{% endif %}{{ m.content + "               \
    "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

static void shortened_history(void **state)
{
    (void)state;
    struct tt_data_config config = assistant();
    static const char row[] =
        "{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': 'a', "
        "'reasoning_content': 'x'}, {'role': 'user', 'content': 'r'}, {'role': 'assistant', 'content': 'b', "
        "'reasoning_content': 'y'}]}";
    expect(&config, THINK, row,
           S "user\nq" E "\n" S "assistant\n[[a" E "\n]]" S "user\nr" E "\n" S
             "assistant\n[[<think>\ny</think>\nb" E "\n]]");
    assert_true(report.history_differs);
    config.train_last_turn_only = true;
    expect(&config, THINK, row,
           S "user\nq" E "\n" S "assistant\na" E "\n" S "user\nr" E "\n" S
             "assistant\n[[<think>\ny</think>\nb" E "\n]]");
    assert_false(report.history_differs);
}

static void samples_of_turns(void **state)
{
    (void)state;
    struct tt_data_config config = assistant();
    config.sample_per_turn = true;
    static const char row[] =
        "{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': 'a', "
        "'reasoning_content': 'x'}, {'role': 'user', 'content': 'r'}, {'role': 'assistant', 'content': 'b', "
        "'reasoning_content': 'y'}]}";
    expect(&config, THINK, row, S "user\nq" E "\n" S "assistant\n[[<think>\nx</think>\na" E "\n]]");
    assert_int_equal(report.parts, 2);
    assert_false(report.history_differs);
    test_part = 1;
    expect(&config, THINK, row,
           S "user\nq" E "\n" S "assistant\na" E "\n" S "user\nr" E "\n" S
             "assistant\n[[<think>\ny</think>\nb" E "\n]]");
    assert_int_equal(report.parts, 2);
    test_part = 0;
    config.assistant_only_loss = false;
    expect_error(&config, THINK, row, TT_ERR_USAGE, "sample_per_turn needs assistant_only_loss");
}

#define CALL                                                                                                 \
    "{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': 'a', 'tool_calls': "   \
    "[{'function': {'name': 'f', 'arguments': %s}}, {'function': {'name': 'g', 'arguments': 'none'}}]}]}"
#define CALLS(arguments)                                                                                     \
    "{% for m in messages %}{{ m.role }}{% for c in m.tool_calls or [] %} {{ c.function.name }} "            \
    "{{ " arguments " }}{% endfor %}.{% endfor %}"

/* Arguments that are JSON as text reach templates for objects as objects. Quotes of a row's texts are \' here. */
static void arguments_of_calls(void **state)
{
    (void)state;
    static const char text[] = "'{\\u0022x\\u0022: 1}'", object[] = "{'x': 1}";
    struct tt_data_config config = {.completion_only_loss = -1};
    char as_text[400], as_object[400];
    (void)snprintf(as_text, sizeof as_text, CALL, text);
    (void)snprintf(as_object, sizeof as_object, CALL, object);
    static const char json[] = CALLS("c.function.arguments | tojson");
    expect(&config, json, as_object, "[[user.assistant f {\"x\": 1} g \"none\".]]");
    expect(&config, json, as_text, "[[user.assistant f {\"x\": 1} g \"none\".]]");
    static const char members[] = CALLS("c.function.arguments.x if c.function.arguments is mapping or "
                                        "c.function.name == 'g' else raise_exception('no mapping')");
    expect(&config, members, as_text, "[[user.assistant f 1 g .]]");
    static const char plain[] = CALLS("'<' + c.function.arguments + '>'");
    expect(&config, plain, as_text, "[[user.assistant f <{\"x\": 1}> g <none>.]]");
    assert_false(report.answer_empty);
    expect(&config, CHATML, as_text, "[[" S "user\nq" E "\n" S "assistant\na" E "\n]]");
    assert_true(report.answer_empty); /* the calls are lost */
}

static void reasoning_is_dropped(void **state)
{
    (void)state;
    struct tt_data_config config = assistant();
    config.reasoning = TT_REASONING_DROP;
    expect(&config, THINK,
           "{'messages': [{'role': 'user', 'content': '<think>q</think>'}, {'role': 'assistant', 'content': "
           "'<think>\\nplan</think>\\n\\na', 'thinking': 'x'}]}",
           S "user\n<think>q</think>" E "\n" S "assistant\n[[<think>\n</think>\na" E "\n]]");
}

static void variables_of_the_settings(void **state)
{
    (void)state;
    struct tt_data_config config = assistant();
    config.assistant_only_loss = false;
    config.chat_template_kwargs = "{\"mode\": \"m\", \"other\": 1}";
    expect(&config, "{{ mode }}{{ other }}", TALK, "[[m1]]");
    expect(&config, "{{ mode }}{{ other }}",
           "{'messages': [{'role': 'user'}], 'chat_template_kwargs': {'mode': 'row'}}", "[[row1]]");
    config.chat_template_kwargs = "[1]";
    expect_error(&config, "x", TALK, TT_ERR_USAGE, "chat_template_kwargs must be an object");
}

static void disagreement(void **state)
{
    (void)state;
    struct tt_data_config config = assistant();
    /* An earlier answer is written in capitals. */
    expect_error(&config,
                 "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{{ (m.content if loop.last else "
                 "m.content | upper) + '<|im_end|>\n' }}{% endfor %}"
                 "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
                 TALK, TT_ERR_DATA, "what message 3 (assistant) trains is not clear");
    expect_error(&config, "{% for m in messages %}{{ m.content }}{% endfor %}", TALK, TT_ERR_DATA,
                 "writes nothing that ends message 3 (assistant)");
    expect_error(&config, "{{ messages[1].content }}", TALK, TT_ERR_DATA, "no token of the row would train");
    expect_error(&config, "{{ raise_exception('no system') }}", TALK, TT_ERR_DATA, "no system");
}

static void templates(void **state)
{
    (void)state;
    struct tt_data_config config = assistant();
    config.assistant_only_loss = false;
    config.date = "2024-02-03 04:05:06";
    expect(&config, "{{ strftime_now('%d %b %Y %H:%M:%S') }}{{ eos_token }}", TALK,
           "[[03 Feb 2024 04:05:06" E "]]");
    config.eos_token = "<|endoftext|>";
    expect(&config, "{{ eos_token }}", TALK, "[[<|endoftext|>]]");
    config.date = "2024-02-30x";
    expect_error(&config, "", TALK, TT_ERR_USAGE, "date '2024-02-30x' is not YYYY-MM-DD");
    config.date = NULL;
    mkdir(test_at("folder"), 0777);
    char folder[1024]; /* test_at uses its texts again */
    snprintf(folder, sizeof folder, "%s", test_at("folder"));
    config.chat_template_path = folder;
    expect_error(&config, "", TALK, TT_ERR_USAGE, "has no chat template");
    test_put(
        "folder/tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"default\", \"template\": \"plain\"}, {\"name\": \"tool_use\", "
        "\"template\": \"tools\"}]}");
    expect(&config, "", TALK, "[[plain]]");
    expect(&config, "", "{'messages': [{'role': 'user'}], 'tools': [{}]}", "[[tools]]");
    mkdir(test_at("folder/additional_chat_templates"), 0777);
    test_put("folder/additional_chat_templates/tool_use.jinja", "more tools");
    expect(&config, "", "{'messages': [{'role': 'user'}], 'tools': [{}]}", "[[more tools]]");
    expect_error(&config, "", TALK, TT_ERR_DATA,
                 "no chat template is named 'default'; the first of 1 is 'tool_use'");
    test_put("folder/chat_template.jinja", "from a file\n");
    expect(&config, "", TALK, "[[from a file]]");
    config.chat_template_path = test_at("missing.jinja");
    expect_error(&config, "", TALK, TT_ERR_DATA, "missing.jinja");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_trains),
        cmocka_unit_test(single_messages),
        cmocka_unit_test(dialects),
        cmocka_unit_test(beside_messages),
        cmocka_unit_test(special_tokens_in_messages),
        cmocka_unit_test(shortened_history),
        cmocka_unit_test(samples_of_turns),
        cmocka_unit_test(arguments_of_calls),
        cmocka_unit_test(reasoning_is_dropped),
        cmocka_unit_test(variables_of_the_settings),
        cmocka_unit_test(disagreement),
        cmocka_unit_test(templates),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
