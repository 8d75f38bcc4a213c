#include "vision/image_files.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/name_index.h"
#include "base/thread.h"
#include "image/image.h"
#include "vision/pixel_cache.h"

static const char list_name[] = "image-sizes";
static const char list_head[] = "trimtab image sizes 2";
#define LIST_BYTES_MAX ((size_t)1 << 30)

/* A line of the list. */
struct known {
    int64_t bytes, time;
    int32_t height, width;
    bool decoded;
    bool used; /* its image is written by what the check has found */
};

struct checking {
    const struct tt_image_files_config *config;
    struct tt_checked_image *images;
    size_t count;
    struct tt_image_files_report *report;
    struct tt_str list; /* the text of the list, cut into lines */
    struct tt_name_index names;
    struct known *known;
    size_t known_count, known_capacity;
    atomic_size_t next, read_count;
    pthread_mutex_t lock;
    size_t failed, corrupt; /* the first images that failed, and that are skipped; `count`: none */
    struct tt_error error;
};

/* ---- The list ---- */

/* "BYTES TIME HEIGHT WIDTH DECODED PATH", DECODED 1: all of the image was decoded, 0: its head was read; lines of
 * another form are passed over. */
static tt_status add_line(struct checking *checking, char *line)
{
    long long numbers[5];
    char *at = line;
    for (int i = 0; i < 5; i++) {
        char *end;
        errno = 0;
        numbers[i] = strtoll(at, &end, 10);
        if (end == at || *end != ' ' || errno != 0 || numbers[i] < 0) return TT_OK;
        at = end + 1;
    }
    if (numbers[2] < 1 || numbers[2] > INT32_MAX || numbers[3] < 1 || numbers[3] > INT32_MAX) return TT_OK;
    TT_TRY(tt_grow(&checking->known, checking->known_count, &checking->known_capacity));
    checking->known[checking->known_count] = (struct known){.bytes = numbers[0],
                                                            .time = numbers[1],
                                                            .height = (int32_t)numbers[2],
                                                            .width = (int32_t)numbers[3],
                                                            .decoded = numbers[4] == 1};
    return tt_name_index_add(&checking->names, at, checking->known_count++);
}

static tt_status read_list(struct checking *checking)
{
    struct tt_path path;
    if (checking->config->cache_dir == NULL) return TT_OK;
    TT_TRY(tt_path_set(&path, checking->config->cache_dir, list_name));
    if (!tt_path_exists(path.text)) return TT_OK;
    if (tt_file_read(path.text, LIST_BYTES_MAX, &checking->list) != TT_OK) {
        tt_warn("the list of image sizes '%s' cannot be read: %s", path.text, tt_error_last()->message);
        tt_error_clear();
        return TT_OK;
    }
    char *save = NULL, *line = strtok_r(checking->list.data, "\n", &save);
    if (line == NULL || strcmp(line, list_head) != 0) return TT_OK;
    while ((line = strtok_r(NULL, "\n", &save)) != NULL) TT_TRY(add_line(checking, line));
    return TT_OK;
}

static tt_status print_line(struct tt_str *text, const struct known *line, const char *path)
{
    return tt_str_printf(text, "%lld %lld %d %d %d %s\n", (long long)line->bytes, (long long)line->time,
                         line->height, line->width, line->decoded, path);
}

static tt_status print_list(const struct checking *checking, struct tt_str *text)
{
    TT_TRY(tt_str_printf(text, "%s\n", list_head));
    for (size_t i = 0; i < checking->count; i++) {
        const struct tt_checked_image *checked = &checking->images[i];
        const struct tt_image_file *file = &checked->file;
        const struct known line = {.bytes = file->bytes,
                                   .time = file->time,
                                   .height = file->height,
                                   .width = file->width,
                                   .decoded = checked->decoded};
        if (file->path == NULL || file->height == 0 || checked->corrupt) continue;
        if (strchr(file->path, '\n') != NULL) continue;
        TT_TRY(print_line(text, &line, file->path));
    }
    /* Images of the other split stay in the list. */
    for (size_t i = 0; i < checking->names.capacity; i++) {
        const struct tt_name_slot *slot = &checking->names.slots[i];
        if (slot->name == NULL || slot->number >= checking->known_count) continue;
        if (!checking->known[slot->number].used)
            TT_TRY(print_line(text, &checking->known[slot->number], slot->name));
    }
    return TT_OK;
}

