#include "data/chat_row.h"

#include <string.h>

#include "base/str.h"
#include "base/utf8.h"
#include "data/chat_mask.h"
#include "data/chat_roles.h"

struct reading {
    struct tt_chat *chat;
    struct tt_tokenizer_scratch *scratch;
    const struct tt_data_config *config;
    const struct tt_json *row;
    struct tt_conversation conversation;
    struct tt_chat_text text;
    struct tt_ids *ids;
    struct tt_ranges ranges;
    struct tt_str *supervised;
    struct tt_chat_row_report report;
};

/* Settings of single messages count only where turns train. */
static tt_status check_messages(const struct reading *r)
{
    size_t count = tt_json_count(r->conversation.messages);
    for (size_t i = 0; i < count && !r->config->assistant_only_loss; i++) {
        if (r->conversation.trains[i] != TT_MESSAGE_SKIPPED) continue;
        tt_fail(TT_ERR_DATA, "%s: message %zu is not to train, which needs assistant_only_loss",
                r->row->origin, i + 1);
        tt_hint("without it every token of a conversation trains");
        return TT_ERR_DATA;
    }
    if (r->config->completion_only_loss == 1 && r->conversation.prompt_count == 0) {
        return tt_fail(TT_ERR_DATA,
                       "%s: completion_only_loss is set, but the row has no prompt and completion",
                       r->row->origin);
    }
    return TT_OK;
}

/* Leaves the conversation up to message number `part` of those that train. */
static tt_status cut_to_part(struct reading *r, size_t part)
{
    size_t count = tt_json_count(r->conversation.messages), parts = 0, end = count;
    for (size_t i = r->conversation.prompt_count; i < count; i++)
        if (tt_chat_trains(r->config, &r->conversation, i) && parts++ == part) end = i + 1;
    r->report.parts = parts > 0 ? parts : 1; /* a row where nothing trains is left to the mask */
    return tt_conversation_cut(&r->conversation, end);
}

/* Adds a role that is no usual one to the report: a misspelling of one, and where messages are chosen for training one
 * that is not chosen. */
static void report_role(struct reading *r, size_t index)
{
    const char *role = tt_conversation_role(&r->conversation, index);
    bool near, masked = r->config->assistant_only_loss && !tt_chat_trains(r->config, &r->conversation, index);
    if (tt_chat_role_is_usual(role, &near) || !(near || masked)) return;
    struct tt_chat_row_report *report = &r->report;
    char name[TT_ROLE_BYTES];
    (void)tt_utf8_printable(role, strlen(role), "", name, sizeof name);
    for (int i = 0; i < report->role_count; i++)
        if (strcmp(report->roles[i].name, name) == 0) return;
    if (report->role_count == TT_ROLES_MAX) return;
    struct tt_role_count *added = &report->roles[report->role_count++];
    *added = (struct tt_role_count){.conversations = 1, .masked = masked};
    memcpy(added->name, name, sizeof name);
}

/* An answer without text, tool calls and reasoning. */
static bool says_nothing(const struct tt_json_value *message)
{
    static const char *const said[] = {"tool_calls", "reasoning_content", "reasoning", "thinking"};
    const char *role = tt_json_text(tt_json_get(message, "role"));
    const char *content = tt_json_text(tt_json_get(message, "content"));
    if (role == NULL || strcmp(role, "assistant") != 0 || content == NULL) return false;
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++)
        if (tt_json_get(message, said[i]) != NULL) return false;
    return content[strspn(content, " \t\r\n")] == '\0';
}

/* Whether the rendering lacks the name of a tool that the message calls: the template does not write calls. */
static bool loses_calls(const struct reading *r, const struct tt_json_value *message)
{
    const struct tt_json_value *call = tt_json_at(tt_json_get(message, "tool_calls"), 0);
    const struct tt_json_value *function = tt_json_get(call, "function");
    struct tt_span name = tt_json_span(tt_json_get(function != NULL ? function : call, "name"));
    const struct tt_jinja_output *output = &r->text.output;
    return name.bytes > 0 &&
           (output->bytes == 0 || memmem(output->text, output->bytes, name.data, name.bytes) == NULL);
}

static void report_calls(struct reading *r, size_t count)
{
    for (size_t i = 0; i < count; i++)
        r->report.answer_empty |= loses_calls(r, tt_json_at(r->conversation.messages, i));
}

static void report_messages(struct reading *r, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        report_role(r, i);
        r->report.answer_empty |= says_nothing(tt_json_at(r->conversation.messages, i));
    }
}

static void skip_first(struct reading *r, size_t count)
{
    if (count > r->supervised->bytes) count = r->supervised->bytes;
    if (count > 0) memset(r->supervised->data, 0, count);
}

/* The prompt does not train, as far as its ids are the first ones of the row. */
static tt_status skip_prompt(struct reading *r)
{
    struct tt_chat_text asked = {0};
    struct tt_ids ids = {0};
    struct tt_ranges ranges = {0};
    tt_status status = TT_OK;
    TT_GO(tt_chat_render(r->chat, &r->conversation, r->conversation.prompt_count, true, &asked));
    TT_GO(tt_chat_encode(r->chat, r->scratch, &asked, &ids, &ranges));
    size_t same = 0;
    while (same < ids.count && same < r->ids->count && ids.data[same] == r->ids->data[same]) same++;
    r->report.prompt_mismatch = same < ids.count;
    if (r->config->completion_only_loss != 0) skip_first(r, same);
out:
    tt_chat_text_deinit(&asked);
    tt_ids_deinit(&ids);
    tt_ranges_deinit(&ranges);
    return status;
}

