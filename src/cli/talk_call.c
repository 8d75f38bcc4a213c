#include "cli/talk_call.h"

#include <math.h>
#include <string.h>

#include "job/resolve.h"
#include "run/generate_run.h"

#define OWN(member) .offset = offsetof(struct tt_talk_call, member)

/* One row reads as one paragraph. */
/* clang-format off */
static const struct tt_setting rows[] = {
    {.name = "chat_template_path", .type = TT_SETTING_STRING, OWN(chat_template_path), .path = TT_PATH_READ,
     .help = "Chat template: a file, or the folder of a tokenizer; not given: the adapter's, else the model's."},
    {.name = "date", .type = TT_SETTING_STRING, OWN(date),
     .help = "Date that the chat template prints, YYYY-MM-DD or YYYY-MM-DD HH:MM:SS; not given: now."},
    {.name = "max_new_tokens", .aliases = "max_tokens", .type = TT_SETTING_INT, OWN(spec.generate.max_new_tokens),
     .default_text = "1024", .minimum = 1, .maximum = 1 << 20, .help = "Largest number of tokens of an answer."},
    {.name = "context_length", .aliases = "max_model_len", .type = TT_SETTING_INT, OWN(context_length),
     .default_text = "4096", .minimum = 2, .maximum = 1 << 20,
     .help = "Largest number of tokens of a conversation with its answer, for which memory is kept; limited to the "
             "model's positions."},
    {.name = "generation_config", .type = TT_SETTING_CHOICE, OWN(generation_config), .choices = "auto none",
     .default_text = "auto",
     .help = "auto: what generation_config.json of the model says of do_sample, temperature, top_k, top_p, min_p and "
             "repetition_penalty holds where no setting does. none: answers are greedy unless settings say otherwise."},
    {.name = "seed", .type = TT_SETTING_INT, OWN(spec.job.run.seed), .default_text = "42", .minimum = 0,
     .maximum = INFINITY, .help = "Seed of all random numbers."},
    {.name = NULL},
};
/* clang-format on */

size_t tt_talk_call_sections(const char *title, const struct tt_setting *own,
                             struct tt_setting_section *sections)
{
    const struct tt_job_rows *job = &tt_job_rows[TT_JOB_GENERATE];
    size_t count = 0;
    sections[count++] = (struct tt_setting_section){title, own, 0};
    sections[count++] = (struct tt_setting_section){"Answers", rows, 0};
    for (size_t i = 0; i < job->count; i++) {
        const struct tt_setting_section *section = &job->sections[i];
        bool replaced = section->rows == tt_completion_settings || strcmp(section->title, "Batch") == 0;
        if (!replaced) sections[count++] = *section;
    }
    return count;
}

tt_status tt_talk_call_resolve(struct tt_talk_call *call, struct tt_settings *settings)
{
    TT_TRY(tt_generate_resolve(settings, &call->spec.job, &call->spec.generate));
    struct tt_sampling_given *given = &call->given;
    *given = (struct tt_sampling_given){
        .temperature = tt_settings_is_set(settings, "temperature"),
        .top_k = tt_settings_is_set(settings, "top_k"),
        .top_p = tt_settings_is_set(settings, "top_p"),
        .min_p = tt_settings_is_set(settings, "min_p"),
        .repetition_penalty = tt_settings_is_set(settings, "repetition_penalty"),
    };
    given->draws = given->temperature || given->top_k || given->top_p || given->min_p ||
                   tt_settings_is_set(settings, "do_sample");
    return TT_OK;
}

tt_status tt_talk_call_sampling(const struct tt_talk_call *call, const struct tt_inputs *inputs,
                                struct tt_report *report, struct tt_sampling_options *sampling)
{
    struct tt_str said = {0}, line = {0};
    *sampling = tt_sampling_options_of(&call->spec.generate);
    if (call->generation_config == TT_GENERATION_CONFIG_NONE) return TT_OK;
    tt_status status = tt_sampling_recommend(inputs, &call->given, sampling, &said);
    if (status == TT_OK && said.bytes > 0)
        status = tt_str_printf(
            &line, "sampling by generation_config.json: %s (--generation_config none: without it)",
            tt_str_text(&said));
    if (status == TT_OK && said.bytes > 0) tt_report_line(report, tt_str_text(&line));
    tt_str_deinit(&said);
    tt_str_deinit(&line);
    return status;
}

struct talk_run {
    const struct tt_talk_call *call;
    int64_t slots;
    tt_talk_begin *begin;
    tt_talk_lead *lead;
    void *context;
};

static tt_status prepare(void *context, const struct tt_inputs *inputs, int ranks,
                         struct tt_generation_limits *limits)
{
    const struct talk_run *run = context;
    int64_t positions = inputs->model_facts.max_position_embeddings, length = run->call->context_length;
    (void)ranks;
    *limits =
        (struct tt_generation_limits){.slots = run->slots, .length = length < positions ? length : positions};
    return run->begin != NULL ? run->begin(run->context, limits) : TT_OK;
}

static tt_status lead(void *context, const struct tt_inputs *inputs, struct tt_generation_team *team)
{
    const struct talk_run *run = context;
    const struct tt_talk_config config = {
        .inputs = inputs,
        .team = team,
        .chat_template_path = run->call->chat_template_path,
        .date = run->call->date,
    };
    struct tt_talk talk = {0};
    TT_TRY(tt_talk_open(&config, &talk));
    tt_status status = run->lead(run->context, &talk);
    tt_talk_close(&talk);
    return status;
}

tt_status tt_talk_call_run(const struct tt_talk_call *call, const struct tt_cancel *cancel, int64_t slots,
                           tt_talk_begin *begin, tt_talk_lead *lead_talk, void *context)
{
    struct talk_run run = {call, slots, begin, lead_talk, context};
    const struct tt_generate_hooks hooks = {.prepare = prepare, .lead = lead, .context = &run};
    return tt_generate_run(&call->spec, cancel, &hooks);
}
