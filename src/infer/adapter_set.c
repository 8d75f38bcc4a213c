#include "infer/adapter_set.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "checkpoint/load.h"
#include "model/adapter_config.h"

/* One adapter as a model of its own, without memory: the shapes of its tensors, and its scales. */
static tt_status create_model(const struct tt_inputs *inputs, const struct tt_inputs_adapter *adapter,
                              struct tt_model **out)
{
    struct tt_model_options options = inputs->model_options;
    options.lora = adapter->lora;
    options.more_lora = NULL;
    options.more_lora_count = 0;
    options.adapter_places = 0;
    return tt_model_create(&inputs->model_facts, &options, out);
}

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

/* The rank that one adapter has of a linear whose matrices hold several. */
static int64_t each_r(const struct tt_model_linear *linear)
{
    return linear->adapters > 1 ? linear->r / linear->adapters : linear->r;
}

/* ---- Reading ---- */

struct reading {
    const struct tt_inputs *inputs;
    const struct tt_inputs_adapter *adapter;
    struct tt_model *own; /* of the adapter */
    float *values;        /* of one parameter, as it is in the file */
    size_t capacity;
};

static void reading_end(struct reading *reading)
{
    tt_model_destroy(reading->own);
    tt_free(reading->values);
}

static tt_status read_param(struct reading *reading, const tt_param *own)
{
    const struct tt_safetensors *file = reading->adapter->file;
    size_t count = (size_t)tt_param_count(own);
    char *key = tt_adapter_key(own->name);
    if (key == NULL) return TT_ERR_MEMORY;
    const struct tt_safetensors_entry *entry = tt_safetensors_find(file, key);
    tt_free(key);
    if (entry == NULL) return tt_fail(TT_ERR_DATA, "the adapter has no tensor '%s'", own->name);
    if (count > reading->capacity) {
        tt_free(reading->values);
        reading->capacity = 0;
        reading->values = tt_calloc(count, sizeof(float));
        if (reading->values == NULL) return TT_ERR_MEMORY;
        reading->capacity = count;
    }
    return tt_safetensors_read(file, entry, 0, (int64_t)count, reading->values, TT_F32);
}

/* ---- Checks ---- */

static tt_status refuse_place(const struct tt_model_linear *linear, int64_t room)
{
    if (room == 0)
        tt_fail(TT_ERR_UNSUPPORTED, "it adapts '%s', for which no place was reserved", linear->weight->name);
    else
        tt_fail(TT_ERR_UNSUPPORTED, "it has rank %lld for '%s', and the places have rank %lld",
                (long long)linear->r, linear->weight->name, (long long)room);
    tt_hint("start with a larger --max_lora_rank, or with an adapter of these modules");
    return TT_ERR_UNSUPPORTED;
}

/* The factor of B, so that the scale of the rank's model makes it that of the adapter; 1 for A. */
static float factor_of(const struct owner *common, const struct tt_model_linear *own)
{
    float mine = own->scaling, all = common->linear.scaling;
    return !common->is_A && mine > 0 && all > 0 && mine != all ? mine / all : 1.0f;
}

struct fitting {
    struct reading reading;
    const struct tt_model *common;
};

static tt_status check_matrix(struct fitting *fitting, const struct tt_model_linear *linear,
                              const tt_param *matrix)
{
    static const float most = 0x1.fep127f; /* of bf16 */
    struct owner common;
    TT_TRY(owner_of(fitting->common, matrix->name, &common));
    int64_t room = each_r(&common.linear);
    if (room < linear->r || common.linear.experts != linear->experts) return refuse_place(linear, room);
    TT_TRY(read_param(&fitting->reading, matrix));
    float factor = factor_of(&common, linear);
    for (int64_t i = 0; i < tt_param_count(matrix); i++)
        if (!(fabsf(factor * fitting->reading.values[i]) <= most)) {
            tt_fail(TT_ERR_DATA, "'%s' of the adapter has an element that is no finite number", matrix->name);
            tt_hint("it would spoil the answers of other adapters in the same pass: use it alone");
            return TT_ERR_DATA;
        }
    return TT_OK;
}

