/* Weights that torch.save wrote: `.pth`, `.pt` and `.bin` files, read without executing anything in them
 * (io/pickle.h).
 *
 * Containers: the ZIP archive of torch >= 1.6 (caffe2/serialize/inline_container.h) and the stream of pickles
 * before it (torch/serialization.py, _legacy_save). The tar archive of torch < 0.1.10 is refused.
 *
 * The tensors are those of the dictionary in the file, or of its member `model`, `state_dict`, `model_state_dict`
 * or `module`; a prefix "module." that all names have is dropped (DistributedDataParallel). What else a checkpoint
 * holds is ignored, of whatever class it is. Strides, offsets and sizes are checked against the storages, which
 * tensors may share. */
#ifndef TT_IO_PTH_H
#define TT_IO_PTH_H

#include "io/safetensors.h"

/* Opens such a file as a list of tensors, read like those of a safetensors file; the offset of a tensor that is not
 * stored row by row is that of its first element. */
TT_MUST_USE tt_status tt_pth_open(const char *path, struct tt_safetensors **out);
/* Opens a weights file of either format, by its first bytes. *pickled: it is one of torch.save. */
TT_MUST_USE tt_status tt_weights_open(const char *path, struct tt_safetensors **out, bool *pickled);
/* Whether the name is one of a file of torch.save: .pth, .pt, .bin. */
bool tt_pth_is_name(const char *path);

/* Writes such a file, atomically: a ZIP archive with the reference's members, which torch.load(weights_only=True)
 * reads as an OrderedDict of tensors. Of the entries name, dtype, rank and dims count; their names must be
 * distinct, their types those of torch's storages. `read` gives `count` elements from `first` on of tensor
 * `index`, in its own type, and is called in order. */
TT_MUST_USE tt_status tt_pth_write(const char *path, const struct tt_safetensors_entry *entries, size_t count,
                                   tt_status (*read)(void *context, size_t index, int64_t first,
                                                     int64_t count, void *to),
                                   void *context);

#endif
