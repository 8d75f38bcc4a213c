/* Structures of a tokenizer. Internal to tokenizer*.c. */
#ifndef TT_TEXT_TOKENIZER_IMPL_H
#define TT_TEXT_TOKENIZER_IMPL_H

#include "text/added.h"
#include "text/beside.h"
#include "text/bpe.h"
#include "text/pipeline.h"
#include "text/tokenizer.h"

struct added_token {
    const char *content; /* owned by the vocabulary of names */
    size_t bytes;
    const char *decoded; /* input of decoders: the content, or its normal form where that is matched */
    int32_t id;
    bool single_word, lstrip, rstrip, normalized;
    bool special;        /* once special, always special */
    bool decodes_normal; /* at least one definition of it was normalized */
};

struct tt_tokenizer {
    struct bpe model;
    struct vocab names;      /* of the added tokens; the "id" is the index into `added` */
    struct tt_arena decoded; /* holds the normal forms */
    struct added_token *added;
    size_t added_count, added_capacity;
    uint32_t *added_by_id;          /* indices, sorted by id */
    struct added_finder raw;        /* tokens matched in the original text */
    struct added_finder normalized; /* tokens matched after normalization */
    struct normalizers normalizers;
    struct pretokenizers pretokenizers;
    struct post_processor post;
    struct decoders decoders;
    int32_t vocab_size;
    int32_t bos_id, eos_id, pad_id;
    char *chat_template;
    char *folder, *model_folder;
};

/* State that encoding with ranges needs besides. */
struct tracking {
    struct text_track track;
    struct tt_ranges normal[2], pieces[PIPELINE_STEPS_MAX]; /* maps of the texts below */
    struct tt_ids ids;                                      /* of a word */
    struct tt_ranges spans;
};

struct tt_tokenizer_scratch {
    struct bpe_scratch *bpe;
    struct tt_pattern_runner *runner;
    struct tt_str normal[2];
    struct tt_str pieces[PIPELINE_STEPS_MAX];
    struct added_matches raw, normalized;
    struct tracking *tracking; /* NULL until it is needed */
};

/* tokenizer.json of a folder. */
TT_MUST_USE tt_status tt_tokenizer_json(const char *folder, struct tt_json *json);
/* The members of tokenizer.json, and the tokens that only the files beside it have. */
TT_MUST_USE tt_status tokenizer_read(const struct tt_json *json, const struct tt_beside *beside,
                                     struct tt_tokenizer *tokenizer);
/* Called after tokenizer_read: leaves blanks to the model where that gives the same ids (blanks.c). */
void tokenizer_leave_blanks(struct tt_tokenizer *tokenizer);
/* Named tokens and chat template of these files, and of chat_template.jinja of the folder; each is optional. */
TT_MUST_USE tt_status tokenizer_read_config(const char *folder, const struct tt_beside *beside,
                                            struct tt_tokenizer *tokenizer);
/* Warns where transformers 5 replaces the steps of tokenizer.json. `config` is tokenizer_config.json, `model`
 * config.json; each may be empty. */
void tokenizer_check_class(const struct tt_json *config, const struct tt_json *model,
                           const struct tt_tokenizer *tokenizer);

#endif
