/* Images with boxes in Parquet and Arrow files, as datasets writes them. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cgroup.h"
#include "base/json.h"
#include "base/number.h"
#include "base/temporary.h"
#include "data/arrow/arrow.h"
#include "detect/annotations.h"

enum { NAMES_DEPTH = 8, ROW_BYTES_MAX = 64 << 20, PAGE_BYTES_MAX = 1 << 30 };

static const char *const category_names[] = {"category", "category_id", "categories", "label", "labels"};
enum { CATEGORY_NAMES = sizeof category_names / sizeof *category_names };

/* A binary value: where it lies in the map, or in the spool. */
struct kept {
    const uint8_t *data; /* NULL: in the spool */
    uint64_t at, bytes;
};

struct reading {
    struct tt_annotations *notes;
    const struct tt_tables_config *config;
    bool named, sorts; /* classes: by the names of this file; put in order at the end */
    int32_t *labels;   /* [label_count] of the names of this file; -1: unknown */
    size_t label_count;
    /* The file that is read. */
    const char *path;
    struct tt_file_map file;
    int64_t time;
    uint64_t row;
    struct kept *kept;
    size_t kept_count, kept_capacity;
    int spool;              /* values that are not in a map as they are; -1: none yet */
    uint64_t spooled, room; /* bytes of the spool; what it may have, 0: not asked yet */
    size_t first_image;     /* of these tables */
    struct tt_name_index ids;
    bool ids_good; /* every image has an id of its own */
};

/* ---- Classes ---- */

/* The list of a ClassLabel's names below a description of a column's type. */
static const struct tt_json_value *find_names(const struct tt_json_value *type, int depth)
{
    const struct tt_json_value *names = tt_json_get(type, "names"), *below = tt_json_get(type, "feature");
    if (tt_json_is_list(names)) return names;
    if (below == NULL && tt_json_is_list(type)) below = tt_json_at(type, 0); /* [type]: a list of it */
    return below != NULL && depth > 0 ? find_names(below, depth - 1) : NULL;
}

/* The category in {"info": {"features": {"objects": ...}}}: a struct of lists, a list of structs, or datasets'
 * Sequence. */
static const struct tt_json_value *find_category(const struct tt_json_value *root)
{
    const struct tt_json_value *type =
        tt_json_get(tt_json_get(tt_json_get(root, "info"), "features"), "objects");
    for (int depth = 0; type != NULL && depth < NAMES_DEPTH; depth++) {
        for (int i = 0; i < CATEGORY_NAMES; i++) {
            const struct tt_json_value *member = tt_json_get(type, category_names[i]);
            if (member != NULL) return find_names(member, NAMES_DEPTH);
        }
        type = tt_json_is_list(type) ? tt_json_at(type, 0) : tt_json_get(type, "feature");
    }
    return NULL;
}

/* Classes of a list that is there may be meant by their names too. */
static int32_t find_known(const struct tt_annotations *notes, const struct tt_name_index *by_display,
                          const char *name)
{
    size_t label;
    bool found =
        tt_name_index_find(&notes->by_key, name, &label) || tt_name_index_find(by_display, name, &label);
    return found ? (int32_t)label : -1;
}

static tt_status add_class(struct reading *reading, const char *name, size_t index)
{
    struct tt_annotations *notes = reading->notes;
    size_t other;
    if (tt_name_index_find(&notes->by_key, name, &other))
        return tt_fail(TT_ERR_DATA, "'%s': two classes have the name '%.100s'", reading->path, name);
    TT_TRY(tt_annotations_set_class(notes, (int64_t)index + 1, name, name, (int64_t)index));
    reading->labels[index] = (int32_t)index + 1;
    return tt_name_index_add(&notes->by_key, notes->classes[index + 1].key, index + 1);
}

