#include "data/chat_roles.h"

#include <string.h>

#include "base/ascii.h"
#include "base/str.h"

/* Where a name means the role: everywhere, or beside `from` alone. Beside `role` some templates have a rule for
 * function and observation, while human and gpt would be headers that no model knows. */
enum place { ANYWHERE, BESIDE_FROM };

static const struct {
    const char *name, *role;
    enum place place;
    bool calls;
} names[] = {
    {"human", "user", ANYWHERE, false},         {"gpt", "assistant", ANYWHERE, false},
    {"gpt4", "assistant", ANYWHERE, false},     {"gpt-4", "assistant", ANYWHERE, false},
    {"chatgpt", "assistant", ANYWHERE, false},  {"bing", "assistant", ANYWHERE, false},
    {"bard", "assistant", ANYWHERE, false},     {"model", "assistant", ANYWHERE, false},
    {"ai", "assistant", ANYWHERE, false},       {"bot", "assistant", ANYWHERE, false},
    {"chatbot", "assistant", ANYWHERE, false},  {"function_call", "assistant", ANYWHERE, true},
    {"tool_call", "assistant", ANYWHERE, true}, {"tool_response", "tool", ANYWHERE, false},
    {"function", "tool", BESIDE_FROM, false},   {"observation", "tool", BESIDE_FROM, false},
};
enum { NAMES = sizeof names / sizeof names[0] };

const char *tt_chat_role_usual(const char *role, bool sharegpt)
{
    for (size_t i = 0; i < NAMES; i++)
        if ((sharegpt || names[i].place == ANYWHERE) && tt_ascii_same(role, names[i].name))
            return names[i].role;
    return role;
}

bool tt_chat_role_calls(const char *role)
{
    for (size_t i = 0; i < NAMES; i++)
        if (names[i].calls && tt_ascii_same(role, names[i].name)) return true;
    return false;
}

static bool is_in(const char *list, const char *name)
{
    size_t bytes = strlen(name);
    if (bytes == 0) return false; /* it would be found everywhere */
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += bytes) {
        bool begins = at == list || strchr(" ,[\"'", at[-1]) != NULL;
        if (begins && (at[bytes] == '\0' || strchr(" ,]\"'", at[bytes]) != NULL)) return true;
    }
    return false;
}

bool tt_chat_role_is_listed(const char *list, const char *role)
{
    if (is_in(list, role)) return true;
    for (size_t i = 0; i < NAMES; i++)
        if (names[i].place == ANYWHERE && strcmp(names[i].role, role) == 0 && is_in(list, names[i].name))
            return true;
    return false;
}

bool tt_chat_role_is_usual(const char *role, bool *near)
{
    static const char *const usual[] = {"system", "user", "assistant", "tool", "developer"};
    int distance;
    *near = false;
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
        if (strcmp(role, usual[i]) == 0) return true;
        *near |= tt_name_is_near(usual[i], role, &distance) && distance <= 2;
    }
    return false;
}

/* ---- Calls ---- */

static bool is_call(const struct tt_json_value *value)
{
    return tt_json_is_string(tt_json_get(value, "name")) && tt_json_get(value, "arguments") != NULL;
}

static tt_status append_call(struct tt_json_value *list, const struct tt_json_value *call)
{
    struct tt_json_value *made = tt_json_pack("{s:s, s:O}", "type", "function", "function", call);
    return made != NULL && tt_json_append(list, made) == 0 ? TT_OK : TT_ERR_MEMORY;
}

static tt_status list_calls(const struct tt_json_value *value, struct tt_json_value **out)
{
    size_t count = tt_json_is_list(value) ? tt_json_count(value) : 1;
    for (size_t i = 0; i < count; i++)
        if (!is_call(tt_json_is_list(value) ? tt_json_at(value, i) : value)) return TT_OK;
    struct tt_json_value *list = tt_json_new_list();
    tt_status status = list != NULL ? TT_OK : TT_ERR_MEMORY;
    for (size_t i = 0; status == TT_OK && i < count; i++)
        status = append_call(list, tt_json_is_list(value) ? tt_json_at(value, i) : value);
    if (status == TT_OK && count > 0)
        *out = list;
    else
        tt_json_release(list);
    return status;
}

tt_status tt_chat_role_read_calls(const struct tt_json_value *content, struct tt_json_value **out)
{
    struct tt_json json = {0};
    struct tt_span text = tt_json_span(content);
    *out = NULL;
    if (text.data == NULL) return list_calls(content, out);
    tt_status status = tt_json_parse(text.data, text.bytes, "a call", &json);
    if (status == TT_OK) status = list_calls(json.root, out);
    tt_json_deinit(&json);
    if (status != TT_ERR_DATA) return status;
    tt_error_clear();
    return TT_OK;
}
