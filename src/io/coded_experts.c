#include "io/coded_experts.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/integer.h"
#include "base/str.h"
#include "io/param_source_impl.h"
#include "io/quantized_impl.h"
#include "io/safetensors_impl.h"

enum { READ_NUMBERS = 1 << 14 };

static const char weight_end[] = ".weight";

/* The sources of each tensor of the file. */
struct tt_coded_experts {
    const struct tt_model_folder *folder;
    struct tt_quantized *items;
};

void tt_coded_experts_destroy(struct tt_coded_experts *experts)
{
    if (experts == NULL) return;
    tt_free(experts->items);
    tt_free(experts);
}

/* Numbers of a matrix in a format of bitsandbytes: its codes of this range, with all scales, as a segment. */
static tt_status decode(const struct tt_model_folder *folder, const struct tt_quantized *from, int64_t first,
                        int64_t count, uint16_t *to)
{
    const struct tt_quant_layout *layout = &from->layout;
    size_t scales = layout->absmax.offset, low = (size_t)(first / layout->byte_weights);
    size_t high = (size_t)((first + count - 1) / layout->byte_weights) + 1;
    uint8_t *segment = tt_alloc_aligned(layout->bytes);
    if (segment == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_quantized_read(folder, from, low, high - low, segment + low);
    if (status == TT_OK)
        status = tt_quantized_read(folder, from, scales, layout->bytes - scales, segment + scales);
    if (status == TT_OK) tt_quant_decode(layout, segment, first, count, to, TT_BF16);
    tt_free(segment);
    return status;
}

tt_status tt_coded_experts_read(const struct tt_safetensors *file, const struct tt_safetensors_entry *entry,
                                int64_t first, int64_t count, void *to)
{
    const struct tt_coded_experts *experts = file->coded;
    const struct tt_quantized *from = &experts->items[entry - file->entries];
    float numbers[READ_NUMBERS];
    uint16_t *out = to;
    if (count == 0) return TT_OK;
    if (!tt_quant_is_compressed(from->layout.format.type))
        return decode(experts->folder, from, first, count, out);
    for (int64_t done = 0, here; done < count; done += here) {
        here = tt_smaller(READ_NUMBERS, count - done);
        TT_TRY(tt_quantized_read_weights(experts->folder, from, first + done, here, numbers));
        for (int64_t i = 0; i < here; i++) out[done + i] = tt_f32_to_bf16(numbers[i]);
    }
    return TT_OK;
}

/* A matrix of a single expert, unless it is in numbers. */
static bool may_be_coded(const struct tt_param_sources *sources, const struct tt_stored_tensor_place *place)
{
    struct tt_source_numbers numbers;
    const struct tt_safetensors_entry *entry = place->entry;
    bool plain = tt_dtype_is_float(entry->dtype) && tt_dtype_bytes(entry->dtype) > 1;
    if (!tt_ends_with(place->name, weight_end)) return false;
    /* a type may be a name for the bytes of codes */
    if (plain && !(entry->rank == 2 && entry->dims[1] == 1)) return false;
    for (const struct tt_param_source *row = sources->rows; row->param != NULL; row++)
        for (int p = 0; p < tt_source_part_count(row); p++)
            if (tt_source_by_expert(&row->parts[p]) &&
                tt_source_fits(sources->path, row->parts[p].tensor, place->name, &numbers))
                return true;
    return false;
}

static const char scales_end[] = "_scale_inv", inputs_end[] = "_activation_scale";

/* The scales of a tensor with the matrices of all experts in FP8; NULL: it is none. */
static const struct tt_safetensors_entry *scales_of_all(const struct tt_model_folder *folder,
                                                        const struct tt_stored_tensor_place *place)
{
    char name[TT_SOURCE_NAME_BYTES];
    if (place->entry->rank != 3 || place->entry->dtype != TT_F8_E4M3) return NULL;
    int bytes = snprintf(name, sizeof name, "%s%s", place->name, scales_end);
    return bytes > 0 && (size_t)bytes < sizeof name ? tt_model_folder_find(folder, name) : NULL;
}

/* The same of any tensor, by its name. */
static bool is_beside_all(const struct tt_safetensors *file, const char *name)
{
    static const char *const ends[] = {scales_end, inputs_end};
    char tensor[TT_SOURCE_NAME_BYTES];
    for (int i = 0; i < 2; i++) {
        if (!tt_ends_with(name, ends[i]) || strlen(name) >= sizeof tensor) continue;
        (void)snprintf(tensor, sizeof tensor, "%.*s", (int)(strlen(name) - strlen(ends[i])), name);
        const struct tt_safetensors_entry *entry = tt_safetensors_find(file, tensor);
        if (entry != NULL && entry->rank == 3) return true;
    }
    return false;
}

/* Scales and tables of such a matrix, and the scale of its input, which training does not read. */
static bool is_beside(const struct tt_safetensors *file, const struct tt_stored_tensor_place *place)
{
    size_t bytes;
    char name[TT_SOURCE_NAME_BYTES];
    if (is_beside_all(file, place->name)) return true;
    if (!tt_quantized_is_part(place->name, &bytes) || bytes + sizeof weight_end > sizeof name) return false;
    (void)snprintf(name, sizeof name, "%.*s%s", (int)bytes, place->name, weight_end);
    return tt_safetensors_find(file, name) != NULL;
}

static tt_status add(struct tt_safetensors *file, const struct tt_stored_tensor_place *codes,
                     const struct tt_quantized *tensor)
{
    struct tt_safetensors_entry *entry = &file->entries[file->count];
    file->coded->items[file->count] = *tensor;
    *entry = *codes->entry;
    entry->name = tt_arena_strdup(&file->arena, codes->name);
    if (entry->name == NULL) return TT_ERR_MEMORY;
    entry->dtype = TT_BF16;
    memcpy(entry->dtype_name, "BF16", sizeof "BF16");
    if (entry->rank != 3) {
        entry->rank = 2;
        entry->dims[0] = tensor->layout.rows;
        entry->dims[1] = tensor->layout.cols;
    }
    entry->bytes = (uint64_t)tensor->layout.count * tt_dtype_bytes(TT_BF16);
    entry->offset = file->file_bytes;
    file->file_bytes += entry->bytes;
    file->count++;
    return TT_OK;
}

static tt_status create_file(const struct tt_model_folder *folder, size_t most, struct tt_safetensors **out)
{
    struct tt_safetensors *file = *out = tt_safetensors_create(tt_model_folder_path(folder), most);
    if (file == NULL) return TT_ERR_MEMORY;
    file->coded = tt_calloc(1, sizeof *file->coded);
    if (file->coded == NULL) return TT_ERR_MEMORY;
    file->coded->folder = folder;
    file->coded->items = tt_calloc(most, sizeof *file->coded->items);
    return file->coded->items != NULL ? TT_OK : TT_ERR_MEMORY;
}

/* Those whose scales are there. */
static tt_status add_all(const struct tt_param_sources *sources, const struct tt_stored_tensor_place *tensors,
                         size_t count, struct tt_safetensors *file)
{
    for (size_t i = 0; i < count; i++) {
        struct tt_quantized tensor;
        const struct tt_model_folder *folder = file->coded->folder;
        const struct tt_safetensors_entry *scales = scales_of_all(folder, &tensors[i]);
        if (scales != NULL)
            TT_TRY(tt_fp8_find_experts(tensors[i].entry, scales, &tensor));
        else if (may_be_coded(sources, &tensors[i]))
            TT_TRY(tt_quantized_find(folder, tensors[i].name, &tensor));
        else
            continue;
        if (tensor.layout.format.type != TT_QUANT_NONE) TT_TRY(add(file, &tensors[i], &tensor));
    }
    return TT_OK;
}

tt_status tt_coded_experts_show(const struct tt_model_folder *folder, const struct tt_param_sources *sources,
                                struct tt_stored_tensor_place *tensors, size_t *count,
                                struct tt_safetensors **out)
{
    size_t coded = 0, kept = 0;
    struct tt_safetensors *file = NULL;
    tt_status status = TT_OK;
    *out = NULL;
    for (size_t i = 0; i < *count; i++)
        coded += may_be_coded(sources, &tensors[i]) || scales_of_all(folder, &tensors[i]) != NULL;
    if (coded == 0) return TT_OK;
    TT_GO(create_file(folder, coded, &file));
    TT_GO(add_all(sources, tensors, *count, file));
    if (file->count == 0) goto out;
    TT_GO(tt_safetensors_index(file));
    for (size_t i = 0, next = 0; i < *count; i++) {
        const struct tt_safetensors_entry *entry = next < file->count ? &file->entries[next] : NULL;
        if (entry != NULL && strcmp(entry->name, tensors[i].name) == 0) {
            tensors[kept++] = (struct tt_stored_tensor_place){entry->name, entry, file};
            next++;
        } else if (!is_beside(file, &tensors[i])) {
            tensors[kept++] = tensors[i];
        }
    }
    *count = kept;
    *out = file;
    file = NULL;
out:
    tt_safetensors_close(file);
    return status;
}

/* ---- In codes ---- */

const struct tt_quantized *tt_coded_experts_all(const struct tt_safetensors *coded,
                                                const struct tt_safetensors_entry *entry)
{
    return &coded->coded->items[entry - coded->entries];
}

/* A joined tensor while the segment of all its matrices is made. */
struct stack {
    const struct tt_safetensors *coded, *joined;
    const struct tt_safetensors_entry *entry;
};

/* The matrix of piece `index`, false behind the last; NULL where the piece is a part of one, or of another file. */
static bool find_matrix(const struct stack *stack, size_t index, const struct tt_quantized **matrix)
{
    const struct tt_stored_tensor_place *place;
    const struct tt_source_piece *piece = tt_joined_piece_at(stack->joined, stack->entry, index, &place);
    *matrix = NULL;
    if (piece == NULL || place->file != stack->coded) return piece != NULL;
    const struct tt_quantized *item = &stack->coded->coded->items[place->entry - stack->coded->entries];
    const struct tt_quant_layout *layout = &item->layout;
    bool whole = piece->rows == layout->rows && piece->columns == layout->cols && piece->offset == 0 &&
                 tt_source_piece_by_rows(piece) && piece->row_stride == piece->columns &&
                 piece->group_rows == piece->rows;
    if (whole) *matrix = item;
    return true;
}

/* The format of a stack of such matrices, where their blocks are whole in each: scales are not nested. */
static struct tt_quant_format format_of(const struct tt_quant_layout *layout)
{
    struct tt_quant_format format = layout->format;
    int64_t whole =
        layout->row_squares > 0 ? layout->rows % TT_FP8_BLOCK : layout->count % layout->block_weights;
    format.nested = false;
    format.nested_block = 0;
    if (whole != 0) format.type = TT_QUANT_NONE;
    return format;
}

tt_status tt_coded_experts_layout(const struct tt_safetensors *coded, const struct tt_safetensors *joined,
                                  const struct tt_safetensors_entry *entry, struct tt_quant_layout *layout)
{
    const struct stack stack = {coded, joined, entry};
    const struct tt_quantized *item;
    struct tt_quant_format format = {.type = TT_QUANT_NONE};
    int64_t rows = 0, cols = entry->dims[entry->rank - 1];
    *layout = (struct tt_quant_layout){.rows = 0};
    for (size_t p = 0; find_matrix(&stack, p, &item); p++) {
        struct tt_quant_format own = {.type = TT_QUANT_NONE};
        if (item != NULL && item->layout.cols == cols) own = format_of(&item->layout);
        if (p == 0) format = own;
        if (own.type == TT_QUANT_NONE || own.type != format.type || own.block != format.block) return TT_OK;
        rows += item->layout.rows;
    }
    return format.type != TT_QUANT_NONE ? tt_quant_layout_make(format, rows, cols, layout) : TT_OK;
}

/* The segment's bytes to fill, and where those of one section of a matrix begin in it. */
struct filling {
    const struct tt_model_folder *folder;
    size_t first, end;
    uint8_t *to;
};

/* Bytes of a matrix's own section that the segment has from byte `at` on. */
static tt_status fill(const struct filling *filling, const struct tt_quantized *item,
                      const struct tt_quant_section *section, size_t at)
{
    size_t low = at > filling->first ? at : filling->first, high = at + section->bytes;
    if (high > filling->end) high = filling->end;
    if (low >= high) return TT_OK;
    return tt_quantized_read(filling->folder, item, section->offset + (low - at), high - low,
                             filling->to + (low - filling->first));
}

/* All scales of a matrix as fp32, nested ones as decoding computes them; its table must be the format's. */
static tt_status read_scales(const struct tt_model_folder *folder, const struct tt_quantized *item,
                             float *scales)
{
    const struct tt_quant_layout *layout = &item->layout;
    const float *wanted = tt_quant_map(layout->format.type);
    size_t begin = layout->absmax.offset;
    uint8_t *segment = tt_alloc_aligned(layout->bytes);
    if (segment == NULL) return TT_ERR_MEMORY;
    tt_status status = tt_quantized_read(folder, item, begin, layout->bytes - begin, segment + begin);
    if (status == TT_OK && wanted != NULL &&
        memcmp(segment + layout->map.offset, wanted, layout->map.bytes) != 0)
        status = tt_fail(TT_ERR_UNSUPPORTED, "'%s' is of an expert, and its %s has values of its own",
                         item->parts[0].entry->name, tt_quant_type_name(layout->format.type));
    for (int64_t i = 0; status == TT_OK && i < layout->blocks; i++)
        scales[i] = tt_quant_scale(layout, segment, i);
    tt_free(segment);
    return status;
}

static tt_status fill_scales(const struct filling *filling, const struct tt_quantized *item, size_t at)
{
    size_t bytes = (size_t)item->layout.blocks * sizeof(float);
    size_t low = at > filling->first ? at : filling->first, high = at + bytes;
    if (high > filling->end) high = filling->end;
    if (low >= high) return TT_OK;
    float *scales = tt_alloc_aligned(bytes);
    if (scales == NULL) return TT_ERR_MEMORY;
    tt_status status = read_scales(filling->folder, item, scales);
    if (status == TT_OK)
        memcpy(filling->to + (low - filling->first), (const uint8_t *)scales + (low - at), high - low);
    tt_free(scales);
    return status;
}

tt_status tt_coded_experts_read_segment(const struct tt_safetensors *coded,
                                        const struct tt_safetensors *joined,
                                        const struct tt_safetensors_entry *entry,
                                        const struct tt_quant_layout *layout, size_t first, size_t bytes,
                                        void *to)
{
    const struct stack stack = {coded, joined, entry};
    const struct tt_quantized *item;
    const struct filling filling = {coded->coded->folder, first, first + bytes, to};
    size_t codes = layout->codes.offset, scales = layout->absmax.offset;
    memset(to, 0, bytes);
    for (size_t p = 0; find_matrix(&stack, p, &item); p++) {
        if (item == NULL) return tt_fail(TT_ERR_INTERNAL, "'%s' is not in codes", entry->name);
        TT_TRY(fill(&filling, item, &item->layout.codes, codes));
        TT_TRY(fill_scales(&filling, item, scales));
        if (p == 0) TT_TRY(fill(&filling, item, &item->layout.map, layout->map.offset));
        codes += item->layout.codes.bytes;
        scales += (size_t)item->layout.blocks * sizeof(float);
    }
    return TT_OK;
}
