#include "data/parquet/bits.h"

#include <string.h>

#include "data/parquet/thrift.h"

/* The number of `width` (1..64) bits at `bit`, which are all before `end`. */
static uint64_t read_bits(const uint8_t *data, const uint8_t *end, uint64_t bit, int width)
{
    const uint8_t *at = data + bit / 8;
    int shift = (int)(bit % 8);
    uint64_t word = 0;
    size_t bytes = (size_t)(end - at);
    /* the machine is little-endian, as the file */
    memcpy(&word, at, bytes < sizeof word ? bytes : sizeof word);
    word >>= shift;
    if (shift + width > 64) word |= (uint64_t)at[8] << (64 - shift);
    return width == 64 ? word : word & (((uint64_t)1 << width) - 1);
}

/* ---- Runs ---- */

struct parquet_runs parquet_runs_make(const uint8_t *data, size_t bytes, int width)
{
    return (struct parquet_runs){.at = data, .end = data + bytes, .width = width};
}

static bool open_run(struct parquet_runs *r)
{
    uint64_t head;
    if (!thrift_varint(&r->at, r->end, &head) || head >> 1 == 0 || head >> 1 > INT32_MAX) return false;
    size_t rest = (size_t)(r->end - r->at);
    if (head & 1) {
        /* The last run may be cut behind its last value. */
        uint64_t bytes = (head >> 1) * (uint64_t)r->width;
        if (bytes > rest) bytes = rest;
        r->left = bytes * 8 / (uint64_t)r->width;
        r->packed = r->at;
        r->bit = 0;
        r->at += bytes;
        return r->left > 0;
    }
    size_t bytes = ((size_t)r->width + 7) / 8;
    if (bytes > rest) return false;
    r->packed = NULL;
    r->value = (uint32_t)read_bits(r->at, r->at + bytes, 0, r->width);
    r->left = head >> 1;
    r->at += bytes;
    return true;
}

bool parquet_runs_next(struct parquet_runs *r, uint32_t *out)
{
    *out = 0;
    if (r->width == 0) return true;
    if (r->left == 0 && !open_run(r)) return false;
    r->left--;
    *out = r->value;
    if (r->packed != NULL) {
        *out = (uint32_t)read_bits(r->packed, r->at, r->bit, r->width);
        r->bit += (uint64_t)r->width;
    }
    return true;
}

/* ---- Deltas ---- */

enum { BLOCK_MAX = 1 << 20 };

bool parquet_deltas_open(const uint8_t *data, size_t bytes, uint64_t most, struct parquet_deltas *d)
{
    uint64_t first = 0;
    *d = (struct parquet_deltas){.at = data, .end = data + bytes, .first = true};
    if (!thrift_varint(&d->at, d->end, &d->block) || !thrift_varint(&d->at, d->end, &d->blocks_parts) ||
        !thrift_varint(&d->at, d->end, &d->left) || !thrift_varint(&d->at, d->end, &first))
        return false;
    if (d->block == 0 || d->block % 128 != 0 || d->block > BLOCK_MAX || d->left > most) return false;
    if (d->blocks_parts == 0 || d->blocks_parts > d->block || d->block % d->blocks_parts != 0) return false;
    d->part = d->block / d->blocks_parts;
    d->part_index = d->blocks_parts;
    d->value = (uint64_t)thrift_zigzag(first);
    return d->part % 32 == 0;
}

static bool open_part(struct parquet_deltas *d)
{
    if (d->part_index == d->blocks_parts) {
        uint64_t least;
        if (!thrift_varint(&d->at, d->end, &least) || (uint64_t)(d->end - d->at) < d->blocks_parts)
            return false;
        d->least = (uint64_t)thrift_zigzag(least);
        d->widths = d->at;
        d->at += d->blocks_parts;
        d->part_index = 0;
    }
    d->width = d->widths[d->part_index++];
    uint64_t bytes = d->part / 8 * (uint64_t)d->width;
    if (d->width > 64 || bytes > (uint64_t)(d->end - d->at)) return false;
    d->packed = d->at;
    d->bit = 0;
    d->at += bytes;
    d->part_left = d->part;
    return true;
}

bool parquet_deltas_next(struct parquet_deltas *d, int64_t *out)
{
    if (d->left == 0) return false;
    if (d->first) {
        d->first = false;
    } else {
        if (d->part_left == 0 && !open_part(d)) return false;
        d->part_left--;
        /* Sums wrap around, as the format says. */
        d->value += d->least;
        if (d->width > 0) d->value += read_bits(d->packed, d->at, d->bit, d->width);
        d->bit += (uint64_t)d->width;
    }
    d->left--;
    *out = (int64_t)d->value;
    return true;
}

const uint8_t *parquet_deltas_end(const struct parquet_deltas *deltas)
{
    struct parquet_deltas d = *deltas;
    uint64_t left = d.left > 0 ? d.left - d.first : 0;
    while (left > d.part_left) {
        left -= d.part_left;
        if (!open_part(&d)) return NULL;
    }
    return d.at;
}
