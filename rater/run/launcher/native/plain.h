/* System calls without a library: they return -errno, and use no memory but their arguments.

   A child that shares the launcher's memory has neither an errno nor a heap of its own. On
   architectures that have no calls here children are forked, with memory of their own. */
#ifndef RATER_PLAIN_H
#define RATER_PLAIN_H
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open /* headers of Linux before 5.3 */
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range /* and before 5.9 */
#define SYS_close_range 436
#endif
#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE (1U << 1)
#endif

#if defined(__x86_64__) && defined(__LP64__)
#ifndef __SANITIZE_ADDRESS__ /* it keeps book of stacks, and knows none but its own */
#define CAN_SHARE_MEMORY
#endif
static inline long plain_call(long number, long first, long second, long third, long fourth,
                              long fifth) {
    long result;
    register long r10 __asm__("r10") = fourth;
    register long r8 __asm__("r8") = fifth;
    register long r9 __asm__("r9") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#else
static inline long plain_call(long number, long first, long second, long third, long fourth,
                              long fifth) {
    long result = syscall(number, first, second, third, fourth, fifth, 0L);
    return result < 0 ? -errno : result;
}
#endif

/* PLAIN(name, arguments...): at most five, numbers or pointers; those left out are 0. */
#define PLAIN(name, ...) PLAIN_OF_FIVE(SYS_##name, __VA_ARGS__, 0, 0, 0, 0, 0)
#define PLAIN_OF_FIVE(number, first, second, third, fourth, fifth, ...)                           \
    plain_call(number, (long)(first), (long)(second), (long)(third), (long)(fourth), (long)(fifth))

#endif
