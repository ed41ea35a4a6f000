/* The launcher: parent, subreaper and watchdog of the copies of one run.

   `rater-launcher SOCKET PROCESSES MARK LOCKS CGROUP`: PROCESSES is the most that can exist at
   a time, copies and those that wait to follow them. MARK is the soft limit of file locks that
   marks all processes of a run, LOCKS the limit to give back to copies. CGROUP is the run's,
   which the launcher is in, or "".

   It starts children in its own small memory and holds every one at a gate. It stamps releases and
   ends, above the priority of all copies where that is allowed, and writes down in records what happened.
   It has no state beyond its processes: where the socket ends without GOODBYE, rater has died,
   and all are killed. */
#include "launcher.h"
#include "plain.h"

#include <dirent.h>
#include <linux/sockios.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>

/* An end is stamped when the launcher runs, so a launcher that does not run stamps it late. It
   wakes up every BEAT_NS while copies run. It knows that it was stopped by the SIGCONT that let it
   go on. A wake-up late by more than PAUSE_NS in which it did not wait for a CPU shows that it was
   traced, or that the whole machine was paused. One late by more than LATE_NS says too much of
   ends, whatever it waited for. */
#define BLOCK_BYTES 512LL /* of getrusage(2), whatever the disk has */
#define BEAT_NS 50000000LL
#define PAUSE_NS 20000000LL
#define LATE_NS 750000000LL /* wake-ups half a second late were seen on full and virtual machines */
#define AROUND_NS 1000000000LL /* between two looks at our own waiting, and whether rater stands */
#define PIECE_NS 50000LL  /* of looks at copies: ends are stamped behind each piece */
#define LOOKS_NS 1000000LL /* in one turn, until rater is heard */
#define GATHER_NS 20000000LL /* ends come in bursts: rater is woken once for all in this time */
#define PATIENCE_PART 8      /* of the time of a run, where another one follows it */
#define BURST 3              /* ends that are handled before all others are stamped */
#define MOST_EVENTS 512      /* ends that are stamped at once */
#define MOST_TABLE (1u << 30)     /* bytes */
#define HEAP_BYTES (16 << 20)
#define MOST_BACKLOG 5000         /* records that rater has not taken; more reports are not read */
#define MOST_PROCESSES (1u << 20)
#define MOST_REPORTS 512 /* pieces read before an end: all that a pipe holds, no flood */
#define NEVER INT64_MAX
#define SPARE_DESCRIPTORS 16
#define FIRST_AGAIN (1u << 30) /* tokens of processes that rater does not ask for begin there */
#define OUR_PEAK INT64_MIN /* in place of the peak at the gate, until a record is sent */

enum state {
    FREE,    /* this place has no process */
    SPAWNED, /* on its way to its gate, or there without a READY */
    WAITING, /* READY was said */
    DUE,     /* released, and waits for its offset to pass */
    RUNNING
};

struct process {
    pid_t pid;
    uint32_t token, after, copy, flags; /* of its entry */
    enum state state;
    bool shares_gate;   /* it waits at the gate that a release opens for all */
    bool owes_ready;    /* READY is to be said once it is at its gate */
    bool owes_again;    /* its entry is to be started once more */
    int pidfd;          /* -1: it has none */
    int64_t due_ns;     /* when it begins; until the release, its offset from that */
    int64_t ended_ns;   /* the stamp of its end; 0: none yet */
    unsigned char accepted[256 / 8]; /* mask: exit codes that are no failure */
    struct kept_table *table;        /* it is read until the program begins, and so are `words` */
    char **words;
    bool shares_memory; /* with the launcher, until its program begins */
    struct looks looks;
    struct entry entry;
    struct birth birth;
    struct slot slot;
};

struct kept_table { /* a table that processes still need */
    size_t size;
    unsigned users;
    _Alignas(8) char bytes[];
};

struct last { /* which process of a copy ended last, and whether well */
    uint32_t token;
    bool ended_well;
};

#define EACH(item) for (struct process *item = processes; item < processes + used; item++)

/* Finds the places of processes by a number of theirs. `first` by bucket, `next` and `numbers` by
   place; a place is written as one more than it is, 0 is none. */
struct index {
    uint32_t *first, *next, *numbers;
};

/* This memory is shared with children that are forked too. Most of them do not need it, but a fork
   is quicker when it has no private copies to prepare. */
static struct process *processes;
static char *stacks; /* by place, STACK_BYTES each; NULL: all children are forked */
static struct index by_pid, by_token, by_after; /* by_pid: of all places that are not free */
static uint32_t buckets;                        /* of an index: a power of two */
static struct last *last; /* by copy */
static uint32_t *opened;  /* how often the gate of all was opened */
static uint32_t *awaited; /* token of the process that wakes us when it is ready */

/* `used` places from the first on; of all processes those that run, follow another, and owe
   READY. */