static tt_status mask_turns(struct reading *r)
{
    struct tt_str mask = {0};
    struct tt_chat_tokens tokens = {r->ids, &r->ranges};
    struct tt_chat_mask_report report;
    tt_status status = TT_OK;
    TT_GO(tt_chat_mask(r->chat, &r->conversation, &r->text, &tokens, &mask, &report));
    r->report.history_differs = report.history_differs;
    bool weighted =
        memchr(r->conversation.trains, TT_MESSAGE_SKIPPED, tt_json_count(r->conversation.messages)) != NULL;
    bool any = mask.bytes > 0 && memchr(mask.data, 1, mask.bytes) != NULL;
    if (!any && !(weighted && !report.any_turn)) {
        tt_fail(TT_ERR_DATA, "%s: assistant_only_loss is set, and no token of the row would train",
                r->row->origin);
        tt_hint("%s", report.any_turn ? "the chat template writes nothing of the message that trains"
                                      : "the row has no message of a role that trains (roles_to_train)");
        TT_GO(TT_ERR_DATA);
    }
    for (size_t i = 0; i < mask.bytes; i++) r->supervised->data[i] = r->supervised->data[i] && mask.data[i];
out:
    tt_str_deinit(&mask);
    return status;
}

tt_status tt_chat_row_read(struct tt_chat *chat, struct tt_tokenizer_scratch *scratch,
                           const struct tt_json *row, size_t part, struct tt_ids *ids,
                           struct tt_str *supervised, struct tt_chat_row_report *report)
{
    struct reading r = {.chat = chat,
                        .scratch = scratch,
                        .config = tt_chat_config(chat),
                        .row = row,
                        .ids = ids,
                        .supervised = supervised,
                        .report.parts = 1};
    tt_status status = TT_OK;
    TT_GO(tt_conversation_read(row, &r.conversation));
    if (r.config->drop_system_message) TT_GO(tt_conversation_drop_system(&r.conversation));
    TT_GO(check_messages(&r));
    if (r.config->reasoning == TT_REASONING_DROP) TT_GO(tt_conversation_drop_reasoning(&r.conversation));
    if (r.config->sample_per_turn) TT_GO(cut_to_part(&r, part));
    size_t count = tt_json_count(r.conversation.messages);
    report_messages(&r, count);
    TT_GO(tt_chat_render(chat, &r.conversation, count, false, &r.text));
    report_calls(&r, count);
    TT_GO(tt_chat_encode(chat, scratch, &r.text, ids, &r.ranges));
    tt_str_clear(supervised);
    TT_GO(tt_str_append_fill(supervised, 1, ids->count));
    if (r.conversation.prompt_count > 0) TT_GO(skip_prompt(&r));
    if (r.config->assistant_only_loss) TT_GO(mask_turns(&r));
    r.report.roles_mapped = r.conversation.maps_roles;
    *report = r.report;
out:
    tt_conversation_deinit(&r.conversation);
    tt_chat_text_deinit(&r.text);
    tt_ranges_deinit(&r.ranges);
    return status;
}

/* The first `count` messages, with the header of an answer if `asks`. */
static tt_status encode_messages(const struct reading *r, size_t count, bool asks, struct tt_ids *ids)
{
    struct tt_chat_text text = {0};
    struct tt_ranges ranges = {0};
    tt_status status = tt_chat_render(r->chat, &r->conversation, count, asks, &text);
    if (status == TT_OK) status = tt_chat_encode(r->chat, r->scratch, &text, ids, &ranges);
    tt_chat_text_deinit(&text);
    tt_ranges_deinit(&ranges);
    return status;
}

tt_status tt_chat_pair_read(struct tt_chat *chat, struct tt_tokenizer_scratch *scratch,
                            const struct tt_json *row, struct tt_ids *prompt, struct tt_ids sides[2],
                            bool *roles_mapped)
{
    struct tt_conversation pair[2] = {{0}, {0}};
    tt_status status = TT_OK;
    TT_GO(tt_conversation_read_pair(row, pair));
    for (size_t side = 0; side < 2; side++) {
        if (tt_chat_config(chat)->drop_system_message) TT_GO(tt_conversation_drop_system(&pair[side]));
        if (tt_chat_config(chat)->reasoning == TT_REASONING_DROP)
            TT_GO(tt_conversation_drop_reasoning(&pair[side]));
        const struct reading r = {.chat = chat, .scratch = scratch, .conversation = pair[side]};
        if (side == 0) TT_GO(encode_messages(&r, pair[0].prompt_count, true, prompt));
        TT_GO(encode_messages(&r, tt_json_count(pair[side].messages), false, &sides[side]));
    }
    *roles_mapped = pair[0].maps_roles || pair[1].maps_roles;
out:
    tt_conversation_deinit(&pair[0]);
    tt_conversation_deinit(&pair[1]);
    return status;
}

tt_status tt_chat_prompt(struct tt_chat *chat, struct tt_tokenizer_scratch *scratch,
                         const struct tt_json *row, struct tt_str *text, struct tt_ids *ids)
{
    struct tt_conversation conversation = {0};
    struct tt_chat_text asked = {0};
    struct tt_ranges ranges = {0};
    tt_status status = TT_OK;
    TT_GO(tt_conversation_read(row, &conversation));
    TT_GO(tt_chat_render(chat, &conversation, tt_json_count(conversation.messages), true, &asked));
    TT_GO(tt_chat_encode(chat, scratch, &asked, ids, &ranges));
    tt_str_clear(text);
    TT_GO(tt_str_append(text, asked.output.text, asked.output.bytes));
out:
    tt_conversation_deinit(&conversation);
    tt_chat_text_deinit(&asked);
    tt_ranges_deinit(&ranges);
    return status;
}
