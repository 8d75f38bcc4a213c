#include "io/expert_adapters.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "base/str.h"
#include "io/param_source_impl.h"
#include "io/safetensors_impl.h"

enum { BLOCK_BYTES = 4 << 20 };

/* A tensor that is shown: one of the file, or made of those of experts. */
struct shown {
    const struct tt_safetensors_entry *whole;
    const struct tt_safetensors_entry **of; /* [experts * parts], of expert 0 first; NULL: whole */
    int64_t experts;
    int parts;
    bool is_B;
};

struct tt_shown_adapters {
    struct tt_safetensors *own;
    struct shown *items; /* [count of the file] */
};

void tt_shown_adapters_destroy(struct tt_shown_adapters *adapters)
{
    if (adapters == NULL) return;
    tt_safetensors_close(adapters->own);
    tt_free(adapters->items);
    tt_free(adapters);
}

/* ---- Reading ---- */

static tt_status read_own(const struct tt_safetensors *own, const struct tt_safetensors_entry *entry,
                          int64_t first, int64_t count, void *to)
{
    return tt_safetensors_read(own, entry, first, count, to, entry->dtype);
}

/* A: one tensor after the other. */
static tt_status read_A(const struct tt_safetensors *own, const struct shown *shown, int64_t first,
                        int64_t count, char *to)
{
    int64_t each = tt_safetensors_elements(shown->of[0]);
    size_t width = tt_dtype_bytes(shown->of[0]->dtype);
    while (count > 0) {
        int64_t inside = first % each, here = tt_smaller(each - inside, count);
        TT_TRY(read_own(own, shown->of[first / each], inside, here, to));
        to += (size_t)here * width;
        first += here;
        count -= here;
    }
    return TT_OK;
}

/* Rows of B inside the block of one linear, in `rows`, which is zeroed; `part_rows`: room for those of an expert. */
static tt_status make_rows(const struct tt_safetensors *own, const struct shown *shown, int64_t first,
                           int64_t count, char *rows, char *part_rows)
{
    int64_t out = shown->of[0]->dims[0], r = shown->of[0]->dims[1],
            columns = shown->parts * r * shown->experts;
    int64_t part = first / out;
    size_t width = tt_dtype_bytes(shown->of[0]->dtype);
    for (int64_t e = 0; e < shown->experts; e++) {
        TT_TRY(read_own(own, shown->of[e * shown->parts + part], (first - part * out) * r, count * r,
                        part_rows));
        for (int64_t i = 0; i < count; i++)
            for (int64_t j = 0; j < r; j++)
                memcpy(rows + (size_t)(i * columns + (part * r + j) * shown->experts + e) * width,
                       part_rows + (size_t)(i * r + j) * width, width);
    }
    return TT_OK;
}

static tt_status read_B(const struct tt_safetensors *own, const struct shown *shown, int64_t first,
                        int64_t count, char *to)
{
    int64_t out = shown->of[0]->dims[0], r = shown->of[0]->dims[1],
            columns = shown->parts * r * shown->experts;
    size_t width = tt_dtype_bytes(shown->of[0]->dtype);
    int64_t step = tt_larger(1, BLOCK_BYTES / (columns * (int64_t)width));
    char *rows = tt_alloc_aligned((size_t)(step * columns) * width);
    char *part_rows = tt_alloc_aligned((size_t)(step * r) * width);
    tt_status status = rows != NULL && part_rows != NULL ? TT_OK : TT_ERR_MEMORY;
    while (status == TT_OK && count > 0) {
        int64_t row = first / columns, inside = first % columns;
        int64_t some = tt_smaller(step, out - row % out), here = tt_smaller(some * columns - inside, count);
        some = (inside + here + columns - 1) / columns;
        memset(rows, 0, (size_t)(some * columns) * width);
        status = make_rows(own, shown, row, some, rows, part_rows);
        memcpy(to, rows + (size_t)inside * width, (size_t)here * width);
        to += (size_t)here * width;
        first += here;
        count -= here;
    }
    tt_free(rows);
    tt_free(part_rows);
    return status;
}

