#include "base/hub_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"

enum { NAME_BYTES_MAX = 96, REVISION_BYTES_MAX = 200, REF_BYTES_MAX = 4096 };

static const char name_letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

/* One part of a name. "--" separates owner and name in the cache, so a name cannot contain it. */
static bool is_part(const char *text, size_t bytes)
{
    if (bytes == 0 || bytes > NAME_BYTES_MAX || strspn(text, name_letters) < bytes) return false;
    if (text[0] == '.' || text[0] == '-' || text[bytes - 1] == '.' || text[bytes - 1] == '-') return false;
    for (size_t i = 0; i + 1 < bytes; i++)
        if ((text[i] == '.' || text[i] == '-') && text[i + 1] == text[i]) return false;
    return true;
}

bool tt_hub_is_name(const char *name)
{
    size_t first = strcspn(name, "/");
    if (!is_part(name, first)) return false;
    return name[first] == '\0' || is_part(name + first + 1, strlen(name + first + 1));
}

/* Names of branches and tags may contain folders ("refs/pr/1"), but no way out of them. */
bool tt_hub_is_revision(const char *revision)
{
    size_t bytes = strlen(revision);
    if (bytes == 0 || bytes > REVISION_BYTES_MAX || revision[0] == '/' || strstr(revision, "..") != NULL)
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (revision[i] != '/' && strchr(name_letters, revision[i]) == NULL) return false;
    return true;
}

static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

/* "~/x" is below the home folder, as huggingface_hub reads it. */
static tt_status append_path(struct tt_str *path, const char *text)
{
    const char *home = variable("HOME");
    bool below_home = text[0] == '~' && (text[1] == '/' || text[1] == '\0') && home != NULL;
    if (below_home) TT_TRY(tt_str_append_text(path, home));
    return tt_str_append_text(path, below_home ? text + 1 : text);
}

tt_status tt_hub_append_cache(struct tt_str *path)
{
    const char *cache = variable("HF_HUB_CACHE"), *home = variable("HF_HOME"),
               *xdg = variable("XDG_CACHE_HOME");
    if (cache == NULL) cache = variable("HUGGINGFACE_HUB_CACHE");
    if (cache != NULL) return append_path(path, cache);
    TT_TRY(append_path(path, home != NULL ? home : xdg != NULL ? xdg : "~/.cache"));
    return tt_str_append_text(path, home != NULL ? "/hub" : "/huggingface/hub");
}

/* The commit of a branch or tag; false when the cache has no such reference. */
static bool read_ref(const char *repository, const char *revision, char commit[REVISION_BYTES_MAX])
{
    struct tt_str path = {0}, text = {0};
    bool found = tt_str_printf(&path, "%s/refs/%s", repository, revision) == TT_OK &&
                 tt_path_exists(path.data) && tt_file_read(path.data, REF_BYTES_MAX, &text) == TT_OK;
    size_t bytes = found ? strcspn(text.data, " \r\n\t") : 0;
    found = found && bytes > 0 && bytes < REVISION_BYTES_MAX;
    if (found) snprintf(commit, REVISION_BYTES_MAX, "%.*s", (int)bytes, text.data);
    tt_str_deinit(&path);
    tt_str_deinit(&text);
    return found && tt_hub_is_revision(commit) && strchr(commit, '/') == NULL;
}

tt_status tt_hub_append_repository(const char *kind, const char *name, struct tt_str *path)
{
    size_t owner = strcspn(name, "/");
    TT_TRY(tt_hub_append_cache(path));
    TT_TRY(tt_str_printf(path, "/%s--%.*s", kind, (int)owner, name));
    return name[owner] == '/' ? tt_str_printf(path, "--%s", name + owner + 1) : TT_OK;
}

tt_status tt_hub_find(const char *kind, const char *name, const char *revision, char **folder)
{
    tt_status status = TT_OK;
    struct tt_str path = {0};
    char commit[REVISION_BYTES_MAX];
    *folder = NULL;
    if (revision == NULL) revision = "main";
    if (!tt_hub_is_name(name) || !tt_hub_is_revision(revision)) return TT_OK;
    TT_GO(tt_hub_append_repository(kind, name, &path));
    if (!read_ref(path.data, revision, commit)) {
        if (strchr(revision, '/') != NULL) goto out;
        snprintf(commit, sizeof commit, "%s", revision); /* a commit itself */
    }
    TT_GO(tt_str_printf(&path, "/snapshots/%s", commit));
    if (!tt_path_is_dir(path.data)) goto out;
    *folder = path.data;
    return TT_OK;
out:
    tt_str_deinit(&path);
    return status;
}

/* Set once, before other threads start. */
static tt_hub_fetcher *the_fetcher;
static void *fetcher_context;

void tt_hub_set_fetcher(tt_hub_fetcher *fetcher, void *context)
{
    the_fetcher = fetcher;
    fetcher_context = context;
}

