/* The identity of a run: the settings that must be equal for a resume (resume.h). */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "backend/settings.h"
#include "base/number.h"
#include "job/settings.h"
#include "optim/schedule.h"
#include "run/resume.h"
#include "run/run.h"
#include "tensor/format.h"

static const char quantized_base[] = "quantized base";

static struct tt_json_value *text_or_null(const char *text)
{
    return text != NULL ? tt_json_new_string(text) : tt_json_new_null();
}

struct builder {
    struct tt_json_value *object;
    bool ok;
};

static void add(struct builder *builder, const char *name, struct tt_json_value *value)
{
    builder->ok &= tt_json_set(builder->object, name, value) == 0;
}

/* Adds a setting with words, by the word of its row. */
static void add_word(struct builder *builder, const char *name, int value)
{
    char word[TT_JOB_WORD_BYTES];
    add(builder, name, tt_json_new_string(tt_job_word(name, value, word)));
}

static void add_model(struct builder *to, const struct tt_run *run)
{
    const struct tt_model_options *options = &run->inputs.model_options;
    const struct tt_lora_config *lora = &options->lora;
    add_word(to, "init", run->model->init);
    add(to, "use_peft", tt_json_new_bool(!options->train_base));
    add(to, "bf16", tt_json_new_bool(options->compute_dtype == TT_BF16));
    add(to, quantized_base, tt_json_new_integer(options->quant.type));
    if (options->quant.type == TT_QUANT_FP8 || options->quant.recodes)
        add(to, "fp8_products", tt_json_new_integer(options->quant.products));
    if (options->quant.type == TT_QUANT_FP8) {
        add_word(to, "fp8_gate_up", options->quant.gate_up);
        add(to, "fp8_lm_head", tt_json_new_bool(options->quant.head));
        if (run->inputs.model_facts.stored_fp8_blocks)
            add_word(to, "fp8_blocks", options->quant.blocks ? TT_FP8_BLOCKS_KEEP : TT_FP8_BLOCKS_ROWS);
    }
    add(to, "bnb_4bit_use_double_quant", tt_json_new_bool(options->quant.nested));
    add(to, "llm_int8_skip_modules", text_or_null(options->quant.skip_modules));
    if (options->train_base) return;
    add(to, "lora_r", tt_json_new_integer(lora->r));
    add(to, "lora_alpha", tt_json_new_real(lora->alpha));
    add(to, "lora_dropout", tt_json_new_real(lora->dropout));
    add(to, "use_rslora", tt_json_new_bool(lora->use_rslora));
    add(to, "lora_target_modules", text_or_null(lora->target_modules));
    add(to, "exclude_modules", text_or_null(lora->exclude_modules));
    add(to, "modules_to_save", text_or_null(lora->modules_to_save));
    add(to, "layers_to_transform", text_or_null(lora->layers_to_transform));
    add(to, "layers_pattern", text_or_null(lora->layers_pattern));
    add(to, "rank_pattern", text_or_null(lora->rank_pattern));
    add(to, "alpha_pattern", text_or_null(lora->alpha_pattern));
}

static void add_objective(struct builder *to, const struct tt_objective *objective)
{
    add(to, "objective", tt_json_new_string(objective->ops->name));
    for (int i = 0; i < objective->ops->option_count; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s (%s)", objective->ops->options[i].name, objective->ops->name);
        add(to, name, tt_json_new_real(objective->options[i]));
    }
}

static void add_samples(struct builder *to, const struct tt_run_spec *spec, int world_size)
{
    add(to, TT_RESUME_SAMPLES,
        tt_json_new_integer(world_size * spec->per_device_train_batch_size *
                            spec->gradient_accumulation_steps));
    add(to, "seed", tt_json_new_integer(spec->seed));
    add(to, "data_seed", tt_json_new_integer(spec->data_seed >= 0 ? spec->data_seed : spec->seed));
}

/* The classes and the network are input files (launch/fingerprint.h). */
static void add_detection(struct builder *to, const struct tt_run *run, int world_size)
{
    const struct tt_detect_inputs *inputs = &run->inputs.detect;
    const struct tt_detect_spec *spec = inputs->spec;
    char sum[20];
    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)tt_detect_inputs_sum(inputs->train));
    add(to, "bf16", tt_json_new_bool(run->inputs.model_options.compute_dtype == TT_BF16));
    add(to, "training data", tt_json_new_string(sum));
    add_samples(to, run->spec, world_size);
    add(to, "image_size", tt_json_new_integer(spec->image_size));
    add(to, "max_image_size", tt_json_new_integer(spec->max_image_size));
    add(to, "hflip", tt_json_new_real(spec->hflip));
    add(to, "multiscale", tt_json_new_bool(spec->multiscale));
    add(to, "group_by_aspect", tt_json_new_bool(spec->group_by_aspect));
    add(to, "trainable_layers", tt_json_new_integer(spec->trainable_layers));
    add_word(to, "norm", inputs->norm);
}

