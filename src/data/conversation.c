#include "data/conversation.h"

#include <string.h>

#include "base/alloc.h"
#include "base/number.h"
#include "data/chat_parts.h"
#include "data/chat_roles.h"

const char *const tt_conversation_members[] = {
    "messages",    "conversations", "conversation", "prompt",
    "completion",  "tools",         "documents",    "chat_template_kwargs",
    "instruction", "input",         "output",       "system",
    "history",     "chosen",        "rejected",     NULL};

/* The column of a row that is its list of messages; NULL: none is. */
static const char *list_name(const struct tt_json_value *row)
{
    static const char *const names[] = {"messages", "conversations", "conversation"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tt_json_is_list(tt_json_get(row, names[i]))) return names[i];
    return NULL;
}

bool tt_conversation_has_messages(const struct tt_json_value *row)
{
    if (list_name(row) != NULL) return true;
    return tt_json_is_list(tt_json_get(row, "prompt")) && tt_json_is_list(tt_json_get(row, "completion"));
}

static bool holds_messages(const struct tt_json_value *value)
{
    return tt_json_is_list(value) || tt_json_is_object(value);
}

bool tt_conversation_is_preference(const struct tt_json_value *row)
{
    return holds_messages(tt_json_get(row, "chosen")) && holds_messages(tt_json_get(row, "rejected"));
}

tt_status tt_conversation_check_size(const struct tt_json *row)
{
    static const char *const lists[] = {"messages",   "conversations", "conversation", "prompt",
                                        "completion", "chosen",        "rejected"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        size_t count = tt_json_count(tt_json_get(row->root, lists[i]));
        if (!tt_json_is_list(tt_json_get(row->root, lists[i])) || count <= TT_MESSAGES_MAX) continue;
        tt_fail(TT_ERR_DATA, "%s: '%s' has %zu messages; %d are the limit", row->origin, lists[i], count,
                TT_MESSAGES_MAX);
        tt_hint("divide it into several conversations");
        return TT_ERR_DATA;
    }
    return TT_OK;
}

/* Values in a value, no more than `most` + 1 of them. */
static size_t count_values(const struct tt_json_value *value, size_t most)
{
    size_t count = 1, elements = tt_json_count(value);
    for (size_t i = 0; tt_json_is_list(value) && i < elements && count <= most; i++)
        count += count_values(tt_json_at(value, i), most - count);
    for (size_t i = 0; tt_json_is_object(value) && i < elements && count <= most; i++)
        count += count_values(tt_json_member(value, i).value, most - count);
    return count;
}

/* Rendering takes memory for each value, many times what the row has in its file. */
static tt_status check_values(const struct tt_json *row)
{
    if (count_values(row->root, TT_ROW_VALUES_MAX) <= TT_ROW_VALUES_MAX) return TT_OK;
    tt_fail(TT_ERR_DATA, "%s: the row has more than %d values", row->origin, TT_ROW_VALUES_MAX);
    tt_hint("a conversation is a list of messages with texts; divide it, or leave out what is no text");
    return TT_ERR_DATA;
}

bool tt_conversation_is_alpaca(const struct tt_json_value *row)
{
    return tt_json_is_string(tt_json_get(row, "instruction")) &&
           tt_json_is_string(tt_json_get(row, "output"));
}

/* A message on its way to the list. */
struct message {
    const struct tt_json *json;
    const char *list; /* for messages */
    size_t index;
    bool sharegpt, maps_role, calls;
    struct tt_json_value *out;
    enum tt_message_trains trains;
};

static tt_status read_trains(struct message *m, const char *key, const struct tt_json_value *value)
{
    bool on = tt_json_is_true(value) || (tt_json_is_integer(value) && tt_json_integer(value) == 1) ||
              (tt_json_is_number(value) && tt_json_number(value) == 1.0);
    bool off = tt_json_is_false(value) || (tt_json_is_number(value) && tt_json_number(value) == 0.0);
    if (!on && !off) {
        return tt_fail(TT_ERR_DATA, "%s: %s[%zu]: %s must be 0 or 1, true or false", m->json->origin, m->list,
                       m->index, key);
    }
    m->trains = on ? TT_MESSAGE_TRAINED : TT_MESSAGE_SKIPPED;
    return TT_OK;
}

