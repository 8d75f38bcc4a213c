/* Unicode for tokenizers: UTF-8, general categories, case, normal forms.
 *
 * The reference tokenizers follow Unicode 16, the system's libraries may be older: a table has the code points that
 * versions 15 to 16 added (UnicodeData.txt of the Unicode character database, field 2). All functions but
 * tt_utf8_append_lossy expect valid UTF-8.
 */
#ifndef TT_TEXT_UNICODE_H
#define TT_TEXT_UNICODE_H

#include <stdint.h>
#include <utf8proc.h>
#include "base/str.h"
#include "base/utf8.h"

/* U+2581, which SentencePiece writes for a blank. */
#define TT_METASPACE "\xE2\x96\x81"
enum { TT_METASPACE_CODE = 0x2581 };

/* Appends `text` with each maximal ill-formed part replaced by U+FFFD (Unicode, section 3.9, "U+FFFD
 * substitution of maximal subparts"). */
TT_MUST_USE tt_status tt_utf8_append_lossy(struct tt_str *out, const char *text, size_t bytes);

static inline size_t tt_utf8_length(unsigned char lead)
{
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}
/* The code point at `text`; its length in bytes goes to `length`. */
static inline int32_t tt_utf8_decode(const char *text, size_t *length)
{
    const unsigned char *b = (const unsigned char *)text;
    if (b[0] < 0x80) {
        *length = 1;
        return b[0];
    }
    if (b[0] < 0xE0) {
        *length = 2;
        return (b[0] & 0x1F) << 6 | (b[1] & 0x3F);
    }
    if (b[0] < 0xF0) {
        *length = 3;
        return (b[0] & 0x0F) << 12 | (b[1] & 0x3F) << 6 | (b[2] & 0x3F);
    }
    *length = 4;
    return (b[0] & 0x07) << 18 | (b[1] & 0x3F) << 12 | (b[2] & 0x3F) << 6 | (b[3] & 0x3F);
}
/* The code point that ends right before `text + end`; end > 0. */
int32_t tt_utf8_decode_before(const char *text, size_t end, size_t *length);
/* Writes 1 to 4 bytes and returns how many. */
size_t tt_utf8_encode(int32_t code, char out[4]);

utf8proc_category_t tt_unicode_category(int32_t code);
bool tt_unicode_is_number(int32_t code);      /* N */
bool tt_unicode_is_mark(int32_t code);        /* M as of Unicode 9 */
bool tt_unicode_is_nonspacing(int32_t code);  /* Mn as of Unicode 8 */
bool tt_unicode_is_other(int32_t code);       /* C without Cn; Cf as of Unicode 8 */
bool tt_unicode_is_punctuation(int32_t code); /* P as of Unicode 8 */
bool tt_unicode_is_space(int32_t code);       /* the property White_Space */
/* Alphabetic, marks, decimal numbers, connector punctuation, joiners: \w of UTS 18, annex C. */
bool tt_unicode_is_word(int32_t code);

/* Case folding (CaseFolding.txt). tt_unicode_folds_simply: no code point from `first` to `last` folds to several
 * (status F), and none has a case partner newer than Unicode 14. tt_unicode_folds_together: the two code points in
 * sequence are a part of the folding of one code point, with some false positives. */
bool tt_unicode_folds_simply(int32_t first, int32_t last);
bool tt_unicode_folds_together(int32_t first, int32_t second);

/* Lower case without context; only U+0130 becomes two code points. Returns their number. */
int tt_unicode_lower(int32_t code, int32_t out[2]);

/* Appends; TT_ERR_DATA if `out` would exceed `limit` bytes. For texts derived by a tokenizer. */
TT_MUST_USE tt_status tt_text_append(struct tt_str *out, size_t limit, const char *data, size_t bytes);
TT_MUST_USE tt_status tt_text_append_code(struct tt_str *out, size_t limit, int32_t code);

enum tt_normal_form { TT_NFC, TT_NFD, TT_NFKC, TT_NFKD };
/* Appends the normal form of `text` to `out`, which then has at most `limit` bytes, in O(n log n) for any text. */
TT_MUST_USE tt_status tt_unicode_normalize(enum tt_normal_form form, const char *text, size_t bytes,
                                           size_t limit, struct tt_str *out);

struct text_track;
/* Records the source of the bytes where there is a track (text/track.h). */
TT_MUST_USE tt_status tt_unicode_normalize_tracked(enum tt_normal_form form, const char *text, size_t bytes,
                                                   size_t limit, struct text_track *track,
                                                   struct tt_str *out);

/* Visits the ranges of code points newer than the library's Unicode whose category is in `mask` (bit 1 << category), to
 * complete character classes of regular expressions. */
typedef tt_status tt_unicode_range_visit(void *context, int32_t first, int32_t last);
TT_MUST_USE tt_status tt_unicode_new_ranges(uint32_t mask, tt_unicode_range_visit *visit, void *context);

#endif
