/* Pre-tokenizers of tokenizer.json: from a text to its words. */
#include <string.h>

#include "text/byte_level.h"
#include "text/pipeline.h"

static bool is_number(int32_t code, int32_t wanted)
{
    (void)wanted;
    /* The reference's digits are those of Unicode 17. */
    return tt_unicode_is_number(code) || (code >= 0x11DE0 && code <= 0x11DE9) ||
           (code >= 0x16FF4 && code <= 0x16FF6);
}

static bool is_space(int32_t code, int32_t wanted)
{
    (void)wanted;
    return tt_unicode_is_space(code);
}

static bool is_punctuation(int32_t code, int32_t wanted)
{
    (void)wanted;
    if (code < 0x80) {
        return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
               (code >= '{' && code <= '~');
    }
    return tt_unicode_is_punctuation(code);
}

static bool is_code(int32_t code, int32_t wanted)
{
    return code == wanted;
}

/* Reading. */
static tt_status add_step(const struct tt_json *json, struct pretokenizers *out, struct pretokenizer step)
{
    if (out->count == PIPELINE_STEPS_MAX) {
        tt_pattern_destroy(step.pattern);
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: too many pre-tokenizers", json->origin);
    }
    out->steps[out->count++] = step;
    return TT_OK;
}

static tt_status add_characters(const struct tt_json *json, struct pretokenizers *out,
                                enum split_behavior behavior, bool (*is_delimiter)(int32_t, int32_t),
                                int32_t code)
{
    return add_step(json, out,
                    (struct pretokenizer){.kind = PRETOKENIZE_CHARACTERS,
                                          .behavior = behavior,
                                          .is_delimiter = is_delimiter,
                                          .code = code});
}

static tt_status read_behavior(const struct tt_json *json, const char *name, enum split_behavior *out)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                        "Contiguous"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (enum split_behavior)i;
        return TT_OK;
    }
    return tt_fail(TT_ERR_DATA, "%s: unknown split behavior '%s'", json->origin, name);
}

static tt_status read_byte_level(const struct tt_json *json, const struct tt_json_value *value,
                                 struct pretokenizers *out)
{
    bool prefix = true, regex = true;
    TT_TRY(tt_json_bool(json, value, "add_prefix_space", &prefix));
    TT_TRY(tt_json_opt_bool(json, value, "use_regex", &regex));
    if (prefix) TT_TRY(add_step(json, out, (struct pretokenizer){.kind = PRETOKENIZE_PREFIX_SPACE}));
    if (regex) {
        TT_TRY(add_step(json, out,
                        (struct pretokenizer){
                            .kind = PRETOKENIZE_SCAN, .behavior = SPLIT_ISOLATED, .scan = TT_SCAN_GPT2}));
    }
    return add_step(json, out, (struct pretokenizer){.kind = PRETOKENIZE_BYTE_LEVEL});
}

static tt_status read_split(const struct tt_json *json, const struct tt_json_value *value,
                            struct pretokenizers *out)
{
    struct pretokenizer step = {.kind = PRETOKENIZE_PATTERN};
    const char *behavior = NULL;
    TT_TRY(tt_json_string(json, value, "behavior", &behavior));
    TT_TRY(read_behavior(json, behavior, &step.behavior));
    TT_TRY(tt_json_bool(json, value, "invert", &step.invert));
    TT_TRY(pipeline_pattern(json, value, &step.pattern, &step.scan));
    if (step.scan != TT_SCAN_NONE) step.kind = PRETOKENIZE_SCAN;
    return add_step(json, out, step);
}

static tt_status read_metaspace(const struct tt_json *json, const struct tt_json_value *value,
                                struct pretokenizers *out)
{
    struct pretokenizer step = {.kind = PRETOKENIZE_METASPACE};
    const char *scheme = "always";
    bool prefix = true, split = true;
    TT_TRY(pipeline_character(json, value, "replacement", &step.code));
    TT_TRY(tt_json_opt_string(json, value, "prepend_scheme", &scheme));
    TT_TRY(tt_json_opt_bool(json, value, "add_prefix_space", &prefix));
    TT_TRY(tt_json_opt_bool(json, value, "split", &split));
    if (strcmp(scheme, "always") == 0)
        step.prepend = PREPEND_ALWAYS;
    else if (strcmp(scheme, "first") == 0)
        step.prepend = PREPEND_FIRST;
    else if (strcmp(scheme, "never") == 0)
        step.prepend = PREPEND_NEVER;
    else
        return tt_fail(TT_ERR_DATA, "%s: unknown prepend_scheme '%s'", json->origin, scheme);
    if (!prefix && step.prepend != PREPEND_NEVER) {
        return tt_fail(TT_ERR_DATA, "%s: add_prefix_space does not match prepend_scheme '%s'", json->origin,
                       scheme);
    }
    TT_TRY(add_step(json, out, step));
    return split ? add_characters(json, out, SPLIT_MERGED_WITH_NEXT, is_code, step.code) : TT_OK;
}

