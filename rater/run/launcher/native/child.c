/* A copy before its program begins: bound, its files open, waiting at the gate, and then executed
   as whoever called rater would have: priority, slack, signals and limits are what rater was given. */
#include "launcher.h"

#define PREFERRED 1
#define LOCAL 4
#define PREFERRED_MANY 5
#define MODE_FLAGS (7 << 13) /* linux/mempolicy.h: or-ed to the mode */
#define SHELL "/bin/sh"
#define LOOKED_AT 80 /* bytes of a file without a known format: text is for the shell, as in bash */

static struct {
    pid_t launcher;
    sigset_t blocked;
    struct sigaction on_child;
    int slack;
    unsigned long long locks;
} origin;

/* Takes note of what the launcher was given, before it changes anything of its own. */
void remember_origin(unsigned long long locks) {
    origin.launcher = getpid();
    origin.locks = locks;
    origin.slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    sigprocmask(SIG_SETMASK, NULL, &origin.blocked);
    sigaction(SIGCHLD, NULL, &origin.on_child);
}

static int64_t clock_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int64_t now_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

static _Noreturn void give_up(struct slot *slot, int stage, int error) {
    slot->error = error;
    __atomic_store_n(&slot->stage, stage, __ATOMIC_RELEASE);
    _exit(stage == EXECUTE && error != ENOENT ? 126 : 127);
}

static const char *text(struct view table, uint32_t offset) {
    return offset < table.size ? table.bytes + offset : "";
}

/* Returns the strings of lists as exec takes them, behind `before` free places. */
static char **words(struct view table, const uint32_t *lists, int count, int before) {
    uint64_t total = 0;
    uint32_t room[2] = {0};
    for (int i = 0; i < count; i++)
        if (lists[i] % 4 == 0 && lists[i] <= table.size - 4)
            total += room[i] = *(const uint32_t *)(table.bytes + lists[i]);
    char **found = total > table.size ? NULL : calloc(before + total + 1, sizeof *found);
    if (!found)
        _exit(127);
    char **next = found + before;
    for (int i = 0; i < count; i++) {
        uint32_t at = lists[i] + 4;
        for (; room[i] && at < table.size; room[i]--, at += (uint32_t)strlen(table.bytes + at) + 1)
            *next++ = (char *)table.bytes + at;
    }
    return found;
}

/* Copies a mask of a table, zeros behind it; tells whether there is one. */
int find_mask(struct view table, uint32_t offset, unsigned char *bytes) {
    memset(bytes, 0, MASK_BYTES);
    if (offset == NOTHING || offset % 4 || offset > table.size - 4)
        return 0;
    uint32_t count = *(const uint32_t *)(table.bytes + offset);
    if (count > MASK_BYTES || count > table.size - offset - 4)
        return 0;
    memcpy(bytes, table.bytes + offset + 4, count);
    return 1;
}

static void bind_memory(struct view table, const struct entry *entry, struct slot *slot) {
    unsigned char wanted[MASK_BYTES], got[MASK_BYTES] = {0};
    int mode = entry->policy, given = 0;
    if (mode < 0)
        return;
    int some = find_mask(table, entry->nodes, wanted);
    void *nodes = some ? wanted : NULL;
    unsigned long bits = some ? MASK_BYTES * 8 + 1 : 0; /* the kernel takes one fewer */
    if (syscall(SYS_set_mempolicy, mode, nodes, bits) &&
        (mode != PREFERRED_MANY || errno != EINVAL ||
         syscall(SYS_set_mempolicy, PREFERRED, nodes, bits)))
        give_up(slot, MEMORY, errno);
    if (syscall(SYS_get_mempolicy, &given, got, MASK_BYTES * 8 + 1UL, NULL, 0UL))
        give_up(slot, MEMORY, errno);
    given &= ~MODE_FLAGS;
    /* Before Linux 5.14 what is local is read back as preferred. */
    int same = given == mode || (given == PREFERRED && (mode == LOCAL || mode == PREFERRED_MANY));
    if (!same || memcmp(wanted, got, MASK_BYTES)) {
        memcpy(slot->given, got, TEXT_BYTES);
        give_up(slot, MEMORY_GIVEN, given);
    }
}

static void open_output(struct slot *slot, int fd, const char *path, int stage) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0 || dup2(file, fd) < 0)
        give_up(slot, stage, errno);
}

