/* The task of a language model: rows of tokens. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/hub_cache.h"
#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "job/language_inputs.h"
#include "job/new_tokens.h"
#include "job/resolve.h"
#include "job/task.h"
#include "model/adapter_config.h"

enum { CONFIG_BYTES_MAX = 1 << 20 };

/* ---- Settings ---- */

/* A given task lets the row of model_name_or_path be empty, whichever task it is. */
static tt_status check(const struct tt_settings *settings, const struct tt_job_spec *job)
{
    if (job->model.model_name_or_path == NULL && tt_settings_is_set(settings, "task") &&
        !tt_settings_is_set(settings, "config_json"))
        return tt_job_usage("setting 'model_name_or_path' is missing",
                            "give --model_name_or_path, or --task detection with --local_image_dir");
    return TT_OK;
}

/* The number of rows is not known before the last one was read: transformers demands max_steps as well. */
static tt_status check_streaming(const struct tt_job_spec *job)
{
    if (!job->data.streaming) return TT_OK;
    if (job->run.max_steps <= 0)
        return tt_job_usage("streaming needs max_steps: how many rows there are is not known before the end",
                            "set max_steps; epochs follow one another until then");
    if (tt_data_holds_out(&job->data))
        return tt_job_usage("eval_split_size holds out rows of all rows, and streaming does not have them",
                            "give rows of their own: --eval_dataset FILE");
    if (job->run.train_sampling_strategy == TT_SAMPLING_BY_LENGTH)
        return tt_job_usage("group_by_length sorts all rows, and streaming does not have them",
                            "leave train_sampling_strategy out, or streaming");
    return TT_OK;
}

static tt_status check_train(const struct tt_job_spec *job)
{
    if (job->data.dataset_name == NULL && job->data.datasets == NULL)
        return tt_job_usage(
            "setting 'dataset_name' is missing",
            "give --dataset_name train.jsonl, or a line 'dataset_name: train.jsonl' in the file of --config");
    return check_streaming(job);
}

static tt_status check_evaluate(const struct tt_job_spec *job)
{
    const struct tt_data_config *data = &job->data;
    bool mixture = data->eval_dataset == NULL && data->datasets != NULL;
    if (data->eval_dataset == NULL && data->dataset_name == NULL && data->datasets == NULL)
        return tt_job_usage("there is no evaluation data",
                            "give --eval_dataset FILE, or --dataset_name FOLDER with a test split");
    if (mixture && data->dataset_name != NULL)
        return tt_job_usage("dataset_name and datasets are both given", "datasets replaces dataset_name");
    return TT_OK;
}

/* ---- Plans ---- */

/* Weights of a folder say which of them are in FP8, in which format experts are, and whether tied embeddings have a
 * head of their own; without any, config.json does. */
static tt_status inspect_weights(const char *path, struct tt_arena *arena, struct tt_model_facts *model,
                                 bool *seen)
{
    struct tt_model_folder *folder = NULL;
    *seen = path != NULL;
    bool experts = model->stored_quant != TT_QUANT_NONE || model->stored_experts.type != TT_QUANT_NONE;
    bool coded =
        tt_quant_is_compressed(model->stored_quant) || (experts && tt_model_facts_have_experts(model));
    if (path == NULL || (!coded && !model->tie_word_embeddings)) return TT_OK;
    tt_status status = tt_model_folder_open(path, false, &folder);
    *seen = status == TT_OK && tt_model_folder_has_weights(folder);
    if (status == TT_OK) status = tt_model_folder_join(folder, &model->sources);
    if (status == TT_OK) status = tt_inputs_inspect(folder, arena, model);
    if (status != TT_OK) tt_while("looking at the weights (--config_json plans without them)");
    tt_model_folder_close(folder);
    return status;
}

/* transformers ties where the class says nothing, and unties for weights with a head. A text model that says true has
 * none (Ministral 3 3B: huggingface/transformers#43429), one that does not may have it (Mistral Small 3.2: #42313). */
static void warn_of_head(const struct tt_json *json, const struct tt_model_facts *model)
{
    static const char key[] = "tie_word_embeddings";
    char bytes[32];
    bool counted = model->part == NULL || !model->part->has_head || !model->tie_word_embeddings;
    bool said = tt_json_get(json->root, key) != NULL ||
                tt_json_is_true(tt_json_get(tt_text_part_config(json->root), key));
    if (counted || said) return;
    double size =
        (double)model->vocab_size * (double)model->hidden_size * (double)tt_dtype_bytes(model->dtype);
    tt_warn("%s has no %s, so that %s is planned as tied: a head in the weights needs %s more", json->origin,
            key, model->part->model_type, tt_format_bytes(size, bytes, sizeof bytes));
}

static tt_status read_config(const struct tt_plan_spec *spec, struct tt_arena *arena,
                             struct tt_model_facts *model)
{
    const struct tt_model_spec *named = &spec->job.model;
    tt_status status = TT_OK;
    struct tt_json json = {0};
    char *path = NULL, *folder = NULL;
    bool seen;
    if (spec->config_json == NULL)
        TT_GO(tt_hub_locate(named->model_name_or_path, named->model_revision, "configuration", &folder));
    path = folder != NULL ? tt_path_join(folder, "config.json") : tt_strdup(spec->config_json);
    if (path == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_json_read(path, CONFIG_BYTES_MAX, &json));
    TT_GO(tt_model_facts_parse_for(&json, &named->scores, model));
    const bool tied = model->tie_word_embeddings;
    TT_GO(inspect_weights(folder, arena, model, &seen));
    if (!seen && tied == model->tie_word_embeddings) warn_of_head(&json, model);
out:
    tt_json_deinit(&json);
    tt_free(path);
    tt_free(folder);
    return status;
}

