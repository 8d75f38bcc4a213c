/* Python's operations on texts, shared by filters and methods. Results keep origins and Markup. */
#ifndef TT_TEXT_JINJA_STRINGS_H
#define TT_TEXT_JINJA_STRINGS_H

#include "text/jinja/render.h"

enum { JINJA_LEFT = 1, JINJA_RIGHT = 2 };

/* `chars`: a set of characters; NULL: white space. */
tt_status jinja_strip(struct jinja_render *render, const struct jinja_value *text,
                      const struct jinja_value *chars, int sides, struct jinja_value *out);
/* Replaces `old` at most `count` times; -1: all. `old` may be empty. */
tt_status jinja_replace(struct jinja_render *render, const struct jinja_value *text,
                        const struct jinja_value *old, const struct jinja_value *with, int64_t count,
                        struct jinja_value *out);
/* `separator` NULL: at white space. `from_right`: rsplit(). `most` -1: no limit. A list. */
tt_status jinja_split(struct jinja_render *render, const struct jinja_value *text,
                      const struct jinja_value *separator, int64_t most, bool from_right,
                      struct jinja_value *out);
/* The end of the line that begins at `from`, and where the next one begins. */
void jinja_line(struct tt_span text, size_t from, size_t *end, size_t *next);
/* Pads to `width` characters: 'l', 'r' or 'c' for ljust(), rjust(), center(); 'z' for zfill(). */
tt_status jinja_justify(struct jinja_render *render, const struct jinja_value *text, int64_t width, char how,
                        const struct jinja_value *fill, struct jinja_value *out);
tt_status jinja_in_case(struct jinja_render *render, const struct jinja_value *text, enum jinja_case mode,
                        struct jinja_value *out);

#endif
