/* Answers of S3: any bytes are read as XML or refused, and no visited path is empty. */
/* links: tt_store */
/* words: src/store/xml.c src/store/s3_client.c src/store/s3_parts.c src/store/s3_keys.c */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "store/xml.h"

static tt_status visit(void *context, const char *path, const char *text)
{
    if (path[0] == '\0' || path[0] == '/' || strlen(text) > (1 << 20)) abort();
    ++*(int *)context;
    return TT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int visited = 0;
    if (tt_xml_visit((const char *)data, size, "the answer", visit, &visited) == TT_OK && visited == 0)
        abort();
    return 0;
}
