/* The values of merged tensors: chunks of rows, read, summed and written by several threads. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/integer.h"
#include "convert/merge_order.h"
#include "tensor/format.h"

/* Bytes of a chunk of rows in fp32, and of the parts of B and A beside it: a thread uses at most eight times as much,
 * more only where a single row or head is larger. */
enum { CHUNK_BYTES = 8 << 20, THREADS_MAX = 8 };

/* Rows and columns whose sums stay in registers. */
enum { TILE_ROWS = 4, TILE_COLUMNS = 8 };
typedef float four __attribute__((vector_size(16)));

struct chunk {
    size_t output;
    int64_t first, rows;
    int64_t to; /* the first of its rows in the file */
    struct tt_merge_change change;
};

struct work {
    const struct tt_merge *merge;
    struct tt_merge_output *outputs;
    struct chunk *chunks;
    size_t chunk_count;
    const struct tt_cancel *cancel;
    atomic_size_t next;
    atomic_bool failed;
    pthread_mutex_t lock; /* of transposed pieces */
};

/* A growing buffer. */
struct room {
    void *data;
    size_t bytes;
};

struct hand {
    struct room values, product, a, b, experts, packed, out, base, segment, arranged, encoded;
    const struct tt_merge_tensor *a_tensor; /* whose A is in `a`, */
    int64_t a_first, a_count;               /* these rows of it */
};

static void *reserve(struct room *room, size_t bytes)
{
    if (bytes <= room->bytes) return room->data;
    tt_free(room->data);
    *room = (struct room){0};
    room->data = tt_alloc_aligned(bytes);
    if (room->data != NULL) room->bytes = bytes;
    return room->data;
}

static void hand_deinit(struct hand *hand)
{
    struct room *rooms[] = {&hand->values,  &hand->product,  &hand->a,      &hand->b,
                            &hand->experts, &hand->packed,   &hand->out,    &hand->base,
                            &hand->segment, &hand->arranged, &hand->encoded};
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) tt_free(rooms[i]->data);
}

/* Rows of A held at a time. */
static int64_t a_rows(const struct tt_merge_tensor *tensor)
{
    int64_t rows = CHUNK_BYTES / (tensor->columns * (int64_t)sizeof(float));
    return tt_smaller(rows > 0 ? rows : 1, tensor->r);
}

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    return b == 0 ? a : greatest_divisor(b, a % b);
}

/* Number of rows whose multiples are whole blocks of a quantized matrix, nested blocks included; 1 for squares,
 * which are read at any row. */
static int64_t rows_per_block(const struct tt_quant_layout *layout)
{
    int64_t block = layout->block_weights;
    if (block == 0) return 1;
    if (layout->format.nested) block *= layout->format.nested_block;
    return block / greatest_divisor(block, layout->cols);
}

static int64_t rows_per_chunk(const struct tt_merge_output *output)
{
    const struct tt_merge_tensor *tensor = output->tensor;
    if (output->arrangement.transposed) return output->part_rows;
    int64_t row_bytes = (tensor->columns + tensor->r) * (int64_t)sizeof(float);
    int64_t rows = CHUNK_BYTES / row_bytes, whole = output->head_rows > 0 ? output->head_rows : 1;
    if (tensor->quantized != NULL)
        whole *= rows_per_block(&tensor->quantized->layout) /
                 greatest_divisor(whole, rows_per_block(&tensor->quantized->layout));
    rows -= rows % whole;
    return rows > 0 ? rows : whole;
}

/* y += b[rows, k] * packed[k, 8] for up to four rows. */
static void add_tile(const float *b, int64_t b_stride, int64_t k_count, const float *packed, int rows,
                     float y[TILE_ROWS][TILE_COLUMNS])
{
    four sums[TILE_ROWS][2];
    memcpy(sums, y, sizeof sums);
    const float *b_rows[TILE_ROWS];
    for (int i = 0; i < TILE_ROWS; i++) b_rows[i] = b + (i < rows ? i : 0) * b_stride;
    for (int64_t k = 0; k < k_count; k++) {
        four left, right;
        memcpy(&left, packed + k * TILE_COLUMNS, sizeof left);
        memcpy(&right, packed + k * TILE_COLUMNS + 4, sizeof right);
        for (int i = 0; i < TILE_ROWS; i++) {
            sums[i][0] += b_rows[i][k] * left;
            sums[i][1] += b_rows[i][k] * right;
        }
    }
    memcpy(y, sums, sizeof sums);
}

