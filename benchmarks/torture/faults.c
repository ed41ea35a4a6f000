/* LD_PRELOAD: the Nth write, truncation or flush of the database's files fails.
 * FAULT_AT=N (from 1), FAULT_ERRNO=number, FAULT_EVER=1: all from there on fail too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static long calls;

static int fails(int file)
{
    static long at;
    static int number, ever;
    char link[32], path[PATH_MAX];
    ssize_t length;
    int saved = errno;

    if (at == 0) {
        const char *text = getenv("FAULT_AT");
        at = text ? atol(text) : -1;
        number = getenv("FAULT_ERRNO") ? atoi(getenv("FAULT_ERRNO")) : EIO;
        ever = getenv("FAULT_EVER") != NULL;
    }
    if (at < 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    length = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (length < 0)
        return 0;
    path[length] = 0;
    if (!strstr(path, "fault.db"))
        return 0;
    long call = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    if (call != at && !(ever && call > at))
        return 0;
    errno = number;
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *data, size_t size)
{
    return fails(file) ? -1 : REAL(write)(file, data, size);
}
ssize_t pwrite(int file, const void *data, size_t size, off_t at)
{
    return fails(file) ? -1 : REAL(pwrite)(file, data, size, at);
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at)
{
    return fails(file) ? -1 : REAL(pwrite64)(file, data, size, at);
}
int ftruncate(int file, off_t size)
{
    return fails(file) ? -1 : REAL(ftruncate)(file, size);
}
int ftruncate64(int file, off64_t size)
{
    return fails(file) ? -1 : REAL(ftruncate64)(file, size);
}
int fsync(int file)
{
    return fails(file) ? -1 : REAL(fsync)(file);
}
int fdatasync(int file)
{
    return fails(file) ? -1 : REAL(fdatasync)(file);
}
