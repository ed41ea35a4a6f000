/* The launcher: parent, subreaper and watchdog of the copies of one run.

   `rater-launcher SOCKET PROCESSES MARK LOCKS CGROUP`: so many processes at most, copies and those
   that wait to follow them; the soft limit of file locks that marks all that rater starts, and the
   one to give back to copies; the run's cgroup, which it is in, or "".

   It forks from its own small memory, holds every child at a gate, stamps releases and ends at
   real-time priority where that is allowed, and says what happened in records. It has no state
   beyond its processes: when the socket ends without GOODBYE, rater has died, and all is killed. */
#include "launcher.h"

#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>

/* Whoever waits cannot tell a late wake-up: so it looks this often, and where that comes late by
   more, it did not run itself: stopped, without a CPU, or the machine was paused. */
#define BEAT_NS 250000000LL
#define LATE_NS 750000000LL /* a full machine, a slow virtual one: half a second was seen */
#define GATHER_NS 20000000LL /* ends come in bursts, and are stamped: rater is woken once for many */
#define BURST 3             /* ends handled one by one before all that have ended are stamped */
#define MOST_TABLE (1u << 30)
#define MOST_BACKLOG 5000 /* records that rater has not taken: reports wait */
#define MOST_PROCESSES (1u << 20)
#define MOST_REPORTS 512 /* pieces, of what a pipe holds: a flood does not hold back an end */
#define NEVER INT64_MAX

enum { FREE, SPAWNED, WAITING, DUE, RUNNING }; /* WAITING: it is at its gate, and that is said */

struct process {
    pid_t pid;
    uint32_t token, after, copy, flags;
    int state, shares, asked; /* shares: the gate of all; asked: that it is ready is to be said */
    int64_t due_ns, ended_ns; /* due: from the release, until that is done */
    unsigned char accepted[256 / 8];
    struct slot slot;
};

struct last { /* of a copy: which of its processes ended, and how */
    uint32_t token;
    int well;
};

#define EACH(it) for (struct process *it = processes; it < processes + used; it++)

/* Memory of these is shared with children: most do not use it, but then forks are quicker. */
static struct process *processes;
static pid_t *pids; /* by place; 0: that is free */
static struct last *last;
static uint32_t *opened;  /* how often the gate of all was opened */
static uint32_t *awaited; /* token of the process that wakes us when it is ready */
static unsigned capacity, used, running, followers, asked;
static int rater_fd, reports[2];
static int64_t seen_ns; /* what had ended until then is known */
static int64_t due_ns = NEVER, flush_ns = NEVER;
static struct { /* records on their way to rater */
    struct record *records;
    size_t size, room, at;
} out;

static _Noreturn void die(const char *what) {
    perror(what);
    _exit(2);
}

static void *shared_memory(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        die("memory");
    return memory;
}

static struct record *say(int kind, const struct process *process, int64_t at_ns) {
    if (out.size == out.room) {
        out.room = 2 * (out.room + MOST_RECORDS);
        out.records = realloc(out.records, out.room * sizeof *out.records);
        if (!out.records)
            die("memory");
    }
    struct record *record = &out.records[out.size++];
    *record = (struct record){.kind = kind, .at_ns = at_ns};
    if (process) {
        record->token = process->token;
        record->pid = process->pid;
    }
    int waits = (kind == ENDED || kind == REPORT) && running && !followers;
    if (!waits || flush_ns == NEVER)
        flush_ns = waits ? now_ns() + GATHER_NS : 0;
    return record;
}

static struct record *say_broken(const struct process *process, int stage, int error) {
    struct record *record = say(BROKEN, process, now_ns());
    record->status = stage;
    record->error = error;
    return record;
}

