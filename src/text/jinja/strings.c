#include "text/jinja/strings.h"

/* ---- strip ---- */

static bool is_stripped(const struct jinja_value *chars, const char *data, size_t length, uint32_t point)
{
    if (chars == NULL) return jinja_is_space(point);
    return jinja_find(jinja_span(chars), (struct tt_span){data, length}, 0) != SIZE_MAX;
}

tt_status jinja_strip(struct jinja_render *render, const struct jinja_value *text,
                      const struct jinja_value *chars, int sides, struct jinja_value *out)
{
    const char *data = text->text->data;
    size_t from = 0, to = text->text->bytes, length, cost = chars != NULL ? chars->text->bytes / 16 + 1 : 1;
    while ((sides & JINJA_LEFT) != 0 && from < to) {
        uint32_t point = jinja_point_at(data + from, to - from, &length);
        if (!is_stripped(chars, data + from, length, point)) break;
        from += length;
        TT_TRY(jinja_charge(render, cost / 8 + (from & 7) / 7));
    }
    while ((sides & JINJA_RIGHT) != 0 && to > from) {
        size_t at = to - 1;
        while (at > from && ((unsigned char)data[at] & 0xc0) == 0x80) at--;
        uint32_t point = jinja_point_at(data + at, to - at, &length);
        if (!is_stripped(chars, data + at, length, point)) break;
        to = at;
        TT_TRY(jinja_charge(render, cost / 8 + (to & 7) / 7));
    }
    return jinja_part(render, text, from, to, out);
}

/* ---- replace ---- */

/* An empty `old` stands before each character and at the end. */
static tt_status replace_empty(struct jinja_writer *writer, const struct jinja_value *text,
                               const struct jinja_value *with, int64_t count)
{
    const struct jinja_text *of = text->text;
    for (size_t at = 0, length;; at += length) {
        if (count-- == 0) return jinja_write_part(writer, text, at, of->bytes);
        TT_TRY(jinja_write_part(writer, with, 0, with->text->bytes));
        if (at >= of->bytes) return TT_OK;
        jinja_point_at(of->data + at, of->bytes - at, &length);
        TT_TRY(jinja_write_part(writer, text, at, at + length));
        TT_TRY(jinja_charge(writer->render, 1));
    }
}

tt_status jinja_replace(struct jinja_render *render, const struct jinja_value *text,
                        const struct jinja_value *old, const struct jinja_value *with, int64_t count,
                        struct jinja_value *out)
{
    struct jinja_writer writer = jinja_writer_new(render);
    struct tt_span of = jinja_span(text), part = jinja_span(old);
    size_t at = 0;
    bool is_markup = text->is_markup;
    TT_TRY(jinja_charge(render, of.bytes / 64));
    if (part.bytes == 0) {
        TT_TRY(replace_empty(&writer, text, with, count));
    } else {
        for (size_t found; count != 0 && (found = jinja_find(of, part, at)) != SIZE_MAX; count -= count > 0) {
            TT_TRY(jinja_write_part(&writer, text, at, found));
            TT_TRY(jinja_write_part(&writer, with, 0, with->text->bytes));
            TT_TRY(jinja_charge(render, 1));
            at = found + part.bytes;
        }
        if (at == 0) {
            *out = *text;
            return TT_OK;
        }
        TT_TRY(jinja_write_part(&writer, text, at, of.bytes));
    }
    TT_TRY(jinja_writer_value(&writer, out));
    out->is_markup = is_markup;
    return TT_OK;
}

/* ---- split ---- */

struct splitting {
    struct jinja_render *render;
    const struct jinja_value *text;
    struct jinja_value list;
    size_t capacity;
};

static tt_status add_part(struct splitting *splitting, size_t from, size_t to)
{
    struct jinja_value part;
    TT_TRY(jinja_charge(splitting->render, 1));
    TT_TRY(jinja_part(splitting->render, splitting->text, from, to, &part));
    return jinja_list_append(splitting->render, splitting->list.list, &splitting->capacity, part);
}

static size_t skip_space(struct tt_span text, size_t at, bool over_space)
{
    size_t length;
    for (; at < text.bytes; at += length)
        if (jinja_is_space(jinja_point_at(text.data + at, text.bytes - at, &length)) != over_space) break;
    return at;
}

static size_t skip_space_back(struct tt_span text, size_t at, bool over_space)
{
    while (at > 0) {
        size_t before = at - 1, length;
        while (before > 0 && ((unsigned char)text.data[before] & 0xc0) == 0x80) before--;
        if (jinja_is_space(jinja_point_at(text.data + before, at - before, &length)) != over_space) break;
        at = before;
    }
    return at;
}

static tt_status split_space(struct splitting *splitting, int64_t most)
{
    struct tt_span text = jinja_span(splitting->text);
    for (size_t at = skip_space(text, 0, true); at < text.bytes;) {
        if (most-- == 0) return add_part(splitting, at, text.bytes);
        size_t end = skip_space(text, at, false);
        TT_TRY(add_part(splitting, at, end));
        at = skip_space(text, end, true);
    }
    return TT_OK;
}

static tt_status rsplit_space(struct splitting *splitting, int64_t most)
{
    struct tt_span text = jinja_span(splitting->text);
    for (size_t end = skip_space_back(text, text.bytes, true); end > 0;) {
        if (most-- == 0) return add_part(splitting, 0, end);
        size_t at = skip_space_back(text, end, false);
        TT_TRY(add_part(splitting, at, end));
        end = skip_space_back(text, at, true);
    }
    return TT_OK;
}

