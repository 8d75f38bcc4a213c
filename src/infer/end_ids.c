#include "infer/end_ids.h"

#include "base/file.h"
#include "base/json.h"

bool tt_end_ids_contain(const struct tt_ids *ids, int32_t id)
{
    for (size_t i = 0; i < ids->count; i++)
        if (ids->data[i] == id) return true;
    return false;
}

static tt_status add_end_id(struct tt_ids *ids, int64_t id)
{
    if (id < 0 || id > INT32_MAX || tt_end_ids_contain(ids, (int32_t)id)) return TT_OK;
    return tt_ids_append(ids, (int32_t)id);
}

tt_status tt_end_ids_find(const struct tt_inputs *inputs, struct tt_ids *ids)
{
    const struct tt_model_facts *model = &inputs->model_facts;
    struct tt_json json = {0};
    struct tt_path path;
    tt_status status = TT_OK;
    for (int i = 0; i < model->eos_token_count; i++) TT_TRY(add_end_id(ids, model->eos_token_ids[i]));
    if (inputs->tokenizer != NULL) TT_TRY(add_end_id(ids, tt_tokenizer_eos_id(inputs->tokenizer)));
    if (inputs->folder == NULL) return TT_OK;
    TT_TRY(tt_path_set(&path, tt_model_folder_path(inputs->folder), "generation_config.json"));
    if (!tt_path_exists(path.text)) return TT_OK;
    TT_GO(tt_json_read(path.text, 1 << 20, &json));
    const struct tt_json_value *eos = tt_json_get(json.root, "eos_token_id");
    if (tt_json_is_integer(eos)) TT_GO(add_end_id(ids, tt_json_integer(eos)));
    for (size_t i = 0; i < tt_json_count(eos); i++)
        TT_GO(add_end_id(ids, tt_json_integer(tt_json_at(eos, i))));
out:
    tt_json_deinit(&json);
    return status;
}