/* A list that cannot be written costs the next run time, and this one nothing. */
static tt_status write_list(const struct checking *checking)
{
    struct tt_str text = {0};
    struct tt_path path;
    tt_status status = TT_OK;
    TT_TRY(tt_path_set(&path, checking->config->cache_dir, list_name));
    TT_GO(print_list(checking, &text));
    if (tt_dir_create(checking->config->cache_dir) != TT_OK ||
        tt_file_write_atomic(path.text, text.data, text.bytes) != TT_OK) {
        tt_warn("the list of image sizes is not kept: %s", tt_error_last()->message);
        tt_error_clear();
    }
out:
    tt_str_deinit(&text);
    return status;
}

/* ---- One image ---- */

/* Orientation of the file; 1: none, or it cannot be read. */
static int orientation_of(const struct tt_image_file *file)
{
    struct tt_file_map map = {0};
    if (file->data != NULL) return tt_image_orientation(file->data, (size_t)file->bytes);
    if (tt_file_map_open(file->path, &map) != TT_OK) return 1;
    int orientation = tt_image_orientation(map.data, (size_t)map.bytes);
    tt_file_map_close(&map);
    return orientation;
}

tt_status tt_image_files_fail_size(const struct tt_image_file *file, int32_t height, int32_t width,
                                   const char *said)
{
    enum { TURNS = 5 }; /* from this orientation on */
    bool exchanged = height == file->width && width == file->height && height != width;
    int orientation = exchanged ? orientation_of(file) : 1;
    tt_status status =
        orientation >= TURNS
            ? tt_fail(TT_ERR_DATA,
                      "'%s' has %d x %d pixels, %s %d x %d: viewers turn it by its Exif orientation, %d",
                      file->path, width, height, said, file->width, file->height, orientation)
            : tt_fail(TT_ERR_DATA, "'%s' has %d x %d pixels, %s %d x %d", file->path, width, height, said,
                      file->width, file->height);
    if (orientation >= TURNS)
        tt_hint(
            "pixels are read as they are stored: turn them in the file (Pillow's ImageOps.exif_transpose, "
            "jpegtran), or annotate what is stored");
    return status;
}

static tt_status read_image(const struct tt_image_files_config *config, struct tt_checked_image *checked)
{
    struct tt_image_file *file = &checked->file;
    if (config->skip_corrupt) {
        struct tt_image image = {0};
        TT_TRY(tt_pixel_cache_read(config->cache, file, config->max_pixels, &image));
        file->height = image.height;
        file->width = image.width;
        checked->decoded = true;
        tt_image_deinit(&image);
        return TT_OK;
    }
    if (file->data != NULL)
        return tt_image_decode_size(file->data, (size_t)file->bytes, file->path, config->max_pixels,
                                    &file->height, &file->width);
    return tt_image_size(file->path, config->max_pixels, &file->height, &file->width);
}

static tt_status find_file(struct tt_image_file *file)
{
    struct tt_file_facts found;
    if (file->data != NULL) return TT_OK;
    int failed = tt_file_facts(file->path, &found);
    if (failed != 0) return tt_fail_errno(failed, "cannot read the image '%s'", file->path);
    file->bytes = (int64_t)found.bytes;
    file->time = found.changed;
    return TT_OK;
}

