#include "infer/adapter_set.h"

#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "checkpoint/load.h"
#include "model/adapter_config.h"

/* Bytes, of each piece in the memory of a unit. */
enum { ALIGNMENT = 64 };

/* One adapter as a model of its own, without memory: the shapes of its tensors, and its scales. */
static tt_status create_model(const struct tt_inputs *inputs, size_t adapter, struct tt_model **out)
{
    struct tt_model_options options = inputs->model_options;
    options.lora = inputs->adapters[adapter].lora;
    options.more_lora = NULL;
    options.more_lora_count = 0;
    return tt_model_create(&inputs->model_facts, &options, out);
}

static tt_status check_adapter(const struct tt_inputs *inputs, size_t adapter)
{
    struct tt_model *model = NULL;
    const struct tt_load_source source = {.adapter = inputs->adapters[adapter].file};
    tt_status status = create_model(inputs, adapter, &model);
    if (status == TT_OK) status = tt_load_check(model, &source);
    if (status != TT_OK) tt_while("checking the adapter '%s'", inputs->adapters[adapter].folder);
    tt_model_destroy(model);
    return status;
}

tt_status tt_adapter_set_check(const struct tt_inputs *inputs)
{
    for (size_t k = 0; k < inputs->adapter_count; k++) TT_TRY(check_adapter(inputs, k));
    return TT_OK;
}

/* A rank that does not train has its part of an adapter among the frozen tensors. */
static bool is_adapter(const struct tt_piece *piece)
{
    return piece->param->adapter && piece->count > 0;
}

static size_t piece_bytes(const struct tt_piece *piece)
{
    return (size_t)piece->count * tt_dtype_bytes(piece->dtype);
}

/* Bytes of the pieces of a unit, one after the other. */
static size_t unit_bytes(const struct tt_unit *unit)
{
    size_t bytes = 0;
    for (size_t p = 0; p < tt_unit_piece_count(unit); p++) {
        struct tt_piece piece = tt_unit_piece(unit, p);
        if (is_adapter(&piece)) bytes += tt_align_up(piece_bytes(&piece), ALIGNMENT);
    }
    return bytes;
}

tt_status tt_adapter_set_init(struct tt_rank *rank, int count, struct tt_adapter_set *set)
{
    tt_status status = TT_OK;
    int units = rank->model->unit_count;
    *set = (struct tt_adapter_set){.rank = rank, .count = count, .unit_count = units, .current = -1};
    set->parts = tt_calloc((size_t)(count * units), sizeof(struct tt_buffer *));
    if (set->parts == NULL) TT_GO(TT_ERR_MEMORY);
    for (int i = 0; i < count * units; i++) {
        size_t bytes = unit_bytes(rank->units[i % units]);
        if (bytes > 0) TT_GO(tt_buffer_create(rank->device, bytes, TT_PURPOSE_ADAPTERS, &set->parts[i]));
    }
out:
    if (status != TT_OK) tt_adapter_set_deinit(set);
    return status;
}

void tt_adapter_set_deinit(struct tt_adapter_set *set)
{
    for (int i = 0; set->parts != NULL && i < set->count * set->unit_count; i++)
        tt_buffer_destroy(set->parts[i]);
    tt_free(set->parts);
    *set = (struct tt_adapter_set){0};
}

/* ---- Loading ---- */

struct loading {
    struct tt_adapter_set *set;
    const struct tt_inputs *inputs;
    size_t adapter;
    struct tt_model *own; /* of the adapter */
    float *values;        /* of one parameter, as it is in the file */
    size_t capacity;
};

/* The scale of the linear that B belongs to. */
struct scale {
    const char *lora_B;
    float scaling; /* 0: not found */
};

static tt_status find_scale(void *context, const struct tt_model_linear *linear)
{
    struct scale *scale = context;
    if (linear->lora_B != NULL && strcmp(linear->lora_B->name, scale->lora_B) == 0)
        scale->scaling = linear->scaling;
    return TT_OK;
}

static tt_status scale_of(const struct tt_model *model, const char *lora_B, float *scaling)
{
    struct scale scale = {.lora_B = lora_B};
    TT_TRY(tt_model_visit_linears(model, find_scale, &scale));
    *scaling = scale.scaling;
    return TT_OK;
}

/* The factor of B, so that the scale of the rank's model makes it that of the adapter; 1 for A. */
static tt_status factor_of(const struct loading *loading, const tt_param *param, float *factor)
{
    float own, common;
    *factor = 1.0f;
    TT_TRY(scale_of(loading->own, param->name, &own));
    TT_TRY(scale_of(loading->set->rank->model, param->name, &common));
    if (own > 0 && common > 0 && own != common) *factor = own / common;
    return TT_OK;
}

