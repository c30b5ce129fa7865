/* The transport within a process: a mailbox for each stage and channel. A message counts in the account of its receiver
 * (category messages) from the moment when it is posted. */
#ifndef PETRA_EXEC_TRANSPORT_LOCAL_H
#define PETRA_EXEC_TRANSPORT_LOCAL_H

#include "exec/stages.h"
#include "exec/transport.h"

/* Between the stages that are here; borrowed. Posting to another one is PETRA_INTERNAL. */
petra_status petra_transport_local_create(const petra_stages *stages, petra_transport **out);

#endif