static tt_status check_linear(void *context, const struct tt_model_linear *linear)
{
    struct fitting *fitting = context;
    if (linear->r == 0) return TT_OK;
    TT_TRY(check_matrix(fitting, linear, linear->lora_A));
    return check_matrix(fitting, linear, linear->lora_B);
}

/* An adapter has nothing but A and B. */
static tt_status check_kind(const struct tt_model *own)
{
    const char *what = own->options.lora.use_dora ? "use_dora" : NULL;
    for (size_t i = 0; i < own->param_count; i++) {
        const tt_param *param = own->params[i];
        if (!param->adapter || what != NULL) continue;
        struct owner owner;
        TT_TRY(owner_of(own, param->name, &owner));
        if (owner.linear.r > 0) continue;
        what = param->bias             ? "trained biases"
               : param->tokens != NULL ? "trainable_token_indices"
                                       : "modules_to_save";
    }
    if (what == NULL) return TT_OK;
    tt_fail(TT_ERR_UNSUPPORTED, "several adapters at a time, and one of them has %s", what);
    tt_hint("use that adapter alone, or merge it into the base model first (trimtab merge)");
    return TT_ERR_UNSUPPORTED;
}

tt_status tt_adapter_set_fits(const struct tt_inputs *inputs, const struct tt_model *common,
                              const struct tt_inputs_adapter *adapter)
{
    tt_status status = TT_OK;
    struct fitting fitting = {.reading = {.inputs = inputs, .adapter = adapter}, .common = common};
    const struct tt_load_source source = {.adapter = adapter->file};
    TT_GO(create_model(inputs, adapter, &fitting.reading.own));
    TT_GO(tt_load_check(fitting.reading.own, &source));
    TT_GO(check_kind(fitting.reading.own));
    TT_GO(tt_model_visit_linears(fitting.reading.own, check_linear, &fitting));
out:
    if (status != TT_OK) tt_while("checking the adapter '%s'", adapter->folder);
    reading_end(&fitting.reading);
    return status;
}

tt_status tt_adapter_set_check(const struct tt_inputs *inputs, const struct tt_model *common)
{
    for (size_t k = 0; k < inputs->adapter_count; k++)
        TT_TRY(tt_adapter_set_fits(inputs, common, &inputs->adapters[k]));
    return TT_OK;
}

/* ---- Writing ---- */

/* The place of an adapter in a matrix of several: of A rows, and of experts such rows of each; of B columns. The matrix
 * of the adapter, which may have fewer, begins where the place does. */
struct corner {
    int64_t row_count, row_first, row_step; /* `experts` times `row_count` rows, `row_step` apart */
    int64_t experts;
    int64_t column_first, column_count;
    int64_t own_rows, own_columns; /* of each expert */
    float factor; /* of B, so that the scale of the rank's model makes it that of the adapter */
};

static struct corner corner_of(const tt_param *param, const tt_param *matrix, const struct owner *own,
                               const struct owner *common, int64_t place)
{
    int64_t r = each_r(&common->linear), experts = common->linear.experts > 0 ? common->linear.experts : 1;
    struct corner corner = {.experts = 1,
                            .row_count = param->dims[0],
                            .column_count = param->dims[1],
                            .own_rows = matrix != NULL ? matrix->dims[0] : 0,
                            .own_columns = matrix != NULL ? matrix->dims[1] : 0,
                            .factor = 1};
    if (common->is_A) {
        corner.experts = experts;
        corner.row_count = r;
        corner.row_first = place * r;
        corner.row_step = common->linear.r;
        corner.own_rows /= experts;
        return corner;
    }
    corner.column_first = place * r * experts;
    corner.column_count = r * experts;
    corner.factor = factor_of(common, &own->linear);
    return corner;
}

