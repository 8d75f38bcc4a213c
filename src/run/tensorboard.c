#include "run/tensorboard.h"

#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/number.h"
#include "run/record_file.h"

struct tt_tensorboard {
    struct tt_record_file *file;
    struct tt_str record, event, summary; /* reused */
    uint32_t table[256];                  /* checksums of single bytes */
};

/* CRC-32C (Castagnoli, reflected 0x82f63b78). */
static void fill_table(uint32_t table[256])
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1u)));
        table[byte] = crc;
    }
}

static uint32_t crc32c(const uint32_t table[256], const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < bytes; i++) crc = (crc >> 8) ^ table[(crc ^ at[i]) & 255];
    return ~crc;
}

/* TFRecord stores checksums rotated and offset, so that a checksum of a checksum is not degenerate. */
static uint32_t masked_crc32c(const uint32_t table[256], const void *data, size_t bytes)
{
    uint32_t crc = crc32c(table, data, bytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static tt_status append_varint(struct tt_str *to, uint64_t value)
{
    while (value >= 0x80) {
        TT_TRY(tt_str_append_char(to, (char)(value | 0x80)));
        value >>= 7;
    }
    return tt_str_append_char(to, (char)value);
}

static tt_status append_bytes_field(struct tt_str *to, int field, const char *data, size_t bytes)
{
    TT_TRY(append_varint(to, (uint64_t)field << 3 | 2));
    TT_TRY(append_varint(to, bytes));
    return tt_str_append(to, data, bytes);
}

static tt_status append_fixed64(struct tt_str *to, int field, double value)
{
    TT_TRY(append_varint(to, (uint64_t)field << 3 | 1));
    return tt_str_append(to, (const char *)&value, sizeof value);
}

static tt_status write_event(struct tt_tensorboard *board)
{
    uint64_t length = board->event.bytes;
    uint32_t length_crc = masked_crc32c(board->table, &length, sizeof length);
    uint32_t data_crc = masked_crc32c(board->table, board->event.data, board->event.bytes);
    tt_str_clear(&board->record);
    TT_TRY(tt_str_append(&board->record, (const char *)&length, sizeof length));
    TT_TRY(tt_str_append(&board->record, (const char *)&length_crc, sizeof length_crc));
    TT_TRY(tt_str_append(&board->record, board->event.data, board->event.bytes));
    TT_TRY(tt_str_append(&board->record, (const char *)&data_crc, sizeof data_crc));
    tt_record_file_append(board->file, board->record.data, board->record.bytes);
    return TT_OK;
}

/* Event.wall_time = 1 (double) */
static tt_status begin_event(struct tt_tensorboard *board)
{
    tt_str_clear(&board->event);
    return append_fixed64(&board->event, 1, tt_clock_unix_seconds());
}

tt_status tt_tensorboard_open(const char *folder, struct tt_tensorboard **out)
{
    tt_status status = TT_OK;
    char host[64] = "host", name[160];
    struct tt_tensorboard *board = tt_calloc(1, sizeof *board);
    if (board == NULL) return TT_ERR_MEMORY;
    fill_table(board->table);
    struct tt_path path;
    (void)gethostname(host, sizeof host - 1);
    tt_snprintf(name, sizeof name, "events.out.tfevents.%.0f.%s.%d.0", tt_clock_unix_seconds(), host,
                (int)getpid());
    TT_GO(tt_dir_create(folder));
    TT_GO(tt_path_set(&path, folder, name));
    TT_GO(tt_record_file_create(path.text, &board->file));
    TT_GO(begin_event(board));
    /* Event.file_version = 3 */
    TT_GO(append_bytes_field(&board->event, 3, "brain.Event:2", 13));
    TT_GO(write_event(board));
    *out = board;
out:
    if (status != TT_OK) tt_tensorboard_close(board);
    return status;
}

void tt_tensorboard_close(struct tt_tensorboard *board)
{
    if (board == NULL) return;
    tt_record_file_close(board->file);
    tt_str_deinit(&board->record);
    tt_str_deinit(&board->event);
    tt_str_deinit(&board->summary);
    tt_free(board);
}

/* Event.step = 2, Event.summary = 5 with the board's summary as Summary.value = 1. */
static tt_status write_summary(struct tt_tensorboard *board, int64_t step)
{
    TT_TRY(begin_event(board));
    TT_TRY(append_varint(&board->event, 2 << 3));
    TT_TRY(append_varint(&board->event, (uint64_t)step));
    tt_str_clear(&board->record);
    TT_TRY(append_bytes_field(&board->record, 1, board->summary.data, board->summary.bytes));
    TT_TRY(append_bytes_field(&board->event, 5, board->record.data, board->record.bytes));
    return write_event(board);
}

tt_status tt_tensorboard_scalar(struct tt_tensorboard *board, const char *tag, int64_t step, double value)
{
    float simple = (float)value;
    tt_str_clear(&board->summary);
    /* Summary.Value: tag = 1, simple_value = 2 (fixed32) */
    TT_TRY(append_bytes_field(&board->summary, 1, tag, strlen(tag)));
    TT_TRY(append_varint(&board->summary, 2 << 3 | 5));
    TT_TRY(tt_str_append(&board->summary, (const char *)&simple, sizeof simple));
    return write_summary(board, step);
}

tt_status tt_tensorboard_text(struct tt_tensorboard *board, const char *tag, int64_t step,
                              const struct tt_str *text)
{
    /* SummaryMetadata.plugin_data = 1 { plugin_name = 1 } */
    static const char metadata[] = "\x0a\x06\x0a\x04text";
    /* TensorProto: dtype = 1, here DT_STRING = 7; tensor_shape = 2 { dim = 2 { size = 1 } } */
    static const char tensor[] = "\x08\x07\x12\x04\x12\x02\x08\x01";
    static const char suffix[] = "/text_summary";
    tt_str_clear(&board->summary);
    tt_str_clear(&board->record);
    TT_TRY(tt_str_append(&board->record, tensor, sizeof tensor - 1));
    TT_TRY(append_bytes_field(&board->record, 8, tt_str_text(text), text->bytes)); /* string_val */
    /* Summary.Value: tag = 1, tensor = 8, metadata = 9 */
    TT_TRY(append_varint(&board->summary, 1 << 3 | 2));
    TT_TRY(append_varint(&board->summary, strlen(tag) + sizeof suffix - 1));
    TT_TRY(tt_str_append_text(&board->summary, tag));
    TT_TRY(tt_str_append_text(&board->summary, suffix));
    TT_TRY(append_bytes_field(&board->summary, 8, board->record.data, board->record.bytes));
    TT_TRY(append_bytes_field(&board->summary, 9, metadata, sizeof metadata - 1));
    return write_summary(board, step);
}

tt_status tt_tensorboard_image(struct tt_tensorboard *board, const char *tag, int64_t step, int32_t height,
                               int32_t width, const struct tt_str *png)
{
    enum { RGB = 3 };
    const struct {
        int field, value;
    } numbers[] = {{1, height}, {2, width}, {3, RGB}};
    tt_str_clear(&board->summary);
    tt_str_clear(&board->record);
    /* Summary.Image: height = 1, width = 2, colorspace = 3, encoded_image_string = 4 */
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        TT_TRY(append_varint(&board->record, (uint64_t)numbers[i].field << 3));
        TT_TRY(append_varint(&board->record, (uint64_t)numbers[i].value));
    }
    TT_TRY(append_bytes_field(&board->record, 4, tt_str_text(png), png->bytes));
    /* Summary.Value: tag = 1, image = 4 */
    TT_TRY(append_bytes_field(&board->summary, 1, tag, strlen(tag)));
    TT_TRY(append_bytes_field(&board->summary, 4, board->record.data, board->record.bytes));
    return write_summary(board, step);
}

/* ---- Settings of the plugin hparams ---- */

/* google.protobuf.Value: number_value = 2 (double), string_value = 3, bool_value = 4. Lists and mappings are JSON. */
static tt_status append_hparam(struct tt_str *to, const struct tt_json_value *value)
{
    struct tt_str text = {0};
    if (tt_json_is_number(value)) return append_fixed64(to, 2, tt_json_number(value));
    if (tt_json_is_bool(value)) {
        TT_TRY(append_varint(to, 4 << 3));
        return append_varint(to, tt_json_is_true(value));
    }
    if (tt_json_is_string(value))
        return append_bytes_field(to, 3, tt_json_text(value), strlen(tt_json_text(value)));
    tt_status status = tt_json_write(value, 0, false, &text);
    if (status == TT_OK) status = append_bytes_field(to, 3, tt_str_text(&text), text.bytes);
    tt_str_deinit(&text);
    return status;
}

/* SessionStartInfo: hparams = 1, a map, whose entries have key = 1 and value = 2; start_time_secs = 5 (double) */
static tt_status append_session(struct tt_str *to, const struct tt_json_value *settings)
{
    struct tt_str value = {0}, entry = {0};
    const char *name;
    const struct tt_json_value *member;
    tt_status status = TT_OK;
    for (size_t at = 0; tt_json_next_member(settings, &at, &name, &member);) {
        if (tt_json_is_null(member)) continue;
        tt_str_clear(&value);
        tt_str_clear(&entry);
        TT_GO(append_hparam(&value, member));
        TT_GO(append_bytes_field(&entry, 1, name, strlen(name)));
        TT_GO(append_bytes_field(&entry, 2, tt_str_text(&value), value.bytes));
        TT_GO(append_bytes_field(to, 1, tt_str_text(&entry), entry.bytes));
    }
    TT_GO(append_fixed64(to, 5, tt_clock_unix_seconds()));
out:
    tt_str_deinit(&value);
    tt_str_deinit(&entry);
    return status;
}

tt_status tt_tensorboard_hparams(struct tt_tensorboard *board, const struct tt_json_value *settings)
{
    static const char tag[] = "_hparams_/session_start_info", plugin[] = "hparams";
    struct tt_str session = {0}, data = {0}, metadata = {0};
    tt_status status = TT_OK;
    TT_GO(append_session(&session, settings));
    /* HParamsPluginData: session_start_info = 3; version = 1 is 0 and left out */
    TT_GO(append_bytes_field(&data, 3, tt_str_text(&session), session.bytes));
    /* SummaryMetadata.plugin_data = 1 { plugin_name = 1, content = 2 } */
    tt_str_clear(&session);
    TT_GO(append_bytes_field(&session, 1, plugin, sizeof plugin - 1));
    TT_GO(append_bytes_field(&session, 2, tt_str_text(&data), data.bytes));
    TT_GO(append_bytes_field(&metadata, 1, tt_str_text(&session), session.bytes));
    /* Summary.Value: tag = 1, metadata = 9 */
    tt_str_clear(&board->summary);
    TT_GO(append_bytes_field(&board->summary, 1, tag, sizeof tag - 1));
    TT_GO(append_bytes_field(&board->summary, 9, tt_str_text(&metadata), metadata.bytes));
    status = write_summary(board, 0);
out:
    tt_str_deinit(&session);
    tt_str_deinit(&data);
    tt_str_deinit(&metadata);
    return status;
}
