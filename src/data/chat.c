#include "data/chat.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/number.h"
#include "data/chat_calls.h"
#include "data/chat_parts.h"

/* Whether a template reads contents that are lists of parts. */
enum part_reading { PARTS_UNKNOWN, PARTS_READ, PARTS_JOINED };
/* The form in which a template gets arguments of tool calls that are texts. */
enum call_reading { CALLS_UNKNOWN, CALLS_TEXTS, CALLS_OBJECTS };

struct parsed {
    const struct tt_chat_template *source;
    struct tt_jinja *jinja;
    enum part_reading parts;
    enum call_reading calls;
};

struct tt_chat {
    const struct tt_data_config *config;
    const struct tt_tokenizer *tokenizer;
    struct tt_chat_files files;
    struct parsed parsed[2]; /* without tools, with tools */
    struct tt_json kwargs;   /* of the settings */
    struct tt_jinja_date date;
    int32_t eos_id;
    struct tt_ranges plain; /* scratch */
    struct tt_jinja_variable *variables;
    size_t variable_count, variable_capacity;
};

void tt_chat_now(char date[TT_CHAT_DATE_BYTES])
{
    time_t now = (time_t)tt_clock_unix_seconds();
    struct tm local;
    bool known = localtime_r(&now, &local) != NULL;
    (void)tt_snprintf(date, TT_CHAT_DATE_BYTES, "%04d-%02d-%02d %02d:%02d:%02d",
                      known ? local.tm_year + 1900 : 1970, known ? local.tm_mon + 1 : 1,
                      known ? local.tm_mday : 1, known ? local.tm_hour : 0, known ? local.tm_min : 0,
                      known ? local.tm_sec : 0);
}

static tt_status read_date(const char *text, struct tt_jinja_date *date)
{
    char now[TT_CHAT_DATE_BYTES];
    *date = (struct tt_jinja_date){0};
    if (text == NULL) {
        tt_chat_now(now);
        text = now;
    }
    int used = 0, all = (int)strlen(text);
    int count = sscanf(text, "%4d-%2d-%2d%n", &date->year, &date->month, &date->day, &used);
    if (count == 3 && used < all) {
        int more = 0;
        if (sscanf(text + used, "%*1[T ]%2d:%2d:%2d%n", &date->hour, &date->minute, &date->second, &more) ==
            3)
            used += more;
    }
    bool valid = count == 3 && used == all && date->year > 0 && date->month >= 1 && date->month <= 12 &&
                 date->day >= 1 && date->day <= 31 && date->hour >= 0 && date->hour < 24 &&
                 date->minute >= 0 && date->minute < 60 && date->second >= 0 && date->second < 60;
    return valid ? TT_OK : tt_fail(TT_ERR_USAGE, "date '%s' is not YYYY-MM-DD or YYYY-MM-DD HH:MM:SS", text);
}

tt_status tt_chat_create(const struct tt_data_config *config, const struct tt_tokenizer *tokenizer,
                         struct tt_chat **out)
{
    tt_status status = TT_OK;
    struct tt_chat *chat = tt_calloc(1, sizeof *chat);
    if (chat == NULL) return TT_ERR_MEMORY;
    chat->config = config;
    chat->tokenizer = tokenizer;
    chat->eos_id = config->eos_token != NULL ? tt_tokenizer_token_id(tokenizer, config->eos_token)
                                             : tt_tokenizer_eos_id(tokenizer);
    TT_GO(read_date(config->date, &chat->date));
    if (config->chat_template_kwargs != NULL) {
        TT_GO(tt_json_parse(config->chat_template_kwargs, strlen(config->chat_template_kwargs),
                            "chat_template_kwargs", &chat->kwargs));
        if (!tt_json_is_object(chat->kwargs.root))
            TT_GO(tt_fail(TT_ERR_USAGE, "chat_template_kwargs must be an object of variables"));
    }
    if (config->sample_per_turn && !config->assistant_only_loss) {
        tt_fail(TT_ERR_USAGE,
                "sample_per_turn needs assistant_only_loss: it makes a sample of each turn that trains");
        TT_GO(TT_ERR_USAGE);
    }
    TT_GO(tt_chat_files_load(tt_tokenizer_folder(tokenizer), &chat->files));
    TT_GO(tt_chat_files_complete(tt_tokenizer_model_folder(tokenizer), &chat->files));
    if (config->chat_template != NULL)
        TT_GO(tt_chat_files_take_text(config->chat_template, &chat->files));
    else if (config->chat_template_path != NULL)
        TT_GO(tt_chat_files_take_template(config->chat_template_path, &chat->files));
    *out = chat;
    chat = NULL;
out:
    tt_chat_destroy(chat);
    return status;
}

