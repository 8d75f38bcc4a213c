/* Structures of contexts and units, for src/shard only.
 *
 * Files: context.c (context and pool), layout.c (layout of the tensors), unit.c (creation and queries), gather.c
 * (gather, wait, release), parts.c (units whose matrix is gathered in parts), share.c (shards of other ranks of this
 * process), reduce.c (gradients).
 */
#ifndef TT_SHARD_SHARD_IMPL_H
#define TT_SHARD_SHARD_IMPL_H

#include "backend/device.h"
#include "shard/unit.h"

enum {
    /* bytes, of every tensor in the frozen segment */
    SEGMENT_ALIGNMENT = 64,
    /* elements, at least, of every tensor in the trainable one */
    ELEMENT_ALIGNMENT = SEGMENT_ALIGNMENT / (int)sizeof(float),
    GRADIENT_SLOTS = 2, /* full gradients in flight: a reduce overlaps the next block's backward */
    /* trainable values of at most 1 / SMALL_TRAINABLE of a unit stay gathered from step to step */
    SMALL_TRAINABLE = 8,
};

/* Memory for one whole unit. The values stay valid after the unit's release until another unit takes the slot, so that
 * backward need not gather the last units of the forward pass again. */
struct gather_slot {
    struct tt_buffer *buffer;
    char *data;
    struct tt_unit *owner; /* unit whose values it holds, or NULL */
    unsigned frozen_valid; /* bits of enum tt_param_use: the spans that it holds */
    bool trainable_valid;
    bool held;
    bool keep;                 /* the owner will use it again in the backward pass */
    uint64_t let_go;           /* number of its last release, to find the oldest */
    struct tt_event *gathered; /* on the comm stream: the values are complete */
    struct tt_event *released; /* on the compute stream: the last reader is done */
};

/* fp32 gradients of one whole unit; all zero while it has no owner. */
struct gradient_slot {
    struct tt_buffer *buffer;
    float *data;
    struct tt_unit *owner;    /* unit that holds it, or NULL */
    struct tt_event *reduced; /* on the comm stream: read and zeroed again */
};

struct tt_shard_context {
    struct tt_shard_config config;
    bool resident;            /* every rank holds every unit whole: nothing is gathered */
    bool at_hand;             /* resident, and the frozen shard itself is lent */
    enum tt_reach *reaches;   /* share.c: [world_size]; NULL unless ranks copy each other's shards */
    bool left;                /* no other rank reads the shards any more */
    struct tt_latch *latch;   /* of ranks that are threads of one process; NULL: of several processes */
    int rank, world_size;     /* among the ranks that split a unit; 0 of 1 when resident */
    int expert_rank, experts; /* among those that share the experts of a unit; 0 of 1: none do */
    const tt_param **shared;  /* owned, [config.expert_count]: the matrices of these experts */
    int *holders;             /* share.c: ranks that hold the same experts, [holder_count]; NULL: unknown */
    struct tt_comm *replicas; /* gradients are summed over these too, once per step; NULL: none */
    struct tt_stream *comm_stream;
    struct tt_stream *own_stream;     /* copies this rank's own shards while others' come over the links */
    struct tt_event *forked, *joined; /* of own_stream: it may begin; it has ended */
    struct tt_event *gradients_ready; /* on the compute stream */
    struct tt_event *reached;         /* on the compute stream: a gather may begin after it */
    struct tt_event *reduced;         /* on the comm stream */
    struct tt_unit *units;            /* all existing units, newest first */
    int unit_count;                   /* units created, without parts */
    bool sealed;
    struct gather_slot *slots;
    int slot_count;
    struct gradient_slot gradient_slots[GRADIENT_SLOTS];
    int next_gradient_slot;
    struct tt_buffer *travel; /* gradients of one unit in the reduce type; NULL for F32 */
    uint64_t releases;
};

/* Frozen parameters of one use, split by `ranks` ranks, of which this is `rank`. Those of own experts are apart. */
struct frozen_span {
    size_t offset, bytes;             /* in the whole segment */
    size_t shard_offset, shard_bytes; /* in every rank's share */
    int rank, ranks;
    struct tt_comm *comm; /* of these ranks */
    bool own;             /* of own experts */
    bool in_place;        /* lent from the shard, and in no slot: no other rank has a part of it */
};
enum { SPAN_COUNT = 2 * TT_USE_COUNT }; /* first those of all ranks, by use, then those of own experts */

/* Place of one parameter in its unit. */
struct member {
    tt_param *param;
    bool trains;    /* in the trainable segment */
    tt_dtype dtype; /* of the lent view */
    int64_t count;  /* elements */
    int64_t first;  /* element of the parameter with which the member begins: 0 except in a part */
    int64_t rows;   /* of the lent view; 0: all */
    size_t offset;  /* bytes in the frozen segment, elements in the trainable one */
    int span;       /* of a frozen one */
    int64_t lent;   /* own experts in codes: bytes of the lent segment, or -1: it is lent already; else 0 */
};

struct tt_unit {
    struct tt_shard_context *context;
    struct tt_unit *next;
    char *name;
    struct member *members;
    struct tt_piece *pieces; /* [member_count] */
    size_t member_count;
    struct tt_slice_run *runs;
    size_t run_count;
    int user_count;

    /* parts.c: a frozen matrix, in a unit for each range of its rows. */
    struct tt_unit **parts; /* [part_count], owned */
    int part_count;
    int part; /* index of the lent part; -1: none */

