/* Looks at a copy and the processes below it: resident memory, and the times of all threads but the
   copy's first. Of that one they are known at its end; the others are gone by then, so their last
   look stands for them. What looks give is summed up here and told with the end: nobody has to be
   woken for a look. Appendix A of the page-size paper (J. Korn and others) gives mean and maximum
   of such looks.

   A look reads counters that the kernel keeps, 10 us a process and 3 us a thread. It walks no page
   tables and waits for no lock of a copy's memory, as numa_maps does: rater reads that. */
#include "launcher.h"

#include <dirent.h>

#define MOST_LOOKED 16   /* processes of one copy */
#define MOST_THREADS 130 /* of one process, with . and .. of its folder */
#define STATUS_BYTES (1 << 16) /* supplementary groups come before the memory, and may be many */
#define FOLDER_BYTES 4096      /* 128 threads have so much */
#define CHILDREN_BYTES 256     /* more than MOST_LOOKED numbers have */
#define FIRST_NS 1000000000LL  /* least time between two looks, and most */
#define LONGEST_NS 8000000000LL

struct thread_times { /* of schedstat */
    pid_t thread;
    int64_t cpu_ns, delay_ns;
};

static struct { /* what the look that goes on has seen */
    pid_t tree[MOST_LOOKED];
    unsigned processes, threads;
    int64_t private_bytes, shared_bytes; /* shared: as much as the process has that has most */
    bool is_stopped;
    struct thread_times times[MOST_LOOKED * MOST_THREADS];
} sight;

static int64_t status_number(const char *status, const char *name) {
    const char *line = strstr(status, name);
    return line ? strtoll(line + strlen(name), NULL, 10) : 0;
}

/* Adds the memory of a process. Returns how many threads it has; 0: it is gone. */
static int64_t add_memory(pid_t pid) {
    static char status[STATUS_BYTES];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    if (read_small(path, status, sizeof status) <= 0)
        return 0;
    int64_t shared = status_number(status, "\nRssFile:") + status_number(status, "\nRssShmem:");
    int64_t all = status_number(status, "\nVmRSS:") + status_number(status, "\nHugetlbPages:");
    sight.private_bytes += all > shared ? (all - shared) * 1024 : 0;
    if (shared * 1024 > sight.shared_bytes)
        sight.shared_bytes = shared * 1024;
    const char *state = strstr(status, "\nState:\t");
    if (pid == sight.tree[0] && state)
        sight.is_stopped = strchr("Tt", state[sizeof "\nState:\t" - 1]) != NULL;
    return status_number(status, "\nThreads:");
}

static void add_thread(pid_t pid, pid_t thread) {
    char path[64];
    struct thread_times *times = &sight.times[sight.threads];
    if (thread == sight.tree[0])
        return;
    snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", pid, thread);
    times->thread = thread;
    read_schedstat(path, &times->cpu_ns, &times->delay_ns);
    sight.threads += times->cpu_ns >= 0;
}

/* Adds the threads of a process, as many as one small piece of their folder has: a larger one would
   take long. Returns false once the copy has ended. */
static bool add_threads(pid_t pid, bool (*goes_on)(void)) {
    char path[64];
    _Alignas(struct dirent64) static char files[FOLDER_BYTES];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long size = folder < 0 ? 0 : syscall(SYS_getdents64, folder, files, sizeof files);
    close(folder);
    bool runs = true;
    for (long place = 0, count = 0; runs && place < size && count < MOST_THREADS; count++) {
        const struct dirent64 *file = (const struct dirent64 *)(files + place);
        place += file->d_reclen;
        if (file->d_name[0] == '.')
            continue;
        add_thread(pid, atoi(file->d_name));
        runs = goes_on();
    }
    return runs;
}

/* Adds the children of a process's first thread to the tree. */
static void add_children(pid_t pid) {
    char path[64], text[CHILDREN_BYTES], *rest = text;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
    if (read_small(path, text, sizeof text) <= 0)
        return; /* it has ended, or this kernel does not tell */
    for (pid_t child; sight.processes < MOST_LOOKED && (child = (pid_t)strtol(rest, &rest, 10));)
        sight.tree[sight.processes++] = child;
}

