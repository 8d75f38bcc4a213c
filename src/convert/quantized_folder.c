#include "convert/quantized_folder.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "io/output_folder.h"
#include "io/text_part.h"
#include "tensor/format.h"

static const uint64_t default_shard_bytes = 50ull * 1000 * 1000 * 1000;

/* A tensor of the source and its outputs. */
struct item {
    const struct tt_safetensors_entry *from;
    const char *name;                     /* in the folder */
    const struct tt_quant_layout *layout; /* NULL: copied */
    struct tt_quantized_output to;        /* copied: one entry */
};

struct writing {
    const struct tt_model_folder *folder;
    const struct tt_quantize_options *options;
    struct tt_quantize_report *report;
    struct tt_output_folder output;
    struct tt_arena arena;
    struct item *items;
    size_t count;
    size_t *shard_first; /* [shard_count + 1], items */
    size_t shard_count;
    struct tt_json_value *weight_map;
    int threads;
};

/* ---- Output of each tensor ---- */

/* `name`: the model's for it; `stored`: the one it is written under. */
static tt_status plan_item(struct writing *writing, const struct tt_safetensors_entry *from, const char *name,
                           const char *stored, struct item *item)
{
    const struct tt_quantize_options *options = writing->options;
    *item = (struct item){.from = from, .name = name, .layout = options->layout_of(options->context, name)};
    if (item->layout == NULL) {
        if (from->dtype == TT_DTYPE_NONE)
            return tt_fail(TT_ERR_UNSUPPORTED, "'%s' has the type %s, which is not copied", from->name,
                           from->dtype_name);
        item->to.entries[0] = *from;
        item->to.entries[0].name = stored;
        item->to.count = 1;
        return TT_OK;
    }
    if (!tt_dtype_is_float(from->dtype) || tt_dtype_bytes(from->dtype) < 2)
        return tt_fail(TT_ERR_DATA, "'%s' is %s: only weights of at least 16 bits are quantized", from->name,
                       from->dtype_name);
    if (from->rank != 2 || from->dims[0] != item->layout->rows || from->dims[1] != item->layout->cols)
        return tt_fail(TT_ERR_DATA, "'%s' is not a matrix of %lld x %lld", from->name,
                       (long long)item->layout->rows, (long long)item->layout->cols);
    tt_dtype dtype = from->dtype == TT_F64 ? TT_F32 : from->dtype;
    return tt_quantized_describe(stored, item->layout, dtype, options->config.storage_dtype, &writing->arena,
                                 &item->to);
}

static uint64_t bytes_of(const struct item *item)
{
    uint64_t bytes = 0;
    for (int e = 0; e < item->to.count; e++) {
        const struct tt_safetensors_entry *entry = &item->to.entries[e];
        uint64_t size = tt_dtype_bytes(entry->dtype);
        for (int d = 0; d < entry->rank; d++) size *= (uint64_t)entry->dims[d];
        bytes += size;
    }
    return bytes;
}

/* An item that exceeds the limit of a file starts the next one; a weight and its scales stay together. */
static tt_status plan(struct writing *writing)
{
    uint64_t limit = writing->options->max_shard_bytes, filled = 0;
    if (limit == 0) limit = default_shard_bytes;
    writing->count = tt_model_folder_tensor_count(writing->folder);
    writing->items = tt_calloc(writing->count + 1, sizeof *writing->items);
    writing->shard_first = tt_calloc(writing->count + 2, sizeof *writing->shard_first);
    if (writing->items == NULL || writing->shard_first == NULL) return TT_ERR_MEMORY;
    writing->shard_count = 1;
    for (size_t i = 0; i < writing->count; i++) {
        const struct tt_safetensors_entry *from = tt_model_folder_tensor(writing->folder, i);
        TT_TRY(plan_item(writing, from, tt_model_folder_tensor_name(writing->folder, i),
                         tt_model_folder_stored_name(writing->folder, i), &writing->items[i]));
        uint64_t bytes = bytes_of(&writing->items[i]);
        if (filled > 0 && filled + bytes > limit) {
            writing->shard_first[writing->shard_count++] = i;
            filled = 0;
        }
        filled += bytes;
        writing->report->bytes_before += from->bytes;
        writing->report->bytes_after += bytes;
    }
    writing->shard_first[writing->shard_count] = writing->count;
    writing->report->tensors = writing->count;
    writing->report->files = writing->shard_count;
    return TT_OK;
}

