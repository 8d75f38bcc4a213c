/* How long the threads of a process waited for a processor, from /proc. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/thread.h"

/* "RAN WAITED SLICES": nanoseconds on a processor, nanoseconds runnable without one (Linux,
 * Documentation/scheduler/sched-stats.rst). */
static bool add_thread(int folder, const char *thread, struct tt_thread_times *sum)
{
    char path[64], text[96];
    if (snprintf(path, sizeof path, "%s/schedstat", thread) >= (int)sizeof path) return false;
    int file = openat(folder, path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false; /* it has ended, or the kernel does not count */
    ssize_t bytes = read(file, text, sizeof text - 1);
    (void)close(file);
    if (bytes <= 0) return false;
    text[bytes] = '\0';
    char *end;
    unsigned long long ran = strtoull(text, &end, 10);
    if (end == text || *end != ' ') return false;
    sum->ran += (int64_t)ran;
    sum->waited += (int64_t)strtoull(end, NULL, 10);
    return true;
}

bool tt_thread_times(const char *tasks, struct tt_thread_times *out)
{
    DIR *folder = opendir(tasks);
    bool any = false;
    *out = (struct tt_thread_times){0};
    if (folder == NULL) return false;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.') any |= add_thread(dirfd(folder), entry->d_name, out);
    (void)closedir(folder);
    return any;
}

bool tt_thread_times_crowded(const struct tt_thread_times *before, const struct tt_thread_times *now)
{
    int64_t ran = now->ran - before->ran, waited = now->waited - before->waited;
    return waited > TT_CROWDED_MIN_NANOSECONDS && waited > ran / 8;
}
