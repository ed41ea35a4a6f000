/* The launcher: parent, subreaper and watchdog of the copies of one run.

   `rater-launcher SOCKET PROCESSES MARK LOCKS CGROUP`: so many processes at most, copies and those
   that wait to follow them; the soft limit of file locks that marks all that rater starts, and the
   one to give back to copies; the run's cgroup, which it is in, or "".

   It forks from its own small memory, holds every child at a gate, stamps releases and ends at
   real-time priority where that is allowed, and says what happened in records. It has no state
   beyond its processes: when the socket ends without GOODBYE, rater has died, and all is killed. */
#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* Whoever waits cannot tell a late wake-up: so it looks this often, and where that comes late by
   more, it did not run itself: stopped, without a CPU, or the machine was paused. */
#define BEAT_NS 250000000LL
#define LATE_NS 750000000LL /* a full machine, a slow virtual one: half a second was seen */
#define BURST 3             /* ends handled one by one before all that have ended are stamped */
#define MOST_REQUEST (1u << 30)
#define MOST_BACKLOG (1u << 20) /* bytes of records that rater has not taken: reports wait */
#define MOST_PROCESSES (1u << 20)
#define MOST_REPORTS 512 /* pieces, of what a pipe holds: a flood does not hold back an end */

enum { FREE, SPAWNED, WAITING, DUE, RUNNING }; /* WAITING: it is at its gate, and that is said */

struct process {
    pid_t pid;
    uint32_t token, after, copy, flags;
    int state, shares; /* shares: the gate of all */
    int64_t offset_ns, planned_ns, start_ns, ended_ns;
    unsigned char accepted[256 / 8];
};

struct last { /* of a copy: which of its processes ended, and how */
    uint32_t token;
    int well;
};

struct shared {
    uint32_t opened; /* how often the gate of all was opened */
    struct slot slots[];
};

struct bytes {
    char *data;
    size_t size, room, at;
};

#define EACH(it) for (struct process *it = processes; it < processes + capacity; it++)

static struct process *processes;
static struct last *last;
static struct shared *shared;
static unsigned capacity, running;
static int rater_fd, children_fd, ready_fd, reports[2];
static int64_t seen_ns; /* what had ended until then is known */
static struct bytes in, out;

static _Noreturn void die(const char *what) {
    perror(what);
    _exit(2);
}

static void *grown(struct bytes *buffer, size_t more) {
    if (buffer->size + more > buffer->room) {
        buffer->room = 2 * (buffer->size + more);
        buffer->data = realloc(buffer->data, buffer->room);
        if (!buffer->data)
            die("memory");
    }
    return buffer->data + buffer->size;
}

static struct record *say(int kind, const struct process *process, int64_t at_ns) {
    struct record *record = grown(&out, sizeof *record);
    memset(record, 0, sizeof *record);
    out.size += sizeof *record;
    record->kind = kind;
    record->at_ns = at_ns;
    if (process) {
        record->token = process->token;
        record->pid = process->pid;
    }
    return record;
}