static void restore_signals(void) {
    /* Python ignores two for itself. glibc's posix_spawn ignores two of threads, and hides them. */
    const int ignored[] = {SIGPIPE, SIGXFSZ, SIGSYS + 1, SIGSYS + 2};
    const unsigned long plain[8] = {0}; /* as the kernel has it */
    for (int i = 0; i < 4; i++)
        syscall(SYS_rt_sigaction, ignored[i], plain, NULL, _NSIG / 8);
    sigaction(SIGCHLD, &origin.on_child, NULL);
}

static _Noreturn void execute(struct slot *slot, char **argv, char **environment) {
    prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
    sigprocmask(SIG_SETMASK, &origin.blocked, NULL);
    execve(argv[0], argv, environment);
    int error = errno;
    char begin[LOOKED_AT];
    int file = error == ENOEXEC ? open(argv[0], O_RDONLY | O_CLOEXEC) : -1;
    ssize_t size = file < 0 ? -1 : read(file, begin, sizeof begin);
    if (size >= 0 && !memchr(begin, 0, size)) {
        argv[-1] = SHELL; /* a script that does not say what runs it */
        execve(SHELL, argv - 1, environment);
    }
    give_up(slot, EXECUTE, error);
}

_Noreturn void child(struct view table, const struct entry *entry, struct slot *slot,
                     struct gate gate) {
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != origin.launcher || setpgid(0, 0))
        give_up(slot, GROUP, errno);
    if (origin.slack > 0)
        prctl(PR_SET_TIMERSLACK, (unsigned long)origin.slack, 0, 0, 0);
    bind_memory(table, entry, slot);
    if (entry->transparent >= 0 &&
        prctl(PR_SET_THP_DISABLE, entry->transparent ? 0UL : 1UL, 0UL, 0UL, 0UL))
        give_up(slot, PAGES, errno);
    struct rlimit locks;
    getrlimit(RLIMIT_LOCKS, &locks);
    locks.rlim_cur = origin.locks;
    if (setrlimit(RLIMIT_LOCKS, &locks))
        give_up(slot, LIMITS, errno);
    if (chdir(text(table, entry->directory)))
        give_up(slot, DIRECTORY, errno);
    open_output(slot, 1, text(table, entry->output), OUTPUT);
    open_output(slot, 2, text(table, entry->error), ERROR);
    if (entry->flags & REPORTS)
        dup2(gate.reports, REPORT_FD);
    const uint32_t variables[] = {entry->shared, entry->own};
    char **argv = words(table, &entry->argv, 1, 1) + 1, **environment = words(table, variables, 2, 0);
    restore_signals(); /* all are blocked until it begins */
    if (entry->flags & PROOF)
        read_schedstat("/proc/self/schedstat", &slot->figures.gate_cpu_ns,
                       &slot->figures.gate_delay_ns);
    struct rusage own;
    getrusage(RUSAGE_SELF, &own);
    slot->figures.gate_peak_bytes = own.ru_maxrss * 1024LL;
    slot->figures.gate_cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    /* Either we see that it waits for us, or it sees that we are ready: `await_ready`. */
    __atomic_store_n(&slot->ready, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(gate.awaited, __ATOMIC_SEQ_CST) == entry->token)
        kill(origin.launcher, SIGCHLD);
    while (__atomic_load_n(gate.word, __ATOMIC_ACQUIRE) == gate.closed)
        syscall(SYS_futex, gate.word, FUTEX_WAIT, gate.closed, NULL, NULL, 0);
    execute(slot, argv, environment);
}

/* Reads a file of /proc in one piece; returns its bytes, or -1. */
int read_small(const char *path, char *bytes, size_t size) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t got = read(file, bytes, size - 1);
    close(file);
    if (got >= 0)
        bytes[got] = 0;
    return (int)got;
}

/* Reads what the scheduler counts of a thread; -1 where it does not. */
void read_schedstat(const char *path, int64_t *cpu_ns, int64_t *delay_ns) {
    char line[128], *end;
    *cpu_ns = *delay_ns = -1;
    if (read_small(path, line, sizeof line) <= 0)
        return;
    long long cpu = strtoll(line, &end, 10), delay = strtoll(end, &end, 10);
    if (strtoll(end, NULL, 10) > 0) { /* slices: none is counted where it is switched off */
        *cpu_ns = cpu;
        *delay_ns = delay;
    }
}
