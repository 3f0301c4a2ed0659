// SPDX-License-Identifier: GPL-2.0-only
/*
 * evp_cost - what the public-key operations of one TLS 1.3 server handshake cost on this machine.
 *
 * Calls the same functions of libcrypto as libssl does, with the same parameters, on the same
 * keys, and times only the calls that tlstax times, by the CPU clock of the thread:
 *   sign         EVP_DigestSign of a CertificateVerify by the server's key
 *   keygen       EVP_PKEY_paramgen for the client's share, EVP_PKEY_keygen for the server's own
 *   derive       EVP_PKEY_derive, both calls of it (the length, then the secret)
 *   verify       EVP_DigestVerify of the client's CertificateVerify, and the two that check the
 *                signatures on the client's and the server's certificate with the CA's key
 *   certificate  X509_verify_cert of the client's certificate, and of the server's own (libssl
 *                builds the chain that it sends that way), less those two verifications
 * RSA keys sign as rsa_pss_rsae_sha256 does (PSS, salt as long as the digest), EC keys ecdsa.
 *
 * evp_cost SERVER_KEY SERVER_CERT CLIENT_KEY CLIENT_CERT CA_CERT GROUP SECONDS [COLD_BYTES]
 *
 * A round does what a handshake does, in its order and in its two flights: share, secret, own chain
 * and signature; then the client's chain and signature. Before each flight another process gets the
 * CPU and writes COLD_BYTES of memory: a server has waited for its client then, others have run,
 * and it does not find its code and data in the caches as a loop would. (The same is done before a
 * verification is timed that has to be taken off a chain's.) 0, the default: no other process.
 *
 * Prints one JSON
 * object: per operation the count, the median, the mean without the slowest tenth, and the
 * interval of the median (95 %, order statistics), in nanoseconds.
 */
#include "evp_material.h"

#include <openssl/rsa.h>

enum { MAX_ROUNDS = 200000 };
enum operation { SIGN, KEYGEN, DERIVE, VERIFY, CERTIFICATE, OPERATIONS };

static const char *const OPERATION_NAMES[OPERATIONS] = {"sign", "keygen", "derive", "verify",
							"certificate"};

static uint64_t *taken_ns[OPERATIONS];

static uint64_t now(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static void set_padding(EVP_PKEY_CTX *parameters, EVP_PKEY *key)
{
	if (EVP_PKEY_is_a(key, "RSA") &&
	    (EVP_PKEY_CTX_set_rsa_padding(parameters, RSA_PKCS1_PSS_PADDING) <= 0 ||
	     EVP_PKEY_CTX_set_rsa_pss_saltlen(parameters, RSA_PSS_SALTLEN_DIGEST) <= 0))
		fail("padding");
}

/* Time of EVP_DigestSign alone; the context is made as libssl makes it. */
static uint64_t sign(const struct material *with, EVP_PKEY *key, unsigned char *signature,
		     size_t *bytes)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	EVP_PKEY_CTX *parameters;
	if (!context ||
	    EVP_DigestSignInit_ex(context, &parameters, "SHA256", NULL, NULL, key, NULL) <= 0)
		fail("EVP_DigestSignInit_ex");
	set_padding(parameters, key);
	*bytes = SIGNATURE_BYTES;
	uint64_t start = now();
	int done = EVP_DigestSign(context, signature, bytes, with->message, SIGNED_BYTES);
	uint64_t spent = now() - start;
	if (done <= 0)
		fail("EVP_DigestSign");
	EVP_MD_CTX_free(context);
	return spent;
}

static uint64_t verify(const struct material *with, EVP_PKEY *key)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	EVP_PKEY_CTX *parameters;
	if (!context ||
	    EVP_DigestVerifyInit_ex(context, &parameters, "SHA256", NULL, NULL, key, NULL) <= 0)
		fail("EVP_DigestVerifyInit_ex");
	set_padding(parameters, key);
	uint64_t start = now();
	int done = EVP_DigestVerify(context, with->client_signature, with->client_signature_bytes,
				    with->message, SIGNED_BYTES);
	uint64_t spent = now() - start;
	if (done <= 0)
		fail("EVP_DigestVerify");
	EVP_MD_CTX_free(context);
	return spent;
}