static tt_status use_names(struct reading *reading, const struct tt_json_value *names,
                           const struct tt_name_index *by_display)
{
    struct tt_annotations *notes = reading->notes;
    for (size_t i = 0; i < reading->label_count; i++) {
        const struct tt_json_value *name = tt_json_at(names, i);
        if (!tt_json_is_string(name) || tt_json_text(name)[0] == '\0')
            return tt_fail(TT_ERR_DATA, "'%s': the name of class %zu is no text", reading->path, i);
        if (notes->classes_fixed)
            reading->labels[i] = find_known(notes, by_display, tt_json_text(name));
        else
            TT_TRY(add_class(reading, tt_json_text(name), i));
    }
    notes->classes_fixed = true;
    return TT_OK;
}

/* Classes of the first file that names them, or of a list before it; later files' names are looked up. */
static tt_status read_names(struct reading *reading, const struct tt_json_value *names)
{
    struct tt_annotations *notes = reading->notes;
    struct tt_name_index by_display = {0};
    tt_status status = TT_OK;
    reading->named = names != NULL && tt_json_count(names) > 0;
    if (!reading->named) return TT_OK;
    if (!notes->classes_fixed && notes->class_count > 0)
        return tt_fail(TT_ERR_DATA, "'%s' names its classes, and a file before it does not", reading->path);
    tt_free(reading->labels);
    reading->label_count = tt_json_count(names);
    reading->labels = tt_calloc(reading->label_count, sizeof *reading->labels);
    if (reading->labels == NULL) return TT_ERR_MEMORY;
    for (size_t label = 1; label < notes->class_count; label++)
        if (notes->classes[label].name != NULL)
            TT_GO(tt_name_index_add(&by_display, notes->classes[label].name, label));
    status = use_names(reading, names, &by_display);
out:
    tt_name_index_deinit(&by_display);
    return status;
}

static tt_status read_metadata(struct reading *reading, bool arrow)
{
    struct tt_span note;
    struct tt_json json = {0};
    TT_TRY(arrow ? tt_arrow_note(reading->path, &reading->file, "huggingface", &note)
                 : tt_parquet_note(reading->path, &reading->file, "huggingface", &note));
    reading->named = false;
    if (note.data == NULL) return TT_OK;
    tt_status status = tt_json_parse(note.data, note.bytes, "the metadata of datasets", &json);
    if (status == TT_OK) status = read_names(reading, find_category(json.root));
    if (status != TT_OK) tt_while("reading the classes of '%s'", reading->path);
    tt_json_deinit(&json);
    return status;
}

/* *label -1: left out, and counted. */
static tt_status read_label(struct reading *reading, const struct tt_json *json,
                            const struct tt_json_value *value, int32_t *label)
{
    struct tt_annotations *notes = reading->notes;
    char key[32];
    if (tt_json_is_string(value)) return tt_annotations_label(notes, tt_json_text(value), label);
    if (!tt_json_is_integer(value))
        return tt_fail(TT_ERR_DATA, "%s: a category is neither a whole number nor a text", json->origin);
    int64_t id = tt_json_integer(value);
    tt_snprintf(key, sizeof key, "%lld", (long long)id);
    if (!reading->named) return tt_annotations_label(notes, key, label);
    *label = id >= 0 && (uint64_t)id < reading->label_count ? reading->labels[id] : -1;
    if (*label < 0 && notes->report.boxes_unknown++ == 0)
        tt_snprintf(notes->report.first_unknown, sizeof notes->report.first_unknown, "%s", key);
    return TT_OK;
}

static bool read_whole(const char *text, int64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0';
}

/* Numbers by their values before texts by their bytes. */
static int compare_classes(const void *a, const void *b)
{
    const struct tt_detect_class *x = a, *y = b;
    int64_t i, j;
    bool whole = read_whole(x->key, &i), other = read_whole(y->key, &j);
    if (whole && other && i != j) return i < j ? -1 : 1;
    return whole != other ? (whole ? -1 : 1) : strcmp(x->key, y->key);
}

