// SPDX-License-Identifier: GPL-2.0-only
/*
 * An authentication plug-in of MariaDB that asks an LDAP directory, as plug-ins for LDAP do: it
 * sends the password, in a simple bind, to 127.0.0.1:DIRECTORY_PORT. See directory.py.
 *
 * The declarations are those of MariaDB's mysql/plugin.h and mysql/plugin_auth.h and of OpenLDAP's
 * ldap.h, as far as they are used.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum { AUTHENTICATION = 7, INTERFACE = 0x0202, PLUGINS = 0x0104, LICENSE_GPL = 1, STABLE = 5 };
enum { REFUSED = 0, ACCEPTED = -1 };
enum { PROTOCOL_VERSION = 0x11, LDAP_3 = 3 };

struct channel {
	int (*read_packet)(struct channel *channel, unsigned char **text);
	int (*write_packet)(struct channel *channel, const unsigned char *text, int length);
	void (*info)(struct channel *channel, void *info);
};

struct authentication {
	int interface;
	const char *client_plugin;
	int (*authenticate)(struct channel *channel, void *info);
	int (*hash)(const char *password, size_t length, char *hash, size_t *hash_length);
	int (*prepare)(const char *hash, size_t length, unsigned char *out, size_t *out_length);
};

struct plugin {
	int type;
	void *info;
	const char *name, *author, *description;
	int license;
	int (*begin)(void *plugin);
	int (*end)(void *plugin);
	unsigned version;
	void *status_variables, *system_variables;
	const char *version_text;
	unsigned maturity;
};

struct text {
	unsigned long length;
	char *bytes;
};

static int (*ldap_initialize)(void **directory, const char *address);
static int (*ldap_set_option)(void *directory, int option, const void *value);
static int (*ldap_sasl_bind_s)(void *directory, const char *name, const char *mechanism,
			       struct text *password, void *, void *, void *);
static int (*ldap_unbind_ext_s)(void *directory, void *, void *);

static int load(void *unused)
{
	static const char *const names[] = {"libldap-2.5.so.0", "libldap.so.2"};
	void *library = NULL;

	(void)unused;
	for (size_t at = 0; !library && at < sizeof(names) / sizeof(*names); at++)
		library = dlopen(names[at], RTLD_NOW);
	if (!library)
		return 1;
	ldap_initialize = (int (*)(void **, const char *))dlsym(library, "ldap_initialize");
	ldap_set_option = (int (*)(void *, int, const void *))dlsym(library, "ldap_set_option");
	ldap_sasl_bind_s = (int (*)(void *, const char *, const char *, struct text *, void *,
				    void *, void *))dlsym(library, "ldap_sasl_bind_s");
	ldap_unbind_ext_s = (int (*)(void *, void *, void *))dlsym(library, "ldap_unbind_ext_s");
	return !(ldap_initialize && ldap_set_option && ldap_sasl_bind_s && ldap_unbind_ext_s);
}

static int bind_user(unsigned char *password, int length)
{
	struct text sent = {(unsigned long)length, (char *)password};
	char address[64];
	void *directory;
	int version = LDAP_3;
	int code;

	snprintf(address, sizeof(address), "ldap://127.0.0.1:%s", getenv("DIRECTORY_PORT"));
	if (ldap_initialize(&directory, address))
		return REFUSED;
	ldap_set_option(directory, PROTOCOL_VERSION, &version);
	code = ldap_sasl_bind_s(directory, "uid=guessed", NULL, &sent, NULL, NULL, NULL);
	ldap_unbind_ext_s(directory, NULL, NULL);
	return code ? REFUSED : ACCEPTED;
}

static int authenticate(struct channel *channel, void *info)
{
	static const unsigned char question[] = "\4Password: ";
	unsigned char *answer;
	int length;

	(void)info;
	if (channel->write_packet(channel, question, sizeof(question) - 1))
		return REFUSED;
	length = channel->read_packet(channel, &answer);
	return length < 0 ? REFUSED : bind_user(answer, length);
}

static struct authentication login = {INTERFACE, "dialog", authenticate, NULL, NULL};

int _maria_plugin_interface_version_ = PLUGINS;
int _maria_sizeof_struct_st_plugin_ = sizeof(struct plugin);
struct plugin _maria_plugin_declarations_[] = {
	{AUTHENTICATION, &login, "directory_login", "tlstax", "asks a directory", LICENSE_GPL, load,
	 NULL, 0x0100, NULL, NULL, "1.0", STABLE},
	{0},
};
