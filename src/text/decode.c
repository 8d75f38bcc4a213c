/* Decoders of tokenizer.json: from token strings to text. */
#include <string.h>

#include "base/alloc.h"
#include "text/byte_level.h"
#include "text/pipeline.h"

/* Reading. */
static tt_status copy_member(const struct tt_json *json, const struct tt_json_value *value, const char *key,
                             char **out)
{
    const char *text = NULL;
    TT_TRY(tt_json_string(json, value, key, &text));
    *out = tt_strdup(text);
    return *out == NULL ? TT_ERR_MEMORY : TT_OK;
}

static tt_status read_strip(const struct tt_json *json, const struct tt_json_value *value,
                            struct decoder *step)
{
    int64_t start = 0, stop = 0;
    TT_TRY(pipeline_character(json, value, "content", &step->code));
    TT_TRY(tt_json_int(json, value, "start", &start));
    TT_TRY(tt_json_int(json, value, "stop", &stop));
    if (start < 0 || stop < 0) return tt_fail(TT_ERR_DATA, "%s: Strip with a negative count", json->origin);
    step->start = (size_t)start;
    step->stop = (size_t)stop;
    return TT_OK;
}

static tt_status read_metaspace(const struct tt_json *json, const struct tt_json_value *value,
                                struct decoder *step)
{
    const char *scheme = "always";
    bool prefix = true;
    TT_TRY(pipeline_character(json, value, "replacement", &step->code));
    TT_TRY(tt_json_opt_string(json, value, "prepend_scheme", &scheme));
    TT_TRY(tt_json_opt_bool(json, value, "add_prefix_space", &prefix));
    step->drop_first = strcmp(scheme, "never") != 0;
    if (!prefix && step->drop_first) {
        return tt_fail(TT_ERR_DATA, "%s: add_prefix_space does not match prepend_scheme '%s'", json->origin,
                       scheme);
    }
    return TT_OK;
}

static tt_status read_value(const struct tt_json *json, const struct tt_json_value *value, int depth,
                            struct decoders *out);

static tt_status read_sequence(const struct tt_json *json, const struct tt_json_value *value, int depth,
                               struct decoders *out)
{
    const struct tt_json_value *items = NULL;
    if (depth == PIPELINE_DEPTH_MAX)
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: sequences too deep", json->origin);
    TT_TRY(tt_json_array(json, value, "decoders", &items));
    for (size_t i = 0; i < tt_json_count(items); i++) {
        TT_TRY(read_value(json, tt_json_at(items, i), depth + 1, out));
    }
    return TT_OK;
}

static tt_status read_value(const struct tt_json *json, const struct tt_json_value *value, int depth,
                            struct decoders *out)
{
    static const char *const types[] = {"ByteLevel", "ByteFallback", "Fuse",       "Strip",
                                        "Replace",   "Metaspace",    "BPEDecoder", "WordPiece"};
    const char *type = NULL;
    TT_TRY(pipeline_type(json, value, &type));
    if (strcmp(type, "Sequence") == 0) return read_sequence(json, value, depth, out);
    size_t kind = 0, kinds = sizeof types / sizeof types[0];
    while (kind < kinds && strcmp(types[kind], type) != 0) kind++;
    if (kind == kinds)
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: decoder '%s' is not supported", json->origin, type);
    if (out->count == PIPELINE_STEPS_MAX)
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: too many decoders", json->origin);
    struct decoder *step = &out->steps[out->count++];
    *step = (struct decoder){.kind = (enum decoder_kind)kind};
    enum tt_scan scan;
    switch (step->kind) {
    case DECODE_STRIP:
        return read_strip(json, value, step);
    case DECODE_METASPACE:
        return read_metaspace(json, value, step);
    case DECODE_BPE:
        return copy_member(json, value, "suffix", &step->content);
    case DECODE_WORDPIECE:
        TT_TRY(copy_member(json, value, "prefix", &step->content));
        return tt_json_bool(json, value, "cleanup", &step->cleanup);
    case DECODE_REPLACE:
        TT_TRY(copy_member(json, value, "content", &step->content));
        return pipeline_pattern(json, value, &step->pattern, &scan);
    default:
        return TT_OK;
    }
}

tt_status decoders_read(const struct tt_json *json, const struct tt_json_value *value, struct decoders *out)
{
    if (value == NULL || tt_json_is_null(value)) return TT_OK;
    out->present = true;
    return read_value(json, value, 0, out);
}

void decoders_deinit(struct decoders *decoders)
{
    for (size_t i = 0; i < decoders->count; i++) {
        tt_pattern_destroy(decoders->steps[i].pattern);
        tt_free(decoders->steps[i].content);
    }
    decoders->count = 0;
}

/* Lists of token strings. */
static tt_status end_token(struct decode_list *list)
{
    TT_TRY(tt_grow(&list->ends, list->count, &list->capacity));
    list->ends[list->count++] = list->text.bytes;
    return TT_OK;
}

tt_status decode_list_append(struct decode_list *list, const char *data, size_t bytes)
{
    TT_TRY(tt_str_append(&list->text, data, bytes));
    return end_token(list);
}

