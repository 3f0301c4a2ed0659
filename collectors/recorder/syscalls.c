// SPDX-License-Identifier: GPL-2.0-only
/* The system calls that block, by what they wait for. Those missing wait for something else. */
#include <sys/syscall.h>

#include "engine.h"

/* Newer than the headers of some distributions; the same on every architecture. */
#define CALL_EPOLL_PWAIT2 441
#define CALL_FUTEX_WAITV 449
#define CALL_FUTEX_WAKE 454
#define CALL_FUTEX_WAIT 455
#define CALL_FUTEX_REQUEUE 456

static const struct {
	u16 number;
	u8 kind;
} calls[] = {
	{SYS_connect, WAIT_NETWORK},
	{SYS_accept, WAIT_NETWORK},
	{SYS_accept4, WAIT_NETWORK},
	{SYS_sendto, WAIT_NETWORK},
	{SYS_sendmsg, WAIT_NETWORK},
	{SYS_sendmmsg, WAIT_NETWORK},
	{SYS_recvfrom, WAIT_RECEIVE},
	{SYS_recvmsg, WAIT_RECEIVE},
	{SYS_recvmmsg, WAIT_RECEIVE},
	{SYS_pselect6, WAIT_POLL},
	{SYS_ppoll, WAIT_POLL},
	{SYS_epoll_pwait, WAIT_EPOLL},
	{CALL_EPOLL_PWAIT2, WAIT_EPOLL},
	{SYS_pread64, WAIT_DISK},
	{SYS_pwrite64, WAIT_DISK},
	{SYS_fsync, WAIT_DISK},
	{SYS_fdatasync, WAIT_DISK},
	{SYS_truncate, WAIT_DISK},
	{SYS_ftruncate, WAIT_DISK},
	{SYS_sync, WAIT_DISK},
	{SYS_readahead, WAIT_DISK},
	{SYS_io_setup, WAIT_DISK},
	{SYS_io_getevents, WAIT_DISK},
	{SYS_io_submit, WAIT_DISK},
	{SYS_sync_file_range, WAIT_DISK},
	{SYS_fallocate, WAIT_DISK},
	{SYS_preadv, WAIT_DISK},
	{SYS_pwritev, WAIT_DISK},
	{SYS_syncfs, WAIT_DISK},
	{SYS_preadv2, WAIT_DISK},
	{SYS_pwritev2, WAIT_DISK},
	{SYS_io_pgetevents, WAIT_DISK},
	{SYS_io_uring_enter, WAIT_DISK},
	{SYS_openat, WAIT_DISK},
	{SYS_openat2, WAIT_DISK},
	{SYS_unlinkat, WAIT_DISK},
	{SYS_renameat2, WAIT_DISK},
	{SYS_futex, WAIT_FUTEX},
	{CALL_FUTEX_WAITV, WAIT_FUTEX},
	{CALL_FUTEX_WAKE, WAIT_FUTEX},
	{CALL_FUTEX_WAIT, WAIT_FUTEX},
	{CALL_FUTEX_REQUEUE, WAIT_FUTEX},
	{SYS_read, WAIT_READ},
	{SYS_readv, WAIT_READ},
	{SYS_write, WAIT_BY_FILE},
	{SYS_writev, WAIT_BY_FILE},
#ifdef __x86_64__ /* calls that newer architectures do not have */
	{SYS_poll, WAIT_POLL},
	{SYS_select, WAIT_POLL},
	{SYS_epoll_wait, WAIT_EPOLL},
	{SYS_open, WAIT_DISK},
	{SYS_rename, WAIT_DISK},
	{SYS_creat, WAIT_DISK},
	{SYS_unlink, WAIT_DISK},
	{SYS_renameat, WAIT_DISK},
#endif
};

void fill_wait_kinds(u8 kinds[MAX_SYSCALLS])
{
	for (u32 i = 0; i < COUNT(calls); i++)
		kinds[calls[i].number] = calls[i].kind;
}
