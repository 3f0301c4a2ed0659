/* SPDX-License-Identifier: GPL-2.0-only */
/* What evp_cost works on: keys and certificates from files, and another process on its CPU. */
#ifndef TLSTAX_EVP_MATERIAL_H
#define TLSTAX_EVP_MATERIAL_H

#include "truth.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>

#include <sys/wait.h>

/* Length of what a TLS 1.3 CertificateVerify signs: 64 spaces, context, zero byte, SHA-384 hash. */
enum { SIGNED_BYTES = 64 + 33 + 1 + 48, SECRET_BYTES = 256, SIGNATURE_BYTES = 1024 };

struct material {
	EVP_PKEY *server_key, *client_key, *peer_share;
	X509 *server, *ca;
	unsigned char *client_der;
	int client_der_bytes;
	X509_STORE *store;
	const char *group;
	unsigned char message[SIGNED_BYTES];
	unsigned char client_signature[SIGNATURE_BYTES];
	size_t client_signature_bytes;
};

static inline void fail(const char *what)
{
	ERR_print_errors_fp(stderr);
	fprintf(stderr, "evp_cost: %s\n", what);
	exit(1);
}

static inline FILE *open_file(const char *path)
{
	FILE *file = fopen(path, "r");
	if (!file)
		die(path);
	return file;
}

static inline EVP_PKEY *read_key(const char *path)
{
	FILE *file = open_file(path);
	EVP_PKEY *key = PEM_read_PrivateKey(file, NULL, NULL, NULL);
	fclose(file);
	if (!key)
		fail(path);
	return key;
}

static inline X509 *read_certificate(const char *path)
{
	FILE *file = open_file(path);
	X509 *certificate = PEM_read_X509(file, NULL, NULL, NULL);
	fclose(file);
	if (!certificate)
		fail(path);
	return certificate;
}

static size_t cold_bytes;
static int to_other[2], from_other[2];

/* The other process: writes cold_bytes of memory whenever it is asked to. */
static inline void displace(void)
{
	volatile char *cold = malloc(cold_bytes);
	char turn;
	while (read(to_other[0], &turn, 1) == 1) {
		for (size_t i = 0; i < cold_bytes; i += 64)
			cold[i]++;
		if (write(from_other[1], &turn, 1) != 1)
			break;
	}
	_exit(0);
}

/* Share this CPU with another process, which ends with this one. */
static inline void start_other(void)
{
	cpu_set_t here;
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	if (sched_setaffinity(0, sizeof(here), &here) || pipe(to_other) || pipe(from_other))
		die("other process");
	pid_t other = fork();
	if (other < 0)
		die("fork");
	if (other == 0) {
		close(to_other[1]);
		close(from_other[0]);
		displace();
	}
	close(to_other[0]);
	close(from_other[1]);
}

/* Let the other process have the CPU and its caches, and come back. */
static inline void cool(void)
{
	char turn = 0;
	if (cold_bytes && (write(to_other[1], &turn, 1) != 1 || read(from_other[0], &turn, 1) != 1))
		die("other process");
}

static inline void stop_other(void)
{
	if (cold_bytes) {
		close(to_other[1]);
		wait(NULL);
	}
}

#endif
