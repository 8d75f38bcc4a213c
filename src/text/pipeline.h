/* The parts of a tokenizer besides its model: normalizers, pre-tokenizers, decoders and post-processor. Each is parsed
 * from its member of tokenizer.json into a flat list of steps, with sequences unfolded. Internal. */
#ifndef TT_TEXT_PIPELINE_H
#define TT_TEXT_PIPELINE_H

#include "base/json.h"
#include "text/pattern.h"
#include "text/scan.h"
#include "text/tokenizer.h"
#include "text/track.h"
#include "text/unicode.h"

/* A text has at most TEXT_BYTES_MAX bytes, and so has the output of a step, which stops at the limit. */
enum { PIPELINE_DEPTH_MAX = 16, PIPELINE_STEPS_MAX = 64, TEXT_BYTES_MAX = INT32_MAX / 2 };

/* The most bytes that normalizers, or decoders, may make of `bytes`: 1 MiB and 32 times the text, of long texts 256 MiB
 * or four times the text. Of one character NFKC makes 11 times its bytes (U+FDFA), ByteLevel twice as many; a few
 * replacements one after the other can multiply without a bound. */
size_t pipeline_limit(size_t bytes);

/* The "type" of a step. */
TT_MUST_USE tt_status pipeline_type(const struct tt_json *json, const struct tt_json_value *object,
                                    const char **type);
/* {"String": "..."} or {"Regex": "..."}. */
TT_MUST_USE tt_status pipeline_pattern(const struct tt_json *json, const struct tt_json_value *object,
                                       struct tt_pattern **out, enum tt_scan *scan);
/* A member that holds one character. */
TT_MUST_USE tt_status pipeline_character(const struct tt_json *json, const struct tt_json_value *object,
                                         const char *key, int32_t *code);

/* Normalizers. */
enum normalizer_kind {
    NORMALIZE_FORM,
    NORMALIZE_LOWERCASE,
    NORMALIZE_STRIP_MARKS, /* all of category M, or only Mn */
    NORMALIZE_STRIP,
    NORMALIZE_PREPEND,
    NORMALIZE_REPLACE,
    NORMALIZE_BYTE_LEVEL,
    NORMALIZE_NMT,
    NORMALIZE_BERT_CLEAN,
    NORMALIZE_BERT_CHINESE,
};
struct normalizer {
    enum normalizer_kind kind;
    enum tt_normal_form form;
    bool left, right;     /* STRIP */
    bool only_nonspacing; /* STRIP_MARKS */
    struct tt_pattern *pattern;
    char *content; /* PREPEND, REPLACE */
};
struct normalizers {
    struct normalizer steps[PIPELINE_STEPS_MAX];
    size_t count;
    size_t limit; /* besides pipeline_limit: TEXT_BYTES_MAX; smaller in tests */
};
TT_MUST_USE tt_status normalizers_read(const struct tt_json *json, const struct tt_json_value *value,
                                       struct normalizers *out);
void normalizers_deinit(struct normalizers *normalizers);
/* Replaces *text, *bytes by the result, in the input itself or in one of `buffers`. *at_start becomes false when the
 * first character of the result is not from the beginning of the input. */
struct normalizing {
    struct tt_pattern_runner *runner;
    struct tt_str *buffers;   /* [2] */
    struct text_track *track; /* NULL: none */
    struct tt_ranges *maps;   /* [2], with a track */
};
TT_MUST_USE tt_status normalizers_apply(const struct normalizers *normalizers, const struct normalizing *with,
                                        const char **text, size_t *bytes, bool *at_start);

