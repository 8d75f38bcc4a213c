#include "base/own_folder.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

/* The loader knows of the program only the name of its call, a bare word if a shell found it on PATH. */
bool tt_own_folder(char *folder, size_t bytes)
{
    static const char here = 0;
    Dl_info info;
    struct link_map *map = NULL;
    if (dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL) return false;
    char *real = realpath(map->l_name[0] != '\0' ? map->l_name : "/proc/self/exe", NULL);
    if (real == NULL) return false;
    char *slash = strrchr(real, '/');
    bool fits = slash != NULL && (size_t)(slash - real) < bytes;
    if (fits) {
        memcpy(folder, real, (size_t)(slash - real));
        folder[slash - real] = '\0';
    }
    free(real);
    return fits;
}
