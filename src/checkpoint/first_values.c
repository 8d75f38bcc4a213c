#include "checkpoint/first_values.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"
#include "model/adapter_config.h"
#include "model/lora_init.h"

static const char weights_name[] = "adapter_model.safetensors";

/* A linear with an adapter. */
struct linear {
    const struct tt_module *module;
    const tt_param *weight, *lora_A, *lora_B;
};

struct making {
    const struct tt_first_values *first;
    const struct tt_lora_init *kind;
    int64_t number;
    struct linear *linears;
    size_t count;
    struct tt_safetensors_entry *entries; /* two for each linear, in the order of the file */
    struct tt_arena arena;                /* their names */
    struct tt_str header;
    uint64_t bytes;
    int descriptor;
    const char *path;
    atomic_size_t next;
    atomic_bool failed;
};

static const tt_param *find_param(const struct tt_model *model, const struct tt_module *module,
                                  const char *suffix)
{
    char name[512];
    (void)snprintf(name, sizeof name, "%s.%s", module->path, suffix);
    return tt_model_find_param(model, name);
}

static tt_status list_linears(struct making *making)
{
    const struct tt_model *model = making->first->model;
    making->linears = tt_calloc(model->modules.count + 1, sizeof *making->linears);
    if (making->linears == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < model->modules.count; i++) {
        const struct tt_module *module = &model->modules.items[i];
        struct linear linear = {module, find_param(model, module, "weight"),
                                find_param(model, module, "lora_A.weight"),
                                find_param(model, module, "lora_B.weight")};
        if (module->adapted && linear.lora_A != NULL && linear.lora_B != NULL)
            making->linears[making->count++] = linear;
    }
    return TT_OK;
}

static tt_status add_entry(struct making *making, const tt_param *param, struct tt_safetensors_entry *entry)
{
    char *key = tt_adapter_key(param->name);
    const char *name = key != NULL ? tt_arena_strdup(&making->arena, key) : NULL;
    tt_free(key);
    *entry = (struct tt_safetensors_entry){
        .name = name, .dtype = TT_F32, .rank = 2, .dims = {param->dims[0], param->dims[1]}};
    return name != NULL ? TT_OK : TT_ERR_MEMORY;
}

static tt_status lay_out(struct making *making)
{
    making->entries = tt_calloc(2 * making->count + 1, sizeof *making->entries);
    if (making->entries == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < making->count; i++) {
        TT_TRY(add_entry(making, making->linears[i].lora_A, &making->entries[2 * i]));
        TT_TRY(add_entry(making, making->linears[i].lora_B, &making->entries[2 * i + 1]));
    }
    return tt_safetensors_layout(making->entries, 2 * making->count, &making->header, &making->bytes);
}

/* ---- One linear ---- */

static tt_status write_values(const struct making *making, const tt_param *param, const float *values)
{
    char *key = tt_adapter_key(param->name);
    const struct tt_safetensors_entry *entry = NULL;
    if (key == NULL) return TT_ERR_MEMORY;
    for (size_t e = 0; e < 2 * making->count && entry == NULL; e++)
        if (strcmp(making->entries[e].name, key) == 0) entry = &making->entries[e];
    tt_free(key);
    if (entry == NULL) return TT_ERR_INTERNAL;
    return tt_file_pwrite(making->descriptor, making->path, values, entry->bytes, entry->offset);
}

static tt_status read_weight(const struct making *making, const struct linear *linear, float *to)
{
    const struct tt_model_folder *folder = making->first->folder;
    const char *name = tt_model_source_name(making->first->model, linear->weight);
    const struct tt_safetensors_entry *entry = name != NULL ? tt_model_folder_find(folder, name) : NULL;
    if (entry == NULL)
        return tt_fail(TT_ERR_DATA, "'%s' has no '%s'", tt_model_folder_path(folder), linear->weight->name);
    return tt_model_folder_read(folder, entry, 0, tt_param_count(linear->weight), to, TT_F32);
}

