#include "model/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/number.h"
#include "base/str.h"
#include "model/module.h"
#include "nn/linear.h"

void tt_model_destroy(struct tt_model *model)
{
    if (model == NULL) return;
    tt_free(model->params);
    tt_free(model->sides);
    tt_name_index_deinit(&model->param_index);
    tt_name_index_deinit(&model->module_index);
    tt_arena_deinit(&model->arena);
    tt_free(model);
}

tt_param *tt_model_find_param(const struct tt_model *model, const char *name)
{
    size_t index;
    return tt_name_index_find(&model->param_index, name, &index) ? model->params[index] : NULL;
}

/* The end of the component that begins at `at`, behind its point; NULL: it is the last one. */
static const char *component_end(const char *at)
{
    const char *dot = strchr(at, '.');
    return dot != NULL ? dot + 1 : NULL;
}

struct tt_span tt_model_extra_part(const struct tt_model *model, const char *name)
{
    char rest[512];
    if (strlen(name) >= sizeof rest) return (struct tt_span){0};
    for (const char *from = name; from != NULL; from = component_end(from)) {
        for (const char *to = component_end(from); to != NULL; to = component_end(to)) {
            (void)snprintf(rest, sizeof rest, "%.*s%s", (int)(from - name), name, to);
            if (tt_model_find_param(model, rest) != NULL) return (struct tt_span){from, (size_t)(to - from)};
        }
    }
    return (struct tt_span){0};
}

const struct tt_module *tt_model_find_module(const struct tt_model *model, const char *path)
{
    size_t index;
    return tt_name_index_find(&model->module_index, path, &index) ? &model->modules.items[index] : NULL;
}

static bool is_named(const tt_param *param, const char *name)
{
    return name != NULL && strcmp(param->name, name) == 0;
}

int tt_model_cache_layer(const struct tt_model_facts *facts, int64_t layer)
{
    int64_t from = layer - facts->layers[layer].keys_back;
    int place = 0;
    for (int64_t i = 0; i < from; i++) place += facts->layers[i].keys_back == 0;
    return place;
}

int64_t tt_model_cache_layers(const struct tt_model_facts *facts)
{
    int64_t count = 0;
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) count += facts->layers[i].keys_back == 0;
    return count;
}

bool tt_model_cache_shape(const struct tt_model_facts *facts, struct tt_kv_heads heads[TT_MODEL_LAYERS_MAX],
                          struct tt_kv_states states[TT_MODEL_LAYERS_MAX])
{
    bool any = false;
    for (int64_t i = 0; i < facts->num_hidden_layers; i++) {
        const struct tt_layer_facts *layer = &facts->layers[i];
        int place = tt_model_cache_layer(facts, i);
        heads[place] = (struct tt_kv_heads){layer->kv_heads, layer->head_dim};
        states[place] = layer->state;
        any |= layer->state.conv_rows > 0;
    }
    return any;
}

const char *tt_model_text_path(const struct tt_model_facts *facts)
{
    return facts->part != NULL ? facts->part->path : "model";
}

bool tt_model_repeats_table(const struct tt_model *model, const tt_param *param)
{
    return model->facts.tie_word_embeddings && is_named(param, model->head_name);
}

size_t tt_model_adapter_part(const char *name)
{
    static const char *const ends[] = {".lora_A.weight", ".lora_B.weight", ".lora_magnitude_vector",
                                       TT_MODEL_TOKEN_ROWS};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (tt_ends_with(name, ends[i])) return strlen(ends[i]);
    return 0;
}

const char *tt_model_source_name(const struct tt_model *model, const tt_param *param)
{
    if (tt_model_adapter_part(param->name) > 0) return NULL;
    if (param->transposed_of != NULL || param->tokens != NULL) return NULL;
    bool table = is_named(param, model->embedding_name) || tt_model_repeats_table(model, param);
    if (!table) return param->name;
    return model->facts.table_in_head ? model->head_name : model->embedding_name;
}

int tt_model_block_of(const struct tt_model *model, enum tt_block_role role)
{
    for (int i = 0; i < model->block_count; i++) {
        if (model->blocks[i].ops->role == role) return i;
    }
    return -1;
}

bool tt_model_is_tied(const struct tt_model *model)
{
    int input = tt_model_block_of(model, TT_ROLE_INPUT), output = tt_model_block_of(model, TT_ROLE_OUTPUT);
    return input >= 0 && output >= 0 && model->unit_of_block[output] == model->unit_of_block[input];
}

