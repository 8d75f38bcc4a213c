#include "data/parquet/column.h"

#include <string.h>

#include <zlib.h>

#include "base/alloc.h"

static tt_status damaged(struct parquet_column *c, const char *why)
{
    c->why = why;
    return TT_ERR_DATA;
}

static tt_status unsupported(struct parquet_column *c, const char *why)
{
    c->why = why;
    return TT_ERR_UNSUPPORTED;
}

/* ---- Pages ---- */

static tt_status unpack(struct parquet_column *c, const uint8_t *packed, size_t packed_bytes, uint8_t *out,
                        size_t bytes)
{
    return parquet_unpack(&c->codec, c->chunk->codec, packed, packed_bytes, out, bytes, &c->why);
}

static tt_status read_dictionary(struct parquet_column *c, const struct parquet_page *page,
                                 const uint8_t *body)
{
    if (c->dictionary.page != NULL) return damaged(c, "a second dictionary");
    if (page->encoding != PARQUET_PLAIN && page->encoding != PARQUET_PLAIN_DICTIONARY)
        return unsupported(c, "the encoding of its dictionary is not supported");
    if (c->node->type == PARQUET_BOOLEAN) return damaged(c, "a dictionary of booleans");
    uint8_t *data = tt_alloc_aligned(page->bytes > 0 ? page->bytes : 1);
    if (data == NULL) return TT_ERR_MEMORY;
    tt_status status = unpack(c, body, page->packed_bytes, data, page->bytes);
    if (status != TT_OK) {
        tt_free(data);
        return status;
    }
    c->why = "its dictionary is damaged";
    return parquet_dictionary_read(&c->dictionary, c->values.width, data, page->bytes, (size_t)page->values);
}

static tt_status make_room(struct parquet_column *c, size_t bytes)
{
    size_t room = bytes > 0 ? bytes : 1;
    if (room <= c->page_capacity) return TT_OK;
    tt_free(c->page);
    c->page_capacity = 0;
    c->page = tt_alloc_aligned(room);
    if (c->page == NULL) return TT_ERR_MEMORY;
    c->page_capacity = room;
    return TT_OK;
}

static int bit_width(int value)
{
    int width = 0;
    for (; value > 0; value >>= 1) width++;
    return width;
}

/* Levels of version 1: their length, then runs. */
static tt_status read_levels(struct parquet_column *c, const uint8_t **at, size_t *bytes, int encoding,
                             int most, struct parquet_runs *runs)
{
    uint32_t length;
    *runs = (struct parquet_runs){0};
    if (most == 0) return TT_OK;
    if (encoding != PARQUET_RLE) return unsupported(c, "the encoding of its levels is not supported");
    if (*bytes < sizeof length) return damaged(c, "it ends within its levels");
    memcpy(&length, *at, sizeof length);
    if (length > *bytes - sizeof length) return damaged(c, "it ends within its levels");
    *runs = parquet_runs_make(*at + sizeof length, length, bit_width(most));
    *at += sizeof length + length;
    *bytes -= sizeof length + length;
    return TT_OK;
}

static tt_status open_values(struct parquet_column *c, const struct parquet_page *page, const uint8_t *at,
                             size_t bytes)
{
    bool is_unsupported;
    c->page_left = page->values;
    c->left -= page->values;
    if (parquet_values_open(&c->values, page->encoding, at, bytes, (uint64_t)page->values, &c->why,
                            &is_unsupported))
        return TT_OK;
    return is_unsupported ? TT_ERR_UNSUPPORTED : TT_ERR_DATA;
}

static tt_status open_page(struct parquet_column *c, const struct parquet_page *page, const uint8_t *body)
{
    size_t bytes = page->bytes;
    TT_TRY(make_room(c, bytes));
    TT_TRY(unpack(c, body, page->packed_bytes, c->page, bytes));
    const uint8_t *at = c->page;
    TT_TRY(read_levels(c, &at, &bytes, page->rep_encoding, c->node->rep, &c->reps));
    TT_TRY(read_levels(c, &at, &bytes, page->def_encoding, c->node->def, &c->defs));
    return open_values(c, page, at, bytes);
}