static struct tt_json_value *copy_role(struct message *m, const char *role)
{
    const char *usual = tt_chat_role_usual(role, m->sharegpt);
    m->maps_role |= usual != role;
    m->calls = tt_chat_role_calls(role);
    return tt_json_new_string(usual);
}

static bool is_one_of(const char *key, const char *const *names)
{
    while (*names != NULL && strcmp(key, *names) != 0) names++;
    return *names != NULL;
}

/* Masks within a message, and weights other than 0 and 1, of other trainers. */
static tt_status refuse_mask(const struct message *m, const char *key)
{
    tt_fail(TT_ERR_UNSUPPORTED, "%s: %s[%zu] has '%s': a message trains as a whole or not at all",
            m->json->origin, m->list, m->index, key);
    tt_hint(
        "say it by \"train\": true or false, and divide a message that trains in part into several; or write "
        "rows of input_ids with labels");
    return TT_ERR_UNSUPPORTED;
}

static tt_status add_member(struct message *m, const char *key, const struct tt_json_value *value)
{
    static const char *const says_trains[] = {"train", "training", "weight", "loss", NULL};
    static const char *const masks[] = {"train_detail", "loss_scale", "loss_mask", NULL};
    if (tt_json_is_null(value)) return TT_OK;
    if (is_one_of(key, says_trains)) return read_trains(m, key, value);
    if (is_one_of(key, masks)) return refuse_mask(m, key);
    if (m->sharegpt && strcmp(key, "from") == 0) key = "role";
    if (m->sharegpt && strcmp(key, "value") == 0) key = "content";
    const char *role = strcmp(key, "role") == 0 ? tt_json_text(value) : NULL;
    struct tt_json_value *copy = NULL;
    if (strcmp(key, "content") == 0 && tt_json_is_list(value)) {
        char where[300];
        (void)tt_snprintf(where, sizeof where, "%s: %s[%zu]", m->json->origin, m->list, m->index);
        TT_TRY(tt_chat_parts_copy(value, where, &copy));
    } else {
        copy = role != NULL ? copy_role(m, role) : tt_json_copy(value);
    }
    return tt_json_set(m->out, key, copy) == 0 ? TT_OK : TT_ERR_MEMORY;
}

static tt_status fill_reasoning(struct tt_json_value *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const struct tt_json_value *found = NULL;
    for (size_t i = 0; i < 3 && found == NULL; i++) found = tt_json_get(message, names[i]);
    if (found == NULL) return TT_OK;
    struct tt_json_value *copy = tt_json_copy(found); /* setting a member moves the others */
    tt_status status = copy == NULL ? TT_ERR_MEMORY : TT_OK;
    for (size_t i = 0; i < 2 && status == TT_OK; i++)
        if (tt_json_get(message, names[i]) == NULL && tt_json_set_copy(message, names[i], copy) != 0)
            status = TT_ERR_MEMORY;
    tt_json_release(copy);
    return status;
}

static tt_status append_message(struct tt_conversation *out, struct message *m)
{
    if (tt_json_text(tt_json_get(m->out, "role")) == NULL) {
        tt_json_release(m->out);
        return tt_fail(TT_ERR_DATA, "%s: %s[%zu] has no role", m->json->origin, m->list, m->index);
    }
    size_t count = tt_json_count(out->messages);
    uint8_t *trains = tt_realloc(out->trains, count + 1, 1);
    if (trains == NULL) {
        tt_json_release(m->out);
        return TT_ERR_MEMORY;
    }
    out->trains = trains;
    out->trains[count] = (uint8_t)m->trains;
    return tt_json_append(out->messages, m->out) == 0 ? TT_OK : TT_ERR_MEMORY;
}

/* A message that is a call by its role, and one with a call as OpenAI's first API had it (`function_call`), get the
 * usual form of calls. Another text is what the assistant says. */
