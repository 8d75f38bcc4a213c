/* The task of a language model: rows of tokens. */
#include "base/log.h"
#include "base/number.h"
#include "engine/feed_rows.h"
#include "engine/feed_stream.h"
#include "engine/rank.h"
#include "job/language_inputs.h"
#include "model/lora_init.h"
#include "run/data_position.h"
#include "run/resume.h"
#include "run/task.h"

/* The steps of rows that are read while they train; `sampler` has the ranks, and gets no order and no packs. */
static tt_status order_stream(const struct tt_inputs *inputs, const struct tt_task_order *how,
                              const struct tt_sampler_config *sampler, struct tt_task_data *data)
{
    struct tt_streamed *streamed = inputs->streamed;
    const int64_t pack = sampler->max_length, each = (int64_t)tt_data_samples_each(&streamed->data);
    if (sampler->packing && each > 1)
        return tt_fail(TT_ERR_USAGE, "groups of %lld samples cannot be packed", (long long)each);
    TT_TRY(tt_micro_batch_check((uint64_t)(how->batch_size * each),
                                sampler->packing ? pack : inputs->max_length));
    struct tt_step_flow_config config = {
        .rows = {.sources = &inputs->train_files,
                 .config = &streamed->data,
                 .max_rows = streamed->data.max_train_samples,
                 .seed = how->seed,
                 .buffer_size = sampler->shuffle ? (size_t)streamed->data.buffer_size : 1},
        .window = {.sources = &inputs->train_files,
                   .config = &streamed->data,
                   .tokenizer = inputs->tokenizer,
                   .vocab_size = inputs->model_facts.vocab_size,
                   .pack_length = pack,
                   .seed = how->seed,
                   .shuffle = sampler->shuffle},
        .sampler = *sampler,
    };
    config.sampler.shuffle = config.sampler.packing = config.sampler.drop_last = false;
    streamed->samples = how->run->max_steps * how->batch_size * how->accumulation * how->data_size * each;
    return tt_step_flow_create(&config, &data->stream);
}

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
        .shares = how->shares,
    };
    if (how->train && inputs->streamed != NULL) return order_stream(inputs, how, &config, data);
    return tt_sampler_create(how->train ? inputs->train : inputs->eval, &config, &data->sampler);
}

static tt_status epoch_steps(const struct tt_inputs *inputs, const struct tt_task_data *data, int64_t *steps)
{
    (void)inputs;
    *steps = data->stream != NULL ? 0 : tt_sampler_steps_per_epoch(data->sampler);
    return TT_OK;
}

static struct tt_batch_limits limits(const struct tt_inputs *inputs, const struct tt_task_data *data,
                                     int64_t steps)
{
    struct tt_batch_limits limits;
    if (data->stream != NULL) return tt_step_flow_limits(data->stream, inputs->max_length);
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
    return (double)tt_objective_samples(objective, inputs->streamed != NULL
                                                       ? inputs->streamed->samples
                                                       : (int64_t)tt_dataset_count(inputs->train));
}

static tt_status describe_stream(const struct tt_inputs *inputs, struct tt_str *text)
{
    char size[32];
    size_t files = inputs->train_files.file_count;
    return tt_str_printf(text, "training data: %zu file%s (%s), read while they train", files,
                         files == 1 ? "" : "s",
                         tt_format_bytes((double)inputs->streamed->bytes, size, sizeof size));
}

static tt_status describe(const struct tt_inputs *inputs, bool train, struct tt_str *text)
{
    if (train && inputs->streamed != NULL) return describe_stream(inputs, text);
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
    TT_GO(describe(inputs, true, &text));
    tt_run_report(job, tt_str_text(&text));
    tt_str_clear(&text);
    if (inputs->eval != NULL) {
        TT_GO(tt_inputs_describe_data(inputs->eval, "evaluation data", &text));
        tt_run_report(job, tt_str_text(&text));
        tt_str_clear(&text);
    }
    if (inputs->tokenizer != NULL && inputs->train != NULL && job->watch->log_sample) {
        tt_run_report(job, "first sample; the text between [[ and ]] is supervised:");
        TT_GO(tt_dataset_show(inputs->train, 0, inputs->tokenizer, "[[", "]]", &text));
        TT_GO(report_sample(job, &text));
    }
out:
    tt_str_deinit(&text);
    return status;
}

static tt_status position(const struct tt_task_data *data, int64_t done, struct tt_json_value **out)
{
    struct tt_flow_state state;
    *out = NULL;
    if (data->stream == NULL) return TT_OK;
    TT_TRY(tt_step_flow_state(data->stream, done, &state));
    *out = tt_data_position_json(&state);
    return *out != NULL ? TT_OK : tt_fail(TT_ERR_MEMORY, "out of memory for the position in the data");
}

static tt_status go_on(struct tt_task_data *data, const struct tt_json *json, const struct tt_json_value *at,
                       int64_t first_step)
{
    struct tt_flow_state state = {.place.from.line = 1};
    if (data->stream == NULL) return TT_OK;
    if (at != NULL)
        TT_TRY(tt_data_position_read(json, at, &state));
    else
        tt_warn("the checkpoint is of a run without streaming: the rows are read from their beginning");
    tt_step_flow_start(data->stream, first_step, &state);
    return TT_OK;
}

static tt_status feed(const struct tt_inputs *inputs, const struct tt_task_data *data, struct tt_rank *rank,
                      struct tt_feed *feed)
{
    const int data_rank = rank->mesh.axes[TT_AXIS_DATA].rank;
    (void)inputs;
    return data->stream != NULL ? tt_feed_of_stream(data->stream, data_rank, feed)
                                : tt_feed_of_rows(data->sampler, data_rank, feed);
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
    config->template_count = inputs->template_file_count;
}

static uint64_t sum(const struct tt_inputs *inputs)
{
    return inputs->streamed != NULL ? inputs->streamed->sum : tt_dataset_sum(inputs->train);
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
    if (inputs->shares_prompts) tt_json_set(to, TT_RESUME_SHARED_PROMPT, tt_json_new_bool(true));
    const struct tt_lora_config *lora = &inputs->model_options.lora;
    if (tt_lora_changes_base(lora))
        tt_json_set(to, TT_RESUME_LORA_INIT, tt_json_new_string(lora->init_weights));
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
    .position = position,
    .go_on = go_on,
    .feed = feed,
    .evaluate = evaluate,
    .flops = flops,
    .labels = labels,
    .weights = weights,
    .saves = saves,
};
