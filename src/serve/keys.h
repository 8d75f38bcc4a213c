/* The keys of a server's clients. A file has one a line, alone or behind a name of the client and blanks; empty lines
 * and those that begin with # do not count. Keys are never printed, and comparing them takes the same time whatever
 * they are. */
#ifndef TT_SERVE_KEYS_H
#define TT_SERVE_KEYS_H

#include "base/error.h"

enum { TT_KEY_BYTES_MAX = 255, TT_KEYS_MAX = 4096 };

struct tt_keys;
/* TT_ERR_DATA for a line that is no key, or for a file without one; the message has the line's number, not its text. */
TT_MUST_USE tt_status tt_keys_read(const char *path, struct tt_keys **out);
void tt_keys_destroy(struct tt_keys *keys); /* takes NULL */
/* The number of the client by a header Authorization, "Bearer KEY"; -1: no such key. Keys of the same client's name
 * have the number of its first one. */
int64_t tt_keys_find(const struct tt_keys *keys, const char *authorization);

#endif
