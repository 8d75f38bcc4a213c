#include "vision/pixel_cache.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc64.h"
#include "base/file.h"
#include "base/log.h"

/* Head of a file: everything that must be right before its pixels are used. */
struct head {
    char magic[8];
    int32_t height, width;
    int64_t file_bytes, file_time;
    uint64_t path_sum, pixel_sum;
};
static const char magic[8] = "ttpixel1";
static const char ending[] = ".rgb";

struct tt_pixel_cache {
    char *folder;
    int64_t bytes_max;
    atomic_llong bytes, hits, misses, serial;
    atomic_bool closed; /* to new files, after a failure */
};

static tt_status add_size(void *context, const char *name)
{
    struct tt_pixel_cache *cache = context;
    struct tt_path path;
    int descriptor;
    uint64_t bytes;
    TT_TRY(tt_path_set(&path, cache->folder, name));
    /* Unfinished files of a killed run. */
    if (!tt_ends_with(name, ending)) {
        if (strstr(name, ".rgb.") != NULL) (void)tt_file_remove(path.text);
        return TT_OK;
    }
    TT_TRY(tt_file_open_read(path.text, &descriptor, &bytes));
    tt_file_close(descriptor);
    atomic_fetch_add(&cache->bytes, (long long)bytes);
    return TT_OK;
}

tt_status tt_pixel_cache_open(const char *folder, uint64_t bytes, struct tt_pixel_cache **out)
{
    struct tt_pixel_cache *cache = tt_calloc(1, sizeof *cache);
    if (cache == NULL) return TT_ERR_MEMORY;
    tt_status status = TT_OK;
    cache->bytes_max = bytes < INT64_MAX ? (int64_t)bytes : INT64_MAX;
    cache->folder = tt_path_join(folder, "pixels");
    if (cache->folder == NULL) TT_GO(TT_ERR_MEMORY);
    TT_GO(tt_dir_create(cache->folder));
    TT_GO(tt_dir_list(cache->folder, add_size, cache));
    *out = cache;
    return TT_OK;
out:
    tt_pixel_cache_close(cache);
    return status;
}

void tt_pixel_cache_close(struct tt_pixel_cache *cache)
{
    if (cache == NULL) return;
    tt_free(cache->folder);
    tt_free(cache);
}

struct tt_pixel_cache_counts tt_pixel_cache_counts(const struct tt_pixel_cache *cache)
{
    return (struct tt_pixel_cache_counts){atomic_load(&cache->hits), atomic_load(&cache->misses),
                                          atomic_load(&cache->bytes)};
}

static tt_status name_file(const struct tt_pixel_cache *cache, const struct tt_image_file *file,
                           struct tt_path *path, struct head *head)
{
    char name[40];
    *head = (struct head){.file_bytes = file->bytes, .file_time = file->time};
    memcpy(head->magic, magic, sizeof magic);
    head->path_sum = tt_crc64(0, file->path, strlen(file->path));
    uint64_t key = tt_crc64(head->path_sum, &head->file_bytes, sizeof head->file_bytes);
    key = tt_crc64(key, &head->file_time, sizeof head->file_time);
    snprintf(name, sizeof name, "%016llx%s", (unsigned long long)key, ending);
    return tt_path_set(path, cache->folder, name);
}

