#include "checkpoint/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/file.h"
#include "checkpoint/layout.h"
#include "checkpoint/reader.h"

enum { NAME_BYTES = 1024 };

/* A run of elements of one value in a file. */
struct extent {
    const char *key; /* "optimizer.exp_avg.<name>", in the arena */
    int rank;
    int64_t dims[TT_SAFETENSORS_RANK_MAX]; /* of the whole */
    int64_t first, count;
    const struct tt_safetensors *file;
    const struct tt_safetensors_entry *entry;
};

struct tt_state {
    char *folder;
    struct tt_safetensors **files; /* owned */
    size_t file_count, file_capacity;
    struct extent *extents; /* owned; by key, then by first */
    size_t count, capacity;
    struct tt_arena arena;
};

void tt_state_close(struct tt_state *state)
{
    if (state == NULL) return;
    for (size_t f = 0; f < state->file_count; f++) tt_safetensors_close(state->files[f]);
    tt_free(state->files);
    tt_free(state->extents);
    tt_free(state->folder);
    tt_arena_deinit(&state->arena);
    tt_free(state);
}

static tt_status visit_file(void *context, const char *name)
{
    struct tt_state *state = context;
    bool named = strncmp(name, "training_state", 14) == 0 && (name[14] == '.' || name[14] == '-') &&
                 tt_ends_with(name, ".safetensors");
    if (!named) return TT_OK;
    TT_TRY(tt_grow(&state->files, state->file_count, &state->file_capacity));
    struct tt_path path;
    TT_TRY(tt_path_set(&path, state->folder, name));
    tt_status status = tt_safetensors_open(path.text, &state->files[state->file_count]);
    if (status == TT_OK) state->file_count++;
    return status;
}

static int64_t product(const int64_t *dims, int rank)
{
    int64_t count = 1;
    for (int d = 0; d < rank; d++) /* the shape of a name is not trusted */
        if (dims[d] < 0 || __builtin_mul_overflow(count, dims[d], &count)) return -1;
    return count;
}

/* "<key>[8,64]@256" of a vector. Anything else is a whole tensor. */
static bool parse_piece(char *name, struct extent *extent)
{
    char *at = strrchr(name, '@'), *bracket = at != NULL ? strrchr(name, '[') : NULL, *end;
    if (bracket == NULL || bracket > at || at[-1] != ']' || extent->rank != 1) return false;
    extent->first = strtoll(at + 1, &end, 10);
    if (*end != '\0' || end == at + 1) return false;
    extent->count = extent->dims[0];
    extent->rank = 0;
    for (char *number = bracket + 1; extent->rank < TT_SAFETENSORS_RANK_MAX; number = end + 1) {
        extent->dims[extent->rank++] = strtoll(number, &end, 10);
        if (end == number || (*end != ',' && *end != ']')) return false;
        if (*end == ']') break;
    }
    *bracket = '\0';
    return true;
}

static tt_status add_extent(struct tt_state *state, const struct tt_safetensors *file,
                            const struct tt_safetensors_entry *entry)
{
    char *name = tt_arena_strdup(&state->arena, entry->name);
    if (name == NULL) return TT_ERR_MEMORY;
    struct extent extent = {.key = name, .rank = entry->rank, .file = file, .entry = entry};
    memcpy(extent.dims, entry->dims, sizeof extent.dims);
    if (strchr(name, '@') == NULL)
        extent.count = product(entry->dims, entry->rank);
    else if (!parse_piece(name, &extent))
        return tt_fail(TT_ERR_DATA, "'%s' has a tensor '%s', which is not part of a training state",
                       tt_safetensors_path(file), entry->name);
    int64_t whole = product(extent.dims, extent.rank);
    bool known = entry->dtype == TT_F32 || entry->dtype == TT_U8;
    if (!known || extent.first < 0 || extent.count < 0 || whole < 0 || extent.first > whole - extent.count)
        return tt_fail(TT_ERR_DATA, "'%s' in '%s' is neither F32 nor U8, or is outside of its shape",
                       entry->name, tt_safetensors_path(file));
    TT_TRY(tt_grow(&state->extents, state->count, &state->capacity));
    state->extents[state->count++] = extent;
    return TT_OK;
}