static unsigned capacity, used, running, followers, owing_ready;
static int rater_fd, reports[2];
static int64_t seen_ns; /* every process that ended before this time has been handled */
static volatile sig_atomic_t was_continued; /* a SIGCONT came since that time */
static bool suspended; /* rater has stopped the copies, and then itself (Ctrl-Z) */
static struct { /* of ends, by pidfds */
    int ends, first;  /* an epoll of all pidfds, -1: there is none; and the lowest pidfd that may be */
    unsigned lacking; /* processes without a pidfd */
    int64_t walked_ns; /* when the kernel last walked over all children */
} watch;
static struct { /* when we looked around last */
    int64_t at_ns, waited_ns; /* how long we had waited for a CPU; -1: not known */
} around;
static struct { /* looks at copies */
    unsigned place;            /* where the turn goes on that was cut; 0: none was */
    int64_t due_ns, later_ns;  /* no look is due before; behind that turn */
    int64_t piece_ns;          /* begin of the piece that goes on */
    const struct process *at;  /* the copy that is looked at; NULL: none, or it has ended */
} view = {.due_ns = NEVER, .later_ns = NEVER};
static struct { /* of entries that are started again */
    uint32_t *places; /* of processes that owe it, in the order of their begins */
    unsigned count;
    uint32_t tokens; /* given so far */
    bool is_on;      /* no DISCARD of all came since the last START */
} again;
static int64_t next_due_ns = NEVER, flush_ns = NEVER;
static int64_t patience_of_followers_ns; /* a share of the time of the run that ended last */
static struct { /* records on their way to rater: `sent` of `size`, with room for more */
    struct record *records;
    size_t size, room, sent;
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

static void let_go(struct kept_table *table) {
    if (!--table->users)
        free(table);
}

static int64_t earlier(int64_t first_ns, int64_t second_ns) {
    return first_ns < second_ns ? first_ns : second_ns;
}

static void enter(struct index *index, uint32_t number, const struct process *process) {
    uint32_t place = (uint32_t)(process - processes), *first = &index->first[number & (buckets - 1)];
    index->numbers[place] = number;
    index->next[place] = *first;
    *first = place + 1;
}

static void leave(struct index *index, const struct process *process) {
    uint32_t place = (uint32_t)(process - processes);
    uint32_t *link = &index->first[index->numbers[place] & (buckets - 1)];
    while (*link != place + 1)
        link = &index->next[*link - 1];
    *link = index->next[place];
    index->numbers[place] = 0;
}

/* Returns a process with a number, behind `before` if that is not NULL; NULL: there is none. */
static struct process *find(const struct index *index, uint32_t number,
                            const struct process *before) {
    uint32_t link = before ? index->next[before - processes] : index->first[number & (buckets - 1)];
    while (link && index->numbers[link - 1] != number)
        link = index->next[link - 1];
    return link ? &processes[link - 1] : NULL;
}

static struct index new_index(void) {
    uint32_t *memory = shared_memory((buckets + 2 * (size_t)capacity) * sizeof *memory);
    return (struct index){memory, memory + buckets, memory + buckets + capacity};
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
    /* Nobody acts on an end at once while others run: it waits for more of them. Where runs follow
       one another rater has the time of one to make the next ones: it hears of many together. */
    bool is_followed = followers && (kind == STARTED || kind == REPEATED);
    bool can_wait = running && (kind == ENDED || kind == REPORT || is_followed);
    int64_t patience_ns = !can_wait ? 0 : followers ? patience_of_followers_ns : GATHER_NS;
    flush_ns = earlier(flush_ns, patience_ns ? now_ns() + patience_ns : 0);
    return record;
}

static struct record *say_broken(const struct process *process, int step, int error) {
    struct record *record = say(BROKEN, process, now_ns());
    record->status = step;
    record->error = error;
    return record;
}

/* Returns the peak of our memory: of what execs of children that share it have under way, too.
   Our resource usage will not do, as it has the peak of the rater that we were spawned from. */
static int64_t peak_bytes(void) {
    char text[4096], *line;
    if (read_small("/proc/self/status", text, sizeof text) <= 0 || !(line = strstr(text, "VmHWM:")))
        return NEVER / 2; /* not known: no peak of a copy can be told from it */
    return strtoll(line + sizeof "VmHWM:", NULL, 10) * 1024LL;
}

/* Gives records of ends that are not sent yet the peak of our memory, which bounds what a copy had
   from it when its program began. Once for many records: to read it takes long. */
static void set_peaks(void) {
    int64_t peak = 0;
    for (size_t i = out.sent; i < out.size; i++) {
        struct record *record = &out.records[i];
        if (record->kind == ENDED && record->figures.gate_peak_bytes == OUR_PEAK)
            record->figures.gate_peak_bytes = peak ? peak : (peak = peak_bytes());
    }
}

enum flushed { SENT, SOCKET_FULL };

/* Sends all records, once their time has come. */
static enum flushed flush(int64_t now) {
    if (flush_ns <= now)
        set_peaks();
    while (out.sent < out.size && flush_ns <= now) {
        size_t count = out.size - out.sent < MOST_RECORDS ? out.size - out.sent : MOST_RECORDS;
        if (send(rater_fd, &out.records[out.sent], count * sizeof *out.records,
                 MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            return SOCKET_FULL;
        out.sent += count;
    }
    if (out.sent == out.size) {
        out.sent = out.size = 0;
        flush_ns = NEVER;
    }
    return SENT;
}

/* -- Begin: one process, or all that wait at the gate of all ----------------------------------- */

/* No READY is to be said of a process any more. */
static void settle_ready(struct process *process) {
    owing_ready -= process->owes_ready;
    process->owes_ready = false;
}

static void note_start(struct process *process, int64_t now, int64_t planned_ns) {
    settle_ready(process);
    followers -= process->after != 0;
    process->state = RUNNING;
    process->owes_again = process->flags & AGAIN && again.is_on && again.count < capacity;
    if (process->owes_again)
        again.places[again.count++] = (uint32_t)(process - processes);
    process->slot.figures.start_ns = now;
    process->slot.figures.planned_ns = planned_ns;
    if (process->looks.next_ns) {
        process->looks.next_ns += now;
        view.due_ns = earlier(view.due_ns, process->looks.next_ns);
        view.later_ns = earlier(view.later_ns, process->looks.next_ns);
    }
    if (!running++)
        seen_ns = now;
}

static void begin(struct process *process, int64_t planned_ns) {
    int64_t now = now_ns(); /* before all work: the time is that of the wake-up */
    __atomic_store_n(&process->slot.go, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &process->slot.go, FUTEX_WAKE, 1, NULL, NULL, 0);
    note_start(process, now, planned_ns);
    say(STARTED, process, now)->figures = process->slot.figures;
}

/* Begins a process if the one before it has ended; kills it if that one had to end well and did
   not. */
static void follow(struct process *process) {
    const struct last *before = &last[process->copy];
    if (!process->after || process->flags & HELD || process->state == RUNNING ||
        before->token != process->after)
        return;
    if (process->flags & WELL && !before->ended_well)
        kill(process->pid, SIGKILL);
    else
        begin(process, 0);
}

static void release(void) {
    int64_t now = now_ns();
    __atomic_add_fetch(opened, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, opened, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
    EACH(process) {
        if ((process->state != SPAWNED && process->state != WAITING) || process->after)
            continue;
        process->state = DUE;
        process->due_ns += now;
        if (process->shares_gate)
            note_start(process, now, now);
        else if (process->due_ns < next_due_ns)
            next_due_ns = process->due_ns;
    }
    say(RELEASED, NULL, now);
}

static void begin_due(void) {
    if (next_due_ns > now_ns())
        return;
    next_due_ns = NEVER;
    EACH(process) {
        if (process->state != DUE)
            continue;
        if (process->due_ns <= now_ns())
            begin(process, process->due_ns);
        else if (process->due_ns < next_due_ns)
            next_due_ns = process->due_ns;
    }
}

static bool is_ready(const struct process *process) {
    return __atomic_load_n(&process->slot.ready, __ATOMIC_SEQ_CST) != 0;
}

/* Returns whether a process that follows no other one is still on its way to its gate. If so,
   one that is on its way wakes us when it arrives: the last one, as most others arrive before
   it. Either we see that it is ready, or it sees that we wait for it. Its death wakes us too. */
static bool await_ready(void) {
    bool first_runs_lack = false;
    struct process *last_on_way = NULL;
    EACH(process) {
        if (process->owes_ready && !is_ready(process)) {
            first_runs_lack |= !process->after;
            last_on_way = process;
        }
    }
    if (!last_on_way)
        return false;
    __atomic_store_n(awaited, last_on_way->token, __ATOMIC_SEQ_CST);
    return is_ready(last_on_way) ? await_ready() : first_runs_lack;
}

/* Says READY of all that are at their gates, once no first run is on its way to its gate. */
static void say_ready(void) {
    if (!owing_ready || await_ready())
        return;
    EACH(process) {
        if (process->owes_ready && is_ready(process)) {
            settle_ready(process);
            process->state = WAITING;
            say(READY, process, now_ns());
        }
    }
}

/* -- Ends: stamped, looked at as zombies, their groups killed, and reaped ---------------------- */

static void look_at_zombie(pid_t pid, struct figures *figures) {
    char path[64], line[1024], *field;
    snprintf(path, sizeof path, "/proc/%d/schedstat", pid);
    read_schedstat(path, &figures->cpu_ns, &figures->delay_ns);
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (read_small(path, line, sizeof line) <= 0 || !(field = strrchr(line, ')')))
        return;
    /* Behind the name, which is field 2, each space begins a field: 39 is the CPU
       (proc_pid_stat(5)). */
    for (int number = 2; field && number < 39; number++)
        field = strchr(field + 1, ' ');
    if (field)
        figures->last_cpu = atoi(field);
}

/* Returns how much CPU time the first thread of a zombie had since its gate, which it ran for at
   least. */
static int64_t cpu_since_gate_ns(const struct process *process) {
    char path[64];
    int64_t cpu_ns, delay_ns, gate_ns = process->slot.figures.gate_cpu_ns;
    snprintf(path, sizeof path, "/proc/%d/schedstat", process->pid);
    read_schedstat(path, &cpu_ns, &delay_ns);
    return cpu_ns > gate_ns ? cpu_ns - gate_ns : 0;
}

/* Hands on a piece of what scripts report of their commands, with the time. Returns whether
   there was any. */
static bool hear_reports(void) {
    char text[TEXT_BYTES];
    ssize_t size = read(reports[0], text, sizeof text);
    if (size <= 0)
        return false;
    struct record *record = say(REPORT, NULL, now_ns());
    record->status = (int32_t)size;
    memcpy(record->text, text, (size_t)size);
    return true;
}

static int64_t time_ns(struct timeval time) {
    return time.tv_sec * 1000000000LL + time.tv_usec * 1000LL;
}

/* Kills what is left of the group of a zombie, reaps it, and adds what the kernel counted of it.
   Returns its status. */
static int reap_one(const struct process *process, struct figures *figures) {
    struct rusage usage;
    int status = 0;
    /* As long as the process is a zombie, no other group can have its number. */
    kill(-process->pid, SIGKILL);
    wait4(process->pid, &status, 0, &usage);
    figures->left_group = kill(-process->pid, 0) == 0;
    figures->user_ns = time_ns(usage.ru_utime);
    figures->system_ns = time_ns(usage.ru_stime);
    figures->peak_bytes = usage.ru_maxrss * 1024LL;
    figures->minor_faults = usage.ru_minflt;
    figures->major_faults = usage.ru_majflt;
    figures->voluntary = usage.ru_nvcsw;
    figures->involuntary = usage.ru_nivcsw;
    figures->read_bytes = usage.ru_inblock * BLOCK_BYTES;
    figures->written_bytes = usage.ru_oublock * BLOCK_BYTES;
    return status;
}

static bool is_accepted(const struct process *process, int status) {
    int code = WEXITSTATUS(status);
    return WIFEXITED(status) && process->accepted[code / 8] >> code % 8 & 1;
}

/* Has epoll tell of the end of a process, where the kernel and the limit of open files allow. */
static void watch_end(struct process *process) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)(process - processes)};
    int file = watch.ends < 0 ? -1 : (int)syscall(SYS_pidfd_open, process->pid, 0);
    process->pidfd = file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, watch.first);
    close(file);
    if (process->pidfd >= 0 && epoll_ctl(watch.ends, EPOLL_CTL_ADD, process->pidfd, &event)) {
        close(process->pidfd);
        process->pidfd = -1;
    }
    watch.lacking += process->pidfd < 0;
}

