/* Causal depthwise convolution along the rows of sequences. */
#ifndef TT_VECTOR_LANES

#include <math.h>
#include <omp.h>

#include "backend/cpu/parallel.h"

enum { BLOCK_ROWS = 128, BLOCK_COLUMNS = 256, TAPS_MAX = TT_CONV1D_KERNEL_MAX, USUAL_TAPS = 4 };

/* Rows first .. end and columns column .. column + columns of a call. */
struct conv1d_block {
    int64_t first, end, column, columns;
};

/* The sequence of a row. */
struct conv1d_sequence {
    int64_t index, begin, end;
};

static struct conv1d_sequence sequence_of(const struct tt_sequences *sequences, int64_t row)
{
    int64_t low = 0, high = sequences->count; /* the last sequence that begins at or before the row */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (sequences->cu[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return (struct conv1d_sequence){low, sequences->cu[low], sequences->cu[low + 1]};
}

static void next_sequence(const struct tt_sequences *sequences, struct conv1d_sequence *at, int64_t row)
{
    while (row >= at->end) {
        at->index++;
        at->begin = at->end;
        at->end = sequences->cu[at->index + 1];
    }
}

/* The case of most layers, which has code of its own. */
static bool is_usual(const struct tt_conv1d_forward_args *args)
{
    bool gated = args->in_gate_TC.data != NULL || args->out_gate_TC.data != NULL;
    return args->silu && !gated && args->w_CJ.dims[1] == USUAL_TAPS;
}

/* The state that a sequence begins from; NULL: zeros. */
static const float *state_from(const struct tt_conv1d_forward_args *args, int64_t sequence)
{
    if (tt_tensor_is_empty(args->states.pool)) return NULL;
    int64_t from = ((const int32_t *)args->states.from_B.data)[sequence];
    return from < 0 ? NULL : (const float *)args->states.pool.data + from * args->states.pool.strides[0];
}

#define TT_VECTOR_SOURCE "backend/cpu/conv1d.c"
#include "backend/cpu/vector_math_passes.h"

static struct conv1d_block block_at(const struct tt_conv1d_forward_args *args, int64_t row_block,
                                    int64_t column_block)
{
    int64_t rows = args->x_TC.dims[0], columns = args->x_TC.dims[1];
    struct conv1d_block block = {.first = row_block * BLOCK_ROWS, .column = column_block * BLOCK_COLUMNS};
    block.end = block.first + BLOCK_ROWS < rows ? block.first + BLOCK_ROWS : rows;
    block.columns = columns - block.column < BLOCK_COLUMNS ? columns - block.column : BLOCK_COLUMNS;
    return block;
}

static int64_t blocks_of(int64_t count, int64_t size)
{
    return (count + size - 1) / size;
}

/* The states after the call, each from its last rows and the state before. A state may be its own successor: row j
 * comes from a row at or after j. */
static void store_states(struct tt_stream *stream, const struct tt_conv1d_forward_args *args)
{
    void (*store_state)(const struct tt_conv1d_forward_args *, int64_t, float *) =
        TT_BEST(stream, store_state);
    for (int64_t b = 0; b < args->sequences.count; b++) {
        int64_t to = ((const int32_t *)args->states.to_B.data)[b];
        if (to >= 0)
            store_state(args, b, (float *)args->states.pool.data + to * args->states.pool.strides[0]);
    }
}

tt_status tt_cpu_conv1d_forward(struct tt_stream *stream, const struct tt_conv1d_forward_args *args)
{
    void (*forward_block)(const struct tt_conv1d_forward_args *, const struct conv1d_block *) =
        TT_BEST(stream, forward_block);
    int64_t rows = args->x_TC.dims[0], columns = args->x_TC.dims[1];
    int64_t row_blocks = blocks_of(rows, BLOCK_ROWS), column_blocks = blocks_of(columns, BLOCK_COLUMNS);
    int threads = tt_cpu_threads(stream, rows * columns * args->w_CJ.dims[1]);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t task = 0; task < row_blocks * column_blocks; task++) {
        struct conv1d_block block = block_at(args, task / column_blocks, task % column_blocks);
        forward_block(args, &block);
    }
    if (!tt_tensor_is_empty(args->states.pool)) store_states(stream, args);
    return TT_OK;
}

/* A task has one block or, with gradients of weights, all rows of its columns, block by block. */
tt_status tt_cpu_conv1d_backward(struct tt_stream *stream, const struct tt_conv1d_backward_args *args)
{
    void (*backward_block)(const struct tt_conv1d_backward_args *, const struct conv1d_block *, float *,
                           double *) = TT_BEST(stream, backward_block);
    int64_t rows = args->dx_TC.dims[0], columns = args->dx_TC.dims[1], taps = args->forward.w_CJ.dims[1];
    int64_t row_blocks = blocks_of(rows, BLOCK_ROWS), column_blocks = blocks_of(columns, BLOCK_COLUMNS);
    bool sums = !tt_tensor_is_empty(args->dw_CJ) || !tt_tensor_is_empty(args->dbias_C);
    int64_t together = sums ? row_blocks : 1, tasks = sums ? column_blocks : row_blocks * column_blocks;
    int threads = tt_cpu_threads(stream, rows * columns * taps * 2);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t task = 0; task < tasks; task++) {
        double totals[(TAPS_MAX + 1) * BLOCK_COLUMNS] = {0}; /* of bias, then of each tap */
        struct conv1d_block block;
        for (int64_t i = 0; i < together; i++) {
            block = block_at(&args->forward, sums ? i : task / column_blocks, task % column_blocks);
            backward_block(args, &block, tt_cpu_scratch(stream, omp_get_thread_num()), sums ? totals : NULL);
        }
        for (int64_t c = 0; sums && together > 0 && c < block.columns; c++) {
            float *dw = args->dw_CJ.data, *dbias = args->dbias_C.data;
            if (dbias != NULL) dbias[block.column + c] += (float)totals[c];
            for (int64_t j = 0; dw != NULL && j < taps; j++)
                dw[(block.column + c) * taps + j] += (float)totals[(j + 1) * BLOCK_COLUMNS + c];
        }
    }
    return TT_OK;
}

