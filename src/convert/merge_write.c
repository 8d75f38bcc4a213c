/* A merged model as a folder: weights in shards, index, configuration, and the base's other files. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/manifest.h"
#include "convert/merge.h"
#include "convert/templates.h"
#include "io/output_folder.h"
#include "model/new_rows.h"
#include "model/scores.h"

static const uint64_t default_shard_bytes = 50ull * 1000 * 1000 * 1000;

/* A tensor of the folder: one of the model, or pieces of some. */
struct stored {
    struct tt_safetensors_entry entry;
    const struct shard *shard;
};

struct shard {
    char name[64]; /* two counts of 20 digits */
    char *path;
    int descriptor;
    size_t first, count; /* stored tensors */
    struct tt_safetensors_entry *entries;
    struct tt_str header;
    uint64_t bytes;
};

struct writing {
    const struct tt_merge *merge;
    const struct tt_merge_options *options;
    struct tt_merge_report *report;
    struct tt_output_folder output;
    struct stored *stored;
    size_t stored_count, stored_room;
    size_t *stored_of; /* [merge->count]: of a tensor without pieces */
    /* Those of tensor i begin with first_piece[i]. */
    struct tt_merge_piece *pieces;
    size_t piece_count, piece_room, *first_piece;
    struct tt_name_index index;           /* of stored tensors that are pieces */
    const struct tt_merge_tensor *listed; /* whose pieces are listed */
    struct tt_arena arena;
    struct shard *shards;
    size_t shard_count;
};

static tt_dtype type_of(const struct writing *writing, const struct tt_merge_tensor *tensor)
{
    bool changes = writing->options->dtype != TT_DTYPE_NONE && !tensor->left_alone;
    return changes ? writing->options->dtype : tensor->dtype;
}

static uint64_t bytes_of(const struct stored *stored)
{
    uint64_t bytes = tt_dtype_bytes(stored->entry.dtype);
    for (int d = 0; d < stored->entry.rank; d++) bytes *= (uint64_t)stored->entry.dims[d];
    return bytes;
}

/* ---- Tensors of the folder ---- */

static tt_status add_stored(struct writing *writing, const char *name, int rank, const int64_t *dims)
{
    struct tt_safetensors_entry entry = {
        .name = name, .dtype = type_of(writing, writing->listed), .rank = rank};
    memcpy(entry.dims, dims, sizeof entry.dims);
    TT_TRY(tt_grow(&writing->stored, writing->stored_count, &writing->stored_room));
    writing->stored[writing->stored_count++] = (struct stored){.entry = entry};
    return TT_OK;
}

static tt_status add_piece(void *context, const struct tt_source_piece *piece)
{
    struct writing *writing = context;
    size_t number;
    if (!tt_name_index_find(&writing->index, piece->tensor, &number)) {
        const char *name = tt_arena_strdup(&writing->arena, piece->tensor);
        if (name == NULL) return TT_ERR_MEMORY;
        number = writing->stored_count;
        TT_TRY(add_stored(writing, name, piece->rank, piece->dims));
        TT_TRY(tt_name_index_add(&writing->index, name, number));
    }
    TT_TRY(tt_grow(&writing->pieces, writing->piece_count, &writing->piece_room));
    writing->pieces[writing->piece_count] = (struct tt_merge_piece){.piece = *piece};
    writing->pieces[writing->piece_count++].piece.tensor = writing->stored[number].entry.name;
    return TT_OK;
}

/* Names and shapes are those of the base's files. */
static tt_status list_stored(struct writing *writing)
{
    const struct tt_merge *merge = writing->merge;
    writing->stored_of = tt_calloc(merge->count + 1, sizeof *writing->stored_of);
    writing->first_piece = tt_calloc(merge->count + 1, sizeof *writing->first_piece);
    if (writing->stored_of == NULL || writing->first_piece == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < merge->count; i++) {
        const struct tt_merge_tensor *tensor = writing->listed = &merge->tensors[i];
        bool joined = false;
        if (!tensor->left_alone)
            TT_TRY(tt_model_folder_pieces(merge->folder, tensor->name, add_piece, writing, &joined));
        writing->stored_of[i] = writing->stored_count;
        if (!joined) TT_TRY(add_stored(writing, tensor->stored, tensor->rank, tensor->dims));
        writing->first_piece[i + 1] = writing->piece_count;
    }
    return TT_OK;
}