static void unwatch(const struct process *process) {
    watch.lacking -= process->pidfd < 0;
    if (process->pidfd < 0)
        return;
    epoll_ctl(watch.ends, EPOLL_CTL_DEL, process->pidfd, NULL); /* a child may have the file too */
    close(process->pidfd);
}

/* Handles the end of a process that is still a zombie, begins the one that follows it, and says
   both. */
static void handle_end(struct process *process, int64_t at_ns, int64_t stalled_ns, bool by_signal) {
    struct figures figures = process->slot.figures;
    figures.stalled_ns = stalled_ns;
    if (stalled_ns) {
        int64_t used_ns = figures.start_ns + cpu_since_gate_ns(process);
        figures.seen_ns = seen_ns > used_ns ? seen_ns : used_ns < at_ns ? used_ns : at_ns;
    }
    if (process->flags & PROOF)
        look_at_zombie(process->pid, &figures);
    if (process->flags & REPORTS) { /* rater is to read its reports before its end */
        for (int pieces = 0; pieces < MOST_REPORTS && hear_reports(); pieces++) {
        }
    }
    if (by_signal) {
        prlimit(process->pid, RLIMIT_CPU, NULL, &figures.cpu_limit);
        prlimit(process->pid, RLIMIT_FSIZE, NULL, &figures.file_limit);
    }
    int status = reap_one(process, &figures);
    if (process->shares_memory)
        figures.gate_peak_bytes = OUR_PEAK;
    const struct slot *slot = &process->slot;
    if (slot->step)
        memcpy(say_broken(process, slot->step, slot->error)->text, slot->given, TEXT_BYTES);
    if (process->state == RUNNING) {
        running--;
        last[process->copy] = (struct last){process->token, is_accepted(process, status)};
    } else {
        followers -= process->after != 0;
    }
    bool has_run = process->slot.figures.start_ns != 0;
    int64_t share_ns = has_run ? (at_ns - process->slot.figures.start_ns) / PATIENCE_PART : 0;
    patience_of_followers_ns = earlier(share_ns, GATHER_NS);
    struct record *record = say(ENDED, process, at_ns);
    record->status = status;
    record->figures = figures;
    settle_ready(process);
    free(process->words);
    free(process->looks.times);
    let_go(process->table);
    process->state = FREE;
    if (view.at == process)
        view.at = NULL;
    unwatch(process);
    leave(&by_pid, process);
    leave(&by_token, process);
    if (process->after)
        leave(&by_after, process);
    struct process *follower = find(&by_after, process->token, NULL);
    for (; follower; follower = find(&by_after, process->token, follower))
        follow(follower);
}

