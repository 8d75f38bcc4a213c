#include "run/exact_match.h"

#include <string.h>

#include "comm/host_values.h"
#include "infer/generation_rank.h"
#include "job/inputs.h"

/* Prompts that a rank completes at the same time, at least where it has as many. */
enum { SLOTS_LEAST = 16 };

/* The text without leading and trailing white space. */
static struct tt_span trimmed(const struct tt_str *text)
{
    static const char blanks[] = {' ', '\n', '\t', '\r'};
    struct tt_span span = {tt_str_text(text), text->bytes};
    for (; span.bytes > 0 && memchr(blanks, *span.data, sizeof blanks) != NULL; span.bytes--) span.data++;
    while (span.bytes > 0 && memchr(blanks, span.data[span.bytes - 1], sizeof blanks) != NULL) span.bytes--;
    return span;
}

static bool same_answer(const struct tt_str *a, const struct tt_str *b)
{
    struct tt_span x = trimmed(a), y = trimmed(b);
    return x.bytes == y.bytes && memcmp(x.data, y.data, x.bytes) == 0;
}

tt_status tt_exact_match_init(const struct tt_inputs *inputs, int64_t max_new_tokens,
                              const struct tt_device_config *device, int ranks, struct tt_exact_match *match)
{
    tt_status status = TT_OK;
    *match = (struct tt_exact_match){.inputs = inputs, .options.max_new_tokens = max_new_tokens};
    TT_GO(tt_row_prompts_read(inputs, inputs->eval, 0, &match->prompts));
    TT_GO(tt_generator_limits(inputs, SLOTS_LEAST, (int64_t)match->prompts.longest, &match->options,
                              &match->limits));
    tt_generation_limits_open(device, ((int64_t)match->prompts.count + ranks - 1) / ranks, SLOTS_LEAST,
                              &match->limits);
out:
    if (status != TT_OK) tt_while("preparing exact match");
    if (status != TT_OK) tt_exact_match_deinit(match);
    return status;
}

void tt_exact_match_deinit(struct tt_exact_match *match)
{
    tt_row_prompts_deinit(&match->prompts);
    *match = (struct tt_exact_match){0};
}

/* The leader's count. */
struct count {
    const struct tt_exact_match *match;
    const struct tt_cancel *cancel;
    int64_t matches;
    struct tt_str text;
};

static tt_status compare_answer(void *context, int index, const int32_t *ids, size_t count)
{
    struct count *counted = context;
    const struct tt_inputs *inputs = counted->match->inputs;
    TT_TRY(tt_tokenizer_decode(inputs->tokenizer, ids, count, true, &counted->text));
    counted->matches += same_answer(&counted->text, &counted->match->prompts.references[index]);
    return TT_OK;
}

static tt_status complete(void *context, struct tt_generation_team *team)
{
    struct count *counted = context;
    const struct tt_exact_match *match = counted->match;
    const struct tt_generate_visitor visitor = {.done = compare_answer, .context = counted};
    struct tt_generator *generator = NULL;
    tt_status status = tt_generator_borrow(team, &match->options, &generator);
    if (status == TT_OK)
        status = tt_generator_run(generator, match->prompts.prompts, (int)match->prompts.count, &visitor,
                                  counted->cancel);
    tt_generator_destroy(generator);
    return status;
}

tt_status tt_exact_match_run(const struct tt_exact_match *match, struct tt_rank *rank,
                             const struct tt_cancel *cancel, int64_t *matches, int64_t *rows)
{
    tt_status status = TT_OK;
    struct tt_generation_team *team = NULL;
    struct count counted = {.match = match, .cancel = cancel};
    TT_GO(tt_generation_team_attach(rank, match->inputs, &match->limits, &team));
    TT_GO(tt_generation_team_run(team, complete, &counted));
    TT_GO(tt_comm_host_share(rank->world, &counted.matches, sizeof counted.matches));
    *matches = counted.matches;
    *rows = (int64_t)match->prompts.count;
out:
    if (status != TT_OK && status != TT_ERR_CANCELLED) tt_while("measuring exact match");
    tt_generation_team_destroy(team);
    tt_str_deinit(&counted.text);
    return status;
}
