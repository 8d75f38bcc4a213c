/* The memory plan: the rank itself runs one training step and one evaluation pass on the plan device, which checks
 * every op, counts every byte and every microsecond, and computes nothing. The real rank then allocates the counted
 * memory.
 *
 * The plan also chooses the level of each block that has several (enum tt_level). The candidates form a sequence: every
 * block keeps everything, and then one block after the other takes a leaner level. Where blocks are alike, the first 1,
 * 2, ... all of them drop the tensors that are cheap to recompute, then the first 1, 2, ... all keep their input only.
 * Where they differ, as layers of other halves or the blocks of a tower do, a run with all blocks at each level counts
 * the bytes and the compute of every block: blocks with the same numbers are of a kind, and the steps of the kinds
 * follow each other by the bytes that they win for a second of compute (plan_path.c). Last of all the inputs of blocks
 * move to the host. A block without a level passes it over.
 *
 * Along the sequence memory falls and time rises, so the fastest candidate that fits is found by bisection; each
 * attempt is a whole run on the plan device. The first blocks of a kind change level first because their backward runs
 * last: by then the memory of all other blocks is free. Where some inputs have to move to the host, all those move
 * whose copies cost no time. If nothing fits and the
 * optimizer is a paged one, the same is tried with its state in host memory; then with the vocabulary split: embedding
 * and head are gathered in parts no larger than a layer (engine/rank_units.c), which costs transfers. Parts of a table
 * whose unit other blocks use, as that of embeddings for each layer beside a tied matrix, save transfers: there they
 * are taken where the step is faster with them.
 *
 * Memory that the fastest candidate leaves saves gathers: with TT_UNSHARDED_AUTO as many blocks stay whole on every
 * rank as fit into three quarters of the GPU's memory.
 */
#ifndef TT_ENGINE_PLAN_H
#define TT_ENGINE_PLAN_H

#include "engine/rank.h"

enum {
    TT_PLAN_ADVICE_BYTES = 240,
    TT_PLAN_PROMPTS_BYTES = 240,
    TT_PLAN_RANKS_MAX = 4096,
    TT_PLAN_BLOCKS_MAX = TT_MODEL_LAYERS_MAX + 2
};

/* The ranks of a run, and the machines, each with the same number of them. */
struct tt_plan_ranks {
    int count, machines;
};

struct tt_plan {
    struct tt_plan_ranks ranks;
    enum tt_level levels[TT_PLAN_BLOCKS_MAX]; /* [block_count] */
    unsigned choices[TT_PLAN_BLOCKS_MAX];     /* [block_count]: tt_block_levels */
    int block_count;
    int expert_parallel;         /* ranks that share the experts of a layer; 1: every rank gathers them */
    struct tt_memory_use memory; /* buffers of one rank: peak by purpose, on the device and on the host */
    size_t workspace_bytes;      /* of the activations: kept results, scratch, chunks of logits */
    size_t kept_bytes;           /* of the workspace: results that forward keeps for backward */
    /* The rest is used in turn by, among others: */
    size_t attention_bytes, logits_bytes;
    bool page_moments; /* the optimizer's state is in host memory, because it did not fit (paged_adamw_...) */
    bool split_vocabulary; /* embedding and head are gathered in parts */
    int unsharded_blocks;  /* blocks, from the first, whose weights stay whole on every rank */
    size_t limit_bytes;    /* of one rank on its device; 0: no limit */
    /* Pages, on processors, that a run's process had before it made its ranks: program, tokenizer, data. */
    size_t program_bytes;
    struct tt_machine_memory machine; /* whose share is the limit; bytes 0: the limit is the device's own */
    int threads;                      /* of a rank on processors */
    int64_t found_batch;              /* of an offline plan: what auto_find_batch_size found; 0: nothing */
    bool fits;                        /* tt_plan_need is within the limit */
    double step_seconds;              /* estimate of one optimizer step; 0 without training */
    int64_t step_count;               /* of a rank in that step, at most, in `unit` */
    enum tt_count_unit unit;
    /* if the plan does not fit: settings that would, with their memory; empty: no attempt fitted */
    char advice[TT_PLAN_ADVICE_BYTES];
    bool may_quantize;                    /* the base is frozen and not yet in 4 or 8 bits */
    bool is_host;                         /* the device's memory is the host's */
    int64_t trainable_count, param_count; /* parameters, as PEFT counts them */
    char device[96];                      /* the planned device: "h200", "cpu" */
    char prompts[TT_PLAN_PROMPTS_BYTES];  /* a line about those of rows with several answers; empty: none */
};

