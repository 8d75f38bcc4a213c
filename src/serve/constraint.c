#include "serve/constraint.h"

#include "serve/call_format.h"

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
    const struct tt_call_format *format = tt_call_format_of(talk->chat_template);
    const struct tt_call_model model = {talk->inputs->tokenizer,
                                        talk->chat_template != NULL ? talk->chat_template : ""};
    struct tt_json_value *calls = tt_json_new_list(), *call = NULL;
    tt_status status = TT_OK;
    for (size_t i = 0; i < tt_json_count(request->tools) && status == TT_OK; i++) {
        const struct tt_json_value *tool = tt_json_at(request->tools, i),
                                   *function = tt_json_get(tool, "function");
        if (!is_asked_for(request, tool)) continue;
        status = format->write(&model, function != NULL ? function : tool, &call);
        if (status == TT_OK) tt_json_append(calls, call);
    }
    struct tt_json_value *source = tt_json_pack("{s:o}", "choice", calls);
    if (format->between != NULL && !request->one_call && request->forced_tool.data == NULL) {
        struct tt_json_value *more =
            tt_json_pack("{s:{s:[{s:s}, O]}}", "repeat", "sequence", "text", format->between, source);
        source = tt_json_pack("{s:[o, {s:[{s:s}, o]}]}", "sequence", source, "choice", "text", "", more);
    }
    if (format->before != NULL)
        source = tt_json_pack("{s:[o, o]}", "sequence", format->before(&model), source);
    if (status == TT_OK) status = tt_json_write(source, 0, false, &request->grammar);
    tt_json_release(source);
    return status;
}

/* The answer of a conversation is a message of harmony where the template writes these: to the reader. */
static tt_status write_message(const struct tt_talk *talk, struct tt_api_request *request)
{
    struct tt_json json = {0};
    struct tt_str source = {0};
    tt_status status = TT_OK;
    TT_GO(tt_json_parse(request->grammar.data, request->grammar.bytes, "a grammar", &json));
    struct tt_json_value *message = tt_call_harmony_message(
        talk->inputs->tokenizer, tt_json_pack("{s:s}", "text", "final"), tt_json_copy(json.root));
    status = tt_json_write(message, 0, false, &source);
    tt_json_release(message);
    if (status == TT_OK) {
        struct tt_str before = request->grammar;
        request->grammar = source;
        source = before;
    }
out:
    tt_str_deinit(&source);
    tt_json_deinit(&json);
    return status;
}

tt_status tt_serve_constrain(const struct tt_talk *talk, bool chat, struct tt_api_request *request,
                             const char **param)
{
    *param = request->grammar_param;
    if (request->forces_call)
        TT_TRY(write_calls(talk, request));
    else if (chat && request->grammar.bytes > 0 && talk->thoughts == TT_THOUGHT_HARMONY)
        TT_TRY(write_message(talk, request));
    if (request->grammar.bytes == 0) return TT_OK;
    return tt_generation_check_grammar(tt_generation_team_engine(talk->team),
                                       (struct tt_span){request->grammar.data, request->grammar.bytes});
}
