#include "run/exact_match.h"

#include <string.h>

#include "base/alloc.h"
#include "comm/host_values.h"
#include "infer/generation_rank.h"
#include "job/inputs.h"

/* Prompts that a rank completes at the same time. */
enum { SLOTS = 16 };

/* Without leading and trailing white space. */
static struct tt_span trimmed(const char *text)
{
    while (*text == ' ' || *text == '\n' || *text == '\t' || *text == '\r') text++;
    size_t bytes = strlen(text);
    while (bytes > 0 && strchr(" \n\t\r", text[bytes - 1]) != NULL) bytes--;
    return (struct tt_span){text, bytes};
}

static bool same_answer(const char *a, const char *b)
{
    struct tt_span x = trimmed(a), y = trimmed(b);
    return x.bytes == y.bytes && memcmp(x.data, y.data, x.bytes) == 0;
}

static tt_status read_prompts(const struct tt_inputs *inputs, struct tt_exact_match *match)
{
    tt_status status = TT_OK;
    struct tt_tokenizer_scratch *scratch = NULL;
    size_t count = tt_dataset_count(inputs->eval);
    match->rows = tt_calloc(count + 1, sizeof *match->rows);
    match->prompts = tt_calloc(count + 1, sizeof *match->prompts);
    if (match->rows == NULL || match->prompts == NULL) return TT_ERR_MEMORY;
    if (inputs->tokenizer == NULL) return TT_OK;
    TT_GO(tt_tokenizer_scratch_create(inputs->tokenizer, &scratch));
    for (size_t i = 0; i < count; i++) {
        const char *prompt = tt_dataset_prompt(inputs->eval, i);
        if (prompt == NULL || tt_dataset_completion(inputs->eval, i) == NULL) continue;
        struct tt_ids *ids = &match->prompts[match->count];
        match->rows[match->count++] = i;
        TT_GO(tt_tokenizer_encode(inputs->tokenizer, scratch, prompt, strlen(prompt), true, ids));
        if (ids->count > match->longest) match->longest = ids->count;
    }
out:
    tt_tokenizer_scratch_destroy(scratch);
    return status;
}

tt_status tt_exact_match_init(const struct tt_inputs *inputs, int64_t max_new_tokens,
                              const struct tt_device_config *device, struct tt_exact_match *match)
{
    tt_status status = TT_OK;
    *match = (struct tt_exact_match){.inputs = inputs, .options.max_new_tokens = max_new_tokens};
    TT_GO(read_prompts(inputs, match));
    if (match->count == 0)
        TT_GO(
            tt_fail(TT_ERR_USAGE, "exact match needs rows with a prompt and a completion, and a tokenizer"));
    TT_GO(tt_generator_limits(inputs, SLOTS, (int64_t)match->longest, &match->options, &match->limits));
    tt_generation_limits_fill(device, &match->limits);
out:
    if (status != TT_OK) tt_while("preparing exact match");
    if (status != TT_OK) tt_exact_match_deinit(match);
    return status;
}

void tt_exact_match_deinit(struct tt_exact_match *match)
{
    for (size_t i = 0; i < match->count; i++) tt_ids_deinit(&match->prompts[i]);
    tt_free(match->prompts);
    tt_free(match->rows);
    *match = (struct tt_exact_match){0};
}

/* The part of a rank: rows first, first + stride, ... */
struct part {
    const struct tt_exact_match *match;
    size_t first, stride;
    struct tt_ids *prompts; /* borrowed from `match` */
    int count;
    double matches;
    struct tt_str text;
};

static tt_status compare_answer(void *context, int index, const int32_t *ids, size_t count)
{
    struct part *part = context;
    const struct tt_inputs *inputs = part->match->inputs;
    size_t row = part->match->rows[part->first + (size_t)index * part->stride];
    TT_TRY(tt_tokenizer_decode(inputs->tokenizer, ids, count, true, &part->text));
    part->matches += same_answer(tt_str_text(&part->text), tt_dataset_completion(inputs->eval, row));
    return TT_OK;
}

tt_status tt_exact_match_run(const struct tt_exact_match *match, struct tt_rank *rank,
                             const struct tt_cancel *cancel, int64_t *matches, int64_t *rows)
{
    tt_status status = TT_OK;
    struct tt_generator *generator = NULL;
    struct part part = {.match = match,
                        .first = (size_t)tt_comm_rank(rank->world),
                        .stride = (size_t)tt_comm_world_size(rank->world)};
    const struct tt_generate_visitor visitor = {.done = compare_answer, .context = &part};
    part.prompts = tt_calloc(match->count / part.stride + 1, sizeof *part.prompts);
    if (part.prompts == NULL) TT_GO(TT_ERR_MEMORY);
    for (size_t i = part.first; i < match->count; i += part.stride)
        part.prompts[part.count++] = match->prompts[i];
    TT_GO(tt_generator_attach(rank, match->inputs, &match->limits, &match->options, &generator));
    TT_GO(tt_generator_run(generator, part.prompts, part.count, &visitor, cancel));
    double sums[2] = {part.matches, part.count};
    TT_GO(tt_comm_host_sum(rank->world, sums, 2));
    *matches = (int64_t)sums[0];
    *rows = (int64_t)sums[1];
out:
    if (status != TT_OK && status != TT_ERR_CANCELLED) tt_while("measuring exact match");
    tt_generator_destroy(generator);
    tt_str_deinit(&part.text);
    tt_free(part.prompts);
    return status;
}
