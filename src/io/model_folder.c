#include "io/model_folder.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/hub_cache.h"
#include "base/str.h"
#include "io/coded_experts.h"
#include "io/grown_rows.h"
#include "io/mxfp4.h"
#include "io/param_source_impl.h"
#include "io/pth.h"
#include "io/quantized.h"
#include "io/text_part.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)
#define INDEX_BYTES_MAX ((size_t)256 << 20)

static const char config_name[] = "config.json";

/* The files of the weights, as transformers looks for them: the first that is there. */
static const struct {
    const char *name;
    bool index;
} weights_names[] = {
    {"model.safetensors", false},
    {"model.safetensors.index.json", true},
    {"pytorch_model.bin", false},
    {"pytorch_model.bin.index.json", true},
};
enum { WEIGHTS_NAMES = sizeof weights_names / sizeof weights_names[0] };

struct tt_model_folder {
    char *path;
    struct tt_json config;
    struct tt_safetensors **files;
    size_t file_count;
    struct tt_stored_tensor_place *tensors; /* by name */
    size_t tensor_count;
    struct tt_arena names;         /* of renamed tensors */
    struct tt_safetensors *mxfp4;  /* decoded tensors (io/mxfp4.h); NULL: none */
    struct tt_safetensors *coded;  /* decoded matrices of experts (io/coded_experts.h); NULL: none */
    struct tt_safetensors *joined; /* tensors in pieces of the files' ones; NULL: none */
    struct tt_safetensors *grown;  /* tables with rows of new tokens (io/grown_rows.h); NULL: none */
    const struct tt_text_part *part;
    bool renamed; /* names are not the files' own */
};

/* ---- Content of the folder, for messages ---- */

struct contents {
    size_t safetensors, pickles;
    char pickle[256]; /* the first one */
    bool adapter, gguf;
};

static const char gguf_hint[] =
    "GGUF files are written (trimtab export gguf) and not read, in any quantization: download the folder of "
    "the "
    "model that they were made from (config.json and safetensors); --load_in_4bit true stores it in 4 bits";

static tt_status look_at(void *context, const char *name)
{
    struct contents *contents = context;
    if (tt_ends_with(name, ".safetensors")) contents->safetensors++;
    if (tt_pth_is_name(name) && strcmp(name, "training_args.bin") != 0) {
        if (contents->pickles++ == 0) strncpy(contents->pickle, name, sizeof contents->pickle - 1);
    }
    if (tt_ends_with(name, ".gguf")) contents->gguf = true;
    if (strcmp(name, "adapter_config.json") == 0) contents->adapter = true;
    return TT_OK;
}

static tt_status fail_no_weights(const char *path, const struct contents *contents)
{
    if (contents->safetensors > 0) {
        tt_fail(TT_ERR_DATA, "'%s' has %zu safetensors files, but neither '%s' nor '%s'", path,
                contents->safetensors, weights_names[0].name, weights_names[1].name);
        tt_hint("a model in several files needs its index");
        return TT_ERR_DATA;
    }
    if (contents->pickles > 0) {
        tt_fail(TT_ERR_DATA, "'%s' has '%s', but none of the names of weights: '%s', '%s' or their indices",
                path, contents->pickle, weights_names[0].name, weights_names[2].name);
        tt_hint("files in another library's layout are converted by transformers' scripts");
        return TT_ERR_DATA;
    }
    tt_fail(TT_ERR_DATA, "'%s' has no weights: neither '%s' nor '%s'", path, weights_names[0].name,
            weights_names[1].name);
    if (contents->gguf) tt_hint("%s", gguf_hint);
    return TT_ERR_DATA;
}

/* ---- Finding and checking ---- */

static tt_status open_file(struct tt_model_folder *folder, const char *name)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder->path, name));
    struct tt_safetensors **file = &folder->files[folder->file_count];
    tt_status status =
        tt_ends_with(name, ".bin") ? tt_pth_open(path.text, file) : tt_safetensors_open(path.text, file);
    if (status == TT_OK) folder->file_count++;
    return status;
}

