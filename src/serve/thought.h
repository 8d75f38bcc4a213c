/* The parts of an answer that are reasoning, apart from its text, by the form that the chat template writes:
 * <think> ... </think> before the text (Qwen3, DeepSeek R1 and others), or <|channel>thought ... <channel|> (Gemma 4);
 * where the prompt ends with the first mark, the answer begins inside; harmony (gpt-oss): messages of channels,
 * <|channel|>NAME<|message|> ... <|end|>. `analysis` and a commentary without a recipient are reasoning, `final` is the
 * text. A message to functions.NAME is a call of that tool, and stands in the text as
 * <tool_call>{"name": ..., "arguments": ...}</tool_call>. */
#ifndef TT_SERVE_THOUGHT_H
#define TT_SERVE_THOUGHT_H

#include "base/str.h"

enum tt_thought_form {
    TT_THOUGHT_NONE,
    TT_THOUGHT_TAGS,
    /* Whose marks are special tokens, which the answer must show. */
    TT_THOUGHT_CHANNEL,
    TT_THOUGHT_HARMONY,
};

/* That of a template; NULL: none. */
enum tt_thought_form tt_thought_form_of(const char *chat_template);
/* Whether an answer to a prompt that ends so begins inside the reasoning. */
bool tt_thought_begins_inside(enum tt_thought_form form, struct tt_span prompt_end);

/* Appends to `thought` and `text` what `answer`, the answer so far, has more of them; what they have stays the
 * beginning of what they get. Not finished: an end that may become a mark, or blanks before one, waits. */
TT_MUST_USE tt_status tt_thought_split(enum tt_thought_form form, bool inside, struct tt_span answer,
                                       bool finished, struct tt_str *thought, struct tt_str *text);

#endif
