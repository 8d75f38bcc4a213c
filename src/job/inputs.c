#include "job/inputs.h"

#include "base/alloc.h"
#include "base/log.h"
#include "checkpoint/unread.h"
#include "job/task.h"

struct tt_inputs_config tt_inputs_config_of(const struct tt_job_spec *job, enum tt_inputs_use use)
{
    return (struct tt_inputs_config){
        .use = use,
        .model = &job->model,
        .lora = use == TT_INPUTS_TRAIN ? &job->lora : NULL,
        .sets_dropout = use == TT_INPUTS_TRAIN && job->objective.ops != NULL &&
                        tt_objective_suggests(job->objective.ops, "lora_dropout"),
        .quantization = &job->quantization,
        .device = &job->device,
        .data = use != TT_INPUTS_GENERATE ? &job->data : NULL,
        .task = job->task,
        .detect = &job->detect,
        .seed = job->run.seed,
        .dated = job->data.date != NULL,
        .evaluates = use == TT_INPUTS_EVALUATE || ((use == TT_INPUTS_TRAIN || use == TT_INPUTS_DATA) &&
                                                   job->watch.eval_strategy != TT_INTERVAL_NO),
    };
}

static void tell_left_alone(const struct tt_inputs *inputs)
{
    const struct tt_text_part *part = inputs->model_facts.part;
    size_t count = part != NULL ? tt_model_folder_left_alone(inputs->folder) : 0;
    if (count > 0)
        tt_info("the text part of a %s folder is served: %zu tensors of the %s are left alone",
                part->model_type, count, part->what);
}

void tt_inputs_settle(struct tt_inputs *inputs, bool differs)
{
    if (inputs->folder == NULL) return;
    tt_tied_head_settle(inputs->folder, differs, &inputs->model_facts);
    tell_left_alone(inputs);
}

tt_status tt_inputs_open(const struct tt_inputs_config *config, struct tt_inputs *inputs)
{
    *inputs = (struct tt_inputs){.task = config->task, .dated = config->dated};
    tt_status status = tt_tasks[config->task]->open(config, inputs);
    if (status != TT_OK) tt_inputs_close(inputs);
    return status;
}

tt_status tt_inputs_check_model(const struct tt_inputs *inputs, const struct tt_model *model)
{
    TT_TRY(tt_load_check(model, &inputs->source));
    if (model->options.lora.ensure_weight_tying && !model->facts.tie_word_embeddings)
        tt_warn("ensure_weight_tying: embeddings and head of this model are two tables, and stay two");
    const struct tt_task_ops *task = tt_tasks[inputs->task];
    return task->check_model != NULL ? task->check_model(inputs, model) : TT_OK;
}

tt_status tt_inputs_visit(const struct tt_inputs *inputs, tt_input_visit *visit, void *context)
{
    const struct tt_task_ops *task = tt_tasks[inputs->task];
    return task->visit != NULL ? task->visit(inputs, visit, context) : TT_OK;
}

void tt_inputs_close(struct tt_inputs *inputs)
{
    if (inputs->own != NULL) tt_tasks[inputs->task]->close(inputs);
    tt_dataset_destroy(inputs->train);
    tt_dataset_destroy(inputs->eval);
    tt_free(inputs->streamed);
    tt_tokenizer_destroy(inputs->tokenizer);
    tt_new_tokens_close(&inputs->new_tokens);
    for (size_t i = 0; i < inputs->adapter_count; i++) {
        tt_safetensors_close(inputs->adapters[i].file);
        tt_free(inputs->adapters[i].folder);
    }
    tt_free(inputs->adapters);
    tt_model_folder_close(inputs->folder);
    tt_chat_files_deinit(&inputs->templates);
    tt_arena_deinit(&inputs->arena);
    tt_sources_deinit(&inputs->train_files);
    tt_sources_deinit(&inputs->eval_files);
    *inputs = (struct tt_inputs){0};
}

const struct tt_sources *tt_inputs_eval_files(const struct tt_inputs *inputs)
{
    return inputs->eval_files.file_count > 0 ? &inputs->eval_files : &inputs->train_files;
}
