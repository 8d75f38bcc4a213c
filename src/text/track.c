#include "text/track.h"

#include "base/alloc.h"

void tt_ranges_deinit(struct tt_ranges *ranges)
{
    tt_free(ranges->data);
    *ranges = (struct tt_ranges){0};
}

tt_status tt_ranges_append(struct tt_ranges *ranges, struct tt_byte_range range)
{
    if (ranges->count == ranges->capacity && tt_grow(&ranges->data, ranges->count, &ranges->capacity) != 0) {
        return TT_ERR_MEMORY;
    }
    ranges->data[ranges->count++] = range;
    return TT_OK;
}

/* The border before a byte of the current text. */
static uint32_t border(const struct text_track *track, size_t at)
{
    if (track->map == NULL) return (uint32_t)(track->offset + at);
    if (at < track->bytes) return track->map[at].begin;
    return track->bytes == 0 ? 0 : track->map[track->bytes - 1].end;
}

struct tt_byte_range text_track_range(const struct text_track *track, const char *from, const char *to)
{
    size_t first = (size_t)(from - track->base), end = (size_t)(to - track->base);
    struct tt_byte_range range = {border(track, first), 0};
    range.end = end == first         ? range.begin
                : track->map == NULL ? (uint32_t)(track->offset + end)
                                     : track->map[end - 1].end;
    return range;
}

void text_track_begin(struct text_track *track, struct tt_ranges *next)
{
    next->count = 0;
    track->next = next;
}

tt_status text_track_record(struct text_track *track, size_t written, const char *from, const char *to)
{
    struct tt_byte_range range = text_track_range(track, from, to);
    while (track->next->count < written) TT_TRY(tt_ranges_append(track->next, range));
    return TT_OK;
}

tt_status text_track_copy(struct text_track *track, size_t written, const char *from)
{
    for (; track->next->count < written; from++)
        TT_TRY(tt_ranges_append(track->next, text_track_range(track, from, from + 1)));
    return TT_OK;
}

void text_track_end(struct text_track *track, const char *base, size_t bytes)
{
    track->base = base;
    track->map = track->next->data;
    track->bytes = bytes;
}