/* ---- Checks before writing ---- */

static tt_status check_output_dir(const struct writing *writing)
{
    const char *folder = writing->options->output_dir, *base = tt_model_folder_path(writing->merge->folder);
    const struct tt_safetensors *adapter = writing->merge->adapter;
    struct tt_path weights;
    TT_TRY(tt_path_set(&weights, folder, "adapter_model.safetensors"));
    bool same = tt_output_folder_is(folder, base) ||
                (adapter != NULL && tt_output_folder_is(weights.text, tt_safetensors_path(adapter)));
    if (same) return tt_fail(TT_ERR_USAGE, "output_dir '%s' is an input folder: choose another", folder);
    return TT_OK;
}

/* The weights are written without quantization_config, so that other parts may not need it. */
static tt_status check_left_alone(const struct tt_merge *merge)
{
    for (size_t i = 0; i < merge->count && merge->quantized; i++) {
        const struct tt_merge_tensor *tensor = &merge->tensors[i];
        struct tt_quantized found = {0};
        if (!tensor->left_alone) continue;
        TT_TRY(tt_quantized_find(merge->folder, tensor->name, &found));
        if (found.layout.format.type == TT_QUANT_NONE) continue;
        tt_status status = tt_fail(
            TT_ERR_UNSUPPORTED,
            "'%s' is quantized too, and a merge writes only the text model in full precision", tensor->name);
        tt_hint("merge over the folder of the original weights");
        return status;
    }
    return TT_OK;
}

static tt_status check_disk(const struct writing *writing)
{
    uint64_t needed = 0, there = 0;
    char text[2][32];
    for (size_t s = 0; s < writing->shard_count; s++) needed += writing->shards[s].bytes;
    TT_TRY(tt_dir_free_bytes(tt_str_text(&writing->output.temporary), &there, NULL));
    if (there >= needed) return TT_OK;
    return tt_fail(TT_ERR_IO, "the merged model needs %s, and the disk of '%s' has %s left",
                   tt_format_bytes((double)needed, text[0], sizeof text[0]), writing->options->output_dir,
                   tt_format_bytes((double)there, text[1], sizeof text[1]));
}

/* ---- Shards ---- */

/* A tensor that exceeds the limit of a file starts the next one, as in transformers. */
static tt_status split_shards(struct writing *writing)
{
    size_t tensor_count = writing->stored_count;
    uint64_t limit = writing->options->max_shard_bytes, filled = 0;
    if (limit == 0) limit = default_shard_bytes;
    writing->shards = tt_calloc(tensor_count + 1, sizeof *writing->shards);
    if (writing->shards == NULL) return TT_ERR_MEMORY;
    writing->shard_count = 1;
    for (size_t i = 0; i < tensor_count; i++) {
        uint64_t bytes = bytes_of(&writing->stored[i]);
        if (filled > 0 && filled + bytes > limit) {
            writing->shards[writing->shard_count++].first = i;
            filled = 0;
        }
        filled += bytes;
        writing->shards[writing->shard_count - 1].count++;
        writing->report->bytes += bytes;
    }
    for (size_t s = 0; s < writing->shard_count; s++) {
        struct shard *shard = &writing->shards[s];
        shard->descriptor = -1;
        if (writing->shard_count == 1)
            (void)snprintf(shard->name, sizeof shard->name, "model.safetensors");
        else
            (void)snprintf(shard->name, sizeof shard->name, "model-%05zu-of-%05zu.safetensors", s + 1,
                           writing->shard_count);
    }
    return TT_OK;
}

