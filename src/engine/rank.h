/* A rank: one device and everything that belongs to it, built once and destroyed once in reverse order,
 * driven by one thread. The same code builds the rank that trains and the rank on the plan device that only
 * counts.
 *
 *     device -> stream -> model (without values) -> shard context -> units -> optimizer -> batch buffers -> workspace
 */
#ifndef TT_ENGINE_RANK_H
#define TT_ENGINE_RANK_H

#include "checkpoint/state_snapshot.h"
#include "data/sampler.h"
#include "engine/attached.h"
#include "engine/executor.h"
#include "engine/mesh.h"
#include "objective/objective.h"
#include "optim/moments.h"

enum { TT_UNSHARDED_AUTO = -1, TT_EXPERTS_AUTO = 0 };

struct tt_rank_config {
    struct tt_device_config device;
    struct tt_comm *world; /* lent: all ranks of the run, for calls from the host */
    /* lent: the ranks that split a unit; NULL: the rank creates it (mesh.h) */
    struct tt_comm *shard_comm;
    struct tt_comm *replicate_comm; /* lent with `shard_comm`; NULL unless HYBRID_SHARD */
    struct tt_axes axes;            /* beside the sharding (mesh.h); the same on all ranks */
    int machine, local_rank;        /* launch/world.h; HYBRID_SHARD splits the world by them */
    enum tt_shard_strategy strategy;
    /* groups of so many ranks share the experts of a layer; 1: every rank gathers them; TT_EXPERTS_AUTO: the plan
     * chooses */
    int expert_parallel;
    const struct tt_model_facts *model_facts;
    struct tt_model_options model_options;
    const struct tt_objective *objective; /* copied by tt_rank_init; NULL: sft */
    struct tt_batch_limits limits;        /* of training and evaluation micro batches together */
    /* lent: kinds of attachments, ended by NULL; NULL: those of rank_batch.c */
    const struct tt_attached_ops *const *attached;
    bool across_processes;                /* not all ranks are threads of this process: GPUs then use NCCL */
    bool train;                           /* gradients, masters, optimizer state */
    const struct tt_optimizer *optimizer; /* of a training; NULL: AdamW */
    const struct tt_optim_config *optim;  /* lent: the parameter groups of a training; NULL: one group */
    bool continues;          /* the training begins with values of an adapter, which its reference has, too */
    bool saves, saves_state; /* host memory for a snapshot of the values; of the optimizer state too */
    enum tt_recompute recompute; /* the levels that the plan may choose */
    const enum tt_level *levels; /* [block_count], lent: the levels that it chose; NULL: TT_KEEP_CHEAP */
    /* the plan chose it: embedding and head are gathered in parts where they can be; the same on all ranks */
    bool split_vocabulary;
    /* blocks, from the first, whose units stay gathered (shard/unit.h); TT_UNSHARDED_AUTO: the plan chooses */
    int unsharded_blocks;
    bool offload_params; /* frozen shards and optimizer state in page-locked host memory */
    bool page_moments;   /* the plan chose it: the optimizer's state in page-locked host memory */
    enum tt_prefetch backward_prefetch;
    bool forward_prefetch;
    bool limits_lead; /* of the host over the device, where ranks copy each other's shards (engine/lead.h) */
    tt_dtype reduce_dtype;
    size_t reserved_bytes;          /* of a plan: device memory that others take beside the rank */
    size_t workspace_bytes;         /* from the plan; ignored on the plan device */
    struct tt_pulse *pulse;         /* NULL or lent: this rank's */
    const struct tt_cancel *cancel; /* NULL or lent */
};

