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

/* Frozen matrices of experts, of which this rank holds its own. */
static bool is_shared_out(const struct tt_unit *unit, const tt_param *param)
{
    const struct tt_shard_context *context = unit->context;
    for (size_t i = 0; i < context->config.expert_count && context->experts > 1; i++)
        if (context->shared[i] == param) return true;
    return false;
}

static tt_status check_shares(const struct tt_unit *unit, const tt_param *param)
{
    int experts = unit->context->experts;
    if (param->dims[0] % experts == 0) return TT_OK;
    tt_status status = tt_fail(TT_ERR_USAGE, "%lld experts cannot be divided among %d ranks: '%s'",
                               (long long)param->dims[0], experts, param->name);
    tt_hint("expert_parallel takes a number that divides the experts of a layer");
    return status;
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
    if (!fits) return too_large(unit, param);
    if (!is_shared_out(unit, param)) return TT_OK;
    TT_TRY(check_shares(unit, param));
    member->span = TT_USE_COUNT;
    if (tt_param_is_quantized(param)) return TT_OK; /* in sections */
    member->count /= unit->context->experts;
    member->first = member->count * unit->context->expert_rank;
    member->rows = param->dims[0] / unit->context->experts;
    return TT_OK;
}

/* The sections of the own experts' part of a coded matrix: `from` in the matrix's segment, `to` in the part's. */
enum { SECTIONS = 6 };
struct section {
    const struct tt_quant_section *from, *to;
    bool whole; /* a table, which every part has */
};

/* Whether a part ends where blocks, and blocks of their scales, end. */
static bool ends_with_blocks(const struct tt_quant_layout *own)
{
    if (own->row_squares > 0) return own->rows % own->format.block == 0;
    return own->count % own->block_weights == 0 && own->count % own->byte_weights == 0 &&
           (own->nested_blocks == 0 || own->blocks % own->format.nested_block == 0);
}

static tt_status find_sections(const struct tt_unit *unit, const tt_param *param, struct tt_quant_layout *own,
                               struct section sections[SECTIONS])
{
    const struct tt_quant_layout *all = &param->quant;
    int64_t experts = unit->context->experts;
    TT_TRY(tt_quant_layout_make(all->format, all->rows / experts, all->cols, own));
    const struct section found[SECTIONS] = {{&all->codes, &own->codes, false},
                                            {&all->absmax, &own->absmax, false},
                                            {&all->nested_absmax, &own->nested_absmax, false},
                                            {&all->map, &own->map, true},
                                            {&all->nested_map, &own->nested_map, true},
                                            {&all->offset, &own->offset, true}};
    for (int i = 0; i < SECTIONS; i++) {
        sections[i] = found[i];
        bool divides = found[i].to->bytes * (size_t)experts == found[i].from->bytes;
        if (found[i].whole || (divides && ends_with_blocks(own))) continue;
        tt_status status = tt_fail(TT_ERR_UNSUPPORTED,
                                   "the codes of '%s' cannot be divided among %lld ranks: a block of their "
                                   "scales has weights of several of them",
                                   param->name, (long long)experts);
        tt_hint("take a smaller expert_parallel, or codes without nested scales");
        return status;
    }
    return TT_OK;
}