static tt_status split_at(struct splitting *splitting, struct tt_span separator, int64_t most)
{
    struct tt_span text = jinja_span(splitting->text);
    size_t at = 0;
    for (size_t found; most != 0 && (found = jinja_find(text, separator, at)) != SIZE_MAX; most -= most > 0) {
        TT_TRY(add_part(splitting, at, found));
        at = found + separator.bytes;
    }
    return add_part(splitting, at, text.bytes);
}

static tt_status rsplit_at(struct splitting *splitting, struct tt_span separator, int64_t most)
{
    struct tt_span text = jinja_span(splitting->text);
    size_t end = text.bytes;
    for (size_t found;
         most != 0 && (found = jinja_rfind((struct tt_span){text.data, end}, separator)) != SIZE_MAX;
         most -= most > 0) {
        TT_TRY(add_part(splitting, found + separator.bytes, end));
        end = found;
    }
    return add_part(splitting, 0, end);
}

tt_status jinja_split(struct jinja_render *render, const struct jinja_value *text,
                      const struct jinja_value *separator, int64_t most, bool from_right,
                      struct jinja_value *out)
{
    struct splitting splitting = {.render = render, .text = text};
    struct tt_span at = separator != NULL ? jinja_span(separator) : (struct tt_span){"", 0};
    TT_TRY(jinja_new_list(render, 0, false, &splitting.list));
    TT_TRY(jinja_charge(render, text->text->bytes / (from_right && separator != NULL ? 8 : 32)));
    if (separator != NULL && at.bytes == 0) return jinja_fail(render, "empty separator");
    if (separator == NULL)
        TT_TRY(from_right ? rsplit_space(&splitting, most) : split_space(&splitting, most));
    else
        TT_TRY(from_right ? rsplit_at(&splitting, at, most) : split_at(&splitting, at, most));
    struct jinja_list *list = splitting.list.list;
    for (size_t i = 0; from_right && i < list->count / 2; i++) {
        struct jinja_value other = list->elements[i];
        list->elements[i] = list->elements[list->count - 1 - i];
        list->elements[list->count - 1 - i] = other;
    }
    *out = splitting.list;
    return TT_OK;
}

void jinja_line(struct tt_span text, size_t from, size_t *end, size_t *next)
{
    for (size_t at = from, length; at < text.bytes; at += length) {
        uint32_t point = jinja_point_at(text.data + at, text.bytes - at, &length);
        bool ends = (point >= '\n' && point <= '\r') || (point >= 0x1c && point <= 0x1e) || point == 0x85 ||
                    point == 0x2028 || point == 0x2029;
        if (!ends) continue;
        *end = at;
        *next = at + length;
        if (point == '\r' && *next < text.bytes && text.data[*next] == '\n') ++*next;
        return;
    }
    *end = *next = text.bytes;
}

/* ---- Width and case ---- */

static tt_status write_fill(struct jinja_writer *writer, const struct jinja_value *fill, int64_t count)
{
    if (count > TT_JINJA_TEXT_MAX) count = TT_JINJA_TEXT_MAX + 1;
    TT_TRY(jinja_charge(writer->render, (size_t)count / 8));
    for (int64_t i = 0; i < count; i++) {
        if (fill != NULL)
            TT_TRY(jinja_write_part(writer, fill, 0, fill->text->bytes));
        else
            TT_TRY(jinja_write(writer, " ", 1, 0));
    }
    return TT_OK;
}

tt_status jinja_justify(struct jinja_render *render, const struct jinja_value *text, int64_t width, char how,
                        const struct jinja_value *fill, struct jinja_value *out)
{
    struct jinja_writer writer = jinja_writer_new(render);
    int64_t margin = width - (int64_t)jinja_points(text), left = 0;
    size_t bytes = text->text->bytes, sign = 0;
    if (fill != NULL && jinja_points(fill) != 1)
        return jinja_fail(render, "The fill character must be exactly one character long");
    if (margin <= 0) {
        *out = *text;
        return TT_OK;
    }
    if (how == 'r' || how == 'z') left = margin;
    if (how == 'c') left = margin / 2 + (margin & width & 1);
    bool has_sign = how == 'z' && bytes > 0 && (text->text->data[0] == '+' || text->text->data[0] == '-');
    if (has_sign) sign = 1;
    TT_TRY(jinja_write_part(&writer, text, 0, sign));
    TT_TRY(write_fill(&writer, fill, left));
    TT_TRY(jinja_write_part(&writer, text, sign, bytes));
    TT_TRY(write_fill(&writer, fill, margin - left));
    bool is_markup = text->is_markup;
    TT_TRY(jinja_writer_value(&writer, out));
    out->is_markup = is_markup;
    return TT_OK;
}

tt_status jinja_in_case(struct jinja_render *render, const struct jinja_value *text, enum jinja_case mode,
                        struct jinja_value *out)
{
    struct jinja_writer writer = jinja_writer_new(render);
    bool is_markup = text->is_markup;
    TT_TRY(jinja_write_case(&writer, text, 0, text->text->bytes, mode));
    TT_TRY(jinja_writer_value(&writer, out));
    out->is_markup = is_markup;
    return TT_OK;
}
