/* Files that a name needs, and those of them that are there: downloads by patterns, and for commands that open models
 * and data. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hub_cache.h"
#include "base/json.h"
#include "base/log.h"
#include "hub/card.h"
#include "hub/hub_impl.h"

enum { INDEX_BYTES_MAX = 256 << 20 };

/* ---- Files that models, adapters and data sets are read from ---- */

static bool is_root(const char *path)
{
    return strchr(path, '/') == NULL;
}

/* model.safetensors or model-00001-of-00003.safetensors; `stem` "pytorch_model" and ending ".bin" likewise. */
static bool is_weights(const char *path, const char *stem, const char *ending)
{
    char pattern[100];
    snprintf(pattern, sizeof pattern, "%s-*-of-*%s", stem, ending);
    size_t bytes = strlen(stem);
    return is_root(path) && (fnmatch(pattern, path, 0) == 0 ||
                             (strncmp(path, stem, bytes) == 0 && strcmp(path + bytes, ending) == 0));
}

static bool is_beside_weights(const char *path)
{
    static const char *const endings[] = {".json", ".jinja", ".model", ".txt", ".tiktoken"};
    if (fnmatch("additional_chat_templates/*.jinja", path, FNM_PATHNAME) == 0) return true;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (is_root(path) && tt_ends_with(path, endings[i])) return true;
    return false;
}

static bool want_weights(struct tt_hub_listing *listing, const char *stem, const char *ending)
{
    bool any = false;
    for (size_t i = 0; i < listing->count; i++) {
        struct tt_hub_file *file = &listing->files[i];
        bool takes = stem != NULL ? is_weights(file->path, stem, ending)
                                  : is_root(file->path) && tt_ends_with(file->path, ending);
        file->wanted |= takes;
        any |= takes;
    }
    return any;
}

/* All but weights, and but the index of weights, which would name files that are not there. */
static void want_configuration(struct tt_hub_listing *listing)
{
    for (size_t i = 0; i < listing->count; i++) {
        const char *path = listing->files[i].path;
        listing->files[i].wanted = is_beside_weights(path) && !tt_ends_with(path, ".index.json");
    }
}

/* Weights in other formats beside safetensors stay where they are. */
static void want_model(struct tt_hub_listing *listing, const char *stem)
{
    for (size_t i = 0; i < listing->count; i++)
        listing->files[i].wanted = is_beside_weights(listing->files[i].path);
    if (want_weights(listing, stem, ".safetensors")) return;
    if (strcmp(stem, "model") == 0 && want_weights(listing, NULL, ".safetensors")) return;
    (void)want_weights(listing, strcmp(stem, "model") == 0 ? "pytorch_model" : stem, ".bin");
}

static bool is_of_split(const char *path, const char *split)
{
    const char *name = tt_path_basename(path);
    size_t bytes = strlen(split);
    if (strncmp(path, "data/", 5) == 0) path += 5;
    return (strncmp(path, split, bytes) == 0 && strchr("/-._", path[bytes]) != NULL) ||
           (strncmp(name, split, bytes) == 0 && strchr("-._", name[bytes]) != NULL);
}

/* Where no card says more: files named after the split, else all of the folder and of data/. */
static size_t want_split(struct tt_hub_listing *listing, const char *below, const char *split)
{
    size_t count = 0, bytes = strlen(below);
    for (int named = split != NULL; named >= 0 && count == 0; named--) {
        for (size_t i = 0; i < listing->count; i++) {
            struct tt_hub_file *file = &listing->files[i];
            const char *path = file->path + bytes;
            if (strncmp(file->path, below, bytes) != 0 || !tt_hub_is_row_file(path)) continue;
            bool near = is_root(path) || (strncmp(path, "data/", 5) == 0 && is_root(path + 5));
            bool takes = named ? is_of_split(path, split) : near || split == NULL;
            file->wanted |= takes;
            count += takes;
        }
    }
    return count;
}

static size_t want_patterns(struct tt_hub_listing *listing, const struct tt_hub_patterns *patterns)
{
    size_t count = 0;
    for (size_t i = 0; i < listing->count; i++) {
        bool takes = false;
        for (size_t p = 0; p < patterns->count; p++)
            takes |= tt_hub_matches(patterns->text[p], listing->files[i].path);
        listing->files[i].wanted |= takes;
        count += takes;
    }
    return count;
}

/* ---- Downloads ---- */

