/* links: tt_arrow */
/* Arrow streams and files (rows.h). */
#include "data/arrow/arrow.h"
#include "rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_check_rows(tt_arrow_read, data, size);
}
