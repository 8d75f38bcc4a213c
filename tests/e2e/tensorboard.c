/* The TensorBoard file of a run: every record's two checksums, the scalars of the log, the settings, the texts of
 * eval_generate, the pictures of a detector's evaluations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "support/detect_images.h"
#include "support/train_run.h"
#include "support/workplace.h"

/* CRC-32C by its definition as polynomial division (RFC 3720, B.4), most significant coefficient first. */
static uint32_t crc32c(const uint8_t *data, size_t bytes)
{
    uint32_t remainder = 0xffffffffu, reflected = 0;
    for (size_t i = 0; i < bytes; i++) {
        for (int bit = 0; bit < 8; bit++) {
            uint32_t in = (uint32_t)(data[i] >> bit & 1), out = remainder >> 31;
            remainder = (remainder << 1) ^ ((in ^ out) * 0x1edc6f41u);
        }
    }
    for (int bit = 0; bit < 32; bit++) reflected |= (remainder >> bit & 1) << (31 - bit);
    return ~reflected;
}

static uint32_t unmask(const uint8_t *at)
{
    uint32_t masked;
    memcpy(&masked, at, sizeof masked);
    masked -= 0xa282ead8u;
    return masked << 15 | masked >> 17;
}

struct field {
    int number, type;
    uint64_t value; /* varint, fixed32 or fixed64 */
    const uint8_t *data;
    size_t bytes;
};

static uint64_t read_varint(const uint8_t **at, const uint8_t *end)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        assert_true(*at < end && shift < 64);
        uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return value;
    }
}

/* One field of a protocol buffer message. */
static struct field read_field(const uint8_t **at, const uint8_t *end)
{
    struct field field = {0};
    uint64_t key = read_varint(at, end);
    field.number = (int)(key >> 3);
    field.type = (int)(key & 7);
    if (field.type == 0) {
        field.value = read_varint(at, end);
        return field;
    }
    assert_true(field.type == 1 || field.type == 2 || field.type == 5);
    field.bytes = field.type == 1 ? 8 : field.type == 5 ? 4 : (size_t)read_varint(at, end);
    assert_true(field.bytes <= (size_t)(end - *at));
    field.data = *at;
    if (field.type != 2) memcpy(&field.value, field.data, field.bytes);
    *at += field.bytes;
    return field;
}

struct scalar {
    char tag[64];
    int64_t step;
    float value;
};

/* Of the text plugin. */
struct text {
    char tag[64];
    int64_t step;
    char content[16384];
};

struct picture {
    char tag[64];
    int64_t step;
    struct tt_image image; /* decoded */
};

/* Of the plugin hparams. */
struct settings {
    int records, count;
    double learning_rate;
    bool use_peft, reports, has_null; /* a setting without value is there */
};

struct events {
    struct settings settings;
    struct scalar scalars[256];
    struct text texts[16];
    struct picture pictures[16];
    int count, text_count, picture_count, records;
    char version[32];
    double first_time, last_time;
};

/* The only field of a message, which has to be a message or bytes. */
static struct field read_only_field(const struct field *message, int number)
{
    const uint8_t *at = message->data, *end = at + message->bytes;
    struct field field = read_field(&at, end);
    assert_int_equal(field.number, number);
    assert_true(field.type == 2 && at == end);
    return field;
}

static bool is_text(const struct field *field, const char *text)
{
    return field->bytes == strlen(text) && memcmp(field->data, text, field->bytes) == 0;
}

/* TensorProto of one string: DT_STRING, shape [1], string_val. */
static void read_tensor(const struct field *tensor, struct text *text)
{
    int strings = 0;
    for (const uint8_t *at = tensor->data, *end = at + tensor->bytes; at < end;) {
        struct field field = read_field(&at, end);
        if (field.number == 1) assert_int_equal(field.value, 7);
        if (field.number == 2) {
            struct field size = read_only_field(&field, 2);
            const uint8_t *dim = size.data;
            size = read_field(&dim, size.data + size.bytes);
            assert_true(size.number == 1 && size.type == 0 && size.value == 1);
        }
        if (field.number != 8) continue;
        assert_true(strings++ == 0 && field.bytes < sizeof text->content);
        snprintf(text->content, sizeof text->content, "%.*s", (int)field.bytes, (const char *)field.data);
    }
    assert_int_equal(strings, 1);
}

