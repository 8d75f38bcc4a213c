#include "checkpoint/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/name_index.h"
#include "model/adapter_config.h"

/* Files of at least a gigabyte, to avoid hundreds of files; more than one file, because two writers of one file wait
 * for each other inside the kernel. */
static const uint64_t state_file_bytes = 1000 * 1000 * 1000;
enum { STATE_FILES = 32 };

static bool is_saved(const struct tt_weights_layout *layout, const tt_param *param)
{
    return !layout->adapter || param->adapter;
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
    tt_free(file->pieces);
}

static uint64_t stored_bytes(const struct tt_safetensors_entry *entry)
{
    uint64_t bytes = tt_dtype_bytes(entry->dtype);
    for (int d = 0; d < entry->rank; d++) bytes *= (uint64_t)entry->dims[d];
    return bytes;
}

static void append(struct tt_weights_layout *layout, struct tt_weights_file *file,
                   const struct tt_safetensors_entry *entry, const tt_param *param, int slot, int64_t first)
{
    file->entries[file->count] = *entry;
    file->params[file->count] = param;
    file->slots[file->count] = slot;
    file->firsts[file->count] = first;
    file->count++;
    layout->tensor_bytes += stored_bytes(entry);
}

/* A tensor of the files: a parameter, or pieces of some. */
struct stored {
    struct tt_safetensors_entry entry;
    const tt_param *param; /* NULL: pieces */
    bool turned;           /* a piece is transposed: rank 0 writes it */
    struct tt_weights_file *file;
};

/* The tensors of a model's files before they are divided among files. */
struct listing {
    struct tt_weights_layout *layout;
    const struct tt_model *model;
    const struct tt_model_folder *base;
    tt_dtype dtype;
    struct stored *tensors;
    size_t count, room;
    struct tt_weights_piece *pieces; /* of tensor number `entry` of the list */
    size_t piece_count, piece_room;
    struct tt_name_index index;      /* of the tensors that are pieces */
    const tt_param *param;           /* whose pieces are listed */
    struct tt_param_sources adapter; /* of an adapter's files */
};

static bool has_files(const struct listing *listing)
{
    return listing->base != NULL && tt_model_folder_has_weights(listing->base);
}

/* The name in files like those of the base; where there are none, that of the family's files. NULL: no memory. */
static const char *stored_name(struct listing *listing, const char *name)
{
    if (has_files(listing)) return tt_model_folder_spelling(listing->base, name);
    return tt_part_stored_name(listing->model->facts.sources.renames, name, &listing->layout->arena);
}

static tt_status list_tensor(struct listing *listing, const tt_param *param, const char *name, int rank,
                             const int64_t *dims)
{
    struct stored stored = {.entry = {.name = name, .dtype = listing->dtype, .rank = rank}, .param = param};
    for (int d = 0; d < rank; d++) stored.entry.dims[d] = dims[d];
    TT_TRY(tt_grow(&listing->tensors, listing->count, &listing->room));
    listing->tensors[listing->count++] = stored;
    return TT_OK;
}

static tt_status list_whole(struct listing *listing, const tt_param *param, const char *name)
{
    return name != NULL ? list_tensor(listing, param, name, param->rank, param->dims) : TT_ERR_MEMORY;
}

/* The name of a parameter in an adapter's file; NULL: no memory. */
static const char *adapter_name(struct listing *listing, const char *name)
{
    char *key = tt_adapter_key(name);
    name = key != NULL ? tt_arena_strdup(&listing->layout->arena, key) : NULL;
    tt_free(key);
    return name;
}

static tt_status list_piece(void *context, const struct tt_source_piece *piece)
{
    struct listing *listing = context;
    size_t number;
    if (!tt_name_index_find(&listing->index, piece->tensor, &number)) {
        const char *name = tt_arena_strdup(&listing->layout->arena, piece->tensor);
        if (name != NULL && !has_files(listing)) name = stored_name(listing, name);
        if (name == NULL) return TT_ERR_MEMORY;
        number = listing->count;
        TT_TRY(list_tensor(listing, NULL, name, piece->rank, piece->dims));
        TT_TRY(tt_name_index_add(&listing->index, name, number));
    }
    listing->tensors[number].turned |= !tt_source_piece_by_rows(piece);
    TT_TRY(tt_grow(&listing->pieces, listing->piece_count, &listing->piece_room));
    listing->pieces[listing->piece_count] = (struct tt_weights_piece){number, listing->param, *piece};
    listing->pieces[listing->piece_count++].piece.tensor = listing->tensors[number].entry.name;
    return TT_OK;
}

