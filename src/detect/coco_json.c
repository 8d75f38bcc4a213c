/* Annotations in COCO's JSON, read one image and one box at a time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "detect/annotations.h"

enum { KEY_BYTES = 32 };

/* One file: only the places of its lists are kept, and one element is parsed at a time. */
struct reading {
    struct tt_annotations *notes;
    const char *path, *image_dir, *split;
    enum tt_detect_labels labels;
    double share;
    bool keep_share;
    struct tt_json json;
    int64_t *category_ids; /* sorted */
    size_t category_count;
    struct tt_name_index by_id; /* images by their ids as text */
    int64_t element;            /* for messages */
};

typedef tt_status visitor(struct reading *reading, const struct tt_json *json);

/* The end of an object that is known to be well formed. */
static const char *end_of(const char *at)
{
    int depth = 0;
    bool quoted = false;
    for (;; at++) {
        if (quoted) {
            if (*at == '\\')
                at++;
            else if (*at == '"')
                quoted = false;
            continue;
        }
        if (*at == '"') quoted = true;
        if (*at == '{' || *at == '[') depth++;
        if ((*at == '}' || *at == ']') && --depth == 0) return at + 1;
    }
}

static tt_status visit_one(struct reading *reading, const char *text, size_t bytes, const char *list,
                           visitor *visit)
{
    char origin[400];
    struct tt_json json = {0};
    snprintf(origin, sizeof origin, "%.300s, %s %lld", reading->path, list, (long long)reading->element);
    tt_status status = tt_json_parse(text, bytes, origin, &json);
    if (status == TT_OK) status = visit(reading, &json);
    tt_json_deinit(&json);
    return status;
}

static tt_status each(struct reading *reading, const char *list, visitor *visit)
{
    const struct tt_json_value *value = tt_json_get(reading->json.root, list);
    if (!tt_json_is_list(value)) {
        tt_fail(TT_ERR_DATA, "'%s' has no list '%s'", reading->path, list);
        tt_hint("a file of COCO has the lists images, annotations and categories");
        return TT_ERR_DATA;
    }
    struct tt_json_walk walk = tt_json_walk(value);
    const char *at = walk.at;
    reading->element = 0;
    for (size_t i = 0; i < walk.left; i++) {
        at += strspn(at, " \t\r\n,");
        if (*at != '{')
            return tt_fail(TT_ERR_DATA, "'%s': element %zu of '%s' is no object", reading->path, i, list);
        const char *end = end_of(at);
        TT_TRY(visit_one(reading, at, (size_t)(end - at), list, visit));
        reading->element++;
        at = end;
    }
    return TT_OK;
}

/* ---- Categories ---- */

static tt_status count_category(struct reading *reading, const struct tt_json *json)
{
    int64_t id;
    TT_TRY(tt_json_int(json, json->root, "id", &id));
    size_t capacity = reading->category_count; /* grows by one: there are few */
    int64_t *ids = tt_realloc(reading->category_ids, capacity + 1, sizeof *ids);
    if (ids == NULL) return TT_ERR_MEMORY;
    reading->category_ids = ids;
    ids[reading->category_count++] = id;
    return TT_OK;
}