static tt_status make_calls(struct message *m)
{
    const struct tt_json_value *old = tt_json_get(m->out, "function_call");
    struct tt_json_value *calls = NULL;
    if (tt_json_get(m->out, "tool_calls") != NULL) return TT_OK;
    if (m->calls)
        TT_TRY(tt_chat_role_read_calls(tt_json_get(m->out, "content"), &calls));
    else if (tt_json_is_object(old))
        TT_TRY(tt_chat_role_read_calls(old, &calls));
    m->calls = m->calls && calls != NULL;
    if (calls == NULL) return TT_OK;
    if (tt_json_set(m->out, "tool_calls", calls) != 0) return TT_ERR_MEMORY;
    if (!m->calls) return TT_OK;
    return tt_json_set(m->out, "content", tt_json_new_string("")) == 0 ? TT_OK : TT_ERR_MEMORY;
}

static tt_status fill_message(struct message *m, const struct tt_json_value *value)
{
    const char *key;
    const struct tt_json_value *member;
    if (!tt_json_is_object(value))
        return tt_fail(TT_ERR_DATA, "%s: %s[%zu] is not an object", m->json->origin, m->list, m->index);
    m->sharegpt = tt_json_get(value, "from") != NULL;
    m->out = tt_json_new_object();
    if (m->out == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    for (size_t i = 0; status == TT_OK && tt_json_next_member(value, &i, &key, &member);)
        status = add_member(m, key, member);
    if (status == TT_OK) status = fill_reasoning(m->out);
    if (status == TT_OK) status = make_calls(m);
    if (status != TT_OK) tt_json_release(m->out);
    return status;
}

static tt_status read_message(struct tt_conversation *out, struct message *m,
                              const struct tt_json_value *value)
{
    TT_TRY(fill_message(m, value));
    out->maps_roles |= m->maps_role;
    return append_message(out, m);
}

static const char *role_of(const struct tt_json_value *message)
{
    const char *role = tt_json_text(tt_json_get(message, "role"));
    return role != NULL ? role : tt_json_text(tt_json_get(message, "from"));
}

/* Adds the calls of one message to another. */
static tt_status join_calls(struct message *to, const struct message *from)
{
    const struct tt_json_value *calls = tt_json_get(from->out, "tool_calls"),
                               *before = tt_json_get(to->out, "tool_calls");
    struct tt_json_value *list = before != NULL ? tt_json_copy(before) : tt_json_new_list();
    if (list == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < tt_json_count(calls); i++) {
        if (tt_json_append_copy(list, tt_json_at(calls, i)) == 0) continue;
        tt_json_release(list);
        return TT_ERR_MEMORY;
    }
    return tt_json_set(to->out, "tool_calls", list) == 0 ? TT_OK : TT_ERR_MEMORY;
}

/* Reads the messages behind an assistant's that are its calls, into it; *at: the index of the last one read. A call
 * that another setting has for training is a message of its own. */
static tt_status read_calls(struct tt_conversation *out, struct message *m, const struct tt_json_value *list,
                            size_t *at)
{
    const char *role = role_of(m->out);
    while (role != NULL && strcmp(role, "assistant") == 0 && *at + 1 < tt_json_count(list)) {
        struct message next = {.json = m->json, .list = m->list, .index = *at + 1};
        const struct tt_json_value *value = tt_json_at(list, *at + 1);
        const char *next_role = role_of(value);
        if (next_role == NULL || !tt_chat_role_calls(next_role)) break;
        TT_TRY(fill_message(&next, value));
        bool joins = next.calls && next.trains == m->trains;
        tt_status status = joins ? join_calls(m, &next) : TT_OK;
        tt_json_release(next.out);
        if (status != TT_OK || !joins) return status;
        out->maps_roles = true;
        ++*at;
    }
    return TT_OK;
}

static tt_status read_list(struct tt_conversation *out, const struct tt_json *json, const char *name)
{
    const struct tt_json_value *list = tt_json_get(json->root, name);
    for (size_t i = 0; i < tt_json_count(list); i++) {
        struct message message = {.json = json, .list = name, .index = i};
        TT_TRY(fill_message(&message, tt_json_at(list, i)));
        tt_status status = read_calls(out, &message, list, &i);
        if (status != TT_OK) {
            tt_json_release(message.out);
            return status;
        }
        out->maps_roles |= message.maps_role;
        TT_TRY(append_message(out, &message));
    }
    return TT_OK;
}

static tt_status append_text(struct tt_conversation *out, const char *role, const char *content)
{
    struct tt_json_value *message = tt_json_pack("{s:s, s:s}", "role", role, "content", content);
    struct message m = {.list = "messages", .out = message};
    return message == NULL ? TT_ERR_MEMORY : append_message(out, &m);
}

/* The member `system` of a row is the first message, unless the first of its own is a system message. */
static tt_status read_system(struct tt_conversation *out, const struct tt_json *json,
                             const struct tt_json_value *list)
{
    const struct tt_json_value *value = tt_json_get(json->root, "system"), *first = tt_json_at(list, 0);
    const char *text = tt_json_text(value), *role = tt_json_text(tt_json_get(first, "role"));
    if (role == NULL) role = tt_json_text(tt_json_get(first, "from"));
    if (value == NULL || tt_json_is_null(value)) return TT_OK;
    if (text == NULL) return tt_fail(TT_ERR_DATA, "%s: 'system' must be a text", json->origin);
    bool has_one = role != NULL && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
    return has_one || *text == '\0' ? TT_OK : append_text(out, "system", text);
}

/* Earlier turns of a row of Alpaca, as LLaMA-Factory has them: a list of pairs of what the user and the assistant
 * said. */
static tt_status read_history(struct tt_conversation *out, const struct tt_json *json)
{
    const struct tt_json_value *history = tt_json_get(json->root, "history");
    if (history == NULL || tt_json_is_null(history)) return TT_OK;
    for (size_t i = 0; i < tt_json_count(history); i++) {
        const struct tt_json_value *pair = tt_json_at(history, i);
        const char *asked = tt_json_text(tt_json_at(pair, 0)), *said = tt_json_text(tt_json_at(pair, 1));
        if (tt_json_count(pair) != 2 || asked == NULL || said == NULL)
            return tt_fail(TT_ERR_DATA,
                           "%s: history[%zu] must be a list of two texts, a question and its answer",
                           json->origin, i);
        TT_TRY(append_text(out, "user", asked));
        TT_TRY(append_text(out, "assistant", said));
    }
    return tt_json_is_list(history) ? TT_OK
                                    : tt_fail(TT_ERR_DATA, "%s: 'history' must be a list", json->origin);
}

/* The user's words, with their parts, for templates that write them apart. */
static tt_status append_asked(struct tt_conversation *out, const char *asked, const char *instruction,
                              const char *input)
{
    struct tt_json_value *message =
        tt_json_pack("{s:s, s:s, s:s, s:s}", "role", "user", "content", asked, "instruction", instruction,
                     "input", input != NULL ? input : "");
    struct message m = {.list = "messages", .out = message};
    return message == NULL ? TT_ERR_MEMORY : append_message(out, &m);
}

/* The instruction, with the input on the next line where there is one, is what the user says. */
static tt_status read_alpaca(struct tt_conversation *out, const struct tt_json *json)
{
    const char *instruction = NULL, *input = NULL, *output = NULL;
    struct tt_str asked = {0};
    tt_status status = TT_OK;
    TT_GO(tt_json_string(json, json->root, "instruction", &instruction));
    TT_GO(tt_json_opt_string(json, json->root, "input", &input));
    TT_GO(tt_json_string(json, json->root, "output", &output));
    TT_GO(read_system(out, json, NULL));
    TT_GO(read_history(out, json));
    TT_GO(tt_str_append_text(&asked, instruction));
    if (input != NULL && *input != '\0') TT_GO(tt_str_printf(&asked, "\n%s", input));
    TT_GO(append_asked(out, tt_str_text(&asked), instruction, input));
    TT_GO(append_text(out, "assistant", output));
out:
    tt_str_deinit(&asked);
    return status;
}

/* The tools of a list, of which some may be JSON texts (ms-swift). */
static tt_status copy_tools(const struct tt_json *json, const struct tt_json_value *list,
                            struct tt_json_value *out)
{
    for (size_t i = 0; i < tt_json_count(list); i++) {
        const struct tt_json_value *tool = tt_json_at(list, i);
        struct tt_span text = tt_json_span(tool);
        struct tt_json parsed = {0};
        tt_status status =
            text.data != NULL ? tt_json_parse(text.data, text.bytes, "a tool", &parsed) : TT_OK;
        if (status == TT_OK && text.data != NULL && !tt_json_is_object(parsed.root))
            status = tt_fail(TT_ERR_DATA, "%s: tools[%zu] is a text that is no JSON object", json->origin, i);
        else if (status == TT_ERR_DATA)
            tt_while("reading tools[%zu] of %s", i, json->origin);
        if (status == TT_OK && tt_json_append_copy(out, text.data != NULL ? parsed.root : tool) != 0)
            status = TT_ERR_MEMORY;
        tt_json_deinit(&parsed);
        TT_TRY(status);
    }
    return TT_OK;
}

/* A list, or a list as JSON text; an empty one is none. */
static tt_status read_tools(struct tt_conversation *out, const struct tt_json *json)
{
    const struct tt_json_value *value = tt_json_get(json->root, "tools");
    struct tt_json parsed = {0};
    tt_status status = TT_OK;
    if (value == NULL || tt_json_is_null(value)) return TT_OK;
    if (tt_json_is_string(value)) {
        struct tt_span text = tt_json_span(value);
        if (text.bytes == 0) return TT_OK;
        status = tt_json_parse(text.data, text.bytes, "tools", &parsed);
        if (status != TT_OK) tt_while("reading 'tools' of %s", json->origin);
        TT_GO(status);
        value = parsed.root;
    }
    if (tt_json_is_null(value)) goto out;
    if (!tt_json_is_list(value)) TT_GO(tt_fail(TT_ERR_DATA, "%s: 'tools' must be a list", json->origin));
    out->tools = tt_json_new_list();
    if (out->tools == NULL) TT_GO(TT_ERR_MEMORY);
    status = copy_tools(json, value, out->tools);
out:
    tt_json_deinit(&parsed);
    return status;
}

static tt_status copy_member(const struct tt_json *json, const char *name, bool list,
                             struct tt_json_value **out)
{
    const struct tt_json_value *value = tt_json_get(json->root, name);
    if (value == NULL || tt_json_is_null(value)) return TT_OK;
    if (list ? !tt_json_is_list(value) : !tt_json_is_object(value))
        return tt_fail(TT_ERR_DATA, "%s: '%s' must be %s", json->origin, name, list ? "a list" : "an object");
    *out = tt_json_copy(value);
    return *out == NULL ? TT_ERR_MEMORY : TT_OK;
}

/* ShareGPT's form of a preference, as LLaMA-Factory has it: the list ends before the answers. */
static tt_status refuse_preference(const struct tt_json *json)
{
    if (tt_json_get(json->root, "chosen") == NULL) return TT_OK;
    tt_fail(TT_ERR_DATA, "%s: the row has a preference ('conversations' with 'chosen' and 'rejected')",
            json->origin);
    tt_hint("objectives dpo, orpo and cpo train on preferences; to train on the chosen answers alone, append "
            "each to its 'conversations' and remove 'chosen'");
    return TT_ERR_DATA;
}

static tt_status read_messages(struct tt_conversation *out, const struct tt_json *json)
{
    const struct tt_json_value *row = json->root, *prompt = tt_json_get(row, "prompt");
    if (tt_json_is_list(prompt) && tt_json_is_list(tt_json_get(row, "completion"))) {
        if (tt_json_count(prompt) == 0)
            return tt_fail(TT_ERR_DATA, "%s: 'prompt' has no message", json->origin);
        TT_TRY(read_system(out, json, prompt));
        TT_TRY(read_list(out, json, "prompt"));
        out->prompt_count = tt_json_count(out->messages);
        return read_list(out, json, "completion");
    }
    const char *name = list_name(row);
    if (name == NULL) return read_alpaca(out, json);
    const struct tt_json_value *list = tt_json_get(row, name);
    if (strcmp(name, "messages") != 0) TT_TRY(refuse_preference(json));
    if (tt_json_count(list) == 0)
        return tt_fail(TT_ERR_DATA, "%s: the conversation has no message", json->origin);
    TT_TRY(read_system(out, json, list));
    return read_list(out, json, name);
}

/* The members of a row beside its messages. */
static tt_status read_others(struct tt_conversation *out, const struct tt_json *row)
{
    TT_TRY(read_tools(out, row));
    TT_TRY(copy_member(row, "documents", true, &out->documents));
    return copy_member(row, "chat_template_kwargs", false, &out->kwargs);
}

tt_status tt_conversation_read(const struct tt_json *row, struct tt_conversation *out)
{
    TT_TRY(tt_conversation_check_size(row));
    TT_TRY(check_values(row));
    struct tt_conversation read = {.messages = tt_json_new_list()};
    tt_status status = read.messages == NULL ? TT_ERR_MEMORY : TT_OK;
    TT_GO(status);
    TT_GO(read_messages(&read, row));
    TT_GO(read_others(&read, row));
    *out = read;
    return TT_OK;
out:
    tt_conversation_deinit(&read);
    return status;
}

/* The list of messages that both answers continue, or NULL: the answers have it themselves. */
static const char *prompt_name(const struct tt_json_value *row)
{
    return tt_json_is_list(tt_json_get(row, "prompt")) ? "prompt" : list_name(row);
}

static tt_status read_side(struct tt_conversation *out, const struct tt_json *json, const char *side)
{
    const char *prompt = prompt_name(json->root);
    const struct tt_json_value *answer = tt_json_get(json->root, side);
    const struct tt_json_value *first = prompt != NULL ? tt_json_get(json->root, prompt) : answer;
    out->messages = tt_json_new_list();
    if (out->messages == NULL) return TT_ERR_MEMORY;
    TT_TRY(read_system(out, json, first));
    if (prompt != NULL) TT_TRY(read_list(out, json, prompt));
    out->prompt_count = tt_json_count(out->messages);
    if (tt_json_is_list(answer)) {
        TT_TRY(read_list(out, json, side));
    } else {
        struct message message = {.json = json, .list = side};
        TT_TRY(read_message(out, &message, answer));
    }
    for (size_t i = out->prompt_count; i < tt_json_count(out->messages); i++)
        if (out->trains[i] == TT_MESSAGE_SKIPPED)
            return tt_fail(TT_ERR_DATA, "%s: '%s' has a message that is not to train", json->origin, side);
    if (tt_json_count(out->messages) == out->prompt_count)
        return tt_fail(TT_ERR_DATA, "%s: '%s' has no message", json->origin, side);
    return read_others(out, json);
}

/* TRL's extract_prompt: at least one message of each remains. */
static size_t common_messages(const struct tt_conversation pair[2])
{
    size_t a = tt_json_count(pair[0].messages), b = tt_json_count(pair[1].messages), i = 0;
    size_t most = (a < b ? a : b) - 1;
    while (i < most && tt_json_equal(tt_json_at(pair[0].messages, i), tt_json_at(pair[1].messages, i))) i++;
    return i;
}

tt_status tt_conversation_read_pair(const struct tt_json *row, struct tt_conversation out[2])
{
    struct tt_conversation pair[2] = {{0}, {0}};
    tt_status status = TT_OK;
    TT_TRY(tt_conversation_check_size(row));
    TT_TRY(check_values(row));
    TT_GO(read_side(&pair[0], row, "chosen"));
    TT_GO(read_side(&pair[1], row, "rejected"));
    if (prompt_name(row->root) == NULL) pair[0].prompt_count = pair[1].prompt_count = common_messages(pair);
    if (pair[0].prompt_count == 0) {
        tt_fail(TT_ERR_DATA, "%s: 'chosen' and 'rejected' have no prompt", row->origin);
        tt_hint("it is a list of messages in 'prompt', or the first messages of both, which are then equal");
        TT_GO(TT_ERR_DATA);
    }
    memcpy(out, pair, sizeof pair);
    return TT_OK;
out:
    tt_conversation_deinit(&pair[0]);
    tt_conversation_deinit(&pair[1]);
    return status;
}

void tt_conversation_deinit(struct tt_conversation *conversation)
{
    tt_json_release(conversation->messages);
    tt_json_release(conversation->tools);
    tt_json_release(conversation->documents);
    tt_json_release(conversation->kwargs);
    tt_free(conversation->trains);
    *conversation = (struct tt_conversation){0};
}

const char *tt_conversation_role(const struct tt_conversation *conversation, size_t index)
{
    return tt_json_text(tt_json_get(tt_json_at(conversation->messages, index), "role"));
}
