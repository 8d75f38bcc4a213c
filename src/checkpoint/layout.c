#include "checkpoint/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "model/adapter_config.h"

/* Files of at least a gigabyte, to avoid hundreds of files; more than one file, because two writers of one file wait
 * for each other inside the kernel. */
static const uint64_t state_file_bytes = 1000 * 1000 * 1000;
enum { STATE_FILES = 32 };

static bool is_saved(const struct tt_weights_layout *layout, const tt_param *param)
{
    return !layout->adapter || param->adapter;
}

static uint64_t saved_bytes(const tt_param *param, tt_dtype dtype)
{
    return (uint64_t)tt_param_count(param) * tt_dtype_bytes(dtype);
}

/* Assigns tensors in order; a file ends where the middle of the next tensor is beyond the file's share. Returns the
 * number of files; 0: a file of several tensors is larger than max_bytes. */
static size_t cut_evenly(const uint64_t *bytes, size_t count, uint64_t total, uint64_t shares,
                         uint64_t max_bytes, size_t *file_of)
{
    size_t files = 0;
    uint64_t before = 0, filled = 0, last_share = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t share = total > 0 ? (before + bytes[i] / 2) / ((total - 1) / shares + 1) : 0;
        if (files == 0 || share != last_share) {
            files++;
            filled = 0;
        }
        last_share = share;
        filled += bytes[i];
        before += bytes[i];
        if (filled > max_bytes && filled > bytes[i]) return 0;
        file_of[i] = files - 1;
    }
    return files;
}

/* Files of at most max_bytes, unless a single tensor is larger, and as even as whole tensors allow, because they are
 * written at the same time. A share of half of max_bytes always works. */
static size_t split_files(const uint64_t *bytes, size_t count, uint64_t max_bytes, size_t *file_of)
{
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) total += bytes[i];
    uint64_t shares = total / max_bytes + (total % max_bytes != 0 || total == 0);
    size_t files = 0;
    while (count > 0 && files == 0) files = cut_evenly(bytes, count, total, shares++, max_bytes, file_of);
    return files > 0 ? files : 1;
}

static tt_status alloc_entries(struct tt_weights_file *file, size_t capacity)
{
    file->entries = tt_calloc(capacity + 1, sizeof *file->entries);
    file->params = tt_calloc(capacity + 1, sizeof *file->params);
    file->slots = tt_calloc(capacity + 1, sizeof *file->slots);
    file->firsts = tt_calloc(capacity + 1, sizeof *file->firsts);
    bool ok = file->entries != NULL && file->params != NULL && file->slots != NULL && file->firsts != NULL;
    return ok ? TT_OK : TT_ERR_MEMORY;
}

static void free_entries(struct tt_weights_file *file)
{
    tt_free(file->entries);
    tt_free(file->params);
    tt_free(file->slots);
    tt_free(file->firsts);
}

static void append(struct tt_weights_layout *layout, struct tt_weights_file *file,
                   const struct tt_safetensors_entry *entry, const tt_param *param, int slot, int64_t first)
{
    uint64_t bytes = tt_dtype_bytes(entry->dtype);
    for (int d = 0; d < entry->rank; d++) bytes *= (uint64_t)entry->dims[d];
    file->entries[file->count] = *entry;
    file->params[file->count] = param;
    file->slots[file->count] = slot;
    file->firsts[file->count] = first;
    file->count++;
    layout->tensor_bytes += bytes;
}

/* The name in the files of a folder like `base`. */
static const char *stored_name(const struct tt_model *model, const struct tt_model_folder *base,
                               const char *name)
{
    const struct tt_safetensors_entry *entry =
        base != NULL && model->facts.part != NULL ? tt_model_folder_find(base, name) : NULL;
    return entry != NULL ? entry->name : name;
}

/* The tensors of other parts, as they are. */
static tt_status lay_out_copies(struct tt_weights_layout *layout, const struct tt_model *model,
                                const struct tt_model_folder *base)
{
    struct tt_weights_file *file = &layout->files[layout->file_count - 1];
    free_entries(file); /* was made for no tensor */
    TT_TRY(alloc_entries(file, tt_model_folder_left_alone(base)));
    for (size_t i = 0; i < tt_model_folder_tensor_count(base); i++)
        if (tt_text_part_leaves(model->facts.part, tt_model_folder_tensor_name(base, i)))
            append(layout, file, tt_model_folder_tensor(base, i), NULL, TT_SLOT_MASTER, 0);
    return TT_OK;
}

