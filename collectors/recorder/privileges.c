// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nothing that is found in a plan, a stack or a file of the target should be able to use root's
 * rights.
 *
 * CAP_SYS_ADMIN stays: the kernel's run-time statistics are switched on and off, and files of the
 * target's mappings are opened. The filter of system calls takes most of what it could be used for.
 */
#include "privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "types.h"

#if defined(__x86_64__)
#define MACHINE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define MACHINE AUDIT_ARCH_AARCH64
#endif

/* As in linux/capability.h of Linux 5.9; Debian 12's headers have them, older ones may not. */
enum { CAPS_WORDS = 2, CAP_BITS = 32 };

static const u8 kept[] = {
	CAP_BPF,       /* maps and links, before Linux 5.19 any call of bpf() */
	CAP_PERFMON,   /* probes of another level, the sampler of a CPU that comes online */
	CAP_SYS_ADMIN, /* see above */
	CAP_CHECKPOINT_RESTORE, /* /proc/PID/map_files, where it suffices */
	CAP_SYS_PTRACE,		/* maps and stacks of the target */
	CAP_DAC_READ_SEARCH,	/* its files, if only their owner may read them */
	CAP_SYSLOG,		/* names of the kernel's functions */
};

static const u16 allowed[] = {
	/* files that are open or are read, time, waiting, memory */
	SYS_read,
	SYS_pread64,
	SYS_write,
	SYS_writev,
	SYS_close,
	SYS_lseek,
	SYS_fstat,
	SYS_newfstatat,
	SYS_statx,
	SYS_getdents64,
	SYS_readlinkat,
	SYS_faccessat,
	SYS_fcntl,
	SYS_ppoll,
	SYS_futex,
	SYS_nanosleep,
	SYS_clock_nanosleep,
	SYS_clock_gettime,
	SYS_clock_getres,
	SYS_restart_syscall,
	SYS_mmap,
	SYS_munmap,
	SYS_mremap,
	SYS_mprotect,
	SYS_madvise,
	SYS_brk,
	/* processes and signals of its own */
	SYS_getpid,
	SYS_gettid,
	SYS_getppid,
	SYS_sched_yield,
	SYS_sched_getaffinity,
	SYS_wait4,
	SYS_waitid,
	SYS_rt_sigaction,
	SYS_rt_sigprocmask,
	SYS_rt_sigreturn,
	SYS_sigaltstack,
	SYS_tgkill,
	SYS_exit,
	SYS_exit_group,
	/* the start of a thread that has not run yet */
	SYS_rseq,
	SYS_set_robust_list,
	SYS_capget,
	SYS_capset,
	SYS_perf_event_open,
#ifdef SYS_poll /* older machines have these, too */
	SYS_poll,
	SYS_access,
	SYS_readlink,
	SYS_stat,
#endif
};

/* No program is loaded and no map is made or pinned once the recording has begun. */
static const u16 bpf_commands[] = {
	BPF_MAP_LOOKUP_ELEM,
	BPF_MAP_UPDATE_ELEM,
	BPF_MAP_DELETE_ELEM,
	BPF_MAP_GET_NEXT_KEY,
	BPF_OBJ_GET_INFO_BY_FD,
	BPF_RAW_TRACEPOINT_OPEN,
	BPF_MAP_LOOKUP_AND_DELETE_ELEM,
	BPF_MAP_LOOKUP_BATCH,
	BPF_MAP_LOOKUP_AND_DELETE_BATCH,
	BPF_MAP_UPDATE_BATCH,
	BPF_MAP_DELETE_BATCH,
	BPF_LINK_CREATE,
	BPF_ENABLE_STATS,
	BPF_ITER_CREATE,
	BPF_MAP_FREEZE,
	BPF_PROG_TEST_RUN,
};

enum { WRITING = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND, PERF_IOCTLS = '$' << 8 };
enum { FILTER_MOST = 2 * (COUNT(allowed) + COUNT(bpf_commands)) + 48 };

static struct sock_filter filter[FILTER_MOST];
static u16 length;

static void put(u16 code, u32 value, u8 if_true, u8 if_false)
{
	filter[length++] = (struct sock_filter)BPF_JUMP(code, value, if_true, if_false);
}

static void load(size_t offset)
{
	put(BPF_LD | BPF_W | BPF_ABS, (u32)offset, 0, 0);
}

static void load_argument(int number)
{
	/* The low half: both machines are little-endian. */
	load(offsetof(struct seccomp_data, args) + (size_t)number * sizeof(__u64));
}

static void allow(void)
{
	put(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
}

static void deny(void)
{
	put(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM, 0, 0);
}

static void allow_if(u32 value)
{
	put(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
	allow();
}

/* What follows, up to `put_end`, is for this system call only. */
static u16 only_for(u32 call)
{
	put(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 0);
	return (u16)(length - 1);
}

static void end_only(u16 start)
{
	deny();
	filter[start].jf = (u8)(length - start - 1);
}

static void build(pid_t watchdog)
{
	u16 start;

	length = 0;
	load(offsetof(struct seccomp_data, arch));
	put(BPF_JMP | BPF_JEQ | BPF_K, MACHINE, 1, 0);
	deny();
	load(offsetof(struct seccomp_data, nr));
	start = only_for(SYS_openat);
	load_argument(2);
	put(BPF_JMP | BPF_JSET | BPF_K, WRITING, 1, 0);
	allow();
	end_only(start);
#ifdef SYS_open
	start = only_for(SYS_open);
	load_argument(1);
	put(BPF_JMP | BPF_JSET | BPF_K, WRITING, 1, 0);
	allow();
	end_only(start);
#endif
	start = only_for(SYS_bpf);
	load_argument(0);
	for (u32 i = 0; i < COUNT(bpf_commands); i++)
		allow_if(bpf_commands[i]);
	end_only(start);
	start = only_for(SYS_ioctl);
	load_argument(1);
	put(BPF_ALU | BPF_AND | BPF_K, 0xff00, 0, 0);
	allow_if(PERF_IOCTLS);
	end_only(start);
	start = only_for(SYS_kill);
	load_argument(0);
	allow_if((u32)watchdog);
	end_only(start);
	for (u32 i = 0; i < COUNT(allowed); i++)
		allow_if(allowed[i]);
	deny();
}

static void set_capabilities(u32 low, u32 high)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[CAPS_WORDS];

	if (syscall(SYS_capget, &head, data))
		return;
	data[0].permitted &= low;
	data[1].permitted &= high;
	for (int i = 0; i < CAPS_WORDS; i++) {
		data[i].effective &= data[i].permitted;
		data[i].inheritable = 0;
	}
	syscall(SYS_capset, &head, data);
}

void privileges_give_up(void)
{
	set_capabilities(0, 0);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

bool privileges_keep_needed(pid_t watchdog)
{
	struct sock_fprog program = {.filter = filter};
	u32 words[CAPS_WORDS] = {0};

	for (u32 i = 0; i < COUNT(kept); i++)
		words[kept[i] / CAP_BITS] |= 1U << kept[i] % CAP_BITS;
	set_capabilities(words[0], words[1]);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	build(watchdog);
	program.len = length;
	return !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}
