/* The protocol of rater and its launcher, over one socket that keeps messages apart.

   rater sends requests. With START it sends a file descriptor too, of a memory that holds a
   table. The launcher sends records, at most MOST_RECORDS in a message. Numbers have the byte
   order of the machine. `rater/run/launcher/table.py` packs and unpacks the same structures:
   both sides check FORMAT, which rises with every change of a structure.

   An offset in a table counts from the table's first byte. A string ends with a zero byte. A
   list is a number, and behind it as many strings. A mask is a number of bytes, and behind it
   these bytes, the least significant first. Times are of CLOCK_MONOTONIC, in nanoseconds. */
#ifndef RATER_LAUNCHER_H
#define RATER_LAUNCHER_H
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FORMAT 6u
#define NO_OFFSET 0xffffffffu /* instead of a mask: the copy has what the launcher was given */
#define MASK_BYTES 1024       /* 8192 CPUs */
#define TEXT_BYTES 240
/* The SHA-256 of these sources, one behind the other in the order of their names, in hexadecimal.
   Who builds the launcher defines it: rater believes no other program than that of its sources. */
#ifndef SOURCE_DIGEST
#define SOURCE_DIGEST ""
#endif
#define MOST_RECORDS 64
/* Scripts of copies report their commands on this descriptor (rater/run/programs/script.py). The
   launcher keeps its own end of that pipe above it, as a child puts the pipe on this number. */
#define REPORT_FD 9

/* -- Requests of rater ------------------------------------------------------------------------- */

enum request_kind {
    START = 1, /* fork the processes of a table; each waits at its gate */
    RELEASE,   /* all at their gates begin that follow no other process */
    ALLOW,     /* a process that is HELD may follow the one before it */
    SIGNAL,    /* send a signal to a process and its group */
    DISCARD,   /* kill processes that have not begun */
    GOODBYE    /* the launcher ends */
};

struct request {
    uint32_t kind;
    uint32_t token; /* of one process; DISCARD: 0 means all that wait */
    int32_t value;  /* SIGNAL: its number; GOODBYE: 1 means that all that is left is killed first */
};

struct table { /* of START; as many entries follow it */
    uint32_t format, entries;
};

enum process_flag {
    REPORTS = 1, /* it has the pipe on REPORT_FD */
    PROOF = 2,   /* schedstat is read at its gate and at its end */
    WELL = 4,    /* it does not follow a process that failed */
    HELD = 8,    /* it does not follow before ALLOW */
    AGAIN = 16   /* once it has begun, the same entry is started to follow it if it ends well */
};

struct entry {
    uint32_t token; /* name of this process in requests and records, from 1 */
    uint32_t after; /* token of the process whose end it begins with; 0: it begins with RELEASE */
    uint32_t copy;
    uint32_t flags;                             /* of enum process_flag */
    uint32_t argv;                              /* list; its first string is the file to execute */
    uint32_t shared_variables, own_variables;   /* lists: of many copies, and of this copy alone */
    uint32_t directory, output, error;          /* strings: paths */
    uint32_t next_output, next_error;           /* AGAIN: paths of every second run */
    uint32_t cpus, nodes;                       /* masks */
    uint32_t accepted;                          /* mask: exit codes that are no failure */
    int32_t policy;      /* of memory, in numbers of set_mempolicy(2); negative: unchanged */
    int32_t transparent; /* huge pages: 1 by the kernel's setting, 0 none, negative: unchanged */
    int32_t first_look_ms; /* from its begin to the first look at it; 0: there are no looks */
    int64_t offset_ns; /* from RELEASE to its begin */
};

/* -- Records of the launcher ------------------------------------------------------------------- */

enum record_kind { HELLO = 1, READY, RELEASED, STARTED, ENDED, BROKEN, REFUSED, REPORT, STALLED,
                   REPEATED /* AGAIN: a process that rater did not ask for waits to follow */ };

/* The steps of a start: BROKEN names the one that failed. EXECUTE alone comes after the release. */
enum start_step { FORKED = 1, GROUP, PRIORITY, CPUS, CPUS_GIVEN, MEMORY, MEMORY_GIVEN, PAGES,
                  LIMITS, DIRECTORY, OUTPUT, ERROR, EXECUTE };