/* Where the pieces of a parameter go. */
struct adding {
    struct tt_weights_layout *layout;
    struct tt_weights_file *file; /* NULL: the pieces are only counted */
    const tt_param *param;
    tt_dtype dtype;
    size_t count;
};

/* A tensor of the files gets the elements of one run of the parameter. */
static tt_status add_stored_piece(void *context, const struct tt_source_piece *piece)
{
    struct adding *adding = context;
    int64_t elements = 1;
    for (int d = 0; d < piece->rank; d++) elements *= piece->dims[d];
    bool in_order = piece->column_stride == 1 && piece->row_stride == piece->columns;
    if (!in_order || elements != piece->rows * piece->columns)
        return tt_fail(TT_ERR_UNSUPPORTED,
                       "'%s' cannot be saved as the model's files have it, a part of '%s' or transposed",
                       adding->param->name, piece->tensor);
    adding->count++;
    if (adding->file == NULL) return TT_OK;
    struct tt_safetensors_entry entry = {.name = tt_arena_strdup(&adding->layout->arena, piece->tensor),
                                         .dtype = adding->dtype,
                                         .rank = piece->rank};
    if (entry.name == NULL) return TT_ERR_MEMORY;
    for (int d = 0; d < piece->rank; d++) entry.dims[d] = piece->dims[d];
    append(adding->layout, adding->file, &entry, adding->param, TT_SLOT_MASTER, piece->first);
    return TT_OK;
}

/* Adds the entries of a parameter that files hold in pieces, and counts them; 0: its files have it whole. */
static tt_status add_stored(struct tt_weights_layout *layout, const struct tt_model *model,
                            struct tt_weights_file *file, const tt_param *param, tt_dtype dtype,
                            size_t *count)
{
    struct adding adding = {.layout = layout, .file = file, .param = param, .dtype = dtype};
    int64_t layer = -1;
    const struct tt_param_source *source = tt_param_source_find(model->facts.sources, param->name, &layer);
    *count = 0;
    if (layout->adapter || source == NULL) return TT_OK;
    TT_TRY(tt_param_source_pieces(source, layer, param->rank, param->dims, NULL, add_stored_piece, &adding));
    *count = adding.count;
    return TT_OK;
}

static tt_status add_entry(struct tt_weights_layout *layout, struct tt_weights_file *file,
                           const tt_param *param, const char *name, tt_dtype dtype)
{
    struct tt_safetensors_entry entry = {.name = name, .dtype = dtype, .rank = param->rank};
    if (layout->adapter) {
        char *key = tt_adapter_key(name);
        if (key == NULL) return TT_ERR_MEMORY;
        entry.name = tt_arena_strdup(&layout->arena, key);
        tt_free(key);
        if (entry.name == NULL) return TT_ERR_MEMORY;
    }
    for (int d = 0; d < param->rank; d++) entry.dims[d] = param->dims[d];
    append(layout, file, &entry, param, TT_SLOT_MASTER, 0);
    return TT_OK;
}

