#include "checkpoint/consolidate.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/layout.h"
#include "io/output_folder.h"
#include "io/safetensors.h"

enum { COPY_COUNT = 256 * 1024, STATE_BYTES_MAX = 256 << 20 };
static const char state_prefix[] = "training_state", state_json[] = "training_state.json";

/* A part of a tensor, stored in one file. */
struct part {
    struct tt_safetensors_entry whole; /* name, type and shape of the tensor */
    int64_t first, count;
    const struct tt_safetensors *file;
    const struct tt_safetensors_entry *entry;
};

struct state {
    struct tt_safetensors **files; /* owned */
    size_t file_count;
    struct part *parts; /* owned; by name, then by first */
    size_t count, capacity;
    struct tt_arena arena;
};

static bool is_state_file(const char *name)
{
    return strncmp(name, state_prefix, sizeof state_prefix - 1) == 0 && tt_ends_with(name, ".safetensors");
}

/* ---- Facts ---- */

/* training_state.json has the number of ranks; it may be damaged or absent. */
static int64_t read_ranks(const char *folder)
{
    struct tt_json json = {0};
    int64_t ranks = 0;
    struct tt_path path;
    if (tt_path_set(&path, folder, state_json) == TT_OK && tt_path_exists(path.text) &&
        tt_json_read(path.text, STATE_BYTES_MAX, &json) == TT_OK && tt_json_is_object(json.root))
        (void)!tt_json_opt_int(&json, json.root, "world_size", &ranks);
    tt_json_deinit(&json);
    return ranks;
}

tt_status tt_checkpoint_facts(const char *folder, struct tt_checkpoint_facts *facts)
{
    struct tt_manifest manifest = {0};
    *facts = (struct tt_checkpoint_facts){0};
    TT_TRY(tt_manifest_read(folder, &manifest));
    facts->step = manifest.step;
    facts->files = manifest.count;
    for (size_t i = 0; i < manifest.count; i++) {
        facts->bytes += manifest.files[i].bytes;
        facts->state_parts += is_state_file(manifest.files[i].name);
    }
    facts->adapter = tt_manifest_find(&manifest, "adapter_config.json") != NULL;
    facts->ranks = read_ranks(folder);
    tt_error_clear();
    tt_status status = tt_manifest_check_sizes(&manifest, folder);
    tt_manifest_deinit(&manifest);
    return status;
}

/* ---- The state's files ---- */

/* A tensor of a file of one rank is a vector called "<name>[shape]@first" (layout.h); any other is whole. */
static bool read_name(const struct tt_safetensors_entry *entry, char *name, struct part *part)
{
    char *at = strrchr(name, '@'), *open = strrchr(name, '['), *next = open;
    part->whole = *entry;
    part->whole.name = name;
    part->count = entry->rank > 0 ? entry->dims[0] : 1;
    if (at == NULL) {
        for (int d = 1; d < entry->rank; d++) part->count *= entry->dims[d];
        return true;
    }
    if (open == NULL || open > at || at[-1] != ']' || entry->rank != 1) return false;
    part->first = strtoll(at + 1, NULL, 10);
    int64_t count = 1;
    for (part->whole.rank = 0; *next != ']'; part->whole.rank++) {
        if (part->whole.rank == TT_SAFETENSORS_RANK_MAX) return false;
        int64_t dim = strtoll(next + 1, &next, 10);
        if ((*next != ',' && *next != ']') || dim <= 0 || __builtin_mul_overflow(count, dim, &count))
            return false;
        part->whole.dims[part->whole.rank] = dim;
    }
    *open = '\0';
    return part->first >= 0 && part->first <= count - part->count;
}

static tt_status add_file(struct state *state, const char *folder, const char *name)
{
    struct tt_safetensors *file = NULL;
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, name));
    tt_status status = tt_safetensors_open(path.text, &file);
    if (status != TT_OK) return status;
    state->files[state->file_count++] = file;
    for (size_t i = 0; i < tt_safetensors_count(file); i++) {
        const struct tt_safetensors_entry *entry = tt_safetensors_entry(file, i);
        struct part part = {.file = file, .entry = entry};
        char *copy = tt_arena_strdup(&state->arena, entry->name);
        if (copy == NULL || tt_grow(&state->parts, state->count, &state->capacity) != 0) return TT_ERR_MEMORY;
        if (!read_name(entry, copy, &part) || (entry->dtype != TT_F32 && entry->dtype != TT_U8))
            return tt_fail(TT_ERR_DATA, "'%s' has a tensor '%s', which is not part of a training state",
                           tt_safetensors_path(file), entry->name);
        state->parts[state->count++] = part;
    }
    return TT_OK;
}

