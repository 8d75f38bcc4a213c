/* The way of attachments (struct tt_attachment of nn/pass.h) from a feed to the passes of a rank. A kind of attachment
 * is one file with a table of calls: its memory on the device, its part of a micro batch, and its largest part, which a
 * plan counts. rank_batch.c has the list of kinds; nobody else asks which kinds a micro batch has. */
#ifndef TT_ENGINE_ATTACHED_H
#define TT_ENGINE_ATTACHED_H

#include "engine/feed.h"

struct tt_rank;
struct tt_rank_config;

struct tt_attached_ops {
    enum tt_attachment_kind kind;
    /* The memory of all that config->limits allow. *state stays NULL where they allow none of the kind; after an error
     * `destroy` follows. */
    tt_status (*create)(const struct tt_rank_config *config, struct tt_rank *rank, void **state);
    void (*destroy)(void *state);
    /* Brings a part of a micro batch to the device. TT_ERR_INTERNAL: it is larger than the limits. Where the device is
     * the host, the pass may read the memory of the part, which must last until its end. */
    tt_status (*attach)(struct tt_rank *rank, void *state, const struct tt_micro_part *part,
                        struct tt_attachment *to);
    /* The same on the plan device, for a part as large as the limits, which is not read. */
    tt_status (*attach_largest)(struct tt_rank *rank, void *state, const struct tt_batch_limits *limits,
                                struct tt_attachment *to);
    /* Work before the first forward pass of its kind. NULL: there is none. */
    tt_status (*prepare)(struct tt_rank *rank, void *state, const struct tt_attachment *attachment,
                         const struct tt_pass *pass);
    /* The next part travels while the passes read this one: whether the device has room for it, its copy, which the
     * next `attach` finds, and the end of a copy that no `attach` will find. All NULL: no part does. */
    bool (*takes_ahead)(const struct tt_rank *rank, const void *state);
    tt_status (*attach_ahead)(struct tt_rank *rank, void *state, const struct tt_micro_part *part);
    void (*forget_ahead)(void *state);
};

/* A kind in a rank. */
struct tt_rank_attached {
    const struct tt_attached_ops *ops;
    void *state; /* owned; NULL: the limits have none of the kind */
};

/* The state of a kind in a rank; NULL: none. */
void *tt_rank_attached_state(const struct tt_rank *rank, enum tt_attachment_kind kind);

#endif