/* Host memory of an objective that compares rows; empty for an objective of single rows. */
struct tt_rank_rows {
    float *block; /* owns the memory of all arrays, each for the rows of the largest micro batch */
    float *logp_N, *ref_logp_N, *entropy_N, *mean_N, *squares_N, *scale_N, *folded_N;
    int32_t *correct_N;
    float *scores_BL, *dscores_BL; /* of a head with scores, for the sequences of the largest micro batch */
    double *tallies;               /* owned: [tally_count], of an objective that has some */
    size_t tally_count;
    double sums[TT_OBJECTIVE_SUMS], shared[TT_OBJECTIVE_SHARED_MAX];
    struct tt_step_lists lists;
};

/* The values before the training, of an objective that has a reference with other values than the model with adapters
 * off; empty for any other one. */
struct tt_rank_reference {
    bool has_values;            /* it is no model with adapters off: it has values of what trains */
    struct tt_buffer **masters; /* [model->unit_count], in device memory; NULL: nothing of the unit trains,
                                 * or no pass reads them any more (objective.precomputed) */
    struct tt_buffer *scratch;  /* of the largest of them */
};

struct tt_rank {
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_mesh mesh;
    struct tt_comm *world; /* of the mesh: all ranks */
    struct tt_objective objective;
    struct tt_rank_rows rows;
    struct tt_rank_reference reference;
    struct tt_model *model;
    struct tt_shard_context *shard;
    struct tt_unit **units; /* [model->unit_count] */
    bool split_vocabulary;  /* as in the configuration */
    const struct tt_optimizer *optimizer;
    struct tt_moments *moments;  /* [model->unit_count]; empty for frozen units */
    bool moments_in_host;        /* offload_params, or the plan chose it */
    struct tt_snapshot snapshot; /* empty unless config.saves */
    struct tt_workspace *workspace;
    struct tt_buffer *sums_buffer;          /* f64 (rank_sums.c) */
    struct tt_buffer *balance_buffer;       /* f32 (rank_balance.c); NULL: no such loss */
    struct tt_buffer *param_squares_buffer; /* f64 [model->param_count]; NULL without training */
    struct tt_batch_limits limits;
    struct tt_rank_tokens *tokens; /* the memory of micro batches; that of attachments by kind */
    struct tt_rank_attached attached[TT_ATTACHMENTS_MAX];
    int attached_count;
    struct tt_device_batch batch; /* of the current pass, as `results` */
    struct tt_pass_results results;
    struct tt_executor *executor;
};

/* A zeroed struct is empty; on error *rank is empty. */
TT_MUST_USE tt_status tt_rank_init(const struct tt_rank_config *config, struct tt_rank *rank);
void tt_rank_deinit(struct tt_rank *rank);
/* Loads all units from `source` and ends, on every rank with the same status, when all ranks have loaded.
 * Collective. */
struct tt_load_source;
TT_MUST_USE tt_status tt_rank_load(struct tt_rank *rank, const struct tt_load_source *source);
/* The same for a training that goes on: `begin` has the values that it began with, for the reference of its
 * objective. */
TT_MUST_USE tt_status tt_rank_load_again(struct tt_rank *rank, const struct tt_load_source *begin,
                                         const struct tt_load_source *source);

/* Other values of what trains in a rank that is loaded: those of an adapter, or of all weights. Collective. */
TT_MUST_USE tt_status tt_rank_load_values(struct tt_rank *rank, const struct tt_load_source *source);

/* Whether every unit is whole in this device's memory, so that a pass of this rank needs no transfers. */
bool tt_rank_is_at_hand(const struct tt_rank *rank);
/* The part of the rotations' tables that a sequence of `length` tokens reads. */
int tt_rank_rope_part(const struct tt_rank *rank, int64_t length);
/* Converts trainable values that have changed to the compute type, as a pass does before it reads them. */
TT_MUST_USE tt_status tt_rank_refresh(struct tt_rank *rank);

/* Call before a rank leaves a collective operation early, after a request to stop at once: the other ranks, which may
 * wait for it already, fail with TT_ERR_PEER instead of waiting for ever. */
void tt_rank_abandon(struct tt_rank *rank);

#endif
