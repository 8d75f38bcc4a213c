/* The rows of job/known: keys of other libraries' files and scripts for which this program has no setting.
 *
 *   UNNEEDED(name, why)                       accepted at any value, without effect
 *   ONLY(name, type, default, values, why)    accepted at the values that turn the feature off
 *
 * There is one file for each library, with a group for each part of a job (job/settings.h). A kind of job that has the
 * part's settings accepts the group too. */
#include "job/known.h"

static const char *const no_compile = "kernels are compiled before the run, not during it";
static const char *const every_block = "every transformer block is a unit";
static const char *const own_bytes = "each rank always reads only its own bytes of the weights";
static const char *const no_ddp = "ranks exchange gradients unit by unit, without DistributedDataParallel";
static const char *const own_process = "rows are tokenized by threads of this process";

#define UNNEEDED(name_, why_) TT_SETTING_UNNEEDED(name_, why_),
#define ONLY(name_, type_, default_, only_, why_) TT_SETTING_ONLY(name_, type_, default_, only_, why_),

/* clang-format off */

#define KNOWN_MODEL
const struct tt_setting tt_known_model[] = {
#include "job/known/transformers.def"
#include "job/known/trl.def"
#include "job/known/peft.def"
#include "job/known/accelerate.def"
    {.name = NULL},
};
#undef KNOWN_MODEL

#define KNOWN_LORA
const struct tt_setting tt_known_lora[] = {
#include "job/known/transformers.def"
#include "job/known/trl.def"
#include "job/known/peft.def"
#include "job/known/accelerate.def"
    {.name = NULL},
};
#undef KNOWN_LORA

#define KNOWN_QUANTIZATION
const struct tt_setting tt_known_quantization[] = {
#include "job/known/transformers.def"
#include "job/known/trl.def"
#include "job/known/peft.def"
#include "job/known/accelerate.def"
    {.name = NULL},
};
#undef KNOWN_QUANTIZATION

#define KNOWN_DATA
const struct tt_setting tt_known_data[] = {
#include "job/known/transformers.def"
#include "job/known/trl.def"
#include "job/known/peft.def"
#include "job/known/accelerate.def"
    {.name = NULL},
};
#undef KNOWN_DATA

#define KNOWN_RUN
const struct tt_setting tt_known_run[] = {
#include "job/known/transformers.def"
#include "job/known/trl.def"
#include "job/known/peft.def"
#include "job/known/accelerate.def"
    {.name = NULL},
};
#undef KNOWN_RUN

#define KNOWN_OPTIM
const struct tt_setting tt_known_optim[] = {
#include "job/known/transformers.def"
#include "job/known/trl.def"
#include "job/known/peft.def"
#include "job/known/accelerate.def"
    {.name = NULL},
};
#undef KNOWN_OPTIM

#define KNOWN_WATCH
const struct tt_setting tt_known_watch[] = {
#include "job/known/transformers.def"
#include "job/known/trl.def"
#include "job/known/peft.def"
#include "job/known/accelerate.def"
    {.name = NULL},
};
#undef KNOWN_WATCH

#define KNOWN_DEVICE
const struct tt_setting tt_known_device[] = {
#include "job/known/transformers.def"
#include "job/known/trl.def"
#include "job/known/peft.def"
#include "job/known/accelerate.def"
    {.name = NULL},
};
#undef KNOWN_DEVICE

#define KNOWN_SHARDING
const struct tt_setting tt_known_sharding[] = {
#include "job/known/transformers.def"
#include "job/known/trl.def"
#include "job/known/peft.def"
#include "job/known/accelerate.def"
    {.name = NULL},
};
#undef KNOWN_SHARDING
/* clang-format on */
