/* Nothing outlives a rater that died: every process below the launcher, which as a child subreaper
   gets all that lose their parent, every one of the run's cgroup, and whatever else carries the
   run's mark: set-up commands and their like, which rater itself had started. */
#include "launcher.h"

#include <ctype.h>
#include <dirent.h>

#define PATIENCE_NS 1800000000LL
#define LAST_PATIENCE_NS 60000000000LL /* for what multiplies as fast as it is killed */
#define GAP_NS 20000000L
#define CLEAN 2 /* looks that find nothing */

static int write_file(const char *folder, const char *name, const char *text) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t done = write(file, text, strlen(text));
    close(file);
    return done < 0 ? -1 : 0;
}

static int has_limit(pid_t pid, unsigned long long locks) {
    struct rlimit limit;
    return locks && !prlimit(pid, RLIMIT_LOCKS, NULL, &limit) && limit.rlim_cur == locks;
}

/* Kills one process, and its group where it leads that or has left our session: what forks for ever
   is quicker than a look at each. In ours a copy may have joined the group of whoever started rater. */
static int kill_one(pid_t pid, char state) {
    pid_t group = getpgid(pid);
    if (group > 1 && (group == pid || getsid(pid) != getsid(0)))
        kill(-group, SIGKILL);
    return kill(pid, SIGKILL) == 0 && state != 'Z' && state != 'X';
}

/* Kills every child of ours and everything marked; returns how many lived. */
static int kill_all(const struct prey *prey) {
    DIR *proc = opendir("/proc");
    int killed = 0;
    for (struct dirent *one; proc && (one = readdir(proc));) {
        char path[64], line[1024], state = 0, *behind;
        pid_t pid = isdigit(one->d_name[0]) ? atoi(one->d_name) : 0, parent = 0;
        if (pid < 1 || pid == getpid())
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

void hunt(const struct prey *prey) {
    int64_t begin = now_ns();
    const struct timespec gap = {.tv_nsec = GAP_NS};
    if (prey->cgroup[0]) { /* which we are in ourselves, and leave */
        char parent[4096];
        snprintf(parent, sizeof parent, "%s/..", prey->cgroup);
        write_file(parent, "cgroup.procs", "0");
        write_file(prey->cgroup, "cgroup.kill", "1");
    }
    for (int clean = 0; clean < CLEAN && now_ns() - begin < LAST_PATIENCE_NS;) {
        clean = kill_all(prey) ? 0 : clean + 1;
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (clean || now_ns() - begin > PATIENCE_NS) /* else at once */
            nanosleep(&gap, NULL);
    }
    while (prey->cgroup[0] && rmdir(prey->cgroup) && errno != ENOENT &&
           now_ns() - begin < PATIENCE_NS)
        nanosleep(&gap, NULL);
}
