#include "run/row_prompts.h"

#include <string.h>

#include "base/alloc.h"

/* The last tokens of a sample that train: [first, end). False: there are none, or at most one token, that of the
 * beginning, is before them: no prompt. */
static bool find_answer(const struct tt_sample *sample, int32_t *first, int32_t *end)
{
    int32_t last = sample->count;
    while (last > 0 && !sample->supervised[last - 1]) last--;
    *first = *end = last;
    while (*first > 0 && sample->supervised[*first - 1]) (*first)--;
    return *end > *first && *first > 1;
}

/* A row of prompt and completion: its text is tokenized without what follows. */
static tt_status take_text(const struct tt_tokenizer *tokenizer, struct tt_tokenizer_scratch *scratch,
                           const char *prompt, const char *completion, struct tt_ids *ids,
                           struct tt_str *reference)
{
    TT_TRY(tt_str_append_text(reference, completion));
    return tt_tokenizer_encode(tokenizer, scratch, prompt, strlen(prompt), true, ids);
}

static tt_status take_sample(const struct tt_tokenizer *tokenizer, const struct tt_sample *sample,
                             int32_t first, int32_t end, struct tt_ids *ids, struct tt_str *reference)
{
    for (int32_t t = 0; t < first; t++) TT_TRY(tt_ids_append(ids, sample->ids[t]));
    return tt_tokenizer_decode(tokenizer, sample->ids + first, (size_t)(end - first), true, reference);
}

static tt_status take_row(const struct tt_inputs *inputs, const struct tt_dataset *dataset,
                          struct tt_tokenizer_scratch *scratch, size_t row, struct tt_row_prompts *prompts)
{
    const char *prompt = tt_dataset_prompt(dataset, row), *completion = tt_dataset_completion(dataset, row);
    const struct tt_sample sample = tt_dataset_sample(dataset, row);
    struct tt_ids *ids = &prompts->prompts[prompts->count];
    struct tt_str *reference = &prompts->references[prompts->count];
    int32_t first, end;
    bool text = prompt != NULL && completion != NULL;
    if (!text && !find_answer(&sample, &first, &end)) return TT_OK;
    prompts->rows[prompts->count++] = row / tt_dataset_group_size(dataset);
    TT_TRY(text ? take_text(inputs->tokenizer, scratch, prompt, completion, ids, reference)
                : take_sample(inputs->tokenizer, &sample, first, end, ids, reference));
    if (ids->count > prompts->longest) prompts->longest = ids->count;
    return TT_OK;
}

/* The second answer of the preference whose first one is sample `row`. */
static tt_status take_rejected(const struct tt_inputs *inputs, const struct tt_dataset *dataset, size_t row,
                               struct tt_str *rejected)
{
    const struct tt_sample sample = tt_dataset_sample(dataset, row + 1);
    int32_t first, end;
    if (!find_answer(&sample, &first, &end)) return TT_OK;
    return tt_tokenizer_decode(inputs->tokenizer, sample.ids + first, (size_t)(end - first), true, rejected);
}

static tt_status no_prompt(const struct tt_inputs *inputs)
{
    if (inputs->tokenizer == NULL)
        return tt_fail(TT_ERR_USAGE, "the model folder has no tokenizer, which prompts and answers need");
    tt_status status = tt_fail(TT_ERR_USAGE, "no row of the evaluation data has a prompt");
    tt_hint("rows of prompt and completion have one, and conversations with assistant_only_loss");
    return status;
}

tt_status tt_row_prompts_read(const struct tt_inputs *inputs, const struct tt_dataset *dataset, size_t most,
                              struct tt_row_prompts *prompts)
{
    tt_status status = TT_OK;
    struct tt_tokenizer_scratch *scratch = NULL;
    size_t count = tt_dataset_count(dataset), room = most > 0 && most < count ? most : count;
    size_t each = tt_dataset_group_size(dataset);
    *prompts = (struct tt_row_prompts){
        .rows = tt_calloc(room + 1, sizeof *prompts->rows),
        .prompts = tt_calloc(room + 1, sizeof *prompts->prompts),
        .references = tt_calloc(room + 1, sizeof *prompts->references),
        .rejected = each == 2 ? tt_calloc(room + 1, sizeof *prompts->rejected) : NULL,
    };
    if (prompts->rows == NULL || prompts->prompts == NULL || prompts->references == NULL ||
        (each == 2 && prompts->rejected == NULL))
        TT_GO(TT_ERR_MEMORY);
    if (inputs->tokenizer == NULL) TT_GO(no_prompt(inputs));
    TT_GO(tt_tokenizer_scratch_create(inputs->tokenizer, &scratch));
    /* The samples of a group have the same prompt. */
    for (size_t i = 0; i < count && prompts->count < room; i += each) {
        size_t before = prompts->count;
        TT_GO(take_row(inputs, dataset, scratch, i, prompts));
        if (prompts->rejected != NULL && prompts->count > before)
            TT_GO(take_rejected(inputs, dataset, i, &prompts->rejected[before]));
    }
    if (prompts->count == 0) status = no_prompt(inputs);
out:
    tt_tokenizer_scratch_destroy(scratch);
    if (status != TT_OK) tt_row_prompts_deinit(prompts);
    return status;
}

void tt_row_prompts_deinit(struct tt_row_prompts *prompts)
{
    for (size_t i = 0; i < prompts->count; i++) {
        tt_ids_deinit(&prompts->prompts[i]);
        tt_str_deinit(&prompts->references[i]);
        if (prompts->rejected != NULL) tt_str_deinit(&prompts->rejected[i]);
    }
    tt_free(prompts->rows);
    tt_free(prompts->prompts);
    tt_free(prompts->references);
    tt_free(prompts->rejected);
    *prompts = (struct tt_row_prompts){0};
}
