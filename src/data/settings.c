#include "data/settings.h"

#include <math.h>
#include <stddef.h>

#include "data/dataset.h"

#define FIELD(member) .offset = offsetof(struct tt_data_config, member)

/* One row is one paragraph. */
/* clang-format off */

static const char *const own_process = "rows are tokenized by threads of this process";

/* Keys and defaults: TRL's SFTConfig and ScriptArguments, transformers' TrainingArguments. */
const struct tt_setting tt_data_settings[] = {
    {.name = "dataset_name", .aliases = "dataset", .type = TT_SETTING_STRING, FIELD(dataset_name),
     .help = "A .jsonl, .json or .txt file, or a folder with one such file per split (train.jsonl, "
             "test.jsonl)."},
    {.name = "dataset_train_split", .type = TT_SETTING_STRING, FIELD(dataset_train_split),
     .default_text = "train", .help = "Name of the training file in the folder."},
    {.name = "dataset_test_split", .type = TT_SETTING_STRING, FIELD(dataset_test_split),
     .default_text = "test", .help = "Name of the evaluation file in the folder."},
    {.name = "eval_dataset", .type = TT_SETTING_STRING, FIELD(eval_dataset),
     .help = "File to evaluate on; not given: the test split of the folder, or eval_split_size."},
    {.name = "eval_split_size", .aliases = "test_split_size", .type = TT_SETTING_DOUBLE,
     FIELD(eval_split_size), .default_text = "0", .null_text = "0", .minimum = 0, .maximum = INFINITY,
     .help = "Rows of the training data to hold out for evaluation: a number (at least 1) or a share "
             "(below 1)."},
    {.name = "dataset_text_field", .type = TT_SETTING_STRING, FIELD(dataset_text_field),
     .default_text = "text", .help = "Name of the text field in rows of plain text."},
    {.name = "dataset_prompt_field", .type = TT_SETTING_STRING, FIELD(dataset_prompt_field),
     .default_text = "prompt", .help = "Name of the prompt field in rows of prompt and completion."},
    {.name = "dataset_completion_field", .type = TT_SETTING_STRING, FIELD(dataset_completion_field),
     .default_text = "completion", .help = "Name of the completion field in rows of prompt and completion."},
    {.name = "prompt_template", .type = TT_SETTING_STRING, FIELD(prompt_template),
     .help = "The prompt as a text with {field} names of the row."},
    {.name = "max_length", .aliases = "max_seq_length", .type = TT_SETTING_INT, FIELD(max_length),
     .default_text = "1024", .minimum = 1, .maximum = 1 << 23,
     .only_reason = "give the largest number of tokens of a sample; over_length decides about longer "
             "ones",
     .help = "Tokens of a sample, and of a pack when packing."},
    {.name = "over_length", .type = TT_SETTING_CHOICE, FIELD(over_length), .default_text = "truncate",
     .choices = "truncate drop error",
     .help = "Treatment of rows of more than max_length tokens; they are always counted and reported."},
    {.name = "max_row_size", .type = TT_SETTING_BYTES, FIELD(max_row_size), .default_text = "64MiB",
     .null_text = "0",
     .help = "Limit of the bytes of one row in its file (not of a .txt file, which is one text); 0: no limit."},
    {.name = "packing", .type = TT_SETTING_BOOL, FIELD(packing), .default_text = "false",
     .help = "Put several samples into one pack of max_length tokens; samples never attend to each other."},
    {.name = "packing_strategy", .type = TT_SETTING_CHOICE, FIELD(packing_strategy),
     .default_text = "bfd", .null_text = "bfd",
     .choices = "bfd wrapped",
     .only_reason = "bfd_split cuts long samples into several: raise max_length, or use wrapped",
     .help = "bfd: best fit decreasing, whole samples; wrapped: one stream of tokens, cut every max_length."},
    {.name = "eval_packing", .type = TT_SETTING_TRISTATE, FIELD(eval_packing),
     .help = "Packing of the evaluation data; null: as packing."},
    {.name = "completion_only_loss", .type = TT_SETTING_TRISTATE, FIELD(completion_only_loss),
     .help = "Loss on the completion only; null: for rows of prompt and completion."},
    {.name = "eos_token", .type = TT_SETTING_STRING, FIELD(eos_token),
     .help = "Token that ends a sample; not given: the tokenizer's."},
    {.name = "shuffle_dataset", .type = TT_SETTING_BOOL, FIELD(shuffle_dataset), .default_text = "false",
     .only = "false", .only_reason = "train_sampling_strategy shuffles every epoch",
     .help = "Shuffle the rows once before packing."},
    {.name = "max_train_samples", .type = TT_SETTING_INT, FIELD(max_train_samples), .default_text = "0",
     .null_text = "0", .minimum = 0, .maximum = INFINITY, .help = "Number of rows to train on; 0: all."},
    {.name = "max_eval_samples", .type = TT_SETTING_INT, FIELD(max_eval_samples), .default_text = "0",
     .null_text = "0", .minimum = 0, .maximum = INFINITY, .help = "Number of rows to evaluate on; 0: all."},

    TT_SETTING_ONLY(
        "assistant_only_loss", BOOL, "false", "false",
        "rows of messages are not supported yet; rows of prompt and completion train on the completion only"),
    TT_SETTING_ONLY("chat_template_path", STRING, NULL, "null", "chat templates are not applied yet"),
    TT_SETTING_ONLY("truncation_mode", STRING, "keep_start", "keep_start",
                    "long rows are cut at their end"),
    TT_SETTING_ONLY("dataset_kwargs", JSON, NULL, "null {}",
                    "rows with input_ids are recognized without a setting"),
    TT_SETTING_ONLY("dataset_config", STRING, NULL, "null",
                    "data is read from files: name the file or folder in dataset_name"),
    TT_SETTING_ONLY("datasets", JSON, NULL, "null []", "mixtures are not supported: join the files into one"),
    TT_SETTING_ONLY("group_by_length", BOOL, "false", "false",
                    "batches have no padding to save, and it would change the order of the data"),

    TT_SETTING_UNNEEDED("dataset_streaming", "token ids are kept in memory, four bytes each"),
    TT_SETTING_UNNEEDED("streaming", "token ids are kept in memory, four bytes each"),
    TT_SETTING_UNNEEDED("dataset_num_proc", own_process),
    TT_SETTING_UNNEEDED("preprocessing_num_workers", own_process),
    TT_SETTING_UNNEEDED("dataset_batch_size", own_process),
    TT_SETTING_UNNEEDED("num_of_sequences", "packing considers all samples, not a buffer of them"),
    TT_SETTING_UNNEEDED("chars_per_token", "packing counts tokens instead of estimating them"),
    TT_SETTING_UNNEEDED("pad_token", "batches never hold padding"),
    TT_SETTING_UNNEEDED("padding_free", "batches never hold padding"),
    TT_SETTING_UNNEEDED("pad_to_multiple_of", "batches never hold padding"),
    TT_SETTING_UNNEEDED("length_column_name", "lengths are counted after tokenizing"),
    TT_SETTING_UNNEEDED("remove_unused_columns", "unused columns are never read"),
    TT_SETTING_UNNEEDED("label_names", "labels follow from the kind of row"),
    TT_SETTING_UNNEEDED("dataloader_num_workers", "a thread of this process prepares batches ahead"),
    TT_SETTING_UNNEEDED("dataloader_pin_memory", "staging buffers belong to the device"),
    TT_SETTING_UNNEEDED("dataloader_persistent_workers", "there are no worker processes"),
    TT_SETTING_UNNEEDED("dataloader_prefetch_factor", "there are no worker processes"),
    TT_SETTING_UNNEEDED("dataloader_multiprocessing_context", "there are no worker processes"),
    TT_SETTING_UNNEEDED("dataloader_in_order", "data order is a function of the seed and the step"),
    {.name = NULL},
};
