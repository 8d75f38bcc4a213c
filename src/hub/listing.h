/* Answers of a hub about a repository, as data of a stranger: names are joined to paths only if each part is plain. */
#ifndef TT_HUB_LISTING_H
#define TT_HUB_LISTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { TT_HUB_COMMIT_BYTES = 41, TT_HUB_DIGEST_BYTES = 65 };
enum { TT_HUB_FILES_MAX = 1000000 };

struct tt_hub_file {
    char *path; /* owned */
    uint64_t bytes;
    char digest[TT_HUB_DIGEST_BYTES]; /* 64 digits: SHA-256 of the content; 40: SHA-1 of git's blob */
    bool wanted;                      /* for the caller; false */
};

/* A zeroed struct is empty. */
struct tt_hub_listing {
    struct tt_hub_file *files;
    size_t count, capacity;
};
void tt_hub_listing_deinit(struct tt_hub_listing *listing);

/* Whether a path of a repository can be one below a folder: parts without "", ".", "..", control characters, '\\', at
 * most 1,024 bytes. */
bool tt_hub_is_path(const char *path);
/* `sha` of an answer of /api/models/NAME/revision/REVISION. `origin`: for messages. */
TT_MUST_USE tt_status tt_hub_parse_commit(const char *text, size_t bytes, const char *origin,
                                          char commit[TT_HUB_COMMIT_BYTES]);
/* Adds the files of one page of /api/models/NAME/tree/COMMIT?recursive=true. */
TT_MUST_USE tt_status tt_hub_listing_add(struct tt_hub_listing *listing, const char *text, size_t bytes,
                                         const char *origin);
/* The URL of <URL>; rel="next" of a Link header, into `url`; false: there is none. Source: RFC 8288. */
bool tt_hub_next_page(const char *link, char *url, size_t url_bytes);

#endif
