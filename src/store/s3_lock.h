/* A lock on a folder of S3: an object that one process puts on the condition that there is none (If-None-Match: *), and
 * puts again every fifteen seconds on the condition that it is still its own. A lock that was not renewed for its lease
 * of sixty seconds, by the server's clock, or whose process of this machine has ended, is taken over, with a line.
 *
 * A server that ignores the condition would let two runs write one folder: the lock is refused there.
 *
 * Source: AWS, Amazon S3 User Guide, "How to prevent object overwrites with conditional writes". */
#ifndef TT_STORE_S3_LOCK_H
#define TT_STORE_S3_LOCK_H

#include <stdbool.h>

#include "store/s3_client.h"

enum { TT_S3_LEASE_SECONDS = 60 };

struct tt_s3_lock;

/* The call of tt_lock_take (base/lock.h). `unlocked`: also at a server that ignores the condition. `s3` is lent. */
TT_MUST_USE tt_status tt_s3_lock_take(struct tt_s3 *s3, const char *path, const char *what, bool unlocked,
                                      struct tt_s3_lock **out);
/* Asks the server. False: another process has it, or it could not be renewed for its lease. */
bool tt_s3_lock_is_held(struct tt_s3_lock *lock);
/* Removes the object while it is held, and frees; takes NULL. */
void tt_s3_lock_release(struct tt_s3_lock *lock);

#endif