static int compare_located(const void *a, const void *b)
{
    const struct tt_stored_tensor_place *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static tt_status collect_tensors(struct tt_model_folder *folder)
{
    size_t count = 0;
    for (size_t i = 0; i < folder->file_count; i++) count += tt_safetensors_count(folder->files[i]);
    folder->tensors = tt_calloc(count + 1, sizeof *folder->tensors);
    if (folder->tensors == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < folder->file_count; i++) {
        for (size_t j = 0; j < tt_safetensors_count(folder->files[i]); j++) {
            const struct tt_safetensors_entry *entry = tt_safetensors_entry(folder->files[i], j);
            folder->tensors[folder->tensor_count++] =
                (struct tt_stored_tensor_place){entry->name, entry, folder->files[i]};
        }
    }
    qsort(folder->tensors, count, sizeof *folder->tensors, compare_located);
    for (size_t i = 1; i < count; i++) {
        const struct tt_stored_tensor_place *a = &folder->tensors[i - 1], *b = &folder->tensors[i];
        if (strcmp(a->entry->name, b->entry->name) != 0) continue;
        return tt_fail(TT_ERR_DATA, "tensor '%s' is in two files of '%s': '%s' and '%s'", a->entry->name,
                       folder->path, tt_path_basename(tt_safetensors_path(a->file)),
                       tt_path_basename(tt_safetensors_path(b->file)));
    }
    return TT_OK;
}

static const struct tt_stored_tensor_place *find(const struct tt_model_folder *folder, const char *name)
{
    if (folder->tensor_count == 0) return NULL;
    struct tt_stored_tensor_place key = {.name = name};
    return bsearch(&key, folder->tensors, folder->tensor_count, sizeof key, compare_located);
}

/* Names of the files in the index, each once, in order. Paths out of the folder are refused. */
static tt_status list_files(const struct tt_json *index, const struct tt_json_value *weight_map,
                            const char **names, size_t *count)
{
    const char *tensor;
    const struct tt_json_value *value;
    *count = 0;
    for (size_t member = 0; tt_json_next_member(weight_map, &member, &tensor, &value);) {
        const char *name = tt_json_text(value);
        if (name == NULL || name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL) {
            return tt_fail(TT_ERR_DATA,
                           "%s: tensor '%s' must be mapped to the name of a file in the same folder",
                           index->origin, tensor);
        }
        names[(*count)++] = name;
    }
    if (*count == 0) return tt_fail(TT_ERR_DATA, "%s lists no tensors", index->origin);
    qsort(names, *count, sizeof *names, tt_compare_texts);
    size_t kept = 1;
    for (size_t i = 1; i < *count; i++) {
        if (strcmp(names[i], names[kept - 1]) != 0) names[kept++] = names[i];
    }
    *count = kept;
    return TT_OK;
}

static tt_status open_files(struct tt_model_folder *folder, const char *const *names, size_t count)
{
    folder->files = tt_calloc(count, sizeof *folder->files);
    if (folder->files == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        tt_status status = open_file(folder, names[i]);
        if (status == TT_OK) continue;
        struct contents contents = {0};
        struct tt_error error;
        tt_error_copy(&error);
        tt_status listed = tt_dir_list(folder->path, look_at, &contents);
        size_t there = tt_pth_is_name(names[i]) ? contents.pickles : contents.safetensors;
        if (listed == TT_OK && there < count) {
            tt_error_restore(&error);
            tt_hint("the index lists %zu files, the folder has %zu", count, there);
        } else {
            tt_error_restore(&error);
        }
        return status;
    }
    return TT_OK;
}

static tt_status check_index(const struct tt_model_folder *folder, const struct tt_json *index,
                             const struct tt_json_value *weight_map)
{
    size_t missing = 0, unlisted = 0;
    const char *first_missing = NULL, *first_file = NULL, *tensor;
    const struct tt_json_value *value;
    for (size_t member = 0; tt_json_next_member(weight_map, &member, &tensor, &value);) {
        const struct tt_stored_tensor_place *found = find(folder, tensor);
        const char *file = tt_json_text(value);
        if (found != NULL && strcmp(tt_path_basename(tt_safetensors_path(found->file)), file) == 0) continue;
        if (missing++ == 0) {
            first_missing = tensor;
            first_file = file;
        }
    }
    if (missing > 0) {
        return tt_fail(TT_ERR_DATA,
                       "%s maps tensor '%s' to '%s', which does not contain it (%zu such tensors)",
                       index->origin, first_missing, first_file, missing);
    }
    const struct tt_stored_tensor_place *first = NULL;
    for (size_t i = 0; i < folder->tensor_count; i++) {
        if (tt_json_get(weight_map, folder->tensors[i].entry->name) != NULL) continue;
        if (unlisted++ == 0) first = &folder->tensors[i];
    }
    if (unlisted > 0) {
        return tt_fail(TT_ERR_DATA, "'%s' contains tensor '%s', which %s does not list (%zu such tensors)",
                       tt_safetensors_path(first->file), first->entry->name, index->origin, unlisted);
    }
    return TT_OK;
}

static tt_status open_index(struct tt_model_folder *folder, const char *index_path)
{
    struct tt_json index = {0};
    const char **names = NULL;
    size_t count = 0;
    const struct tt_json_value *weight_map = NULL;
    tt_status status = TT_OK;
    TT_GO(tt_json_read(index_path, INDEX_BYTES_MAX, &index));
    TT_GO(tt_json_object(&index, index.root, "weight_map", &weight_map));
    names = tt_calloc(tt_json_count(weight_map), sizeof *names);
    if (names == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(list_files(&index, weight_map, names, &count));
    TT_GO(open_files(folder, names, count));
    TT_GO(collect_tensors(folder));
    TT_GO(check_index(folder, &index, weight_map));
out:
    tt_free(names);
    tt_json_deinit(&index);
    return status;
}

/* Two spellings of a name would be two tensors of that name. */
static tt_status sort_renamed(struct tt_model_folder *folder)
{
    qsort(folder->tensors, folder->tensor_count, sizeof *folder->tensors, compare_located);
    for (size_t i = 1; i < folder->tensor_count; i++)
        if (strcmp(folder->tensors[i - 1].name, folder->tensors[i].name) == 0)
            return tt_fail(TT_ERR_DATA, "'%s' has tensor '%s' under two names", folder->path,
                           folder->tensors[i].name);
    return TT_OK;
}

/* A model without its head (AutoModel, LlamaModel) is saved with names that lack its place in the whole one: as
 * transformers does (core_model_loading.py, rename_source_key), they are read as those of the whole one. */
static tt_status add_base_prefix(struct tt_model_folder *folder)
{
    static const char prefix[] = "model.", inner[] = "embed_tokens.weight", head[] = "lm_head.";
    bool is_inner = false;
    for (size_t i = 0; i < folder->tensor_count; i++) {
        if (tt_starts_with(folder->tensors[i].name, prefix)) return TT_OK;
        is_inner |= strcmp(folder->tensors[i].name, inner) == 0;
    }
    if (!is_inner) return TT_OK;
    for (size_t i = 0; i < folder->tensor_count; i++) {
        struct tt_stored_tensor_place *tensor = &folder->tensors[i];
        if (tt_starts_with(tensor->name, head)) continue;
        tensor->name = tt_arena_printf(&folder->names, "%s%s", prefix, tensor->name);
        if (tensor->name == NULL) return TT_ERR_MEMORY;
    }
    return sort_renamed(folder);
}

/* The tensors get the names of transformers' class: the files may spell others. */
static tt_status rename_to_class(struct tt_model_folder *folder, const struct tt_part_rename *renames)
{
    if (renames == NULL) return TT_OK;
    folder->renamed = true;
    for (size_t i = 0; i < folder->tensor_count; i++) {
        struct tt_stored_tensor_place *tensor = &folder->tensors[i];
        tensor->name = tt_part_renamed(renames, tensor->name, &folder->names);
        if (tensor->name == NULL) return TT_ERR_MEMORY;
    }
    return sort_renamed(folder);
}

/* The single file is used where there is also an index, as in the reference library. */
static tt_status find_weights(struct tt_model_folder *folder, bool require_weights)
{
    struct contents contents = {0};
    struct tt_path path;
    for (int i = 0; i < WEIGHTS_NAMES; i++) {
        TT_TRY(tt_path_set(&path, folder->path, weights_names[i].name));
        if (!tt_path_exists(path.text)) continue;
        if (weights_names[i].index) return open_index(folder, path.text);
        TT_TRY(open_files(folder, &weights_names[i].name, 1));
        return collect_tensors(folder);
    }
    if (!require_weights) return TT_OK;
    TT_TRY(tt_dir_list(folder->path, look_at, &contents));
    return fail_no_weights(folder->path, &contents);
}

static tt_status open_weights(struct tt_model_folder *folder, bool require_weights)
{
    TT_TRY(find_weights(folder, require_weights));
    TT_TRY(tt_mxfp4_show(folder->path, folder->tensors, &folder->tensor_count, &folder->mxfp4));
    return folder->part != NULL ? rename_to_class(folder, folder->part->renames) : add_base_prefix(folder);
}

static tt_status open_config(struct tt_model_folder *folder)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder->path, config_name));
    tt_status status;
    if (tt_path_exists(path.text)) {
        status = tt_json_read(path.text, CONFIG_BYTES_MAX, &folder->config);
        if (status == TT_OK && !tt_json_is_object(folder->config.root)) {
            status = tt_fail(TT_ERR_DATA, "%s must hold one object", path.text);
        }
    } else {
        struct contents contents = {0};
        tt_status listed = tt_dir_list(folder->path, look_at, &contents);
        status =
            listed != TT_OK ? listed : tt_fail(TT_ERR_DATA, "'%s' has no '%s'", folder->path, config_name);
        if (contents.adapter)
            tt_hint("the folder contains an adapter: name the folder of the base model here");
        else if (contents.gguf)
            tt_hint("%s", gguf_hint);
    }
    return status;
}

