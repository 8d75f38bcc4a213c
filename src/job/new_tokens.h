/* Tokens that a job has and its model folder lacks: those that the settings add, or those of an adapter, whose folder
 * has a tokenizer of its own, and whose tables may have more rows than the base's. Tokenizer, facts and tables of the
 * inputs are then those with the new tokens. */
#ifndef TT_JOB_NEW_TOKENS_H
#define TT_JOB_NEW_TOKENS_H

#include "checkpoint/save.h"
#include "io/kept_files.h"
#include "job/parts.h"
#include "model/new_rows.h"
#include "text/new_tokens.h"

struct tt_inputs;
struct tt_inputs_config;

/* A zeroed struct: there are none. */
struct tt_new_tokens {
    struct tt_ids ids;  /* of the settings' texts that no token had */
    struct tt_str json; /* tokenizer.json with those of the settings; empty: the folder's counts */
    /* Owned: the folder of an adapter that is used alone; NULL: there is none. */
    char *folder;
    struct tt_kept_files kept; /* its tokenizer's files, where that is in the place of the model's */
    /* [file_count], owned: the files that are saved in the place of the model folder's. */
    struct tt_save_template *files;
    size_t file_count;
};

/* Opens the tokenizer of the inputs where it is not the model folder's, and gives its tokens rows. After the folder was
 * joined; `weights`: its tables are read. */
TT_MUST_USE tt_status tt_new_tokens_open(const struct tt_inputs_config *config, bool weights,
                                         struct tt_inputs *inputs);
/* The facts of a plan with the tokens that the settings add; `folder`: of the tokenizer, NULL: every text is a new
 * token. *ids: of the new ones, to be freed by the caller. */
TT_MUST_USE tt_status tt_new_tokens_plan(const struct tt_model_spec *model, const char *folder,
                                         struct tt_model_facts *facts, struct tt_ids *ids);
void tt_new_tokens_close(struct tt_new_tokens *tokens);

#endif