/* Writes what the piece has of one row of the corner; `own`: the row of the adapter's matrix, or NULL for zeros. */
static tt_status write_row(const struct tt_piece *piece, const struct corner *corner, int64_t row,
                           const float *own, char *to)
{
    size_t element = tt_dtype_bytes(piece->dtype);
    int64_t begin = row * piece->param->dims[1] + corner->column_first;
    for (int64_t c = 0; c < corner->column_count; c++) {
        int64_t at = begin + c - piece->first;
        float value = own != NULL && c < corner->own_columns ? corner->factor * own[c] : 0.0f;
        if (at < 0 || at >= piece->count) continue;
        if (!tt_dtype_convert(to + (size_t)at * element, piece->dtype, &value, TT_F32, 1))
            return tt_fail(TT_ERR_INTERNAL, "'%s' is no type of numbers", piece->param->name);
    }
    return TT_OK;
}

static tt_status write_corner(const struct reading *reading, const struct tt_piece *piece,
                              const struct corner *corner, char *to)
{
    for (int64_t e = 0; e < corner->experts; e++)
        for (int64_t j = 0; j < corner->row_count; j++) {
            int64_t row = e * corner->row_step + corner->row_first + j;
            const float *own = j < corner->own_rows
                                   ? reading->values + (e * corner->own_rows + j) * corner->own_columns
                                   : NULL;
            TT_TRY(write_row(piece, corner, row, own, to));
        }
    return TT_OK;
}

/* The piece as it is, with the adapter in its place. */
static tt_status write_piece(struct reading *reading, struct tt_rank *rank, const struct tt_piece *piece,
                             int64_t place)
{
    const tt_param *matrix = tt_model_find_param(reading->own, piece->param->name);
    size_t bytes = (size_t)piece->count * tt_dtype_bytes(piece->dtype);
    struct owner own = {0}, common;
    tt_status status = TT_OK;
    TT_TRY(owner_of(rank->model, piece->param->name, &common));
    if (common.linear.r == 0) return TT_OK;
    if (matrix != NULL) {
        TT_TRY(read_param(reading, matrix));
        TT_TRY(owner_of(reading->own, matrix->name, &own));
    }
    struct corner corner = corner_of(piece->param, matrix, &own, &common, place);
    char *host = tt_calloc(1, bytes);
    if (host == NULL) return TT_ERR_MEMORY;
    TT_GO(tt_copy_to_host(rank->stream, host, piece->data, bytes));
    TT_GO(tt_stream_synchronize(rank->stream));
    TT_GO(write_corner(reading, piece, &corner, host));
    TT_GO(tt_copy_to_device(rank->stream, piece->data, host, bytes));
    status = tt_stream_synchronize(rank->stream);
out:
    tt_free(host);
    return status;
}

/* The unit has changed on all ranks, also on one whose shard has nothing of the adapter. */
static tt_status write_unit(struct reading *reading, struct tt_rank *rank, struct tt_unit *unit,
                            int64_t place)
{
    for (size_t p = 0; p < tt_unit_piece_count(unit); p++) {
        struct tt_piece piece = tt_unit_piece(unit, p);
        if (piece.param->adapter && piece.count > 0) TT_TRY(write_piece(reading, rank, &piece, place));
    }
    return tt_unit_frozen_changed(unit);
}

tt_status tt_adapter_set_write(struct tt_rank *rank, const struct tt_inputs *inputs,
                               const struct tt_inputs_adapter *adapter, int64_t place)
{
    struct reading reading = {.inputs = inputs, .adapter = adapter};
    tt_status status = create_model(inputs, adapter, &reading.own);
    for (int u = 0; u < rank->model->unit_count && status == TT_OK; u++)
        status = write_unit(&reading, rank, rank->units[u], place);
    if (status == TT_OK) status = tt_stream_synchronize(rank->stream);
    if (status != TT_OK) tt_while("loading the adapter '%s'", adapter->folder);
    reading_end(&reading);
    return status;
}

tt_status tt_adapter_set_load(struct tt_rank *rank, const struct tt_inputs *inputs)
{
    for (size_t k = 0; k < inputs->adapter_count; k++)
        TT_TRY(tt_adapter_set_write(rank, inputs, &inputs->adapters[k], (int64_t)k));
    return TT_OK;
}
