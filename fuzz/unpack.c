/* Compressed files of rows. The first byte chooses the name and the operation: the rest is the compressed file, or it
 * is text that is compressed in several members or frames here and must come back. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "data/rows.h"
#include "data/unpack.h"
#include "folder.h"

enum { TEXT_MAX = 1 << 16, PARTS = 3 };

static size_t pack_gzip(const uint8_t *data, size_t size, uint8_t *out, size_t room)
{
    z_stream z = {0};
    if (deflateInit2(&z, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) abort();
    z.next_in = (Bytef *)(uintptr_t)data;
    z.avail_in = (uInt)size;
    z.next_out = out;
    z.avail_out = (uInt)room;
    if (deflate(&z, Z_FINISH) != Z_STREAM_END) abort();
    deflateEnd(&z);
    return room - z.avail_out;
}

static void check_text(const uint8_t *data, size_t size, bool gzip)
{
    static uint8_t packed[2 * TEXT_MAX];
    struct tt_file_map map = {0};
    bool is_packed = false;
    size_t bytes = 0, at = 0;
    if (size > TEXT_MAX) return;
    for (int i = 0; i < PARTS; i++) {
        size_t part = i + 1 < PARTS ? size / PARTS : size - at, room = sizeof packed - bytes;
        size_t used = gzip ? pack_gzip(data + at, part, packed + bytes, room)
                           : ZSTD_compress(packed + bytes, room, data + at, part, 1);
        if (!gzip && ZSTD_isError(used)) abort();
        bytes += used;
        at += part;
    }
    const struct tt_unpack_limits limits = {0, 0, 1 << 26};
    const char *path = fuzz_write("text", packed, bytes);
    if (tt_unpack_map(path, &limits, &map, &is_packed) != TT_OK || !is_packed) abort();
    if (map.bytes != size || (size > 0 && memcmp(map.data, data, size) != 0)) abort();
    tt_file_map_close(&map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    setenv("TMPDIR", fuzz_folder(), 0);
    if (data[0] & 1) {
        check_text(data + 1, size - 1, data[0] & 2);
        return 0;
    }
    const struct tt_unpack_limits few = {data[0] & 4 ? 2 : 0, data[0] & 8 ? 100 : 0, 1 << 26};
    struct tt_rows rows = {0};
    const char *path = fuzz_write(data[0] & 2 ? "rows.jsonl.gz" : "rows.txt.zst", data + 1, size - 1);
    tt_status status = tt_rows_open(path, &few, &rows);
    if (status != TT_OK && status != TT_ERR_DATA && status != TT_ERR_UNSUPPORTED) abort();
    for (size_t i = 0; i < rows.count; i++) {
        uint64_t at = (uint64_t)((const uint8_t *)rows.spans[i].data - rows.map.data);
        if (at > rows.map.bytes || rows.spans[i].bytes > rows.map.bytes - at) abort();
    }
    tt_rows_close(&rows);
    return 0;
}