static tt_status lay_out_shard(struct writing *writing, struct shard *shard)
{
    shard->entries = tt_calloc(shard->count + 1, sizeof *shard->entries);
    shard->path = tt_path_join(tt_str_text(&writing->output.temporary), shard->name);
    if (shard->entries == NULL || shard->path == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < shard->count; i++) shard->entries[i] = writing->stored[shard->first + i].entry;
    return tt_safetensors_layout(shard->entries, shard->count, &shard->header, &shard->bytes);
}

static tt_status create_shard(struct writing *writing, struct shard *shard)
{
    TT_TRY(tt_file_create(shard->path, shard->bytes, &shard->descriptor));
    TT_TRY(tt_file_pwrite(shard->descriptor, shard->path, shard->header.data, shard->header.bytes, 0));
    for (size_t i = 0; i < shard->count; i++) {
        struct stored *stored = &writing->stored[shard->first + i];
        stored->shard = shard;
        for (size_t e = 0; e < shard->count; e++)
            if (shard->entries[e].name == stored->entry.name) stored->entry.offset = shard->entries[e].offset;
    }
    return TT_OK;
}

static tt_status place_pieces(struct writing *writing)
{
    for (size_t p = 0; p < writing->piece_count; p++) {
        struct tt_merge_piece *piece = &writing->pieces[p];
        size_t number = 0;
        if (!tt_name_index_find(&writing->index, piece->piece.tensor, &number))
            return tt_fail(TT_ERR_INTERNAL, "'%s' is not listed", piece->piece.tensor);
        const struct stored *stored = &writing->stored[number];
        piece->descriptor = stored->shard->descriptor;
        piece->path = stored->shard->path;
        piece->offset = stored->entry.offset;
    }
    return TT_OK;
}

static void set_outputs(struct writing *writing)
{
    for (size_t i = 0; i < writing->merge->count; i++) {
        const struct tt_merge_tensor *tensor = &writing->merge->tensors[i];
        size_t first = writing->first_piece[i], count = writing->first_piece[i + 1] - first;
        struct tt_merge_output *output = &writing->report->outputs[i];
        *output = (struct tt_merge_output){.tensor = tensor, .dtype = type_of(writing, tensor)};
        if (count > 0) {
            output->pieces = writing->pieces + first;
            output->piece_count = count;
            continue;
        }
        const struct stored *stored = &writing->stored[writing->stored_of[i]];
        output->descriptor = stored->shard->descriptor;
        output->path = stored->shard->path;
        output->offset = stored->entry.offset;
    }
}

static tt_status write_weights(struct writing *writing)
{
    struct tt_merge_report *report = writing->report;
    for (size_t s = 0; s < writing->shard_count; s++) TT_TRY(lay_out_shard(writing, &writing->shards[s]));
    TT_TRY(check_disk(writing));
    for (size_t s = 0; s < writing->shard_count; s++) TT_TRY(create_shard(writing, &writing->shards[s]));
    TT_TRY(place_pieces(writing));
    set_outputs(writing);
    TT_TRY(tt_merge_run(writing->merge, report->outputs, report->count, &writing->options->work));
    for (size_t s = 0; s < writing->shard_count; s++) {
        int descriptor = writing->shards[s].descriptor;
        writing->shards[s].descriptor = -1;
        TT_TRY(tt_file_sync_close(descriptor, writing->shards[s].path));
    }
    return TT_OK;
}

/* ---- Small files ---- */

static tt_status write_index(const struct writing *writing)
{
    int64_t parameters = 0;
    if (writing->shard_count == 1) return TT_OK;
    struct tt_json_value *map = tt_json_new_object();
    for (size_t s = 0; s < writing->shard_count; s++)
        for (size_t i = 0; i < writing->shards[s].count; i++)
            tt_json_set(map, writing->shards[s].entries[i].name, tt_json_new_string(writing->shards[s].name));
    for (size_t i = 0; i < writing->merge->count; i++)
        parameters += writing->merge->tensors[i].rows * writing->merge->tensors[i].columns;
    struct tt_json_value *root =
        tt_json_pack("{s:{s:I, s:I}, s:o}", "metadata", "total_parameters", (int64_t)parameters, "total_size",
                     (int64_t)writing->report->bytes, "weight_map", map);
    tt_status status = tt_json_write_file(root, 2, true, tt_str_text(&writing->output.temporary),
                                          "model.safetensors.index.json");
    tt_json_release(root);
    return status;
}

