#include "checkpoint/load.h"

#include <stdio.h>
#include <string.h>

#include "backend/ops/elementwise.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "base/str.h"
#include "checkpoint/load_on_device.h"
#include "checkpoint/load_quantized.h"
#include "checkpoint/load_stored.h"
#include "checkpoint/reader.h"
#include "checkpoint/residual.h"
#include "checkpoint/unread.h"
#include "io/coded_experts.h"
#include "model/adapter_config.h"

/* Bytes of the buffer of ones, which is uploaded repeatedly. */
enum { ONES_BYTES = 64 * 1024 };

/* Source of a parameter's values: a tensor of the folder, of the adapter, or neither. */
struct origin {
    const struct tt_model_folder *folder;
    const struct tt_safetensors *adapter;
    const struct tt_safetensors_entry *entry;
    bool first; /* of the first values */
};

static tt_status find_origin(const struct tt_model *model, const struct tt_load_source *source,
                             const tt_param *param, struct origin *origin)
{
    *origin = (struct origin){0};
    const struct tt_safetensors *adapter = source->adapter != NULL ? source->adapter : source->first.file;
    if (param->adapter && adapter != NULL) {
        char *key = tt_adapter_key(param->name);
        if (key == NULL) return TT_ERR_MEMORY;
        origin->entry = tt_safetensors_find(adapter, key);
        tt_free(key);
        origin->first = source->adapter == NULL;
        if (origin->entry != NULL || !origin->first) origin->adapter = adapter;
    }
    if (origin->entry == NULL && param->bias) origin->adapter = NULL;
    if (origin->adapter == NULL && source->folder != NULL) {
        /* modules_to_save start as copies of the base; LoRA's matrices are not in the folder. */
        const char *name = tt_model_source_name(model, param);
        origin->entry = name != NULL ? tt_model_folder_find(source->folder, name) : NULL;
        origin->folder = source->folder;
    }
    return TT_OK;
}

/* The faults, collected into one message of bounded length. */
struct complaint {
    struct tt_str text;
    int64_t missing, unexpected, misshapen;
    int64_t of_adapter;   /* of all of them */
    struct tt_span extra; /* what unexpected names have more than the model's; empty: nothing */
    bool mixed;           /* not all of them have the same */
};

enum { COMPLAINTS_SHOWN = 8 };

static tt_status complain(struct complaint *complaint, int64_t *counter, const char *what, const char *name)
{
    (*counter)++;
    if (complaint->missing + complaint->unexpected + complaint->misshapen > COMPLAINTS_SHOWN) return TT_OK;
    return tt_str_printf(&complaint->text, "%s%s '%s'", complaint->text.bytes > 0 ? ", " : "", what, name);
}

static bool same_shape(const tt_param *param, const struct tt_safetensors_entry *entry)
{
    if (entry->rank != param->rank) return false;
    for (int d = 0; d < param->rank; d++)
        if (entry->dims[d] != param->dims[d]) return false;
    return true;
}

static bool is_stored_quantized(const struct tt_model *model, const tt_param *param)
{
    const tt_param *original = param->transposed_of != NULL ? param->transposed_of : param;
    /* plain in folders */
    bool head = model->head_name != NULL && strcmp(original->name, model->head_name) == 0;
    bool experts = original->rank == 3; /* shown in numbers */
    return model->facts.stored_quant != TT_QUANT_NONE && tt_param_is_quantized(param) && !head && !experts;
}

/* A weight that the model holds in numbers must not be in FP8 with scales. */
static tt_status refuse_coded(const struct tt_model *model, const struct tt_model_folder *folder,
                              const tt_param *param)
{
    struct tt_quantized tensor;
    const char *name = tt_model_source_name(model, param);
    if (!tt_quant_is_compressed(model->facts.stored_quant) || folder == NULL || name == NULL) return TT_OK;
    TT_TRY(tt_quantized_find(folder, name, &tensor));
    if (tensor.layout.format.type == TT_QUANT_NONE) return TT_OK;
    if (param->adapter) {
        tt_status status = tt_fail(TT_ERR_UNSUPPORTED,
                                   "modules_to_save has '%s', whose weight in the folder is in FP8", name);
        tt_hint("adapt it with LoRA instead, or use the folder of the model in bfloat16");
        return status;
    }
    tt_status status =
        tt_fail(TT_ERR_UNSUPPORTED, "'%s' is in FP8, which only the linears of layers can be", name);
    tt_hint("quantize the model without it, as most folders in FP8 are, or use the folder of the model in "
            "bfloat16");
    return status;
}