tt_status tt_shown_adapters_read(const struct tt_safetensors *file, const struct tt_safetensors_entry *entry,
                                 int64_t first, int64_t count, void *to)
{
    const struct tt_shown_adapters *adapters = file->adapters;
    const struct shown *shown = &adapters->items[entry - file->entries];
    if (shown->of == NULL) return read_own(adapters->own, shown->whole, first, count, to);
    return shown->is_B ? read_B(adapters->own, shown, first, count, to)
                       : read_A(adapters->own, shown, first, count, to);
}

/* ---- What is shown ---- */

struct showing {
    const struct tt_expert_adapters *adapters;
    const struct tt_safetensors *own;
    struct tt_safetensors *file;
    bool *used; /* [count of own]: shown as a part of another tensor */
};

static const char a_end[] = ".lora_A.weight", b_end[] = ".lora_B.weight";

/* The tensor of a linear, or NULL, with its name. */
static const struct tt_safetensors_entry *find(const struct showing *showing, const char *linear,
                                               const char *end, struct tt_source_numbers numbers,
                                               char name[TT_SOURCE_NAME_BYTES])
{
    char pattern[TT_SOURCE_NAME_BYTES];
    (void)snprintf(pattern, sizeof pattern, "%s%s", linear, end);
    tt_source_name(showing->adapters->path, pattern, numbers, name);
    return tt_safetensors_find(showing->own, name);
}

static bool is_alike(const struct tt_safetensors_entry *a, const struct tt_safetensors_entry *b)
{
    return a->dtype == b->dtype && a->rank == 2 && b->rank == 2 && a->dims[0] == b->dims[0] &&
           a->dims[1] == b->dims[1];
}

static void add(struct showing *showing, const struct tt_safetensors_entry *entry, const struct shown *shown)
{
    struct tt_safetensors *file = showing->file;
    struct tt_safetensors_entry *to = &file->entries[file->count];
    *to = *entry;
    to->offset = file->file_bytes;
    to->bytes = (uint64_t)tt_safetensors_elements(to) * tt_dtype_bytes(to->dtype);
    file->file_bytes += to->bytes;
    file->adapters->items[file->count++] = *shown;
}

/* The tensors of all experts and linears. */
static tt_status collect(struct showing *showing, const struct tt_expert_adapter *adapter, const char *end,
                         int64_t layer, struct shown *shown)
{
    char name[TT_SOURCE_NAME_BYTES];
    for (int64_t i = 0; i < shown->experts * shown->parts; i++) {
        const char *linear = adapter->linears[i % shown->parts];
        const struct tt_safetensors_entry *entry =
            find(showing, linear, end, (struct tt_source_numbers){layer, i / shown->parts}, name);
        if (entry == NULL)
            return tt_fail(TT_ERR_DATA, "'%s' has adapters of %lld experts and lacks '%s'",
                           tt_safetensors_path(showing->own), (long long)shown->experts, name);
        shown->of[i] = entry;
        if (!is_alike(entry, shown->of[0]))
            return tt_fail(TT_ERR_DATA, "'%s': '%s' has another type or shape than '%s'",
                           tt_safetensors_path(showing->own), name, shown->of[0]->name);
        showing->used[entry - showing->own->entries] = true;
    }
    return TT_OK;
}

/* A or B of one module of experts. */
static tt_status show_one(struct showing *showing, const struct tt_expert_adapter *adapter, const char *end,
                          int64_t layer, int64_t experts)
{
    char module[TT_SOURCE_NAME_BYTES], name[TT_SOURCE_NAME_BYTES];
    struct tt_source_numbers numbers = {layer, 0};
    struct shown shown = {.experts = experts, .is_B = end == b_end};
    while (shown.parts < TT_EXPERT_ADAPTER_PARTS && adapter->linears[shown.parts] != NULL) shown.parts++;
    shown.of = tt_arena_alloc(&showing->file->arena,
                              (size_t)(experts * shown.parts) * sizeof(struct tt_safetensors_entry *));
    if (shown.of == NULL) return TT_ERR_MEMORY;
    TT_TRY(collect(showing, adapter, end, layer, &shown));
    bool inner = adapter->outer != NULL && find(showing, adapter->outer, end, numbers, name) != NULL;
    tt_source_name(showing->adapters->path, adapter->experts, numbers, module);
    struct tt_safetensors_entry entry = *shown.of[0];
    entry.name = tt_arena_printf(&showing->file->arena, "%s%s%s", module, inner ? ".base_layer" : "", end);
    entry.dims[0] *= shown.parts * (shown.is_B ? 1 : experts);
    entry.dims[1] *= shown.is_B ? shown.parts * experts : 1;
    if (entry.name == NULL) return TT_ERR_MEMORY;
    add(showing, &entry, &shown);
    return TT_OK;
}

