/* The inside of a hub, for this folder alone. */
#ifndef TT_HUB_HUB_IMPL_H
#define TT_HUB_HUB_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/store.h"
#include "base/str.h"
#include "hub/hub.h"
#include "hub/listing.h"
#include "net/client.h"

struct tt_hub {
    struct tt_hub_config config;
    struct tt_str endpoint; /* without a slash at its end */
    struct tt_str token;    /* "Bearer ..."; empty: none */
    bool offline;
    struct tt_net *net;        /* NULL until the first request */
    struct hub_ranges *ranges; /* owned: files that are read by ranges; NULL: none were */
    struct tt_store store;     /* over them */
    atomic_bool stop;          /* a thread has failed: the others end */
};

/* A repository at a revision. Texts are lent. */
struct hub_repository {
    const char *kind, *name, *revision;
    char commit[TT_HUB_COMMIT_BYTES];
};

/* account.c. Fails where the hub is not to be asked; opens libcurl otherwise. */
TT_MUST_USE tt_status hub_connect(struct tt_hub *hub);
/* ENDPOINT/api/models/NAME, and ENDPOINT/NAME or ENDPOINT/datasets/NAME. */
TT_MUST_USE tt_status hub_append_api(const struct tt_hub *hub, const char *kind, const char *name,
                                     struct tt_str *url);
TT_MUST_USE tt_status hub_append_page(const struct tt_hub *hub, const char *kind, const char *name,
                                      struct tt_str *url);
/* Calls with the token; an answer beyond 299 is an error with its remedy. `repository` may have no commit yet. */
TT_MUST_USE tt_status hub_call(struct tt_hub *hub, const struct hub_repository *repository,
                               struct tt_net_request *request, struct tt_net_answer *answer);

/* listing of the commit, page by page; first the commit of the revision. */
TT_MUST_USE tt_status hub_resolve(struct tt_hub *hub, struct hub_repository *repository);
TT_MUST_USE tt_status hub_list(struct tt_hub *hub, const struct hub_repository *repository,
                               struct tt_hub_listing *listing);

enum { HUB_LARGE_BYTES = 1 << 20 }; /* of a file whose sum is worth a thread */

/* blob.c. Brings one file into blobs/; `taken` is called with bytes that are there now, negative where they go. */
struct hub_blob {
    struct tt_hub *hub;
    const struct hub_repository *repository;
    const struct tt_hub_file *file;
    const char *folder, *locks; /* of the repository in the cache, of its locks */
    bool aside;                 /* a processor is free for the sum of a large file */
    void (*taken)(void *context, int64_t bytes);
    void *context;
};
TT_MUST_USE tt_status hub_blob_fetch(const struct hub_blob *blob);
bool hub_is_stopped(void *hub);

/* ranges.c: lists a data set for reading by ranges, and stores its folder, hf://..., owned. Takes the listing. */
TT_MUST_USE tt_status hub_ranges_open(struct tt_hub *hub, const struct hub_repository *repository,
                                      struct tt_hub_listing *listing, char **folder);
void hub_ranges_close(struct tt_hub *hub);

/* download.c: fetches the files that are wanted, links them, and writes the ref where `final`. */
TT_MUST_USE tt_status hub_fetch_files(struct tt_hub *hub, const struct hub_repository *repository,
                                      const struct tt_hub_listing *listing, bool final, char **folder);

#endif
