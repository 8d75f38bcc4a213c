/* The types of a safetensors header (safetensors/src/tensor.rs, `Dtype`), in the reference library's order: its writer
 * sorts tensors by this order, last first. */
#ifndef TT_IO_SAFETENSORS_TYPES_H
#define TT_IO_SAFETENSORS_TYPES_H

struct tt_safetensors_type {
    char name[16];
    unsigned bits;
    int order;
};

const struct tt_safetensors_type *tt_safetensors_type_find(const char *name); /* or NULL */

#endif
