#include "serve/api_grammar.h"

/* The answer follows one grammar. Takes over `part`, its source (grammar/grammar.h). */
static tt_status constrain(struct tt_api_parse *p, struct tt_json_value *part)
{
    struct tt_api_request *request = p->request;
    tt_status status = TT_OK;
    if (request->grammar.bytes > 0)
        status = tt_fail(TT_ERR_USAGE, "'%s' and '%s' both constrain the answer: give one of them",
                         request->grammar_param, p->param);
    if (status == TT_OK) status = tt_json_write(part, 0, false, &request->grammar);
    if (status == TT_OK) request->grammar_param = p->param;
    tt_json_release(part);
    return status;
}

static tt_status constrain_json(struct tt_api_parse *p, const struct tt_json_value *schema)
{
    return constrain(p, tt_json_pack("{s:O}", "json", schema));
}

static tt_status constrain_any_object(struct tt_api_parse *p)
{
    return constrain(p, tt_json_pack("{s:{s:s}}", "json", "type", "object"));
}

static bool is_schema(const struct tt_json_value *value)
{
    return tt_json_is_object(value) || tt_json_is_bool(value);
}

tt_status tt_api_read_format(struct tt_api_parse *p, const struct tt_api_member *member,
                             const struct tt_json_value *value)
{
    const struct tt_json_value *type = tt_json_get(value, "type"), *named = tt_json_get(value, "json_schema");
    struct tt_span given = tt_json_span(type);
    if (tt_api_is_text(type, "text")) return TT_OK;
    if (tt_api_is_text(type, "json_object")) return constrain_any_object(p);
    if (given.data == NULL || !tt_api_is_text(type, "json_schema"))
        return tt_fail(TT_ERR_USAGE, "the type of '%s' must be text, json_object or json_schema",
                       member->name);
    const struct tt_json_value *schema = tt_json_get(named, "schema"), *strict = tt_json_get(named, "strict");
    if (!is_schema(schema))
        return tt_fail(TT_ERR_USAGE,
                       "'%s' of the type json_schema needs {\"json_schema\": {\"schema\": {...}}}",
                       member->name);
    if (strict != NULL && !tt_json_is_null(strict) && !tt_json_is_bool(strict))
        return tt_fail(TT_ERR_USAGE, "'strict' of '%s' must be true or false", member->name);
    return constrain_json(p, schema); /* strict or not: the answer follows the schema */
}

/* A schema, or the text of one. */
static tt_status read_json(struct tt_api_parse *p, const char *name, const struct tt_json_value *value)
{
    struct tt_span text = tt_json_span(value);
    struct tt_json json = {0};
    if (is_schema(value)) return constrain_json(p, value);
    if (text.data == NULL) return tt_fail(TT_ERR_USAGE, "'%s' must be a JSON Schema", name);
    TT_TRY(tt_json_parse(text.data, text.bytes, name, &json));
    tt_status status = is_schema(json.root) ? constrain_json(p, json.root)
                                            : tt_fail(TT_ERR_USAGE, "'%s' must be a JSON Schema", name);
    tt_json_deinit(&json);
    return status;
}

static tt_status read_regex(struct tt_api_parse *p, const char *name, const struct tt_json_value *value)
{
    if (!tt_json_is_string(value)) return tt_fail(TT_ERR_USAGE, "'%s' must be a regular expression", name);
    return constrain(p, tt_json_pack("{s:O}", "regex", value));
}

static tt_status read_choice(struct tt_api_parse *p, const char *name, const struct tt_json_value *value)
{
    struct tt_json_value *parts = tt_json_new_list();
    bool good = tt_json_count(value) > 0 && tt_json_is_list(value);
    for (size_t i = 0; good && i < tt_json_count(value); i++) {
        good = tt_json_is_string(tt_json_at(value, i));
        tt_json_append(parts, tt_json_pack("{s:O}", "text", tt_json_at(value, i)));
    }
    if (good) return constrain(p, tt_json_pack("{s:o}", "choice", parts));
    tt_json_release(parts);
    return tt_fail(TT_ERR_USAGE, "'%s' must be a list of texts", name);
}