/* The member becomes one for each section; only the first is lent. */
static tt_status place_sections(struct tt_unit *unit, struct member *member, size_t *end)
{
    struct tt_quant_layout own;
    struct section sections[SECTIONS];
    const struct member whole = *member;
    size_t base;
    TT_TRY(find_sections(unit, whole.param, &own, sections));
    if (!append(end, SEGMENT_ALIGNMENT, (int64_t)own.bytes, 1, &base)) return too_large(unit, whole.param);
    for (int i = 0, count = 0; i < SECTIONS; i++) {
        const struct section *section = &sections[i];
        int64_t bytes = (int64_t)section->to->bytes;
        if (bytes == 0) continue;
        struct member *part = count++ == 0 ? member : &unit->members[unit->member_count++];
        *part = whole;
        part->offset = base + section->to->offset;
        part->count = bytes;
        part->first = (int64_t)section->from->offset;
        if (!section->whole) part->first += bytes * unit->context->expert_rank;
        part->lent = i == 0 ? (int64_t)own.bytes : -1;
    }
    unit->frozen_payload_bytes += own.bytes;
    return TT_OK;
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

static void begin_span(const struct tt_shard_context *context, bool own, struct frozen_span *span)
{
    const struct tt_shard_config *config = &context->config;
    *span = (struct frozen_span){
        .rank = context->rank, .ranks = context->world_size, .comm = config->shard_comm, .own = own};
    if (!own) return;
    span->comm = config->holder_comm;
    span->rank = span->comm != NULL ? tt_comm_rank(span->comm) : 0;
    span->ranks = span->comm != NULL ? tt_comm_world_size(span->comm) : 1;
    span->in_place = span->ranks == 1 && !config->offload_params;
}

static tt_status place_span(struct tt_unit *unit, size_t param_count, int index, size_t *end,
                            size_t *trainable_end)
{
    struct frozen_span *span = &unit->spans[index];
    for (size_t i = 0; i < param_count; i++) {
        struct member *member = &unit->members[i];
        if (member->span + (int)member->param->use != index) continue;
        bool coded = span->own && tt_param_is_quantized(member->param);
        TT_TRY(coded ? place_sections(unit, member, end) : place_member(unit, member, end, trainable_end));
    }
    if (round_up(*end - span->offset, (size_t)span->ranks * SEGMENT_ALIGNMENT, &span->bytes)) return TT_OK;
    return tt_fail(TT_ERR_MEMORY, "unit '%s' is larger than any memory", unit->name);
}

/* Members of each span in turn, in the order of `params`; trainable ones are of TT_USE_ALWAYS. */
static tt_status place_members(struct tt_unit *unit, tt_param *const *params, size_t param_count,
                               struct row_range range, size_t *trainable_end)
{
    size_t end = 0, shard_end = 0;
    for (size_t i = 0; i < param_count; i++)
        TT_TRY(describe_member(unit, params[i], range, &unit->members[i]));
    for (int index = 0; index < SPAN_COUNT; index++) {
        struct frozen_span *span = &unit->spans[index];
        begin_span(unit->context, index >= TT_USE_COUNT, span);
        span->offset = end;
        span->shard_offset = shard_end;
        TT_TRY(place_span(unit, param_count, index, &end, trainable_end));
        span->shard_bytes = span->bytes / (size_t)span->ranks;
        end = span->offset + span->bytes;
        shard_end += span->shard_bytes;
        if (span->in_place) unit->in_place_bytes += span->bytes;
    }
    unit->frozen_bytes = end - unit->in_place_bytes;
    unit->frozen_shard_bytes = shard_end;
    return TT_OK;
}

static const struct frozen_span *span_of(const struct tt_unit *unit, const struct member *member)
{
    return &unit->spans[member->span + (int)member->param->use];
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
    const struct frozen_span *span = span_of(unit, member);
    int64_t share = (int64_t)span->shard_bytes, begin = (int64_t)span->offset + span->rank * share;
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
    size_t most = param_count;
    for (size_t i = 0; i < param_count; i++)
        if (is_shared_out(unit, params[i])) most += SECTIONS - 1;
    unit->member_count = param_count;
    unit->members = tt_calloc(most, sizeof *unit->members);
    unit->pieces = tt_calloc(most, sizeof *unit->pieces);
    unit->runs = tt_calloc(param_count, sizeof *unit->runs);
    if (unit->members == NULL || unit->pieces == NULL || unit->runs == NULL) return TT_ERR_MEMORY;
    TT_TRY(place_members(unit, params, param_count, range, &trainable_end));
    if (!round_up(trainable_end, world_size * trainable_alignment(unit), &trainable_count) ||
        unit->frozen_bytes > PTRDIFF_MAX / 2 || trainable_count > PTRDIFF_MAX / 2 / sizeof(float))
        return tt_fail(TT_ERR_MEMORY, "unit '%s' is larger than any memory", unit->name);
    unit->trainable_count = (int64_t)trainable_count;
    unit->slice_count = (int64_t)(trainable_count / world_size);
    for (size_t i = 0; i < unit->member_count; i++) {
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
        const struct frozen_span *span = span_of(unit, member);
        size_t begin = span->offset + (size_t)span->rank * span->shard_bytes;
        piece->data = tt_buffer_at(unit->frozen_shard, span->shard_offset + (in_unit - begin));
    }
}