/* Levels of version 2 are not compressed, and have their lengths in the header. */
static tt_status open_page_v2(struct parquet_column *c, const struct parquet_page *page, const uint8_t *body)
{
    uint64_t levels = (uint64_t)page->rep_bytes + page->def_bytes;
    if (levels > page->packed_bytes || levels > page->bytes)
        return damaged(c, "its levels are longer than the page");
    const uint8_t *at = body + levels;
    size_t bytes = page->bytes - (size_t)levels, packed_bytes = page->packed_bytes - (size_t)levels;
    c->reps = parquet_runs_make(body, page->rep_bytes, bit_width(c->node->rep));
    c->defs = parquet_runs_make(body + page->rep_bytes, page->def_bytes, bit_width(c->node->def));
    if (!page->packed && packed_bytes != bytes)
        return damaged(c, "it has another length than its header says");
    if (page->packed && packed_bytes > 0) {
        TT_TRY(make_room(c, bytes));
        TT_TRY(unpack(c, at, packed_bytes, c->page, bytes));
        at = c->page;
    } else if (packed_bytes != bytes) {
        return damaged(c, "it has no values");
    }
    return open_values(c, page, at, bytes);
}

static tt_status read_page(struct parquet_column *c)
{
    struct parquet_page page;
    c->page_at = (uint64_t)(c->at - c->start);
    if (c->at == c->end) return damaged(c, "its pages end before its values");
    if (!parquet_page_read(&c->at, c->end, &page)) return damaged(c, "the header of a page is damaged");
    if (page.packed_bytes > (size_t)(c->end - c->at)) return damaged(c, "a page is longer than the column");
    const uint8_t *body = c->at;
    c->at += page.packed_bytes;
    if (page.type != PARQUET_DATA_PAGE && page.type != PARQUET_DATA_PAGE_V2 &&
        page.type != PARQUET_DICTIONARY_PAGE)
        return TT_OK; /* an index */
    if (page.bytes > c->page_bytes_max) return damaged(c, "a page is larger than the limit");
    if (page.has_sum && (uint32_t)crc32(0, body, page.packed_bytes) != page.sum)
        return damaged(c, "the checksum of a page differs");
    if (page.type == PARQUET_DICTIONARY_PAGE) {
        TT_TRY(read_dictionary(c, &page, body));
    } else if (page.values > c->left) {
        return damaged(c, "a page has more values than the column");
    } else if (page.type == PARQUET_DATA_PAGE_V2) {
        return open_page_v2(c, &page, body); /* parts of it are read where they are */
    } else {
        TT_TRY(open_page(c, &page, body));
    }
    tt_file_map_release(body, page.packed_bytes);
    return TT_OK;
}

/* ---- Entries ---- */

tt_status parquet_column_next(struct parquet_column *c)
{
    uint32_t def = 0, rep = 0;
    while (c->page_left == 0) {
        c->has_entry = false;
        if (c->left == 0) return TT_OK;
        TT_TRY(read_page(c));
    }
    c->page_left--;
    if (c->node->def > 0 && !parquet_runs_next(&c->defs, &def)) return damaged(c, "its levels end early");
    if (c->node->rep > 0 && !parquet_runs_next(&c->reps, &rep)) return damaged(c, "its levels end early");
    if (def > (uint32_t)c->node->def || rep > (uint32_t)c->node->rep)
        return damaged(c, "a level is too high");
    c->def = (int)def;
    c->rep = (int)rep;
    c->has_entry = true;
    return TT_OK;
}

tt_status parquet_column_value(struct parquet_column *c, struct parquet_value *value)
{
    c->why = "its values are damaged, or fewer than its levels say";
    return parquet_values_next(&c->values, value);
}

tt_status parquet_column_open(struct parquet_column *c, const struct tt_file_map *file,
                              const struct parquet_chunk *chunk, uint64_t data_bytes)
{
    c->chunk = chunk;
    c->page_at = chunk->offset;
    c->left = chunk->values;
    c->page_left = 0;
    c->has_entry = false;
    c->values.type = c->node->type;
    c->values.width = parquet_width(c->node->type, c->node->bytes);
    c->values.dictionary = &c->dictionary;
    parquet_dictionary_deinit(&c->dictionary);
    if (chunk->encrypted) return unsupported(c, "it is encrypted");
    if (chunk->elsewhere) return unsupported(c, "its values are in another file");
    if (chunk->type != c->node->type) return damaged(c, "its type differs from the schema's");
    const char *refusal = parquet_codec_refusal(chunk->codec);
    if (refusal != NULL) return unsupported(c, refusal);
    if (chunk->offset > data_bytes || chunk->bytes > data_bytes - chunk->offset)
        return damaged(c, "its pages are not within the file");
    c->start = file->data;
    c->at = file->data + chunk->offset;
    c->end = c->at + chunk->bytes;
    return parquet_column_next(c);
}

void parquet_column_deinit(struct parquet_column *c)
{
    parquet_values_deinit(&c->values);
    parquet_dictionary_deinit(&c->dictionary);
    parquet_codec_deinit(&c->codec);
    tt_free(c->page);
    *c = (struct parquet_column){0};
}
