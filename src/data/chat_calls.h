/* Calls of tools in messages. Clients of OpenAI's API, and many data sets, have the arguments of a call as JSON in a
 * text; most chat templates are made for objects, and write such a text as one more quoted text. */
#ifndef TT_DATA_CHAT_CALLS_H
#define TT_DATA_CHAT_CALLS_H

#include "base/json.h"

/* Whether one of the first `count` messages has a call whose arguments are a text. */
bool tt_chat_calls_have_texts(const struct tt_json_value *messages, size_t count);
/* Replaces texts that are JSON objects by these objects. `message` is on the heap. */
TT_MUST_USE tt_status tt_chat_calls_make_objects(struct tt_json_value *message);

/* A conversation with a call whose arguments are a text, to find out what a template writes for it. NULL: no memory. */
struct tt_json_value *tt_chat_calls_probe(void);
/* Whether the rendering of the probe has its arguments quoted once more. */
bool tt_chat_calls_are_quoted(struct tt_span rendering);

#endif
