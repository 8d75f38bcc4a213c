#include "base/alloc.h"
#include "shard/shard_impl.h"

/* Rounds up; false when the result does not fit. `step` > 0. */
static bool round_up(size_t value, size_t step, size_t *out)
{
    size_t raised;
    if (__builtin_add_overflow(value, step - 1, &raised)) return false;
    *out = raised / step * step;
    return *out <= PTRDIFF_MAX;
}

static bool count_elements(const tt_param *param, int64_t *count)
{
    *count = 1;
    for (int i = 0; i < param->rank; i++) {
        if (param->dims[i] < 0 || __builtin_mul_overflow(*count, param->dims[i], count)) return false;
    }
    return true;
}

/* Appends `count` units of `size` at the next multiple of `alignment` after *end. */
static bool append(size_t *end, size_t alignment, int64_t count, size_t size, size_t *offset)
{
    size_t extent;
    return round_up(*end, alignment, offset) && !__builtin_mul_overflow((size_t)count, size, &extent) &&
           !__builtin_add_overflow(*offset, extent, end) && *end <= PTRDIFF_MAX / sizeof(float);
}

static tt_status place_members(struct tt_unit *unit, tt_param *const *params, struct row_range range,
                               size_t *frozen_end, size_t *trainable_end)
{
    const struct tt_shard_config *config = &unit->context->config;
    for (size_t i = 0; i < unit->member_count; i++) {
        struct member *member = &unit->members[i];
        member->param = params[i];
        /* Without training there are no masters: the values are stored in the type in which they are lent. */
        member->trains = params[i]->trainable && config->train;
        member->dtype = params[i]->trainable ? config->compute_dtype : params[i]->stored_dtype;
        size_t element = tt_dtype_bytes(member->dtype);
        if (element == 0 || params[i]->rank < 0 || params[i]->rank > TT_RANK_MAX)
            return tt_fail(TT_ERR_INTERNAL, "parameter '%s' has no stored type or a bad rank",
                           params[i]->name);
        bool fits = count_elements(params[i], &member->count);
        if (tt_param_is_quantized(params[i])) member->count = (int64_t)params[i]->quant.bytes;
        if (fits && range.param == params[i]) {
            int64_t row = member->count / params[i]->dims[0];
            member->first = range.first * row;
            member->count = range.count * row;
            member->rows = range.count;
        }
        if (fits && member->trains)
            fits = append(trainable_end, ELEMENT_ALIGNMENT, member->count, 1, &member->offset);
        else if (fits)
            fits = append(frozen_end, SEGMENT_ALIGNMENT, member->count, element, &member->offset);
        if (!fits)
            return tt_fail(TT_ERR_MEMORY, "parameter '%s' makes unit '%s' larger than any memory",
                           params[i]->name, unit->name);
        if (member->trains)
            unit->trainable_payload_count += member->count;
        else
            unit->frozen_payload_bytes += (size_t)member->count * element;
    }
    return TT_OK;
}

/* The part of [offset, offset + count) inside [begin, begin + length), relative to offset. */
static void intersect(int64_t offset, int64_t count, int64_t begin, int64_t length, int64_t *first,
                      int64_t *part)
{
    int64_t low = offset > begin ? offset : begin;
    int64_t high = offset + count < begin + length ? offset + count : begin + length;
    *part = high > low ? high - low : 0;
    *first = *part > 0 ? low - offset : 0;
}

/* Borders of ranks and starts of tensors are multiples of 64 bytes, so a border never cuts an element of 1, 2, 4 or 8
 * bytes. */
static void make_piece(struct tt_unit *unit, const struct member *member, struct tt_piece *piece)
{
    int64_t rank = unit->context->rank;
    *piece = (struct tt_piece){.param = member->param, .dtype = TT_F32, .slice_offset = -1};
    if (member->trains) {
        int64_t begin = rank * unit->slice_count;
        intersect((int64_t)member->offset, member->count, begin, unit->slice_count, &piece->first,
                  &piece->count);
        piece->slice_offset = (int64_t)member->offset + piece->first - begin;
        if (piece->count == 0) piece->slice_offset = 0;
        return;
    }
    int64_t element = (int64_t)tt_dtype_bytes(member->dtype);
    int64_t share = (int64_t)unit->frozen_shard_bytes;
    piece->dtype = member->dtype;
    piece->in_host = unit->context->config.offload_params;
    intersect((int64_t)member->offset, member->count * element, rank * share, share, &piece->first,
              &piece->count);
    piece->first = piece->count > 0 ? member->first + piece->first / element : 0;
    piece->count /= element;
}

tt_status tt_unit_lay_out(struct tt_unit *unit, tt_param *const *params, size_t param_count,
                          struct row_range range)
{
    size_t world_size = (size_t)unit->context->world_size;
    size_t frozen_end = 0, trainable_end = 0, trainable_count;
    unit->member_count = param_count;
    unit->members = tt_calloc(param_count, sizeof *unit->members);
    unit->pieces = tt_calloc(param_count, sizeof *unit->pieces);
    unit->runs = tt_calloc(param_count, sizeof *unit->runs);
    if (unit->members == NULL || unit->pieces == NULL || unit->runs == NULL) return TT_ERR_MEMORY;
    TT_TRY(place_members(unit, params, range, &frozen_end, &trainable_end));
    if (!round_up(frozen_end, world_size * SEGMENT_ALIGNMENT, &unit->frozen_bytes) ||
        !round_up(trainable_end, world_size * ELEMENT_ALIGNMENT, &trainable_count) ||
        unit->frozen_bytes > PTRDIFF_MAX / 2 || trainable_count > PTRDIFF_MAX / 2 / sizeof(float))
        return tt_fail(TT_ERR_MEMORY, "unit '%s' is larger than any memory", unit->name);
    unit->frozen_shard_bytes = unit->frozen_bytes / world_size;
    unit->trainable_count = (int64_t)trainable_count;
    unit->slice_count = (int64_t)(trainable_count / world_size);
    for (size_t i = 0; i < param_count; i++) {
        struct tt_piece *piece = &unit->pieces[i];
        make_piece(unit, &unit->members[i], piece);
        if (unit->members[i].trains && piece->count > 0)
            unit->runs[unit->run_count++] =
                (struct tt_slice_run){piece->param, piece->slice_offset, piece->count};
    }
    return TT_OK;
}

void tt_unit_set_piece_data(struct tt_unit *unit)
{
    int64_t rank = unit->context->rank;
    for (size_t i = 0; i < unit->member_count; i++) {
        const struct member *member = &unit->members[i];
        struct tt_piece *piece = &unit->pieces[i];
        if (piece->count == 0) continue;
        if (member->trains) {
            piece->data = tt_buffer_at(unit->master, (size_t)piece->slice_offset * sizeof(float));
            continue;
        }
        size_t in_unit =
            member->offset + (size_t)(piece->first - member->first) * tt_dtype_bytes(member->dtype);
        piece->data = tt_buffer_at(unit->frozen_shard, in_unit - (size_t)rank * unit->frozen_shard_bytes);
    }
}
