/* An untrusted manifest.json of a checkpoint: names stay below the folder, and verification ends. */
/* links: tt_checkpoint */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/manifest.h"
#include "folder.h"

static void check_name(const char *name)
{
    if (name[0] == '\0' || name[0] == '/') abort();
    for (const char *part = name; part != NULL; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0')) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_manifest manifest = {0};
    static bool ready;
    if (!ready) fuzz_write("a", "12345", 5);
    ready = true;
    fuzz_write(TT_MANIFEST_NAME, data, size);
    if (tt_manifest_read(fuzz_folder(), &manifest) == TT_OK) {
        for (size_t i = 0; i < manifest.count; i++) {
            check_name(manifest.files[i].name);
            if (i > 0 && strcmp(manifest.files[i - 1].name, manifest.files[i].name) >= 0) abort();
            if (tt_manifest_find(&manifest, manifest.files[i].name) != &manifest.files[i]) abort();
        }
        (void)!tt_manifest_verify(&manifest, fuzz_folder(), NULL);
    }
    tt_manifest_deinit(&manifest);
    return 0;
}