/* The pixels of a file; anything but TT_OK: they must be decoded. */
static tt_status read_file(const char *path, const struct head *wanted, int64_t max_pixels,
                           struct tt_image *image)
{
    int descriptor = -1;
    uint64_t bytes, pixel_bytes;
    struct head head;
    struct tt_image found = {0};
    tt_status status = TT_OK;
    TT_TRY(tt_file_open_read(path, &descriptor, &bytes));
    TT_GO(bytes >= sizeof head ? tt_file_pread(descriptor, path, &head, sizeof head, 0) : TT_ERR_DATA);
    int64_t pixels = (int64_t)head.height * head.width;
    bool good = memcmp(head.magic, magic, sizeof magic) == 0 && head.path_sum == wanted->path_sum &&
                head.file_bytes == wanted->file_bytes && head.file_time == wanted->file_time &&
                head.height > 0 && head.width > 0 &&
                pixels <= (max_pixels > 0 ? max_pixels : TT_IMAGE_PIXELS_MAX);
    pixel_bytes = good ? (uint64_t)pixels * 3 : 0;
    TT_GO(good && bytes == sizeof head + pixel_bytes ? TT_OK : TT_ERR_DATA);
    TT_GO(tt_image_create(head.height, head.width, &found));
    TT_GO(tt_file_pread(descriptor, path, found.rgb, (size_t)pixel_bytes, sizeof head));
    TT_GO(tt_crc64(0, found.rgb, (size_t)pixel_bytes) == head.pixel_sum ? TT_OK : TT_ERR_DATA);
    *image = found;
    found = (struct tt_image){0};
out:
    tt_image_deinit(&found);
    tt_file_close(descriptor);
    return status;
}

static tt_status write_file(struct tt_pixel_cache *cache, const char *path, struct head *head,
                            const struct tt_image *image)
{
    int descriptor = -1;
    char unfinished[TT_PATH_BYTES + 64];
    size_t bytes = (size_t)image->height * (size_t)image->width * 3;
    head->height = image->height;
    head->width = image->width;
    head->pixel_sum = tt_crc64(0, image->rgb, bytes);
    snprintf(unfinished, sizeof unfinished, "%s.%ld-%lld", path, (long)getpid(),
             (long long)atomic_fetch_add(&cache->serial, 1));
    tt_status status = tt_file_create(unfinished, 0, &descriptor);
    if (status != TT_OK) return status;
    /* Not synced: a file that a power failure cuts is found by its sum. */
    status = tt_file_pwrite(descriptor, unfinished, head, sizeof *head, 0);
    if (status == TT_OK) status = tt_file_pwrite(descriptor, unfinished, image->rgb, bytes, sizeof *head);
    tt_file_close(descriptor);
    if (status == TT_OK) status = tt_file_rename(unfinished, path);
    if (status != TT_OK) (void)tt_file_remove(unfinished);
    return status;
}

static void add_file(struct tt_pixel_cache *cache, const char *path, struct head *head,
                     const struct tt_image *image)
{
    long long bytes = (long long)sizeof *head + (long long)image->height * image->width * 3;
    if (atomic_load(&cache->closed)) return;
    /* Reserved before it is written, so that threads together do not exceed the bound. */
    if (atomic_fetch_add(&cache->bytes, bytes) + bytes > cache->bytes_max) {
        atomic_fetch_sub(&cache->bytes, bytes);
        return;
    }
    if (write_file(cache, path, head, image) == TT_OK) return;
    atomic_fetch_sub(&cache->bytes, bytes);
    if (!atomic_exchange(&cache->closed, true))
        tt_warn("decoded images are no longer kept: %s", tt_error_last()->message);
    tt_error_clear();
}

static tt_status decode(const struct tt_image_file *file, int64_t max_pixels, struct tt_image *image)
{
    if (file->data == NULL) return tt_image_read(file->path, max_pixels, image);
    return tt_image_decode(file->data, (size_t)file->bytes, file->path, max_pixels, image);
}

tt_status tt_pixel_cache_read(struct tt_pixel_cache *cache, const struct tt_image_file *file,
                              int64_t max_pixels, struct tt_image *image)
{
    struct tt_path path;
    struct head head;
    if (cache == NULL) return decode(file, max_pixels, image);
    TT_TRY(name_file(cache, file, &path, &head));
    if (tt_path_exists(path.text)) {
        tt_status status = read_file(path.text, &head, max_pixels, image);
        if (status == TT_OK) atomic_fetch_add(&cache->hits, 1);
        if (status == TT_OK || status == TT_ERR_MEMORY) return status;
        tt_error_clear();
    }
    atomic_fetch_add(&cache->misses, 1);
    TT_TRY(decode(file, max_pixels, image));
    add_file(cache, path.text, &head, image);
    return TT_OK;
}