static int compare_parts(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    int order = strcmp(x->whole.name, y->whole.name);
    if (order != 0) return order;
    return x->first < y->first ? -1 : x->first > y->first;
}

static int64_t elements(const struct tt_safetensors_entry *entry)
{
    int64_t count = 1;
    for (int d = 0; d < entry->rank; d++) count *= entry->dims[d];
    return count;
}

static bool same_tensor(const struct part *a, const struct part *b)
{
    return a->whole.dtype == b->whole.dtype && a->whole.rank == b->whole.rank &&
           memcmp(a->whole.dims, b->whole.dims, (size_t)a->whole.rank * sizeof a->whole.dims[0]) == 0;
}

/* Checks that every element of every tensor exists once. *tensors: number of tensors. */
static tt_status check_parts(const struct state *state, const char *folder, size_t *tensors)
{
    *tensors = 0;
    for (size_t i = 0; i < state->count;) {
        const struct part *first = &state->parts[i];
        int64_t reached = 0;
        bool whole = true;
        for (; i < state->count && strcmp(state->parts[i].whole.name, first->whole.name) == 0; i++) {
            whole &= same_tensor(first, &state->parts[i]) && state->parts[i].first == reached;
            reached += state->parts[i].count;
        }
        if (!whole || reached != elements(&first->whole))
            return tt_fail(TT_ERR_DATA, "the training state in '%s' does not have every element of '%s' once",
                           folder, first->whole.name);
        (*tensors)++;
    }
    return TT_OK;
}

static void state_deinit(struct state *state)
{
    for (size_t f = 0; f < state->file_count; f++) tt_safetensors_close(state->files[f]);
    tt_free(state->files);
    tt_free(state->parts);
    tt_arena_deinit(&state->arena);
}

/* Opens and checks the state files of the manifest; there may be none. */
static tt_status state_open(const char *folder, const struct tt_manifest *manifest, struct state *state,
                            size_t *tensors)
{
    *state = (struct state){.files = tt_calloc(manifest->count + 1, sizeof *state->files)};
    if (state->files == NULL) return TT_ERR_MEMORY;
    for (size_t i = 0; i < manifest->count; i++)
        if (is_state_file(manifest->files[i].name)) TT_TRY(add_file(state, folder, manifest->files[i].name));
    if (state->count > 1) qsort(state->parts, state->count, sizeof *state->parts, compare_parts);
    return check_parts(state, folder, tensors);
}

/* ---- Verifying ---- */

static tt_status check_safetensors(const char *folder, const char *name)
{
    struct tt_safetensors *file = NULL;
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, name));
    tt_status status = tt_safetensors_open(path.text, &file);
    tt_safetensors_close(file);
    return status;
}

static tt_status verify(const char *folder, const struct tt_cancel *cancel, struct tt_manifest *manifest,
                        struct state *state, size_t *tensors)
{
    TT_TRY(tt_manifest_read(folder, manifest));
    TT_TRY(tt_manifest_verify(manifest, folder, cancel));
    for (size_t i = 0; i < manifest->count; i++)
        if (tt_ends_with(manifest->files[i].name, ".safetensors"))
            TT_TRY(check_safetensors(folder, manifest->files[i].name));
    return state_open(folder, manifest, state, tensors);
}

tt_status tt_checkpoint_verify(const char *folder, const struct tt_cancel *cancel)
{
    struct tt_manifest manifest = {0};
    struct state state = {0};
    size_t tensors;
    tt_status status = verify(folder, cancel, &manifest, &state, &tensors);
    state_deinit(&state);
    tt_manifest_deinit(&manifest);
    return status;
}

tt_status tt_checkpoint_verify_weights(const char *folder, const struct tt_cancel *cancel)
{
    struct tt_manifest manifest = {0};
    size_t kept = 0;
    TT_TRY(tt_manifest_read(folder, &manifest));
    for (size_t i = 0; i < manifest.count; i++) {
        struct tt_manifest_file file = manifest.files[i];
        if (is_state_file(file.name))
            tt_free(file.name);
        else
            manifest.files[kept++] = file;
    }
    manifest.count = kept;
    tt_status status = tt_manifest_verify(&manifest, folder, cancel);
    tt_manifest_deinit(&manifest);
    return status;
}