/* `rank` is the configuration of the real rank; its device, communicators, levels and workspace size are replaced. A
 * device of kind "plan" plans for the chip in stands_for. The limit is device.memory_limit, else the memory of the
 * GPU, or on CPUs a rank's share of device.machine. On CPUs without memory_limit other programs share the memory: with
 * TT_RECOMPUTE_AUTO runs with all blocks at two levels count whether recomputation leaves little (plan.c); the share
 * chooses nothing, so that all machines of a run choose alike. `eval_limits` may be all 0; `micro_steps` make one
 * optimizer step. A plan that does not fit is not an error (`fits`), so that it can be printed; see tt_plan_check.
 * Fails as the real rank would (TT_ERR_UNSUPPORTED for an unsupported op). */
TT_MUST_USE tt_status tt_plan_make(const struct tt_rank_config *rank, struct tt_plan_ranks ranks,
                                   int64_t micro_steps, const struct tt_batch_limits *train_limits,
                                   const struct tt_batch_limits *eval_limits, struct tt_plan *plan);
/* The same without advice, for callers that try many runs. */
TT_MUST_USE tt_status tt_plan_try(const struct tt_rank_config *rank, struct tt_plan_ranks ranks,
                                  int64_t micro_steps, const struct tt_batch_limits *train_limits,
                                  const struct tt_batch_limits *eval_limits, struct tt_plan *plan);
/* The largest value from 1 to `most` of which `fits` says so; 0: none. Of those that fit, all smaller ones must. */
typedef tt_status tt_plan_fits(void *context, int64_t value, bool *fits);
TT_MUST_USE tt_status tt_plan_find_largest(int64_t most, tt_plan_fits *fits, void *context, int64_t *found);
/* The need of one rank for the memory that is limited: of a device its buffers; of a machine's share those in host
 * memory and the rank's part of the program too. */
size_t tt_plan_need(const struct tt_plan *plan);
/* TT_ERR_MEMORY, with the advice as hint, when it does not fit. */
TT_MUST_USE tt_status tt_plan_check(const struct tt_plan *plan);
/* The same for the memory of a machine: TT_ERR_MEMORY where its ranks, with the program and their page-locked buffers,
 * need more. */
TT_MUST_USE tt_status tt_plan_check_host(const struct tt_plan *plan, const struct tt_machine_memory *machine);
/* Both, with the memory of this machine. */
TT_MUST_USE tt_status tt_plan_check_here(const struct tt_plan *plan, int ranks);

/* Rows of the table: the purposes with memory; the workspace has two rows, for kept results and for the rest. */
struct tt_plan_row {
    const char *key;  /* "weights_shard" */
    const char *name; /* "weights shard" */
    size_t bytes;
};
enum { TT_PLAN_ROWS_MAX = TT_PURPOSE_COUNT + 1 };
/* "weights_shard", ...: memory of this purpose in a plan's JSON. */
const char *tt_plan_purpose_key(enum tt_purpose purpose);
/* Returns the number of rows. */
int tt_plan_rows(const struct tt_plan *plan, struct tt_plan_row rows[TT_PLAN_ROWS_MAX]);

/* Whether the plan chooses among levels of block `index`. */
bool tt_plan_chooses(const struct tt_plan *plan, int index);
/* "recompute none", or "recompute block in 12 of 48 layers, cheap in 36"; returns `text`. */
const char *tt_plan_recompute_text(const struct tt_plan *plan, char *text, size_t text_bytes);
/* step_seconds for display; 0 on processors, which differ too much for an estimate. */
double tt_plan_estimate(const struct tt_plan *plan);
/* The table of bytes by purpose, and the estimated time of a step. */
TT_MUST_USE tt_status tt_plan_format(const struct tt_plan *plan, struct tt_str *text);
/* The table after a run: planned and measured, side by side. */
TT_MUST_USE tt_status tt_plan_compare(const struct tt_plan *plan, struct tt_device *device,
                                      struct tt_str *text);

#endif
