/* For tests: a model with all its parameters in the memory of one CPU device, run forward and backward without shards.
 * Values lie as src/shard lays them: per block the frozen ones aligned to 64 bytes, the trainable ones without gaps.
 * Failing calls fail the running test. */
#ifndef TT_TESTS_SUPPORT_MODEL_RUNNER_H
#define TT_TESTS_SUPPORT_MODEL_RUNNER_H

#include "model/model.h"

struct tt_model_runner {
    struct tt_model *model;
    struct tt_device *device;
    struct tt_stream *stream;
    struct tt_workspace *workspace;
    struct tt_pass pass; /* tests set in.dropout_rng, in.training, in.label_smoothing, lent.cache */
    struct tt_device_batch batch;
    struct tt_pass_results results;
    struct tt_buffer *buffers[256]; /* values, gradients, rope tables, the batch */
    int buffer_count;
    int batch_first; /* buffers from here on belong to the batch */
};

/* `folder`: model folder whose config.json is read (or `config_name` in that folder's parent when not NULL). */
void tt_runner_read_config(const char *folder, const char *config_name, struct tt_model_facts *config);
struct tt_model_runner *tt_runner_create(const struct tt_model_facts *config,
                                         const struct tt_model_options *options);
void tt_runner_destroy(struct tt_model_runner *runner);
/* Every parameter from the folder, adapters from adapter_model.safetensors (NULL: adapters keep their values). */
void tt_runner_load(struct tt_model_runner *runner, const char *folder, const char *adapter);
/* Matrices normal * scale, norms 1 + normal * scale, biases and LoRA's B too: nothing is at a special value. */
void tt_runner_fill(struct tt_model_runner *runner, uint64_t seed, double scale);
/* Sequences one after the other. labels: per token, -100 for none; NULL: every token is a row, with label 0. The
 * positions start after what pass.lent.cache holds. */
void tt_runner_set_batch(struct tt_model_runner *runner, const int32_t *ids, const int64_t *lengths,
                         int64_t sequence_count, const int32_t *labels);
/* logits [rows, V] */
void tt_runner_logits(struct tt_model_runner *runner, float *logits);
/* Sum of the rows' losses times pass.in.loss_scale; with `gradient` also the backward pass, which adds to all grads. */
double tt_runner_loss(struct tt_model_runner *runner, bool gradient);
void tt_runner_zero_grad(struct tt_model_runner *runner);

#endif
