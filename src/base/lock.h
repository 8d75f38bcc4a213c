/* A lock on a folder that one process at a time may write. The lock is a small file with the host and the process of
 * its holder, and a lock of the operating system on that file (an open file description lock, fcntl(2)). The system
 * releases it when the process ends in any way, so the next process takes over a dead holder's lock. NFS passes such
 * locks to its server, so they hold between machines, unless the folder is mounted with `nolock` or `local_lock`.
 *
 * On a file system without locks the file alone decides: its holder counts as alive when it is a running process of
 * this host, or on another host. A file that was copied with its folder is no lock. */
#ifndef TT_BASE_LOCK_H
#define TT_BASE_LOCK_H

#include <stdbool.h>
#include "base/error.h"

struct tt_lock;

/* Creates or takes over the lock file `path`. TT_ERR_USAGE while another process, or this one, holds it; the message
 * begins with `what` ("output_dir 'out'") and names the holder. The folder must be there; a link at `path` is not
 * followed. */
TT_MUST_USE tt_status tt_lock_take(const char *path, const char *what, struct tt_lock **out);
/* The same; `unlocked`: also where the store of the path cannot lock it (base/store.h). */
TT_MUST_USE tt_status tt_lock_take_where(const char *path, const char *what, bool unlocked,
                                         struct tt_lock **out);
/* The start of a process in clock ticks since boot, which tells it from a later one of its number; 0: none runs. */
unsigned long long tt_lock_process_start(long pid);
/* True while the locked file is still the file at its path, neither removed nor replaced, and names this process.
 * false for NULL. */
bool tt_lock_is_held(const struct tt_lock *lock);
/* Removes the file, while it is held, and ends the lock; takes NULL. */
void tt_lock_release(struct tt_lock *lock);

#endif