/* ---- Consolidating ---- */

/* True if a file has pieces of tensors under names of their own (layout.h). */
static bool has_pieces(const struct state *state)
{
    for (size_t i = 0; i < state->count; i++)
        if (strcmp(state->parts[i].entry->name, state->parts[i].whole.name) != 0) return true;
    return false;
}

/* Tensors `first` to `first + count` of the state, in order of name, and their parts. */
struct output {
    char name[80];
    size_t first_part, part_count;
    struct tt_safetensors_entry *entries; /* borrowed */
    size_t count;
};

static tt_status copy_part(const struct part *part, uint64_t offset, int descriptor, const char *path,
                           void *buffer)
{
    tt_dtype dtype = part->entry->dtype;
    size_t size = tt_dtype_bytes(dtype);
    for (int64_t done = 0; done < part->count; done += COPY_COUNT) {
        int64_t count = part->count - done < COPY_COUNT ? part->count - done : COPY_COUNT;
        TT_TRY(tt_safetensors_read(part->file, part->entry, done, count, buffer, dtype));
        TT_TRY(tt_file_pwrite(descriptor, path, buffer, (size_t)count * size,
                              offset + (uint64_t)(part->first + done) * size));
    }
    return TT_OK;
}

static tt_status write_parts(const struct state *state, const struct output *output, int descriptor,
                             const char *path, const struct tt_cancel *cancel)
{
    tt_status status = TT_OK;
    void *buffer = tt_alloc_aligned(COPY_COUNT * sizeof(float));
    size_t e = 0;
    if (buffer == NULL) return TT_ERR_MEMORY;
    for (size_t i = output->first_part; i < output->first_part + output->part_count; i++) {
        const struct part *part = &state->parts[i];
        /* Both are in order of name among tensors of one type: the next entry is the one after the last, or begins a
         * type. */
        for (size_t tried = 0; tried < output->count; tried++, e = (e + 1) % output->count)
            if (strcmp(output->entries[e].name, part->whole.name) == 0) break;
        if (strcmp(output->entries[e].name, part->whole.name) != 0)
            TT_GO(tt_fail(TT_ERR_INTERNAL, "'%s' was not laid out", part->whole.name));
        if (cancel != NULL && atomic_load(&cancel->requests) > 0)
            TT_GO(tt_fail(TT_ERR_CANCELLED, "stopped on request"));
        TT_GO(copy_part(part, output->entries[e].offset, descriptor, path, buffer));
    }
out:
    tt_free(buffer);
    return status;
}

static tt_status write_output(const struct state *state, const struct output *output, const char *folder,
                              const struct tt_cancel *cancel)
{
    tt_status status = TT_OK;
    struct tt_str header = {0};
    uint64_t bytes = 0;
    int descriptor = -1;
    struct tt_path path;
    TT_GO(tt_path_set(&path, folder, output->name));
    TT_GO(tt_safetensors_layout(output->entries, output->count, &header, &bytes));
    TT_GO(tt_file_create(path.text, bytes, &descriptor));
    TT_GO(tt_file_pwrite(descriptor, path.text, header.data, header.bytes, 0));
    TT_GO(write_parts(state, output, descriptor, path.text, cancel));
    status = tt_file_sync_close(descriptor, path.text);
    descriptor = -1;
out:
    tt_file_close(descriptor);
    tt_str_deinit(&header);
    return status;
}

static uint64_t entry_bytes(const struct tt_safetensors_entry *entry)
{
    uint64_t bytes = tt_dtype_bytes(entry->dtype);
    for (int d = 0; d < entry->rank; d++) bytes *= (uint64_t)entry->dims[d];
    return bytes;
}

