/* The things that determine the tokens of rows beside the rows themselves (data/cache.h), as text: the settings of
 * data, the tokenizer's files and the chat templates. A setting counts unless it is known not to change rows. */
#ifndef TT_JOB_DATA_KEY_H
#define TT_JOB_DATA_KEY_H

#include "checkpoint/save.h"
#include "data/chat.h"
#include "data/dataset.h"

/* The number is raised when the same rows and settings make other samples than before (rules of data/cache.h). */
enum { TT_DATA_KEY_RULES = 3 };

struct tt_data_key_source {
    const struct tt_data_config *data; /* max_length as it is used */
    const char *tokenizer_folder;
    const struct tt_chat_files *templates; /* that replace the folder's; may be empty */
    /* [file_count], lent: those of the tokenizer with new tokens, in the place of the folder's */
    const struct tt_save_template *files;
    size_t file_count;
    bool dated; /* `date` was given, and is not the time of the start */
};

/* *keeps is false when a chat template prints the date of the start: the tokens are those of one run only. */
TT_MUST_USE tt_status tt_data_key_make(const struct tt_data_key_source *source, struct tt_str *key,
                                       bool *keeps);

#endif