/* product[rows, columns] += b[rows, k] * a[k, columns]. Each sum adds its terms in order of k. */
static void add_product(float *product, int64_t rows, int64_t columns, const float *b, int64_t b_stride,
                        const float *a, int64_t k_count, float *packed)
{
    for (int64_t c = 0; c < columns; c += TILE_COLUMNS) {
        int64_t width = tt_smaller(TILE_COLUMNS, columns - c);
        memset(packed, 0, (size_t)(k_count * TILE_COLUMNS) * sizeof *packed);
        for (int64_t k = 0; k < k_count; k++)
            memcpy(packed + k * TILE_COLUMNS, a + k * columns + c, (size_t)width * sizeof *a);
        for (int64_t i = 0; i < rows; i += TILE_ROWS) {
            float y[TILE_ROWS][TILE_COLUMNS] = {{0}};
            int height = (int)tt_smaller(TILE_ROWS, rows - i);
            for (int t = 0; t < height; t++)
                memcpy(y[t], product + (i + t) * columns + c, (size_t)width * sizeof(float));
            add_tile(b + i * b_stride, b_stride, k_count, packed, height, y);
            for (int t = 0; t < height; t++)
                memcpy(product + (i + t) * columns + c, y[t], (size_t)width * sizeof(float));
        }
    }
}

static tt_status read_a(struct work *work, struct hand *hand, const struct tt_merge_tensor *tensor,
                        int64_t first, int64_t count)
{
    if (hand->a_tensor == tensor && hand->a_first == first && hand->a_count == count) return TT_OK;
    hand->a_tensor = NULL;
    float *a = reserve(&hand->a, (size_t)(count * tensor->columns) * sizeof *a);
    if (a == NULL) return TT_ERR_MEMORY;
    TT_TRY(tt_safetensors_read(work->merge->adapter, tensor->lora_A, first * tensor->columns,
                               count * tensor->columns, a, TT_F32));
    hand->a_tensor = tensor;
    hand->a_first = first;
    hand->a_count = count;
    return TT_OK;
}

/* Rows of one matrix: of the tensor, or of an expert. */
struct lora_rows {
    int64_t first, rows; /* of the matrix */
    int64_t expert;
};

/* B's rows, [rows, r]. Of experts the file has a column j X + e for number j of expert e. */
static tt_status read_b(struct work *work, struct hand *hand, const struct tt_merge_tensor *tensor,
                        const struct lora_rows *of, float *b)
{
    const struct tt_safetensors *adapter = work->merge->adapter;
    int64_t experts = tensor->experts, r = tensor->r, width = r * experts;
    if (experts == 0)
        return tt_safetensors_read(adapter, tensor->lora_B, of->first * r, of->rows * r, b, TT_F32);
    int64_t step = tt_larger(1, CHUNK_BYTES / (width * (int64_t)sizeof(float)));
    float *all = reserve(&hand->experts, (size_t)(tt_smaller(step, of->rows) * width) * sizeof *all);
    if (all == NULL) return TT_ERR_MEMORY;
    for (int64_t done = 0; done < of->rows; done += step) {
        int64_t rows = tt_smaller(step, of->rows - done);
        TT_TRY(tt_safetensors_read(adapter, tensor->lora_B, (of->first + done) * width, rows * width, all,
                                   TT_F32));
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < r; j++) b[(done + i) * r + j] = all[i * width + j * experts + of->expert];
    }
    return TT_OK;
}