static tt_status read_value(const struct tt_json *json, const struct tt_json_value *value, int depth,
                            struct pretokenizers *out);

static tt_status read_sequence(const struct tt_json *json, const struct tt_json_value *value, int depth,
                               struct pretokenizers *out)
{
    const struct tt_json_value *items = NULL;
    if (depth == PIPELINE_DEPTH_MAX)
        return tt_fail(TT_ERR_UNSUPPORTED, "%s: sequences too deep", json->origin);
    TT_TRY(tt_json_array(json, value, "pretokenizers", &items));
    for (size_t i = 0; i < tt_json_count(items); i++) {
        TT_TRY(read_value(json, tt_json_at(items, i), depth + 1, out));
    }
    return TT_OK;
}

static tt_status read_value(const struct tt_json *json, const struct tt_json_value *value, int depth,
                            struct pretokenizers *out)
{
    const char *type = NULL;
    TT_TRY(pipeline_type(json, value, &type));
    if (strcmp(type, "Sequence") == 0) return read_sequence(json, value, depth, out);
    if (strcmp(type, "ByteLevel") == 0) return read_byte_level(json, value, out);
    if (strcmp(type, "Split") == 0) return read_split(json, value, out);
    if (strcmp(type, "Metaspace") == 0) return read_metaspace(json, value, out);
    if (strcmp(type, "Digits") == 0) {
        bool individual = false;
        TT_TRY(tt_json_bool(json, value, "individual_digits", &individual));
        return add_characters(json, out, individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, is_number, 0);
    }
    if (strcmp(type, "Punctuation") == 0) {
        const char *name = "Isolated";
        enum split_behavior behavior = SPLIT_ISOLATED;
        TT_TRY(tt_json_opt_string(json, value, "behavior", &name));
        TT_TRY(read_behavior(json, name, &behavior));
        return add_characters(json, out, behavior, is_punctuation, 0);
    }
    if (strcmp(type, "Whitespace") == 0) {
        return add_step(json, out, (struct pretokenizer){.kind = PRETOKENIZE_WORDS});
    }
    if (strcmp(type, "WhitespaceSplit") == 0) return add_characters(json, out, SPLIT_REMOVED, is_space, 0);
    if (strcmp(type, "BertPreTokenizer") == 0) {
        TT_TRY(add_characters(json, out, SPLIT_REMOVED, is_space, 0));
        return add_characters(json, out, SPLIT_ISOLATED, is_punctuation, 0);
    }
    if (strcmp(type, "CharDelimiterSplit") == 0) {
        int32_t code;
        TT_TRY(pipeline_character(json, value, "delimiter", &code));
        return add_characters(json, out, SPLIT_REMOVED, is_code, code);
    }
    return tt_fail(TT_ERR_UNSUPPORTED, "%s: pre-tokenizer '%s' is not supported", json->origin, type);
}

tt_status pretokenizers_read(const struct tt_json *json, const struct tt_json_value *value,
                             struct pretokenizers *out)
{
    out->limit = TEXT_BYTES_MAX;
    if (value == NULL || tt_json_is_null(value)) return TT_OK;
    TT_TRY(read_value(json, value, 0, out));
    if (out->count > 0 && out->steps[out->count - 1].kind == PRETOKENIZE_BYTE_LEVEL) {
        out->ends_in_byte_level = true;
        out->count--;
    }
    return TT_OK;
}

void pretokenizers_deinit(struct pretokenizers *pretokenizers)
{
    for (size_t i = 0; i < pretokenizers->count; i++) tt_pattern_destroy(pretokenizers->steps[i].pattern);
    pretokenizers->count = 0;
}

/* Running. A piece at step `step` on its way to the words. */
static tt_status run_step(const struct pretokenizers_run *run, size_t step, const char *text, size_t bytes,
                          bool at_start);

