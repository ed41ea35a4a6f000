/* A valgrind tool that writes every page a program refers to into a descriptor (record.h).
 *
 *   VALGRIND_LIB=FOLDER valgrind --tool=rater --trace-children=yes --page-fd=5 --page-inode=INODE PROGRAM 5>PIPE
 *
 * Of several processes only the first is traced: a forked child gives the descriptor up, and runs
 * without being looked at; one that replaces itself (exec) goes on writing. Threads are
 * serialized by valgrind, so that their references are one stream.
 */
#include "pub_tool_basics.h"
#include "pub_tool_tooliface.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_aspacemgr.h"
#include "pub_tool_clreq.h"
#include "pub_tool_machine.h"
#include "pub_tool_options.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "record.h"

enum { WORDS = 1 << 13, GROUP = 4, LINE_SHIFT = 6, RECENT = 1 << 10 /* 64 KiB of lines */ };

/* Of the core, not in the headers for tools; unchanged since 2005. */
extern Int VG_(fcntl)(Int fd, Int command, Addr argument);
extern Int VG_(fd_hard_limit);

static Int fd = -1, given = -1; /* where records go; as the option has it, for a program that follows */
static Long inode; /* of the pipe: another file may have its number by now */
static ULong buffer[WORDS];
static UInt filled;
static UWord page = ~0ul; /* of the run of references under way */
static ULong count, stored; /* the first one is a store */
static ULong lines;         /* that were new to `recent` */
static UWord recent[RECENT]; /* a direct-mapped cache of numbers of lines */
static Addr library_start, library_end; /* what the loader maps of a file before its parts */
static Bool stack_told, ranges_told; /* by the program: what else is mapped is none of its data */

/* ---- writing -------------------------------------------------------------------------------- */

static void flush(void)
{
    const HChar *from = (const HChar *)buffer;
    Int left = (Int)(filled * sizeof *buffer);

    while (left > 0 && fd >= 0) {
        Int written = VG_(write)(fd, from, left);
        if (written == -VKI_EINTR) continue;
        if (written <= 0) { fd = -1; break; } /* nobody reads any more */
        from += written;
        left -= written;
    }
    filled = 0;
}

static inline void put(ULong word)
{
    buffer[filled++] = word;
    if (UNLIKELY(filled == WORDS)) flush();
}

static void end_run(void)
{
    if (count) put(page | stored << RECORD_PAGE_BITS | count << RECORD_COUNT_SHIFT | lines << RECORD_LINES_SHIFT);
    count = 0;
}

static __attribute__((noinline)) void begin_run(UWord to, UWord store, UWord fresh)
{
    end_run();
    page = to;
    count = 1;
    stored = store;
    lines = fresh;
}

/* Says whether the line of an address is none of the recent ones. */
static inline UWord is_fresh(Addr at)
{
    UWord line = at >> LINE_SHIFT, *slot = &recent[(line ^ line >> 10) % RECENT];
    if (LIKELY(*slot == line)) return 0;
    *slot = line;
    return 1;
}

static inline void refer(Addr at, UWord store)
{
    UWord to = at >> 12 & RECORD_PAGE, fresh = is_fresh(at);
    if (LIKELY(to == page && count < RECORD_COUNT && lines < RECORD_LINES)) { count++; lines += fresh; }
    else begin_run(to, store, fresh);
}

static void tell(Int kind, Addr begin, Addr end)
{
    if (fd < 0 || end <= begin) return;
    end_run();
    page = ~0ul;
    put(RECORD_EVENT | (ULong)kind << RECORD_KIND_SHIFT | (begin & RECORD_ADDRESS));
    put(end & RECORD_ADDRESS);
}

/* ---- references: called by the translated program; a bit of `stores` for each ----------------- */

static void refer1(UWord stores, Addr a) { refer(a, stores & 1); }
static void refer2(UWord stores, Addr a, Addr b) { refer(a, stores & 1); refer(b, stores >> 1 & 1); }
static void refer3(UWord stores, Addr a, Addr b, Addr c)
{
    refer(a, stores & 1); refer(b, stores >> 1 & 1); refer(c, stores >> 2 & 1);
}
static void refer4(UWord stores, Addr a, Addr b, Addr c, Addr d)
{
    refer(a, stores & 1); refer(b, stores >> 1 & 1); refer(c, stores >> 2 & 1); refer(d, stores >> 3 & 1);
}

static struct { IRExpr *at[GROUP]; UWord stores; Int size; } group;

