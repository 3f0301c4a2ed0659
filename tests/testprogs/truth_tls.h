/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Handshakes of the truth program: real ones, through the system's libssl, over loopback.
 *
 * The clients are one other process, so that only the server's side is in the measured one. Each
 * letter of KINDS is one connection, in this order, each on a thread of its own:
 *   s  succeeds; non-blocking accept loop that polls      b  succeeds on a blocking socket
 *   m  succeeds with a client certificate                 r  resumes the session of the last one
 *   d  succeeds; the client waits 20 ms before it speaks  i  succeeds implicitly, inside SSL_read
 *   v  fails: no common protocol version                  n  fails: the client has no certificate
 *   u  fails: the client refuses the server's certificate by an alert
 *   c  fails: the client hangs up before it speaks        a  is given up by the server (SSL_free)
 */
#ifndef TLSTAX_TRUTH_TLS_H
#define TLSTAX_TRUTH_TLS_H

#include "truth_peer.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#define CLIENT_DELAY_NS (20 * MILLISECOND)
#define SILENCE_NS (50 * MILLISECOND)

struct identity {
	EVP_PKEY *key;
	X509 *certificate;
};

struct connection {
	SSL_CTX *context;
	int fd;
	char kind;
};

static inline void die_tls(const char *what)
{
	ERR_print_errors_fp(stderr);
	die(what);
}

/* A P-256 key and a certificate that it signed itself; it serves as its own CA. */
static inline struct identity make_identity(void)
{
	struct identity made = {EVP_EC_gen("P-256"), X509_new()};
	X509 *certificate = made.certificate;
	X509_NAME *name = certificate ? X509_get_subject_name(certificate) : NULL;
	if (!made.key || !name || !X509_set_version(certificate, 2) ||
	    !ASN1_INTEGER_set(X509_get_serialNumber(certificate), 23) ||
	    !X509_gmtime_adj(X509_getm_notBefore(certificate), -3600) ||
	    !X509_gmtime_adj(X509_getm_notAfter(certificate), 86400) ||
	    !X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"truth",
					-1, -1, 0) ||
	    !X509_set_issuer_name(certificate, name) || !X509_set_pubkey(certificate, made.key))
		die_tls("certificate");
	X509_EXTENSION *is_ca =
		X509V3_EXT_conf_nid(NULL, NULL, NID_basic_constraints, "critical,CA:TRUE");
	if (!is_ca || !X509_add_ext(certificate, is_ca, -1) ||
	    !X509_sign(certificate, made.key, EVP_sha256()))
		die_tls("signature");
	X509_EXTENSION_free(is_ca);
	return made;
}

static inline SSL_CTX *make_context(const SSL_METHOD *method, const char *group,
				    const struct identity *identity)
{
	SSL_CTX *context = SSL_CTX_new(method);
	if (!context || !SSL_CTX_set1_groups_list(context, group) ||
	    !SSL_CTX_use_certificate(context, identity->certificate) ||
	    !SSL_CTX_use_PrivateKey(context, identity->key) ||
	    !X509_STORE_add_cert(SSL_CTX_get_cert_store(context), identity->certificate) ||
	    !SSL_CTX_set_session_id_context(context, (const unsigned char *)"truth", 5))
		die_tls("context");
	return context;
}

/* ---- client ---- */

static inline int refuse_certificate(int is_valid, X509_STORE_CTX *store)
{
	(void)is_valid;
	(void)store;
	return 0;
}

/* One connection as `kind` asks; returns its session when it has one. */
static inline SSL_SESSION *connect_once(SSL_CTX *context, uint16_t port, char kind,
					SSL_SESSION *last)
{
	int fd = connect_to(port);
	SSL_SESSION *session = NULL;
	char answer;
	if (recv(fd, &answer, 1, 0) != 1) /* like MySQL's: the server greets */
		die("greeting");
	if (kind == 'c') {
		close(fd);
		return NULL;
	}
	if (kind == 'a') { /* say nothing; the server gives up and closes */
		if (recv(fd, &answer, 1, 0) > 0)
			die("the server spoke first");
		close(fd);
		return NULL;
	}
	SSL *ssl = SSL_new(context);
	if (!ssl || !SSL_set_fd(ssl, fd))
		die_tls("client");
	if (kind == 'v')
		SSL_set_max_proto_version(ssl, TLS1_2_VERSION);
	if (kind == 'n')
		SSL_certs_clear(ssl);
	if (kind == 'u') /* trusts nobody, and says so by an alert */
		SSL_set_verify(ssl, SSL_VERIFY_PEER, refuse_certificate);
	if (kind == 'r' && (!last || !SSL_set_session(ssl, last)))
		die_tls("no session to resume");
	if (kind == 'd')
		doze(CLIENT_DELAY_NS);
	/* The byte that follows the handshake brings the session ticket with it. */
	if (SSL_connect(ssl) == 1 && (kind != 'i' || SSL_write(ssl, "?", 1) == 1) &&
	    SSL_read(ssl, &answer, 1) == 1)
		session = SSL_get1_session(ssl);
	SSL_shutdown(ssl);
	SSL_free(ssl);
	close(fd);
	return session;
}

static inline void run_clients(uint16_t port, const char *kinds, const char *group,
			       const struct identity *identity)
{
	SSL_CTX *context = make_context(TLS_client_method(), group, identity);
	SSL_SESSION *last = NULL;
	for (const char *kind = kinds; *kind; kind++) {
		SSL_SESSION *session = connect_once(context, port, *kind, last);
		if (session) {
			SSL_SESSION_free(last);
			last = session;
		}
	}
}