#else

/* The weights of a block of columns, one row for each tap; behind the block's columns 0. */
struct TT_PASS(taps) {
    float w[TAPS_MAX][BLOCK_COLUMNS], bias[BLOCK_COLUMNS];
    int count;
};

static float TT_PASS(weight_at)(const tt_tensor *x, int64_t index)
{
    return x->dtype == TT_BF16 ? tt_bf16_to_f32(((const uint16_t *)x->data)[index])
                               : ((const float *)x->data)[index];
}

static void TT_PASS(load_taps)(struct TT_PASS(taps) * taps, const struct tt_conv1d_forward_args *args,
                               const struct conv1d_block *block)
{
    taps->count = (int)args->w_CJ.dims[1];
    memset(taps->w, 0, sizeof taps->w);
    memset(taps->bias, 0, sizeof taps->bias);
    for (int64_t c = 0; c < block->columns; c++) {
        for (int j = 0; j < taps->count; j++)
            taps->w[j][c] = TT_PASS(weight_at)(&args->w_CJ, (block->column + c) * taps->count + j);
        if (!tt_tensor_is_empty(args->bias_C))
            taps->bias[c] = TT_PASS(weight_at)(&args->bias_C, block->column + c);
    }
}

/* Properties of all columns of a row, constant in the functions made of those below: without them each load
 * would ask for its type and its gates. `usual`: SiLU, four taps and no gates. */
struct TT_PASS(kind) {
    bool bf16, usual;
};
#define kind TT_PASS(kind)

TT_INLINE vf TT_PASS(row_part)(const tt_tensor *x, int64_t row, int64_t c, int64_t left, bool bf16)
{
    return vload_part(x->data, row * x->strides[0] + c, bf16, left);
}
#define row_part TT_PASS(row_part)