/* Pre-tokenizers. */
enum split_behavior {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS
};
enum pretokenizer_kind {
    PRETOKENIZE_SCAN, /* split by one of the hand-written matchers */
    PRETOKENIZE_PATTERN,
    PRETOKENIZE_CHARACTERS,   /* split by `is_delimiter` */
    PRETOKENIZE_WORDS,        /* runs of word characters, runs of other characters, no white space */
    PRETOKENIZE_PREFIX_SPACE, /* a space before pieces that do not begin with one */
    PRETOKENIZE_BYTE_LEVEL,   /* bytes to ByteLevel's alphabet */
    PRETOKENIZE_METASPACE,    /* spaces to `code`, and one before */
};
enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };
struct pretokenizer {
    enum pretokenizer_kind kind;
    enum split_behavior behavior;
    bool invert;
    enum tt_scan scan;
    struct tt_pattern *pattern;
    bool (*is_delimiter)(int32_t code, int32_t wanted);
    int32_t code; /* METASPACE: the replacement; CHARACTERS: argument of is_delimiter */
    enum prepend_scheme prepend;
    bool leaves_blanks; /* METASPACE: only puts one before, see blanks.c */
};
struct pretokenizers {
    struct pretokenizer steps[PIPELINE_STEPS_MAX];
    size_t count;
    size_t limit;            /* as above */
    bool ends_in_byte_level; /* the model does a last BYTE_LEVEL step: its words are bytes */
};
TT_MUST_USE tt_status pretokenizers_read(const struct tt_json *json, const struct tt_json_value *value,
                                         struct pretokenizers *out);
void pretokenizers_deinit(struct pretokenizers *pretokenizers);
/* Refuses a Metaspace with prepend_scheme "first" where the reference decides by offsets that are not stored here. */
TT_MUST_USE tt_status pipeline_check_first(const struct tt_json *json, const struct normalizers *normalizers,
                                           const struct pretokenizers *pretokenizers);
/* Calls `word` for each piece, in order; pieces are never empty. `buffers` has PIPELINE_STEPS_MAX strings. */
typedef tt_status pretokenizers_word(void *context, const char *text, size_t bytes);
struct pretokenizers_run {
    const struct pretokenizers *pretokenizers;
    struct tt_pattern_runner *runner;
    struct tt_str *buffers;
    struct text_track *track; /* NULL: none */
    struct tt_ranges *maps;   /* as many as buffers, with a track */
    pretokenizers_word *word;
    void *context;
};
TT_MUST_USE tt_status pretokenizers_apply(const struct pretokenizers_run *run, const char *text, size_t bytes,
                                          bool at_start);

/* Decoders. */
enum decoder_kind {
    DECODE_BYTE_LEVEL,
    DECODE_BYTE_FALLBACK,
    DECODE_FUSE,
    DECODE_STRIP,
    DECODE_REPLACE,
    DECODE_METASPACE,
    DECODE_BPE,
    DECODE_WORDPIECE,
};
struct decoder {
    enum decoder_kind kind;
    int32_t code; /* STRIP, METASPACE */
    size_t start, stop;
    bool drop_first; /* METASPACE: the replacement is removed from the first token */
    struct tt_pattern *pattern;
    bool cleanup;  /* WORDPIECE */
    char *content; /* REPLACE; BPE: the suffix; WORDPIECE: the prefix */
};
struct decoders {
    struct decoder steps[PIPELINE_STEPS_MAX];
    size_t count;
    bool present; /* without a decoder, tokens are joined by spaces */
};
/* Token strings one after the other. */
struct decode_list {
    struct tt_str text;
    size_t *ends;
    size_t count, capacity;
};
TT_MUST_USE tt_status decode_list_append(struct decode_list *list, const char *data, size_t bytes);
void decode_list_deinit(struct decode_list *list);
TT_MUST_USE tt_status decoders_read(const struct tt_json *json, const struct tt_json_value *value,
                                    struct decoders *out);
void decoders_deinit(struct decoders *decoders);
/* Replaces `text`; consumes `list`. */
TT_MUST_USE tt_status decoders_apply(const struct decoders *decoders, struct decode_list *list,
                                     struct tt_str *text);

/* The byte of "<0xHH>", or -1. */
int decode_fallback_byte(struct tt_span token);

/* The post-processor, as far as it concerns ids: the special tokens around the text. */
struct post_piece {
    bool is_text; /* the ids of the text, otherwise one special id */
    int32_t id;
};
struct post_processor {
    struct post_piece *pieces;
    size_t count, capacity;
};
TT_MUST_USE tt_status post_processor_read(const struct tt_json *json, const struct tt_json_value *value,
                                          struct post_processor *out);
void post_processor_deinit(struct post_processor *processor);

#endif
