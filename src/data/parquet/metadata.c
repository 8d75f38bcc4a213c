#include "data/parquet/metadata.h"

#include <string.h>

#include "base/alloc.h"
#include "data/parquet/thrift.h"

enum { MAGIC_BYTES = 4, TAIL_BYTES = 8 };

/* ---- Schema ---- */

static int read_unit(struct thrift *t)
{
    int unit = 0;
    for (struct thrift_field field = {0}; thrift_next(t, &field);) {
        unit = field.id;
        thrift_skip(t, field.type);
    }
    return unit;
}

/* The struct within the union: of decimals, times and integers it has values. */
static void read_logical_values(struct thrift *t, struct parquet_element *element)
{
    bool time = element->logical == PARQUET_TIME || element->logical == PARQUET_TIMESTAMP;
    for (struct thrift_field field = {0}; thrift_next(t, &field);) {
        if (time && field.id == 1) {
            element->utc = thrift_bool(t, field.type);
        } else if (time && field.id == 2) {
            if (thrift_struct(t, field.type)) element->unit = read_unit(t);
        } else if (element->logical == PARQUET_DECIMAL && field.id == 1) {
            element->scale = (int32_t)thrift_integer(t, field.type, 0, 1000);
        } else if (element->logical == PARQUET_INTEGER && field.id == 2) {
            element->is_signed = thrift_bool(t, field.type);
        } else {
            thrift_skip(t, field.type);
        }
    }
}

static void read_logical(struct thrift *t, struct parquet_element *element)
{
    for (struct thrift_field field = {0}; thrift_next(t, &field);) {
        element->logical = field.id;
        if (thrift_struct(t, field.type)) read_logical_values(t, element);
    }
}

static struct parquet_element read_element(struct thrift *t)
{
    struct parquet_element element = {
        .name = {"", 0}, .type = PARQUET_GROUP, .converted = -1, .is_signed = true};
    for (struct thrift_field field = {0}; thrift_next(t, &field);) {
        switch (field.id) {
        case 1:
            element.type = (enum parquet_type)thrift_integer(t, field.type, 0, PARQUET_FIXED_BYTES);
            break;
        case 2:
            element.bytes = (int32_t)thrift_integer(t, field.type, 0, INT32_MAX);
            break;
        case 3:
            element.repetition = (enum parquet_repetition)thrift_integer(t, field.type, 0, PARQUET_REPEATED);
            break;
        case 4:
            element.name = thrift_binary(t, field.type);
            break;
        case 5:
            element.children = (size_t)thrift_integer(t, field.type, 0, INT32_MAX);
            break;
        case 6:
            element.converted = (int)thrift_integer(t, field.type, 0, INT32_MAX);
            break;
        case 7:
            element.scale = (int32_t)thrift_integer(t, field.type, 0, 1000);
            break;
        case 10:
            if (thrift_struct(t, field.type)) read_logical(t, &element);
            break;
        default:
            thrift_skip(t, field.type);
        }
    }
    return element;
}

static tt_status read_schema(struct thrift *t, enum thrift_type type, struct parquet_metadata *m)
{
    size_t count = thrift_structs(t, type);
    for (size_t i = 0; i < count && !t->failed; i++) {
        struct parquet_element element = read_element(t);
        TT_TRY(tt_grow(&m->elements, m->element_count, &m->element_capacity));
        m->elements[m->element_count++] = element;
    }
    return TT_OK;
}

/* ---- Row groups ---- */

static void read_column(struct thrift *t, struct parquet_chunk *chunk)
{
    uint64_t data = 0, dictionary = 0;
    for (struct thrift_field field = {0}; thrift_next(t, &field);) {
        switch (field.id) {
        case 1:
            chunk->type = (enum parquet_type)thrift_integer(t, field.type, 0, PARQUET_FIXED_BYTES);
            break;
        case 4:
            chunk->codec = (int)thrift_integer(t, field.type, 0, INT32_MAX);
            break;
        case 5:
            chunk->values = thrift_integer(t, field.type, 0, INT64_MAX);
            break;
        case 7:
            chunk->bytes = (uint64_t)thrift_integer(t, field.type, 0, INT64_MAX);
            break;
        case 9:
            data = (uint64_t)thrift_integer(t, field.type, 0, INT64_MAX);
            break;
        case 11:
            dictionary = (uint64_t)thrift_integer(t, field.type, 0, INT64_MAX);
            break;
        default:
            thrift_skip(t, field.type);
        }
    }
    /* Some writers store 0 for a dictionary that does not exist. */
    chunk->offset = dictionary >= MAGIC_BYTES && dictionary < data ? dictionary : data;
}

