/* The encoder on any bytes. The first byte chooses the kind of tokenizer. A text is refused as invalid UTF-8 or
 * gives ids of the vocabulary. Where every byte has a token and nothing is normalized, decoding gives the text
 * back, at once and as a stream. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/byte_level.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

#define ADDED                                                                                                \
    "\"added_tokens\": [{\"id\": 300, \"content\": \"<s>\", \"single_word\": false, \"lstrip\": false, "     \
    "\"rstrip\": "                                                                                           \
    "false, \"normalized\": false, \"special\": true}]"

/* A model of all bytes and a few merges; `alphabet` is ByteLevel's or "<0x..>". */
static void append_model(struct tt_str *json, bool byte_level)
{
    static const char *const merges[][2] = {{"a", "b"}, {"ab", "ab"}, {"t", "h"}, {"th", "e"}, {"e", "e"}};
    tt_status status =
        tt_str_append_text(json, "\"model\": {\"vocab\": {\"ab\": 256, \"abab\": 257, \"th\": 258, "
                                 "\"the\": 259, \"ee\": 260");
    for (int byte = 0; byte < 256; byte++) {
        char name[8] = "";
        if (byte_level)
            tt_utf8_encode(byte_level_code((unsigned char)byte), name);
        else
            snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        const char *escape = name[0] == '"' || name[0] == '\\' ? "\\" : "";
        if (status == TT_OK) status = tt_str_printf(json, ", \"%s%s\": %d", escape, name, byte);
    }
    if (status == TT_OK && !byte_level) {
        status = tt_str_append_text(
            json, ", \"a\": 261, \"b\": 262, \"t\": 263, \"h\": 264, \"e\": 265, \"\u2581\": 266");
    }
    if (status == TT_OK) status = tt_str_append_text(json, "}, \"byte_fallback\": true, \"merges\": [");
    for (size_t i = 0; status == TT_OK && i < sizeof merges / sizeof merges[0]; i++) {
        status = tt_str_printf(json, "%s[\"%s\", \"%s\"]", i == 0 ? "" : ", ", merges[i][0], merges[i][1]);
    }
    if (status != TT_OK || tt_str_append_text(json, "]}}") != TT_OK) abort();
}

static void check_round_trip(const struct tt_tokenizer *tokenizer, const struct tt_ids *ids, const char *text,
                             size_t bytes)
{
    struct tt_str decoded = {0}, shown = {0};
    struct tt_tokenizer_stream stream = {0};
    if (tt_tokenizer_decode(tokenizer, ids->data, ids->count, false, &decoded) != TT_OK) abort();
    if (decoded.bytes != bytes || memcmp(tt_str_text(&decoded), text, bytes) != 0) abort();
    for (size_t i = 0; i < ids->count && i < 2000; i++) {
        if (tt_tokenizer_stream_push(tokenizer, &stream, ids->data[i], &shown) != TT_OK) abort();
    }
    if (tt_tokenizer_stream_finish(tokenizer, &stream, &shown) != TT_OK) abort();
    if (ids->count <= 2000 && (shown.bytes != bytes || memcmp(tt_str_text(&shown), text, bytes) != 0))
        abort();
    tt_tokenizer_stream_deinit(&stream);
    tt_str_deinit(&decoded);
    tt_str_deinit(&shown);
}

/* Encoding with ranges gives the same ids; borders in the text that never go back. Where nothing is removed or put
 * before, the ranges are the text. */
static void check_ranges(const struct tt_tokenizer *tokenizer, struct tt_tokenizer_scratch *scratch,
                         const struct tt_ids *ids, struct tt_span text, bool covers)
{
    struct tt_ids again = {0};
    struct tt_ranges ranges = {0};
    struct tt_encode_options options = {.add_special = true};
    if (tt_tokenizer_encode_ranges(tokenizer, scratch, text, &options, &again, &ranges) != TT_OK) abort();
    if (again.count != ids->count || ranges.count != ids->count) abort();
    if (ids->count > 0 && memcmp(again.data, ids->data, ids->count * sizeof ids->data[0]) != 0) abort();
    struct tt_byte_range before = {0, 0};
    for (size_t i = 0; i < ranges.count; before = ranges.data[i++]) {
        struct tt_byte_range range = ranges.data[i];
        if (range.begin > range.end || range.end > text.bytes) abort();
        if (range.begin < before.begin || range.end < before.end) abort();
        if (covers && range.begin != before.end) abort();
    }
    if (covers && before.end != text.bytes) abort();
    tt_ids_deinit(&again);
    tt_ranges_deinit(&ranges);
}

