#include <math.h>
#include <stddef.h>

#include "cli/commands.h"

#define FIELD(member) .offset = offsetof(struct tt_train_config, member)

/* One row reads as one paragraph. */
/* clang-format off */
const struct tt_setting tt_inference_settings[] = {
    {.name = "per_device_eval_batch_size", .aliases = "batch_size per_gpu_eval_batch_size",
     .type = TT_SETTING_INT, FIELD(per_device_eval_batch_size), .default_text = "8", .minimum = 1,
     .maximum = 1 << 20, .help = "Samples at once."},
    {.name = "seed", .type = TT_SETTING_INT, FIELD(seed), .default_text = "42", .minimum = 0,
     .maximum = INFINITY, .help = "What is random follows from it."},
    {.name = NULL},
};
/* clang-format on */
