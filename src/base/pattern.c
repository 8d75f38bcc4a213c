/* Patterns of paths (base/file.h): the disk's by glob(3), those of stores by their lists. */
#include <fnmatch.h>
#include <glob.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/store.h"

struct matching {
    const char *folder, *part, *rest; /* rest: behind the part, "" or "b/c" */
    tt_status (*visit)(void *context, const char *path);
    void *context;
};

typedef tt_status match_visit(void *context, const char *path);
static tt_status match_below(const char *folder, const char *pattern, match_visit *visit, void *context);

static tt_status match_name(void *context, const char *name)
{
    const struct matching *matching = context;
    struct tt_path path, whole;
    if (fnmatch(matching->part, name, FNM_PERIOD) != 0) return TT_OK;
    TT_TRY(tt_path_set(&path, matching->folder, name));
    if (matching->rest[0] == '\0') return matching->visit(matching->context, path.text);
    if (strpbrk(matching->rest, "*?[") != NULL)
        return match_below(path.text, matching->rest, matching->visit, matching->context);
    TT_TRY(tt_path_set(&whole, path.text, matching->rest));
    return tt_path_exists(whole.text) ? matching->visit(matching->context, whole.text) : TT_OK;
}

/* `pattern`: below the folder, with a wildcard in some part. */
static tt_status match_below(const char *folder, const char *pattern, match_visit *visit, void *context)
{
    size_t wild = strcspn(pattern, "*?["), start = wild;
    while (start > 0 && pattern[start - 1] != '/') start--;
    size_t bytes = strcspn(pattern + start, "/");
    char *above = tt_strndup(pattern, start > 0 ? start - 1 : 0), *part = tt_strndup(pattern + start, bytes);
    struct tt_path whole;
    tt_status status = above != NULL && part != NULL ? TT_OK : TT_ERR_MEMORY;
    if (status == TT_OK) status = tt_path_set(&whole, folder, above);
    if (status == TT_OK && tt_path_is_dir(whole.text)) {
        const char *rest = pattern + start + bytes;
        struct matching matching = {whole.text, part, rest + (*rest == '/'), visit, context};
        status = tt_dir_list(whole.text, match_name, &matching);
    }
    tt_free(above);
    tt_free(part);
    return status;
}

static tt_status match_disk(const char *pattern, tt_status (*visit)(void *context, const char *path),
                            void *context)
{
    glob_t found = {0};
    tt_status status = TT_OK;
    int result = glob(pattern, 0, NULL, &found);
    if (result == GLOB_NOSPACE) status = TT_ERR_MEMORY;
    for (size_t i = 0; status == TT_OK && result == 0 && i < found.gl_pathc; i++)
        status = visit(context, found.gl_pathv[i]);
    globfree(&found);
    return status;
}

tt_status tt_path_match(const char *pattern, tt_status (*visit)(void *context, const char *path),
                        void *context)
{
    const char *scheme = strstr(pattern, "://");
    if (!tt_store_covers(pattern) || scheme == NULL) return match_disk(pattern, visit, context);
    const char *bucket = scheme + 3, *slash = strchr(bucket, '/');
    if (slash == NULL || strcspn(bucket, "*?[") < (size_t)(slash - bucket)) return TT_OK;
    char *folder = tt_strndup(pattern, (size_t)(slash - pattern));
    if (folder == NULL) return TT_ERR_MEMORY;
    tt_status status = match_below(folder, slash + 1, visit, context);
    tt_free(folder);
    return status;
}
