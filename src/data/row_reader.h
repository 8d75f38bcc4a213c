/* One row -> token ids and supervision mask. A reader belongs to one thread; the result of tt_row_read is lent until
 * the next call. */
#ifndef TT_DATA_ROW_READER_H
#define TT_DATA_ROW_READER_H

#include "data/dataset.h"
#include "data/rows.h"

struct tt_row_reader;

/* Borrows everything. Keeps the first `ids_max` ids of a row's texts; 0: all. Looks up the token that ends a sample:
 * TT_ERR_USAGE when config->eos_token is not in the vocabulary. */
TT_MUST_USE tt_status tt_row_reader_create(const struct tt_rows *rows, const struct tt_data_config *config,
                                           const struct tt_tokenizer *tokenizer, int64_t vocab_size,
                                           size_t ids_max, struct tt_row_reader **out);
void tt_row_reader_destroy(struct tt_row_reader *reader); /* takes NULL */

/* Goes on with the rows of another file. */
void tt_row_reader_turn(struct tt_row_reader *reader, const struct tt_rows *rows);

struct tt_row {
    const int32_t *ids;
    const uint8_t *supervised;
    size_t count;           /* at most ids_max */
    size_t total;           /* including ids that were not kept */
    const char *prompt;     /* NULL: not a row of prompt and completion */
    const char *completion; /* as above; without the end token */
    bool prompt_mismatch;
    size_t parts;                                     /* samples of the row */
    bool conversation, roles_mapped, history_differs; /* data/chat_row.h */
    bool answer_empty;                                /* as above */
    const struct tt_role_count *roles;                /* in doubt */
    int role_count;
    float value; /* of a kind with a `value` (data/row_kind.h) */
    /* Members for a preference, whose sample 0 is the chosen answer behind its prompt and 1 the rejected one: */
    bool pair;
    size_t border;            /* ids of the prompt */
    size_t shortest, longest; /* totals of the two */
};

/* The first column of a row for models that see images or videos that is not empty ("images", "image", "videos",
 * "video"); NULL: it has none. */
const char *tt_row_image_column(const struct tt_json_value *row);

/* Sample `part` of row `index`; every row has part 0, and out->parts of them. Errors name file, row and line. */
TT_MUST_USE tt_status tt_row_read(struct tt_row_reader *reader, size_t index, size_t part,
                                  struct tt_row *out);

#endif