static const struct known *find_known(const struct checking *checking, const struct tt_image_file *file)
{
    size_t index;
    if (!tt_name_index_find(&checking->names, file->path, &index)) return NULL;
    const struct known *known = &checking->known[index];
    /* A size that was read from the head says nothing of the rest. */
    bool whole = known->decoded || !checking->config->skip_corrupt;
    return whole && known->bytes == file->bytes && known->time == file->time ? known : NULL;
}

static tt_status check_image(struct checking *checking, struct tt_checked_image *checked)
{
    struct tt_image_file *file = &checked->file, noted = *file;
    file->height = file->width = 0;
    TT_TRY(find_file(file));
    const struct known *known = find_known(checking, file);
    if (known != NULL) {
        file->height = known->height;
        file->width = known->width;
        checked->decoded = known->decoded;
    } else if (noted.height > 0 && noted.width > 0 && !checking->config->skip_corrupt) {
        file->height = noted.height; /* the annotations know; the loader compares */
        file->width = noted.width;
    } else {
        atomic_fetch_add(&checking->read_count, 1);
        TT_TRY(read_image(checking->config, checked));
    }
    bool differs =
        (noted.height > 0 && noted.height != file->height) || (noted.width > 0 && noted.width != file->width);
    noted.bytes = file->bytes;
    return differs ? tt_image_files_fail_size(&noted, file->height, file->width, "the annotations say")
                   : TT_OK;
}

/* Counts a corrupt image, or keeps the error of the first image that failed. */
static void handle_failure(struct checking *checking, size_t index, tt_status status)
{
    pthread_mutex_lock(&checking->lock);
    if (checking->config->skip_corrupt && (status == TT_ERR_DATA || status == TT_ERR_UNSUPPORTED)) {
        struct tt_image_files_report *report = checking->report;
        checking->images[index].corrupt = true;
        report->corrupt++;
        if (index < checking->corrupt) {
            checking->corrupt = index;
            snprintf(report->first_corrupt, sizeof report->first_corrupt, "%.399s", tt_error_last()->message);
        }
    } else if (index < checking->failed) {
        checking->failed = index;
        tt_error_copy(&checking->error);
    }
    pthread_mutex_unlock(&checking->lock);
}

static tt_status check_images(void *argument)
{
    struct checking *checking = argument;
    for (;;) {
        size_t index = atomic_fetch_add(&checking->next, 1);
        if (index >= checking->count) return TT_OK;
        if (checking->images[index].file.path == NULL) continue;
        tt_status status = check_image(checking, &checking->images[index]);
        if (status != TT_OK) handle_failure(checking, index, status);
    }
}

static tt_status run(struct checking *checking)
{
    const struct tt_image_files_config *config = checking->config;
    TT_TRY(read_list(checking));
    int threads = config->threads > 1 ? config->threads : 1;
    TT_TRY(tt_threads_run("image sizes", threads > 64 ? 64 : threads, check_images, checking));
    if (checking->failed < checking->count) return tt_error_restore(&checking->error);
    for (size_t i = 0; i < checking->count; i++) {
        size_t known;
        const struct tt_image_file *file = &checking->images[i].file;
        if (file->path != NULL && file->height > 0 &&
            tt_name_index_find(&checking->names, file->path, &known))
            checking->known[known].used = true;
    }
    bool changed = atomic_load(&checking->read_count) > 0;
    return config->cache_dir != NULL && changed ? write_list(checking) : TT_OK;
}

tt_status tt_image_files_check(const struct tt_image_files_config *config, struct tt_checked_image *images,
                               size_t count, struct tt_image_files_report *report)
{
    struct checking checking = {.config = config,
                                .images = images,
                                .count = count,
                                .report = report,
                                .failed = count,
                                .corrupt = count};
    *report = (struct tt_image_files_report){0};
    pthread_mutex_init(&checking.lock, NULL);
    tt_status status = run(&checking);
    pthread_mutex_destroy(&checking.lock);
    tt_name_index_deinit(&checking.names);
    tt_free(checking.known);
    tt_str_deinit(&checking.list);
    return status;
}
