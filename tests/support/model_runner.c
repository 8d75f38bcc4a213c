#include "support/model_runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "base/alloc.h"
#include "base/file.h"
#include "io/model_folder.h"
#include "io/quantized.h"
#include "model/adapter_config.h"
#include "nn/kv_cache.h"
#include "support/must.h"
#include "support/tuning.h"

/* With a large vocabulary the logits fill a whole chunk. */
enum { WORKSPACE_BYTES = 96 << 20, CHUNK_BYTES = 64 << 20, LARGE_VOCAB = 10000, ROPE_POSITIONS = 1024 };

void tt_runner_read_config(const char *folder, const char *config_name, struct tt_model_facts *config)
{
    struct tt_json json = {0};
    char path[1024];
    (void)snprintf(path, sizeof path, config_name != NULL ? "%s/../%s" : "%s/config.json", folder,
                   config_name);
    test_must(tt_json_read(path, 1 << 20, &json));
    test_must(tt_model_facts_parse(&json, config));
    tt_json_deinit(&json);
}

static void *new_buffer(struct tt_model_runner *runner, size_t bytes)
{
    assert_true(runner->buffer_count < (int)(sizeof runner->buffers / sizeof runner->buffers[0]));
    struct tt_buffer **buffer = &runner->buffers[runner->buffer_count++];
    test_must(tt_buffer_create(runner->device, bytes > 0 ? bytes : 1, TT_PURPOSE_WEIGHTS, buffer));
    return tt_buffer_data(*buffer);
}

static tt_tensor view(const tt_param *param, void *data, tt_dtype dtype)
{
    if (tt_param_is_quantized(param)) return tt_tensor_1d(data, dtype, (int64_t)param->quant.bytes);
    if (param->rank == 1) return tt_tensor_1d(data, dtype, param->dims[0]);
    if (param->rank == 3) return tt_tensor_3d(data, dtype, param->dims[0], param->dims[1], param->dims[2]);
    return tt_tensor_2d(data, dtype, param->dims[0], param->dims[1]);
}

static void place_block(struct tt_model_runner *runner, struct tt_block *block)
{
    size_t frozen = 0, trainable = 0, exact = 0;
    tt_dtype dtype = runner->model->options.compute_dtype;
    for (size_t i = 0; i < block->param_count; i++) {
        const tt_param *param = block->params[i];
        if (param->trainable) {
            trainable += (size_t)tt_param_count(param);
            exact += param->exact ? (size_t)tt_param_count(param) : 0;
        } else {
            frozen +=
                ((size_t)tt_param_stored_count(param) * tt_dtype_bytes(param->stored_dtype) + 63) / 64 * 64;
        }
    }
    char *frozen_at = new_buffer(runner, frozen),
         *value_at = new_buffer(runner, (trainable - exact) * tt_dtype_bytes(dtype)),
         *exact_at = new_buffer(runner, exact * sizeof(float));
    float *grad_at = new_buffer(runner, trainable * sizeof(float));
    for (size_t i = 0; i < block->param_count; i++) {
        tt_param *param = block->params[i];
        size_t count = (size_t)tt_param_stored_count(param);
        if (!tt_tensor_is_empty(param->value)) continue; /* tied: the embedding has allocated it */
        if (param->trainable) {
            param->value = param->exact ? view(param, exact_at, TT_F32) : view(param, value_at, dtype);
            param->grad = view(param, grad_at, TT_F32);
            *(param->exact ? &exact_at : &value_at) += tt_tensor_bytes(param->value);
            grad_at += count;
        } else {
            param->value = view(param, frozen_at, param->stored_dtype);
            frozen_at += (count * tt_dtype_bytes(param->stored_dtype) + 63) / 64 * 64;
        }
    }
}

static void make_rope(struct tt_model_runner *runner)
{
    const struct tt_model_facts *facts = &runner->model->facts;
    const struct tt_rope_parts *parts = &runner->rope_parts;
    tt_rope_parts_make(facts, ROPE_POSITIONS, &runner->rope_parts);
    for (int i = 0; i < facts->rope_count; i++) {
        int64_t half = facts->ropes[i].columns / 2;
        float *cos_PE = new_buffer(runner, (size_t)(parts->rows * half) * sizeof(float));
        float *sin_PE = new_buffer(runner, (size_t)(parts->rows * half) * sizeof(float));
        tt_model_fill_rope(&facts->ropes[i], parts, cos_PE, sin_PE);
        runner->pass.lent.ropes[i].cos_PE = tt_tensor_2d(cos_PE, TT_F32, parts->rows, half);
        runner->pass.lent.ropes[i].sin_PE = tt_tensor_2d(sin_PE, TT_F32, parts->rows, half);
    }
}

