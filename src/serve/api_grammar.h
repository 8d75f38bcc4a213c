/* Members of a request that say which texts an answer may be. Inside src/serve only. */
#ifndef TT_SERVE_API_GRAMMAR_H
#define TT_SERVE_API_GRAMMAR_H

#include "serve/api_member.h"

/* OpenAI's response_format: text, json_object, json_schema. */
tt_api_read tt_api_read_format;
/* vLLM's structured_outputs: an object with one of json, regex and choice, or json_object; and its old spellings. */
tt_api_read tt_api_read_structured;
tt_api_read tt_api_read_guided_json;
tt_api_read tt_api_read_guided_regex;
tt_api_read tt_api_read_guided_choice;
/* auto, none, required, or a function by its name; a forced one needs `tools`, which is read before. */
tt_api_read tt_api_read_tool_choice;

#endif
