#include "checkpoint/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "model/adapter_config.h"

static bool is_saved(const struct tt_weights_layout *layout, const tt_param *param)
{
    return !layout->adapter || param->adapter;
}

static uint64_t saved_bytes(const tt_param *param, tt_dtype dtype)
{
    return (uint64_t)tt_param_count(param) * tt_dtype_bytes(dtype);
}

/* Files are filled in order of the model, as transformers shards: a tensor that would overfill one opens the
 * next. */
static size_t split_files(const struct tt_model *model, const struct tt_weights_layout *layout,
                          tt_dtype dtype, uint64_t max_bytes, size_t *file_of_param)
{
    size_t file = 0;
    uint64_t filled = 0;
    for (size_t i = 0; i < model->param_count; i++) {
        if (!is_saved(layout, model->params[i])) continue;
        uint64_t bytes = saved_bytes(model->params[i], dtype);
        if (filled > 0 && filled + bytes > max_bytes) {
            file++;
            filled = 0;
        }
        filled += bytes;
        file_of_param[i] = file;
    }
    return file + 1;
}

static tt_status add_entry(struct tt_weights_layout *layout, struct tt_weights_file *file,
                           const tt_param *param, tt_dtype dtype)
{
    struct tt_safetensors_entry entry = {.name = param->name, .dtype = dtype, .rank = param->rank};
    if (layout->adapter) {
        char *key = tt_adapter_key(param->name);
        if (key == NULL) return TT_ERR_MEMORY;
        entry.name = tt_arena_strdup(&layout->arena, key);
        tt_free(key);
        if (entry.name == NULL) return TT_ERR_MEMORY;
    }
    for (int d = 0; d < param->rank; d++) entry.dims[d] = param->dims[d];
    file->entries[file->count] = entry;
    file->params[file->count] = param;
    file->count++;
    layout->tensor_bytes += saved_bytes(param, dtype);
    return TT_OK;
}

/* The writer sorts entries; parameters follow by name. */
static tt_status finish_file(struct tt_weights_file *file)
{
    struct tt_safetensors_entry *before = tt_calloc(file->count + 1, sizeof *before);
    const tt_param **params = tt_calloc(file->count + 1, sizeof *params);
    tt_status status = before != NULL && params != NULL ? TT_OK : TT_ERR_MEMORY;
    if (status == TT_OK) {
        memcpy(before, file->entries, file->count * sizeof *before);
        memcpy(params, file->params, file->count * sizeof *params);
        status = tt_safetensors_layout(file->entries, file->count, &file->header, &file->bytes);
    }
    for (size_t i = 0; i < file->count && status == TT_OK; i++)
        for (size_t j = 0; j < file->count; j++)
            if (before[j].name == file->entries[i].name) file->params[i] = params[j];
    tt_free(before);
    tt_free(params);
    return status;
}

static void name_file(const struct tt_weights_layout *layout, size_t index, char *name, size_t name_bytes)
{
    if (layout->adapter)
        snprintf(name, name_bytes, "adapter_model.safetensors");
    else if (layout->file_count == 1)
        snprintf(name, name_bytes, "model.safetensors");
    else
        snprintf(name, name_bytes, "model-%05zu-of-%05zu.safetensors", index + 1, layout->file_count);
}

tt_status tt_weights_layout_init(const struct tt_model *model, tt_dtype dtype, uint64_t max_shard_bytes,
                                 struct tt_weights_layout *layout)
{
    tt_status status = TT_OK;
    *layout = (struct tt_weights_layout){0};
    for (size_t i = 0; i < model->param_count; i++) layout->adapter |= model->params[i]->adapter;
    size_t *file_of_param = tt_calloc(model->param_count + 1, sizeof *file_of_param);
    if (file_of_param == NULL) return TT_ERR_MEMORY;
    size_t file_count =
        split_files(model, layout, dtype, layout->adapter ? UINT64_MAX / 2 : max_shard_bytes, file_of_param);
    layout->files = tt_calloc(file_count, sizeof *layout->files);
    if (layout->files == NULL) TT_GO(TT_ERR_MEMORY);
    layout->file_count = file_count;
    for (size_t f = 0; f < file_count; f++) {
        layout->files[f].entries = tt_calloc(model->param_count + 1, sizeof *layout->files[f].entries);
        layout->files[f].params = tt_calloc(model->param_count + 1, sizeof *layout->files[f].params);
        if (layout->files[f].entries == NULL || layout->files[f].params == NULL) TT_GO(TT_ERR_MEMORY);
        name_file(layout, f, layout->files[f].name, sizeof layout->files[f].name);
    }
    for (size_t i = 0; i < model->param_count; i++)
        if (is_saved(layout, model->params[i]))
            TT_GO(add_entry(layout, &layout->files[file_of_param[i]], model->params[i], dtype));
    for (size_t f = 0; f < file_count; f++) TT_GO(finish_file(&layout->files[f]));
out:
    tt_free(file_of_param);
    if (status != TT_OK) tt_weights_layout_deinit(layout);
    return status;
}

void tt_weights_layout_deinit(struct tt_weights_layout *layout)
{
    for (size_t f = 0; f < layout->file_count; f++) {
        tt_free(layout->files[f].entries);
        tt_free(layout->files[f].params);
        tt_str_deinit(&layout->files[f].header);
    }
    tt_free(layout->files);
    tt_arena_deinit(&layout->arena);
    *layout = (struct tt_weights_layout){0};
}

tt_status tt_weights_layout_index(const struct tt_weights_layout *layout, struct tt_str *json)
{
    json_t *map = json_object();
    bool ok = true;
    for (size_t f = 0; f < layout->file_count; f++)
        for (size_t i = 0; i < layout->files[f].count; i++)
            ok &= json_object_set_new(map, layout->files[f].entries[i].name,
                                      json_string(layout->files[f].name)) == 0;
    json_t *root = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)layout->tensor_bytes,
                             "weight_map", map);
    tt_status status = ok && root != NULL
                           ? tt_json_write(root, 2, true, json)
                           : tt_fail(TT_ERR_MEMORY, "out of memory for the index of the weights");
    if (status == TT_OK) status = tt_str_append_char(json, '\n');
    json_decref(root);
    return status;
}
