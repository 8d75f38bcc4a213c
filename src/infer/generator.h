/* Text generation: greedy or sampled, with a key/value cache, with or without an adapter. One rank. */
#ifndef TT_INFER_GENERATOR_H
#define TT_INFER_GENERATOR_H

#include "job/parts.h"
#include "text/tokenizer.h"

struct tt_generate_options {
    int64_t max_new_tokens; /* >= 1 */
    bool sample;            /* false: greedy */
    double temperature;     /* > 0 */
    int64_t top_k;          /* draw from this many likeliest tokens; 0: all */
    double top_p;           /* draw from the likeliest tokens with this total probability; 1: all */
    uint64_t seed;
    bool ignore_eos;
};

/* Options from settings that tt_generate_resolve has resolved. */
struct tt_generate_options tt_generate_options_of(const struct tt_generate_config *config, int64_t seed);

struct tt_generator;
/* Loads the model (and adapter) of `inputs`, which are lent and must outlive the generator, for batches of up to
 * `batch_size` prompts of up to `max_prompt_tokens`. All memory of later runs is allocated here. */
struct tt_inputs;
TT_MUST_USE tt_status tt_generator_create(const struct tt_device_spec *device, const struct tt_inputs *inputs,
                                          int64_t batch_size, int64_t max_prompt_tokens,
                                          const struct tt_generate_options *options,
                                          struct tt_generator **out);
void tt_generator_destroy(struct tt_generator *generator); /* takes NULL */
/* Called with each new token of sequence `index`; returning false ends that sequence. */
typedef bool tt_generate_visitor(void *context, int index, int32_t token);
/* Completes prompts[count], lists of ids, count <= batch_size. Appends the new ids (without the end token) to
 * outputs[i]. `visitor` may be NULL. TT_ERR_DATA for a prompt that is empty, too long, or has an unknown id. */
TT_MUST_USE tt_status tt_generator_run(struct tt_generator *generator, const struct tt_ids *prompts,
                                       int count, struct tt_ids *outputs, tt_generate_visitor *visitor,
                                       void *context);

#endif