/* Sends what does not wait; tells whether some is left that rater has no room for. */
static int flush(int64_t now) {
    while (out.at < out.size && flush_ns <= now) {
        size_t count = out.size - out.at < MOST_RECORDS ? out.size - out.at : MOST_RECORDS;
        if (send(rater_fd, &out.records[out.at], count * sizeof *out.records,
                 MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            return 1;
        out.at += count;
    }
    if (out.at == out.size) {
        out.at = out.size = 0;
        flush_ns = NEVER;
    }
    return 0;
}

/* -- Begin: one process, or all that wait at the gate of all ------------------------------------ */

/* Says no more, and waits no more, that a process is ready. */
static void answer(struct process *process) {
    asked -= process->asked;
    process->asked = 0;
}

static void started(struct process *process, int64_t now, int64_t planned_ns) {
    answer(process);
    followers -= process->after != 0;
    process->state = RUNNING;
    process->slot.figures.start_ns = now;
    process->slot.figures.planned_ns = planned_ns;
    if (!running++)
        seen_ns = now;
}

static void begin(struct process *process, int64_t planned_ns) {
    int64_t now = now_ns();
    __atomic_store_n(&process->slot.go, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &process->slot.go, FUTEX_WAKE, 1, NULL, NULL, 0);
    started(process, now, planned_ns);
    say(STARTED, process, now)->figures = process->slot.figures;
}

/* Begins a process whose predecessor has ended, or discards it. */
static void follow(struct process *process) {
    const struct last *before = &last[process->copy];
    if (!process->after || process->flags & HELD || process->state == RUNNING ||
        before->token != process->after)
        return;
    if (process->flags & WELL && !before->well)
        kill(process->pid, SIGKILL);
    else
        begin(process, 0);
}

static void release(void) {
    int64_t now = now_ns();
    __atomic_add_fetch(opened, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, opened, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
    EACH(it) {
        if ((it->state != SPAWNED && it->state != WAITING) || it->after)
            continue;
        it->state = DUE;
        it->due_ns += now;
        if (it->shares)
            started(it, now, now);
        else if (it->due_ns < due_ns)
            due_ns = it->due_ns;
    }
    say(RELEASED, NULL, now);
}

static void begin_due(void) {
    if (due_ns > now_ns())
        return;
    due_ns = NEVER;
    EACH(it)
        if (it->state == DUE && it->due_ns <= now_ns())
            begin(it, it->due_ns);
        else if (it->state == DUE && it->due_ns < due_ns)
            due_ns = it->due_ns;
}

static int is_ready(const struct process *process) {
    return (int)__atomic_load_n(&process->slot.ready, __ATOMIC_SEQ_CST);
}

/* Waits for one process at a time: the last that is not ready, as most are ready before it. Tells
   whether one is on its way that follows nobody. Either we see that it is ready, or it sees that we
   wait for it; and when it dies, that wakes us too. */
static int await_ready(void) {
    int some = 0;
    struct process *last_one = NULL;
    EACH(it)
        if (it->asked && !is_ready(it)) {
            some |= !it->after;
            last_one = it;
        }
    if (!last_one)
        return 0;
    __atomic_store_n(awaited, last_one->token, __ATOMIC_SEQ_CST);
    return is_ready(last_one) ? await_ready() : some;
}

/* Says of all that are at their gates that they are, once none is on its way there. */
static void say_ready(void) {
    if (!asked || await_ready())
        return;
    EACH(it)
        if (it->asked && is_ready(it)) {
            answer(it);
            it->state = WAITING;
            say(READY, it, now_ns());
        }
}

/* -- Ends: stamped, looked at as zombies, their groups killed, and reaped ------------------------- */

static void look_at_zombie(pid_t pid, struct figures *figures) {
    char path[64], line[1024], *field;
    snprintf(path, sizeof path, "/proc/%d/schedstat", pid);
    read_schedstat(path, &figures->cpu_ns, &figures->delay_ns);
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (read_small(path, line, sizeof line) <= 0 || !(field = strrchr(line, ')')))
        return;
    for (int n = 2; field && n < 39; n++) /* proc_pid_stat(5) */
        field = strchr(field + 1, ' ');
    if (field)
        figures->last_cpu = atoi(field);
}

/* Hands on a piece of what scripts report of their commands, with the time; tells whether any. */
static int hear_reports(void) {
    char text[TEXT_BYTES];
    ssize_t got = read(reports[0], text, sizeof text);
    if (got > 0) {
        struct record *record = say(REPORT, NULL, now_ns());
        record->status = (int32_t)got;
        memcpy(record->text, text, (size_t)got);
    }
    return got > 0;
}

static void ended(struct process *process, int64_t at_ns, int64_t stalled_ns, int by_signal) {
    struct figures found = process->slot.figures;
    found.stalled_ns = stalled_ns;
    if (stalled_ns)
        found.seen_ns = seen_ns > found.start_ns ? seen_ns : found.start_ns;
    if (process->flags & PROOF)
        look_at_zombie(process->pid, &found);
    for (int n = 0; process->flags & REPORTS && n < MOST_REPORTS && hear_reports(); n++)
        ; /* what it reported comes before its end */
    if (by_signal) {
        prlimit(process->pid, RLIMIT_CPU, NULL, &found.cpu_limit);
        prlimit(process->pid, RLIMIT_FSIZE, NULL, &found.file_limit);
    }
    struct rusage usage;
    int status = 0;
    kill(-process->pid, SIGKILL); /* as long as it is a zombie the number is no other group's */
    wait4(process->pid, &status, 0, &usage);
    found.left = kill(-process->pid, 0) == 0;
    found.user_ns = usage.ru_utime.tv_sec * 1000000000LL + usage.ru_utime.tv_usec * 1000LL;
    found.system_ns = usage.ru_stime.tv_sec * 1000000000LL + usage.ru_stime.tv_usec * 1000LL;
    found.peak_bytes = usage.ru_maxrss * 1024LL;
    found.minor_faults = usage.ru_minflt;
    found.major_faults = usage.ru_majflt;
    found.voluntary = usage.ru_nvcsw;
    found.involuntary = usage.ru_nivcsw;
    const struct slot *slot = &process->slot;
    if (slot->stage)
        memcpy(say_broken(process, slot->stage, slot->error)->text, slot->given, TEXT_BYTES);
    if (process->state == RUNNING) {
        running--;
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        int well = code >= 0 && process->accepted[code / 8] >> code % 8 & 1;
        last[process->copy] = (struct last){process->token, well};
    } else
        followers -= process->after != 0;
    struct record *record = say(ENDED, process, at_ns);
    record->status = status;
    record->figures = found;
    answer(process);
    process->state = FREE;
    pids[process - processes] = 0;
    if (followers)
        EACH(it)
            if (it->state != FREE && it->after == process->token)
                follow(it);
}

static struct process *of_pid(pid_t pid) {
    for (unsigned at = 0; at < used; at++)
        if (pids[at] == pid)
            return &processes[at];
    return NULL;
}

/* Stamps all that have ended, before the first of them is handled; returns how many. */
static int stamp(int64_t now) {
    siginfo_t info;
    int stamped = 0;
    EACH(it) {
        info.si_pid = 0;
        if (it->state == RUNNING && !it->ended_ns &&
            !waitid(P_PID, (id_t)it->pid, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid) {
            it->ended_ns = now;
            stamped++;
        }
    }
    return stamped;
}

static void reap(int64_t stalled_ns) {
    siginfo_t info;
    for (int one_by_one = BURST;; one_by_one--) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid)
            return;
        int64_t now = now_ns();
        if (!one_by_one)
            one_by_one = BURST + stamp(now);
        struct process *process = of_pid(info.si_pid);
        if (process)
            ended(process, process->ended_ns ? process->ended_ns : now, stalled_ns,
                  info.si_code != CLD_EXITED);
        else /* what a copy had left, whose parent we became */
            waitpid(info.si_pid, NULL, 0);
    }
}

/* Takes all ends, and says so where they may have been due for long: it did not run itself. */
static void look(int64_t now) {
    int64_t stalled = running ? now - seen_ns - BEAT_NS : 0;
    if (stalled > LATE_NS)
        say(STALLED, NULL, stalled);
    reap(stalled > LATE_NS ? stalled : 0);
    seen_ns = now;
}

/* -- Requests -------------------------------------------------------------------------------------- */

/* Forks one process where it is to run, so that it is not moved; `own`: the CPUs that rater was given,
   `at`: those that the launcher has by now. Tells whether that went well. */
static int spawn(struct view table, const struct entry *entry, const unsigned char *own,
                 unsigned char *at) {
    static unsigned place;
    struct process born = {.token = entry->token, .after = entry->after, .copy = entry->copy,
                           .flags = entry->flags, .state = SPAWNED, .due_ns = entry->offset_ns,
                           .shares = !entry->after && !entry->offset_ns,
                           .asked = !entry->after || entry->flags & HELD,
                           .slot = {.figures = {.cpu_ns = -1, .delay_ns = -1, .last_cpu = -1,
                                                .cpu_limit = {-1UL, -1UL},
                                                .file_limit = {-1UL, -1UL}}}};
    unsigned char wanted[MASK_BYTES];
    unsigned tried = 0;
    for (; tried < capacity && pids[place]; tried++)
        place = (place + 1) % capacity;
    if (tried == capacity || entry->copy >= capacity)
        return !say_broken(&born, FORKED, EAGAIN);
    if (!find_mask(table, entry->cpus, wanted))
        memcpy(wanted, own, MASK_BYTES);
    if (memcmp(wanted, at, MASK_BYTES)) {
        if (sched_setaffinity(0, MASK_BYTES, (cpu_set_t *)wanted))
            return !say_broken(&born, CPUS, errno);
        memset(at, 0, MASK_BYTES);
        sched_getaffinity(0, MASK_BYTES, (cpu_set_t *)at);
        if (memcmp(wanted, at, MASK_BYTES))
            return !memcpy(say_broken(&born, CPUS_GIVEN, 0)->text, at, TEXT_BYTES);
    }
    find_mask(table, entry->accepted, wanted);
    memcpy(born.accepted, wanted, sizeof born.accepted);
    struct process *process = &processes[place];
    *process = born;
    struct gate gate = {born.shares ? opened : &process->slot.go, born.shares ? *opened : 0, awaited,
                        reports[1]};
    pid_t pid = fork();
    if (!pid)
        child(table, entry, &process->slot, gate);
    if (pid < 0) {
        process->state = FREE;
        return !say_broken(&born, FORKED, errno);
    }
    setpgid(pid, pid); /* as the child does: whoever is first */
    process->pid = pids[place] = pid; /* not before: the child shares this memory */
    used = used > place ? used : place + 1;
    asked += born.asked;
    followers += born.after != 0;
    follow(process);
    return 1;
}

static void start_all(struct view table) {
    const struct table *head = (const struct table *)table.bytes;
    const struct entry *entries = (const struct entry *)(head + 1);
    unsigned char own[MASK_BYTES] = {0}, at[MASK_BYTES];
    if (head->format != FORMAT || table.bytes[table.size - 1] ||
        head->entries > (table.size - sizeof *head) / sizeof *entries) {
        say_broken(NULL, 0, EBADMSG);
        return;
    }
    sched_getaffinity(0, MASK_BYTES, (cpu_set_t *)own);
    memcpy(at, own, MASK_BYTES);
    for (uint32_t i = 0; i < head->entries && spawn(table, &entries[i], own, at); i++) {
        if (running) /* as many take long */
            look(now_ns());
        begin_due();
    }
    if (memcmp(at, own, MASK_BYTES))
        sched_setaffinity(0, MASK_BYTES, (cpu_set_t *)own);
    say_ready();
}

static void start(int file) {
    struct stat status = {0};
    fstat(file, &status);
    size_t size = (size_t)status.st_size;
    void *memory = size < sizeof(struct table) || size > MOST_TABLE
                       ? MAP_FAILED
                       : mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (memory == MAP_FAILED) {
        say_broken(NULL, 0, EBADMSG);
        return;
    }
    start_all((struct view){memory, (uint32_t)size});
    munmap(memory, size);
}

static void send_signal(const struct process *process, int number) {
    kill(-process->pid, number);
    /* And to itself, where it has left that group. */
    if (kill(process->pid, getpgid(process->pid) == process->pid ? 0 : number) && errno == EPERM)
        say(REFUSED, process, now_ns());
}

static void handle(struct request request, int file) {
    if (request.kind == START)
        start(file);
    else if (request.kind == RELEASE)
        release();
    EACH(it) {
        int meant = it->token == request.token;
        if (it->state == FREE)
            continue;
        if (request.kind == ALLOW && meant) {
            it->flags &= ~HELD;
            follow(it);
        } else if (request.kind == SIGNAL && meant)
            send_signal(it, request.value);
        else if (request.kind == DISCARD && it->state != RUNNING && (meant || !request.token))
            kill(it->pid, SIGKILL);
    }
}

/* Takes a message of rater's, requests or one with the table of START; returns 1 as long as there
   are more to come, else 0 or, where something is to be hunted, -1. */
static int listen_to_rater(void) {
    struct request requests[MOST_RECORDS];
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec into = {requests, sizeof requests};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    ssize_t got = recvmsg(rater_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 1;
    int file = -1, more = got > 0 ? 1 : -1;
    if (message.msg_controllen >= CMSG_LEN(sizeof file))
        memcpy(&file, CMSG_DATA(&control.head), sizeof file);
    for (size_t i = 0; more > 0 && i < (size_t)got / sizeof *requests; i++) {
        handle(requests[i], file);
        if (requests[i].kind == GOODBYE)
            more = requests[i].value ? -1 : 0;
    }
    close(file);
    return more;
}

/* -- The launcher's own life --------------------------------------------------------------------- */

static void wake(int number) {
    (void)number; /* it has ended `ppoll`, and does no more */
}

static void settle(void) {
    sigset_t every;
    struct sigaction wakes = {.sa_handler = wake, .sa_flags = SA_NOCLDSTOP};
    sigfillset(&every);
    sigprocmask(SIG_SETMASK, &every, NULL);
    sigaction(SIGCHLD, &wakes, NULL);
    if (pipe2(reports, O_CLOEXEC) ||
        (reports[1] = fcntl(reports[1], F_DUPFD_CLOEXEC, REPORT_FD + 1)) < 0)
        die("descriptors");
    fcntl(reports[0], F_SETFL, O_NONBLOCK);
    fcntl(rater_fd, F_SETFD, FD_CLOEXEC);
    setpgid(0, 0); /* Ctrl-C and Ctrl-Z at the terminal are for rater, */
    int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (terminal >= 0) { /* which copies are not to read: in our session, they have none */
        ioctl(terminal, TIOCNOTTY);
        close(terminal);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    struct sched_param first = {.sched_priority = 1};
    /* Left alone where the user chose a policy or niceness: copies are to inherit that. */
    if (sched_getscheduler(0) == SCHED_OTHER && getpriority(PRIO_PROCESS, 0) == 0)
        sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &first);
}

/* Serves rater until it says goodbye or dies; returns whether something is to be hunted then. */
static int serve(void) {
    sigset_t but_children;
    sigfillset(&but_children);
    sigdelset(&but_children, SIGCHLD);
    int more = 1;
    while (more > 0) {
        int64_t now = now_ns(), next_ns = running ? seen_ns + BEAT_NS : NEVER;
        int full = flush(now);
        next_ns = due_ns < next_ns ? due_ns : next_ns;
        next_ns = flush_ns < next_ns && !full ? flush_ns : next_ns;
        int64_t wait = next_ns > now ? next_ns - now : 0;
        struct timespec time = {.tv_sec = wait / 1000000000LL, .tv_nsec = wait % 1000000000LL};
        struct pollfd fds[] = {{rater_fd, POLLIN | (full ? POLLOUT : 0), 0},
                               {reports[0], out.size < MOST_BACKLOG ? POLLIN : 0, 0}};
        if (ppoll(fds, 2, next_ns == NEVER ? NULL : &time, &but_children) < 0 && errno != EINTR)
            die("poll");
        begin_due();
        look(now_ns());
        say_ready();
        if (fds[1].revents & POLLIN)
            hear_reports();
        if (fds[0].revents & ~POLLOUT)
            more = listen_to_rater();
    }
    return more < 0;
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "rater-launcher: started by rater alone\n");
        return 2;
    }
    rater_fd = atoi(argv[1]);
    capacity = (unsigned)strtoul(argv[2], NULL, 10);
    if (!capacity || capacity > MOST_PROCESSES)
        die("processes");
    struct prey prey = {strtoull(argv[3], NULL, 10), argv[5]};
    remember_origin(strtoull(argv[4], NULL, 10));
    processes = shared_memory(capacity * sizeof *processes);
    pids = shared_memory(capacity * sizeof *pids);
    last = shared_memory(capacity * sizeof *last);
    opened = shared_memory(2 * sizeof *opened);
    awaited = opened + 1;
    settle();
    say(HELLO, NULL, now_ns())->status = FORMAT;
    if (serve())
        hunt(&prey);
    return 0;
}