/* The writer sorts entries; their other columns are reordered by name. */
static tt_status finish_file(struct tt_weights_file *file)
{
    tt_status status = TT_OK;
    struct tt_weights_file before = {.count = file->count};
    TT_GO(alloc_entries(&before, file->count));
    for (size_t i = 0; i < file->count; i++) {
        before.entries[i] = file->entries[i];
        before.params[i] = file->params[i];
        before.slots[i] = file->slots[i];
        before.firsts[i] = file->firsts[i];
    }
    TT_GO(tt_safetensors_layout(file->entries, file->count, &file->header, &file->bytes));
    for (size_t i = 0; i < file->count; i++) {
        size_t j = 0;
        while (before.entries[j].name != file->entries[i].name) j++;
        file->params[i] = before.params[j];
        file->slots[i] = before.slots[j];
        file->firsts[i] = before.firsts[j];
    }
out:
    free_entries(&before);
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

/* Files with room for `count` tensors, the i-th of them in file file_of[i]; NULL: all in one file. It has pieces[i]
 * entries; NULL: one. */
static tt_status alloc_files(struct tt_weights_layout *layout, size_t file_count, const size_t *file_of,
                             const size_t *pieces, size_t count)
{
    layout->files = tt_calloc(file_count, sizeof *layout->files);
    if (layout->files == NULL) return TT_ERR_MEMORY;
    layout->file_count = file_count;
    for (size_t i = 0; i < count; i++)
        layout->files[file_of != NULL ? file_of[i] : 0].count += pieces != NULL ? pieces[i] : 1;
    for (size_t f = 0; f < file_count; f++) {
        size_t capacity = layout->files[f].count;
        layout->files[f].count = 0; /* none is appended yet */
        TT_TRY(alloc_entries(&layout->files[f], capacity));
    }
    return TT_OK;
}

tt_status tt_weights_layout_init(const struct tt_model *model, const struct tt_model_folder *base,
                                 tt_dtype dtype, uint64_t max_file_bytes, struct tt_weights_layout *layout)
{
    tt_status status = TT_OK;
    size_t count = 0;
    *layout = (struct tt_weights_layout){0};
    for (size_t i = 0; i < model->param_count; i++) layout->adapter |= model->params[i]->adapter;
    size_t *file_of = tt_calloc(model->param_count + 1, sizeof *file_of);
    size_t *pieces = tt_calloc(model->param_count + 1, sizeof *pieces);
    uint64_t *bytes = tt_calloc(model->param_count + 1, sizeof *bytes);
    if (file_of == NULL || pieces == NULL || bytes == NULL) TT_GO(TT_ERR_MEMORY);
    for (size_t i = 0; i < model->param_count; i++) {
        if (!is_saved(layout, model->params[i])) continue;
        TT_GO(add_stored(layout, model, NULL, model->params[i], dtype, &pieces[count]));
        if (pieces[count] == 0) pieces[count] = 1;
        bytes[count++] = saved_bytes(model->params[i], dtype);
    }
    pieces[count] = 1;
    /* PEFT looks for a table that both share under both names. */
    const tt_param *twice =
        tt_model_saves_table_twice(model) ? tt_model_find_param(model, model->embedding_name) : NULL;
    if (twice != NULL) bytes[count++] = saved_bytes(twice, dtype);
    uint64_t most = layout->adapter ? UINT64_MAX : max_file_bytes;
    size_t file_count = split_files(bytes, count, most, file_of);
    layout->copies = !layout->adapter && base != NULL && tt_model_folder_left_alone(base) > 0;
    TT_GO(alloc_files(layout, file_count + layout->copies, file_of, pieces, count));
    if (layout->copies) TT_GO(lay_out_copies(layout, model, base));
    for (size_t f = 0; f < layout->file_count; f++)
        name_file(layout, f, layout->files[f].name, sizeof layout->files[f].name);
    count = 0;
    for (size_t i = 0; i < model->param_count; i++) {
        const tt_param *param = model->params[i];
        size_t added;
        if (!is_saved(layout, param)) continue;
        struct tt_weights_file *file = &layout->files[file_of[count++]];
        TT_GO(add_stored(layout, model, file, param, dtype, &added));
        if (added == 0) TT_GO(add_entry(layout, file, param, stored_name(model, base, param->name), dtype));
    }
    if (twice != NULL) TT_GO(add_entry(layout, &layout->files[0], twice, model->head_name, dtype));
    for (size_t f = 0; f < layout->file_count; f++) TT_GO(finish_file(&layout->files[f]));
out:
    tt_free(bytes);
    tt_free(pieces);
    tt_free(file_of);
    if (status != TT_OK) tt_weights_layout_deinit(layout);
    return status;
}

bool tt_slot_value(const struct tt_optimizer *optimizer, const tt_param *param, int slot,
                   struct tt_state_value *value)
{
    if (slot != TT_SLOT_MASTER) return tt_optimizer_value(optimizer, param, slot - TT_SLOT_STATE, value);
    *value = (struct tt_state_value){"master.", TT_F32, 1};
    return true;
}

int64_t tt_slot_elements(const struct tt_state_value *value, int64_t count)
{
    return (count + value->block - 1) / value->block;
}

/* The shape of a value: its parameter's, or a vector of its blocks. */
static void shape_of(const tt_param *param, const struct tt_state_value *value,
                     struct tt_safetensors_entry *entry)
{
    *entry = (struct tt_safetensors_entry){.dtype = value->dtype, .rank = param->rank};
    for (int d = 0; d < param->rank; d++) entry->dims[d] = param->dims[d];
    if (value->block == 1) return;
    entry->rank = 1;
    entry->dims[0] = tt_slot_elements(value, tt_param_count(param));
}

/* `count`: elements of the parameter from `first` on; -1: the whole parameter. */
static tt_status add_state_entry(struct tt_weights_layout *layout, struct tt_weights_file *file,
                                 const tt_param *param, int slot, int64_t first, int64_t count)
{
    struct tt_safetensors_entry entry;
    struct tt_state_value value;
    struct tt_str name = {0};
    tt_status status = TT_OK;
    if (!tt_slot_value(layout->optimizer, param, slot, &value)) return TT_OK;
    shape_of(param, &value, &entry);
    first /= value.block;
    TT_GO(tt_str_printf(&name, "%s%s", value.prefix, param->name));
    for (int d = 0; d < entry.rank && count >= 0; d++)
        TT_GO(tt_str_printf(&name, "%s%lld", d > 0 ? "," : "[", (long long)entry.dims[d]));
    if (count >= 0) {
        TT_GO(tt_str_printf(&name, "]@%lld", (long long)first));
        entry.rank = 1;
        entry.dims[0] = tt_slot_elements(&value, count);
    }
    entry.name = tt_arena_strdup(&layout->arena, tt_str_text(&name));
    if (entry.name == NULL) TT_GO(TT_ERR_MEMORY);
    append(layout, file, &entry, param, slot, first);
out:
    tt_str_deinit(&name);
    return status;
}

/* The layout of one rank: the pieces of its units. */
static tt_status add_pieces(struct tt_weights_layout *layout, const struct tt_model *model,
                            struct tt_unit *const *units, int slot)
{
    for (int u = 0; u < model->unit_count; u++) {
        for (size_t p = 0; p < tt_unit_piece_count(units[u]); p++) {
            struct tt_piece piece = tt_unit_piece(units[u], p);
            if (piece.param->trainable && piece.count > 0)
                TT_TRY(
                    add_state_entry(layout, &layout->files[0], piece.param, slot, piece.first, piece.count));
        }
    }
    return TT_OK;
}

static tt_status lay_out_pieces(struct tt_weights_layout *layout, const struct tt_model *model,
                                int first_slot, const struct tt_state_part *part)
{
    size_t capacity = 0;
    for (int u = 0; u < model->unit_count; u++) capacity += tt_unit_piece_count(part->units[u]);
    TT_TRY(alloc_files(layout, 1, NULL, NULL, TT_SLOTS * capacity));
    snprintf(layout->files[0].name, sizeof layout->files[0].name, "training_state-%05d-of-%05d.safetensors",
             part->number + 1, part->count);
    for (int slot = first_slot; slot < TT_SLOTS; slot++) TT_TRY(add_pieces(layout, model, part->units, slot));
    return TT_OK;
}

size_t tt_state_split(const uint64_t *bytes, size_t count, uint64_t max_file_bytes, size_t *file_of)
{
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) total += bytes[i];
    if (max_file_bytes == 0)
        max_file_bytes = total / STATE_FILES > state_file_bytes ? total / STATE_FILES : state_file_bytes;
    return split_files(bytes, count, max_file_bytes, file_of);
}