/* u of a row: x times its gate. */
TT_INLINE vf TT_PASS(input)(const struct tt_conv1d_forward_args *args, int64_t row, int64_t c, int64_t left,
                            struct kind of)
{
    vf x = row_part(&args->x_TC, row, c, left, of.bf16);
    if (!of.usual && args->in_gate_TC.data != NULL) x *= row_part(&args->in_gate_TC, row, c, left, of.bf16);
    return x;
}

/* u of a row of the sequence or, before its first one, of its state. */
TT_INLINE vf TT_PASS(input_before)(const struct tt_conv1d_forward_args *args,
                                   const struct conv1d_sequence *sequence, const float *state, int64_t row,
                                   int64_t c, int64_t left, struct kind of)
{
    if (row >= sequence->begin) return TT_PASS(input)(args, row, c, left, of);
    int64_t kept = args->w_CJ.dims[1] - 1, columns = args->x_TC.dims[1];
    if (state == NULL) return vsplat(0);
    return vload_part(state, (kept + row - sequence->begin) * columns + c, false, left);
}

/* A row of a sequence, and the state before it where the row reads that. */
struct TT_PASS(place) {
    const struct conv1d_sequence *sequence;
    const float *state;
    int64_t row;
};
#define place TT_PASS(place)

static struct place TT_PASS(place_of)(const struct tt_conv1d_forward_args *args,
                                      const struct conv1d_sequence *sequence, int64_t row)
{
    bool reads = row - sequence->begin < args->w_CJ.dims[1] - 1;
    return (struct place){sequence, reads ? state_from(args, sequence->index) : NULL, row};
}

/* z of a row: c is the column in the tensors, at that in the block. */
TT_INLINE vf TT_PASS(convolve)(const struct tt_conv1d_forward_args *args, const struct TT_PASS(taps) * taps,
                               struct place to, int64_t c, int64_t at, int64_t left, struct kind of)
{
    vf z = vload(taps->bias, at, false);
    int count = of.usual ? USUAL_TAPS : taps->count;
    int64_t first = to.row - count + 1;
    if (first >= to.sequence->begin)
        for (int j = 0; j < count; j++)
            z = vmultiply_add(vload(taps->w[j], at, false), TT_PASS(input)(args, first + j, c, left, of), z);
    else
        for (int j = 0; j < count; j++)
            z = vmultiply_add(vload(taps->w[j], at, false),
                              TT_PASS(input_before)(args, to.sequence, to.state, first + j, c, left, of), z);
    return z;
}
#define convolve TT_PASS(convolve)

TT_INLINE void TT_PASS(forward_part)(const struct tt_conv1d_forward_args *args,
                                     const struct TT_PASS(taps) * taps, struct place to, int64_t c,
                                     int64_t at, int64_t left, struct kind of)
{
    const tt_tensor *gate = &args->out_gate_TC, *y = &args->y_TC;
    vf z = convolve(args, taps, to, c, at, left, of);
    if (of.usual || args->silu) z = z * vsigmoid(z);
    if (!of.usual && gate->data != NULL) z *= row_part(gate, to.row, c, left, of.bf16);
    vstore_part(y->data, to.row * y->strides[0] + c, of.bf16, z, left);
}

TT_INLINE void TT_PASS(forward_kind)(const struct tt_conv1d_forward_args *args,
                                     const struct conv1d_block *block, struct kind of)
{
    struct TT_PASS(taps) taps;
    TT_PASS(load_taps)(&taps, args, block);
    struct conv1d_sequence sequence = sequence_of(&args->sequences, block->first);
    for (int64_t row = block->first; row < block->end; row++) {
        next_sequence(&args->sequences, &sequence, row);
        struct place to = TT_PASS(place_of)(args, &sequence, row);
        int64_t at = 0;
        for (; at + TT_VECTOR_LANES <= block->columns; at += TT_VECTOR_LANES)
            TT_PASS(forward_part)(args, &taps, to, block->column + at, at, TT_VECTOR_LANES, of);
        if (at < block->columns)
            TT_PASS(forward_part)(args, &taps, to, block->column + at, at, block->columns - at, of);
    }
}

