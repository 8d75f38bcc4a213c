/* A folder in memory, one per process, for readers that take paths: a target writes the input into it as a file and
 * calls the reader. It is removed when the process ends. */
#ifndef TT_FUZZ_FOLDER_H
#define TT_FUZZ_FOLDER_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static char fuzz_folder_path[160];

static void fuzz_folder_remove(void)
{
    (void)!tt_dir_remove(fuzz_folder_path);
}

static const char *fuzz_folder(void)
{
    if (fuzz_folder_path[0] != '\0') return fuzz_folder_path;
    const char *temporary = getenv("TMPDIR");
    if (temporary == NULL) temporary = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(fuzz_folder_path, sizeof fuzz_folder_path, "%s/tt-fuzz-%ld", temporary, (long)getpid());
    if (mkdir(fuzz_folder_path, 0700) != 0) abort();
    atexit(fuzz_folder_remove);
    return fuzz_folder_path;
}

/* The path of a file in the folder, until the next call. */
static const char *fuzz_path(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
    return path;
}

/* Replaces the file's bytes; returns its path. */
static const char *fuzz_write(const char *name, const void *data, size_t bytes)
{
    const char *path = fuzz_path(name);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0 || write(file, data, bytes) != (ssize_t)bytes || close(file) != 0) abort();
    return path;
}

#endif
