/* A model, or LoRA's matrices, as one GGUF file for llama.cpp: its names, its order of rows, its keys. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hub_cache.h"
#include "base/number.h"
#include "base/store.h"
#include "convert/card.h"
#include "convert/templates.h"
#include "io/output_folder.h"
#include "model/family.h"

enum { NAME_BYTES = 80, QUANTIZATION_VERSION = 2, FILE_TYPE_F32 = 0, FILE_TYPE_F16 = 1, FILE_TYPE_BF16 = 32 };

struct export
{
    const struct tt_merge *merge;
    const struct tt_model_facts *facts;
    const struct tt_gguf_options *options;
    const struct tt_gguf_family *architecture;
    tt_dtype dtype;
    struct tt_gguf_header header;
    struct tt_str bytes, temporary;   /* the header; path of the incomplete file */
    struct tt_merge_tensor *matrices; /* A and B, which are not tensors of a model */
    struct tt_merge_output *outputs;
    size_t output_count;
    struct tt_gguf_vectors vectors;
};

/* ---- Limits of the format ---- */

static tt_status refuse(const char *what, const char *hint)
{
    tt_status status = tt_fail(TT_ERR_UNSUPPORTED, "GGUF cannot express %s", what);
    if (hint != NULL) tt_hint("%s", hint);
    return status;
}

static tt_status check_model(struct export *export)
{
    const struct tt_model_facts *facts = export->facts;
    const struct tt_model_family *family = facts->family;
    char text[200];
    if (family->gguf == NULL) {
        (void)snprintf(text, sizeof text, "a model of type '%s'", facts->model_type);
        return refuse(text, NULL);
    }
    export->architecture = family->gguf;
    const char *cannot = family->gguf->cannot != NULL ? family->gguf->cannot(facts) : NULL;
    if (cannot != NULL) return refuse(cannot, NULL);
    for (int i = 0; i < facts->rope_count; i++)
        if (facts->ropes[i].type == TT_ROPE_LONGROPE && !family->gguf->longrope)
            return refuse("LongRoPE for this model type", NULL);
    for (int64_t i = 0; i < facts->num_hidden_layers && !export->options->adapter_only; i++) {
        int64_t window = facts->layers[i].window;
        if (family->gguf->windows || window == 0 || window >= facts->max_position_embeddings) continue;
        (void)snprintf(text, sizeof text, "the sliding_window of %lld tokens for architecture '%s'",
                       (long long)window, export->architecture->name);
        return refuse(text, "no longer a text than the window is the same without it: lower "
                            "max_position_embeddings in a copy of config.json to the window");
    }
    return TT_OK;
}

static const char merge_it[] = "merge it instead: export without --adapter_only";

/* The single alpha that yields each module's scaling with the module's own rank. */
static tt_status find_alpha(const struct export *export, double *alpha)
{
    const struct tt_merge_tensor *first = NULL;
    char text[400];
    for (size_t i = 0; i < export->merge->count; i++) {
        const struct tt_merge_tensor *tensor = &export->merge->tensors[i];
        if (tensor->saved != NULL) {
            (void)snprintf(text, sizeof text, "modules_to_save in an adapter: '%.200s'", tensor->name);
            return refuse(text, merge_it);
        }
        if (tensor->lora_A == NULL) continue;
        double here = (double)tensor->scaling * (double)tensor->r;
        if (first == NULL) {
            first = tensor;
            *alpha = here;
        } else if (fabs(here - *alpha) > 1e-6 * fabs(*alpha)) {
            (void)tt_snprintf(
                text, sizeof text,
                "an alpha for each module: '%.120s' has %g, '%.120s' has %g (scaling times rank)",
                first->name, *alpha, tensor->name, here);
            return refuse(text, merge_it);
        }
    }
    if (export->merge->unties) return refuse("LoRA on the head of a model with tied embeddings", merge_it);
    return TT_OK;
}

/* ---- Keys ---- */

