/* Folders of objects as wholes. For this folder alone. */
#ifndef TT_STORE_S3_FOLDER_IMPL_H
#define TT_STORE_S3_FOLDER_IMPL_H

#include <stdbool.h>
#include <stddef.h>

#include "store/s3_client.h"

struct s3_names {
    char **names; /* owned */
    size_t count, capacity;
};

/* Copies the name; `context`: a struct s3_names. */
TT_MUST_USE tt_status s3_add_name(void *context, const char *name);
bool s3_has_name(const struct s3_names *names, const char *name);
void s3_names_deinit(struct s3_names *names);

/* Removes what lies below the path, the manifest first: what is left is no checkpoint. `kept`: other names that stay;
 * NULL: none. */
TT_MUST_USE tt_status s3_remove_tree(struct tt_s3 *s3, const char *path, const struct s3_names *kept);
/* Puts a file of this machine. */
TT_MUST_USE tt_status s3_put_local(struct tt_s3 *s3, const char *local, const char *path);
/* Publishes a folder of this machine, and removes it: an old one in its place loses its manifest, then what the new one
 * lacks; the new manifest comes last. */
TT_MUST_USE tt_status s3_commit(struct tt_s3 *s3, const char *local, const char *final);

#endif