void decode_list_deinit(struct decode_list *list)
{
    tt_str_deinit(&list->text);
    tt_free(list->ends);
    *list = (struct decode_list){0};
}

static struct tt_span token_at(const struct decode_list *list, size_t index)
{
    size_t start = index == 0 ? 0 : list->ends[index - 1];
    return (struct tt_span){tt_str_text(&list->text) + start, list->ends[index] - start};
}

/* The bytes of a token in ByteLevel's alphabet; the token itself if it has any other character. */
static tt_status append_unmapped(struct tt_str *bytes, struct tt_span token)
{
    size_t before = bytes->bytes, length;
    for (size_t at = 0; at < token.bytes; at += length) {
        int byte = byte_level_byte(tt_utf8_decode(token.data + at, &length));
        if (byte < 0) {
            bytes->bytes = before;
            return tt_str_append(bytes, token.data, token.bytes);
        }
        TT_TRY(tt_str_append_char(bytes, (char)byte));
    }
    return TT_OK;
}

static tt_status decode_byte_level(const struct decode_list *in, struct decode_list *out)
{
    struct tt_str bytes = {0};
    tt_status status = TT_OK;
    for (size_t i = 0; i < in->count; i++) TT_GO(append_unmapped(&bytes, token_at(in, i)));
    TT_GO(tt_utf8_append_lossy(&out->text, tt_str_text(&bytes), bytes.bytes));
    TT_GO(end_token(out));
out:
    tt_str_deinit(&bytes);
    return status;
}

