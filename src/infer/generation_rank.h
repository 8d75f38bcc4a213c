/* The rank of a generation: the model, its key/value cache, and the memory of its largest pass. */
#ifndef TT_INFER_GENERATION_RANK_H
#define TT_INFER_GENERATION_RANK_H

#include "engine/plan.h"
#include "engine/rank.h"
#include "engine/rank_config.h"
#include "infer/generation_engine.h"
#include "nn/kv_cache.h"

/* The adapters of a pass's rows, as numbers of those that lie side by side (infer/adapter_set.h). */
struct tt_generation_adapters {
    bool off;                           /* no row has one */
    bool mixed;                         /* rows have one of several, or none; else all have `first` */
    int64_t first, count;               /* that any row has */
    const int32_t *of_tokens, *of_rows; /* lent: -1: none; may be NULL for a plan */
};

struct tt_generation_rank {
    struct tt_rank *rank; /* `own`, or borrowed */
    struct tt_rank own;   /* with its communicator; empty where `rank` is borrowed */
    struct tt_comm *comm;
    struct tt_kv_cache *cache; /* `slots` sequences of `length` */
    /* for the op sample: rules, ids, and of each slot the tokens that it has seen, and a mask; adapters of rows */
    struct tt_buffer *choice;
    struct tt_buffer *tokens; /* host memory: the ids */
    uint32_t *seen;           /* host memory: the bits of one slot */
    struct tt_buffer *panels; /* of packed weights; NULL: none */
    int64_t slots, rows, pass_tokens;
    /* Set before each pass: rows whose logits come to the host, and how many of them there are. */
    const bool *wanted; /* lent */
    int64_t wanted_count;
    const struct tt_adjust_list *adjust; /* lent: the changes of logits of the pass; NULL: none */
    struct tt_buffer *adjust_buffer;     /* its copy on the device; NULL: there is none */
    int64_t adjust_entries;
    float *logits; /* host memory: of these rows, one after the other */
    int64_t logits_rows;
    struct tt_generation_single *single; /* passes of single tokens; NULL where the device is the host */
};

/* Plans, allocates and loads a rank of its own. Fills in `limits->pass_tokens`. A zeroed struct is empty, as is the
 * struct after an error. The struct must not move. */
TT_MUST_USE tt_status tt_generation_rank_init(const struct tt_device_spec *device,
                                              const struct tt_inputs *inputs,
                                              struct tt_generation_limits *limits,
                                              struct tt_generation_rank *rank);
/* Borrows a loaded rank whose plan has tt_generation_plan: only the cache and the memory of choices are
 * allocated. */
TT_MUST_USE tt_status tt_generation_rank_attach(struct tt_rank *borrowed,
                                                const struct tt_generation_limits *limits,
                                                struct tt_generation_rank *rank);
/* Entries of changes of logits in one pass, at most. */
int64_t tt_generation_adjust_entries(const struct tt_generation_limits *limits);
void tt_generation_rank_deinit(struct tt_generation_rank *rank);

/* Sets the ids that the sequence of a slot has seen, for rules with a penalty; each pass adds the id that it
 * chooses. */
TT_MUST_USE tt_status tt_generation_rank_see(struct tt_generation_rank *rank, int64_t slot,
                                             const int32_t *ids, size_t count);
/* Sets the mask of a slot, for rules that name it: tt_sample_seen_words words. */
TT_MUST_USE tt_status tt_generation_rank_mask(struct tt_generation_rank *rank, int64_t slot,
                                              const uint32_t *words);
/* Runs one pass over the new tokens of the sequences, appends them to the cache, and chooses a token for each row by
 * rules[rows], whose seen_row is a slot. *tokens: [rows], lent until the next pass. tt_generation_rank_end follows each
 * pass, also a failed one. */
TT_MUST_USE tt_status tt_generation_rank_pass(struct tt_generation_rank *rank, const struct tt_batch *batch,
                                              const struct tt_sample_rule *rules,
                                              const struct tt_generation_adapters *adapters,
                                              const int32_t **tokens);
void tt_generation_rank_end(struct tt_generation_rank *rank);
/* Whether a pass of single tokens is faster without parts of prompts in it: its work is queued as one piece
 * (infer/generation_single.h). */
bool tt_generation_rank_prefers_single(const struct tt_generation_rank *rank);

/* Called by generation_single.c: queues the work of a pass whose inputs are on the device, or uploads rules. */
TT_MUST_USE tt_status tt_generation_rank_queue(struct tt_generation_rank *rank, const struct tt_pass *pass);
TT_MUST_USE tt_status tt_generation_rank_lend(struct tt_generation_rank *rank,
                                              const struct tt_generation_adapters *adapters,
                                              const struct tt_batch *batch,
                                              const struct tt_sample_rule *rules, struct tt_pass *pass);

/* Requests at a time that are worth their memory on a GPU, where nobody asked for a number. */
enum { TT_GENERATION_SLOTS_OPEN = 256 };
/* Slots for `share` requests of a rank: `least`, and on GPUs TT_GENERATION_SLOTS_OPEN, which
 * tt_generation_limits_less lowers. */
void tt_generation_limits_open(const struct tt_device_config *device, int64_t share, int64_t least,
                               struct tt_generation_limits *limits);
/* Half of the slots, where limits has fewer. False: it has not. Fills in `pass_tokens` again. */
bool tt_generation_limits_less(const struct tt_device_config *device, struct tt_generation_limits *limits);
/* The plan takes, for more slots than the least, more than nine tenths of the device, or of its `unused` bytes. */
bool tt_generation_limits_are_tight(const struct tt_generation_limits *limits, const struct tt_plan *plan,
                                    uint64_t unused);
/* Fills in `pass_tokens`. */
void tt_generation_limits_fill(const struct tt_device_config *device, struct tt_generation_limits *limits);
/* The batches of a rank that generates; join them with those of its other passes (tt_batch_limits_join). */
struct tt_batch_limits tt_generation_batch_limits(const struct tt_generation_limits *limits);
/* How a rank that only generates holds the model. */
struct tt_generation_choice {
    struct tt_generation_limits limits;
    enum tt_shard_strategy strategy;
    bool open;     /* nobody asked for a strategy */
    int64_t slots; /* of limits, at first */
    bool split_vocabulary;
};
/* Plans such a rank. `rank`: its configuration, without devices and communicators. */
TT_MUST_USE tt_status tt_generation_plan_alone(const struct tt_shard_spec *shard,
                                               const struct tt_rank_layout *layout,
                                               const struct tt_model_facts *model,
                                               const struct tt_model_options *options,
                                               const struct tt_generation_choice *choice,
                                               struct tt_rank_config *rank, struct tt_plan *plan);
/* Where a plan does not fit: fewer slots, shards instead of the whole model with all slots again, then a vocabulary in
 * parts. False: no more. */
bool tt_generation_choose_less(const struct tt_rank_layout *layout, struct tt_generation_choice *choice);
/* The key/value cache of such a generation, for tt_rank_config.reserved_bytes. */
TT_MUST_USE tt_status tt_generation_cache_bytes(const struct tt_rank_config *config, int ranks,
                                                const struct tt_generation_limits *limits, size_t *bytes);
/* Adds a generation to the plan of a rank with the configuration `config`, whose limits are joined: its workspace,
 * where the other passes need less, the key/value cache, and the buffers of the joined batches. */
TT_MUST_USE tt_status tt_generation_plan(const struct tt_rank_config *config,
                                         const struct tt_generation_limits *limits, struct tt_plan *plan);

#endif
