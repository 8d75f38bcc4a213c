#include "run/task_items.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

enum { MAX_TOKENS = 256, FILE_BYTES_MAX = 1 << 30, UNTIL_MAX = 16 };

/* The tools that read an item. */
struct reader {
    const struct tt_tokenizer *tokenizer;
    struct tt_tokenizer_scratch *scratch;
    struct tt_str text;
    struct tt_ids alone; /* the context without a choice */
};

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
}

/* The ids with the special tokens that the tokenizer adds, unless the text begins with the first of them already. */
static tt_status encode(struct reader *r, struct tt_span text, struct tt_ids *ids)
{
    int32_t bos = tt_tokenizer_bos_id(r->tokenizer);
    const char *token = bos >= 0 ? tt_tokenizer_token(r->tokenizer, bos) : NULL;
    size_t bytes = token != NULL ? strlen(token) : 0;
    bool begun = bytes > 0 && text.bytes >= bytes && memcmp(text.data, token, bytes) == 0;
    ids->count = ids->beyond = 0;
    return tt_tokenizer_encode(r->tokenizer, r->scratch, text.data, text.bytes, !begun, ids);
}

static size_t count_characters(struct tt_span text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.bytes; i++) count += ((unsigned char)text.data[i] & 0xC0) != 0x80;
    return count;
}

/* An empty context is the token that a text begins with, else the one that it ends with. */
static tt_status encode_end_alone(struct reader *r, struct tt_item_prompt *prompt)
{
    int32_t first = tt_tokenizer_bos_id(r->tokenizer);
    if (first < 0) first = tt_tokenizer_eos_id(r->tokenizer);
    if (first < 0)
        return tt_fail(TT_ERR_DATA, "an empty context needs a tokenizer with a first or last token");
    TT_TRY(tt_ids_append(&prompt->ids, first));
    prompt->context = 1;
    return tt_tokenizer_encode(r->tokenizer, r->scratch, tt_str_text(&r->text), r->text.bytes, false,
                               &prompt->ids);
}

/* The context with an end. White space at the end of the context belongs to what follows it. */
static tt_status make_pair(struct reader *r, struct tt_span context, struct tt_span delimiter,
                           struct tt_span end, struct tt_item_prompt *prompt)
{
    size_t kept = context.bytes;
    while (kept > 0 && is_space(context.data[kept - 1])) kept--;
    tt_str_clear(&r->text);
    TT_TRY(tt_str_append(&r->text, context.data, context.bytes));
    TT_TRY(tt_str_append(&r->text, delimiter.data, delimiter.bytes));
    TT_TRY(tt_str_append(&r->text, end.data, end.bytes));
    prompt->characters = count_characters(end);
    if (context.bytes == 0) return encode_end_alone(r, prompt);
    TT_TRY(encode(r, (struct tt_span){tt_str_text(&r->text), r->text.bytes}, &prompt->ids));
    TT_TRY(encode(r, (struct tt_span){context.data, kept}, &r->alone));
    prompt->context = r->alone.count;
    if (prompt->context == 0 || prompt->context >= prompt->ids.count)
        return tt_fail(TT_ERR_DATA, "the end of the context has no token of its own");
    return TT_OK;
}

/* The text of a member; an empty one where it is missing, with `fallback`. */
static tt_status text_of(const struct tt_task_item *item, const char *name, const char *fallback,
                         struct tt_span *out)
{
    const struct tt_json_value *value = tt_json_get(item->json.root, name);
    if (value == NULL && fallback != NULL) {
        *out = (struct tt_span){fallback, strlen(fallback)};
        return TT_OK;
    }
    *out = tt_json_span(value);
    return out->data != NULL ? TT_OK : tt_fail(TT_ERR_DATA, "'%s' must be a text", name);
}

static tt_status make_prompts(struct tt_task_item *item, size_t count)
{
    item->prompts = tt_calloc(count, sizeof *item->prompts);
    if (item->prompts == NULL) return TT_ERR_MEMORY;
    item->prompt_count = count;
    return TT_OK;
}

/* The right choice, by its number or its text. */
static tt_status read_answer(struct tt_task_item *item, const struct tt_json_value *choices)
{
    const struct tt_json_value *answer = tt_json_get(item->json.root, "answer");
    item->answer = tt_json_is_integer(answer) ? tt_json_integer(answer) : -1;
    for (size_t i = 0; tt_json_is_string(answer) && i < tt_json_count(choices); i++)
        if (tt_json_equal(answer, tt_json_at(choices, i))) item->answer = (int64_t)i;
    if (item->answer >= 0 && item->answer < (int64_t)tt_json_count(choices)) return TT_OK;
    return tt_fail(TT_ERR_DATA, "'answer' must be one of 'choices', or its number from 0");
}

static tt_status read_choices(struct reader *r, struct tt_task_item *item, struct tt_span context,
                              struct tt_span delimiter)
{
    const struct tt_json_value *choices = tt_json_get(item->json.root, "choices");
    if (!tt_json_is_list(choices) || tt_json_count(choices) < 2)
        return tt_fail(TT_ERR_DATA, "'choices' must be a list of at least 2 texts");
    item->kind = TT_ITEM_CHOICES;
    TT_TRY(read_answer(item, choices));
    TT_TRY(make_prompts(item, tt_json_count(choices)));
    for (size_t i = 0; i < item->prompt_count; i++) {
        struct tt_span choice = tt_json_span(tt_json_at(choices, i));
        if (choice.bytes == 0) return tt_fail(TT_ERR_DATA, "each of 'choices' must be a text");
        TT_TRY(make_pair(r, context, delimiter, choice, &item->prompts[i]));
    }
    return TT_OK;
}