static void call_group(IRSB *block)
{
    IRExpr *stores = mkIRExpr_HWord(group.stores), **at = group.at;
    IRDirty *call = NULL;

    switch (group.size) {
    case 0: return;
    case 1: call = unsafeIRDirty_0_N(0, "refer1", VG_(fnptr_to_fnentry)(refer1), mkIRExprVec_2(stores, at[0])); break;
    case 2: call = unsafeIRDirty_0_N(0, "refer2", VG_(fnptr_to_fnentry)(refer2), mkIRExprVec_3(stores, at[0], at[1])); break;
    case 3: call = unsafeIRDirty_0_N(0, "refer3", VG_(fnptr_to_fnentry)(refer3), mkIRExprVec_4(stores, at[0], at[1], at[2])); break;
    default: call = unsafeIRDirty_0_N(0, "refer4", VG_(fnptr_to_fnentry)(refer4), mkIRExprVec_5(stores, at[0], at[1], at[2], at[3])); break;
    }
    addStmtToIRSB(block, IRStmt_Dirty(call));
    group.size = 0;
    group.stores = 0;
}

static void add_reference(IRSB *block, IRExpr *at, Bool store, IRExpr *guard)
{
    if (guard != NULL) { /* conditional: a call of its own, in its place */
        call_group(block);
        IRDirty *call = unsafeIRDirty_0_N(0, "refer1", VG_(fnptr_to_fnentry)(refer1),
                                          mkIRExprVec_2(mkIRExpr_HWord(store), at));
        call->guard = guard;
        addStmtToIRSB(block, IRStmt_Dirty(call));
        return;
    }
    if (group.size == GROUP) call_group(block);
    group.stores |= (UWord)store << group.size;
    group.at[group.size++] = at;
}

static void tell_stack(void)
{
    Addr top = VG_(thread_get_stack_max)(1);
    SizeT size = VG_(thread_get_stack_size)(1);
    stack_told = True;
    if (top && size) tell(EVENT_STACK, top + 1 - size, top + 1);
}

static IRSB *instrument(VgCallbackClosure *closure, IRSB *from, const VexGuestLayout *layout,
                        const VexGuestExtents *extents, const VexArchInfo *host, IRType guest_word, IRType host_word)
{
    (void)closure; (void)layout; (void)extents; (void)host; (void)guest_word; (void)host_word;
    if (fd < 0) return from;
    if (!stack_told) tell_stack();
    IRSB *to = deepCopyIRSBExceptStmts(from);
    group.size = 0;
    group.stores = 0;
    for (Int i = 0; i < from->stmts_used; i++) {
        IRStmt *s = from->stmts[i];
        if (s == NULL) continue;
        switch (s->tag) {
        case Ist_WrTmp:
            if (s->Ist.WrTmp.data->tag == Iex_Load) add_reference(to, s->Ist.WrTmp.data->Iex.Load.addr, False, NULL);
            break;
        case Ist_Store: add_reference(to, s->Ist.Store.addr, True, NULL); break;
        case Ist_LoadG: add_reference(to, s->Ist.LoadG.details->addr, False, s->Ist.LoadG.details->guard); break;
        case Ist_StoreG: add_reference(to, s->Ist.StoreG.details->addr, True, s->Ist.StoreG.details->guard); break;
        case Ist_CAS:
            add_reference(to, s->Ist.CAS.details->addr, False, NULL);
            add_reference(to, s->Ist.CAS.details->addr, True, NULL);
            break;
        case Ist_LLSC: add_reference(to, s->Ist.LLSC.addr, s->Ist.LLSC.storedata != NULL, NULL); break;
        case Ist_Dirty: {
            const IRDirty *d = s->Ist.Dirty.details;
            IRExpr *guard = d->guard->tag == Iex_Const ? NULL : d->guard;
            if (d->mFx == Ifx_Read || d->mFx == Ifx_Modify) add_reference(to, d->mAddr, False, guard);
            if (d->mFx == Ifx_Write || d->mFx == Ifx_Modify) add_reference(to, d->mAddr, True, guard);
            break;
        }
        case Ist_Exit: call_group(to); break;
        default: break;
        }
        addStmtToIRSB(to, s);
    }
    call_group(to);
    return to;
}

/* What a system call reads and writes: one reference a page. */
static void kernel_refers(Addr begin, SizeT size, UWord store)
{
    if (fd < 0 || size == 0) return;
    refer(begin, store);
    for (Addr at = (begin | 4095) + 1; at < begin + size && at > begin; at += 4096) refer(at, store);
}
static void kernel_reads(CorePart part, ThreadId thread, const HChar *what, Addr begin, SizeT size)
{
    (void)thread; (void)what;
    if (part == Vg_CoreSysCall) kernel_refers(begin, size, 0);
}
static void kernel_wrote(CorePart part, ThreadId thread, Addr begin, SizeT size)
{
    (void)thread;
    if (part == Vg_CoreSysCall) kernel_refers(begin, size, 1);
}

/* ---- which addresses are what ------------------------------------------------------------------ */

