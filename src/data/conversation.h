/* A row that holds a conversation -> its messages as chat templates get them.
 *
 * Rows: `messages`; `prompt` and `completion` that are lists of messages; ShareGPT's `conversations`, or
 * `conversation` (from and value become role and content); Alpaca's `instruction`, `input` and `output`,
 * with `history` (pairs of texts) before them (the user's message has `instruction` and `input` as members
 * too); preferences (tt_conversation_read_pair). Beside them `system` (a text: the first message, unless
 * the list begins with one), `tools` (a list, or a list as JSON text), `documents` and
 * `chat_template_kwargs` (an object). Roles get their usual names (data/chat_roles.h), and messages that
 * are calls of tools become those of the assistant's message; neighbouring ones are one message. `tools`
 * may have JSON texts.
 *
 * As transformers 5.23 does it, members of a message that are null are left out, and reasoning_content, thinking and
 * reasoning fill each other's place. A content may be a list of parts (data/chat_parts.h). `weight` (OpenAI: 0, 1),
 * `train`, `training` and `loss` (true or false) of a message say whether it trains; templates do not see them. Masks
 * within a message (train_detail, loss_scale, loss_mask) are TT_ERR_UNSUPPORTED. */
#ifndef TT_DATA_CONVERSATION_H
#define TT_DATA_CONVERSATION_H

#include "base/json.h"

enum tt_message_trains { TT_MESSAGE_UNSAID, TT_MESSAGE_SKIPPED, TT_MESSAGE_TRAINED };

/* The conversation of one row. */
enum { TT_MESSAGES_MAX = 1 << 16, TT_ROW_VALUES_MAX = 1 << 20 };

/* A zeroed struct is empty. */
struct tt_conversation {
    struct tt_json_value *messages;                   /* owned: a list of objects with a role */
    struct tt_json_value *tools, *documents, *kwargs; /* owned, or NULL */
    uint8_t *trains;                                  /* enum tt_message_trains of each message */
    size_t prompt_count; /* messages of the prompt of a row of prompt and completion; 0: all train */
    bool maps_roles;     /* a role got another name */
};

/* The members that are read, ended by NULL. */
extern const char *const tt_conversation_members[];
/* Whether a row holds messages; whether it is one of Alpaca's. An outline is enough. */
bool tt_conversation_has_messages(const struct tt_json_value *row);
bool tt_conversation_is_alpaca(const struct tt_json_value *row);
/* Whether a row prefers one list of messages to another. */
bool tt_conversation_is_preference(const struct tt_json_value *row);
/* TT_ERR_DATA for lists of too many messages. An outline is enough. */
TT_MUST_USE tt_status tt_conversation_check_size(const struct tt_json *row);
/* TT_ERR_DATA for a row that is none, or too large. The row was parsed as a whole. */
TT_MUST_USE tt_status tt_conversation_read(const struct tt_json *row, struct tt_conversation *out);
/* The two conversations of a row with a preference: the prompt with `chosen`, and with `rejected`; each
 * is a list of messages, or one message. The prompt is the list `prompt`, `messages`, `conversations` or
 * `conversation`; without one it is the messages that both answers begin with (TRL's extract_prompt), and a
 * `prompt` that is a text is not read. TT_ERR_DATA where an answer or the prompt has no message. */
TT_MUST_USE tt_status tt_conversation_read_pair(const struct tt_json *row, struct tt_conversation out[2]);
void tt_conversation_deinit(struct tt_conversation *conversation);
/* Removes the reasoning of all messages: its members, and of a content that begins with <think> all up to the last
 * </think> and the line breaks behind it. */
TT_MUST_USE tt_status tt_conversation_drop_reasoning(struct tt_conversation *conversation);
/* Removes a system message that is the first one. TT_ERR_DATA where no message is left, or none of the prompt. */
TT_MUST_USE tt_status tt_conversation_drop_system(struct tt_conversation *conversation);
/* Leaves the first `count` messages. */
TT_MUST_USE tt_status tt_conversation_cut(struct tt_conversation *conversation, size_t count);
/* The role of message `index`; lent. */
const char *tt_conversation_role(const struct tt_conversation *conversation, size_t index);

#endif
