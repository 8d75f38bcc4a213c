/* FSDP units. A unit owns this rank's shard of some parameters, and lends views of the whole parameters.
 *
 * It holds the parameters of one block (or of several blocks that share a tensor) in two segments:
 *   frozen     all frozen tensors in their stored types, one after the other as bytes (each aligned to 64), padded,
 *              split evenly over the ranks: one all-gather of bytes, independent of the types inside; tensors that
 *              only one kind of pass reads (tt_param.use) are split and gathered apart;
 *   trainable  one flat vector of fp32 master values over all trainable tensors in order, padded to a multiple of
 *              the world size, split evenly; gathered in the compute type, gradients reduced in the reduce type.
 *
 * Strategies (names of PyTorch FSDP and accelerate):
 *   FULL_SHARD     gathered for forward, released after it, gathered again for backward
 *   SHARD_GRAD_OP  gathered once per optimizer step, kept from forward to backward; gradients and optimizer sharded
 *   NO_SHARD       every rank holds all parameters; gradients are all-reduced (DDP)
 *   HYBRID_SHARD   FULL_SHARD inside `shard_comm`, replicated across `replicate_comm`
 * A world of one rank is NO_SHARD without communication: frozen tensors are never copied.
 *
 * Ranks that share experts (`expert_comm`) hold no shards of all of them: the frozen matrices of experts [X, N, K] are
 * split by experts first, and each rank is lent its own alone, [X / ranks, N, K] (coded: the segment of those), which
 * only the ranks of `holder_comm` gather. Where no other rank has them they are lent as they are.
 *
 * Life of a unit in a step: gather (starts the transfer; on a device with streams it runs on the comm stream) -> wait
 * (the compute stream waits; value and grad views are lent to the parameters) -> blocks run -> release (views are
 * revoked); in backward also reduce, before release. A gather without wait is a prefetch. Calls nest: the second
 * release frees a unit held by two users. Profiles (backend/profile.h) have the spans TT_SPAN_GATHER, TT_SPAN_REDUCE
 * and TT_SPAN_GATHER_WAIT, the part of a gather that compute does not hide.
 */
#ifndef TT_SHARD_UNIT_H
#define TT_SHARD_UNIT_H

#include "comm/comm.h"
#include "tensor/param.h"

enum tt_shard_strategy { TT_FULL_SHARD, TT_SHARD_GRAD_OP, TT_NO_SHARD, TT_HYBRID_SHARD };
const char *tt_shard_strategy_name(enum tt_shard_strategy strategy);

/* State common to all units of a rank: device, streams, communicators, the pool of gather buffers. */
struct tt_shard_context;
struct tt_shard_config {
    enum tt_shard_strategy strategy;
    struct tt_device *device;       /* lent */
    struct tt_stream *compute;      /* lent */
    struct tt_comm *shard_comm;     /* lent: the ranks that split a unit */
    struct tt_comm *replicate_comm; /* lent, NULL unless HYBRID_SHARD */
    /* lent: of the ranks that split a unit those that share its experts (NULL: every rank gathers all), and those that
     * hold the same (NULL: this rank alone) */
    struct tt_comm *expert_comm, *holder_comm;
    const tt_param *const *experts; /* [expert_count], copied: the matrices that ranks share */
    size_t expert_count;
    tt_dtype compute_dtype; /* of lent trainable parameters: F32 or BF16 */
    tt_dtype reduce_dtype;  /* of gradients in collectives: F32 or BF16 */
    /* elements: trainable parameters and the ranks' slices of them begin at multiples of it; at least 16 */
    int64_t trainable_alignment;
    bool train; /* false: no gradients, no masters (evaluation, generation) */
    /* FULL_SHARD and HYBRID_SHARD: the first so many units that are created have a buffer of their own and stay
     * gathered, as all units with SHARD_GRAD_OP; parts of a split unit do not. The same on all ranks */
    int unsharded_units;
    bool offload_params; /* frozen shards reside in page-locked host memory and are copied before use */
};
TT_MUST_USE tt_status tt_shard_context_create(const struct tt_shard_config *config,
                                              struct tt_shard_context **out);
