/* The inputs of a language model: model folder, adapters, tokenizer, chat templates, rows. */
#ifndef TT_JOB_LANGUAGE_INPUTS_H
#define TT_JOB_LANGUAGE_INPUTS_H

#include "job/inputs.h"

/* `inputs` is zeroed. After an error tt_inputs_close frees what is open. */
TT_MUST_USE tt_status tt_language_inputs_open(const struct tt_inputs_config *config,
                                              struct tt_inputs *inputs);
/* Adds what the weights of a folder, compared by one process, say beyond config.json. */
TT_MUST_USE tt_status tt_inputs_inspect(const struct tt_model_folder *folder, struct tt_arena *arena,
                                        struct tt_model_facts *facts);
/* The setting, limited to the model's positions, with a log line when it is more; these where it is 0. */
int64_t tt_inputs_max_length(const struct tt_data_config *data, const struct tt_model_facts *model);
/* Tokens of a pack: pieces of a stream have positions up to its end, while whole samples begin anew in it. */
int64_t tt_inputs_pack_length(const struct tt_inputs *inputs, const struct tt_data_config *data);
/* Appends one line about a data set: "training data: 120 rows, 9001 tokens, ...", with the rows that were truncated or
 * dropped. */
TT_MUST_USE tt_status tt_inputs_describe_data(const struct tt_dataset *dataset, const char *what,
                                              struct tt_str *text);

#endif
