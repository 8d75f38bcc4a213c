/* Normalizers of tokenizer.json. */
#include <string.h>

#include "base/alloc.h"
#include "text/byte_level.h"
#include "text/pipeline.h"

static tt_status add_step(const struct tt_json *json, struct normalizers *out, enum normalizer_kind kind,
                          struct normalizer **step)
{
    if (out->count == PIPELINE_STEPS_MAX)
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: too many normalizers", json->origin);
    *step = &out->steps[out->count++];
    **step = (struct normalizer){.kind = kind};
    return TT_OK;
}

static tt_status read_bert(const struct tt_json *json, const struct tt_json_value *value,
                           struct normalizers *out)
{
    bool clean = true, chinese = true, lowercase = true, accents;
    struct normalizer *step = NULL;
    TT_TRY(tt_json_bool(json, value, "clean_text", &clean));
    TT_TRY(tt_json_bool(json, value, "handle_chinese_chars", &chinese));
    TT_TRY(tt_json_bool(json, value, "lowercase", &lowercase));
    accents = lowercase; /* the default */
    TT_TRY(tt_json_opt_bool(json, value, "strip_accents", &accents));
    if (clean) TT_TRY(add_step(json, out, NORMALIZE_BERT_CLEAN, &step));
    if (chinese) TT_TRY(add_step(json, out, NORMALIZE_BERT_CHINESE, &step));
    if (accents) {
        TT_TRY(add_step(json, out, NORMALIZE_FORM, &step));
        step->form = TT_NFD;
        TT_TRY(add_step(json, out, NORMALIZE_STRIP_MARKS, &step));
        step->only_nonspacing = true;
    }
    if (lowercase) TT_TRY(add_step(json, out, NORMALIZE_LOWERCASE, &step));
    return TT_OK;
}

static tt_status copy_member(const struct tt_json *json, const struct tt_json_value *value, const char *key,
                             char **out)
{
    const char *text = NULL;
    TT_TRY(tt_json_string(json, value, key, &text));
    *out = tt_strdup(text);
    return *out == NULL ? TT_ERR_MEMORY : TT_OK;
}

static tt_status read_value(const struct tt_json *json, const struct tt_json_value *value, int depth,
                            struct normalizers *out);

static tt_status read_sequence(const struct tt_json *json, const struct tt_json_value *value, int depth,
                               struct normalizers *out)
{
    const struct tt_json_value *items = NULL;
    if (depth == PIPELINE_DEPTH_MAX)
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: sequences too deep", json->origin);
    TT_TRY(tt_json_array(json, value, "normalizers", &items));
    for (size_t i = 0; i < tt_json_count(items); i++) {
        TT_TRY(read_value(json, tt_json_at(items, i), depth + 1, out));
    }
    return TT_OK;
}

static tt_status read_value(const struct tt_json *json, const struct tt_json_value *value, int depth,
                            struct normalizers *out)
{
    static const struct {
        const char *type;
        enum normalizer_kind kind;
        enum tt_normal_form form;
    } kinds[] = {
        {"NFC", NORMALIZE_FORM, TT_NFC},
        {"NFD", NORMALIZE_FORM, TT_NFD},
        {"NFKC", NORMALIZE_FORM, TT_NFKC},
        {"NFKD", NORMALIZE_FORM, TT_NFKD},
        {"Lowercase", NORMALIZE_LOWERCASE, TT_NFC},
        {"StripAccents", NORMALIZE_STRIP_MARKS, TT_NFC},
        {"Strip", NORMALIZE_STRIP, TT_NFC},
        {"Prepend", NORMALIZE_PREPEND, TT_NFC},
        {"Replace", NORMALIZE_REPLACE, TT_NFC},
        {"ByteLevel", NORMALIZE_BYTE_LEVEL, TT_NFC},
        {"Nmt", NORMALIZE_NMT, TT_NFC},
    };
    const char *type = NULL;
    TT_TRY(pipeline_type(json, value, &type));
    if (strcmp(type, "Sequence") == 0) return read_sequence(json, value, depth, out);
    if (strcmp(type, "BertNormalizer") == 0) return read_bert(json, value, out);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(type, kinds[i].type) != 0) continue;
        struct normalizer *step = NULL;
        TT_TRY(add_step(json, out, kinds[i].kind, &step));
        step->form = kinds[i].form;
        if (step->kind == NORMALIZE_STRIP) {
            TT_TRY(tt_json_bool(json, value, "strip_left", &step->left));
            TT_TRY(tt_json_bool(json, value, "strip_right", &step->right));
        } else if (step->kind == NORMALIZE_PREPEND) {
            TT_TRY(copy_member(json, value, "prepend", &step->content));
        } else if (step->kind == NORMALIZE_REPLACE) {
            enum tt_scan scan;
            TT_TRY(copy_member(json, value, "content", &step->content));
            TT_TRY(pipeline_pattern(json, value, &step->pattern, &scan));
            /* The reference stops, or continues with broken offsets, when it replaces an empty match. */
            if (step->content[0] != 0 && tt_pattern_matches_empty(step->pattern)) {
                return tt_fail(TT_ERR_UNSUPPORTED,
                               "%s: a Replace normalizer whose pattern may match no character at all",
                               json->origin);
            }
        }
        return TT_OK;
    }
    return tt_fail(TT_ERR_UNSUPPORTED, "%s: normalizer '%s' is not supported", json->origin, type);
}

