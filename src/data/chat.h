/* Conversations as the text and the ids that a model sees: the tokenizer's chat template, or another one, rendered as
 * transformers' apply_chat_template does it, tokenized without special tokens of the tokenizer's own. Special tokens
 * inside the row's values are ordinary text unless special_tokens_in_messages is set. One thread. */
#ifndef TT_DATA_CHAT_H
#define TT_DATA_CHAT_H

#include "data/conversation.h"
#include "data/dataset.h"
#include "text/chat_files.h"
#include "text/jinja/jinja.h"

struct tt_chat;

/* Borrows both. Templates are parsed when they are first needed. */
TT_MUST_USE tt_status tt_chat_create(const struct tt_data_config *config,
                                     const struct tt_tokenizer *tokenizer, struct tt_chat **out);
void tt_chat_destroy(struct tt_chat *chat); /* takes NULL */
const struct tt_data_config *tt_chat_config(const struct tt_chat *chat);
const struct tt_tokenizer *tt_chat_tokenizer(const struct tt_chat *chat);
/* The template for conversations with or without tools. */
TT_MUST_USE tt_status tt_chat_template(struct tt_chat *chat, bool tools, const struct tt_chat_template **out,
                                       const struct tt_jinja **jinja);
/* The moment now in the local time, as `date` takes it. */
enum { TT_CHAT_DATE_BYTES = 32 };
void tt_chat_now(char date[TT_CHAT_DATE_BYTES]);
/* Whether a token ends turns: the end token, or one of generation_config.json's. */
bool tt_chat_is_end(const struct tt_chat *chat, int32_t id);

/* An owned rendering. A zeroed struct is empty. */
struct tt_chat_text {
    struct tt_jinja_output output;
    struct tt_json_value *messages; /* owned: those that were rendered, when not all */
};
/* Contents that are lists of text parts reach a template that reads them as they are, and other templates as one text:
 * which kind a template is follows from its rendering of one such message. Arguments of tool calls that are JSON as
 * text reach a template that is made for objects as objects (data/chat_calls.h).
 * Renders the first `count` messages, with the header of the answer if `asks` (add_generation_prompt). The
 * conversation must live as long as the text. */
TT_MUST_USE tt_status tt_chat_render(struct tt_chat *chat, const struct tt_conversation *conversation,
                                     size_t count, bool asks, struct tt_chat_text *out);
void tt_chat_text_deinit(struct tt_chat_text *text);
/* Replaces ids and ranges. */
TT_MUST_USE tt_status tt_chat_encode(struct tt_chat *chat, struct tt_tokenizer_scratch *scratch,
                                     const struct tt_chat_text *text, struct tt_ids *ids,
                                     struct tt_ranges *ranges);

#endif