/* Files of weights in any format: the base's files would contradict the new ones, as would a checkpoint's manifest. */
static bool is_weights(const char *name)
{
    static const char *const endings[] = {".safetensors", ".safetensors.index.json",
                                          ".bin",         ".bin.index.json",
                                          ".pt",          ".pth",
                                          ".gguf",        ".h5",
                                          ".msgpack",     ".onnx"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (tt_ends_with(name, endings[i])) return true;
    return false;
}

static tt_status copy_entry(void *context, const char *name)
{
    const struct writing *writing = context;
    struct tt_path from, to;
    if (name[0] == '.' || is_weights(name) || strcmp(name, TT_MANIFEST_NAME) == 0) return TT_OK;
    const char *folder = tt_model_folder_path(writing->merge->folder);
    TT_TRY(tt_path_set(&from, folder, name));
    TT_TRY(tt_path_set(&to, tt_str_text(&writing->output.temporary), name));
    if (tt_path_is_dir(from.text)) return TT_OK;
    return tt_file_copy_inside(folder, name, TT_MODEL_FOLDER_COPY_BYTES_MAX, to.text);
}

/* These files come before the weights, so that one that cannot be copied is found early. */
static tt_status copy_small_files(struct writing *writing)
{
    const char *base = tt_model_folder_path(writing->merge->folder);
    TT_TRY(tt_dir_list(base, copy_entry, writing));
    /* Including the folder of additional chat templates. */
    return tt_model_folder_copy_tokenizer(base, tt_str_text(&writing->output.temporary), true);
}

/* The tokenizer of an adapter with new tokens takes the place of the base's as a whole. */
static tt_status copy_tokenizer(const struct writing *writing)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                        "added_tokens.json"};
    tt_status status = TT_OK;
    if (!writing->merge->own_tokenizer) return TT_OK;
    char *folder = tt_merge_adapter_folder(writing->merge);
    if (folder == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < sizeof names / sizeof *names && status == TT_OK; i++) {
        struct tt_path from, to;
        TT_GO(tt_path_set(&from, folder, names[i]));
        TT_GO(tt_path_set(&to, tt_str_text(&writing->output.temporary), names[i]));
        if (tt_path_exists(to.text)) TT_GO(tt_file_remove(to.text));
        if (tt_path_exists(from.text))
            TT_GO(tt_file_copy_inside(folder, names[i], TT_MODEL_FOLDER_COPY_BYTES_MAX, to.text));
    }
out:
    tt_free(folder);
    return status;
}

/* A template that the adapter was trained with takes the place of the base's. */
static tt_status write_templates(const struct writing *writing)
{
    struct tt_chat_files files = {0};
    bool of_adapter = false;
    tt_status status = tt_templates_load(writing->merge, &files, &of_adapter);
    if (status == TT_OK && of_adapter)
        status = tt_templates_write(&files, tt_str_text(&writing->output.temporary));
    tt_chat_files_deinit(&files);
    return status;
}

/* Changes only the keys that are no longer true and rewrites the file in the same order. */
static tt_status write_config(const struct writing *writing)
{
    const struct tt_json *config = tt_model_folder_config(writing->merge->folder);
    tt_dtype dtype = writing->options->dtype;
    /* copied */
    bool unties = writing->merge->unties || writing->merge->model->facts.own_head;
    const struct tt_model_facts *facts = &writing->merge->model->facts;
    bool scores = facts->label_count > 0;
    bool grown = facts->grown_from > 0;
    if (!unties && !scores && !grown && !writing->merge->quantized && dtype == TT_DTYPE_NONE) return TT_OK;
    struct tt_json_value *root = tt_json_copy(config->root);
    if (unties) tt_text_part_untie(root);
    if (grown) tt_new_rows_describe(facts, root);
    if (writing->merge->quantized) (void)tt_json_remove(root, "quantization_config");
    if (dtype != TT_DTYPE_NONE) {
        /* transformers 5 writes dtype, transformers 4 torch_dtype; both read either key. */
        const char *key = tt_json_get(root, "dtype") != NULL ? "dtype" : "torch_dtype";
        tt_json_set(root, key, tt_json_new_string(tt_dtype_torch_name(dtype)));
    }
    tt_status status = scores ? tt_model_scores_describe(facts, root) : TT_OK;
    if (status == TT_OK)
        status = tt_json_write_file(root, 2, false, tt_str_text(&writing->output.temporary), "config.json");
    tt_json_release(root);
    return status;
}