static int compare_extents(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    int order = strcmp(x->key, y->key);
    if (order != 0) return order;
    return x->first < y->first ? -1 : x->first > y->first;
}

tt_status tt_state_open(const char *folder, struct tt_state **out)
{
    tt_status status = TT_OK;
    struct tt_state *state = tt_calloc(1, sizeof *state);
    if (state == NULL) return TT_ERR_MEMORY;
    state->folder = tt_strdup(folder);
    if (state->folder == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_dir_list(folder, visit_file, state));
    if (state->file_count == 0) {
        status = tt_fail(TT_ERR_DATA, "'%s' has no training state to resume from", folder);
        tt_hint("it was saved with save_only_model, or by another program; adapter_name_or_path starts from "
                "an adapter");
        goto out;
    }
    for (size_t f = 0; f < state->file_count; f++)
        for (size_t i = 0; i < tt_safetensors_count(state->files[f]); i++)
            TT_GO(add_extent(state, state->files[f], tt_safetensors_entry(state->files[f], i)));
    if (state->count > 1) qsort(state->extents, state->count, sizeof *state->extents, compare_extents);
    *out = state;
out:
    if (status != TT_OK) tt_state_close(state);
    return status;
}

/* The extents of one value, in order; `count`: their number. */
static const struct extent *find(const struct tt_state *state, const char *prefix, const char *name,
                                 size_t *count)
{
    char key[NAME_BYTES];
    size_t low = 0, high = state->count;
    *count = 0;
    if (snprintf(key, sizeof key, "%s%s", prefix, name) >= (int)sizeof key) return NULL;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(state->extents[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    while (low + *count < state->count && strcmp(state->extents[low + *count].key, key) == 0) (*count)++;
    return state->extents + low;
}

static bool has_shape(const struct extent *extent, const tt_param *param, const struct tt_state_value *value)
{
    if (value->block > 1)
        return extent->rank == 1 && extent->dims[0] == tt_slot_elements(value, tt_param_count(param));
    bool same = extent->rank == param->rank;
    for (int d = 0; d < param->rank && same; d++) same = extent->dims[d] == param->dims[d];
    return same;
}

static tt_status check_value(const struct tt_state *state, const tt_param *param,
                             const struct tt_state_value *value)
{
    size_t count;
    const char *prefix = value->prefix;
    const struct extent *extents = find(state, prefix, param->name, &count);
    int64_t reached = 0;
    size_t used = 0;
    for (size_t i = 0; i < count; i++, used++) {
        if (!has_shape(&extents[i], param, value))
            return tt_fail(TT_ERR_DATA, "'%s%s' in '%s' has another shape than in the model", prefix,
                           param->name, state->folder);
        if (extents[i].entry->dtype != value->dtype)
            return tt_fail(TT_ERR_DATA, "'%s%s' in '%s' is %s, not %s", prefix, param->name, state->folder,
                           tt_dtype_name(extents[i].entry->dtype), tt_dtype_name(value->dtype));
        if (extents[i].first != reached) break;
        reached += extents[i].count;
    }
    if (used == count && reached == tt_slot_elements(value, tt_param_count(param))) return TT_OK;
    tt_status status = tt_fail(TT_ERR_DATA, "the training state in '%s' %s '%s%s'", state->folder,
                               count == 0 ? "has no" : "has gaps or overlaps in", prefix, param->name);
    if (count == 0)
        tt_hint("it may be that of another optim; a new run from these weights (model_name_or_path or "
                "adapter_name_or_path) begins with a new state");
    return status;
}

/* `key` is that of a value of the parameter. */
static bool is_value_of(const struct tt_optimizer *optimizer, const tt_param *param, const char *key)
{
    struct tt_state_value value;
    for (int slot = 0; slot < TT_SLOTS; slot++) {
        if (!tt_slot_value(optimizer, param, slot, &value)) continue;
        size_t bytes = strlen(value.prefix);
        if (strncmp(key, value.prefix, bytes) == 0 && strcmp(key + bytes, param->name) == 0) return true;
    }
    return false;
}

tt_status tt_state_check(const struct tt_state *state, const struct tt_model *model,
                         const struct tt_optimizer *optimizer, bool masters)
{
    size_t known = 0;
    struct tt_state_value value;
    for (size_t i = 0; i < model->param_count; i++) {
        const tt_param *param = model->params[i];
        for (int slot = 0; slot < TT_SLOTS && param->trainable; slot++) {
            size_t count;
            if (!tt_slot_value(optimizer, param, slot, &value)) continue;
            (void)find(state, value.prefix, param->name, &count);
            if (slot != TT_SLOT_MASTER || masters || count > 0) TT_TRY(check_value(state, param, &value));
            known += count;
        }
    }
    for (size_t e = 0; e < state->count && known != state->count; e++) {
        const char *name = state->extents[e].key;
        bool found = false;
        for (size_t i = 0; i < model->param_count && !found; i++)
            found = model->params[i]->trainable && is_value_of(optimizer, model->params[i], name);
        if (!found)
            return tt_fail(TT_ERR_DATA, "the training state in '%s' has '%s', which the model does not train",
                           state->folder, name);
    }
    return TT_OK;
}

/* Appends the ranges that read one value of [piece.first, piece.first + piece.count) to `to`. */
static void add_ranges(const struct tt_state *state, const struct tt_piece *piece,
                       const struct tt_state_value *value, char *to, bool in_host,
                       struct tt_read_range *ranges, size_t *range_count)
{
    size_t count;
    const struct extent *extents = find(state, value->prefix, piece->param->name, &count);
    int64_t first = piece->first / value->block, end = first + tt_slot_elements(value, piece->count);
    for (size_t i = 0; i < count; i++) {
        const struct extent *extent = &extents[i];
        int64_t low = extent->first > first ? extent->first : first;
        int64_t high = extent->first + extent->count < end ? extent->first + extent->count : end;
        if (low >= high) continue;
        ranges[(*range_count)++] = (struct tt_read_range){
            .file = extent->file,
            .entry = extent->entry,
            .first = low - extent->first,
            .count = high - low,
            .to = to + (size_t)(low - first) * tt_dtype_bytes(value->dtype),
            .dtype = value->dtype,
            .in_host = in_host,
            .name = extent->key,
        };
    }
}

static void add_piece(const struct tt_state *state, const struct tt_state_target *target, int u,
                      const struct tt_piece *piece, struct tt_read_range *ranges, size_t *range_count)
{
    struct tt_state_value value;
    if (!piece->param->trainable || piece->count == 0) return;
    for (int slot = 0; slot < TT_SLOTS; slot++) {
        if (!tt_slot_value(target->optimizer, piece->param, slot, &value)) continue;
        bool master = slot == TT_SLOT_MASTER;
        char *to = master ? piece->data
                          : tt_moments_value(&target->moments[u], slot - TT_SLOT_STATE, piece->slice_offset);
        add_ranges(state, piece, &value, to, master ? piece->in_host : target->moments_in_host, ranges,
                   range_count);
    }
}

tt_status tt_state_load(const struct tt_state *state, const struct tt_state_target *target)
{
    size_t range_count = 0, capacity = state->count;
    for (int u = 0; u < target->model->unit_count; u++)
        capacity += TT_SLOTS * tt_unit_piece_count(target->units[u]);
    struct tt_read_range *ranges = tt_calloc(capacity + 1, sizeof *ranges);
    if (ranges == NULL) return TT_ERR_MEMORY;
    for (int u = 0; u < target->model->unit_count; u++) {
        for (size_t p = 0; p < tt_unit_piece_count(target->units[u]); p++) {
            struct tt_piece piece = tt_unit_piece(target->units[u], p);
            add_piece(state, target, u, &piece, ranges, &range_count);
        }
    }
    struct tt_reader_config config = {.cancel = target->cancel};
    tt_status status = tt_reader_run(target->stream, ranges, range_count, &config);
    tt_free(ranges);
    for (int u = 0; u < target->model->unit_count && status == TT_OK; u++)
        status = tt_unit_masters_changed(target->units[u]);
    if (status != TT_OK) tt_while("reading the training state in '%s'", state->folder);
    return status;
}