/* The reference's number parser takes a sign as well. */
int decode_fallback_byte(struct tt_span token)
{
    if (token.bytes != 6 || memcmp(token.data, "<0x", 3) != 0 || token.data[5] != '>') return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        char c = token.data[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (i == 3 && c == '+') digit = 0;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* A run of byte tokens is text when it is valid as a whole, otherwise each byte is U+FFFD. */
static tt_status flush_bytes(struct tt_str *bytes, struct decode_list *out)
{
    if (bytes->bytes == 0) return TT_OK;
    if (tt_utf8_invalid_at(bytes->data, bytes->bytes) == bytes->bytes) {
        TT_TRY(decode_list_append(out, bytes->data, bytes->bytes));
    } else {
        for (size_t i = 0; i < bytes->bytes; i++) TT_TRY(decode_list_append(out, "\xEF\xBF\xBD", 3));
    }
    tt_str_clear(bytes);
    return TT_OK;
}

static tt_status decode_byte_fallback(const struct decode_list *in, struct decode_list *out)
{
    struct tt_str bytes = {0};
    tt_status status = TT_OK;
    for (size_t i = 0; i < in->count; i++) {
        struct tt_span token = token_at(in, i);
        int byte = decode_fallback_byte(token);
        if (byte >= 0) {
            TT_GO(tt_str_append_char(&bytes, (char)byte));
            continue;
        }
        TT_GO(flush_bytes(&bytes, out));
        TT_GO(decode_list_append(out, token.data, token.bytes));
    }
    TT_GO(flush_bytes(&bytes, out));
out:
    tt_str_deinit(&bytes);
    return status;
}

/* Strips up to `start` of the character from the front and `stop` from the back. */
static tt_status decode_strip(const struct decoder *step, struct tt_span token, struct decode_list *out)
{
    size_t length;
    for (size_t i = 0; i < step->start && token.bytes > 0; i++) {
        if (tt_utf8_decode(token.data, &length) != step->code) break;
        token.data += length;
        token.bytes -= length;
    }
    for (size_t i = 0; i < step->stop && token.bytes > 0; i++) {
        if (tt_utf8_decode_before(token.data, token.bytes, &length) != step->code) break;
        token.bytes -= length;
    }
    return decode_list_append(out, token.data, token.bytes);
}

static tt_status decode_metaspace(const struct decoder *step, struct tt_span token, bool first,
                                  struct decode_list *out)
{
    size_t length;
    for (size_t at = 0; at < token.bytes; at += length) {
        bool replaced = tt_utf8_decode(token.data + at, &length) == step->code;
        if (!replaced)
            TT_TRY(tt_str_append(&out->text, token.data + at, length));
        else if (!first || !step->drop_first)
            TT_TRY(tt_str_append_char(&out->text, ' '));
    }
    return end_token(out);
}

static tt_status decode_replace(const struct decoder *step, struct tt_pattern_runner *runner,
                                struct tt_span token, size_t limit, struct decode_list *out)
{
    struct tt_pattern_iterator it = tt_pattern_matches(token.data, token.bytes);
    size_t copied = 0, start, end;
    bool found;
    for (;;) {
        TT_TRY(tt_pattern_next(step->pattern, runner, &it, &start, &end, &found));
        if (!found) break;
        TT_TRY(tt_text_append(&out->text, limit, token.data + copied, start - copied));
        TT_TRY(tt_text_append(&out->text, limit, step->content, strlen(step->content)));
        copied = end;
    }
    TT_TRY(tt_text_append(&out->text, limit, token.data + copied, token.bytes - copied));
    return end_token(out);
}

/* The suffix becomes a space, and nothing in the last token. */
static tt_status decode_bpe(const struct decoder *step, struct tt_span token, bool last,
                            struct decode_list *out)
{
    size_t suffix = strlen(step->content);
    for (size_t at = 0; at < token.bytes;) {
        if (suffix > 0 && token.bytes - at >= suffix && memcmp(token.data + at, step->content, suffix) == 0) {
            if (!last) TT_TRY(tt_str_append_char(&out->text, ' '));
            at += suffix;
        } else {
            TT_TRY(tt_str_append_char(&out->text, token.data[at++]));
        }
    }
    return end_token(out);
}

/* Replaces every `from` after byte `start` of `text`; never by something longer. */
static void replace_shorter(struct tt_str *text, size_t start, const char *from, const char *to)
{
    size_t from_bytes = strlen(from), to_bytes = strlen(to), kept = start;
    for (size_t at = start; at < text->bytes;) {
        if (text->bytes - at >= from_bytes && memcmp(text->data + at, from, from_bytes) == 0) {
            memcpy(text->data + kept, to, to_bytes);
            kept += to_bytes;
            at += from_bytes;
        } else {
            text->data[kept++] = text->data[at++];
        }
    }
    text->bytes = kept;
    if (text->data != NULL) text->data[kept] = 0;
}

/* A token without the prefix of word parts begins a word and is preceded by a space; `cleanup` removes the spaces
 * before punctuation and contractions. */
static tt_status decode_wordpiece(const struct decoder *step, struct tt_span token, bool first,
                                  struct decode_list *out)
{
    static const char *const cleanups[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    size_t prefix = strlen(step->content), start = out->text.bytes;
    if (!first && token.bytes >= prefix && memcmp(token.data, step->content, prefix) == 0) {
        token.data += prefix;
        token.bytes -= prefix;
    } else if (!first) {
        TT_TRY(tt_str_append_char(&out->text, ' '));
    }
    TT_TRY(tt_str_append(&out->text, token.data, token.bytes));
    for (size_t i = 0; step->cleanup && i < sizeof cleanups / sizeof cleanups[0]; i++) {
        replace_shorter(&out->text, start, cleanups[i][0], cleanups[i][1]);
    }
    return end_token(out);
}

static tt_status apply(const struct decoder *step, struct tt_pattern_runner *runner,
                       const struct decode_list *in, size_t limit, struct decode_list *out)
{
    if (step->kind == DECODE_BYTE_LEVEL) return decode_byte_level(in, out);
    if (step->kind == DECODE_BYTE_FALLBACK) return decode_byte_fallback(in, out);
    if (step->kind == DECODE_FUSE) return decode_list_append(out, tt_str_text(&in->text), in->text.bytes);
    for (size_t i = 0; i < in->count; i++) {
        struct tt_span token = token_at(in, i);
        switch (step->kind) {
        case DECODE_STRIP:
            TT_TRY(decode_strip(step, token, out));
            break;
        case DECODE_METASPACE:
            TT_TRY(decode_metaspace(step, token, i == 0, out));
            break;
        case DECODE_REPLACE:
            TT_TRY(decode_replace(step, runner, token, limit, out));
            break;
        case DECODE_WORDPIECE:
            TT_TRY(decode_wordpiece(step, token, i == 0, out));
            break;
        default:
            TT_TRY(decode_bpe(step, token, i + 1 == in->count, out));
            break;
        }
    }
    return TT_OK;
}

static tt_status join_with_spaces(const struct decode_list *list, struct tt_str *text)
{
    for (size_t i = 0; i < list->count; i++) {
        struct tt_span token = token_at(list, i);
        if (i > 0) TT_TRY(tt_str_append_char(text, ' '));
        TT_TRY(tt_str_append(text, token.data, token.bytes));
    }
    return TT_OK;
}

tt_status decoders_apply(const struct decoders *decoders, struct decode_list *list, struct tt_str *text)
{
    tt_str_clear(text);
    if (!decoders->present) return join_with_spaces(list, text);
    struct decode_list out = {0};
    struct tt_pattern_runner *runner = NULL;
    tt_status status = TT_OK;
    size_t limit = pipeline_limit(list->text.bytes);
    for (size_t i = 0; i < decoders->count; i++) {
        const struct decoder *step = &decoders->steps[i];
        if (step->kind == DECODE_REPLACE) {
            if (runner == NULL) TT_GO(tt_pattern_runner_create(&runner));
            tt_pattern_runner_reset(runner, list->text.bytes);
        }
        TT_GO(apply(step, runner, list, limit, &out));
        struct decode_list used = *list;
        *list = out;
        out = used;
        tt_str_clear(&out.text);
        out.count = 0;
    }
    TT_GO(tt_str_append(text, tt_str_text(&list->text), list->text.bytes));
out:
    decode_list_deinit(&out);
    tt_pattern_runner_destroy(runner);
    return status;
}
