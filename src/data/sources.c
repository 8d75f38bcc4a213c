#include "data/sources.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "data/rows.h"
#include "data/unpack.h"

static const double weight_max = 1000;

/* ---- Files ---- */

/* Takes ownership of `path`. */
static tt_status add_file(struct tt_sources *sources, char *path)
{
    if (path == NULL) return TT_ERR_MEMORY;
    if (tt_grow(&sources->files, sources->file_count, &sources->file_capacity) != 0) {
        tt_free(path);
        return TT_ERR_MEMORY;
    }
    sources->files[sources->file_count++] = (struct tt_source_file){path, sources->count};
    return TT_OK;
}

/* SPLIT.jsonl and the like: at most one. */
static tt_status add_single(struct tt_sources *sources, const char *folder, const char *split)
{
    static const char *const endings[] = {".jsonl", ".json", ".ndjson", ".csv", ".txt", ".parquet", ".arrow"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        for (int p = -1; p < 0 || tt_unpack_endings[p] != NULL; p++) {
            char name[300];
            snprintf(name, sizeof name, "%.200s%s%s", split, endings[i], p < 0 ? "" : tt_unpack_endings[p]);
            char *path = tt_path_join(folder, name);
            if (path == NULL) return TT_ERR_MEMORY;
            if (tt_path_exists(path) && !tt_path_is_dir(path)) return add_file(sources, path);
            tt_free(path);
        }
    }
    return TT_OK;
}

/* A folder of datasets' save_to_disk: state.json names the files. */
bool tt_sources_is_saved(const char *folder)
{
    struct tt_path state, info;
    return tt_path_set(&state, folder, "state.json") == TT_OK && tt_path_exists(state.text) &&
           tt_path_set(&info, folder, "dataset_info.json") == TT_OK && tt_path_exists(info.text);
}

static tt_status add_saved(struct tt_sources *sources, const char *folder)
{
    enum { STATE_BYTES_MAX = 16 << 20 };
    struct tt_path path;
    struct tt_json json = {0};
    const struct tt_json_value *files;
    tt_status status = TT_OK;
    TT_TRY(tt_path_set(&path, folder, "state.json"));
    TT_GO(tt_json_read(path.text, STATE_BYTES_MAX, &json));
    TT_GO(tt_json_array(&json, json.root, "_data_files", &files));
    for (size_t i = 0; i < tt_json_count(files); i++) {
        const char *name;
        TT_GO(tt_json_string(&json, tt_json_at(files, i), "filename", &name));
        if (strchr(name, '/') != NULL || !tt_rows_is_name(name))
            TT_GO(tt_fail(TT_ERR_DATA, "'%s' names '%.200s', which is no data file beside it", path.text,
                          name));
        TT_GO(add_file(sources, tt_path_join(folder, name)));
    }
out:
    tt_json_deinit(&json);
    return status;
}

struct listing {
    struct tt_sources *sources;
    const char *folder, *prefix;
};

static tt_status add_listed(void *context, const char *name)
{
    const struct listing *listing = context;
    if (strncmp(name, listing->prefix, strlen(listing->prefix)) != 0 || !tt_rows_is_name(name)) return TT_OK;
    char *path = tt_path_join(listing->folder, name);
    if (path != NULL && tt_path_is_dir(path)) {
        tt_free(path);
        return TT_OK;
    }
    return add_file(listing->sources, path);
}

/* The files of folder/`below` (NULL: of the folder) whose names begin with `prefix`. */
static tt_status add_all(struct tt_sources *sources, const char *folder, const char *below,
                         const char *prefix)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, folder, below != NULL ? below : ""));
    if (tt_sources_is_saved(path.text)) return add_saved(sources, path.text);
    struct listing listing = {sources, below != NULL ? path.text : folder, prefix};
    return tt_path_is_dir(path.text) ? tt_dir_list(path.text, add_listed, &listing) : TT_OK;
}

/* ---- Folders without the usual names, as `datasets` reads them ---- */

/* The words by which file names say a split. */
static const char *const split_words[][5] = {
    {"train", "training"}, {"validation", "valid", "dev", "val"}, {"test", "testing", "eval", "evaluation"}};
enum { SPLITS = sizeof split_words / sizeof split_words[0] };

static bool is_separator(char c)
{
    return strchr("-._ 0123456789", c) != NULL; /* the end of the name, too */
}

/* Whether the name has the word, between separators. */
static bool has_word(const char *name, const char *word)
{
    size_t bytes = strlen(word);
    for (const char *at = name; (at = strstr(at, word)) != NULL; at++)
        if ((at == name || is_separator(at[-1])) && is_separator(at[bytes])) return true;
    return false;
}

/* Whether the name says the split numbered `index`, and for split_words' end any. */
static bool says_split(const char *name, size_t index)
{
    for (size_t i = 0; i < SPLITS; i++)
        for (size_t w = 0; (index == SPLITS || i == index) && w < 5 && split_words[i][w] != NULL; w++)
            if (has_word(name, split_words[i][w])) return true;
    return false;
}

struct naming {
    struct listing listing;
    size_t split; /* of split_words */
    bool any;     /* a name says some split */
    bool takes;   /* the second visit, which adds files */
};

static tt_status visit_name(void *context, const char *name)
{
    struct naming *naming = context;
    if (!tt_rows_is_name(name)) return TT_OK;
    bool takes = naming->any ? says_split(name, naming->split) : naming->split == 0;
    if (naming->takes) return takes ? add_listed(&naming->listing, name) : TT_OK;
    naming->any |= says_split(name, SPLITS);
    return TT_OK;
}

/* The files whose names have the split's word; where no name says a split, all files are those of train. A folder of a
 * model is none of rows. */
