/* The sum of a file that comes in pieces, as the hub's listing has it: SHA-256 of an LFS file's content, or git's
 * SHA-1, whose content has a head before it. For this folder alone. */
#ifndef TT_HUB_BLOB_SUM_H
#define TT_HUB_BLOB_SUM_H

#include "base/sha1.h"
#include "base/thread.h"
#include "hub/listing.h"
#include "net/sha256.h"

struct hub_sum {
    bool large;
    struct tt_sha256 sha256;
    struct tt_sha1 sha1;
    struct hub_sum_helper *helper; /* a thread that sums while the next piece comes; NULL: none */
};

/* `aside`: by a thread of its own, where one can be had. */
void hub_sum_begin(struct hub_sum *sum, const struct tt_hub_file *file, bool aside);
void hub_sum_add(struct hub_sum *sum, const void *data, size_t bytes);
/* Ends the thread. Each sum that was begun is ended, if only to drop it. */
void hub_sum_end(struct hub_sum *sum, char digits[TT_HUB_DIGEST_BYTES]);

#endif
