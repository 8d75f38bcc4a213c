#include "run/tracker_config.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/number.h"
#include "config/yaml.h"
#include "model/adapter_config.h"
#include "run/journal.h"
#include "run/task.h"

static tt_status no_memory(void)
{
    return tt_fail(TT_ERR_MEMORY, "out of memory for the settings that trackers get");
}

/* TrainingArguments.to_dict writes a key such as hub_token so. */
static tt_status hide_tokens(const struct tt_yaml_node *map, struct tt_json_value *args)
{
    for (const struct tt_yaml_node *at = map->first; at != NULL; at = at->next) {
        char shown[80];
        if (!tt_ends_with(at->key, "_token") || !tt_json_is_string(tt_json_get(args, at->key))) continue;
        (void)tt_snprintf(shown, sizeof shown, "<%s>", at->key);
        if (tt_json_set(args, at->key, tt_json_new_string(shown)) != 0) return no_memory();
    }
    return TT_OK;
}

static tt_status read_args(const struct tt_run_job *job, struct tt_tracker_config *config)
{
    struct tt_str text = {0};
    struct tt_yaml yaml = {0};
    tt_status status = TT_OK;
    if (job->settings == NULL) return TT_OK;
    TT_GO(tt_settings_write_yaml(job->settings, &text));
    TT_GO(tt_yaml_parse(tt_str_text(&text), text.bytes, "the settings", &yaml));
    if (yaml.root == NULL) goto out;
    config->args = tt_yaml_to_json(yaml.root);
    if (config->args == NULL) TT_GO(no_memory());
    TT_GO(hide_tokens(yaml.root, config->args));
out:
    tt_yaml_deinit(&yaml);
    tt_str_deinit(&text);
    return status;
}

/* adapter_config.json of the weights to come. */
static tt_status read_adapter(const struct tt_run_job *job, const struct tt_inputs *inputs,
                              struct tt_tracker_config *config)
{
    struct tt_model *model = NULL;
    struct tt_str text = {0};
    struct tt_json json = {0};
    tt_status status = TT_OK;
    if (!inputs->model_options.lora.enabled) return TT_OK;
    TT_GO(tt_model_create(&inputs->model_facts, &inputs->model_options, &model));
    TT_GO(tt_adapter_config_write(model, tt_task_run_of(inputs)->weights(inputs, job->model), &text));
    TT_GO(tt_json_parse(tt_str_text(&text), text.bytes, "adapter_config.json", &json));
    config->adapter = tt_json_copy(json.root);
    if (config->adapter == NULL) TT_GO(no_memory());
out:
    tt_json_deinit(&json);
    tt_str_deinit(&text);
    tt_model_destroy(model);
    return status;
}

tt_status tt_tracker_config_init(const struct tt_run_job *job, const struct tt_inputs *inputs,
                                 struct tt_tracker_config *config)
{
    tt_status status = TT_OK;
    const struct tt_json *model = inputs->folder != NULL ? tt_model_folder_config(inputs->folder) : NULL;
    *config = (struct tt_tracker_config){0};
    TT_GO(read_args(job, config));
    if (model != NULL && model->root != NULL) {
        config->model = tt_json_copy(model->root);
        if (config->model == NULL) TT_GO(no_memory());
    }
    TT_GO(read_adapter(job, inputs, config));
out:
    if (status != TT_OK) tt_tracker_config_deinit(config);
    return status;
}

void tt_tracker_config_deinit(struct tt_tracker_config *config)
{
    tt_json_release(config->args);
    tt_json_release(config->model);
    tt_json_release(config->adapter);
    *config = (struct tt_tracker_config){0};
}

static void show(struct tt_journal *journal, const char *tag, const struct tt_json_value *object)
{
    struct tt_str text = {0};
    if (object == NULL) return;
    tt_status status = tt_json_write(object, 2, true, &text);
    if (status == TT_OK) tt_journal_text(journal, tag, 0, &text);
    if (status != TT_OK) tt_warn("%s; TensorBoard has no %s", tt_error_last()->message, tag);
    if (status != TT_OK) tt_error_clear();
    tt_str_deinit(&text);
}

void tt_tracker_config_show(const struct tt_tracker_config *config, struct tt_journal *journal)
{
    show(journal, "args", config->args);
    show(journal, "model_config", config->model);
    tt_journal_hparams(journal, config->args);
}

tt_status tt_tracker_config_write(const struct tt_tracker_config *config, const char *folder,
                                  const char *name)
{
    const struct {
        const char *key;
        const struct tt_json_value *object;
    } parts[] = {{"args", config->args}, {"model_config", config->model}, {"peft_config", config->adapter}};
    struct tt_json_value *all = tt_json_new_object();
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].object != NULL) tt_json_set_copy(all, parts[i].key, parts[i].object);
    tt_status status = tt_json_write_file(all, 2, true, folder, name);
    tt_json_release(all);
    return status;
}
