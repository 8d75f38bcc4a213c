/* Every call of a communicator, checked against scalar loops. The input of a rank is a pure function of (seed,
 * call, rank, index), so each rank knows the inputs of all. For every kind of communicator: equal digests of
 * equal worlds mean equal bits. */
#ifndef TT_TESTS_SUPPORT_COMM_CALLS_H
#define TT_TESTS_SUPPORT_COMM_CALLS_H

#include "comm/comm.h"

/* `digest` gets the hash of all results of this rank. A wrong result is TT_ERR_INTERNAL with a description. */
tt_status test_comm_calls(struct tt_comm *comm, uint64_t seed, uint64_t *digest);

/* Rank 1 calls with another reduction, type or root than the others: an error of all ranks, which breaks nothing. */
tt_status test_comm_orders(struct tt_comm *comm);

/* tt_comm_agree for all combinations in which ranks of a world of up to 4 fail by themselves or after another one. */
tt_status test_comm_agreement(struct tt_comm *comm);
/* Every number of parts, and parts of parts; `digest` is of the calls in one of two parts (world of 2 and more). */
tt_status test_comm_splits(struct tt_comm *comm, uint64_t *digest);

/* The `count` elements of rank `rank`: their magnitudes differ so much that the order of a sum shows. */
void test_comm_fill(void *data, tt_dtype dtype, size_t count, uint64_t seed, int rank);
/* to[i] = the reduction over ranks 0 .. from_count - 1 in order, one element after the other. */
void test_reduce_scalar(void *to, const void *const *from, int from_count, size_t count, tt_dtype dtype,
                        enum tt_reduce reduce);

#endif
