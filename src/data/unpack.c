#include "data/unpack.h"

#include <string.h>

#include <zlib.h>
#include <zstd.h>

#include "base/alloc.h"
#include "base/ascii.h"
#include "base/cgroup.h"
#include "base/str.h"
#include "base/temporary.h"
#include "data/arrow/arrow.h"
#include "data/parquet/parquet.h"

/* A page of Parquet is in memory, with its dictionary. Writers close a page when a MiB or some thousand values are in
 * it: a GiB is a thousand values of a MiB. */
enum { BUFFER_BYTES = 1 << 20, PAGE_BYTES_MAX = 1 << 30 };

const char *const tt_unpack_endings[] = {".gz", ".zst", ".zstd", NULL};

struct unpacking {
    const char *path; /* of the compressed file */
    int from, to;
    uint64_t bytes, read, written; /* bytes: of the compressed file */
    uint64_t most;                 /* to write */
    uint8_t *in, *out;             /* [BUFFER_BYTES] */
    size_t in_bytes;
};

static tt_status fail_damaged(const struct unpacking *u, const char *why)
{
    tt_fail(TT_ERR_DATA, "'%s' cannot be unpacked: %s before byte %llu of %llu", u->path, why,
            (unsigned long long)u->read, (unsigned long long)u->bytes);
    tt_hint("the file is damaged or was not copied to its end");
    return TT_ERR_DATA;
}

/* Reads the next bytes of the compressed file; none at its end. */
static tt_status refill(struct unpacking *u)
{
    uint64_t left = u->bytes - u->read;
    u->in_bytes = left < BUFFER_BYTES ? (size_t)left : BUFFER_BYTES;
    if (u->in_bytes == 0) return TT_OK;
    TT_TRY(tt_file_pread(u->from, u->path, u->in, u->in_bytes, u->read));
    u->read += u->in_bytes;
    return TT_OK;
}

static const char remedy[] =
    "max_unpacked_size sets this limit; without it that is nine tenths of the free space of TMPDIR";

static tt_status put(struct unpacking *u, size_t bytes)
{
    if (bytes == 0) return TT_OK;
    if (u->written + bytes > u->most) {
        char most[32];
        tt_fail(TT_ERR_DATA, "'%s' unpacks to more than %s", u->path,
                tt_format_bytes((double)u->most, most, sizeof most));
        tt_hint("%s", remedy);
        return TT_ERR_DATA;
    }
    tt_status status = tt_file_pwrite(u->to, "the unpacked file", u->out, bytes, u->written);
    if (status != TT_OK) {
        tt_while("unpacking '%s' into TMPDIR", u->path);
        return status;
    }
    u->written += bytes;
    return TT_OK;
}

/* ---- gzip ---- */

/* The end of a member is followed by another one, or by zeros to the end of the file. */
static tt_status next_member(struct unpacking *u, z_stream *z, bool *end)
{
    *end = false;
    for (;;) {
        if (z->avail_in == 0) {
            TT_TRY(refill(u));
            z->next_in = u->in;
            z->avail_in = (uInt)u->in_bytes;
            if (u->in_bytes == 0) {
                *end = true;
                return TT_OK;
            }
        }
        if (*z->next_in != 0) break;
        z->next_in++;
        z->avail_in--;
    }
    return inflateReset(z) == Z_OK ? TT_OK : tt_fail(TT_ERR_INTERNAL, "inflateReset failed");
}

static tt_status inflate_all(struct unpacking *u, z_stream *z)
{
    bool end = false;
    while (!end) {
        if (z->avail_in == 0) {
            TT_TRY(refill(u));
            if (u->in_bytes == 0) return fail_damaged(u, "it ends within compressed data,");
            z->next_in = u->in;
            z->avail_in = (uInt)u->in_bytes;
        }
        z->next_out = u->out;
        z->avail_out = BUFFER_BYTES;
        int result = inflate(z, Z_NO_FLUSH);
        if (result != Z_OK && result != Z_STREAM_END)
            return result == Z_MEM_ERROR ? TT_ERR_MEMORY
                                         : fail_damaged(u, z->msg != NULL ? z->msg : "damaged data");
        TT_TRY(put(u, BUFFER_BYTES - z->avail_out));
        if (result == Z_STREAM_END) TT_TRY(next_member(u, z, &end));
    }
    return TT_OK;
}

static tt_status unpack_gzip(struct unpacking *u)
{
    z_stream z = {0};
    if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK) return TT_ERR_MEMORY;
    tt_status status = inflate_all(u, &z);
    inflateEnd(&z);
    return status;
}

/* ---- Zstandard ---- */