static void TT_PASS(forward_block)(const struct tt_conv1d_forward_args *args,
                                   const struct conv1d_block *block)
{
    bool bf16 = args->x_TC.dtype == TT_BF16;
    if (!is_usual(args))
        TT_PASS(forward_kind)(args, block, (struct kind){bf16, false});
    else if (bf16)
        TT_PASS(forward_kind)(args, block, (struct kind){true, true});
    else
        TT_PASS(forward_kind)(args, block, (struct kind){false, true});
}

static void TT_PASS(store_state)(const struct tt_conv1d_forward_args *args, int64_t sequence, float *to)
{
    int64_t kept = args->w_CJ.dims[1] - 1, columns = args->x_TC.dims[1];
    const struct conv1d_sequence at = {sequence, args->sequences.cu[sequence],
                                       args->sequences.cu[sequence + 1]};
    const float *state = state_from(args, sequence);
    struct kind of = {args->x_TC.dtype == TT_BF16, false};
    for (int64_t j = 0; j < kept; j++)
        for (int64_t c = 0; c < columns; c += TT_VECTOR_LANES)
            vstore_part(to, j * columns + c, false,
                        TT_PASS(input_before)(args, &at, state, at.end - kept + j, c, columns - c, of),
                        columns - c);
}

/* Adds the block's sums of dz, and of dz u for each tap, to the totals. */
static void TT_PASS(add_totals)(const struct tt_conv1d_forward_args *args, const struct conv1d_block *block,
                                const float *dz, int taps, double *totals)
{
    struct kind of = {args->x_TC.dtype == TT_BF16, false};
    for (int64_t at = 0; at < block->columns; at += TT_VECTOR_LANES) {
        vf sums[TAPS_MAX + 1];
        int64_t c = block->column + at, left = block->columns - at;
        for (int j = 0; j <= taps; j++) sums[j] = vsplat(0);
        struct conv1d_sequence sequence = sequence_of(&args->sequences, block->first);
        for (int64_t row = block->first; row < block->end; row++) {
            next_sequence(&args->sequences, &sequence, row);
            vf gradient = vload(dz, (row - block->first) * BLOCK_COLUMNS + at, false);
            sums[0] += gradient;
            for (int j = 0; j < taps; j++)
                sums[j + 1] = vmultiply_add(
                    gradient, TT_PASS(input_before)(args, &sequence, NULL, row - taps + 1 + j, c, left, of),
                    sums[j + 1]);
        }
        for (int j = 0; j <= taps; j++)
            for (int i = 0; i < TT_VECTOR_LANES && i < left; i++)
                totals[j * BLOCK_COLUMNS + at + i] += (double)sums[j][i];
    }
}

/* dz of some columns of a row, and dout_gate where the row is of the block. */
TT_INLINE void TT_PASS(output_part)(const struct tt_conv1d_backward_args *args,
                                    const struct TT_PASS(taps) * taps, const struct conv1d_block *block,
                                    int64_t at, int64_t left, struct place to, float *dz, struct kind of)
{
    const struct tt_conv1d_forward_args *forward = &args->forward;
    bool gated = !of.usual && forward->out_gate_TC.data != NULL, silu = of.usual || forward->silu;
    int64_t c = block->column + at;
    vf dy = row_part(&args->dy_TC, to.row, c, left, of.bf16), y = vsplat(0), slope = vsplat(1);
    if (silu || gated) y = convolve(forward, taps, to, c, at, left, of);
    if (silu) {
        vf share = vsigmoid(y);
        slope = share * (1.0f + y * (1.0f - share));
        y *= share;
    }
    if (gated) {
        const tt_tensor *out = &args->dout_gate_TC;
        if (to.row < block->end) vstore_part(out->data, to.row * out->strides[0] + c, of.bf16, dy * y, left);
        dy *= row_part(&forward->out_gate_TC, to.row, c, left, of.bf16);
    }
    vstore(dz, (to.row - block->first) * BLOCK_COLUMNS + at, false, dy * slope);
}