static tt_status put_u32(struct export *export, const char *key, int64_t value)
{
    char name[128];
    (void)snprintf(name, sizeof name, "%s.%s", export->architecture->name, key);
    return tt_gguf_put_u32(&export->header, name, value);
}

static tt_status put_f32(struct export *export, const char *key, double value)
{
    char name[128];
    (void)snprintf(name, sizeof name, "%s.%s", export->architecture->name, key);
    return tt_gguf_put_f32(&export->header, name, value);
}

static tt_status put_text(struct export *export, const char *key, const char *text)
{
    return tt_gguf_put_string(&export->header, key, tt_span_of(text));
}

/* Most architectures have the betas 32 and 1 whatever the keys say. Readers multiply cos and sin by 0.1 ln(factor) + 1
 * and by attn_factor; where they read m = yarn_log_multiplier, by (0.1 ln(factor) + 1) / (0.1 m ln(factor) + 1) instead
 * (llama-context.cpp), which makes 1 of m = 1. */
static tt_status put_yarn(struct export *export, const struct tt_rope *rope)
{
    double usual = rope->factor > 1 ? 0.1 * log(rope->factor) + 1.0 : 1.0;
    bool own_betas = rope->beta_fast != 32 || rope->beta_slow != 1;
    if (!rope->truncate) return refuse("yarn with truncate false", NULL);
    if (own_betas && !export->architecture->yarn_keys)
        return refuse("a beta_fast of yarn other than 32, or a beta_slow other than 1, for this model type",
                      NULL);
    TT_TRY(put_u32(export, "rope.scaling.original_context_length", rope->original_max_position));
    TT_TRY(put_f32(export, "rope.scaling.yarn_beta_fast", rope->beta_fast));
    TT_TRY(put_f32(export, "rope.scaling.yarn_beta_slow", rope->beta_slow));
    if (export->architecture->yarn_keys && rope->attention_factor == 1)
        return put_f32(export, "rope.scaling.yarn_log_multiplier", 1);
    if (fabs(rope->attention_factor - usual) <= 1e-6) return TT_OK;
    return put_f32(export, "rope.scaling.attn_factor", rope->attention_factor / usual);
}

static tt_status put_rope(struct export *export)
{
    const struct tt_rope *rope = &export->facts->ropes[0];
    char name[64];
    TT_TRY(put_u32(export, "rope.dimension_count", rope->columns));
    TT_TRY(put_f32(export, "rope.freq_base", rope->theta));
    bool yarn = rope->type == TT_ROPE_YARN;
    if (!yarn && rope->type != TT_ROPE_LINEAR) return TT_OK;
    (void)snprintf(name, sizeof name, "%s.rope.scaling.type", export->architecture->name);
    TT_TRY(put_text(export, name, yarn ? "yarn" : "linear"));
    TT_TRY(put_f32(export, "rope.scaling.factor", rope->factor));
    return yarn ? put_yarn(export, rope) : TT_OK;
}

/* The name of the folder, not of the file, which may be a link to another place. */
static tt_status name_of(const struct export *export, char *name, size_t name_bytes)
{
    char *folder = export->options->adapter_only ? tt_merge_adapter_folder(export->merge)
                                                 : tt_strdup(tt_model_folder_path(export->merge->folder));
    if (folder == NULL) return TT_ERR_MEMORY;
    struct tt_path real;
    name[0] = '\0';
    if (tt_path_real(folder, &real) == 0) (void)tt_hub_name_of(real.text, name, name_bytes);
    tt_free(folder);
    return TT_OK;
}

/* Elements of all tensors, as gguf-py counts them: less than 0 for an adapter. */
static int64_t count_parameters(const struct export *export)
{
    int64_t count = 0;
    for (size_t i = 0; i < export->merge->count; i++) {
        const struct tt_merge_tensor *tensor = &export->merge->tensors[i];
        if (!export->options->adapter_only)
            count += tensor->rows * tensor->columns;
        else if (tensor->lora_A != NULL)
            count -= tensor->r * (tensor->rows + tensor->columns);
    }
    return count;
}

