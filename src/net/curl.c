#include "net/curl.h"

#include <dlfcn.h>
#include <string.h>

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
#define CALL(name)                                                                                           \
    {                                                                                                        \
        "curl_" #name, offsetof(struct curl, name)                                                           \
    }
    CALL(global_init),  CALL(easy_init),     CALL(easy_setopt),  CALL(easy_perform),   CALL(easy_reset),
    CALL(easy_cleanup), CALL(easy_strerror), CALL(slist_append), CALL(slist_free_all), CALL(url),
    CALL(url_set),      CALL(url_get),       CALL(url_cleanup),  CALL(free),
#undef CALL
};

/* Debian's two flavours, over OpenSSL and over GnuTLS. */
static const char *const libraries[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

enum { GLOBAL_ALL = 3 };

tt_status curl_open(const char *what, struct curl *curl)
{
    struct curl found = {0};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && found.library == NULL; i++)
        found.library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
    if (found.library == NULL) {
        const char *why = dlerror();
        tt_fail(TT_ERR_UNSUPPORTED, "%s needs libcurl, which this machine does not have: %s", what,
                why != NULL ? why : libraries[0]);
        tt_hint("install libcurl (Debian's package libcurl4, with ca-certificates), use the image with -net "
                "in its "
                "name, or give local paths");
        return TT_ERR_UNSUPPORTED;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(found.library, symbols[i].name);
        if (symbol == NULL) {
            tt_fail(TT_ERR_UNSUPPORTED, "%s needs a later libcurl: this one has no %s", what,
                    symbols[i].name);
            tt_hint("install libcurl 7.66 or later (Debian's package libcurl4)");
            return TT_ERR_UNSUPPORTED;
        }
        memcpy((char *)&found + symbols[i].offset, &symbol, sizeof symbol);
    }
    if (found.global_init(GLOBAL_ALL) != CURL_OK)
        return tt_fail(TT_ERR_UNSUPPORTED, "%s needs libcurl, which cannot be initialized", what);
    *curl = found;
    return TT_OK;
}
