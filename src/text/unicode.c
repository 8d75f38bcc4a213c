#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/track.h"
#include "text/unicode_fold.h"
#include "text/unicode_new.h"
#include "text/unicode_old.h"

enum { NEW_RANGE_COUNT = sizeof unicode_new_ranges / sizeof unicode_new_ranges[0] };

/* Length of the well-formed sequence at `b` (1 to 4), or minus the length of the maximal ill-formed part. The
 * ranges of second bytes are those of table 3-7 of the Unicode standard. */
static int sequence_length(const unsigned char *b, size_t left)
{
    unsigned char lead = b[0];
    if (lead < 0x80) return 1;
    if (lead < 0xC2 || lead > 0xF4) return -1;
    int need = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (int i = 1; i < need; i++) {
        if ((size_t)i >= left || b[i] < low || b[i] > high) return -i;
        low = 0x80;
        high = 0xBF;
    }
    return need;
}

tt_status tt_utf8_append_lossy(struct tt_str *out, const char *text, size_t bytes)
{
    while (bytes > 0) {
        size_t valid = tt_utf8_invalid_at(text, bytes);
        TT_TRY(tt_str_append(out, text, valid));
        text += valid;
        bytes -= valid;
        if (bytes == 0) break;
        size_t bad = (size_t)-sequence_length((const unsigned char *)text, bytes);
        TT_TRY(tt_str_append(out, "\xEF\xBF\xBD", 3));
        text += bad;
        bytes -= bad;
    }
    return TT_OK;
}

int32_t tt_utf8_decode_before(const char *text, size_t end, size_t *length)
{
    size_t start = end - 1;
    while (start > 0 && ((unsigned char)text[start] & 0xC0) == 0x80) start--;
    return tt_utf8_decode(text + start, length);
}

size_t tt_utf8_encode(int32_t code, char out[4])
{
    return (size_t)utf8proc_encode_char(code, (utf8proc_uint8_t *)out);
}

static int compare_range(const void *key, const void *element)
{
    int32_t code = *(const int32_t *)key;
    const struct unicode_range *range = element;
    return code < range->first ? -1 : code > range->last ? 1 : 0;
}

utf8proc_category_t tt_unicode_category(int32_t code)
{
    utf8proc_category_t category = utf8proc_category(code);
    if (category != UTF8PROC_CATEGORY_CN) return category;
    const struct unicode_range *range =
        bsearch(&code, unicode_new_ranges, NEW_RANGE_COUNT, sizeof unicode_new_ranges[0], compare_range);
    return range == NULL ? UTF8PROC_CATEGORY_CN : range->category;
}

static int compare_code(const void *key, const void *element)
{
    int32_t code = *(const int32_t *)key;
    const struct code_range *range = element;
    return code < range->first ? -1 : code > range->last ? 1 : 0;
}

#define IS_IN(table, code)                                                                                   \
    (bsearch(&(code), table, sizeof(table) / sizeof(table)[0], sizeof(table)[0], compare_code) != NULL)

tt_status tt_unicode_new_ranges(uint32_t mask, tt_unicode_range_visit *visit, void *context)
{
    for (int i = 0; i < NEW_RANGE_COUNT; i++) {
        const struct unicode_range *range = &unicode_new_ranges[i];
        if (mask & UINT32_C(1) << range->category) TT_TRY(visit(context, range->first, range->last));
    }
    return TT_OK;
}

