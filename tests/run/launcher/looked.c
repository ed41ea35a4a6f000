/* `looked PID AGE_NS PATIENCE`: look at a process, as at a copy of that age, with each line that is
   read, and print what the looks came to. PATIENCE: files after which the copy has ended; 0: never. */
#include "launcher.h"

static int patience;

static bool goes_on(void)
{
    return --patience != 0;
}

int main(int argc, char **argv)
{
    char line[8];
    struct looks looks = {.next_ns = 1};
    struct figures it = {.start_ns = now_ns() - (argc > 2 ? atoll(argv[2]) : 0)};
    patience = argc > 3 ? atoi(argv[3]) : 0;
    looks.next_ns = it.start_ns + 1000000000LL;
    while (argc > 1 && fgets(line, sizeof line, stdin)) {
        look_at(atoi(argv[1]), &looks, &it, goes_on);
        printf("%lld %lld %lld %lld %lld %lld %lld %lld\n", (long long)it.looks,
               (long long)looks.looked_ns, (long long)it.mean_bytes, (long long)it.most_bytes,
               (long long)it.stopped_ns, (long long)it.other_cpu_ns, (long long)it.look_cpu_ns,
               (long long)((looks.next_ns - it.start_ns) / 1000000));
        fflush(stdout);
    }
    return 0;
}
