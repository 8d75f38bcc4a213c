/* For tests: a model with all its parameters in the memory of one CPU device, run forward and backward without
 * shards. Values have the layout of src/shard: per block the frozen ones aligned to 64 bytes, the trainable ones
 * without gaps. A failing call fails the running test. */
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
    struct tt_side_value *sides;    /* [model->side_count] */
    struct tt_buffer *buffers[256]; /* values, gradients, rope tables, the batch */
    int buffer_count;
    int batch_first; /* first buffer of the batch */
    struct tt_rope_parts rope_parts;
};

/* Reads config.json of the model folder `folder` (or `config_name` in its parent, when not NULL). */
void tt_runner_read_config(const char *folder, const char *config_name, struct tt_model_facts *config);
struct tt_model_runner *tt_runner_create(const struct tt_model_facts *config,
                                         const struct tt_model_options *options);
void tt_runner_destroy(struct tt_model_runner *runner);
/* Loads every parameter from the folder, adapters from adapter_model.safetensors (NULL: adapters keep their values). */
void tt_runner_load(struct tt_model_runner *runner, const char *folder, const char *adapter);
/* Fills matrices with normal * scale, norms with 1 + normal * scale, biases and LoRA's B too: no special values. */
void tt_runner_fill(struct tt_model_runner *runner, uint64_t seed, double scale);
/* Sets a batch of consecutive sequences. labels: per token, -100 for none; NULL: every token is a row, with
 * label 0. The positions follow those in pass.lent.cache. */
void tt_runner_set_batch(struct tt_model_runner *runner, const int32_t *ids, const int64_t *lengths,
                         int64_t sequence_count, const int32_t *labels);
/* logits [rows, V] */
void tt_runner_logits(struct tt_model_runner *runner, float *logits);
/* Sum of the rows' losses times pass.in.loss_scale; with `gradient` also the backward pass, which adds to all grads. */
double tt_runner_loss(struct tt_model_runner *runner, bool gradient);
/* Pushes the side values of a pass, as a caller of blocks must; the caller releases the workspace. */
void tt_runner_push_sides(struct tt_model_runner *runner);
void tt_runner_zero_grad(struct tt_model_runner *runner);

#endif