/* Names that were asked for and are not in the repository, as huggingface_hub remembers them. */
static tt_status remember_missing(const struct hub_repository *repository, const char *path)
{
    struct tt_str name = {0};
    tt_status status = TT_OK;
    if (strpbrk(path, "*?[") != NULL || !tt_hub_is_path(path)) return TT_OK;
    TT_GO(tt_hub_append_repository(repository->kind, repository->name, &name));
    TT_GO(tt_str_printf(&name, "/.no_exist/%s/%s", repository->commit, path));
    char *slash = strrchr(name.data, '/');
    *slash = '\0';
    TT_GO(tt_dir_create(name.data));
    *slash = '/';
    if (!tt_path_exists(name.data)) status = tt_file_write_atomic(name.data, "", 0);
out:
    tt_str_deinit(&name);
    return status;
}

static tt_status want_included(const struct tt_hub_download *download,
                               const struct hub_repository *repository, struct tt_hub_listing *listing)
{
    for (size_t i = 0; i < listing->count; i++) listing->files[i].wanted = download->include_count == 0;
    for (size_t p = 0; p < download->include_count; p++) {
        bool any = false;
        for (size_t i = 0; i < listing->count; i++) {
            bool takes = fnmatch(download->include[p], listing->files[i].path, 0) == 0;
            listing->files[i].wanted |= takes;
            any |= takes;
        }
        if (any) continue;
        TT_TRY(remember_missing(repository, download->include[p]));
        tt_fail(TT_ERR_DATA, "'%s' has no file '%.200s' at %s", repository->name, download->include[p],
                repository->revision);
        tt_hint("a name is a path of the repository, or a pattern such as '*.json'");
        return TT_ERR_DATA;
    }
    return TT_OK;
}

static tt_status check_names(const struct hub_repository *repository)
{
    if (!tt_hub_is_name(repository->name)) {
        tt_fail(TT_ERR_USAGE, "'%.200s' is no name of a repository", repository->name);
        tt_hint("a name is OWNER/NAME: letters, digits, '.', '_' and '-'");
        return TT_ERR_USAGE;
    }
    if (tt_hub_is_revision(repository->revision)) return TT_OK;
    tt_fail(TT_ERR_USAGE, "'%.200s' is no name of a revision", repository->revision);
    tt_hint("a revision is a branch, a tag or a commit");
    return TT_ERR_USAGE;
}

static tt_status look_up(struct tt_hub *hub, struct hub_repository *repository,
                         struct tt_hub_listing *listing)
{
    TT_TRY(check_names(repository));
    TT_TRY(hub_connect(hub));
    TT_TRY(hub_resolve(hub, repository));
    return hub_list(hub, repository, listing);
}

tt_status tt_hub_download(struct tt_hub *hub, const struct tt_hub_download *download, char **folder)
{
    tt_status status = TT_OK;
    struct tt_hub_listing listing = {0};
    struct hub_repository repository = {download->kind, download->name,
                                        download->revision != NULL ? download->revision : "main", ""};
    TT_GO(look_up(hub, &repository, &listing));
    TT_GO(want_included(download, &repository, &listing));
    TT_GO(hub_fetch_files(hub, &repository, &listing, true, folder));
out:
    tt_hub_listing_deinit(&listing);
    if (status != TT_OK) tt_while("downloading '%s'", download->name);
    return status;
}

/* The card first: it says which files are of a configuration and split. */
static tt_status fetch_data(struct tt_hub *hub, const struct hub_repository *repository,
                            const struct tt_hub_want *want, struct tt_hub_listing *listing, char **folder)
{
    tt_status status = TT_OK;
    struct tt_hub_card card = {0};
    struct tt_hub_patterns patterns = {0};
    struct tt_str below = {0};
    char *first = NULL;
    for (size_t i = 0; i < listing->count; i++)
        listing->files[i].wanted = want->files == NULL && strcmp(listing->files[i].path, "README.md") == 0;
    if (want->files != NULL) {
        patterns = (struct tt_hub_patterns){{want->files}, 1};
        if (want_patterns(listing, &patterns) == 0)
            TT_GO(tt_fail(TT_ERR_DATA, "'%s' has no file '%.200s' at %s", repository->name, want->files,
                          repository->revision));
        TT_GO(hub_fetch_files(hub, repository, listing, true, folder));
        goto out;
    }
    TT_GO(hub_fetch_files(hub, repository, listing, false, &first));
    TT_GO(tt_hub_card_read(first, &card));
    if (want->config != NULL) TT_GO(tt_str_printf(&below, "%s/", want->config));
    size_t in_folder = want->config != NULL ? want_split(listing, below.data, want->split) : 0;
    if (in_folder == 0) TT_GO(tt_hub_card_files(&card, want->config, want->split, &patterns));
    if (in_folder == 0 && want_patterns(listing, &patterns) == 0) (void)want_split(listing, "", want->split);
    TT_GO(hub_fetch_files(hub, repository, listing, true, folder));
out:
    tt_hub_card_deinit(&card);
    tt_str_deinit(&below);
    tt_free(first);
    return status;
}

