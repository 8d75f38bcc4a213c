/* Rows of tokens that a model's folder has no rows for: how many a model gets, and where an adapter has them. PEFT
 * saves embeddings and head as a whole beside an adapter where their number of rows has changed (save_embedding_layers
 * "auto"); an adapter without these has rows of the tokens that it trains alone. */
#ifndef TT_MODEL_NEW_ROWS_H
#define TT_MODEL_NEW_ROWS_H

#include "io/grown_rows.h"
#include "io/model_folder.h"
#include "model/model.h"

/* A zeroed struct: there are none. */
struct tt_new_rows {
    int64_t count;                  /* of each table */
    struct tt_safetensors *adapter; /* owned: has `copies`; NULL: they follow from the tables */
    /* Embeddings and head with all rows, each NULL where the adapter has none. */
    const struct tt_safetensors_entry *copies[TT_GROWN_TABLES];
};

/* Those of an adapter's folder for a tokenizer with `tokens` ids: as many as its tables have, else as its trained rows
 * and the tokenizer need. */
TT_MUST_USE tt_status tt_new_rows_of_adapter(const char *adapter, int64_t tokens, struct tt_new_rows *rows);
/* The facts are then those of the grown model, and the folder (NULL: none) shows its tables so. TT_ERR_UNSUPPORTED for
 * a model with a further table by tokens. */
TT_MUST_USE tt_status tt_new_rows_grow(struct tt_model_facts *facts, const struct tt_new_rows *rows,
                                       struct tt_model_folder *folder);
/* Writes the number of rows into a copy of config.json. */
void tt_new_rows_describe(const struct tt_model_facts *facts, struct tt_json_value *config);
void tt_new_rows_close(struct tt_new_rows *rows);

#endif
