/* A model, or LoRA's matrices, as one GGUF file for llama.cpp: its names, its order of rows, its keys. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "base/store.h"
#include "convert/gguf_export_impl.h"
#include "io/output_folder.h"
#include "model/family.h"

enum { NAME_BYTES = 80 };

/* ---- Limits of the format ---- */

static tt_status check_model(struct gguf_export *export)
{
    const struct tt_model_facts *facts = export->facts;
    const struct tt_gguf_family *gguf = facts->family->gguf;
    char text[200];
    if (gguf == NULL) {
        (void)snprintf(text, sizeof text, "a model of type '%s'", facts->model_type);
        return gguf_refuse(text, NULL);
    }
    if (gguf->instead != NULL) gguf = gguf->instead(facts);
    export->architecture = gguf;
    const char *cannot = gguf->cannot != NULL ? gguf->cannot(facts) : NULL;
    if (cannot != NULL) return gguf_refuse(cannot, NULL);
    const char *notice = gguf->notice != NULL ? gguf->notice(facts) : NULL;
    if (notice != NULL) tt_notice("readers of the file %s", notice);
    for (int i = 0; i < facts->rope_count; i++)
        if (facts->ropes[i].type == TT_ROPE_LONGROPE && !gguf->longrope)
            return gguf_refuse("LongRoPE for this model type", NULL);
    for (int64_t i = 0; i < facts->num_hidden_layers && !export->options->adapter_only; i++) {
        int64_t window = facts->layers[i].window;
        if (gguf->windows || window == 0 || window >= facts->max_position_embeddings) continue;
        (void)snprintf(text, sizeof text, "the sliding_window of %lld tokens for architecture '%s'",
                       (long long)window, export->architecture->name);
        return gguf_refuse(text, "no longer a text than the window is the same without it: lower "
                                 "max_position_embeddings in a copy of config.json to the window");
    }
    return TT_OK;
}

static const char merge_it[] = "merge it instead: export without --adapter_only";

/* Scaling times rank of a module with LoRA: its alpha, whatever rules made it. */
static double alpha_of(const struct tt_merge_tensor *tensor)
{
    return (double)tensor->scaling * (double)tensor->r;
}

/* The file has one alpha, by which readers multiply; B of a module with another one is multiplied by what is missing.
 * An alpha of 0 would mean a scaling of 1 to them. */
static tt_status find_alpha(struct gguf_export *export)
{
    char text[400];
    for (size_t i = 0; i < export->merge->count; i++) {
        const struct tt_merge_tensor *tensor = &export->merge->tensors[i];
        if (tensor->saved != NULL) {
            (void)snprintf(text, sizeof text, "%s in an adapter: '%.200s'",
                           tensor->rank == 1 ? "vectors" : "modules_to_save", tensor->name);
            return gguf_refuse(text, merge_it);
        }
        if (tensor->magnitude != NULL) {
            (void)snprintf(text, sizeof text, "the magnitudes of DoRA in an adapter: '%.200s'", tensor->name);
            return gguf_refuse(text, merge_it);
        }
        if (tensor->trained != NULL) {
            (void)snprintf(text, sizeof text, "trained rows of tokens in an adapter: '%.200s'", tensor->name);
            return gguf_refuse(text, merge_it);
        }
        if (tensor->lora_A != NULL && tensor->experts > 0) {
            (void)snprintf(text, sizeof text, "LoRA on experts in an adapter: '%.200s'", tensor->name);
            return gguf_refuse(text, merge_it);
        }
        if (tensor->lora_A != NULL && export->alpha == 0) export->alpha = alpha_of(tensor);
    }
    if (export->alpha == 0) export->alpha = 1;
    if (export->merge->unties)
        return gguf_refuse("LoRA on the head of a model with tied embeddings", merge_it);
    return TT_OK;
}

/* ---- Tensors ---- */

/* Where a tensor of the model is in the file. */
struct place {
    char name[NAME_BYTES];
    char second[NAME_BYTES];     /* of the other rows of each expert, or of a matrix; "": all have one name */
    int64_t period, first, rows; /* of every `period` rows these are written; period 0: all */
    int64_t turned_rows;         /* rows of a head that are permuted; 0: none */
    int layer;                   /* -1: outside of the layers */
    float shift;                 /* added to the values */
    bool multiplied;             /* the values by `factor` */
    float factor;
    struct tt_gguf_arrangement arrangement;
};