    /* Whole segments with all padding, and this rank's share. The frozen one has a span for each use, and the ranks
     * split each span, so that a pass gathers what it reads alone. */
    size_t frozen_bytes, frozen_shard_bytes;
    struct frozen_span spans[SPAN_COUNT];
    size_t in_place_bytes; /* of spans that are in no slot, behind `frozen_bytes` */
    int64_t trainable_count, slice_count;
    size_t frozen_payload_bytes; /* without padding, for reports */
    int64_t trainable_payload_count;

    struct tt_buffer *frozen_shard; /* any buffer is NULL when it would be empty */
    struct tt_buffer *master;
    struct tt_buffer *gradient;  /* the slice */
    struct gather_slot own_slot; /* of a unit that stays whole, or beside parts: the unit */
    /* trainable values in the compute type, where they have memory of their own */
    struct gather_slot own_trainable;
    bool exact;                        /* some trainable values are lent in fp32, others not */
    bool small;                        /* the trainable part is small beside the frozen part */
    const void **peer_shards;          /* [world_size]: frozen shards of the other ranks; NULL: unknown */
    struct gradient_slot own_gradient; /* more than one user, or small: sums the gradients of all users */
    struct tt_event *written;          /* on the compute stream: masters or the frozen shard were written */

    /* State: see gather.c. */
    struct gather_slot *slot;
    struct gradient_slot *gradient_slot;
    bool prefetched;
    unsigned uses; /* bits of enum tt_param_use: what gather brings and wait lends */
    int holders;
    int reduces;  /* calls of reduce since the last sum; the last user's call sums */
    bool sum_due; /* small: tt_shard_context_join has gradients to sum */
};

/* Rows of a frozen matrix that make a unit; without `param` all parameters are whole. */
struct row_range {
    const tt_param *param;
    int64_t first, count;
};

/* layout.c: sets members, sizes, pieces and runs; tt_unit_set_piece_data sets the data of pieces after allocation. */
TT_MUST_USE tt_status tt_unit_lay_out(struct tt_unit *unit, tt_param *const *params, size_t param_count,
                                      struct row_range range);
void tt_unit_set_piece_data(struct tt_unit *unit);

size_t tt_unit_gathered_bytes(const struct tt_unit *unit); /* bytes of a slot for the whole unit */
/* Whether gathers bring the trainable values in fp32 too. */
bool tt_unit_gathers_exact(const struct tt_unit *unit);

TT_MUST_USE tt_status tt_shard_buffer_create(struct tt_shard_context *context, size_t bytes,
                                             enum tt_purpose purpose,
                                             struct tt_buffer **out); /* 0 bytes: *out stays NULL */
TT_MUST_USE tt_status tt_gather_slot_init(struct tt_shard_context *context, size_t bytes,
                                          struct gather_slot *slot);
void tt_gather_slot_deinit(struct gather_slot *slot);
TT_MUST_USE tt_status tt_gradient_slot_init(struct tt_shard_context *context, int64_t count,
                                            struct gradient_slot *slot);
void tt_gradient_slot_deinit(struct gradient_slot *slot);

/* unit.c: tt_unit_create of a unit that is whole, of the rest of a split unit (`beside_parts`), or of a part. */
TT_MUST_USE tt_status tt_unit_make(struct tt_shard_context *context, const char *name,
                                   tt_param *const *params, size_t param_count, int user_count,
                                   bool beside_parts, struct row_range range, struct tt_unit **out);
/* parts.c: destroys the parts. */
void tt_unit_destroy_parts(struct tt_unit *unit);
bool tt_shard_has_free_slot(const struct tt_shard_context *context);

/* Takes a free slot for `unit`: its previous one while that still holds its values. */
TT_MUST_USE tt_status tt_shard_take_slot(struct tt_shard_context *context, struct tt_unit *unit,
                                         struct gather_slot **out);
TT_MUST_USE tt_status tt_shard_take_gradient_slot(struct tt_shard_context *context, struct tt_unit *unit,
                                                  struct gradient_slot **out);
/* Fails for a call that the unit's state does not allow: TT_ERR_INTERNAL with name and state. */
tt_status tt_unit_fail_state(const struct tt_unit *unit, const char *call);

/* share.c: whether a plan counts gathers as those of GPUs of one machine, which read each other's shards. */
bool tt_shard_plans_pull(const struct tt_shard_context *context);
/* share.c: queues copies of all ranks' frozen shards of the unit into `to`, the own one beside the others; requires
 * unit->peer_shards, or a plan that counts so. */
TT_MUST_USE tt_status tt_shard_pull(struct tt_unit *unit, const struct frozen_span *span, char *to);
/* Waits until no other rank can pull from this rank's shards, so that they may be freed. */
void tt_share_leave(struct tt_shard_context *context);
void tt_share_forget(struct tt_unit *unit); /* the other ranks' shards of the unit */

static inline bool has_slot(const struct gather_slot *slot)
{
    return slot->gathered != NULL;
}

static inline bool has_gradient_slot(const struct gradient_slot *slot)
{
    return slot->reduced != NULL;
}

/* reduce.c: sums the gradients of units with sum_due. */
TT_MUST_USE tt_status tt_shard_sum_due(struct tt_shard_context *context);

/* data + offset, or NULL without a buffer. */
static inline void *tt_buffer_at(const struct tt_buffer *buffer, size_t offset)
{
    return buffer == NULL ? NULL : (char *)tt_buffer_data(buffer) + offset;
}

#endif