/* A parameter by its row of the sources, or as it is under this name. */
static tt_status list_by(struct listing *listing, const struct tt_param_sources *sources,
                         const tt_param *param, const char *name)
{
    int64_t layer = -1;
    if (name == NULL) return TT_ERR_MEMORY;
    const struct tt_param_source *source = tt_param_source_find(sources, name, &layer);
    if (source == NULL) return list_whole(listing, param, name);
    return tt_param_source_pieces(sources, source, layer, param->rank, param->dims, list_piece, listing);
}

/* The pieces are those of the base's files, or where there are none those of the family's first row for it. */
static tt_status list_param(struct listing *listing, const tt_param *param)
{
    const struct tt_param_sources *sources = &listing->model->facts.sources;
    bool joined = false;
    int64_t layer = -1;
    listing->param = param;
    if (listing->layout->adapter)
        return list_by(
            listing, &listing->adapter, param,
            adapter_name(listing, param->adapter_name != NULL ? param->adapter_name : param->name));
    if (!has_files(listing) && tt_param_source_find(sources, param->name, &layer) != NULL)
        return list_by(listing, sources, param, param->name);
    if (has_files(listing))
        TT_TRY(tt_model_folder_pieces(listing->base, param->name, list_piece, listing, &joined));
    return joined ? TT_OK : list_whole(listing, param, stored_name(listing, param->name));
}

/* Tables of the base beside an adapter, in their own type. */
static tt_status list_copies(struct listing *listing)
{
    struct tt_weights_layout *layout = listing->layout;
    if (!layout->adapter) return TT_OK;
    TT_TRY(tt_base_copies_list(listing->model, listing->base, &layout->arena, layout->copies,
                               &layout->copy_count));
    for (size_t c = 0; c < layout->copy_count; c++) {
        const struct tt_base_copy *copy = &layout->copies[c];
        TT_TRY(list_tensor(listing, NULL, copy->name, copy->base->rank, copy->base->dims));
        listing->tensors[listing->count - 1].entry.dtype = copy->base->dtype;
    }
    return TT_OK;
}

static tt_status list_tensors(struct listing *listing)
{
    const struct tt_model *model = listing->model;
    TT_TRY(list_copies(listing));
    for (size_t i = 0; i < model->param_count; i++)
        if (is_saved(listing->layout, model->params[i])) TT_TRY(list_param(listing, model->params[i]));
    /* PEFT looks for a table that both share under both names. */
    if (!tt_model_saves_table_twice(model)) return TT_OK;
    return list_whole(listing, tt_model_find_param(model, model->embedding_name),
                      adapter_name(listing, model->head_name));
}

/* The tensors of other parts, as they are. */
static void lay_out_copies(struct tt_weights_layout *layout, const struct tt_model *model,
                           const struct tt_model_folder *base, struct tt_weights_file *file)
{
    for (size_t i = 0; base != NULL && i < tt_model_folder_tensor_count(base); i++)
        if (tt_text_part_leaves(model->facts.part, tt_model_folder_tensor_name(base, i)))
            append(layout, file, tt_model_folder_tensor(base, i), NULL, TT_SLOT_MASTER, 0);
}