struct subject {
    const char *pipeline;
    bool byte_level, round_trip;
    struct tt_tokenizer
        *tokenizer; /* created in the first run and kept: creating one costs more than a run */
    struct tt_tokenizer_scratch *scratch;
};

static void make(struct subject *subject)
{
    struct tt_str json = {0};
    if (tt_str_printf(&json, "{" ADDED ", %s, ", subject->pipeline) != TT_OK) abort();
    append_model(&json, subject->byte_level);
    if (tt_tokenizer_parse(json.data, json.bytes, "fuzz", &subject->tokenizer) != TT_OK) abort();
    if (tt_tokenizer_scratch_create(subject->tokenizer, &subject->scratch) != TT_OK) abort();
    tt_str_deinit(&json);
}

static void run(struct subject *subject, const char *text, size_t bytes)
{
    if (subject->tokenizer == NULL) make(subject);
    struct tt_ids ids = {0};
    tt_status status = tt_tokenizer_encode(subject->tokenizer, subject->scratch, text, bytes, true, &ids);
    if ((status == TT_OK) != (tt_utf8_invalid_at(text, bytes) == bytes)) abort();
    for (size_t i = 0; i < ids.count; i++) {
        if (tt_tokenizer_token(subject->tokenizer, ids.data[i]) == NULL) abort();
    }
    if (status == TT_OK)
        check_ranges(subject->tokenizer, subject->scratch, &ids, (struct tt_span){text, bytes},
                     subject->round_trip);
    if (status == TT_OK && subject->round_trip) check_round_trip(subject->tokenizer, &ids, text, bytes);
    tt_ids_deinit(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct subject subjects[] = {
        {"\"decoder\": {\"type\": \"ByteLevel\"}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
         "\"add_prefix_space\": false, "
         "\"trim_offsets\": true}",
         true, true, NULL, NULL},
        {"\"decoder\": {\"type\": \"ByteLevel\"}, \"pre_tokenizer\": {\"type\": \"Sequence\", "
         "\"pretokenizers\": [{\"type\": "
         "\"Split\", \"pattern\": {\"Regex\": \"\\\\p{N}{1,3}|[\\\\p{L}&&[^e]]+\"}, \"behavior\": "
         "\"MergedWithNext\", "
         "\"invert\": false}, {\"type\": \"Digits\", \"individual_digits\": true}, {\"type\": \"ByteLevel\", "
         "\"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": false}]}",
         true, true, NULL, NULL},
        {"\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFKD\"}, {\"type\": "
         "\"NFC\"}, {\"type\": "
         "\"StripAccents\"}, {\"type\": \"Lowercase\"}, {\"type\": \"Strip\", \"strip_left\": true, "
         "\"strip_right\": true}]}, "
         "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\u2581\", \"prepend_scheme\": "
         "\"first\"}",
         false, false, NULL, NULL},
        {"\"normalizer\": {\"type\": \"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": "
         "true, "
         "\"lowercase\": false, \"strip_accents\": true}, \"pre_tokenizer\": {\"type\": \"Sequence\", "
         "\"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": "
         "\"(?i:'s|[k-m]+|[^\\\\p{L}0-9]+)|[[:lower:]]+|\\\\p{C}|x*\"}, \"behavior\": \"Contiguous\", "
         "\"invert\": "
         "true}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
         "\"use_regex\": "
         "false}]}",
         true, false, NULL, NULL},
        {"\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\u2581\"}",
         false, false, NULL, NULL},
    };
    if (size == 0) return 0;
    run(&subjects[data[0] % (sizeof subjects / sizeof subjects[0])], (const char *)data + 1, size - 1);
    return 0;
}
