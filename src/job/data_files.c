#include "job/data_files.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hub_cache.h"
#include "hub/card.h"

bool tt_data_files_has_ending(const char *name)
{
    static const char *const endings[] = {".jsonl", ".json", ".txt", ".ndjson", ".csv", ".parquet", ".arrow"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (tt_ends_with(name, endings[i])) return true;
    return false;
}

bool tt_data_files_has_splits(const char *name)
{
    bool is_file = tt_path_exists(name) && !tt_path_is_dir(name);
    return !is_file && !tt_sources_is_pattern(name) && !tt_sources_is_saved(name);
}

/* "owner/name:configuration" as two texts; *config NULL: without one. Owned; both in one allocation. */
static tt_status part_name(const char *given, char **name, const char **config)
{
    *name = tt_strdup(given);
    *config = NULL;
    if (*name == NULL) return TT_ERR_MEMORY;
    char *colon = strchr(*name, ':');
    if (colon == NULL) return TT_OK;
    *colon = '\0';
    if (tt_hub_is_name(*name) && colon[1] != '\0' && strchr(colon + 1, '/') == NULL && !tt_path_exists(given))
        *config = colon + 1;
    else
        *colon = ':';
    return TT_OK;
}

static tt_status add_patterns(struct tt_sources *sources, const char *folder,
                              const struct tt_hub_patterns *patterns, const char *split, double weight)
{
    for (size_t i = 0; i < patterns->count; i++) {
        char *path = tt_path_join(folder, patterns->text[i]);
        if (path == NULL) return TT_ERR_MEMORY;
        tt_status status = tt_path_exists(path) || tt_sources_is_pattern(path)
                               ? tt_sources_add(sources, path, split, weight)
                               : TT_OK;
        tt_free(path);
        TT_TRY(status);
    }
    return TT_OK;
}

/* A repository of the hub in its cache: the files that are asked for; else the folder by the rules of any folder; where
 * they find nothing, or a configuration is asked for, that folder of the configuration, else the files that the card
 * names. */
static tt_status add_repository(struct tt_sources *sources, const char *folder, const char *config,
                                const struct tt_mixture_entry *named)
{
    struct tt_hub_card card = {0};
    struct tt_hub_patterns patterns = {{named->data_files}, 1};
    struct tt_path path;
    size_t before = sources->file_count;
    tt_status status = TT_OK;
    if (named->data_files != NULL) {
        TT_TRY(add_patterns(sources, folder, &patterns, named->split, named->weight));
        if (sources->file_count > before) return TT_OK;
        return tt_fail(TT_ERR_DATA, "'%s' has no file '%.200s' in the hub's cache", named->path,
                       named->data_files);
    }
    TT_TRY(tt_path_set(&path, folder, config != NULL ? config : ""));
    if (config == NULL || tt_path_is_dir(path.text))
        TT_TRY(tt_sources_add(sources, config != NULL ? path.text : folder, named->split, named->weight));
    if (sources->file_count > before) return TT_OK;
    TT_GO(tt_hub_card_read(folder, &card));
    TT_GO(tt_hub_card_files(&card, config, named->split, &patterns));
    TT_GO(add_patterns(sources, folder, &patterns, named->split, named->weight));
out:
    tt_hub_card_deinit(&card);
    return status;
}

static tt_status fail_missing(const struct tt_mixture_entry *named)
{
    if (named->revision == NULL)
        return tt_fail(TT_ERR_DATA, "there is no file or folder '%s', and it is not in the hub's cache",
                       named->path);
    return tt_fail(TT_ERR_DATA,
                   "there is no file or folder '%s', and the hub's cache has no revision '%s' of it",
                   named->path, named->revision);
}

/* A name of the hub, which no path has. */
static tt_status add_named(struct tt_sources *sources, const struct tt_mixture_entry *named)
{
    char *name, *folder = NULL;
    const char *config;
    TT_TRY(part_name(named->path, &name, &config));
    if (named->name != NULL) config = named->name;
    const struct tt_hub_want want = {.kind = "datasets",
                                     .name = name,
                                     .revision = named->revision,
                                     .what = "data set",
                                     .config = config,
                                     .split = named->split,
                                     .files = named->data_files,
                                     .streams = named->streams};
    tt_status status = tt_hub_obtain(&want, &folder);
    if (status == TT_OK && folder != NULL)
        status = add_repository(sources, folder, config, named);
    else if (status == TT_OK && tt_hub_is_name(name))
        status = fail_missing(named);
    else if (status == TT_OK)
        status = tt_sources_add(sources, named->path, named->split, named->weight);
    tt_free(folder);
    tt_free(name);
    return status;
}

/* The files of a path. */
static tt_status add_path(struct tt_sources *sources, const char *path, const struct tt_mixture_entry *named)
{
    if (!tt_sources_is_pattern(path)) return tt_sources_add(sources, path, named->split, named->weight);
    TT_TRY(tt_sources_add(sources, path, named->split, named->weight));
    if (sources->file_count > 0) return TT_OK;
    return tt_fail(TT_ERR_DATA, "no data file matches the pattern '%s'", path);
}

tt_status tt_data_files_add(struct tt_sources *sources, const struct tt_mixture_entry *named)
{
    const char *path = named->path;
    bool here = tt_sources_is_pattern(path) || tt_path_exists(path) || tt_data_files_has_ending(path);
    struct tt_path below;
    if (!here && (named->data_files == NULL || tt_hub_is_name(path))) return add_named(sources, named);
    if (named->data_files == NULL) return add_path(sources, path, named);
    TT_TRY(tt_path_set(&below, path, named->data_files));
    return add_path(sources, below.text, named);
}

struct tt_mixture_entry tt_data_files_named(const struct tt_data_config *data, const char *split)
{
    return (struct tt_mixture_entry){
        .path = data->dataset_name, .revision = data->dataset_revision, .split = split, .weight = 1};
}

/* ---- Tables of images ---- */

static tt_status hint_at_export(tt_status status, const char *name, const char *split)
{
    if (status != TT_OK && tt_hub_is_name(name) && !tt_data_files_has_ending(name))
        tt_hint("a data set of the hub is exported with: python -c \"from datasets import load_dataset; "
                "load_dataset('%s', split='%.40s').to_parquet('%.40s.parquet')\"",
                name, split, split);
    return status;
}

static tt_status add(struct tt_sources *sources, const struct tt_mixture_entry *named)
{
    return hint_at_export(tt_data_files_add(sources, named), named->path, named->split);
}

/* The folder's own split for evaluations, by the first of the names that it has. */
static tt_status add_own_split(const struct tt_data_config *data, struct tt_sources *sources)
{
    const char *const splits[] = {data->dataset_test_split, "val", "valid", "test"};
    if (!tt_data_files_has_splits(data->dataset_name)) return TT_OK;
    for (size_t i = 0; i < sizeof splits / sizeof *splits && sources->file_count == 0; i++) {
        const struct tt_mixture_entry named = tt_data_files_named(data, splits[i]);
        TT_TRY(add(sources, &named));
    }
    return TT_OK;
}

static tt_status add_all(const struct tt_data_config *data, bool train, struct tt_detect_tables *tables)
{
    struct tt_sources own = {0};
    tables->of_split = true;
    const struct tt_mixture_entry named = tt_data_files_named(data, data->dataset_train_split),
                                  apart = {.path = data->eval_dataset,
                                           .split = data->dataset_test_split,
                                           .weight = 1};
    if (!train && data->eval_dataset != NULL) return add(&tables->sources, &apart);
    if (data->dataset_name == NULL) return TT_OK;
    TT_TRY(add(&tables->sources, &named));
    tt_status status = add_own_split(data, &own);
    tables->of_split = own.file_count > 0 || data->eval_dataset != NULL;
    if (status == TT_OK && !train && own.file_count > 0) {
        struct tt_sources of_training = tables->sources;
        tables->sources = own;
        own = of_training;
    }
    tt_sources_deinit(&own);
    return status;
}

tt_status tt_detect_tables_find(const struct tt_data_config *data, bool train,
                                struct tt_detect_tables *tables)
{
    const char *name = !train && data->eval_dataset != NULL ? data->eval_dataset : data->dataset_name;
    *tables = (struct tt_detect_tables){0};
    TT_TRY(add_all(data, train, tables));
    if (name == NULL) return TT_OK;
    if (tables->sources.file_count == 0) {
        tt_fail(TT_ERR_DATA, "'%s' has no files of the split '%s'", name,
                train ? data->dataset_train_split : data->dataset_test_split);
        tt_hint("tables are named SPLIT.parquet, SPLIT-00000-of-00002.parquet or .arrow, in the folder or in "
                "its folder data");
        return TT_ERR_DATA;
    }
    TT_TRY(tt_sources_check(&tables->sources));
    tables->paths = tt_calloc(tables->sources.file_count, sizeof *tables->paths);
    if (tables->paths == NULL) return TT_ERR_MEMORY;
    for (; tables->count < tables->sources.file_count; tables->count++)
        tables->paths[tables->count] = tables->sources.files[tables->count].path;
    return TT_OK;
}

void tt_detect_tables_deinit(struct tt_detect_tables *tables)
{
    tt_free(tables->paths);
    tt_sources_deinit(&tables->sources);
    *tables = (struct tt_detect_tables){0};
}