/* ---- Weights ---- */

struct shard {
    char name[80];
    char *path;
    int descriptor;
    struct tt_safetensors_entry *entries;
    size_t count;
    struct tt_str header;
    uint64_t bytes;
};

static const struct tt_safetensors_entry *find_entry(const struct shard *shard, const char *name)
{
    for (size_t e = 0; e < shard->count; e++)
        if (shard->entries[e].name == name) return &shard->entries[e];
    return NULL;
}

static void count_error(struct tt_quantize_report *report, const char *name,
                        const struct tt_quantize_error *error)
{
    const char *end = strrchr(name, '.'), *begin = end;
    while (begin != NULL && begin > name && begin[-1] != '.') begin--;
    int bytes = begin != NULL ? (int)(end - begin) : 0, k = 0;
    char kind[sizeof report->kinds[0].name];
    snprintf(kind, sizeof kind, "%.*s", bytes, begin != NULL ? begin : "");
    while (k < report->kind_count && strcmp(report->kinds[k].name, kind) != 0) k++;
    if (k == TT_QUANTIZE_KINDS) k--; /* further kinds are counted with the last one */
    if (k == report->kind_count) strcpy(report->kinds[report->kind_count++].name, kind);
    struct tt_quantize_error *sums[] = {&report->kinds[k].error, &report->total};
    for (int s = 0; s < 2; s++) {
        sums[s]->tensors += error->tensors;
        sums[s]->count += error->count;
        sums[s]->squares += error->squares;
        sums[s]->errors += error->errors;
    }
}

static tt_status write_quantized(struct writing *writing, const struct shard *shard, const struct item *item)
{
    const struct tt_quantized_output *to = &item->to;
    const struct tt_quant_layout *layout = item->layout;
    struct tt_quantize_error error;
    struct tt_str state = {0};
    uint8_t *tail = NULL;
    float offset;
    tt_status status = TT_OK;
    struct tt_quantize_tensor tensor = {
        .folder = writing->folder,
        .entry = item->from,
        .layout = layout,
        .descriptor = shard->descriptor,
        .path = shard->path,
        .codes_at = find_entry(shard, to->entries[0].name)->offset,
        .threads = writing->threads,
        .cancel = writing->options->cancel,
    };
    TT_GO(tt_quantize_tensor(&tensor, &tail, &offset, &error));
    for (int e = 1; e < to->count; e++) {
        uint64_t at = find_entry(shard, to->entries[e].name)->offset;
        if (e != to->state) {
            TT_GO(tt_file_pwrite(shard->descriptor, shard->path,
                                 tail + (to->sections[e].offset - layout->absmax.offset),
                                 to->sections[e].bytes, at));
            continue;
        }
        /* weight_format 0: the file is zero already */
        if (!tt_weight_format(layout->format.type)->has_state) continue;
        tt_dtype dtype = item->from->dtype == TT_F64 ? TT_F32 : item->from->dtype;
        TT_GO(tt_quantized_state_write(layout, dtype, offset, &state));
        TT_GO(tt_file_pwrite(shard->descriptor, shard->path, state.data, state.bytes, at));
    }
    count_error(writing->report, item->name, &error);
out:
    tt_str_deinit(&state);
    tt_free(tail);
    return status;
}