/* Experts that the folder holds in codes, and that are kept so. */
static bool keeps_experts(const struct tt_model *model, const tt_param *param)
{
    return param->rank == 3 && tt_param_is_quantized(param) && !model->options.quant.experts &&
           param->quant.format.type != TT_QUANT_MXFP4;
}

/* MXFP4 is made of numbers that are in it, because it would lose others. */
static tt_status check_mxfp4(const struct tt_model_folder *folder, const tt_param *param,
                             const struct tt_safetensors_entry *entry)
{
    if (param->quant.format.type != TT_QUANT_MXFP4 || tt_model_folder_is_mxfp4(folder, entry)) return TT_OK;
    tt_status status =
        tt_fail(TT_ERR_DATA, "'%s' is not in MXFP4, and others of the folder are", param->name);
    tt_hint("the folder mixes files of two models: download it anew");
    return status;
}

static tt_status check_params(const struct tt_model *model, const struct tt_load_source *source,
                              struct complaint *complaint)
{
    for (size_t i = 0; i < model->param_count; i++) {
        const tt_param *param = model->params[i];
        struct origin origin;
        int64_t before = complaint->missing + complaint->misshapen;
        if (param->transposed_of != NULL) continue;
        TT_TRY(find_origin(model, source, param, &origin));
        if (!is_stored_quantized(model, param)) TT_TRY(refuse_coded(model, source->folder, param));
        bool base_from_file = !param->adapter && source->folder != NULL && param->init == TT_INIT_FILE;
        bool adapter_from_file = param->adapter && source->adapter != NULL && !param->bias;
        if (origin.entry != NULL) TT_TRY(check_mxfp4(source->folder, param, origin.entry));
        if (origin.entry == NULL) {
            if (base_from_file || adapter_from_file)
                TT_TRY(complain(complaint, &complaint->missing, "missing", param->name));
        } else if (is_stored_quantized(model, param)) {
            TT_TRY(tt_stored_quant_check(source->folder, param));
        } else if (!same_shape(param, origin.entry)) {
            TT_TRY(complain(complaint, &complaint->misshapen, "of another shape", param->name));
        } else if (!tt_dtype_is_float(origin.entry->dtype)) {
            TT_TRY(complain(complaint, &complaint->misshapen, "of a type that is not float", param->name));
        }
        if (param->adapter && source->adapter != NULL)
            complaint->of_adapter += complaint->missing + complaint->misshapen - before;
    }
    return TT_OK;
}

static bool same_span(struct tt_span a, struct tt_span b)
{
    return a.bytes == b.bytes && memcmp(a.data, b.data, a.bytes) == 0;
}

/* An unexpected name, with what would have to be left out of it to make it one of the model's. */
static tt_status complain_unexpected(const struct tt_model *model, struct complaint *complaint,
                                     const char *name, const char *path)
{
    struct tt_span extra = tt_model_extra_part(model, path), *common = &complaint->extra;
    if (common->bytes == 0 && extra.bytes > 0) *common = extra;
    complaint->mixed |= extra.bytes > 0 && !same_span(extra, *common);
    return complain(complaint, &complaint->unexpected, "unexpected", name);
}

static tt_status check_folder(const struct tt_model *model, const struct tt_load_source *source,
                              struct complaint *complaint)
{
    for (size_t i = 0; i < tt_model_folder_tensor_count(source->folder); i++) {
        const char *name = tt_model_folder_tensor_name(source->folder, i);
        bool unread;
        if (tt_model_find_param(model, name) != NULL || tt_stored_quant_owns(model, name)) continue;
        if (tt_text_part_leaves(model->facts.part, name)) continue;
        TT_TRY(tt_unread_of_folder(model, source, name, &unread));
        if (!unread) TT_TRY(complain_unexpected(model, complaint, name, name));
    }
    return TT_OK;
}

