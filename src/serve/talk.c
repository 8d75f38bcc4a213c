#include "serve/talk.h"

#include "data/chat_row.h"

/* A template that cannot be read is an error of the requests that need it. */
static void find_template(struct tt_talk *talk)
{
    const struct tt_chat_template *source;
    const struct tt_jinja *jinja;
    if (tt_chat_template(talk->chat, true, &source, &jinja) == TT_OK) talk->chat_template = source->text;
    talk->thoughts = tt_thought_form_of(talk->chat_template);
    tt_error_clear();
}

tt_status tt_talk_open(const struct tt_talk_config *config, struct tt_talk *talk)
{
    tt_status status = TT_OK;
    *talk = (struct tt_talk){.inputs = config->inputs, .team = config->team};
    if (talk->inputs->tokenizer == NULL)
        TT_GO(tt_fail(TT_ERR_DATA, "'%s' has no tokenizer.json, which a conversation needs",
                      tt_model_folder_path(talk->inputs->folder)));
    talk->data = (struct tt_data_config){.chat_template_path = config->chat_template_path != NULL
                                                                   ? config->chat_template_path
                                                                   : talk->inputs->template_path,
                                         .date = config->date};
    TT_GO(tt_chat_create(&talk->data, talk->inputs->tokenizer, &talk->chat));
    find_template(talk);
    TT_GO(tt_tokenizer_scratch_create(talk->inputs->tokenizer, &talk->scratch));
out:
    if (status != TT_OK) tt_talk_close(talk);
    return status;
}

void tt_talk_close(struct tt_talk *talk)
{
    tt_tokenizer_scratch_destroy(talk->scratch);
    tt_chat_destroy(talk->chat);
    *talk = (struct tt_talk){0};
}

/* The row is parsed again as a document, because errors of its members name their origin. */
tt_status tt_talk_prompt(struct tt_talk *talk, const struct tt_json_value *row, const char *origin,
                         struct tt_ids *ids)
{
    struct tt_json json = {0};
    struct tt_str text = {0}, rendered = {0};
    tt_status status = TT_OK;
    TT_GO(tt_json_write(row, 0, false, &text));
    TT_GO(tt_json_parse(tt_str_text(&text), text.bytes, origin, &json));
    TT_GO(tt_chat_prompt(talk->chat, talk->scratch, &json, &rendered, ids));
    if (ids->count == 0) TT_GO(tt_fail(TT_ERR_DATA, "%s: the prompt has no tokens", origin));
out:
    tt_json_deinit(&json);
    tt_str_deinit(&text);
    tt_str_deinit(&rendered);
    return status;
}

int64_t tt_talk_length(const struct tt_talk *talk)
{
    return tt_generation_limits_of(tt_generation_team_engine(talk->team))->length;
}

int64_t tt_talk_room(const struct tt_talk *talk, size_t prompt_count, int64_t wanted)
{
    int64_t length = tt_talk_length(talk);
    if (prompt_count >= (size_t)length) return 0;
    int64_t room = length - (int64_t)prompt_count;
    return wanted < room ? wanted : room;
}

tt_status tt_talk_ask(struct tt_talk *talk, const struct tt_generation_request *request,
                      struct tt_talk_answer *answer)
{
    *answer = (struct tt_talk_answer){.stream = {.skip_special = true}, .end_id = -1};
    return tt_generation_team_submit(talk->team, request, &answer->id);
}

tt_status tt_talk_advance(struct tt_talk *talk, struct tt_talk_answer *answer, struct tt_str *text)
{
    const struct tt_tokenizer *tokenizer = talk->inputs->tokenizer;
    struct tt_generation_progress progress;
    if (tt_generation_is_finished(answer->state)) return TT_OK;
    TT_TRY(tt_generation_team_poll(talk->team, answer->id, &progress));
    while (answer->tokens < progress.count)
        TT_TRY(tt_tokenizer_stream_push(tokenizer, &answer->stream, progress.tokens[answer->tokens++], text));
    bool over = tt_generation_is_finished(progress.state);
    if (over && answer->shows_end && progress.end_id >= 0)
        TT_TRY(tt_tokenizer_stream_push(tokenizer, &answer->stream, progress.end_id, text));
    if (over) TT_TRY(tt_tokenizer_stream_finish(tokenizer, &answer->stream, text));
    answer->state = progress.state;
    answer->end_id = progress.end_id;
    return TT_OK;
}

void tt_talk_answer_deinit(struct tt_talk *talk, struct tt_talk_answer *answer)
{
    if (answer->id != 0) tt_generation_team_release(talk->team, answer->id);
    tt_tokenizer_stream_deinit(&answer->stream);
    *answer = (struct tt_talk_answer){0};
}