tt_status normalizers_read(const struct tt_json *json, const struct tt_json_value *value,
                           struct normalizers *out)
{
    out->limit = TEXT_BYTES_MAX;
    return value == NULL || tt_json_is_null(value) ? TT_OK : read_value(json, value, 0, out);
}

void normalizers_deinit(struct normalizers *normalizers)
{
    for (size_t i = 0; i < normalizers->count; i++) {
        tt_pattern_destroy(normalizers->steps[i].pattern);
        tt_free(normalizers->steps[i].content);
    }
    normalizers->count = 0;
}

/* The CJK ideograph blocks that BERT sets apart. */
static bool is_chinese(int32_t code)
{
    return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
           (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B81F) ||
           (code >= 0x2B920 && code <= 0x2CEAF) || (code >= 0xF900 && code <= 0xFAFF) ||
           (code >= 0x2F800 && code <= 0x2FA1F);
}

/* Maps a character to itself, to a space, or to -1 (removed). */
static int32_t clean_bert(int32_t code)
{
    if (code == '\t' || code == '\n' || code == '\r' || tt_unicode_is_space(code)) {
        /* U+000B, U+000C and U+0085 are controls first. */
        return code == 0xB || code == 0xC || code == 0x85 ? -1 : ' ';
    }
    return code == 0 || code == 0xFFFD || tt_unicode_is_other(code) ? -1 : code;
}

