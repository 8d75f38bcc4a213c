/* tt_completer of trimtab.h: completions of prompts, on ranks that live as long as it. */
#include <string.h>

#include "api/job.h"
#include "base/alloc.h"
#include "job/inputs.h"
#include "job/resolve.h"
#include "text/tokenizer.h"

enum { PROMPT_TOKENS_DEFAULT = 1024 };

struct tt_completer {
    struct tt_job *job; /* borrowed */
    struct tt_inputs inputs;
    struct tt_generator *generator;
    struct tt_tokenizer_scratch *scratch;
};

/* The prompts of one call. */
struct group {
    struct tt_completer *completer;
    tt_completion_visitor *visitor; /* may be NULL */
    void *context;
    int count;
    /* [count] */
    struct tt_ids *prompts;
    struct tt_tokenizer_stream *streams;
    bool *ended; /* by the visitor */
    struct tt_str piece;
    tt_status status;      /* first failure inside on_token */
    struct tt_error error; /* its record */
};

/* The largest prompt: the setting, or the model's positions minus the new tokens, at most PROMPT_TOKENS_DEFAULT. */
static int64_t prompt_tokens(const struct tt_job_target *target, const struct tt_model_facts *model)
{
    if (target->max_prompt_tokens > 0) return target->max_prompt_tokens;
    int64_t room = model->max_position_embeddings - target->generate.max_new_tokens;
    return room < PROMPT_TOKENS_DEFAULT ? room : PROMPT_TOKENS_DEFAULT;
}

static tt_status build(struct tt_completer *completer)
{
    struct tt_job *job = completer->job;
    const struct tt_job_spec *config = &job->target.config;
    job->resolved = true;
    TT_TRY(tt_generate_resolve(job->settings, &job->target.config, &job->target.generate));
    const struct tt_generate_options options =
        tt_generate_options_of(&job->target.generate, config->run.seed);
    const struct tt_inputs_config parts = tt_inputs_config_of(config, TT_INPUTS_GENERATE);
    TT_TRY(tt_inputs_open(&parts, &completer->inputs));
    if (completer->inputs.tokenizer == NULL)
        return tt_fail(TT_ERR_DATA, "'%s' has no tokenizer.json, which prompts need",
                       config->model.model_name_or_path);
    TT_TRY(tt_tokenizer_scratch_create(completer->inputs.tokenizer, &completer->scratch));
    return tt_generator_create(&config->device, &completer->inputs, config->run.per_device_eval_batch_size,
                               prompt_tokens(&job->target, &completer->inputs.model_facts), &options,
                               &completer->generator);
}

tt_status tt_completer_create(struct tt_job *job, struct tt_completer **out)
{
    struct tt_completer *completer = tt_calloc(1, sizeof *completer);
    if (completer == NULL) return TT_ERR_MEMORY;
    completer->job = job;
    tt_status status = build(completer);
    if (status == TT_OK)
        *out = completer;
    else
        tt_completer_destroy(completer);
    return status;
}

void tt_completer_destroy(struct tt_completer *completer)
{
    if (completer == NULL) return;
    tt_generator_destroy(completer->generator);
    tt_tokenizer_scratch_destroy(completer->scratch);
    tt_inputs_close(&completer->inputs);
    tt_free(completer);
}

static tt_status group_init(struct group *group)
{
    size_t size = (size_t)group->count;
    group->prompts = tt_calloc(size, sizeof *group->prompts);
    group->streams = tt_calloc(size, sizeof *group->streams);
    group->ended = tt_calloc(size, sizeof *group->ended);
    if (group->prompts == NULL || group->streams == NULL || group->ended == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < size; i++) group->streams[i].skip_special = true;
    return TT_OK;
}

static void group_deinit(struct group *group)
{
    for (int i = 0; i < group->count; i++) {
        if (group->prompts != NULL) tt_ids_deinit(&group->prompts[i]);
        if (group->streams != NULL) tt_tokenizer_stream_deinit(&group->streams[i]);
    }
    tt_free(group->prompts);
    tt_free(group->streams);
    tt_free(group->ended);
    tt_str_deinit(&group->piece);
}

/* Calls the visitor with the new piece, unless it is empty. */
static void visit(struct group *group, int index)
{
    if (group->piece.bytes == 0 || group->visitor == NULL) return;
    const char *text = tt_str_text(&group->piece);
    group->ended[index] = !group->visitor(group->context, index, text, group->piece.bytes);
}

static bool is_stopped(const struct group *group)
{
    return atomic_load(&group->completer->job->cancel.requests) > 0;
}

static bool on_token(void *context, int index, int32_t token)
{
    struct group *group = context;
    if (group->status != TT_OK || is_stopped(group)) return false;
    tt_str_clear(&group->piece);
    group->status = tt_tokenizer_stream_push(group->completer->inputs.tokenizer, &group->streams[index],
                                             token, &group->piece);
    if (group->status != TT_OK) tt_error_copy(&group->error);
    if (group->status == TT_OK) visit(group, index);
    return group->status == TT_OK && !group->ended[index];
}

static tt_status encode_prompts(struct group *group, const char *const *prompts)
{
    for (int i = 0; i < group->count; i++) {
        tt_status status = tt_tokenizer_encode(group->completer->inputs.tokenizer, group->completer->scratch,
                                               prompts[i], strlen(prompts[i]), true, &group->prompts[i]);
        if (status != TT_OK) {
            tt_while("tokenizing prompt %d", i + 1);
            return status;
        }
    }
    return TT_OK;
}

/* The rest of the text, where a completion ended within a character. */
static tt_status on_done(void *context, int index, const int32_t *ids, size_t count)
{
    struct group *group = context;
    (void)ids, (void)count;
    if (group->status != TT_OK || group->ended[index] || is_stopped(group)) return TT_OK;
    tt_str_clear(&group->piece);
    TT_TRY(tt_tokenizer_stream_finish(group->completer->inputs.tokenizer, &group->streams[index],
                                      &group->piece));
    visit(group, index);
    return TT_OK;
}

tt_status tt_completer_run(struct tt_completer *completer, const char *const *prompts, int count,
                           tt_completion_visitor *visitor, void *context)
{
    struct group group = {.completer = completer, .visitor = visitor, .context = context, .count = count};
    const struct tt_generate_visitor generate = {on_token, on_done, &group};
    tt_status status = group_init(&group);
    if (status == TT_OK) status = encode_prompts(&group, prompts);
    if (status == TT_OK)
        status =
            tt_generator_run(completer->generator, group.prompts, count, &generate, &completer->job->cancel);
    if (status == TT_OK && group.status != TT_OK) status = tt_error_restore(&group.error);
    group_deinit(&group);
    return status;
}