/* Handles the end of a process, if it is told to us: of one that is traced, its tracer is told. */
static bool handle_if_ended(struct process *process, int64_t stalled_ns) {
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid)
        return false;
    handle_end(process, process->ended_ns, stalled_ns, info.si_code != CLD_EXITED);
    return true;
}

/* Handles ends of processes that have a pidfd, whatever their number. All are stamped first, and
   again after a few, so that no end waits for its stamp until others were handled. */
static void reap_watched(int64_t stalled_ns) {
    static struct epoll_event events[MOST_EVENTS];
    for (int handled = BURST; handled == BURST;) {
        int count = epoll_wait(watch.ends, events, MOST_EVENTS, 0);
        int64_t now = now_ns();
        for (int i = 0; i < count; i++) {
            struct process *process = &processes[events[i].data.u32];
            process->ended_ns = process->ended_ns ? process->ended_ns : now;
        }
        handled = 0;
        for (int i = 0; i < count && handled < BURST; i++)
            handled += handle_if_ended(&processes[events[i].data.u32], stalled_ns);
    }
}

/* Stamps all processes that have ended and have no stamp; returns how many. */
static int stamp(int64_t now) {
    siginfo_t info;
    int stamped = 0;
    EACH(process) {
        info.si_pid = 0;
        if (process->state == RUNNING && !process->ended_ns &&
            !waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid) {
            process->ended_ns = now;
            stamped++;
        }
    }
    return stamped;
}

/* Handles all ends. The kernel walks over all children to find one, so it is asked where a process
   has no pidfd, and for descendants of copies: those wait for a beat while copies run. A few are
   handled one by one, as most often there are no more. In a burst all are stamped first. */
static void reap(int64_t stalled_ns) {
    siginfo_t info;
    reap_watched(stalled_ns);
    int64_t begin = now_ns();
    if (running && !watch.lacking && begin - watch.walked_ns < BEAT_NS)
        return;
    watch.walked_ns = begin;
    for (int until_stamps = BURST;; until_stamps--) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid)
            return;
        int64_t now = now_ns();
        if (!until_stamps)
            until_stamps = BURST + stamp(now);
        struct process *process = find(&by_pid, (uint32_t)info.si_pid, NULL);
        if (process)
            handle_end(process, process->ended_ns ? process->ended_ns : now, stalled_ns,
                       info.si_code != CLD_EXITED);
        else /* a descendant of a copy, whose parent we became */
            waitpid(info.si_pid, NULL, 0);
    }
}

/* How long we have waited for a CPU in all; -1: not known. */
static int64_t waited_ns(void) {
    int64_t cpu_ns, delay_ns;
    read_schedstat("/proc/self/schedstat", &cpu_ns, &delay_ns);
    return delay_ns;
}

/* Returns for how long we did not run, so that ends may have waited; 0: not at all, or so short
   that it is the common way of a full machine. We went to sleep at `asleep_ns`, or did not. */