/* The name of what a parameter belongs to: of its module, or in the layer itself of the parameter. */
static const struct tt_gguf_name *find_name(const struct gguf_export *export, const struct tt_module *module,
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
static tt_status find_place(const struct gguf_export *export, const char *tensor, struct place *place)
{
    const char *suffix = strrchr(tensor, '.');
    char *path = suffix != NULL ? tt_strndup(tensor, (size_t)(suffix - tensor)) : NULL;
    if (path == NULL) return TT_ERR_MEMORY;
    const struct tt_module *module = tt_model_find_module(export->merge->model, path);
    const struct tt_gguf_name *name = find_name(export, module, &suffix);
    tt_free(path);
    if (name == NULL) return tt_fail(TT_ERR_UNSUPPORTED, "GGUF has no name for '%s'", tensor);
    const char *blank = strchr(name->name, ' ');
    int bytes = blank != NULL ? (int)(blank - name->name) : (int)strlen(name->name);
    place->second[0] = '\0';
    if (module->layer >= 0)
        (void)snprintf(place->name, sizeof place->name, "blk.%d.%.*s%s", module->layer, bytes, name->name,
                       suffix);
    else
        (void)snprintf(place->name, sizeof place->name, "%s%s", name->name, suffix);
    if (blank != NULL)
        (void)snprintf(place->second, sizeof place->second, "blk.%d.%s%s", module->layer, blank + 1, suffix);
    place->layer = module->layer;
    place->multiplied = false;
    bool turned = name->rotated && export->architecture->pairs && module->layer >= 0;
    place->turned_rows = turned ? export->facts->layers[module->layer].head_dim : 0;
    place->shift = module->offset ? 1.0f : 0.0f;
    place->arrangement = (struct tt_gguf_arrangement){0};
    if (export->architecture->arrange != NULL && module->layer >= 0)
        export->architecture->arrange(export->facts, tensor + (module->name - module->path),
                                      &place->arrangement);
    place->period = place->arrangement.period;
    place->first = 0;
    place->rows = place->arrangement.part;
    return TT_OK;
}

/* The place of the rows of a matrix that have the second name. */
static struct place place_of_second(const struct place *place)
{
    struct place second = *place;
    memcpy(second.name, place->second, sizeof second.name);
    second.first = place->rows;
    second.rows = place->period - place->rows;
    second.arrangement = (struct tt_gguf_arrangement){0};
    return second;
}

/* Says what the rule of types needs of the model; its tensors are counted before the first one gets its type. */
static tt_status begin_rule(struct gguf_export *export)
{
    export->rule = (struct tt_gguf_rule){
        .mixture = export->options->mixture,
        .architecture = export->architecture->name,
        .layers = export->facts->num_hidden_layers,
        .experts = gguf_number_of(export, "expert_count"),
        .heads = gguf_number_of(export, "attention.head_count"),
        .key_heads = gguf_number_of(export, "attention.head_count_kv"),
    };
    for (size_t i = 0; i < export->merge->count; i++) {
        struct place place;
        if (export->merge->tensors[i].left_alone) continue;
        TT_TRY(find_place(export, export->merge->tensors[i].name, &place));
        tt_gguf_rule_count(&export->rule, place.name);
    }
    return TT_OK;
}

/* The type of a tensor of these dimensions in the file. */
static enum tt_gguf_type choose_type(struct gguf_export *export, const struct place *place, tt_dtype plain,
                                     int rank, const int64_t *dims)
{
    enum tt_gguf_type type = TT_GGUF_TYPES;
    if (export->options->mixture != NULL && export->options->adapter_only)
        type = dims[rank - 1] % tt_gguf_type_facts(TT_GGUF_Q8_0)->weights == 0 ? TT_GGUF_Q8_0 : TT_GGUF_F16;
    else if (export->options->mixture != NULL)
        type = tt_gguf_rule_type(&export->rule, place->name, place->layer, rank, dims);
    return type != TT_GGUF_TYPES ? type : tt_gguf_plain_type(plain);
}

/* Numbers that readers have in fp32 whatever the type of the matrices: vectors, biases, routers, and the weights of a
 * convolution of single channels. */
static bool is_exact(const struct tt_merge_tensor *tensor, const char *name, bool channels)
{
    return tensor->rank == 1 || channels || tt_ends_with(name, ".bias") ||
           strstr(name, ".ffn_gate_inp") != NULL;
}

static tt_status add_output(struct gguf_export *export, struct tt_merge_output output,
                            const struct place *place, int rank, const int64_t *dims, bool exact)
{
    tt_dtype plain = exact ? TT_F32 : export->dtype;
    enum tt_gguf_type type = choose_type(export, place, plain, rank, dims);
    int64_t count = 1;
    if (type == TT_GGUF_TYPES)
        return tt_fail(TT_ERR_UNSUPPORTED, "'%s' would be %s, which GGUF export does not support",
                       place->name, tt_dtype_torch_name(plain));
    for (int d = 0; d < rank; d++) count *= dims[d];
    output.dtype = tt_gguf_type_facts(type)->dtype;
    if (output.dtype == TT_DTYPE_NONE) {
        output.dtype = TT_F32;
        output.encoded = type;
    }
    TT_TRY(tt_gguf_add_tensor(&export->header, place->name, rank, dims, type, &output.offset));
    export->outputs[export->output_count++] = output;
    export->of_type[type]++;
    export->weights += count;
    export->weight_bytes += tt_gguf_type_bytes(type, count);
    return TT_OK;
}

/* A tensor, or of a matrix the rows that the place has. */
static tt_status add_whole(struct gguf_export *export, const struct tt_merge_tensor *tensor,
                           const struct place *place)
{
    const struct tt_merge_output output = {.tensor = tensor,
                                           .head_rows = place->turned_rows,
                                           .arrangement = place->arrangement,
                                           .part_period = place->period,
                                           .part_first = place->first,
                                           .part_rows = place->rows,
                                           .multiplied = place->multiplied,
                                           .factor = place->factor,
                                           .shift = place->shift};
    int64_t lines = place->arrangement.lines, parts = place->period > 0 ? tensor->rows / place->period : 1;
    int64_t rows = place->period > 0 ? place->rows : lines > 0 ? lines : tensor->rows;
    int64_t columns = lines > 0 ? tensor->rows / lines : tensor->columns;
    bool channels = tensor->rank == 3 && tensor->dims[1] == 1; /* a matrix there */
    bool turned = place->arrangement.transposed, exact = is_exact(tensor, place->name, channels);
    if (tensor->rank == 3 && !channels) return add_output(export, output, place, 3, tensor->dims, exact);
    const int64_t dims[] = {parts, turned ? columns : rows, turned ? rows : columns};
    int rank = parts > 1 ? 3 : tensor->rank == 1 && lines == 0 ? 1 : 2;
    return add_output(export, output, place, rank, rank == 1 ? dims + 1 : dims + 3 - rank, exact);
}

/* A tensor of whose rows some have another name. */
static tt_status add_parts(struct gguf_export *export, const struct tt_merge_tensor *tensor,
                           const struct place *place)
{
    const struct place second = place_of_second(place);
    TT_TRY(add_whole(export, tensor, place));
    return add_whole(export, tensor, &second);
}

/* The rows of each expert are two tensors there. A bias has no columns: its numbers are rows here. */
static tt_status add_halves(struct gguf_export *export, const struct tt_merge_tensor *tensor,
                            const struct place *place)
{
    struct place second = *place;
    int64_t half = tensor->dims[1] / 2, dims[] = {tensor->dims[0], half, tensor->columns};
    bool bias = tensor->rank == 2;
    if (bias) {
        struct tt_merge_tensor *numbers = &export->matrices[export->matrix_count++];
        *numbers = *tensor;
        numbers->rows *= numbers->columns;
        numbers->columns = 1;
        tensor = numbers;
    }
    struct tt_merge_output output = {.tensor = tensor, .part_period = 2 * half, .part_rows = half};
    memcpy(second.name, place->second, sizeof second.name);
    TT_TRY(add_output(export, output, place, bias ? 2 : 3, dims, bias));
    output.part_first = half;
    return add_output(export, output, &second, bias ? 2 : 3, dims, bias);
}

static tt_status add_model_tensors(struct gguf_export *export)
{
    if (export->options->mixture != NULL) TT_TRY(begin_rule(export));
    for (size_t i = 0; i < export->merge->count; i++) {
        const struct tt_merge_tensor *tensor = &export->merge->tensors[i];
        struct place place;
        if (tensor->left_alone) continue;
        TT_TRY(find_place(export, tensor->name, &place));
        TT_TRY(place.period > 0          ? add_parts(export, tensor, &place)
               : place.second[0] != '\0' ? add_halves(export, tensor, &place)
                                         : add_whole(export, tensor, &place));
    }
    return TT_OK;
}

static tt_status check_adapted(const struct gguf_export *export, const struct tt_merge_tensor *tensor,
                               const struct place *place)
{
    const char *const *unadapted = export->architecture->unadapted;
    const char *name = place->name;
    char text[300];
    if (tensor->experts > 0) {
        (void)snprintf(text, sizeof text, "LoRA on experts in an adapter ('%.200s')", tensor->name);
        return gguf_refuse(text, merge_it);
    }
    if (place->layer >= 0) name = strchr(name + strlen("blk."), '.') + 1;
    while (unadapted != NULL && *unadapted != NULL && strcmp(*unadapted, name) != 0) unadapted++;
    if (unadapted == NULL || *unadapted == NULL) return TT_OK;
    (void)snprintf(text, sizeof text, "LoRA on '%.200s' in an adapter: readers leave it out", tensor->name);
    return gguf_refuse(text, merge_it);
}

/* A and B of one tensor of the file. */
static tt_status add_pair(struct gguf_export *export, const struct tt_merge_tensor *a,
                          const struct tt_merge_tensor *b, const struct place *place)
{
    struct place to_a = {.layer = place->layer}, to_b = *place;
    (void)tt_snprintf(to_a.name, sizeof to_a.name, "%s.lora_a", place->name);
    (void)tt_snprintf(to_b.name, sizeof to_b.name, "%s.lora_b", place->name);
    to_b.shift = 0;
    if (place->arrangement.columns) {
        to_a.arrangement = place->arrangement;
        to_b.arrangement = (struct tt_gguf_arrangement){0};
    }
    TT_TRY(add_whole(export, a, &to_a));
    return add_whole(export, b, &to_b);
}

/* A unchanged; the rows of B permuted as those of the matrix it is added to. */
static tt_status add_adapter_tensors(struct gguf_export *export)
{
    for (size_t i = 0; i < export->merge->count; i++) {
        const struct tt_merge_tensor *tensor = &export->merge->tensors[i];
        struct place place;
        if (tensor->lora_A == NULL) continue;
        struct tt_merge_tensor *a = &export->matrices[export->matrix_count++];
        struct tt_merge_tensor *b = &export->matrices[export->matrix_count++];
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
        place.factor = (float)(alpha_of(tensor) / export->alpha);
        place.multiplied = fabsf(place.factor - 1) > 1e-6f;
        TT_TRY(add_pair(export, a, b, &place));
        if (place.period == 0) continue;
        const struct place second = place_of_second(&place);
        TT_TRY(add_pair(export, a, b, &second));
    }
    return TT_OK;
}

static tt_status describe(struct gguf_export *export)
{
    size_t count = export->merge->count;
    bool adapter = export->options->adapter_only;
    export->outputs = tt_calloc(4 * count + 1, sizeof *export->outputs); /* A and B of two names each */
    export->matrices = tt_calloc(2 * count + 1, sizeof *export->matrices);
    if (export->outputs == NULL || export->matrices == NULL) return TT_ERR_MEMORY;
    TT_TRY(check_model(export));
    if (adapter) TT_TRY(find_alpha(export));
    TT_TRY(adapter ? gguf_put_adapter_keys(export) : gguf_put_model_keys(export));
    if (!adapter) TT_TRY(tt_gguf_add_vectors(export->facts, &export->header, &export->vectors));
    TT_TRY(adapter ? add_adapter_tensors(export) : add_model_tensors(export));
    return tt_gguf_header_write(&export->header, &export->bytes);
}

/* ---- The file ---- */

static tt_status write_data(struct gguf_export *export, int descriptor, const char *path)
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

static tt_status write_file(struct gguf_export *export)
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

static tt_status check_mixture(const struct tt_gguf_options *options)
{
    if (!options->adapter_only || options->mixture == NULL || strcmp(options->mixture->name, "q8_0") == 0)
        return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_UNSUPPORTED, "an adapter alone is not quantized to %s", options->mixture->name);
    tt_hint("write it as f32, f16, bf16 or q8_0, or merge it: export without --adapter_only");
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
    struct gguf_export export = {.merge = merge, .facts = &merge->model->facts, .options = options};
    struct tt_lock *lock = NULL;
    struct tt_str what = {0};
    if (options->adapter_only && merge->adapter == NULL)
        TT_GO(tt_fail(TT_ERR_USAGE, "adapter_only needs an adapter"));
    TT_GO(check_mixture(options));
    export.dtype = options->dtype != TT_DTYPE_NONE ? options->dtype : own_type(merge, options->adapter_only);
    TT_GO(tt_str_printf(&what, "output_file '%s'", options->output_file));
    TT_GO(tt_output_lock(options->output_file, tt_str_text(&what), &lock));
    TT_GO(check_output(options));
    TT_GO(tt_str_printf(&export.temporary, "%s.exporting", options->output_file));
    TT_GO(describe(&export));
    TT_GO(write_file(&export));
    *report = (struct tt_gguf_report){.tensors = (size_t) export.header.tensor_count,
                                      .bytes = export.bytes.bytes + export.header.data_bytes,
                                      .dtype = export.dtype,
                                      .weights = export.weights,
                                      .weight_bytes = export.weight_bytes};
    memcpy(report->of_type, export.of_type, sizeof report->of_type);
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