/* A split in progress: takes matches and the text between them in order, gives pieces to the next step. */
struct splitting {
    const struct pretokenizers_run *run;
    size_t next_step;
    const char *text;
    bool at_start;
    enum split_behavior behavior;
    bool invert;
    bool has_pending, previous_match;
    size_t pending_start, pending_end;
};

static tt_status emit(const struct splitting *s, size_t start, size_t end)
{
    if (start == end) return TT_OK;
    return run_step(s->run, s->next_step, s->text + start, end - start, s->at_start && start == 0);
}

static tt_status emit_pending(struct splitting *s)
{
    if (!s->has_pending) return TT_OK;
    s->has_pending = false;
    return emit(s, s->pending_start, s->pending_end);
}

static tt_status feed(struct splitting *s, size_t start, size_t end, bool is_match)
{
    bool match = is_match != s->invert, previous = s->previous_match, join = false;
    s->previous_match = match;
    switch (s->behavior) {
    case SPLIT_REMOVED:
        return match ? TT_OK : emit(s, start, end);
    case SPLIT_ISOLATED:
        return emit(s, start, end);
    case SPLIT_CONTIGUOUS:
        join = match == previous;
        break;
    case SPLIT_MERGED_WITH_PREVIOUS:
        join = match && !previous;
        break;
    case SPLIT_MERGED_WITH_NEXT:
        join = !match && previous;
        break;
    }
    if (join && s->has_pending) {
        s->pending_end = end;
        return TT_OK;
    }
    TT_TRY(emit_pending(s));
    s->has_pending = true;
    s->pending_start = start;
    s->pending_end = end;
    return TT_OK;
}

static tt_status split_by_scan(struct splitting *s, enum tt_scan scan, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t end = tt_scan_next(scan, text, bytes, at);
        TT_TRY(feed(s, at, end, true));
        at = end;
    }
    return TT_OK;
}

static tt_status split_by_pattern(struct splitting *s, const struct tt_pattern *pattern, const char *text,
                                  size_t bytes)
{
    struct tt_pattern_iterator it = tt_pattern_matches(text, bytes);
    size_t previous = 0, start, end;
    bool found;
    for (;;) {
        TT_TRY(tt_pattern_next(pattern, s->run->runner, &it, &start, &end, &found));
        if (!found) break;
        if (previous != start) TT_TRY(feed(s, previous, start, false));
        TT_TRY(feed(s, start, end, true));
        previous = end;
    }
    return previous != bytes ? feed(s, previous, bytes, false) : TT_OK;
}

static tt_status split_by_characters(struct splitting *s, const struct pretokenizer *step, const char *text,
                                     size_t bytes)
{
    size_t previous = 0, length;
    for (size_t at = 0; at < bytes; at += length) {
        if (!step->is_delimiter(tt_utf8_decode(text + at, &length), step->code)) continue;
        if (previous < at) TT_TRY(feed(s, previous, at, false));
        TT_TRY(feed(s, at, at + length, true));
        previous = at + length;
    }
    return previous < bytes ? feed(s, previous, bytes, false) : TT_OK;
}

/* \w+|[^\w\s]+ */
static tt_status split_words(struct splitting *s, const char *text, size_t bytes)
{
    enum { NONE, WORD, OTHER } kind = NONE, here;
    size_t start = 0, length;
    for (size_t at = 0; at < bytes; at += length) {
        int32_t code = tt_utf8_decode(text + at, &length);
        here = tt_unicode_is_word(code) ? WORD : tt_unicode_is_space(code) ? NONE : OTHER;
        if (here == kind) continue;
        if (kind != NONE) TT_TRY(emit(s, start, at));
        kind = here;
        start = at;
    }
    return kind != NONE ? emit(s, start, bytes) : TT_OK;
}

/* Whether Metaspace puts its replacement before the piece. */
static bool is_prefixed(const struct pretokenizer *step, const char *text, size_t bytes, bool at_start)
{
    char encoded[4];
    size_t width = tt_utf8_encode(step->code, encoded);
    bool has_one = text[0] == ' ' || (bytes >= width && memcmp(text, encoded, width) == 0);
    return !has_one && (step->prepend == PREPEND_ALWAYS || (step->prepend == PREPEND_FIRST && at_start));
}

