/* A model that answers conversations: the chat template, the tokenizer, and the team that generates. Answers are text
 * that grows by whole characters. One thread. */
#ifndef TT_SERVE_TALK_H
#define TT_SERVE_TALK_H

#include "data/chat.h"
#include "infer/generation_team.h"
#include "job/inputs.h"
#include "serve/thought.h"

struct tt_talk_config {
    const struct tt_inputs *inputs; /* lent for the life of the talk, as the team */
    struct tt_generation_team *team;
    const char *chat_template_path; /* lent; NULL: that of the adapter, else of the model */
    const char *date;               /* lent; NULL: now */
};

struct tt_talk {
    const struct tt_inputs *inputs;
    struct tt_generation_team *team;
    struct tt_data_config data;
    struct tt_chat *chat;
    struct tt_tokenizer_scratch *scratch;
    enum tt_thought_form thoughts;
    const char *chat_template; /* for conversations with tools; lent by `chat`, NULL: none */
};

/* A zeroed struct is empty, as is the struct after an error. */
TT_MUST_USE tt_status tt_talk_open(const struct tt_talk_config *config, struct tt_talk *talk);
void tt_talk_close(struct tt_talk *talk);

/* Replaces `ids` by the prompt for an answer to `row`: an object with messages, and perhaps tools and
 * chat_template_kwargs. `origin` names it in errors. */
TT_MUST_USE tt_status tt_talk_prompt(struct tt_talk *talk, const struct tt_json_value *row,
                                     const char *origin, struct tt_ids *ids);
/* Tokens of a conversation with its answer. */
int64_t tt_talk_length(const struct tt_talk *talk);
/* The new tokens that fit behind a prompt of `prompt_count` tokens, at most `wanted`; 0: none. */
int64_t tt_talk_room(const struct tt_talk *talk, size_t prompt_count, int64_t wanted);

/* The text of an answer. A zeroed struct is empty. */
struct tt_talk_answer {
    int64_t id; /* of the request; 0: none */
    struct tt_tokenizer_stream stream;
    size_t tokens;  /* of the answer */
    bool shows_end; /* the token that ends it has its text, where the stream shows it; set after asking */
    enum tt_generation_state state;
    int32_t end_id; /* the token that ended it; -1: none */
};
/* Submits the request; the answer is released by tt_talk_answer_deinit. */
TT_MUST_USE tt_status tt_talk_ask(struct tt_talk *talk, const struct tt_generation_request *request,
                                  struct tt_talk_answer *answer);
/* Call between steps of the engine: appends to `text` what has become complete. At the end of the answer that is all of
 * it. */
TT_MUST_USE tt_status tt_talk_advance(struct tt_talk *talk, struct tt_talk_answer *answer,
                                      struct tt_str *text);
/* Releases the request, which ends its generation. */
void tt_talk_answer_deinit(struct tt_talk *talk, struct tt_talk_answer *answer);

#endif
