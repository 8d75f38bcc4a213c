/* Ranks that are threads of one process and share memory: who leaves waits until all others have left too, so that
 * nobody frees what another still reads. */
#ifndef TT_COMM_LATCH_H
#define TT_COMM_LATCH_H

struct tt_latch;

struct tt_latch *tt_latch_create(int users); /* NULL: no memory, with the error record set */
/* Each user leaves once. Waits for the others, but no longer than `seconds_max`: a thread that hangs must not keep the
 * rest. The last one runs `release` (may be NULL) and frees the latch. */
void tt_latch_leave(struct tt_latch *latch, int seconds_max, void (*release)(void *context), void *context);
void tt_latch_destroy(struct tt_latch *latch); /* one that nobody else has seen; takes NULL */

#endif
