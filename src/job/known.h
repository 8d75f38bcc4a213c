/* Keys that other libraries' files and scripts have and this program has no setting for, by the part of a job that they
 * belong to. The rows are in job/known/<library>.def; none of them fills a field. */
#ifndef TT_JOB_KNOWN_H
#define TT_JOB_KNOWN_H

#include "config/settings.h"

extern const struct tt_setting tt_known_model[];
extern const struct tt_setting tt_known_lora[];
extern const struct tt_setting tt_known_quantization[];
extern const struct tt_setting tt_known_data[];
extern const struct tt_setting tt_known_run[];
extern const struct tt_setting tt_known_optim[];
extern const struct tt_setting tt_known_watch[];
extern const struct tt_setting tt_known_device[];
extern const struct tt_setting tt_known_sharding[];

#endif
