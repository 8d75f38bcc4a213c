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
#include "convert/card.h"
#include "convert/templates.h"
#include "io/output_folder.h"
#include "model/family.h"

enum { NAME_BYTES = 80, QUANTIZATION_VERSION = 2, FILE_TYPE_F32 = 0, FILE_TYPE_F16 = 1, FILE_TYPE_BF16 = 32 };

/* A tensor that no module has. */
struct factors {
    float *values; /* owned */
    int64_t count;
    uint64_t offset;
};

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
    struct factors factors[2]; /* of rotations */
    int factor_count;
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

/* The single alpha that yields each module's scaling with the module's own rank. */
static tt_status find_alpha(const struct export *export, double *alpha)
{
    static const char merge_it[] = "merge it instead: export without --adapter_only";
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

/* Readers compute these two themselves; other values have no key. */
static tt_status check_yarn(const struct tt_rope *rope)
{
    double usual = 0.1 * log(rope->factor) + 1.0;
    if (fabs(rope->attention_factor - usual) > 1e-6)
        return refuse("an attention_factor of yarn other than 0.1 ln(factor) + 1", NULL);
    if (!rope->truncate) return refuse("yarn with truncate false", NULL);
    return TT_OK;
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
    if (!yarn) return TT_OK;
    TT_TRY(check_yarn(rope));
    TT_TRY(put_u32(export, "rope.scaling.original_context_length", rope->original_max_position));
    TT_TRY(put_f32(export, "rope.scaling.yarn_beta_fast", rope->beta_fast));
    return put_f32(export, "rope.scaling.yarn_beta_slow", rope->beta_slow);
}

/* The name of the folder, not of the file, which may be a link to another place. */
static tt_status name_of(const struct export *export, char *name, size_t name_bytes)
{
    char *folder = export->options->adapter_only ? tt_merge_adapter_folder(export->merge)
                                                 : tt_strdup(tt_model_folder_path(export->merge->folder));
    if (folder == NULL) return TT_ERR_MEMORY;
    char *real = realpath(folder, NULL);
    name[0] = '\0';
    if (real != NULL) (void)tt_hub_name_of(real, name, name_bytes);
    tt_free(folder);
    free(real);
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
        return tt_gguf_put_i32s(&export->header, name, key->list, key->count);
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
};

/* "model.layers.3.self_attn.q_proj.weight" -> "blk.3.attn_q.weight". */
static tt_status find_place(const struct export *export, const char *tensor, struct place *place)
{
    const char *suffix = strrchr(tensor, '.');
    char *path = suffix != NULL ? tt_strndup(tensor, (size_t)(suffix - tensor)) : NULL;
    if (path == NULL) return TT_ERR_MEMORY;
    const struct tt_module *module = tt_model_find_module(export->merge->model, path);
    char alone[NAME_BYTES];
    const struct tt_module_list *modules = &export->merge->model->modules;
    /* The tables have the names of text models alone. */
    const char *own = module != NULL ? tt_module_alone(modules, module->name, alone, sizeof alone) : NULL;
    const struct tt_gguf_name *name = own != NULL ? tt_gguf_find_name(export->architecture, own) : NULL;
    tt_free(path);
    if (name == NULL) return tt_fail(TT_ERR_UNSUPPORTED, "GGUF has no name for '%s'", tensor);
    if (module->layer >= 0)
        (void)snprintf(place->name, sizeof place->name, "blk.%d.%s%s", module->layer, name->name, suffix);
    else
        (void)snprintf(place->name, sizeof place->name, "%s%s", name->name, suffix);
    bool turned = name->rotated && export->architecture->pairs && module->layer >= 0;
    place->turned_rows = turned ? export->facts->layers[module->layer].head_dim : 0;
    place->shift = module->kind == TT_MODULE_NORM && export->architecture->norm_offset ? 1.0f : 0.0f;
    return TT_OK;
}

static tt_status add_output(struct export *export, const struct tt_merge_tensor *tensor,
                            const struct place *place)
{
    struct tt_merge_output output = {
        .tensor = tensor, .head_rows = place->turned_rows, .shift = place->shift};
    int64_t dims[] = {tensor->rows, tensor->columns};
    output.dtype = tensor->rank == 1 ? TT_F32 : export->dtype;
    TT_TRY(
        tt_gguf_add_tensor(&export->header, place->name, tensor->rank, dims, output.dtype, &output.offset));
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
        (void)tt_snprintf(to_a.name, sizeof to_a.name, "%s.lora_a", place.name);
        (void)tt_snprintf(to_b.name, sizeof to_b.name, "%s.lora_b", place.name);
        to_b.turned_rows = place.turned_rows;
        TT_TRY(add_output(export, a, &to_a));
        TT_TRY(add_output(export, b, &to_b));
    }
    return TT_OK;
}

