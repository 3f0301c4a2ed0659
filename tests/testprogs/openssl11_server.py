# SPDX-License-Identifier: GPL-2.0-only
"""A TLS server on a libssl 1.1 that is loaded by path: prints its port, echoes one message each.

openssl11_server.py LIBCRYPTO LIBSSL CERTIFICATE KEY
"""

import ctypes
import socket
import sys

PEM = 1
MESSAGE_BYTES_MAX = 100


def main() -> None:
    """Serve until killed."""
    crypto, library, certificate, key = sys.argv[1:5]
    ctypes.CDLL(crypto, mode=ctypes.RTLD_GLOBAL)
    ssl = ctypes.CDLL(library)
    for name in ("TLS_server_method", "SSL_CTX_new", "SSL_new"):
        getattr(ssl, name).restype = ctypes.c_void_p
    context = ctypes.c_void_p(ssl.SSL_CTX_new(ctypes.c_void_p(ssl.TLS_server_method())))
    if ssl.SSL_CTX_use_certificate_file(context, certificate.encode(), PEM) != 1:
        sys.exit("no certificate")
    if ssl.SSL_CTX_use_PrivateKey_file(context, key.encode(), PEM) != 1:
        sys.exit("no key")
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    message = ctypes.create_string_buffer(MESSAGE_BYTES_MAX)
    while True:
        peer, _ = listener.accept()
        connection = ctypes.c_void_p(ssl.SSL_new(context))
        ssl.SSL_set_fd(connection, peer.fileno())
        if ssl.SSL_accept(connection) == 1:
            count = ssl.SSL_read(connection, message, MESSAGE_BYTES_MAX)
            if count > 0:
                ssl.SSL_write(connection, message, count)
        ssl.SSL_shutdown(connection)
        ssl.SSL_free(connection)
        peer.close()


if __name__ == "__main__":
    main()
