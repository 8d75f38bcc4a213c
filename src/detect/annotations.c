#include "detect/annotations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc64.h"
#include "base/file.h"

enum { LABEL_MAX = 100000 };

void tt_annotations_deinit(struct tt_annotations *notes)
{
    tt_name_index_deinit(&notes->by_name);
    tt_name_index_deinit(&notes->by_key);
    tt_free(notes->images);
    tt_free(notes->boxes);
    tt_free(notes->labels);
    tt_free(notes->classes);
    for (size_t i = 0; i < notes->map_count; i++) tt_file_map_close(&notes->maps[i]);
    tt_free(notes->maps);
    tt_arena_deinit(&notes->arena);
    *notes = (struct tt_annotations){0};
}

tt_status tt_annotations_append_image(struct tt_annotations *notes, const char *name, const char *path,
                                      size_t *image)
{
    TT_TRY(tt_grow(&notes->images, notes->image_count, &notes->image_capacity));
    struct tt_noted_image *added = &notes->images[notes->image_count];
    *added = (struct tt_noted_image){.name = tt_arena_strdup(&notes->arena, name), .id = TT_NOTED_NO_ID};
    if (path != NULL) added->path = tt_arena_strdup(&notes->arena, path);
    if (added->name == NULL || (path != NULL && added->path == NULL)) return TT_ERR_MEMORY;
    *image = notes->image_count++;
    return TT_OK;
}

tt_status tt_annotations_add_image(struct tt_annotations *notes, const char *name, const char *path,
                                   size_t *image)
{
    if (tt_name_index_find(&notes->by_name, name, image)) return TT_OK;
    TT_TRY(tt_annotations_append_image(notes, name, path, image));
    return tt_name_index_add(&notes->by_name, notes->images[*image].name, *image);
}

tt_status tt_annotations_add_box(struct tt_annotations *notes, const struct tt_noted_box *box)
{
    if (box->box.label < 0) {
        notes->images[box->image].lost_box = true;
        return TT_OK;
    }
    TT_TRY(tt_grow(&notes->boxes, notes->box_count, &notes->box_capacity));
    notes->boxes[notes->box_count++] = *box;
    return TT_OK;
}

tt_status tt_annotations_set_class(struct tt_annotations *notes, int64_t label, const char *key,
                                   const char *name, int64_t id)
{
    if (label < 1 || label > LABEL_MAX)
        return tt_fail(TT_ERR_DATA, "class '%s' has the number %lld; 1 to %d are supported", name,
                       (long long)label, LABEL_MAX);
    while (notes->class_count <= (size_t)label) {
        TT_TRY(tt_grow(&notes->classes, notes->class_count, &notes->class_capacity));
        notes->classes[notes->class_count++] = (struct tt_detect_class){0};
    }
    struct tt_detect_class *class = &notes->classes[label];
    *class = (struct tt_detect_class){tt_arena_strdup(&notes->arena, name),
                                      key != NULL ? tt_arena_strdup(&notes->arena, key) : NULL, id};
    return class->name == NULL || (key != NULL && class->key == NULL) ? TT_ERR_MEMORY : TT_OK;
}

tt_status tt_annotations_label(struct tt_annotations *notes, const char *key, int32_t *label)
{
    size_t number;
    if (tt_name_index_find(&notes->by_key, key, &number)) {
        *label = (int32_t)number;
        return TT_OK;
    }
    *label = -1;
    if (notes->classes_fixed) {
        if (notes->report.boxes_unknown++ == 0)
            snprintf(notes->report.first_unknown, sizeof notes->report.first_unknown, "%s", key);
        return TT_OK;
    }
    int64_t next = notes->class_count > 0 ? (int64_t)notes->class_count : 1;
    TT_TRY(tt_annotations_set_class(notes, next, key, key, next));
    *label = (int32_t)next;
    return tt_name_index_add(&notes->by_key, notes->classes[next].key, (size_t)next);
}

bool tt_annotations_in_share(const char *name, double share)
{
    return (double)(tt_crc64(0, name, strlen(name)) >> 11) * 0x1p-53 < share;
}

/* ---- Folders ---- */

struct listing {
    struct tt_annotations *notes;
    const char *folder;
};

static tt_status add_file(void *context, const char *name)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG"};
    struct listing *listing = context;
    struct tt_path path;
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        if (!tt_ends_with(name, endings[i])) continue;
        char *stem = tt_strndup(name, strlen(name) - strlen(endings[i]));
        if (stem == NULL) return TT_ERR_MEMORY;
        size_t image;
        tt_status status = tt_path_set(&path, listing->folder, name);
        if (status == TT_OK) status = tt_annotations_add_image(listing->notes, stem, path.text, &image);
        tt_free(stem);
        return status;
    }
    return TT_OK;
}

tt_status tt_annotations_list_folder(struct tt_annotations *notes, const char *folder)
{
    struct listing listing = {notes, folder};
    return tt_path_is_dir(folder) ? tt_dir_list(folder, add_file, &listing) : TT_OK;
}

static bool is_file(const char *path)
{
    return tt_path_exists(path) && !tt_path_is_dir(path);
}

/* A path that goes up may leave the folder. */
static bool goes_up(const char *name)
{
    while (*name != '\0') {
        size_t part = strcspn(name, "/");
        if (part == 2 && name[0] == '.' && name[1] == '.') return true;
        name += part + (name[part] == '/');
    }
    return false;
}

/* The part of an absolute path that is below the folder, else the path: data sets name their files as they were
 * found. */
static const char *below_folder(const char *dir, const char *name)
{
    if (name[0] != '/') return name;
    struct tt_path whole;
    if (tt_path_real(dir, &whole) != 0) return name; /* then nothing is below it */
    size_t bytes = strlen(whole.text);
    if (strncmp(name, whole.text, bytes) == 0 && name[bytes] == '/')
        name += bytes + strspn(name + bytes, "/");
    return name;
}

tt_status tt_annotations_find_file(const char *image_dir, const char *split, const char *name,
                                   struct tt_path *path, bool *found)
{
    const char *const folders[] = {"", split, "data"};
    struct tt_path folder, below;
    *found = false;
    name = below_folder(image_dir, name);
    if (name[0] == '/' || goes_up(name)) return TT_OK;
    for (size_t i = 0; i < 3 && !*found; i++) {
        TT_TRY(tt_path_set(&folder, image_dir, folders[i]));
        TT_TRY(tt_path_set(path, i == 0 ? image_dir : folder.text, name));
        *found = is_file(path->text);
        if (*found || i != 1) continue;
        TT_TRY(tt_path_set(&below, folder.text, "data"));
        TT_TRY(tt_path_set(path, below.text, name));
        *found = is_file(path->text);
    }
    return TT_OK;
}
