/* Numbers as text, the same in every locale. A program that uses the library may have called setlocale(), which changes
 * the decimal point of strtod() and printf("%g"). The project calls neither directly for text that is stored or
 * parsed. */
#ifndef TT_BASE_NUMBER_H
#define TT_BASE_NUMBER_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"

enum { TT_DOUBLE_TEXT_BYTES = 32 }; /* room for every text of tt_format_double */

/* Parses the longest decimal number at the start of `text` ([+-] digits [. digits] [e [+-] digits], with a digit before
 * or behind the point) and returns its length; 0 when there is none. No white space, no hexadecimal, no "inf" or "nan".
 * A number beyond the range of a double becomes infinity. */
size_t tt_parse_double_prefix(const char *text, double *out);
/* The same for a text that is a number as a whole; false for anything else and for numbers beyond the range. */
bool tt_parse_double(const char *text, double *out);

/* The shortest decimal that parses back to the same double, and of those the nearest: "0.05", "3e-05", "1e+16", "2";
 * "nan", "inf", "-inf". Exponents are used below 1e-4 and from 1e16 on, as by Python's repr(), which only adds the ".0"
 * of whole numbers. Returns `text`. */
const char *tt_format_double(double value, char *text, size_t text_bytes);

/* The C library's description of an error number, in English in every locale. */
const char *tt_errno_text(int error_number);

/* vsnprintf and snprintf with a decimal point in every locale. */
int tt_vsnprintf(char *text, size_t text_bytes, const char *format, va_list arguments) TT_PRINTF(3, 0);
int tt_snprintf(char *text, size_t text_bytes, const char *format, ...) TT_PRINTF(3, 4);

#endif
