/* Cases and classes of characters, as Python's str has them. Simple mappings and categories come from utf8proc, whose
 * Unicode is that of the system; Python has its own. */
#include <utf8proc.h>

#include "text/jinja/case_table.h"
#include "text/jinja/render.h"

enum {
    SPECIAL_COUNT = sizeof special_cases / sizeof special_cases[0],
    SIGMA = 0x3a3,
    FINAL_SIGMA = 0x3c2,
    SMALL_SIGMA = 0x3c3
};

static utf8proc_category_t category(uint32_t point)
{
    return utf8proc_category((utf8proc_int32_t)point);
}

static bool is_mark(uint32_t point)
{
    utf8proc_category_t of = category(point);
    return of == UTF8PROC_CATEGORY_MN || of == UTF8PROC_CATEGORY_ME || of == UTF8PROC_CATEGORY_CF;
}

static bool is_lower(uint32_t point)
{
    return category(point) == UTF8PROC_CATEGORY_LL || point == 0xaa || point == 0xba ||
           (point >= 0x24d0 && point <= 0x24e9) || (point >= 0x2170 && point <= 0x217f) ||
           (point >= 0x2b0 && point <= 0x2b8);
}

static bool is_upper(uint32_t point)
{
    return category(point) == UTF8PROC_CATEGORY_LU || (point >= 0x24b6 && point <= 0x24cf) ||
           (point >= 0x2160 && point <= 0x216f);
}

static bool is_cased(uint32_t point)
{
    return is_lower(point) || is_upper(point) || category(point) == UTF8PROC_CATEGORY_LT;
}

/* Characters that do not matter for the question whether a sigma ends its word. */
static bool is_case_ignorable(uint32_t point)
{
    utf8proc_category_t of = category(point);
    return is_mark(point) || of == UTF8PROC_CATEGORY_LM || of == UTF8PROC_CATEGORY_SK || point == '\'' ||
           point == '.' || point == ':' || point == 0xb7 || point == 0x2019 || point == 0x2018 ||
           point == 0x2024 || point == 0x2027;
}

