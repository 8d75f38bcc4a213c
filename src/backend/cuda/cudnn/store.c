#include "backend/cuda/cudnn/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"

enum { FILE_BYTES_MAX = 16 << 20 };

/* 64-bit FNV-1a. */
static uint64_t hash(const char *data, size_t bytes)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ (unsigned char)data[i]) * 0x100000001b3u;
    return h;
}

/* The folder of stored plans as owned text, NULL when there is none. */
static char *cache_folder(void)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (base != NULL && base[0] == '/') return tt_path_join(base, "trimtab");
    if (home == NULL || home[0] != '/') return NULL;
    return tt_path_join(home, ".cache/trimtab");
}

/* The path of a plan's file as owned text, NULL when there is no folder. */
static char *cache_path(const char *kind, const char *name, bool create)
{
    char file[64], *folder = cache_folder(), *path = NULL;
    if (folder == NULL) return NULL;
    snprintf(file, sizeof file, "%.32s-%016llx.plan", kind, (unsigned long long)hash(name, strlen(name)));
    if (!create || tt_dir_create(folder) == TT_OK) path = tt_path_join(folder, file);
    tt_free(folder);
    return path;
}

/* A file has two lines, the plan's name and the hash of the rest, and then the plan's JSON: the result, within `text`.
 * NULL: a file that is not there, cannot be read or does not match, which is not an error: the plan is made again. */
static const char *read_json(const char *kind, const char *name, struct tt_str *text)
{
    char *path = cache_path(kind, name, false);
    const char *json = NULL;
    if (path == NULL || !tt_path_exists(path) || tt_file_read(path, FILE_BYTES_MAX, text) != TT_OK) goto out;
    size_t name_bytes = strlen(name), head = name_bytes + 1 + 16 + 1;
    if (text->bytes <= head || memcmp(text->data, name, name_bytes) != 0 || text->data[name_bytes] != '\n')
        goto out;
    char digits[17];
    snprintf(digits, sizeof digits, "%016llx",
             (unsigned long long)hash(text->data + head, text->bytes - head));
    if (memcmp(text->data + name_bytes + 1, digits, 16) == 0) json = text->data + head;
out:
    tt_free(path);
    tt_error_clear();
    return json;
}

bool tt_cudnn_store_read(const struct tt_cudnn_recipe *recipe, const struct tt_cudnn *cudnn, const char *name,
                         struct tt_cudnn_plan *plan)
{
    struct tt_str text = {0};
    const char *json = read_json(recipe->kind, name, &text);
    bool loaded = json != NULL &&
                  tt_cudnn_plan_read(cudnn, json, text.bytes - (size_t)(json - text.data), plan) == TT_OK;
    tt_str_deinit(&text);
    tt_error_clear();
    if (!loaded || plan->workspace_bytes <= recipe->workspace_limit) return loaded;
    tt_cudnn_plan_deinit(plan);
    return false;
}

tt_status tt_cudnn_recipe_build(const struct tt_cudnn_recipe *recipe, const struct tt_cudnn *cudnn,
                                struct tt_cudnn_plan *plan)
{
    struct tt_cudnn_graph graph;
    tt_cudnn_graph_init(&graph, cudnn);
    recipe->describe(&graph, recipe->shape);
    tt_status status = tt_cudnn_plan_build(&graph, recipe->workspace_limit, plan);
    tt_cudnn_graph_deinit(&graph);
    return status;
}

tt_status tt_cudnn_store_obtain(const struct tt_cudnn_recipe *recipe, const struct tt_cudnn *cudnn,
                                const char *name, struct tt_cudnn_plan *plan, bool *stored)
{
    *stored = tt_cudnn_store_read(recipe, cudnn, name, plan);
    if (*stored) return TT_OK;
    TT_TRY(tt_cudnn_recipe_build(recipe, cudnn, plan));
    tt_cudnn_store_write(recipe->kind, name, plan);
    return TT_OK;
}

bool tt_cudnn_store_has(const char *kind, const char *name)
{
    struct tt_str text = {0};
    bool there = read_json(kind, name, &text) != NULL;
    tt_str_deinit(&text);
    return there;
}

void tt_cudnn_store_keep(const char *kind, const char *name, const char *json, size_t bytes)
{
    char *path = cache_path(kind, name, true);
    struct tt_str text = {0};
    if (path == NULL) goto out;
    if (tt_str_printf(&text, "%s\n%016llx\n", name, (unsigned long long)hash(json, bytes)) != TT_OK) goto out;
    if (tt_str_append(&text, json, bytes) != TT_OK) goto out;
    if (tt_file_write_atomic(path, text.data, text.bytes) != TT_OK) {
        tt_debug("%s: cannot store a plan in '%s'", kind, path);
    }
out:
    tt_error_clear();
    tt_free(path);
    tt_str_deinit(&text);
}

void tt_cudnn_store_write(const char *kind, const char *name, const struct tt_cudnn_plan *plan)
{
    char *json = NULL;
    size_t bytes = 0;
    if (tt_cudnn_plan_write(plan, &json, &bytes) == TT_OK) tt_cudnn_store_keep(kind, name, json, bytes);
    tt_error_clear();
    tt_free(json);
}