static int64_t find_stall(int64_t now, int64_t asleep_ns) {
    bool continued = was_continued;
    was_continued = 0;
    if (!running)
        return 0;
    if (continued)
        return now - seen_ns;
    int64_t beat_ns = seen_ns + BEAT_NS;
    if (now - beat_ns > LATE_NS)
        return now - beat_ns;
    int64_t late_ns = now - (asleep_ns > beat_ns ? asleep_ns : beat_ns);
    if (late_ns <= PAUSE_NS || asleep_ns == NEVER)
        return 0;
    int64_t waited = waited_ns();
    bool is_known = waited >= 0 && around.waited_ns >= 0;
    return is_known && (waited - around.waited_ns) * 2 <= late_ns ? late_ns : 0;
}

/* Handles all ends. Says STALLED where they may have waited, as the launcher itself did not run. */
static void take_ends(int64_t now, int64_t asleep_ns) {
    int64_t stalled_ns = find_stall(now, asleep_ns);
    if (stalled_ns > PAUSE_NS)
        say(STALLED, NULL, stalled_ns);
    reap(stalled_ns);
    seen_ns = now;
}

/* Lets rater go on where somebody has stopped it, as a copy of its own can: nobody else would. A
   rater that was to be stopped has asked for a stop of the copies first: what it asked may not have
   been read yet. */
static void look_at_rater(void) {
    char path[64], line[512], state = 0, *behind;
    struct pollfd request = {rater_fd, POLLIN, 0};
    snprintf(path, sizeof path, "/proc/%d/stat", getppid());
    if (read_small(path, line, sizeof line) > 0 && (behind = strrchr(line, ')')))
        sscanf(behind + 1, " %c", &state);
    if (state == 'T' && !poll(&request, 1, 0))
        kill(getppid(), SIGCONT);
}

/* Returns whether rater has not yet taken all that was sent to it. */
static bool rater_lags(void) {
    int bytes = 0;
    return !ioctl(rater_fd, SIOCOUTQ, &bytes) && bytes > 0;
}

/* Looks once a second while copies run, or while rater takes no records. */
static void look_around(int64_t now) {
    if (now - around.at_ns < AROUND_NS || (!running && !rater_lags()))
        return;
    around.at_ns = now;
    around.waited_ns = waited_ns();
    if (!suspended)
        look_at_rater();
}

/* Stamps what has ended while copies are looked at, once a piece is over. Returns whether the copy
   that is looked at still runs. */
static bool take_ends_between(void) {
    int64_t now = now_ns();
    if (now - view.piece_ns < PIECE_NS)
        return view.at != NULL;
    begin_due();
    take_ends(now, NEVER);
    view.piece_ns = now_ns();
    return view.at != NULL;
}

/* Looks at copies that are due. A turn that takes long is cut, and goes on when rater was heard. */
static void look_at_copies(void) {
    int64_t begin = view.piece_ns = now_ns();
    if (suspended || (begin < view.due_ns && !view.place))
        return;
    for (; view.place < used; view.place++) {
        struct process *process = &processes[view.place];
        if (process->state != RUNNING || !process->looks.next_ns)
            continue;
        if (process->looks.next_ns <= begin) {
            if (view.piece_ns - begin > LOOKS_NS)
                return;
            view.at = process;
            look_at(process->pid, &process->looks, &process->slot.figures, take_ends_between);
        }
        if (view.at == process || process->looks.next_ns > begin)
            view.later_ns = earlier(view.later_ns, process->looks.next_ns);
    }
    view.place = 0;
    view.due_ns = view.later_ns;
    view.later_ns = NEVER;
}

/* -- Requests ---------------------------------------------------------------------------------- */

/* Copies a mask of a table to MASK_BYTES bytes, zeros behind it. Returns whether there is a
   mask. */
static bool find_mask(struct view table, uint32_t offset, unsigned char *bytes) {
    memset(bytes, 0, MASK_BYTES);
    if (offset == NO_OFFSET || offset % 4 || offset > table.size - 4)
        return false;
    uint32_t count = *(const uint32_t *)(table.bytes + offset);
    if (count > MASK_BYTES || count > table.size - offset - 4)
        return false;
    memcpy(bytes, table.bytes + offset + 4, count);
    return true;
}

/* Returns how many strings a list has; none where the table has no such list. */
static uint32_t count_words(struct view table, uint32_t list) {
    return list % 4 || list > table.size - 4 ? 0 : *(const uint32_t *)(table.bytes + list);
}

/* Writes the addresses of a list's strings. Returns the place behind them. */
static char **write_words(struct view table, uint32_t list, char **next) {
    uint64_t offset = list + 4ULL;
    for (uint32_t left = count_words(table, list); left && offset < table.size; left--) {
        *next++ = (char *)table.bytes + offset;
        offset += strlen(table.bytes + offset) + 1;
    }
    return next;
}

/* Makes the lists that execve takes of a process: its argv, behind a word that is free, and its
   environment. Returns false where the table has no such lists, or no memory is left. */
static bool make_words(struct process *process) {
    struct birth *birth = &process->birth;
    const struct entry *entry = birth->entry;
    uint64_t total = (uint64_t)count_words(birth->table, entry->argv) +
                     count_words(birth->table, entry->shared_variables) +
                     count_words(birth->table, entry->own_variables);
    errno = EBADMSG;
    if (total > birth->table.size || !(process->words = calloc(total + 3, sizeof(char *))))
        return false;
    birth->argv = process->words + 1;
    birth->environment = write_words(birth->table, entry->argv, birth->argv) + 1;
    write_words(birth->table, entry->own_variables,
                write_words(birth->table, entry->shared_variables, birth->environment));
    return true;
}

struct cpus { /* masks */
    unsigned char given[MASK_BYTES];   /* those that rater gave the launcher */
    unsigned char current[MASK_BYTES]; /* those that the launcher is bound to now */
};