static tt_status read_param(struct loading *loading, const tt_param *own)
{
    const struct tt_safetensors *file = loading->inputs->adapters[loading->adapter].file;
    size_t count = (size_t)tt_param_count(own);
    char *key = tt_adapter_key(own->name);
    if (key == NULL) return TT_ERR_MEMORY;
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, key);
    tt_free(key);
    if (entry == NULL) return tt_fail(TT_ERR_DATA, "the adapter has no tensor '%s'", own->name);
    if (count > loading->capacity) {
        tt_free(loading->values);
        loading->capacity = 0;
        loading->values = tt_calloc(count, sizeof(float));
        if (loading->values == NULL) return TT_ERR_MEMORY;
        loading->capacity = count;
    }
    return tt_safetensors_read(file, entry, 0, (int64_t)count, loading->values, TT_F32);
}

/* Writes the piece's elements to `to`: the adapter's matrix in the corner of one that may be larger. */
static tt_status fill_piece(struct loading *loading, const struct tt_piece *piece, char *to)
{
    const tt_param *own = tt_model_find_param(loading->own, piece->param->name);
    size_t element = tt_dtype_bytes(piece->dtype);
    float factor;
    if (own == NULL) return TT_OK; /* zeros */
    TT_TRY(read_param(loading, own));
    TT_TRY(factor_of(loading, piece->param, &factor));
    int64_t columns = piece->param->dims[1], own_rows = own->dims[0], own_columns = own->dims[1];
    for (int64_t i = 0; i < piece->count; i++) {
        int64_t row = (piece->first + i) / columns, column = (piece->first + i) % columns;
        if (row >= own_rows || column >= own_columns) continue;
        float value = factor * loading->values[row * own_columns + column];
        if (!tt_dtype_convert(to + (size_t)i * element, piece->dtype, &value, TT_F32, 1))
            return tt_fail(TT_ERR_INTERNAL, "'%s' is no type of numbers", own->name);
    }
    return TT_OK;
}

static tt_status load_unit(struct loading *loading, int u)
{
    struct tt_adapter_set *set = loading->set;
    const struct tt_unit *unit = set->rank->units[u];
    struct tt_buffer *part = set->parts[(int)loading->adapter * set->unit_count + u];
    struct tt_stream *stream = set->rank->stream;
    tt_status status = TT_OK;
    size_t bytes = unit_bytes(unit), at = 0;
    if (part == NULL) return TT_OK;
    char *host = tt_calloc(1, bytes);
    if (host == NULL) return TT_ERR_MEMORY;
    for (size_t p = 0; p < tt_unit_piece_count(unit); p++) {
        struct tt_piece piece = tt_unit_piece(unit, p);
        if (!is_adapter(&piece)) continue;
        TT_GO(fill_piece(loading, &piece, host + at));
        at += tt_align_up(piece_bytes(&piece), ALIGNMENT);
    }
    TT_GO(tt_copy_to_device(stream, tt_buffer_data(part), host, bytes));
    status = tt_stream_synchronize(stream);
out:
    tt_free(host);
    return status;
}

tt_status tt_adapter_set_load(struct tt_adapter_set *set, const struct tt_inputs *inputs)
{
    tt_status status = TT_OK;
    struct loading loading = {.set = set, .inputs = inputs};
    for (; loading.adapter < (size_t)set->count; loading.adapter++) {
        TT_GO(create_model(inputs, loading.adapter, &loading.own));
        for (int u = 0; u < set->unit_count; u++) TT_GO(load_unit(&loading, u));
        tt_model_destroy(loading.own);
        loading.own = NULL;
    }
out:
    if (status != TT_OK) tt_while("loading the adapter '%s'", inputs->adapters[loading.adapter].folder);
    tt_model_destroy(loading.own);
    tt_free(loading.values);
    return status;
}

/* The unit has changed on all ranks, also on one whose shard has nothing of the adapter. */
static tt_status copy_unit(struct tt_adapter_set *set, int adapter, int u)
{
    struct tt_unit *unit = set->rank->units[u];
    struct tt_buffer *part = set->parts[adapter * set->unit_count + u];
    size_t at = 0;
    for (size_t p = 0; part != NULL && p < tt_unit_piece_count(unit); p++) {
        struct tt_piece piece = tt_unit_piece(unit, p);
        if (!is_adapter(&piece)) continue;
        TT_TRY(tt_copy_on_device(set->rank->stream, piece.data, (char *)tt_buffer_data(part) + at,
                                 piece_bytes(&piece)));
        at += tt_align_up(piece_bytes(&piece), ALIGNMENT);
    }
    return tt_unit_frozen_changed(unit);
}

/* Other ranks may read this rank's shard as long as they run the pass before. */
tt_status tt_adapter_set_choose(struct tt_adapter_set *set, int adapter)
{
    if (set->parts == NULL || set->current == adapter) return TT_OK;
    TT_TRY(tt_comm_barrier(set->rank->world));
    for (int u = 0; u < set->unit_count; u++) TT_TRY(copy_unit(set, adapter, u));
    TT_TRY(tt_stream_synchronize(set->rank->stream));
    set->current = adapter;
    return tt_comm_barrier(set->rank->world);
}