/* Keys from the model card. An adapter's card describes the merged model too, and takes from the base's
 * only what it does not have itself of license and languages. */
static tt_status put_card(struct export *export)
{
    char name[256];
    tt_status status = TT_OK;
    struct tt_card adapter = {0}, base = {0};
    char *folder = NULL;
    TT_GO(name_of(export, name, sizeof name));
    if (export->merge->adapter != NULL) {
        folder = tt_merge_adapter_folder(export->merge);
        if (folder == NULL) TT_GO(TT_ERR_MEMORY);
        TT_GO(tt_card_read(folder, &adapter));
    }
    if (!export->options->adapter_only)
        TT_GO(tt_card_read(tt_model_folder_path(export->merge->folder), &base));
    bool own = adapter.yaml.root != NULL || export->options->adapter_only;
    TT_GO(tt_gguf_put_card(&export->header, own ? &adapter : &base, &base, name, count_parameters(export)));
out:
    tt_card_deinit(&adapter);
    tt_card_deinit(&base);
    tt_free(folder);
    return status;
}

static tt_status put_templates(struct export *export)
{
    struct tt_chat_files files = {0};
    bool of_adapter = false;
    tt_status status = tt_templates_load(export->merge, &files, &of_adapter);
    if (status == TT_OK) status = tt_gguf_put_templates(&export->header, &files);
    tt_chat_files_deinit(&files);
    return status;
}

static tt_status put_list(struct export *export, const char *name, const struct tt_gguf_key *key)
{
    int32_t of_layers[TT_MODEL_LAYERS_MAX];
    const int32_t *list = key->list != NULL ? key->list : of_layers;
    size_t count = key->list != NULL ? key->count : (size_t) export->facts->num_hidden_layers;
    for (size_t i = 0; key->list == NULL && i < count; i++)
        of_layers[i] = key->of_layer(export->facts, (int64_t)i);
    return key->type == TT_GGUF_KEY_BOOLS ? tt_gguf_put_bools(&export->header, name, list, count)
                                          : tt_gguf_put_i32s(&export->header, name, list, count);
}

static tt_status put_key(struct export *export, const struct tt_gguf_key *key)
{
    char name[128];
    (void)snprintf(name, sizeof name, "%s.%s", export->architecture->name, key->key);
    switch (key->type) {
    case TT_GGUF_KEY_U32:
        return tt_gguf_put_u32(&export->header, name, (int64_t)key->value);
    case TT_GGUF_KEY_F32:
        return tt_gguf_put_f32(&export->header, name, key->value);
    case TT_GGUF_KEY_I32S:
    case TT_GGUF_KEY_BOOLS:
        return put_list(export, name, key);
    }
    return tt_fail(TT_ERR_INTERNAL, "'%s' has no type", name);
}

static tt_status put_family_keys(struct export *export)
{
    struct tt_gguf_keys keys = {0};
    export->architecture->add_keys(export->facts, &keys);
    for (int i = 0; i < keys.count; i++) {
        TT_TRY(put_key(export, &keys.items[i]));
    }
    return put_rope(export);
}

static tt_status put_model_keys(struct export *export)
{
    int file_type = export->dtype == TT_F32   ? FILE_TYPE_F32
                    : export->dtype == TT_F16 ? FILE_TYPE_F16
                                              : FILE_TYPE_BF16;
    TT_TRY(put_text(export, "general.architecture", export->architecture->name));
    TT_TRY(put_text(export, "general.type", "model"));
    TT_TRY(put_card(export));
    TT_TRY(tt_gguf_put_u32(&export->header, "general.file_type", file_type));
    TT_TRY(tt_gguf_put_u32(&export->header, "general.quantization_version", QUANTIZATION_VERSION));
    TT_TRY(put_family_keys(export));
    TT_TRY(
        tt_gguf_put_tokenizer(&export->header, tt_model_folder_path(export->merge->folder), export->facts));
    return put_templates(export);
}