bool jinja_is_printable(uint32_t point)
{
    if (point < 0x7f) return point >= 0x20;
    switch (category(point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
        return false;
    default:
        return true;
    }
}

static const uint16_t *special_case(uint32_t point, bool is_title)
{
    if (point < special_cases[0].point || point > special_cases[SPECIAL_COUNT - 1].point) return NULL;
    size_t low = 0, high = SPECIAL_COUNT;
    while (low + 1 < high) {
        size_t middle = (low + high) / 2;
        if (special_cases[middle].point <= point)
            low = middle;
        else
            high = middle;
    }
    if (special_cases[low].point != point) return NULL;
    return is_title ? special_cases[low].title : special_cases[low].upper;
}

/* Whether the sigma at `at` ends a word: a cased letter before it, none behind it. */
static bool ends_word(struct tt_span text, size_t at)
{
    bool is_after = false;
    size_t length;
    for (size_t before = at; before > 0 && !is_after;) {
        do before--;
        while (before > 0 && ((unsigned char)text.data[before] & 0xc0) == 0x80);
        uint32_t point = jinja_point_at(text.data + before, text.bytes - before, &length);
        if (is_cased(point) && !is_case_ignorable(point)) is_after = true;
        if (!is_case_ignorable(point)) break;
    }
    if (!is_after) return false;
    for (size_t behind = at + 2; behind < text.bytes; behind += length) {
        uint32_t point = jinja_point_at(text.data + behind, text.bytes - behind, &length);
        if (!is_case_ignorable(point)) return !is_cased(point);
    }
    return true;
}

static tt_status write_point(struct jinja_writer *writer, uint32_t point, uint32_t origin)
{
    char text[4];
    return jinja_write(writer, text, jinja_encode(point, text), origin);
}

static tt_status write_raised(struct jinja_writer *writer, uint32_t point, bool is_title, uint32_t origin)
{
    const uint16_t *special = special_case(point, is_title);
    if (special == NULL) {
        utf8proc_int32_t code = (utf8proc_int32_t)point;
        return write_point(writer, (uint32_t)(is_title ? utf8proc_totitle(code) : utf8proc_toupper(code)),
                           origin);
    }
    for (int i = 0; i < 3 && special[i] != 0; i++) TT_TRY(write_point(writer, special[i], origin));
    return TT_OK;
}

static tt_status write_lowered(struct jinja_writer *writer, struct tt_span text, size_t at, uint32_t point,
                               uint32_t origin)
{
    if (point == SIGMA) return write_point(writer, ends_word(text, at) ? FINAL_SIGMA : SMALL_SIGMA, origin);
    if (point == 0x130) return jinja_write_literal(writer, "i\u0307", origin);
    return write_point(writer, (uint32_t)utf8proc_tolower((utf8proc_int32_t)point), origin);
}

tt_status jinja_write_case(struct jinja_writer *writer, const struct jinja_value *value, size_t from,
                           size_t to, enum jinja_case mode)
{
    struct tt_span text = {value->text->data + from, to - from};
    bool was_cased = false;
    TT_TRY(jinja_charge(writer->render, text.bytes / 8));
    for (size_t at = 0, length; at < text.bytes; at += length) {
        uint32_t point = jinja_point_at(text.data + at, text.bytes - at, &length);
        uint32_t origin = jinja_origin_at(value, from + at);
        bool raises = mode == JINJA_UPPER || (mode == JINJA_TITLE && !was_cased) ||
                      (mode == JINJA_CAPITALIZE && at == 0) || (mode == JINJA_SWAPCASE && is_lower(point));
        bool lowers = !raises && (mode != JINJA_SWAPCASE || is_upper(point));
        if (raises)
            TT_TRY(write_raised(writer, point, mode == JINJA_TITLE || mode == JINJA_CAPITALIZE, origin));
        else if (lowers)
            TT_TRY(write_lowered(writer, text, at, point, origin));
        else
            TT_TRY(jinja_write(writer, text.data + at, length, origin));
        was_cased = is_cased(point);
    }
    return TT_OK;
}

static bool is_letter(uint32_t point)
{
    utf8proc_category_t of = category(point);
    return of >= UTF8PROC_CATEGORY_LU && of <= UTF8PROC_CATEGORY_LO;
}

static bool point_is(uint32_t point, enum jinja_class class)
{
    switch (class) {
    case JINJA_IS_ALPHA:
        return is_letter(point);
    case JINJA_IS_DECIMAL:
        return category(point) == UTF8PROC_CATEGORY_ND;
    case JINJA_IS_ALNUM:
        return is_letter(point) || category(point) == UTF8PROC_CATEGORY_ND;
    case JINJA_IS_SPACE:
        return jinja_is_space(point);
    case JINJA_IS_PRINTABLE:
        return jinja_is_printable(point);
    default:
        return point < 0x80;
    }
}

/* upper(), lower() and title(): all cased characters are right, and there is one. */
static bool cased_are(struct tt_span text, enum jinja_class class)
{
    bool has_cased = false, was_cased = false;
    for (size_t at = 0, length; at < text.bytes; at += length) {
        uint32_t point = jinja_point_at(text.data + at, text.bytes - at, &length);
        bool is_cased_here = is_cased(point), is_title = category(point) == UTF8PROC_CATEGORY_LT;
        if (class == JINJA_IS_UPPER && (is_lower(point) || is_title)) return false;
        if (class == JINJA_IS_LOWER && (is_upper(point) || is_title)) return false;
        if (class == JINJA_IS_TITLE && is_cased_here && was_cased != is_lower(point)) return false;
        has_cased = has_cased || is_cased_here;
        was_cased = is_cased_here;
    }
    return has_cased;
}

bool jinja_text_is(struct tt_span text, enum jinja_class class)
{
    if (class == JINJA_IS_UPPER || class == JINJA_IS_LOWER || class == JINJA_IS_TITLE)
        return cased_are(text, class);
    for (size_t at = 0, length; at < text.bytes; at += length)
        if (!point_is(jinja_point_at(text.data + at, text.bytes - at, &length), class)) return false;
    return text.bytes > 0 || class == JINJA_IS_PRINTABLE || class == JINJA_IS_ASCII;
}
