/* Texts with origins: parts of them, and writers that make new ones. */
#include <string.h>

#include "base/utf8.h"
#include "text/jinja/render.h"

uint32_t jinja_point_at(const char *text, size_t bytes, size_t *length)
{
    uint32_t point = 0xfffd;
    *length = tt_utf8_next(text, bytes, &point);
    if (*length == 0) *length = 1;
    return point;
}

size_t jinja_encode(uint32_t point, char out[4])
{
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    size_t length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, point >>= 6) out[i] = (char)(0x80 | (point & 0x3f));
    static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(leads[length] | point);
    return length;
}

bool jinja_is_space(uint32_t point)
{
    if (point < 0x80) return (point >= 9 && point <= 13) || (point >= 0x1c && point <= 0x20);
    return point == 0x85 || point == 0xa0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200a) ||
           point == 0x2028 || point == 0x2029 || point == 0x202f || point == 0x205f || point == 0x3000;
}

/* ---- Places in a text ---- */

size_t jinja_points(const struct jinja_value *text)
{
    const struct jinja_text *of = text->text;
    if (of->points != JINJA_UNCOUNTED) return of->points;
    size_t count = 0;
    for (size_t i = 0; i < of->bytes; i++) count += ((unsigned char)of->data[i] & 0xc0) != 0x80;
    /* Only texts of this rendering are uncounted; no other thread sees them. */
    ((struct jinja_text *)(uintptr_t)of)->points = (uint32_t)count;
    return count;
}

size_t jinja_byte_of(const struct jinja_value *text, size_t point)
{
    const struct jinja_text *of = text->text;
    if (jinja_points(text) == of->bytes) return point < of->bytes ? point : of->bytes;
    size_t at = 0;
    for (size_t seen = 0; at < of->bytes; at++) {
        if (((unsigned char)of->data[at] & 0xc0) == 0x80) continue;
        if (seen++ == point) break;
    }
    return at;
}

/* The run that holds a byte, by bisection. */
static uint32_t run_at(const struct jinja_text *text, size_t byte)
{
    uint32_t low = 0, high = text->run_count;
    while (low + 1 < high) {
        uint32_t middle = low + (high - low) / 2;
        if (text->runs[middle - 1].end <= byte)
            low = middle;
        else
            high = middle;
    }
    return low;
}

uint32_t jinja_origin_at(const struct jinja_value *text, size_t byte)
{
    return text->text->runs != NULL ? text->text->runs[run_at(text->text, byte)].origin : text->origin;
}

size_t jinja_find(struct tt_span text, struct tt_span part, size_t from)
{
    if (from > text.bytes || part.bytes > text.bytes - from) return SIZE_MAX;
    if (part.bytes == 0) return from;
    const char *found = memmem(text.data + from, text.bytes - from, part.data, part.bytes);
    return found != NULL ? (size_t)(found - text.data) : SIZE_MAX;
}

size_t jinja_rfind(struct tt_span text, struct tt_span part)
{
    if (part.bytes > text.bytes) return SIZE_MAX;
    for (size_t at = text.bytes - part.bytes + 1; at-- > 0;)
        if (memcmp(text.data + at, part.data, part.bytes) == 0) return at;
    return SIZE_MAX;
}

/* ---- Texts ---- */

tt_status jinja_text_of(struct jinja_render *render, const char *data, size_t bytes, uint32_t origin,
                        struct jinja_value *out)
{
    if (bytes > TT_JINJA_TEXT_MAX)
        return jinja_fail(render, "a text of %zu bytes, at most %d are allowed", bytes, TT_JINJA_TEXT_MAX);
    struct jinja_text *text = jinja_alloc(render, sizeof *text);
    if (text == NULL) return TT_ERR_MEMORY;
    *text = (struct jinja_text){
        .data = data != NULL ? data : "", .bytes = (uint32_t)bytes, .points = JINJA_UNCOUNTED};
    *out = (struct jinja_value){.type = JINJA_TEXT, .origin = origin, .text = text};
    return TT_OK;
}

tt_status jinja_new_text(struct jinja_render *render, const char *data, size_t bytes, struct jinja_value *out)
{
    char *copy = jinja_alloc(render, bytes);
    if (copy == NULL) return TT_ERR_MEMORY;
    memcpy(copy, data, bytes);
    return jinja_text_of(render, copy, bytes, 0, out);
}

tt_status jinja_part(struct jinja_render *render, const struct jinja_value *text, size_t from, size_t to,
                     struct jinja_value *out)
{
    struct jinja_value part;
    const struct jinja_text *of = text->text;
    if (to < from) to = from;
    if (from == 0 && to == of->bytes) {
        *out = *text;
        return TT_OK;
    }
    TT_TRY(jinja_text_of(render, of->data + from, to - from, jinja_origin_at(text, from), &part));
    part.is_markup = text->is_markup;
    uint32_t first = of->runs != NULL && to > from ? run_at(of, from) : 0;
    uint32_t last = of->runs != NULL && to > from ? run_at(of, to - 1) : 0;
    if (last > first) {
        struct jinja_run *runs = jinja_alloc(render, (last - first + 1) * sizeof *runs);
        if (runs == NULL) return TT_ERR_MEMORY;
        struct jinja_text *made = (struct jinja_text *)(uintptr_t)part.text;
        made->runs = runs;
        made->run_count = last - first + 1;
        for (uint32_t i = first; i <= last; i++) {
            runs[i - first] = of->runs[i];
            runs[i - first].end -= (uint32_t)from;
        }
        runs[last - first].end = part.text->bytes;
    }
    *out = part;
    return TT_OK;
}

