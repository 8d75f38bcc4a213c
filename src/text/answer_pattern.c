#include "text/answer_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/alloc.h"

enum { STEPS_MAX = 10000000 };

struct tt_answer_pattern {
    pcre2_code *code;
    uint32_t groups;
};

tt_status tt_answer_pattern_compile(struct tt_span pattern, struct tt_answer_pattern **out)
{
    int error = 0;
    PCRE2_SIZE offset = 0;
    struct tt_answer_pattern *made = tt_calloc(1, sizeof *made);
    if (made == NULL) return TT_ERR_MEMORY;
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
    made->code = pcre2_compile((PCRE2_SPTR)pattern.data, pattern.bytes, options, &error, &offset, NULL);
    if (made->code == NULL) {
        char message[160] = "";
        pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof message);
        tt_answer_pattern_destroy(made);
        return tt_fail(TT_ERR_DATA, "the regular expression is wrong at byte %zu: %s", (size_t)offset,
                       message);
    }
    pcre2_pattern_info(made->code, PCRE2_INFO_CAPTURECOUNT, &made->groups);
    *out = made;
    return TT_OK;
}

void tt_answer_pattern_destroy(struct tt_answer_pattern *pattern)
{
    if (pattern == NULL) return;
    pcre2_code_free(pattern->code);
    tt_free(pattern);
}

/* The run over one text. */
struct search {
    const struct tt_answer_pattern *pattern;
    struct tt_span text;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    size_t at;
    bool after_empty; /* an empty match was at `at`: the next one there is not empty */
};

static size_t next_character(struct tt_span text, size_t at)
{
    do at++;
    while (at < text.bytes && ((unsigned char)text.data[at] & 0xC0) == 0x80);
    return at;
}

/* Goes on as re.findall: an empty match is followed by one that is not empty at the same place, or by the next
 * place. */
static tt_status next(struct search *s, bool *found)
{
    *found = false;
    while (s->at <= s->text.bytes) {
        uint32_t options = s->after_empty ? PCRE2_NOTEMPTY_ATSTART | PCRE2_ANCHORED : 0;
        int count = pcre2_match(s->pattern->code, (PCRE2_SPTR)s->text.data, s->text.bytes, s->at, options,
                                s->match, s->limits);
        if (count < 0 && count != PCRE2_ERROR_NOMATCH)
            return tt_fail(TT_ERR_DATA,
                           "a regular expression takes too many steps, or the text is not UTF-8");
        if (count > 0) {
            const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(s->match);
            s->after_empty = ends[1] == ends[0];
            s->at = ends[1];
            *found = true;
            return TT_OK;
        }
        if (!s->after_empty) return TT_OK;
        s->after_empty = false;
        s->at = next_character(s->text, s->at);
    }
    return TT_OK;
}

/* The first group that is not empty; without groups the whole match. */
static struct tt_span take_group(const struct search *s)
{
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(s->match);
    uint32_t first = s->pattern->groups > 0 ? 1 : 0;
    for (uint32_t g = first; g <= s->pattern->groups; g++) {
        if (ends[2 * g] == PCRE2_UNSET || ends[2 * g + 1] <= ends[2 * g]) continue;
        return (struct tt_span){s->text.data + ends[2 * g], ends[2 * g + 1] - ends[2 * g]};
    }
    return (struct tt_span){s->text.data, 0};
}

tt_status tt_answer_pattern_find(const struct tt_answer_pattern *pattern, struct tt_span text, int64_t which,
                                 struct tt_span *found, bool *any)
{
    tt_status status = TT_OK;
    struct search s = {.pattern = pattern,
                       .text = {text.data != NULL ? text.data : "", text.bytes},
                       .match = pcre2_match_data_create_from_pattern(pattern->code, NULL),
                       .limits = pcre2_match_context_create(NULL)};
    bool more = s.match != NULL && s.limits != NULL;
    int64_t count = 0;
    *any = false;
    if (!more) TT_GO(tt_fail(TT_ERR_MEMORY, "out of memory while searching a text"));
    pcre2_set_match_limit(s.limits, STEPS_MAX);
    for (; more && !(*any && which >= 0); count++) {
        TT_GO(next(&s, &more));
        if (!more || (which >= 0 && count < which)) continue;
        *found = take_group(&s);
        *any = true;
    }
out:
    pcre2_match_data_free(s.match);
    pcre2_match_context_free(s.limits);
    return status;
}
