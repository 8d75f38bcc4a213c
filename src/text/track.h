/* Where the bytes of a derived text come from. Steps of a tokenizer that write a new text note, for each byte, the
 * bytes of the original text that it stands for; encoding without ranges passes NULL and notes nothing. Internal.
 *
 * A byte that was copied stands for itself. What replaces something stands for all of it, and so does each character of
 * a normal form for its segment (a starter and its marks). A prefix of a step stands for none of the text. */
#ifndef TT_TEXT_TRACK_H
#define TT_TEXT_TRACK_H

#include "text/tokenizer.h"

struct text_track {
    /* The current text: of its bytes, `map` has the ranges; NULL: byte i is byte offset + i of the original. */
    const char *base;
    const struct tt_byte_range *map;
    size_t bytes, offset;
    struct tt_ranges *next; /* the map of the text that is being written */
};

/* The bytes for which from .. to of the current text stand. */
struct tt_byte_range text_track_range(const struct text_track *track, const char *from, const char *to);
/* Begins a new text, whose map is written to `next`. */
void text_track_begin(struct text_track *track, struct tt_ranges *next);
/* The bytes of the new text since the last note, up to `written`, stand for from .. to of the current text. */
TT_MUST_USE tt_status text_track_record(struct text_track *track, size_t written, const char *from,
                                        const char *to);
/* They are a copy of the bytes at `from`. */
TT_MUST_USE tt_status text_track_copy(struct text_track *track, size_t written, const char *from);
/* The new text, at `base`, is the current one from here on. */
void text_track_end(struct text_track *track, const char *base, size_t bytes);

#endif