void tt_chat_destroy(struct tt_chat *chat)
{
    if (chat == NULL) return;
    tt_jinja_destroy(chat->parsed[0].jinja);
    tt_jinja_destroy(chat->parsed[1].jinja);
    tt_chat_files_deinit(&chat->files);
    tt_json_deinit(&chat->kwargs);
    tt_ranges_deinit(&chat->plain);
    tt_free(chat->variables);
    tt_free(chat);
}

const struct tt_data_config *tt_chat_config(const struct tt_chat *chat)
{
    return chat->config;
}

const struct tt_tokenizer *tt_chat_tokenizer(const struct tt_chat *chat)
{
    return chat->tokenizer;
}

tt_status tt_chat_template(struct tt_chat *chat, bool tools, const struct tt_chat_template **out,
                           const struct tt_jinja **jinja)
{
    struct parsed *parsed = &chat->parsed[tools];
    if (parsed->jinja == NULL) {
        const struct tt_chat_template *source = NULL;
        TT_TRY(tt_chat_files_choose(&chat->files, tools, &source));
        struct tt_jinja_source text = {source->text, strlen(source->text), source->path};
        TT_TRY(tt_jinja_parse(&text, &parsed->jinja));
        parsed->source = source;
    }
    *out = parsed->source;
    *jinja = parsed->jinja;
    return TT_OK;
}

bool tt_chat_is_end(const struct tt_chat *chat, int32_t id)
{
    if (id == chat->eos_id) return true;
    for (size_t i = 0; i < chat->files.ends.count; i++)
        if (chat->files.ends.data[i] == id) return true;
    return false;
}

static tt_status add_variable(struct tt_chat *chat, struct tt_jinja_variable variable)
{
    TT_TRY(tt_grow(&chat->variables, chat->variable_count, &chat->variable_capacity));
    chat->variables[chat->variable_count++] = variable;
    return TT_OK;
}

static tt_status add_json(struct tt_chat *chat, const char *name, const struct tt_json_value *value)
{
    struct tt_jinja_variable variable = {
        .name = name, .kind = value == NULL ? TT_JINJA_NONE : TT_JINJA_JSON, .json = value};
    return add_variable(chat, variable);
}

static tt_status list_variables(struct tt_chat *chat, const struct tt_conversation *conversation,
                                const struct tt_json_value *messages, bool asks)
{
    chat->variable_count = 0;
    for (size_t i = 0; i < chat->files.token_count; i++) {
        const struct tt_chat_token *token = &chat->files.tokens[i];
        bool replaced = strcmp(token->name, "eos_token") == 0 && chat->config->eos_token != NULL;
        const char *text = replaced ? chat->config->eos_token : token->text;
        TT_TRY(add_variable(chat, (struct tt_jinja_variable){
                                      .name = token->name, .kind = TT_JINJA_TEXT, .text = tt_span_of(text)}));
    }
    TT_TRY(add_json(chat, "messages", messages));
    TT_TRY(add_json(chat, "tools", conversation->tools));
    TT_TRY(add_json(chat, "documents", conversation->documents));
    TT_TRY(add_variable(chat, (struct tt_jinja_variable){
                                  .name = "add_generation_prompt", .kind = TT_JINJA_BOOL, .flag = asks}));
    const char *key;
    const struct tt_json_value *value;
    for (size_t i = 0; tt_json_next_member(chat->kwargs.root, &i, &key, &value);)
        if (tt_json_get(conversation->kwargs, key) == NULL) TT_TRY(add_json(chat, key, value));
    for (size_t i = 0; tt_json_next_member(conversation->kwargs, &i, &key, &value);)
        TT_TRY(add_json(chat, key, value));
    return TT_OK;
}

static bool has_text_parts(const struct tt_json_value *messages, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (tt_chat_parts_are_text(tt_json_get(tt_json_at(messages, i), "content"))) return true;
    return false;
}

