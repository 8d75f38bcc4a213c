/* A reader of the XML that S3 and STS answer: elements and their text, of any server. Attributes, comments and
 * processing instructions are skipped. A document type is refused, so no entity but XML's own five and characters by
 * number exists. Limits: 64 elements deep, 64 MiB, 1 MiB of text in one element.
 *
 * Source: W3C, Extensible Markup Language (XML) 1.0. */
#ifndef TT_STORE_XML_H
#define TT_STORE_XML_H

#include <stddef.h>

#include "base/error.h"

/* An element that ended: `path` has its name and those around it ("ListBucketResult/Contents/Key"), without prefixes
 * of namespaces; `text` the text directly inside it, without blanks at its ends if it has elements inside. */
typedef tt_status tt_xml_visit_element(void *context, const char *path, const char *text);

/* Visits the elements in the order of their ends. TT_ERR_DATA names `what` and the byte for anything else than one
 * whole, well-formed element. `visit` may be NULL. */
TT_MUST_USE tt_status tt_xml_visit(const char *data, size_t bytes, const char *what,
                                   tt_xml_visit_element *visit, void *context);

#endif