static tt_status put_adapter_keys(struct export *export)
{
    double alpha = 0;
    TT_TRY(find_alpha(export, &alpha));
    TT_TRY(put_text(export, "general.architecture", export->architecture->name));
    TT_TRY(put_text(export, "general.type", "adapter"));
    TT_TRY(put_card(export));
    TT_TRY(put_text(export, "adapter.type", "lora"));
    return tt_gguf_put_f32(&export->header, "adapter.lora.alpha", alpha);
}

/* ---- Tensors ---- */

/* Where a tensor of the model is in the file. */
struct place {
    char name[NAME_BYTES];
    int64_t turned_rows; /* rows of a head that are permuted; 0: none */
    float shift;         /* added to the values */
    struct tt_gguf_arrangement arrangement;
};

/* The name of what a parameter belongs to: of its module, or in the layer itself of the parameter. */
static const struct tt_gguf_name *find_name(const struct export *export, const struct tt_module *module,
                                            const char **suffix)
{
    char alone[NAME_BYTES], whole[NAME_BYTES];
    if (module == NULL) return NULL;
    if (module->layer >= 0 && *module->name == '\0') {
        const struct tt_gguf_name *name = tt_gguf_find_name(export->architecture, *suffix + 1);
        *suffix = ".weight";
        return name;
    }
    /* The tables have the names of text models alone. */
    const char *own = tt_module_alone(&export->merge->model->modules, module->name, alone, sizeof alone);
    (void)tt_snprintf(whole, sizeof whole, "%s%s", own, *suffix);
    const struct tt_gguf_name *name = tt_gguf_find_name(export->architecture, whole);
    if (name == NULL) return tt_gguf_find_name(export->architecture, own);
    *suffix = "";
    return name;
}

/* "model.layers.3.self_attn.q_proj.weight" -> "blk.3.attn_q.weight". */
static tt_status find_place(const struct export *export, const char *tensor, struct place *place)
{
    const char *suffix = strrchr(tensor, '.');
    char *path = suffix != NULL ? tt_strndup(tensor, (size_t)(suffix - tensor)) : NULL;
    if (path == NULL) return TT_ERR_MEMORY;
    const struct tt_module *module = tt_model_find_module(export->merge->model, path);
    const struct tt_gguf_name *name = find_name(export, module, &suffix);
    tt_free(path);
    if (name == NULL) return tt_fail(TT_ERR_UNSUPPORTED, "GGUF has no name for '%s'", tensor);
    if (module->layer >= 0)
        (void)snprintf(place->name, sizeof place->name, "blk.%d.%s%s", module->layer, name->name, suffix);
    else
        (void)snprintf(place->name, sizeof place->name, "%s%s", name->name, suffix);
    bool turned = name->rotated && export->architecture->pairs && module->layer >= 0;
    place->turned_rows = turned ? export->facts->layers[module->layer].head_dim : 0;
    place->shift = module->offset ? 1.0f : 0.0f;
    place->arrangement = (struct tt_gguf_arrangement){0};
    if (export->architecture->arrange != NULL && module->layer >= 0)
        export->architecture->arrange(export->facts, tensor + (module->name - module->path),
                                      &place->arrangement);
    return TT_OK;
}

static tt_status add_output(struct export *export, const struct tt_merge_tensor *tensor,
                            const struct place *place)
{
    struct tt_merge_output output = {.tensor = tensor,
                                     .head_rows = place->turned_rows,
                                     .arrangement = place->arrangement,
                                     .shift = place->shift};
    const int64_t two[] = {tensor->rows, tensor->columns};
    /* The weights of a convolution of single channels are a matrix there, in fp32. */
    bool channels = tensor->rank == 3 && tensor->dims[1] == 1;
    int rank = channels ? 2 : tensor->rank;
    output.dtype = tensor->rank == 1 || channels ? TT_F32 : export->dtype;
    TT_TRY(tt_gguf_add_tensor(&export->header, place->name, rank, rank > 2 ? tensor->dims : two, output.dtype,
                              &output.offset));
    export->outputs[export->output_count++] = output;
    return TT_OK;
}