tt_status tt_api_read_guided_json(struct tt_api_parse *p, const struct tt_api_member *member,
                                  const struct tt_json_value *value)
{
    return read_json(p, member->name, value);
}

tt_status tt_api_read_guided_regex(struct tt_api_parse *p, const struct tt_api_member *member,
                                   const struct tt_json_value *value)
{
    return read_regex(p, member->name, value);
}

tt_status tt_api_read_guided_choice(struct tt_api_parse *p, const struct tt_api_member *member,
                                    const struct tt_json_value *value)
{
    return read_choice(p, member->name, value);
}

static tt_status read_any_object(struct tt_api_parse *p, const struct tt_api_member *member,
                                 const struct tt_json_value *value)
{
    if (!tt_json_is_bool(value)) return tt_fail(TT_ERR_USAGE, "'%s' must be true or false", member->name);
    return tt_json_is_true(value) ? constrain_any_object(p) : TT_OK;
}

/* The members of structured_outputs. */
static const struct tt_api_member structured[] = {
    {.name = "json", .forms = TT_API_BOTH, .read = tt_api_read_guided_json},
    {.name = "regex", .forms = TT_API_BOTH, .read = tt_api_read_guided_regex},
    {.name = "choice", .forms = TT_API_BOTH, .read = tt_api_read_guided_choice},
    {.name = "json_object", .forms = TT_API_BOTH, .read = read_any_object},
    {"grammar", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_EMPTY},
    {"structural_tag", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_EMPTY},
    {"whitespace_pattern", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_EMPTY},
    {"disable_any_whitespace", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_FALSE},
    {"disable_additional_properties", TT_API_BOTH, tt_api_read_neutral, .only = TT_API_FALSE},
};

tt_status tt_api_read_structured(struct tt_api_parse *p, const struct tt_api_member *member,
                                 const struct tt_json_value *value)
{
    struct tt_api_parse inner = {.request = p->request, .root = value, .form = p->form};
    if (!tt_json_is_object(value))
        return tt_fail(TT_ERR_USAGE, "'%s' must be an object with json, regex or choice", member->name);
    TT_TRY(tt_api_read_members(&inner, structured, sizeof structured / sizeof *structured));
    if (p->request->grammar.bytes > 0) p->request->grammar_param = member->name;
    return TT_OK;
}

static bool has_tool(const struct tt_json_value *tools, struct tt_span name)
{
    for (size_t i = 0; i < tt_json_count(tools); i++) {
        const struct tt_json_value *tool = tt_json_at(tools, i), *function = tt_json_get(tool, "function");
        const char *known = tt_json_text(tt_json_get(function != NULL ? function : tool, "name"));
        if (known != NULL && tt_span_equals(name, known)) return true;
    }
    return false;
}

tt_status tt_api_read_tool_choice(struct tt_api_parse *p, const struct tt_api_member *member,
                                  const struct tt_json_value *value)
{
    const struct tt_json_value *named = tt_json_get(tt_json_get(value, "function"), "name");
    struct tt_api_request *request = p->request;
    if (tt_api_is_text(value, "auto") || tt_api_is_text(value, "none")) return TT_OK;
    bool required = tt_api_is_text(value, "required");
    bool function = tt_api_is_text(tt_json_get(value, "type"), "function") && tt_json_is_string(named);
    if (!required && !function)
        return tt_fail(TT_ERR_USAGE,
                       "'%s' must be auto, none, required, or {\"type\": \"function\", \"function\": "
                       "{\"name\": ...}}",
                       member->name);
    if (request->tools == NULL)
        return tt_fail(TT_ERR_USAGE, "'%s' forces a call, but there are no 'tools'", member->name);
    if (function && !has_tool(request->tools, tt_json_span(named)))
        return tt_fail(TT_ERR_USAGE, "'%s' names a function that is none of 'tools'", member->name);
    if (request->grammar.bytes > 0)
        return tt_fail(TT_ERR_USAGE, "'%s' and '%s' both constrain the answer: give one of them",
                       request->grammar_param, member->name);
    request->forces_call = true;
    request->forced_tool = function ? tt_json_span(named) : (struct tt_span){0};
    request->grammar_param = member->name;
    return TT_OK;
}
