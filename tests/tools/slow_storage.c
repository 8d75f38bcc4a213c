/* Loaded before a program (LD_PRELOAD): the first fsync of a file whose path contains SLOW_FILE takes SLOW_SECONDS. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_flag done = ATOMIC_FLAG_INIT;

int fsync(int file)
{
    char link[64], path[4096] = "";
    const char *slow = getenv("SLOW_FILE"), *seconds = getenv("SLOW_SECONDS");
    int (*next)(int);
    void *symbol = dlsym(RTLD_NEXT, "fsync");
    memcpy(&next, &symbol, sizeof next);
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    if (readlink(link, path, sizeof path - 1) > 0 && slow != NULL && seconds != NULL &&
        strstr(path, slow) != NULL && !atomic_flag_test_and_set(&done))
        sleep((unsigned)atoi(seconds));
    return next(file);
}
