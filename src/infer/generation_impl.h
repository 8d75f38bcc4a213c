/* The engine's state, for generation_engine.c (opening, requests) and generation_step.c (slots, passes) only. */
#ifndef TT_INFER_GENERATION_IMPL_H
#define TT_INFER_GENERATION_IMPL_H

#include "base/rng.h"
#include "infer/constraint.h"
#include "infer/generation_engine.h"
#include "infer/generation_rank.h"
#include "job/inputs.h"

struct request {
    int64_t id;
    struct tt_ids ids; /* the prompt, then the answer */
    size_t prompt_count, reused, done;
    int64_t cuts[2]; /* tokens of its prompt behind which a state is saved, ascending; 0: none */
    int64_t max_new_tokens;
    struct tt_sampling_options sampling;
    struct tt_rng rng;
    struct tt_ids stops;
    bool adjusts;
    struct tt_adjustment adjustment;
    bool ignore_end;
    int adapter; /* -1: the base alone */
    bool wants_logprobs;
    int top_logprobs;
    struct tt_logprob_list logprobs; /* of the answer, and of its end */
    bool wants_prompt;
    int prompt_top;
    struct tt_logprob_list prompt_logprobs; /* of the prompt's second token, its third ... */
    struct tt_logprob_list spare;           /* empty memory for them, for a slot that has less */
    struct tt_grammar_matcher *matcher;     /* of its grammar; NULL: none */
    struct tt_ids allowed, banned;          /* of its rules of tokens */
    enum tt_generation_state state;
    int32_t end_id;
};

/* A sequence of the cache. The ids that it holds are those of its last request, as far as the cache has them. */
struct slot {
    struct request *request; /* NULL: free */
    int32_t *ids;            /* [length] */
    int adapter;             /* that they were computed with */
    int rope_part;     /* of the tables of rotary angles, which they were computed with (model/model.h) */
    int64_t last_used; /* number of the pass */
    int64_t added;     /* tokens of the current pass */
    /* Log p of ids[1], ids[2] ..., with known_top of the likeliest, as far as requests wanted them. */
    struct tt_logprob_list known;
    int known_top;
};

/* Host arrays of the next pass. */
struct pass_arrays {
    int32_t *ids, *positions, *reached, *labels, *borders, *rows;
    int64_t *row_keys;
    int *slot_of_row;
    int32_t *adapters, *row_adapters; /* of the tokens, of the rows; -1: none */
    bool *wanted;                     /* rows with log p */
    struct tt_sample_rule *rules;     /* of the rows */
};

struct tt_generation_engine {
    const struct tt_inputs *inputs;
    struct tt_generation_limits limits;
    struct tt_generation_rank rank;
    bool shared; /* with other ranks, which run each pass together */
    struct tt_ids end_ids;
    int64_t rows;              /* of a pass, at most */
    struct request **requests; /* ascending ids */
    size_t count, capacity;
    int64_t last_id;
    struct slot *slots;
    int32_t *slot_ids; /* of all slots */
    struct pass_arrays arrays;
    struct tt_adjust_list adjust; /* of the next pass; empty unless the limits say so */
    struct tt_constraints *constraints;
    uint32_t *mask; /* of one row */
    struct tt_generation_load load;
};

/* Forgets the log p that a slot knows behind its first `count` ones. */
void tt_generation_unlearn(struct slot *slot, size_t count);
/* Ends a waiting or running request in `state` and frees its slot. */
void tt_generation_finish(struct tt_generation_engine *engine, struct request *request,
                          enum tt_generation_state state);

#endif