/* A value with a tensor instead of a number. */
static void read_text(const uint8_t *at, const uint8_t *end, struct text *text)
{
    bool plugin = false;
    while (at < end) {
        struct field field = read_field(&at, end);
        if (field.number == 1)
            snprintf(text->tag, sizeof text->tag, "%.*s", (int)field.bytes, (const char *)field.data);
        if (field.number == 8) read_tensor(&field, text);
        if (field.number != 9) continue;
        struct field data = read_only_field(&field, 1), name = read_only_field(&data, 1);
        plugin = is_text(&name, "text");
    }
    assert_true(plugin && text->content[0] != '\0');
}

/* An entry of the map: a key, and a google.protobuf.Value. */
static void read_setting(const struct field *entry, struct settings *settings)
{
    const uint8_t *at = entry->data, *end = at + entry->bytes;
    struct field key = read_field(&at, end), message = read_field(&at, end);
    assert_true(key.number == 1 && message.number == 2 && at == end);
    const uint8_t *inside = message.data;
    struct field value = read_field(&inside, message.data + message.bytes);
    settings->count++;
    settings->has_null |= is_text(&key, "logging_dir");
    if (is_text(&key, "learning_rate") && value.number == 2) memcpy(&settings->learning_rate, value.data, 8);
    if (is_text(&key, "use_peft")) settings->use_peft = value.number == 4 && value.value == 1;
    if (is_text(&key, "report_to")) settings->reports = value.number == 3 && is_text(&value, "tensorboard");
}

/* SummaryMetadata with the plugin's name and HParamsPluginData, which has a SessionStartInfo. */
static void read_settings(const struct field *metadata, struct settings *settings)
{
    struct field plugin = read_only_field(metadata, 1);
    const uint8_t *at = plugin.data, *end = at + plugin.bytes;
    struct field name = read_field(&at, end), content = read_field(&at, end);
    assert_true(is_text(&name, "hparams") && content.number == 2 && at == end);
    struct field session = read_only_field(&content, 3);
    for (at = session.data, end = at + session.bytes; at < end;) {
        struct field field = read_field(&at, end);
        assert_true(field.number == 1 || field.number == 5); /* a setting, the start */
        if (field.number == 1) read_setting(&field, settings);
    }
    settings->records++;
}

/* Summary.Image: height, width, colorspace 3 (colour), the PNG file. */
static void read_picture(const struct field *message, struct picture *picture)
{
    int64_t height = 0, width = 0, colours = 0;
    for (const uint8_t *at = message->data, *end = at + message->bytes; at < end;) {
        struct field field = read_field(&at, end);
        if (field.number == 1) height = (int64_t)field.value;
        if (field.number == 2) width = (int64_t)field.value;
        if (field.number == 3) colours = (int64_t)field.value;
        if (field.number != 4) continue;
        assert_true(field.type == 2 && field.bytes > 8 && memcmp(field.data, "\x89PNG", 4) == 0);
        assert_int_equal(tt_image_decode(field.data, field.bytes, "a picture", 0, &picture->image), TT_OK);
    }
    assert_int_equal(colours, 3);
    assert_true(picture->image.height == height && picture->image.width == width);
}

enum value_kind { SCALAR, TEXT, PICTURE, SETTINGS };

/* A text or a picture has no step yet. */
static enum value_kind read_value(const struct field *summary, struct scalar *scalar, struct text *text,
                                  struct picture *picture, struct settings *settings)
{
    const uint8_t *at = summary->data, *end = at + summary->bytes;
    struct field value = read_field(&at, end);
    assert_true(value.number == 1 && value.type == 2 && at == end);
    for (at = value.data, end = at + value.bytes; at < end;) {
        struct field field = read_field(&at, end);
        if (field.number == 9 && strcmp(scalar->tag, "_hparams_/session_start_info") == 0) {
            read_settings(&field, settings);
            scalar->tag[0] = '\0';
            return SETTINGS;
        }
        if (field.number == 8 || field.number == 9) {
            read_text(value.data, end, text);
            scalar->tag[0] = '\0';
            return TEXT;
        }
        if (field.number == 4) {
            read_picture(&field, picture);
            memcpy(picture->tag, scalar->tag, sizeof picture->tag);
            scalar->tag[0] = '\0';
            return PICTURE;
        }
        if (field.number == 1)
            snprintf(scalar->tag, sizeof scalar->tag, "%.*s", (int)field.bytes, (const char *)field.data);
        if (field.number == 2) memcpy(&scalar->value, field.data, 4);
    }
    return SCALAR;
}

