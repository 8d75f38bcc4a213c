/* A conversation's row -> token ids and supervision, as TRL 1.16's SFT trainer makes them. */
#ifndef TT_DATA_CHAT_ROW_H
#define TT_DATA_CHAT_ROW_H

#include "data/chat.h"

struct tt_chat_row_report {
    size_t parts; /* samples of the row: 1, or with sample_per_turn one for each message that trains */
    bool prompt_mismatch; /* the ids of the prompt alone are no prefix */
    bool roles_mapped, history_differs;
    struct tt_role_count roles[TT_ROLES_MAX]; /* in doubt (data/dataset.h), each once */
    int role_count;
    bool answer_empty; /* a message of the assistant says nothing, or its calls are lost */
};

/* Replaces ids and `supervised`, one byte for each. All tokens train, except: in rows of prompt and completion the
 * prompt does not (completion_only_loss), and the completion begins at the first id that differs from those of the
 * prompt with the header of the answer; with assistant_only_loss data/chat_mask.h decides, and a row without a message
 * that could train is TT_ERR_DATA. `part` is the sample of the row, from 0. */
TT_MUST_USE tt_status tt_chat_row_read(struct tt_chat *chat, struct tt_tokenizer_scratch *scratch,
                                       const struct tt_json *row, size_t part, struct tt_ids *ids,
                                       struct tt_str *supervised, struct tt_chat_row_report *report);

/* The ids of a row with a preference (tt_conversation_read_pair): of the prompt with the header of the answer, and of
 * each answer behind the prompt. Replaces all three. */
TT_MUST_USE tt_status tt_chat_pair_read(struct tt_chat *chat, struct tt_tokenizer_scratch *scratch,
                                        const struct tt_json *row, struct tt_ids *prompt,
                                        struct tt_ids sides[2], bool *roles_mapped);

/* The prompt for an answer to the row's conversation: replaces `text` by the rendering with the header of the answer,
 * and `ids` by its ids. */
TT_MUST_USE tt_status tt_chat_prompt(struct tt_chat *chat, struct tt_tokenizer_scratch *scratch,
                                     const struct tt_json *row, struct tt_str *text, struct tt_ids *ids);

#endif