/* The parameters of which transposed tensors are made, whole: every rank writes its slices of them, for rank 0. */
static tt_status lay_out_turned(const struct listing *listing, struct tt_weights_file *file)
{
    struct tt_weights_layout sizes = {0}; /* these bytes are no part of the result */
    TT_TRY(alloc_entries(file, listing->piece_count));
    (void)snprintf(file->name, sizeof file->name, ".turned.safetensors");
    for (size_t p = 0; p < listing->piece_count; p++) {
        const struct tt_weights_piece *piece = &listing->pieces[p];
        const tt_param *param = piece->param,
                       *before = file->count > 0 ? file->params[file->count - 1] : NULL;
        if (!listing->tensors[piece->entry].turned || param == before) continue;
        struct tt_safetensors_entry entry = {
            .name = param->name, .dtype = listing->dtype, .rank = param->rank};
        for (int d = 0; d < param->rank; d++) entry.dims[d] = param->dims[d];
        append(&sizes, file, &entry, param, TT_SLOT_MASTER, 0);
    }
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

/* Files with room for `count` tensors, the i-th of them in file file_of[i]; NULL: all in one file. */
static tt_status alloc_files(struct tt_weights_layout *layout, size_t file_count, const size_t *file_of,
                             size_t count)
{
    layout->files = tt_calloc(file_count, sizeof *layout->files);
    if (layout->files == NULL) return TT_ERR_MEMORY;
    layout->file_count = file_count;
    for (size_t i = 0; i < count; i++) layout->files[file_of != NULL ? file_of[i] : 0].count++;
    for (size_t f = 0; f < file_count; f++) {
        size_t capacity = layout->files[f].count;
        layout->files[f].count = 0; /* none is appended yet */
        TT_TRY(alloc_entries(&layout->files[f], capacity));
    }
    return TT_OK;
}

/* One more file, which rank 0 writes. */
static tt_status add_first_file(struct tt_weights_layout *layout, size_t capacity)
{
    struct tt_weights_file *files = tt_realloc(layout->files, layout->file_count + 1, sizeof *layout->files);
    if (files == NULL) return TT_ERR_MEMORY;
    layout->files = files;
    files[layout->file_count] = (struct tt_weights_file){0};
    return alloc_entries(&files[layout->file_count++], capacity);
}

/* The pieces of each file, whose entries are in order of name now. */
static tt_status place_pieces(const struct listing *listing)
{
    for (size_t i = 0; i < listing->piece_count; i++) {
        struct tt_weights_piece piece = listing->pieces[i];
        struct tt_weights_file *file = listing->tensors[piece.entry].file;
        size_t low = 0, high = file->count;
        while (high - low > 1) { /* the last entry that is not behind the name */
            size_t middle = (low + high) / 2;
            if (strcmp(file->entries[middle].name, piece.piece.tensor) <= 0)
                low = middle;
            else
                high = middle;
        }
        piece.entry = low;
        TT_TRY(tt_grow(&file->pieces, file->piece_count, &file->piece_room));
        file->pieces[file->piece_count++] = piece;
    }
    return TT_OK;
}

static tt_status lay_out_weights(struct listing *listing, uint64_t max_file_bytes)
{
    tt_status status = TT_OK;
    struct tt_weights_layout *layout = listing->layout;
    size_t count = 0, turned = 0, *file_of = tt_calloc(listing->count + 1, sizeof *file_of);
    uint64_t *bytes = tt_calloc(listing->count + 1, sizeof *bytes);
    if (file_of == NULL || bytes == NULL) TT_GO(TT_ERR_MEMORY);
    for (size_t i = 0; i < listing->count; i++)
        if (!listing->tensors[i].turned) bytes[count++] = stored_bytes(&listing->tensors[i].entry);
    turned = listing->count - count;
    size_t file_count = split_files(bytes, count, layout->adapter ? UINT64_MAX : max_file_bytes, file_of);
    size_t others = layout->adapter || listing->base == NULL ? 0 : tt_model_folder_left_alone(listing->base);
    layout->of_first = turned + others > 0;
    TT_GO(alloc_files(layout, file_count, file_of, count));
    if (layout->of_first) TT_GO(add_first_file(layout, turned + others));
    for (size_t f = 0; f < layout->file_count; f++)
        name_file(layout, f, layout->files[f].name, sizeof layout->files[f].name);
    struct tt_weights_file *last = &layout->files[layout->file_count - 1];
    count = 0;
    for (size_t i = 0; i < listing->count; i++) {
        struct stored *stored = &listing->tensors[i];
        stored->file = stored->turned ? last : &layout->files[file_of[count++]];
        append(layout, stored->file, &stored->entry, stored->param, TT_SLOT_MASTER, 0);
    }
    if (others > 0) lay_out_copies(layout, listing->model, listing->base, last);
    for (size_t f = 0; f < layout->file_count; f++) TT_GO(finish_file(&layout->files[f]));
    TT_GO(place_pieces(listing));
    if (turned > 0) TT_GO(lay_out_turned(listing, &layout->turned));
    if (turned > 0) TT_GO(finish_file(&layout->turned));
out:
    tt_free(bytes);
    tt_free(file_of);
    return status;
}

tt_status tt_weights_layout_init(const struct tt_model *model, const struct tt_model_folder *base,
                                 tt_dtype dtype, uint64_t max_file_bytes, struct tt_weights_layout *layout)
{
    struct listing listing = {.layout = layout, .model = model, .base = base, .dtype = dtype};
    *layout = (struct tt_weights_layout){0};
    for (size_t i = 0; i < model->param_count; i++) layout->adapter |= model->params[i]->adapter;
    tt_status status =
        tt_adapter_sources(&model->facts, &model->options.lora, &layout->arena, &listing.adapter);
    if (status == TT_OK) status = list_tensors(&listing);
    if (status == TT_OK) status = lay_out_weights(&listing, max_file_bytes);
    tt_name_index_deinit(&listing.index);
    tt_free(listing.tensors);
    tt_free(listing.pieces);
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
    TT_TRY(alloc_files(layout, 1, NULL, TT_SLOTS * capacity));
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
    TT_GO(alloc_files(layout, file_count, file_of, count));
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
    free_entries(&layout->turned);
    tt_str_deinit(&layout->turned.header);
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
