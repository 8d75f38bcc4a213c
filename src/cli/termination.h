/* The termination message of a pod: Kubernetes shows the text that a container leaves in /dev/termination-log as the
 * reason of its end (kubectl describe pod). kubernetes.io, "Determine the Reason for Pod Failure". */
#ifndef TT_CLI_TERMINATION_H
#define TT_CLI_TERMINATION_H

#include "base/error.h"

enum { TT_TERMINATION_BYTES_MAX = 4096 }; /* Kubernetes keeps no more */

/* Writes the text of the error, at most TT_TERMINATION_BYTES_MAX bytes, to the file that TRIMTAB_TERMINATION_LOG names,
 * by default /dev/termination-log. Only a regular file that exists is written; without one, and where writing fails,
 * nothing happens. */
void tt_termination_write(const struct tt_error *error);

#endif
