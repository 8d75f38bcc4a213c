/* Calls of tools in the text of an answer, in one of two forms, whichever the model was trained on:
 *   <tool_call>{"name": ..., "arguments": {...}}</tool_call>, once or more, perhaps with text before (Qwen, Hermes);
 *   nothing but a JSON object, or a list of objects, with "name" and "parameters" or "arguments" (Llama 3, Mistral).
 * Only calls of tools that the request declares count. An answer of another form is text, as it is. */
#ifndef TT_SERVE_TOOL_CALLS_H
#define TT_SERVE_TOOL_CALLS_H

#include "base/json.h"

/* Bytes of an unfinished answer that are text, whatever follows: not a part of a call, or of blanks before one. */
size_t tt_tool_calls_settled(struct tt_span text);

/* The calls of a finished answer, in the form of OpenAI's API, whose ids are made of `seed`; *calls stays NULL where
 * there are none. *content: bytes of the text before them. `tools`: the list of the request. */
TT_MUST_USE tt_status tt_tool_calls_find(struct tt_span text, const struct tt_json_value *tools,
                                         uint64_t seed, struct tt_json_value **calls, size_t *content);

#endif
