#include "serve/thought.h"

#include <string.h>

static const char think[] = "<think>", end_think[] = "</think>", thought_channel[] = "<|channel>thought",
                  end_channel[] = "<channel|>";
static const char channel[] = "<|channel|>", message[] = "<|message|>", call_end[] = "</tool_call>";

enum tt_thought_form tt_thought_form_of(const char *chat_template)
{
    if (chat_template == NULL) return TT_THOUGHT_NONE;
    if (strstr(chat_template, channel) != NULL) return TT_THOUGHT_HARMONY;
    if (strstr(chat_template, end_channel) != NULL) return TT_THOUGHT_CHANNEL;
    return strstr(chat_template, end_think) != NULL ? TT_THOUGHT_TAGS : TT_THOUGHT_NONE;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static struct tt_span skip_blanks(struct tt_span text)
{
    while (text.bytes > 0 && is_blank(*text.data)) text.data++, text.bytes--;
    return text;
}

static struct tt_span drop_blanks(struct tt_span text)
{
    while (text.bytes > 0 && is_blank(text.data[text.bytes - 1])) text.bytes--;
    return text;
}

static const char *seek(struct tt_span text, const char *word)
{
    return text.bytes > 0 ? memmem(text.data, text.bytes, word, strlen(word)) : NULL;
}

static struct tt_span from(struct tt_span text, const char *at)
{
    return (struct tt_span){at, (size_t)(text.data + text.bytes - at)};
}

/* The text without an end that may become the mark. */
static struct tt_span hold(struct tt_span text, const char *mark)
{
    size_t part = strlen(mark) - 1;
    while (part > 0 && (part > text.bytes || memcmp(text.data + text.bytes - part, mark, part) != 0)) part--;
    text.bytes -= part;
    return text;
}

/* A part of an answer: pieces are joined; what was appended in earlier calls is passed over. */
struct part {
    struct tt_str *out;
    size_t known, passed; /* bytes of `out` at first; of the pieces so far */
};

static tt_status add(struct part *part, struct tt_span piece)
{
    size_t old = part->passed >= part->known ? 0 : part->known - part->passed;
    part->passed += piece.bytes;
    if (old >= piece.bytes) return TT_OK;
    return tt_str_append(part->out, piece.data + old, piece.bytes - old);
}

static tt_status add_word(struct part *part, const char *word)
{
    return add(part, tt_span_of(word));
}

/* ---- Tags ---- */

struct tags {
    const char *begin, *end;
};

static const struct tags *tags_of(enum tt_thought_form form)
{
    static const struct tags words = {think, end_think}, channels = {thought_channel, end_channel};
    return form == TT_THOUGHT_CHANNEL ? &channels : &words;
}

bool tt_thought_begins_inside(enum tt_thought_form form, struct tt_span prompt_end)
{
    if (form != TT_THOUGHT_TAGS && form != TT_THOUGHT_CHANNEL) return false;
    return tt_span_ends_with(drop_blanks(prompt_end), tags_of(form)->begin);
}

static tt_status split_tags(const struct tags *tags, bool inside, struct tt_span answer, bool finished,
                            struct part *thought, struct part *text)
{
    struct tt_span rest = skip_blanks(answer);
    if (!inside) {
        size_t bytes = strlen(tags->begin);
        if (!tt_span_starts_with(rest, tags->begin)) {
            size_t common = rest.bytes < bytes ? rest.bytes : bytes;
            if (!finished && memcmp(tags->begin, rest.data != NULL ? rest.data : "", common) == 0)
                return TT_OK;
            return add(text, answer);
        }
        rest = skip_blanks(from(rest, rest.data + bytes));
    }
    const char *end = seek(rest, tags->end);
    struct tt_span reasoning = end != NULL ? (struct tt_span){rest.data, (size_t)(end - rest.data)} : rest;
    if (end == NULL && !finished) reasoning = hold(reasoning, tags->end);
    TT_TRY(add(thought, drop_blanks(reasoning)));
    return end != NULL ? add(text, skip_blanks(from(rest, end + strlen(tags->end)))) : TT_OK;
}

/* ---- Harmony ---- */

static const char *const ends[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>"};

/* The end of a message; its length is in *bytes. */
static const char *find_end(struct tt_span body, size_t *bytes)
{
    const char *first = NULL;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const char *found = seek(body, ends[i]);
        if (found == NULL || (first != NULL && found >= first)) continue;
        first = found;
        *bytes = strlen(ends[i]);
    }
    return first;
}

/* The name behind to=functions. in the header of a message; empty: none. */
static struct tt_span recipient_of(struct tt_span header)
{
    static const char word[] = "to=functions.";
    const char *found = seek(header, word);
    struct tt_span name = found != NULL ? from(header, found + sizeof word - 1) : (struct tt_span){0};
    size_t bytes = 0;
    while (bytes < name.bytes && !is_blank(name.data[bytes]) && name.data[bytes] != '<') bytes++;
    return (struct tt_span){name.data, bytes};
}

static tt_status add_call(struct part *text, struct tt_span name, struct tt_span body)
{
    TT_TRY(add_word(text, "<tool_call>{\"name\": \""));
    TT_TRY(add(text, name));
    TT_TRY(add_word(text, "\", \"arguments\": "));
    TT_TRY(add(text, body));
    TT_TRY(add_word(text, "}"));
    return add_word(text, call_end);
}

static tt_status split_harmony(struct tt_span answer, bool finished, struct part *thought, struct part *text)
{
    struct tt_span rest = answer;
    bool thought_before = false;
    if (seek(rest, channel) == NULL && finished) return add(text, rest); /* not of this form */
    for (const char *found; (found = seek(rest, message)) != NULL;) {
        struct tt_span header = {rest.data, (size_t)(found - rest.data)},
                       body = from(rest, found + sizeof message - 1);
        struct tt_span name = recipient_of(header);
        size_t mark = 0;
        const char *end = find_end(body, &mark);
        rest = end != NULL ? from(body, end + mark) : (struct tt_span){0};
        if (end != NULL) body.bytes = (size_t)(end - body.data);
        bool whole = end != NULL || finished;
        for (size_t i = 0; !whole && i < sizeof ends / sizeof *ends; i++) body = hold(body, ends[i]);
        if (name.bytes > 0) {
            if (whole) TT_TRY(add_call(text, name, body));
        } else if (seek(header, "final") != NULL) {
            TT_TRY(add(text, body));
        } else {
            if (thought_before && body.bytes > 0) TT_TRY(add_word(thought, "\n"));
            thought_before = thought_before || body.bytes > 0;
            TT_TRY(add(thought, body));
        }
    }
    return TT_OK;
}

tt_status tt_thought_split(enum tt_thought_form form, bool inside, struct tt_span answer, bool finished,
                           struct tt_str *thought, struct tt_str *text)
{
    struct part reasoning = {thought, thought->bytes, 0}, content = {text, text->bytes, 0};
    if (form == TT_THOUGHT_HARMONY) return split_harmony(answer, finished, &reasoning, &content);
    return split_tags(tags_of(form), inside, answer, finished, &reasoning, &content);
}