static tt_status write_state(const struct state *state, size_t tensors, const char *folder,
                             uint64_t max_file_bytes, const struct tt_cancel *cancel)
{
    tt_status status = TT_OK;
    struct tt_safetensors_entry *entries = tt_calloc(tensors + 1, sizeof *entries);
    uint64_t *bytes = tt_calloc(tensors + 1, sizeof *bytes);
    size_t *file_of = tt_calloc(tensors + 1, sizeof *file_of),
           *first_part = tt_calloc(tensors + 1, sizeof *first_part);
    size_t count = 0;
    if (entries == NULL || bytes == NULL || file_of == NULL || first_part == NULL) TT_GO(TT_ERR_MEMORY);
    for (size_t i = 0; i < state->count; i++) {
        if (i > 0 && strcmp(state->parts[i].whole.name, state->parts[i - 1].whole.name) == 0) continue;
        entries[count] = state->parts[i].whole;
        bytes[count] = entry_bytes(&entries[count]);
        first_part[count++] = i;
    }
    first_part[count] = state->count;
    size_t files = tt_state_split(bytes, count, max_file_bytes, file_of), first = 0;
    for (size_t f = 0; f < files; f++) {
        size_t end = first;
        while (end < count && file_of[end] == f) end++;
        struct output output = {.first_part = first_part[first],
                                .part_count = first_part[end] - first_part[first],
                                .entries = entries + first,
                                .count = end - first};
        tt_state_file_name(f, files, output.name, sizeof output.name);
        TT_GO(write_output(state, &output, folder, cancel));
        first = end;
    }
out:
    tt_free(entries);
    tt_free(bytes);
    tt_free(file_of);
    tt_free(first_part);
    return status;
}

static tt_status write_state_json(const char *from, const char *to)
{
    tt_status status = TT_OK;
    struct tt_json json = {0};
    struct tt_str text = {0};
    TT_GO(tt_json_read(from, STATE_BYTES_MAX, &json));
    TT_GO(tt_json_make_editable(&json));
    if (!tt_json_is_object(json.root)) TT_GO(tt_fail(TT_ERR_DATA, "'%s' is not a JSON object", from));
    if (tt_json_set(json.root, "state_dict_type", tt_json_new_string("FULL_STATE_DICT")) != 0)
        TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_json_write(json.root, 2, true, &text));
    TT_GO(tt_str_append_char(&text, '\n'));
    TT_GO(tt_file_write_atomic(to, text.data, text.bytes));
out:
    tt_json_deinit(&json);
    tt_str_deinit(&text);
    return status;
}

static tt_status copy_file(const char *from_folder, const char *to_folder, const char *name)
{
    struct tt_path from, to;
    TT_TRY(tt_path_set(&from, from_folder, name));
    TT_TRY(tt_path_set(&to, to_folder, name));
    if (strchr(name, '/') != NULL) {
        char *slash = strrchr(to.text, '/');
        *slash = '\0';
        TT_TRY(tt_dir_create(to.text));
        *slash = '/';
    }
    return strcmp(name, state_json) == 0 ? write_state_json(from.text, to.text)
                                         : tt_file_copy_inside(from_folder, name, UINT64_MAX, to.text);
}

static tt_status write_checkpoint(const char *folder, const char *temporary, uint64_t max_file_bytes,
                                  const struct tt_cancel *cancel, size_t *tensors)
{
    tt_status status = TT_OK;
    struct tt_manifest manifest = {0}, made = {0};
    struct state state = {0};
    TT_GO(verify(folder, cancel, &manifest, &state, tensors));
    if (state.file_count == 0 || !has_pieces(&state))
        TT_GO(tt_fail(TT_ERR_USAGE, "'%s' %s", folder,
                      state.file_count == 0 ? "has no training state"
                                            : "has a training state of whole tensors already"));
    for (size_t i = 0; i < manifest.count; i++)
        if (!is_state_file(manifest.files[i].name))
            TT_GO(copy_file(folder, temporary, manifest.files[i].name));
    TT_GO(write_state(&state, *tensors, temporary, max_file_bytes, cancel));
    made.step = manifest.step;
    TT_GO(tt_manifest_add_rest(&made, temporary));
    TT_GO(tt_manifest_write(&made, temporary));
out:
    state_deinit(&state);
    tt_manifest_deinit(&manifest);
    tt_manifest_deinit(&made);
    return status;
}

tt_status tt_checkpoint_consolidate(const char *folder, const char *output_dir, bool overwrite,
                                    uint64_t max_file_bytes, const struct tt_cancel *cancel, size_t *tensors)
{
    tt_status status = TT_OK;
    struct tt_output_folder output = {0};
    TT_GO(tt_output_folder_open(output_dir, ".consolidating", overwrite, &output));
    TT_GO(write_checkpoint(folder, tt_str_text(&output.temporary), max_file_bytes, cancel, tensors));
    TT_GO(tt_output_folder_commit(&output));
out:
    if (status != TT_OK) tt_while("consolidating '%s'", folder);
    tt_output_folder_close(&output);
    return status;
}