bool tt_unicode_is_number(int32_t code)
{
    utf8proc_category_t category = tt_unicode_category(code);
    return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool tt_unicode_is_mark(int32_t code)
{
    utf8proc_category_t category = tt_unicode_category(code);
    if (category < UTF8PROC_CATEGORY_MN || category > UTF8PROC_CATEGORY_ME) {
        return code == 0x1CF2 || code == 0x1CF3; /* letters since Unicode 12 */
    }
    return !IS_IN(new_marks, code);
}

bool tt_unicode_is_nonspacing(int32_t code)
{
    if (tt_unicode_category(code) != UTF8PROC_CATEGORY_MN) return code == 0x1734; /* Mc since Unicode 14 */
    return !IS_IN(new_nonspacing, code);
}

bool tt_unicode_is_other(int32_t code)
{
    utf8proc_category_t category = tt_unicode_category(code);
    return category >= UTF8PROC_CATEGORY_CC && !IS_IN(new_formats, code);
}

bool tt_unicode_is_punctuation(int32_t code)
{
    utf8proc_category_t category = tt_unicode_category(code);
    if (category < UTF8PROC_CATEGORY_PC || category > UTF8PROC_CATEGORY_PO) {
        return code == 0x166D || code == 0x111C9; /* a symbol and a mark since Unicode 12 and 11 */
    }
    return !IS_IN(new_punctuation, code);
}

bool tt_unicode_is_space(int32_t code)
{
    if (code < 0x85) return code == ' ' || (code >= 9 && code <= 13);
    if (code == 0x85) return true;
    utf8proc_category_t category = tt_unicode_category(code);
    return category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP;
}

bool tt_unicode_is_word(int32_t code)
{
    utf8proc_category_t category = tt_unicode_category(code);
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) return true;
    if (category == UTF8PROC_CATEGORY_PC || code == 0x200C || code == 0x200D) return true;
    /* Circled and squared letters are symbols with Other_Alphabetic (PropList.txt). */
    return (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
           (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
}

bool tt_unicode_folds_simply(int32_t first, int32_t last)
{
    for (size_t i = 0; i < sizeof unusual_folds / sizeof unusual_folds[0]; i++) {
        if (first <= unusual_folds[i].last && last >= unusual_folds[i].first) return false;
    }
    return true;
}

/* The folded code point when it is one. */
static int32_t fold(int32_t code)
{
    int32_t out[8], count = 0;
    count = (int32_t)utf8proc_decompose_char(code, out, 8, UTF8PROC_CASEFOLD, NULL);
    return count == 1 ? out[0] : code;
}

bool tt_unicode_folds_together(int32_t first, int32_t second)
{
    first = fold(first);
    second = fold(second);
    for (size_t i = 0; i < sizeof folded_pairs / sizeof folded_pairs[0]; i++) {
        const struct folded_pair *pair = &folded_pairs[i];
        if (second == pair->second && first >= pair->first_from && first <= pair->first_to) return true;
    }
    return false;
}

int tt_unicode_lower(int32_t code, int32_t out[2])
{
    if (code == 0x130) {
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    /* Upper-case letters of Unicode 16 and 17 (UnicodeData.txt, field 13). */
    if (code >= 0x10D50 && code <= 0x10D65)
        out[0] = code + 0x20;
    else if (code >= 0x16EA0 && code <= 0x16EB8)
        out[0] = code + 0x1B;
    else if (code == 0x1C89 || code == 0xA7CC || code == 0xA7CE || code == 0xA7D2 || code == 0xA7D4 ||
             code == 0xA7DA)
        out[0] = code + 1;
    else if (code == 0xA7CB)
        out[0] = 0x264;
    else if (code == 0xA7DC)
        out[0] = 0x19B;
    else
        out[0] = utf8proc_tolower(code);
    return 1;
}

tt_status tt_text_append(struct tt_str *out, size_t limit, const char *data, size_t bytes)
{
    if (bytes > limit || out->bytes > limit - bytes)
        return tt_fail(TT_ERR_DATA, "the tokenizer makes more than %zu bytes of the text", limit);
    return tt_str_append(out, data, bytes);
}

tt_status tt_text_append_code(struct tt_str *out, size_t limit, int32_t code)
{
    char encoded[4];
    return tt_text_append(out, limit, encoded, tt_utf8_encode(code, encoded));
}

/* A decomposed run of code points. */
struct run {
    int32_t *codes;
    size_t count, capacity;
    uint64_t *order; /* scratch of the canonical ordering */
    size_t order_capacity;
    /* The bytes of `text` that each code point comes from, where there is a track. */
    struct text_track *track;
    const char *text;
    struct tt_ranges sources;
    int32_t *composed;
    size_t composed_capacity;
};

enum { EXPANSION_MAX = 18 }; /* the longest compatibility decomposition, U+FDFA */

static tt_status run_push(struct run *run, int32_t code, utf8proc_option_t options)
{
    while (run->capacity - run->count < EXPANSION_MAX) {
        size_t wanted = run->capacity < 64 ? 64 : run->capacity * 2;
        int32_t *grown = tt_realloc(run->codes, wanted, sizeof *grown);
        if (grown == NULL) return TT_ERR_MEMORY;
        run->codes = grown;
        run->capacity = wanted;
    }
    if (IS_IN(new_decompositions, code)) {
        run->codes[run->count++] = code;
        return TT_OK;
    }
    utf8proc_ssize_t got =
        utf8proc_decompose_char(code, run->codes + run->count, EXPANSION_MAX, options, NULL);
    if (got < 0 || got > EXPANSION_MAX) {
        return tt_fail(TT_ERR_INTERNAL, "cannot decompose U+%04X: %s", (unsigned)code, utf8proc_errmsg(got));
    }
    run->count += (size_t)got;
    return TT_OK;
}

static int compare_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The reference's normalization has the combining classes of Unicode 9. */
static uint64_t combining_class(int32_t code)
{
    uint64_t class = (uint64_t)utf8proc_get_property(code)->combining_class;
    return class != 0 && IS_IN(new_marks, code) ? 0 : class;
}

/* Canonical ordering (Unicode, D109): combining marks between two starters are sorted by combining class,
 * equal classes keep their order. Short sequences by insertion, long ones by qsort with the position in the
 * key. */
static tt_status order_marks(struct run *run, size_t first, size_t last)
{
    size_t count = last - first;
    if (count < 2) return TT_OK;
    int32_t *codes = run->codes + first;
    size_t ordered = 1;
    while (ordered < count && combining_class(codes[ordered - 1]) <= combining_class(codes[ordered]))
        ordered++;
    if (ordered == count) return TT_OK;
    if (count > run->order_capacity) {
        uint64_t *grown = tt_realloc(run->order, count * 2, sizeof *grown);
        if (grown == NULL) return TT_ERR_MEMORY;
        run->order = grown;
        run->order_capacity = count * 2;
    }
    for (size_t i = 0; i < count; i++)
        run->order[i] = combining_class(codes[i]) << 56 | (uint64_t)i << 21 | (uint64_t)codes[i];
    qsort(run->order, count, sizeof run->order[0], compare_order);
    for (size_t i = 0; i < count; i++) codes[i] = (int32_t)(run->order[i] & 0x1FFFFF);
    if (run->track == NULL) return TT_OK;
    /* The marks of one starter move together: each comes from all of them, so that ranges never go back. */
    struct tt_byte_range *sources = run->sources.data + first, all = sources[0];
    all.end = sources[count - 1].end;
    for (size_t i = 0; i < count; i++) sources[i] = all;
    return TT_OK;
}

/* The number of code points of the decomposed run that one of the composed text was made of. */
static size_t composed_of(int32_t code)
{
    int32_t parts[EXPANSION_MAX];
    if (IS_IN(new_decompositions, code)) return 1;
    utf8proc_ssize_t count = utf8proc_decompose_char(code, parts, EXPANSION_MAX, UTF8PROC_DECOMPOSE, NULL);
    return count < 1 || count > EXPANSION_MAX ? 1 : (size_t)count;
}

/* Writes and notes the composed text. A mark may compose with a starter that is not next to it, so a starter and the
 * marks behind it are one segment: each of its code points stands for all of it. */
static tt_status run_record(struct run *run, size_t count, size_t limit, struct tt_str *out)
{
    size_t used = 0;
    for (size_t i = 0; i < count;) {
        size_t first = used;
        do {
            TT_TRY(tt_text_append_code(out, limit, run->composed[i]));
            used += composed_of(run->composed[i++]);
        } while (i < count && combining_class(run->composed[i]) != 0);
        if (i == count || used > run->count) used = run->count;
        if (first >= used) first = used - 1;
        TT_TRY(text_track_record(run->track, out->bytes, run->text + run->sources.data[first].begin,
                                 run->text + run->sources.data[used - 1].end));
    }
    return TT_OK;
}

/* The run is composed in a copy, because its sources belong to the decomposed one. */
static tt_status run_compose_tracked(struct run *run, bool compose, size_t limit, struct tt_str *out)
{
    if (run->count == 0) return TT_OK;
    if (run->count > run->composed_capacity) {
        int32_t *grown = tt_realloc(run->composed, run->count * 2, sizeof *grown);
        if (grown == NULL) return TT_ERR_MEMORY;
        run->composed = grown;
        run->composed_capacity = run->count * 2;
    }
    size_t count = run->count;
    memcpy(run->composed, run->codes, count * sizeof run->codes[0]);
    if (compose) {
        count = (size_t)utf8proc_normalize_utf32(run->composed, (utf8proc_ssize_t)count,
                                                 UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        return run_record(run, count, limit, out);
    }
    for (size_t i = 0; i < count; i++) {
        TT_TRY(tt_text_append_code(out, limit, run->codes[i]));
        TT_TRY(text_track_record(run->track, out->bytes, run->text + run->sources.data[i].begin,
                                 run->text + run->sources.data[i].end));
    }
    return TT_OK;
}

static tt_status run_flush(struct run *run, enum tt_normal_form form, size_t limit, struct tt_str *out)
{
    size_t first = 0;
    for (size_t i = 0; i < run->count; i++) {
        if (combining_class(run->codes[i]) != 0) continue;
        TT_TRY(order_marks(run, first, i));
        first = i + 1;
    }
    TT_TRY(order_marks(run, first, run->count));
    size_t count = run->count;
    bool compose = form == TT_NFC || form == TT_NFKC;
    if (run->track != NULL) {
        TT_TRY(run_compose_tracked(run, compose, limit, out));
        run->count = run->sources.count = 0;
        return TT_OK;
    }
    if (compose) {
        count = (size_t)utf8proc_normalize_utf32(run->codes, (utf8proc_ssize_t)count,
                                                 UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    }
    for (size_t i = 0; i < count; i++) TT_TRY(tt_text_append_code(out, limit, run->codes[i]));
    run->count = 0;
    return TT_OK;
}

/* Whether a code point is a starter, its own normal form, and never the second of a composing pair. All code
 * points below `limit` are; above it the library's tables decide, except for Hangul, which composes by
 * arithmetic. */
static bool is_inert(int32_t code, int32_t limit)
{
    if (code < limit) return true;
    if ((code >= 0x1100 && code <= 0x11FF) || (code >= 0xAC00 && code <= 0xD7FF)) return false;
    const utf8proc_property_t *property = utf8proc_get_property(code);
    return property->combining_class == 0 && property->decomp_seqindex == UINT16_MAX &&
           property->comb_index == UINT16_MAX;
}

/* Whether a decomposed code point and the text before it cannot change each other: it is no mark, and never the
 * second of a composing pair. Hangul's leading consonants are only ever the first. */
static bool begins_run(enum tt_normal_form form, int32_t code)
{
    if (combining_class(code) != 0) return false;
    return form == TT_NFD || form == TT_NFKD || (code >= 0x1100 && code <= 0x1112) || is_inert(code, 0);
}

/* Adds one more code point to a run. Text without inert code points is one run; the finished part of a long run
 * is written. */
static tt_status run_add(struct run *run, enum tt_normal_form form, int32_t code, struct tt_byte_range source,
                         size_t limit, struct tt_str *out)
{
    enum { LONG_RUN = 4096 };
    utf8proc_option_t options =
        form == TT_NFC || form == TT_NFD ? UTF8PROC_DECOMPOSE : UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
    size_t before = run->count;
    TT_TRY(run_push(run, code, options));
    while (run->track != NULL && run->sources.count < run->count)
        TT_TRY(tt_ranges_append(&run->sources, source));
    if (before < LONG_RUN || before == run->count || !begins_run(form, run->codes[before])) return TT_OK;
    size_t behind = run->count - before;
    run->count = before;
    TT_TRY(run_flush(run, form, limit, out));
    memmove(run->codes, run->codes + before, behind * sizeof run->codes[0]);
    run->count = behind;
    while (run->track != NULL && run->sources.count < run->count)
        TT_TRY(tt_ranges_append(&run->sources, source));
    return TT_OK;
}

tt_status tt_unicode_normalize(enum tt_normal_form form, const char *text, size_t bytes, size_t limit,
                               struct tt_str *out)
{
    return tt_unicode_normalize_tracked(form, text, bytes, limit, NULL, out);
}

tt_status tt_unicode_normalize_tracked(enum tt_normal_form form, const char *text, size_t bytes, size_t limit,
                                       struct text_track *track, struct tt_str *out)
{
    /* An inert code point can only be the first of a composing pair. So text is copied up to the last one
     * before a code point that is not inert, and the run from there to the next inert one is normalized. */
    int32_t inert = form == TT_NFC ? 0x300 : form == TT_NFD ? 0xC0 : 0xA0; /* all below are */
    struct run run = {.track = track, .text = text};
    tt_status status = TT_OK;
    size_t at = 0, length;
    while (at < bytes) {
        size_t copied = at, before = at;
        while (at < bytes) {
            int32_t code = tt_utf8_decode(text + at, &length);
            if (!is_inert(code, inert)) break;
            before = at;
            at += length;
        }
        if (at == bytes) before = bytes;
        TT_GO(tt_text_append(out, limit, text + copied, before - copied));
        if (track != NULL) TT_GO(text_track_copy(track, out->bytes, text + copied));
        for (at = before; at < bytes;) {
            int32_t code = tt_utf8_decode(text + at, &length);
            if (at > before && is_inert(code, inert)) break;
            struct tt_byte_range source = {(uint32_t)at, (uint32_t)(at + length)};
            TT_GO(run_add(&run, form, code, source, limit, out));
            at += length;
        }
        TT_GO(run_flush(&run, form, limit, out));
    }
out:
    tt_free(run.codes);
    tt_free(run.order);
    tt_free(run.composed);
    tt_ranges_deinit(&run.sources);
    return status;
}
