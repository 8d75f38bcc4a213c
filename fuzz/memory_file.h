/* An input as a file. */
#ifndef TT_FUZZ_MEMORY_FILE_H
#define TT_FUZZ_MEMORY_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Stores in `path` the name of a file in memory that has the input's bytes until the descriptor that is returned is
 * closed. */
static int fuzz_open_memory_file(const uint8_t *data, size_t size, char path[64])
{
    int descriptor = memfd_create("fuzz", MFD_CLOEXEC);
    if (descriptor < 0 || write(descriptor, data, size) != (ssize_t)size) abort();
    snprintf(path, 64, "/proc/self/fd/%d", descriptor);
    return descriptor;
}

#endif
