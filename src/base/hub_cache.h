/* The local cache of the Hugging Face hub, where its tools store downloads: a model "owner/name" is a folder
 *
 *     CACHE/models--owner--name/refs/main            a commit
 *     CACHE/models--owner--name/snapshots/COMMIT/    the files, as links to ../../blobs/
 *
 * and a data set the same under datasets--owner--name. CACHE is $HF_HUB_CACHE, else $HUGGINGFACE_HUB_CACHE, else
 * $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub. Nothing is downloaded here: what
 * may download (hub/hub.h) says so with tt_hub_set_fetcher.
 * Source: huggingface_hub, "Understand caching", and its constants.py. */
#ifndef TT_BASE_HUB_CACHE_H
#define TT_BASE_HUB_CACHE_H

#include <stdbool.h>

#include "base/error.h"
#include "base/str.h"

/* True if `name` can be a repository of the hub: "name" or "owner/name" of letters, digits, '.', '_' and '-'. */
bool tt_hub_is_name(const char *name);
/* "owner/name" or "owner/name@revision", the second with the branch, tag or commit; `revision` is "" without it. False:
 * the text is neither. */
enum { TT_HUB_NAME_BYTES = 256 };
bool tt_hub_parse_name(const char *text, char name[TT_HUB_NAME_BYTES], char revision[TT_HUB_NAME_BYTES]);
/* Finds the cached folder of a repository; returned owned, NULL when it is not in the cache. `kind`: "models" or
 * "datasets". `revision`: a branch, a tag or a commit; NULL: main. */
TT_MUST_USE tt_status tt_hub_find(const char *kind, const char *name, const char *revision, char **folder);
/* Appends the folder of the cache; that of a repository in it, which need not exist. */
TT_MUST_USE tt_status tt_hub_append_cache(struct tt_str *path);
TT_MUST_USE tt_status tt_hub_append_repository(const char *kind, const char *name, struct tt_str *path);
/* Whether `revision` can be a branch, a tag or a commit. */
bool tt_hub_is_revision(const char *revision);

/* Brings a repository, or what misses of it, into the cache. */
struct tt_hub_want {
    const char *kind, *name, *revision; /* as of tt_hub_find */
    const char *what; /* "model", "configuration" (of a model, without weights), "adapter" or "data set" */
    const char *config, *split; /* of a data set; NULL: its default, all */
    const char *files;          /* of a data set: a pattern (hub/card.h), in place of both; NULL: by them */
    bool streams;               /* a data set is to be read by ranges: a folder hf://... in place of files */
    const char *found;          /* its folder in the cache, where it may lack files; NULL: none */
};
/* Stores the folder, owned; NULL where the name is none to ask the hub for, or the hub is not to be asked. */
typedef tt_status tt_hub_fetcher(void *context, const struct tt_hub_want *want, char **folder);
/* Process-wide; set before any other thread uses the cache. NULL: none. */
void tt_hub_set_fetcher(tt_hub_fetcher *fetcher, void *context);
/* tt_hub_find, and the fetcher for what it does not find, or for more of what it finds. `want->found` is not read. */
TT_MUST_USE tt_status tt_hub_obtain(const struct tt_hub_want *want, char **folder);
/* The folder `name`, or else the cached folder of the model or adapter `name`, which may say its revision
 * (tt_hub_parse_name); returned owned. TT_ERR_DATA, with the
 * download command as hint, when there is neither. `what`: "model", "configuration" or "adapter". */
TT_MUST_USE tt_status tt_hub_locate(const char *name, const char *revision, const char *what, char **folder);
/* SHA-256 of a file, by its name in the cache: a large file lies at blobs/SHA256, and `path` is a link to it. Stores
 * its 64 digits. False: `path` is no such link. Small files are named by git's SHA-1. */
enum { TT_HUB_DIGITS = 64 };
bool tt_hub_sum(const char *path, char digits[TT_HUB_DIGITS + 1]);
/* "name" of a folder CACHE/models--owner--name/snapshots/COMMIT, for display; else the folder's own name. Returns
 * `text`. */
const char *tt_hub_name_of(const char *folder, char *text, size_t text_bytes);

#endif
