/* Rows of a prompt and its completion as texts. */
#include "data/prompt_template.h"
#include "data/row_reader_impl.h"

tt_status tt_row_read_prompt(struct tt_row_reader *reader, const struct tt_json_value *row)
{
    const char *template = reader->config->prompt_template;
    if (template == NULL)
        return tt_row_read_string(reader, row, reader->config->dataset_prompt_field, &reader->prompt);
    tt_str_clear(&reader->prompt);
    return tt_row_within(reader, tt_prompt_template_render(template, row, &reader->prompt));
}

tt_status tt_row_encode_prompt(struct tt_row_reader *reader)
{
    struct tt_ids *ids = &reader->prompt_ids;
    tt_row_clear_ids(ids, reader->ids_max);
    TT_TRY(tt_row_within(reader,
                         tt_tokenizer_encode(reader->tokenizer, reader->scratch, tt_str_text(&reader->prompt),
                                             reader->prompt.bytes, true, ids)));
    if (reader->adds_eos && ids->count > 0 && ids->beyond == 0) ids->count--;
    return TT_OK;
}

tt_status tt_row_encode_answer(struct tt_row_reader *reader, const struct tt_str *answer)
{
    tt_str_clear(&reader->text);
    TT_TRY(tt_str_append(&reader->text, tt_str_text(&reader->prompt), reader->prompt.bytes));
    TT_TRY(tt_str_append(&reader->text, tt_str_text(answer), answer->bytes));
    return tt_row_encode_text(reader);
}

/* A text beside a list of messages is neither kind of row. */
static tt_status check_kinds(const struct tt_row_reader *reader, const struct tt_json_value *row)
{
    const char *prompt = reader->config->dataset_prompt_field,
               *completion = reader->config->dataset_completion_field;
    const struct tt_json_value *a = tt_json_get(row, prompt), *b = tt_json_get(row, completion);
    bool prompt_is_list = tt_json_is_list(a);
    if (reader->config->prompt_template != NULL || prompt_is_list == tt_json_is_list(b)) return TT_OK;
    if (!tt_json_is_string(prompt_is_list ? b : a)) return TT_OK;
    tt_row_fail(reader, TT_ERR_DATA, "'%s' is a text and '%s' a list of messages",
                prompt_is_list ? completion : prompt, prompt_is_list ? prompt : completion);
    tt_hint("both are texts, or both are lists of messages: [{\"role\": \"%s\", \"content\": \"...\"}]",
            prompt_is_list ? "assistant" : "user");
    return TT_ERR_DATA;
}

/* Prompt and completion are tokenized as one text. The completion begins at the first token that differs from
 * those of the prompt alone (TRL 1.16, common_prefix_length): where a token spans the border, that token is
 * supervised. Such rows are counted. */
static tt_status read(struct tt_row_reader *reader, const struct tt_json_value *row, struct tt_row *out)
{
    const struct tt_data_config *config = reader->config;
    if (config->completion_only_loss == 0) TT_TRY(tt_row_check_conversational(reader, row));
    TT_TRY(tt_row_need_tokenizer(reader));
    TT_TRY(check_kinds(reader, row));
    TT_TRY(tt_row_read_prompt(reader, row));
    TT_TRY(tt_row_read_string(reader, row, config->dataset_completion_field, &reader->completion));
    tt_row_forget_source(reader);

    TT_TRY(tt_row_encode_prompt(reader));
    TT_TRY(tt_row_encode_answer(reader, &reader->completion));
    size_t first = tt_row_common_prefix(&reader->prompt_ids, &reader->ids);
    TT_TRY(tt_row_set_supervised(reader, config->completion_only_loss == 0 ? 0 : first));
    *out = (struct tt_row){.prompt = tt_str_text(&reader->prompt),
                           .completion = tt_str_text(&reader->completion),
                           .prompt_mismatch = first < reader->prompt_ids.count};
    return TT_OK;
}

static bool accepts(const struct tt_row_reader *reader, const struct tt_json_value *row)
{
    const struct tt_data_config *config = reader->config;
    if (tt_json_get(row, config->dataset_completion_field) == NULL) return false;
    return config->prompt_template != NULL || tt_json_get(row, config->dataset_prompt_field) != NULL;
}

const struct tt_row_kind tt_row_completion = {.name = "completion", .accepts = accepts, .read = read};