static tt_status write_metaspaces(const struct pretokenizer *step, struct text_track *track, const char *text,
                                  size_t bytes, bool prefix, size_t limit, struct tt_str *out)
{
    char encoded[4];
    size_t width = tt_utf8_encode(step->code, encoded);
    if (prefix) TT_TRY(tt_text_append(out, limit, encoded, width));
    if (track != NULL) TT_TRY(text_track_record(track, out->bytes, text, text));
    if (step->leaves_blanks) {
        TT_TRY(tt_text_append(out, limit, text, bytes));
        return track == NULL ? TT_OK : text_track_copy(track, out->bytes, text);
    }
    for (size_t at = 0; at < bytes;) {
        const char *space = memchr(text + at, ' ', bytes - at);
        size_t end = space == NULL ? bytes : (size_t)(space - text);
        TT_TRY(tt_text_append(out, limit, text + at, end - at));
        if (track != NULL) TT_TRY(text_track_copy(track, out->bytes, text + at));
        if (space != NULL) TT_TRY(tt_text_append(out, limit, encoded, width));
        if (track != NULL && space != NULL) TT_TRY(text_track_record(track, out->bytes, space, space + 1));
        at = end + 1;
    }
    return TT_OK;
}

/* The steps that write a new text for the piece. */
static tt_status rewrite(const struct pretokenizer *step, struct text_track *track, const char *text,
                         size_t bytes, bool prefix, size_t limit, struct tt_str *out)
{
    tt_str_clear(out);
    if (step->kind == PRETOKENIZE_METASPACE)
        return write_metaspaces(step, track, text, bytes, prefix, limit, out);
    if (step->kind == PRETOKENIZE_PREFIX_SPACE) {
        TT_TRY(tt_text_append(out, limit, " ", 1));
        if (track != NULL) TT_TRY(text_track_record(track, out->bytes, text, text));
        TT_TRY(tt_text_append(out, limit, text, bytes));
        return track == NULL ? TT_OK : text_track_copy(track, out->bytes, text);
    }
    for (size_t i = 0; i < bytes; i++) {
        TT_TRY(tt_text_append_code(out, limit, byte_level_code((unsigned char)text[i])));
        if (track != NULL) TT_TRY(text_track_record(track, out->bytes, text + i, text + i + 1));
    }
    return TT_OK;
}

/* A step that writes a new text, and all behind it. The text before it is the current one of the track afterwards. */
static tt_status run_rewriting(const struct pretokenizers_run *run, size_t step, const char *text,
                               size_t bytes, bool at_start)
{
    const struct pretokenizer *p = &run->pretokenizers->steps[step];
    bool prefix = p->kind == PRETOKENIZE_METASPACE && is_prefixed(p, text, bytes, at_start);
    if (p->leaves_blanks ? !prefix : p->kind == PRETOKENIZE_PREFIX_SPACE && text[0] == ' ')
        return run_step(run, step + 1, text, bytes, at_start);
    struct tt_str *out = &run->buffers[step];
    struct text_track *track = run->track, before = {0};
    if (track != NULL) {
        before = *track;
        text_track_begin(track, &run->maps[step]);
    }
    TT_TRY(rewrite(p, track, text, bytes, prefix, run->pretokenizers->limit, out));
    if (track != NULL) text_track_end(track, out->data, out->bytes);
    TT_TRY(run_step(run, step + 1, out->data, out->bytes, at_start));
    if (track != NULL) *track = before;
    return TT_OK;
}

static tt_status run_step(const struct pretokenizers_run *run, size_t step, const char *text, size_t bytes,
                          bool at_start)
{
    if (step == run->pretokenizers->count) return run->word(run->context, text, bytes);
    const struct pretokenizer *p = &run->pretokenizers->steps[step];
    struct splitting s = {run, step + 1, text, at_start, p->behavior, p->invert, false, false, 0, 0};
    switch (p->kind) {
    case PRETOKENIZE_SCAN:
        TT_TRY(split_by_scan(&s, p->scan, text, bytes));
        break;
    case PRETOKENIZE_PATTERN:
        TT_TRY(split_by_pattern(&s, p->pattern, text, bytes));
        break;
    case PRETOKENIZE_CHARACTERS:
        TT_TRY(split_by_characters(&s, p, text, bytes));
        break;
    case PRETOKENIZE_WORDS:
        return split_words(&s, text, bytes);
    case PRETOKENIZE_PREFIX_SPACE:
    case PRETOKENIZE_METASPACE:
    case PRETOKENIZE_BYTE_LEVEL:
        return run_rewriting(run, step, text, bytes, at_start);
    }
    return emit_pending(&s);
}

tt_status pretokenizers_apply(const struct pretokenizers_run *run, const char *text, size_t bytes,
                              bool at_start)
{
    return bytes == 0 ? TT_OK : run_step(run, 0, text, bytes, at_start);
}