/* ---- What is there ---- */

static bool has(const char *folder, const char *name)
{
    struct tt_path path;
    return tt_path_set(&path, folder, name) == TT_OK && tt_path_exists(path.text);
}

/* All files that the index of the weights names. */
static bool has_indexed(const char *folder, const char *index)
{
    struct tt_path path;
    struct tt_json json = {0};
    const char *tensor;
    const struct tt_json_value *file;
    bool whole = tt_path_set(&path, folder, index) == TT_OK &&
                 tt_json_read(path.text, INDEX_BYTES_MAX, &json) == TT_OK;
    const struct tt_json_value *map = tt_json_get(json.root, "weight_map");
    whole = whole && tt_json_count(map) > 0;
    for (size_t i = 0; whole && tt_json_next_member(map, &i, &tensor, &file);)
        whole = tt_json_text(file) != NULL && tt_hub_is_path(tt_json_text(file)) &&
                has(folder, tt_json_text(file));
    tt_json_deinit(&json);
    return whole;
}

static tt_status note_weights(void *context, const char *name)
{
    *(bool *)context |= tt_ends_with(name, ".safetensors") || fnmatch("pytorch_model*.bin", name, 0) == 0;
    return TT_OK;
}

static bool is_whole_model(const char *folder)
{
    bool any = false;
    if (!has(folder, "config.json")) return false;
    if (has(folder, "model.safetensors")) return true;
    if (has(folder, "model.safetensors.index.json"))
        return has_indexed(folder, "model.safetensors.index.json");
    if (has(folder, "pytorch_model.bin.index.json"))
        return has_indexed(folder, "pytorch_model.bin.index.json");
    return tt_dir_list(folder, note_weights, &any) == TT_OK && any;
}

struct rows {
    const char *below, *split;
    const struct tt_hub_patterns *patterns;
    size_t count, of; /* of: the largest N of "-of-N" */
    bool named;       /* some file is named after a split */
    struct tt_str path;
    const char *folder;
    int depth;
};

static tt_status count_rows(void *context, const char *name);

/* Counts files of rows below `path`, as the repository names it. */
static tt_status count_below(struct rows *rows)
{
    struct tt_path path;
    TT_TRY(tt_path_set(&path, rows->folder, tt_str_text(&rows->path)));
    return tt_dir_list(path.text, count_rows, rows);
}

static void count_file(struct rows *rows)
{
    const char *path = rows->path.data, *of = strstr(path, "-of-");
    bool takes = rows->patterns->count == 0;
    for (size_t p = 0; p < rows->patterns->count; p++) takes |= tt_hub_matches(rows->patterns->text[p], path);
    size_t bytes = strlen(rows->below);
    if (rows->patterns->count == 0)
        takes = strncmp(path, rows->below, bytes) == 0 && tt_hub_is_row_file(path) &&
                (rows->split == NULL || is_of_split(path + bytes, rows->split));
    static const char *const splits[] = {"train", "test", "validation", "valid", "val", "dev", "eval"};
    for (size_t i = 0; tt_hub_is_row_file(path) && i < sizeof splits / sizeof *splits; i++)
        rows->named |= is_of_split(path, splits[i]);
    if (!takes) return;
    rows->count++;
    size_t all = 0;
    for (const char *digit = of != NULL ? of + 4 : ""; *digit >= '0' && *digit <= '9' && all < 1000000;
         digit++)
        all = 10 * all + (size_t)(*digit - '0');
    if (all > rows->of) rows->of = all;
}

static tt_status count_rows(void *context, const char *name)
{
    struct rows *rows = context;
    struct tt_path path;
    size_t before = rows->path.bytes;
    TT_TRY(tt_str_printf(&rows->path, "%s%s", before > 0 ? "/" : "", name));
    TT_TRY(tt_path_set(&path, rows->folder, rows->path.data));
    tt_status status = TT_OK;
    if (tt_path_is_dir(path.text) && rows->depth < 8) {
        rows->depth++;
        status = count_below(rows);
        rows->depth--;
    } else if (tt_path_exists(path.text)) {
        count_file(rows);
    }
    rows->path.bytes = before;
    rows->path.data[before] = '\0';
    return status;
}

