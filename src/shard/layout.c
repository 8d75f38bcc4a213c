/* The places of tensors in the segments of a unit and in this rank's shard. */
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

static tt_status too_large(const struct tt_unit *unit, const tt_param *param)
{
    return tt_fail(TT_ERR_MEMORY, "parameter '%s' makes unit '%s' larger than any memory", param->name,
                   unit->name);
}

/* Appends `count` units of `size` at the next multiple of `alignment` after *end. */
static bool append(size_t *end, size_t alignment, int64_t count, size_t size, size_t *offset)
{
    size_t extent;
    return round_up(*end, alignment, offset) && !__builtin_mul_overflow((size_t)count, size, &extent) &&
           !__builtin_add_overflow(*offset, extent, end) && *end <= PTRDIFF_MAX / sizeof(float);
}

/* Sets the fields that do not depend on the place of a member. */
static tt_status describe_member(struct tt_unit *unit, tt_param *param, struct row_range range,
                                 struct member *member)
{
    const struct tt_shard_config *config = &unit->context->config;
    member->param = param;
    /* There are no masters without training: the values are stored in the type in which they are lent. */
    member->trains = param->trainable && config->train;
    member->dtype = param->trainable && !param->exact ? config->compute_dtype : param->stored_dtype;
    unit->exact |= member->trains && param->exact && config->compute_dtype != TT_F32;
    if (tt_dtype_bytes(member->dtype) == 0 || param->rank < 0 || param->rank > TT_RANK_MAX)
        return tt_fail(TT_ERR_INTERNAL, "parameter '%s' has no stored type or a bad rank", param->name);
    bool fits = count_elements(param, &member->count);
    if (tt_param_is_quantized(param)) member->count = (int64_t)param->quant.bytes;
    if (fits && range.param == param) {
        int64_t row = member->count / param->dims[0];
        member->first = range.first * row;
        member->count = range.count * row;
        member->rows = range.count;
    }
    return fits ? TT_OK : too_large(unit, param);
}

/* The count in elements. */
static size_t trainable_alignment(const struct tt_unit *unit)
{
    size_t wanted = (size_t)unit->context->config.trainable_alignment;
    return wanted > ELEMENT_ALIGNMENT ? wanted : ELEMENT_ALIGNMENT;
}

static tt_status place_member(struct tt_unit *unit, struct member *member, size_t *frozen_end,
                              size_t *trainable_end)
{
    size_t element = tt_dtype_bytes(member->dtype);
    bool fits = member->trains
                    ? append(trainable_end, trainable_alignment(unit), member->count, 1, &member->offset)
                    : append(frozen_end, SEGMENT_ALIGNMENT, member->count, element, &member->offset);
    if (!fits) return too_large(unit, member->param);
    if (member->trains)
        unit->trainable_payload_count += member->count;
    else
        unit->frozen_payload_bytes += (size_t)member->count * element;
    return TT_OK;
}

/* Members of each use in turn, in the order of `params`; trainable ones are of TT_USE_ALWAYS. */
static tt_status place_members(struct tt_unit *unit, tt_param *const *params, struct row_range range,
                               size_t *trainable_end)
{
    size_t ranks = (size_t)unit->context->world_size, end = 0, shard_end = 0;
    for (size_t i = 0; i < unit->member_count; i++)
        TT_TRY(describe_member(unit, params[i], range, &unit->members[i]));
    for (int use = 0; use < TT_USE_COUNT; use++) {
        struct frozen_span *span = &unit->spans[use];
        span->offset = end;
        span->shard_offset = shard_end;
        for (size_t i = 0; i < unit->member_count; i++)
            if ((int)params[i]->use == use)
                TT_TRY(place_member(unit, &unit->members[i], &end, trainable_end));
        if (!round_up(end - span->offset, ranks * SEGMENT_ALIGNMENT, &span->bytes))
            return tt_fail(TT_ERR_MEMORY, "unit '%s' is larger than any memory", unit->name);
        span->shard_bytes = span->bytes / ranks;
        end = span->offset + span->bytes;
        shard_end += span->shard_bytes;
    }
    unit->frozen_bytes = end;
    unit->frozen_shard_bytes = shard_end;
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
    const struct frozen_span *span = &unit->spans[member->param->use];
    int64_t share = (int64_t)span->shard_bytes, begin = (int64_t)span->offset + rank * share;
    piece->dtype = member->dtype;
    piece->in_host = unit->context->config.offload_params;
    intersect((int64_t)member->offset, member->count * element, begin, share, &piece->first, &piece->count);
    piece->first = piece->count > 0 ? member->first + piece->first / element : 0;
    piece->count /= element;
}

tt_status tt_unit_lay_out(struct tt_unit *unit, tt_param *const *params, size_t param_count,
                          struct row_range range)
{
    size_t world_size = (size_t)unit->context->world_size;
    size_t trainable_end = 0, trainable_count;
    unit->member_count = param_count;
    unit->members = tt_calloc(param_count, sizeof *unit->members);
    unit->pieces = tt_calloc(param_count, sizeof *unit->pieces);
    unit->runs = tt_calloc(param_count, sizeof *unit->runs);
    if (unit->members == NULL || unit->pieces == NULL || unit->runs == NULL) return TT_ERR_MEMORY;
    TT_TRY(place_members(unit, params, range, &trainable_end));
    if (!round_up(trainable_end, world_size * trainable_alignment(unit), &trainable_count) ||
        unit->frozen_bytes > PTRDIFF_MAX / 2 || trainable_count > PTRDIFF_MAX / 2 / sizeof(float))
        return tt_fail(TT_ERR_MEMORY, "unit '%s' is larger than any memory", unit->name);
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
        const struct frozen_span *span = &unit->spans[member->param->use];
        size_t begin = span->offset + (size_t)rank * span->shard_bytes;
        piece->data = tt_buffer_at(unit->frozen_shard, span->shard_offset + (in_unit - begin));
    }
}