static tt_status check_adapter(const struct tt_model *model, const struct tt_load_source *source,
                               struct complaint *complaint)
{
    for (size_t i = 0; i < tt_safetensors_count(source->adapter); i++) {
        const char *key = tt_safetensors_entry(source->adapter, i)->name, *path;
        const tt_param *param = NULL;
        bool unread;
        if (tt_adapter_key_path(key, &path)) param = tt_model_find_param(model, path);
        if (param != NULL && param->adapter) continue;
        TT_TRY(tt_unread_of_adapter(model, source, key, &unread));
        if (unread) continue;
        complaint->of_adapter++;
        TT_TRY(complain_unexpected(model, complaint, key, path));
    }
    return TT_OK;
}

static void hint(const struct complaint *complaint, bool adapter)
{
    const struct tt_span *extra = &complaint->extra;
    if (extra->bytes > 0 && !complaint->mixed)
        tt_hint(
            "the names have '%.*s', which the model's do not have: a wrapper around the model left it there "
            "when the file was saved; save the model that it wraps, or rename the tensors",
            (int)extra->bytes, extra->data);
    else
        tt_hint("%lld missing, %lld unexpected, %lld of another shape or type; %s",
                (long long)complaint->missing, (long long)complaint->unexpected,
                (long long)complaint->misshapen,
                adapter ? "was the adapter made for another base model, or one with resized embeddings?"
                        : "does config.json belong to these weights?");
}

tt_status tt_load_check(const struct tt_model *model, const struct tt_load_source *source)
{
    struct complaint complaint = {0};
    tt_status status = check_params(model, source, &complaint);
    if (status == TT_OK && source->folder != NULL) status = check_folder(model, source, &complaint);
    if (status == TT_OK && source->adapter != NULL) status = check_adapter(model, source, &complaint);
    int64_t total = complaint.missing + complaint.unexpected + complaint.misshapen;
    if (status == TT_OK && total > 0) {
        bool adapter = complaint.of_adapter == total;
        status = tt_fail(TT_ERR_DATA, "the tensors%s do not match %s %s model: %s%s",
                         adapter ? " of the adapter" : "", adapter ? "this" : "a", model->facts.model_type,
                         tt_str_text(&complaint.text), total > COMPLAINTS_SHOWN ? ", ..." : "");
        hint(&complaint, adapter);
    }
    tt_str_deinit(&complaint.text);
    return status;
}

/* Matrices of experts whose segment is made of those in the folder. */
struct coded_experts {
    const struct tt_model_folder *folder;
    const struct tt_safetensors_entry *entry;
    const struct tt_quant_layout *layout;
};

/* State of one rank's load. */
struct loading {
    const struct tt_model *model;
    const struct tt_load_source *source;
    struct tt_stream *stream;
    struct tt_read_range *ranges; /* of all units */
    size_t range_count;
    struct tt_quant_item *items; /* pieces quantized during loading */
    size_t item_count;
    struct tt_stored_quant *stored; /* of pieces that the folder holds quantized */
    size_t stored_count;
    struct coded_experts *coded;
    size_t coded_count;
    struct tt_residual *residuals; /* of pieces that are loaded without first values */
    size_t residual_count;
    /* as far as needed; never written again, so no upload has to be waited for */
    struct tt_buffer *ones[TT_DTYPE_COUNT];
};

/* A host buffer of ONES_BYTES of ones. */
static tt_status make_ones(struct loading *loading, tt_dtype dtype, const void **out)
{
    struct tt_buffer **ones = &loading->ones[dtype];
    if (*ones == NULL) {
        const float one = 1.0f;
        size_t element = tt_dtype_bytes(dtype);
        TT_TRY(
            tt_host_buffer_create(tt_stream_device(loading->stream), ONES_BYTES, TT_PURPOSE_STAGING, ones));
        char *data = tt_buffer_data(*ones);
        for (size_t at = 0; at + element <= ONES_BYTES; at += element)
            (void)tt_dtype_convert(data + at, dtype, &one, TT_F32, 1);
    }
    *out = tt_buffer_data(*ones);
    return TT_OK;
}