/* dz of the block's rows and of the taps - 1 rows after them, which read the block's last; dout_gate of the block's. */
TT_INLINE void TT_PASS(output_gradients)(const struct tt_conv1d_backward_args *args,
                                         const struct TT_PASS(taps) * taps, const struct conv1d_block *block,
                                         float *dz, struct kind of)
{
    const struct tt_conv1d_forward_args *forward = &args->forward;
    int64_t rows = forward->x_TC.dims[0], end = block->end + taps->count - 1;
    struct conv1d_sequence sequence = sequence_of(&forward->sequences, block->first);
    for (int64_t row = block->first; row < (end < rows ? end : rows); row++) {
        next_sequence(&forward->sequences, &sequence, row);
        struct place to = {&sequence, NULL, row};
        int64_t at = 0;
        for (; at + TT_VECTOR_LANES <= block->columns; at += TT_VECTOR_LANES)
            TT_PASS(output_part)(args, taps, block, at, TT_VECTOR_LANES, to, dz, of);
        if (at < block->columns) TT_PASS(output_part)(args, taps, block, at, block->columns - at, to, dz, of);
    }
}

/* dx and din_gate of some columns of a row that `readers` rows read. */
TT_INLINE void TT_PASS(input_part)(const struct tt_conv1d_backward_args *args,
                                   const struct TT_PASS(taps) * taps, const struct conv1d_block *block,
                                   int64_t at, int64_t left, int64_t row, int readers, const float *dz,
                                   struct kind of)
{
    const struct tt_conv1d_forward_args *forward = &args->forward;
    const tt_tensor *dx = &args->dx_TC, *in = &args->din_gate_TC;
    int64_t c = block->column + at;
    vf du = vsplat(0);
    for (int i = 0; i < readers; i++)
        du = vmultiply_add(vload(taps->w[taps->count - 1 - i], at, false),
                           vload(dz, (row + i - block->first) * BLOCK_COLUMNS + at, false), du);
    if (!of.usual && in->data != NULL) {
        vf x = row_part(&forward->x_TC, row, c, left, of.bf16);
        vstore_part(in->data, row * in->strides[0] + c, of.bf16, du * x, left);
        du *= row_part(&forward->in_gate_TC, row, c, left, of.bf16);
    }
    vstore_part(dx->data, row * dx->strides[0] + c, of.bf16, du, left);
}

TT_INLINE void TT_PASS(backward_kind)(const struct tt_conv1d_backward_args *args,
                                      const struct conv1d_block *block, float *dz, double *totals,
                                      struct kind of)
{
    const struct tt_conv1d_forward_args *forward = &args->forward;
    struct TT_PASS(taps) taps;
    TT_PASS(load_taps)(&taps, forward, block);
    TT_PASS(output_gradients)(args, &taps, block, dz, of);
    if (totals != NULL) TT_PASS(add_totals)(forward, block, dz, taps.count, totals);
    struct conv1d_sequence sequence = sequence_of(&forward->sequences, block->first);
    for (int64_t row = block->first; row < block->end; row++) {
        next_sequence(&forward->sequences, &sequence, row);
        int readers = sequence.end - row < taps.count ? (int)(sequence.end - row) : taps.count;
        int64_t at = 0;
        for (; at + TT_VECTOR_LANES <= block->columns; at += TT_VECTOR_LANES)
            TT_PASS(input_part)(args, &taps, block, at, TT_VECTOR_LANES, row, readers, dz, of);
        if (at < block->columns)
            TT_PASS(input_part)(args, &taps, block, at, block->columns - at, row, readers, dz, of);
    }
}

/* `totals`, unless NULL, is added to. */
static void TT_PASS(backward_block)(const struct tt_conv1d_backward_args *args,
                                    const struct conv1d_block *block, float *dz, double *totals)
{
    bool bf16 = args->forward.x_TC.dtype == TT_BF16;
    if (!is_usual(&args->forward))
        TT_PASS(backward_kind)(args, block, dz, totals, (struct kind){bf16, false});
    else if (bf16)
        TT_PASS(backward_kind)(args, block, dz, totals, (struct kind){true, true});
    else
        TT_PASS(backward_kind)(args, block, dz, totals, (struct kind){false, true});
}

#endif