/* values += scaling * B A for rows of one matrix. */
static tt_status add_lora_rows(struct work *work, struct hand *hand, const struct tt_merge_tensor *tensor,
                               const struct lora_rows *of, float *values)
{
    int64_t count = of->rows * tensor->columns, step = a_rows(tensor);
    float *product = reserve(&hand->product, (size_t)count * sizeof *product);
    float *b = reserve(&hand->b, (size_t)(of->rows * tensor->r) * sizeof *b);
    float *packed = reserve(&hand->packed, (size_t)(step * TILE_COLUMNS) * sizeof *packed);
    if (product == NULL || b == NULL || packed == NULL) return TT_ERR_MEMORY;
    memset(product, 0, (size_t)count * sizeof *product);
    TT_TRY(read_b(work, hand, tensor, of, b));
    for (int64_t k = 0; k < tensor->r; k += step) {
        int64_t k_count = tt_smaller(step, tensor->r - k);
        TT_TRY(read_a(work, hand, tensor, of->expert * tensor->r + k, k_count));
        add_product(product, of->rows, tensor->columns, b + k, tensor->r, hand->a.data, k_count, packed);
    }
    for (int64_t i = 0; i < count; i++) values[i] += tensor->scaling * product[i];
    return TT_OK;
}

/* The same for the rows of the chunk, which may be of several experts. */
static tt_status add_lora(struct work *work, struct hand *hand, const struct tt_merge_tensor *tensor,
                          const struct chunk *chunk, float *values)
{
    int64_t each = tensor->experts > 0 ? tensor->rows / tensor->experts : tensor->rows;
    for (int64_t row = 0, rows; row < chunk->rows; row += rows) {
        struct lora_rows of = {.first = (chunk->first + row) % each, .expert = (chunk->first + row) / each};
        of.rows = rows = tt_smaller(each - of.first, chunk->rows - row);
        TT_TRY(add_lora_rows(work, hand, tensor, &of, values + row * tensor->columns));
    }
    return TT_OK;
}

/* Gives each row of the chunk its length, in fp64; a row of zeros stays. */
static tt_status set_lengths(struct work *work, struct hand *hand, const struct tt_merge_tensor *tensor,
                             const struct chunk *chunk, float *values)
{
    /* B is in the values already. */
    float *lengths = reserve(&hand->b, (size_t)chunk->rows * sizeof *lengths);
    if (lengths == NULL) return TT_ERR_MEMORY;
    TT_TRY(tt_safetensors_read(work->merge->adapter, tensor->magnitude, chunk->first, chunk->rows, lengths,
                               TT_F32));
    for (int64_t row = 0; row < chunk->rows; row++) {
        float *of = values + row * tensor->columns;
        double squares = 0;
        for (int64_t c = 0; c < tensor->columns; c++) squares += (double)of[c] * (double)of[c];
        float factor = squares > 0 ? (float)((double)lengths[row] / sqrt(squares)) : 0.0f;
        for (int64_t c = 0; c < tensor->columns; c++) of[c] *= factor;
    }
    return TT_OK;
}

/* Rows of tokens that train apart from the table take the place of its own. */
static tt_status put_trained(struct work *work, const struct tt_merge_tensor *tensor,
                             const struct chunk *chunk, float *values)
{
    const struct tt_safetensors *file = work->merge->adapter;
    for (int64_t k = 0, width = tensor->columns; k < tensor->token_count; k++) {
        int64_t row = tensor->tokens[k] - chunk->first;
        if (row >= 0 && row < chunk->rows)
            TT_TRY(
                tt_safetensors_read(file, tensor->trained, k * width, width, values + row * width, TT_F32));
    }
    return TT_OK;
}

/* Copies bytes of a section of the whole matrix to the same section of a matrix of some of its rows. */
static tt_status read_section(struct work *work, const struct tt_quantized *whole,
                              struct tt_quant_section from, uint64_t first, struct tt_quant_section to,
                              char *segment)
{
    if (to.bytes == 0) return TT_OK;
    return tt_quantized_read(work->merge->folder, whole, from.offset + first, to.bytes, segment + to.offset);
}

/* FP8 with any kind of scales is read as numbers. */
static tt_status read_fp8(struct work *work, struct hand *hand, const struct tt_merge_tensor *tensor,
                          const struct chunk *chunk, void *to, tt_dtype dtype)
{
    int64_t first = chunk->first * tensor->columns, count = chunk->rows * tensor->columns;
    float *decoded = dtype == TT_F32 ? to : reserve(&hand->segment, (size_t)count * sizeof *decoded);
    if (decoded == NULL) return TT_ERR_MEMORY;
    TT_TRY(tt_quantized_read_weights(work->merge->folder, tensor->quantized, first, count, decoded));
    if (dtype == TT_F32 || tt_dtype_convert(to, dtype, decoded, TT_F32, (size_t)count)) return TT_OK;
    return tt_fail(TT_ERR_INTERNAL, "'%s' cannot be written as %s", tensor->name, tt_dtype_name(dtype));
}