/* The CA's signature on the certificate, as X509_verify_cert checks it. */
static uint64_t verify_issued(const struct material *with, X509 *certificate)
{
	const ASN1_BIT_STRING *signature;
	const X509_ALGOR *algorithm;
	unsigned char *body = NULL;
	int digest, body_bytes = i2d_re_X509_tbs(certificate, &body);
	X509_get0_signature(&signature, &algorithm, certificate);
	if (body_bytes <= 0 ||
	    !OBJ_find_sigid_algs(OBJ_obj2nid(algorithm->algorithm), &digest, NULL))
		fail("signature of the client certificate");
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	if (!context ||
	    EVP_DigestVerifyInit_ex(context, NULL, digest == NID_undef ? NULL : OBJ_nid2sn(digest),
				    NULL, NULL, X509_get0_pubkey(with->ca), NULL) <= 0)
		fail("EVP_DigestVerifyInit_ex");
	uint64_t start = now();
	int done = EVP_DigestVerify(context, signature->data, (size_t)signature->length, body,
				    (size_t)body_bytes);
	uint64_t spent = now() - start;
	if (done <= 0)
		fail("the client certificate is not signed by the CA");
	EVP_MD_CTX_free(context);
	OPENSSL_free(body);
	return spent;
}

/* A certificate that was just received: parsed anew, so nothing about it is cached. */
static X509 *receive_certificate(const struct material *with)
{
	const unsigned char *der = with->client_der;
	X509 *certificate = d2i_X509(NULL, &der, with->client_der_bytes);
	if (!certificate)
		fail("d2i_X509");
	return certificate;
}

/* Debian's default, which libssl passes on when it checks its peer. */
enum { SECURITY_LEVEL = 2 };

/* `purpose` is what the certificate must be good for; NULL: anything, as for libssl's own. */
static uint64_t verify_chain(const struct material *with, X509 *certificate, const char *purpose)
{
	X509_STORE_CTX *context = X509_STORE_CTX_new();
	if (!context || !X509_STORE_CTX_init(context, with->store, certificate, NULL) ||
	    (purpose && !X509_STORE_CTX_set_default(context, purpose)))
		fail("X509_STORE_CTX_init");
	if (purpose)
		X509_VERIFY_PARAM_set_auth_level(X509_STORE_CTX_get0_param(context),
						 SECURITY_LEVEL);
	uint64_t start = now();
	int done = X509_verify_cert(context);
	uint64_t spent = now() - start;
	if (done <= 0)
		fail(X509_verify_cert_error_string(X509_STORE_CTX_get_error(context)));
	X509_STORE_CTX_free(context);
	return spent;
}

/* A key that has the client's group and no value yet, for the share that it sent. */
static uint64_t generate_parameters(const struct material *with)
{
	EVP_PKEY *key = NULL;
	const char *type = with->group[0] == 'X' ? with->group : "EC";
	EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
	if (!context || EVP_PKEY_paramgen_init(context) <= 0 ||
	    EVP_PKEY_CTX_set_group_name(context, with->group) <= 0)
		fail("group");
	uint64_t start = now();
	int done = EVP_PKEY_paramgen(context, &key);
	uint64_t spent = now() - start;
	if (done <= 0)
		fail("EVP_PKEY_paramgen");
	EVP_PKEY_free(key);
	EVP_PKEY_CTX_free(context);
	return spent;
}

static EVP_PKEY *generate(const struct material *with, uint64_t *spent)
{
	EVP_PKEY *key = NULL;
	const char *type = with->group[0] == 'X' ? with->group : "EC";
	EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
	if (!context || EVP_PKEY_keygen_init(context) <= 0 ||
	    EVP_PKEY_CTX_set_group_name(context, with->group) <= 0)
		fail("group");
	uint64_t start = now();
	int done = EVP_PKEY_keygen(context, &key);
	*spent = now() - start;
	if (done <= 0)
		fail("EVP_PKEY_keygen");
	EVP_PKEY_CTX_free(context);
	return key;
}

static uint64_t derive(const struct material *with, EVP_PKEY *own)
{
	unsigned char secret[SECRET_BYTES];
	size_t bytes = sizeof(secret);
	EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_pkey(NULL, own, NULL);
	if (!context || EVP_PKEY_derive_init(context) <= 0 ||
	    EVP_PKEY_derive_set_peer(context, with->peer_share) <= 0)
		fail("EVP_PKEY_derive_set_peer");
	uint64_t start = now();
	int done = EVP_PKEY_derive(context, NULL, &bytes) > 0 &&
		   EVP_PKEY_derive(context, secret, &bytes) > 0;
	uint64_t spent = now() - start;
	if (!done)
		fail("EVP_PKEY_derive");
	EVP_PKEY_CTX_free(context);
	return spent;
}

