/* What makes a run the same run (resume.h). */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc64.h"
#include "base/file.h"
#include "io/model_folder.h"
#include "optim/schedule.h"
#include "train/resume.h"
#include "train/run.h"

enum { BLOCK_BYTES = 4096, SAMPLES_READ = 4096, CONFIG_BYTES_MAX = 1 << 24 };

static void format_hash(uint64_t sum, char hash[20])
{
    snprintf(hash, 20, "%016llx", (unsigned long long)sum);
}

static tt_status hash_tensor(const struct tt_model_folder *folder, const struct tt_safetensors_entry *entry,
                             uint64_t *sum)
{
    char block[BLOCK_BYTES];
    int descriptor = -1;
    const struct tt_safetensors *file = tt_model_folder_file(folder, entry);
    if (file == NULL) return TT_ERR_INTERNAL;
    size_t bytes = entry->bytes < sizeof block ? (size_t)entry->bytes : sizeof block;
    uint64_t offset = entry->offset + (entry->bytes - bytes) / 2;
    *sum = tt_crc64(*sum, entry->name, strlen(entry->name) + 1);
    *sum = tt_crc64(*sum, entry->dtype_name, strlen(entry->dtype_name) + 1);
    *sum = tt_crc64(*sum, entry->dims, (size_t)entry->rank * sizeof *entry->dims);
    TT_TRY(tt_file_open_read(tt_safetensors_path(file), &descriptor, NULL));
    tt_status status = tt_file_pread(descriptor, tt_safetensors_path(file), block, bytes, offset);
    tt_file_close(descriptor);
    if (status == TT_OK) *sum = tt_crc64(*sum, block, bytes);
    return status;
}

tt_status tt_resume_hash_base(const struct tt_run *run, char hash[20])
{
    uint64_t sum = 0;
    struct tt_str text = {0};
    const struct tt_model_folder *folder = run->inputs.folder;
    char *path = tt_path_join(tt_model_folder_path(folder), "config.json");
    if (path == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_file_read(path, CONFIG_BYTES_MAX, &text);
    tt_free(path);
    if (status != TT_OK) return status;
    sum = tt_crc64(0, text.data, text.bytes);
    tt_str_deinit(&text);
    /* From random weights on, the folder's do not matter. */
    bool weights = tt_model_folder_has_weights(folder) && run->inputs.source.folder != NULL;
    for (size_t i = 0; weights && i < tt_model_folder_tensor_count(folder); i++)
        TT_TRY(hash_tensor(folder, tt_model_folder_tensor(folder, i), &sum));
    format_hash(sum, hash);
    return TT_OK;
}

void tt_resume_hash_data(const struct tt_dataset *dataset, char hash[20])
{
    uint64_t sum = 0;
    size_t count = tt_dataset_count(dataset), every = count / SAMPLES_READ + 1;
    for (size_t i = 0; i < count; i++) {
        struct tt_sample sample = tt_dataset_sample(dataset, i);
        int32_t sizes[2] = {sample.count, sample.supervised_count};
        sum = tt_crc64(sum, sizes, sizeof sizes);
        if (i % every != 0) continue;
        sum = tt_crc64(sum, sample.ids, (size_t)sample.count * sizeof *sample.ids);
        sum = tt_crc64(sum, sample.supervised, (size_t)sample.count);
    }
    format_hash(sum, hash);
}

static json_t *text_or_null(const char *text)
{
    return text != NULL ? json_string(text) : json_null();
}

struct builder {
    json_t *object;
    bool ok;
};

static void add(struct builder *builder, const char *name, json_t *value)
{
    builder->ok &= json_object_set_new(builder->object, name, value) == 0;
}

static void add_model(struct builder *to, const struct tt_run *run)
{
    const struct tt_model_options *options = &run->inputs.model_options;
    const struct tt_lora_config *lora = &options->lora;
    add(to, "base model", json_string(run->base_hash));
    add(to, "init", text_or_null(run->config->init));
    add(to, "use_peft", json_boolean(!options->train_base));
    add(to, "bf16", json_boolean(options->compute_dtype == TT_BF16));
    add(to, "quantized base", json_integer(options->quant.type));
    add(to, "bnb_4bit_use_double_quant", json_boolean(options->quant.nested));
    add(to, "llm_int8_skip_modules", text_or_null(options->quant.skip_modules));
    if (options->train_base) return;
    add(to, "lora_r", json_integer(lora->r));
    add(to, "lora_alpha", json_real(lora->alpha));
    add(to, "lora_dropout", json_real(lora->dropout));
    add(to, "use_rslora", json_boolean(lora->use_rslora));
    add(to, "lora_target_modules", text_or_null(lora->target_modules));
    add(to, "exclude_modules", text_or_null(lora->exclude_modules));
    add(to, "modules_to_save", text_or_null(lora->modules_to_save));
    add(to, "layers_to_transform", text_or_null(lora->layers_to_transform));
    add(to, "layers_pattern", text_or_null(lora->layers_pattern));
    add(to, "rank_pattern", text_or_null(lora->rank_pattern));
    add(to, "alpha_pattern", text_or_null(lora->alpha_pattern));
}

static void add_data(struct builder *to, const struct tt_run *run, int world_size)
{
    const struct tt_train_config *config = run->config;
    add(to, "training data", json_string(run->data_hash));
    add(to, "samples of a step (ranks x per_device_train_batch_size x gradient_accumulation_steps)",
        json_integer(world_size * config->per_device_train_batch_size * config->gradient_accumulation_steps));
    add(to, "max_length", json_integer(config->data.max_length));
    add(to, "packing", json_boolean(config->data.packing));
    add(to, "packing_strategy", text_or_null(config->data.packing ? config->data.packing_strategy : NULL));
    add(to, "train_sampling_strategy", text_or_null(config->train_sampling_strategy));
    add(to, "dataloader_drop_last", json_boolean(config->dataloader_drop_last));
    add(to, "seed", json_integer(config->seed));
    add(to, "data_seed", json_integer(config->data_seed >= 0 ? config->data_seed : config->seed));
}

static void add_optimizer(struct builder *to, const struct tt_run *run)
{
    const struct tt_optim_config *optim = &run->config->optim;
    add(to, "optim", text_or_null(optim->optim));
    add(to, "learning_rate", json_real(optim->learning_rate));
    add(to, "lr_scheduler_type", text_or_null(optim->lr_scheduler_type));
    add(to, "lr_scheduler_kwargs", text_or_null(optim->lr_scheduler_kwargs));
    add(to, "steps in all (max_steps, num_train_epochs)", json_integer(run->total_steps));
    add(to, "warmup_steps", json_integer(tt_schedule_warmup_steps(optim, run->total_steps)));
    add(to, "weight_decay", json_real(optim->weight_decay));
    add(to, "adam_beta1", json_real(optim->adam_beta1));
    add(to, "adam_beta2", json_real(optim->adam_beta2));
    add(to, "adam_epsilon", json_real(optim->adam_epsilon));
    add(to, "max_grad_norm", json_real(optim->max_grad_norm));
    add(to, "label_smoothing_factor", json_real(run->config->label_smoothing_factor));
    add(to, "metric_for_best_model", text_or_null(run->config->metric_for_best_model));
}

json_t *tt_resume_identity(const struct tt_run *run, int world_size)
{
    struct builder builder = {json_object(), true};
    add_model(&builder, run);
    add_data(&builder, run, world_size);
    add_optimizer(&builder, run);
    if (builder.ok) return builder.object;
    json_decref(builder.object);
    return NULL;
}