/* Tells whether this look has seen a thread. The order of two looks is nearly the same: `near` is
   the place behind the thread that was found before. */
static bool has_thread(pid_t thread, unsigned *near) {
    for (unsigned tried = 0; tried < sight.threads; tried++) {
        unsigned place = (*near + tried) % sight.threads;
        if (sight.times[place].thread == thread) {
            *near = place + 1;
            return true;
        }
    }
    return false;
}

/* Keeps the times of threads: the last ones of those that are gone, too. */
static void keep_threads(struct looks *looks, struct figures *figures) {
    unsigned near = 0, most = sight.threads > looks->threads ? sight.threads : looks->threads;
    struct thread_times *times = most ? realloc(looks->times, most * sizeof *times) : NULL;
    if (!times) /* there are none, or what was seen before stands */
        return;
    looks->times = times;
    for (unsigned i = 0; i < looks->threads; i++) {
        if (!has_thread(times[i].thread, &near)) {
            looks->gone_cpu_ns += times[i].cpu_ns;
            looks->gone_delay_ns += times[i].delay_ns;
        }
    }
    looks->threads = sight.threads;
    figures->other_cpu_ns = looks->gone_cpu_ns;
    figures->other_delay_ns = looks->gone_delay_ns;
    for (unsigned i = 0; i < sight.threads; i++) {
        times[i] = sight.times[i];
        figures->other_cpu_ns += times[i].cpu_ns;
        figures->other_delay_ns += times[i].delay_ns;
    }
}

/* Keeps a look, which stands for the time since the one before. */
static void keep(struct looks *looks, struct figures *figures, int64_t at_ns) {
    int64_t bytes = sight.private_bytes + sight.shared_bytes;
    int64_t all_ns = at_ns - figures->start_ns, since_ns = all_ns - looks->looked_ns;
    if (!bytes || all_ns <= 0)
        return;
    double change = (double)(bytes - figures->mean_bytes) * (double)since_ns / (double)all_ns;
    figures->mean_bytes += (int64_t)change;
    figures->most_bytes = bytes > figures->most_bytes ? bytes : figures->most_bytes;
    figures->stopped_ns += sight.is_stopped ? since_ns : 0;
    figures->looks++;
    looks->looked_ns = all_ns;
    keep_threads(looks, figures);
}

static int64_t used_ns(void) {
    struct timespec used = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return used.tv_sec * 1000000000LL + used.tv_nsec;
}

/* Sets when the next look is due: after half the age of a copy, and each FIRST_NS while it has
   threads, of which each look may be the last. */
static void set_next(struct looks *looks, int64_t start_ns, int64_t now) {
    while (looks->next_ns <= now) {
        int64_t wait_ns = looks->times ? 0 : (looks->next_ns - start_ns) / 2;
        wait_ns = wait_ns < FIRST_NS ? FIRST_NS : wait_ns;
        looks->next_ns += wait_ns < LONGEST_NS ? wait_ns : LONGEST_NS;
    }
}

void look_at(pid_t pid, struct looks *looks, struct figures *figures, bool (*goes_on)(void)) {
    int64_t at_ns = now_ns(), begin_ns = used_ns();
    bool runs = true;
    sight.tree[0] = pid;
    sight.processes = 1;
    sight.threads = 0;
    sight.private_bytes = sight.shared_bytes = 0;
    sight.is_stopped = false;
    for (unsigned i = 0; runs && i < sight.processes; i++) { /* it grows */
        int64_t threads = add_memory(sight.tree[i]);
        if (threads > 1)
            runs = add_threads(sight.tree[i], goes_on);
        else if (threads)
            add_thread(sight.tree[i], sight.tree[i]);
        if (threads && runs)
            add_children(sight.tree[i]);
        runs = runs && goes_on();
    }
    if (!runs)
        return; /* the copy has ended, and what was kept of it is told */
    keep(looks, figures, at_ns);
    set_next(looks, figures->start_ns, at_ns);
    figures->look_cpu_ns += used_ns() - begin_ns;
}