static tt_status make_linear(const struct making *making, const struct linear *linear)
{
    struct tt_rng rng = tt_rng_derive(tt_rng_make(making->first->seed), "init");
    struct tt_lora_init_call call = {.out = linear->lora_B->dims[0],
                                     .in = linear->lora_A->dims[1],
                                     .r = linear->module->r,
                                     .scaling = (double)linear->module->scaling,
                                     .rng = tt_rng_derive(rng, linear->module->path),
                                     .number = making->number};
    bool reads = (making->kind->uses & TT_LORA_INIT_READS_WEIGHT) != 0;
    float *weight = reads ? tt_alloc_aligned((size_t)(call.out * call.in) * sizeof *weight) : NULL;
    call.a_RI = tt_alloc_aligned((size_t)(call.r * call.in) * sizeof *call.a_RI);
    call.b_OR = tt_alloc_aligned((size_t)(call.out * call.r) * sizeof *call.b_OR);
    tt_status status = TT_OK;
    if (call.a_RI == NULL || call.b_OR == NULL || (reads && weight == NULL)) TT_GO(TT_ERR_MEMORY);
    if (reads) TT_GO(read_weight(making, linear, weight));
    call.weight_OI = weight;
    if (reads && tt_param_is_quantized(linear->weight)) call.quant = &linear->weight->quant;
    TT_GO(making->kind->make(&call));
    TT_GO(write_values(making, linear->lora_A, call.a_RI));
    TT_GO(write_values(making, linear->lora_B, call.b_OR));
out:
    tt_free(weight);
    tt_free(call.a_RI);
    tt_free(call.b_OR);
    if (status != TT_OK) tt_while("computing the first values of '%s'", linear->module->path);
    return status;
}

static tt_status make_some(void *argument)
{
    struct making *making = argument;
    const struct tt_cancel *cancel = making->first->cancel;
    tt_status status = TT_OK;
    for (size_t i; status == TT_OK && !atomic_load(&making->failed) &&
                   (i = atomic_fetch_add(&making->next, 1)) < making->count;) {
        if (cancel != NULL && atomic_load(&cancel->requests) > 0)
            status = tt_fail(TT_ERR_CANCELLED, "stopped while first values of the adapter were computed");
        else
            status = make_linear(making, &making->linears[i]);
    }
    if (status != TT_OK) atomic_store(&making->failed, true);
    return status;
}

/* ---- The folder ---- */

static tt_status write_weights(struct making *making)
{
    int threads = making->first->threads;
    TT_TRY(tt_file_create(making->path, making->bytes, &making->descriptor));
    tt_status status =
        tt_file_pwrite(making->descriptor, making->path, making->header.data, making->header.bytes, 0);
    if ((size_t)threads > making->count) threads = (int)making->count;
    if (status == TT_OK) status = tt_threads_run("first values", threads, make_some, making);
    if (status == TT_OK) return tt_file_sync_close(making->descriptor, making->path);
    tt_file_close(making->descriptor);
    return status;
}

static tt_status write_config(const struct making *making, const char *to)
{
    const struct tt_first_values *first = making->first;
    struct tt_path path;
    struct tt_str text = {0};
    TT_TRY(tt_path_set(&path, to, "adapter_config.json"));
    tt_status status = tt_adapter_config_write_first(first->model, first->base_name, &text);
    if (status == TT_OK) status = tt_file_write_atomic(path.text, tt_str_text(&text), text.bytes);
    tt_str_deinit(&text);
    return status;
}

tt_status tt_first_values_write(const struct tt_first_values *first, const char *to)
{
    struct making making = {.first = first, .kind = NULL};
    struct tt_path path;
    tt_status status = TT_OK;
    making.kind = tt_lora_init_of(&first->model->options.lora, &making.number);
    if (making.kind == NULL) return tt_fail(TT_ERR_INTERNAL, "no first values are computed");
    TT_TRY(tt_path_set(&path, to, weights_name));
    making.path = path.text;
    TT_GO(tt_dir_remove(to));
    TT_GO(tt_dir_create(to));
    TT_GO(list_linears(&making));
    TT_GO(lay_out(&making));
    TT_GO(write_weights(&making));
    TT_GO(write_config(&making, to));
out:
    if (status != TT_OK) tt_while("writing '%s'", to);
    tt_str_deinit(&making.header);
    tt_arena_deinit(&making.arena);
    tt_free(making.entries);
    tt_free(making.linears);
    return status;
}