/* Rows of a quantized matrix, read as a small matrix of the same format, then decoded to the original type. */
static tt_status read_quantized(struct work *work, struct hand *hand, const struct tt_merge_tensor *tensor,
                                const struct chunk *chunk, void *to, tt_dtype dtype)
{
    const struct tt_quantized *quantized = tensor->quantized;
    const struct tt_quant_layout *whole = &quantized->layout;
    struct tt_quant_layout rows;
    if (tt_quant_is_compressed(whole->format.type)) return read_fp8(work, hand, tensor, chunk, to, dtype);
    if (chunk->first % rows_per_block(whole) != 0)
        return tt_fail(TT_ERR_UNSUPPORTED, "row %lld of '%s' is no first one of a block of %s",
                       (long long)chunk->first, tensor->name, tt_weight_format(whole->format.type)->name);
    TT_TRY(tt_quant_layout_make(whole->format, chunk->rows, tensor->columns, &rows));
    char *segment = reserve(&hand->segment, rows.bytes + (size_t)rows.count * sizeof(float));
    if (segment == NULL) return TT_ERR_MEMORY;
    uint64_t first = (uint64_t)(chunk->first * tensor->columns);
    uint64_t block = first / (uint64_t)whole->block_weights;
    uint64_t nested = whole->format.nested ? block / (uint64_t)whole->format.nested_block : 0;
    TT_TRY(read_section(work, quantized, whole->codes, first / (uint64_t)whole->byte_weights, rows.codes,
                        segment));
    TT_TRY(read_section(work, quantized, whole->absmax, whole->format.nested ? block : 4 * block, rows.absmax,
                        segment));
    TT_TRY(read_section(work, quantized, whole->nested_absmax, 4 * nested, rows.nested_absmax, segment));
    TT_TRY(read_section(work, quantized, whole->map, 0, rows.map, segment));
    TT_TRY(read_section(work, quantized, whole->nested_map, 0, rows.nested_map, segment));
    TT_TRY(read_section(work, quantized, whole->offset, 0, rows.offset, segment));
    tt_dtype before = tt_weight_format(whole->format.type)->has_state ? tensor->dtype : TT_F32;
    void *decoded = dtype == before ? to : segment + rows.bytes;
    tt_quant_decode(&rows, segment, 0, rows.count, decoded, before);
    if (decoded == to || tt_dtype_convert(to, dtype, decoded, before, (size_t)rows.count)) return TT_OK;
    return tt_fail(TT_ERR_INTERNAL, "'%s' cannot be written as %s", tensor->name, tt_dtype_name(dtype));
}

static tt_status read_base(struct work *work, struct hand *hand, const struct tt_merge_tensor *tensor,
                           const struct chunk *chunk, void *to, tt_dtype dtype)
{
    if (tensor->quantized != NULL) return read_quantized(work, hand, tensor, chunk, to, dtype);
    return tt_model_folder_read(work->merge->folder, tensor->base, chunk->first * tensor->columns,
                                chunk->rows * tensor->columns, to, dtype);
}

static tt_status read_saved(struct work *work, const struct tt_merge_tensor *tensor,
                            const struct chunk *chunk, void *to, tt_dtype dtype)
{
    return tt_safetensors_read(work->merge->adapter, tensor->saved, chunk->first * tensor->columns,
                               chunk->rows * tensor->columns, to, dtype);
}

