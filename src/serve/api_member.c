#include "serve/api_member.h"

#include <math.h>

void *tt_api_field(const struct tt_api_parse *p, const struct tt_api_member *member)
{
    return (char *)p->request + member->offset;
}

bool tt_api_is_text(const struct tt_json_value *value, const char *text)
{
    struct tt_span span = tt_json_span(value);
    return span.data != NULL && tt_span_equals(span, text);
}

tt_status tt_api_read_number(struct tt_api_parse *p, const struct tt_api_member *member,
                             const struct tt_json_value *value)
{
    double number = tt_json_number(value);
    if (!tt_json_is_number(value) || !(number >= member->least && number <= member->most))
        return tt_fail(TT_ERR_USAGE, "'%s' must be a number from %.9g to %.9g", member->name, member->least,
                       member->most);
    *(double *)tt_api_field(p, member) = number;
    return TT_OK;
}

tt_status tt_api_read_integer(struct tt_api_parse *p, const struct tt_api_member *member,
                              const struct tt_json_value *value)
{
    double number = tt_json_number(value);
    if (!tt_json_is_number(value) || !(number >= member->least && number <= member->most))
        return tt_fail(TT_ERR_USAGE, "'%s' must be a number from %.9g to %.9g", member->name, member->least,
                       member->most);
    if (number != floor(number)) return tt_fail(TT_ERR_USAGE, "'%s' must be an integer", member->name);
    *(int64_t *)tt_api_field(p, member) = (int64_t)number;
    return TT_OK;
}

tt_status tt_api_read_flag(struct tt_api_parse *p, const struct tt_api_member *member,
                           const struct tt_json_value *value)
{
    if (!tt_json_is_bool(value)) return tt_fail(TT_ERR_USAGE, "'%s' must be true or false", member->name);
    *(bool *)tt_api_field(p, member) = tt_json_is_true(value);
    return TT_OK;
}

tt_status tt_api_read_not_flag(struct tt_api_parse *p, const struct tt_api_member *member,
                               const struct tt_json_value *value)
{
    bool *field = tt_api_field(p, member);
    TT_TRY(tt_api_read_flag(p, member, value));
    *field = !*field;
    return TT_OK;
}

static bool is_neutral(enum tt_api_neutral only, const struct tt_json_value *value)
{
    switch (only) {
    case TT_API_ZERO:
        return tt_json_is_number(value) && tt_json_number(value) == 0;
    case TT_API_ONE:
        return tt_json_is_number(value) && tt_json_number(value) == 1;
    case TT_API_FALSE:
        return tt_json_is_false(value);
    case TT_API_TRUE:
        return tt_json_is_true(value);
    case TT_API_EMPTY:
        return tt_json_count(value) == 0 && tt_json_span(value).bytes == 0 && !tt_json_is_number(value);
    case TT_API_FREE_CHOICE:
        return tt_api_is_text(value, "auto") || tt_api_is_text(value, "none");
    case TT_API_TEXT_ALONE:
        return tt_json_is_list(value) && tt_json_count(value) == 1 &&
               tt_api_is_text(tt_json_at(value, 0), "text");
    default:
        return false;
    }
}

tt_status tt_api_read_neutral(struct tt_api_parse *p, const struct tt_api_member *member,
                              const struct tt_json_value *value)
{
    (void)p;
    if (is_neutral(member->only, value)) return TT_OK;
    return tt_fail(TT_ERR_USAGE, "'%s' is not supported with this value: leave it out", member->name);
}

tt_status tt_api_read_members(struct tt_api_parse *p, const struct tt_api_member *table, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct tt_json_value *value = tt_json_get(p->root, table[i].name);
        if ((table[i].forms & (int)p->form) == 0 || value == NULL || tt_json_is_null(value)) continue;
        p->param = table[i].name;
        TT_TRY(table[i].read(p, &table[i], value));
        p->param = NULL;
    }
    return TT_OK;
}
