/* The task of a language model: rows of tokens. */
#include "engine/feed_rows.h"
#include "engine/rank.h"
#include "job/language_inputs.h"
#include "run/resume.h"
#include "run/task.h"

static tt_status order(const struct tt_inputs *inputs, const struct tt_task_order *how,
                       struct tt_task_data *data)
{
    const struct tt_sampler_config config = {
        .micro_batch_size = how->batch_size,
        .world_size = how->data_size,
        .accumulation = how->accumulation,
        .seed = how->seed,
        .shuffle = how->train && how->run->train_sampling_strategy != TT_SAMPLING_SEQUENTIAL,
        .by_length = how->run->train_sampling_strategy == TT_SAMPLING_BY_LENGTH && !how->rows->packing,
        .drop_last = how->train && how->run->dataloader_drop_last,
        .packing = how->train ? how->rows->packing : tt_data_packs_eval(how->rows),
        .packing_strategy = how->rows->packing_strategy,
        .max_length = tt_inputs_pack_length(inputs, how->rows),
        .mismatched = (how->needs & TT_NEEDS_MISMATCHED) != 0,
        .value = how->rows->rows_kind != NULL ? how->rows->rows_kind->value : NULL,
        .prompt_rows = (how->needs & TT_NEEDS_PROMPT_ROWS) != 0,
    };
    return tt_sampler_create(how->train ? inputs->train : inputs->eval, &config, &data->sampler);
}

static tt_status epoch_steps(const struct tt_inputs *inputs, const struct tt_task_data *data, int64_t *steps)
{
    (void)inputs;
    *steps = tt_sampler_steps_per_epoch(data->sampler);
    return TT_OK;
}

static struct tt_batch_limits limits(const struct tt_inputs *inputs, const struct tt_task_data *data,
                                     int64_t steps)
{
    struct tt_batch_limits limits;
    (void)inputs;
    tt_sampler_limits(data->sampler, 0, steps > 0 ? steps : tt_sampler_steps_per_epoch(data->sampler),
                      &limits);
    return limits;
}

static bool evaluates(const struct tt_inputs *inputs)
{
    return inputs->eval != NULL;
}

static double samples(const struct tt_inputs *inputs, const struct tt_objective *objective)
{
    return (double)tt_objective_samples(objective, (int64_t)tt_dataset_count(inputs->train));
}

static tt_status describe(const struct tt_inputs *inputs, bool train, struct tt_str *text)
{
    return train ? tt_inputs_describe_data(inputs->train, "training data", text)
                 : tt_inputs_describe_data(inputs->eval, "evaluation data", text);
}

/* Indents the lines of a sample, so that they cannot be mistaken for lines of the program. */
static tt_status report_sample(const struct tt_run_job *job, const struct tt_str *sample)
{
    struct tt_str text = {0};
    tt_status status = TT_OK;
    for (size_t i = 0; i < sample->bytes && status == TT_OK; i++) {
        bool begins = i == 0 || sample->data[i - 1] == '\n';
        if (begins) status = tt_str_append_text(&text, "  ");
        if (status == TT_OK) status = tt_str_append_char(&text, sample->data[i]);
    }
    if (status == TT_OK) tt_run_report_span(job, (struct tt_span){tt_str_text(&text), text.bytes});
    tt_str_deinit(&text);
    return status;
}

static tt_status report(const struct tt_run_job *job, const struct tt_inputs *inputs)
{
    tt_status status = TT_OK;
    struct tt_str text = {0};
    TT_GO(tt_inputs_describe_data(inputs->train, "training data", &text));
    tt_run_report(job, tt_str_text(&text));
    tt_str_clear(&text);
    if (inputs->eval != NULL) {
        TT_GO(tt_inputs_describe_data(inputs->eval, "evaluation data", &text));
        tt_run_report(job, tt_str_text(&text));
        tt_str_clear(&text);
    }
    if (inputs->tokenizer != NULL && job->watch->log_sample) {
        tt_run_report(job, "first sample; the text between [[ and ]] is supervised:");
        TT_GO(tt_dataset_show(inputs->train, 0, inputs->tokenizer, "[[", "]]", &text));
        TT_GO(report_sample(job, &text));
    }
out:
    tt_str_deinit(&text);
    return status;
}

