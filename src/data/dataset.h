/* Data sets: rows of JSON Lines (also .json arrays and plain .txt) -> tokenized samples in host memory.
 * Conversations: data/conversation.h, data/chat.h, data/chat_mask.h.
 *
 * Row kinds (Hugging Face TRL, docs "Dataset formats"): `text` (dataset_text_field), `prompt` + `completion` (loss on
 * the completion only, unless completion_only_loss is false), pre-tokenized `input_ids` with `labels` (aligned with
 * input_ids, -100: no loss) or `completion_mask`; each kind has a file (data/row_kind.h). Of the kind `pair` a row is a
 * preference instead: a prompt, `chosen` and `rejected`, texts or messages, and two samples, of which the answers are
 * supervised. Errors name file, line and row. Tokenizing follows TRL: text rows get the tokenizer's special tokens and
 * a final EOS unless they have it; prompt and completion are tokenized as one text, EOS after the completion, and the
 * completion begins at the first id that differs from the ids of the prompt alone (rows where that is before the end
 * of the prompt are counted and reported). Rows without a supervised token after truncation are dropped and counted. A
 * .txt file is one text, cut into consecutive samples of max_length tokens. When packing as one stream ("wrapped")
 * rows and texts are whole samples, of any length and with labels or without, which the sampler cuts (data/stream.h).
 * Rows are read by one thread per processor; the result does not depend on the number of threads. */
#ifndef TT_DATA_DATASET_H
#define TT_DATA_DATASET_H

#include "base/error.h"
#include "base/str.h"
#include "data/batch.h"
#include "data/row_kind.h"
#include "text/tokenizer.h"

/* bfd: best fit decreasing, whole samples; wrapped: one stream, cut at max_length. */
enum tt_packing_strategy { TT_PACKING_BFD, TT_PACKING_WRAPPED };
/* The tokens that close turns: of those that train, of all, of the last one that trains, of none. */
enum tt_train_eos { TT_TRAIN_EOS_TURN, TT_TRAIN_EOS_ALL, TT_TRAIN_EOS_LAST, TT_TRAIN_EOS_NONE };
/* Reasoning of earlier and last answers: as the template writes it; left out of every message. */
enum tt_reasoning { TT_REASONING_KEEP, TT_REASONING_DROP };
enum tt_over_length { TT_OVER_LENGTH_TRUNCATE, TT_OVER_LENGTH_DROP, TT_OVER_LENGTH_ERROR };

/* Settings; their table rows are in data/settings.c. Strings are owned by the settings store. */
struct tt_data_config {
    const char *dataset_name;        /* file, pattern, or folder with train.jsonl / test.jsonl */
    const char *dataset_revision;    /* of a name of the hub; NULL: main */
    const char *datasets;            /* NULL, or a mixture as JSON (data/sources.h) instead */
    const char *dataset_train_split; /* "train" */
    const char *dataset_test_split;  /* "test" */
    const char *eval_dataset;        /* file; NULL: the test split of a folder, or eval_split_size */
    /* > 0: number (>= 1) or share (< 1) of the training rows to hold out */
    double eval_split_size;
    const char *dataset_text_field;       /* "text" */
    const char *dataset_prompt_field;     /* "prompt" */
    const char *dataset_completion_field; /* "completion" */
    const char *id2label;                 /* NULL, or the names of labels as JSON (io/labels.h) */
    const char *prompt_template;          /* NULL, or the prompt as text with {field} names */
    int64_t max_length;                   /* 1024; 0: no limit but the model's positions, which inputs set */
    bool max_length_of_model;
    enum tt_over_length over_length; /* truncate */
    bool packing;
    enum tt_packing_strategy packing_strategy;
    int eval_packing;         /* -1: as packing; 0; 1 */
    int shared_prompt;        /* -1: where it is exact (job/shared_prompt.h); 0; 1 */
    int completion_only_loss; /* -1: by the kind of the rows; 0; 1 */
    const char *eos_token;    /* NULL: the tokenizer's */
    /* Members for conversations: */
    bool assistant_only_loss;  /* loss on what roles_to_train say */
    const char *chat_template; /* Jinja, or the name of a template (text/chat_files.h); NULL: by its path */
    const char *chat_template_path; /* NULL: the tokenizer's template */
    bool drop_system_message;
    const char *roles_to_train; /* a list as text; NULL: assistant */
    enum tt_train_eos train_on_eos;
    bool train_last_turn_only, special_tokens_in_messages;
    bool sample_per_turn; /* a sample for each message that trains */
    enum tt_reasoning reasoning;
    const char *chat_template_kwargs; /* a JSON object: variables of the template; NULL: none */
    const char *date;                 /* of strftime_now; NULL: now */
    bool shuffle_dataset;
    bool streaming;                              /* rows are read while they train (data/step_flow.h) */
    int64_t buffer_size;                         /* of its shuffle buffer: rows */
    const char *prepared_path;                   /* folder of tokenized rows (data/cache.h); NULL: none */
    size_t max_row_size;                         /* bytes of a row in its file, 64 MiB; 0: no limit */
    size_t max_unpacked_size;                    /* of a packed file; 0: what TMPDIR has room for */
    int64_t max_train_samples, max_eval_samples; /* 0: all */
    int64_t max_source_samples;                  /* of each source; 0: all */
    /* Set by the objective, not a setting: the kind of all rows; NULL: any of those that are known by their members. */
    const struct tt_row_kind *rows_kind;
    /* Not a setting: the model is the text part of one that sees images. Rows with images are refused then; another
     * model was never made for them, and reads their text. */
    bool text_part;
};