/* An adapter may have rows of tokens that the model's folder has none for. */
static tt_status read_adapter(const char *name, struct tt_arena *arena, struct tt_model_facts *facts,
                              struct tt_lora_config *lora)
{
    char *folder;
    struct tt_new_rows rows = {0};
    TT_TRY(tt_hub_locate(name, NULL, "adapter", &folder));
    tt_status status = tt_adapter_config_read(folder, arena, lora);
    if (status == TT_OK) status = tt_new_rows_of_adapter(folder, 0, &rows);
    if (status == TT_OK && rows.count > facts->vocab_size) status = tt_new_rows_grow(facts, &rows, NULL);
    tt_new_rows_close(&rows);
    tt_free(folder);
    return status;
}

/* New tokens get their rows, as in a training. */
static tt_status plan_new_tokens(const struct tt_plan_spec *spec, struct tt_arena *arena,
                                 struct tt_model_facts *facts, struct tt_model_options *options)
{
    const struct tt_model_spec *named = &spec->job.model;
    char *folder = NULL;
    struct tt_ids ids = {0};
    tt_status status = TT_OK;
    if (named->add_tokens == NULL && named->add_special_tokens == NULL) return TT_OK;
    if (spec->config_json == NULL)
        TT_GO(tt_hub_locate(named->model_name_or_path, named->model_revision, "configuration", &folder));
    TT_GO(tt_new_tokens_plan(named, folder, facts, &ids));
    int32_t *kept = tt_arena_alloc(arena, (ids.count + 1) * sizeof *kept);
    if (kept == NULL) TT_GO(TT_ERR_MEMORY);
    for (size_t i = 0; i < ids.count; i++) kept[i] = ids.data[i];
    options->lora.new_tokens = kept;
    options->lora.new_count = (int64_t)ids.count;
out:
    tt_ids_deinit(&ids);
    tt_free(folder);
    return status;
}

static tt_status network(const struct tt_plan_spec *spec, struct tt_arena *arena,
                         struct tt_model_facts *facts, struct tt_model_options *options)
{
    const struct tt_job_spec *job = &spec->job;
    *options = tt_job_model_options(&job->model, &job->lora, &job->device, true);
    TT_TRY(read_config(spec, arena, facts));
    TT_TRY(tt_model_facts_balance(facts, job->model.router_aux_loss_coef));
    TT_TRY(plan_new_tokens(spec, arena, facts, options));
    TT_TRY(tt_quantization_resolve(&job->quantization, facts, options->compute_dtype, &options->quant));
    if (job->model.adapter_name_or_path == NULL) return TT_OK;
    TT_TRY(read_adapter(job->model.adapter_name_or_path, arena, facts, &options->lora));
    return tt_adapter_config_check(&options->lora, facts);
}

/* Number of tokens of every row. A run truncates or drops rows with more tokens than the model has positions; a pack of
 * several rows may have more. */
static tt_status find_length(const struct tt_plan_spec *spec, const struct tt_model_facts *model,
                             int64_t *length)
{
    const struct tt_job_spec *config = &spec->job;
    *length = spec->sequence_length;
    if (*length > model->max_position_embeddings)
        return tt_fail(TT_ERR_USAGE, "sequence_length %lld is more than the model's %lld positions",
                       (long long)*length, (long long)model->max_position_embeddings);
    if (*length == 0)
        *length = config->data.packing ? config->data.max_length : tt_inputs_max_length(&config->data, model);
    return TT_OK;
}

static tt_status limits(const struct tt_plan_spec *spec, const struct tt_model_facts *facts,
                        struct tt_batch_limits *train, struct tt_batch_limits *eval)
{
    int64_t each = (int64_t)tt_data_samples_each(&spec->job.data);
    int64_t length, batch = spec->job.run.per_device_train_batch_size * each;
    (void)eval;
    TT_TRY(find_length(spec, facts, &length));
    TT_TRY(tt_micro_batch_check((uint64_t)batch, length));
    *train = (struct tt_batch_limits){
        .tokens = length * batch, .sequences = batch, .rows = length * batch, .length = length};
    return TT_OK;
}

static int64_t most(const struct tt_plan_spec *spec, const struct tt_model_facts *model)
{
    (void)spec;
    return model->max_position_embeddings;
}

static void set_length(struct tt_plan_spec *spec, int64_t value)
{
    spec->sequence_length = value;
}

const struct tt_task_ops tt_task_language = {
    .planned_file = "the model's config.json of this machine; --config_json FILE names another",
    .writes_text = true,
    .size = {.setting = "sequence_length",
             .end = "the model has no more positions",
             .others = "a language model has rows, and no images",
             .least = 1,
             .most = most,
             .set = set_length},
    .check = check,
    .check_train = check_train,
    .check_evaluate = check_evaluate,
    .open = tt_language_inputs_open,
    .network = network,
    .limits = limits,
};
