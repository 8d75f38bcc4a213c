#include "store/s3_stage.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/temporary.h"
#include "store/s3_sign.h"

static bool has_ending(const char *part, size_t bytes)
{
    static const char *const endings[] = {".saving", ".merging", ".quantizing", ".consolidating"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t length = strlen(endings[i]);
        if (bytes >= length && memcmp(part + bytes - length, endings[i], length) == 0) return true;
    }
    return false;
}

/* The first such part of the path; NULL: none. */
static const char *find_part(const char *path)
{
    for (const char *at = path; *at != '\0'; at += strspn(at, "/")) {
        size_t bytes = strcspn(at, "/");
        if (has_ending(at, bytes)) return at;
        at += bytes;
    }
    return NULL;
}

bool tt_s3_stage_covers(const char *path)
{
    return find_part(path) != NULL;
}

static tt_status root(struct tt_path *local)
{
    char name[64];
    (void)snprintf(name, sizeof name, "trimtab-unpublished-%lu", (unsigned long)getuid());
    return tt_path_set(local, tt_file_temporary_folder(), name);
}

static tt_status place_of(const char *folder, size_t bytes, struct tt_path *local)
{
    char sum[TT_SHA256_TEXT_BYTES];
    struct tt_path above;
    while (bytes > 0 && folder[bytes - 1] == '/') bytes--;
    tt_sha256_text(folder, bytes, sum);
    sum[32] = '\0';
    TT_TRY(root(&above));
    return tt_path_set(local, above.text, sum);
}

tt_status tt_s3_stage_of(const char *folder, struct tt_path *local)
{
    return place_of(folder, strlen(folder), local);
}

tt_status tt_s3_stage_path(const char *path, bool make, struct tt_path *local)
{
    struct tt_path above, place;
    const char *part = find_part(path);
    if (part == NULL) return tt_fail(TT_ERR_INTERNAL, "'%s' is a published path", path);
    TT_TRY(root(&above));
    TT_TRY(place_of(path, (size_t)(part - path), &place));
    if (make) TT_TRY(tt_dir_create_private(above.text));
    if (make) TT_TRY(tt_dir_create_private(place.text));
    return tt_path_set(local, place.text, part);
}