/* Classes without a list or names: labels 1 to K in order of their values, not of their first rows. */
static tt_status sort_classes(struct tt_annotations *notes)
{
    struct tt_name_index by_key = {0};
    size_t label, count = notes->class_count;
    tt_status status = TT_OK;
    if (count < 2) return TT_OK;
    int32_t *moved = tt_calloc(count, sizeof *moved);
    if (moved == NULL) return TT_ERR_MEMORY;
    qsort(notes->classes + 1, count - 1, sizeof *notes->classes, compare_classes);
    for (size_t i = 1; i < count; i++) {
        if (tt_name_index_find(&notes->by_key, notes->classes[i].key, &label)) moved[label] = (int32_t)i;
        if (!read_whole(notes->classes[i].key, &notes->classes[i].id)) notes->classes[i].id = (int64_t)i;
        TT_GO(tt_name_index_add(&by_key, notes->classes[i].key, i));
    }
    for (size_t b = 0; b < notes->box_count; b++)
        notes->boxes[b].box.label = moved[notes->boxes[b].box.label];
    tt_name_index_deinit(&notes->by_key);
    notes->by_key = by_key;
    by_key = (struct tt_name_index){0};
out:
    tt_name_index_deinit(&by_key);
    tt_free(moved);
    return status;
}

/* ---- Boxes ---- */

static tt_status read_sides(const struct reading *reading, const struct tt_json *json,
                            const struct tt_json_value *list, struct tt_detect_box *box)
{
    double v[4];
    for (size_t i = 0; i < 4; i++) {
        const struct tt_json_value *value = tt_json_at(list, i);
        v[i] = tt_json_number(value);
        if (tt_json_count(list) != 4 || !tt_json_is_number(value) || !isfinite(v[i]))
            return tt_fail(TT_ERR_DATA, "%s: a box of 'bbox' must be four numbers", json->origin);
    }
    box->x = v[0];
    box->y = v[1];
    box->w = v[2];
    box->h = v[3];
    if (reading->config->box_format == TT_BOX_XYXY) {
        box->w = v[2] - v[0];
        box->h = v[3] - v[1];
    } else if (reading->config->box_format == TT_BOX_CXCYWH) {
        box->x = v[0] - v[2] / 2;
        box->y = v[1] - v[3] / 2;
    }
    box->area = box->w * box->h;
    return TT_OK;
}

/* The values of one object; NULL: the table has none. */
struct object {
    const struct tt_json_value *bbox, *category, *area, *crowd;
};

static tt_status add_box(struct reading *reading, const struct tt_json *json, size_t image,
                         const struct object *object)
{
    struct tt_annotations *notes = reading->notes;
    struct tt_noted_box noted = {.image = image};
    TT_TRY(read_sides(reading, json, object->bbox, &noted.box));
    double area = tt_json_number(object->area);
    if (isfinite(area) && area > 0) noted.box.area = area;
    noted.box.crowd = tt_json_is_true(object->crowd) || tt_json_integer(object->crowd) == 1;
    noted.box.id = (int64_t)notes->box_count + 1;
    TT_TRY(read_label(reading, json, object->category, &noted.box.label));
    return tt_annotations_add_box(notes, &noted);
}

static const struct tt_json_value *get_category(const struct tt_json_value *object)
{
    const struct tt_json_value *found = NULL;
    for (int i = 0; i < CATEGORY_NAMES && found == NULL; i++) found = tt_json_get(object, category_names[i]);
    return found;
}

static const struct tt_json_value *get_crowd(const struct tt_json_value *object)
{
    const struct tt_json_value *crowd = tt_json_get(object, "iscrowd");
    return crowd != NULL ? crowd : tt_json_get(object, "is_crowd");
}

/* A struct of lists: those of boxes and categories are as long as each other. */
static tt_status add_columns(struct reading *reading, const struct tt_json *json, size_t image,
                             const struct tt_json_value *objects)
{
    const struct tt_json_value *boxes = tt_json_get(objects, "bbox"), *categories = get_category(objects),
                               *areas = tt_json_get(objects, "area"), *crowds = get_crowd(objects);
    if (boxes == NULL || categories == NULL)
        return tt_fail(TT_ERR_DATA, "%s: 'objects' has no 'bbox' or no 'category'", json->origin);
    size_t count = tt_json_count(boxes);
    if (tt_json_count(categories) != count)
        return tt_fail(TT_ERR_DATA, "%s: %zu boxes have %zu categories", json->origin, count,
                       tt_json_count(categories));
    for (size_t i = 0; i < count; i++) {
        const struct object object = {tt_json_at(boxes, i), tt_json_at(categories, i), tt_json_at(areas, i),
                                      tt_json_at(crowds, i)};
        TT_TRY(add_box(reading, json, image, &object));
    }
    return TT_OK;
}