tt_status jinja_to_text(struct jinja_render *render, const struct jinja_value *value, struct jinja_value *out)
{
    if (value->type == JINJA_TEXT) {
        *out = *value;
        return TT_OK;
    }
    struct jinja_writer writer = jinja_writer_new(render);
    TT_TRY(jinja_write_value(&writer, value));
    return jinja_writer_value(&writer, out);
}

/* ---- Writers ---- */

struct jinja_writer jinja_writer_new(struct jinja_render *render)
{
    return (struct jinja_writer){.render = render, .limit = TT_JINJA_TEXT_MAX, .limit_name = "a text"};
}

tt_status jinja_reserve(struct jinja_writer *writer, size_t bytes)
{
    if (bytes <= writer->capacity - writer->bytes) return TT_OK;
    if (bytes > writer->limit - writer->bytes)
        return jinja_fail(writer->render, "%s may have at most %zu bytes", writer->limit_name, writer->limit);
    size_t capacity = writer->capacity * 2 > 64 ? writer->capacity * 2 : 64;
    if (capacity > writer->limit) capacity = writer->limit;
    if (capacity < writer->bytes + bytes) capacity = writer->bytes + bytes;
    char *grown = jinja_alloc(writer->render, capacity);
    if (grown == NULL) return TT_ERR_MEMORY;
    if (writer->bytes > 0) memcpy(grown, writer->data, writer->bytes);
    writer->data = grown;
    writer->capacity = capacity;
    return TT_OK;
}

/* Extends the last run or begins one, up to the bytes written. */
static tt_status add_run(struct jinja_writer *writer, uint32_t origin)
{
    if (writer->run_count > 0 && writer->runs[writer->run_count - 1].origin == origin) {
        writer->runs[writer->run_count - 1].end = (uint32_t)writer->bytes;
        return TT_OK;
    }
    if (writer->run_count == writer->run_capacity) {
        size_t capacity = writer->run_capacity == 0 ? 4 : writer->run_capacity * 2;
        struct jinja_run *grown = jinja_alloc(writer->render, capacity * sizeof *grown);
        if (grown == NULL) return TT_ERR_MEMORY;
        if (writer->run_count > 0) memcpy(grown, writer->runs, writer->run_count * sizeof *grown);
        writer->runs = grown;
        writer->run_capacity = capacity;
    }
    writer->runs[writer->run_count++] = (struct jinja_run){(uint32_t)writer->bytes, origin};
    return TT_OK;
}

tt_status jinja_write(struct jinja_writer *writer, const char *data, size_t bytes, uint32_t origin)
{
    if (bytes == 0) return TT_OK;
    TT_TRY(jinja_reserve(writer, bytes));
    memcpy(writer->data + writer->bytes, data, bytes);
    writer->bytes += bytes;
    return add_run(writer, origin);
}

tt_status jinja_write_literal(struct jinja_writer *writer, const char *text, uint32_t origin)
{
    return jinja_write(writer, text, strlen(text), origin);
}

tt_status jinja_write_part(struct jinja_writer *writer, const struct jinja_value *value, size_t from,
                           size_t to)
{
    const struct jinja_text *text = value->text;
    if (to <= from) return TT_OK;
    TT_TRY(jinja_charge(writer->render, (to - from) / 64));
    if (text->runs == NULL) return jinja_write(writer, text->data + from, to - from, value->origin);
    for (uint32_t i = run_at(text, from); from < to; i++) {
        size_t end = text->runs[i].end < to ? text->runs[i].end : to;
        TT_TRY(jinja_write(writer, text->data + from, end - from, text->runs[i].origin));
        from = end;
    }
    return TT_OK;
}

tt_status jinja_write_value(struct jinja_writer *writer, const struct jinja_value *value)
{
    switch (value->type) {
    case JINJA_TEXT:
        return jinja_write_part(writer, value, 0, value->text->bytes);
    case JINJA_UNDEFINED:
        return TT_OK;
    default:
        return jinja_write_repr(writer, value, 0);
    }
}

tt_status jinja_write_mark(struct jinja_writer *writer, size_t from)
{
    /* Runs of before `from` end there, or the run that spans it is split. */
    struct jinja_writer tail = *writer;
    size_t first = 0;
    if (from >= writer->bytes) return TT_OK;
    while (first < writer->run_count && writer->runs[first].end <= from) first++;
    size_t begin = first > 0 ? writer->runs[first - 1].end : 0;
    struct jinja_run *old = writer->runs;
    size_t old_count = writer->run_count;
    writer->runs = NULL;
    writer->run_count = writer->run_capacity = 0;
    for (size_t i = 0; i < first; i++) {
        writer->bytes = old[i].end;
        TT_TRY(add_run(writer, old[i].origin));
    }
    if (begin < from) {
        writer->bytes = from;
        TT_TRY(add_run(writer, old[first].origin));
    }
    for (size_t i = first; i < old_count; i++) {
        writer->bytes = old[i].end;
        TT_TRY(add_run(writer, old[i].origin | JINJA_GENERATION));
    }
    writer->bytes = tail.bytes;
    return TT_OK;
}

tt_status jinja_writer_value(struct jinja_writer *writer, struct jinja_value *out)
{
    struct jinja_value made;
    TT_TRY(jinja_text_of(writer->render, writer->data, writer->bytes,
                         writer->run_count > 0 ? writer->runs[0].origin : 0, &made));
    if (writer->run_count > 1) {
        struct jinja_text *text = (struct jinja_text *)(uintptr_t)made.text;
        text->runs = writer->runs;
        text->run_count = (uint32_t)writer->run_count;
    }
    *out = made;
    return TT_OK;
}
