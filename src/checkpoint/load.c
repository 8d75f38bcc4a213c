#include "checkpoint/load.h"

#include <string.h>

#include "backend/ops/elementwise.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "model/adapter_config.h"

/* Elements that pass through host memory at a time: at most 1 MiB of fp32. */
enum { STAGING_COUNT = 256 * 1024 };

/* Where a parameter's values come from: a tensor of the folder or of the adapter, or neither. */
struct origin {
    const struct tt_model_folder *folder;
    const struct tt_safetensors *adapter;
    const struct tt_safetensors_entry *entry;
};

static tt_status find_origin(const struct tt_model *model, const struct tt_load_source *source,
                             const tt_param *param, struct origin *origin)
{
    *origin = (struct origin){0};
    if (param->adapter && source->adapter != NULL) {
        char *key = tt_adapter_key(param->name);
        if (key == NULL) return TT_ERR_MEMORY;
        origin->entry = tt_safetensors_find(source->adapter, key);
        tt_free(key);
        origin->adapter = source->adapter;
    } else if (source->folder != NULL) {
        /* modules_to_save train full copies that start from the base; LoRA's matrices are not in the folder.
         */
        const char *name = tt_model_source_name(model, param);
        origin->entry = name != NULL ? tt_model_folder_find(source->folder, name) : NULL;
        origin->folder = source->folder;
    }
    return TT_OK;
}