/* Samples of a row that stay together; 1: each is alone. */
size_t tt_data_samples_each(const struct tt_data_config *config);

/* Whether the rows are packed as one stream. Of evaluation data `packing` is first set to what packs_eval says. */
bool tt_data_streams(const struct tt_data_config *config);
bool tt_data_packs_eval(const struct tt_data_config *config);
/* Whether the evaluation data are rows of the training data. */
bool tt_data_holds_out(const struct tt_data_config *config);

struct tt_sample {
    const int32_t *ids;
    const uint8_t *supervised; /* [count]: the loss counts token t, predicted at t - 1 */
    int32_t count;
    int32_t supervised_count; /* without token 0, which has no prediction */
    double value;             /* of its row (data/row_kind.h); 0: rows of the kind have none */
};

/* A role in doubt: it is none of system, user, assistant, tool and developer, and a misspelling of one, or it does not
 * train where messages are chosen for training. */
enum { TT_ROLES_MAX = 6, TT_ROLE_BYTES = 32 };
struct tt_role_count {
    char name[TT_ROLE_BYTES];   /* printable; "": none */
    int64_t conversations, row; /* with it; the first such row of a file, from 1 */
    int64_t masked;             /* 1: its messages do not train */
};

struct tt_dataset_report {
    int64_t rows, samples, tokens, supervised_tokens;
    int64_t truncated, dropped, without_supervision; /* rows */
    /* prompt ids were not a prefix of prompt + completion ids */
    int64_t prompt_mismatch;
    int64_t longest; /* tokens, before truncation */
    int64_t conversations;
    int64_t roles_mapped;    /* conversations with a role that got another name */
    int64_t history_differs; /* conversations with an earlier turn that the model is to write differently */
    int64_t role_doubtful, answer_empty;      /* conversations with one: data/chat_row.h */
    int64_t answer_empty_row;                 /* the first such row of a file, from 1; 0: none */
    struct tt_role_count roles[TT_ROLES_MAX]; /* the first ones in doubt; the others are counted above */
};

struct tt_dataset;
/* Loads the first `max_samples` rows (of a text file: samples) of the file `path`; 0: all. `tokenizer` may be NULL when
 * all rows are pre-tokenized. Ids are checked against `vocab_size`. */
TT_MUST_USE tt_status tt_dataset_load(const char *path, const struct tt_data_config *config,
                                      const struct tt_tokenizer *tokenizer, int64_t vocab_size,
                                      int64_t max_samples, struct tt_dataset **out);
/* Random ids with every token supervised, for benchmarks. Lengths are uniform in `length_min` .. `length_max` tokens.
 * A pure function of the seed. */
TT_MUST_USE tt_status tt_dataset_create_random(size_t samples, int32_t length_min, int32_t length_max,
                                               int64_t vocab_size, uint64_t seed, struct tt_dataset **out);
