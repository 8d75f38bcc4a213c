#include "job/shared_prompt.h"

#include "base/number.h"
#include "job/resolve.h"

static bool has_states(const struct tt_model_facts *facts)
{
    for (int64_t i = 0; i < facts->num_hidden_layers; i++)
        if (facts->layers[i].state.heads > 0 || facts->layers[i].state.conv_rows > 0) return true;
    return false;
}

/* NULL: sharing is exact. */
static const char *find_reason(const struct tt_job_spec *job, const struct tt_model_facts *facts,
                               const struct tt_model_options *options, int64_t length, bool trains)
{
    struct tt_rope_parts parts;
    tt_rope_parts_make(facts, length, &parts);
    if (has_states(facts))
        return "layers of the model carry a state from token to token, which each answer would have to take "
               "over";
    if (parts.count > 1) return "LongRoPE turns a prompt by the length of its row";
    if (trains && options->lora.enabled && options->lora.dropout > 0)
        return "lora_dropout draws the prompt's elements for each answer";
    if (trains && job->run.neftune_noise_alpha > 0)
        return "neftune_noise_alpha draws the prompt's noise for each answer";
    return NULL;
}

tt_status tt_shared_prompt_settle(const struct tt_job_spec *job, const struct tt_model_facts *facts,
                                  const struct tt_model_options *options, int64_t length, bool trains,
                                  struct tt_shared_prompt *out)
{
    const int setting = job->data.shared_prompt;
    struct tt_shared_prompt prompt = {.answers = tt_data_samples_each(&job->data)};
    if (job->objective.ops->rows == NULL) prompt.answers = 1;
    if (prompt.answers > 1 && setting != 0) prompt.reason = find_reason(job, facts, options, length, trains);
    if (prompt.answers > 1 && setting == 0) prompt.reason = "shared_prompt is false";
    if (setting > 0 && (prompt.answers < 2 || prompt.reason != NULL)) {
        tt_status status =
            prompt.answers < 2
                ? tt_fail(TT_ERR_USAGE,
                          "shared_prompt is true, and objective %s has one answer for each prompt",
                          job->objective.ops->name)
                : tt_fail(TT_ERR_USAGE, "shared_prompt is true, and would not be exact: %s", prompt.reason);
        tt_hint("leave shared_prompt out: prompts are shared where that is exact");
        return status;
    }
    prompt.shares = prompt.answers > 1 && prompt.reason == NULL;
    *out = prompt;
    return TT_OK;
}

void tt_shared_prompt_describe(const struct tt_shared_prompt *prompt, int64_t all, int64_t computed,
                               char *text, size_t text_bytes)
{
    text[0] = '\0';
    if (prompt->answers < 2) return;
    if (!prompt->shares)
        tt_snprintf(text, text_bytes, "prompts are computed for each answer: %s", prompt->reason);
    else if (all > 0)
        tt_snprintf(text, text_bytes,
                    "prompts are computed once for the %zu answers of a row: %.1f %% of its tokens",
                    prompt->answers, 100.0 * (double)computed / (double)all);
    else
        tt_snprintf(text, text_bytes, "prompts are computed once for the %zu answers of a row",
                    prompt->answers);
}