static void add_data(struct builder *to, const struct tt_run *run, int world_size)
{
    const struct tt_run_spec *spec = run->spec;
    const struct tt_data_config *data = run->data;
    char sum[20];
    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)tt_dataset_sum(run->inputs.train));
    add(to, "training data", tt_json_new_string(sum));
    add(to, TT_RESUME_SAMPLES,
        tt_json_new_integer(world_size * spec->per_device_train_batch_size *
                            spec->gradient_accumulation_steps));
    add(to, "max_length", tt_json_new_integer(data->max_length));
    add(to, "packing", tt_json_new_bool(data->packing));
    if (data->packing)
        add_word(to, "packing_strategy", data->packing_strategy);
    else
        add(to, "packing_strategy", tt_json_new_null());
    add_word(to, "train_sampling_strategy", spec->train_sampling_strategy);
    add(to, "dataloader_drop_last", tt_json_new_bool(spec->dataloader_drop_last));
    add(to, "seed", tt_json_new_integer(spec->seed));
    add(to, "data_seed", tt_json_new_integer(spec->data_seed >= 0 ? spec->data_seed : spec->seed));
}

static void add_optimizer(struct builder *to, const struct tt_run *run)
{
    const struct tt_optim_config *optim = run->optim;
    const struct tt_schedule_length length = {run->total_steps, run->steps_per_epoch};
    add(to, "optim", text_or_null(optim->optim));
    add(to, "learning_rate", tt_json_new_real(optim->learning_rate));
    add(to, "lr_scheduler_type", text_or_null(optim->lr_scheduler_type));
    add(to, "lr_scheduler_kwargs", text_or_null(optim->lr_scheduler_kwargs));
    add(to, TT_RESUME_STEPS, tt_json_new_integer(run->total_steps));
    add(to, TT_RESUME_WARMUP, tt_json_new_integer(tt_schedule_warmup_steps(optim, length)));
    add(to, "weight_decay", tt_json_new_real(optim->weight_decay));
    if (optim->norm_weight_decay >= 0)
        add(to, "norm_weight_decay", tt_json_new_real(optim->norm_weight_decay));
    add(to, "adam_beta1", tt_json_new_real(optim->adam_beta1));
    add(to, "adam_beta2", tt_json_new_real(optim->adam_beta2));
    add(to, "adam_epsilon", tt_json_new_real(optim->adam_epsilon));
    if (optim->momentum > 0) {
        add(to, "momentum", tt_json_new_real(optim->momentum));
        add(to, "nesterov", tt_json_new_bool(optim->nesterov));
    }
    add(to, "max_grad_norm", tt_json_new_real(optim->max_grad_norm));
    add(to, "label_smoothing_factor", tt_json_new_real(run->spec->label_smoothing_factor));
    add(to, "metric_for_best_model", text_or_null(run->watch->metric_for_best_model));
}

struct tt_json_value *tt_resume_identity(const struct tt_run *run, int world_size)
{
    struct builder builder = {tt_json_new_object(), true};
    bool detects = run->inputs.detect.spec != NULL;
    if (!detects) add_model(&builder, run);
    add_objective(&builder, run->objective);
    if (detects)
        add_detection(&builder, run, world_size);
    else
        add_data(&builder, run, world_size);
    add_optimizer(&builder, run);
    if (builder.ok) return builder.object;
    tt_json_release(builder.object);
    return NULL;
}

struct tt_json_value *tt_resume_tuning(const struct tt_run *run)
{
    struct builder builder = {tt_json_new_object(), true};
    const char *tuning = (const char *)run->tuning;
    char word[TT_JOB_WORD_BYTES];
    for (const struct tt_setting *row = tt_tuning_settings; row->name != NULL; row++) {
        if (row->local) continue; /* it changes no result */
        if (row->type == TT_SETTING_BOOL)
            add(&builder, row->name, tt_json_new_bool(*(const bool *)(tuning + row->offset)));
        if (row->type == TT_SETTING_CHOICE)
            add(&builder, row->name,
                tt_json_new_string(
                    tt_setting_word(row, *(const int *)(tuning + row->offset), word, sizeof word)));
    }
    if (builder.ok) return builder.object;
    tt_json_release(builder.object);
    return NULL;
}

const char *tt_resume_word(const char *name, const struct tt_json_value *value, char *word, size_t word_bytes)
{
    char found[TT_JOB_WORD_BYTES] = "";
    int64_t number = tt_json_is_integer(value) ? tt_json_integer(value) : -1;
    bool fits = number >= 0 && number < INT_MAX, base = strcmp(name, quantized_base) == 0;
    if (fits && !base) (void)tt_job_word(name, (int)number, found);
    if (fits && base && (number == TT_QUANT_NONE || tt_weight_format((enum tt_quant_type)number) != NULL))
        tt_snprintf(found, sizeof found, "%s", tt_quant_type_name((enum tt_quant_type)number));
    tt_snprintf(word, word_bytes, "%s", found);
    return word;
}