static uint64_t verify_issued_cold(const struct material *with, X509 *certificate)
{
	cool();
	return verify_issued(with, certificate);
}

static void one_round(const struct material *with, int round)
{
	unsigned char signature[SIGNATURE_BYTES];
	size_t bytes;
	uint64_t generated;

	cool();
	uint64_t parameters = generate_parameters(with);
	EVP_PKEY *own = generate(with, &generated);
	taken_ns[KEYGEN][round] = parameters + generated;
	taken_ns[DERIVE][round] = derive(with, own);
	EVP_PKEY_free(own);
	uint64_t chains = verify_chain(with, with->server, NULL);
	taken_ns[SIGN][round] = sign(with, with->server_key, signature, &bytes);

	cool();
	X509 *certificate = receive_certificate(with);
	chains += verify_chain(with, certificate, "ssl_client");
	uint64_t verified = verify(with, X509_get0_pubkey(certificate));
	uint64_t issued = verify_issued_cold(with, certificate);
	issued += verify_issued_cold(with, with->server);
	X509_free(certificate);
	taken_ns[CERTIFICATE][round] = chains > issued ? chains - issued : 0;
	taken_ns[VERIFY][round] = verified + issued;
}

static int by_size(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
	return a < b ? -1 : a > b;
}

static void print(int rounds)
{
	int margin = 1, kept = rounds - rounds / 10;
	while (margin * margin < rounds) /* 1.96 sqrt(n) / 2, rounded up */
		margin++;
	printf("{\"round_count\":%d", rounds);
	for (int operation = 0; operation < OPERATIONS; operation++) {
		uint64_t *sorted = taken_ns[operation];
		double sum = 0;
		qsort(sorted, (size_t)rounds, sizeof(*sorted), by_size);
		for (int i = 0; i < kept; i++)
			sum += (double)sorted[i];
		int low = rounds / 2 - margin, high = rounds / 2 + margin;
		printf(",\"%s\":{\"median_ns\":%llu,\"low_ns\":%llu,\"high_ns\":%llu,"
		       "\"mean_ns\":%.0f}",
		       OPERATION_NAMES[operation], (unsigned long long)sorted[rounds / 2],
		       (unsigned long long)sorted[low < 0 ? 0 : low],
		       (unsigned long long)sorted[high >= rounds ? rounds - 1 : high], sum / kept);
	}
	printf("}\n");
}

static void prepare(struct material *with, char **argv)
{
	uint64_t spent;
	X509 *client = read_certificate(argv[4]);
	with->server_key = read_key(argv[1]);
	with->server = read_certificate(argv[2]);
	with->client_key = read_key(argv[3]);
	with->ca = read_certificate(argv[5]);
	with->group = argv[6];
	with->client_der_bytes = i2d_X509(client, &with->client_der);
	with->store = X509_STORE_new();
	if (with->client_der_bytes <= 0 || !with->store ||
	    !X509_STORE_add_cert(with->store, with->ca))
		fail("store");
	memset(with->message, ' ', sizeof(with->message));
	sign(with, with->client_key, with->client_signature, &with->client_signature_bytes);
	with->peer_share = generate(with, &spent);
	for (int operation = 0; operation < OPERATIONS; operation++)
		if (!(taken_ns[operation] = calloc(MAX_ROUNDS, sizeof(uint64_t))))
			die("memory");
}

int main(int argc, char **argv)
{
	static struct material material;
	if (argc < 8) {
		fprintf(stderr,
			"usage: evp_cost SERVER_KEY SERVER_CERT CLIENT_KEY CLIENT_CERT CA_CERT "
			"GROUP SECONDS [COLD_BYTES]\n");
		return 2;
	}
	prepare(&material, argv);
	cold_bytes = argc > 8 ? strtoul(argv[8], NULL, 10) : 0;
	if (cold_bytes)
		start_other();
	uint64_t until = clock_ns(CLOCK_MONOTONIC) + (uint64_t)(strtod(argv[7], NULL) * 1e9);
	int rounds = 0;

	while (rounds < MAX_ROUNDS && (rounds < 20 || clock_ns(CLOCK_MONOTONIC) < until))
		one_round(&material, rounds++);
	print(rounds);
	stop_other();
	return 0;
}
