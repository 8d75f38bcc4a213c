#include "train/plan_offline.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "model/adapter_config.h"
#include "train/world.h"

enum { CONFIG_BYTES_MAX = 1 << 20 };

static tt_status read_config(const char *config_json, const char *folder, struct tt_model_config *model)
{
    struct tt_json json = {0};
    char *path = config_json != NULL ? tt_strdup(config_json) : tt_path_join(folder, "config.json");
    if (path == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_json_read(path, CONFIG_BYTES_MAX, &json);
    if (status == TT_OK) status = tt_model_config_parse(&json, model);
    tt_json_deinit(&json);
    tt_free(path);
    return status;
}

/* Words that are a kind of device are looked for here; others name a chip. */
static tt_status find_device(const char *word, size_t memory_limit, struct tt_device_config *device,
                             int *count)
{
    const char *kind = NULL;
    *count = 1;
    *device = (struct tt_device_config){.kind = "plan", .stands_for = word, .memory_limit = memory_limit};
    if (strcmp(word, "auto") != 0 && strcmp(word, "cuda") != 0) return TT_OK;
    TT_TRY(tt_world_choose_device(word, &kind, count));
    device->kind = kind;
    device->stands_for = NULL;
    return TT_OK;
}

tt_status tt_plan_offline(const struct tt_train_config *config, const struct tt_plan_options *options,
                          int *ranks, struct tt_plan *plan)
{
    tt_status status = TT_OK;
    int devices;
    struct tt_arena arena = {0};
    struct tt_model_config model;
    int64_t length = options->sequence_length > 0 ? options->sequence_length : config->data.max_length;
    int64_t batch = config->per_device_train_batch_size;
    struct tt_batch_limits none = {0}, limits = {length * batch, batch, length * batch, length};
    struct tt_rank_config rank = {
        .strategy = config->sharding_strategy == TT_HYBRID_SHARD ? TT_FULL_SHARD : config->sharding_strategy,
        .model_config = &model,
        .model_options = {.compute_dtype = config->bf16 ? TT_BF16 : TT_F32,
                          .train_base = !config->use_peft,
                          .lora = config->lora,
                          .random_init = true},
        .train = true,
        .saves = true,
        .saves_state = !config->save_only_model,
        .recompute = tt_train_config_recompute(config),
        .offload_params = config->offload_params,
        .backward_prefetch = config->backward_prefetch,
        .forward_prefetch = config->forward_prefetch,
        .reduce_dtype = tt_dtype_from_torch_name(config->reduce_dtype),
    };
    rank.model_options.lora.enabled = config->use_peft;
    TT_GO(read_config(options->config_json, config->model_name_or_path, &model));
    TT_GO(tt_quantization_resolve(&config->quantization, &model, rank.model_options.compute_dtype,
                                  &rank.model_options.quant));
    if (config->adapter_name_or_path != NULL)
        TT_GO(tt_adapter_config_read(config->adapter_name_or_path, &arena, &rank.model_options.lora));
    TT_GO(find_device(options->device, config->device_memory, &rank.device, &devices));
    *ranks = config->ranks > 0 ? (int)config->ranks : devices;
    TT_GO(tt_plan_make(&rank, *ranks, config->gradient_accumulation_steps, &limits, &none, plan));
out:
    tt_arena_deinit(&arena);
    return status;
}
