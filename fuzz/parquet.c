/* links: tt_parquet */
/* words: src/data/parquet */
/* Parquet files (rows.h). Checksums of pages are not mended: seeds have none. */
#include "rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_check_rows(tt_parquet_read, data, size);
}
