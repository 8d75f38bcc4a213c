/* Parses the body of a request to the OpenAI-compatible API. Unknown members are ignored, as other
 * servers do; members that are known, and would change the answer, but are not supported are errors. */
#ifndef TT_SERVE_API_REQUEST_H
#define TT_SERVE_API_REQUEST_H

#include "base/json.h"
#include "infer/generation_engine.h"
#include "text/ids.h"

enum {
    TT_API_STOPS_MAX = 16,
    TT_API_STOP_BYTES_MAX = 256,
    TT_API_BAD_WORDS_MAX = 256,
    TT_API_CHOICES_MAX = 128, /* answers of a request: n for each prompt */
    TT_API_TOP_LOGPROBS_MAX = 20
};

/* The kinds of body. */
enum tt_api_form {
    TT_API_CHAT = 1,   /* /v1/chat/completions */
    TT_API_PROMPT = 2, /* /v1/completions */
    TT_API_BOTH = TT_API_CHAT | TT_API_PROMPT,
    TT_API_TOKENIZE = 4,
    TT_API_DETOKENIZE = 8,
    TT_API_LOAD = 16,   /* /v1/load_lora_adapter */
    TT_API_UNLOAD = 32, /* /v1/unload_lora_adapter */
};

/* A prompt of /v1/completions: a text, or a list of integers. */
struct tt_api_prompt {
    struct tt_span text;
    const struct tt_json_value *ids; /* NULL: the text */
};

/* A zeroed struct is empty. Texts and values are of `json`. */
struct tt_api_request {
    struct tt_json json;
    const char *model; /* NULL: not given */
    bool stream, wants_usage, ignore_eos;
    int64_t max_tokens;        /* -1: not given */
    double temperature;        /* -1: not given */
    double top_p;              /* -1: not given */
    int64_t top_k;             /* -1: not given; 0: all tokens */
    double min_p;              /* -1: not given */
    double repetition_penalty; /* -1: not given */
    int64_t seed;              /* meaningful if has_seed */
    bool has_seed;
    struct tt_span stops[TT_API_STOPS_MAX];
    size_t stop_count;
    struct tt_ids stop_ids;                /* owned */
    bool keeps_stop;                       /* the text that ends an answer is part of it */
    struct tt_ids allowed;                 /* owned, ascending: no other token comes; empty: all may */
    const struct tt_json_value *bad_words; /* a list of texts; NULL: none */
    double presence_penalty, frequency_penalty;
    struct tt_logit_bias *biases; /* owned */
    size_t bias_count;
    int64_t min_tokens;
    bool keeps_special; /* special tokens have their text in the answer */
    bool usage_each;    /* every event of a stream counts tokens */
    bool ids_as_texts;  /* in log p the text of a token is token_id:5 */
    /* /v1/chat/completions: an object with messages and perhaps tools, documents and chat_template_kwargs.
     * Owned. */
    struct tt_json_value *row;
    const struct tt_json_value *tools; /* that an answer may call; NULL: none */
    struct tt_api_prompt *prompts;     /* of /v1/completions, owned */
    size_t prompt_count;               /* 1 for a conversation */
    int64_t n;                         /* answers to each prompt */
    bool wants_logprobs;
    int64_t top_logprobs; /* likeliest tokens beside each token */
    bool echo;            /* the answer begins with its prompt */
    /* vLLM's: -1: not given; else the same number for tokens of the prompt, in a list of their own */
    int64_t prompt_logprobs;
    bool return_token_ids;
    bool plain_prompt; /* no special tokens are added to it */
    /* tokens of its end that count; 0: all; -1: those that leave room for the answer */
    int64_t truncate_prompt;
    bool return_token_strs;   /* of /tokenize */
    struct tt_api_prompt ids; /* of /detokenize */
    /* The source of the grammar that the answer follows, and the member that says so; empty: none. */
    struct tt_str grammar;
    const char *grammar_param;
    bool forces_call; /* the answer is a call of a tool: its grammar is made by tt_serve_constrain */
    struct tt_span forced_tool;        /* of that name; empty: any one */
    bool one_call;                     /* at most one */
    const char *lora_name, *lora_path; /* NULL: not given, or empty */
};

/* Errors are TT_ERR_USAGE or TT_ERR_DATA; *param is
 * then the member that is wrong, or NULL. */
TT_MUST_USE tt_status tt_api_request_parse(struct tt_span body, enum tt_api_form form,
                                           struct tt_api_request *request, const char **param);
void tt_api_request_deinit(struct tt_api_request *request);

#endif
