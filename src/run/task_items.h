/* The items of evaluations: contexts with choices, with an end that the model should find, or with an answer that it
 * should generate. A file of JSON lines, tokenized as lm-evaluation-harness does it.
 *
 *   {"task": "sums", "context": "1 + 1 =", "choices": ["2", "3"], "answer": 0}     likelihood: the best of the choices
 *   {"task": "ends", "context": "one two", "target": " three"}                      likelihood: the greedy end
 *   {"task": "adds", "context": "Q: 1 + 1\nA:", "target": "2", "until": ["\n"], "max_tokens": 8, "regex": "(\\d+)"}
 *
 * Others: "delimiter" before a choice (a blank) or a target (nothing), "match" (which match of regex: 0; -1 the last),
 * "strip". */
#ifndef TT_RUN_TASK_ITEMS_H
#define TT_RUN_TASK_ITEMS_H

#include "base/json.h"
#include "job/inputs.h"

enum tt_item_kind { TT_ITEM_CHOICES, TT_ITEM_END, TT_ITEM_TEXT };

/* One of the prompts of an item: a context with a choice, or a context. */
struct tt_item_prompt {
    struct tt_ids ids;
    size_t context;    /* ids before those whose likelihood counts */
    size_t characters; /* of the choice */
};

struct tt_task_item {
    struct tt_json json;
    const char *task;
    size_t line;
    enum tt_item_kind kind;
    struct tt_item_prompt *prompts; /* owned: one for each choice, else one */
    size_t prompt_count;
    int64_t answer;        /* number of the right choice */
    struct tt_span target; /* of the other kinds */
    struct tt_span until[16];
    size_t until_count;
    int64_t max_tokens;
    struct tt_span regex; /* data NULL: none */
    int64_t match;
    bool strip;
};

/* A zeroed struct is empty. */
struct tt_task_items {
    struct tt_task_item *data;
    size_t count, capacity;
    size_t prompts; /* of all items */
    size_t longest; /* tokens of a prompt with its answer */
};
/* `inputs` has the tokenizer. Errors name the line. */
TT_MUST_USE tt_status tt_task_items_read(const struct tt_inputs *inputs, const char *path,
                                         struct tt_task_items *items);
void tt_task_items_deinit(struct tt_task_items *items);

#endif
