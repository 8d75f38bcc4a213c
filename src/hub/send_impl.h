/* An upload in progress, for upload.c and objects.c. */
#ifndef TT_HUB_SEND_IMPL_H
#define TT_HUB_SEND_IMPL_H

#include "hub/hub_impl.h"
#include "hub/upload.h"

struct hub_sent {
    char *path, *there; /* owned: on this machine, in the repository */
    uint64_t bytes;
    char digest[TT_HUB_DIGEST_BYTES]; /* SHA-256 */
    char sample[700];                 /* its beginning in base64 */
    char known[TT_HUB_DIGEST_BYTES];  /* sum of the repository's file of this name; "": none */
    bool large, ignored;              /* an LFS file; one that the repository's .gitignore leaves out */
};

struct hub_sending {
    struct tt_hub *hub;
    const struct tt_hub_upload *upload;
    struct hub_repository repository;
    struct tt_str name, what; /* of the repository, with its owner; in messages */
    struct hub_sent *files;
    size_t count, capacity;
};

/* A source of a text (struct tt_net_source). */
tt_status hub_read_text(void *context, uint64_t offset, void *data, size_t bytes);
/* Sends `text` to the hub with the token; `type`: its media type, and that of the answer. */
TT_MUST_USE tt_status hub_post(struct hub_sending *sending, const char *url, const char *type,
                               const struct tt_str *text, bool repeatable, struct tt_net_answer *answer);
/* objects.c: brings the LFS files that the hub lacks to where it says. */
TT_MUST_USE tt_status hub_send_objects(struct hub_sending *sending);

#endif