/* Files of the split are there, and none of them is one of more than there are. */
static bool is_whole_data(const struct tt_hub_want *want)
{
    struct tt_hub_card card = {0};
    struct tt_hub_patterns patterns = {0};
    struct tt_str below = {0};
    struct rows rows = {.split = want->split, .patterns = &patterns, .folder = want->found};
    bool read = tt_hub_card_read(want->found, &card) == TT_OK &&
                tt_hub_card_files(&card, want->config, want->split, &patterns) == TT_OK;
    if (!read) tt_error_clear();
    if (want->config != NULL && has(want->found, want->config)) patterns.count = 0;
    if (want->files != NULL) patterns = (struct tt_hub_patterns){{want->files}, 1};
    bool whole =
        want->config == NULL || want->files != NULL || tt_str_printf(&below, "%s/", want->config) == TT_OK;
    rows.below = patterns.count == 0 ? tt_str_text(&below) : "";
    whole = whole && count_below(&rows) == TT_OK && rows.count > 0 && rows.count >= rows.of;
    if (whole || rows.count > 0) goto out;
    /* Where no name says a split, all files are those of any. */
    rows.split = NULL;
    whole = patterns.count == 0 && !rows.named && count_below(&rows) == TT_OK && rows.count > 0;
out:
    tt_hub_card_deinit(&card);
    tt_str_deinit(&below);
    tt_str_deinit(&rows.path);
    return whole;
}

static bool is_whole(const struct tt_hub_want *want)
{
    if (want->found == NULL) return false;
    if (strcmp(want->what, "configuration") == 0) return has(want->found, "config.json");
    if (strcmp(want->kind, "datasets") == 0) return is_whole_data(want);
    if (strcmp(want->what, "adapter") == 0)
        return has(want->found, "adapter_config.json") &&
               (has(want->found, "adapter_model.safetensors") || has(want->found, "adapter_model.bin"));
    return is_whole_model(want->found);
}

/* "owner/name" where no path of this machine begins so: a wrong local path never asks the hub. */
static bool asks_hub(const char *name)
{
    char owner[128];
    size_t bytes = strcspn(name, "/");
    if (name[bytes] != '/' || bytes >= sizeof owner || !tt_hub_is_name(name)) return false;
    snprintf(owner, sizeof owner, "%.*s", (int)bytes, name);
    return !tt_path_exists(owner);
}

static tt_status fetch(struct tt_hub *hub, const struct tt_hub_want *want, char **folder)
{
    tt_status status = TT_OK;
    struct tt_hub_listing listing = {0};
    struct hub_repository repository = {want->kind, want->name,
                                        want->revision != NULL ? want->revision : "main", ""};
    TT_GO(look_up(hub, &repository, &listing));
    if (want->streams) {
        TT_GO(hub_ranges_open(hub, &repository, &listing, folder));
    } else if (strcmp(want->kind, "datasets") == 0) {
        TT_GO(fetch_data(hub, &repository, want, &listing, folder));
    } else {
        bool weights = strcmp(want->what, "configuration") != 0;
        if (!weights) want_configuration(&listing);
        if (weights) want_model(&listing, strcmp(want->what, "adapter") == 0 ? "adapter_model" : "model");
        TT_GO(hub_fetch_files(hub, &repository, &listing, true, folder));
    }
out:
    tt_hub_listing_deinit(&listing);
    return status;
}

tt_status tt_hub_fetch(void *context, const struct tt_hub_want *want, char **folder)
{
    struct tt_hub *hub = context;
    *folder = NULL;
    if (hub->offline || !asks_hub(want->name) || is_whole(want)) return TT_OK;
    tt_status status = fetch(hub, want, folder);
    if (status == TT_OK) return TT_OK;
    if (want->found != NULL && (status == TT_ERR_IO || status == TT_ERR_UNSUPPORTED)) {
        tt_warn("the hub cannot be asked for what its cache lacks of '%s': %s", want->name,
                tt_error_last()->message);
        tt_error_clear();
        return TT_OK;
    }
    tt_while("fetching the %s '%s' from the hub", want->what, want->name);
    return status;
}