/* Fills the few biases that begin with another constant than 0; waits for the upload. */
static tt_status fill_constant(struct loading *loading, tt_dtype dtype, double value, void *data,
                               int64_t count)
{
    float single = (float)value;
    size_t element = tt_dtype_bytes(dtype);
    char *values = tt_alloc_aligned((size_t)count * element);
    if (values == NULL) return TT_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++)
        (void)tt_dtype_convert(values + (size_t)i * element, dtype, &single, TT_F32, 1);
    tt_status status = tt_copy_to_device(loading->stream, data, values, (size_t)count * element);
    if (status == TT_OK) status = tt_stream_synchronize(loading->stream);
    tt_free(values);
    return status;
}

/* One run of elements without gaps, from element `first` of the parameter on. */
static tt_status make_run(struct loading *loading, const struct tt_piece *piece, int64_t first, int64_t count,
                          void *data)
{
    const tt_param *param = piece->param;
    size_t bytes = (size_t)count * tt_dtype_bytes(piece->dtype);
    if (param->init == TT_INIT_FILE)
        return tt_fail(TT_ERR_INTERNAL, "parameter '%s' has neither a file nor an initial value",
                       param->name);
    tt_stream_mark(loading->stream, "filling in initial values"); /* long ones in host memory are no hang */
    if (param->init == TT_INIT_TOKENS)
        return tt_copy_to_device(loading->stream, data, param->tokens + first, bytes);
    if (param->init == TT_INIT_ZERO || param->init == TT_INIT_DERIVED)
        return tt_fill_zero(loading->stream, data, bytes);
    if (param->init == TT_INIT_ONE) {
        const void *ones;
        TT_TRY(make_ones(loading, piece->dtype, &ones));
        for (size_t done = 0; done < bytes; done += ONES_BYTES)
            TT_TRY(tt_copy_to_device(loading->stream, (char *)data + done, ones,
                                     bytes - done < ONES_BYTES ? bytes - done : ONES_BYTES));
        return TT_OK;
    }
    if (param->init == TT_INIT_CONSTANT)
        return fill_constant(loading, piece->dtype, param->init_scale, data, count);
    struct tt_random_fill_args args = {
        .y = tt_tensor_1d(data, piece->dtype, count),
        .rng = tt_rng_derive(tt_rng_derive(tt_rng_make(loading->source->seed), "init"), param->name),
        .first = first,
        .normal = param->init == TT_INIT_NORMAL,
        .scale = param->init_scale,
    };
    return tt_random_fill(loading->stream, &args);
}

static tt_status read_coded(void *context, int64_t first, int64_t count, void *to)
{
    const struct coded_experts *coded = context;
    return tt_model_folder_read_coded(coded->folder, coded->entry, coded->layout, (size_t)first,
                                      (size_t)count, to);
}

/* The part of rows of a table that a piece has, row by row: from the table's file, or by the table's first values. */
static tt_status load_rows(struct loading *loading, const struct tt_piece *piece)
{
    tt_param *table = piece->param->rows_of;
    int64_t width = table->dims[1], end = piece->first + piece->count;
    struct origin origin;
    TT_TRY(find_origin(loading->model, loading->source, table, &origin));
    for (int64_t at = piece->first, count; at < end; at += count) {
        count = width - at % width < end - at ? width - at % width : end - at;
        int64_t first = piece->param->tokens[at / width] * width + at % width;
        char *to = (char *)piece->data + (size_t)(at - piece->first) * tt_dtype_bytes(piece->dtype);
        struct tt_piece row = {.param = table, .dtype = piece->dtype};
        if (origin.entry == NULL) {
            TT_TRY(make_run(loading, &row, first, count, to));
            continue;
        }
        const struct tt_safetensors *file = tt_model_folder_file(origin.folder, origin.entry);
        if (file == NULL) return TT_ERR_INTERNAL;
        loading->ranges[loading->range_count++] = (struct tt_read_range){
            .file = file,
            .entry = origin.entry,
            .first = first,
            .count = count,
            .to = to,
            .dtype = piece->dtype,
            .in_host = piece->in_host,
            .name = piece->param->name,
        };
    }
    return TT_OK;
}

