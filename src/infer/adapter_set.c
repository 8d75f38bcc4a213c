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

/* The linear that a matrix belongs to. */
struct owner {
    const char *matrix;
    struct tt_model_linear linear; /* r 0: not found */
    bool is_A;
};

static bool is_named(const tt_param *param, const char *name)
{
    return param != NULL && strcmp(param->name, name) == 0;
}

static tt_status find_owner(void *context, const struct tt_model_linear *linear)
{
    struct owner *owner = context;
    bool is_A = is_named(linear->lora_A, owner->matrix);
    if (!is_A && !is_named(linear->lora_B, owner->matrix)) return TT_OK;
    owner->linear = *linear;
    owner->is_A = is_A;
    return TT_OK;
}

static tt_status owner_of(const struct tt_model *model, const char *matrix, struct owner *owner)
{
    *owner = (struct owner){.matrix = matrix};
    return tt_model_visit_linears(model, find_owner, owner);
}

/* The factor of B, so that the scale of the rank's model makes it that of the adapter; 1 for A. */
static float factor_of(const struct owner *own, const struct owner *common)
{
    float mine = own->linear.scaling, all = common->linear.scaling;
    return !own->is_A && mine > 0 && all > 0 && mine != all ? mine / all : 1.0f;
}

/* The place of row `row` of a matrix in the smaller one of the adapter; -1: it is not there. A of experts has all rows
 * of one after the other. */
static int64_t own_row(const struct owner *own, const struct owner *common, int64_t row)
{
    bool grouped = common->is_A && common->linear.experts > 0;
    int64_t each = grouped ? common->linear.r : INT64_MAX, inside = row % each;
    if (!grouped) return row;
    return inside < own->linear.r ? row / each * own->linear.r + inside : -1;
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
    struct owner owner, common;
    if (own == NULL) return TT_OK; /* zeros */
    TT_TRY(read_param(loading, own));
    TT_TRY(owner_of(loading->own, own->name, &owner));
    TT_TRY(owner_of(loading->set->rank->model, own->name, &common));
    float factor = factor_of(&owner, &common);
    int64_t columns = piece->param->dims[1], own_rows = own->dims[0], own_columns = own->dims[1];
    for (int64_t i = 0; i < piece->count; i++) {
        int64_t row = own_row(&owner, &common, (piece->first + i) / columns);
        int64_t column = (piece->first + i) % columns;
        if (row < 0 || row >= own_rows || column >= own_columns) continue;
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
