/* Samples in a flat batch of rows, and the states that layers with a recurrence carry from row to row.
 *
 * Sequence b owns the rows cu[b] .. cu[b+1] of all tensors of a call; together they own every row. A sequence of length
 * 0 is allowed. No row reads a row of another sequence.
 *
 * Without states each sequence begins from zeros, and its last state is dropped (training). With states (generation)
 * sequence b begins from state from[b] of the pool, or from zeros where from[b] < 0, and its last state becomes state
 * to[b], or is dropped where to[b] < 0. So a prompt may come in parts, a prefix that was saved may be continued by
 * several sequences, and one call takes several prompts and single tokens alike. No two sequences of a call have the
 * same to[b] >= 0, and none reads a state that another one writes. A sequence of length 0 copies its state. */
#ifndef TT_BACKEND_OPS_SEQUENCES_H
#define TT_BACKEND_OPS_SEQUENCES_H

#include "backend/device.h"
#include "backend/ops/check.h"
#include "tensor/tensor.h"

struct tt_sequences {
    const int32_t *cu;   /* HOST memory, count + 1 entries that rise from 0 to the number of rows */
    tt_tensor device_cu; /* i32 [count + 1]: the same numbers in device memory; may be empty on the host */
    int64_t count;       /* B */
};

struct tt_states {
    tt_tensor pool;         /* f32, contiguous, [states, ..]; empty: none */
    tt_tensor from_B, to_B; /* i32, device memory, below `states`; given with the pool */
};

/* Checks `sequences` for tensors of `rows` rows. */
void tt_check_sequences(struct tt_check *check, const struct tt_sequences *sequences, int64_t rows);
/* Checks `states`, of `rank` - 1 dimensions `dims` each, for `count` sequences. */
void tt_check_states(struct tt_check *check, const struct tt_states *states, int64_t count, int rank,
                     const int64_t *dims);

#endif
