/* Functions in a file of their own that complete operations begun in another file. */
#ifndef COMPLETES_H
#define COMPLETES_H

#include "subject.h"

#include <mpi.h>

SHOWN void complete_both(MPI_Request requests[2])
{
    MPI_Status statuses[2];
    MPI_Waitall(2, requests, statuses);
    KEEP_FRAME();
}

#endif