/* ---- server ---- */

struct accepted {
	int calls, waits;
	uint64_t wait_ns, start_ns, end_ns;
	bool done, given_up;
};

/* The server's own handshake function: a loop around the library's call. */
PHASE_CALL void tt_ssl_accept(SSL *ssl, int fd, char kind, struct accepted *accepted)
{
	int timeout_ms = kind == 'a' ? (int)(SILENCE_NS / MILLISECOND) : -1;
	for (;;) {
		begin(HANDSHAKE);
		int result = SSL_accept(ssl);
		int error = result == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl, result);
		/* A blocking socket waits inside of the call. */
		end(HANDSHAKE, NETWORK);
		accepted->calls++;
		accepted->done = result == 1;
		if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
			return;
		struct pollfd ready = {.fd = fd,
				       .events = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT};
		uint64_t before = clock_ns(CLOCK_MONOTONIC);
		begin(HANDSHAKE);
		int events = poll(&ready, 1, timeout_ms);
		end(HANDSHAKE, NETWORK);
		accepted->wait_ns += clock_ns(CLOCK_MONOTONIC) - before;
		accepted->waits++;
		if (events == 0) {
			accepted->given_up = true;
			return;
		}
	}
}

/* No call to accept: the first read finds out that there was no handshake yet. */
static inline void read_implicitly(SSL *ssl, struct accepted *accepted)
{
	char question;
	SSL_set_accept_state(ssl);
	begin(HANDSHAKE);
	int got = SSL_read(ssl, &question, 1);
	end(HANDSHAKE, NETWORK);
	accepted->calls = 1;
	accepted->done = got == 1;
}

PHASE_CALL void tt_prepare_tls(SSL *ssl, const struct connection *connection,
			       struct accepted *accepted)
{
	books.count[CONNECT]++;
	spin(CONNECT, MILLISECOND);
	books.count[HANDSHAKE]++;
	accepted->start_ns = clock_ns(CLOCK_MONOTONIC);
	if (connection->kind == 'i')
		read_implicitly(ssl, accepted);
	else
		tt_ssl_accept(ssl, connection->fd, connection->kind, accepted);
	accepted->end_ns = clock_ns(CLOCK_MONOTONIC);
	if (accepted->done && SSL_write(ssl, "!", 1) != 1)
		die_tls("SSL_write");
}

static inline void say_handshake(SSL *ssl, char kind, const struct accepted *accepted)
{
	bool done = accepted->done;
	const char *group = done ? SSL_group_to_name(ssl, SSL_get_negotiated_group(ssl)) : NULL;
	say("{\"kind\":\"handshake\",\"letter\":\"%c\",\"tid\":%d,\"outcome\":\"%s\","
	    "\"start_ns\":%llu,\"end_ns\":%llu,\"call_count\":%d,\"wait_count\":%d,\"wait_ns\":%"
	    "llu,"
	    "\"tls_version\":\"%s\",\"cipher\":\"%s\",\"group_name\":\"%s\",\"resumed\":%d}",
	    kind, thread_id(),
	    done		 ? "success"
	    : accepted->given_up ? "abandoned"
				 : "failure",
	    (unsigned long long)accepted->start_ns, (unsigned long long)accepted->end_ns,
	    accepted->calls, accepted->waits, (unsigned long long)accepted->wait_ns,
	    done ? SSL_get_version(ssl) : "unknown", done ? SSL_get_cipher_name(ssl) : "unknown",
	    group ? group : "unknown", done ? SSL_session_reused(ssl) : 0);
}

static inline void *serve_tls(void *argument)
{
	struct connection *connection = argument;
	struct accepted accepted = {0};
	char kind = connection->kind;
	open_books("tt-tls");
	if (send(connection->fd, "g", 1, MSG_NOSIGNAL) != 1)
		die("greeting");
	SSL *ssl = SSL_new(connection->context);
	if (!ssl || !SSL_set_fd(ssl, connection->fd))
		die_tls("server");
	if (kind == 'm' || kind == 'n')
		SSL_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	if (kind == 'v')
		SSL_set_min_proto_version(ssl, TLS1_3_VERSION);
	if (kind != 'b' && kind != 'i' && fcntl(connection->fd, F_SETFL, O_NONBLOCK))
		die("O_NONBLOCK");
	end(BACKGROUND, ON_CPU);
	tt_prepare_tls(ssl, connection, &accepted);
	say_handshake(ssl, kind, &accepted);
	if (accepted.done)
		SSL_shutdown(ssl);
	SSL_free(ssl);
	ERR_clear_error();
	close(connection->fd);
	close_books("tt-tls");
	return NULL;
}

static inline void run_tls(const char *kinds, const char *group)
{
	struct identity identity = make_identity();
	uint16_t port;
	int status, listener = listen_on_loopback(&port);
	pid_t clients = fork();
	if (clients < 0)
		die("fork");
	if (clients == 0) {
		close(listener);
		run_clients(port, kinds, group, &identity);
		_exit(0);
	}
	SSL_CTX *context = make_context(TLS_server_method(), group, &identity);
	await_go();
	for (const char *kind = kinds; *kind; kind++) {
		struct connection connection = {context, accept_one(listener), *kind};
		pthread_join(start(serve_tls, &connection), NULL);
	}
	if (waitpid(clients, &status, 0) != clients || status)
		die("the clients failed");
}

#endif