static tt_status add_model_tensors(struct export *export)
{
    for (size_t i = 0; i < export->merge->count; i++) {
        const struct tt_merge_tensor *tensor = &export->merge->tensors[i];
        struct place place;
        if (tensor->left_alone) continue;
        TT_TRY(find_place(export, tensor->name, &place));
        TT_TRY(add_output(export, tensor, &place));
    }
    return TT_OK;
}

static tt_status check_adapted(const struct export *export, const struct tt_merge_tensor *tensor,
                               const struct place *place)
{
    const char *unadapted = export->architecture->unadapted;
    char text[300];
    if (tensor->experts > 0) {
        (void)snprintf(text, sizeof text, "LoRA on experts in an adapter ('%.200s')", tensor->name);
        return refuse(text, merge_it);
    }
    if (unadapted == NULL || strcmp(unadapted, place->name) != 0) return TT_OK;
    (void)snprintf(text, sizeof text, "LoRA on '%.200s' in an adapter: readers leave it out", tensor->name);
    return refuse(text, merge_it);
}

/* A unchanged; the rows of B permuted as those of the matrix it is added to. */
static tt_status add_adapter_tensors(struct export *export)
{
    size_t count = 0;
    for (size_t i = 0; i < export->merge->count; i++) {
        const struct tt_merge_tensor *tensor = &export->merge->tensors[i];
        struct place place, to_a = {0}, to_b = {0};
        if (tensor->lora_A == NULL) continue;
        struct tt_merge_tensor *a = &export->matrices[count++], *b = &export->matrices[count++];
        *a = (struct tt_merge_tensor){.name = tensor->lora_A->name,
                                      .saved = tensor->lora_A,
                                      .rank = 2,
                                      .rows = tensor->r,
                                      .columns = tensor->columns};
        *b = (struct tt_merge_tensor){.name = tensor->lora_B->name,
                                      .saved = tensor->lora_B,
                                      .rank = 2,
                                      .rows = tensor->rows,
                                      .columns = tensor->r};
        TT_TRY(find_place(export, tensor->name, &place));
        TT_TRY(check_adapted(export, tensor, &place));
        (void)tt_snprintf(to_a.name, sizeof to_a.name, "%s.lora_a", place.name);
        (void)tt_snprintf(to_b.name, sizeof to_b.name, "%s.lora_b", place.name);
        to_b.turned_rows = place.turned_rows;
        (place.arrangement.columns ? &to_a : &to_b)->arrangement = place.arrangement;
        TT_TRY(add_output(export, a, &to_a));
        TT_TRY(add_output(export, b, &to_b));
    }
    return TT_OK;
}

static tt_status describe(struct export *export)
{
    size_t count = export->merge->count;
    bool adapter = export->options->adapter_only;
    export->outputs = tt_calloc(2 * count + 1, sizeof *export->outputs);
    export->matrices = tt_calloc(2 * count + 1, sizeof *export->matrices);
    if (export->outputs == NULL || export->matrices == NULL) return TT_ERR_MEMORY;
    TT_TRY(check_model(export));
    TT_TRY(adapter ? put_adapter_keys(export) : put_model_keys(export));
    if (!adapter) TT_TRY(tt_gguf_add_vectors(export->facts, &export->header, &export->vectors));
    TT_TRY(adapter ? add_adapter_tensors(export) : add_model_tensors(export));
    return tt_gguf_header_write(&export->header, &export->bytes);
}

/* ---- The file ---- */

static tt_status write_data(struct export *export, int descriptor, const char *path)
{
    uint64_t start = export->bytes.bytes;
    TT_TRY(tt_file_pwrite(descriptor, path, export->bytes.data, export->bytes.bytes, 0));
    for (size_t i = 0; i < export->vectors.count; i++) {
        const struct tt_gguf_vector *vector = &export->vectors.items[i];
        TT_TRY(tt_file_pwrite(descriptor, path, vector->values,
                              (size_t)vector->count * sizeof *vector->values, start + vector->offset));
    }
    for (size_t i = 0; i < export->output_count; i++) {
        export->outputs[i].descriptor = descriptor;
        export->outputs[i].path = path;
        export->outputs[i].offset += start;
    }
    return tt_merge_run(export->merge, export->outputs, export->output_count, &export->options->work);
}

