/* Runs a fuzz target over files without a fuzzer: each file as it is, every prefix of a small one, and a
 * fixed number of random edits of each. The edits are keyed by the file's name, so that a failure comes back
 * when run again. Files of a folder "grown", which a fuzzer made and which are many, are run as they are.
 *
 *     fuzz_<name> FILE_OR_FOLDER...
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PREFIX_BYTES_MAX = 512, EDITS = 256, FILE_BYTES_MAX = 16 << 20 };

/* A block of exactly `bytes`, so that a sanitizer sees the first byte read too far. */
static void run(const char *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    if (copy == NULL) abort();
    if (bytes > 0) memcpy(copy, data, bytes);
    LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
}

static void run_edited(const char *data, size_t bytes, struct tt_rng rng)
{
    char *copy = malloc(bytes + 1);
    if (copy == NULL) abort();
    for (uint64_t edit = 0; edit < EDITS; edit++) {
        struct tt_rng draws = tt_rng_derive_index(rng, edit);
        memcpy(copy, data, bytes);
        uint64_t changes = 1 + tt_rng_below(draws, 0, 4);
        for (uint64_t i = 0; i < changes; i++) {
            size_t at = (size_t)tt_rng_below(draws, 3 * i + 1, bytes);
            uint64_t kind = tt_rng_below(draws, 3 * i + 2, 4), value = tt_rng_u64(draws, 3 * i + 3);
            if (kind == 0) copy[at] = (char)(copy[at] ^ (1 << (value % 8)));
            if (kind == 1) copy[at] = (char)value;
            if (kind == 2) copy[at] = (char)('0' + value % 10);
            if (kind == 3) copy[at] = copy[value % bytes];
        }
        run(copy, bytes);
    }
    free(copy);
}

static size_t file_count;

static tt_status replay(void *context, const char *name)
{
    char *path = tt_path_join(context, name);
    if (path == NULL) return TT_ERR_MEMORY;
    struct tt_str data = {0};
    tt_status status = TT_OK;
    if (tt_path_is_dir(path)) {
        status = tt_dir_list(path, replay, path);
    } else {
        status = tt_file_read(path, FILE_BYTES_MAX, &data);
        if (status == TT_OK) {
            bool grown = strstr(path, "/grown/") != NULL;
            run(tt_str_text(&data), data.bytes);
            for (size_t bytes = 0; bytes < data.bytes && data.bytes <= PREFIX_BYTES_MAX && !grown; bytes++) {
                run(data.data, bytes);
            }
            if (data.bytes > 0 && !grown)
                run_edited(data.data, data.bytes, tt_rng_derive(tt_rng_make(1), name));
            file_count++;
        }
    }
    tt_str_deinit(&data);
    tt_free(path);
    return status;
}

int main(int argument_count, char **arguments)
{
    for (int i = 1; i < argument_count; i++) {
        char folder[] = "";
        if (replay(folder, arguments[i]) != TT_OK) {
            char text[2048];
            tt_error_format(tt_error_last(), text, sizeof text);
            fprintf(stderr, "%s\n", text);
            return 1;
        }
    }
    printf("replayed %zu files\n", file_count);
    return file_count > 0 ? 0 : 1;
}