static tt_status write_copy(struct writing *writing, const struct shard *shard, const struct item *item)
{
    enum { BUFFER = 1 << 20 };
    const struct tt_safetensors_entry *from = item->from;
    size_t width = tt_dtype_bytes(from->dtype);
    uint64_t at = find_entry(shard, item->to.entries[0].name)->offset;
    int64_t count = (int64_t)(from->bytes / width), step = BUFFER / (int64_t)width;
    void *buffer = tt_alloc_aligned(BUFFER);
    tt_status status = buffer != NULL ? TT_OK : TT_ERR_MEMORY;
    for (int64_t first = 0; first < count && status == TT_OK; first += step) {
        int64_t some = count - first < step ? count - first : step;
        status = tt_model_folder_read(writing->folder, from, first, some, buffer, from->dtype);
        if (status == TT_OK)
            status = tt_file_pwrite(shard->descriptor, shard->path, buffer, (size_t)some * width,
                                    at + (uint64_t)first * width);
    }
    tt_free(buffer);
    return status;
}

static tt_status name_shard(const struct writing *writing, size_t index, struct shard *shard)
{
    if (writing->shard_count == 1)
        snprintf(shard->name, sizeof shard->name, "model.safetensors");
    else
        snprintf(shard->name, sizeof shard->name, "model-%05zu-of-%05zu.safetensors", index + 1,
                 writing->shard_count);
    shard->path = tt_path_join(tt_str_text(&writing->output.temporary), shard->name);
    return shard->path != NULL ? TT_OK : TT_ERR_MEMORY;
}

static tt_status lay_out_shard(struct writing *writing, size_t first, size_t end, struct shard *shard)
{
    shard->entries = tt_calloc((end - first) * TT_QUANTIZED_ENTRIES + 1, sizeof *shard->entries);
    if (shard->entries == NULL) return TT_ERR_MEMORY;
    for (size_t i = first; i < end; i++)
        for (int e = 0; e < writing->items[i].to.count; e++) {
            const struct tt_safetensors_entry *entry = &writing->items[i].to.entries[e];
            shard->entries[shard->count++] = *entry;
            if (writing->shard_count > 1) /* else there is no index */
                tt_json_set(writing->weight_map, entry->name, tt_json_new_string(shard->name));
        }
    return tt_safetensors_layout(shard->entries, shard->count, &shard->header, &shard->bytes);
}

static tt_status write_shard(struct writing *writing, size_t index)
{
    size_t first = writing->shard_first[index], end = writing->shard_first[index + 1];
    struct shard shard = {.descriptor = -1};
    tt_status status = TT_OK;
    TT_GO(name_shard(writing, index, &shard));
    TT_GO(lay_out_shard(writing, first, end, &shard));
    TT_GO(tt_file_create(shard.path, shard.bytes, &shard.descriptor));
    TT_GO(tt_file_pwrite(shard.descriptor, shard.path, shard.header.data, shard.header.bytes, 0));
    for (size_t i = first; i < end; i++)
        TT_GO(writing->items[i].layout != NULL ? write_quantized(writing, &shard, &writing->items[i])
                                               : write_copy(writing, &shard, &writing->items[i]));
    int descriptor = shard.descriptor;
    shard.descriptor = -1;
    TT_GO(tt_file_sync_close(descriptor, shard.path));
out:
    tt_file_close(shard.descriptor);
    tt_free(shard.path);
    tt_free(shard.entries);
    tt_str_deinit(&shard.header);
    return status;
}

/* ---- Small files ---- */

static tt_status write_config(const struct writing *writing)
{
    struct tt_json_value *root = tt_json_copy(tt_model_folder_config(writing->folder)->root);
    struct tt_json_value *config = tt_quantized_config_make(&writing->options->config);
    if (writing->options->unties) tt_text_part_untie(root);
    tt_json_set(root, "quantization_config", config);
    tt_status status =
        tt_json_write_file(root, 2, true, tt_str_text(&writing->output.temporary), "config.json");
    tt_json_release(root);
    return status;
}

static tt_status write_index(const struct writing *writing)
{
    if (writing->shard_count == 1) return TT_OK;
    struct tt_json_value *root =
        tt_json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (int64_t)writing->report->bytes_after,
                     "weight_map", writing->weight_map);
    if (root == NULL) return tt_fail(TT_ERR_MEMORY, "out of memory for the index of the weights");
    tt_status status = tt_json_write_file(root, 2, true, tt_str_text(&writing->output.temporary),
                                          "model.safetensors.index.json");
    tt_json_release(root);
    return status;
}