void tt_state_file_name(size_t index, size_t count, char *name, size_t name_bytes)
{
    if (count == 1)
        snprintf(name, name_bytes, "training_state.safetensors");
    else
        snprintf(name, name_bytes, "training_state-%05zu-of-%05zu.safetensors", index + 1, count);
}

struct state_tensor {
    const tt_param *param;
    struct tt_state_value value;
    int slot;
};

static int compare_names(const void *left, const void *right)
{
    const struct state_tensor *a = left, *b = right;
    int order = strcmp(a->value.prefix, b->value.prefix);
    return order != 0 ? order : strcmp(a->param->name, b->param->name);
}

/* The trainable parameters, in the order of their names in the state. */
static size_t list_state(const struct tt_model *model, const struct tt_optimizer *optimizer, int first_slot,
                         struct state_tensor *tensors)
{
    size_t count = 0;
    for (int slot = first_slot; slot < TT_SLOTS; slot++) {
        for (size_t i = 0; i < model->param_count; i++) {
            const tt_param *param = model->params[i];
            if (!param->trainable || !tt_slot_value(optimizer, param, slot, &tensors[count].value)) continue;
            tensors[count].param = param;
            tensors[count++].slot = slot;
        }
    }
    qsort(tensors, count, sizeof *tensors, compare_names);
    return count;
}