/* The ranges of files that pieces may have: one each, of coded ones several, of rows of a table one for each. */
static size_t count_ranges(const struct loading *loading, struct tt_unit *const *units)
{
    bool stored = loading->model->facts.stored_quant != TT_QUANT_NONE;
    size_t count = 0;
    for (int u = 0; u < loading->model->unit_count; u++)
        for (size_t p = 0; p < tt_unit_piece_count(units[u]); p++) {
            const struct tt_piece piece = tt_unit_piece(units[u], p);
            count += stored ? TT_STORED_RANGES_MAX : 1;
            if (piece.param->init == TT_INIT_ROWS) count += (size_t)piece.param->dims[0];
        }
    return count;
}

/* A base's weight without the first values, and first values of B in a file that has them with the other sign. */
static tt_status add_residual(struct loading *loading, const tt_param *param, const struct origin *origin,
                              const struct tt_safetensors *file, struct tt_residual **out)
{
    struct tt_residual *residual = &loading->residuals[loading->residual_count];
    const struct tt_first_adapter *first = &loading->source->first;
    TT_TRY(tt_residual_find(loading->model, first->changes_base ? first->file : NULL, first->negated, param,
                            residual));
    bool turned =
        origin->first && loading->source->first.negated && tt_ends_with(param->name, ".lora_B.weight");
    residual->turned = turned;
    if (residual->first == NULL && !turned) return TT_OK;
    residual->file = file;
    residual->entry = origin->entry;
    loading->residual_count++;
    *out = residual;
    return TT_OK;
}

/* Records the ranges of files, which are read together later, and writes initial values. */
static tt_status load_piece(struct loading *loading, const struct tt_piece *piece)
{
    struct origin origin;
    if (piece->count == 0) return TT_OK;
    const tt_param *original =
        piece->param->transposed_of != NULL ? piece->param->transposed_of : piece->param;
    if (loading->source->adapter_only && !original->adapter) return TT_OK;
    TT_TRY(find_origin(loading->model, loading->source, original, &origin));
    bool quantized = tt_param_is_quantized(piece->param);
    if (origin.entry == NULL && quantized && piece->param->init != TT_INIT_FILE) {
        loading->items[loading->item_count++] = (struct tt_quant_item){.piece = *piece};
        return TT_OK;
    }
    if (origin.entry == NULL && piece->param->init == TT_INIT_ROWS) return load_rows(loading, piece);
    if (origin.entry == NULL) return make_run(loading, piece, piece->first, piece->count, piece->data);
    const struct tt_safetensors *file =
        origin.adapter != NULL ? origin.adapter : tt_model_folder_file(origin.folder, origin.entry);
    if (file == NULL) return TT_ERR_INTERNAL;
    if (keeps_experts(loading->model, piece->param)) {
        struct coded_experts *coded = &loading->coded[loading->coded_count++];
        *coded = (struct coded_experts){origin.folder, origin.entry, &piece->param->quant};
        loading->ranges[loading->range_count++] = (struct tt_read_range){.file = file,
                                                                         .entry = origin.entry,
                                                                         .first = piece->first,
                                                                         .count = piece->count,
                                                                         .to = piece->data,
                                                                         .dtype = TT_U8,
                                                                         .in_host = piece->in_host,
                                                                         .make = read_coded,
                                                                         .context = coded,
                                                                         .name = piece->param->name};
        return TT_OK;
    }
    struct tt_residual *residual = NULL;
    TT_TRY(add_residual(loading, original, &origin, file, &residual));
    if (residual != NULL) residual->dtype = quantized ? TT_F32 : piece->dtype;
    struct tt_stored_quant *stored = NULL;
    if (is_stored_quantized(loading->model, piece->param)) {
        stored = &loading->stored[loading->stored_count++];
        TT_TRY(tt_stored_quant_find(origin.folder, original, stored));
        if (tt_stored_quant_keeps(stored, piece->param))
            return tt_stored_quant_ranges(stored, piece, loading->ranges, &loading->range_count);
    }
    if (quantized) {
        loading->items[loading->item_count++] =
            (struct tt_quant_item){*piece, file, origin.entry, stored, residual};
        return TT_OK;
    }
    loading->ranges[loading->range_count++] = (struct tt_read_range){
        .file = file,
        .entry = origin.entry,
        .first = piece->first,
        .count = piece->count,
        .to = piece->data,
        .dtype = piece->dtype,
        .in_host = piece->in_host,
        .make = residual != NULL ? tt_residual_read : NULL,
        .context = residual,
        .name = piece->param->name,
    };
    return TT_OK;
}