static tt_status add_objects(struct reading *reading, const struct tt_json *json, size_t image)
{
    const struct tt_json_value *objects = tt_json_get(json->root, "objects");
    if (objects == NULL) {
        tt_fail(TT_ERR_DATA, "'%s' has no column 'objects'", reading->path);
        tt_hint(
            "tables of a detection have the columns image and objects, and objects has bbox and category, "
            "as in Hugging Face's data sets");
        return TT_ERR_DATA;
    }
    if (tt_json_is_null(objects)) return TT_OK;
    if (tt_json_is_object(objects)) return add_columns(reading, json, image, objects);
    if (!tt_json_is_list(objects))
        return tt_fail(TT_ERR_DATA, "%s: 'objects' is no struct and no list", json->origin);
    for (size_t i = 0; i < tt_json_count(objects); i++) {
        const struct tt_json_value *at = tt_json_at(objects, i);
        const struct object object = {tt_json_get(at, "bbox"), get_category(at), tt_json_get(at, "area"),
                                      get_crowd(at)};
        TT_TRY(add_box(reading, json, image, &object));
    }
    return TT_OK;
}

/* ---- Images ---- */

/* The image of a row: an index into `kept`, or only a name; neither: no image. */
struct source {
    const struct kept *kept;
    const char *name;
};

static tt_status read_source(const struct reading *reading, const struct tt_json *json, struct source *source)
{
    const struct tt_json_value *image = tt_json_get(json->root, "image"), *bytes = image;
    *source = (struct source){0};
    if (image == NULL) {
        tt_fail(TT_ERR_DATA, "'%s' has no column 'image'", reading->path);
        tt_hint("tables of a detection have the columns image and objects, as in Hugging Face's data sets");
        return TT_ERR_DATA;
    }
    if (tt_json_is_object(image)) {
        const struct tt_json_value *name = tt_json_get(image, "path");
        bytes = tt_json_get(image, "bytes");
        if (tt_json_is_string(name) && tt_json_text(name)[0] != '\0') source->name = tt_json_text(name);
    } else if (tt_json_is_string(image)) {
        source->name = tt_json_text(image);
        return TT_OK;
    }
    if (bytes == NULL || tt_json_is_null(bytes)) return TT_OK;
    int64_t number = tt_json_integer(bytes);
    if (!tt_json_is_integer(bytes) || number < 0 || (uint64_t)number >= reading->kept_count)
        return tt_fail(TT_ERR_DATA, "%s: the bytes of 'image' are no column of bytes", json->origin);
    source->kept = &reading->kept[number];
    return TT_OK;
}

/* A file that the table names, below image_dir or the table's folder. */
static tt_status find_named(const struct reading *reading, const char *name, struct tt_path *path,
                            bool *found)
{
    struct tt_path folder;
    const char *dir = reading->config->image_dir;
    if (dir == NULL) {
        TT_TRY(tt_path_set(&folder, "", reading->path));
        size_t bytes = strlen(folder.text) - strlen(tt_path_basename(reading->path));
        folder.text[bytes] = '\0';
        dir = bytes > 0 ? folder.text : ".";
    }
    return tt_annotations_find_file(dir, reading->config->split, name, path, found);
}

/* An image has the id of its row, or the number of the row among all. */
static tt_status set_id(struct reading *reading, const struct tt_json *json, size_t image)
{
    const struct tt_json_value *id = tt_json_get(json->root, "image_id");
    struct tt_annotations *notes = reading->notes;
    char key[32];
    size_t other;
    notes->images[image].id = tt_json_integer(id);
    if (!reading->ids_good) return TT_OK;
    tt_snprintf(key, sizeof key, "%lld", (long long)tt_json_integer(id));
    reading->ids_good = tt_json_is_integer(id) && !tt_name_index_find(&reading->ids, key, &other);
    if (!reading->ids_good) return TT_OK;
    const char *kept = tt_arena_strdup(&notes->arena, key);
    return kept == NULL ? TT_ERR_MEMORY : tt_name_index_add(&reading->ids, kept, image);
}