static struct parquet_chunk read_chunk(struct thrift *t)
{
    struct parquet_chunk chunk = {.type = PARQUET_GROUP};
    for (struct thrift_field field = {0}; thrift_next(t, &field);) {
        if (field.id == 3 && thrift_struct(t, field.type)) {
            read_column(t, &chunk);
            continue;
        }
        if (field.id == 1) chunk.elsewhere = true;
        if (field.id == 8) chunk.encrypted = true;
        thrift_skip(t, field.type);
    }
    return chunk;
}

static tt_status read_chunks(struct thrift *t, enum thrift_type type, struct parquet_metadata *m,
                             struct parquet_row_group *group)
{
    size_t count = thrift_structs(t, type);
    group->first_chunk = m->chunk_count;
    group->chunk_count = count;
    for (size_t i = 0; i < count && !t->failed; i++) {
        struct parquet_chunk chunk = read_chunk(t);
        TT_TRY(tt_grow(&m->chunks, m->chunk_count, &m->chunk_capacity));
        m->chunks[m->chunk_count++] = chunk;
    }
    return TT_OK;
}

static tt_status read_groups(struct thrift *t, enum thrift_type type, struct parquet_metadata *m)
{
    size_t count = thrift_structs(t, type);
    for (size_t i = 0; i < count && !t->failed; i++) {
        struct parquet_row_group group = {0};
        for (struct thrift_field field = {0}; thrift_next(t, &field);) {
            if (field.id == 1) {
                TT_TRY(read_chunks(t, field.type, m, &group));
            } else if (field.id == 3) {
                group.rows = thrift_integer(t, field.type, 0, INT64_MAX);
            } else {
                thrift_skip(t, field.type);
            }
        }
        TT_TRY(tt_grow(&m->groups, m->group_count, &m->group_capacity));
        m->groups[m->group_count++] = group;
    }
    return TT_OK;
}

/* ---- Notes ---- */

static tt_status read_key_values(struct thrift *t, enum thrift_type type, struct parquet_metadata *m)
{
    size_t count = thrift_structs(t, type);
    for (size_t i = 0; i < count && !t->failed; i++) {
        struct parquet_note note = {{"", 0}, {"", 0}};
        for (struct thrift_field field = {0}; thrift_next(t, &field);) {
            struct tt_span *place = field.id == 1 ? &note.key : field.id == 2 ? &note.value : NULL;
            if (place != NULL)
                *place = thrift_binary(t, field.type);
            else
                thrift_skip(t, field.type);
        }
        TT_TRY(tt_grow(&m->notes, m->note_count, &m->note_capacity));
        m->notes[m->note_count++] = note;
    }
    return TT_OK;
}

/* ---- The file ---- */

bool parquet_is_magic(const struct tt_file_map *file)
{
    return file->bytes >= MAGIC_BYTES &&
           (memcmp(file->data, "PAR1", MAGIC_BYTES) == 0 || memcmp(file->data, "PARE", MAGIC_BYTES) == 0);
}

static tt_status find_footer(const char *path, const struct tt_file_map *file, uint64_t *footer)
{
    if (!parquet_is_magic(file)) {
        tt_fail(TT_ERR_DATA, "'%s' is not a Parquet file: it does not begin with \"PAR1\"", path);
        return TT_ERR_DATA;
    }
    if (memcmp(file->data, "PARE", MAGIC_BYTES) == 0)
        return tt_fail(TT_ERR_UNSUPPORTED, "'%s' is encrypted", path);
    const uint8_t *tail = file->data + file->bytes - TAIL_BYTES;
    if (file->bytes < MAGIC_BYTES + TAIL_BYTES || memcmp(tail + 4, "PAR1", MAGIC_BYTES) != 0) {
        tt_fail(TT_ERR_DATA, "'%s' is cut: its %llu bytes do not end with \"PAR1\"", path,
                (unsigned long long)file->bytes);
        tt_hint("copy or download the file again");
        return TT_ERR_DATA;
    }
    uint32_t bytes;
    memcpy(&bytes, tail, sizeof bytes);
    if (bytes > file->bytes - MAGIC_BYTES - TAIL_BYTES)
        return tt_fail(TT_ERR_DATA, "'%s': the footer of %lu bytes is longer than the file", path,
                       (unsigned long)bytes);
    *footer = file->bytes - TAIL_BYTES - bytes;
    return TT_OK;
}