enum spawned { SPAWN_DONE, SPAWN_FAILED };

static enum spawned fail(const struct process *process, int step, int error) {
    say_broken(process, step, error);
    return SPAWN_FAILED;
}

/* Moves the launcher to the CPUs of a process that it is to fork, which then is not moved
   itself. */
static enum spawned move_to_cpus(struct view table, const struct entry *entry, struct cpus *cpus,
                                 const struct process *born) {
    unsigned char wanted[MASK_BYTES];
    if (!find_mask(table, entry->cpus, wanted))
        memcpy(wanted, cpus->given, MASK_BYTES);
    if (!memcmp(wanted, cpus->current, MASK_BYTES))
        return SPAWN_DONE;
    if (sched_setaffinity(0, MASK_BYTES, (cpu_set_t *)wanted))
        return fail(born, CPUS, errno);
    memset(cpus->current, 0, MASK_BYTES);
    sched_getaffinity(0, MASK_BYTES, (cpu_set_t *)cpus->current);
    if (!memcmp(wanted, cpus->current, MASK_BYTES))
        return SPAWN_DONE;
    memcpy(say_broken(born, CPUS_GIVEN, 0)->text, cpus->current, TEXT_BYTES);
    return SPAWN_FAILED;
}

static int begin_child(void *birth) {
    child(birth);
}

/* Starts a child, in our own memory where that can be. Returns its number, or -1. */
static pid_t start_child(struct process *process) {
#ifdef CAN_SHARE_MEMORY
    /* What is set for memory as a whole is not to be set for ours. */
    process->shares_memory = stacks && process->birth.entry->transparent < 0;
    if (process->shares_memory) {
        char *top = stacks + (size_t)(process - processes + 1) * STACK_BYTES;
        /* With pidfds open it shares their table at first, as to copy that would take long. */
        int files = watch.ends < 0 ? 0 : CLONE_FILES;
        return clone(begin_child, top, CLONE_VM | files | SIGCHLD, &process->birth);
    }
#endif
    pid_t pid = fork();
    if (!pid)
        begin_child(&process->birth);
    return pid;
}

static struct process new_process(const struct entry *entry) {
    return (struct process){
        .token = entry->token, .after = entry->after, .copy = entry->copy, .flags = entry->flags,
        .entry = *entry, .state = SPAWNED, .due_ns = entry->offset_ns,
        .shares_gate = !entry->after && !entry->offset_ns,
        .owes_ready = !entry->after || entry->flags & HELD,
        .looks = {.next_ns = entry->first_look_ms > 0 ? entry->first_look_ms * 1000000LL : 0},
        .slot = {.figures = {.cpu_ns = -1, .delay_ns = -1, .last_cpu = -1,
                             .cpu_limit = {-1UL, -1UL}, .file_limit = {-1UL, -1UL}}}};
}

/* Gathers what a process needs until its program begins. Returns whether that could be. */
static bool prepare_birth(struct process *process, struct kept_table *kept) {
    const struct entry *entry = &process->entry;
    unsigned char mask[MASK_BYTES];
    process->birth = (struct birth){
        .table = {kept->bytes, (uint32_t)kept->size}, .entry = entry, .slot = &process->slot,
        .gate = process->shares_gate ? opened : &process->slot.go,
        .closed = process->shares_gate ? *opened : 0, .awaited = awaited, .reports = reports[1],
        .first_pidfd = watch.ends < 0 ? 0 : (unsigned)watch.first};
    find_mask(process->birth.table, entry->accepted, mask);
    memcpy(process->accepted, mask, sizeof process->accepted);
    process->birth.has_nodes = find_mask(process->birth.table, entry->nodes, mask);
    memcpy(process->birth.nodes, mask, NODE_BYTES);
    process->table = kept;
    kept->users++;
    return make_words(process);
}

/* Starts one process of a table. A failure is said. */
static enum spawned spawn(struct kept_table *kept, const struct entry *entry, struct cpus *cpus) {
    static unsigned place; /* where the search for a free place begins: behind the last process */
    struct process born = new_process(entry);
    unsigned tried = 0;
    for (; tried < capacity && by_pid.numbers[place]; tried++)
        place = (place + 1) % capacity;
    if (tried == capacity || entry->copy >= capacity)
        return fail(&born, FORKED, EAGAIN);
    struct view table = {kept->bytes, (uint32_t)kept->size};
    if (move_to_cpus(table, entry, cpus, &born) == SPAWN_FAILED)
        return SPAWN_FAILED;
    struct process *process = &processes[place];
    *process = born;
    pid_t pid = prepare_birth(process, kept) ? start_child(process) : -1;
    if (pid < 0) {
        int error = errno;
        free(process->words);
        let_go(kept);
        process->state = FREE;
        return fail(&born, FORKED, error);
    }
    setpgid(pid, pid); /* the child does the same: whoever is first */
    process->pid = pid;
    enter(&by_pid, (uint32_t)pid, process);
    enter(&by_token, born.token, process);
    if (born.after)
        enter(&by_after, born.after, process);
    watch_end(process);
    used = used > place ? used : place + 1;
    owing_ready += born.owes_ready;
    followers += born.after != 0;
    follow(process);
    return SPAWN_DONE;
}

static struct cpus current_cpus(void) {
    struct cpus cpus = {.given = {0}};
    sched_getaffinity(0, MASK_BYTES, (cpu_set_t *)cpus.given);
    memcpy(cpus.current, cpus.given, MASK_BYTES);
    return cpus;
}

static void go_back(const struct cpus *cpus) {
    if (memcmp(cpus->current, cpus->given, MASK_BYTES))
        sched_setaffinity(0, MASK_BYTES, (cpu_set_t *)cpus->given);
}

/* Many starts take long, and copies that run or are due do not wait for them. */
static void serve_between_starts(void) {
    if (running)
        take_ends(now_ns(), NEVER);
    begin_due();
}