static tt_status add_image(struct reading *reading, const struct tt_json *json, const struct source *source,
                           const char *place, size_t *image)
{
    struct tt_annotations *notes = reading->notes;
    const char *name = source->name != NULL ? tt_path_basename(source->name) : tt_path_basename(place);
    struct tt_path path;
    bool found = source->kept != NULL;
    if (!found && source->name != NULL) TT_TRY(find_named(reading, source->name, &path, &found));
    const char *file = source->kept != NULL ? place : path.text;
    TT_TRY(tt_annotations_append_image(notes, name, found ? file : NULL, image));
    struct tt_noted_image *noted = &notes->images[*image];
    noted->noted = found;
    TT_TRY(set_id(reading, json, *image));
    if (!found) {
        if (notes->report.images_absent++ == 0)
            tt_snprintf(notes->report.first_absent, sizeof notes->report.first_absent, "%.150s",
                        source->name != NULL ? source->name : tt_path_basename(place));
        return TT_OK;
    }
    if (source->kept == NULL) return TT_OK;
    noted->in_table = true;
    noted->data = source->kept->data;
    noted->data_at = source->kept->at;
    noted->data_bytes = (int64_t)source->kept->bytes;
    noted->data_time = reading->time;
    return TT_OK;
}

static tt_status read_row(struct reading *reading, const char *line, size_t bytes)
{
    struct tt_annotations *notes = reading->notes;
    struct tt_json json = {0};
    struct source source;
    struct tt_path place;
    char origin[400];
    size_t image = 0, boxes = notes->box_count;
    tt_status status = TT_OK;
    reading->row++;
    tt_snprintf(origin, sizeof origin, "'%.300s', row %llu", reading->path, (unsigned long long)reading->row);
    int written = tt_snprintf(place.text, sizeof place.text, "%s#%llu", reading->path,
                              (unsigned long long)reading->row);
    if (written < 0 || (size_t)written >= sizeof place.text)
        return tt_fail(TT_ERR_DATA, "the path '%.100s...' is too long", reading->path);
    double share = reading->config->share;
    if (share > 0 &&
        tt_annotations_in_share(tt_path_basename(place.text), share) != reading->config->keep_share)
        return TT_OK;
    TT_GO(tt_json_parse(line, bytes, origin, &json));
    TT_GO(read_source(reading, &json, &source));
    TT_GO(add_image(reading, &json, &source, place.text, &image));
    if (!reading->config->images_only) TT_GO(add_objects(reading, &json, image));
    if (!notes->images[image].noted) {
        notes->report.rows_absent += (int64_t)(notes->box_count - boxes);
        notes->box_count = boxes;
    }
out:
    tt_json_deinit(&json);
    return status;
}

/* ---- Files ---- */

static tt_status put_lines(void *context, const char *data, size_t bytes)
{
    struct reading *reading = context;
    for (const char *at = data, *end = data + bytes; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL) return tt_fail(TT_ERR_INTERNAL, "a row has no end");
        TT_TRY(read_row(reading, at, (size_t)(newline - at)));
        at = newline + 1;
    }
    return TT_OK;
}

/* Bytes that lie in the map stay there; others, which were compressed, go into the spool. */
static tt_status keep_bytes(void *context, const uint8_t *data, size_t bytes, uint64_t *number)
{
    struct reading *reading = context;
    const uint8_t *start = reading->file.data;
    struct kept kept = {.data = data, .bytes = bytes};
    bool inside = bytes > 0 && data >= start && data < start + reading->file.bytes;
    if (!inside) {
        kept.data = NULL;
        kept.at = reading->spooled;
        if (reading->spool < 0) TT_TRY(tt_file_open_temporary(&reading->spool));
        if (reading->room == 0) TT_TRY(tt_file_temporary_room(&reading->room));
        if (reading->spooled + bytes > reading->room)
            return tt_fail(TT_ERR_DATA, "'%s': the images are more than TMPDIR has room for", reading->path);
        if (bytes > 0)
            TT_TRY(tt_file_pwrite(reading->spool, "the unpacked images", data, bytes, reading->spooled));
        reading->spooled += bytes;
    }
    TT_TRY(tt_grow(&reading->kept, reading->kept_count, &reading->kept_capacity));
    *number = reading->kept_count;
    reading->kept[reading->kept_count++] = kept;
    return TT_OK;
}

