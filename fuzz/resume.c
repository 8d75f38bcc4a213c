/* An untrusted training_state.json of a checkpoint, restored into a run. */
/* links: tt_run */
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "run/memory.h"
#include "run/resume.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char folder[] = "checkpoint-1";
    struct tt_objective objective;
    struct tt_resume resume = {.folder = folder};
    struct tt_memory memory = {.watch = {.params = tt_calloc(3, sizeof *memory.watch.params), .count = 3}};
    if (memory.watch.params == NULL || tt_objective_init("sft", &objective) != TT_OK) abort();
    if (tt_json_parse((const char *)data, size, "training_state.json", &resume.state) == TT_OK)
        (void)!tt_resume_restore(&resume, &objective, &memory);
    tt_gradient_watch_deinit(&memory.watch);
    tt_json_deinit(&resume.state);
    return 0;
}