static tt_status lay_out_whole(struct tt_weights_layout *layout, const struct tt_model *model, int first_slot,
                               uint64_t max_file_bytes)
{
    tt_status status = TT_OK;
    size_t most = TT_SLOTS * model->param_count + 1;
    struct state_tensor *tensors = tt_calloc(most, sizeof *tensors);
    uint64_t *bytes = tt_calloc(most, sizeof *bytes);
    size_t *file_of = tt_calloc(most, sizeof *file_of);
    if (tensors == NULL || bytes == NULL || file_of == NULL) TT_GO(TT_ERR_MEMORY);
    size_t count = list_state(model, layout->optimizer, first_slot, tensors);
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint64_t)tt_slot_elements(&tensors[i].value, tt_param_count(tensors[i].param)) *
                   tt_dtype_bytes(tensors[i].value.dtype);
    size_t file_count = tt_state_split(bytes, count, max_file_bytes, file_of);
    TT_GO(alloc_files(layout, file_count, file_of, NULL, count));
    for (size_t f = 0; f < file_count; f++)
        tt_state_file_name(f, file_count, layout->files[f].name, sizeof layout->files[f].name);
    for (size_t i = 0; i < count; i++)
        TT_GO(add_state_entry(layout, &layout->files[file_of[i]], tensors[i].param, tensors[i].slot, 0, -1));
out:
    tt_free(tensors);
    tt_free(bytes);
    tt_free(file_of);
    return status;
}

tt_status tt_state_layout_init(const struct tt_model *model, const struct tt_optimizer *optimizer,
                               bool masters, const struct tt_state_part *part, uint64_t max_file_bytes,
                               struct tt_weights_layout *layout)
{
    tt_status status = TT_OK;
    int first_slot = masters ? TT_SLOT_MASTER : TT_SLOT_STATE;
    *layout = (struct tt_weights_layout){.optimizer = optimizer};
    if (part != NULL)
        TT_GO(lay_out_pieces(layout, model, first_slot, part));
    else
        TT_GO(lay_out_whole(layout, model, first_slot, max_file_bytes));
    for (size_t f = 0; f < layout->file_count; f++) TT_GO(finish_file(&layout->files[f]));
out:
    if (status != TT_OK) tt_weights_layout_deinit(layout);
    return status;
}

void tt_weights_layout_deinit(struct tt_weights_layout *layout)
{
    for (size_t f = 0; f < layout->file_count; f++) {
        free_entries(&layout->files[f]);
        tt_str_deinit(&layout->files[f].header);
    }
    tt_free(layout->files);
    tt_arena_deinit(&layout->arena);
    *layout = (struct tt_weights_layout){0};
}

tt_status tt_weights_layout_index(const struct tt_weights_layout *layout, struct tt_str *json)
{
    struct tt_json_value *map = tt_json_new_object();
    for (size_t f = 0; f < layout->file_count; f++)
        for (size_t i = 0; i < layout->files[f].count; i++)
            tt_json_set(map, layout->files[f].entries[i].name, tt_json_new_string(layout->files[f].name));
    struct tt_json_value *root = tt_json_pack("{s:{s:I}, s:o}", "metadata", "total_size",
                                              (int64_t)layout->tensor_bytes, "weight_map", map);
    tt_status status = tt_json_write(root, 2, true, json);
    if (status == TT_OK) status = tt_str_append_char(json, '\n');
    tt_json_release(root);
    return status;
}