static tt_status join_content(struct tt_json_value *message)
{
    struct tt_json_value *joined = NULL;
    const struct tt_json_value *content = tt_json_get(message, "content");
    if (!tt_chat_parts_are_text(content)) return TT_OK;
    TT_TRY(tt_chat_parts_join(content, &joined));
    return tt_json_set(message, "content", joined) == 0 ? TT_OK : TT_ERR_MEMORY;
}

/* The messages as the template gets them. */
struct changes {
    bool joins;   /* contents are texts, not lists of parts */
    bool objects; /* arguments of tool calls are objects, not texts */
};

/* A list of the first messages. */
static tt_status copy_messages(const struct tt_conversation *conversation, size_t count,
                               struct changes changes, struct tt_json_value **out)
{
    *out = tt_json_new_list();
    if (*out == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        struct tt_json_value *copy = tt_json_copy(tt_json_at(conversation->messages, i));
        tt_status status = copy == NULL ? TT_ERR_MEMORY : TT_OK;
        if (status == TT_OK && changes.joins) status = join_content(copy);
        if (status == TT_OK && changes.objects) status = tt_chat_calls_make_objects(copy);
        if (status != TT_OK) tt_json_release(copy);
        TT_TRY(status);
        if (tt_json_append(*out, copy) != 0) return TT_ERR_MEMORY;
    }
    return TT_OK;
}

/* Renders the conversation of a probe. *rendered: the template did not fail. */
static tt_status render_probe(struct tt_chat *chat, const struct tt_jinja *jinja,
                              struct tt_json_value *messages, struct tt_jinja_output *output, bool *rendered)
{
    const struct tt_conversation conversation = {.messages = messages};
    tt_status status = messages == NULL ? TT_ERR_MEMORY : TT_OK;
    if (status == TT_OK) status = list_variables(chat, &conversation, messages, false);
    const struct tt_jinja_input input = {chat->variables, chat->variable_count, chat->date};
    if (status == TT_OK) status = tt_jinja_render(jinja, &input, output);
    *rendered = status == TT_OK;
    if (status != TT_ERR_DATA) return status;
    tt_error_clear();
    return TT_OK;
}

/* A template that is made for objects fails, or writes the text in quotes. */
static tt_status probe_calls(struct tt_chat *chat, const struct tt_jinja *jinja, enum call_reading *out)
{
    struct tt_jinja_output output = {0};
    struct tt_json_value *messages = tt_chat_calls_probe();
    bool rendered;
    tt_status status = render_probe(chat, jinja, messages, &output, &rendered);
    bool texts = rendered && !tt_chat_calls_are_quoted((struct tt_span){output.text, output.bytes});
    *out = texts ? CALLS_TEXTS : CALLS_OBJECTS;
    tt_jinja_output_deinit(&output);
    tt_json_release(messages);
    return status;
}

/* Renders one message of one part. A template that is made for texts fails, leaves the text out, or writes the list
 * itself, with its quotes. */
static tt_status probe_parts(struct tt_chat *chat, const struct tt_jinja *jinja, enum part_reading *out)
{
    static const char text[] = "one part";
    struct tt_jinja_output output = {0};
    struct tt_json_value *messages =
        tt_json_pack("[{s:s, s:[{s:s, s:s}]}]", "role", "user", "content", "type", "text", "text", text);
    bool rendered;
    tt_status status = render_probe(chat, jinja, messages, &output, &rendered);
    *out = PARTS_JOINED;
    if (rendered) {
        const char *found = memmem(output.text, output.bytes, text, sizeof text - 1);
        bool quoted = memmem(output.text, output.bytes, "'text'", 6) != NULL ||
                      memmem(output.text, output.bytes, "\"text\"", 6) != NULL;
        if (found != NULL && !quoted) *out = PARTS_READ;
    }
    tt_jinja_output_deinit(&output);
    tt_json_release(messages);
    return status;
}

static tt_status find_changes(struct tt_chat *chat, const struct tt_conversation *conversation, size_t count,
                              struct changes *changes)
{
    struct parsed *parsed = &chat->parsed[conversation->tools != NULL];
    bool parts = has_text_parts(conversation->messages, count);
    bool calls = tt_chat_calls_have_texts(conversation->messages, count);
    if (parts && parsed->parts == PARTS_UNKNOWN) TT_TRY(probe_parts(chat, parsed->jinja, &parsed->parts));
    if (calls && parsed->calls == CALLS_UNKNOWN) TT_TRY(probe_calls(chat, parsed->jinja, &parsed->calls));
    changes->joins = parts && parsed->parts == PARTS_JOINED;
    changes->objects = calls && parsed->calls == CALLS_OBJECTS;
    return TT_OK;
}

