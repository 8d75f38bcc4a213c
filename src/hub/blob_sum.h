/* The sum of a file that comes in pieces, as the hub's listing has it: SHA-256 of an LFS file's content, or git's
 * SHA-1, whose content has a head before it. For this folder alone. */
#ifndef TT_HUB_BLOB_SUM_H
#define TT_HUB_BLOB_SUM_H

#include "base/sha1.h"
#include "base/thread.h"
#include "hub/listing.h"
#include "net/sha256.h"

/* The most of a piece. libcurl hands over 16 KiB at a time: written and summed together they cost fewer calls. */
enum { HUB_PIECE_BYTES = 64 << 10 };

struct hub_sum {
    bool large;
    struct tt_sha256 sha256;
    struct tt_sha1 sha1;
    unsigned char *room;           /* owned; NULL: the helper has rooms */
    struct hub_sum_helper *helper; /* a thread that sums while the next piece comes; NULL: none */
};

/* `aside`: by a thread of its own, where one can be had. A sum that was begun without an error is ended. */
TT_MUST_USE tt_status hub_sum_begin(struct hub_sum *sum, const struct tt_hub_file *file, bool aside);
/* HUB_PIECE_BYTES for the next piece, the same until hub_sum_add; waits until they may be written. */
unsigned char *hub_sum_room(struct hub_sum *sum);
/* Adds the first bytes of that room. */
void hub_sum_add(struct hub_sum *sum, size_t bytes);
/* Ends the thread. */
void hub_sum_end(struct hub_sum *sum, char digits[TT_HUB_DIGEST_BYTES]);

#endif