static tt_status read_until(struct tt_task_item *item)
{
    const struct tt_json_value *until = tt_json_get(item->json.root, "until");
    size_t count = tt_json_is_list(until) ? tt_json_count(until) : until != NULL;
    for (size_t i = 0; i < count; i++) {
        struct tt_span text = tt_json_span(tt_json_is_list(until) ? tt_json_at(until, i) : until);
        if (text.bytes == 0 || i == UNTIL_MAX)
            return tt_fail(TT_ERR_DATA, "'until' must be a text, or a list of at most %d", UNTIL_MAX);
        item->until[item->until_count++] = text;
    }
    return TT_OK;
}

static tt_status read_generated(struct reader *r, struct tt_task_item *item, struct tt_span context)
{
    const struct tt_json_value *root = item->json.root;
    item->kind = TT_ITEM_TEXT;
    item->max_tokens = MAX_TOKENS;
    if (context.bytes == 0) return tt_fail(TT_ERR_DATA, "'context' must not be empty");
    TT_TRY(read_until(item));
    TT_TRY(tt_json_opt_int(&item->json, root, "max_tokens", &item->max_tokens));
    if (item->max_tokens < 1 || item->max_tokens > 1 << 20)
        return tt_fail(TT_ERR_DATA, "'max_tokens' must be a number from 1 to %d", 1 << 20);
    TT_TRY(tt_json_opt_int(&item->json, root, "match", &item->match));
    if (item->match < -1 || item->match > 1000)
        return tt_fail(TT_ERR_DATA, "'match' must be -1, or a number from 0");
    TT_TRY(tt_json_opt_bool(&item->json, root, "strip", &item->strip));
    if (tt_json_get(root, "regex") != NULL) TT_TRY(text_of(item, "regex", NULL, &item->regex));
    TT_TRY(make_prompts(item, 1));
    return encode(r, context, &item->prompts[0].ids);
}

static tt_status read_item(struct reader *r, struct tt_task_item *item)
{
    const struct tt_json_value *root = item->json.root;
    struct tt_span context, delimiter, task;
    if (!tt_json_is_object(root)) return tt_fail(TT_ERR_DATA, "an item must be a JSON object");
    TT_TRY(text_of(item, "task", "task", &task));
    TT_TRY(text_of(item, "context", NULL, &context));
    TT_TRY(text_of(item, "delimiter", tt_json_get(root, "choices") != NULL ? " " : "", &delimiter));
    item->task = task.data;
    if (tt_json_get(root, "choices") != NULL) return read_choices(r, item, context, delimiter);
    TT_TRY(text_of(item, "target", NULL, &item->target));
    if (tt_json_get(root, "until") != NULL || tt_json_get(root, "max_tokens") != NULL)
        return read_generated(r, item, context);
    item->kind = TT_ITEM_END;
    TT_TRY(make_prompts(item, 1));
    return make_pair(r, context, delimiter, item->target, &item->prompts[0]);
}

static void item_deinit(struct tt_task_item *item)
{
    for (size_t i = 0; i < item->prompt_count; i++) tt_ids_deinit(&item->prompts[i].ids);
    tt_free(item->prompts);
    tt_json_deinit(&item->json);
}

static tt_status add_item(struct reader *r, struct tt_span line, const char *origin, size_t number,
                          struct tt_task_items *items)
{
    TT_TRY(tt_grow(&items->data, items->count, &items->capacity));
    struct tt_task_item *item = &items->data[items->count++];
    *item = (struct tt_task_item){.line = number};
    TT_TRY(tt_json_parse(line.data, line.bytes, origin, &item->json));
    TT_TRY(read_item(r, item));
    items->prompts += item->prompt_count;
    for (size_t i = 0; i < item->prompt_count; i++) {
        size_t tokens = item->prompts[i].ids.count + (size_t)item->max_tokens;
        if (tokens > items->longest) items->longest = tokens;
    }
    return TT_OK;
}

static tt_status read_lines(struct reader *r, const struct tt_str *file, const char *path,
                            struct tt_task_items *items)
{
    char origin[300];
    size_t number = 1;
    for (const char *at = tt_str_text(file), *end = at + file->bytes; at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (stop == NULL) stop = end;
        const struct tt_span line = {at, (size_t)(stop - at)};
        size_t blanks = 0;
        while (blanks < line.bytes && is_space(line.data[blanks])) blanks++;
        snprintf(origin, sizeof origin, "%.200s line %zu", path, number);
        tt_status status = blanks < line.bytes ? add_item(r, line, origin, number, items) : TT_OK;
        if (status != TT_OK) {
            tt_while("reading %s", origin);
            return status;
        }
        at = stop + 1;
    }
    return items->count > 0 ? TT_OK : tt_fail(TT_ERR_DATA, "'%s' has no items", path);
}

tt_status tt_task_items_read(const struct tt_inputs *inputs, const char *path, struct tt_task_items *items)
{
    struct reader r = {.tokenizer = inputs->tokenizer};
    struct tt_str file = {0};
    tt_status status = TT_OK;
    if (r.tokenizer == NULL) return tt_fail(TT_ERR_DATA, "the model's folder has no tokenizer.json");
    TT_GO(tt_tokenizer_scratch_create(r.tokenizer, &r.scratch));
    TT_GO(tt_file_read(path, FILE_BYTES_MAX, &file));
    TT_GO(read_lines(&r, &file, path, items));
out:
    tt_tokenizer_scratch_destroy(r.scratch);
    tt_str_deinit(&r.text);
    tt_ids_deinit(&r.alone);
    tt_str_deinit(&file);
    return status;
}

void tt_task_items_deinit(struct tt_task_items *items)
{
    for (size_t i = 0; i < items->count; i++) item_deinit(&items->data[i]);
    tt_free(items->data);
    *items = (struct tt_task_items){0};
}
