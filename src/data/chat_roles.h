/* The roles of messages by the names that data sets give them, and calls of tools that are messages of their own.
 *
 * Names: ShareGPT's (human, gpt, chatgpt, bing, bard, and beside `from` function and observation), LLaMA-Factory's
 * function_call and observation, ms-swift's tool_call and tool_response, and model, ai, bot, chatbot, gpt4, gpt-4, in
 * any letter case. */
#ifndef TT_DATA_CHAT_ROLES_H
#define TT_DATA_CHAT_ROLES_H

#include "base/json.h"

/* The usual name of a role, or `role` itself. `sharegpt`: it stands beside `from`. */
const char *tt_chat_role_usual(const char *role, bool sharegpt);
/* Whether a message of the role is a call of tools, by its text. */
bool tt_chat_role_calls(const char *role);
/* Whether a list as text (roles_to_train) has the role, by any of its names. */
bool tt_chat_role_is_listed(const char *list, const char *role);
/* Whether the role is system, user, assistant, tool or developer; *near: it is a misspelling of one. */
bool tt_chat_role_is_usual(const char *role, bool *near);

/* The calls that the content of such a message has, {"name": "f", "arguments": {...}} or a list of them, as text or as
 * values, in the form of `tool_calls`; *out stays NULL where it is something else. */
TT_MUST_USE tt_status tt_chat_role_read_calls(const struct tt_json_value *content,
                                              struct tt_json_value **out);

#endif