tt_status tt_hub_obtain(const struct tt_hub_want *want, char **folder)
{
    struct tt_hub_want asked = *want;
    char *found;
    TT_TRY(tt_hub_find(want->kind, want->name, want->revision, &found));
    asked.found = found;
    *folder = NULL;
    tt_status status = the_fetcher != NULL ? the_fetcher(fetcher_context, &asked, folder) : TT_OK;
    if (status == TT_OK && *folder == NULL)
        *folder = found;
    else
        tt_free(found);
    return status;
}

static tt_status fail_missing(const char *name, const char *revision, const char *what)
{
    struct tt_str cache = {0};
    bool on_hub = tt_hub_is_name(name), other = revision != NULL && strcmp(revision, "main") != 0;
    tt_status status = on_hub ? tt_hub_append_cache(&cache) : TT_OK;
    if (status == TT_OK && on_hub) {
        status = tt_fail(
            TT_ERR_DATA, "the %s folder '%s' does not exist, and the hub's cache '%s' does not have %s%s",
            what, name, tt_str_text(&cache), other ? "its revision " : "it", other ? revision : "");
        tt_hint("for a local folder give its path; to download one from the hub: trimtab "
                "download %s%s%s",
                name, other ? " --revision " : "", other ? revision : "");
    } else if (status == TT_OK) {
        status = tt_fail(TT_ERR_DATA, "the %s folder '%s' does not exist", what, name);
        tt_hint(strcmp(what, "adapter") == 0
                    ? "a PEFT folder holds adapter_config.json and adapter_model.safetensors"
                    : "models are read from a local folder with config.json and safetensors files");
    }
    tt_str_deinit(&cache);
    return status;
}

bool tt_hub_parse_name(const char *text, char name[TT_HUB_NAME_BYTES], char revision[TT_HUB_NAME_BYTES])
{
    const char *at = strchr(text, '@');
    const size_t bytes = at != NULL ? (size_t)(at - text) : strlen(text);
    revision[0] = '\0';
    if (bytes >= TT_HUB_NAME_BYTES || (at != NULL && strlen(at + 1) >= TT_HUB_NAME_BYTES)) return false;
    memcpy(name, text, bytes);
    name[bytes] = '\0';
    if (strchr(name, '/') == NULL || !tt_hub_is_name(name)) return false;
    if (at == NULL) return true;
    snprintf(revision, TT_HUB_NAME_BYTES, "%s", at + 1);
    return tt_hub_is_revision(revision);
}

tt_status tt_hub_locate(const char *name, const char *revision, const char *what, char **folder)
{
    if (tt_path_exists(name)) {
        *folder = tt_strdup(name);
        return *folder != NULL ? TT_OK : TT_ERR_MEMORY;
    }
    char plain[TT_HUB_NAME_BYTES], own[TT_HUB_NAME_BYTES];
    if (tt_hub_parse_name(name, plain, own) && own[0] != '\0') {
        name = plain;
        revision = own;
    }
    const struct tt_hub_want want = {.kind = "models", .name = name, .revision = revision, .what = what};
    TT_TRY(tt_hub_obtain(&want, folder));
    if (*folder != NULL) return TT_OK;
    return fail_missing(name, revision, strcmp(what, "adapter") == 0 ? what : "model");
}

const char *tt_hub_name_of(const char *folder, char *text, size_t text_bytes)
{
    static const char models[] = "/models--", snapshots[] = "/snapshots/";
    const char *begin = strstr(folder, models), *end = begin != NULL ? strstr(begin, snapshots) : NULL;
    for (const char *next = begin; end != NULL && (next = strstr(next + 1, models)) != NULL && next < end;)
        begin = next;
    if (end == NULL || strchr(begin + 1, '/') != end) {
        snprintf(text, text_bytes, "%s", tt_path_basename(folder));
        return text;
    }
    const char *name = begin + sizeof models - 1, *parted = strstr(name, "--");
    if (parted != NULL && parted < end) name = parted + 2;
    snprintf(text, text_bytes, "%.*s", (int)(end - name), name);
    return text;
}

bool tt_hub_sum(const char *path, char digits[TT_HUB_DIGITS + 1])
{
    static const char folder[] = "/blobs/";
    char target[TT_PATH_BYTES];
    ssize_t bytes = readlink(path, target, sizeof target - 1);
    const size_t named = sizeof folder - 1 + TT_HUB_DIGITS;
    if (bytes < (ssize_t)named || (size_t)bytes >= sizeof target - 1) return false;
    target[bytes] = '\0';
    const char *end = target + bytes - named, *name = end + sizeof folder - 1;
    if (memcmp(end, folder, sizeof folder - 1) != 0) return false;
    if (strspn(name, "0123456789abcdef") != TT_HUB_DIGITS) return false;
    memcpy(digits, name, TT_HUB_DIGITS + 1);
    return true;
}
