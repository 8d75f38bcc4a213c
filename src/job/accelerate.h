/* accelerate's configuration file (`accelerate launch --config_file`).
 *
 * Its keys become settings of the run, each only where neither a flag nor a YAML file of --config has set it. Keys
 * without effect are logged once with the reason; an unknown key is TT_ERR_USAGE, as in accelerate. Sources: accelerate
 * src/accelerate/commands/config/config_args.py (keys),
 * src/accelerate/utils/dataclasses.py FullyShardedDataParallelPlugin (values), commands/to_fsdp2.py (version 2). */
#ifndef TT_JOB_ACCELERATE_H
#define TT_JOB_ACCELERATE_H

#include "config/settings.h"

/* Reads the file into `settings`, those of any kind of job. Keys without a setting in that kind are checked and
 * ignored.
 */
TT_MUST_USE tt_status tt_accelerate_read(const char *path, struct tt_settings *settings);
/* Applies transformers' setting fsdp_config: the same keys, as JSON text or as the path of a JSON or YAML file. They
 * have the precedence of the source that set fsdp_config. */
TT_MUST_USE tt_status tt_fsdp_config_apply(const char *text_or_path, struct tt_settings *settings);

#endif
