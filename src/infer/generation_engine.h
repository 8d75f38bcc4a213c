/* Generation with continuous batching: requests enter and leave while others run. A request is a list of token ids
 * and its answer another; text is the caller's subject (text/tokenizer.h, data/chat.h).
 *
 *     open (or attach) -> submit ... -> step, poll, submit, cancel, release, step ... -> destroy
 *
 * The engine has `slots` sequences of a key/value cache. A waiting request takes a free slot; each step is one pass
 * of the model over the next token of every running request and over parts of new prompts ("chunks"), at most
 * `pass_tokens` tokens in all, so that a long prompt does not stop the others. A finished request leaves its slot
 * at once. Requests with different adapters, and without one, may run together: such a step makes a pass for each.
 *
 * A slot keeps its keys and values after its request has ended. A new request whose prompt begins with the same ids
 * continues from them: a conversation computes only its new turn, and requests with one system prompt compute it
 * once. Layers with a state save it for that behind blocks of prompts (docs/models.md).
 *
 * What a request generates depends on the request alone, not on the others in the batch, their order or the limits:
 * a draw is a pure function of (seed, number of the new token). (In bf16, where sums of other lengths round
 * differently, this holds as far as the device's products do not depend on the number of rows.)
 *
 * Threads: an engine belongs to one thread at a time; a server's other threads hand their requests over by a queue
 * of their own. Nothing here waits, except for the device in step. */
#ifndef TT_INFER_GENERATION_ENGINE_H
#define TT_INFER_GENERATION_ENGINE_H

#include "infer/adjust.h"
#include "base/str.h"
#include "infer/logprobs.h"
#include "infer/sampling.h"
#include "infer/token_rules.h"
#include "job/parts.h"
#include "text/tokenizer.h"

struct tt_inputs;
struct tt_comm;
struct tt_device;
struct tt_generation_engine;

struct tt_generation_limits {
    int64_t slots;  /* requests that run at the same time, >= 1 */
    int64_t length; /* tokens of a request, prompt and answer together, >= 2; at most the model's positions */
    int64_t pass_tokens; /* of one pass; 0: chosen. Raised to slots + 16 where it is less */
    int64_t waiting;     /* requests that wait for a slot; 0: any number */
    /* Tokens of a pass that have logits, at most pass_tokens; 0: one of each slot. More of them give log p of prompts
     * in fewer passes. */
    int64_t rows;
    bool adjusts; /* memory for requests that change logits (infer/adjust.h) */
    bool packs;   /* on a CPU: weights are packed once (infer/packed_weights.h) */
    /* where memory does not suffice, slots are halved down to this; 0: they are as asked */
    int64_t slots_least;
};

/* Rows of a pass that may have logits, at least one for each slot. `pass_tokens` is filled in. */
int64_t tt_generation_rows(const struct tt_generation_limits *limits);

enum { TT_STOP_IDS_MAX = 128 };

/* All lent for the call of submit, which copies what it keeps. */
struct tt_generation_request {
    const int32_t *prompt;
    size_t prompt_count;    /* >= 1 */
    int64_t max_new_tokens; /* >= 0; prompt_count + max_new_tokens <= limits.length */
    struct tt_sampling_options sampling;
    uint64_t seed;
    const int32_t *stop_ids; /* end the answer too, besides the model's end tokens */
    size_t stop_count;       /* at most TT_STOP_IDS_MAX */
    struct tt_adjust_options adjust;
    struct tt_token_rules rules;
    bool ignore_end;  /* the model's end tokens do not end the answer */
    bool adapter_off; /* the base alone */
    int adapter;      /* number of the adapter among those of the inputs */
    bool wants_logprobs;
    int top_logprobs; /* of the likeliest tokens, 0 .. TT_TOP_LOGPROBS_MAX */
    /* The same for the tokens of the prompt behind the first. Beginnings whose log p a slot still has are not
     * computed again. */
    bool wants_prompt_logprobs;
    int prompt_top_logprobs;
    /* The source of a grammar that the answer follows (grammar/grammar.h), which tt_generation_check_grammar
     * accepts; empty: none. End tokens come where the text may end, and the answer ends by itself where nothing may
     * follow. */
    struct tt_span grammar;
};

enum tt_generation_state {
    TT_GENERATION_WAITING,
    TT_GENERATION_RUNNING,
    TT_GENERATION_ENDED,  /* by its grammar, or by an end token or stop id, which is not among the tokens */
    TT_GENERATION_LENGTH, /* max_new_tokens are there */
    TT_GENERATION_CANCELLED,
};

/* Pointers are lent until the next call with this engine. */
struct tt_generation_progress {
    enum tt_generation_state state;
    const int32_t *tokens; /* all new ids so far */
    size_t count;
    /* Where they are wanted: of the tokens, and of the id that ended the answer. */
    const struct tt_token_logprobs *logprobs;
    size_t logprob_count;
    /* Where they are wanted: of the prompt's second token, its third ..., all of them once the answer begins. */
    const struct tt_token_logprobs *prompt_logprobs;
    size_t prompt_logprob_count;
    int32_t end_id;       /* the id that ended it; -1: none */
    size_t prompt_done;   /* tokens of the prompt that are in the cache */
    size_t prompt_reused; /* of these, computed for an earlier request */
};
static inline bool tt_generation_is_finished(enum tt_generation_state state)
{
    return state >= TT_GENERATION_ENDED;
}

