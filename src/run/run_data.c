#include "run/run_data.h"

#include "base/file.h"
#include "base/json.h"
#include "base/number.h"
#include "job/language_inputs.h"
#include "run/resume.h"

/* A file that takes a moment is named before it is read. */
static void announce_rows(const struct tt_run_job *job, const char *path)
{
    enum { LARGE_BYTES = 32 << 20 };
    char line[400], size[32];
    struct tt_file_facts info;
    if (path == NULL || tt_file_facts(path, &info) != 0 || !info.is_regular || info.bytes < LARGE_BYTES)
        return;
    tt_snprintf(line, sizeof line, "reading '%.300s' (%s)", path,
                tt_format_bytes((double)info.bytes, size, sizeof size));
    tt_run_report_line(job, line);
}

tt_status tt_run_data_open(const struct tt_run_job *job, const struct tt_world *world, const char *checkpoint,
                           struct tt_run_data *data)
{
    struct tt_inputs_config inputs = tt_inputs_config_of(job->all, TT_INPUTS_TRAIN);
    struct tt_data_config dated = *inputs.data;
    dated.date = data->date;
    inputs.data = &dated;
    inputs.share = tt_world_share(world);
    announce_rows(job, dated.dataset_name);
    TT_TRY(tt_inputs_open(&inputs, &data->inputs));
    return tt_fingerprint_compute(job->all->launch.verify_inputs, tt_str_text(&world->settings),
                                  &data->inputs, checkpoint, job->cancel, &data->fingerprint);
}

void tt_run_data_close(struct tt_run_data *data)
{
    tt_run_data_unorder(data);
    tt_safetensors_close(data->first_values);
    tt_inputs_close(&data->inputs);
    tt_fingerprint_deinit(&data->fingerprint);
}

/* A run that goes on shares prompts as it did before: earlier versions shared none. */
static tt_status settle_prompts(const struct tt_run_job *job, struct tt_run_data *data)
{
    struct tt_inputs *inputs = &data->inputs;
    struct tt_shared_prompt *prompt = &data->prompt;
    TT_TRY(tt_shared_prompt_settle(job->all, &inputs->model_facts, &inputs->model_options, inputs->max_length,
                                   true, prompt));
    if (data->identity != NULL && job->data->shared_prompt < 0 && prompt->shares &&
        !tt_json_is_true(tt_json_get(data->identity, TT_RESUME_SHARED_PROMPT))) {
        prompt->shares = false;
        prompt->reason = "the run began so";
    }
    inputs->shares_prompts = prompt->shares;
    return TT_OK;
}

static tt_status order_reference(const struct tt_run_job *job, int data_size, struct tt_run_data *data)
{
    const struct tt_run_spec *run = job->run;
    const struct tt_reference_order order = {
        .objective = job->objective,
        .rows = job->data,
        .batch_size = job->all->objectives.precompute_ref_batch_size,
        .train_batch = run->per_device_train_batch_size,
        .eval_batch = run->per_device_eval_batch_size,
        .accumulation = run->gradient_accumulation_steps,
        .max_length = tt_inputs_pack_length(&data->inputs, job->data),
        .data_size = data_size,
        .shares = data->prompt.shares,
    };
    return tt_run_reference_order(&order, &data->inputs, &data->reference);
}

tt_status tt_run_data_order(const struct tt_run_job *job, int data_size, struct tt_run_data *data,
                            struct tt_run_length *length)
{
    const struct tt_run_spec *run = job->run;
    const struct tt_task_run_ops *task = tt_task_run_of(&data->inputs);
    int64_t steps_per_epoch = 0;
    TT_TRY(settle_prompts(job, data));
    const struct tt_task_order train = {
        .train = true,
        .data_size = data_size,
        .batch_size = run->per_device_train_batch_size,
        .accumulation = run->gradient_accumulation_steps,
        .seed = (uint64_t)(run->data_seed >= 0 ? run->data_seed : run->seed),
        .run = run,
        .rows = job->data,
        .needs = job->objective->ops->needs,
        .shares = data->prompt.shares,
    };
    TT_TRY(task->order(&data->inputs, &train, &data->train));
    TT_TRY(task->epoch_steps(&data->inputs, &data->train, &steps_per_epoch));
    /* A stream has no length: its epoch is the run, as in transformers. */
    tt_run_length_count(length, run, steps_per_epoch > 0 ? steps_per_epoch : run->max_steps);
    data->train_limits = task->limits(&data->inputs, &data->train, length->total_steps);
    TT_TRY(order_reference(job, data_size, data));
    if (!task->evaluates(&data->inputs)) return TT_OK;
    struct tt_task_order eval = train;
    eval.train = false;
    eval.batch_size = run->per_device_eval_batch_size;
    eval.accumulation = 1;
    TT_TRY(task->order(&data->inputs, &eval, &data->eval));
    data->eval_limits = task->limits(&data->inputs, &data->eval, 0);
    return TT_OK;
}

void tt_run_data_describe_prompts(const struct tt_run_data *data, char *text, size_t text_bytes)
{
    int64_t all = 0, computed = 0;
    if (data->train.sampler != NULL) tt_sampler_tokens(data->train.sampler, &all, &computed);
    tt_shared_prompt_describe(&data->prompt, all, computed, text, text_bytes);
}

void tt_run_data_unorder(struct tt_run_data *data)
{
    tt_task_data_deinit(&data->train);
    tt_task_data_deinit(&data->eval);
    tt_run_reference_deinit(&data->reference);
}