struct figures {
    int64_t start_ns, planned_ns; /* 0: it was never released */
    int64_t seen_ns;    /* ENDED: the process had not ended at this time; 0: its stamp is in time */
    int64_t stalled_ns; /* ENDED: the launcher itself had not run for so long */
    /* Of the child at its gate: what rater takes off the figures of the whole process. */
    int64_t gate_cpu_ns, gate_delay_ns, gate_peak_bytes;
    int64_t cpu_ns, delay_ns; /* schedstat of its first thread; -1: not known */
    int64_t user_ns, system_ns, peak_bytes, minor_faults, major_faults, voluntary, involuntary;
    int64_t read_bytes, written_bytes; /* of and to disks, with those of its children */
    /* Soft and hard limits of a process that a signal ended; -1: unlimited, or not read. */
    struct rlimit cpu_limit, file_limit; /* seconds; bytes */
    /* ENDED: of looks at it and the processes below it, each for the time since the one before. */
    int64_t looks, look_cpu_ns; /* their number, 0: it was not seen; and what they cost */
    int64_t mean_bytes, most_bytes, stopped_ns;
    int64_t other_cpu_ns, other_delay_ns; /* of all threads but its first */
    int32_t last_cpu;   /* -1: not known */
    int32_t left_group; /* 1: processes of its group had outlived it, and were killed */
};

struct record {
    uint32_t kind, token;
    int32_t pid;
    int32_t status; /* ENDED: of wait(2); BROKEN: start_step; REPORT: bytes; HELLO: FORMAT;
                        REPEATED: the token of the process that it follows */
    int32_t error;  /* BROKEN: errno; MEMORY_GIVEN: the policy that the kernel set instead */
    int32_t unused;
    int64_t at_ns; /* when it happened; STALLED: for how long */
    union {
        struct figures figures;         /* STARTED, ENDED */
        /* REPORT; BROKEN: the mask that the kernel set instead; HELLO: SOURCE_DIGEST */
        unsigned char text[TEXT_BYTES];
    };
};

/* -- Within the launcher ----------------------------------------------------------------------- */

int64_t now_ns(void);
int read_small(const char *path, char *text, size_t size);
void read_schedstat(const char *path, int64_t *cpu_ns, int64_t *delay_ns);

/* looks.c: what running copies use */
struct looks { /* at one copy; the figures of its end have the sums */
    int64_t next_ns; /* when the next one is due; 0: there are none */
    int64_t looked_ns; /* time since its begin that looks stand for */
    unsigned threads;  /* all but its first, by the last look */
    struct thread_times *times;         /* of these; allocated */
    int64_t gone_cpu_ns, gone_delay_ns; /* of those that a look saw, and the last one did not */
};
/* Looks at a copy that runs. `goes_on` is called every few microseconds, and ends the look by
   returning false. */
void look_at(pid_t pid, struct looks *looks, struct figures *figures, bool (*goes_on)(void));

/* hunt.c: what is done when rater has died, or left a process that it could not kill */
struct prey {
    unsigned long long locks; /* the soft limit of file locks that marks processes of the run */
    const char *cgroup;       /* of the run; "": the run has none */
};
void hunt(const struct prey *prey);

/* child.c: what a child does until its program begins */
/* The stack of a child that shares the launcher's memory. Small ones lie in one page: all of that
   memory counts as the peak of a copy. */
#ifdef __OPTIMIZE__
#define STACK_BYTES 1024
#else
#define STACK_BYTES 4096
#endif
#define NODE_BYTES 128   /* 1024 NUMA nodes, the most that a kernel has */
struct view { /* a table and its size */
    const char *bytes;
    uint32_t size;
};
struct slot { /* what launcher and child tell each other of one process, in shared memory */
    uint32_t go, ready;              /* go: futex, 1 once it may begin; ready: 1 once it waits */
    int32_t step, error;             /* enum start_step, 0: nothing failed; and its errno */
    struct figures figures;          /* of the gate */
    unsigned char given[TEXT_BYTES]; /* the mask that the kernel set instead of the wanted one */
};
struct birth { /* what a child is given; it stays as it is until the child has ended */
    struct view table;
    const struct entry *entry;
    struct slot *slot;
    char **argv, **environment; /* for execve; the word in front of `argv` is free */
    unsigned char nodes[NODE_BYTES];
    bool has_nodes;
    uint32_t *gate, closed;  /* the child waits as long as the word has the value `closed` */
    const uint32_t *awaited; /* token of the last process of the turn, which wakes the launcher */
    int reports;             /* the pipe by which scripts report their commands */
    unsigned first_pidfd;    /* descriptors from there on are the launcher's; 0: it has none */
};
void remember_origin(unsigned long long locks);
void rise(void);
_Noreturn void child(const struct birth *birth);

/* cpuid.c: what the processor says of its TLBs, printed; no run asks for it */
int print_cpuid(void);

#endif