static int32_t clean_nmt(int32_t code)
{
    if ((code >= 1 && code <= 8) || code == 0xB || (code >= 0xE && code <= 0x1F) || code == 0x7F ||
        code == 0x8F || code == 0x9F) {
        return -1;
    }
    bool space = code == 9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
                 (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 || code == 0x2581 ||
                 code == 0xFEFF || code == 0xFFFD;
    return space ? ' ' : code;
}

/* The steps that look at one character at a time. */
static tt_status map_characters(const struct normalizer *step, struct text_track *track, const char *text,
                                size_t bytes, size_t limit, struct tt_str *out, bool *at_start)
{
    size_t length;
    for (size_t at = 0; at < bytes; at += length) {
        int32_t code = tt_utf8_decode(text + at, &length), mapped = code, two[2];
        if (step->kind == NORMALIZE_LOWERCASE) {
            int count = tt_unicode_lower(code, two);
            mapped = two[0];
            if (count == 2) {
                TT_TRY(tt_text_append_code(out, limit, two[0]));
                mapped = two[1];
            }
        } else if (step->kind == NORMALIZE_STRIP_MARKS) {
            bool drop = step->only_nonspacing ? tt_unicode_is_nonspacing(code) : tt_unicode_is_mark(code);
            if (drop) mapped = -1;
        } else if (step->kind == NORMALIZE_BERT_CLEAN) {
            mapped = clean_bert(code);
        } else if (step->kind == NORMALIZE_NMT) {
            mapped = clean_nmt(code);
        } else if (is_chinese(code)) {
            TT_TRY(tt_text_append_code(out, limit, ' '));
            TT_TRY(tt_text_append_code(out, limit, code));
            mapped = ' ';
        }
        if (mapped >= 0)
            TT_TRY(tt_text_append_code(out, limit, mapped));
        else if (out->bytes == 0)
            *at_start = false;
        if (track != NULL) TT_TRY(text_track_record(track, out->bytes, text + at, text + at + length));
    }
    return TT_OK;
}

static tt_status replace(const struct normalizer *step, const struct normalizing *with, const char *text,
                         size_t bytes, size_t limit, struct tt_str *out, bool *at_start)
{
    struct tt_pattern_iterator it = tt_pattern_matches(text, bytes);
    struct text_track *track = with->track;
    size_t copied = 0, start, end;
    bool found;
    for (;;) {
        TT_TRY(tt_pattern_next(step->pattern, with->runner, &it, &start, &end, &found));
        if (!found) break;
        TT_TRY(tt_text_append(out, limit, text + copied, start - copied));
        if (track != NULL) TT_TRY(text_track_copy(track, out->bytes, text + copied));
        TT_TRY(tt_text_append(out, limit, step->content, strlen(step->content)));
        if (track != NULL) TT_TRY(text_track_record(track, out->bytes, text + start, text + end));
        /* The replacement is aligned with the last character it replaces. */
        bool one = end > start && end - start <= tt_utf8_length((unsigned char)text[start]);
        if (start == 0 && end > 0 && !(one && step->content[0] != 0)) *at_start = false;
        copied = end;
    }
    TT_TRY(tt_text_append(out, limit, text + copied, bytes - copied));
    return track == NULL ? TT_OK : text_track_copy(track, out->bytes, text + copied);
}

static void strip(const struct normalizer *step, const char **text, size_t *bytes, bool *at_start)
{
    size_t length;
    while (step->left && *bytes > 0 && tt_unicode_is_space(tt_utf8_decode(*text, &length))) {
        *text += length;
        *bytes -= length;
        *at_start = false;
    }
    while (step->right && *bytes > 0 && tt_unicode_is_space(tt_utf8_decode_before(*text, *bytes, &length))) {
        *bytes -= length;
    }
}

static tt_status map_bytes(struct text_track *track, const char *text, size_t bytes, size_t limit,
                           struct tt_str *out)
{
    for (size_t i = 0; i < bytes; i++) {
        TT_TRY(tt_text_append_code(out, limit, byte_level_code((unsigned char)text[i])));
        if (track != NULL) TT_TRY(text_track_record(track, out->bytes, text + i, text + i + 1));
    }
    return TT_OK;
}

static tt_status prepend(const struct normalizer *step, struct text_track *track, const char *text,
                         size_t bytes, size_t limit, struct tt_str *out)
{
    if (bytes > 0) TT_TRY(tt_text_append(out, limit, step->content, strlen(step->content)));
    if (track != NULL) TT_TRY(text_track_record(track, out->bytes, text, text));
    TT_TRY(tt_text_append(out, limit, text, bytes));
    return track == NULL ? TT_OK : text_track_copy(track, out->bytes, text);
}

static tt_status apply(const struct normalizer *step, const struct normalizing *with, const char *text,
                       size_t bytes, size_t limit, struct tt_str *out, bool *at_start)
{
    switch (step->kind) {
    case NORMALIZE_FORM:
        return tt_unicode_normalize_tracked(step->form, text, bytes, limit, with->track, out);
    case NORMALIZE_REPLACE:
        return replace(step, with, text, bytes, limit, out, at_start);
    case NORMALIZE_BYTE_LEVEL:
        return map_bytes(with->track, text, bytes, limit, out);
    case NORMALIZE_PREPEND:
        return prepend(step, with->track, text, bytes, limit, out);
    default:
        return map_characters(step, with->track, text, bytes, limit, out, at_start);
    }
}

/* Prepend before a Replace of one character, as in Llama 2: the Replace processes the two parts one after the other,
 * without a copy of the text in between. Neither moves the beginning. */
static bool is_prepend_replace(const struct normalizers *normalizers, size_t at)
{
    const struct normalizer *step = &normalizers->steps[at];
    return at + 1 < normalizers->count && step[0].kind == NORMALIZE_PREPEND &&
           step[1].kind == NORMALIZE_REPLACE && tt_pattern_is_character(step[1].pattern) &&
           step[1].content[0] != 0;
}

static tt_status prepend_replace(const struct normalizers *normalizers, size_t at,
                                 const struct normalizing *with, const char *text, size_t bytes, size_t limit,
                                 struct tt_str *out, bool *at_start)
{
    const struct normalizer *step = &normalizers->steps[at];
    const char *content = step[0].content;
    if (bytes > 0) TT_TRY(replace(&step[1], with, content, strlen(content), limit, out, at_start));
    return replace(&step[1], with, text, bytes, limit, out, at_start);
}

tt_status normalizers_apply(const struct normalizers *normalizers, const struct normalizing *with,
                            const char **text, size_t *bytes, bool *at_start)
{
    int turn = 0;
    size_t limit = pipeline_limit(*bytes);
    if (limit > normalizers->limit) limit = normalizers->limit;
    for (size_t i = 0; i < normalizers->count; i++) {
        const struct normalizer *step = &normalizers->steps[i];
        if (step->kind == NORMALIZE_STRIP) {
            strip(step, text, bytes, at_start);
            continue;
        }
        struct tt_str *out = &with->buffers[turn];
        tt_str_clear(out);
        if (with->track != NULL) text_track_begin(with->track, &with->maps[turn]);
        if (with->track == NULL && is_prepend_replace(normalizers, i)) {
            TT_TRY(prepend_replace(normalizers, i++, with, *text, *bytes, limit, out, at_start));
        } else {
            TT_TRY(apply(step, with, *text, *bytes, limit, out, at_start));
        }
        *text = tt_str_text(out);
        *bytes = out->bytes;
        if (with->track != NULL) text_track_end(with->track, *text, *bytes);
        turn = !turn;
    }
    return TT_OK;
}
