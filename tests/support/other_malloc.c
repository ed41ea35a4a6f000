/* A malloc as a library that programs are linked with: each block is a mapping of its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

struct head { void *mapping; size_t bytes, usable; };

static struct head *head_of(void *block) { return (struct head *)block - 1; }

void *memalign(size_t align, size_t bytes)
{
    size_t whole = bytes + align + sizeof(struct head) + 4096;
    char *got = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) return NULL;
    align = align < 16 ? 16 : align;
    char *block = (char *)(((uintptr_t)got + sizeof(struct head) + align - 1) & -align);
    *head_of(block) = (struct head){got, whole, bytes};
    return block;
}
void *malloc(size_t bytes) { return memalign(16, bytes); }
void *calloc(size_t count, size_t size) { return memalign(16, count * size); }
void *aligned_alloc(size_t align, size_t bytes) { return memalign(align, bytes); }
int posix_memalign(void **to, size_t align, size_t bytes) { return (*to = memalign(align, bytes)) ? 0 : ENOMEM; }
size_t malloc_usable_size(void *block) { return block ? head_of(block)->usable : 0; }
void free(void *block) { if (block) munmap(head_of(block)->mapping, head_of(block)->bytes); }
void *realloc(void *block, size_t bytes)
{
    char *got = malloc(bytes);
    if (got && block) memcpy(got, block, bytes < head_of(block)->usable ? bytes : head_of(block)->usable);
    if (got) free(block);
    return got;
}
