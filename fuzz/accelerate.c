/* accelerate's configuration file: its settings must be the same when the resolved file is read. */
/* links: tt_job */
/* words: src/job/accelerate.c src/job/settings.c src/config/value.c */
#include <stdint.h>

#include "folder.h"
#include "settings.h"
#include "job/accelerate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_settings settings;
    fuzz_settings_init(&settings);
    if (tt_accelerate_read(fuzz_write("accelerate.yaml", data, size), &settings.store) == TT_OK)
        fuzz_settings_check_round_trip(&settings);
    fuzz_settings_deinit(&settings);
    return 0;
}
