#include "data/settings.h"

#include <math.h>
#include <stddef.h>

#include "data/dataset.h"

#define FIELD(member) .offset = offsetof(struct tt_data_config, member)

/* One row is one paragraph. */
/* clang-format off */

/* Keys and defaults: TRL's SFTConfig and ScriptArguments, transformers' TrainingArguments. */
const struct tt_setting tt_data_settings[] = {
    {.name = "dataset_name", .aliases = "dataset", .type = TT_SETTING_STRING, FIELD(dataset_name),
     .path = TT_PATH_ROWS, .changes = TT_CHANGES_OTHER,
     .help = "A .jsonl, .json, .csv, .parquet, .arrow or .txt file, also .gz or .zst; a folder with such files per "
             "split (train.jsonl, test.jsonl, train-00000-of-00002.jsonl.gz ...); or a pattern (\"rows/*.jsonl\"). Of "
             "a detection: .parquet or .arrow with images and boxes."},
    {.name = "dataset_revision", .type = TT_SETTING_STRING, FIELD(dataset_revision),
     .changes = TT_CHANGES_OTHER, .needs = "dataset_name",
     .help = "Branch, tag or commit of the data set dataset_name of the hub; not given: main."},
    {.name = "datasets", .type = TT_SETTING_JSON, FIELD(datasets),
     .path = TT_PATH_MIXTURE, .changes = TT_CHANGES_OTHER, .of = "language",
     .help = "A mixture in place of dataset_name: a list of {path, name, revision, split, data_files, weight}. weight: "
             "how often the rows of the source are used in an epoch."},
    {.name = "dataset_train_split", .type = TT_SETTING_STRING, FIELD(dataset_train_split),
     .default_text = "train", .changes = TT_CHANGES_OTHER, .help = "Name of the training file in the folder."},
    {.name = "dataset_test_split", .type = TT_SETTING_STRING, FIELD(dataset_test_split),
     .default_text = "test", .changes = TT_CHANGES_OTHER, .needs = "!eval_strategy=no",
     .help = "Name of the evaluation file in the folder."},
    {.name = "eval_dataset", .type = TT_SETTING_JSON, FIELD(eval_dataset),
     .path = TT_PATH_ROWS, .changes = TT_CHANGES_OTHER, .needs = "!eval_strategy=no",
     .help = "File to evaluate on, or several by name: a mapping NAME: FILE, whose metrics are eval_NAME_loss and the "
             "like; not given: the test split of the folder, or eval_split_size."},
    {.name = "eval_split_size", .aliases = "test_split_size val_set_size", .type = TT_SETTING_DOUBLE,
     FIELD(eval_split_size), .default_text = "0", .null_text = "0", .minimum = 0, .maximum = INFINITY,
     .changes = TT_CHANGES_OTHER, .of = "language", .needs = "!eval_strategy=no",
     .help = "Rows of the training data to hold out for evaluation: a number (at least 1) or a share "
             "(below 1)."},
    {.name = "dataset_text_field", .type = TT_SETTING_STRING, FIELD(dataset_text_field),
     .default_text = "text", .changes = TT_CHANGES_ROWS, .of = "language",
     .help = "Name of the text field in rows of plain text."},
    {.name = "dataset_prompt_field", .type = TT_SETTING_STRING, FIELD(dataset_prompt_field),
     .default_text = "prompt", .changes = TT_CHANGES_ROWS, .of = "language",
     .help = "Name of the prompt field in rows of prompt and completion."},
    {.name = "dataset_completion_field", .type = TT_SETTING_STRING, FIELD(dataset_completion_field),
     .default_text = "completion", .changes = TT_CHANGES_ROWS, .of = "language",
     .help = "Name of the completion field in rows of prompt and completion."},
    {.name = "prompt_template", .type = TT_SETTING_STRING, FIELD(prompt_template),
     .changes = TT_CHANGES_ROWS, .of = "language",
     .help = "The prompt as a text with {field} names of the row."},
    {.name = "id2label", .type = TT_SETTING_JSON, FIELD(id2label),
     .changes = TT_CHANGES_ROWS | TT_CHANGES_RESULT_IF_SET, .of = "classification",
     .help = "With classification: the names of the labels in the order of their numbers, as a list or as "
             "transformers' mapping. Rows have numbers or these names."},
    {.name = "max_length", .aliases = "max_seq_length", .type = TT_SETTING_INT, FIELD(max_length),
     .default_text = "1024", .null_text = "0", .minimum = 0, .maximum = 1 << 23,
     .changes = TT_CHANGES_ROWS | TT_CHANGES_RESULT, .of = "language",
     .help = "Tokens of a sample, and of a pack when packing; null or 0: no sample is shortened, and one of more "
             "tokens than the model's positions is an error."},
    {.name = "over_length", .type = TT_SETTING_CHOICE, FIELD(over_length), .default_text = "truncate",
     .choices = "truncate drop error", .changes = TT_CHANGES_ROWS, .of = "language",
     .help = "Treatment of rows of more than max_length tokens; they are always counted and reported."},
    {.name = "max_row_size", .type = TT_SETTING_BYTES, FIELD(max_row_size), .default_text = "64MiB",
     .null_text = "0", .changes = TT_CHANGES_ROWS, .of = "language",
     .help = "Limit of the bytes of one row in its file (not of a .txt file, which is one text); 0: no limit."},
    {.name = "max_unpacked_size", .type = TT_SETTING_BYTES, FIELD(max_unpacked_size), .default_text = "0",
     .null_text = "0", .changes = TT_CHANGES_OTHER, .of = "language",
     .help = "Limit of the bytes that the rows of one compressed, Parquet or Arrow file unpack to in TMPDIR; 0: "
             "nine tenths of its free space."},
    {.name = "packing", .type = TT_SETTING_BOOL, FIELD(packing), .default_text = "false",
     .changes = TT_CHANGES_RESULT, .of = "language",
     .help = "Put several samples into one pack of max_length tokens; samples never attend to each other."},
    {.name = "packing_strategy", .type = TT_SETTING_CHOICE, FIELD(packing_strategy),
     .default_text = "bfd", .null_text = "bfd",
     .choices = "bfd wrapped",
     .only_reason = "bfd_split cuts long samples into several: raise max_length, or use wrapped",
     .changes = TT_CHANGES_OTHER, .of = "language", .needs = "packing eval_packing",
     .help = "bfd: best fit decreasing, whole samples; wrapped: one stream of tokens, cut every max_length."},
    {.name = "eval_packing", .type = TT_SETTING_TRISTATE, FIELD(eval_packing),
     .changes = TT_CHANGES_OTHER, .of = "language", .needs = "!eval_strategy=no",
     .help = "Packing of the evaluation data; null: as packing."},
    {.name = "shared_prompt", .type = TT_SETTING_TRISTATE, FIELD(shared_prompt),
     .changes = TT_CHANGES_OTHER, .of = "language",
     .help = "Objectives that compare answers: compute the prompt of a row once for all of them, with the results of "
             "each answer by itself up to the order of sums; null: where that is exact. A resumed run does as before."},
    {.name = "completion_only_loss", .type = TT_SETTING_TRISTATE, FIELD(completion_only_loss),
     .changes = TT_CHANGES_ROWS, .of = "language",
     .help = "Loss on the completion only; null: for rows of prompt and completion."},
    {.name = "eos_token", .type = TT_SETTING_STRING, FIELD(eos_token), .changes = TT_CHANGES_ROWS, .of = "language",
     .help = "Token that ends a sample; not given: the tokenizer's."},
    {.name = "assistant_only_loss", .type = TT_SETTING_BOOL, FIELD(assistant_only_loss),
     .default_text = "false", .changes = TT_CHANGES_ROWS, .of = "language",
     .help = "Of conversations, loss on what the assistant says only; roles_to_train, train_on_eos and the "
             "messages' own train or weight say it more finely."},
    {.name = "roles_to_train", .type = TT_SETTING_JSON, FIELD(roles_to_train),
     .changes = TT_CHANGES_ROWS, .of = "language", .needs = "assistant_only_loss",
     .help = "With assistant_only_loss: roles whose messages train; not given: assistant."},
    {.name = "train_on_eos", .type = TT_SETTING_CHOICE, FIELD(train_on_eos), .default_text = "turn",
     .choices = "turn all last none", .changes = TT_CHANGES_ROWS, .of = "language", .needs = "assistant_only_loss",
     .help = "With assistant_only_loss: closing tokens that train. turn: of messages that train; all: of every "
             "message; last: of the last message that trains; none: of no message."},
    {.name = "train_last_turn_only", .type = TT_SETTING_BOOL, FIELD(train_last_turn_only),
     .default_text = "false", .changes = TT_CHANGES_ROWS, .of = "language", .needs = "assistant_only_loss",
     .help = "With assistant_only_loss: only the last message that would train does."},
    {.name = "sample_per_turn", .type = TT_SETTING_BOOL, FIELD(sample_per_turn), .default_text = "false",
     .changes = TT_CHANGES_ROWS, .of = "language",
     .help = "With assistant_only_loss: one sample for each message that trains, the conversation up to it, in which "
             "only it trains. For templates that shorten history."},
    {.name = "reasoning", .type = TT_SETTING_CHOICE, FIELD(reasoning), .default_text = "keep",
     .choices = "keep drop", .changes = TT_CHANGES_ROWS, .of = "language",
     .help = "Reasoning of the answers in conversations (reasoning_content, or <think> before the answer). keep: as "
             "the chat template writes it; drop: no answer has any."},
    {.name = "chat_template_kwargs", .type = TT_SETTING_JSON, FIELD(chat_template_kwargs),
     .changes = TT_CHANGES_ROWS, .of = "language",
     .help = "Variables of the chat template for all rows, such as {\"enable_thinking\": false}; a row's own "
             "chat_template_kwargs replace them."},
    {.name = "chat_template", .type = TT_SETTING_STRING, FIELD(chat_template),
     .changes = TT_CHANGES_ROWS, .of = "language",
     .help = "Chat template of conversations: its Jinja text, or the name of one, llama3, chatml, gemma or alpaca; not "
             "given: chat_template_path."},
    {.name = "drop_system_message", .type = TT_SETTING_BOOL, FIELD(drop_system_message), .default_text = "false",
     .changes = TT_CHANGES_ROWS, .of = "language",
     .help = "Leave out the system message that a conversation begins with."},
    {.name = "chat_template_path", .type = TT_SETTING_STRING, FIELD(chat_template_path),
     .path = TT_PATH_READ, .changes = TT_CHANGES_OTHER, .of = "language",
     .help = "Chat template of conversations: a file, or the folder of a tokenizer; not given: the "
             "tokenizer's own."},
    {.name = "special_tokens_in_messages", .type = TT_SETTING_BOOL, FIELD(special_tokens_in_messages),
     .default_text = "false", .changes = TT_CHANGES_ROWS, .of = "language",
     .help = "Whether special tokens that occur in the text of a conversation's row are special tokens "
             "rather than ordinary text."},
    {.name = "date", .type = TT_SETTING_STRING, FIELD(date), .changes = TT_CHANGES_OTHER, .of = "language",
     .help = "Date that chat templates print, YYYY-MM-DD or YYYY-MM-DD HH:MM:SS; not given: now."},
    {.name = "streaming", .aliases = "dataset_streaming", .type = TT_SETTING_BOOL, FIELD(streaming),
     .default_text = "false", .changes = TT_CHANGES_RESULT_IF_SET, .of = "language",
     .help = "Read and tokenize the training rows while they train, instead of all of them before; max_steps says when "
             "to end. Files of lines are read by ranges from a store or the hub."},
    {.name = "buffer_size", .type = TT_SETTING_INT, FIELD(buffer_size), .default_text = "1000", .minimum = 1,
     .maximum = 1 << 24, .changes = TT_CHANGES_RESULT_IF_SET, .of = "language", .needs = "streaming",
     .help = "Rows of the buffer that streaming takes the next row from, by the seed; with train_sampling_strategy "
             "sequential there is none."},
    {.name = "dataset_prepared_path", .aliases = "dataset_cache", .type = TT_SETTING_STRING, FIELD(prepared_path),
     .local = true, .path = TT_PATH_WRITE, .changes = TT_CHANGES_PLACE, .of = "language",
     .needs = "!streaming !eval_strategy=no",
     .help = "Folder that keeps tokenized rows for other runs with the same rows, tokenizer and settings, which map "
             "them instead of tokenizing; not given: none."},
    {.name = "shuffle_dataset", .type = TT_SETTING_BOOL, FIELD(shuffle_dataset), .default_text = "false",
     .only = "false", .only_reason = "train_sampling_strategy shuffles every epoch", .changes = TT_CHANGES_OTHER,
     .help = "Shuffle the rows once before packing."},
    {.name = "max_train_samples", .type = TT_SETTING_INT, FIELD(max_train_samples), .default_text = "0",
     .null_text = "0", .minimum = 0, .maximum = INFINITY, .changes = TT_CHANGES_OTHER, .of = "language",
     .help = "Number of rows to train on; 0: all."},
    {.name = "max_source_samples", .type = TT_SETTING_INT, FIELD(max_source_samples), .default_text = "0",
     .null_text = "0", .minimum = 0, .maximum = INFINITY, .changes = TT_CHANGES_ROWS, .of = "language",
     .help = "Number of rows to read of each source of datasets, before any are held out; 0: all."},
    {.name = "max_eval_samples", .type = TT_SETTING_INT, FIELD(max_eval_samples), .default_text = "0",
     .null_text = "0", .minimum = 0, .maximum = INFINITY, .changes = TT_CHANGES_OTHER, .of = "language",
     .needs = "!eval_strategy=no",
     .help = "Number of rows to evaluate on; 0: all."},
    {.name = NULL},
};