/* A layer has such adapters where its first expert has one. */
static tt_status show_experts(struct showing *showing, const struct tt_expert_adapter *adapter)
{
    char pattern[TT_SOURCE_NAME_BYTES], name[TT_SOURCE_NAME_BYTES];
    (void)snprintf(pattern, sizeof pattern, "%s%s", adapter->linears[0], a_end);
    for (size_t i = 0; i < showing->own->count; i++) {
        struct tt_source_numbers numbers;
        if (!tt_source_fits(showing->adapters->path, pattern, showing->own->entries[i].name, &numbers) ||
            numbers.expert != 0)
            continue;
        int64_t experts = 0;
        while (experts < TT_SOURCE_EXPERTS_MAX &&
               find(showing, adapter->linears[0], a_end, (struct tt_source_numbers){numbers.layer, experts},
                    name) != NULL)
            experts++;
        TT_TRY(show_one(showing, adapter, a_end, numbers.layer, experts));
        TT_TRY(show_one(showing, adapter, b_end, numbers.layer, experts));
    }
    return TT_OK;
}

/* All other tensors, some under their name of now. */
static tt_status show_rest(struct showing *showing)
{
    static const char *const ends[] = {a_end, b_end};
    const struct tt_expert_adapters *adapters = showing->adapters;
    for (size_t i = 0; i < showing->own->count; i++) {
        const struct tt_safetensors_entry *of = &showing->own->entries[i];
        struct tt_safetensors_entry entry = *of;
        char name[TT_SOURCE_NAME_BYTES], pattern[TT_SOURCE_NAME_BYTES];
        (void)snprintf(name, sizeof name, "%s", of->name);
        for (int end = 0; end < 2 && adapters->renamed.to != NULL; end++) {
            struct tt_source_numbers numbers;
            (void)snprintf(pattern, sizeof pattern, "%s%s", adapters->renamed.from, ends[end]);
            if (!tt_source_fits(adapters->path, pattern, of->name, &numbers)) continue;
            (void)snprintf(pattern, sizeof pattern, "%s%s", adapters->renamed.to, ends[end]);
            tt_source_name(adapters->path, pattern, numbers, name);
        }
        if (showing->used[i]) continue;
        entry.name = strlen(of->name) < sizeof name ? tt_arena_strdup(&showing->file->arena, name) : of->name;
        if (entry.name == NULL) return TT_ERR_MEMORY;
        add(showing, &entry, &(struct shown){.whole = of});
    }
    return TT_OK;
}

static tt_status create_file(const struct tt_safetensors *own, struct tt_safetensors **out)
{
    size_t most = own->count + 1;
    struct tt_safetensors *file = *out = tt_safetensors_create(own->path, most);
    if (file == NULL) return TT_ERR_MEMORY;
    file->adapters = tt_calloc(1, sizeof *file->adapters);
    if (file->adapters != NULL) file->adapters->items = tt_calloc(most, sizeof *file->adapters->items);
    return file->adapters != NULL && file->adapters->items != NULL ? TT_OK : TT_ERR_MEMORY;
}

tt_status tt_expert_adapters_show(const struct tt_expert_adapters *adapters, struct tt_safetensors **file)
{
    tt_status status = TT_OK;
    struct showing showing = {.adapters = adapters, .own = *file};
    TT_GO(create_file(*file, &showing.file));
    showing.used = tt_calloc((*file)->count + 1, sizeof *showing.used);
    if (showing.used == NULL) TT_GO(TT_ERR_MEMORY);
    for (int i = 0; i < adapters->count; i++) TT_GO(show_experts(&showing, &adapters->items[i]));
    if (showing.file->count == 0) goto out; /* there are none */
    TT_GO(show_rest(&showing));
    TT_GO(tt_safetensors_index(showing.file));
    showing.file->adapters->own = *file;
    *file = showing.file;
    showing.file = NULL;
out:
    tt_safetensors_close(showing.file);
    tt_free(showing.used);
    return status;
}