/* What is wrong, gathered into one message of bounded length. */
struct complaint {
    struct tt_str text;
    int64_t missing, unexpected, misshapen;
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

static tt_status check_params(const struct tt_model *model, const struct tt_load_source *source,
                              struct complaint *complaint)
{
    for (size_t i = 0; i < model->param_count; i++) {
        const tt_param *param = model->params[i];
        struct origin origin;
        TT_TRY(find_origin(model, source, param, &origin));
        bool base_from_file = !param->adapter && source->folder != NULL;
        bool adapter_from_file = param->adapter && source->adapter != NULL;
        if (origin.entry == NULL) {
            if (base_from_file || adapter_from_file)
                TT_TRY(complain(complaint, &complaint->missing, "missing", param->name));
        } else if (!same_shape(param, origin.entry)) {
            TT_TRY(complain(complaint, &complaint->misshapen, "of another shape", param->name));
        } else if (!tt_dtype_is_float(origin.entry->dtype)) {
            TT_TRY(complain(complaint, &complaint->misshapen, "of a type that is no float", param->name));
        }
    }
    return TT_OK;
}

static bool carries_nothing(const struct tt_model *model, const char *name)
{
    size_t bytes = strlen(name);
    static const char inverse[] = "rotary_emb.inv_freq";
    if (bytes >= sizeof inverse - 1 && strcmp(name + bytes - (sizeof inverse - 1), inverse) == 0) return true;
    return model->config.tie_word_embeddings && strcmp(name, "lm_head.weight") == 0;
}

static tt_status check_folder(const struct tt_model *model, const struct tt_model_folder *folder,
                              struct complaint *complaint)
{
    for (size_t i = 0; i < tt_model_folder_tensor_count(folder); i++) {
        const char *name = tt_model_folder_tensor(folder, i)->name;
        if (tt_model_find_param(model, name) == NULL && !carries_nothing(model, name))
            TT_TRY(complain(complaint, &complaint->unexpected, "unexpected", name));
    }
    return TT_OK;
}

/* With LoRA on lm_head, PEFT also saves the head as it was: the base has it already. */
static bool is_base_copy(const char *key)
{
    static const char ending[] = ".base_layer.weight";
    size_t bytes = strlen(key);
    return bytes >= sizeof ending - 1 && strcmp(key + bytes - (sizeof ending - 1), ending) == 0;
}

static tt_status check_adapter(const struct tt_model *model, const struct tt_safetensors *adapter,
                               struct complaint *complaint)
{
    for (size_t i = 0; i < tt_safetensors_count(adapter); i++) {
        const char *key = tt_safetensors_entry(adapter, i)->name;
        if (is_base_copy(key)) continue;
        char *name = tt_adapter_param_name(key);
        const tt_param *param = name != NULL ? tt_model_find_param(model, name) : NULL;
        tt_free(name);
        if (param == NULL || !param->adapter)
            TT_TRY(complain(complaint, &complaint->unexpected, "unexpected", key));
    }
    return TT_OK;
}

tt_status tt_load_check(const struct tt_model *model, const struct tt_load_source *source)
{
    struct complaint complaint = {0};
    tt_status status = check_params(model, source, &complaint);
    if (status == TT_OK && source->folder != NULL) status = check_folder(model, source->folder, &complaint);
    if (status == TT_OK && source->adapter != NULL)
        status = check_adapter(model, source->adapter, &complaint);
    int64_t total = complaint.missing + complaint.unexpected + complaint.misshapen;
    if (status == TT_OK && total > 0) {
        status = tt_fail(TT_ERR_DATA, "the tensors do not match a %s model: %s%s", model->config.model_type,
                         tt_str_text(&complaint.text), total > COMPLAINTS_SHOWN ? ", ..." : "");
        tt_hint("%lld missing, %lld unexpected, %lld of another shape or type; does config.json belong to "
                "these weights?",
                (long long)complaint.missing, (long long)complaint.unexpected,
                (long long)complaint.misshapen);
    }
    tt_str_deinit(&complaint.text);
    return status;
}

static tt_status read_origin(const struct origin *origin, int64_t first, int64_t count, void *to,
                             tt_dtype dtype)
{
    if (origin->adapter != NULL)
        return tt_safetensors_read(origin->adapter, origin->entry, first, count, to, dtype);
    return tt_model_folder_read(origin->folder, origin->entry, first, count, to, dtype);
}

static tt_status make_values(const struct tt_piece *piece, struct tt_stream *stream, uint64_t seed,
                             float *staging)
{
    const tt_param *param = piece->param;
    if (param->init == TT_INIT_FILE)
        return tt_fail(TT_ERR_INTERNAL, "parameter '%s' has neither a file nor an initial value",
                       param->name);
    if (param->init == TT_INIT_ZERO)
        return tt_fill_zero(stream, piece->data, (size_t)piece->count * tt_dtype_bytes(piece->dtype));
    if (param->init == TT_INIT_ONE) {
        for (int64_t i = 0; i < STAGING_COUNT; i++) staging[i] = 1.0f;
        for (int64_t done = 0; done < piece->count; done += STAGING_COUNT / 2) {
            int64_t count = piece->count - done < STAGING_COUNT / 2 ? piece->count - done : STAGING_COUNT / 2;
            float *converted = staging + STAGING_COUNT / 2;
            (void)tt_dtype_convert(converted, piece->dtype, staging, TT_F32, (size_t)count);
            char *to = (char *)piece->data + (size_t)done * tt_dtype_bytes(piece->dtype);
            TT_TRY(tt_copy_to_device(stream, to, converted, (size_t)count * tt_dtype_bytes(piece->dtype)));
            TT_TRY(tt_stream_synchronize(stream));
        }
        return TT_OK;
    }
    struct tt_random_fill_args args = {
        .y = tt_tensor_1d(piece->data, piece->dtype, piece->count),
        .rng = tt_rng_derive(tt_rng_derive(tt_rng_make(seed), "init"), param->name),
        .first = piece->first,
        .normal = param->init == TT_INIT_NORMAL,
        .scale = param->init_scale,
    };
    return tt_random_fill(stream, &args);
}

static tt_status load_piece(const struct tt_model *model, const struct tt_piece *piece,
                            struct tt_stream *stream, const struct tt_load_source *source, float *staging)
{
    struct origin origin;
    if (piece->count == 0) return TT_OK;
    TT_TRY(find_origin(model, source, piece->param, &origin));
    if (origin.entry == NULL) return make_values(piece, stream, source->seed, staging);
    size_t element = tt_dtype_bytes(piece->dtype);
    for (int64_t done = 0; done < piece->count; done += STAGING_COUNT) {
        int64_t count = piece->count - done < STAGING_COUNT ? piece->count - done : STAGING_COUNT;
        TT_TRY(read_origin(&origin, piece->first + done, count, staging, piece->dtype));
        TT_TRY(tt_copy_to_device(stream, (char *)piece->data + (size_t)done * element, staging,
                                 (size_t)count * element));
        TT_TRY(tt_stream_synchronize(stream));
    }
    return TT_OK;
}

tt_status tt_load_units(const struct tt_model *model, struct tt_unit *const *units, struct tt_stream *stream,
                        const struct tt_load_source *source)
{
    if (tt_device_is_plan(tt_stream_device(stream))) return TT_OK;
    tt_status status = TT_OK;
    float *staging = tt_alloc_aligned(STAGING_COUNT * sizeof *staging);
    if (staging == NULL) return TT_ERR_MEMORY;
    for (int u = 0; u < model->unit_count && status == TT_OK; u++) {
        for (size_t p = 0; p < tt_unit_piece_count(units[u]) && status == TT_OK; p++) {
            struct tt_piece piece = tt_unit_piece(units[u], p);
            status = load_piece(model, &piece, stream, source, staging);
            if (status != TT_OK) tt_while("loading '%s'", piece.param->name);
        }
        if (status == TT_OK) status = tt_unit_frozen_changed(units[u]);
        if (status == TT_OK) status = tt_unit_masters_changed(units[u]);
    }
    tt_free(staging);
    return status;
}
