#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/regex.h"

#include <pcre2.h>
#include <string.h>
#include "base/alloc.h"

struct tt_regex {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    char *expression;
};

enum { BACKTRACK_LIMIT = 1000000, HEAP_LIMIT_KIB = 16384 };

tt_status tt_regex_compile(const char *expression, struct tt_regex **out)
{
    tt_status status = TT_OK;
    struct tt_regex *regex = tt_calloc(1, sizeof *regex);
    if (regex == NULL) return TT_ERR_MEMORY;
    int error = 0;
    PCRE2_SIZE offset = 0;
    regex->expression = tt_strdup(expression);
    if (regex->expression == NULL) {
        status = TT_ERR_MEMORY;
        goto out;
    }
    regex->code = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED,
                                PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &offset, NULL);
    if (regex->code == NULL) {
        PCRE2_UCHAR reason[160] = {0};
        (void)pcre2_get_error_message(error, reason, sizeof reason);
        status = tt_fail(TT_ERR_USAGE, "the regular expression '%s' is wrong at character %zu: %s",
                         expression, (size_t)offset + 1, (const char *)reason);
        goto out;
    }
    regex->match = pcre2_match_data_create_from_pattern(regex->code, NULL);
    regex->limits = pcre2_match_context_create(NULL);
    if (regex->match == NULL || regex->limits == NULL) {
        status = tt_fail(TT_ERR_MEMORY, "no memory to match a regular expression");
        goto out;
    }
    (void)pcre2_set_match_limit(regex->limits, BACKTRACK_LIMIT);
    (void)pcre2_set_heap_limit(regex->limits, HEAP_LIMIT_KIB);
    *out = regex;
    regex = NULL;
out:
    tt_regex_destroy(regex);
    return status;
}

void tt_regex_destroy(struct tt_regex *regex)
{
    if (regex == NULL) return;
    pcre2_match_context_free(regex->limits);
    pcre2_match_data_free(regex->match);
    pcre2_code_free(regex->code);
    tt_free(regex->expression);
    tt_free(regex);
}

tt_status tt_regex_fullmatch(const struct tt_regex *regex, const char *text, bool *matched)
{
    int result = pcre2_match(regex->code, (PCRE2_SPTR)text, strlen(text), 0, 0, regex->match, regex->limits);
    if (result < 0 && result != PCRE2_ERROR_NOMATCH) {
        PCRE2_UCHAR reason[160] = {0};
        (void)pcre2_get_error_message(result, reason, sizeof reason);
        return tt_fail(TT_ERR_USAGE, "the regular expression '%s' cannot be matched against '%s': %s",
                       regex->expression, text, (const char *)reason);
    }
    *matched = result >= 0;
    return TT_OK;
}
