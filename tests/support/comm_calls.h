/* Every call of a communicator, checked against scalar loops. What a rank hands in is a pure function of (seed,
 * call, rank, index), so each rank knows what all others hold. The same for any kind of communicator: equal digests of
 * equal worlds are equal bits. */
#ifndef TT_TESTS_SUPPORT_COMM_CALLS_H
#define TT_TESTS_SUPPORT_COMM_CALLS_H

#include "comm/comm.h"

/* `digest` is of all results of this rank. A wrong result is TT_ERR_INTERNAL with what was wrong. */
tt_status test_comm_calls(struct tt_comm *comm, uint64_t seed, uint64_t *digest);

/* Rank 1 calls with another reduction, type or root than the others: an error of all ranks, which breaks nothing. */
tt_status test_comm_orders(struct tt_comm *comm);

/* tt_comm_agree for every way in which ranks of a world of up to 4 can fail by themselves or after another one. */
tt_status test_comm_agreement(struct tt_comm *comm);
/* Every number of parts, parts of parts; `digest` is of the calls in one of two parts (world of 2 and more). */
tt_status test_comm_splits(struct tt_comm *comm, uint64_t *digest);

/* `count` elements that rank `rank` hands in: magnitudes far apart, so that the order of a sum shows. */
void test_comm_fill(void *data, tt_dtype dtype, size_t count, uint64_t seed, int rank);
/* to[i] = the reduction over ranks 0 .. from_count - 1 in order, one element after the other. */
void test_reduce_scalar(void *to, const void *const *from, int from_count, size_t count, tt_dtype dtype,
                        enum tt_reduce reduce);

#endif