static void read_event(const uint8_t *at, size_t bytes, struct events *events)
{
    const uint8_t *end = at + bytes;
    struct scalar *scalar = &events->scalars[events->count];
    struct text *text = &events->texts[events->text_count];
    struct picture *picture = &events->pictures[events->picture_count];
    enum value_kind kind = SCALAR;
    assert_true(events->count < 256 && events->text_count < 16 && events->picture_count < 16);
    *scalar = (struct scalar){.step = 0};
    while (at < end) {
        struct field field = read_field(&at, end);
        if (field.number == 1) memcpy(&events->last_time, field.data, 8);
        if (field.number == 2) scalar->step = (int64_t)field.value;
        if (field.number == 3)
            snprintf(events->version, sizeof events->version, "%.*s", (int)field.bytes,
                     (const char *)field.data);
        if (field.number == 5) kind = read_value(&field, scalar, text, picture, &events->settings);
    }
    if (events->records++ == 0) events->first_time = events->last_time;
    if (scalar->tag[0] != '\0') events->count++;
    if (kind == TEXT) text->step = scalar->step;
    if (kind == PICTURE) picture->step = scalar->step;
    events->text_count += kind == TEXT;
    events->picture_count += kind == PICTURE;
}

static void read_events(const char *path, struct events *events)
{
    struct tt_str file = {0};
    assert_int_equal(tt_file_read(path, 1 << 24, &file), TT_OK);
    const uint8_t *data = (const uint8_t *)file.data;
    for (size_t at = 0; at < file.bytes;) {
        uint64_t bytes;
        assert_true(file.bytes - at >= 16);
        memcpy(&bytes, data + at, 8);
        assert_true(bytes <= file.bytes - at - 16);
        assert_int_equal(unmask(data + at + 8), crc32c(data + at, 8));
        assert_int_equal(unmask(data + at + 12 + bytes), crc32c(data + at + 12, bytes));
        read_event(data + at + 12, bytes, events);
        at += 16 + bytes;
    }
    tt_str_deinit(&file);
}

struct search {
    const char *folder;
    char found[TEST_PATH_BYTES];
    int count;
};

static tt_status note(void *context, const char *name)
{
    struct search *search = context;
    test_join(search->folder, name, search->found);
    search->count++;
    return TT_OK;
}

/* The only entry of a folder. */
static void only_entry(const char *folder, char path[TEST_PATH_BYTES])
{
    struct search search = {.folder = folder};
    assert_int_equal(tt_dir_list(folder, note, &search), TT_OK);
    assert_int_equal(search.count, 1);
    memcpy(path, search.found, TEST_PATH_BYTES);
}

/* The scalars of `tag`, against the values of `name` in the log. */
static void compare(const struct events *events, const char *output, const char *tag, const char *name,
                    int wanted, int step_every)
{
    double values[64];
    int seen = 0;
    assert_int_equal(test_read_log(output, name, values, 64), wanted);
    for (int i = 0; i < events->count; i++) {
        if (strcmp(events->scalars[i].tag, tag) != 0) continue;
        assert_true(seen < wanted);
        assert_true(events->scalars[i].value == (float)values[seen++]);
        assert_int_equal(events->scalars[i].step, step_every * seen);
    }
    assert_int_equal(seen, wanted);
}

static void known_checksum(void **state)
{
    (void)state;
    assert_int_equal(crc32c((const uint8_t *)"123456789", 9), 0xe3069283u); /* the catalogued check value */
}

