/* A conversation without some of its messages, or of what they say. */
#include <string.h>

#include "data/conversation.h"

/* The text behind the reasoning of a content; NULL: there is none. */
static const char *find_answer(const char *content)
{
    const char *at = content + strspn(content, " \t\r\n"), *end = NULL;
    if (strncmp(at, "<think>", strlen("<think>")) != 0) return NULL;
    while ((at = strstr(at, "</think>")) != NULL) end = at += strlen("</think>");
    return end != NULL ? end + strspn(end, "\n") : NULL;
}

static tt_status copy_without_reasoning(const struct tt_json_value *message, struct tt_json_value *list)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    struct tt_json_value *copy = tt_json_copy(message);
    if (copy == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < 3; i++) (void)tt_json_remove(copy, names[i]);
    const char *role = tt_json_text(tt_json_get(copy, "role"));
    const char *content = tt_json_text(tt_json_get(copy, "content"));
    const char *answer =
        content != NULL && role != NULL && strcmp(role, "assistant") == 0 ? find_answer(content) : NULL;
    if (answer != NULL && tt_json_set(copy, "content", tt_json_new_string(answer)) != 0) {
        tt_json_release(copy);
        return TT_ERR_MEMORY;
    }
    return tt_json_append(list, copy) == 0 ? TT_OK : TT_ERR_MEMORY;
}

/* Replaces the messages by those from `first` up to `end`. */
static tt_status replace_messages(struct tt_conversation *conversation, size_t first, size_t end,
                                  bool reasoning)
{
    struct tt_json_value *list = tt_json_new_list();
    tt_status status = list == NULL ? TT_ERR_MEMORY : TT_OK;
    for (size_t i = first; i < end && status == TT_OK; i++) {
        const struct tt_json_value *message = tt_json_at(conversation->messages, i);
        if (!reasoning)
            status = copy_without_reasoning(message, list);
        else if (tt_json_append_copy(list, message) != 0)
            status = TT_ERR_MEMORY;
    }
    if (status != TT_OK) {
        tt_json_release(list);
        return status;
    }
    tt_json_release(conversation->messages);
    conversation->messages = list;
    return TT_OK;
}

tt_status tt_conversation_drop_reasoning(struct tt_conversation *conversation)
{
    return replace_messages(conversation, 0, tt_json_count(conversation->messages), false);
}

tt_status tt_conversation_drop_system(struct tt_conversation *conversation)
{
    size_t count = tt_json_count(conversation->messages);
    const char *role = count > 0 ? tt_conversation_role(conversation, 0) : NULL;
    if (role == NULL || strcmp(role, "system") != 0) return TT_OK;
    if (count == 1 || conversation->prompt_count == 1)
        return tt_fail(TT_ERR_DATA, "drop_system_message leaves no message of a conversation or its prompt");
    TT_TRY(replace_messages(conversation, 1, count, true));
    memmove(conversation->trains, conversation->trains + 1, count - 1);
    if (conversation->prompt_count > 0) conversation->prompt_count--;
    return TT_OK;
}

tt_status tt_conversation_cut(struct tt_conversation *conversation, size_t count)
{
    if (count >= tt_json_count(conversation->messages)) return TT_OK;
    return replace_messages(conversation, 0, count, true);
}