static tt_status add_named(struct tt_sources *sources, const char *folder, const char *split)
{
    struct naming naming = {.listing = {sources, folder, ""}};
    struct tt_path model;
    TT_TRY(tt_path_set(&model, folder, "config.json"));
    if (tt_path_exists(model.text)) return TT_OK;
    while (naming.split < SPLITS && !says_split(split, naming.split)) naming.split++;
    if (naming.split == SPLITS) return TT_OK;
    TT_TRY(tt_dir_list(folder, visit_name, &naming));
    naming.takes = true;
    return tt_dir_list(folder, visit_name, &naming);
}

static tt_status add_folder(struct tt_sources *sources, const char *folder, const char *split)
{
    char dashed[300];
    size_t before = sources->file_count;
    if (tt_sources_is_saved(folder)) return add_saved(sources, folder);
    snprintf(dashed, sizeof dashed, "%.200s-", split);
    TT_TRY(add_single(sources, folder, split));
    if (sources->file_count == before) TT_TRY(add_all(sources, folder, NULL, dashed));
    if (sources->file_count == before) TT_TRY(add_all(sources, folder, split, ""));
    if (sources->file_count == before) TT_TRY(add_all(sources, folder, "data", dashed));
    return sources->file_count == before ? add_named(sources, folder, split) : TT_OK;
}

static tt_status add_match(void *context, const char *path)
{
    return tt_rows_is_name(path) && !tt_path_is_dir(path) ? add_file(context, tt_strdup(path)) : TT_OK;
}

bool tt_sources_is_pattern(const char *name)
{
    return strpbrk(name, "*?[") != NULL && !tt_path_exists(name);
}

/* ---- Sources ---- */

tt_status tt_sources_add(struct tt_sources *sources, const char *path, const char *split, double weight)
{
    size_t before = sources->file_count;
    if (sources->count == TT_SOURCES_MAX)
        return tt_fail(TT_ERR_USAGE, "a mixture has at most %d sources", TT_SOURCES_MAX);
    if (tt_sources_is_pattern(path))
        TT_TRY(tt_path_match(path, add_match, sources));
    else if (tt_path_is_dir(path))
        TT_TRY(add_folder(sources, path, split));
    else
        TT_TRY(add_file(sources, tt_strdup(path)));
    if (sources->file_count == before) return TT_OK;
    TT_TRY(tt_grow(&sources->sources, sources->count, &sources->capacity));
    char *name = tt_strdup(path);
    if (name == NULL) return TT_ERR_MEMORY;
    sources->sources[sources->count++] = (struct tt_source){name, weight};
    return TT_OK;
}

tt_status tt_sources_check(const struct tt_sources *sources)
{
    for (size_t i = 0; i < sources->file_count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (strcmp(sources->files[i].path, sources->files[j].path) != 0) continue;
            tt_fail(TT_ERR_USAGE, "the data file '%s' is given twice", sources->files[i].path);
            tt_hint("a weight of 2 uses its rows twice in an epoch");
            return TT_ERR_USAGE;
        }
    }
    return TT_OK;
}

void tt_sources_deinit(struct tt_sources *sources)
{
    for (size_t i = 0; i < sources->count; i++) tt_free(sources->sources[i].name);
    for (size_t i = 0; i < sources->file_count; i++) tt_free(sources->files[i].path);
    tt_free(sources->sources);
    tt_free(sources->files);
    *sources = (struct tt_sources){0};
}

/* ---- Mixtures ---- */

tt_status tt_sources_label(const struct tt_sources *sources, size_t index, struct tt_str *text)
{
    const char *name = sources->sources[index].name;
    size_t same = 1;
    for (size_t i = 0; i < index; i++) same += strcmp(sources->sources[i].name, name) == 0;
    TT_TRY(tt_str_append_text(text, name));
    return same > 1 ? tt_str_printf(text, "#%zu", same) : TT_OK;
}

static const char **text_of(struct tt_mixture_entry *entry, const char *key)
{
    const struct {
        const char *key, **text;
    } texts[] = {{"path", &entry->path},
                 {"name", &entry->name},
                 {"revision", &entry->revision},
                 {"split", &entry->split},
                 {"data_files", &entry->data_files}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(key, texts[i].key) == 0) return texts[i].text;
    return NULL;
}

tt_status tt_mixture_read(const struct tt_json_value *list, size_t index, struct tt_mixture_entry *entry)
{
    const struct tt_json_value *object = tt_json_at(list, index), *value;
    const char *key;
    *entry = (struct tt_mixture_entry){.weight = 1};
    if (!tt_json_is_object(object))
        return tt_fail(TT_ERR_USAGE, "datasets[%zu] is not an object with a path", index);
    for (size_t i = 0; tt_json_next_member(object, &i, &key, &value);) {
        if (tt_json_is_null(value)) continue;
        const char **text = text_of(entry, key);
        if (text != NULL && tt_json_is_string(value)) {
            *text = tt_json_text(value);
        } else if (strcmp(key, "weight") == 0 && tt_json_is_number(value)) {
            entry->weight = tt_json_number(value);
        } else {
            tt_fail(TT_ERR_USAGE, "datasets[%zu]: '%.64s' is not known, or not of its type", index, key);
            tt_hint("an entry has path, name, revision, split, data_files (texts) and weight (a number)");
            return TT_ERR_USAGE;
        }
    }
    if (entry->path == NULL) return tt_fail(TT_ERR_USAGE, "datasets[%zu] has no path", index);
    if (!(entry->weight > 0 && entry->weight <= weight_max))
        return tt_fail(TT_ERR_USAGE, "datasets[%zu]: weight is %g; it must be above 0 and at most %g", index,
                       entry->weight, weight_max);
    return TT_OK;
}