/* Moves the items that the device quantizes to the front, in their order; returns their number. */
static size_t partition_items(struct loading *loading)
{
    const tt_tensor *scratch = &loading->source->scratch;
    const struct tt_device *device = tt_stream_device(loading->stream);
    size_t bytes = tt_tensor_is_empty(*scratch) ? 0 : (size_t)scratch->dims[0], count = 0;
    for (size_t i = 0; i < loading->item_count; i++) {
        struct tt_quant_item item = loading->items[i];
        if (!tt_load_on_device_takes(device, &item, bytes)) continue;
        loading->items[i] = loading->items[count];
        loading->items[count++] = item;
    }
    return count;
}

static tt_status load_pieces(struct loading *loading, struct tt_unit *const *units)
{
    size_t piece_count = 0;
    for (int u = 0; u < loading->model->unit_count; u++) piece_count += tt_unit_piece_count(units[u]);
    bool stored = loading->model->facts.stored_quant != TT_QUANT_NONE;
    loading->ranges = tt_calloc(count_ranges(loading, units), sizeof *loading->ranges);
    loading->stored = tt_calloc(stored ? piece_count : 1, sizeof *loading->stored);
    loading->items = tt_calloc(piece_count, sizeof *loading->items);
    loading->residuals = tt_calloc(piece_count + 1, sizeof *loading->residuals);
    loading->coded = tt_calloc(stored ? piece_count : 1, sizeof *loading->coded);
    if (loading->ranges == NULL || loading->items == NULL || loading->stored == NULL ||
        loading->coded == NULL || loading->residuals == NULL)
        return TT_ERR_MEMORY;
    for (int u = 0; u < loading->model->unit_count; u++) {
        for (size_t p = 0; p < tt_unit_piece_count(units[u]); p++) {
            struct tt_piece piece = tt_unit_piece(units[u], p);
            tt_status status = load_piece(loading, &piece);
            if (status != TT_OK) tt_while("loading '%s'", piece.param->name);
            TT_TRY(status);
        }
    }
    struct tt_reader_config config = {.cancel = loading->source->cancel};
    TT_TRY(tt_reader_run(loading->stream, loading->ranges, loading->range_count, &config));
    size_t on_device = partition_items(loading);
    TT_TRY(tt_load_on_device(loading->stream, loading->items, on_device, loading->source->seed,
                             loading->source->scratch, &config));
    return tt_load_quantized(loading->stream, loading->items + on_device, loading->item_count - on_device,
                             loading->source->seed, &config);
}

tt_status tt_load_units(const struct tt_model *model, struct tt_unit *const *units, struct tt_stream *stream,
                        const struct tt_load_source *source)
{
    if (tt_device_is_plan(tt_stream_device(stream))) return TT_OK;
    struct loading loading = {.model = model, .source = source, .stream = stream};
    tt_status status = load_pieces(&loading, units);
    for (int u = 0; u < model->unit_count && status == TT_OK; u++) {
        status = tt_unit_frozen_changed(units[u]);
        if (status == TT_OK) status = tt_unit_masters_changed(units[u]);
    }
    struct tt_error error;
    tt_error_copy(&error);
    tt_status synchronized = tt_stream_synchronize(stream); /* the ones are uploaded */
    if (status != TT_OK) (void)tt_error_restore(&error);
    for (int d = 0; d < TT_DTYPE_COUNT; d++) tt_buffer_destroy(loading.ones[d]);
    tt_free(loading.ranges);
    tt_free(loading.items);
    tt_free(loading.stored);
    tt_free(loading.coded);
    tt_free(loading.residuals);
    return status != TT_OK ? status : synchronized;
}
