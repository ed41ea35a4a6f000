/* What CPUID says of the processor's TLBs, for facts of the machine: no run needs it.
 *
 * A line a leaf: its number, a point and its subleaf where it has some, and the registers eax, ebx,
 * ecx and edx, all hexadecimal. Nothing on other processors.
 */
#include <stdio.h>

#include "launcher.h"

#if defined __x86_64__ || defined __i386__
#include <cpuid.h>

static void print_leaf(const char *name, unsigned leaf, unsigned subleaf)
{
    unsigned eax, ebx, ecx, edx;
    if (__get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx))
        printf("%s %x %x %x %x\n", name, eax, ebx, ecx, edx);
}

int print_cpuid(void)
{
    enum { TLBS = 0x18, MOST_SUBLEAVES = 32 };
    unsigned last = 0, ebx, ecx, edx;
    print_leaf("0", 0, 0);
    print_leaf("2", 2, 0);
    if (__get_cpuid_count(TLBS, 0, &last, &ebx, &ecx, &edx))
        for (unsigned subleaf = 0; subleaf <= last && subleaf < MOST_SUBLEAVES; subleaf++) {
            char name[16];
            snprintf(name, sizeof name, "18.%u", subleaf);
            print_leaf(name, TLBS, subleaf);
        }
    print_leaf("80000005", 0x80000005, 0);
    print_leaf("80000006", 0x80000006, 0);
    print_leaf("80000019", 0x80000019, 0);
    return 0;
}
#else
int print_cpuid(void)
{
    return 0;
}
#endif