static void on_mmap(Addr begin, SizeT size, Bool r, Bool w, Bool x, ULong debug)
{
    const NSegment *segment = VG_(am_find_nsegment)(begin);
    Addr end = begin + size;
    Bool inside = begin >= library_start && end <= library_end;
    (void)debug;
    if (segment != NULL && segment->kind == SkFileC) {
        if (!inside) { library_start = begin; library_end = end; }
        tell(w && inside ? EVENT_STATIC : EVENT_OTHER, begin, end);
    } else if (inside) {
        tell(EVENT_STATIC, begin, end); /* the .bss of a library, put into its place */
    } else {
        /* Reserved without access (heaps of java and node, stacks of threads): made accessible
         * later, which no page layout can shape. */
        tell(r && w && !x && !ranges_told ? EVENT_MMAP : EVENT_OTHER, begin, end);
    }
}

/* At the start: program and interpreter with their .bss, the stack, an empty break. */
static void on_startup(Addr begin, SizeT size, Bool r, Bool w, Bool x, ULong debug)
{
    (void)r; (void)x; (void)debug;
    tell(w ? EVENT_STATIC : EVENT_OTHER, begin, begin + size);
}

static void on_brk(Addr begin, SizeT size, ThreadId thread) { (void)thread; tell(ranges_told ? EVENT_OTHER : EVENT_HEAP, begin, begin + size); }
static void on_munmap(Addr begin, SizeT size) { tell(EVENT_UNMAP, begin, begin + size); }
static void on_mremap(Addr from, Addr to, SizeT size) { (void)from; tell(ranges_told ? EVENT_OTHER : EVENT_MMAP, to, to + size); }

static void before_syscall(ThreadId thread, UInt number, UWord *args, UInt n) { (void)thread; (void)number; (void)args; (void)n; }
static void after_syscall(ThreadId thread, UInt number, UWord *args, UInt n, SysRes result)
{
    (void)thread;
    if (number == __NR_madvise && n >= 3 && !sr_isError(result) && (args[2] == 4 || args[2] == 8)) /* DONTNEED, FREE */
        tell(EVENT_DROP, args[0], args[0] + args[1]);
}

static Bool on_request(ThreadId thread, UWord *args, UWord *result)
{
    (void)thread;
    if (args[0] != REQUEST_RANGE) return False;
    if (args[1] >= EVENT_HEAP && args[1] <= EVENT_OTHER) tell((Int)args[1], args[2], args[3]);
    *result = 1;
    return True;
}

/* ---- beginning and end ------------------------------------------------------------------------- */

static void in_parent(ThreadId thread) { (void)thread; tell(EVENT_FORK, 1, 2); }
static void in_child(ThreadId thread)
{
    (void)thread;
    if (fd < 0) return;
    VG_(close)(fd);
    VG_(close)(given); /* of programs that the child starts */
    fd = -1;
    filled = 0;
    count = 0;
}

static Bool option(const HChar *arg)
{
    if VG_INT_CLO(arg, "--page-fd", given) {}
    else if VG_BINT_CLO(arg, "--page-inode", inode, 0, 0x7fffffffffffffffLL) {}
    else if VG_BOOL_CLO(arg, "--told-ranges", ranges_told) {}
    else return False;
    return True;
}
static void usage(void)
{
    VG_(printf)("    --page-fd=N       descriptor of the pipe that gets the records\n"
                "    --page-inode=N    the pipe's inode\n"
                "    --told-ranges=yes the program says what is heap and mmap (preload/announce.c)\n");
}
static void debug_usage(void) {}
static void post_init(void)
{
    /* Out of the program's reach, which may close all it finds. None: of a child. */
    struct vg_stat is;
    if (given >= 0 && VG_(fstat)(given, &is) == 0 && is.ino == (ULong)inode)
        fd = VG_(fcntl)(given, VKI_F_DUPFD, (Addr)VG_(fd_hard_limit));
    if (fd >= 0) VG_(fcntl)(fd, VKI_F_SETFD, VKI_FD_CLOEXEC);
    tell(EVENT_RESET, 1, 2);
}
static void end(Int code)
{
    (void)code;
    end_run();
    flush();
}
static void pre_init(void)
{
    VG_(details_name)("rater");
    VG_(details_version)("1");
    VG_(details_description)("pages that a program refers to");
    VG_(details_copyright_author)("rater");
    VG_(details_bug_reports_to)("rater");
    VG_(basic_tool_funcs)(post_init, instrument, end);
    VG_(needs_command_line_options)(option, usage, debug_usage);
    VG_(needs_client_requests)(on_request);
    VG_(needs_syscall_wrapper)(before_syscall, after_syscall);
    VG_(track_new_mem_mmap)(on_mmap);
    VG_(track_new_mem_startup)(on_startup);
    VG_(track_new_mem_brk)(on_brk);
    VG_(track_die_mem_munmap)(on_munmap);
    VG_(track_die_mem_brk)(on_munmap);
    VG_(track_copy_mem_remap)(on_mremap);
    VG_(track_pre_mem_read)(kernel_reads);
    VG_(track_post_mem_write)(kernel_wrote);
    VG_(atfork)(NULL, in_parent, in_child);
}
VG_DETERMINE_INTERFACE_VERSION(pre_init)
