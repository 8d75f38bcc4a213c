/* The Hugging Face hub: repositories of models and data sets by name, into the cache that its own tools use
 * (base/hub_cache.h), laid out as by them: blobs by their sums, snapshots of links, refs, .locks, .no_exist.
 *
 * A file is fetched into blobs/SUM.incomplete under the lock of its sum, goes on where an earlier process stopped, is
 * compared with the sum of the listing (SHA-256 of LFS files, git's SHA-1 of the others), and then gets its name. The
 * links of a snapshot are made when all its blobs are there, and the ref of the revision last: what was interrupted is
 * never found by name.
 *
 * The environment is that of the hub's tools: HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_OFFLINE, and those of the
 * cache. The token goes to the endpoint's host alone and into no message.
 *
 * Sources: huggingface_hub 0.36 to 2.4 (constants.py, file_download.py, utils/_http.py), the hub's API as
 * https://huggingface.co/docs/hub/api describes it. */
#ifndef TT_HUB_HUB_H
#define TT_HUB_HUB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/thread.h"

struct tt_hub;

struct tt_hub_progress {
    const char *name; /* of the repository */
    uint64_t bytes, all;
    int files, all_files;
    bool over; /* the last call */
};

/* A zeroed struct has neither stop nor progress. */
struct tt_hub_config {
    const struct tt_cancel *cancel; /* any request ends a call; may be NULL */
    const char *token;              /* NULL: that of the environment */
    /* Called by any thread, one at a time. */
    void (*progress)(void *context, const struct tt_hub_progress *progress);
    void *context;
};

/* Reads the environment. libcurl is opened with the first request. */
TT_MUST_USE tt_status tt_hub_open(const struct tt_hub_config *config, struct tt_hub **out);
void tt_hub_close(struct tt_hub *hub); /* takes NULL */

struct tt_hub_download {
    const char *kind;     /* "models" or "datasets" */
    const char *name;     /* "owner/name", or "name" */
    const char *revision; /* branch, tag or commit; NULL: main */
    /* Patterns of fnmatch(3), in which '*' also matches '/': all files that match one of them. 0: all files. */
    const char *const *include;
    size_t include_count;
};
/* Fetches files into the cache, and stores the folder of the snapshot, owned. TT_ERR_DATA: no such repository,
 * revision or file, or no access to it; TT_ERR_USAGE: offline. */
TT_MUST_USE tt_status tt_hub_download(struct tt_hub *hub, const struct tt_hub_download *download,
                                      char **folder);

struct tt_hub_want;
/* A tt_hub_fetcher (base/hub_cache.h); `context` is the hub. It asks the hub for "owner/name" where nothing lies at the
 * path `owner` on this machine, and for that which its cached folder lacks: of a model the files that models are read
 * from, of an adapter likewise, of a data set the files of rows of its configuration and split, or with want->streams
 * none: the folder is then one of a store that reads files of the hub by ranges, for the life of the hub. */
TT_MUST_USE tt_status tt_hub_fetch(void *hub, const struct tt_hub_want *want, char **folder);

#endif
