// SPDX-License-Identifier: GPL-2.0-only
/* Programs that the kernel runs once for each thread or open file. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "engine.h"
#include "failure.h"

struct bpf_link *engine_iterator(const struct engine *engine, const char *name, int pid)
{
	struct bpf_program *program = bpf_object__find_program_by_name(engine->object, name);
	union bpf_iter_link_info process = {.task = {.pid = (u32)pid}};
	LIBBPF_OPTS(bpf_iter_attach_opts, options, .link_info = &process,
		    .link_info_len = sizeof(process));
	struct bpf_link *link = pid ? bpf_program__attach_iter(program, &options) : NULL;

	/* Kernels before 6.1 iterate all processes. */
	return link ? link : bpf_program__attach_iter(program, NULL);
}

int engine_iterate(struct bpf_link *iterator)
{
	char text[256];
	int fd = bpf_iter_create(bpf_link__fd(iterator));

	if (fd < 0)
		return -1;
	while (read(fd, text, sizeof(text)) > 0)
		;
	close(fd);
	return 0;
}

int engine_note_ports(const struct engine *engine, int pid)
{
	struct bpf_link *link = engine_iterator(engine, "each_file", pid);
	int error = link ? engine_iterate(link) : -1;

	bpf_link__destroy(link);
	return error ? fail(EXIT_CODE_HOST, "cannot read the ports that the process listens on: %s",
			    strerror(errno))
		     : 0;
}