/* The values are for the caller to fill in. */
static tt_status add_factors(struct export *export, const char *name, int64_t count, float **values)
{
    struct factors *factors = &export->factors[export->factor_count];
    *factors = (struct factors){.values = tt_calloc((size_t)count, sizeof **values), .count = count};
    if (factors->values == NULL) return TT_ERR_MEMORY;
    *values = factors->values;
    export->factor_count++;
    return tt_gguf_add_tensor(&export->header, name, 1, &count, TT_F32, &factors->offset);
}

/* Llama 3 divides each frequency by a factor of its own, stored as a tensor: 1 for short waves, rope_factor for long
 * ones, between them the inverse of the mean of the two inverses (model/rope.c). */
static tt_status add_llama3_factors(struct export *export, const struct tt_rope *rope)
{
    int64_t count = rope->columns / 2;
    float *factors = NULL;
    TT_TRY(add_factors(export, "rope_freqs.weight", count, &factors));
    for (int64_t i = 0; i < count; i++) {
        double frequency = pow(rope->theta, -(double)(2 * i) / (double)rope->columns);
        double waves = (double)rope->original_max_position * frequency / (2 * 3.14159265358979323846);
        double low = rope->low_freq_factor, high = rope->high_freq_factor;
        double smooth = fmin(1, fmax(0, (waves - low) / (high - low)));
        factors[i] = (float)(1 / ((1 - smooth) / rope->factor + smooth));
    }
    return TT_OK;
}

static tt_status add_longrope_factors(struct export *export, const struct tt_rope *rope)
{
    int64_t count = rope->columns / 2;
    float *factors = NULL;
    TT_TRY(add_factors(export, "rope_factors_long.weight", count, &factors));
    memcpy(factors, rope->long_factor, (size_t)count * sizeof *factors);
    TT_TRY(add_factors(export, "rope_factors_short.weight", count, &factors));
    memcpy(factors, rope->short_factor, (size_t)count * sizeof *factors);
    return TT_OK;
}

static tt_status add_rope_factors(struct export *export)
{
    const struct tt_rope *rope = &export->facts->ropes[0];
    if (rope->type == TT_ROPE_LLAMA3) return add_llama3_factors(export, rope);
    if (rope->type == TT_ROPE_LONGROPE) return add_longrope_factors(export, rope);
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
    if (!adapter) TT_TRY(add_rope_factors(export));
    TT_TRY(adapter ? add_adapter_tensors(export) : add_model_tensors(export));
    return tt_gguf_header_write(&export->header, &export->bytes);
}

/* ---- The file ---- */

static tt_status write_data(struct export *export, int descriptor, const char *path)
{
    uint64_t start = export->bytes.bytes;
    TT_TRY(tt_file_pwrite(descriptor, path, export->bytes.data, export->bytes.bytes, 0));
    for (int i = 0; i < export->factor_count; i++) {
        const struct factors *factors = &export->factors[i];
        TT_TRY(tt_file_pwrite(descriptor, path, factors->values,
                              (size_t)factors->count * sizeof *factors->values, start + factors->offset));
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
    int descriptor = -1;
    tt_status status = tt_file_create(path, export->bytes.bytes + export->header.data_bytes, &descriptor);
    if (status == TT_OK) status = write_data(export, descriptor, path);
    if (status == TT_OK)
        status = tt_file_sync_close(descriptor, path);
    else
        tt_file_close(descriptor);
    if (status == TT_OK && rename(path, final) != 0)
        status = tt_fail_errno(errno, "cannot rename '%s' to '%s'", path, final);
    if (status != TT_OK) (void)unlink(path);
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
    for (int i = 0; i < export.factor_count; i++) tt_free(export.factors[i].values);
    return status;
}
