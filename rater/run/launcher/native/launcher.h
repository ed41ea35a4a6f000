/* What rater and its launcher say to each other, over one socket of messages.

   rater sends requests; with START goes a descriptor of the memory that its table is in. The launcher
   sends records, whole ones and at most MOST_RECORDS in a message. Numbers are those of the machine.
   `rater/run/launcher/table.py` packs and unpacks the same: FORMAT is checked on both sides, and rises
   with every change of a structure.

   An offset in a table counts from the table's first byte. A string there ends with a zero byte;
   a list is a number and so many strings behind each other; a mask is a number of bytes and the bytes,
   least significant first. */
#ifndef RATER_LAUNCHER_H
#define RATER_LAUNCHER_H
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
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

#define FORMAT 2u
#define NOTHING 0xffffffffu /* no mask, no string: the copy has what the launcher was given */
#define MASK_BYTES 1024     /* 8192 CPUs */
#define TEXT_BYTES 168
#define MOST_RECORDS 64
#define REPORT_FD 9 /* rater/run/programs/script.py: of copies, so none that their gate needs */

enum { START = 1, RELEASE, ALLOW, SIGNAL, DISCARD, GOODBYE };

struct request {
    uint32_t kind;
    uint32_t token; /* of one process; DISCARD: 0 is all that wait */
    int32_t value;  /* SIGNAL: its number; GOODBYE: 1 hunts what is left first */
};

struct table { /* of START */
    uint32_t format, entries;
};

enum { REPORTS = 1, PROOF = 2, WELL = 4, HELD = 8 };

struct entry {
    uint32_t token; /* of this process, from 1 */
    uint32_t after; /* it begins when that one ends; 0: with RELEASE */
    uint32_t copy;
    uint32_t flags;        /* WELL: not when that one failed; HELD: not before ALLOW either */
    uint32_t argv;         /* list; the first word is the file that is executed */
    uint32_t shared, own;  /* lists: variables of many copies, and of this one */
    uint32_t directory, output, error;
    uint32_t cpus, nodes;  /* masks */
    uint32_t accepted;     /* mask: exit codes that are no failure */
    int32_t policy;        /* of memory, as set_mempolicy(2) has it; negative: as it is */
    int32_t transparent;   /* huge pages: 1 as the kernel likes, 0 none, negative: as it is */
    int32_t unused;
    int64_t offset_ns;     /* it begins so long after RELEASE */
};

enum { HELLO = 1, READY, RELEASED, STARTED, ENDED, BROKEN, REFUSED, REPORT, STALLED };

/* What a process could not do before its program began. */
enum { FORKED = 1, GROUP, CPUS, CPUS_GIVEN, MEMORY, MEMORY_GIVEN, PAGES, LIMITS, DIRECTORY,
       OUTPUT, ERROR, EXECUTE };

struct figures {
    int64_t start_ns, planned_ns; /* CLOCK_MONOTONIC; 0: never released */
    int64_t seen_ns;              /* ENDED late: it had not ended then; 0: its stamp is right */
    int64_t stalled_ns;           /* for so long the launcher itself did not run */
    int64_t gate_cpu_ns, gate_delay_ns, gate_peak_bytes;
    int64_t cpu_ns, delay_ns; /* of its first thread, as schedstat has them; -1: not known */
    int64_t user_ns, system_ns, peak_bytes, minor_faults, major_faults, voluntary, involuntary;
    /* Limits of one that a signal ended; -1: unlimited, or not read. */
    struct rlimit cpu_limit, file_limit; /* seconds, bytes: soft, hard */
    int32_t last_cpu; /* -1: not known */
    int32_t left;     /* processes of its group were there, and were killed */
};

struct record {
    uint32_t kind, token;
    int32_t pid;
    int32_t status; /* ENDED: as wait(2) has it; BROKEN: where; REPORT: bytes; HELLO: FORMAT */
    int32_t error;  /* BROKEN: errno, or the policy that the kernel has */
    int32_t unused;
    int64_t at_ns;
    union {
        struct figures figures;
        unsigned char text[TEXT_BYTES]; /* REPORT: bytes; BROKEN: mask that the kernel gave */
    };
};

int64_t now_ns(void);
int read_small(const char *path, char *text, size_t size);
void read_schedstat(const char *path, int64_t *cpu_ns, int64_t *delay_ns);

/* hunt.c: what is done when rater has died, or left something that it could not kill */
struct prey {
    unsigned long long locks; /* limit of file locks that processes of the run have */
    const char *cgroup;       /* of the run; "": there is none */
};
void hunt(const struct prey *prey);

/* child.c: what a forked child does until its program begins */
struct view { /* a table and its size */
    const char *bytes;
    uint32_t size;
};
struct slot { /* in memory that launcher and child share */
    uint32_t go, ready;
    int32_t stage, error;
    struct figures figures;
    unsigned char given[TEXT_BYTES];
};
struct gate {
    uint32_t *word, closed;  /* it waits as long as the word is this */
    const uint32_t *awaited; /* token of the process that wakes the launcher when it is ready */
    int reports;             /* that a script reports its commands by */
};
int find_mask(struct view table, uint32_t offset, unsigned char *bytes);
void remember_origin(unsigned long long locks);
_Noreturn void child(struct view table, const struct entry *entry, struct slot *slot,
                     struct gate gate);

#endif
