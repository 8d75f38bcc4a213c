/* Delays the end of threads that share memory: a thread that leaves waits until all others have left, so that no thread
 * frees memory that another one still reads. */
#ifndef TT_COMM_LATCH_H
#define TT_COMM_LATCH_H

struct tt_latch;

struct tt_latch *tt_latch_create(int users); /* NULL: out of memory, with the error record set */
/* Called once by each user. Waits for the others, at most `seconds_max`: a thread that hangs must not block the rest.
 * The last one calls `release` (may be NULL) and frees the latch. */
void tt_latch_leave(struct tt_latch *latch, int seconds_max, void (*release)(void *context), void *context);
void tt_latch_destroy(struct tt_latch *latch); /* of a latch that no other thread uses; takes NULL */

#endif
