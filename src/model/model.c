#include "model/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/number.h"
#include "base/str.h"
#include "nn/decoder_layer.h"
#include "nn/head.h"

void tt_model_destroy(struct tt_model *model)
{
    if (model == NULL) return;
    tt_free(model->params);
    tt_arena_deinit(&model->arena);
    tt_free(model);
}

tt_param *tt_model_find_param(const struct tt_model *model, const char *name)
{
    for (size_t i = 0; i < model->param_count; i++) {
        if (strcmp(model->params[i]->name, name) == 0) return model->params[i];
    }
    return NULL;
}

const char *tt_model_source_name(const struct tt_model *model, const tt_param *param)
{
    if (tt_ends_with(param->name, ".lora_A.weight") || tt_ends_with(param->name, ".lora_B.weight"))
        return NULL;
    bool head = strcmp(param->name, "lm_head.weight") == 0;
    return head && model->config.tie_word_embeddings ? "model.embed_tokens.weight" : param->name;
}

bool tt_model_is_tied(const struct tt_model *model)
{
    return model->unit_of_block[model->block_count - 1] == model->unit_of_block[0];
}

/* 1234567 -> "1,234,567" */
static const char *with_commas(int64_t value, char *text, size_t text_bytes)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRId64, value);
    size_t used = 0;
    for (int i = 0; i < length && used + 2 < text_bytes; i++) {
        if (i > 0 && (length - i) % 3 == 0) text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

const char *tt_model_format_counts(const struct tt_model *model, char *text, size_t text_bytes)
{
    char trainable[40], all[40];
    int64_t total = model->base_param_count + model->adapter_param_count;
    (void)tt_snprintf(text, text_bytes, "trainable params: %s || all params: %s || trainable%%: %.4f",
                      with_commas(model->trainable_param_count, trainable, sizeof trainable),
                      with_commas(total, all, sizeof all),
                      100.0 * (double)model->trainable_param_count / (double)total);
    return text;
}

/* Multiply-adds are 2 FLOPs; a frozen matrix needs the forward product and the input's gradient, a trainable matrix
 * also its own gradient. */
static double linear_flops(const struct tt_linear_group *group, bool full)
{
    double flops = 0;
    for (int i = 0; i < group->count; i++) {
        const struct tt_linear *linear = &group->linears[i];
        bool trains = full || linear->weight->trainable;
        flops += (trains ? 6.0 : 4.0) * (double)linear->in * (double)linear->out;
        flops += 6.0 * (double)linear->r * (double)(linear->in + linear->out);
    }
    return flops;
}

double tt_model_flops_per_token(const struct tt_model *model, double length, bool full)
{
    double flops = 0;
    for (int i = 1; i + 1 < model->block_count; i++) {
        const struct tt_decoder_layer *layer = model->blocks[i].impl;
        const struct tt_self_attention *attention = &layer->attention;
        double window = (double)attention->window;
        double seen = attention->window > 0 && window < length ? window : length / 2; /* keys per query */
        flops += linear_flops(&attention->qkv, full) + linear_flops(&attention->o, full);
        flops += linear_flops(&layer->mlp.gate_up, full) + linear_flops(&layer->mlp.down, full);
        /* forward: scores and values, 2 products of 2 FLOPs; backward: twice that */
        flops += 12.0 * seen * (double)(attention->heads * attention->head_dim);
    }
    return flops;
}

double tt_model_flops_per_label(const struct tt_model *model, bool full)
{
    const struct tt_head *head = model->blocks[model->block_count - 1].impl;
    return linear_flops(&head->lm_head, full);
}
