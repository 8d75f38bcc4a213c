/* The note that a rank writes beside the files of a save, read from a file system that returns other bytes. */
/* links: tt_checkpoint */
#include <stdint.h>
#include <stdlib.h>

#include "checkpoint/writer.h"
#include "folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const bool expected[1] = {true};
    atomic_bool cancelled = false, all_written = true;
    struct tt_writer writer = {.folder = fuzz_folder(), .cancelled = &cancelled, .all_written = &all_written};
    struct tt_manifest manifest = {0};
    fuzz_write(".written-0", data, size);
    if (tt_writer_collect(&writer, expected, 1, &manifest) == TT_OK) {
        for (size_t i = 0; i < manifest.count; i++)
            if (manifest.files[i].name[0] == '\0') abort();
    }
    tt_manifest_deinit(&manifest);
    return 0;
}