/* Starts a process that is to follow one with AGAIN. Where that cannot be nothing is said: rater
   asks for the next one when that one has ended, and hears then why it cannot be. */
static void start_again(struct process *before, struct cpus *cpus) {
    struct entry entry = before->entry;
    entry.token = FIRST_AGAIN + again.tokens++;
    entry.after = before->token;
    entry.flags |= WELL;
    entry.offset_ns = 0;
    entry.output = before->entry.next_output;
    entry.error = before->entry.next_error;
    entry.next_output = before->entry.output;
    entry.next_error = before->entry.error;
    size_t said = out.size;
    if (spawn(before->table, &entry, cpus) == SPAWN_FAILED)
        out.size = said;
    else
        say(REPEATED, find(&by_token, entry.token, NULL), now_ns())->status = (int32_t)entry.after;
}

/* Starts entries again whose processes have begun. It waits while copies are stopped, and while
   rater does not take what it is told. */
static void repeat(void) {
    if (!again.count || suspended || out.size >= MOST_BACKLOG)
        return;
    struct cpus cpus = current_cpus();
    for (unsigned i = 0; i < again.count; i++) { /* it grows */
        struct process *before = &processes[again.places[i]];
        if (before->state != RUNNING || !before->owes_again)
            continue; /* it has ended: rater asks for the next one */
        before->owes_again = false;
        if (again.is_on)
            start_again(before, &cpus);
        serve_between_starts();
    }
    again.count = 0;
    go_back(&cpus);
}

/* Starts the processes of a table up to the first that cannot be started. */
static void start_all(struct kept_table *kept) {
    const struct table *head = (const struct table *)kept->bytes;
    const struct entry *entries = (const struct entry *)(head + 1);
    if (head->format != FORMAT || kept->bytes[kept->size - 1] ||
        head->entries > (kept->size - sizeof *head) / sizeof *entries) {
        say_broken(NULL, 0, EBADMSG);
        return;
    }
    struct cpus cpus = current_cpus();
    for (uint32_t i = 0; i < head->entries && spawn(kept, &entries[i], &cpus) == SPAWN_DONE; i++)
        serve_between_starts();
    go_back(&cpus);
    say_ready();
}

/* The table is read, not mapped: see `keep_memory`. */
static void start(int file) {
    again.is_on = true;
    struct stat status = {0};
    fstat(file, &status);
    size_t size = (size_t)status.st_size;
    if (size < sizeof(struct table) || size > MOST_TABLE) {
        say_broken(NULL, 0, EBADMSG);
        return;
    }
    struct kept_table *kept = malloc(sizeof *kept + size);
    if (!kept)
        die("memory");
    *kept = (struct kept_table){.size = size, .users = 1};
    if (pread(file, kept->bytes, size, 0) == (ssize_t)size)
        start_all(kept);
    else
        say_broken(NULL, 0, EBADMSG);
    let_go(kept);
}

static void send_signal(const struct process *process, int number) {
    kill(-process->pid, number);
    /* A process that has left its group gets the signal itself. Otherwise signal 0 asks
       whether we may send one: no more, where the process has become another user's. */
    bool leads_group = getpgid(process->pid) == process->pid;
    if (kill(process->pid, leads_group ? 0 : number) && errno == EPERM)
        say(REFUSED, process, now_ns());
}

static void discard_all(void) {
    again.is_on = false;
    EACH(process) {
        if (process->state != FREE && process->state != RUNNING)
            kill(process->pid, SIGKILL);
    }
}

/* Stops all processes or lets all go on: rater may not know yet of one that was started again. */
static void suspend(bool is_stop) {
    if (suspended == is_stop)
        return;
    suspended = is_stop;
    EACH(process) {
        if (process->state != FREE)
            send_signal(process, is_stop ? SIGSTOP : SIGCONT);
    }
}

static void handle(struct request request, int file) {
    if (request.kind == SIGNAL && (request.value == SIGSTOP || request.value == SIGCONT))
        suspend(request.value == SIGSTOP);
    if (request.kind == START)
        start(file);
    else if (request.kind == RELEASE)
        release();
    else if (request.kind == DISCARD && !request.token)
        discard_all();
    struct process *process = find(&by_token, request.token, NULL);
    if (!process)
        return;
    if (request.kind == ALLOW) {
        process->flags &= ~HELD;
        follow(process);
    } else if (request.kind == SIGNAL) {
        send_signal(process, request.value);
    } else if (request.kind == DISCARD && process->state != RUNNING) {
        kill(process->pid, SIGKILL);
    }
}

/* What the launcher does after a message: go on, end, or kill all that is left of the run and
   end. */
enum course { GO_ON, LEAVE, HUNT };

/* Takes a message of rater: requests, or one request with the table of START. */
static enum course listen_to_rater(void) {
    struct request requests[MOST_RECORDS];
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec into = {requests, sizeof requests};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    ssize_t size = recvmsg(rater_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return GO_ON;
    if (size <= 0)
        return HUNT; /* the socket ended without GOODBYE: rater has died */
    int file = -1;
    if (message.msg_controllen >= CMSG_LEN(sizeof file))
        memcpy(&file, CMSG_DATA(&control.head), sizeof file);
    enum course course = GO_ON;
    for (size_t i = 0; course == GO_ON && i < (size_t)size / sizeof *requests; i++) {
        handle(requests[i], file);
        if (requests[i].kind == GOODBYE)
            course = requests[i].value ? HUNT : LEAVE;
    }
    close(file);
    return course;
}

/* -- The launcher's own life ------------------------------------------------------------------- */

static void wake(int number) {
    (void)number; /* the signal has ended `ppoll`, which is all that it is for */
}

static void note_continue(int number) {
    (void)number;
    was_continued = 1;
}

/* Takes the memory that is needed at once, and gives none back. To change the map waits for every
   child that holds its lock, as in exec, and on a full machine that child waits for a CPU: the
   launcher would stand still until then, whatever its priority. */
static void keep_memory(void) {
#ifdef M_TOP_PAD
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, INT32_MAX);
    mallopt(M_TOP_PAD, HEAP_BYTES);
#endif
    free(malloc(1));
}