tt_status tt_model_folder_open(const char *path, bool require_weights, struct tt_model_folder **out)
{
    struct tt_model_folder *folder = tt_calloc(1, sizeof *folder);
    if (folder == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    TT_GO(tt_hub_locate(path, NULL, "model", &folder->path));
    if (!tt_path_is_dir(folder->path)) {
        status = tt_fail(TT_ERR_DATA, "the model folder '%s' is a file", path);
        tt_hint("%s", tt_ends_with(path, ".gguf")
                          ? gguf_hint
                          : "models are read from a local folder with config.json and its weights");
        goto out;
    }
    TT_GO(open_config(folder));
    folder->part = tt_text_part_find(folder->config.root);
    TT_GO(open_weights(folder, require_weights));
    *out = folder;
    return TT_OK;
out:
    tt_model_folder_close(folder);
    return status;
}

static tt_status rename_tensors(struct tt_model_folder *folder, tt_tensor_rename *name_of, void *context)
{
    const struct tt_safetensors *file = folder->files[0];
    size_t count = tt_safetensors_count(file);
    char name[512];
    folder->tensors = tt_calloc(count + 1, sizeof *folder->tensors);
    if (folder->tensors == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const struct tt_safetensors_entry *entry = tt_safetensors_entry(file, i);
        if (!name_of(context, entry, name, sizeof name)) continue;
        const char *kept = tt_arena_strdup(&folder->names, name);
        if (kept == NULL) return TT_ERR_MEMORY;
        folder->tensors[folder->tensor_count++] = (struct tt_stored_tensor_place){kept, entry, file};
    }
    return sort_renamed(folder);
}

tt_status tt_model_folder_of_file(struct tt_safetensors *file, tt_tensor_rename *name_of, void *context,
                                  struct tt_model_folder **out)
{
    tt_status status = TT_OK;
    struct tt_model_folder *folder = tt_calloc(1, sizeof *folder);
    if (folder != NULL) folder->files = tt_calloc(1, sizeof *folder->files);
    if (folder == NULL || folder->files == NULL) {
        tt_safetensors_close(file);
        TT_GO(TT_ERR_MEMORY);
    }
    folder->files[folder->file_count++] = file;
    folder->path = tt_strdup(tt_safetensors_path(file));
    if (folder->path == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(rename_tensors(folder, name_of, context));
    *out = folder;
    return TT_OK;
out:
    tt_model_folder_close(folder);
    return status;
}

tt_status tt_model_folder_join(struct tt_model_folder *folder, const struct tt_param_sources *sources)
{
    if (sources == NULL || folder->tensor_count == 0) return TT_OK;
    TT_TRY(rename_to_class(folder, sources->renames));
    TT_TRY(tt_coded_experts_show(folder, sources, folder->tensors, &folder->tensor_count, &folder->coded));
    if (sources->rows[0].param != NULL)
        TT_TRY(tt_join(folder->path, sources, &folder->tensors, &folder->tensor_count, &folder->joined));
    return sort_renamed(folder);
}

tt_status tt_model_folder_grow(struct tt_model_folder *folder, const struct tt_growth *growth)
{
    return tt_grow_rows(folder->path, growth, folder->tensors, folder->tensor_count, &folder->grown);
}

void tt_model_folder_close(struct tt_model_folder *folder)
{
    if (folder == NULL) return;
    tt_safetensors_close(folder->grown);
    tt_safetensors_close(folder->joined);
    tt_safetensors_close(folder->coded);
    tt_safetensors_close(folder->mxfp4);
    for (size_t i = 0; i < folder->file_count; i++) tt_safetensors_close(folder->files[i]);
    tt_free(folder->files);
    tt_free(folder->tensors);
    tt_arena_deinit(&folder->names);
    tt_json_deinit(&folder->config);
    tt_free(folder->path);
    tt_free(folder);
}

const char *tt_model_folder_path(const struct tt_model_folder *folder)
{
    return folder->path;
}

const struct tt_json *tt_model_folder_config(const struct tt_model_folder *folder)
{
    return &folder->config;
}

bool tt_model_folder_has_mxfp4(const struct tt_model_folder *folder)
{
    return folder->mxfp4 != NULL;
}

bool tt_model_folder_is_mxfp4(const struct tt_model_folder *folder, const struct tt_safetensors_entry *entry)
{
    const struct tt_safetensors *file = tt_model_folder_file(folder, entry);
    const struct tt_stored_tensor_place *place;
    if (file == NULL || folder->mxfp4 == NULL) return false;
    if (file != folder->joined) return file == folder->mxfp4;
    for (size_t i = 0; tt_joined_piece_at(file, entry, i, &place) != NULL; i++)
        if (place->file != folder->mxfp4) return false;
    return true;
}

tt_status tt_model_folder_coded(const struct tt_model_folder *folder,
                                const struct tt_safetensors_entry *entry, struct tt_quant_layout *layout)
{
    const struct tt_safetensors *file = tt_model_folder_file(folder, entry);
    *layout = (struct tt_quant_layout){.bytes = 0};
    if (folder->coded == NULL) return TT_OK;
    if (file == folder->coded && entry->rank == 3) *layout = tt_coded_experts_all(file, entry)->layout;
    if (file != folder->joined) return TT_OK;
    return tt_coded_experts_layout(folder->coded, folder->joined, entry, layout);
}

tt_status tt_model_folder_read_coded(const struct tt_model_folder *folder,
                                     const struct tt_safetensors_entry *entry,
                                     const struct tt_quant_layout *layout, size_t first, size_t bytes,
                                     void *to)
{
    if (tt_model_folder_file(folder, entry) == folder->coded)
        return tt_quantized_read(folder, tt_coded_experts_all(folder->coded, entry), first, bytes, to);
    return tt_coded_experts_read_segment(folder->coded, folder->joined, entry, layout, first, bytes, to);
}

bool tt_model_folder_has_weights(const struct tt_model_folder *folder)
{
    return folder->file_count > 0;
}

size_t tt_model_folder_file_count(const struct tt_model_folder *folder)
{
    return folder->file_count;
}

const struct tt_safetensors *tt_model_folder_file_at(const struct tt_model_folder *folder, size_t index)
{
    return index < folder->file_count ? folder->files[index] : NULL;
}

size_t tt_model_folder_tensor_count(const struct tt_model_folder *folder)
{
    return folder->tensor_count;
}

const struct tt_safetensors_entry *tt_model_folder_tensor(const struct tt_model_folder *folder, size_t index)
{
    return index < folder->tensor_count ? folder->tensors[index].entry : NULL;
}

const char *tt_model_folder_tensor_name(const struct tt_model_folder *folder, size_t index)
{
    return index < folder->tensor_count ? folder->tensors[index].name : NULL;
}

const struct tt_safetensors_entry *tt_model_folder_find(const struct tt_model_folder *folder,
                                                        const char *name)
{
    const struct tt_stored_tensor_place *found = find(folder, name);
    return found != NULL ? found->entry : NULL;
}

const struct tt_safetensors_entry *tt_model_folder_find_stored(const struct tt_model_folder *folder,
                                                               const char *name)
{
    const struct tt_safetensors_entry *entry = NULL;
    for (size_t f = 0; f < folder->file_count && entry == NULL;)
        entry = tt_safetensors_find(folder->files[f++], name);
    return entry;
}

const struct tt_safetensors *tt_model_folder_file(const struct tt_model_folder *folder,
                                                  const struct tt_safetensors_entry *entry)
{
    const struct tt_safetensors *made[] = {folder->mxfp4, folder->coded, folder->joined, folder->grown};
    for (size_t f = 0; f < folder->file_count + sizeof made / sizeof *made; f++) {
        const struct tt_safetensors *file =
            f < folder->file_count ? folder->files[f] : made[f - folder->file_count];
        size_t count = file != NULL ? tt_safetensors_count(file) : 0;
        if (count == 0) continue;
        uintptr_t first = (uintptr_t)tt_safetensors_entry(file, 0);
        if ((uintptr_t)entry >= first && (uintptr_t)entry <= (uintptr_t)tt_safetensors_entry(file, count - 1))
            return file;
    }
    tt_fail(TT_ERR_INTERNAL, "tensor '%s' is not of the folder '%s'", entry->name, folder->path);
    return NULL;
}

tt_status tt_model_folder_read(const struct tt_model_folder *folder, const struct tt_safetensors_entry *entry,
                               int64_t first, int64_t count, void *to, tt_dtype dtype)
{
    const struct tt_safetensors *file = tt_model_folder_file(folder, entry);
    return file != NULL ? tt_safetensors_read(file, entry, first, count, to, dtype) : TT_ERR_INTERNAL;
}

tt_status tt_model_folder_pieces(const struct tt_model_folder *folder, const char *name,
                                 tt_source_visit *visit, void *context, bool *joined)
{
    const struct tt_stored_tensor_place *found = find(folder, name);
    *joined = found != NULL && folder->joined != NULL && found->file == folder->joined;
    return *joined ? tt_joined_pieces(folder->joined, found->entry, visit, context) : TT_OK;
}

size_t tt_model_folder_left_alone(const struct tt_model_folder *folder)
{
    size_t count = 0;
    for (size_t i = 0; i < folder->tensor_count; i++)
        count += tt_text_part_leaves(folder->part, folder->tensors[i].name);
    return count;
}

const char *tt_model_folder_stored_name(const struct tt_model_folder *folder, size_t index)
{
    if (index >= folder->tensor_count) return NULL;
    const struct tt_stored_tensor_place *tensor = &folder->tensors[index];
    return folder->renamed ? tensor->entry->name : tensor->name;
}

const char *tt_model_folder_spelling(const struct tt_model_folder *folder, const char *name)
{
    const struct tt_stored_tensor_place *found = folder->renamed ? find(folder, name) : NULL;
    return found != NULL ? found->entry->name : name;
}

tt_status tt_adapter_weights_open(const char *folder, struct tt_safetensors **out)
{
    struct tt_path weights, pickled;
    TT_TRY(tt_path_set(&weights, folder, "adapter_model.safetensors"));
    TT_TRY(tt_path_set(&pickled, folder, "adapter_model.bin"));
    bool is_pickled = !tt_path_exists(weights.text) && tt_path_exists(pickled.text);
    return is_pickled ? tt_pth_open(pickled.text, out) : tt_safetensors_open(weights.text, out);
}
