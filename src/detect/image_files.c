#include "detect/image_files.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "detect/pixel_cache.h"
#include "image/image.h"

static const char list_name[] = "image-sizes";
static const char list_head[] = "trimtab image sizes 2";
#define LIST_BYTES_MAX ((size_t)1 << 30)

struct checking {
    struct tt_annotations *notes;
    const struct tt_detect_dataset_config *config;
    struct tt_image_facts *facts;
    struct tt_str list; /* the text of the list, cut into lines */
    struct tt_name_index known;
    struct tt_image_facts *known_facts;
    size_t known_count, known_capacity;
    atomic_size_t next, read_count;
    pthread_mutex_t lock;
    size_t failed, corrupt; /* the first images that failed, and that are skipped; image_count: none */
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
    TT_TRY(tt_grow(&checking->known_facts, checking->known_count, &checking->known_capacity));
    checking->known_facts[checking->known_count] = (struct tt_image_facts){
        numbers[0], numbers[1], (int32_t)numbers[2], (int32_t)numbers[3], false, numbers[4] == 1};
    return tt_name_index_add(&checking->known, at, checking->known_count++);
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

/* A list that cannot be written costs the next run time, and this one nothing. */
static tt_status write_list(const struct checking *checking)
{
    struct tt_str text = {0};
    struct tt_path path;
    tt_status status = TT_OK;
    TT_TRY(tt_path_set(&path, checking->config->cache_dir, list_name));
    TT_GO(tt_str_printf(&text, "%s\n", list_head));
    for (size_t i = 0; i < checking->notes->image_count; i++) {
        const struct tt_image_facts *facts = &checking->facts[i];
        const char *file = checking->notes->images[i].path;
        if (file == NULL || facts->height == 0 || facts->corrupt || strchr(file, '\n') != NULL) continue;
        TT_GO(tt_str_printf(&text, "%lld %lld %d %d %d %s\n", (long long)facts->bytes, (long long)facts->time,
                            facts->height, facts->width, facts->decoded, file));
    }
    /* Images of the other split stay in the list. */
    for (size_t i = 0; i < checking->known.capacity; i++) {
        const struct tt_name_slot *slot = &checking->known.slots[i];
        if (slot->name == NULL || slot->number >= checking->known_count) continue;
        const struct tt_image_facts *facts = &checking->known_facts[slot->number];
        if (!facts->corrupt) /* here: used */
            TT_GO(tt_str_printf(&text, "%lld %lld %d %d %d %s\n", (long long)facts->bytes,
                                (long long)facts->time, facts->height, facts->width, facts->decoded,
                                slot->name));
    }
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
static int orientation_of(const struct tt_detect_record *record)
{
    struct tt_file_map map = {0};
    if (record->data != NULL) return tt_image_orientation(record->data, (size_t)record->file_bytes);
    if (tt_file_map_open(record->path, &map) != TT_OK) return 1;
    int orientation = tt_image_orientation(map.data, (size_t)map.bytes);
    tt_file_map_close(&map);
    return orientation;
}

tt_status tt_image_files_fail_size(const struct tt_detect_record *record, int32_t height, int32_t width,
                                   const char *said)
{
    enum { TURNS = 5 }; /* from this orientation on */
    bool exchanged = height == record->width && width == record->height && height != width;
    int orientation = exchanged ? orientation_of(record) : 1;
    tt_status status =
        orientation >= TURNS
            ? tt_fail(TT_ERR_DATA,
                      "'%s' has %d x %d pixels, %s %d x %d: viewers turn it by its Exif orientation, %d",
                      record->path, width, height, said, record->width, record->height, orientation)
            : tt_fail(TT_ERR_DATA, "'%s' has %d x %d pixels, %s %d x %d", record->path, width, height, said,
                      record->width, record->height);
    if (orientation >= TURNS)
        tt_hint(
            "pixels are read as they are stored: turn them in the file (Pillow's ImageOps.exif_transpose, "
            "jpegtran), or annotate what is stored");
    return status;
}

static tt_status read_image(struct checking *checking, size_t index)
{
    const struct tt_detect_dataset_config *config = checking->config;
    struct tt_image_facts *facts = &checking->facts[index];
    const struct tt_noted_image *noted = &checking->notes->images[index];
    if (config->skip_corrupt) {
        const struct tt_detect_record record = {
            .path = noted->path, .data = noted->data, .file_bytes = facts->bytes, .file_time = facts->time};
        struct tt_image image = {0};
        TT_TRY(tt_pixel_cache_read(config->cache, &record, config->max_pixels, &image));
        facts->height = image.height;
        facts->width = image.width;
        facts->decoded = true;
        tt_image_deinit(&image);
        return TT_OK;
    }
    if (noted->data != NULL)
        return tt_image_decode_size(noted->data, (size_t)noted->data_bytes, noted->path, config->max_pixels,
                                    &facts->height, &facts->width);
    return tt_image_size(noted->path, config->max_pixels, &facts->height, &facts->width);
}

static tt_status find_file_facts(const struct tt_noted_image *noted, struct tt_image_facts *facts)
{
    struct stat file;
    facts->bytes = noted->data_bytes;
    facts->time = noted->data_time;
    if (noted->data != NULL) return TT_OK;
    if (stat(noted->path, &file) != 0) return tt_fail_errno(errno, "cannot read the image '%s'", noted->path);
    facts->bytes = file.st_size;
    facts->time = (int64_t)file.st_mtim.tv_sec * 1000000000 + file.st_mtim.tv_nsec;
    return TT_OK;
}

static tt_status check_image(struct checking *checking, size_t index)
{
    struct tt_image_facts *facts = &checking->facts[index];
    const struct tt_noted_image *noted = &checking->notes->images[index];
    size_t known;
    TT_TRY(find_file_facts(noted, facts));
    bool listed = tt_name_index_find(&checking->known, noted->path, &known);
    const struct tt_image_facts *before = listed ? &checking->known_facts[known] : NULL;
    /* A size that was read from the head says nothing of the rest. */
    bool known_whole = before != NULL && (before->decoded || !checking->config->skip_corrupt);
    if (known_whole && before->bytes == facts->bytes && before->time == facts->time) {
        facts->height = before->height;
        facts->width = before->width;
        facts->decoded = before->decoded;
    } else if (noted->height > 0 && noted->width > 0 && !checking->config->skip_corrupt) {
        facts->height = noted->height; /* the annotations know; the loader compares */
        facts->width = noted->width;
    } else {
        atomic_fetch_add(&checking->read_count, 1);
        TT_TRY(read_image(checking, index));
    }
    bool differs = (noted->height > 0 && noted->height != facts->height) ||
                   (noted->width > 0 && noted->width != facts->width);
    const struct tt_detect_record record = {.path = noted->path,
                                            .data = noted->data,
                                            .file_bytes = facts->bytes,
                                            .height = noted->height,
                                            .width = noted->width};
    return differs ? tt_image_files_fail_size(&record, facts->height, facts->width, "the annotations say")
                   : TT_OK;
}

/* Counts a corrupt image, or keeps the error of the first image that failed. */
static void handle_failure(struct checking *checking, size_t index, tt_status status)
{
    pthread_mutex_lock(&checking->lock);
    if (checking->config->skip_corrupt && (status == TT_ERR_DATA || status == TT_ERR_UNSUPPORTED)) {
        struct tt_detect_report *report = &checking->notes->report;
        checking->facts[index].corrupt = true;
        report->images_corrupt++;
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
    const struct tt_annotations *notes = checking->notes;
    for (;;) {
        size_t index = atomic_fetch_add(&checking->next, 1);
        if (index >= notes->image_count) return TT_OK;
        if (notes->images[index].path == NULL || !notes->images[index].noted) continue;
        tt_status status = check_image(checking, index);
        if (status != TT_OK) handle_failure(checking, index, status);
    }
}

static tt_status run(struct checking *checking)
{
    const struct tt_detect_dataset_config *config = checking->config;
    TT_TRY(read_list(checking));
    int threads = config->threads > 1 ? config->threads : 1;
    TT_TRY(tt_threads_run("image sizes", threads > 64 ? 64 : threads, check_images, checking));
    if (checking->failed < checking->notes->image_count) return tt_error_restore(&checking->error);
    /* Entries that were looked up are written from `facts`. */
    for (size_t i = 0; i < checking->notes->image_count; i++) {
        size_t known;
        const char *path = checking->notes->images[i].path;
        if (path != NULL && checking->facts[i].height > 0 &&
            tt_name_index_find(&checking->known, path, &known))
            checking->known_facts[known].corrupt = true;
    }
    bool changed = atomic_load(&checking->read_count) > 0;
    return config->cache_dir != NULL && changed ? write_list(checking) : TT_OK;
}

tt_status tt_image_files_check(struct tt_annotations *notes, const struct tt_detect_dataset_config *config,
                               struct tt_image_facts **facts)
{
    struct checking checking = {
        .notes = notes, .config = config, .failed = notes->image_count, .corrupt = notes->image_count};
    checking.facts = tt_calloc(notes->image_count + 1, sizeof *checking.facts);
    if (checking.facts == NULL) return TT_ERR_MEMORY;
    pthread_mutex_init(&checking.lock, NULL);
    tt_status status = run(&checking);
    pthread_mutex_destroy(&checking.lock);
    tt_name_index_deinit(&checking.known);
    tt_free(checking.known_facts);
    tt_str_deinit(&checking.list);
    if (status == TT_OK)
        *facts = checking.facts;
    else
        tt_free(checking.facts);
    return status;
}
