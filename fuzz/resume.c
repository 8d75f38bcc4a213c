/* An untrusted training_state.json of a checkpoint, restored into a run. */
/* links: tt_run */
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "run/memory.h"
#include "run/resume.h"
#include "run/run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char folder[] = "checkpoint-1";
    struct tt_objective objective;
    struct tt_run_spec spec = {0};
    struct tt_run run = {.objective = &objective, .spec = &spec, .resume = {.folder = folder}};
    struct tt_memory memory = {.watch = {.params = tt_calloc(3, sizeof *memory.watch.params), .count = 3}};
    if (memory.watch.params == NULL || tt_objective_init("sft", &objective) != TT_OK) abort();
    if (tt_json_parse((const char *)data, size, "training_state.json", &run.resume.state) == TT_OK)
        (void)!tt_resume_restore(&run, &memory);
    tt_gradient_watch_deinit(&memory.watch);
    tt_json_deinit(&run.resume.state);
    return 0;
}
