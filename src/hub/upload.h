/* Files of this machine into a repository of the hub: one commit, large files by the LFS batch protocol before it.
 *
 * Sources: https://huggingface.co/docs/hub/api, huggingface_hub (hf_api.py: create_repo; _commit_api.py; lfs.py),
 * https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md. */
#ifndef TT_HUB_UPLOAD_H
#define TT_HUB_UPLOAD_H

#include "hub/hub.h"

struct tt_hub_upload {
    const char *kind;     /* "models" or "datasets" */
    const char *name;     /* "owner/name"; "name": of the owner of the token */
    const char *revision; /* branch; NULL: main */
    const char *folder;   /* or one file */
    /* Files below `folder` by their paths there: those that match one of `include` (0: all) and none of `exclude`,
     * patterns as of struct tt_hub_download. Names that begin with '.' and unfinished files are left out. */
    const char *const *include;
    size_t include_count;
    const char *const *exclude;
    size_t exclude_count;
    const char *below;   /* where the files go in the repository; NULL: its root */
    const char *summary; /* of the commit, one line */
    bool is_private;     /* a repository that is made */
};
/* Makes the repository where there is none, uploads, and stores the address of the commit, owned. TT_ERR_USAGE:
 * offline, or no token. What the hub has already is not sent again, and where it has all of it no commit is made: the
 * address is then that of the branch's newest. */
TT_MUST_USE tt_status tt_hub_upload(struct tt_hub *hub, const struct tt_hub_upload *upload, char **address);

/* The first part of it alone: fails for a name, a token or a right that is wrong, and makes the repository. The folder
 * need not exist. */
TT_MUST_USE tt_status tt_hub_prepare_upload(struct tt_hub *hub, const struct tt_hub_upload *upload);

#endif