/* `out`: in the output's type; `exact`: before rounding; `base`: before the merge. */
static tt_status measure(const struct tt_merge_output *output, struct chunk *chunk, const void *out,
                         const float *exact, const float *base, int64_t count)
{
    enum { PIECE = 1024 };
    float rounded[PIECE];
    struct tt_merge_change change = {.count = count};
    size_t element = tt_dtype_bytes(output->dtype);
    for (int64_t done = 0; done < count; done += PIECE) {
        int64_t piece = tt_smaller(PIECE, count - done);
        (void)tt_dtype_convert(rounded, TT_F32, (const char *)out + (size_t)done * element, output->dtype,
                               (size_t)piece);
        for (int64_t i = 0; i < piece; i++) {
            double was = base[done + i], difference = rounded[i] - was;
            double lost = (double)rounded[i] - exact[done + i];
            if (!isfinite(rounded[i]) && isfinite(was)) {
                return tt_fail(TT_ERR_DATA, "'%s' has a value that is not a finite %s after merging (%g)",
                               output->tensor->name, tt_dtype_torch_name(output->dtype),
                               (double)exact[done + i]);
            }
            if (!isfinite(difference)) continue;
            change.largest = fmax(change.largest, fabs(difference));
            change.squares += difference * difference;
            change.base_squares += was * was;
            change.rounding_squares += lost * lost;
        }
    }
    chunk->change = change;
    return TT_OK;
}

/* Only float16 has a smaller range than the stored types of models. */
static tt_status check_half(const struct tt_merge_output *output, const uint16_t *out, int64_t count)
{
    for (int64_t i = 0; output->dtype == TT_F16 && i < count; i++)
        if ((out[i] & 0x7c00) == 0x7c00)
            return tt_fail(TT_ERR_DATA, "'%s' has a value that is not a finite float16",
                           output->tensor->name);
    return TT_OK;
}

/* The values of a tensor that no adapter changes. */
static tt_status read_plain(struct work *work, struct hand *hand, const struct tt_merge_tensor *tensor,
                            const struct chunk *chunk, void *to, tt_dtype dtype)
{
    if (tensor->saved != NULL) return read_saved(work, tensor, chunk, to, dtype);
    return read_base(work, hand, tensor, chunk, to, dtype);
}

static tt_status multiply(struct work *work, struct hand *hand, const struct chunk *chunk, int64_t count,
                          void *to)
{
    const struct tt_merge_output *output = &work->outputs[chunk->output];
    float *values = reserve(&hand->values, (size_t)count * sizeof *values);
    if (values == NULL) return TT_ERR_MEMORY;
    TT_TRY(read_plain(work, hand, output->tensor, chunk, values, TT_F32));
    for (int64_t i = 0; i < count; i++) values[i] *= output->factor;
    if (tt_dtype_convert(to, output->dtype, values, TT_F32, (size_t)count)) return TT_OK;
    return tt_fail(TT_ERR_INTERNAL, "'%s' cannot be written as %s", output->tensor->name,
                   tt_dtype_name(output->dtype));
}

/* The chunk's values in the output's type, in the thread's memory. */
static tt_status make_values(struct work *work, struct hand *hand, struct chunk *chunk, void **out)
{
    const struct tt_merge_output *output = &work->outputs[chunk->output];
    const struct tt_merge_tensor *tensor = output->tensor;
    int64_t count = chunk->rows * tensor->columns;
    *out = reserve(&hand->out, (size_t)count * tt_dtype_bytes(output->dtype));
    if (*out == NULL) return TT_ERR_MEMORY;
    bool adapted = tensor->saved != NULL || tensor->lora_A != NULL || tensor->trained != NULL;
    if (tensor->base == NULL || !adapted) {
        tt_dtype from = tensor->saved != NULL ? tensor->saved->dtype : tensor->dtype;
        TT_TRY(output->multiplied ? multiply(work, hand, chunk, count, *out)
                                  : read_plain(work, hand, tensor, chunk, *out, output->dtype));
        bool same = from == output->dtype && !output->multiplied;
        return same ? TT_OK : check_half(output, *out, count);
    }
    float *values = reserve(&hand->values, (size_t)count * sizeof *values);
    float *base = reserve(&hand->base, (size_t)count * sizeof *base);
    if (values == NULL || base == NULL) return TT_ERR_MEMORY;
    TT_TRY(read_base(work, hand, tensor, chunk, base, TT_F32));
    if (tensor->saved != NULL)
        TT_TRY(read_saved(work, tensor, chunk, values, TT_F32));
    else
        memcpy(values, base, (size_t)count * sizeof *values);
    if (tensor->lora_A != NULL) TT_TRY(add_lora(work, hand, tensor, chunk, values));
    if (tensor->magnitude != NULL) TT_TRY(set_lengths(work, hand, tensor, chunk, values));
    if (tensor->trained != NULL) TT_TRY(put_trained(work, tensor, chunk, values));
    if (!tt_dtype_convert(*out, output->dtype, values, TT_F32, (size_t)count))
        return tt_fail(TT_ERR_INTERNAL, "'%s' cannot be written as %s", tensor->name,
                       tt_dtype_name(output->dtype));
    return measure(output, chunk, *out, values, base, count);
}