struct tt_sources;
struct tt_dataset_request {
    const struct tt_sources *sources;
    const struct tt_data_config *config;
    const struct tt_tokenizer *tokenizer;
    int64_t vocab_size, max_samples;
    uint64_t seed;
};
/* The same as tt_dataset_load, for all files of the sources in order, max_samples rows of them together. The rows of a
 * source are there as often as its weight says: a fraction adds that share of its samples, which `seed` chooses. */
TT_MUST_USE tt_status tt_dataset_load_sources(const struct tt_dataset_request *request,
                                              struct tt_dataset **out);
/* The rows of one source. Rows are counted once, samples as often as the weight says. */
struct tt_dataset_part {
    size_t source; /* in the sources */
    int64_t once;  /* samples of the rows once; the others are copies that the weight asks for, behind them */
    struct tt_dataset_report report;
};
/* The parts of a data set that was loaded from sources, one for each source with rows; *count is 0 for others. */
const struct tt_dataset_part *tt_dataset_parts(const struct tt_dataset *dataset, size_t *count);
/* How many sources the samples are of, and the source of one, also after a shuffle or a split. 0 of them: the data set
 * has one source. */
size_t tt_dataset_source_count(const struct tt_dataset *dataset);
size_t tt_dataset_source(const struct tt_dataset *dataset, size_t index);
void tt_dataset_destroy(struct tt_dataset *dataset); /* takes NULL */
size_t tt_dataset_count(const struct tt_dataset *dataset);
struct tt_sample tt_dataset_sample(const struct tt_dataset *dataset, size_t index);
/* The text of a prompt / completion row, for exact match; NULL for other rows. Borrowed. */
const char *tt_dataset_prompt(const struct tt_dataset *dataset, size_t index);
const char *tt_dataset_completion(const struct tt_dataset *dataset, size_t index);
void tt_dataset_report(const struct tt_dataset *dataset, struct tt_dataset_report *out);
/* Makes groups of `size` neighbouring samples, which stay together from here on. TT_ERR_DATA: some are left over. */
TT_MUST_USE tt_status tt_dataset_group(struct tt_dataset *dataset, size_t size);
size_t tt_dataset_group_size(const struct tt_dataset *dataset); /* 1: none were made */
/* Adds a column (data/batch.h) with a copy of `values`: one for each sample or group; for columns per token or row one
 * for each token of all samples in order, and a row has the value of the token that it predicts. After
 * tt_dataset_group. */
TT_MUST_USE tt_status tt_dataset_add_column(struct tt_dataset *dataset, const char *name, enum tt_per per,
                                            const float *values);
/* The same for values that are computed from the rows, and are no part of their sum: *values, 0 so far and owned by the
 * data set, are to be filled. */
TT_MUST_USE tt_status tt_dataset_derive_column(struct tt_dataset *dataset, const char *name, enum tt_per per,
                                               float **values);
/* The number of tokens of the samples before one: where its values begin in a column per token. */
size_t tt_dataset_first_token(const struct tt_dataset *dataset, size_t index);
/* Sum (base/crc64.h) of all tokens, of their supervision, and of groups and columns where there are any. */
uint64_t tt_dataset_sum(const struct tt_dataset *dataset);
/* Shuffles the groups by `seed` (shuffle_dataset); the order of epochs that are not shuffled themselves. */
TT_MUST_USE tt_status tt_dataset_shuffle(struct tt_dataset *dataset, uint64_t seed);
/* Moves the last `count` groups (after a shuffle keyed by `seed`) into a new data set: the held-out split. With
 * copies_together groups of the same tokens stay on one side, so that a few more than `count` may be moved. */
TT_MUST_USE tt_status tt_dataset_split(struct tt_dataset *dataset, size_t count, uint64_t seed,
                                       bool copies_together, struct tt_dataset **out);
/* Decodes one sample; supervised text is between `on` and `off` ("\033[32m", "\033[0m" or "[[", "]]"). */
TT_MUST_USE tt_status tt_dataset_show(const struct tt_dataset *dataset, size_t index,
                                      const struct tt_tokenizer *tokenizer, const char *on, const char *off,
                                      struct tt_str *text);

#endif
