/* The adapter of a run that trains over what is left of the base, as a plain one of the base as it was. With the first
 * values A' and B':
 *
 *     W - s B' A' + s B A = W + s [B, -B'] [A; A']
 *
 * so its rank is twice that of the run. PEFT writes the same (LoraModel.subtract_mutated_init). */
#ifndef TT_CHECKPOINT_PLAIN_ADAPTER_H
#define TT_CHECKPOINT_PLAIN_ADAPTER_H

#include "checkpoint/load.h"

/* Replaces the file `name` of `folder`, which has the adapter as it trains. */
TT_MUST_USE tt_status tt_plain_adapter_write(const char *folder, const char *name,
                                             const struct tt_first_adapter *first);

#endif