/* Chunks hold all that changes places: heads, rows with their columns, a matrix that is transposed. */
static void *reorder(struct hand *hand, const struct tt_merge_output *output, const struct chunk *chunk,
                     const void *rows, merge_order *order)
{
    size_t row_bytes = (size_t)output->tensor->columns * tt_dtype_bytes(output->dtype);
    void *ordered = reserve(&hand->arranged, (size_t)chunk->rows * row_bytes);
    if (ordered != NULL) order(output, chunk->rows, rows, ordered);
    return ordered;
}

/* One thread at a time writes transposed pieces: others of their tensor may lie between their elements. */
static tt_status write_piece(struct work *work, const struct tt_merge_piece *to, size_t width, int64_t first,
                             int64_t count, const void *from)
{
    const struct tt_source_output output = {to->descriptor, to->path, to->offset, width};
    bool alone = !tt_source_piece_by_rows(&to->piece);
    if (alone) pthread_mutex_lock(&work->lock);
    tt_status status = tt_source_piece_write(&to->piece, &output, first, count, from);
    if (alone) pthread_mutex_unlock(&work->lock);
    return status;
}

static tt_status write_pieces(struct work *work, const struct tt_merge_output *output,
                              const struct chunk *chunk, const char *rows)
{
    size_t width = tt_dtype_bytes(output->dtype);
    int64_t begins = chunk->first * output->tensor->columns,
            ends = begins + chunk->rows * output->tensor->columns;
    for (size_t p = 0; p < output->piece_count; p++) {
        const struct tt_source_piece *piece = &output->pieces[p].piece;
        int64_t first = tt_larger(begins, piece->first),
                end = tt_smaller(ends, piece->first + piece->rows * piece->columns);
        if (first < end)
            TT_TRY(write_piece(work, &output->pieces[p], width, first - piece->first, end - first,
                               rows + (size_t)(first - begins) * width));
    }
    return TT_OK;
}

/* Rows that stay together are written together. */
static tt_status write_arranged(const struct tt_merge_output *output, const struct chunk *chunk,
                                const char *rows, size_t row_bytes)
{
    const struct tt_gguf_arrangement *to = &output->arrangement;
    for (int64_t row = 0, count; row < chunk->rows; row += count) {
        int64_t index = chunk->first + row, inside = index - to->first;
        int64_t left = inside < 0 ? -inside : to->size - inside % to->size;
        count = tt_smaller(left, chunk->rows - row);
        TT_TRY(tt_file_pwrite(output->descriptor, output->path, rows + (size_t)row * row_bytes,
                              (size_t)count * row_bytes,
                              output->offset + (uint64_t)merge_place(to, index) * row_bytes));
    }
    return TT_OK;
}

static tt_status encode(struct hand *hand, const struct tt_merge_output *output, int64_t count, void **rows)
{
    uint8_t *to = reserve(&hand->encoded, (size_t)tt_gguf_type_bytes(output->encoded, count));
    if (to == NULL) return TT_ERR_MEMORY;
    TT_TRY(tt_gguf_encode(output->encoded, *rows, count, to));
    *rows = to;
    return TT_OK;
}

/* Bytes of values in the file. */
static uint64_t bytes_of(const struct tt_merge_output *output, int64_t values)
{
    if (output->encoded != TT_GGUF_F32) return tt_gguf_type_bytes(output->encoded, values);
    return (uint64_t)values * tt_dtype_bytes(output->dtype);
}

