/* Calls of tools in the text of an answer, in one of the forms of call_formats.def, whichever the model was trained
 * on. Only calls of tools that the request declares count. An answer of another form is text, as it is. */
#ifndef TT_SERVE_TOOL_CALLS_H
#define TT_SERVE_TOOL_CALLS_H

#include "base/json.h"

/* Bytes of an unfinished answer that are text, whatever follows: not a part of a call, or of blanks before one.
 * `tools`: the list of the request. */
size_t tt_tool_calls_settled(struct tt_span text, const struct tt_json_value *tools);

/* The calls of a finished answer, in the form of OpenAI's API, whose ids are made of `seed`; *calls stays NULL where
 * there are none. *content: bytes of the text before them. */
TT_MUST_USE tt_status tt_tool_calls_find(struct tt_span text, const struct tt_json_value *tools,
                                         uint64_t seed, struct tt_json_value **calls, size_t *content);

#endif
