/* The halves of an adapter of twice the rank, [A; A'] and [B, B'], each as an adapter: what PEFT writes of one whose
 * base has changed has the trained A and B, and the first ones with the sign of B turned
 * (LoraModel.subtract_mutated_init). */
#ifndef TT_IO_HALVES_H
#define TT_IO_HALVES_H

#include "io/safetensors.h"

enum { TT_HALF_TRAINED, TT_HALF_FIRST };
/* Makes *file one of that half of each lora_A and lora_B, and with the trained ones of all other tensors; it owns the
 * file before. Matrices of an odd rank are TT_ERR_DATA. */
TT_MUST_USE tt_status tt_halves_show(int half, struct tt_safetensors **file);

#endif