void tt_shard_context_destroy(struct tt_shard_context *context); /* after its units; takes NULL */
/* Every unit is whole in the memory of this rank's device: gathers move nothing, except that changed trainable values
 * are converted to the compute type. */
bool tt_shard_context_at_hand(const struct tt_shard_context *context);

/* Ranks copy each other's frozen shards (tt_shard_context_share). */
bool tt_shard_context_pulls(const struct tt_shard_context *context);

struct tt_unit;

/* Lays out and allocates the shards, without values. The array `params` is copied; the parameters are lent by the model
 * and outlive the unit. `user_count`: number of blocks that use the unit in one pass (2 for tied embeddings: the unit
 * reduces its gradients after the second). All units must be created before tt_shard_context_seal, which allocates the
 * pool for the largest. */
TT_MUST_USE tt_status tt_unit_create(struct tt_shard_context *context, const char *name,
                                     tt_param *const *params, size_t param_count, int user_count,
                                     struct tt_unit **out);
/* The same for a unit whose frozen matrix `split->param`, which one of its users reads, is gathered in parts of
 * `split->rows` rows, each in a buffer of the pool: the pool is as large as the largest part, not as the matrix. All
 * other parameters are gathered with the unit into memory of their own. */
struct tt_unit_split {
    const tt_param *param; /* one of `params`, not quantized */
    int64_t rows;
};
TT_MUST_USE tt_status tt_unit_create_split(struct tt_shard_context *context, const char *name,
                                           tt_param *const *params, size_t param_count, int user_count,
                                           const struct tt_unit_split *split, struct tt_unit **out);
void tt_unit_destroy(struct tt_unit *unit); /* takes NULL */
/* `gathers_in_flight`: number of buffers of the largest unit's size (2: one in use, one being gathered). */
TT_MUST_USE tt_status tt_shard_context_seal(struct tt_shard_context *context, int gathers_in_flight);
/* Collective; call it after all frozen shards are loaded. Returns when all ranks have loaded. Ranks of one machine
 * whose GPUs have peer access exchange addresses of their shards, or handles between processes: a frozen shard never
 * changes, so each rank copies the shards that it needs with its copy engines, without handshake, multiprocessors or
 * communicator. Where the driver or a container forbids handles, rank 0 logs the reason, and the communicator
 * gathers. */
TT_MUST_USE tt_status tt_shard_context_share(struct tt_shard_context *context);

/* The piece of a parameter in this rank's shard, for loading and saving. Elements are counted in the flat row-major
 * parameter, or are bytes of its segment when it is quantized; the piece may be empty (count 0). */
struct tt_piece {
    tt_param *param;
    int64_t first; /* element */
    int64_t count;
    void *data;           /* device memory: stored_dtype for frozen, fp32 master for trainable */
    tt_dtype dtype;       /* type of `data` */
    bool in_host;         /* `data` is page-locked memory of the host (offload_params) */
    int64_t slice_offset; /* trainable: element offset in this rank's slices (tt_unit_slices); else -1 */
};
size_t tt_unit_piece_count(const struct tt_unit *unit);
struct tt_piece tt_unit_piece(const struct tt_unit *unit, size_t index);
/* Call after writing the frozen shard (load). */
TT_MUST_USE tt_status tt_unit_frozen_changed(struct tt_unit *unit);
/* Call after writing the masters (load, optimizer step, resume): later views are made from the new values. */
TT_MUST_USE tt_status tt_unit_masters_changed(struct tt_unit *unit);

/* Flat fp32 slices of this rank, all of the same length, for src/optim. After reduce the gradient slice is the sum over
 * micro batches. count is 0 without trainable parameters. */