static tt_status do_chunk(struct work *work, struct hand *hand, struct chunk *chunk)
{
    const struct tt_merge_output *output = &work->outputs[chunk->output];
    const struct tt_gguf_arrangement *to = &output->arrangement;
    int64_t columns = output->tensor->columns, count = chunk->rows * columns;
    void *rows;
    TT_TRY(make_values(work, hand, chunk, &rows));
    if (output->shift != 0) {
        float *values = rows;
        for (int64_t i = 0; i < count; i++) values[i] += output->shift;
    }
    if (to->negated_exp) {
        float *values = rows;
        for (int64_t i = 0; i < count; i++) values[i] = -expf(values[i]);
    }
    if (output->head_rows > 0) rows = reorder(hand, output, chunk, rows, merge_order_heads);
    if (to->size > 0 && to->columns) rows = reorder(hand, output, chunk, rows, merge_order_columns);
    if (to->transposed) rows = reorder(hand, output, chunk, rows, merge_transpose);
    if (rows == NULL) return TT_ERR_MEMORY;
    if (output->encoded != TT_GGUF_F32) TT_TRY(encode(hand, output, count, &rows));
    if (to->size > 0 && !to->columns) return write_arranged(output, chunk, rows, bytes_of(output, columns));
    if (output->pieces != NULL) return write_pieces(work, output, chunk, rows);
    return tt_file_pwrite(output->descriptor, output->path, rows, bytes_of(output, count),
                          output->offset + bytes_of(output, chunk->to * columns));
}

static tt_status run_thread(void *argument)
{
    struct work *work = argument;
    struct hand hand = {0};
    tt_status status = TT_OK;
    while (status == TT_OK && !atomic_load(&work->failed)) {
        size_t index = atomic_fetch_add(&work->next, 1);
        if (index >= work->chunk_count) break;
        struct chunk *chunk = &work->chunks[index];
        if (work->cancel != NULL && atomic_load(&work->cancel->requests) > 0)
            status = tt_fail(TT_ERR_CANCELLED, "stopped on request");
        else
            status = do_chunk(work, &hand, chunk);
        if (status != TT_OK) tt_while("making '%s'", work->outputs[chunk->output].tensor->name);
    }
    if (status != TT_OK) atomic_store(&work->failed, true);
    hand_deinit(&hand);
    return status;
}

/* Cuts the parts of an output into chunks and returns their number. `chunks` NULL: counts them. */
static size_t cut_output(const struct tt_merge_output *output, size_t index, struct chunk *chunks)
{
    int64_t step = rows_per_chunk(output), whole = output->tensor->rows, to = 0;
    int64_t period = output->part_period > 0 ? output->part_period : whole;
    int64_t part = output->part_period > 0 ? output->part_rows : whole;
    size_t count = 0;
    for (int64_t begin = output->part_first; begin < whole; begin += period) {
        for (int64_t at = 0; at < part; at += step, count++) {
            int64_t rows = tt_smaller(step, part - at);
            if (chunks != NULL)
                chunks[count] = (struct chunk){.output = index, .first = begin + at, .rows = rows, .to = to};
            to += rows;
        }
    }
    return count;
}

static tt_status cut_chunks(struct work *work, size_t output_count)
{
    size_t count = 0;
    for (int pass = 0; pass < 2; pass++) {
        count = 0;
        for (size_t o = 0; o < output_count; o++)
            count += cut_output(&work->outputs[o], o, pass == 1 ? work->chunks + count : NULL);
        if (pass == 0) work->chunks = tt_calloc(count + 1, sizeof *work->chunks);
        if (work->chunks == NULL) return TT_ERR_MEMORY;
    }
    work->chunk_count = count;
    return TT_OK;
}

tt_status tt_merge_run(const struct tt_merge *merge, struct tt_merge_output *outputs, size_t count,
                       const struct tt_merge_work *options)
{
    struct work work = {
        .merge = merge, .outputs = outputs, .cancel = options->cancel, .lock = PTHREAD_MUTEX_INITIALIZER};
    int threads = options->threads > 0 ? options->threads : tt_cpu_count();
    if (threads > THREADS_MAX) threads = THREADS_MAX;
    tt_status status = cut_chunks(&work, count);
    if (status == TT_OK && (size_t)threads > work.chunk_count) threads = (int)work.chunk_count;
    if (status == TT_OK) status = tt_threads_run("merge", threads, run_thread, &work);
    /* Sums run in order of the chunks, so that they do not depend on timing. */
    for (size_t i = 0; status == TT_OK && i < work.chunk_count; i++)
        tt_merge_change_add(&outputs[work.chunks[i].output].change, &work.chunks[i].change);
    pthread_mutex_destroy(&work.lock);
    tt_free(work.chunks);
    return status;
}
