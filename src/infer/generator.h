/* Completions of a list of prompts, over a generation team. */
#ifndef TT_INFER_GENERATOR_H
#define TT_INFER_GENERATOR_H

#include "base/thread.h"
#include "infer/generation_team.h"

struct tt_generate_options {
    int64_t max_new_tokens; /* >= 1 */
    struct tt_sampling_options sampling;
    uint64_t seed;
    bool ignore_eos;
    /* lent, of the prompts of a run: their adapter, -1: the base alone; NULL: the first one */
    const int *adapters;
    struct tt_span grammar; /* lent: that the completions follow (infer/generation_engine.h); empty: none */
};

/* Options from settings that tt_generate_resolve has resolved. */
struct tt_generate_options tt_generate_options_of(const struct tt_generate_config *config, int64_t seed);

struct tt_generator;
/* Loads the model (and adapter) of `inputs`, which are lent and must outlive the generator, for prompts of up to
 * `max_prompt_tokens`, of which `batch_size` are completed at the same time. All device memory of later runs is
 * allocated here. */
TT_MUST_USE tt_status tt_generator_create(const struct tt_device_spec *device, const struct tt_inputs *inputs,
                                          int64_t batch_size, int64_t max_prompt_tokens,
                                          const struct tt_generate_options *options,
                                          struct tt_generator **out);
/* The limits of such a generator, without pass_tokens; TT_ERR_USAGE where the model has fewer positions. */
TT_MUST_USE tt_status tt_generator_limits(const struct tt_inputs *inputs, int64_t batch_size,
                                          int64_t max_prompt_tokens,
                                          const struct tt_generate_options *options,
                                          struct tt_generation_limits *limits);
/* Borrows the team, which must outlive the generator; of several ranks only the leader has one. */
TT_MUST_USE tt_status tt_generator_borrow(struct tt_generation_team *team,
                                          const struct tt_generate_options *options,
                                          struct tt_generator **out);
void tt_generator_destroy(struct tt_generator *generator); /* takes NULL */

/* Calls during a run; either function may be NULL. `index`: of the prompt. */
struct tt_generate_visitor {
    bool (*token)(void *context, int index, int32_t token); /* a new token; false ends the completion */
    /* A completion has ended, without its end token. In the order of the prompts. An error ends the run. */
    tt_status (*done)(void *context, int index, const int32_t *ids, size_t count);
    void *context;
};
/* Completes prompts[count], lists of ids. Completion i of all that this generator has made draws with
 * tt_generation_seed(seed, i): the text does not depend on batch_size. TT_ERR_DATA for a prompt that is empty, too
 * long, or has an unknown id. After a request of `cancel` (NULL or lent) completions that have begun are done as they
 * are, and the run ends with TT_ERR_CANCELLED. */
TT_MUST_USE tt_status tt_generator_run(struct tt_generator *generator, const struct tt_ids *prompts,
                                       int count, const struct tt_generate_visitor *visitor,
                                       const struct tt_cancel *cancel);

#endif
