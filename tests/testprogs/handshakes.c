// SPDX-License-Identifier: GPL-2.0-only
/*
 * handshakes - many TLS handshakes a second: with a key that both sides know, without public keys.
 *
 * handshakes THREADS RATE SECONDS   RATE a second in all, on THREADS threads; a child is the client
 *
 * It says {"kind":"ready"} and waits for a byte on standard input. At the end it says how many
 * handshakes its server side finished, and in how many milliseconds, and waits again.
 */
#define _GNU_SOURCE
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MOST = 64, KEY_BYTES = 16 };

static struct {
	int threads, rate, seconds;
	int pairs[THREADS_MOST][2];
} order;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static unsigned int server_key(SSL *ssl, const char *name, unsigned char *key, unsigned int most)
{
	(void)ssl, (void)name, (void)most;
	memset(key, 1, KEY_BYTES);
	return KEY_BYTES;
}

static unsigned int client_key(SSL *ssl, const char *hint, char *name, unsigned int name_most,
			       unsigned char *key, unsigned int most)
{
	(void)hint;
	snprintf(name, name_most, "client");
	return server_key(ssl, name, key, most);
}

static SSL_CTX *context_of(const SSL_METHOD *method)
{
	SSL_CTX *context = SSL_CTX_new(method);

	SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
	SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	if (!SSL_CTX_set_cipher_list(context, "PSK-AES128-GCM-SHA256"))
		die("no such cipher");
	return context;
}

/* All handshakes of one thread, one after the other on its socket; how many. */
static void *serve(void *argument)
{
	long long step_ns = 1000000000LL * order.threads / order.rate, count = 0;
	long long start_ns = now_ns(), end_ns = start_ns + order.seconds * 1000000000LL;
	SSL_CTX *context = context_of(TLS_server_method());

	SSL_CTX_set_psk_server_callback(context, server_key);
	for (long long at_ns = start_ns; now_ns() < end_ns; at_ns += step_ns) {
		struct timespec until = {at_ns / 1000000000LL, at_ns % 1000000000LL};
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
		SSL *ssl = SSL_new(context);
		SSL_set_fd(ssl, *(int *)argument);
		if (write(*(int *)argument, "g", 1) != 1 || SSL_accept(ssl) != 1)
			die("a handshake failed");
		count++;
		SSL_free(ssl);
	}
	return (void *)count;
}

static void *connect_all(void *argument)
{
	SSL_CTX *context = context_of(TLS_client_method());
	char go;

	SSL_CTX_set_psk_client_callback(context, client_key);
	while (read(*(int *)argument, &go, 1) == 1) {
		SSL *ssl = SSL_new(context);
		SSL_set_fd(ssl, *(int *)argument);
		if (SSL_connect(ssl) != 1)
			break;
		SSL_free(ssl);
	}
	return NULL;
}

static long long run_all(void *(*body)(void *), int side)
{
	pthread_t threads[THREADS_MOST];
	long long count = 0;
	void *more;

	for (int i = 0; i < order.threads; i++)
		if (pthread_create(&threads[i], NULL, body, &order.pairs[i][side]))
			die("pthread_create");
	for (int i = 0; i < order.threads; i++) {
		pthread_join(threads[i], &more);
		count += (long long)more;
	}
	return count;
}

int main(int count, char **arguments)
{
	char byte;

	if (count != 4)
		return 2;
	order.threads = atoi(arguments[1]), order.rate = atoi(arguments[2]);
	order.seconds = atoi(arguments[3]);
	if (order.threads < 1 || order.threads > THREADS_MOST || order.rate < 1)
		return 2;
	for (int i = 0; i < order.threads; i++)
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, order.pairs[i]))
			die("socketpair");
	pid_t client = fork();
	for (int i = 0; i < order.threads; i++)
		close(order.pairs[i][client != 0]); /* the ends of the other side */
	if (!client) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_all(connect_all, 1);
		return 0;
	}
	printf("{\"kind\":\"ready\"}\n");
	fflush(stdout);
	if (read(STDIN_FILENO, &byte, 1) != 1)
		return 1;
	long long start_ns = now_ns(), done = run_all(serve, 0);
	printf("{\"kind\":\"done\",\"handshakes\":%lld,\"ms\":%lld}\n", done,
	       (now_ns() - start_ns) / 1000000);
	fflush(stdout);
	return read(STDIN_FILENO, &byte, 1) != 1;
}