static tt_status unpack_zstd(struct unpacking *u)
{
    ZSTD_DStream *stream = ZSTD_createDStream();
    ZSTD_inBuffer in = {u->in, 0, 0};
    size_t left = 0;   /* 0: at the border of a frame */
    bool full = false; /* the last call filled the output, so there may be more */
    tt_status status = stream == NULL ? TT_ERR_MEMORY : TT_OK;
    TT_GO(status);
    for (;;) {
        ZSTD_outBuffer out = {u->out, BUFFER_BYTES, 0};
        if (in.pos == in.size && !full) {
            TT_GO(refill(u));
            in = (ZSTD_inBuffer){u->in, u->in_bytes, 0};
            if (u->in_bytes == 0) break;
        }
        left = ZSTD_decompressStream(stream, &out, &in);
        if (ZSTD_isError(left)) TT_GO(fail_damaged(u, ZSTD_getErrorName(left)));
        TT_GO(put(u, out.pos));
        full = out.pos == out.size && left != 0;
    }
    if (left != 0) status = fail_damaged(u, "it ends within a frame,");
out:
    ZSTD_freeDStream(stream);
    return status;
}

/* ---- Files ---- */

/* ---- Parquet and Arrow ---- */

enum kind { PLAIN, GZIP, ZSTANDARD, PARQUET, ARROW };

static tt_status put_rows(void *context, const char *data, size_t bytes)
{
    struct unpacking *u = context;
    tt_status status = tt_file_pwrite(u->to, "the unpacked file", data, bytes, u->written);
    if (status != TT_OK) tt_while("writing the rows of '%s' into TMPDIR", u->path);
    u->written += bytes;
    return status;
}

/* A page may take an eighth of the memory of a machine that has little. */
static uint32_t page_limit(void)
{
    bool grouped;
    uint64_t share = tt_memory_bytes(&grouped) / 8;
    return share > 0 && share < PAGE_BYTES_MAX ? (uint32_t)share : PAGE_BYTES_MAX;
}

static tt_status unpack_table(struct unpacking *u, enum kind kind, const struct tt_unpack_limits *limits)
{
    const struct tt_parquet_limits of_reader = {.rows = limits->rows,
                                                .row_bytes = limits->row_bytes,
                                                .total_bytes = u->most,
                                                .remedy = remedy,
                                                .page_bytes = page_limit()};
    struct tt_file_map file;
    TT_TRY(tt_file_map_descriptor(u->from, u->path, u->bytes, &file));
    tt_status status = kind == PARQUET ? tt_parquet_read(u->path, &file, &of_reader, put_rows, u)
                                       : tt_arrow_read(u->path, &file, &of_reader, put_rows, u);
    tt_file_map_close(&file);
    return status;
}

static enum kind kind_of_name(const char *path)
{
    size_t bytes = strlen(path), parquet = strlen(".parquet"), arrow = strlen(".arrow");
    if (bytes >= parquet && tt_ascii_same(path + bytes - parquet, ".parquet")) return PARQUET;
    return bytes >= arrow && tt_ascii_same(path + bytes - arrow, ".arrow") ? ARROW : PLAIN;
}

bool tt_unpack_is_table(const char *path)
{
    return kind_of_name(path) != PLAIN;
}

static tt_status find_kind(const struct unpacking *u, enum kind *kind)
{
    uint8_t magic[4] = {0};
    *kind = kind_of_name(u->path);
    if (*kind != PLAIN || u->bytes < sizeof magic) return TT_OK;
    TT_TRY(tt_file_pread(u->from, u->path, magic, sizeof magic, 0));
    bool skippable = (magic[0] & 0xf0) == 0x50 && memcmp(magic + 1, "\x2a\x4d\x18", 3) == 0;
    if (memcmp(magic, "\x1f\x8b\x08", 3) == 0) *kind = GZIP;
    if (memcmp(magic, "PAR1", 4) == 0) *kind = PARQUET;
    if (memcmp(magic, "ARRO", 4) == 0 || memcmp(magic, "\xff\xff\xff\xff", 4) == 0) *kind = ARROW;
    if (memcmp(magic, "\x28\xb5\x2f\xfd", 4) == 0 || skippable) *kind = ZSTANDARD;
    return TT_OK;
}

static tt_status unpack(struct unpacking *u, enum kind kind, const struct tt_unpack_limits *limits)
{
    if (kind == PARQUET || kind == ARROW) return unpack_table(u, kind, limits);
    return kind == GZIP ? unpack_gzip(u) : unpack_zstd(u);
}

tt_status tt_unpack_map(const char *path, const struct tt_unpack_limits *limits, struct tt_file_map *map,
                        bool *packed)
{
    struct unpacking u = {.path = path, .from = -1, .to = -1};
    enum kind kind = PLAIN;
    tt_status status = TT_OK;
    *packed = false;
    TT_GO(tt_file_open_read(path, &u.from, &u.bytes));
    TT_GO(find_kind(&u, &kind));
    if (kind == PLAIN) goto out;
    *packed = true;
    u.in = tt_alloc_aligned(BUFFER_BYTES);
    u.out = tt_alloc_aligned(BUFFER_BYTES);
    if (u.in == NULL || u.out == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_file_open_temporary(&u.to));
    u.most = limits->bytes;
    if (u.most == 0) TT_GO(tt_file_temporary_room(&u.most));
    TT_GO(unpack(&u, kind, limits));
    TT_GO(tt_file_map_descriptor(u.to, path, u.written, map));
out:
    tt_file_close(u.from);
    tt_file_close(u.to);
    tt_free(u.in);
    tt_free(u.out);
    return status;
}