/* Returns the number behind all open descriptors; 0 where they cannot be read. */
static int number_behind_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int behind = 0;
    for (struct dirent *file; folder && (file = readdir(folder));)
        behind = atoi(file->d_name) < behind ? behind : atoi(file->d_name) + 1;
    if (folder)
        closedir(folder);
    return behind;
}

/* Makes room for pidfds, behind descriptors that copies inherit. Children leave them off their
   tables by close_range. The table grows now, as it is slow to grow while children share it. */
static void prepare_watch(void) {
    struct rlimit limit;
    watch.ends = epoll_create1(EPOLL_CLOEXEC);
    watch.first = number_behind_descriptors();
    if (!watch.first || getrlimit(RLIMIT_NOFILE, &limit) ||
        syscall(SYS_close_range, ~0U, ~0U, CLOSE_RANGE_UNSHARE)) {
        close(watch.ends);
        watch.ends = -1;
        return;
    }
    rlim_t wanted = (rlim_t)watch.first + capacity + SPARE_DESCRIPTORS;
    if (limit.rlim_cur < wanted) {
        limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    close(fcntl(0, F_DUPFD_CLOEXEC, (int)(limit.rlim_cur < wanted ? limit.rlim_cur : wanted) - 1));
}

/* Makes this process what a launcher has to be: its signals, descriptors, group and priority. */
static void settle(void) {
    sigset_t every;
    struct sigaction wakes = {.sa_handler = wake, .sa_flags = SA_NOCLDSTOP};
    struct sigaction continues = {.sa_handler = note_continue};
    sigfillset(&every);
    sigprocmask(SIG_SETMASK, &every, NULL);
    sigaction(SIGCHLD, &wakes, NULL);
    sigaction(SIGCONT, &continues, NULL);
    if (pipe2(reports, O_CLOEXEC) ||
        (reports[1] = fcntl(reports[1], F_DUPFD_CLOEXEC, REPORT_FD + 1)) < 0)
        die("descriptors");
    fcntl(reports[0], F_SETFL, O_NONBLOCK);
    fcntl(rater_fd, F_SETFD, FD_CLOEXEC);
    setpgid(0, 0); /* Ctrl-C and Ctrl-Z at the terminal are for rater alone */
    int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (terminal >= 0) { /* without a terminal here, copies have none that they could read */
        ioctl(terminal, TIOCNOTTY);
        close(terminal);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    keep_memory();
    prepare_watch();
    rise();
}

/* Returns when the launcher is to wake up if nothing else wakes it: for a copy that is due, a
   beat while copies run, looks that were cut, a look at a rater that takes no records, or records
   whose time comes. Those wait for room where the socket is full. */
static int64_t next_wake_ns(enum flushed flushed, int64_t now) {
    int64_t beat_ns = running ? seen_ns + BEAT_NS : rater_lags() ? now + AROUND_NS : NEVER;
    int64_t wake_ns = view.place ? now : earlier(next_due_ns, beat_ns);
    return flushed == SENT ? earlier(wake_ns, flush_ns) : wake_ns;
}

/* Sleeps until a time, an end of a child, or what is asked for in `fds`. */
static void sleep_until(int64_t wake_ns, int64_t now, struct pollfd *fds, nfds_t count) {
    sigset_t others;
    sigfillset(&others);
    sigdelset(&others, SIGCHLD);
    sigdelset(&others, SIGCONT);
    int64_t wait_ns = wake_ns > now ? wake_ns - now : 0;
    struct timespec wait = {.tv_sec = wait_ns / 1000000000LL, .tv_nsec = wait_ns % 1000000000LL};
    if (ppoll(fds, count, wake_ns == NEVER ? NULL : &wait, &others) < 0 && errno != EINTR)
        die("poll");
}

/* Serves rater until it says GOODBYE or dies. Returns LEAVE or HUNT. */
static enum course serve(void) {
    enum course course = GO_ON;
    while (course == GO_ON) {
        int64_t now = now_ns();
        enum flushed flushed = flush(now);
        struct pollfd fds[] = {{rater_fd, POLLIN | (flushed == SOCKET_FULL ? POLLOUT : 0), 0},
                               {reports[0], out.size < MOST_BACKLOG ? POLLIN : 0, 0}};
        sleep_until(next_wake_ns(flushed, now), now, fds, 2);
        begin_due();
        take_ends(now_ns(), now);
        look_around(now);
        repeat();
        look_at_copies();
        say_ready();
        if (fds[1].revents & POLLIN)
            hear_reports();
        if (fds[0].revents & ~POLLOUT)
            course = listen_to_rater();
    }
    return course;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "cpuid"))
        return print_cpuid();
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
    for (buckets = 64; buckets < capacity;)
        buckets *= 2;
    by_pid = new_index();
    by_token = new_index();
    by_after = new_index();
    last = shared_memory(capacity * sizeof *last);
    again.places = shared_memory(capacity * sizeof *again.places);
    stacks = mmap(NULL, (size_t)capacity * STACK_BYTES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    stacks = stacks == MAP_FAILED ? NULL : stacks;
    opened = shared_memory(2 * sizeof *opened);
    awaited = opened + 1;
    settle();
    struct record *hello = say(HELLO, NULL, now_ns());
    hello->status = FORMAT;
    memcpy(hello->text, SOURCE_DIGEST, sizeof SOURCE_DIGEST);
    if (serve() == HUNT)
        hunt(&prey);
    return 0;
}