static tt_status write_file(struct export *export)
{
    const char *path = tt_str_text(&export->temporary), *final = export->options->output_file;
    if (!tt_store_can(final, TT_STORE_CAN_RENAME)) path = final; /* there it is whole or not at all */
    int descriptor = -1;
    tt_status status = tt_file_create(path, export->bytes.bytes + export->header.data_bytes, &descriptor);
    if (status == TT_OK) status = write_data(export, descriptor, path);
    if (status == TT_OK)
        status = tt_file_sync_close(descriptor, path);
    else
        tt_file_close(descriptor);
    if (status == TT_OK && path != final) status = tt_file_rename(path, final);
    if (status != TT_OK && path != final) (void)tt_file_remove(path);
    TT_TRY(status);
    const char *name = tt_path_basename(final);
    char *folder = name == final ? tt_strdup(".") : tt_strndup(final, (size_t)(name - final));
    if (folder == NULL) return TT_ERR_MEMORY;
    status = tt_dir_sync(folder);
    tt_free(folder);
    return status;
}

static tt_status check_output(const struct tt_gguf_options *options)
{
    if (!tt_path_exists(options->output_file)) return TT_OK;
    if (tt_path_is_dir(options->output_file))
        return tt_fail(TT_ERR_USAGE, "output_file '%s' is a folder: name a file in it", options->output_file);
    if (options->overwrite) return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE, "output_file '%s' exists", options->output_file);
    tt_hint("choose another, or replace it with --overwrite");
    return status;
}

/* The type of the base's matrices, or of the adapter's. */
static tt_dtype own_type(const struct tt_merge *merge, bool adapter)
{
    for (size_t i = 0; i < merge->count; i++) {
        const struct tt_merge_tensor *tensor = &merge->tensors[i];
        if (adapter && tensor->lora_A != NULL) return tensor->lora_A->dtype;
        if (!adapter && tensor->rank == 2) return tensor->dtype;
    }
    return TT_F32;
}

tt_status tt_gguf_export(const struct tt_merge *merge, const struct tt_gguf_options *options,
                         struct tt_gguf_report *report)
{
    tt_status status = TT_OK;
    struct export export = {.merge = merge, .facts = &merge->model->facts, .options = options};
    struct tt_lock *lock = NULL;
    struct tt_str what = {0};
    if (options->adapter_only && merge->adapter == NULL)
        TT_GO(tt_fail(TT_ERR_USAGE, "adapter_only needs an adapter"));
    export.dtype = options->dtype != TT_DTYPE_NONE ? options->dtype : own_type(merge, options->adapter_only);
    TT_GO(tt_str_printf(&what, "output_file '%s'", options->output_file));
    TT_GO(tt_output_lock(options->output_file, tt_str_text(&what), &lock));
    TT_GO(check_output(options));
    TT_GO(tt_str_printf(&export.temporary, "%s.exporting", options->output_file));
    TT_GO(describe(&export));
    TT_GO(write_file(&export));
    *report = (struct tt_gguf_report){.tensors = (size_t) export.header.tensor_count,
                                      .bytes = export.bytes.bytes + export.header.data_bytes,
                                      .dtype = export.dtype};
    (void)snprintf(report->architecture, sizeof report->architecture, "%s", export.architecture->name);
out:
    if (status != TT_OK) tt_while("exporting to '%s'", options->output_file);
    tt_lock_release(lock);
    tt_str_deinit(&what);
    tt_gguf_header_deinit(&export.header);
    tt_str_deinit(&export.bytes);
    tt_str_deinit(&export.temporary);
    tt_free(export.matrices);
    tt_free(export.outputs);
    tt_gguf_vectors_deinit(&export.vectors);
    return status;
}