struct tt_slices {
    float *master; /* device memory */
    float *grad;
    int64_t count;
};
struct tt_slices tt_unit_slices(const struct tt_unit *unit);
/* A run of the slices that belongs to one parameter, for weight decay and for messages about gradients. */
size_t tt_unit_run_count(const struct tt_unit *unit);
struct tt_slice_run {
    tt_param *param;
    int64_t offset; /* in the slices */
    int64_t count;
};
struct tt_slice_run tt_unit_run(const struct tt_unit *unit, size_t index);

/* Elements of the whole trainable vector of all ranks before the parameter of piece `index`; -1: it does not train. The
 * slices of the ranks are that vector, in order. */
int64_t tt_unit_whole_offset(const struct tt_unit *unit, size_t index);

/* Chooses the parameters of the next gather: bits (1u << enum tt_param_use); all by default. Other parameters have no
 * value in the pass. Without effect while the unit is held. */
void tt_unit_set_uses(struct tt_unit *unit, unsigned uses);
TT_MUST_USE tt_status tt_unit_gather(struct tt_unit *unit);
/* The same, but the transfer begins after all work queued on the compute stream so far. */
TT_MUST_USE tt_status tt_unit_gather_behind(struct tt_unit *unit);
TT_MUST_USE tt_status tt_unit_wait(struct tt_unit *unit);
/* Releases the values early, after their last reader was queued and before reduce and release: another unit may be
 * gathered into their memory. Without effect while the unit has several holders. */
TT_MUST_USE tt_status tt_unit_release_values(struct tt_unit *unit);
/* Takes a part of a split unit between wait and release. Lends the rows of `part` as the matrix's value, and returns
 * those of the part before; then starts the gather of part `next` (-1: none), which must be the next one that is taken,
 * if a buffer is free. Collective, like gather. */
TT_MUST_USE tt_status tt_unit_take_part(struct tt_unit *unit, int part, int next);
/* Returns the rows of the part that is lent. Without effect when none is. */
TT_MUST_USE tt_status tt_unit_drop_part(struct tt_unit *unit);
/* The matrix that comes in parts; NULL: the unit is not split. */
const tt_param *tt_unit_matrix(const struct tt_unit *unit);
int tt_unit_part_count(const struct tt_unit *unit);    /* 0: the unit is not split */
int64_t tt_unit_part_rows(const struct tt_unit *unit); /* of all parts but the last, which may have fewer */

/* Sums the gradients over the ranks, and adds this rank's slice of the sum to its gradient slice. `last_micro`: this is
 * the last micro batch of the step (NO_SHARD reduces only then). */
TT_MUST_USE tt_status tt_unit_reduce(struct tt_unit *unit, bool last_micro);
/* `keep`: the values may stay for the backward pass of the same block, if memory allows. */
TT_MUST_USE tt_status tt_unit_release(struct tt_unit *unit, bool keep);
TT_MUST_USE tt_status tt_unit_zero_grad(struct tt_unit *unit);

/* True for small units: their gradients are summed over the micro batches first and over the ranks in
 * tt_shard_context_join. */
bool tt_unit_sums_at_join(const struct tt_unit *unit);
/* Reduces the gradients of small units, and makes the compute stream wait for all sums so far. Collective; precedes
 * any read of the gradient slices. */
TT_MUST_USE tt_status tt_shard_context_join(struct tt_shard_context *context);
/* Exchanges the masters with `other`, of the bytes of the slices, through `scratch` of as many; no holder may have the
 * unit. Without effect where nothing trains. */
TT_MUST_USE tt_status tt_unit_exchange_masters(struct tt_unit *unit, struct tt_buffer *other,
                                               struct tt_buffer *scratch);
/* Collective; call it after the masters of all units changed. Starts the gathers of trainable values that stay gathered
 * from step to step; without this call they start at the first use. */
TT_MUST_USE tt_status tt_shard_context_publish(struct tt_shard_context *context);

size_t tt_unit_frozen_bytes(const struct tt_unit *unit);     /* of the whole unit */
int64_t tt_unit_trainable_count(const struct tt_unit *unit); /* elements of the whole unit */

#endif
