/* A clock for kernels that report a rate of their own. */
#ifndef CLOCK_H
#define CLOCK_H

#include <time.h>

#include "mini.h"

/* Seconds since some moment, never backwards. */
static inline double now_s(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        die("the monotonic clock cannot be read");
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