/* Checks the written files with the strict reader. */
static tt_status verify(const struct writing *writing)
{
    struct tt_model_folder *folder = NULL;
    TT_TRY(tt_model_folder_open(tt_str_text(&writing->output.temporary), true, &folder));
    size_t count = tt_model_folder_tensor_count(folder);
    tt_model_folder_close(folder);
    if (count == writing->stored_count) return TT_OK;
    return tt_fail(TT_ERR_IO, "'%s' holds %zu tensors after writing %zu",
                   tt_str_text(&writing->output.temporary), count, writing->stored_count);
}

static void sum_up(struct tt_merge_report *report)
{
    for (size_t i = 0; i < report->count; i++) {
        if (report->outputs[i].change.count == 0) continue;
        report->changed++;
        tt_merge_change_add(&report->total, &report->outputs[i].change);
    }
}

static void end_writing(struct writing *writing)
{
    for (size_t s = 0; writing->shards != NULL && s < writing->shard_count; s++) {
        tt_file_close(writing->shards[s].descriptor);
        tt_free(writing->shards[s].path);
        tt_free(writing->shards[s].entries);
        tt_str_deinit(&writing->shards[s].header);
    }
    tt_free(writing->shards);
    tt_free(writing->stored);
    tt_free(writing->stored_of);
    tt_free(writing->pieces);
    tt_free(writing->first_piece);
    tt_name_index_deinit(&writing->index);
    tt_arena_deinit(&writing->arena);
    tt_output_folder_close(&writing->output);
}

void tt_merge_report_deinit(struct tt_merge_report *report)
{
    tt_free(report->outputs);
    *report = (struct tt_merge_report){0};
}

tt_status tt_merge_write(const struct tt_merge *merge, const struct tt_merge_options *options,
                         struct tt_merge_report *report)
{
    tt_status status = TT_OK;
    struct writing writing = {.merge = merge, .options = options, .report = report};
    *report = (struct tt_merge_report){.count = merge->count};
    report->outputs = tt_calloc(merge->count + 1, sizeof *report->outputs);
    if (report->outputs == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(check_output_dir(&writing));
    TT_GO(check_left_alone(merge));
    TT_GO(tt_output_folder_open(options->output_dir, ".merging", options->overwrite, &writing.output));
    TT_GO(list_stored(&writing));
    TT_GO(split_shards(&writing));
    TT_GO(copy_small_files(&writing));
    TT_GO(copy_tokenizer(&writing));
    TT_GO(write_templates(&writing));
    TT_GO(write_weights(&writing));
    TT_GO(write_config(&writing));
    TT_GO(write_index(&writing));
    TT_GO(verify(&writing));
    TT_GO(tt_output_folder_commit(&writing.output));
    sum_up(report);
    report->files = writing.shard_count;
    for (size_t i = 0; i < report->count; i++) /* the temporary path, and lent pieces */
        report->outputs[i].path = NULL, report->outputs[i].pieces = NULL;
    if (merge->unties)
        tt_warn(
            "the adapter changes embeddings and head separately: config.json of '%s' has tie_word_embeddings "
            "false",
            options->output_dir);
out:
    if (status != TT_OK) {
        tt_while("merging into '%s'", options->output_dir);
        tt_merge_report_deinit(report);
    }
    end_writing(&writing);
    return status;
}