static int compare_ids(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static tt_status add_category(struct reading *reading, const struct tt_json *json)
{
    int64_t id, label;
    const char *name;
    char key[KEY_BYTES];
    size_t other;
    TT_TRY(tt_json_int(json, json->root, "id", &id));
    TT_TRY(tt_json_string(json, json->root, "name", &name));
    snprintf(key, sizeof key, "%lld", (long long)id);
    if (reading->notes->classes_fixed) return TT_OK; /* those of another data set */
    if (tt_name_index_find(&reading->notes->by_key, key, &other))
        return tt_fail(TT_ERR_DATA, "%s: two categories have the id %lld", json->origin, (long long)id);
    label = id;
    if (reading->labels == TT_DETECT_LABELS_SORTED)
        label = 1 + ((int64_t *)bsearch(&id, reading->category_ids, reading->category_count, sizeof id,
                                        compare_ids) -
                     reading->category_ids);
    TT_TRY(tt_annotations_set_class(reading->notes, label, key, name, id));
    return tt_name_index_add(&reading->notes->by_key, reading->notes->classes[label].key, (size_t)label);
}

static tt_status read_categories(struct reading *reading)
{
    TT_TRY(each(reading, "categories", count_category));
    if (reading->category_count > 0)
        qsort(reading->category_ids, reading->category_count, sizeof *reading->category_ids, compare_ids);
    TT_TRY(each(reading, "categories", add_category));
    reading->notes->classes_fixed = true;
    return TT_OK;
}

/* ---- Images ---- */

static tt_status add_image(struct reading *reading, const struct tt_json *json)
{
    int64_t id, height = 0, width = 0;
    const char *name;
    char key[KEY_BYTES];
    size_t image = reading->notes->image_count, other;
    struct tt_path path;
    bool found;
    TT_TRY(tt_json_int(json, json->root, "id", &id));
    TT_TRY(tt_json_string(json, json->root, "file_name", &name));
    TT_TRY(tt_json_opt_int(json, json->root, "height", &height));
    TT_TRY(tt_json_opt_int(json, json->root, "width", &width));
    if (height < 0 || height > INT32_MAX || width < 0 || width > INT32_MAX)
        return tt_fail(TT_ERR_DATA, "%s: an image of %lld x %lld pixels", json->origin, (long long)width,
                       (long long)height);
    if (reading->share > 0 && tt_annotations_in_share(name, reading->share) != reading->keep_share)
        return TT_OK;
    TT_TRY(tt_annotations_find_file(reading->image_dir, reading->split, name, &path, &found));
    TT_TRY(tt_annotations_add_image(reading->notes, name, found ? path.text : NULL, &image));
    snprintf(key, sizeof key, "%lld", (long long)id);
    if (image + 1 != reading->notes->image_count || tt_name_index_find(&reading->by_id, key, &other))
        return tt_fail(TT_ERR_DATA, "%s: two images have the id %lld or the name '%s'", json->origin,
                       (long long)id, name);
    struct tt_noted_image *noted = &reading->notes->images[image];
    noted->id = id;
    noted->height = (int32_t)height;
    noted->width = (int32_t)width;
    noted->noted = found;
    if (!found && reading->notes->report.images_absent++ == 0)
        snprintf(reading->notes->report.first_absent, sizeof reading->notes->report.first_absent, "%s", name);
    const char *kept = tt_arena_strdup(&reading->notes->arena, key);
    return kept == NULL ? TT_ERR_MEMORY : tt_name_index_add(&reading->by_id, kept, image);
}

/* ---- Boxes ---- */

static tt_status read_box(const struct tt_json *json, struct tt_detect_box *box)
{
    const struct tt_json_value *list;
    double *const places[] = {&box->x, &box->y, &box->w, &box->h};
    TT_TRY(tt_json_array(json, json->root, "bbox", &list));
    for (size_t i = 0; i < 4; i++) {
        const struct tt_json_value *value = tt_json_at(list, i);
        *places[i] = tt_json_number(value);
        if (tt_json_count(list) != 4 || !tt_json_is_number(value) || !isfinite(*places[i]))
            return tt_fail(TT_ERR_DATA, "%s: 'bbox' must be four numbers: x, y, width, height", json->origin);
    }
    box->area = box->w * box->h;
    return tt_json_opt_double(json, json->root, "area", &box->area);
}

static tt_status add_box(struct reading *reading, const struct tt_json *json)
{
    int64_t image_id, category_id, crowd = 0;
    char key[KEY_BYTES];
    struct tt_noted_box noted = {.fractions = false};
    const struct tt_json_value *flag = tt_json_get(json->root, "iscrowd");
    TT_TRY(tt_json_int(json, json->root, "image_id", &image_id));
    TT_TRY(tt_json_int(json, json->root, "category_id", &category_id));
    snprintf(key, sizeof key, "%lld", (long long)image_id);
    if (!tt_name_index_find(&reading->by_id, key, &noted.image)) {
        if (reading->share > 0) return TT_OK; /* of the other part */
        return tt_fail(TT_ERR_DATA, "%s is of image %lld, which the file does not list", json->origin,
                       (long long)image_id);
    }
    if (reading->notes->images[noted.image].path == NULL) {
        reading->notes->report.rows_absent++;
        return TT_OK;
    }
    TT_TRY(read_box(json, &noted.box));
    TT_TRY(tt_json_opt_int(json, json->root, "id", &noted.box.id));
    if (!tt_json_is_bool(flag)) TT_TRY(tt_json_opt_int(json, json->root, "iscrowd", &crowd));
    noted.box.crowd = crowd == 1 || tt_json_is_true(flag);
    snprintf(key, sizeof key, "%lld", (long long)category_id);
    TT_TRY(tt_annotations_label(reading->notes, key, &noted.box.label));
    return tt_annotations_add_box(reading->notes, &noted);
}

static tt_status read_lists(struct reading *reading, const struct tt_file_map *map)
{
    static const struct tt_span lists[] = {{"images", 6}, {"annotations", 11}, {"categories", 10}};
    const struct tt_json_source source = {.text = (const char *)map->data,
                                          .bytes = (size_t)map->bytes,
                                          .origin = reading->path,
                                          .outline = true,
                                          .members = lists,
                                          .member_count = 3};
    TT_TRY(tt_json_parse_source(&source, &reading->json));
    TT_TRY(read_categories(reading));
    TT_TRY(each(reading, "images", add_image));
    return each(reading, "annotations", add_box);
}

tt_status tt_coco_read(struct tt_annotations *notes, const char *path, const char *image_dir,
                       const char *split, enum tt_detect_labels labels, double share, bool keep_share)
{
    struct tt_file_map map = {0};
    struct reading reading = {.notes = notes,
                              .path = path,
                              .image_dir = image_dir,
                              .split = split,
                              .labels = labels,
                              .share = share,
                              .keep_share = keep_share};
    TT_TRY(tt_file_map_open(path, &map));
    tt_status status = map.bytes < UINT32_MAX
                           ? read_lists(&reading, &map)
                           : tt_fail(TT_ERR_UNSUPPORTED, "'%s' is larger than 4 GiB", path);
    tt_json_deinit(&reading.json);
    tt_name_index_deinit(&reading.by_id);
    tt_free(reading.category_ids);
    tt_file_map_close(&map);
    return status;
}
