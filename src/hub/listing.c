#include "hub/listing.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"

enum { PATH_BYTES_MAX = 1024 };

void tt_hub_listing_deinit(struct tt_hub_listing *listing)
{
    for (size_t i = 0; i < listing->count; i++) tt_free(listing->files[i].path);
    tt_free(listing->files);
    *listing = (struct tt_hub_listing){0};
}

bool tt_hub_is_path(const char *path)
{
    if (strlen(path) > PATH_BYTES_MAX) return false;
    for (const char *part = path;; part++) {
        size_t bytes = strcspn(part, "/");
        if (bytes == 0 || bytes > 255 || (bytes == 1 && part[0] == '.') ||
            (bytes == 2 && memcmp(part, "..", 2) == 0))
            return false;
        for (size_t i = 0; i < bytes; i++)
            if ((unsigned char)part[i] < ' ' || part[i] == 0x7f || part[i] == '\\') return false;
        part += bytes;
        if (*part == '\0') return true;
    }
}

static bool is_digest(const char *text, size_t digits)
{
    return text != NULL && strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

tt_status tt_hub_parse_commit(const char *text, size_t bytes, const char *origin,
                              char commit[TT_HUB_COMMIT_BYTES])
{
    struct tt_json json = {0};
    const char *sha;
    tt_status status = TT_OK;
    TT_GO(tt_json_parse(text, bytes, origin, &json));
    TT_GO(tt_json_string(&json, json.root, "sha", &sha));
    if (!is_digest(sha, TT_HUB_COMMIT_BYTES - 1))
        TT_GO(tt_fail(TT_ERR_DATA, "%s: the commit '%.60s' has not the form of one", origin, sha));
    memcpy(commit, sha, TT_HUB_COMMIT_BYTES);
out:
    tt_json_deinit(&json);
    return status;
}

static tt_status add_file(struct tt_hub_listing *listing, const struct tt_json *json,
                          const struct tt_json_value *entry, const char *origin)
{
    const char *type, *path, *digest;
    int64_t bytes;
    const struct tt_json_value *lfs = tt_json_get(entry, "lfs");
    bool large = tt_json_is_object(lfs);
    TT_TRY(tt_json_string(json, entry, "type", &type));
    if (strcmp(type, "file") != 0) return TT_OK;
    TT_TRY(tt_json_string(json, entry, "path", &path));
    TT_TRY(tt_json_string(json, large ? lfs : entry, "oid", &digest));
    TT_TRY(tt_json_int(json, large ? lfs : entry, "size", &bytes));
    if (!tt_hub_is_path(path))
        return tt_fail(TT_ERR_DATA, "%s: '%.200s' is no plain path of a file", origin, path);
    if (!is_digest(digest, large ? 64 : 40) || bytes < 0)
        return tt_fail(TT_ERR_DATA, "%s: '%.200s' has no size, or no sum of its content", origin, path);
    if (listing->count == TT_HUB_FILES_MAX)
        return tt_fail(TT_ERR_DATA, "%s: more than %d files", origin, TT_HUB_FILES_MAX);
    TT_TRY(tt_grow(&listing->files, listing->count, &listing->capacity));
    struct tt_hub_file file = {.path = tt_strdup(path), .bytes = (uint64_t)bytes};
    if (file.path == NULL) return TT_ERR_MEMORY;
    snprintf(file.digest, sizeof file.digest, "%s", digest);
    listing->files[listing->count++] = file;
    return TT_OK;
}

tt_status tt_hub_listing_add(struct tt_hub_listing *listing, const char *text, size_t bytes,
                             const char *origin)
{
    struct tt_json json = {0};
    tt_status status = TT_OK;
    TT_GO(tt_json_parse(text, bytes, origin, &json));
    if (!tt_json_is_list(json.root)) TT_GO(tt_fail(TT_ERR_DATA, "%s: not a list of files", origin));
    for (size_t i = 0; i < tt_json_count(json.root); i++)
        TT_GO(add_file(listing, &json, tt_json_at(json.root, i), origin));
out:
    tt_json_deinit(&json);
    return status;
}

bool tt_hub_next_page(const char *link, char *url, size_t url_bytes)
{
    for (const char *at = link; (at = strchr(at, '<')) != NULL;) {
        const char *end = strchr(at, '>');
        if (end == NULL) return false;
        size_t bytes = (size_t)(end - at - 1), rest = strcspn(end, ",");
        const char *rel = strstr(end, "rel=\"next\"");
        if (rel != NULL && rel < end + rest) {
            if (bytes == 0 || bytes >= url_bytes) return false;
            memcpy(url, at + 1, bytes);
            url[bytes] = '\0';
            return true;
        }
        at = end + rest;
    }
    return false;
}
