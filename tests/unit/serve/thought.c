/* Reasoning apart from the text of answers, however a stream cuts them: what was given is never taken back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "serve/thought.h"
#include "support/must.h"

static const struct {
    enum tt_thought_form form;
    bool inside;
    const char *answer, *thought, *text;
} cases[] = {
    {TT_THOUGHT_TAGS, false, "<think>\nLet me see.\n\n</think>\n\nIt is 4.", "Let me see.", "It is 4."},
    {TT_THOUGHT_TAGS, true, "Let me see.\n</think>\nIt is 4.\n", "Let me see.", "It is 4.\n"},
    {TT_THOUGHT_TAGS, false, "It is <think> 4.", "", "It is <think> 4."},
    {TT_THOUGHT_TAGS, false, "<thin ice", "", "<thin ice"},
    {TT_THOUGHT_TAGS, false, "<think>cut </thin", "cut </thin", ""},
    {TT_THOUGHT_TAGS, true, "", "", ""},
    {TT_THOUGHT_HARMONY, false,
     "<|channel|>analysis<|message|>They ask.<|end|><|start|>assistant<|channel|>final<|message|>It is 4 < "
     "5.",
     "They ask.", "It is 4 < 5."},
    {TT_THOUGHT_HARMONY, false,
     "<|channel|>analysis<|message|>A.<|end|><|start|>assistant<|channel|>commentary<|message|>B.<|end|><|"
     "start|>assistant"
     "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": 1}",
     "A.\nB.", "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>"},
    {TT_THOUGHT_HARMONY, false,
     "<|channel|>commentary to=functions.add<|message|>{}<|call|><|start|>assistant "
     "to=functions.mul<|channel|>commentary"
     "<|message|>{}<|call|>",
     "",
     "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call><tool_call>{\"name\": \"mul\", "
     "\"arguments\": "
     "{}}</tool_call>"},
    {TT_THOUGHT_CHANNEL, false, "<|channel>thought\nLet me see.\n<channel|>It is 4.", "Let me see.",
     "It is 4."},
    {TT_THOUGHT_CHANNEL, false, "<|channel>thought\n<channel|>It is 4.", "", "It is 4."},
    {TT_THOUGHT_CHANNEL, false, "I ask.<|tool_call>call:add{}<tool_call|>", "",
     "I ask.<|tool_call>call:add{}<tool_call|>"},
    {TT_THOUGHT_CHANNEL, true, "It may be 4.<channel|>It is.", "It may be 4.", "It is."},
    {TT_THOUGHT_HARMONY, false, "plain", "", "plain"},
    {TT_THOUGHT_HARMONY, false, "<|channel|>analysis<|message|>cut <|en", "cut <|en", ""},
};

static void answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_str thought = {0}, text = {0};
        size_t bytes = strlen(cases[i].answer);
        for (size_t cut = 0; cut <= bytes; cut++) {
            test_must(tt_thought_split(cases[i].form, cases[i].inside, (struct tt_span){cases[i].answer, cut},
                                       false, &thought, &text));
            assert_true(thought.bytes <= strlen(cases[i].thought) && text.bytes <= strlen(cases[i].text));
            assert_memory_equal(tt_str_text(&thought), cases[i].thought, thought.bytes);
            assert_memory_equal(tt_str_text(&text), cases[i].text, text.bytes);
        }
        test_must(tt_thought_split(cases[i].form, cases[i].inside, tt_span_of(cases[i].answer), true,
                                   &thought, &text));
        assert_string_equal(tt_str_text(&thought), cases[i].thought);
        assert_string_equal(tt_str_text(&text), cases[i].text);
        tt_str_deinit(&thought);
        tt_str_deinit(&text);
    }
}

static void templates(void **state)
{
    (void)state;
    assert_int_equal(tt_thought_form_of("{{ '<think>' }}{{ '</think>' }}"), TT_THOUGHT_TAGS);
    assert_int_equal(tt_thought_form_of("<|start|>assistant<|channel|>final"), TT_THOUGHT_HARMONY);
    assert_int_equal(tt_thought_form_of("{{ '<|channel>thought' }}{{ '<channel|>' }}"), TT_THOUGHT_CHANNEL);
    assert_int_equal(tt_thought_form_of("{{ messages }}"), TT_THOUGHT_NONE);
    assert_int_equal(tt_thought_form_of(NULL), TT_THOUGHT_NONE);
    assert_true(tt_thought_begins_inside(TT_THOUGHT_TAGS, tt_span_of("<assistant><think>\n")));
    assert_false(tt_thought_begins_inside(TT_THOUGHT_TAGS, tt_span_of("<assistant><think>\n\n</think>\n\n")));
    assert_false(tt_thought_begins_inside(TT_THOUGHT_NONE, tt_span_of("<think>")));
    assert_true(tt_thought_begins_inside(TT_THOUGHT_CHANNEL, tt_span_of("model\n<|channel>thought\n")));
    assert_false(tt_thought_begins_inside(TT_THOUGHT_CHANNEL, tt_span_of("<|channel>thought\n<channel|>")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers), cmocka_unit_test(templates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