/* ---- The folder ---- */

static tt_status check_output_dir(const struct writing *writing)
{
    const char *folder = writing->options->output_dir;
    if (tt_output_folder_is(folder, tt_model_folder_path(writing->folder)))
        return tt_fail(TT_ERR_USAGE, "output_dir '%s' is the input folder: choose another", folder);
    return TT_OK;
}

static tt_status check_disk(const struct writing *writing)
{
    uint64_t there = 0, needed = writing->report->bytes_after;
    TT_TRY(tt_dir_free_bytes(tt_str_text(&writing->output.temporary), &there, NULL));
    if (there >= needed) return TT_OK;
    return tt_fail(TT_ERR_IO, "the quantized model needs %.1f GB, and the disk of '%s' has %.1f GB left",
                   (double)needed * 1e-9, writing->options->output_dir, (double)there * 1e-9);
}

/* Checks the written files: reads every quantized weight with its state. */
static tt_status verify(const struct writing *writing)
{
    struct tt_model_folder *folder = NULL;
    TT_TRY(tt_model_folder_open(tt_str_text(&writing->output.temporary), true, &folder));
    tt_status status = tt_model_folder_join(folder, writing->options->names);
    for (size_t i = 0; i < writing->count && status == TT_OK; i++) {
        const struct item *item = &writing->items[i];
        struct tt_quantized tensor;
        status = tt_quantized_find(folder, item->name, &tensor);
        enum tt_quant_type type = item->layout != NULL ? item->layout->format.type : TT_QUANT_NONE;
        if (status == TT_OK && tensor.layout.format.type != type)
            status = tt_fail(TT_ERR_IO, "'%s' does not exist after writing", item->name);
    }
    tt_model_folder_close(folder);
    return status;
}

static tt_status write_all(struct writing *writing)
{
    const char *folder = tt_str_text(&writing->output.temporary);
    TT_TRY(check_disk(writing));
    /* These files come before the weights, so that one that cannot be copied is found early. */
    TT_TRY(tt_model_folder_copy_tokenizer(tt_model_folder_path(writing->folder), folder, true));
    for (size_t s = 0; s < writing->shard_count; s++) TT_TRY(write_shard(writing, s));
    TT_TRY(write_config(writing));
    TT_TRY(write_index(writing));
    return verify(writing);
}

tt_status tt_quantized_folder_write(const struct tt_model_folder *folder,
                                    const struct tt_quantize_options *options,
                                    struct tt_quantize_report *report)
{
    tt_status status = TT_OK;
    struct writing writing = {.folder = folder, .options = options, .report = report};
    struct tt_quantized_config before;
    *report = (struct tt_quantize_report){0};
    int processors = tt_cpu_count();
    writing.threads = options->threads > 0 ? options->threads : processors < 8 ? processors : 8;
    writing.weight_map = tt_json_new_object();
    if (writing.weight_map == NULL) TT_GO(tt_fail(TT_ERR_MEMORY, "out of memory for the index"));
    TT_GO(tt_quantized_config_read(tt_model_folder_config(folder), &before));
    if (before.type != TT_QUANT_NONE)
        TT_GO(tt_fail(TT_ERR_USAGE, "the weights of '%s' are %s already", tt_model_folder_path(folder),
                      tt_quant_type_name(before.type)));
    TT_GO(check_output_dir(&writing));
    TT_GO(tt_output_folder_open(options->output_dir, ".quantizing", options->overwrite, &writing.output));
    TT_GO(plan(&writing));
    TT_GO(write_all(&writing));
    TT_GO(tt_output_folder_commit(&writing.output));
out:
    if (status != TT_OK)
        tt_while("quantizing '%s' into '%s'", tt_model_folder_path(folder), options->output_dir);
    tt_output_folder_close(&writing.output);
    tt_json_release(writing.weight_map);
    tt_free(writing.items);
    tt_free(writing.shard_first);
    tt_arena_deinit(&writing.arena);
    return status;
}
