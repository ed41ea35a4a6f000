/* Nothing outlives a rater that died. Killed are: every process below the launcher, which as a
   child subreaper becomes the parent of all that lose theirs; every process of the run's
   cgroup; and every process that carries the run's mark, as set-up commands do that rater
   itself had started.

   Our parent is no prey: it is rater, where that lives on and only let go of us, as when a signal
   broke it off while we began. It carries the mark and is in the cgroup, for what it starts. The
   parent of one whose parent died is init, or what stands for it: no prey either. A number that
   `getppid` returns cannot be that of another process. */
#include "launcher.h"

#include <ctype.h>
#include <dirent.h>

#define PATIENCE_NS 1800000000LL       /* from then on looks have a gap between them */
#define LAST_PATIENCE_NS 60000000000LL /* the end, where processes fork as fast as they are killed */
#define GAP_NS 20000000L               /* between two looks */
#define CLEAN_LOOKS 2                  /* so many looks in a row that find nothing are enough */

/* Writes a file of a cgroup. A failure is no matter: processes are killed one by one as well. */
static void write_file(const char *folder, const char *name, const char *text) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return;
    ssize_t written = write(file, text, strlen(text));
    (void)written;
    close(file);
}

static bool has_limit(pid_t pid, unsigned long long locks) {
    struct rlimit limit;
    return locks && !prlimit(pid, RLIMIT_LOCKS, NULL, &limit) && limit.rlim_cur == locks;
}

/* Kills one process. Its group is killed too where it leads that group or has left our session, as
   processes that fork for ever are quicker than a look at each. Within our session the group may be
   that of the user who started rater, which a copy can have joined. Returns whether it lived. */
static bool kill_one(pid_t pid, char state) {
    pid_t group = getpgid(pid);
    if (group > 1 && (group == pid || getsid(pid) != getsid(0)))
        kill(-group, SIGKILL);
    return kill(pid, SIGKILL) == 0 && state != 'Z' && state != 'X';
}

/* Kills every child of ours and every marked process; returns how many of them lived. */
static int kill_all(const struct prey *prey) {
    DIR *proc = opendir("/proc");
    int killed = 0;
    for (struct dirent *folder; proc && (folder = readdir(proc));) {
        char path[64], line[1024], state = 0, *behind;
        pid_t pid = isdigit(folder->d_name[0]) ? atoi(folder->d_name) : 0, parent = 0;
        if (pid < 1 || pid == getpid() || pid == getppid())
            continue;
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        if (read_small(path, line, sizeof line) <= 0 || !(behind = strrchr(line, ')')) ||
            sscanf(behind + 1, " %c %d", &state, &parent) != 2)
            continue;
        if (parent == getpid() || has_limit(pid, prey->locks))
            killed += kill_one(pid, state);
    }
    if (proc)
        closedir(proc);
    return killed;
}

/* Returns whether a process is in a cgroup; true too where that cannot be read. */
static bool is_in_cgroup(const char *folder, pid_t pid) {
    char path[4096];
    snprintf(path, sizeof path, "%s/cgroup.procs", folder);
    FILE *file = fopen(path, "re");
    bool is_in = !file;
    for (int member; file && !is_in && fscanf(file, "%d", &member) == 1;)
        is_in = member == pid;
    if (file)
        fclose(file);
    return is_in;
}

/* Kills all that is in the run's cgroup. We may be in it ourselves, and so may our parent: both
   leave it first. Where our parent cannot leave, nothing is killed here. */
static void kill_cgroup(const char *folder) {
    char above[4096], parent[16];
    snprintf(above, sizeof above, "%s/..", folder);
    write_file(above, "cgroup.procs", "0");
    snprintf(parent, sizeof parent, "%d", getppid());
    if (is_in_cgroup(folder, getppid()))
        write_file(above, "cgroup.procs", parent);
    if (!is_in_cgroup(folder, getppid()))
        write_file(folder, "cgroup.kill", "1");
}

void hunt(const struct prey *prey) {
    int64_t begin = now_ns();
    const struct timespec gap = {.tv_nsec = GAP_NS};
    if (prey->cgroup[0])
        kill_cgroup(prey->cgroup);
    for (int clean = 0; clean < CLEAN_LOOKS && now_ns() - begin < LAST_PATIENCE_NS;) {
        clean = kill_all(prey) ? 0 : clean + 1;
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (clean || now_ns() - begin > PATIENCE_NS) /* otherwise the next look is at once */
            nanosleep(&gap, NULL);
    }
    while (prey->cgroup[0] && rmdir(prey->cgroup) && errno != ENOENT &&
           now_ns() - begin < PATIENCE_NS)
        nanosleep(&gap, NULL);
}