tt_status parquet_metadata_read(const char *path, const struct tt_file_map *file,
                                struct parquet_metadata *metadata)
{
    struct parquet_metadata m = {0};
    tt_status status = TT_OK;
    TT_GO(find_footer(path, file, &m.data_bytes));
    struct thrift t = {file->data + m.data_bytes, file->data + file->bytes - TAIL_BYTES, false};
    const uint8_t *start = t.at;
    for (struct thrift_field field = {0}; thrift_next(&t, &field);) {
        if (field.id == 2 && m.element_count == 0) {
            TT_GO(read_schema(&t, field.type, &m));
        } else if (field.id == 4 && m.group_count == 0) {
            TT_GO(read_groups(&t, field.type, &m));
        } else if (field.id == 5 && m.note_count == 0) {
            TT_GO(read_key_values(&t, field.type, &m));
        } else {
            thrift_skip(&t, field.type);
        }
    }
    if (t.failed || m.element_count == 0)
        TT_GO(tt_fail(TT_ERR_DATA, "'%s': the footer at byte %llu is damaged", path,
                      (unsigned long long)(start - file->data)));
    *metadata = m;
    return TT_OK;
out:
    parquet_metadata_deinit(&m);
    return status;
}

void parquet_metadata_deinit(struct parquet_metadata *metadata)
{
    tt_free(metadata->elements);
    tt_free(metadata->groups);
    tt_free(metadata->chunks);
    tt_free(metadata->notes);
    *metadata = (struct parquet_metadata){0};
}

/* ---- Pages ---- */

/* The first two fields of DataPageHeader and DictionaryPageHeader, which are the same. */
static void read_page(struct thrift *t, struct parquet_page *page)
{
    for (struct thrift_field field = {0}; thrift_next(t, &field);) {
        int *encoding = field.id == 2   ? &page->encoding
                        : field.id == 3 ? &page->def_encoding
                        : field.id == 4 ? &page->rep_encoding
                                        : NULL;
        if (field.id == 1) {
            page->values = (int32_t)thrift_integer(t, field.type, 0, INT32_MAX);
        } else if (encoding != NULL && field.type == THRIFT_I32) {
            *encoding = (int)thrift_integer(t, field.type, 0, INT32_MAX);
        } else {
            thrift_skip(t, field.type); /* is_sorted of a dictionary, statistics */
        }
    }
}

static void read_page_v2(struct thrift *t, struct parquet_page *page)
{
    for (struct thrift_field field = {0}; thrift_next(t, &field);) {
        if (field.id == 1) {
            page->values = (int32_t)thrift_integer(t, field.type, 0, INT32_MAX);
        } else if (field.id == 4) {
            page->encoding = (int)thrift_integer(t, field.type, 0, INT32_MAX);
        } else if (field.id == 5) {
            page->def_bytes = (uint32_t)thrift_integer(t, field.type, 0, INT32_MAX);
        } else if (field.id == 6) {
            page->rep_bytes = (uint32_t)thrift_integer(t, field.type, 0, INT32_MAX);
        } else if (field.id == 7) {
            page->packed = thrift_bool(t, field.type);
        } else {
            thrift_skip(t, field.type);
        }
    }
}

bool parquet_page_read(const uint8_t **at, const uint8_t *end, struct parquet_page *page)
{
    struct thrift t = {*at, end, false};
    int body = 0;
    *page = (struct parquet_page){.type = -1, .encoding = -1, .packed = true};
    for (struct thrift_field field = {0}; thrift_next(&t, &field);) {
        if (field.id == 1) {
            page->type = (int)thrift_integer(&t, field.type, 0, INT32_MAX);
        } else if (field.id == 2) {
            page->bytes = (uint32_t)thrift_integer(&t, field.type, 0, INT32_MAX);
        } else if (field.id == 3) {
            page->packed_bytes = (uint32_t)thrift_integer(&t, field.type, 0, INT32_MAX);
        } else if (field.id == 4) {
            page->sum = (uint32_t)thrift_integer(&t, field.type, INT32_MIN, INT32_MAX);
            page->has_sum = true;
        } else if ((field.id == 5 || field.id == 7) && thrift_struct(&t, field.type)) {
            read_page(&t, page);
            body = field.id;
        } else if (field.id == 8 && thrift_struct(&t, field.type)) {
            read_page_v2(&t, page);
            body = field.id;
        } else {
            thrift_skip(&t, field.type);
        }
    }
    *at = t.at;
    int needed = page->type == PARQUET_DATA_PAGE         ? 5
                 : page->type == PARQUET_DICTIONARY_PAGE ? 7
                 : page->type == PARQUET_DATA_PAGE_V2    ? 8
                                                         : body;
    return !t.failed && page->type >= 0 && body == needed;
}
