/* Reads the tensors of a weights file and writes them as torch.save does: rewrite_pth FROM TO. For
 * tests/golden/pth/check_pth.py. */
#include <stdio.h>

#include "io/pth.h"

static tt_status read_one(void *context, size_t index, int64_t first, int64_t count, void *to)
{
    const struct tt_safetensors *file = context;
    const struct tt_safetensors_entry *entry = tt_safetensors_entry(file, index);
    return tt_safetensors_read(file, entry, first, count, to, entry->dtype);
}

int main(int argc, char **argv)
{
    struct tt_safetensors *file = NULL;
    bool pickled;
    if (argc != 3) return 2;
    tt_status status = tt_weights_open(argv[1], &file, &pickled);
    if (status == TT_OK)
        status =
            tt_pth_write(argv[2], tt_safetensors_entry(file, 0), tt_safetensors_count(file), read_one, file);
    if (status != TT_OK) fprintf(stderr, "%s\n", tt_error_last()->message);
    tt_safetensors_close(file);
    return status != TT_OK;
}
