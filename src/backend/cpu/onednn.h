/* oneDNN's matrix product behind a shim: everything that differs between its versions 2 and 3 is in onednn.c.
 * Primitives are compiled per shape and kept, at most TT_ONEDNN_PRIMITIVES_MAX of them; a device is driven by one
 * thread, so its cache needs no lock. */
#ifndef TT_BACKEND_CPU_ONEDNN_H
#define TT_BACKEND_CPU_ONEDNN_H

#include "backend/cpu/gemm.h"

enum { TT_ONEDNN_PRIMITIVES_MAX = 512 };

/* *out stays NULL where this build has no oneDNN, or the processor has nothing for it that beats the own kernels;
 * `forced` asks for it whatever the processor. */
TT_MUST_USE tt_status tt_onednn_create(struct tt_device *device, bool forced, struct tt_onednn **out);
void tt_onednn_destroy(struct tt_onednn *onednn); /* takes NULL */
const char *tt_onednn_name(const struct tt_onednn *onednn, char *text, size_t text_bytes);

#endif
