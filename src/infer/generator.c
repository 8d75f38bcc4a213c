#include "infer/generator.h"

#include "base/alloc.h"
#include "job/inputs.h"

struct tt_generator {
    struct tt_generate_options options;
    struct tt_generation_team *team, *own; /* own: NULL where it is borrowed */
    uint64_t completions;                  /* so far */
};

/* A run over prompts[count]. */
struct run {
    struct tt_generator *generator;
    const struct tt_generate_visitor *visitor;
    int count, next_done; /* completions before it are done */
    int64_t first_id;     /* of the requests, which have consecutive ids; 0: none */
    size_t *shown;        /* [count], tokens that the visitor has got */
};

struct tt_generate_options tt_generate_options_of(const struct tt_generate_config *config, int64_t seed)
{
    return (struct tt_generate_options){
        .max_new_tokens = config->max_new_tokens,
        .sampling = tt_sampling_options_of(config),
        .seed = (uint64_t)seed,
        .ignore_eos = config->ignore_eos,
    };
}

tt_status tt_generator_limits(const struct tt_inputs *inputs, int64_t batch_size, int64_t max_prompt_tokens,
                              const struct tt_generate_options *options, struct tt_generation_limits *limits)
{
    int64_t positions = inputs->model_facts.max_position_embeddings;
    if (max_prompt_tokens < 1) max_prompt_tokens = 1;
    *limits = (struct tt_generation_limits){.slots = batch_size,
                                            .length = max_prompt_tokens + options->max_new_tokens};
    if (limits->length <= positions) return TT_OK;
    return tt_fail(TT_ERR_USAGE,
                   "%lld prompt tokens and %lld new ones are more than the model's %lld positions",
                   (long long)max_prompt_tokens, (long long)options->max_new_tokens, (long long)positions);
}

tt_status tt_generator_borrow(struct tt_generation_team *team, const struct tt_generate_options *options,
                              struct tt_generator **out)
{
    struct tt_generator *generator = tt_calloc(1, sizeof *generator);
    if (generator == NULL) return TT_ERR_MEMORY;
    generator->options = *options;
    generator->team = team;
    *out = generator;
    return TT_OK;
}

tt_status tt_generator_create(const struct tt_device_spec *device, const struct tt_inputs *inputs,
                              int64_t batch_size, int64_t max_prompt_tokens,
                              const struct tt_generate_options *options, struct tt_generator **out)
{
    struct tt_generation_limits limits;
    struct tt_generation_engine *engine = NULL;
    struct tt_generation_team *team = NULL;
    TT_TRY(tt_generator_limits(inputs, batch_size, max_prompt_tokens, options, &limits));
    TT_TRY(tt_generation_open(device, inputs, &limits, &engine));
    TT_TRY(tt_generation_team_create(engine, &team));
    tt_status status = tt_generator_borrow(team, options, out);
    if (status == TT_OK)
        (*out)->own = team;
    else
        tt_generation_team_destroy(team);
    return status;
}

void tt_generator_destroy(struct tt_generator *generator)
{
    if (generator == NULL) return;
    tt_generation_team_destroy(generator->own);
    tt_free(generator);
}

static tt_status submit(struct run *run, const struct tt_ids *prompts)
{
    const struct tt_generator *generator = run->generator;
    const struct tt_generate_options *options = &generator->options;
    for (int i = 0; i < run->count; i++) {
        struct tt_generation_request request = {
            .prompt = prompts[i].data,
            .prompt_count = prompts[i].count,
            .max_new_tokens = options->max_new_tokens,
            .sampling = options->sampling,
            .seed = tt_generation_seed(options->seed, generator->completions + (uint64_t)i),
            .ignore_end = options->ignore_eos,
            .grammar = options->grammar,
            .adapter_off = options->adapters != NULL && options->adapters[i] < 0,
            .adapter = options->adapters != NULL && options->adapters[i] > 0 ? options->adapters[i] : 0,
        };
        int64_t id;
        tt_status status = tt_generation_team_submit(generator->team, &request, &id);
        if (status != TT_OK) tt_while("completing prompt %d", i + 1);
        TT_TRY(status);
        if (i == 0) run->first_id = id;
    }
    return TT_OK;
}

/* Gives the new tokens of all running requests to the visitor. */
static tt_status show_tokens(struct run *run)
{
    const struct tt_generate_visitor *visitor = run->visitor;
    for (int i = run->next_done; i < run->count; i++) {
        struct tt_generation_progress progress;
        TT_TRY(tt_generation_team_poll(run->generator->team, run->first_id + i, &progress));
        bool goes_on = true;
        while (run->shown[i] < progress.count && goes_on) {
            int32_t token = progress.tokens[run->shown[i]++];
            if (visitor->token != NULL) goes_on = visitor->token(visitor->context, i, token);
        }
        if (!goes_on) tt_generation_team_cancel(run->generator->team, run->first_id + i);
    }
    return TT_OK;
}

/* Reports the completions that have ended, as far as those before them have; `all`: that have begun. */
static tt_status report_done(struct run *run, bool all)
{
    const struct tt_generate_visitor *visitor = run->visitor;
    for (; run->next_done < run->count; run->next_done++) {
        struct tt_generation_progress progress;
        int64_t id = run->first_id + run->next_done;
        TT_TRY(tt_generation_team_poll(run->generator->team, id, &progress));
        bool begun = progress.state != TT_GENERATION_WAITING;
        if (!(all ? begun : tt_generation_is_finished(progress.state))) return TT_OK;
        if (visitor->done != NULL)
            TT_TRY(visitor->done(visitor->context, run->next_done, progress.tokens, progress.count));
        tt_generation_team_release(run->generator->team, id);
    }
    return TT_OK;
}

static tt_status run_steps(struct run *run, const struct tt_cancel *cancel)
{
    for (bool busy = true; busy;) {
        bool stops = cancel != NULL && atomic_load(&cancel->requests) > 0;
        if (stops) {
            TT_TRY(report_done(run, true));
            return tt_fail(TT_ERR_CANCELLED, "stopped on request after %d of %d completions", run->next_done,
                           run->count);
        }
        TT_TRY(tt_generation_team_step(run->generator->team, &busy));
        TT_TRY(show_tokens(run));
        TT_TRY(report_done(run, false));
    }
    return TT_OK;
}

tt_status tt_generator_run(struct tt_generator *generator, const struct tt_ids *prompts, int count,
                           const struct tt_generate_visitor *visitor, const struct tt_cancel *cancel)
{
    struct run run = {.generator = generator, .visitor = visitor, .count = count};
    run.shown = tt_calloc((size_t)count + 1, sizeof *run.shown);
    if (run.shown == NULL) return TT_ERR_MEMORY;
    tt_status status = submit(&run, prompts);
    if (status == TT_OK) status = run_steps(&run, cancel);
    if (status == TT_OK) generator->completions += (uint64_t)count;
    for (int i = 0; i < count && run.first_id > 0; i++)
        tt_generation_team_release(generator->team, run.first_id + i);
    tt_free(run.shown);
    return status;
}
