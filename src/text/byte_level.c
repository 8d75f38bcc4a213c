#include "text/byte_level.h"

int32_t byte_level_code(unsigned char byte)
{
    if ((byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD)) return byte;
    return byte <= 0x20 ? 0x100 + byte : byte == 0xAD ? 0x143 : 0x121 + byte - 0x7F;
}

int byte_level_byte(int32_t code)
{
    if (code < 0x100) return (code >= 0x21 && code <= 0x7E) || (code >= 0xA1 && code != 0xAD) ? code : -1;
    if (code <= 0x120) return code - 0x100;
    if (code <= 0x142) return code - 0x121 + 0x7F;
    return code == 0x143 ? 0xAD : -1;
}