struct tt_model_runner *tt_runner_create(const struct tt_model_facts *config,
                                         const struct tt_model_options *options)
{
    struct tt_model_runner *runner = tt_calloc(1, sizeof *runner);
    assert_non_null(runner);
    test_must(tt_model_create(config, options, &runner->model));
    test_must(tt_device_open(&(struct tt_device_config){.kind = "cpu", .threads = 1, .tuning = test_tuning()},
                             &runner->device));
    test_must(tt_stream_create(runner->device, &runner->stream));
    size_t workspace_bytes = WORKSPACE_BYTES + (config->vocab_size > LARGE_VOCAB ? CHUNK_BYTES : 0);
    test_must(tt_workspace_create(runner->device, workspace_bytes, &runner->workspace));
    runner->pass = (struct tt_pass){
        .lent = {.stream = runner->stream, .workspace = runner->workspace},
        .in = {.batch = &runner->batch,
               .compute_dtype = options->compute_dtype,
               .dropout_rng = tt_rng_make(17),
               .loss_scale = 1},
        .out = &runner->results,
    };
    for (int i = 0; i < runner->model->block_count; i++) place_block(runner, &runner->model->blocks[i]);
    runner->sides = tt_calloc(runner->model->side_count + 1, sizeof *runner->sides);
    assert_non_null(runner->sides);
    runner->pass.lent.sides = runner->sides;
    make_rope(runner);
    runner->batch_first = runner->buffer_count;
    return runner;
}

static void drop_batch(struct tt_model_runner *runner)
{
    while (runner->buffer_count > runner->batch_first)
        tt_buffer_destroy(runner->buffers[--runner->buffer_count]);
}

void tt_runner_destroy(struct tt_model_runner *runner)
{
    if (runner == NULL) return;
    drop_batch(runner);
    while (runner->buffer_count > 0) tt_buffer_destroy(runner->buffers[--runner->buffer_count]);
    tt_free(runner->sides);
    tt_workspace_destroy(runner->workspace);
    tt_stream_destroy(runner->stream);
    tt_device_close(runner->device);
    tt_model_destroy(runner->model);
    tt_free(runner);
}

static void load_adapter_param(const struct tt_safetensors *adapter, const tt_param *param)
{
    char *key = tt_adapter_key(param->name);
    const struct tt_safetensors_entry *entry = tt_safetensors_find(adapter, key);
    if (entry == NULL) fail_msg("the adapter has no '%s'", key);
    tt_free(key);
    test_must(
        tt_safetensors_read(adapter, entry, 0, tt_param_count(param), param->value.data, param->value.dtype));
}

/* A matrix that the folder holds quantized, as stored. */
static void load_stored(const struct tt_model_folder *files, const tt_param *param, const char *source)
{
    struct tt_quantized stored;
    test_must(tt_quantized_find(files, source, &stored));
    if (param->quant.row_squares > 0) test_must(tt_quantized_in_blocks(&stored));
    assert_int_equal(stored.layout.bytes, param->quant.bytes);
    test_must(tt_quantized_read(files, &stored, 0, param->quant.bytes, param->value.data));
}

static tt_status copy_numbers(void *context, int64_t first, int64_t count, void *to)
{
    memcpy(to, (const float *)context + first, (size_t)count * sizeof(float));
    return TT_OK;
}

/* Experts in MXFP4, which the folder shows in numbers, quantized as loading does. */
static void load_quantized(const struct tt_model_folder *files, const tt_param *param, const char *source)
{
    const struct tt_quant_layout *layout = &param->quant;
    const struct tt_safetensors_entry *entry = tt_model_folder_find(files, source);
    float *numbers = tt_alloc_aligned((size_t)layout->count * sizeof *numbers);
    float *absmax = tt_alloc_aligned((size_t)layout->blocks * sizeof *absmax);
    assert_true(entry != NULL && numbers != NULL && absmax != NULL);
    test_must(tt_model_folder_read(files, entry, 0, layout->count, numbers, TT_F32));
    tt_quant_absmax(layout, 0, layout->blocks, numbers, TT_F32, absmax);
    struct tt_quant_source made = {.absmax = absmax,
                                   .offset = tt_quant_offset(layout, absmax),
                                   .dtype = TT_F32,
                                   .read = copy_numbers,
                                   .context = numbers};
    test_must(tt_quant_encode(layout, &made, 0, layout->bytes, param->value.data));
    tt_free(numbers);
    tt_free(absmax);
}

