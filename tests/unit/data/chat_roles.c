/* data/chat_roles.h: every name of a role that other trainers' rows have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "data/chat_roles.h"
#include "data/conversation.h"

static void names(void **state)
{
    (void)state;
    static const struct {
        const char *name, *beside_role, *beside_from; /* what it means beside `role` and `from` */
        bool calls;
    } rows[] = {
        {"human", "user", "user", false},
        {"gpt", "assistant", "assistant", false},
        {"gpt4", "assistant", "assistant", false},
        {"gpt-4", "assistant", "assistant", false},
        {"chatgpt", "assistant", "assistant", false},
        {"bing", "assistant", "assistant", false},
        {"bard", "assistant", "assistant", false},
        {"model", "assistant", "assistant", false},
        {"ai", "assistant", "assistant", false},
        {"bot", "assistant", "assistant", false},
        {"chatbot", "assistant", "assistant", false},
        {"function_call", "assistant", "assistant", true},
        {"tool_call", "assistant", "assistant", true},
        {"tool_response", "tool", "tool", false},
        {"function", "function", "tool", false},
        {"observation", "observation", "tool", false},
        {"system", "system", "system", false},
        {"user", "user", "user", false},
        {"assistant", "assistant", "assistant", false},
        {"tool", "tool", "tool", false},
        {"narrator", "narrator", "narrator", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_string_equal(tt_chat_role_usual(rows[i].name, false), rows[i].beside_role);
        assert_string_equal(tt_chat_role_usual(rows[i].name, true), rows[i].beside_from);
        assert_int_equal(tt_chat_role_calls(rows[i].name), rows[i].calls);
    }
}

/* Only the members of this list are read from a row of a conversation. */
static void members(void **state)
{
    (void)state;
    static const char *const wanted[] = {"messages",
                                         "conversations",
                                         "prompt",
                                         "completion",
                                         "tools",
                                         "documents",
                                         "chat_template_kwargs",
                                         "instruction",
                                         "input",
                                         "output",
                                         "system",
                                         "history",
                                         "chosen",
                                         "rejected"};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        size_t at = 0;
        while (tt_conversation_members[at] != NULL && strcmp(tt_conversation_members[at], wanted[i]) != 0)
            at++;
        if (tt_conversation_members[at] == NULL) fail_msg("'%s' is not read", wanted[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names), cmocka_unit_test(members)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
