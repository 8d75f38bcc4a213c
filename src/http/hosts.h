/* Which values of the header Host a server answers. A page of the web whose name is made to lead to this machine (DNS
 * rebinding) could read a server through the browser of somebody here; the browser then sends that name as Host. */
#ifndef TT_HTTP_HOSTS_H
#define TT_HTTP_HOSTS_H

#include <stdbool.h>

#include "base/error.h"

struct tt_http_hosts {
    /* Names, separated by commas and blanks: "trimtab.example.com", "*.example.com" (any name that ends so), "*" (all).
     * NULL: none. Lent. */
    const char *allowed;
    bool open; /* every name is answered where `allowed` names none: the server does not listen at loopback */
};

/* `host`: the header's value, with or without a port; NULL: the request has none, so no browser sent it. An address in
 * numbers and "localhost" are always allowed, since no name leads there. */
bool tt_http_host_is_allowed(const struct tt_http_hosts *hosts, const char *host);
/* TT_ERR_USAGE for a list with something else than names, such as an address of the web. */
TT_MUST_USE tt_status tt_http_hosts_check(const char *allowed, const char *setting);

/* `paths`: NULL-terminated, or NULL. */
bool tt_http_path_is_one_of(const char *path, const char *const *paths);

#endif