static void flush(void) {
    while (out.at < out.size) {
        ssize_t done = send(rater_fd, out.data + out.at, out.size - out.at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (done < 0)
            break;
        out.at += done;
    }
    if (out.at == out.size)
        out.at = out.size = 0;
}

/* -- Begin: one process, or all that wait at the gate of all ------------------------------------ */

static void started(struct process *process, int64_t now, int64_t planned) {
    process->state = RUNNING;
    process->start_ns = now;
    process->planned_ns = planned;
    if (!running++)
        seen_ns = now;
}

static void begin(struct process *process, int64_t planned) {
    uint32_t *word = &shared->slots[process - processes].go;
    int64_t now = now_ns();
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
    started(process, now, planned);
    struct figures *figures = &say(STARTED, process, now)->figures;
    figures->start_ns = now;
    figures->planned_ns = planned;
}

/* Begins a process whose predecessor has ended, or discards it. */
static void follow(struct process *process) {
    if (!process->after || process->flags & HELD || process->state == RUNNING)
        return;
    const struct last *before = &last[process->copy];
    if (before->token != process->after)
        return;
    if (process->flags & WELL && !before->well)
        kill(process->pid, SIGKILL);
    else
        begin(process, 0);
}

static void release(void) {
    int64_t now = now_ns();
    __atomic_add_fetch(&shared->opened, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &shared->opened, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
    EACH(it) {
        if ((it->state != SPAWNED && it->state != WAITING) || it->after)
            continue;
        it->state = DUE;
        it->planned_ns = now + it->offset_ns;
        if (it->shares)
            started(it, now, now);
    }
    say(RELEASED, NULL, now);
}

/* Begins what is due, and returns when the next is: 0 where there is none. */
static int64_t begin_due(void) {
    int64_t next = 0;
    EACH(it)
        if (it->state == DUE && it->planned_ns <= now_ns())
            begin(it, it->planned_ns);
        else if (it->state == DUE && (!next || it->planned_ns < next))
            next = it->planned_ns;
    return next;
}

static int is_ready(const struct process *process) {
    return (int)__atomic_load_n(&shared->slots[process - processes].ready, __ATOMIC_ACQUIRE);
}

/* Says of all that are at their gates that they are, once none is on its way there. */
static void say_ready(void) {
    EACH(it)
        if (it->state == SPAWNED && !it->after && !is_ready(it))
            return;
    EACH(it)
        if (it->state == SPAWNED && (!it->after || it->flags & HELD) && is_ready(it)) {
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
    figures->last_cpu = -1;
    if (read_small(path, line, sizeof line) <= 0 || !(field = strrchr(line, ')')))
        return;
    for (int n = 2; field && n < 39; n++) /* proc_pid_stat(5) */
        field = strchr(field + 1, ' ');
    if (field)
        figures->last_cpu = atoi(field);
}

/* Reads the limits that a signal can be of. */
static void look_at_limits(pid_t pid, struct figures *figures) {
    siginfo_t info = {.si_code = CLD_EXITED};
    struct rlimit cpu = {-1UL, -1UL}, file = {-1UL, -1UL};
    waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT);
    if (info.si_code != CLD_EXITED) {
        prlimit(pid, RLIMIT_CPU, NULL, &cpu);
        prlimit(pid, RLIMIT_FSIZE, NULL, &file);
    }
    figures->soft_cpu_s = (int64_t)cpu.rlim_cur; /* RLIM_INFINITY: -1 */
    figures->hard_cpu_s = (int64_t)cpu.rlim_max;
    figures->soft_file_bytes = (int64_t)file.rlim_cur;
    figures->hard_file_bytes = (int64_t)file.rlim_max;
}

static void say_broken(struct process *process, struct slot *slot) {
    struct record *record = say(BROKEN, process, now_ns());
    record->status = slot->stage;
    record->error = slot->error;
    memcpy(record->text, slot->given, TEXT_BYTES);
}

/* Hands on a piece of what scripts report of their commands, with the time; tells whether any. */
static int hear_reports(void) {
    struct record *record = say(REPORT, NULL, now_ns());
    ssize_t got = read(reports[0], record->text, TEXT_BYTES);
    if (got > 0)
        record->status = (int32_t)got;
    else
        out.size -= sizeof *record;
    return got > 0;
}

static void ended(struct process *process, int64_t at_ns, int64_t stalled_ns) {
    struct slot *slot = &shared->slots[process - processes];
    struct figures found = {.cpu_ns = -1, .delay_ns = -1, .last_cpu = -1};
    struct rusage usage;
    int status = 0;
    if (process->flags & PROOF)
        look_at_zombie(process->pid, &found);
    for (int n = 0; process->flags & REPORTS && n < MOST_REPORTS && hear_reports(); n++)
        ; /* what it reported comes before its end */
    look_at_limits(process->pid, &found);
    kill(-process->pid, SIGKILL); /* as long as it is a zombie the number is no other group's */
    wait4(process->pid, &status, 0, &usage);
    found.left = kill(-process->pid, 0) == 0;
    if (slot->stage)
        say_broken(process, slot);
    found.start_ns = process->start_ns;
    found.planned_ns = process->planned_ns;
    found.stalled_ns = stalled_ns;
    if (stalled_ns)
        found.seen_ns = seen_ns > process->start_ns ? seen_ns : process->start_ns;
    found.gate_cpu_ns = slot->cpu_ns;
    found.gate_delay_ns = slot->delay_ns;
    found.gate_peak_bytes = slot->peak_bytes;
    found.user_ns = usage.ru_utime.tv_sec * 1000000000LL + usage.ru_utime.tv_usec * 1000LL;
    found.system_ns = usage.ru_stime.tv_sec * 1000000000LL + usage.ru_stime.tv_usec * 1000LL;
    found.peak_bytes = usage.ru_maxrss * 1024LL;
    found.minor_faults = usage.ru_minflt;
    found.major_faults = usage.ru_majflt;
    found.voluntary = usage.ru_nvcsw;
    found.involuntary = usage.ru_nivcsw;
    struct record *record = say(ENDED, process, at_ns);
    record->status = status;
    record->figures = found;
    if (process->state == RUNNING) {
        running--;
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        int well = code >= 0 && process->accepted[code / 8] >> code % 8 & 1;
        last[process->copy] = (struct last){process->token, well};
    }
    process->state = FREE;
    EACH(it)
        if (it->state != FREE && it->after == process->token)
            follow(it);
    say_ready(); /* it may have been the one that others were waited with for */
}

static struct process *of_pid(pid_t pid) { /* 0: a free place */
    EACH(it)
        if (it->state == FREE ? !pid : it->pid == pid)
            return it;
    return NULL;
}

/* Stamps all that have ended, before the first of them is handled. */
static void stamp(int64_t now) {
    siginfo_t info;
    EACH(it) {
        info.si_pid = 0;
        if (it->state == RUNNING && !it->ended_ns &&
            !waitid(P_PID, (id_t)it->pid, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid)
            it->ended_ns = now;
    }
}

static void reap(int64_t stalled_ns) {
    siginfo_t info;
    for (int handled = 0;; handled++) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid)
            return;
        int64_t now = now_ns();
        if (handled % 64 == BURST)
            stamp(now);
        struct process *process = of_pid(info.si_pid);
        if (process)
            ended(process, process->ended_ns ? process->ended_ns : now, stalled_ns);
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

static int say_not_forked(uint32_t token, int stage, int error) {
    struct process failed = {.token = token};
    struct record *record = say(BROKEN, &failed, now_ns());
    record->status = stage;
    record->error = error;
    return 0;
}

/* Forks one process where it is to run, so that it is not moved; `at`: the CPUs that the launcher
   has by now. Tells whether that went well. */
static int spawn(struct view table, const struct entry *entry, unsigned char *at) {
    struct process *process = of_pid(0);
    unsigned char wanted[MASK_BYTES];
    if (!process || entry->copy >= capacity)
        return say_not_forked(entry->token, FORKED, EAGAIN);
    if (find_mask(table, entry->cpus, wanted) && memcmp(wanted, at, MASK_BYTES)) {
        if (sched_setaffinity(0, MASK_BYTES, (cpu_set_t *)wanted))
            return say_not_forked(entry->token, CPUS, errno);
        memcpy(at, wanted, MASK_BYTES);
    }
    struct slot *slot = &shared->slots[process - processes];
    memset(slot, 0, sizeof *slot);
    *process = (struct process){.token = entry->token, .after = entry->after, .copy = entry->copy,
                                .flags = entry->flags, .offset_ns = entry->offset_ns,
                                .shares = !entry->after && !entry->offset_ns};
    find_mask(table, entry->accepted, wanted);
    memcpy(process->accepted, wanted, sizeof process->accepted);
    struct gate gate = {.word = process->shares ? &shared->opened : &slot->go,
                        .closed = process->shares ? shared->opened : 0,
                        .tell = ready_fd,
                        .reports = reports[1]};
    if (entry->after && !(entry->flags & HELD))
        gate.tell = -1;
    pid_t pid = fork();
    if (!pid)
        child(table, entry, slot, gate);
    if (pid < 0)
        return say_not_forked(entry->token, FORKED, errno);
    setpgid(pid, pid); /* as the child does: whoever is first */
    process->pid = pid;
    process->state = SPAWNED;
    follow(process);
    return 1;
}

static void start(struct view table) {
    const struct table *head = (const struct table *)table.bytes;
    const struct entry *entries = (const struct entry *)(head + 1);
    if (table.size < sizeof *head || head->format != FORMAT || table.bytes[table.size - 1] ||
        head->entries > (table.size - sizeof *head) / sizeof *entries) {
        struct record *record = say(BROKEN, NULL, now_ns());
        record->error = EBADMSG;
        return;
    }
    unsigned char own[MASK_BYTES] = {0}, at[MASK_BYTES];
    sched_getaffinity(0, MASK_BYTES, (cpu_set_t *)own);
    memcpy(at, own, MASK_BYTES);
    for (uint32_t i = 0; i < head->entries && spawn(table, &entries[i], at); i++)
        if (running) /* as many take long */
            look(now_ns());
    if (memcmp(at, own, MASK_BYTES))
        sched_setaffinity(0, MASK_BYTES, (cpu_set_t *)own);
}

static void send_signal(const struct process *process, int number) {
    kill(-process->pid, number);
    /* And to itself, where it has left that group. */
    if (kill(process->pid, getpgid(process->pid) == process->pid ? 0 : number) && errno == EPERM)
        say(REFUSED, process, now_ns());
}

/* Does what a request says; tells whether there are more to come. */
static int handle(const struct request *request, const char *data) {
    if (request->kind == START)
        start((struct view){data, request->size});
    else if (request->kind == RELEASE)
        release();
    else if (request->kind == GOODBYE)
        return 0;
    EACH(it) {
        int meant = it->token == request->token;
        if (it->state == FREE)
            continue;
        if (request->kind == ALLOW && meant) {
            it->flags &= ~HELD;
            follow(it);
        } else if (request->kind == SIGNAL && meant)
            send_signal(it, request->value);
        else if (request->kind == DISCARD && it->state != RUNNING && (meant || !request->token))
            kill(it->pid, SIGKILL);
    }
    return 1;
}

/* Takes in what rater has sent; tells whether there are more to come: 0 after GOODBYE 0. */
static int listen_to_rater(int *left) {
    ssize_t got = recv(rater_fd, grown(&in, 1 << 16), 1 << 16, MSG_DONTWAIT);
    if (!got || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        *left = 1;
        return 0;
    }
    in.size += got > 0 ? got : 0;
    while (in.size - in.at >= sizeof(struct request)) {
        struct request request;
        memcpy(&request, in.data + in.at, sizeof request);
        if (request.size > MOST_REQUEST)
            die("a request of rater's");
        if (in.size - in.at - sizeof request < request.size)
            break;
        in.at += sizeof request;
        char *data = malloc(request.size + 1); /* aligned */
        if (!data)
            die("memory");
        memcpy(data, in.data + in.at, request.size);
        in.at += request.size;
        int more = handle(&request, data);
        free(data);
        if (!more) {
            *left = request.value;
            return 0;
        }
    }
    memmove(in.data, in.data + in.at, in.size - in.at);
    in.size -= in.at;
    in.at = 0;
    return 1;
}

/* -- The launcher's own life --------------------------------------------------------------------- */

static void settle(void) {
    sigset_t every, deaths;
    struct sigaction ordinary = {.sa_handler = SIG_DFL};
    sigfillset(&every);
    sigprocmask(SIG_SETMASK, &every, NULL);
    sigaction(SIGCHLD, &ordinary, NULL);
    sigemptyset(&deaths);
    sigaddset(&deaths, SIGCHLD);
    children_fd = signalfd(-1, &deaths, SFD_CLOEXEC | SFD_NONBLOCK);
    int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ready_fd = fcntl(event, F_DUPFD_CLOEXEC, REPORT_FD + 1);
    if (children_fd < 0 || ready_fd < 0 || pipe2(reports, O_CLOEXEC) ||
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
    int left = 0;
    for (;;) {
        flush();
        int64_t due = begin_due(), now = now_ns(), wait = running ? seen_ns + BEAT_NS - now : 0;
        if (due && (!wait || due - now < wait))
            wait = due > now ? due - now : 1;
        wait = running && wait < 1 ? 1 : wait;
        struct timespec time = {.tv_sec = wait / 1000000000LL, .tv_nsec = wait % 1000000000LL};
        struct pollfd fds[] = {{rater_fd, POLLIN | (out.size ? POLLOUT : 0), 0},
                               {children_fd, POLLIN, 0},
                               {ready_fd, POLLIN, 0},
                               {reports[0], out.size > MOST_BACKLOG ? 0 : POLLIN, 0}};
        if (ppoll(fds, 4, wait ? &time : NULL, NULL) < 0 && errno != EINTR)
            die("poll");
        now = now_ns();
        begin_due();
        struct signalfd_siginfo dead;
        while (fds[1].revents && read(children_fd, &dead, sizeof dead) > 0)
            ;
        look(now);
        uint64_t number;
        if (fds[2].revents && read(ready_fd, &number, sizeof number) > 0)
            say_ready();
        if (fds[3].revents & POLLIN)
            hear_reports();
        if (fds[0].revents & ~POLLOUT && !listen_to_rater(&left))
            return left;
    }
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
    processes = calloc(capacity, sizeof *processes);
    last = calloc(capacity, sizeof *last);
    shared = mmap(NULL, sizeof *shared + capacity * sizeof(struct slot), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t *groups = calloc(capacity, sizeof *groups);
    if (!processes || !last || !groups || shared == MAP_FAILED)
        die("memory");
    settle();
    say(HELLO, NULL, now_ns())->status = FORMAT;
    if (serve()) {
        EACH(it)
            groups[it - processes] = it->state == FREE ? 0 : it->pid;
        hunt(&prey, groups, capacity);
    }
    return 0;
}