static tt_status feed(const struct tt_inputs *inputs, const struct tt_task_data *data, struct tt_rank *rank,
                      struct tt_feed *feed)
{
    (void)inputs;
    return tt_feed_of_rows(data->sampler, rank->mesh.axes[TT_AXIS_DATA].rank, feed);
}

static tt_status evaluate(const struct tt_task_evaluation *how, struct tt_rank *rank,
                          struct tt_evaluation *evaluation)
{
    struct tt_batch_storage storage = {0};
    tt_status status = tt_evaluate(rank, how->data->sampler, how->cancel, how->stopped, &storage,
                                   how->by_source, evaluation);
    tt_batch_storage_deinit(&storage);
    return status;
}

static double flops(const struct tt_model *model, const struct tt_counters *counters)
{
    bool full = model->options.train_base;
    double tokens = (double)counters->tokens;
    double length = counters->samples > 0 ? tokens / (double)counters->samples : 1.0;
    return tt_model_flops_per_token(model, length, full) * tokens +
           tt_model_flops_per_label(model, full) * (double)counters->supervised_tokens;
}

static int64_t labels(const struct tt_evaluation *evaluation)
{
    return evaluation->supervised_tokens;
}

static const char *weights(const struct tt_inputs *inputs, const struct tt_model_spec *model)
{
    (void)inputs;
    return model->model_name_or_path;
}

static void saves(const struct tt_inputs *inputs, struct tt_save_template files[TT_TASK_FILES],
                  struct tt_saver_config *config)
{
    (void)files;
    config->templates = inputs->template_files;
    config->template_count = inputs->templates.template_count;
}

static uint64_t sum(const struct tt_inputs *inputs)
{
    return tt_dataset_sum(inputs->train);
}

/* The storage of the base follows from the settings and from the folder. */
static void add_base(struct tt_json_value *to, const struct tt_inputs *inputs)
{
    const struct tt_base_quant *quant = &inputs->model_options.quant;
    tt_json_set(to, "quantized base", tt_json_new_string(tt_quant_type_name(quant->type)));
    if (tt_quant_multiplies(quant->type) || quant->recodes)
        tt_resume_add_word(to, "fp8_products", quant->products);
    if (tt_quant_multiplies(quant->type)) {
        tt_resume_add_word(to, "fp8_gate_up", quant->gate_up);
        tt_json_set(to, "fp8_lm_head", tt_json_new_bool(quant->head));
        if (inputs->model_facts.stored_fp8_blocks)
            tt_resume_add_word(to, "fp8_blocks", quant->blocks ? TT_FP8_BLOCKS_KEEP : TT_FP8_BLOCKS_ROWS);
    }
    tt_json_set(to, "bnb_4bit_use_double_quant", tt_json_new_bool(quant->nested));
    tt_json_set(to, "llm_int8_skip_modules",
                quant->skip_modules != NULL ? tt_json_new_string(quant->skip_modules) : tt_json_new_null());
}

static void identify(const struct tt_inputs *inputs, const struct tt_data_config *data,
                     struct tt_json_value *to)
{
    add_base(to, inputs);
    if (data->packing)
        tt_resume_add_word(to, "packing_strategy", data->packing_strategy);
    else
        tt_json_set(to, "packing_strategy", tt_json_new_null());
}

const struct tt_task_run_ops tt_task_run_language = {
    .unit = TT_COUNT_TOKENS,
    .advice = {[TT_SHARE_DATA] =
                   "making micro batches takes long: prepare the rows once (trimtab data), or use more "
                   "processors",
               [TT_SHARE_GATHER] =
                   "ranks wait for weights: SHARD_GRAD_OP, HYBRID_SHARD or NO_SHARD as "
                   "sharding_strategy where it fits (trimtab plan --details), or more tokens in a micro "
                   "batch",
               [TT_SHARE_RANKS] =
                   "ranks wait for the slowest one: rows of equal length (packing), and equal machines",
               [TT_SHARE_EVALUATE] = "evaluations take long: larger eval_steps, or fewer evaluation rows"},
    .order = order,
    .epoch_steps = epoch_steps,
    .limits = limits,
    .evaluates = evaluates,
    .samples = samples,
    .describe = describe,
    .report = report,
    .sum = sum,
    .identify = identify,
    .feed = feed,
    .evaluate = evaluate,
    .flops = flops,
    .labels = labels,
    .weights = weights,
    .saves = saves,
};
