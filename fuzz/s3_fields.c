/* Headers, times and INI files that S3's client reads: any text gives a value in its range, or none. */
/* links: tt_store */
/* words: src/store/s3_time.c src/store/s3_keys.c */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "store/s3_client.h"
#include "store/s3_keys.h"
#include "store/s3_time.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tt_str text = {0}, value = {0}, path = {0};
    struct tt_s3_name name;
    double seconds;
    if (tt_str_append(&text, (const char *)data, size) != TT_OK) abort();
    if (tt_s3_parse_time(tt_str_text(&text), &seconds) && !(seconds >= 0 && seconds < 4e11)) abort();
    if (tt_s3_parse_date(tt_str_text(&text), &seconds) && !(seconds >= 0 && seconds < 4e11)) abort();
    if (tt_s3_ini_value(tt_str_text(&text), "default", "aws_access_key_id", &value) &&
        (value.bytes == 0 || memchr(value.data, '\n', value.bytes) != NULL))
        abort();
    if (tt_str_printf(&path, "s3://%s", tt_str_text(&text)) == TT_OK &&
        tt_s3_name_of(tt_str_text(&path), &name) == TT_OK && strlen(name.bucket) < 3)
        abort();
    tt_str_deinit(&text);
    tt_str_deinit(&value);
    tt_str_deinit(&path);
    return 0;
}