void tt_runner_load(struct tt_model_runner *runner, const char *folder, const char *adapter)
{
    struct tt_model_folder *files = NULL;
    struct tt_safetensors *adapter_file = NULL;
    test_must(tt_model_folder_open(folder, true, &files));
    test_must(tt_model_folder_join(files, &runner->model->facts.sources));
    if (adapter != NULL) {
        test_must(
            tt_adapter_open_for(adapter, &runner->model->facts, &runner->model->options.lora, &adapter_file));
    }
    size_t adapter_count = 0;
    for (size_t i = 0; i < runner->model->param_count; i++) {
        const tt_param *param = runner->model->params[i];
        const char *source = tt_model_source_name(runner->model, param);
        if (param->init == TT_INIT_TOKENS) {
            memcpy(param->value.data, param->tokens, (size_t)param->dims[0] * sizeof *param->tokens);
        } else if (param->adapter && adapter_file != NULL) {
            load_adapter_param(adapter_file, param);
            adapter_count++;
        } else if (source != NULL && tt_param_is_quantized(param)) {
            if (param->rank == 3)
                load_quantized(files, param, source);
            else
                load_stored(files, param, source);
        } else if (source != NULL) {
            const struct tt_safetensors_entry *entry = tt_model_folder_find(files, source);
            if (entry == NULL) fail_msg("the model folder has no '%s'", source);
            test_must(tt_model_folder_read(files, entry, 0, tt_param_count(param), param->value.data,
                                           param->value.dtype));
        }
    }
    /* Beside these an adapter may repeat tensors of the base. */
    if (adapter_file != NULL) assert_true(adapter_count <= tt_safetensors_count(adapter_file));
    tt_safetensors_close(adapter_file);
    tt_model_folder_close(files);
}

void tt_runner_fill(struct tt_model_runner *runner, uint64_t seed, double scale)
{
    for (size_t i = 0; i < runner->model->param_count; i++) {
        const tt_param *param = runner->model->params[i];
        struct tt_rng rng = tt_rng_derive(tt_rng_make(seed), param->name);
        double mean = strstr(param->name, "norm") != NULL ? 1 : 0;
        for (int64_t e = 0; e < tt_param_count(param); e++) {
            float value = (float)(mean + scale * tt_rng_normal(rng, (uint64_t)e));
            if (param->value.dtype == TT_F32) ((float *)param->value.data)[e] = value;
            if (param->value.dtype == TT_BF16) ((uint16_t *)param->value.data)[e] = tt_f32_to_bf16(value);
        }
    }
}

void tt_runner_set_batch(struct tt_model_runner *runner, const int32_t *ids, const int64_t *lengths,
                         int64_t sequence_count, const int32_t *labels)
{
    struct tt_device_batch *batch = &runner->batch;
    int64_t tokens = 0, rows = 0;
    drop_batch(runner);
    *batch = (struct tt_device_batch){.sequence_count = sequence_count};
    for (int64_t b = 0; b < sequence_count; b++) tokens += lengths[b];
    int32_t *id = new_buffer(runner, (size_t)tokens * 4), *position = new_buffer(runner, (size_t)tokens * 4);
    int64_t *key = new_buffer(runner, (size_t)tokens * 8);
    int32_t *border = new_buffer(runner, (size_t)(sequence_count + 1) * 4);
    int32_t *row = new_buffer(runner, (size_t)tokens * 4), *label = new_buffer(runner, (size_t)tokens * 4);
    int64_t t = 0;
    for (int64_t b = 0; b < sequence_count; b++) {
        int64_t held = runner->pass.lent.cache != NULL ? tt_kv_cache_length(runner->pass.lent.cache, b) : 0;
        int part = tt_rope_part_of(&runner->rope_parts, held + lengths[b]);
        for (int64_t i = 0; i < lengths[b]; i++, t++) {
            id[t] = ids[t];
            position[t] = (int32_t)(runner->rope_parts.first_rows[part] + held + i);
            key[t] = (b << 24) | (held + i);
            if (labels != NULL && labels[t] < 0) continue;
            row[rows] = (int32_t)t;
            label[rows++] = labels != NULL ? labels[t] : 0;
        }
        border[b + 1] = (int32_t)t;
        if (lengths[b] > batch->max_length) batch->max_length = lengths[b];
    }
    batch->token_count = tokens;
    batch->ids_T = tt_tensor_1d(id, TT_I32, tokens);
    batch->rope_rows_T = tt_tensor_1d(position, TT_I32, tokens);
    batch->row_keys_T = tt_tensor_1d(key, TT_I64, tokens);
    batch->cu_seqlens = tt_tensor_1d(border, TT_I32, sequence_count + 1);
    batch->host_cu_seqlens = border;
    batch->row_count = rows;
    batch->rows_N = tt_tensor_1d(row, TT_I32, rows);
    batch->labels_N = tt_tensor_1d(label, TT_I32, rows);
}

