/* Settings that are a JSON object of texts: variables of the pods, labels of their nodes. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "render/render.h"

static tt_status refuse_pairs(const char *setting, const char *what, const char *rule)
{
    tt_status status = tt_fail(TT_ERR_USAGE, "%s: %s", setting, what);
    tt_hint("%s", rule);
    return status;
}

static bool is_printable(const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\') return false;
    return true;
}

static tt_status add_pair(const char *setting, const char *name, const char *value,
                          struct tt_render_pairs *pairs)
{
    char what[200];
    struct tt_render_pair *pair = &pairs->items[pairs->count];
    snprintf(what, sizeof what, "'%.100s' is not valid", name);
    if (pairs->count == TT_RENDER_PAIRS_MAX) return refuse_pairs(setting, "too many", "at most 32");
    if (strlen(name) >= sizeof pair->name || !is_printable(name) || name[0] == '\0')
        return refuse_pairs(setting, what, "a name is printable ASCII of at most 127 characters");
    if (value == NULL || strlen(value) >= sizeof pair->value || !is_printable(value))
        return refuse_pairs(setting, what,
                            "its value is a text of printable ASCII without quotes and backslashes, at most "
                            "255 characters; numbers need quotes");
    snprintf(pair->name, sizeof pair->name, "%s", name);
    snprintf(pair->value, sizeof pair->value, "%s", value);
    pairs->count++;
    return TT_OK;
}

tt_status tt_render_read_pairs(const char *setting, const char *text, struct tt_render_pairs *pairs)
{
    struct tt_json json = {0};
    const struct tt_json_value *value;
    const char *name;
    *pairs = (struct tt_render_pairs){0};
    if (text == NULL) return TT_OK;
    tt_status status = tt_json_parse(text, strlen(text), setting, &json);
    if (status == TT_OK && !tt_json_is_object(json.root))
        status = refuse_pairs(setting, "it is no object", "write names and values: {\"NAME\": \"value\"}");
    for (size_t at = 0; status == TT_OK && tt_json_next_member(json.root, &at, &name, &value);)
        status = add_pair(setting, name, tt_json_text(value), pairs);
    tt_json_deinit(&json);
    return status;
}
