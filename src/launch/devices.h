/* Description of the GPUs of a run: "2 x NVIDIA H200, 140 GiB, compute 9.0; driver for CUDA 13.0; links NV18". */
#ifndef TT_LAUNCH_DEVICES_H
#define TT_LAUNCH_DEVICES_H

#include "base/str.h"

/* Appends a few lines about GPUs first .. first + count - 1 of this process; nothing without a plugin. */
TT_MUST_USE tt_status tt_devices_describe(int first, int count, struct tt_str *text);

/* True if the plugin for GPUs is there and of this build; else `reason` says why not. `abi` [96]: that of both. */
bool tt_devices_have_plugin(char *abi, char *reason, size_t reason_bytes);

#endif
