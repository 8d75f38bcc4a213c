#include "text/pattern.h"

#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/alloc.h"
#include "text/unicode.h"

struct tt_pattern {
    pcre2_code *code;
    char *literal; /* the string to find; NULL: the compiled pattern is used */
    size_t literal_bytes;
};

struct tt_pattern_runner {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    uint64_t budget; /* steps left for all matches of the text */
};

/* A match first gets few steps. If they do not suffice it starts again with more, which are taken from the
 * budget. So ordinary matches need no bookkeeping, and all matches together take O(bytes) steps. */
enum { FIRST_LIMIT = 4096, LIMIT_GROWTH = 16, LIMIT_MAX = 1 << 28 };
static const uint64_t BUDGET_FLOOR = 100000000, BUDGET_PER_BYTE = 256;

static tt_status compile(const char *pattern, size_t bytes, pcre2_code **out)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context == NULL) return tt_fail(TT_ERR_MEMORY, "out of memory while compiling a pattern");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, 250);
    int error = 0;
    PCRE2_SIZE offset = 0;
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    *out = pcre2_compile((PCRE2_SPTR)pattern, bytes, options, &error, &offset, context);
    pcre2_compile_context_free(context);
    if (*out == NULL) {
        char message[160] = "";
        pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof message);
        return tt_fail(TT_ERR_UNSUPPORTED, "cannot compile the pattern: %s", message);
    }
    /* PCRE2's interpreter runs the pattern, more slowly, where there is no JIT support. */
    (void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return TT_OK;
}

