/* Which tokens of a conversation train.
 *
 * A template with {% generation %} says so itself. For others the mask follows from the origin of every byte: a turn
 * trains from the end of the header that add_generation_prompt writes, through all that is made of the message and the
 * template's text between, to the token that closes the turn and what the template writes before the next message. Each
 * turn is compared with what the model is to write at that point of the conversation: the rendering up to this message,
 * without the rendering that asks for it. Where history is written differently from that (a template that drops earlier
 * reasoning) the turn must still be the end of it, and the row is counted; anything else is an error that shows both.
 *
 * A token trains when all its bytes lie in a turn that trains, but for white space that it begins with. One that stands
 * for nothing, such as the blank that some tokenizers put before a text, goes with what is behind it. */
#ifndef TT_DATA_CHAT_MASK_H
#define TT_DATA_CHAT_MASK_H

#include "data/chat.h"

struct tt_chat_tokens {
    const struct tt_ids *ids;
    const struct tt_ranges *ranges;
};

struct tt_chat_mask_report {
    bool history_differs; /* an earlier turn is written differently from what the model is to write */
    bool any_turn;        /* a message has a role that trains */
};

/* Whether a message trains, by its role and its own `train` or `weight`. */
bool tt_chat_trains(const struct tt_data_config *config, const struct tt_conversation *conversation,
                    size_t index);

/* Replaces `mask` by one byte for each id: 1 trains. `text` is the whole conversation. */
TT_MUST_USE tt_status tt_chat_mask(struct tt_chat *chat, const struct tt_conversation *conversation,
                                   const struct tt_chat_text *text, const struct tt_chat_tokens *tokens,
                                   struct tt_str *mask, struct tt_chat_mask_report *report);

#endif
