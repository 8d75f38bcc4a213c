/* Private header of row_reader.c, the files of the kinds of rows (row_kinds.def) and row_refuse.c. */
#ifndef TT_DATA_ROW_READER_IMPL_H
#define TT_DATA_ROW_READER_IMPL_H

#include "base/json.h"
#include "data/chat_row.h"
#include "data/row_kind.h"
#include "data/row_reader.h"
#include "io/labels.h"

/* Both answers of a preference, each behind the prompt. Answers begin at `border`. */
struct tt_pair_ids {
    struct tt_ids sides[2];           /* chosen, rejected */
    size_t border, shortest, longest; /* as in struct tt_row */
    bool prompt_mismatch, conversation, roles_mapped;
    float margin;        /* of rows that may have one */
    float references[2]; /* -log p of the sides by a reference, of rows that may have them; 0: none */
};

struct tt_row_reader {
    const struct tt_rows *rows;
    const struct tt_data_config *config;
    const struct tt_tokenizer *tokenizer;
    int64_t vocab_size;
    size_t ids_max;                  /* of a text; 0: all */
    const char *bos_text, *eos_text; /* NULL: the tokenizer has none */
    int32_t bos_id, eos_id;
    bool adds_eos; /* the tokenizer itself ends every text with EOS */
    struct tt_tokenizer_scratch *scratch;
    struct tt_span *members; /* that are read: of long rows the others take no memory */
    size_t member_count, member_capacity;
    struct tt_json json; /* of the current row, until its texts are copied */
    struct tt_ids ids, prompt_ids;
    struct tt_str supervised;   /* one byte per id */
    struct tt_str text, prompt; /* the text to tokenize; the prompt alone */
    struct tt_str completion;
    struct tt_pair_ids pair;                  /* of a row with a preference */
    struct tt_chat *chat;                     /* NULL until a row is a conversation */
    struct tt_role_count roles[TT_ROLES_MAX]; /* of the current row */
    struct tt_labels labels;                  /* of id2label; empty until a row names one */
    size_t row, part;                         /* the current row, for messages; the sample of it */
};

/* Fails with the place of the row before the message. */
tt_status tt_row_fail(const struct tt_row_reader *reader, tt_status status, const char *format, ...)
    TT_PRINTF(3, 4);
/* Adds the row to the record of a callee that does not know it. */
tt_status tt_row_within(const struct tt_row_reader *reader, tt_status status);
/* Parses the current row; `outline`: without what is in its lists and objects. members NULL: all of them. */
TT_MUST_USE tt_status tt_row_parse(const struct tt_row_reader *reader, const struct tt_span *members,
                                   bool outline, struct tt_json *json);
/* Values of the row are copied: a long row is not kept as JSON values and as pages of the file, too, while it is
 * tokenized. */
void tt_row_forget_source(struct tt_row_reader *reader);
/* Drops the ids of the previous row. */
void tt_row_clear_ids(struct tt_ids *ids, size_t limit);
/* TT_ERR_DATA where an id is outside the vocabulary. */
TT_MUST_USE tt_status tt_row_check_ids(const struct tt_row_reader *reader, bool own_tokenizer);
/* The ids from `first_supervised` on train. */
TT_MUST_USE tt_status tt_row_set_supervised(struct tt_row_reader *reader, size_t first_supervised);
TT_MUST_USE tt_status tt_row_need_tokenizer(const struct tt_row_reader *reader);
/* Copies a text of the row; TT_ERR_DATA where it is none. */
TT_MUST_USE tt_status tt_row_read_string(const struct tt_row_reader *reader, const struct tt_json_value *row,
                                         const char *key, struct tt_str *out);
/* The ids of reader->text, which gets the end token, to reader->ids. */
TT_MUST_USE tt_status tt_row_encode_text(struct tt_row_reader *reader);
/* The prompt, by prompt_template or its field, to reader->prompt. */
TT_MUST_USE tt_status tt_row_read_prompt(struct tt_row_reader *reader, const struct tt_json_value *row);
/* The ids of reader->prompt alone, to reader->prompt_ids. */
TT_MUST_USE tt_status tt_row_encode_prompt(struct tt_row_reader *reader);
/* The ids of prompt, `answer` and the end token as one text, to reader->ids. */
TT_MUST_USE tt_status tt_row_encode_answer(struct tt_row_reader *reader, const struct tt_str *answer);
/* How many first ids are the same. */
size_t tt_row_common_prefix(const struct tt_ids *a, const struct tt_ids *b);
/* The chat of the reader, created when it is first needed. */
TT_MUST_USE tt_status tt_row_need_chat(struct tt_row_reader *reader);
/* The names of the row's members, quoted. */
void tt_row_list_members(const struct tt_json_value *row, char *text, size_t bytes);

/* row_text.c: a row of a file of plain text. */
TT_MUST_USE tt_status tt_row_read_plain(struct tt_row_reader *reader, struct tt_row *out);
/* row_text.c: TT_ERR_DATA where assistant_only_loss asks for a conversation. `row` NULL: plain text. */
TT_MUST_USE tt_status tt_row_check_conversational(const struct tt_row_reader *reader,
                                                  const struct tt_json_value *row);
/* row_refuse.c: TT_ERR_DATA for the current row, which is of no kind. */
TT_MUST_USE tt_status tt_row_refuse(const struct tt_row_reader *reader);
/* TT_ERR_DATA: a row of another kind has no `what`; the message lists the members that it has. A hint may follow. */
TT_MUST_USE tt_status tt_row_lacks(const struct tt_row_reader *reader, const char *what);
/* row_pair.c */
void tt_pair_ids_deinit(struct tt_pair_ids *pair);

#endif