static tt_tensor new_activation(struct tt_model_runner *runner)
{
    tt_tensor tensor;
    test_must(tt_workspace_2d(runner->workspace, "activation", runner->pass.in.compute_dtype,
                              runner->batch.token_count, runner->model->facts.hidden_size, &tensor));
    return tensor;
}

void tt_runner_push_sides(struct tt_model_runner *runner)
{
    const struct tt_model *model = runner->model;
    test_must(tt_sides_push(model->sides, (int)model->side_count, &runner->pass, runner->sides));
}

static void forward(struct tt_model_runner *runner, tt_tensor *x, void **saved)
{
    int last = runner->model->block_count - 1;
    tt_runner_push_sides(runner);
    for (int i = 0; i <= last; i++) {
        struct tt_block *block = &runner->model->blocks[i];
        if (i < last) x[i + 1] = new_activation(runner);
        if (runner->pass.in.gradient) saved[i] = tt_calloc(1, block->ops->saved_bytes);
        test_must(
            block->ops->forward(block, &runner->pass, x[i], saved[i], i < last ? x[i + 1] : (tt_tensor){0}));
    }
}

void tt_runner_logits(struct tt_model_runner *runner, float *logits)
{
    tt_tensor x[TT_MODEL_LAYERS_MAX] = {{0}};
    void *saved[TT_MODEL_LAYERS_MAX] = {NULL};
    size_t mark = tt_workspace_mark(runner->workspace);
    runner->pass.in.gradient = false;
    runner->pass.in.want_logits = true;
    forward(runner, x, saved);
    tt_tensor logits_NV = tt_pass_result(&runner->results, TT_RESULT_LOGITS, 0);
    memcpy(logits, logits_NV.data, tt_tensor_bytes(logits_NV));
    runner->pass.in.want_logits = false;
    tt_workspace_release(runner->workspace, mark);
}

double tt_runner_loss(struct tt_model_runner *runner, bool gradient)
{
    tt_tensor x[TT_MODEL_LAYERS_MAX] = {{0}};
    void *saved[TT_MODEL_LAYERS_MAX] = {NULL};
    struct tt_model *model = runner->model;
    int first = 0, last = model->block_count - 1;
    double loss = 0;
    size_t mark = tt_workspace_mark(runner->workspace);
    runner->pass.in.gradient = gradient;
    forward(runner, x, saved);
    const float *loss_N = tt_pass_result(&runner->results, TT_RESULT_LOSS, 0).data;
    for (int64_t n = 0; n < runner->batch.row_count; n++) loss += loss_N[n];
    while (!model->blocks[first].trains && first < last) first++;
    tt_tensor dy = gradient ? new_activation(runner) : (tt_tensor){0};
    for (int i = last; i >= first && gradient; i--) {
        tt_tensor dx = i > first ? dy : (tt_tensor){0};
        test_must(model->blocks[i].ops->backward(&model->blocks[i], &runner->pass, x[i], saved[i], dy, dx));
    }
    for (int i = 0; i <= last; i++) tt_free(saved[i]);
    tt_workspace_release(runner->workspace, mark);
    return loss * runner->pass.in.loss_scale;
}

void tt_runner_zero_grad(struct tt_model_runner *runner)
{
    for (size_t i = 0; i < runner->model->param_count; i++) {
        tt_tensor grad = runner->model->params[i]->grad;
        if (!tt_tensor_is_empty(grad)) memset(grad.data, 0, tt_tensor_bytes(grad));
    }
}
