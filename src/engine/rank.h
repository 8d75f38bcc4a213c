/* A rank: one device and everything that belongs to it, built once and destroyed once in reverse order,
 * driven by one thread. The same code builds the rank that trains and the rank on the plan device that only
 * counts.
 *
 *     device -> stream -> model (specs) -> shard context -> units -> optimizer state -> batch buffers -> workspace
 */
#ifndef TT_ENGINE_RANK_H
#define TT_ENGINE_RANK_H

#include "checkpoint/state_snapshot.h"
#include "data/sampler.h"
#include "engine/executor.h"
#include "engine/mesh.h"
#include "objective/objective.h"
#include "optim/adamw.h"

struct tt_rank_config {
    struct tt_device_config device;
    struct tt_comm *world; /* lent: all ranks of the run, as the host reaches them */
    /* lent: the ranks that split a unit; NULL: the rank makes it (mesh.h) */
    struct tt_comm *comm;
    struct tt_comm *replicate_comm; /* lent, NULL unless HYBRID_SHARD; made with `comm` */
    int machine, local_rank;        /* world.h; by them HYBRID_SHARD splits the world */
    struct tt_mesh_shape mesh;
    enum tt_shard_strategy strategy;
    const struct tt_model_facts *model_facts;
    struct tt_model_options model_options;
    const struct tt_objective *objective; /* lent until the rank is made; NULL: sft */
    struct tt_batch_limits limits;        /* of training and evaluation micro batches together */
    bool across_processes;                /* not all ranks are threads of this process: GPUs then use NCCL */
    bool train;                           /* gradients, masters, optimizer state */
    bool saves, saves_state;     /* host memory for what a save writes; for the optimizer state too */
    enum tt_recompute recompute; /* what the plan may choose from */
    const enum tt_level *levels; /* [block_count], lent: what it chose; NULL: TT_KEEP_CHEAP */
    bool offload_params;         /* frozen shards and optimizer state in page-locked host memory */
    enum tt_prefetch backward_prefetch;
    bool forward_prefetch;
    tt_dtype reduce_dtype;
    size_t workspace_bytes;         /* from the plan; ignored on the plan device */
    struct tt_pulse *pulse;         /* NULL or lent: this rank's */
    const struct tt_cancel *cancel; /* NULL or lent */
};

/* Host memory of an objective that looks at many rows; empty where each row stands alone. */
struct tt_rank_rows {
    float *block; /* of all arrays; each has room for the rows of a micro batch */
    float *logp_N, *ref_logp_N, *entropy_N, *scale_N;
    int32_t *correct_N;
    double sums[TT_OBJECTIVE_SUMS];
};

struct tt_rank {
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_mesh mesh;
    struct tt_comm *world, *comm; /* of the mesh: all ranks, and those that split a unit */
    bool sharded;                 /* slices differ from rank to rank of `comm` */
    struct tt_objective objective;
    struct tt_rank_rows rows;
    struct tt_model *model;
    struct tt_shard_context *shard;
    struct tt_unit **units;       /* [model->unit_count] */
    struct tt_adamw_state *adamw; /* [model->unit_count]; empty ones where nothing trains */
    struct tt_snapshot snapshot;  /* empty unless config.saves */
    struct tt_workspace *workspace;
    struct tt_buffer *batch_buffer;
    struct tt_buffer *rope_buffer;
    struct tt_buffer *sums_buffer;          /* f64: those of the op loss_sums, then the sum of squares */
    struct tt_buffer *param_squares_buffer; /* f64 [model->param_count]; NULL when nothing trains */
    struct tt_rope_table ropes[TT_PASS_ROPES];
    struct tt_batch_limits limits;
    struct tt_device_batch batch; /* of the current pass, as `results` */
    struct tt_pass_results results;
    struct tt_executor *executor;
};

/* A zeroed struct is empty; on error everything built so far is gone again. */
TT_MUST_USE tt_status tt_rank_init(const struct tt_rank_config *config, struct tt_rank *rank);
void tt_rank_deinit(struct tt_rank *rank);
/* Loads all units from `source` and ends, on every rank with the same status, when all ranks have loaded.
 * Collective. */
struct tt_load_source;
TT_MUST_USE tt_status tt_rank_load(struct tt_rank *rank, const struct tt_load_source *source);

/* Copies a micro batch to the device and fills `pass`: lends this rank's services, without cache and exchange, and its
 * `results`, empty. The mode, the rng and the scale of the loss are then the caller's to set; scales of rows are the
 * objective's. */
TT_MUST_USE tt_status tt_rank_upload(struct tt_rank *rank, const struct tt_batch *batch,
                                     struct tt_pass *pass);

/* Before a rank leaves a collective piece of work on its own, because it was told to stop at once: the
 * others, who may wait for it already, fail with TT_ERR_PEER instead of waiting for ever. */
void tt_rank_abandon(struct tt_rank *rank);

/* Sums that the device keeps, so that the host need not wait for a pass: those of the objective, and that of squares of
 * gradients. All calls but the read only queue work. */
enum { TT_SUM_SQUARES = TT_OBJECTIVE_SUMS, TT_SUM_COUNT };
TT_MUST_USE tt_status tt_rank_clear_sums(struct tt_rank *rank);
/* The pass of the reference, where the objective has one: after tt_rank_upload, whose `pass` it leaves as it is.
 * Collective. */
TT_MUST_USE tt_status tt_rank_reference(struct tt_rank *rank, const struct tt_pass *pass);
/* After a forward pass: adds to the sums of the objective, and writes the scales of rows for backward where it has
 * such. These need the values of the pass, for which the host then waits. `counts`: of the whole step. */
TT_MUST_USE tt_status tt_rank_add_loss(struct tt_rank *rank, const struct tt_batch *batch,
                                       const struct tt_objective_counts *counts, const struct tt_pass *pass);
TT_MUST_USE tt_status tt_rank_add_squares(struct tt_rank *rank, const float *values,
                                          int64_t count); /* device memory */
/* Parts of tt_rank_init and tt_rank_add_loss (rank_rows.c): the memory of `rows`, after a check that the model has the
 * reference that the objective asks for; the objective's function. */
TT_MUST_USE tt_status tt_rank_rows_init(const struct tt_rank_config *config, struct tt_rank *rank);
TT_MUST_USE tt_status tt_rank_run_objective(struct tt_rank *rank, const struct tt_batch *batch,
                                            const struct tt_objective_counts *counts,
                                            const struct tt_pass *pass);
/* Waits for the device. */
TT_MUST_USE tt_status tt_rank_read_sums(struct tt_rank *rank, double sums[TT_SUM_COUNT]);
/* Adds the sum of squares of `count` fp32 values to squares[index] (device memory, tt_rank's param_squares).
 */
TT_MUST_USE tt_status tt_rank_add_param_squares(struct tt_rank *rank, size_t index, const float *values,
                                                int64_t count);
/* Reads all of param_squares ([model->param_count]) and clears them. */
TT_MUST_USE tt_status tt_rank_read_param_squares(struct tt_rank *rank, double *squares);

#endif