bool tt_model_saves_table_twice(const struct tt_model *model)
{
    const tt_param *table = model->embedding_name != NULL && tt_model_is_tied(model)
                                ? tt_model_find_param(model, model->embedding_name)
                                : NULL;
    return table != NULL && table->adapter;
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

/* The last name of the module that has the parameter: "q_proj" of "...self_attn.q_proj.lora_A.weight". Both adapters of
 * a module of experts have the module's. */
static struct tt_span module_name(const char *param)
{
    static const char *const ends[] = {".weight", ".bias"};
    static const char inner[] = ".base_layer";
    size_t bytes = strlen(param) - tt_model_adapter_part(param), inner_bytes = sizeof inner - 1, first;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (!tt_ends_with(param, ends[i]) || bytes < strlen(param)) continue;
        bytes -= strlen(ends[i]);
        break;
    }
    if (bytes > inner_bytes && memcmp(param + bytes - inner_bytes, inner, inner_bytes) == 0)
        bytes -= inner_bytes;
    for (first = bytes; first > 0 && param[first - 1] != '.'; first--) {
    }
    return (struct tt_span){param + first, bytes - first};
}

static bool same_name(struct tt_span a, struct tt_span b)
{
    return a.bytes == b.bytes && memcmp(a.data, b.data, a.bytes) == 0;
}

tt_status tt_model_describe_adapted(const struct tt_model *model, struct tt_str *text)
{
    char count[40];
    bool any = false;
    for (size_t i = 0; i < model->param_count; i++) {
        const tt_param *param = model->params[i];
        struct tt_span name = module_name(param->name);
        int64_t sum = 0;
        bool before = false;
        for (size_t j = 0; j < model->param_count && param->adapter; j++) {
            bool alike = model->params[j]->adapter && same_name(module_name(model->params[j]->name), name);
            before |= alike && j < i;
            sum += alike ? tt_param_count(model->params[j]) : 0;
        }
        if (!param->adapter || before) continue;
        TT_TRY(tt_str_printf(text, "%s%.*s %s", any ? ", " : "adapted: ", (int)name.bytes, name.data,
                             with_commas(sum, count, sizeof count)));
        any = true;
    }
    return TT_OK;
}

double tt_model_flops_per_token(const struct tt_model *model, double length, bool full)
{
    double flops = 0;
    for (int i = 0; i < model->block_count; i++) {
        const struct tt_block *block = &model->blocks[i];
        if (block->ops->role != TT_ROLE_OUTPUT) flops += block->ops->flops(block, length, full);
    }
    return flops;
}

double tt_model_flops_per_image(const struct tt_model *model, double pixels)
{
    double flops = 0;
    for (int i = 0; i < model->block_count; i++)
        flops += model->blocks[i].ops->flops(&model->blocks[i], pixels, false);
    return flops;
}

double tt_model_flops_per_label(const struct tt_model *model, bool full)
{
    const struct tt_block *head = &model->blocks[tt_model_block_of(model, TT_ROLE_OUTPUT)];
    return head->ops->flops(head, 0, full);
}

struct visitor {
    tt_status (*visit)(void *context, const struct tt_model_linear *linear);
    void *context;
};

static int64_t idle_of(const struct tt_linear *linear)
{
    if (linear->experts == 0) return 0;
    int64_t all = tt_param_count(linear->weight) + (linear->bias != NULL ? tt_param_count(linear->bias) : 0);
    return all / linear->experts * (linear->experts - linear->slots);
}

static tt_status visit(void *context, const struct tt_linear *linear)
{
    const struct visitor *visitor = context;
    struct tt_model_linear seen = {.weight = linear->weight,
                                   .lora_A = linear->lora_A,
                                   .lora_B = linear->lora_B,
                                   .experts = linear->experts,
                                   .idle = idle_of(linear),
                                   .vector = linear->vector,
                                   .r = linear->r,
                                   .adapters = linear->adapters,
                                   .scaling = linear->scaling};
    return visitor->visit(visitor->context, &seen);
}

tt_status tt_model_visit_linears(const struct tt_model *model,
                                 tt_status (*see)(void *context, const struct tt_model_linear *linear),
                                 void *context)
{
    struct visitor visitor = {see, context};
    for (int i = 0; i < model->block_count; i++) {
        const struct tt_block *block = &model->blocks[i];
        TT_TRY(block->ops->visit_linears(block, visit, &visitor));
    }
    return TT_OK;
}

static tt_status take_idle(void *context, const struct tt_model_linear *linear)
{
    *(int64_t *)context -= linear->idle;
    return TT_OK;
}

int64_t tt_model_active_count(const struct tt_model *model)
{
    int64_t count = model->base_param_count;
    return tt_model_visit_linears(model, take_idle, &count) == TT_OK ? count : 0;
}