/* The annotations own the map from here on. */
static tt_status add_map(struct tt_annotations *notes, struct tt_file_map *map)
{
    int grown = tt_grow(&notes->maps, notes->map_count, &notes->map_capacity);
    if (grown != 0) tt_file_map_close(map);
    if (grown != 0) return TT_ERR_MEMORY;
    notes->maps[notes->map_count++] = *map;
    return TT_OK;
}

static tt_status read_file(struct reading *reading, const char *path)
{
    bool grouped;
    const struct tt_parquet_limits limits = {.row_bytes = ROW_BYTES_MAX,
                                             .total_bytes = tt_memory_bytes(&grouped) / 2,
                                             .page_bytes = PAGE_BYTES_MAX,
                                             .remedy =
                                                 "the annotations of a run are in memory, of which they "
                                                 "may take half: divide the file"};
    const struct tt_parquet_sink sink = {.put = put_lines, .keep = keep_bytes, .context = reading};
    struct tt_file_facts file;
    int failed = tt_file_facts(path, &file);
    if (failed != 0) return tt_fail_errno(failed, "cannot read '%s'", path);
    reading->path = path;
    reading->time = file.changed;
    reading->row = 0;
    reading->kept_count = 0;
    TT_TRY(tt_file_map_open(path, &reading->file));
    TT_TRY(add_map(reading->notes, &reading->file));
    bool arrow = tt_arrow_is(&reading->file);
    if (!arrow && !tt_parquet_is(&reading->file)) {
        tt_fail(TT_ERR_DATA, "'%s' is neither Parquet nor Arrow", path);
        tt_hint("images with boxes are read from .parquet and .arrow files, and from a folder of images with "
                "annotations (local_image_dir)");
        return TT_ERR_DATA;
    }
    if (!reading->config->images_only) TT_TRY(read_metadata(reading, arrow));
    return arrow ? tt_arrow_read_into(path, &reading->file, &limits, &sink)
                 : tt_parquet_read_into(path, &reading->file, &limits, &sink);
}

/* Images in the spool, which is complete now, and numbers of rows instead of ids that are not good. */
static tt_status finish_images(struct reading *reading)
{
    struct tt_annotations *notes = reading->notes;
    struct tt_file_map spool = {0};
    if (reading->spooled > 0) {
        TT_TRY(tt_file_map_descriptor(reading->spool, "the unpacked images", reading->spooled, &spool));
        TT_TRY(add_map(notes, &spool));
    }
    for (size_t i = reading->first_image; i < notes->image_count; i++) {
        struct tt_noted_image *image = &notes->images[i];
        if (image->in_table && image->data == NULL)
            image->data = image->data_bytes > 0 ? spool.data + image->data_at : (const uint8_t *)"";
        if (!reading->ids_good) image->id = (int64_t)(i - reading->first_image) + 1;
    }
    return TT_OK;
}

tt_status tt_tables_read(struct tt_annotations *notes, const struct tt_tables_config *config)
{
    struct reading reading = {.notes = notes,
                              .config = config,
                              .spool = -1,
                              .first_image = notes->image_count,
                              .sorts = !notes->classes_fixed,
                              .ids_good = true};
    tt_status status = TT_OK;
    for (size_t i = 0; i < config->count; i++) TT_GO(read_file(&reading, config->paths[i]));
    TT_GO(finish_images(&reading));
    if (reading.sorts && !notes->classes_fixed && !config->images_only) status = sort_classes(notes);
    notes->classes_fixed = true;
out:
    tt_file_close(reading.spool);
    tt_name_index_deinit(&reading.ids);
    tt_free(reading.kept);
    tt_free(reading.labels);
    return status;
}