tt_status tt_pattern_compile(const char *pattern, size_t bytes, struct tt_pattern **out)
{
    struct tt_str translated = {0};
    struct tt_pattern *regex = tt_calloc(1, sizeof *regex);
    if (regex == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    TT_GO(tt_pattern_translate(pattern, bytes, &translated));
    TT_GO(compile(tt_str_text(&translated), translated.bytes, &regex->code));
    *out = regex;
    regex = NULL;
out:
    if (status != TT_OK) {
        size_t shown = tt_utf8_invalid_at(pattern, bytes < 120 ? bytes : 120); /* cut between characters */
        tt_while("reading the pattern '%.*s'%s", (int)shown, pattern, shown < bytes ? "..." : "");
    }
    tt_str_deinit(&translated);
    tt_pattern_destroy(regex);
    return status;
}

tt_status tt_pattern_compile_literal(const char *text, size_t bytes, struct tt_pattern **out)
{
    struct tt_pattern *regex = tt_calloc(1, sizeof *regex);
    if (regex == NULL) return TT_ERR_MEMORY;
    regex->literal = tt_strndup(text, bytes);
    regex->literal_bytes = bytes;
    if (regex->literal == NULL) {
        tt_free(regex);
        return TT_ERR_MEMORY;
    }
    *out = regex;
    return TT_OK;
}

void tt_pattern_destroy(struct tt_pattern *regex)
{
    if (regex == NULL) return;
    pcre2_code_free(regex->code);
    tt_free(regex->literal);
    tt_free(regex);
}

bool tt_pattern_matches_empty(const struct tt_pattern *regex)
{
    if (regex->literal != NULL) return regex->literal_bytes == 0;
    uint32_t empty = 0;
    return pcre2_pattern_info(regex->code, PCRE2_INFO_MATCHEMPTY, &empty) == 0 && empty != 0;
}

bool tt_pattern_is_literal(const struct tt_pattern *regex, const char *text)
{
    return regex->literal != NULL && regex->literal_bytes == strlen(text) &&
           memcmp(regex->literal, text, regex->literal_bytes) == 0;
}

bool tt_pattern_is_character(const struct tt_pattern *regex)
{
    return regex->literal_bytes > 0 &&
           regex->literal_bytes == tt_utf8_length((unsigned char)regex->literal[0]);
}

tt_status tt_pattern_runner_create(struct tt_pattern_runner **out)
{
    struct tt_pattern_runner *runner = tt_calloc(1, sizeof *runner);
    if (runner == NULL) return TT_ERR_MEMORY;
    runner->match = pcre2_match_data_create(1, NULL);
    runner->context = pcre2_match_context_create(NULL);
    runner->stack = pcre2_jit_stack_create(32 << 10, 4 << 20, NULL);
    if (runner->match == NULL || runner->context == NULL || runner->stack == NULL) {
        tt_pattern_runner_destroy(runner);
        return tt_fail(TT_ERR_MEMORY, "out of memory for matching patterns");
    }
    pcre2_jit_stack_assign(runner->context, NULL, runner->stack);
    pcre2_set_heap_limit(runner->context, 256 << 10); /* in KiB; the interpreter uses it */
    tt_pattern_runner_reset(runner, 0);
    *out = runner;
    return TT_OK;
}

void tt_pattern_runner_destroy(struct tt_pattern_runner *runner)
{
    if (runner == NULL) return;
    pcre2_jit_stack_free(runner->stack);
    pcre2_match_context_free(runner->context);
    pcre2_match_data_free(runner->match);
    tt_free(runner);
}

void tt_pattern_runner_reset(struct tt_pattern_runner *runner, size_t bytes)
{
    runner->budget = BUDGET_FLOOR + BUDGET_PER_BYTE * bytes;
    pcre2_set_match_limit(runner->context, FIRST_LIMIT);
}

struct tt_pattern_iterator tt_pattern_matches(const char *text, size_t bytes)
{
    return (struct tt_pattern_iterator){text, bytes, 0, SIZE_MAX};
}

static tt_status fail_match(int code)
{
    if (code == PCRE2_ERROR_MATCHLIMIT) {
        return tt_fail(TT_ERR_DATA, "a pattern of the tokenizer takes too many steps on this text");
    }
    char message[160] = "";
    pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
    return tt_fail(code == PCRE2_ERROR_NOMEMORY ? TT_ERR_MEMORY : TT_ERR_DATA,
                   "a pattern of the tokenizer cannot be matched against this text: %s", message);
}

/* One search from `at`. PCRE2 counts the steps of match attempts, not the advances between them. These add up to
 * one pass over the text for each search that finds nothing, and only the last search of a text finds nothing. */
static tt_status search(const struct tt_pattern *regex, struct tt_pattern_runner *runner, const char *text,
                        size_t bytes, size_t at, int *code)
{
    uint32_t limit = FIRST_LIMIT;
    uint32_t options = PCRE2_NO_UTF_CHECK;
    for (;;) {
        *code =
            pcre2_match(regex->code, (PCRE2_SPTR)text, bytes, at, options, runner->match, runner->context);
        if (*code == PCRE2_ERROR_JIT_STACKLIMIT && !(options & PCRE2_NO_JIT)) {
            options |= PCRE2_NO_JIT; /* the interpreter keeps its stack on the heap */
            continue;
        }
        if (*code != PCRE2_ERROR_MATCHLIMIT) break;
        if (limit >= LIMIT_MAX || (uint64_t)limit * LIMIT_GROWTH > runner->budget) break;
        limit *= LIMIT_GROWTH;
        runner->budget -= limit;
        pcre2_set_match_limit(runner->context, limit);
    }
    if (limit != FIRST_LIMIT) pcre2_set_match_limit(runner->context, FIRST_LIMIT);
    return *code >= 0 || *code == PCRE2_ERROR_NOMATCH ? TT_OK : fail_match(*code);
}

static bool find_literal(const struct tt_pattern *regex, struct tt_pattern_iterator *it, size_t *start,
                         size_t *end)
{
    const char *from = it->text + it->at;
    const char *hit = memmem(from, it->bytes - it->at, regex->literal, regex->literal_bytes);
    if (hit == NULL) return false;
    *start = (size_t)(hit - it->text);
    *end = *start + regex->literal_bytes;
    return true;
}

tt_status tt_pattern_next(const struct tt_pattern *regex, struct tt_pattern_runner *runner,
                          struct tt_pattern_iterator *it, size_t *start, size_t *end, bool *found)
{
    *found = false;
    while (it->at <= it->bytes) {
        if (regex->literal != NULL) {
            if (!find_literal(regex, it, start, end)) break;
        } else {
            int code = 0;
            TT_TRY(search(regex, runner, it->text, it->bytes, it->at, &code));
            if (code == PCRE2_ERROR_NOMATCH) break;
            const PCRE2_SIZE *pair = pcre2_get_ovector_pointer(runner->match);
            *start = pair[0];
            *end = pair[1];
        }
        /* \K, which could move the start behind the end, is refused. */
        if (*start > *end) return tt_fail(TT_ERR_INTERNAL, "a pattern of the tokenizer matches backwards");
        if (*start == *end && it->last_end == *end) {
            it->at += it->at < it->bytes ? tt_utf8_length((unsigned char)it->text[it->at]) : 1;
            continue;
        }
        it->at = it->last_end = *end;
        *found = true;
        return TT_OK;
    }
    it->at = it->bytes + 1;
    return TT_OK;
}
