#include "infer/token_rules.h"

#include <string.h>

bool tt_token_rules_any(const struct tt_token_rules *rules)
{
    return rules->allowed_count > 0 || rules->banned_count > 0;
}

static tt_status check_id(const char *what, int32_t id, int64_t vocab)
{
    if (id >= 0 && id < vocab) return TT_OK;
    return tt_fail(TT_ERR_USAGE, "%s token %d, of a vocabulary of %lld", what, (int)id, (long long)vocab);
}

tt_status tt_token_rules_check(const struct tt_token_rules *rules, int64_t vocab)
{
    if (rules->allowed_count > TT_ALLOWED_IDS_MAX || rules->banned_count > TT_BANNED_IDS_MAX)
        return tt_fail(TT_ERR_USAGE, "%zu allowed tokens and %zu of banned words, at most %d and %d",
                       rules->allowed_count, rules->banned_count, TT_ALLOWED_IDS_MAX, TT_BANNED_IDS_MAX);
    for (size_t i = 0; i < rules->allowed_count; i++) {
        TT_TRY(check_id("the allowed", rules->allowed[i], vocab));
        if (i > 0 && rules->allowed[i] < rules->allowed[i - 1])
            return tt_fail(TT_ERR_USAGE, "allowed tokens that are not in order");
    }
    for (size_t i = 0; i < rules->banned_count;) {
        int32_t length = rules->banned[i++];
        if (length < 1 || (size_t)length > rules->banned_count - i)
            return tt_fail(TT_ERR_USAGE, "a banned word of %d tokens", (int)length);
        for (int32_t k = 0; k < length; k++) TT_TRY(check_id("the banned", rules->banned[i++], vocab));
    }
    return TT_OK;
}

/* Allowed ids are sorted. */
static void keep_allowed(const struct tt_token_rules *rules, uint32_t *mask, size_t words)
{
    size_t i = 0;
    for (size_t w = 0; w < words; w++) {
        uint32_t kept = 0;
        for (; i < rules->allowed_count && (size_t)rules->allowed[i] / 32 == w; i++)
            kept |= UINT32_C(1) << rules->allowed[i] % 32;
        mask[w] &= kept;
    }
}

bool tt_token_rules_apply(const struct tt_token_rules *rules, const int32_t *answer, size_t count,
                          uint32_t *mask, size_t words)
{
    uint32_t any = 0;
    if (rules->allowed_count > 0) keep_allowed(rules, mask, words);
    for (size_t i = 0; i < rules->banned_count;) {
        size_t before = (size_t)rules->banned[i++] - 1;
        const int32_t *ids = rules->banned + i, last = ids[before];
        i += before + 1;
        if (before > count || memcmp(answer + count - before, ids, before * sizeof *ids) != 0) continue;
        mask[last / 32] &= ~(UINT32_C(1) << last % 32);
    }
    for (size_t w = 0; w < words; w++) any |= mask[w];
    return any != 0;
}
