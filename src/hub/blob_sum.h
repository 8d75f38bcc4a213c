/* The sum of a file that grows, as the hub's listing has it: SHA-256 of an LFS file's content, or git's SHA-1, whose
 * content has a head before it. For this folder alone. */
#ifndef TT_HUB_BLOB_SUM_H
#define TT_HUB_BLOB_SUM_H

#include "base/partial_file.h"
#include "base/sha1.h"
#include "base/thread.h"
#include "hub/listing.h"
#include "net/sha256.h"

struct hub_sum {
    bool large;
    struct tt_sha256 sha256;
    struct tt_sha1 sha1;
    const struct tt_partial_file *file; /* lent */
    uint64_t summed;                    /* bytes of the file so far */
    struct hub_sum_helper *helper;      /* a thread that reads the file behind its writer; NULL: none */
};

/* `aside`: by a thread of its own, where one can be had. It reads from the file what was written: handing pieces to
 * another processor's cache and back costs more. A sum is ended once, whatever fails. */
void hub_sum_begin(struct hub_sum *sum, const struct tt_hub_file *listed, const struct tt_partial_file *file,
                   bool aside);
/* Sums what an earlier process left; `stopped` is asked between pieces: TT_ERR_CANCELLED. */
TT_MUST_USE tt_status hub_sum_begin_of_file(struct hub_sum *sum, bool (*stopped)(void *context),
                                            void *context);
/* These bytes have been appended to the file. Waits where the thread is far behind. */
void hub_sum_add(struct hub_sum *sum, const void *data, size_t bytes);
/* Ends the thread once it has summed all, or with `digits` NULL at once. Fails where it could not read. */
TT_MUST_USE tt_status hub_sum_end(struct hub_sum *sum, char digits[TT_HUB_DIGEST_BYTES]);

#endif