/* Loads the model (and adapter) of `inputs` on one rank. `inputs` is lent and must outlive the engine. All device
 * memory is allocated here. TT_ERR_USAGE for limits that the model cannot hold, TT_ERR_MEMORY where they do not
 * fit. */
TT_MUST_USE tt_status tt_generation_open(const struct tt_device_spec *device, const struct tt_inputs *inputs,
                                         const struct tt_generation_limits *limits,
                                         struct tt_generation_engine **out);
/* Borrows a loaded rank, which must outlive the engine and must run nothing else during a step. Its plan holds the
 * generation (infer/generation_rank.h: tt_generation_plan, tt_batch_limits_join), and limits->pass_tokens is filled
 * in. Where the rank is one of several, each makes an engine with the same limits and submits requests of its own;
 * step is then collective: all ranks call it until it is not busy, also those that have no requests. */
struct tt_rank;
TT_MUST_USE tt_status tt_generation_attach(struct tt_rank *rank, const struct tt_inputs *inputs,
                                           const struct tt_generation_limits *limits,
                                           struct tt_generation_engine **out);
void tt_generation_destroy(struct tt_generation_engine *engine); /* takes NULL */

/* The seed of number `index` of requests that share one; of the first it is `seed` itself. */
uint64_t tt_generation_seed(uint64_t seed, uint64_t index);

/* Places for adapters, at least 1 (model options: adapter_places). */
size_t tt_generation_count_adapters(const struct tt_generation_engine *engine);
/* Loads the adapter of a folder into a place; what the place had is gone, and requests that run with it are cancelled.
 * *verdict: why the adapter was refused, with the error record of this rank, and the engine goes on. Collective.
 * TT_ERR_UNSUPPORTED in *verdict: no places were reserved. */
TT_MUST_USE tt_status tt_generation_load_adapter(struct tt_generation_engine *engine, const char *folder,
                                                 int place, tt_status *verdict);

/* The request after defaults were filled in. */
const struct tt_generation_limits *tt_generation_limits_of(const struct tt_generation_engine *engine);
bool tt_generation_has_adapter(const struct tt_generation_engine *engine);
/* Lent: all ranks of the run; the device of this rank. */
struct tt_comm *tt_generation_world(const struct tt_generation_engine *engine);
struct tt_device *tt_generation_device(const struct tt_generation_engine *engine);

/* The checks of submit. */
TT_MUST_USE tt_status tt_generation_check(const struct tt_generation_engine *engine,
                                          const struct tt_generation_request *request);

/* Compiles the source of a grammar, which is kept for a request that follows. Any thread. Errors as of
 * tt_constraints_get. */
TT_MUST_USE tt_status tt_generation_check_grammar(const struct tt_generation_engine *engine,
                                                  struct tt_span source);

/* Queues a request, with all the memory that its answer needs, and stores its id, >= 1, never used again by this
 * engine. TT_ERR_DATA: an empty or too long prompt
 * or an unknown id; TT_ERR_USAGE: a value out of range; TT_ERR_MEMORY. A full queue is TT_ERR_USAGE: ask
 * tt_generation_load_of first. An error leaves the engine as it was. */
TT_MUST_USE tt_status tt_generation_submit(struct tt_generation_engine *engine,
                                           const struct tt_generation_request *request, int64_t *id);
/* Called after the weights have changed: nothing that was computed is used again. No request may run. */
void tt_generation_forget(struct tt_generation_engine *engine);
/* Runs one step. *busy: requests still wait or run. At most one token is added to each running request. An error of a
 * step (device, memory) is for all requests: destroy the engine then. Without requests it does nothing. */
TT_MUST_USE tt_status tt_generation_step(struct tt_generation_engine *engine, bool *busy);
/* TT_ERR_USAGE for an id that is unknown or was released. */
TT_MUST_USE tt_status tt_generation_poll(const struct tt_generation_engine *engine, int64_t id,
                                         struct tt_generation_progress *progress);
/* Ends a request at once; its answer so far stays until release. No effect on a finished or unknown one. */
void tt_generation_cancel(struct tt_generation_engine *engine, int64_t id);
/* Forgets a request; cancels it first if it has not finished. Every id must be released, else its memory is held
 * until the engine is destroyed. No effect on an unknown id. */
void tt_generation_release(struct tt_generation_engine *engine, int64_t id);

struct tt_generation_load {
    size_t waiting, running, finished; /* finished: not released */
    int64_t passes, tokens;            /* since the engine was made: passes, and tokens in them */
    int64_t recorded;                  /* of the passes: launched as one recorded piece of work */
    int64_t generated, reused;         /* new tokens; tokens of prompts that were not computed again */
    int64_t cached;                    /* tokens that the cache holds now */
};
struct tt_generation_load tt_generation_load_of(const struct tt_generation_engine *engine);

#endif
