#include "serve/constraint.h"

static struct tt_json_value *part_of_text(const char *text)
{
    return tt_json_pack("{s:s}", "text", text);
}

/* The beginning of a call up to its arguments: the name as JSON. */
static tt_status write_name(const char *before, const struct tt_json_value *name, const char *behind,
                            struct tt_str *out)
{
    TT_TRY(tt_str_append_text(out, before));
    TT_TRY(tt_json_write(name, 0, false, out));
    return tt_str_append_text(out, behind);
}

/* One call of a tool in the form that the model's template writes; NULL after an error. */
static struct tt_json_value *make_call(const struct tt_talk *talk, const struct tt_json_value *tool)
{
    const struct tt_json_value *function = tt_json_get(tool, "function");
    if (function == NULL) function = tool;
    const struct tt_json_value *name = tt_json_get(function, "name"),
                               *schema = tt_json_get(function, "parameters");
    struct tt_str begin = {0};
    bool tagged = talk->tags_calls;
    tt_status status = write_name(tagged ? "<tool_call>\n{\"name\": " : "{\"name\": ", name,
                                  tagged ? ", \"arguments\": " : ", \"parameters\": ", &begin);
    struct tt_json_value *parts = tt_json_new_list();
    struct tt_json_value *arguments =
        schema != NULL ? tt_json_pack("{s:O}", "json", schema)
                       : tt_json_pack("{s:{s:s, s:{}}}", "json", "type", "object", "properties");
    tt_json_append(parts, part_of_text(tt_str_text(&begin)));
    tt_json_append(parts, arguments);
    tt_json_append(parts, part_of_text(tagged ? "}\n</tool_call>" : "}"));
    tt_str_deinit(&begin);
    if (status == TT_OK) return tt_json_pack("{s:o}", "sequence", parts);
    tt_json_release(parts);
    return NULL;
}

static bool is_asked_for(const struct tt_api_request *request, const struct tt_json_value *tool)
{
    const struct tt_json_value *function = tt_json_get(tool, "function");
    const char *name = tt_json_text(tt_json_get(function != NULL ? function : tool, "name"));
    if (name == NULL) return false;
    return request->forced_tool.data == NULL || tt_span_equals(request->forced_tool, name);
}

/* One of the calls, and further ones behind it where the form and the request have several. */
static tt_status write_calls(const struct tt_talk *talk, struct tt_api_request *request)
{
    struct tt_json_value *calls = tt_json_new_list();
    for (size_t i = 0; i < tt_json_count(request->tools); i++)
        if (is_asked_for(request, tt_json_at(request->tools, i)))
            tt_json_append(calls, make_call(talk, tt_json_at(request->tools, i)));
    struct tt_json_value *source = tt_json_pack("{s:o}", "choice", calls);
    if (talk->tags_calls && !request->one_call && request->forced_tool.data == NULL) {
        struct tt_json_value *more =
            tt_json_pack("{s:{s:[{s:s}, O]}}", "repeat", "sequence", "text", "\n", source);
        source = tt_json_pack("{s:[o, {s:[{s:s}, o]}]}", "sequence", source, "choice", "text", "", more);
    }
    tt_status status = tt_json_write(source, 0, false, &request->grammar);
    tt_json_release(source);
    return status;
}

tt_status tt_serve_constrain(const struct tt_talk *talk, struct tt_api_request *request, const char **param)
{
    *param = request->grammar_param;
    if (request->forces_call) TT_TRY(write_calls(talk, request));
    if (request->grammar.bytes == 0) return TT_OK;
    return tt_generation_check_grammar(tt_generation_team_engine(talk->team),
                                       (struct tt_span){request->grammar.data, request->grammar.bytes});
}
