/* The alphabet of ByteLevel: printable bytes map to themselves, the others to U+0100 and on in order (GPT-2's
 * bytes_to_unicode). */
#ifndef TT_TEXT_BYTE_LEVEL_H
#define TT_TEXT_BYTE_LEVEL_H

#include <stdint.h>

int32_t byte_level_code(unsigned char byte);
int byte_level_byte(int32_t code); /* -1: not in the alphabet */

#endif