/* transformers' TensorBoardCallback: the arguments and the model's configuration as JSON, before the first row. */
static void expect_configuration(const struct events *events)
{
    struct tt_json json = {0};
    assert_int_equal(events->text_count, 2);
    const struct text *args = &events->texts[0], *model = &events->texts[1];
    assert_string_equal(args->tag, "args/text_summary");
    assert_string_equal(model->tag, "model_config/text_summary");
    assert_true(args->step == 0 && model->step == 0);
    assert_int_equal(tt_json_parse(args->content, strlen(args->content), "args", &json), TT_OK);
    assert_int_equal(tt_json_integer(tt_json_get(json.root, "logging_steps")), 10);
    assert_string_equal(tt_json_text(tt_json_get(json.root, "report_to")), "tensorboard");
    tt_json_deinit(&json);
    assert_int_equal(tt_json_parse(model->content, strlen(model->content), "model_config", &json), TT_OK);
    assert_string_equal(tt_json_text(tt_json_get(json.root, "model_type")), "llama");
    tt_json_deinit(&json);
}

static void scalars_of_a_run(void **state)
{
    (void)state;
    struct test_workplace place;
    struct test_words words = {0};
    struct tt_train_summary summary;
    struct events events = {0};
    char output[TEST_PATH_BYTES], runs[TEST_PATH_BYTES], folder[TEST_PATH_BYTES], file[TEST_PATH_BYTES];
    test_workplace_create("llama2", &place);
    test_workplace_path(&place, "out", output);
    test_words_pair(&words, "model_name_or_path", place.model);
    test_words_pair(&words, "dataset_name", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_pair(&words, "eval_dataset", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_add(
        &words, "threads 1 max_steps 200 per_device_train_batch_size 1 logging_steps 10 eval_strategy steps "
                "eval_steps 100 save_strategy no report_to tensorboard lora_r 1");
    test_train_ok(words.list, output, &summary);
    only_entry(test_join(output, "runs", runs), folder);
    only_entry(folder, file);
    assert_non_null(strstr(file, "/events.out.tfevents."));
    read_events(file, &events);
    assert_string_equal(events.version, "brain.Event:2");
    assert_true(events.first_time > 1.6e9 && events.last_time >= events.first_time);
    compare(&events, output, "train/loss", "loss", 20, 10);
    compare(&events, output, "train/learning_rate", "learning_rate", 20, 10);
    compare(&events, output, "train/grad_norm", "grad_norm", 20, 10);
    compare(&events, output, "eval/loss", "eval_loss", 2, 100);
    compare(&events, output, "train/train_loss", "train_loss", 1, 200);
    expect_configuration(&events);
    assert_int_equal(events.settings.records, 1);
    assert_true(events.settings.count > 100 && !events.settings.has_null);
    assert_true(events.settings.learning_rate == 2e-5 && events.settings.use_peft && events.settings.reports);
    test_workplace_remove(&place);
}

static void folder_of_ones_own(void **state)
{
    (void)state;
    struct test_workplace place;
    struct test_words words = {0};
    struct tt_train_summary summary;
    struct events events = {0};
    char output[TEST_PATH_BYTES], board[TEST_PATH_BYTES], file[TEST_PATH_BYTES];
    test_workplace_create("llama2", &place);
    test_workplace_path(&place, "out", output);
    test_words_pair(&words, "model_name_or_path", place.model);
    test_words_pair(&words, "dataset_name", TT_TEST_ROOT "/golden/llama2/train.jsonl");
    test_words_pair(&words, "logging_dir", test_workplace_path(&place, "board/here", board));
    test_words_add(&words, "threads 1 max_steps 2 save_strategy no report_to all");
    test_train_ok(words.list, output, &summary);
    only_entry(board, file);
    read_events(file, &events);
    assert_true(events.count > 0);
    assert_int_equal(test_count_entries(output, "runs"), 0);
    test_workplace_remove(&place);
}

/* What the text plugin displays of a line of generations.jsonl. */
static void expect_text(const struct text *text, const struct tt_json_value *line)
{
    static const char *const names[] = {"prompt", "completion", "reference"};
    char wanted[2000];
    snprintf(wanted, sizeof wanted, "eval_generate/row_%d/text_summary",
             (int)tt_json_integer(tt_json_get(line, "row")));
    assert_string_equal(text->tag, wanted);
    assert_int_equal(text->step, tt_json_integer(tt_json_get(line, "step")));
    size_t bytes = 0;
    for (int i = 0; i < 3; i++) {
        bytes += (size_t)snprintf(wanted + bytes, sizeof wanted - bytes, "**%s**\n\n    ", names[i]);
        for (const char *at = tt_json_text(tt_json_get(line, names[i])); *at != '\0'; at++)
            bytes +=
                (size_t)snprintf(wanted + bytes, sizeof wanted - bytes, *at == '\n' ? "\n    " : "%c", *at);
        bytes += (size_t)snprintf(wanted + bytes, sizeof wanted - bytes, "\n\n");
    }
    assert_string_equal(text->content, wanted);
}

static void texts_of_evaluations(void **state)
{
    (void)state;
    struct test_workplace place;
    struct test_words words = {0};
    struct tt_train_summary summary;
    struct events events = {0};
    struct tt_str lines = {0};
    char output[TEST_PATH_BYTES], path[TEST_PATH_BYTES], folder[TEST_PATH_BYTES], file[TEST_PATH_BYTES];
    test_workplace_create("qwen2", &place);
    test_workplace_path(&place, "out", output);
    test_words_pair(&words, "model_name_or_path", place.model);
    const char *rows = test_workplace_write(&place, "rows.jsonl",
                                            "{\"prompt\": \"one\\n*two*\", \"completion\": \" a\\nb\"}\n"
                                            "{\"prompt\": \"<b>\\n\", \"completion\": \" c\"}\n",
                                            path);
    test_words_pair(&words, "dataset_name", rows);
    test_words_pair(&words, "eval_dataset", rows);
    test_words_add(&words, "threads 1 max_steps 4 eval_strategy steps eval_steps 2 save_strategy no "
                           "report_to tensorboard eval_generate 2 eval_generate_tokens 5");
    test_train_ok(words.list, output, &summary);
    only_entry(test_join(output, "runs", path), folder);
    only_entry(folder, file);
    read_events(file, &events);
    assert_int_equal(events.text_count, 2 + 4); /* behind those that every run has */
    assert_int_equal(tt_file_read(test_join(output, "generations.jsonl", path), 1 << 20, &lines), TT_OK);
    char *line = lines.data;
    for (int i = 0; i < 4; i++) {
        struct tt_json json = {0};
        char *end = strchr(line, '\n');
        assert_non_null(end);
        assert_int_equal(tt_json_parse(line, (size_t)(end - line), "a line", &json), TT_OK);
        expect_text(&events.texts[2 + i], json.root);
        tt_json_deinit(&json);
        line = end + 1;
    }
    assert_true(*line == '\0');
    tt_str_deinit(&lines);
    test_workplace_remove(&place);
}

/* Two images with one box each, of which the second is shown at half its size. */
static void put_images(void)
{
    static const char *const names[] = {"train", "validation"};
    test_put_folder("images");
    test_put_folder("labels");
    test_put_image("images/a.png", 64, 64, 1);
    test_put_image("images/b.png", 48, 1600, 2);
    for (int i = 0; i < 2; i++) {
        char path[64];
        snprintf(path, sizeof path, "labels/%s.json", names[i]);
        test_put(
            path,
            "{\"images\": [{\"id\": 7, \"file_name\": \"a.png\"}, {\"id\": 9, \"file_name\": \"b.png\"}], "
            "\"categories\": [{\"id\": 1, \"name\": \"cat\"}], \"annotations\": [{\"id\": 1, \"image_id\": "
            "7, \"category_id\": 1, \"bbox\": [10, 20, 30, 25], \"area\": 750}, {\"id\": 2, \"image_id\": 9, "
            "\"category_id\": 1, \"bbox\": [100, 4, 60, 40], \"area\": 2400}]}");
    }
}

static void train_pictures(const char *score, const char *output, struct events *events)
{
    struct test_words words = {0};
    struct tt_train_summary summary;
    char path[TEST_PATH_BYTES], folder[TEST_PATH_BYTES], file[TEST_PATH_BYTES];
    test_words_add(&words,
                   "task detection threads 1 bf16 false device cpu image_size 64 max_image_size 128 "
                   "per_device_train_batch_size 2 num_train_epochs 2 eval_strategy epoch save_strategy no "
                   "report_to tensorboard eval_pictures 2 score_threshold 0 logging_steps 1");
    test_words_pair(&words, "picture_score", score);
    test_words_pair(&words, "weights_path", TT_TEST_ROOT "/golden/detect/retinanet/weights.pth");
    test_words_pair(&words, "local_image_dir", test_at("images"));
    test_train_ok(words.list, output, &summary);
    only_entry(test_join(output, "runs", path), folder);
    only_entry(folder, file);
    *events = (struct events){0};
    read_events(file, events);
}

static const uint8_t *pixel(const struct tt_image *image, int x, int y)
{
    return image->rgb + ((size_t)y * (size_t)image->width + (size_t)x) * 3;
}

/* Of every picture: pixels of the colour of found boxes. */
static int64_t count_found(const struct events *events)
{
    static const uint8_t orange[3] = {255, 120, 0};
    int64_t count = 0;
    for (int i = 0; i < events->picture_count; i++) {
        const struct tt_image *image = &events->pictures[i].image;
        for (int64_t p = 0; p < (int64_t)image->height * image->width; p++)
            count += memcmp(image->rgb + p * 3, orange, 3) == 0;
    }
    return count;
}

static void remove_pictures(struct events *events)
{
    for (int i = 0; i < events->picture_count; i++) tt_image_deinit(&events->pictures[i].image);
}

static void expect_picture(const struct picture *picture, int64_t step, const char *tag, int height,
                           int width)
{
    assert_string_equal(picture->tag, tag);
    assert_int_equal(picture->step, step);
    assert_int_equal(picture->image.height, height);
    assert_int_equal(picture->image.width, width);
}

static void pictures_of_evaluations(void **state)
{
    (void)state;
    static const uint8_t blue[3] = {0, 140, 255};
    struct events events;
    struct tt_image a = {0};
    struct tt_str lines = {0};
    char output[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
    if (!test_images_work()) skip();
    put_images();
    snprintf(output, sizeof output, "%s", test_at("out"));
    train_pictures("1", output, &events); /* no box has such a score */
    assert_int_equal(events.picture_count, 4);
    assert_int_equal(tt_image_read(test_at("images/a.png"), 0, &a), TT_OK);
    for (int e = 0; e < 2; e++) {
        const struct picture *first = &events.pictures[2 * e], *second = first + 1;
        expect_picture(first, e + 1, "eval_pictures/image_7", 64, 64);
        expect_picture(second, e + 1, "eval_pictures/image_9", 24, 800);
        assert_memory_equal(pixel(&first->image, 10, 30), blue, 3);
        assert_memory_equal(pixel(&first->image, 39, 25), blue, 3);
        assert_memory_equal(pixel(&first->image, 20, 30), pixel(&a, 20, 30), 3);
        assert_memory_equal(pixel(&first->image, 60, 5), pixel(&a, 60, 5), 3);
        assert_memory_equal(pixel(&second->image, 79, 8), blue, 3); /* x 160 of the image */
    }
    assert_int_equal(count_found(&events), 0);
    remove_pictures(&events);
    tt_image_deinit(&a);

    /* The same pictures for the dashboard, of both evaluations. */
    assert_int_equal(tt_file_read(test_join(output, "pictures.jsonl", path), 1 << 20, &lines), TT_OK);
    const char *line = lines.data;
    for (int i = 0; i < 4; i++) {
        char start[64];
        snprintf(start, sizeof start, "{\"step\": %d, \"id\": %d, ", i / 2 + 1, i % 2 == 0 ? 7 : 9);
        assert_int_equal(strncmp(line, start, strlen(start)), 0);
        line = strchr(line, '\n') + 1;
    }
    assert_true(*line == '\0' && strstr(lines.data, "\"boxes\": 1, \"detections\": 0}") != NULL);
    tt_str_deinit(&lines);
    assert_int_equal(tt_image_read(test_join(output, "pictures/2-9.jpg", path), 0, &a), TT_OK);
    assert_true(a.height == 24 && a.width == 800);
    tt_image_deinit(&a);

    snprintf(output, sizeof output, "%s", test_at("all"));
    train_pictures("0", output, &events);
    assert_true(count_found(&events) > 100);
    remove_pictures(&events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_checksum),
        cmocka_unit_test(scalars_of_a_run),
        cmocka_unit_test(folder_of_ones_own),
        cmocka_unit_test(texts_of_evaluations),
        cmocka_unit_test_setup_teardown(pictures_of_evaluations, test_root_create, test_root_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
