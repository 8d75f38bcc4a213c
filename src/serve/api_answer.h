/* Answers of the OpenAI-compatible API as JSON. All append to `text`. */
#ifndef TT_SERVE_API_ANSWER_H
#define TT_SERVE_API_ANSWER_H

#include "base/json.h"

struct tt_api_answer {
    bool chat;         /* of /v1/chat/completions */
    const char *id;    /* "chatcmpl-1" */
    const char *model; /* as it was asked for */
    int64_t created;
    size_t prompt_tokens, new_tokens;
    bool usage_each;            /* every event has the count so far */
    struct tt_json_value *more; /* further members beside "choices", lent; NULL: none */
};

/* One of the answers to a request. */
struct tt_api_choice {
    size_t index;
    struct tt_span content;
    struct tt_span reasoning;               /* apart from it; empty: none */
    const struct tt_json_value *tool_calls; /* a list; NULL: none. Of a chunk: those that it adds */
    const char *finish;                     /* "stop", "length", "tool_calls"; NULL: not finished */
    struct tt_json_value *logprobs;         /* taken over; NULL: null */
    struct tt_json_value *more;             /* further members, taken over; NULL: none */
};

/* The whole answer. */
TT_MUST_USE tt_status tt_api_write_answer(const struct tt_api_answer *answer,
                                          const struct tt_api_choice *choices, size_t count,
                                          struct tt_str *text);
/* An event of a stream: the content may be empty; `first` adds the role. */
TT_MUST_USE tt_status tt_api_write_chunk(const struct tt_api_answer *answer,
                                         const struct tt_api_choice *choice, bool first, struct tt_str *text);
/* The last event but [DONE], for streams that ask for it. */
TT_MUST_USE tt_status tt_api_write_usage(const struct tt_api_answer *answer, struct tt_str *text);
/* {"error": {"message", "type", "param", "code"}}; param and code may be NULL. */
TT_MUST_USE tt_status tt_api_write_error(const char *message, const char *type, const char *param,
                                         const char *code, struct tt_str *text);

#endif
