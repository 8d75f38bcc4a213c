/* training_state.json of a checkpoint from elsewhere, put back into a run. */
/* links: tt_run */
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "run/checkpoints.h"
#include "engine/gradient_watch.h"
#include "run/resume.h"
#include "run/run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char folder[] = "checkpoint-1";
    struct tt_run run = {.resume = {.folder = folder}};
    struct tt_counters counters = {0};
    struct tt_checkpoints checkpoints = {0};
    struct tt_gradient_watch watch = {.params = tt_calloc(3, sizeof *watch.params), .count = 3};
    if (watch.params == NULL) abort();
    if (tt_json_parse((const char *)data, size, "training_state.json", &run.resume.state) == TT_OK)
        (void)!tt_resume_restore(&run, &counters, &checkpoints, &watch);
    tt_gradient_watch_deinit(&watch);
    tt_json_deinit(&run.resume.state);
    return 0;
}