/* Adds to the error of a template what many templates cannot write: a message without a text as its content. */
static void hint_contents(const struct tt_json_value *messages)
{
    for (size_t i = 0; i < tt_json_count(messages); i++) {
        const struct tt_json_value *message = tt_json_at(messages, i),
                                   *content = tt_json_get(message, "content");
        const char *role = tt_json_text(tt_json_get(message, "role"));
        if (tt_json_is_string(content)) continue;
        tt_hint("message %zu ('%.40s') has %s, which this template may not be made for: write its content as "
                "a text, or "
                "choose another template with chat_template_path",
                i + 1, role != NULL ? role : "",
                content == NULL ? (tt_json_get(message, "tool_calls") != NULL ? "tool calls and no content"
                                                                              : "no content")
                                : "a list of parts as its content");
        return;
    }
}

tt_status tt_chat_render(struct tt_chat *chat, const struct tt_conversation *conversation, size_t count,
                         bool asks, struct tt_chat_text *out)
{
    struct tt_chat_text text = {0};
    const struct tt_chat_template *source = NULL;
    const struct tt_jinja *jinja = NULL;
    tt_status status = TT_OK;
    TT_GO(tt_chat_template(chat, conversation->tools != NULL, &source, &jinja));
    const struct tt_json_value *messages = conversation->messages;
    struct changes changes = {0};
    TT_GO(find_changes(chat, conversation, count, &changes));
    if (changes.joins || changes.objects || count < tt_json_count(messages)) {
        TT_GO(copy_messages(conversation, count, changes, &text.messages));
        messages = text.messages;
    }
    TT_GO(list_variables(chat, conversation, messages, asks));
    struct tt_jinja_input input = {chat->variables, chat->variable_count, chat->date};
    status = tt_jinja_render(jinja, &input, &text.output);
    if (status == TT_ERR_DATA) hint_contents(messages);
    TT_GO(status);
    *out = text;
    return TT_OK;
out:
    tt_chat_text_deinit(&text);
    return status;
}

void tt_chat_text_deinit(struct tt_chat_text *text)
{
    tt_jinja_output_deinit(&text->output);
    tt_json_release(text->messages);
    *text = (struct tt_chat_text){0};
}

/* Whether a span of the text is made of the row's values. */
static bool is_data(const struct tt_chat_text *text, uint32_t origin)
{
    const struct tt_jinja_origin *origins = text->output.origins;
    if (origin == 0) return false;
    while (origins[origin].parent != 0) origin = origins[origin].parent;
    /* The template itself writes tokens of the tokenizer; all other variables come from the row. */
    const struct tt_jinja_origin *variable = &origins[origin];
    size_t bytes = variable->key_bytes, ending = strlen("_token");
    return !(bytes > ending && memcmp(variable->key + bytes - ending, "_token", ending) == 0);
}

/* The parts of the text that are made of the row's values. */
static tt_status list_plain(struct tt_chat *chat, const struct tt_chat_text *text)
{
    const struct tt_jinja_output *output = &text->output;
    uint32_t begin = 0;
    chat->plain.count = 0;
    for (size_t i = 0; i < output->span_count; i++) {
        uint32_t end = output->spans[i].end;
        if (is_data(text, output->spans[i].origin)) {
            struct tt_byte_range *last =
                chat->plain.count > 0 ? &chat->plain.data[chat->plain.count - 1] : NULL;
            if (last != NULL && last->end == begin)
                last->end = end;
            else
                TT_TRY(tt_ranges_append(&chat->plain, (struct tt_byte_range){begin, end}));
        }
        begin = end;
    }
    return TT_OK;
}

tt_status tt_chat_encode(struct tt_chat *chat, struct tt_tokenizer_scratch *scratch,
                         const struct tt_chat_text *text, struct tt_ids *ids, struct tt_ranges *ranges)
{
    struct tt_encode_options options = {0};
    if (!chat->config->special_tokens_in_messages) {
        TT_TRY(list_plain(chat, text));
        options.plain = chat->plain.data;
        options.plain_count = chat->plain.count;
    }
    ids->count = ids->beyond = ranges->count = 0;
    struct tt_span span = {text->output.text, text->output.bytes};
    return tt_tokenizer_encode_ranges(chat->tokenizer, scratch, span, &options, ids, ranges);
}
